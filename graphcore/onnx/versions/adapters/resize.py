"""Upsample, and Resize before it said how it maps coordinates."""

from __future__ import annotations

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.onnx.versions.node import Made, Read, unknown
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_MODES = {"bilinear": "linear", "trilinear": "linear"}


def upsample_scales(node: Read) -> Made:
    """The scales were an attribute."""
    scales = np.array(node.attributes.pop("scales"), np.float32)
    node.put(1, node.graph.build.constant(scales, DType.float32))
    return None


def upsample(node: Read) -> Made:
    given, rank = node.tensor(1).shape, node.rank(0)
    is_vector = not given.is_ranked or given.rank == 1
    if not is_vector or (rank is not None and given.is_ranked and given[0].is_static and int(given[0]) != rank):
        raise node.refusal(f"its scales are of shape {given}", "give one number for each axis")
    node.op_type = "Resize"
    return None


def coordinates(node: Read) -> Made:
    """Coordinates were divided by the scale; the nearest was the next below, or above where the result is smaller.

    The specification is silent there. What onnxruntime does with opset 10 is taken.
    """
    mode = node.attributes.get("mode", "nearest")
    mode = _MODES.get(mode, mode)
    x, scales = node.operand(0), node.operand(1)
    node.inputs[:] = [x, None, scales]
    node.attributes.clear()
    node.attributes |= {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode != "nearest":
        return None
    known = node.known(2)
    node.attributes["nearest_mode"] = "floor"
    if known is not None and (known >= 1).all():
        return None
    if known is not None and (known <= 1).all():
        node.attributes["nearest_mode"] = "ceil"
        return None
    # One node rounds one way: shrink first, then enlarge.
    type_ = node.tensor(2)
    one = node.scalar(1.0, DType.float32)
    smaller, larger = (node.emit(op, type_, scales, one) for op in ("Min", "Max"))
    small = _resize(node, unknown(node.tensor(0).dtype, node.rank(0)), x, smaller, "ceil")
    return (_resize(node, node.result(), small, larger, "floor"),)


def _resize(node: Read, type_: TensorType, x: Symbol, scales: Symbol, nearest: str) -> Symbol:
    return node.emit(
        "Resize", type_, x, None, scales,
        mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode=nearest,
    )  # fmt: skip


_ROUNDED = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
"""The mode that rounds a coordinate as the first does after half a pixel was added to it."""


def half_pixel(node: Read) -> Made:
    """Operands that say nothing could not be left out, and TensorFlow's half pixels had a name."""
    transformation = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    if transformation != "tf_crop_and_resize":
        node.put(1, None)
    if node.given(3) is not None:
        node.put(2, None)
    if transformation != "tf_half_pixel_for_nn":
        return None
    nearest = node.attributes.get("nearest_mode", "round_prefer_floor")
    if node.attributes.get("mode", "nearest") != "nearest" or nearest not in _ROUNDED:
        raise node.refusal(
            f"tf_half_pixel_for_nn with {node.attributes.get('mode', 'nearest')} {nearest} has no equivalent",
            "use half_pixel, or nearest_mode='floor'",
        )
    node.attributes["coordinate_transformation_mode"] = "half_pixel"
    node.attributes["nearest_mode"] = _ROUNDED[nearest]
    return None
