"""Resize, axis after axis: which elements each new one is made of, and how much of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.shape_arithmetic import (
    Number,
    calculate,
    cast,
    count_up,
    elements,
    length,
    reshaped,
    symbol,
)
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.runtime.lowering.decompositions.windows import total
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

F64 = DType.float64


def resize(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Resize in any dtype: nearest moves elements, the other modes compute in float64 and round once."""
    x, roi, scales, sizes = [*inputs, None, None, None][:4]
    own = x.dtype
    nearest = attributes.get("mode", "nearest") == "nearest"
    axes = [a % x.rank for a in attributes.get("axes") or range(x.rank)]
    factors, ends = _factors(on, x, axes, scales, sizes, attributes)
    crops = elements_of_floats(on, roi) if roi is not None and int(roi.shape.size) else []
    if not nearest and own is not F64:
        x = on.casts.cast(x, own, F64)
    for i, axis in enumerate(axes):
        crop = (crops[i], crops[i + len(axes)]) if crops else None
        if crop is None and not isinstance(factors[i], Symbol) and float(factors[i]) == 1.0:
            continue
        x = _along(on, x, axis, factors[i], ends[i], crop, attributes)
    made = x if x.dtype is own else on.casts.cast(x, x.dtype, own)
    return on.op("Identity", made, shape=types[0].shape)


