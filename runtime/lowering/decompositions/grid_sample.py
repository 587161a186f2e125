"""GridSample: images read at computed coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call, Replacement
from graphcore.runtime.lowering.decompositions.resizing import cubic_weights
from graphcore.runtime.lowering.decompositions.shape_arithmetic import (
    Number,
    calculate,
    cast,
    count_up,
    length,
    lengths,
    reshape,
    reshaped,
    symbol,
    times,
    transpose,
)
from graphcore.runtime.lowering.decompositions.windows import total
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

F64 = DType.float64
_TAPS = {"nearest": (0,), "linear": (0, 1), "bilinear": (0, 1), "cubic": (-1, 0, 1, 2), "bicubic": (-1, 0, 1, 2)}


def grid_sample(b: Builder, call: Call) -> Replacement:
    """Compute GridSample in any dtype: nearest moves elements, the other modes compute in float64 and round once."""
    x, grid = call.inputs
    own, mode = x.dtype, call.attributes.get("mode", "linear")
    offsets = _TAPS[mode]
    if mode != "nearest" and own is not F64:
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
        taken, parts, beyond = _along(b, at, size, offsets, call.attributes)
        wide = [places, taps * len(offsets)]

        def outer(op_type: str, left: Number, right: Number, wide: list[Any] = wide) -> Number:
            left = reshape(b, symbol(b, left), [*lengths(b, symbol(b, left), range(3)), 1])
            right = reshape(b, symbol(b, right), [batch, places, 1, len(offsets)])
            return reshape(b, symbol(b, calculate(b, op_type, left, right)), [batch, *wide])

        index = outer("Add", calculate(b, "Mul", index, size), taken)
        weights = outer("Mul", weights, parts)
        outside = outer("Or", outside, beyond)
        taps *= len(offsets)
    # All images as one list of pixels with their channels.
    moved = transpose(b, x, [0, *range(2, x.rank), 1])
    area = times(b, sizes)
    pixels = reshape(b, moved, [times(b, [batch, area]), channels])
    first = reshaped(b, calculate(b, "Mul", count_up(b, batch), area), [-1, 1, 1])
    index = symbol(b, calculate(b, "Add", index, first))
    shape = _shape([*index.shape, pixels.shape[1]])
    found = b.op("Gather", pixels, index, shape=shape, axis=0)
    if call.attributes.get("padding_mode", "zeros") == "zeros":
        mask = b.op("Unsqueeze", symbol(b, outside), b.vector([3]), shape=_shape([*index.shape, Dim(1)]))
        found = b.op("Where", mask, b.scalar(0, x.dtype), found, dtype=x.dtype, shape=shape)
    if mode != "nearest":
        factor = b.op("Unsqueeze", symbol(b, weights), b.vector([3]), shape=_shape([*index.shape, Dim(1)]))
        found = b.op("Mul", found, factor, shape=shape)
        made = total(b, found, 2)
    else:
        made = b.op("Squeeze", found, b.vector([2]), shape=_shape([*shape[:2], shape[3]]))
    made = reshape(b, transpose(b, made, [0, 2, 1]), [batch, channels, *ends])
    made = made if made.dtype is own else b.cast(made, own)
    return b.op("Identity", made, shape=call.shape)


def _along(
    b: Builder, at: Symbol, size: Number, offsets: tuple[int, ...], attributes: dict[str, Any]
) -> tuple[Number, Number, Number]:
    """Return the pixels read along one axis, their weights, and whether they are outside."""
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
    if padding == "border" and len(offsets) < 4:  # of cubic weights the kernel moves the neighbours one by one
        place = calculate(b, "Max", calculate(b, "Min", place, last), 0.0)
    elif padding == "reflection":
        place = _reflected(b, place, low, high)
    floor = calculate(b, "Floor", place)
    steps = np.asarray(offsets, np.float64).reshape(1, 1, -1)
    taken = calculate(b, "Add", floor, steps)
    distance = calculate(b, "Abs", calculate(b, "Sub", taken, place))
    if len(offsets) == 4:
        weights = cubic_weights(b, distance, -0.75)
    else:
        weights = calculate(b, "Sub", 1.0, distance)
    beyond = calculate(b, "Or", calculate(b, "Less", taken, 0.0), calculate(b, "Less", last, taken))
    if padding == "reflection":
        taken = _reflected(b, taken, low, high)
    inside = calculate(b, "Max", calculate(b, "Min", taken, last), 0.0)
    return cast(b, inside, DType.int64), weights, beyond


def _reflected(b: Builder, place: Number, low: Number, high: Number) -> Number:
    """Return coordinates reflected between two borders."""
    room = calculate(b, "Sub", high, low)
    none = calculate(b, "Equal", room, 0.0)
    span = calculate(b, "Where", none, 1.0, room)
    there = calculate(b, "Sub", place, low)
    turns = calculate(b, "Floor", calculate(b, "Div", there, calculate(b, "Mul", span, 2.0)))
    rest = calculate(b, "Sub", there, calculate(b, "Mul", calculate(b, "Mul", turns, span), 2.0))
    back = calculate(b, "Sub", span, calculate(b, "Abs", calculate(b, "Sub", rest, span)))
    return calculate(b, "Where", none, low, calculate(b, "Add", low, back))


# MaxRoiPool, for which the runtime has a kernel only in models of opset 21 and older.

_ONE = Dim(1)


def max_roi_pool(b: Builder, call: Call) -> Replacement:
    """Compute MaxRoiPool: the greatest of each part of each region; 0 where a part has no pixel.

    A region is from one whole pixel to another: its corners, times `spatial_scale`, rounded, halves away from zero.
    """
    x, regions = call.inputs
    own = x.dtype
    rows, columns = (Dim(n) for n in call.attributes["pooled_shape"])
    count, channels, width = regions.shape[0], x.shape[1], x.shape[3]
    corners = b.cast(regions, F64)
    batch = b.native("Gather", corners, b.scalar(0, DType.int64), shape=_shape([count]), axis=1)
    made = b.op("Gather", x, b.cast(batch, DType.int64), shape=_shape([count, *x.shape[1:]]), axis=0)
    scaled = b.native("Mul", corners, b.scalar(call.attributes.get("spatial_scale", 1.0), F64))
    size = b.native("Add", b.native("Abs", scaled), b.scalar(0.5, F64))
    whole = b.native("Mul", b.native("Sign", scaled), b.native("Floor", size))
    low = b.scalar(-np.inf, own)

    inside = _inside(b, whole, 2, int(rows), x, 2)
    mask = b.native("Unsqueeze", inside, b.vector([1, 4]), shape=_shape([count, _ONE, rows, x.shape[2], _ONE]))
    wide = b.op("Unsqueeze", made, b.vector([2]), shape=_shape([count, channels, _ONE, *x.shape[2:]]))
    wide = b.op("Where", mask, wide, low, dtype=own)
    made = b.op("ReduceMax", wide, b.vector([3]), shape=_shape([count, channels, rows, width]), keepdims=0)
    filled = _any(b, mask, 3, [count, _ONE, rows, _ONE])

    inside = _inside(b, whole, 1, int(columns), x, 3)
    mask = b.native("Unsqueeze", inside, b.vector([1, 2]), shape=_shape([count, _ONE, _ONE, columns, width]))
    wide = b.op("Unsqueeze", made, b.vector([3]), shape=_shape([count, channels, rows, _ONE, width]))
    wide = b.op("Where", mask, wide, low, dtype=own)
    made = b.op("ReduceMax", wide, b.vector([4]), shape=_shape([count, channels, rows, columns]), keepdims=0)
    filled = b.native("And", filled, _any(b, mask, 4, [count, _ONE, _ONE, columns]))
    return b.op("Where", filled, made, b.scalar(0.0, own), dtype=own, shape=call.shape)


def _inside(b: Builder, corners: Symbol, column: int, parts: int, x: Symbol, axis: int) -> Symbol:
    """Return which pixels along the axis are in which part of each region: [regions, parts, pixels]."""
    count, size = corners.shape[0], length(b, x, axis)
    shape = _shape([count, _ONE, _ONE])
    begin, end = (
        b.native("Unsqueeze", b.native("Gather", corners, b.vector([c]), shape=shape[:2], axis=1), b.vector([2]),
                  shape=shape)
        for c in (column, column + 2)
    )  # fmt: skip
    one = b.scalar(1.0, F64)
    part = b.native("Max", b.native("Add", b.native("Sub", end, begin), one), one)
    part = b.native("Div", part, b.scalar(float(parts), F64))
    numbers = np.arange(parts, dtype=np.float64).reshape(1, -1, 1)
    first = b.native("Add", b.native("Floor", b.native("Mul", part, symbol(b, numbers))), begin)
    last = b.native("Add", b.native("Ceil", b.native("Mul", part, symbol(b, numbers + 1))), begin)
    pixels = symbol(b, cast(b, count_up(b, size), F64))
    before = b.native("Less", pixels, first, dtype=DType.bool)
    shape = _shape([count, Dim(parts), x.shape[axis]])
    not_after = b.native("Less", pixels, last, dtype=DType.bool, shape=shape)
    return b.native("And", b.native("Not", before), not_after, shape=shape)


def _any(b: Builder, mask: Symbol, axis: int, shape: list[Dim]) -> Symbol:
    """Return whether any element is true along the axis."""
    most = b.op("ReduceMax", b.cast(mask, DType.uint8), b.vector([axis]), shape=_shape(shape),
                 keepdims=0)  # fmt: skip
    return b.cast(most, DType.bool)
