"""What the matchers of forms look at: nodes and constants behind a Symbol, and what its values are at most."""

from __future__ import annotations

import math

import numpy as np

from graphcore.ir.symbol import Node, Symbol, array_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_DEEPEST = 32

EVERYWHERE = (1 << 31) - 1
"""An end from which on a slice goes to the end of its axis."""


def node_of(symbol: Symbol | None, *op_types: str) -> Node | None:
    """The node that makes a Symbol, where it is one of these operators of ONNX."""
    producer = None if symbol is None else symbol.producer
    if not isinstance(producer, Node) or producer.domain or producer.op_type not in op_types:
        return None
    return producer


def number_of(symbol: Symbol | None) -> float | None:
    """The value of a float constant of one element, whatever its shape up to one axis."""
    array = array_of(symbol)
    if array is None or array.size != 1 or array.ndim > 1 or symbol is None or not symbol.dtype.is_float:
        return None
    return float(array.reshape(-1)[0])


def factor_of(symbol: Symbol | None) -> tuple[Symbol | None, float]:
    """An operand and the number it is multiplied with, 1 where it is not."""
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


def is_float32(*symbols: Symbol | None) -> bool:
    return all(
        s is not None and isinstance(s.type, TensorType) and s.type.dtype is DType.float32 and s.type.shape.is_ranked
        for s in symbols
    )


def is_known(*symbols: Symbol) -> bool:
    """Whether every dim is a number, a name or an expression."""
    return all(not d.is_dynamic for s in symbols for d in s.shape)


def bounds(symbol: Symbol | None, depth: int = 0) -> tuple[float, float] | None:
    """Numbers between which all elements lie, where no operand can be NaN; None where that is not certain."""
    if symbol is None or depth > _DEEPEST or not isinstance(symbol.type, TensorType):
        return None
    array = array_of(symbol)
    if array is not None:
        if not array.size or array.dtype.kind not in "fiub" or np.isnan(array).any():
            return None
        return float(array.min()), float(array.max())
    if symbol.dtype is DType.bool:
        return 0.0, 1.0
    found = _computed(symbol, depth)
    if not symbol.dtype.is_integer:
        return None if found is None else _rounded(symbol.dtype, found)
    least, most = float(symbol.dtype.min), float(symbol.dtype.max)
    return found if found is not None and least <= found[0] and found[1] <= most else (least, most)


def _rounded(dtype: DType, held: tuple[float, float]) -> tuple[float, float] | None:
    """Bounds in a float dtype, beyond whose numbers there are infinities alone."""
    if dtype not in (DType.float16, DType.bfloat16, DType.float32, DType.float64):
        return None
    least, most = float(dtype.min), float(dtype.max)
    low, high = held
    return -math.inf if low < least else low, math.inf if high > most else high


def _computed(symbol: Symbol, depth: int) -> tuple[float, float] | None:
    """The bounds that follow from those of the operands, by the rules of real numbers."""
    node = node_of(symbol, *_KNOWN, *_MOVES)
    if node is None or (node.op_type == "Resize" and not _is_mean(node)):
        return None
    if node.op_type == "ConstantOfShape":
        value = float(np.asarray(node.attributes.get("value", 0.0)).reshape(-1)[0])
        return None if math.isnan(value) else (value, value)
    operands = node.inputs[1:] if node.op_type == "Where" else node.inputs[:1]
    if node.op_type in ("Add", "Sub", "Mul", "Concat"):
        operands = node.inputs
    found = [bounds(s, depth + 1) for s in operands]
    known = [pair for pair in found if pair is not None]
    if not known or len(known) < len(found):
        return None
    if node.op_type == "Neg":
        return -known[0][1], -known[0][0]
    if node.op_type not in ("Add", "Sub", "Mul"):
        return min(a for a, _ in known), max(b for _, b in known)
    (a, b), (c, d) = known
    if node.op_type == "Add":
        ends = [a + c, b + d]
    elif node.op_type == "Sub":
        ends = [a - d, b - c]
    else:
        ends = [a * c, a * d, b * c, b * d]
    return None if any(math.isnan(end) for end in ends) else (min(ends), max(ends))


def _is_mean(node: Node) -> bool:
    """Whether a Resize gives elements and means of them, weighted by numbers that are not negative."""
    crops = node.attributes.get("coordinate_transformation_mode") in ("tf_crop_and_resize", b"tf_crop_and_resize")
    return not crops and node.attributes.get("mode", "nearest") in ("nearest", "linear", b"nearest", b"linear")


_KNOWN = ("Cast", "Where", "Add", "Sub", "Mul", "Neg", "Concat", "Resize", "ConstantOfShape")
_MOVES = (
    "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile", "Slice", "Split", "Gather", "GatherND",
    "GatherElements", "Transpose", "Identity",
)  # fmt: skip
