"""Constants computed while lowering, and operands that change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcore.arrays.casting import Array
from graphcore.arrays.evaluate import FOLDED, folded, folded_shape
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

LARGEST = 1 << 20
"""Bytes of the largest operand or result that is folded."""


def fold(
    graph: Graph, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: dict[str, Any]
) -> Symbol | None:
    """Return an operator's result where it is known already: a constant, or one of the operands; None otherwise."""
    for symbol in inputs:
        if symbol is None or type(symbol.producer) is Constant:
            break
    else:  # most calls end here
        if op_type == "Shape" and len(inputs) == 1 and (operand := inputs[0]) is not None:
            return _shape_of(graph, operand, attributes, types[0])
        return None
    if all(s is None or type(s.producer) is Constant for s in inputs):
        return _evaluated(graph, op_type, inputs, types, attributes)
    return _neutral(op_type, inputs, types[0]) if op_type in ("And", "Or") else None


def _evaluated(
    graph: Graph, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: dict[str, Any]
) -> Symbol | None:
    """Return the result as a constant; None where it is not known now, or not for certain."""
    if op_type not in FOLDED or op_type == "Cast" or len(types) != 1:  # a Cast is the kernel's own here
        return None
    (type_,) = types
    if not isinstance(type_, TensorType):
        return None
    arrays: list[Array | None] = []
    dtypes: list[DType | None] = []
    for symbol in inputs:
        producer = symbol.producer if symbol is not None else None
        if producer is None:
            arrays.append(None)
        elif type(producer) is Constant and not producer.is_weight and producer.array.nbytes <= LARGEST:
            arrays.append(producer.array)
        else:
            return None
        dtypes.append(None if symbol is None else symbol.dtype)
    made = folded(op_type, arrays, dtypes, attributes, type_, LARGEST, any_nan=True)
    return None if made is None else graph.build.constant(made, type_.dtype)


def _shape_of(graph: Graph, operand: Symbol, attributes: dict[str, Any], type_: Type) -> Symbol | None:
    """Return the shape of a tensor all of whose dims are known."""
    if not isinstance(operand.type, TensorType) or not isinstance(type_, TensorType) or not operand.shape.is_static:
        return None
    return graph.build.constant(folded_shape(operand.shape, attributes), type_.dtype)


def _neutral(op_type: str, inputs: Sequence[Symbol | None], type_: Type) -> Symbol | None:
    """Return the operand that *and* with true, or *or* with false, leaves as it is."""
    for operand, other in (tuple(inputs), tuple(inputs)[::-1]):
        producer = other.producer if other is not None else None
        array = producer.array if isinstance(producer, Constant) else None
        if array is not None and array.size == 1 and bool(array) is (op_type == "And") and operand is not None:
            return operand if operand.type is type_ else None
    return None
