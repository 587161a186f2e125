"""Buffers as inputs and outputs, which is what a model in a file has, and the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from graphcore.ir.buffers import Buffer, stored, value_of
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.pickling import copied

NOTE = "graphcore.buffers"
"""The key of the metadata that says which inputs are buffers, and which outputs are what they hold afterwards."""


def exposed(graph: Graph) -> Graph:
    """Return a graph of the same nodes whose buffers are inputs and further outputs, as its metadata says.

    A graph without buffers is returned as it is.
    """
    if not graph._buffers:
        return graph
    made = copied(graph)
    outputs = [(name, made._symbols[s.id]) for name, s in graph._outputs or ()]
    used = {name or s.name for name, s in outputs}
    noted: dict[str, dict[str, Any]] = {}
    after = stored(graph)
    for name, held in graph._buffers.items():
        note = noted[name] = {"in_place": True} if held.buffer.in_place else {}
        if name in after:
            symbol = made._symbols[after[name].id]
            label = _free(f"{name}_out", used, made, symbol)
            used.add(label)
            outputs.append((label, symbol))
            note["output"] = label
    made._buffers = {}
    made._outputs = outputs
    made.metadata[NOTE] = json.dumps(noted)
    return made


def _free(label: str, used: set[str], graph: Graph, symbol: Symbol) -> str:
    """Return a name that no other output or Symbol has. The name of what a node makes may be that of its output."""
    is_made = isinstance(symbol.producer, Node)
    taken = {name for name, s in graph.names.taken.items() if s is not symbol or not is_made}
    found, count = label, 0
    while found in used or found in taken:
        count += 1
        found = f"{label}_{count}"
    return found


def outputs_of(graph: Graph) -> dict[str, str | None]:
    """Return the buffers of an exposed graph by name, with the outputs that are what they hold afterwards, if any."""
    return {name: note.get("output") for name, note in json.loads(graph.metadata.get(NOTE, "{}")).items()}


def attach(graph: Graph, buffers: Mapping[str, Buffer]) -> None:
    """Undo `exposed`: inputs and outputs that the metadata names are buffers again."""
    outputs = {name or s.name: s for name, s in graph._outputs or ()}
    inputs = {s.name: s for s in graph._inputs}
    labels = outputs_of(graph)
    del graph.metadata[NOTE]
    for name, buffer in buffers.items():
        label = labels[name]
        held = inputs[name] if label is None else outputs[label]
        graph._buffers[name] = value_of(graph, buffer, held, name)
    graph._outputs = [(name, s) for name, s in graph._outputs or () if (name or s.name) not in labels.values()]
