"""Liveness: which nodes and Symbols lead to the outputs of a graph, for dead code elimination."""

from __future__ import annotations

import collections
from typing import NamedTuple

from graphcore.ir.graph import Graph
from graphcore.ir.transform.walk import edit
from graphcore.support.source_lines import Imported


class Live(NamedTuple):
    """Liveness of a graph. nodes: for each node, whether it is live. symbols: the numbers of live Symbols."""

    nodes: list[bool]
    symbols: set[int]


def live_nodes(graph: Graph, *, by_name: bool = True) -> Live:
    """Return what leads to an output, and nodes without results.

    by_name: also what leads to a value that a user named. Names in a model that was read do not count: there every
    value has one.
    """
    used = {symbol.id for symbol in graph.outputs}
    nodes = graph.nodes
    kept = [False] * len(nodes)
    for position in range(len(nodes) - 1, -1, -1):
        node = nodes[position]
        for made in node.outputs:
            if made.id in used or (by_name and made.given_name is not None and type(node.origin) is not Imported):
                break
        else:
            if node.outputs:
                continue
        kept[position] = True
        for symbol in node.inputs:
            if symbol is not None:
                used.add(symbol.id)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                used.update(value.scope.captured)
    return Live(kept, used)


def readers(graph: Graph) -> dict[int, int]:
    """Return how often each Symbol is read: by nodes, by bodies, as an output and as what a buffer becomes."""
    counts = collections.Counter(symbol.id for symbol in graph.outputs)
    counts.update(held.value.id for held in graph.buffers.values())
    counts.update(symbol.id for symbol in graph.watched.values())
    for node in graph.nodes:
        counts.update(symbol.id for symbol in node.inputs if symbol is not None)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                counts.update(value.scope.captured.keys())
    return counts


def sliced_alone(graph: Graph) -> set[int]:
    """Return the numbers of the Symbols that Slices alone take parts of."""
    counts = readers(graph)
    cuts = collections.Counter(
        node.inputs[0].id
        for node in graph.nodes
        if node.op_type == "Slice" and not node.domain and node.inputs[0] is not None
    )
    return {number for number, count in cuts.items() if count == counts[number]}


def prune(graph: Graph) -> None:
    """Remove dead code from a graph in place. Its bodies are pruned already.

    Lowering keeps a value in two dtypes until it knows which of them is asked for.
    """
    kept, used = live_nodes(graph, by_name=False)
    if not all(kept):
        edit(graph, dropped={id(node) for node, stays in zip(graph.nodes, kept, strict=True) if not stays})
    captured = graph.scope.captured
    if captured:
        graph.scope.captured = {outer: inner for outer, inner in captured.items() if inner.id in used}
