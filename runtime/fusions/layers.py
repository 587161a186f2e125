"""Normalisations, means of windows and parts of transposed tensors by one operator each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.match import Pattern, either, op
from graphcore.ir.transform.rewrite import Inputs
from graphcore.ir.transform.walk import node_of
from graphcore.passes.sweep import LIMIT, Sweep
from graphcore.runtime.fusions.matching import floats, is_float32, number_of, value_of
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType


def part(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return one part of a transposed tensor, as PyTorch exports `unbind`, as the Transpose of a Gather.

    Only if the last axis moves: if it stays, one Transpose copies whole rows of all parts.
    """
    taken, axes = (*inputs, None)[:2]
    split = node_of(taken, "Split")
    turned = None if split is None else node_of(split.inputs[0], "Transpose")
    read = node.inputs[0]
    if taken is None or split is None or turned is None or read is None or not isinstance(read.producer, Node):
        return None
    x, named = turned.inputs[0], value_of(axes)
    perm = turned.attributes.get("perm")
    if x is None or perm is None or named is None or named.size != 1 or not is_float32(x, taken):
        return None
    axis = int(named.reshape(-1)[0]) % x.rank
    whole = read.producer.inputs[0]
    if split.attributes.get("axis", 0) % x.rank != axis or any(s.shape[axis] != 1 for s in split.outputs):
        return None
    if perm[-1] == x.rank - 1 or axis == x.rank - 1 or whole is None or sweep.readers(whole) > 1:
        return None
    source = perm[axis]
    place = next(i for i, s in enumerate(split.outputs) if s is taken)
    dims = [d for i, d in enumerate(x.shape) if i != source]
    index = sweep.constant(node, np.array(place, np.int64))
    gathered = sweep.add(node, "Gather", (x, index), floats(*dims), {"axis": source})
    rest = [p - (p > source) for i, p in enumerate(perm) if i != axis]
    return sweep.add(node, "Transpose", (gathered,), node.outputs[0].type, {"perm": rest})


# Fuse normalisations written as means and roots: PyTorch's exports, and spellings that onnxruntime does not fuse.

_MIN_ELEMENTS = 16
"""From this many elements on, a sum of squares takes less time than ReduceL2."""


def _rms_norm(x: Symbol, axes: Symbol, epsilon: Symbol) -> Symbol:
    square = either(x * x, op("Pow", x, 2.0))
    root = op("Sqrt", op("ReduceMean", square, axes, keepdims=1) + epsilon)
    return either(x / root, x * either(op("Reciprocal", root), 1.0 / root))


_RMS_NORM = Pattern(_rms_norm, x=is_float32, epsilon=lambda s: (number_of(s) or 0.0) > 0)
_CENTRED = Pattern(lambda x, axes: x - op("ReduceMean", x, axes, keepdims=1), x=is_float32)


