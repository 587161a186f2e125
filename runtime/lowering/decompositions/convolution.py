"""Convolutions as matrix products, for the dtypes in which there is a product but no convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.shape_arithmetic import (
    Number,
    calculate,
    elements,
    length,
    lengths,
    reshape,
    reshaped,
    symbol,
    times,
)
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.runtime.lowering.decompositions.windows import Window, columns, kernel_of, overlapped, padded, windows
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape


def convolve(b: Builder, call: Call) -> Replacement:
    """Compute Conv as a product of the elements under the filter and the filter."""
    x, filters, *bias = call.inputs
    groups = call.attributes.get("group", 1)
    kernel = kernel_of(b, filters, call.attributes)
    found = windows(b, x, kernel, call.attributes)
    batch = length(b, x, 0)
    cols, places = columns(b, padded(b, x, found, 0), found)
    features, per_group = length(b, filters, 0), length(b, filters, 1)
    depth = times(b, [per_group, *kernel])
    flat = reshape(b, cols, [batch, groups, depth, times(b, places)])
    factor = reshape(b, filters, [groups, calculate(b, "Div", features, groups), depth])
    made = b.op("MatMul", factor, flat, shape=_shape([flat.shape[0], *factor.shape[:2], flat.shape[3]]))
    made = reshape(b, made, [batch, features, *places])
    return _biased(b, made, bias, call.shape)


def convolve_transposed(b: Builder, call: Call) -> Replacement:
    """Compute ConvTranspose: multiply each element by the filter, and add where the filters overlap."""
    x, filters, *bias = call.inputs
    groups = call.attributes.get("group", 1)
    kernel = kernel_of(b, filters, call.attributes)
    count = x.rank - 2
    batch, features = length(b, x, 0), length(b, x, 1)
    sizes = lengths(b, x, range(2, x.rank))
    found, ends = _transposed_windows(b, sizes, kernel, call.attributes)
    per_group = length(b, filters, 1)
    depth = times(b, [per_group, *kernel])
    flat = reshape(b, x, [batch, groups, calculate(b, "Div", features, groups), times(b, sizes)])
    factor = reshape(b, filters, [groups, calculate(b, "Div", features, groups), depth])
    shape = _shape([factor.shape[0], factor.shape[2], factor.shape[1]])
    factor = b.op("Transpose", factor, shape=shape, perm=[0, 2, 1])
    made = b.op("MatMul", factor, flat, shape=_shape([flat.shape[0], *factor.shape[:2], flat.shape[3]]))
    channels = calculate(b, "Mul", per_group, groups)
    made = reshape(b, made, [batch, channels, *kernel, *sizes])
    for window, end in zip(found, ends, strict=True):  # the kernel's first axis goes, the next of the places is made
        made = overlapped(b, made, 2 + count, 2, window, end)
    return _biased(b, made, bias, call.shape)


def _transposed_windows(
    b: Builder, sizes: list[Number], kernel: list[Number], attributes: dict[str, Any]
) -> tuple[list[Window], list[Number]]:
    """Return the windows of the convolution that this one transposes, and the sizes of the result."""
    count = len(sizes)
    strides = attributes.get("strides") or [1] * count
    dilations = attributes.get("dilations") or [1] * count
    extra = attributes.get("output_padding") or [0] * count
    pads = attributes.get("pads") or [0] * (2 * count)
    asked = (attributes.get("output_shape") or [])[-count:]
    automatic = attributes.get("auto_pad", "NOTSET")
    same = automatic in ("SAME_UPPER", "SAME_LOWER")
    found, ends = [], []
    for axis, (there, size, s, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        whole = calculate(b, "Mul", calculate(b, "Sub", there, 1), s)
        covered = calculate(b, "Mul", calculate(b, "Sub", size, 1), d)
        whole = calculate(b, "Add", calculate(b, "Add", whole, covered), 1 + extra[axis])
        before: Number = np.asarray(0 if automatic == "VALID" else pads[axis], np.int64)
        if asked or same:
            end: Number = np.asarray(asked[axis], np.int64) if asked else calculate(b, "Mul", there, s)
            both = calculate(b, "Max", calculate(b, "Sub", whole, end), 0)
            half = calculate(b, "Div", both, 2)
            before = half if automatic == "SAME_UPPER" else calculate(b, "Sub", both, half)
        else:
            cut = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
            end = calculate(b, "Sub", whole, cut)
        found.append(Window(size, s, d, before, before))
        ends.append(end)
    return found, ends


def _biased(b: Builder, made: Symbol, bias: Sequence[Any], shape: Shape) -> Symbol:
    if not bias or bias[0] is None:
        return b.op("Identity", made, shape=shape)
    column = reshaped(b, bias[0], [-1, *[1] * (made.rank - 2)])
    return b.op("Add", made, symbol(b, column), shape=shape)


def col2im(b: Builder, call: Call) -> Replacement:
    """Compute Col2Im: add the blocks where they overlap."""
    x, image, block = call.inputs
    if not image.shape[0].is_static or not block.shape[0].is_static:
        raise GraphError(
            "Col2Im: how many axes the image has is known only when the graph runs",
            operands={"image_shape": str(image.type), "block_shape": str(block.type)},
            help="say in the model how long the two are",
        )
    block_sizes = elements(b, block)
    ends = elements(b, image)
    count = len(ends)
    strides = call.attributes.get("strides") or [1] * count
    dilations = call.attributes.get("dilations") or [1] * count
    pads = call.attributes.get("pads") or [0] * (2 * count)
    found, places = [], []
    for axis in range(count):
        before, after = pads[axis], pads[axis + count]
        covered = calculate(b, "Mul", calculate(b, "Sub", block_sizes[axis], 1), dilations[axis])
        room = calculate(b, "Sub", calculate(b, "Add", ends[axis], before + after - 1), covered)
        places.append(calculate(b, "Add", calculate(b, "Div", room, strides[axis]), 1))
        pad = np.asarray(before, np.int64)
        found.append(Window(block_sizes[axis], strides[axis], dilations[axis], pad, pad))
    channels = calculate(b, "Div", length(b, x, 1), times(b, block_sizes))
    made = reshape(b, x, [length(b, x, 0), channels, *block_sizes, *places])
    for window, end in zip(found, ends, strict=True):
        made = overlapped(b, made, 2 + count, 2, window, end)
    return b.op("Identity", made, shape=call.shape)


def col2im_bool(b: Builder, call: Call) -> Replacement:
    """Compute Col2Im of bools by counts in int32: to add bools is *or*."""
    x, *sizes = call.inputs
    counted = b.op(call.op, b.cast(x, DType.int32), *sizes, shape=call.shape, **call.attributes)
    return b.cast(counted, DType.bool)
