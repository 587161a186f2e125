"""Compute means of windows as sums by a convolution: the kernel of AveragePool adds one element at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.ir.symbol import Node, Symbol
from graphcore.passes.sweep import LIMIT, Inputs, Sweep
from graphcore.runtime.fusions.convolutions import BLOCK
from graphcore.runtime.fusions.matching import is_float32


def pool(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return AveragePool as a depthwise convolution with ones, by the numbers of elements. Sums may come in
    another order.

    Not of channels that onnxruntime keeps in blocks, for which it has another kernel of AveragePool, unless padding
    counts.
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
    kept = {name: attributes[name] for name in ("pads", "strides") if name in attributes}
    said = {"group": int(channels), "kernel_shape": list(kernel), **kept}
    sums = sweep.add(node, "Conv", (x, filters, bias), node.outputs[0].type, said)
    return sweep.add(node, "Div", (sums, sweep.constant(node, counts)), node.outputs[0].type)


def _counts(x: Symbol, attributes: Mapping[str, Any]) -> Array | None:
    """Return how many elements each mean is of; None where only the run knows."""
    kernel, pads = attributes["kernel_shape"], attributes.get("pads", [0] * 4)
    if attributes.get("count_include_pad", 0) or not any(pads):
        return np.asarray(np.prod(kernel), np.float32)
    sides = [*x.shape][2:]
    if not all(side.is_static and side != 0 for side in sides):
        return None
    strides = attributes.get("strides", [1, 1])
    rows, columns = (_lengths(int(sides[i]), kernel[i], strides[i], (pads[i], pads[i + 2])) for i in range(2))
    made = np.outer(rows, columns).astype(np.float32)[None, None]
    return made if made.size and made.all() and made.nbytes <= LIMIT else None


def _lengths(side: int, kernel: int, stride: int, pads: Sequence[int]) -> Array:
    """Return how many elements of an axis each window has."""
    starts = np.arange(0, side + sum(pads) - kernel + 1, stride) - pads[0]
    return np.minimum(starts + kernel, side) - np.maximum(starts, 0)