def norm(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return x / sqrt(mean(x ** 2) + epsilon) as RMSNormalization; as LayerNormalization where x is less its mean."""
    match = _RMS_NORM.match_node(node, inputs)
    if match is None:
        return None
    x, axes, epsilon = match
    if not _is_last(x, axes) or x.type is not node.outputs[0].type or not x.shape[-1].is_static or x.shape[-1] == 0:
        return None
    centred = _CENTRED.match(x)
    source, operator = x, "RMSNormalization"
    if centred is not None and _is_last(*centred):
        source, operator = centred[0], "LayerNormalization"
    ones = sweep.constant(node, np.ones(int(x.shape[-1]), np.float32))
    return sweep.add(node, operator, (source, ones), x.type, {"axis": -1, "epsilon": number_of(epsilon)})


def scaled_norm(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return a norm without scale times a vector as a norm with that scale."""
    for norm, scale in _norms(node, inputs, "LayerNormalization", "RMSNormalization"):
        ones = value_of(norm.inputs[1])
        if ones is not None and (ones == 1).all():
            return sweep.add(node, norm.op_type, (norm.inputs[0], scale), node.outputs[0].type, norm.attributes)
    return None


def biased_norm(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return a layer norm without bias plus a vector as a layer norm with that bias."""
    for norm, bias in _norms(node, inputs, "LayerNormalization"):
        return sweep.add(node, norm.op_type, (*norm.inputs, bias), node.outputs[0].type, norm.attributes)
    return None


def length(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return ReduceL2 of the last axes as the root of a sum of squares, whose kernel is vectorised.

    float16 is computed in float32, as by the provider, which has no kernel of float16.
    """
    x, axes = (*inputs, None)[:2]
    array = None if axes is None else value_of(axes)
    result = node.outputs[0].type
    if x is None or array is None or not array.size or not is_float32(x, node.outputs[0], other=DType.float16):
        return None
    if x.rank == 0:
        return None
    named = sorted({int(axis) % x.rank for axis in array.reshape(-1)})
    if named != list(range(x.rank - len(named), x.rank)) or not all(x.shape[a].is_static for a in named):
        return None
    if math.prod(int(x.shape[a]) for a in named) < _MIN_ELEMENTS:
        return None
    wide = floats(*x.shape)
    if x.dtype is DType.float16:
        x = sweep.add(node, "Cast", (x,), wide, {"to": DType.float32})
    square = sweep.add(node, "Mul", (x, x), wide)
    last = sweep.constant(node, np.array(named, np.int64))
    attributes = {"keepdims": node.attributes.get("keepdims", 1)}
    total = sweep.add(node, "ReduceSum", (square, last), floats(*node.outputs[0].shape), attributes)
    root = sweep.add(node, "Sqrt", (total,), total.type)
    return root if root.type is result else sweep.add(node, "Cast", (root,), result, {"to": DType.float16})


def _norms(node: Node, inputs: Inputs, *op_types: str) -> list[tuple[Node, Symbol]]:
    """Return norms without bias among two operands, each with the other operand, a vector of their last axis."""
    operands = []
    for value, vector in (inputs, inputs[::-1]):
        norm = node_of(value, *op_types)
        if norm is None or value is None or vector is None or len(norm.inputs) > 2:
            continue
        is_vector = is_float32(vector) and vector.rank == 1 and vector.shape[0] == value.shape[-1]
        if is_vector and value.type is node.outputs[0].type:
            operands.append((norm, vector))
    return operands


def _is_last(x: Symbol, axes: Symbol) -> bool:
    """Return True if axes are a constant that names the last axis of x alone."""
    array = value_of(axes)
    return array is not None and array.size == 1 and x.rank > 0 and int(array.reshape(-1)[0]) in (-1, x.rank - 1)


# Compute means of windows as sums by a convolution: the kernel of AveragePool adds one element at a time.


def pool(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return AveragePool as a depthwise convolution with ones, divided by the numbers of elements. The order of sums
    may differ.

    Channels that onnxruntime keeps in blocks have another kernel of AveragePool, which stays unless padding counts.
    """
    x, attributes = inputs[0], node.attributes
    if x is None or len(node.outputs) > 1 or not is_float32(x, node.outputs[0]) or x.rank != 4:
        return None
    channels, kernel = x.shape[1], attributes.get("kernel_shape", ())
    is_plain = not attributes.get("ceil_mode", 0) and attributes.get("auto_pad", "NOTSET") in ("NOTSET", b"NOTSET")
    if not is_plain or len(kernel) != 2 or any(d != 1 for d in attributes.get("dilations", ())):
        return None
    if not channels.is_static or channels == 0:
        return None
    counts_padding = attributes.get("count_include_pad", 0) and any(attributes.get("pads", ()))
    if int(channels) % BLOCK == 0 and not counts_padding:
        return None
    if int(channels) * int(np.prod(kernel)) * 4 > LIMIT:
        return None
    counts = _counts(x, attributes)
    if counts is None:
        return None
    filters = sweep.constant(node, np.ones((int(channels), 1, *kernel), np.float32))
    # A window of -0.0 alone has the mean 0.0.
    bias = sweep.constant(node, np.zeros(int(channels), np.float32))
    windows = {name: attributes[name] for name in ("pads", "strides") if name in attributes}
    conv_attributes = {"group": int(channels), "kernel_shape": list(kernel), **windows}
    sums = sweep.add(node, "Conv", (x, filters, bias), node.outputs[0].type, conv_attributes)
    return sweep.add(node, "Div", (sums, sweep.constant(node, counts)), node.outputs[0].type)


def _counts(x: Symbol, attributes: Mapping[str, Any]) -> Array | None:
    """Return the number of elements of each mean; None if it is only known at run time."""
    kernel, pads = attributes["kernel_shape"], attributes.get("pads", [0] * 4)
    if attributes.get("count_include_pad", 0) or not any(pads):
        return np.asarray(np.prod(kernel), np.float32)
    sides = [*x.shape][2:]
    if not all(side.is_static and side != 0 for side in sides):
        return None
    strides = attributes.get("strides", [1, 1])
    rows, columns = (_lengths(int(sides[i]), kernel[i], strides[i], (pads[i], pads[i + 2])) for i in range(2))
    filters = np.outer(rows, columns).astype(np.float32)[None, None]
    return filters if filters.size and filters.all() and filters.nbytes <= LIMIT else None


def _lengths(side: int, kernel: int, stride: int, pads: Sequence[int]) -> Array:
    """Return the number of elements of an axis in each window."""
    starts = np.arange(0, side + sum(pads) - kernel + 1, stride) - pads[0]
    return np.minimum(starts + kernel, side) - np.maximum(starts, 0)


# Fuse nodes between convolutions: hard swish written in parts, factors and biases of one number.
#
# The networks of PP-OCR learn such numbers for each layer. onnxruntime keeps images in blocks of channels from one
# convolution to the next if each operator between them reads blocks. The fused operators do.

_SIXTH = 1 / 6
BLOCK = 16
"""Channels that kernels of convolutions take at once; on processors with narrower registers 8."""
_LARGEST_FACTOR = 1e6
"""Factors between this and its reciprocal keep filters well within the range of float32."""


def _sixth(x: Symbol, number: Symbol) -> tuple[Symbol, ...]:
    clipped = op("Clip", x + 3.0, 0.0, 6.0)
    swish = x * clipped
    six_times = either(clipped, swish)
    return either(six_times / number, six_times * number), swish


_SIXTH_OF = Pattern(_sixth, x=is_float32, number=lambda s: bool(number_of(s)))


def hard_sigmoid(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return clip(x + 3, 0, 6) / 6 as HardSigmoid, and x * clip(x + 3, 0, 6) / 6 as x * HardSigmoid(x)."""
    match = _SIXTH_OF.match_node(node, inputs)
    if match is None:
        return None
    x, symbol, swish = match
    number = number_of(symbol) or 1.0
    factor = 1 / number if node.op_type == "Div" else number
    if x.type is not node.outputs[0].type or not np.isclose(factor, _SIXTH, rtol=1e-6, atol=0):
        return None
    sigmoid = sweep.add(node, "HardSigmoid", (x,), x.type, {"alpha": _SIXTH, "beta": 0.5})
    return sigmoid if swish is None else sweep.add(node, "Mul", (x, sigmoid), x.type)


def scaled_convolution(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return a convolution multiplied by a number, or plus a number, as one with other filters or another bias."""
    for place in (0, 1):
        value, number = inputs[place], number_of(inputs[1 - place])
        conv, read = node_of(value, "Conv"), node.inputs[place]
        if conv is None or value is None or number is None or read is None or value.type is not node.outputs[0].type:
            continue
        x, filters, bias = (*conv.inputs, None)[:3]
        weights = value_of(filters)
        offsets = None if bias is None else value_of(bias)
        if weights is None or not is_float32(x, filters) or (bias is not None and offsets is None):
            return None
        is_named = value.given_name is not None and type(conv.origin) is not Imported
        if sweep.readers(read) > 1 or is_named:  # it would be computed twice
            return None
        if offsets is None:
            offsets = np.zeros(len(weights), np.float32)
        if node.op_type == "Mul":
            made_weights = _scaled(weights, number)
            offsets = _scaled(offsets, number)
            if made_weights is None:
                return None
            filters = sweep.constant(node, made_weights)
        elif np.isfinite(offsets).all():
            offsets = offsets + np.float32(number)
        if offsets is None or not np.isfinite(offsets).all():
            return None
        operands = (x, filters, sweep.constant(node, offsets))
        return sweep.add(node, "Conv", operands, node.outputs[0].type, conv.attributes)
    return None


def _scaled_swish(x: Symbol, scale: Symbol, offset: Symbol) -> tuple[Symbol, ...]:
    swish = x * op("HardSigmoid", x)
    return swish * scale + offset, swish


_SCALED_SWISH = Pattern(
    _scaled_swish,
    x=lambda s: is_float32(s) and node_of(s, "Conv") is not None,
    scale=lambda s: number_of(s) is not None,
    offset=lambda s: number_of(s) is not None,
)


def scaled_swish(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return the hard swish of a convolution, times a number, plus another, as a depthwise convolution of one pixel.

    It reads the blocks of channels that convolutions return. A product with a number does not, so that the provider
    would reorder them.
    """
    match, result = _SCALED_SWISH.match_node(node, inputs), node.outputs[0].type
    if match is None:
        return None
    _, scale, offset, swish = match
    channels = swish.shape[1] if swish.type is result and swish.rank == 4 else None
    if channels is None or not channels.is_static or channels == 0 or int(channels) % BLOCK:
        return None
    filters = sweep.constant(node, np.full((int(channels), 1, 1, 1), number_of(scale), np.float32))
    bias = sweep.constant(node, np.full(int(channels), number_of(offset), np.float32))
    attributes = {"group": int(channels), "kernel_shape": [1, 1]}
    return sweep.add(node, "Conv", (swish, filters, bias), result, attributes)


def _scaled(array: Array, factor: float) -> Array | None:
    """Return the product of an array and a number; None if it may exceed the range of float32."""
    if not 1 / _LARGEST_FACTOR <= abs(factor) <= _LARGEST_FACTOR:
        return None
    with np.errstate(over="ignore"):
        scaled = array * np.float32(factor)
    return scaled if np.isfinite(scaled).all() else None
