"""Keep x + 0.0: onnxruntime's optimiser removes it, but -0.0 + 0.0 is 0.0.

The optimiser knows Add and Sub; Sum computes the same and is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.support.source_lines import Imported

_ZEROS = {"Add": False, "Sub": True}
"""The operators, and the sign of the zero with which they change -0.0."""


def as_sum(graph: Graph, node: Node) -> None:
    """Make Sum of an Add, or of a Sub of a constant."""
    if node.op_type == "Sub":
        lhs, rhs = node.inputs
        assert rhs is not None
        assert isinstance(rhs.producer, Constant)
        change(node, inputs=(lhs, graph.build.constant(-rhs.producer.array, rhs.dtype)))
    change(node, op_type="Sum")


def _sums(graph: Graph) -> Iterator[Node]:
    """Yield the nodes that were built here and add a constant zero to a float."""
    # The longest step of lowering a graph that is legal: most nodes have to end here.
    for node in graph.nodes:
        if node.op_type in _ZEROS and not node.domain and type(node.origin) is not Imported:
            lhs, rhs = node.inputs
            if (type(lhs.producer) is Constant or type(rhs.producer) is Constant) and _adds_zero(node):  # type: ignore[union-attr]
                yield node


def _adds_zero(node: Node) -> bool:
    operands = node.inputs if node.op_type == "Add" else node.inputs[1:]
    return any(_is_zero(symbol, _ZEROS[node.op_type]) for symbol in operands)


def _is_zero(symbol: Symbol | None, negative: bool) -> bool:
    """Return whether a Symbol is a constant of one zero of that sign."""
    if symbol is None or type(symbol.producer) is not Constant:
        return False
    array = symbol.producer.array
    if array.size != 1 or not symbol.dtype.is_float:
        return False
    number = np.asarray(array, np.float64).reshape(())
    return bool(number == 0) and bool(np.signbit(number)) is negative


GUARD = rewriting(
    "sum with a constant zero",
    "Add, Sub",
    "the optimiser drops x + 0.0, which is not x for -0.0",
    _ZEROS,
    _sums,
    as_sum,
)
