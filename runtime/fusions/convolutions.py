"""Fuse what stands between convolutions: hard swish written in parts, factors and biases of one number.

The networks of PP-OCR learn such numbers for each layer. onnxruntime keeps images in blocks of channels from one
convolution to the next as long as each operator between them reads those; what is fused here makes it so.
"""

from __future__ import annotations

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.ir.constants import constant_array
from graphcore.ir.symbol import Node, Symbol
from graphcore.passes.sweep import Inputs, Sweep
from graphcore.runtime.fusions.matching import is_float32, node_of, number_of
from graphcore.support.source_lines import Imported

_SIXTH = 1 / 6
BLOCK = 16
"""Channels that kernels of convolutions take at once; on processors with narrower registers 8."""
_LARGEST_FACTOR = 1e6
"""Factors between this and its reciprocal leave filters far from the ends of float32."""


def hard_sigmoid(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return clip(x + 3, 0, 6) / 6 as HardSigmoid, and x * clip(x + 3, 0, 6) / 6 as x * HardSigmoid(x)."""
    left, right = inputs
    divisor, factor = number_of(right), None
    if node.op_type == "Mul" and divisor is None:
        left, divisor = right, number_of(left)
    if divisor is not None:
        factor = divisor if node.op_type == "Mul" else 1 / divisor if divisor else None
    if factor is None or left is None or not np.isclose(factor, _SIXTH, rtol=1e-6, atol=0):
        return None
    x = _clipped(left)
    if x is not None:
        return _hard_sigmoid(sweep, node, x) if x.type is node.outputs[0].type else None
    product = node_of(left, "Mul")
    for own, clipped in () if product is None else (product.inputs, product.inputs[::-1]):
        if own is not None and _clipped(clipped) is own and own.type is node.outputs[0].type:
            return sweep.add(node, "Mul", (own, _hard_sigmoid(sweep, node, own)), own.type)
    return None


def _clipped(symbol: Symbol | None) -> Symbol | None:
    """Return the x of clip(x + 3, 0, 6), None for anything else."""
    clip = node_of(symbol, "Clip")
    if clip is None or [number_of(s) for s in clip.inputs[1:]] != [0, 6]:
        return None
    plus = node_of(clip.inputs[0], "Add")
    for x, three in () if plus is None else (plus.inputs, plus.inputs[::-1]):
        if number_of(three) == 3 and is_float32(x):
            return x
    return None


def _hard_sigmoid(sweep: Sweep, node: Node, x: Symbol) -> Symbol:
    return sweep.add(node, "HardSigmoid", (x,), x.type, {"alpha": _SIXTH, "beta": 0.5})


def scaled_convolution(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return a convolution times a number, or plus one, as a convolution of other filters or another bias."""
    for place in (0, 1):
        made, number = inputs[place], number_of(inputs[1 - place])
        conv, read = node_of(made, "Conv"), node.inputs[place]
        if conv is None or made is None or number is None or read is None or made.type is not node.outputs[0].type:
            continue
        x, filters, bias = (*conv.inputs, None)[:3]
        weights = constant_array(filters, weights=True, outer=True)
        offsets = None if bias is None else constant_array(bias, weights=True, outer=True)
        if weights is None or not is_float32(x, filters) or (bias is not None and offsets is None):
            return None
        is_named = made.given_name is not None and type(conv.origin) is not Imported
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


def scaled_swish(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return the hard swish of a convolution, times a number, plus another, as a depthwise convolution of one pixel.

    It reads the blocks of channels that convolutions give; a product with a number makes the provider undo them.
    """
    result = node.outputs[0].type
    for product, added in (inputs, inputs[::-1]):
        scale = node_of(product, "Mul")
        if scale is None or number_of(added) is None:
            continue
        for swish, factor in (scale.inputs, scale.inputs[::-1]):
            numbers = number_of(factor), number_of(added)
            if numbers[0] is None or swish is None or not _is_swish(swish) or swish.type is not result:
                continue
            channels = swish.shape[1]
            if swish.rank != 4 or not channels.is_static or channels == 0 or int(channels) % BLOCK:
                continue
            filters = sweep.constant(node, np.full((int(channels), 1, 1, 1), numbers[0], np.float32))
            bias = sweep.constant(node, np.full(int(channels), numbers[1], np.float32))
            attributes = {"group": int(channels), "kernel_shape": [1, 1]}
            return sweep.add(node, "Conv", (swish, filters, bias), result, attributes)
    return None


def _is_swish(symbol: Symbol) -> bool:
    """Return whether a Symbol is x * HardSigmoid(x), where x is a convolution."""
    node = node_of(symbol, "Mul")
    for x, gate in () if node is None else (node.inputs, node.inputs[::-1]):
        made = node_of(gate, "HardSigmoid")
        if made is not None and made.inputs[0] is x and node_of(x, "Conv") is not None and is_float32(x):
            return True
    return False


def _scaled(array: Array, factor: float) -> Array | None:
    """Return the product of an array and a number, None where it may leave the range of float32."""
    if not 1 / _LARGEST_FACTOR <= abs(factor) <= _LARGEST_FACTOR:
        return None
    with np.errstate(over="ignore"):
        made = array * np.float32(factor)
    return made if np.isfinite(made).all() else None
