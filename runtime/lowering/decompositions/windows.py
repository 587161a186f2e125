"""Windows that slide over the spatial axes of images: their positions and their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.decompositions.shape_arithmetic import (
    Array,
    Number,
    calculate,
    count_up,
    dim_of,
    elements,
    length,
    lengths,
    reshape,
    reshaped,
    symbol,
    times,
    transpose,
    vector,
)
from graphcore.types.tensor_types import Shape, _shape

ZERO: Array = np.asarray(0, np.int64)


@dataclass(frozen=True, slots=True)
class Window:
    """Along one axis: `size` elements `dilation` apart, and `stride` from each window to the next.

    before, after: the padding of the axis. tail: additional padding so that the last window is complete.
    """

    size: Number
    stride: int
    dilation: int
    before: Number
    after: Number
    tail: int = 0


def windows(b: Builder, x: Symbol, sizes: Sequence[Number], attributes: dict[str, Any]) -> list[Window]:
    """Return the windows of a convolution or pool over all axes of `x` but the first two, from its ONNX attributes."""
    count = x.rank - 2
    strides, dilations, pads = steps_and_pads(attributes, count)
    automatic = attributes.get("auto_pad", "NOTSET")
    result = []
    for axis in range(count):
        size, s, d = sizes[axis], strides[axis], dilations[axis]
        before: Number = np.asarray(pads[axis], np.int64)
        after: Number = np.asarray(pads[axis + count], np.int64)
        if automatic == "VALID":
            before = after = ZERO
        elif automatic in ("SAME_UPPER", "SAME_LOWER"):
            before, after = _same(b, length(b, x, axis + 2), size, s, d, upper=automatic == "SAME_UPPER")
        tail = 0
        if attributes.get("ceil_mode") and automatic not in ("SAME_UPPER", "SAME_LOWER"):
            # A last window may reach beyond the end, unless it lies completely after the input.
            reach = (int(size) - 1) * d  # only pools have ceil_mode, and their size is an attribute
            tail = min(s - 1, reach - int(after))
        result.append(Window(size, s, d, before, after, tail))
    return result


def steps_and_pads(attributes: dict[str, Any], count: int) -> list[list[int]]:
    """Return the strides, the dilations and the pads of an operator on that many axes."""
    defaults = {"strides": [1] * count, "dilations": [1] * count, "pads": [0, 0] * count}
    return [attributes.get(name) or default for name, default in defaults.items()]


def _same(
    b: Builder, axis_length: Number, size: Number, stride: int, dilation: int, *, upper: bool
) -> tuple[Number, Number]:
    """Return the padding with which there is a window every `stride` elements."""
    places = calculate(b, "Div", calculate(b, "Add", axis_length, stride - 1), stride)
    covered = _covered(b, size, dilation)
    needed = calculate(b, "Add", calculate(b, "Mul", calculate(b, "Sub", places, 1), stride), covered)
    total = calculate(b, "Max", calculate(b, "Sub", needed, axis_length), 0)
    half = calculate(b, "Div", total, 2)
    rest = calculate(b, "Sub", total, half)
    return (half, rest) if upper else (rest, half)


def _covered(b: Builder, size: Number, dilation: int) -> Number:
    """Return the distance from the first to the last element of a window, inclusive."""
    return calculate(b, "Add", calculate(b, "Mul", calculate(b, "Sub", size, 1), dilation), 1)


def padded(b: Builder, x: Symbol, axis_windows: Sequence[Window], value: bool | int | float) -> Symbol:
    """Return `x` with its spatial axes padded for the windows."""
    before = [w.before for w in axis_windows]
    after = [calculate(b, "Add", w.after, w.tail) for w in axis_windows]
    if not any(isinstance(n, Symbol) or int(n) for n in (*before, *after)):
        return x
    front = x.rank - len(axis_windows)
    pads = vector(b, [*[0] * front, *before, *[0] * front, *after])
    sizes = []
    for axis, (p, q) in enumerate(zip(before, after, strict=True), front):
        grown = calculate(b, "Add", p, q)
        sizes.append(x.shape[axis] + dim_of(grown))
    shape = _shape([*x.shape[:front], *sizes])
    return b.op("Pad", x, pads, b.scalar(value, x.dtype), shape=shape, mode="constant")


def table(b: Builder, there: Number, window: Window) -> Number:
    """Return the elements of a padded axis of size `there` that each window has: [places, size]."""
    positions = calculate(b, "Sub", there, _covered(b, window.size, window.dilation))
    places = calculate(b, "Add", calculate(b, "Div", positions, window.stride), 1)
    places = calculate(b, "Max", places, 0)
    starts = calculate(b, "Mul", reshaped(b, count_up(b, places), [-1, 1]), window.stride)
    steps = calculate(b, "Mul", reshaped(b, count_up(b, window.size), [1, -1]), window.dilation)
    return calculate(b, "Add", starts, steps)


def unfolded(b: Builder, x: Symbol, axis: int, window: Window) -> Symbol:
    """Split a padded axis into two: the windows, and the elements of each."""
    return gathered(b, x, axis, symbol(b, table(b, length(b, x, axis), window)))


def gathered(b: Builder, x: Symbol, axis: int, index: Symbol) -> Symbol:
    """Return the elements of an axis at an index, whose axes replace it."""
    return b.op("Gather", x, index, axis=axis)


def pooled(b: Builder, x: Symbol, axis_windows: Sequence[Window], reduce: Callable[[Symbol, int], Symbol]) -> Symbol:
    """Reduce each window to one element, one axis after the other. reduce: (x, axis) -> x without the axis."""
    front = x.rank - len(axis_windows)
    for axis, window in enumerate(axis_windows, front):
        x = reduce(unfolded(b, x, axis, window), axis + 1)
    return x


def columns(b: Builder, x: Symbol, axis_windows: Sequence[Window]) -> tuple[Symbol, list[Number]]:
    """Return the windows' elements after the channels, [N, C, *kernel, *places], and the numbers of places."""
    count = len(axis_windows)
    for i, window in enumerate(axis_windows):
        x = unfolded(b, x, 2 + 2 * i, window)
    order = [0, 1, *range(3, 3 + 2 * count, 2), *range(2, 2 + 2 * count, 2)]
    x = transpose(b, x, order)
    return x, [length(b, x, axis) for axis in range(2 + count, x.rank)]


