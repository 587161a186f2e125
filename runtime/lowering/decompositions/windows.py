"""Windows that slide over the spatial axes of images: where they are, and the elements in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.shape_arithmetic import (
    Array,
    Number,
    calculate,
    count_up,
    dim_of,
    length,
    reshape,
    reshaped,
    symbol,
    vector,
)
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

ZERO: Array = np.asarray(0, np.int64)


@dataclass(frozen=True, slots=True)
class Window:
    """Along one axis: `size` elements `dilation` apart, and `stride` from each window to the next.

    before, after: what is added to the axis. tail: what is added once more so that the last window has all elements.
    """

    size: Number
    stride: int
    dilation: int
    before: Number
    after: Number
    tail: int = 0


def windows(on: Legaliser, x: Symbol, sizes: Sequence[Number], attributes: dict[str, Any]) -> list[Window]:
    """The windows of a convolution or pool over all axes of `x` but the first two, from its ONNX attributes."""
    count = x.rank - 2
    strides = attributes.get("strides") or [1] * count
    dilations = attributes.get("dilations") or [1] * count
    pads = attributes.get("pads") or [0] * (2 * count)
    automatic = attributes.get("auto_pad", "NOTSET")
    made = []
    for axis in range(count):
        size, s, d = sizes[axis], strides[axis], dilations[axis]
        before: Number = np.asarray(pads[axis], np.int64)
        after: Number = np.asarray(pads[axis + count], np.int64)
        if automatic == "VALID":
            before = after = ZERO
        elif automatic in ("SAME_UPPER", "SAME_LOWER"):
            before, after = _same(on, length(on, x, axis + 2), size, s, d, upper=automatic == "SAME_UPPER")
        tail = 0
        if attributes.get("ceil_mode") and automatic not in ("SAME_UPPER", "SAME_LOWER"):
            # A last window may reach beyond the end, unless all of it lies behind the input.
            known = (int(size) - 1) * d  # of a pool, whose kernel is an attribute
            tail = min(s - 1, known - int(after))
        made.append(Window(size, s, d, before, after, tail))
    return made


def _same(
    on: Legaliser, there: Number, size: Number, stride: int, dilation: int, *, upper: bool
) -> tuple[Number, Number]:
    """The padding with which there is a window every `stride` elements."""
    places = calculate(on, "Div", calculate(on, "Add", there, stride - 1), stride)
    covered = _covered(on, size, dilation)
    needed = calculate(on, "Add", calculate(on, "Mul", calculate(on, "Sub", places, 1), stride), covered)
    total = calculate(on, "Max", calculate(on, "Sub", needed, there), 0)
    half = calculate(on, "Div", total, 2)
    rest = calculate(on, "Sub", total, half)
    return (half, rest) if upper else (rest, half)


def _covered(on: Legaliser, size: Number, dilation: int) -> Number:
    """From the first to the last element of a window."""
    return calculate(on, "Add", calculate(on, "Mul", calculate(on, "Sub", size, 1), dilation), 1)


def padded(on: Legaliser, x: Symbol, found: Sequence[Window], value: bool | int | float) -> Symbol:
    """`x` with its spatial axes grown by what the windows add."""
    before = [w.before for w in found]
    after = [calculate(on, "Add", w.after, w.tail) for w in found]
    if not any(isinstance(n, Symbol) or int(n) for n in (*before, *after)):
        return x
    front = x.rank - len(found)
    pads = vector(on, [*[0] * front, *before, *[0] * front, *after])
    sizes = []
    for axis, (p, q) in enumerate(zip(before, after, strict=True), front):
        grown = calculate(on, "Add", p, q)
        sizes.append(x.shape[axis] + dim_of(grown))
    shape = _shape([*x.shape[:front], *sizes])
    return on.op("Pad", x, pads, on.const(value, x.dtype), shape=shape, mode="constant")


def table(on: Legaliser, there: Number, window: Window) -> Number:
    """Which elements of a padded axis of size `there` each window has: [places, size]."""
    room = calculate(on, "Sub", there, _covered(on, window.size, window.dilation))
    places = calculate(on, "Add", calculate(on, "Div", room, window.stride), 1)
    places = calculate(on, "Max", places, 0)
    starts = calculate(on, "Mul", reshaped(on, count_up(on, places), [-1, 1]), window.stride)
    steps = calculate(on, "Mul", reshaped(on, count_up(on, window.size), [1, -1]), window.dilation)
    return calculate(on, "Add", starts, steps)


def unfolded(on: Legaliser, x: Symbol, axis: int, window: Window) -> Symbol:
    """A padded axis as two: the windows, and the elements of each."""
    chosen = symbol(on, table(on, length(on, x, axis), window))
    shape = _shape([*x.shape[:axis], *chosen.shape, *x.shape[axis + 1 :]])
    return on.op("Gather", x, chosen, shape=shape, axis=axis)


def pooled(on: Legaliser, x: Symbol, found: Sequence[Window], reduce: Callable[[Symbol, int], Symbol]) -> Symbol:
    """Each window as one element, one axis after the other. reduce: (x, axis) -> x without the axis."""
    front = x.rank - len(found)
    for axis, window in enumerate(found, front):
        x = reduce(unfolded(on, x, axis, window), axis + 1)
    return x


def columns(on: Legaliser, x: Symbol, found: Sequence[Window]) -> tuple[Symbol, list[Number]]:
    """The windows' elements behind the channels, [N, C, *kernel, *places], and the numbers of places."""
    count = len(found)
    for i, window in enumerate(found):
        x = unfolded(on, x, 2 + 2 * i, window)
    order = [0, 1, *range(3, 3 + 2 * count, 2), *range(2, 2 + 2 * count, 2)]
    x = on.op("Transpose", x, shape=_shape([x.shape[a] for a in order]), perm=order) if count else x
    return x, [length(on, x, axis) for axis in range(2 + count, x.rank)]