def resize_wrong(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The float32 kernels take the size of the result for that before rounding, where corners are aligned by scales."""
    x, _, scales, sizes = [*inputs, None, None, None][:4]
    corners = attributes.get("coordinate_transformation_mode") == "align_corners"
    if not corners or sizes is not None or attributes.get("mode", "nearest") == "nearest":
        return None
    known = on.known(scales)
    if known is not None and x.type.is_static:
        axes = attributes.get("axes") or range(x.rank)
        found = [float(f) * int(x.shape[a]) for f, a in zip(known, axes, strict=True)]
        if all(abs(f - round(f)) < 1e-6 for f in found):
            return None
    return resize(on, op, inputs, types, attributes)


def elements_of_floats(on: Legaliser, x: Symbol) -> list[Number]:
    """The scalars of a vector of floats, in float64."""
    array = on.known(x)
    if array is not None:
        return [np.asarray(v, np.float64) for v in array]
    return [cast(on, v, F64) for v in elements(on, x)]


def _factors(
    on: Legaliser, x: Symbol, axes: list[int], scales: Symbol | None, sizes: Symbol | None, attributes: dict[str, Any]
) -> tuple[list[Number], list[Number]]:
    """By how much each axis grows, in float64, and to which size."""
    there = [length(on, x, axis) for axis in axes]
    if sizes is None or not int(sizes.shape.size):
        assert scales is not None
        known = on.known(scales)
        given = [np.asarray(v, np.float32) for v in known] if known is not None else elements(on, scales)
        ends = []
        for factor, size in zip(given, there, strict=True):
            grown = calculate(on, "Mul", cast(on, size, DType.float32), factor)
            ends.append(cast(on, calculate(on, "Floor", grown), DType.int64))
        return [cast(on, f, F64) for f in given], ends
    ends = elements(on, sizes)
    factors = [
        calculate(on, "Div", cast(on, end, F64), cast(on, size, F64)) for end, size in zip(ends, there, strict=True)
    ]
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return factors, ends
    chosen = factors[0]
    for factor in factors[1:]:
        chosen = calculate(on, "Min" if policy == "not_larger" else "Max", chosen, factor)
    ends = []
    for size in there:
        grown = calculate(on, "Mul", cast(on, size, F64), chosen)
        ends.append(cast(on, calculate(on, "Floor", calculate(on, "Add", grown, 0.5)), DType.int64))
    return [chosen] * len(axes), ends


def _coordinates(
    on: Legaliser, there: Number, factor: Number, end: Number, crop: tuple[Number, Number] | None, mode: str
) -> Number:
    """Where the middle of each new element was, in float64."""
    at = cast(on, count_up(on, end), F64)
    size, whole = cast(on, there, F64), cast(on, end, F64)
    grown = calculate(on, "Mul", size, factor)
    if mode in ("align_corners", "tf_crop_and_resize"):
        reach = calculate(on, "Sub", size, 1.0)
        single = calculate(on, "Equal", grown, 1.0)
        steps = calculate(on, "Where", single, 1.0, calculate(on, "Sub", grown, 1.0))
        if mode == "align_corners" or crop is None:
            spread = calculate(on, "Div", calculate(on, "Mul", at, reach), steps)
            return calculate(on, "Where", single, 0.0, spread)
        first, last = crop
        reached = calculate(on, "Mul", calculate(on, "Sub", last, first), reach)
        spread = calculate(on, "Div", calculate(on, "Mul", at, reached), steps)
        middle = calculate(on, "Mul", reached, 0.5)
        spread = calculate(on, "Where", single, middle, spread)
        return calculate(on, "Add", spread, calculate(on, "Mul", first, reach))
    if mode == "asymmetric":
        return calculate(on, "Div", at, factor)
    made = calculate(on, "Sub", calculate(on, "Div", calculate(on, "Add", at, 0.5), factor), 0.5)
    if mode == "pytorch_half_pixel":
        return calculate(on, "Where", calculate(on, "Equal", grown, 1.0), -0.5, made)
    if mode == "half_pixel_symmetric":
        lost = calculate(on, "Sub", 1.0, calculate(on, "Div", whole, grown))
        made = calculate(on, "Add", made, calculate(on, "Mul", calculate(on, "Mul", size, 0.5), lost))
    return made


_ROUNDED = {
    "round_prefer_floor": ("Ceil", -0.5),
    "round_prefer_ceil": ("Floor", 0.5),
    "floor": ("Floor", 0.0),
    "ceil": ("Ceil", 0.0),
}


def _along(
    on: Legaliser,
    x: Symbol,
    axis: int,
    factor: Number,
    end: Number,
    crop: tuple[Number, Number] | None,
    attributes: dict[str, Any],
) -> Symbol:
    """One axis resized."""
    transformation = attributes.get("coordinate_transformation_mode", "half_pixel")
    there = length(on, x, axis)
    at = _coordinates(on, there, factor, end, crop, transformation)
    last = calculate(on, "Sub", there, 1)
    if attributes.get("mode", "nearest") == "nearest":
        rounding, shift = _ROUNDED[attributes.get("nearest_mode", "round_prefer_floor")]
        index = cast(on, calculate(on, rounding, calculate(on, "Add", at, shift)), DType.int64)
        index = calculate(on, "Max", calculate(on, "Min", index, last), 0)
        made = _gathered(on, x, axis, symbol(on, index))
    else:
        taken, weights = _taps(on, at, there, factor, attributes)
        index = calculate(on, "Max", calculate(on, "Min", taken, last), 0)
        if attributes.get("exclude_outside"):
            inside = calculate(on, "Equal", index, taken)
            weights = calculate(on, "Where", inside, weights, 0.0)
            weights = calculate(on, "Div", weights, _row_sums(on, weights))
        parts = _gathered(on, x, axis, symbol(on, index))
        column = symbol(on, weights)
        column = (
            on.op(
                "Unsqueeze", column, on.ints(range(2, 2 + x.rank - 1 - axis)), shape=_column(column, x.rank - 1 - axis)
            )
            if x.rank - 1 - axis
            else column
        )
        made = total(on, on.op("Mul", parts, column, shape=parts.shape), axis + 1)
    if transformation == "tf_crop_and_resize":
        reach = cast(on, last, F64)
        outside = calculate(on, "Or", calculate(on, "Less", at, 0.0), calculate(on, "Less", reach, at))
        if isinstance(outside, Symbol) or outside.any():
            spread = symbol(on, reshaped(on, outside, [-1, *[1] * (x.rank - 1 - axis)]))
            value = attributes.get("extrapolation_value", 0.0)
            other = on.const(value if x.dtype.is_float else int(value), x.dtype)
            made = on.op("Where", spread, other, made, dtype=x.dtype, shape=made.shape)
    return made


def _column(weights: Symbol, behind: int) -> Shape:
    return _shape([*weights.shape, *[Dim(1)] * behind])


def _gathered(on: Legaliser, x: Symbol, axis: int, index: Symbol) -> Symbol:
    shape = _shape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])
    return on.op("Gather", x, index, shape=shape, axis=axis)


def _row_sums(on: Legaliser, weights: Number) -> Number:
    if not isinstance(weights, Symbol):
        return np.asarray(weights.sum(axis=1, keepdims=True))
    return total(on, weights, 1, keepdims=True)


def _taps(
    on: Legaliser, at: Number, there: Number, factor: Number, attributes: dict[str, Any]
) -> tuple[Number, Number]:
    """The elements that each new one is made of, before they are brought into the axis, and their weights."""
    cubic = attributes["mode"] == "cubic"
    reach = 2 if cubic else 1
    a = attributes.get("cubic_coeff_a", -0.75)
    shrink: Number = np.asarray(1.0)
    if attributes.get("antialias"):
        shrink = calculate(on, "Min", factor, 1.0)
    floor = calculate(on, "Floor", at)
    first = calculate(on, "Add", calculate(on, "Floor", calculate(on, "Div", float(-reach), shrink)), 1.0)
    count = cast(on, calculate(on, "Sub", 2.0, calculate(on, "Mul", first, 2.0)), DType.int64)
    steps = calculate(on, "Add", cast(on, reshaped(on, count_up(on, count), [1, -1]), F64), first)
    taken = calculate(on, "Add", reshaped(on, floor, [-1, 1]), steps)
    distance = calculate(on, "Abs", calculate(on, "Sub", taken, reshaped(on, at, [-1, 1])))
    distance = calculate(on, "Mul", distance, shrink)
    if cubic:
        weights = cubic_weights(on, distance, a)
    else:
        weights = calculate(on, "Max", calculate(on, "Sub", 1.0, distance), 0.0)
    if attributes.get("antialias"):
        weights = calculate(on, "Div", weights, _row_sums(on, weights))
    return cast(on, taken, DType.int64), weights


def cubic_weights(on: Legaliser, distance: Number, a: float) -> Number:
    """Keys' kernel: "Cubic convolution interpolation for digital image processing" (1981)."""

    def polynomial(*coefficients: float) -> Number:
        made: Number = calculate(on, "Mul", distance, coefficients[0])
        for c in coefficients[1:-1]:
            made = calculate(on, "Mul", calculate(on, "Add", made, c), distance)
        return calculate(on, "Add", made, coefficients[-1])

    near = polynomial(a + 2, -(a + 3), 0.0, 1.0)
    far = polynomial(a, -5 * a, 8 * a, -4 * a)
    beyond = calculate(on, "Where", calculate(on, "Less", distance, 2.0), far, 0.0)
    return calculate(on, "Where", calculate(on, "Less", distance, 1.0), near, beyond)