def overlapped(b: Builder, cols: Symbol, axis: int, tap: int, window: Window, size: Number) -> Symbol:
    """Invert `unfolded` along one axis: add every element at the position that it came from.

    axis: of the places. tap: the axis of the elements of a window, before it. size: that of the resulting axis. Returns
    the axes without `tap`.
    """
    places, taps = length(b, cols, axis), length(b, cols, tap)
    order = [a for a in range(cols.rank) if a not in (tap, axis)]
    order = [*order[: axis - 1], tap, axis, *order[axis - 1 :]]
    cols = transpose(b, cols, order)
    front = [length(b, cols, a) for a in range(axis - 1)]
    after_axis = [length(b, cols, a) for a in range(axis + 1, cols.rank)]
    flat = reshape(b, cols, [*front, calculate(b, "Mul", places, taps), *after_axis])
    # One zero after all elements, for positions of the result that a tap does not reach.
    pads = [0] * (2 * flat.rank)
    pads[flat.rank + axis - 1] = 1
    flat = b.op("Pad", flat, b.vector(pads), b.scalar(0, flat.dtype), mode="constant")
    at = calculate(b, "Add", reshaped(b, count_up(b, size), [-1, 1]), window.before)
    tap_indices = reshaped(b, count_up(b, taps), [1, -1])
    at = calculate(b, "Sub", at, calculate(b, "Mul", tap_indices, window.dilation))
    place = calculate(b, "Div", at, window.stride)
    fits = calculate(b, "Equal", calculate(b, "Mod", at, window.stride), 0)
    inside = calculate(b, "And", calculate(b, "Less", -1, place), calculate(b, "Less", place, places))
    index = calculate(b, "Add", calculate(b, "Mul", tap_indices, places), place)
    end = calculate(b, "Mul", taps, places)
    chosen = symbol(b, calculate(b, "Where", calculate(b, "And", fits, inside), index, end))
    return total(b, gathered(b, flat, axis - 1, chosen), axis)


def total(b: Builder, x: Symbol, axis: int, keepdims: bool = False) -> Symbol:
    """Return the sum along one axis."""
    return reduced(b, "ReduceSum", x, [axis], keepdims)


def reduced(b: Builder, op: str, x: Symbol, axes: Sequence[int], keepdims: bool = False) -> Symbol:
    """Return a reduction along non-negative axes."""
    return b.op(op, x, b.vector(axes), keepdims=int(keepdims))


def kernel_of(b: Builder, filters: Symbol, attributes: dict[str, Any]) -> list[Number]:
    """Return the sizes of a filter [F, C, *kernel]."""
    kernel_shape = attributes.get("kernel_shape")
    if kernel_shape:
        return [np.asarray(k, np.int64) for k in kernel_shape]
    return [length(b, filters, axis) for axis in range(2, filters.rank)]


# Convolutions as matrix products, for dtypes with a kernel for the product but not for the convolution.


def convolve(b: Builder, call: OpCall) -> Replacement:
    """Compute Conv as a product of the elements under the filter and the filter."""
    x, filters, *bias = call.inputs
    groups = call.attributes.get("group", 1)
    kernel = kernel_of(b, filters, call.attributes)
    axis_windows = windows(b, x, kernel, call.attributes)
    batch = length(b, x, 0)
    cols, places = columns(b, padded(b, x, axis_windows, 0), axis_windows)
    features, per_group = length(b, filters, 0), length(b, filters, 1)
    depth = times(b, [per_group, *kernel])
    flat = reshape(b, cols, [batch, groups, depth, times(b, places)])
    factor = reshape(b, filters, [groups, calculate(b, "Div", features, groups), depth])
    result = b.op("MatMul", factor, flat, shape=_shape([flat.shape[0], *factor.shape[:2], flat.shape[3]]))
    result = reshape(b, result, [batch, features, *places])
    return _biased(b, result, bias, call.shape)


