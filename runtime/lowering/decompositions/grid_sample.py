"""GridSample: images read at places that are data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
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
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.runtime.lowering.decompositions.windows import total
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

F64 = DType.float64
_TAPS = {"nearest": (0,), "linear": (0, 1), "bilinear": (0, 1), "cubic": (-1, 0, 1, 2), "bicubic": (-1, 0, 1, 2)}


def grid_sample(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """GridSample in any dtype: nearest moves elements, the other modes compute in float64 and round once."""
    x, grid = inputs
    own, mode = x.dtype, attributes.get("mode", "linear")
    offsets = _TAPS[mode]
    if mode != "nearest" and own is not F64:
        x = on.casts.cast(x, own, F64)
    grid = on.casts.cast(grid, grid.dtype, F64)
    count = x.rank - 2
    batch, channels, *sizes = lengths(on, x, range(x.rank))
    ends = lengths(on, grid, range(1, grid.rank - 1))
    places = times(on, ends)
    flat = reshape(on, grid, [batch, places, 1, count])
    index: Number = np.zeros((1, 1, 1), np.int64)
    weights: Number = np.ones((1, 1, 1))
    outside: Number = np.zeros((1, 1, 1), bool)
    taps = 1
    for axis, size in enumerate(sizes):
        at = on.op("Gather", flat, on.const(count - 1 - axis, DType.int64), shape=flat.shape[:3], axis=3)
        taken, parts, beyond = _along(on, at, size, offsets, attributes)
        wide = [places, taps * len(offsets)]

        def outer(op_type: str, left: Number, right: Number, wide: list[Any] = wide) -> Number:
            left = reshape(on, symbol(on, left), [*lengths(on, symbol(on, left), range(3)), 1])
            right = reshape(on, symbol(on, right), [batch, places, 1, len(offsets)])
            return reshape(on, symbol(on, calculate(on, op_type, left, right)), [batch, *wide])

        index = outer("Add", calculate(on, "Mul", index, size), taken)
        weights = outer("Mul", weights, parts)
        outside = outer("Or", outside, beyond)
        taps *= len(offsets)
    # All images as one list of pixels with their channels.
    moved = transpose(on, x, [0, *range(2, x.rank), 1])
    area = times(on, sizes)
    pixels = reshape(on, moved, [times(on, [batch, area]), channels])
    first = reshaped(on, calculate(on, "Mul", count_up(on, batch), area), [-1, 1, 1])
    index = symbol(on, calculate(on, "Add", index, first))
    shape = _shape([*index.shape, pixels.shape[1]])
    found = on.op("Gather", pixels, index, shape=shape, axis=0)
    if attributes.get("padding_mode", "zeros") == "zeros":
        mask = on.op("Unsqueeze", symbol(on, outside), on.ints([3]), shape=_shape([*index.shape, Dim(1)]))
        found = on.op("Where", mask, on.const(0, x.dtype), found, dtype=x.dtype, shape=shape)
    if mode != "nearest":
        factor = on.op("Unsqueeze", symbol(on, weights), on.ints([3]), shape=_shape([*index.shape, Dim(1)]))
        found = on.op("Mul", found, factor, shape=shape)
        made = total(on, found, 2)
    else:
        made = on.op("Squeeze", found, on.ints([2]), shape=_shape([*shape[:2], shape[3]]))
    made = reshape(on, transpose(on, made, [0, 2, 1]), [batch, channels, *ends])
    made = made if made.dtype is own else on.casts.cast(made, made.dtype, own)
    return on.op("Identity", made, shape=types[0].shape)


def _along(
    on: Legaliser, at: Symbol, size: Number, offsets: tuple[int, ...], attributes: dict[str, Any]
) -> tuple[Number, Number, Number]:
    """Along one axis: the pixels taken, their weights, and whether they are outside."""
    align, padding = attributes.get("align_corners", 0), attributes.get("padding_mode", "zeros")
    whole = cast(on, size, F64)
    last = calculate(on, "Sub", whole, 1.0)
    half = calculate(on, "Mul", calculate(on, "Add", at, 1.0), 0.5)
    place = calculate(on, "Mul", half, last if align else whole)
    place = place if align else calculate(on, "Sub", place, 0.5)
    if len(offsets) == 1:
        place = calculate(on, "Round", place)
    low: Number = np.asarray(0.0 if align else -0.5)
    high = calculate(on, "Sub", whole, 1.0 if align else 0.5)
    if padding == "border":
        place = calculate(on, "Max", calculate(on, "Min", place, last), 0.0)
    elif padding == "reflection":
        place = _reflected(on, place, low, high)
    floor = calculate(on, "Floor", place)
    steps = np.asarray(offsets, np.float64).reshape(1, 1, -1)
    taken = calculate(on, "Add", floor, steps)
    distance = calculate(on, "Abs", calculate(on, "Sub", taken, place))
    if len(offsets) == 4:
        weights = cubic_weights(on, distance, -0.75)
    else:
        weights = calculate(on, "Sub", 1.0, distance)
    beyond = calculate(on, "Or", calculate(on, "Less", taken, 0.0), calculate(on, "Less", last, taken))
    if padding == "reflection":
        taken = _reflected(on, taken, low, high)
    inside = calculate(on, "Max", calculate(on, "Min", taken, last), 0.0)
    return cast(on, inside, DType.int64), weights, beyond


def _reflected(on: Legaliser, place: Number, low: Number, high: Number) -> Number:
    """Back and forth between two borders."""
    room = calculate(on, "Sub", high, low)
    none = calculate(on, "Equal", room, 0.0)
    span = calculate(on, "Where", none, 1.0, room)
    there = calculate(on, "Sub", place, low)
    turns = calculate(on, "Floor", calculate(on, "Div", there, calculate(on, "Mul", span, 2.0)))
    rest = calculate(on, "Sub", there, calculate(on, "Mul", calculate(on, "Mul", turns, span), 2.0))
    back = calculate(on, "Sub", span, calculate(on, "Abs", calculate(on, "Sub", rest, span)))
    return calculate(on, "Where", none, low, calculate(on, "Add", low, back))
