"""Bounds of floats that a graph itself tells, so that casts to integers need no workaround."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_DEEPEST = 16

_FLOATS = (DType.float16, DType.bfloat16, DType.float32, DType.float64)

_BOUNDED = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), (0.0, 1.0)),
    **dict.fromkeys(("Tanh", "Sin", "Cos", "Erf", "Sign"), (-1.0, 1.0)),
}
"""Operators whose results are bounded or NaN whatever they are given."""

_MOVES = having(Trait.MOVES)
_SUMS = frozenset("Add Sub Mul Min Max Concat".split())


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the largest number that an element may be. has_nan: whether it may be NaN as well."""

    least: float
    largest: float
    has_nan: bool = False


def range_of(symbol: Symbol | None, depth: int = 0) -> Range | None:
    """Return the range of a value, None where nothing is known. Weights may still change, so they tell nothing.

    A step is widened by what the rounding of its results can add: not where its bounds are numbers of the dtype, which
    no number between them is rounded beyond.
    """
    if symbol is None or depth > _DEEPEST or not isinstance(symbol.type, TensorType):
        return None
    dtype = symbol.dtype
    array = constant_array(symbol)
    if array is not None:
        if not array.size or dtype not in _FLOATS or not np.isfinite(values := array.astype(np.float64)).all():
            return None
        return Range(float(values.min()), float(values.max()))
    if dtype is DType.bool:
        return Range(0.0, 1.0)
    if dtype.is_integer:
        return Range(float(dtype.min), float(dtype.max))
    node = symbol.producer
    if not isinstance(node, Node) or node.domain or dtype not in _FLOATS:
        return None
    found = _computed(node, dtype, depth + 1)
    return None if found is None else _rounded(found, dtype, node.op_type in _BOUNDED)


def _computed(node: Node, dtype: DType, depth: int) -> Range | None:
    op_type, inputs = node.op_type, node.inputs
    if op_type in _BOUNDED:
        return Range(*_BOUNDED[op_type], has_nan=True)
    if op_type == "Clip":
        return _clipped(node, depth)
    if op_type in _MOVES:
        return range_of(inputs[0], depth)
    if op_type == "BitCast":
        same = inputs[0] is not None and inputs[0].dtype is dtype
        return range_of(inputs[0], depth) if same else None
    if op_type in ("Cast", "Floor", "Ceil", "Round", "Relu", "Abs", "Neg"):
        held = range_of(inputs[0], depth)
        return None if held is None else _of_one(op_type, held)
    if op_type == "Where":
        return _joined([range_of(s, depth) for s in inputs[1:]])
    if op_type not in _SUMS:
        return None
    ranges = [range_of(s, depth) for s in inputs]
    if op_type == "Concat":
        return _joined(ranges)
    return _of_many(op_type, ranges)


def _clipped(node: Node, depth: int) -> Range | None:
    """Return the range after a Clip with constant limits, of which a NaN stays one."""
    limits = [range_of(s, depth) for s in node.inputs[1:]]
    if len(limits) != 2 or limits[0] is None or limits[1] is None:
        return None
    low, high = limits[0].least, limits[1].largest
    held = range_of(node.inputs[0], depth)
    return Range(min(low, high), high, has_nan=held is None or held.has_nan)


def _of_one(op_type: str, held: Range) -> Range:
    low, high = held.least, held.largest
    if op_type in ("Floor", "Ceil", "Round"):
        return replace(held, least=math.floor(low), largest=math.ceil(high)) if _is_finite(held) else held
    if op_type == "Relu":
        return replace(held, least=max(low, 0.0), largest=max(high, 0.0))
    if op_type == "Neg":
        return replace(held, least=-high, largest=-low)
    if op_type == "Abs":
        return replace(held, least=0.0, largest=max(-low, high))
    return held


def _of_many(op_type: str, ranges: list[Range | None]) -> Range | None:
    known = [r for r in ranges if r is not None]
    if not known or len(known) < len(ranges) or not all(map(_is_finite, known)):
        return None
    made = known[0]
    for other in known[1:]:
        a, b, c, d = made.least, made.largest, other.least, other.largest
        ends = {
            "Add": (a + c, b + d), "Sub": (a - d, b - c), "Mul": (a * c, a * d, b * c, b * d),
            "Min": (min(a, c), min(b, d)), "Max": (max(a, c), max(b, d)),
        }[op_type]  # fmt: skip
        made = Range(min(ends), max(ends), made.has_nan or other.has_nan)
    return made


def _joined(ranges: list[Range | None]) -> Range | None:
    known = [r for r in ranges if r is not None]
    if not known or len(known) < len(ranges):
        return None
    return Range(min(r.least for r in known), max(r.largest for r in known), any(r.has_nan for r in known))


def _is_finite(held: Range) -> bool:
    return math.isfinite(held.least) and math.isfinite(held.largest)


def _rounded(held: Range, dtype: DType, is_approximate: bool) -> Range | None:
    """Return the range with room for rounding to a dtype; None where it is left.

    is_approximate: it is that of a function, which kernels do not round to the nearest number.
    """
    largest = float(dtype.max)
    if not -largest <= held.least <= held.largest <= largest:
        return None
    ends = np.array([held.least, held.largest])
    if not is_approximate and (ends.astype(dtype.numpy).astype(np.float64) == ends).all():
        return held
    step = {DType.float16: 2.0**-10, DType.bfloat16: 2.0**-7, DType.float32: 2.0**-23}.get(dtype, 2.0**-52)
    return replace(held, least=held.least - abs(held.least) * step, largest=held.largest + abs(held.largest) * step)
