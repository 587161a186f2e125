"""Images at other positions: Resize, one axis after another, GridSample, and pooling of regions."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.decompositions.shape_arithmetic import (
    Number,
    calculate,
    cast,
    count_up,
    elements,
    length,
    lengths,
    reshape,
    reshaped,
    symbol,
    times,
    transpose,
)
from graphcore.runtime.lowering.decompositions.windows import gathered, reduced, total
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

F64 = DType.float64


def resize(b: Builder, call: OpCall) -> Replacement:
    """Compute Resize in any dtype: nearest moves elements, the other modes compute in float64 and round once."""
    x, roi, scales, sizes = [*call.inputs, None, None, None][:4]
    dtype = x.dtype
    nearest = call.attributes.get("mode", "nearest") == "nearest"
    axes = [a % x.rank for a in call.attributes.get("axes") or range(x.rank)]
    factors, ends = _factors(b, x, axes, scales, sizes, call.attributes)
    has_crops = call.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize" and not _is_empty(roi)
    crops = elements_of_floats(b, roi, 2 * len(axes)) if roi is not None and has_crops else []
    if not nearest and dtype is not F64:
        x = b.cast(x, F64)
    for i, axis in enumerate(axes):
        crop = (crops[i], crops[i + len(axes)]) if crops else None
        if crop is None and not isinstance(factors[i], Symbol) and float(factors[i]) == 1.0:
            continue
        x = _along(b, x, axis, factors[i], ends[i], crop, call.attributes)
    result = x if x.dtype is dtype else b.cast(x, dtype)
    return b.op("Identity", result, shape=call.shape)


def resize_aligned_corners(b: Builder, call: OpCall) -> Replacement:
    """Compute Resize by scales with aligned corners: the float32 kernels use the rounded size, not the exact one."""
    x, _, scales, sizes = [*call.inputs, None, None, None][:4]
    corners = call.attributes.get("coordinate_transformation_mode") == "align_corners"
    if not corners or sizes is not None or call.attributes.get("mode", "nearest") == "nearest":
        return None
    constant = b.array_of(scales)
    if constant is not None and x.type.is_static:
        axes = call.attributes.get("axes") or range(x.rank)
        exact_sizes = [float(f) * int(x.shape[a]) for f, a in zip(constant, axes, strict=True)]
        if all(abs(f - round(f)) < 1e-6 for f in exact_sizes):
            return None
    return resize(b, call)


def _is_empty(x: Symbol | None) -> bool:
    """Return True if an operand is omitted, or is a vector without numbers."""
    return x is None or (x.shape.is_ranked and x.shape.size == 0)


def elements_of_floats(b: Builder, x: Symbol, count: int) -> list[Number]:
    """Return the scalars of a vector of floats, in float64."""
    array = b.array_of(x)
    if array is not None:
        return [np.asarray(v, np.float64) for v in array]
    return [cast(b, v, F64) for v in elements(b, x, count)]


def _factors(
    b: Builder, x: Symbol, axes: list[int], scales: Symbol | None, sizes: Symbol | None, attributes: dict[str, Any]
) -> tuple[list[Number], list[Number]]:
    """Return the factor by which each axis grows, in float64, and its new size."""
    axis_lengths = [length(b, x, axis) for axis in axes]
    if sizes is None or _is_empty(sizes):
        assert scales is not None
        constant = b.array_of(scales)
        if constant is not None and constant.size != len(axes):
            raise ShapeError(
                f"Resize: got {constant.size} scales for {len(axes)} axes",
                operands={"scales": scales},
                help="pass one scale for each axis",
            )
        scale_numbers = (
            [np.asarray(v, np.float32) for v in constant] if constant is not None else elements(b, scales, len(axes))
        )
        ends = []
        for factor, size in zip(scale_numbers, axis_lengths, strict=True):
            grown = calculate(b, "Mul", cast(b, size, DType.float32), factor)
            ends.append(cast(b, calculate(b, "Floor", grown), DType.int64))
        return [cast(b, f, F64) for f in scale_numbers], ends
    ends = elements(b, sizes, len(axes))
    factors = [
        calculate(b, "Div", cast(b, end, F64), cast(b, size, F64)) for end, size in zip(ends, axis_lengths, strict=True)
    ]
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return factors, ends
    chosen = reduce(partial(calculate, b, "Min" if policy == "not_larger" else "Max"), factors)
    ends = []
    for size in axis_lengths:
        grown = calculate(b, "Mul", cast(b, size, F64), chosen)
        ends.append(cast(b, calculate(b, "Floor", calculate(b, "Add", grown, 0.5)), DType.int64))
    return [chosen] * len(axes), ends


def _coordinates(
    b: Builder, axis_length: Number, factor: Number, end: Number, crop: tuple[Number, Number] | None, mode: str
) -> Number:
    """Return the old coordinate of the centre of each new element, in float64."""
    at = cast(b, count_up(b, end), F64)
    size, whole = cast(b, axis_length, F64), cast(b, end, F64)
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
    coordinates = calculate(b, "Sub", calculate(b, "Div", calculate(b, "Add", at, 0.5), factor), 0.5)
    if mode == "pytorch_half_pixel":
        return calculate(b, "Where", calculate(b, "Equal", grown, 1.0), -0.5, coordinates)
    if mode == "half_pixel_symmetric":
        lost = calculate(b, "Sub", 1.0, calculate(b, "Div", whole, grown))
        coordinates = calculate(b, "Add", coordinates, calculate(b, "Mul", calculate(b, "Mul", size, 0.5), lost))
    return coordinates


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
    axis_length = length(b, x, axis)
    at = _coordinates(b, axis_length, factor, end, crop, transformation)
    last = calculate(b, "Sub", axis_length, 1)
    if attributes.get("mode", "nearest") == "nearest":
        rounding, shift = _ROUNDED[attributes.get("nearest_mode", "round_prefer_floor")]
        index = cast(b, calculate(b, rounding, calculate(b, "Add", at, shift)), DType.int64)
        index = calculate(b, "Max", calculate(b, "Min", index, last), 0)
        resized = gathered(b, x, axis, symbol(b, index))
    else:
        sources, weights = _taps(b, at, axis_length, factor, attributes)
        index = calculate(b, "Max", calculate(b, "Min", sources, last), 0)
        if attributes.get("exclude_outside"):
            inside = calculate(b, "Equal", index, sources)
            weights = calculate(b, "Where", inside, weights, 0.0)
            weights = calculate(b, "Div", weights, _row_sums(b, weights))
        parts = gathered(b, x, axis, symbol(b, index))
        column = symbol(b, weights)
        trailing = x.rank - 1 - axis
        if trailing:
            column = b.op("Unsqueeze", column, b.vector(range(2, 2 + trailing)))
        resized = total(b, b.op("Mul", parts, column, shape=parts.shape), axis + 1)
    if transformation == "tf_crop_and_resize":
        reach = cast(b, last, F64)
        outside = calculate(b, "Or", calculate(b, "Less", at, 0.0), calculate(b, "Less", reach, at))
        if isinstance(outside, Symbol) or outside.any():
            spread = symbol(b, reshaped(b, outside, [-1, *[1] * (x.rank - 1 - axis)]))
            value = attributes.get("extrapolation_value", 0.0)
            other = b.scalar(value if x.dtype.is_float else int(value), x.dtype)
            resized = b.op("Where", spread, other, resized, dtype=x.dtype, shape=resized.shape)
    return resized


def _row_sums(b: Builder, weights: Number) -> Number:
    if not isinstance(weights, Symbol):
        return np.asarray(weights.sum(axis=1, keepdims=True))
    return total(b, weights, 1, keepdims=True)


def _taps(
    b: Builder, at: Number, axis_length: Number, factor: Number, attributes: dict[str, Any]
) -> tuple[Number, Number]:
    """Return the source elements of each new element, before clipping to the axis, and their weights."""
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
    sources = calculate(b, "Add", reshaped(b, floor, [-1, 1]), steps)
    distance = calculate(b, "Abs", calculate(b, "Sub", sources, reshaped(b, at, [-1, 1])))
    distance = calculate(b, "Mul", distance, shrink)
    if cubic:
        weights = cubic_weights(b, distance, a)
    else:
        weights = calculate(b, "Max", calculate(b, "Sub", 1.0, distance), 0.0)
    if attributes.get("antialias"):
        weights = calculate(b, "Div", weights, _row_sums(b, weights))
    return cast(b, sources, DType.int64), weights


def cubic_weights(b: Builder, distance: Number, a: float) -> Number:
    """Return the weights of Keys' kernel: "Cubic convolution interpolation for digital image processing" (1981)."""

    def polynomial(*coefficients: float) -> Number:
        value: Number = calculate(b, "Mul", distance, coefficients[0])
        for c in coefficients[1:-1]:
            value = calculate(b, "Mul", calculate(b, "Add", value, c), distance)
        return calculate(b, "Add", value, coefficients[-1])

    near = polynomial(a + 2, -(a + 3), 0.0, 1.0)
    far = polynomial(a, -5 * a, 8 * a, -4 * a)
    beyond = calculate(b, "Where", calculate(b, "Less", distance, 2.0), far, 0.0)
    return calculate(b, "Where", calculate(b, "Less", distance, 1.0), near, beyond)


