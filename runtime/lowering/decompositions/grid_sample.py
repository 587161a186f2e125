"""GridSample: images read at computed coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.resizing import cubic_weights
from graphcore.runtime.lowering.decompositions.shape_arithmetic import (
    Number,
    calculate,
    cast,
    count_up,
    lengths,
    reshape,
    reshaped,
    symbol,
    times,
    transpose,
)
from graphcore.runtime.lowering.decompositions.signature import Replacement
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
