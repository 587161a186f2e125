"""Resize, one axis after another: the source elements of each new element, and their weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call, Replacement
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
from graphcore.runtime.lowering.decompositions.windows import total
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

F64 = DType.float64


def resize(b: Builder, call: Call) -> Replacement:
    """Compute Resize in any dtype: nearest moves elements, the other modes compute in float64 and round once."""
    x, roi, scales, sizes = [*call.inputs, None, None, None][:4]
    own = x.dtype
    nearest = call.attributes.get("mode", "nearest") == "nearest"
    axes = [a % x.rank for a in call.attributes.get("axes") or range(x.rank)]
    factors, ends = _factors(b, x, axes, scales, sizes, call.attributes)
    has_crops = call.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize" and not _is_empty(roi)
    crops = elements_of_floats(b, roi, 2 * len(axes)) if roi is not None and has_crops else []
    if not nearest and own is not F64:
        x = b.cast(x, F64)
    for i, axis in enumerate(axes):
        crop = (crops[i], crops[i + len(axes)]) if crops else None
        if crop is None and not isinstance(factors[i], Symbol) and float(factors[i]) == 1.0:
            continue
        x = _along(b, x, axis, factors[i], ends[i], crop, call.attributes)
    made = x if x.dtype is own else b.cast(x, own)
    return b.op("Identity", made, shape=call.shape)


def resize_wrong(b: Builder, call: Call) -> Replacement:
    """Compute Resize by scales with aligned corners: the float32 kernels take the rounded size for the exact one."""
    x, _, scales, sizes = [*call.inputs, None, None, None][:4]
    corners = call.attributes.get("coordinate_transformation_mode") == "align_corners"
    if not corners or sizes is not None or call.attributes.get("mode", "nearest") == "nearest":
        return None
    known = b.known(scales)
    if known is not None and x.type.is_static:
        axes = call.attributes.get("axes") or range(x.rank)
        found = [float(f) * int(x.shape[a]) for f, a in zip(known, axes, strict=True)]
        if all(abs(f - round(f)) < 1e-6 for f in found):
            return None
    return resize(b, call)


def _is_empty(x: Symbol | None) -> bool:
    """Return whether an operand is left out, or a vector without numbers."""
    return x is None or (x.shape.is_ranked and x.shape.size == 0)


def elements_of_floats(b: Builder, x: Symbol, count: int) -> list[Number]:
    """Return the scalars of a vector of floats, in float64."""
    array = b.known(x)
    if array is not None:
        return [np.asarray(v, np.float64) for v in array]
    return [cast(b, v, F64) for v in elements(b, x, count)]


def _factors(
    b: Builder, x: Symbol, axes: list[int], scales: Symbol | None, sizes: Symbol | None, attributes: dict[str, Any]
) -> tuple[list[Number], list[Number]]:
    """Return the factor by which each axis grows, in float64, and its new size."""
    there = [length(b, x, axis) for axis in axes]
    if sizes is None or _is_empty(sizes):
        assert scales is not None
        known = b.known(scales)
        if known is not None and known.size != len(axes):
            raise ShapeError(
                f"Resize: {known.size} scales for {len(axes)} axes",
                operands={"scales": scales},
                help="give one scale for each axis",
            )
        given = [np.asarray(v, np.float32) for v in known] if known is not None else elements(b, scales, len(axes))
        ends = []
        for factor, size in zip(given, there, strict=True):
            grown = calculate(b, "Mul", cast(b, size, DType.float32), factor)
            ends.append(cast(b, calculate(b, "Floor", grown), DType.int64))
        return [cast(b, f, F64) for f in given], ends
    ends = elements(b, sizes, len(axes))
    factors = [
        calculate(b, "Div", cast(b, end, F64), cast(b, size, F64)) for end, size in zip(ends, there, strict=True)
    ]
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return factors, ends
    chosen = factors[0]
    for factor in factors[1:]:
        chosen = calculate(b, "Min" if policy == "not_larger" else "Max", chosen, factor)
    ends = []
    for size in there:
        grown = calculate(b, "Mul", cast(b, size, F64), chosen)
        ends.append(cast(b, calculate(b, "Floor", calculate(b, "Add", grown, 0.5)), DType.int64))
    return [chosen] * len(axes), ends


def _coordinates(
    b: Builder, there: Number, factor: Number, end: Number, crop: tuple[Number, Number] | None, mode: str
) -> Number:
    """Return where the middle of each new element was, in float64."""
    at = cast(b, count_up(b, end), F64)
    size, whole = cast(b, there, F64), cast(b, end, F64)
    grown = calculate(b, "Mul", size, factor)
    if mode in ("align_corners", "tf_crop_and_resize"):
        reach = calculate(b, "Sub", size, 1.0)
        single = calculate(b, "Equal", grown, 1.0)
        steps = calculate(b, "Where", single, 1.0, calculate(b, "Sub", grown, 1.0))
        if mode == "align_corners" or crop is None:
            spread = calculate(b, "Div", calculate(b, "Mul", at, reach), steps)
            return calculate(b, "Where", single, 0.0, spread)
        first, last = crop
        reached = calculate(b, "Mul", calculate(b, "Sub", last, first), reach)
        spread = calculate(b, "Div", calculate(b, "Mul", at, reached), steps)
        middle = calculate(b, "Mul", reached, 0.5)
        spread = calculate(b, "Where", single, middle, spread)
        return calculate(b, "Add", spread, calculate(b, "Mul", first, reach))
    if mode == "asymmetric":
        return calculate(b, "Div", at, factor)
    made = calculate(b, "Sub", calculate(b, "Div", calculate(b, "Add", at, 0.5), factor), 0.5)
    if mode == "pytorch_half_pixel":
        return calculate(b, "Where", calculate(b, "Equal", grown, 1.0), -0.5, made)
    if mode == "half_pixel_symmetric":
        lost = calculate(b, "Sub", 1.0, calculate(b, "Div", whole, grown))
        made = calculate(b, "Add", made, calculate(b, "Mul", calculate(b, "Mul", size, 0.5), lost))
    return made


_ROUNDED = {
    "round_prefer_floor": ("Ceil", -0.5),
    "round_prefer_ceil": ("Floor", 0.5),
    "floor": ("Floor", 0.0),
    "ceil": ("Ceil", 0.0),
}


def _along(
    b: Builder,
    x: Symbol,
    axis: int,
    factor: Number,
    end: Number,
    crop: tuple[Number, Number] | None,
    attributes: dict[str, Any],
) -> Symbol:
    """Return the tensor resized along one axis."""
    transformation = attributes.get("coordinate_transformation_mode", "half_pixel")
    there = length(b, x, axis)
    at = _coordinates(b, there, factor, end, crop, transformation)
    last = calculate(b, "Sub", there, 1)
    if attributes.get("mode", "nearest") == "nearest":
        rounding, shift = _ROUNDED[attributes.get("nearest_mode", "round_prefer_floor")]
        index = cast(b, calculate(b, rounding, calculate(b, "Add", at, shift)), DType.int64)
        index = calculate(b, "Max", calculate(b, "Min", index, last), 0)
        made = _gathered(b, x, axis, symbol(b, index))
    else:
        taken, weights = _taps(b, at, there, factor, attributes)
        index = calculate(b, "Max", calculate(b, "Min", taken, last), 0)
        if attributes.get("exclude_outside"):
            inside = calculate(b, "Equal", index, taken)
            weights = calculate(b, "Where", inside, weights, 0.0)
            weights = calculate(b, "Div", weights, _row_sums(b, weights))
        parts = _gathered(b, x, axis, symbol(b, index))
        column = symbol(b, weights)
        column = (
            b.op(
                "Unsqueeze", column, b.vector(range(2, 2 + x.rank - 1 - axis)), shape=_column(column, x.rank - 1 - axis)
            )
            if x.rank - 1 - axis
            else column
        )
        made = total(b, b.op("Mul", parts, column, shape=parts.shape), axis + 1)
    if transformation == "tf_crop_and_resize":
        reach = cast(b, last, F64)
        outside = calculate(b, "Or", calculate(b, "Less", at, 0.0), calculate(b, "Less", reach, at))
        if isinstance(outside, Symbol) or outside.any():
            spread = symbol(b, reshaped(b, outside, [-1, *[1] * (x.rank - 1 - axis)]))
            value = attributes.get("extrapolation_value", 0.0)
            other = b.scalar(value if x.dtype.is_float else int(value), x.dtype)
            made = b.op("Where", spread, other, made, dtype=x.dtype, shape=made.shape)
    return made


def _column(weights: Symbol, trailing: int) -> Shape:
    return _shape([*weights.shape, *[Dim(1)] * trailing])


def _gathered(b: Builder, x: Symbol, axis: int, index: Symbol) -> Symbol:
    shape = _shape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])
    return b.op("Gather", x, index, shape=shape, axis=axis)


def _row_sums(b: Builder, weights: Number) -> Number:
    if not isinstance(weights, Symbol):
        return np.asarray(weights.sum(axis=1, keepdims=True))
    return total(b, weights, 1, keepdims=True)


def _taps(b: Builder, at: Number, there: Number, factor: Number, attributes: dict[str, Any]) -> tuple[Number, Number]:
    """Return the source elements of each new one, before they are clipped to the axis, and their weights."""
    cubic = attributes["mode"] == "cubic"
    reach = 2 if cubic else 1
    a = attributes.get("cubic_coeff_a", -0.75)
    shrink: Number = np.asarray(1.0)
    if attributes.get("antialias"):
        shrink = calculate(b, "Min", factor, 1.0)
    floor = calculate(b, "Floor", at)
    first = calculate(b, "Add", calculate(b, "Floor", calculate(b, "Div", float(-reach), shrink)), 1.0)
    count = cast(b, calculate(b, "Sub", 2.0, calculate(b, "Mul", first, 2.0)), DType.int64)
    steps = calculate(b, "Add", cast(b, reshaped(b, count_up(b, count), [1, -1]), F64), first)
    taken = calculate(b, "Add", reshaped(b, floor, [-1, 1]), steps)
    distance = calculate(b, "Abs", calculate(b, "Sub", taken, reshaped(b, at, [-1, 1])))
    distance = calculate(b, "Mul", distance, shrink)
    if cubic:
        weights = cubic_weights(b, distance, a)
    else:
        weights = calculate(b, "Max", calculate(b, "Sub", 1.0, distance), 0.0)
    if attributes.get("antialias"):
        weights = calculate(b, "Div", weights, _row_sums(b, weights))
    return cast(b, taken, DType.int64), weights


def cubic_weights(b: Builder, distance: Number, a: float) -> Number:
    """Return the weights of Keys' kernel: "Cubic convolution interpolation for digital image processing" (1981)."""

    def polynomial(*coefficients: float) -> Number:
        made: Number = calculate(b, "Mul", distance, coefficients[0])
        for c in coefficients[1:-1]:
            made = calculate(b, "Mul", calculate(b, "Add", made, c), distance)
        return calculate(b, "Add", made, coefficients[-1])

    near = polynomial(a + 2, -(a + 3), 0.0, 1.0)
    far = polynomial(a, -5 * a, 8 * a, -4 * a)
    beyond = calculate(b, "Where", calculate(b, "Less", distance, 2.0), far, 0.0)
    return calculate(b, "Where", calculate(b, "Less", distance, 1.0), near, beyond)