# GridSample: images read at computed coordinates.

_TAPS = {"nearest": (0,), "linear": (0, 1), "bilinear": (0, 1), "cubic": (-1, 0, 1, 2), "bicubic": (-1, 0, 1, 2)}


def grid_sample(b: Builder, call: OpCall) -> Replacement:
    """Compute GridSample in any dtype: nearest moves elements, the other modes compute in float64 and round once."""
    x, grid = call.inputs
    dtype, mode = x.dtype, call.attributes.get("mode", "linear")
    offsets = _TAPS[mode]
    if mode != "nearest" and dtype is not F64:
        x = b.cast(x, F64)
    grid = b.cast(grid, F64)
    count = x.rank - 2
    batch, channels, *sizes = lengths(b, x, range(x.rank))
    ends = lengths(b, grid, range(1, grid.rank - 1))
    places = times(b, ends)
    flat = reshape(b, grid, [batch, places, 1, count])
    index: Number = np.zeros((1, 1, 1), np.int64)
    weights: Number = np.ones((1, 1, 1))
    outside: Number = np.zeros((1, 1, 1), bool)
    taps = 1
    for axis, size in enumerate(sizes):
        at = b.op("Gather", flat, b.scalar(count - 1 - axis, DType.int64), shape=flat.shape[:3], axis=3)
        sources, parts, beyond = _grid_sample_along(b, at, size, offsets, call.attributes)
        wide = [places, taps * len(offsets)]

        def outer(op_type: str, left: Number, right: Number, wide: list[Any] = wide) -> Number:
            left = reshape(b, symbol(b, left), [*lengths(b, symbol(b, left), range(3)), 1])
            right = reshape(b, symbol(b, right), [batch, places, 1, len(offsets)])
            return reshape(b, symbol(b, calculate(b, op_type, left, right)), [batch, *wide])

        index = outer("Add", calculate(b, "Mul", index, size), sources)
        weights = outer("Mul", weights, parts)
        outside = outer("Or", outside, beyond)
        taps *= len(offsets)
    # Flatten all images to one list of pixels with their channels.
    moved = transpose(b, x, [0, *range(2, x.rank), 1])
    area = times(b, sizes)
    pixels = reshape(b, moved, [times(b, [batch, area]), channels])
    first = reshaped(b, calculate(b, "Mul", count_up(b, batch), area), [-1, 1, 1])
    index = symbol(b, calculate(b, "Add", index, first))
    values = gathered(b, pixels, 0, index)
    if call.attributes.get("padding_mode", "zeros") == "zeros":
        mask = b.op("Unsqueeze", symbol(b, outside), b.vector([3]))
        values = b.op("Where", mask, b.scalar(0, x.dtype), values, shape=values.shape)
    if mode != "nearest":
        factor = b.op("Unsqueeze", symbol(b, weights), b.vector([3]))
        sampled = total(b, b.op("Mul", values, factor, shape=values.shape), 2)
    else:
        sampled = b.op("Squeeze", values, b.vector([2]))
    sampled = reshape(b, transpose(b, sampled, [0, 2, 1]), [batch, channels, *ends])
    sampled = sampled if sampled.dtype is dtype else b.cast(sampled, dtype)
    return b.op("Identity", sampled, shape=call.shape)


