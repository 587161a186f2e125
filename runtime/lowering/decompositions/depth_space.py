"""Operators that move elements, by operators that have a kernel for every dtype."""

from __future__ import annotations

from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.shape_arithmetic import calculate, lengths, reshape, transpose
from graphcore.runtime.lowering.decompositions.signature import Replacement


def depth_and_space(b: Builder, call: Call) -> Replacement:
    """Compute DepthToSpace and SpaceToDepth: move the axes of a block out of the channels or into them."""
    (x,) = call.inputs
    block = call.attributes["blocksize"]
    columns_first = call.attributes.get("mode", "DCR") == "CRD"
    batch, channels, height, width = lengths(b, x, range(4))
    if call.op == "DepthToSpace":
        depth = calculate(b, "Div", channels, block * block)
        split = [depth, block, block] if columns_first else [block, block, depth]
        order = [0, 1, 4, 2, 5, 3] if columns_first else [0, 3, 4, 1, 5, 2]
        made = transpose(b, reshape(b, x, [batch, *split, height, width]), order)
        sizes = [batch, depth, calculate(b, "Mul", height, block), calculate(b, "Mul", width, block)]
    else:
        height, width = calculate(b, "Div", height, block), calculate(b, "Div", width, block)
        order = [0, 1, 3, 5, 2, 4] if columns_first else [0, 3, 5, 1, 2, 4]
        made = transpose(b, reshape(b, x, [batch, channels, height, block, width, block]), order)
        sizes = [batch, calculate(b, "Mul", channels, block * block), height, width]
    return b.op("Identity", reshape(b, made, sizes), shape=call.shape)


def space_to_depth(b: Builder, call: Call) -> Replacement:
    """Compute SpaceToDepth with a mode, which the kernel does not know."""
    return depth_and_space(b, call) if "mode" in call.attributes else None
