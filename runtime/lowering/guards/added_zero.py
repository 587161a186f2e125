"""Sums with a constant zero, which onnxruntime takes for nothing and leaves out: 0.0 + -0.0 is 0.0 all the same.

Its optimiser knows Add and Sub; Sum computes the same and is left alone.
"""

from __future__ import annotations

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.rewrite import bodies
from graphcore.ir.symbol import Constant, Node, Symbol

_ZEROS = {"Add": False, "Sub": True}
"""The operators, and the sign of the zero with which they change -0.0."""

NAME = "sum with a constant zero"
"""Of the trap."""

SIGNS = frozenset(_ZEROS)


def needed(graph: Graph) -> bool:
    """Whether a float is added to a constant zero, in the graph or one of its bodies, by a node that we built."""
    for node in graph._nodes[graph._read :]:  # all that is done for a graph which runs as it is: it has to be quick
        if node.op_type in _ZEROS:
            lhs, rhs = node.inputs
            if (type(lhs.producer) is Constant or type(rhs.producer) is Constant) and _adds_zero(node):  # type: ignore[union-attr]
                return True
        elif node.attributes and any(map(needed, bodies(node))):
            return True
    return False


def keep(graph: Graph) -> None:
    """Changes such nodes of a new graph, so that they stay."""
    for node in graph._nodes[graph._read :]:
        if _adds_zero(node):
            if node.op_type == "Sub":
                lhs, rhs = node.inputs
                assert rhs is not None
                node.inputs = lhs, graph._constant(np.zeros([int(d) for d in rhs.shape], rhs.dtype.numpy), rhs.dtype)
            node.op_type = "Sum"
        for body in bodies(node):
            keep(body)


def _adds_zero(node: Node) -> bool:
    if node.domain or node.op_type not in _ZEROS:
        return False
    operands = node.inputs if node.op_type == "Add" else node.inputs[1:]
    return any(_is_zero(symbol, _ZEROS[node.op_type]) for symbol in operands)


def _is_zero(symbol: Symbol | None, negative: bool) -> bool:
    """Whether it is one zero of that sign, known now."""
    if symbol is None or type(symbol.producer) is not Constant:
        return False
    array = symbol.producer.array
    if array.size != 1 or not symbol.dtype.is_float:
        return False
    number = np.asarray(array, np.float64).reshape(())
    return bool(number == 0) and bool(np.signbit(number)) is negative
