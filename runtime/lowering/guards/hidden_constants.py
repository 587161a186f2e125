"""Give constants that onnxruntime's optimisers take for something else by values that only the run knows.

NoopElimination compares in float32, and takes x + 1e-300 for x; some releases take a constant without elements for a 0
that is added or a 1 that is multiplied with. MatMulScaleFusion multiplies by infinity after a sum in place of before,
where infinities of both signs have met. Sessions leave these optimisers out, for models that others wrote too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.runtime.lowering.guards.added_zero import as_sum
from graphcore.runtime.lowering.guards.guard import Guard, built_here, rewriting
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, tensor_type

_SUMS = ("Add", "Sub")
_PRODUCTS = ("Mul", "Div")
_COMMUTATIVE = ("Add", "Mul")
_EXACT = "biuOSUT"
"""The kinds of NumPy's dtypes that hold no floats."""

Array = np.ndarray[Any, Any]


def is_rounded(array: Array, neutral: Sequence[float] = (0.0, 1.0)) -> bool:
    """Return whether an array is one float64 that float32 rounds to one of these numbers, which it is not."""
    if array.size != 1 or array.dtype != np.float64:
        return False
    number = array.reshape(())
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(number.astype(np.float32))
    return rounded in neutral and rounded != float(number)


def is_endless(array: Array, op_type: str) -> bool:
    """Return whether a product with an array is one with a number that is not finite, or a quotient one by 0."""
    if array.size != 1 or array.dtype.kind in _EXACT:
        return False
    number = float(array.reshape(()))
    return not np.isfinite(number) or (not number and op_type == "Div")


def constant_place(node: Node, is_meant: Callable[[Array, str], bool]) -> int | None:
    """Return where a sum or a product has a constant that is meant, beside an operand that is none.

    is_meant: tells of its array and the operator. None where there is none.
    """
    for place in (1, 0) if node.op_type in _COMMUTATIVE else (1,):
        held, other = node.inputs[place], node.inputs[1 - place]
        if (
            held is not None
            and other is not None
            and type(held.producer) is Constant
            and type(other.producer) is not Constant
            and is_meant(held.producer.array, node.op_type)
        ):
            return place
    return None


def _hiding(
    trap: str,
    when: str,
    why: str,
    operators: Sequence[str],
    is_meant: Callable[[Array, str], bool],
    write: Callable[[Graph, Node, int], None],
    beside: Sequence[str] = (),
) -> Guard:
    """Return the guard that writes nodes of these operators, built here, which have a constant that is meant.

    beside: operators without which the optimiser has nothing to do, where these are others.
    """

    def found(graph: Graph) -> Iterator[Node]:
        return (node for node in built_here(graph, operators) if constant_place(node, is_meant) is not None)

    def write_node(graph: Graph, node: Node) -> None:
        place = constant_place(node, is_meant)
        assert place is not None
        write(graph, node, place)

    return rewriting(trap, when, why, beside or operators, found, write_node)


def _write_rounded(graph: Graph, node: Node, place: int) -> None:
    """Write a Sum, which computes what Add does and is left alone, or a factor that only the run knows."""
    if node.op_type in _SUMS:
        as_sum(graph, node)
    else:
        _write_factor(graph, node, place)


def _write_endless(graph: Graph, node: Node, place: int) -> None:
    """Write a factor that only the run knows; in place of a divisor of 0 too, whose sign a Where may lose."""
    held = _operand(node, place)
    if node.op_type == "Div":
        assert isinstance(held.producer, Constant)
        with np.errstate(divide="ignore"):
            inverse = np.reciprocal(held.producer.array)
        if np.isinf(inverse).all():
            held = graph.build.constant(inverse, held.dtype)
            change(node, op_type="Mul", inputs=(_operand(node, 0), held))
    _write_factor(graph, node, place)


def _write_factor(graph: Graph, node: Node, place: int) -> None:
    """Give the constant of a node by a Where whose condition only the run knows."""
    held, other = _operand(node, place), _operand(node, 1 - place)
    unknown = graph.build.emit("IsNaN", (other,), tensor_type(DType.bool, other.shape))
    factor = graph.build.emit("Where", (unknown, held, held), tensor_type(held.dtype, node.outputs[0].shape))
    inputs: list[Symbol | None] = [other, other]
    inputs[place] = factor
    change(node, inputs=tuple(inputs))


def _write_empty(graph: Graph, node: Node, place: int) -> None:
    """Write the constant in the shape of the result, which has no elements either."""
    held, other = _operand(node, place), _operand(node, 1 - place)
    shape = graph.build.emit("Shape", (other,), tensor_type(DType.int64, Shape([other.rank])))
    change(node, op_type="Expand", inputs=(held, shape))


def _operand(node: Node, place: int) -> Symbol:
    found = node.inputs[place]
    assert found is not None
    return found


_NEUTRAL: Mapping[str, float] = MappingProxyType({"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0})

ROUNDED = _hiding(
    "optimiser NoopElimination float64",
    "Add, Sub, Mul, Div",
    "the optimiser drops x + 1e-300, whose constant is 0 in float32",
    (*_SUMS, *_PRODUCTS),
    lambda array, op_type: is_rounded(array, (_NEUTRAL[op_type],)),
    _write_rounded,
)
ENDLESS = _hiding(
    "optimiser MatMulScaleFusion of infinity",
    "MatMul, and Mul or Div",
    "the optimiser multiplies by infinity after the sum, where infinities have met",
    _PRODUCTS,
    is_endless,
    _write_endless,
    beside=("MatMul",),
)
EMPTY = _hiding(
    "optimiser NoopElimination",
    "Add, Sub, Mul, Div",
    "the optimiser takes a constant without elements for a 0 or a 1",
    (*_SUMS, *_PRODUCTS),
    lambda array, op_type: not array.size,
    _write_empty,
)
