"""Sums and products of many terms, made balanced trees: neighbours pair up level by level, an odd last one moves up.

A pass before the others. What nothing uses is left out first: each longer expression that was built holds all terms of
the shorter ones that it was built from.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.build.shapes import broadcast_shapes
from graphcore.ir.graph import Graph
from graphcore.ir.state.open_expressions import PRODUCT, SUM
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.lowering.summary import Summary
from graphcore.types.tensor_types import tensor_type

_OPERATORS = {SUM: "Add", PRODUCT: "Mul"}


def needed(has: Summary) -> bool:
    """Return whether there is an expression of many terms in the graph or one of its bodies."""
    return not has.op_types.isdisjoint(_OPERATORS)


def balanced(graph: Graph, outer: Rewrite | None = None) -> Graph:
    """The graph with Cast, Neg and Add or Mul in the place of such expressions."""
    rewrite = Rewrite(graph, outer=outer)
    used = _used(graph)
    for node, inputs in rewrite.nodes():
        if node.op_type not in _OPERATORS:
            rewrite.keep(node, inputs, lambda body: balanced(body, rewrite))
        elif node.outputs[0].id in used:
            rewrite.replace(node, (_tree(node, [s for s in inputs if s is not None]),))
        else:
            # Whatever reads it is left out as well; so anything may stand for it.
            rewrite.bind(node.outputs[0], next(s for s in inputs if s is not None))
    return rewrite.finish()


def _used(graph: Graph) -> set[int]:
    used = {symbol.id for symbol in graph.outputs}
    for node in reversed(graph.nodes):
        if node.op_type not in _OPERATORS or node.outputs[0].id in used:
            used.update(s.id for s in node.inputs if s is not None)
            for body in bodies(node):
                used.update(body.scope.captured)
    return used


def _tree(node: Node, terms: Sequence[Symbol]) -> Symbol:
    dtype = node.outputs[0].dtype
    negated = node.attributes.get("negated", [0] * len(terms))
    level = [s.graph.build.cast(s, dtype) for s in terms]
    opposite: dict[int, Symbol] = {}  # by number: the same term may be subtracted more than once
    for place, (s, minus) in enumerate(zip(level, negated, strict=True)):
        if minus:
            if s.id not in opposite:
                opposite[s.id] = s.graph.build.emit("Neg", (s,), tensor_type(dtype, s.shape))
            level[place] = opposite[s.id]
    operator = _OPERATORS[node.op_type]
    while len(level) > 1:
        pairs = [_pair(operator, a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _pair(operator: str, a: Symbol, b: Symbol) -> Symbol:
    shape = broadcast_shapes([a.shape, b.shape])
    return a.graph.build.emit(operator, (a, b), tensor_type(a.dtype, shape))