def convolve_transposed(b: Builder, call: OpCall) -> Replacement:
    """Compute ConvTranspose: multiply each element by the filter, and add where the filters overlap."""
    x, filters, *bias = call.inputs
    groups = call.attributes.get("group", 1)
    kernel = kernel_of(b, filters, call.attributes)
    count = x.rank - 2
    batch, features = length(b, x, 0), length(b, x, 1)
    sizes = lengths(b, x, range(2, x.rank))
    axis_windows, ends = _transposed_windows(b, sizes, kernel, call.attributes)
    per_group = length(b, filters, 1)
    depth = times(b, [per_group, *kernel])
    flat = reshape(b, x, [batch, groups, calculate(b, "Div", features, groups), times(b, sizes)])
    factor = reshape(b, filters, [groups, calculate(b, "Div", features, groups), depth])
    factor = transpose(b, factor, [0, 2, 1])
    result = b.op("MatMul", factor, flat, shape=_shape([flat.shape[0], *factor.shape[:2], flat.shape[3]]))
    channels = calculate(b, "Mul", per_group, groups)
    result = reshape(b, result, [batch, channels, *kernel, *sizes])
    for window, end in zip(axis_windows, ends, strict=True):  # replaces the first axis of the kernel and of the places
        result = overlapped(b, result, 2 + count, 2, window, end)
    return _biased(b, result, bias, call.shape)


def _transposed_windows(
    b: Builder, sizes: list[Number], kernel: list[Number], attributes: dict[str, Any]
) -> tuple[list[Window], list[Number]]:
    """Return the windows of the convolution that this one transposes, and the sizes of the result."""
    count = len(sizes)
    strides, dilations, pads = steps_and_pads(attributes, count)
    extra = attributes.get("output_padding") or [0] * count
    output_shape = (attributes.get("output_shape") or [])[-count:]
    automatic = attributes.get("auto_pad", "NOTSET")
    same = automatic in ("SAME_UPPER", "SAME_LOWER")
    axis_windows, ends = [], []
    for axis, (axis_length, size, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        whole = calculate(b, "Mul", calculate(b, "Sub", axis_length, 1), s)
        covered = calculate(b, "Mul", calculate(b, "Sub", size, 1), d)
        whole = calculate(b, "Add", calculate(b, "Add", whole, covered), 1 + extra[axis])
        before: Number = np.asarray(0 if automatic == "VALID" else pads[axis], np.int64)
        if output_shape or same:
            end: Number = (
                np.asarray(output_shape[axis], np.int64) if output_shape else calculate(b, "Mul", axis_length, s)
            )
            both = calculate(b, "Max", calculate(b, "Sub", whole, end), 0)
            half = calculate(b, "Div", both, 2)
            before = half if automatic == "SAME_UPPER" else calculate(b, "Sub", both, half)
        else:
            cut = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
            end = calculate(b, "Sub", whole, cut)
        axis_windows.append(Window(size, s, d, before, before))
        ends.append(end)
    return axis_windows, ends


def _biased(b: Builder, result: Symbol, bias: Sequence[Any], shape: Shape) -> Symbol:
    if not bias or bias[0] is None:
        return b.op("Identity", result, shape=shape)
    column = reshaped(b, bias[0], [-1, *[1] * (result.rank - 2)])
    return b.op("Add", result, symbol(b, column), shape=shape)


def col2im(b: Builder, call: OpCall) -> Replacement:
    """Compute Col2Im: add the blocks where they overlap."""
    x, image, block = call.inputs
    if not image.shape[0].is_static or not block.shape[0].is_static:
        raise GraphError(
            "Col2Im: how many axes the image has is known only when the graph runs",
            operands={"image_shape": str(image.type), "block_shape": str(block.type)},
            help="declare the lengths of the two vectors in the model",
        )
    block_sizes = elements(b, block)
    ends = elements(b, image)
    count = len(ends)
    strides, dilations, pads = steps_and_pads(call.attributes, count)
    axis_windows, places = [], []
    for axis in range(count):
        before, after = pads[axis], pads[axis + count]
        covered = calculate(b, "Mul", calculate(b, "Sub", block_sizes[axis], 1), dilations[axis])
        positions = calculate(b, "Sub", calculate(b, "Add", ends[axis], before + after - 1), covered)
        places.append(calculate(b, "Add", calculate(b, "Div", positions, strides[axis]), 1))
        pad = np.asarray(before, np.int64)
        axis_windows.append(Window(block_sizes[axis], strides[axis], dilations[axis], pad, pad))
    channels = calculate(b, "Div", length(b, x, 1), times(b, block_sizes))
    result = reshape(b, x, [length(b, x, 0), channels, *block_sizes, *places])
    for window, end in zip(axis_windows, ends, strict=True):
        result = overlapped(b, result, 2 + count, 2, window, end)
    return b.op("Identity", result, shape=call.shape)