def overlapped(on: Legaliser, cols: Symbol, axis: int, tap: int, window: Window, size: Number) -> Symbol:
    """The reverse of `unfolded`: every element added where it came from, along one axis.

    axis: of the places. tap: the axis of the elements of a window, before it. size: of the axis to make.
    Returns the axes without `tap`.
    """
    places, taps = length(on, cols, axis), length(on, cols, tap)
    order = [a for a in range(cols.rank) if a not in (tap, axis)]
    order = [*order[: axis - 1], tap, axis, *order[axis - 1 :]]
    cols = on.op("Transpose", cols, shape=_shape([cols.shape[a] for a in order]), perm=order)
    front = [length(on, cols, a) for a in range(axis - 1)]
    behind = [length(on, cols, a) for a in range(axis + 1, cols.rank)]
    flat = reshape(on, cols, [*front, calculate(on, "Mul", places, taps), *behind])
    # One zero behind all elements, for the places of the result that a tap does not reach.
    pads = [0] * (2 * flat.rank)
    pads[flat.rank + axis - 1] = 1
    shape = _shape([d + 1 if a == axis - 1 else d for a, d in enumerate(flat.shape)])
    flat = on.op("Pad", flat, on.ints(pads), on.const(0, flat.dtype), shape=shape, mode="constant")
    at = calculate(on, "Add", reshaped(on, count_up(on, size), [-1, 1]), window.before)
    taken = reshaped(on, count_up(on, taps), [1, -1])
    at = calculate(on, "Sub", at, calculate(on, "Mul", taken, window.dilation))
    place = calculate(on, "Div", at, window.stride)
    fits = calculate(on, "Equal", calculate(on, "Mod", at, window.stride), 0)
    inside = calculate(on, "And", calculate(on, "Less", -1, place), calculate(on, "Less", place, places))
    index = calculate(on, "Add", calculate(on, "Mul", taken, places), place)
    nothing = calculate(on, "Mul", taps, places)
    chosen = symbol(on, calculate(on, "Where", calculate(on, "And", fits, inside), index, nothing))
    shape = _shape([*flat.shape[: axis - 1], *chosen.shape, *flat.shape[axis:]])
    parts = on.op("Gather", flat, chosen, shape=shape, axis=axis - 1)
    return total(on, parts, axis)


def total(on: Legaliser, x: Symbol, axis: int, keepdims: bool = False) -> Symbol:
    """The sum along one axis."""
    return reduced(on, "ReduceSum", x, [axis], keepdims)


def reduced(on: Legaliser, op: str, x: Symbol, axes: Sequence[int], keepdims: bool = False) -> Symbol:
    """A reduction along axes counted from 0."""
    kept = [Dim(1) if a in axes else d for a, d in enumerate(x.shape) if keepdims or a not in axes]
    return on.op(op, x, on.ints(axes), shape=_shape(kept), keepdims=int(keepdims))


def kernel_of(on: Legaliser, filters: Symbol, attributes: dict[str, Any]) -> list[Number]:
    """The sizes of a filter [F, C, *kernel]."""
    given = attributes.get("kernel_shape")
    if given:
        return [np.asarray(k, np.int64) for k in given]
    return [length(on, filters, axis) for axis in range(2, filters.rank)]
