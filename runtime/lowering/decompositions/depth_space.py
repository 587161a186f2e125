"""Operators that put elements elsewhere, out of those that have a kernel for every dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.runtime.lowering.decompositions.shape_arithmetic import calculate, lengths, reshape, transpose
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def depth_and_space(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """DepthToSpace and SpaceToDepth: the axes of a block out of the channels or into them."""
    (x,) = inputs
    block = attributes["blocksize"]
    columns_first = attributes.get("mode", "DCR") == "CRD"
    batch, channels, height, width = lengths(on, x, range(4))
    if op == "DepthToSpace":
        depth = calculate(on, "Div", channels, block * block)
        split = [depth, block, block] if columns_first else [block, block, depth]
        order = [0, 1, 4, 2, 5, 3] if columns_first else [0, 3, 4, 1, 5, 2]
        made = transpose(on, reshape(on, x, [batch, *split, height, width]), order)
        sizes = [batch, depth, calculate(on, "Mul", height, block), calculate(on, "Mul", width, block)]
    else:
        height, width = calculate(on, "Div", height, block), calculate(on, "Div", width, block)
        order = [0, 1, 3, 5, 2, 4] if columns_first else [0, 3, 5, 1, 2, 4]
        made = transpose(on, reshape(on, x, [batch, channels, height, block, width, block]), order)
        sizes = [batch, calculate(on, "Mul", channels, block * block), height, width]
    return on.op("Identity", reshape(on, made, sizes), shape=types[0].shape)


def space_to_depth(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """SpaceToDepth with a mode, which the kernel does not know of."""
    return depth_and_space(on, op, inputs, types, attributes) if "mode" in attributes else None
