"""Queries of fusions on a Symbol: its number and its type."""

from __future__ import annotations

from graphcore.arrays.casting import Array
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.match import Pattern, either
from graphcore.ir.transform.walk import constant_array, node_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type


def value_of(symbol: Symbol | None) -> Array | None:
    """Return the value of a constant or a weight; None for any other Symbol."""
    return constant_array(symbol, weights=True, outer=True)


def number_of(symbol: Symbol | None) -> float | None:
    """Return the value of a float constant of one element, of one axis at most."""
    array = value_of(symbol)
    if array is None or array.size != 1 or array.ndim > 1 or symbol is None or not symbol.dtype.is_float:
        return None
    return float(array.reshape(-1)[0])


_SCALED = Pattern(lambda x, number: either(x * number, x / number), number=lambda s: bool(number_of(s)))


def factor_of(symbol: Symbol | None) -> tuple[Symbol | None, float]:
    """Return an operand and the number that it is multiplied with; 1 if there is none."""
    x, factor = _SCALED.match(symbol) or (symbol, None)
    number = number_of(factor) or 1.0
    return x, number if node_of(symbol, "Mul") else 1.0 / number


def slice_of(symbol: Symbol | None) -> tuple[int, int, int] | None:
    """Return start, end and step of a Slice along the last axis alone, None for anything else."""
    node = node_of(symbol, "Slice")
    arrays = [] if node is None else [value_of(s) for s in node.inputs[1:]]
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


def is_float32(*symbols: Symbol | None, other: DType = DType.float32) -> bool:
    """Return True if all are tensors of known rank, of float32 or another dtype."""
    types = [None if s is None else s.type for s in symbols]
    return all(isinstance(t, TensorType) and t.dtype in (DType.float32, other) and t.shape.is_ranked for t in types)


def is_known(*symbols: Symbol) -> bool:
    """Return True if ranks are known, and every dim is a number, a name or an expression."""
    return all(s.shape.is_ranked and not any(d.is_dynamic for d in s.shape) for s in symbols)
