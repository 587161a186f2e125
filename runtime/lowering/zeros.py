"""Sums with a constant zero, which onnxruntime takes for nothing and leaves out: 0.0 + -0.0 is 0.0 all the same.

Its optimiser knows Add; Sum computes the same and is left alone.
"""

from __future__ import annotations

import numpy as np

from graphcore.graph import Graph
from graphcore.runtime.lowering.rewrite import bodies
from graphcore.symbol import Constant, Node, Symbol


def needed(graph: Graph) -> bool:
    """Whether a float is added to a constant zero, in the graph or one of its bodies, by a node that we built."""
    for node in graph._nodes[graph._read :]:  # all that is done for a graph which runs as it is: it has to be quick
        if node.op_type == "Add":
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
            node.op_type = "Sum"
        for body in bodies(node):
            keep(body)


def _adds_zero(node: Node) -> bool:
    return node.op_type == "Add" and not node.domain and any(map(_is_zero, node.inputs))


def _is_zero(symbol: Symbol | None) -> bool:
    """Whether it is one positive zero, known now."""
    if symbol is None or type(symbol.producer) is not Constant:
        return False
    array = symbol.producer.array
    if array.size != 1 or not symbol.dtype.is_float:
        return False
    number = np.asarray(array, np.float64).reshape(())
    return bool(number == 0) and not np.signbit(number)
