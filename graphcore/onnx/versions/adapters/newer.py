"""Operators of opset 27 and 28 by what opset 26 has."""

from __future__ import annotations

from graphcore.onnx.versions.functions import expand_function
from graphcore.onnx.versions.node import Made, Read
from graphcore.types.dtypes import DType

_NARROW = frozenset({DType.float16, DType.bfloat16})
_LIBRARY = "graphcore"
"""The domain of operators that lowering expands."""


def range_in(node: Read) -> Made:
    """Narrow floats are counted in a dtype of their own."""
    stash = DType.of(node.attributes.pop("stash_type", 1))
    type_ = node.result()
    if type_.dtype not in _NARROW:
        return None
    wide = [node.graph.build.cast(node.operand(i), stash) for i in range(3)]
    return (node.graph.build.cast(node.emit("Range", type_.cast(stash), *wide), type_.dtype),)


def remainder(node: Read) -> Made:
    """Floats may have the divisor's sign."""
    if node.tensor(0).dtype.is_float and not node.attributes.get("fmod", 0):
        node.op_type, node.domain = "FloorMod", _LIBRARY
        node.attributes.clear()
    return None


def shift(node: Read) -> Made:
    """Signed integers may be shifted, and every count has a meaning."""
    direction = node.attributes.pop("direction")
    node.op_type, node.domain = {"LEFT": "ShiftLeft", "RIGHT": "ShiftRight"}[direction], _LIBRARY
    return None


def space_to_depth(node: Read) -> Made:
    """Channels may come before blocks."""
    if node.attributes.get("mode", "DCR") != "DCR":
        return expand_function(node)
    node.attributes.pop("mode", None)
    return None
