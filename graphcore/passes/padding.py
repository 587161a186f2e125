"""Zeros that a Pad puts around an image, put there by the convolution that reads it.

The kernels of onnxruntime multiply the same numbers in the same order either way: 840 convolutions of float32 (kernels
of 1 to 7, grouped, depthwise, strided and dilated, borders of one side alone) gave the same bits in 1.20.1, 1.24.4,
1.28.0, 1.31.1 and 1.32.0, with and without its optimisations. Filters must be finite, for a zero times infinity is NaN
where it is multiplied at all.
"""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Node, Symbol
from graphcore.passes.sweep import Inputs, Rule, Sweep
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType


def padded(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Take the zeros of a Pad into a Conv."""
    x, type_ = inputs[0], node.outputs[0].type
    pad = None if x is None else x.producer
    if x is None or type(pad) is not Node or pad.domain or pad.op_type != "Pad" or not isinstance(type_, TensorType):
        return None
    source = pad.inputs[0]
    if x.dtype is not DType.float32 or source is None or not x.shape.is_ranked:
        return None
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET"):
        return None
    spatial = len(x.shape) - 2
    zeros = _zeros(sweep, pad, len(x.shape))
    filters = sweep.known(inputs[1])
    if zeros is None or any(a or b for a, b in zeros[:2]) or filters is None or not np.isfinite(filters).all():
        return None
    own = list(node.attributes.get("pads", [0] * (2 * spatial)))
    begins = [own[i] + zeros[2 + i][0] for i in range(spatial)]
    ends = [own[spatial + i] + zeros[2 + i][1] for i in range(spatial)]
    attributes = {**node.attributes, "pads": [*begins, *ends]}
    return sweep.add(node, "Conv", (source, *inputs[1:]), type_, attributes)


def _zeros(sweep: Sweep, pad: Node, rank: int) -> list[tuple[int, int]] | None:
    """Return how many zeros a Pad adds before and after each axis; None where it adds something else."""
    _, amounts, value, axes = (*pad.inputs, None, None)[:4]
    if pad.attributes.get("mode", "constant") not in ("constant", b"constant"):
        return None
    numbers, filled, places = sweep.known(amounts), sweep.known(value), sweep.known(axes)
    if numbers is None or (value is not None and filled is None) or (axes is not None and places is None):
        return None
    if filled is not None and (filled.size != 1 or filled.reshape(-1)[0] != 0 or np.signbit(filled).any()):
        return None
    at = [*range(rank)] if places is None else [int(axis) % rank for axis in places]
    if len(numbers) != 2 * len(at) or (numbers < 0).any() or len({*at}) != len(at):
        return None
    made = [(0, 0)] * rank
    for i, axis in enumerate(at):
        made[axis] = int(numbers[i]), int(numbers[len(at) + i])
    return made


PADDING: dict[str, tuple[Rule, ...]] = {"Conv": (padded,)}
