"""Queries of fusions on a Symbol: its node, its number, its type, and bounds of its values."""

from __future__ import annotations

import math

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import constant_array, node_of
from graphcore.operators import Trait, having
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type

_MAX_DEPTH = 32


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


def bounds(symbol: Symbol | None, depth: int = 0) -> tuple[float, float] | None:
    """Return the bounds of elements; None if an element may be NaN, or nothing is known."""
    if symbol is None or depth > _MAX_DEPTH or not isinstance(symbol.type, TensorType):
        return None
    array = constant_array(symbol, weights=True, outer=True)
    if array is not None:
        if not array.size or array.dtype.kind not in "fiub" or np.isnan(array).any():
            return None
        return float(array.min()), float(array.max())
    if symbol.dtype is DType.bool:
        return 0.0, 1.0
    interval = _computed(symbol, depth)
    if not symbol.dtype.is_integer:
        return None if interval is None else _rounded(symbol.dtype, interval)
    lowest, highest = float(symbol.dtype.min), float(symbol.dtype.max)
    return interval if interval is not None and lowest <= interval[0] and interval[1] <= highest else (lowest, highest)


def _rounded(dtype: DType, interval: tuple[float, float]) -> tuple[float, float] | None:
    """Return bounds after rounding to a float dtype, in which larger numbers become infinite."""
    if dtype not in (DType.float16, DType.bfloat16, DType.float32, DType.float64):
        return None
    lowest, highest = float(dtype.min), float(dtype.max)
    low, high = interval
    return -math.inf if low < lowest else low, math.inf if high > highest else high


def _computed(symbol: Symbol, depth: int) -> tuple[float, float] | None:
    """Return the bounds that follow from those of the operands, by the rules of real numbers."""
    node = node_of(symbol, *_KNOWN, *_MOVES)
    if node is None or (node.op_type == "Resize" and not _is_mean(node)):
        return None
    if node.op_type == "ConstantOfShape":
        value = float(np.asarray(node.attributes.get("value", 0.0)).reshape(-1)[0])
        return None if math.isnan(value) else (value, value)
    operands = node.inputs[1:] if node.op_type == "Where" else node.inputs[:1]
    if node.op_type in ("Add", "Sub", "Mul", "Concat"):
        operands = node.inputs
    intervals = [bounds(s, depth + 1) for s in operands]
    pairs = [pair for pair in intervals if pair is not None]
    if not pairs or len(pairs) < len(intervals):
        return None
    if node.op_type == "Neg":
        return -pairs[0][1], -pairs[0][0]
    if node.op_type not in ("Add", "Sub", "Mul"):
        return min(a for a, _ in pairs), max(b for _, b in pairs)
    (a, b), (c, d) = pairs
    if node.op_type == "Add":
        ends = [a + c, b + d]
    elif node.op_type == "Sub":
        ends = [a - d, b - c]
    else:
        ends = [a * c, a * d, b * c, b * d]
    return None if any(math.isnan(end) for end in ends) else (min(ends), max(ends))


def _is_mean(node: Node) -> bool:
    """Return True if a Resize gives means of elements with weights that are not negative."""
    crops = node.attributes.get("coordinate_transformation_mode") in ("tf_crop_and_resize", b"tf_crop_and_resize")
    return not crops and node.attributes.get("mode", "nearest") in ("nearest", "linear", b"nearest", b"linear")


_KNOWN = ("Cast", "Where", "Add", "Sub", "Mul", "Neg", "Concat", "Resize", "ConstantOfShape")
_MOVES = having(Trait.MOVES) - {"Compress", "DepthToSpace", "ReverseSequence", "SpaceToDepth"}
"""Operators behind which bounds are looked for."""