def _grid_sample_along(
    b: Builder, at: Symbol, size: Number, offsets: tuple[int, ...], attributes: dict[str, Any]
) -> tuple[Number, Number, Number]:
    """Return the pixels read along one axis, their weights, and a mask of those outside."""
    align, padding = attributes.get("align_corners", 0), attributes.get("padding_mode", "zeros")
    whole = cast(b, size, F64)
    last = calculate(b, "Sub", whole, 1.0)
    half = calculate(b, "Mul", calculate(b, "Add", at, 1.0), 0.5)
    place = calculate(b, "Mul", half, last if align else whole)
    place = place if align else calculate(b, "Sub", place, 0.5)
    if len(offsets) == 1:
        place = calculate(b, "Round", place)
    low: Number = np.asarray(0.0 if align else -0.5)
    high = calculate(b, "Sub", whole, 1.0 if align else 0.5)
    if padding == "border" and len(offsets) < 4:  # for cubic modes the kernel clips each neighbour
        place = calculate(b, "Max", calculate(b, "Min", place, last), 0.0)
    elif padding == "reflection":
        place = _reflected(b, place, low, high)
    floor = calculate(b, "Floor", place)
    steps = np.asarray(offsets, np.float64).reshape(1, 1, -1)
    sources = calculate(b, "Add", floor, steps)
    distance = calculate(b, "Abs", calculate(b, "Sub", sources, place))
    if len(offsets) == 4:
        weights = cubic_weights(b, distance, -0.75)
    else:
        weights = calculate(b, "Sub", 1.0, distance)
    beyond = calculate(b, "Or", calculate(b, "Less", sources, 0.0), calculate(b, "Less", last, sources))
    if padding == "reflection":
        sources = _reflected(b, sources, low, high)
    inside = calculate(b, "Max", calculate(b, "Min", sources, last), 0.0)
    return cast(b, inside, DType.int64), weights, beyond


