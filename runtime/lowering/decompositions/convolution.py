"""Convolutions as matrix products, for the dtypes in which there is a product but no convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
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
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.runtime.lowering.decompositions.windows import Window, columns, kernel_of, overlapped, padded, windows
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def convolve(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Conv: the elements under the filter beside each other, times the filter."""
    x, filters, *bias = inputs
    groups = attributes.get("group", 1)
    kernel = kernel_of(on, filters, attributes)
    found = windows(on, x, kernel, attributes)
    batch = length(on, x, 0)
    cols, places = columns(on, padded(on, x, found, 0), found)
    features, per_group = length(on, filters, 0), length(on, filters, 1)
    depth = times(on, [per_group, *kernel])
    flat = reshape(on, cols, [batch, groups, depth, times(on, places)])
    factor = reshape(on, filters, [groups, calculate(on, "Div", features, groups), depth])
    made = on.op("MatMul", factor, flat, shape=_shape([flat.shape[0], *factor.shape[:2], flat.shape[3]]))
    made = reshape(on, made, [batch, features, *places])
    return _biased(on, made, bias, types[0].shape)


def convolve_transposed(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ConvTranspose: each element times the filter, added up where the filters overlap."""
    x, filters, *bias = inputs
    groups = attributes.get("group", 1)
    kernel = kernel_of(on, filters, attributes)
    count = x.rank - 2
    batch, features = length(on, x, 0), length(on, x, 1)
    sizes = lengths(on, x, range(2, x.rank))
    found, ends = _transposed_windows(on, sizes, kernel, attributes)
    per_group = length(on, filters, 1)
    depth = times(on, [per_group, *kernel])
    flat = reshape(on, x, [batch, groups, calculate(on, "Div", features, groups), times(on, sizes)])
    factor = reshape(on, filters, [groups, calculate(on, "Div", features, groups), depth])
    shape = _shape([factor.shape[0], factor.shape[2], factor.shape[1]])
    factor = on.op("Transpose", factor, shape=shape, perm=[0, 2, 1])
    made = on.op("MatMul", factor, flat, shape=_shape([flat.shape[0], *factor.shape[:2], flat.shape[3]]))
    channels = calculate(on, "Mul", per_group, groups)
    made = reshape(on, made, [batch, channels, *kernel, *sizes])
    for window, end in zip(found, ends, strict=True):  # the kernel's first axis goes, the next of the places is made
        made = overlapped(on, made, 2 + count, 2, window, end)
    return _biased(on, made, bias, types[0].shape)


def _transposed_windows(
    on: Legaliser, sizes: list[Number], kernel: list[Number], attributes: dict[str, Any]
) -> tuple[list[Window], list[Number]]:
    """The windows of the convolution that this is the transpose of, and the sizes of the result."""
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
        whole = calculate(on, "Mul", calculate(on, "Sub", there, 1), s)
        covered = calculate(on, "Mul", calculate(on, "Sub", size, 1), d)
        whole = calculate(on, "Add", calculate(on, "Add", whole, covered), 1 + extra[axis])
        before: Number = np.asarray(0 if automatic == "VALID" else pads[axis], np.int64)
        if asked or same:
            end: Number = np.asarray(asked[axis], np.int64) if asked else calculate(on, "Mul", there, s)
            both = calculate(on, "Max", calculate(on, "Sub", whole, end), 0)
            half = calculate(on, "Div", both, 2)
            before = half if automatic == "SAME_UPPER" else calculate(on, "Sub", both, half)
        else:
            cut = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
            end = calculate(on, "Sub", whole, cut)
        found.append(Window(size, s, d, before, before))
        ends.append(end)
    return found, ends


def _biased(on: Legaliser, made: Symbol, bias: Inputs, shape: Shape) -> Symbol:
    if not bias or bias[0] is None:
        return on.op("Identity", made, shape=shape)
    column = reshaped(on, bias[0], [-1, *[1] * (made.rank - 2)])
    return on.op("Add", made, symbol(on, column), shape=shape)


def col2im(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Col2Im: blocks added up where they overlap."""
    x, image, block = inputs
    if not image.shape[0].is_static or not block.shape[0].is_static:
        raise GraphError(
            "Col2Im: how many axes the image has is known only when the graph runs",
            operands={"image_shape": str(image.type), "block_shape": str(block.type)},
            help="say in the model how long the two are",
        )
    block_sizes = elements(on, block)
    ends = elements(on, image)
    count = len(ends)
    strides = attributes.get("strides") or [1] * count
    dilations = attributes.get("dilations") or [1] * count
    pads = attributes.get("pads") or [0] * (2 * count)
    found, places = [], []
    for axis in range(count):
        before, after = pads[axis], pads[axis + count]
        covered = calculate(on, "Mul", calculate(on, "Sub", block_sizes[axis], 1), dilations[axis])
        room = calculate(on, "Sub", calculate(on, "Add", ends[axis], before + after - 1), covered)
        places.append(calculate(on, "Add", calculate(on, "Div", room, strides[axis]), 1))
        pad = np.asarray(before, np.int64)
        found.append(Window(block_sizes[axis], strides[axis], dilations[axis], pad, pad))
    channels = calculate(on, "Div", length(on, x, 1), times(on, block_sizes))
    made = reshape(on, x, [length(on, x, 0), channels, *block_sizes, *places])
    for window, end in zip(found, ends, strict=True):
        made = overlapped(on, made, 2 + count, 2, window, end)
    return on.op("Identity", made, shape=types[0].shape)


def col2im_bool(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Adding bools is *or*: what overlaps is counted, and no int32 holds fewer than there are."""
    x, *sizes = inputs
    counted = on.op(op, on.casts.cast(x, DType.bool, DType.int32), *sizes, shape=types[0].shape, **attributes)
    return on.casts.cast(counted, DType.int32, DType.bool)
