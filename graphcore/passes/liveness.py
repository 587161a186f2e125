"""Which nodes and Symbols of a graph lead to what it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphcore.ir.graph import Graph


class Live(NamedTuple):
    """nodes: for each node of the graph, whether it is needed. symbols: the numbers of the Symbols that are."""

    nodes: list[bool]
    symbols: set[int]


def live_nodes(graph: Graph, *, by_name: bool = True) -> Live:
    """What leads to an output, or has no results at all.

    by_name: or to a value that a user named. A name in a model that others wrote asks for nothing: there every value
    has one.
    """
    used = {symbol.id for symbol in graph.outputs}
    nodes = graph._nodes
    read = graph._read if by_name else len(nodes)
    kept = [False] * len(nodes)
    for position in range(len(nodes) - 1, -1, -1):
        node = nodes[position]
        for made in node.outputs:
            if made.id in used or (made._name is not None and position >= read):
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
                used.update(value._captured)
    return Live(kept, used)


def prune(graph: Graph) -> None:
    """Removes what leads to no output from a graph that nobody else has yet. Its bodies are pruned already.

    Lowering keeps a value in two dtypes until it knows which of them is asked for.
    """
    kept, used = live_nodes(graph, by_name=False)
    if not all(kept):
        keep_nodes(graph, kept)
    if graph._captured:
        graph._captured = {outer: inner for outer, inner in graph._captured.items() if inner.id in used}


def keep_nodes(graph: Graph, kept: Sequence[bool]) -> None:
    """Removes the other nodes. What they make is read by none of those kept."""
    graph._read = sum(kept[: graph._read])
    graph._nodes[:] = [node for node, stays in zip(graph._nodes, kept, strict=True) if stays]


__all__ = ["Live", "keep_nodes", "live_nodes", "prune"]
