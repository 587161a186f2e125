"""Removing what leads nowhere from a graph, in place."""

from __future__ import annotations

from collections.abc import Iterable

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.state.memory import Memory
from graphcore.ir.symbol import Captured, Symbol
from graphcore.ir.transform.walk import bodies


def prune(graph: Graph) -> None:
    """Remove nodes that lead to no output, buffer or watched value, those in bodies included, and unused constants.

    The Symbols that stay are the same objects with other numbers.
    """
    held = [buffer.value for buffer in graph._buffers.values()]
    _prune(graph, [*graph.outputs, *held, *graph.watched.values()])


def _prune(graph: Graph, results: Iterable[Symbol]) -> None:
    used = {s.id for s in (*graph._inputs, *results) if s.graph is graph}
    kept = []
    for node in reversed(graph._nodes):
        if node.outputs and not any(s.id in used for s in node.outputs):
            continue
        kept.append(node)
        used.update(s.id for s in (*node.inputs, *node.outputs) if s is not None)
        for body in bodies(node):
            _prune(body, [*body.outputs, *body.watched.values()])
            used.update(_outside(s).id for s in body.scope.captured.values())
    if len(used) == len(graph._symbols):
        return
    graph._nodes[:] = kept[::-1]
    graph._symbols[:] = [s for s in graph._symbols if s.id in used]
    graph.scope.captured = {key: s for key, s in graph.scope.captured.items() if s.id in used}
    graph.names.taken = {name: s for name, s in graph.names.taken.items() if s.graph is not graph or s.id in used}
    for number, symbol in enumerate(graph._symbols):
        change(symbol, id=number)
    graph.memory = Memory()
    for node in kept:
        for body in bodies(node):
            body.scope.captured = {_outside(s).id: s for s in body.scope.captured.values()}


def _outside(captured: Symbol) -> Symbol:
    assert isinstance(captured.producer, Captured)
    return captured.producer.symbol