def _reflected(b: Builder, place: Number, low: Number, high: Number) -> Number:
    """Return coordinates reflected between two borders."""
    distance = calculate(b, "Sub", high, low)
    none = calculate(b, "Equal", distance, 0.0)
    span = calculate(b, "Where", none, 1.0, distance)
    offset = calculate(b, "Sub", place, low)
    turns = calculate(b, "Floor", calculate(b, "Div", offset, calculate(b, "Mul", span, 2.0)))
    rest = calculate(b, "Sub", offset, calculate(b, "Mul", calculate(b, "Mul", turns, span), 2.0))
    back = calculate(b, "Sub", span, calculate(b, "Abs", calculate(b, "Sub", rest, span)))
    return calculate(b, "Where", none, low, calculate(b, "Add", low, back))


# MaxRoiPool, for which the runtime has a kernel only in models of opset 21 and older.


def max_roi_pool(b: Builder, call: OpCall) -> Replacement:
    """Compute MaxRoiPool: the maximum of each part of each region; 0 if a part has no pixel.

    The corners of a region, times `spatial_scale`, are rounded to pixels, halves away from zero.
    """
    x, regions = call.inputs
    dtype = x.dtype
    rows, columns = (Dim(n) for n in call.attributes["pooled_shape"])
    count = regions.shape[0]
    corners = b.cast(regions, F64)
    batch = b.native("Gather", corners, b.scalar(0, DType.int64), shape=_shape([count]), axis=1)
    pooled = b.op("Gather", x, b.cast(batch, DType.int64), shape=_shape([count, *x.shape[1:]]), axis=0)
    scaled = b.native("Mul", corners, b.scalar(call.attributes.get("spatial_scale", 1.0), F64))
    size = b.native("Add", b.native("Abs", scaled), b.scalar(0.5, F64))
    whole = b.native("Mul", b.native("Sign", scaled), b.native("Floor", size))
    filled = []
    for axis, column, parts, missing in ((2, 2, rows, [1, 4]), (3, 1, columns, [1, 2])):
        inside = _inside(b, whole, column, int(parts), x, axis)
        mask = b.native("Unsqueeze", inside, b.vector(missing))
        wide = b.op("Where", mask, b.op("Unsqueeze", pooled, b.vector([axis])), b.scalar(-np.inf, dtype))
        pooled = reduced(b, "ReduceMax", wide, [axis + 1])
        filled.append(b.cast(reduced(b, "ReduceMax", b.cast(mask, DType.uint8), [axis + 1]), DType.bool))
    has_pixels = b.native("And", *filled)
    return b.op("Where", has_pixels, pooled, b.scalar(0.0, dtype), dtype=dtype, shape=call.shape)


def _inside(b: Builder, corners: Symbol, column: int, parts: int, x: Symbol, axis: int) -> Symbol:
    """Return a mask of the pixels along the axis in each part of each region: [regions, parts, pixels]."""
    begin, end = (
        b.native("Unsqueeze", b.native("Gather", corners, b.vector([c]), axis=1), b.vector([2]))
        for c in (column, column + 2)
    )
    one = b.scalar(1.0, F64)
    part = b.native("Max", b.native("Add", b.native("Sub", end, begin), one), one)
    part = b.native("Div", part, b.scalar(float(parts), F64))
    numbers = np.arange(parts, dtype=np.float64).reshape(1, -1, 1)
    first = b.native("Add", b.native("Floor", b.native("Mul", part, symbol(b, numbers))), begin)
    last = b.native("Add", b.native("Ceil", b.native("Mul", part, symbol(b, numbers + 1))), begin)
    pixels = symbol(b, cast(b, count_up(b, length(b, x, axis)), F64))
    shape = _shape([corners.shape[0], Dim(parts), x.shape[axis]])
    is_before = b.native("Less", pixels, first)
    return b.native("And", b.native("Not", is_before), b.native("Less", pixels, last), shape=shape)
