"""Graphs after lowering, as data of the page: which of their nodes stand for which, and why."""

from __future__ import annotations

import itertools
from collections.abc import Set
from dataclasses import dataclass

from graphcore.errors import GraphError
from graphcore.ir.definitions import definition_of, definitions
from graphcore.ir.graph import Optimize, Precision, TargetName
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import mark_of, marked_through, parts, walk
from graphcore.runtime.lowering import TARGETS, lower
from graphcore.runtime.lowering.pipeline import Pass
from graphcore.runtime.lowering.report import detour
from graphcore.runtime.lowering.targets.legality import Legality, legality
from graphcore.runtime.lowering.targets.releases import default
from graphcore.runtime.ort.release import runtime as installed
from graphcore.view.graph_data import GraphData, Json


@dataclass(frozen=True, slots=True)
class LoweredData:
    """A lowered graph. made: for each node of the graph before, the indices of those that stand for it."""

    data: GraphData
    json: Json
    made: list[list[int]]


def lowered_data(source: GraphData, target: TargetName, precision: Precision | None, optimize: Optimize) -> LoweredData:
    """Return what a graph becomes for a target, and note in its nodes what stands for them.

    It is what a session of the installed onnxruntime lowers to; for target "onnx", what a file has. Raises `GraphError`
    for a target that there is not, and for a graph that cannot be lowered.
    """
    if target not in TARGETS:
        raise GraphError(f"view: no target is called {target!r}", help=f"use one of {', '.join(TARGETS)}")
    number = source.index_of_node
    left_out = len(source.nodes)  # of nodes that the page does not show
    marked = marked_through(source.graph, lambda node: number.get(id(node), left_out))
    runtime = default(target) if target == "onnx" else installed()
    passes: list[Pass] = []
    made = lower(marked, target, precision, runtime=runtime, optimize=optimize, trace=passes)
    plain = made if optimize == "off" else lower(marked, target, precision, runtime=runtime)
    data = GraphData(made, like=source)
    found = LoweredData(
        data,
        {
            "target": target,
            "runtime": runtime.version or "every release",
            "graph": data.as_json(),
            "passes": [{"name": step.name, "reason": step.why} for step in passes],
        },
        [[] for _ in source.nodes],
    )
    by_mark: list[list[Node]] = [[] for _ in source.nodes]
    for index, node in enumerate(data.source_nodes):
        mark = mark_of(node)
        if mark is not None and mark != left_out:
            found.made[mark].append(index)
            by_mark[mark].append(node)
    is_called = {id(node) for definition in definitions(source.graph) for node in walk(definition.body)}
    _add_calls(source, found, is_called)
    needed: list[list[Node]] = [[] for _ in source.nodes]
    for node in (node for part in parts(plain) for node in part.nodes):
        mark = mark_of(node)
        if mark is not None and mark != left_out:
            needed[mark].append(node)
    _note(source, found, is_called, by_mark, needed, legality(target, runtime))
    return found


def _add_calls(source: GraphData, found: LoweredData, is_called: Set[int]) -> None:
    """Add to each call what stands for the nodes of its function there: they are in the layer of the call.

    is_called: the identities of nodes of functions.
    """
    calls: dict[str, int] = {}
    for index, node in enumerate(source.source_nodes):
        if node.layer and id(node) not in is_called and definition_of(node) is not None:
            calls[node.layer] = -1 if node.layer in calls else index
    if not calls:
        return
    for index, node in enumerate(found.data.source_nodes):
        mark = mark_of(node)
        if mark is None or mark >= len(source.nodes) or id(source.source_nodes[mark]) not in is_called:
            continue
        for layer in itertools.accumulate(part + "/" for part in node.layer.split("/")[:-1]):
            if (call := calls.get(layer, -1)) >= 0:
                found.made[call].append(index)


def _note(
    source: GraphData,
    found: LoweredData,
    is_called: Set[int],
    by_mark: list[list[Node]],
    needed: list[list[Node]],
    rules: Legality,
) -> None:
    """Note in each node what stands for it, and in each cast of the lowered graph why it stands there."""
    for index, node in enumerate(source.source_nodes):
        if definition_of(node) is not None:
            reason = "its body stands in its place"
        elif id(node) in is_called:
            # A function is called any number of times, and each call has nodes of its own.
            reasons = {detour(node, [one], [one], rules) for one in by_mark[index]}
            reason = reasons.pop() if len(reasons) == 1 else detour(node, by_mark[index], needed[index], rules)
        else:
            reason = detour(node, by_mark[index], needed[index], rules)
        entry = {"target": len(source.lowered), "nodes": found.made[index], "reason": reason}
        source.nodes[index].setdefault("lowered", []).append(entry)
        for made in found.made[index] if definition_of(node) is None else ():
            _explain_cast(source.nodes[index], found.data.nodes[made], reason)
    source.lowered.append(found)


def _explain_cast(original: Json, made: Json, reason: str) -> None:
    cast = made.get("cast")
    if cast is None:
        return
    before = original.get("cast")
    if before is not None and before["result"] == cast["result"]:
        made["cast"] = before
    else:
        words = f"lowering: {reason}" if reason else f"lowering: for {original['op']}"
        made["cast"] = {**cast, "implicit": True, "system": "lowering", "pair": None, "words": words}
