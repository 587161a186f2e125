"""Leaving out what nothing uses: lowering keeps a value in two dtypes until it knows which of them is asked for."""

from __future__ import annotations

from graphcore.graph import Graph


def prune(graph: Graph) -> None:
    """Removes the nodes of a new graph that lead to no output. Its bodies are pruned already."""
    used = {symbol.id for symbol in graph.outputs}
    kept = []
    for node in reversed(graph._nodes):
        for made in node.outputs:
            if made.id in used:
                break
        else:
            continue
        kept.append(node)
        for symbol in node.inputs:
            if symbol is not None:
                used.add(symbol.id)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                used.update(value._captured)
    if len(kept) < len(graph._nodes):
        if graph._read:
            read = {id(node) for node in graph._nodes[: graph._read]}
            graph._read = sum(id(node) in read for node in kept)
        graph._nodes[:] = kept[::-1]
    if graph._captured:
        graph._captured = {outer: inner for outer, inner in graph._captured.items() if inner.id in used}
