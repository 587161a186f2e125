"""Ranges of numbers that follow from the graph: casts to integers that need no workaround, masks without -inf."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_MAX_DEPTH = 32

_FLOATS = (DType.float16, DType.bfloat16, DType.float32, DType.float64)

_BOUNDED = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), (0.0, 1.0)),
    **dict.fromkeys(("Tanh", "Sin", "Cos", "Erf", "Sign"), (-1.0, 1.0)),
}
"""Operators whose results are bounded, or NaN, for any operands."""

_STEPS_OF_MEANS = 16
"""The relative error of means whose weights are rounded, in units of the last place: eight products in three axes."""

_MOVES = having(Trait.MOVES)
_NEAREST = ("nearest", b"nearest")
_SUMS = frozenset("Add Sub Mul Min Max Concat".split())


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The smallest and largest number that an element can be. has_nan: whether it can also be NaN."""

    least: float
    largest: float
    has_nan: bool = False


_Of: TypeAlias = Callable[[Symbol | None], ValueRange | None]
"""Returns the range of an operand."""


def range_of(symbol: Symbol | None, depth: int = 0, *, weights: bool = False) -> ValueRange | None:
    """Return the range of a value; None if nothing is known, or it may be infinite.

    The range of a step grows by the rounding error of its results, unless its bounds are representable in the dtype:
    then rounding does not cross them. weights: also of weights, which can still change, and constants of outer graphs.
    """
    if symbol is None or depth > _MAX_DEPTH or not isinstance(symbol.type, TensorType):
        return None
    dtype = symbol.dtype
    array = constant_array(symbol, weights=weights, outer=weights)
    if array is not None and (dtype in _FLOATS or weights):
        if not array.size or array.dtype == object or not np.isfinite(values := array.astype(np.float64)).all():
            return None
        return ValueRange(float(values.min()), float(values.max()))
    if dtype is DType.bool:
        return ValueRange(0.0, 1.0)
    if dtype not in _FLOATS and not dtype.is_integer:
        return None
    node, bounds = symbol.producer, None
    if isinstance(node, Node) and not node.domain:
        bounds = _computed(node, dtype, partial(range_of, depth=depth + 1, weights=weights))
    if dtype.is_integer:
        least, largest = int(dtype.min), int(dtype.max)  # compared exactly: no float64 is 2^63 - 1
        is_within = bounds is not None and not bounds.has_nan and least <= bounds.least and bounds.largest <= largest
        return bounds if is_within else ValueRange(float(least), float(largest))
    if bounds is None or not isinstance(node, Node):
        return None
    is_interpolated = node.op_type == "Resize" and node.attributes.get("mode", "nearest") not in _NEAREST
    return _rounded(bounds, dtype, _STEPS_OF_MEANS if is_interpolated else int(node.op_type in _BOUNDED))


def _computed(node: Node, dtype: DType, of: _Of) -> ValueRange | None:
    op_type, inputs = node.op_type, node.inputs
    if op_type in _BOUNDED:
        return ValueRange(*_BOUNDED[op_type], has_nan=True)
    if op_type == "Clip":
        return _clipped(node, of)
    if op_type in _MOVES or (op_type == "Resize" and _is_mean(node)):
        return of(inputs[0])
    if op_type == "ConstantOfShape":
        value = float(np.asarray(node.attributes.get("value", 0.0)).reshape(-1)[0])
        return ValueRange(value, value) if math.isfinite(value) else None
    if op_type == "BitCast":
        same = inputs[0] is not None and inputs[0].dtype is dtype
        return of(inputs[0]) if same else None
    if op_type in ("Cast", "Floor", "Ceil", "Round", "Relu", "Abs", "Neg"):
        bounds = of(inputs[0])
        if bounds is not None and dtype.is_integer and _is_finite(bounds):  # a Cast truncates
            bounds = replace(bounds, least=math.trunc(bounds.least), largest=math.trunc(bounds.largest))
        return None if bounds is None else _of_one(op_type, bounds)
    if op_type == "Where":
        return _joined([*map(of, inputs[1:])])
    if op_type not in _SUMS:
        return None
    ranges = [*map(of, inputs)]
    if op_type == "Concat":
        return _joined(ranges)
    return _of_many(op_type, ranges)


def _is_mean(node: Node) -> bool:
    """Return True if a Resize gives means of elements with weights that are not negative."""
    crops = node.attributes.get("coordinate_transformation_mode") in ("tf_crop_and_resize", b"tf_crop_and_resize")
    return not crops and node.attributes.get("mode", "nearest") in (*_NEAREST, "linear", b"linear")


def _clipped(node: Node, of: _Of) -> ValueRange | None:
    """Return the range after a Clip with constant limits; NaN stays NaN."""
    limits = [*map(of, node.inputs[1:])]
    if len(limits) != 2 or limits[0] is None or limits[1] is None:
        return None
    low, high = limits[0].least, limits[1].largest
    operand_range = of(node.inputs[0])
    return ValueRange(min(low, high), high, has_nan=operand_range is None or operand_range.has_nan)


def _of_one(op_type: str, operand: ValueRange) -> ValueRange:
    low, high = operand.least, operand.largest
    if op_type in ("Floor", "Ceil", "Round"):
        return replace(operand, least=math.floor(low), largest=math.ceil(high)) if _is_finite(operand) else operand
    ends = {"Relu": (max(low, 0.0), max(high, 0.0)), "Neg": (-high, -low), "Abs": (0.0, max(-low, high))}
    least, largest = ends.get(op_type, (low, high))
    return replace(operand, least=least, largest=largest)


def _of_many(op_type: str, ranges: list[ValueRange | None]) -> ValueRange | None:
    operands = [r for r in ranges if r is not None]
    if not operands or len(operands) < len(ranges) or not all(map(_is_finite, operands)):
        return None
    result = operands[0]
    for other in operands[1:]:
        a, b, c, d = result.least, result.largest, other.least, other.largest
        ends = {
            "Add": (a + c, b + d), "Sub": (a - d, b - c), "Mul": (a * c, a * d, b * c, b * d),
            "Min": (min(a, c), min(b, d)), "Max": (max(a, c), max(b, d)),
        }[op_type]  # fmt: skip
        result = ValueRange(min(ends), max(ends), result.has_nan or other.has_nan)
    return result


def _joined(ranges: list[ValueRange | None]) -> ValueRange | None:
    operands = [r for r in ranges if r is not None]
    if not operands or len(operands) < len(ranges):
        return None
    return ValueRange(
        min(r.least for r in operands), max(r.largest for r in operands), any(r.has_nan for r in operands)
    )


def _is_finite(bounds: ValueRange) -> bool:
    return math.isfinite(bounds.least) and math.isfinite(bounds.largest)


def _rounded(bounds: ValueRange, dtype: DType, steps: int) -> ValueRange | None:
    """Return the range with a margin for rounding to a dtype; None if it leaves the range of the dtype.

    steps: the relative error of a result that kernels do not round correctly, in units of the last place.
    """
    largest = float(dtype.max)
    if not -largest <= bounds.least <= bounds.largest <= largest:
        return None
    ends = np.array([bounds.least, bounds.largest])
    if not steps and (ends.astype(dtype.numpy).astype(np.float64) == ends).all():
        return bounds
    step = {DType.float16: 2.0**-10, DType.bfloat16: 2.0**-7, DType.float32: 2.0**-23}.get(dtype, 2.0**-52)
    margins = np.abs(ends) * step * max(steps, 1)
    return replace(bounds, least=float(ends[0] - margins[0]), largest=float(ends[1] + margins[1]))
