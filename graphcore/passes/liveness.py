"""Which nodes and Symbols of a graph lead to what it is asked for."""

from __future__ import annotations

from typing import NamedTuple

from graphcore.graph import Graph


class Live(NamedTuple):
    """nodes: for each node of the graph, whether it is needed. symbols: the numbers of the Symbols that are."""

    nodes: list[bool]
    symbols: set[int]


def live_nodes(graph: Graph) -> Live:
    """What leads to an output, to a value that a user named, or has no results at all.

    A name in a model that others wrote asks for nothing: there every value has one.
    """
    used = {symbol.id for symbol in graph.outputs}
    read = graph._read
    kept = [False] * len(graph._nodes)
    for position in range(len(graph._nodes) - 1, -1, -1):
        node = graph._nodes[position]
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
