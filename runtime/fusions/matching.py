"""Queries of fusions on a Symbol: its number and its type."""

from __future__ import annotations

from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array, node_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type


def number_of(symbol: Symbol | None) -> float | None:
    """Return the value of a float constant of one element, of one axis at most."""
    array = constant_array(symbol, weights=True, outer=True)
    if array is None or array.size != 1 or array.ndim > 1 or symbol is None or not symbol.dtype.is_float:
        return None
    return float(array.reshape(-1)[0])


def factor_of(symbol: Symbol | None) -> tuple[Symbol | None, float]:
    """Return an operand and the number that it is multiplied with; 1 if there is none."""
    node = node_of(symbol, "Mul", "Div")
    if node is None:
        return symbol, 1.0
    left, right = node.inputs
    number = number_of(right)
    if node.op_type == "Div":
        return (left, 1.0 / number) if number else (symbol, 1.0)
    if number is not None:
        return left, number
    number = number_of(left)
    return (right, number) if number is not None else (symbol, 1.0)


def slice_of(symbol: Symbol | None) -> tuple[int, int, int] | None:
    """Return start, end and step of a Slice along the last axis alone, None for anything else."""
    node = node_of(symbol, "Slice")
    arrays = [] if node is None else [constant_array(s, weights=True, outer=True) for s in node.inputs[1:]]
    numbers = [int(a.reshape(-1)[0]) for a in arrays if a is not None and a.size == 1]
    if node is None or node.inputs[0] is None or not 3 <= len(numbers) == len(arrays):
        return None
    start, end, axis, step = (*numbers, 1)[:4]
    return (start, end, step) if axis in (-1, node.inputs[0].rank - 1) else None


def floats(*dims: Dim) -> TensorType:
    """Return the type of a float32 tensor."""
    return tensor_type(DType.float32, _shape(dims))


def vector(length: int) -> TensorType:
    """Return the type of a vector of int64, as shapes and axes have."""
    return tensor_type(DType.int64, _shape([Dim(length)]))


def is_float32(*symbols: Symbol | None) -> bool:
    """Return True if all are float32 tensors of known rank."""
    return all(
        s is not None and isinstance(s.type, TensorType) and s.type.dtype is DType.float32 and s.type.shape.is_ranked
        for s in symbols
    )


def is_known(*symbols: Symbol) -> bool:
    """Return True if ranks are known, and every dim is a number, a name or an expression."""
    return all(s.shape.is_ranked and not any(d.is_dynamic for d in s.shape) for s in symbols)
