"""Write operators at older opsets: for each operator and version that changed it, how to undo the change.

A row has a condition, whether a node can be written without that version, and the change that does so: attributes with
default values are removed, operands become attributes again. A version without a row only added dtypes. Lowering
handles operators that compute something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphcore.ir.symbol import Symbol, present
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.versions.older import REDUCTIONS, ReadNode
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Fits: TypeAlias = Callable[[ReadNode], bool]
Change: TypeAlias = Callable[[ReadNode], None]


@dataclass(frozen=True, slots=True)
class Downgrade:
    """fits: True if a node can be written without a version. change: the function that rewrites it."""

    fits: Fits
    change: Change


def _keep(node: ReadNode) -> None:
    return None


def only(defaults: Mapping[str, Any]) -> Downgrade:
    """Return the row of a version that added attributes: they must have their defaults, and are removed."""

    def fits(node: ReadNode) -> bool:
        return all(_is_default(node.attributes.get(name), default) for name, default in defaults.items())

    def change(node: ReadNode) -> None:
        for name in defaults:
            node.attributes.pop(name, None)

    return Downgrade(fits, change)


def _is_default(value: Any, default: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, (list, tuple)):
        return all(v == default for v in value)
    return bool(value == default)


def ignored(*names: str) -> Downgrade:
    """Return the row of a version that added attributes which only affect dtypes that it added."""
    return Downgrade(lambda node: True, only(dict.fromkeys(names)).change)


def absent(*names: str) -> Downgrade:
    """Return the row of a version that added attributes without a default."""
    return Downgrade(lambda node: not any(name in node.attributes for name in names), _keep)


def without(name: str, *values: Any) -> Downgrade:
    """Return the row of a version that added values of an attribute."""
    return Downgrade(lambda node: node.attributes.get(name) not in values, _keep)


# Reductions and other operators with an attribute that became an operand


def _has_known_axes(node: ReadNode) -> bool:
    axes = node.constant(1)
    if node.optional(1) is None or (axes is not None and not axes.size):
        return not node.attributes.get("noop_with_empty_axes", 0)
    return axes is not None


def _axes_to_attribute(node: ReadNode) -> None:
    axes = node.constant(1)
    node.inputs[1:] = []
    node.attributes.pop("noop_with_empty_axes", None)
    if axes is not None and axes.size:
        node.attributes["axes"] = axes.reshape(-1).tolist()


def _axis_to_attribute(node: ReadNode) -> None:
    """The axis of a Fourier transform was an attribute with another default."""
    axis = node.constant(2)
    node.inputs[2:] = []
    node.attributes["axis"] = -2 if axis is None else int(axis.reshape(()))


def _split_sizes(node: ReadNode) -> None:
    """Unequal parts needed sizes."""
    count = int(node.attributes.pop("num_outputs", len(node.types)))
    if node.optional(1) is not None:
        return
    x, axis = node.operand(0), int(node.attributes.get("axis", 0))
    shape = node.tensor(0).shape
    size = shape[axis] if shape.is_ranked else None
    if size is not None and size.is_static:
        part_size = math.ceil(int(size) / count)
        if int(size) % count:
            last = int(size) - part_size * (count - 1)
            node.put(1, node.graph.build.vector([part_size] * (count - 1) + [last]))
        return
    one = TensorType(DType.int64, [1])
    place = node.graph.build.vector([axis])
    length = node.emit("Gather", one, node.emit("Shape", TensorType(DType.int64, ["?"]), x), place, axis=0)
    above = node.emit("Add", one, length, node.graph.build.vector([count - 1]))
    part = node.emit("Div", one, above, node.graph.build.vector([count]))
    rest = node.emit("Mul", one, part, node.graph.build.vector([count - 1]))
    sizes = [*[part] * (count - 1), node.emit("Sub", one, length, rest)]
    node.put(1, node.emit("Concat", TensorType(DType.int64, [count]), *sizes, axis=0))


# Axes of Pad and Resize, which applied to all axes


def _chosen_axes(node: ReadNode, position: int) -> list[int] | None:
    """Return the axes of a node, not negative; None if they or the rank are unknown."""
    rank = node.rank(0)
    axes = node.constant(position) if node.op_type == "Pad" else np.array(node.attributes["axes"])
    return None if rank is None or axes is None else [int(a) % rank for a in axes.reshape(-1)]


def _pad_all_axes(node: ReadNode) -> None:
    axes = _chosen_axes(node, 3) if node.optional(3) is not None else None
    node.inputs[3:] = []
    if axes is not None:
        rank = present(node.rank(0))
        zeros = node.graph.build.vector([0] * (2 * rank))
        node.put(1, _place(node, zeros, node.operand(1), [*axes, *(a + rank for a in axes)]))


def _place(node: ReadNode, vector: Symbol, part: Symbol, places: list[int]) -> Symbol:
    """Return a vector with elements replaced at known positions."""
    values, base = constant_array(part, weights=True, outer=True), constant_array(vector, weights=True, outer=True)
    if values is not None and base is not None:
        filled = base.copy()
        filled[places] = values.reshape(-1)
        return node.graph.build.constant(filled, vector.dtype)
    return node.emit("ScatterElements", vector.type, vector, node.graph.build.vector(places), part, axis=0)


def _resizes_plainly(node: ReadNode) -> bool:
    attributes = node.attributes
    if attributes.get("antialias", 0) or attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    if not attributes.get("axes"):
        return True
    is_cropped = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return not is_cropped and _chosen_axes(node, 0) is not None


def _resize_all_axes(node: ReadNode) -> None:
    axes = _chosen_axes(node, 0) if node.attributes.get("axes") else None
    for name in ("antialias", "axes", "keep_aspect_ratio_policy"):
        node.attributes.pop(name, None)
    if axes is None:
        return
    rank = present(node.rank(0))
    scales, sizes = node.optional(2), node.optional(3)
    if sizes is not None:
        sizes_of_all = node.emit("Shape", TensorType(DType.int64, [rank]), node.operand(0))
        node.put(3, _place(node, sizes_of_all, sizes, axes))
    elif scales is not None:
        node.put(2, _place(node, node.graph.build.constant(np.ones(rank, np.float32), DType.float32), scales, axes))


# Quantization


def _chosen_dtype(node: ReadNode) -> int:
    chosen = node.attributes.get("output_dtype", 0)
    return chosen.onnx if isinstance(chosen, DType) else int(chosen)


def _is_scaled_dtype(node: ReadNode) -> bool:
    chosen = _chosen_dtype(node)
    return not chosen or chosen == node.tensor(1).dtype.onnx


def _quantizes_whole_axes(node: ReadNode) -> bool:
    if node.attributes.get("block_size", 0):
        return False
    chosen = _chosen_dtype(node)
    if not chosen or node.optional(2) is not None or chosen == DType.uint8.onnx:
        return True
    return node.tensor(1).shape.is_static


def _zero_point_for_dtype(node: ReadNode) -> None:
    """The zero point decided the dtype of the result."""
    node.attributes.pop("block_size", None)
    chosen = _chosen_dtype(node)
    node.attributes.pop("output_dtype", None)
    if chosen and node.optional(2) is None and chosen != DType.uint8.onnx:
        dtype = node.result().dtype
        zeros = np.zeros([int(d) for d in node.tensor(1).shape], dtype.numpy)
        node.put(2, node.graph.build.constant(zeros, dtype))


# Pooling


def _windows_to_end(node: ReadNode) -> list[int] | None:
    """Return the end pads of each axis that replace ceil_mode, [] if none are needed; None if it is not possible.

    Since version 22, windows of ceil_mode that start after the end of an axis do not count.
    """
    attributes = node.attributes
    if not attributes.get("ceil_mode", 0) or attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return []
    operand, result = node.tensor(0).shape, node.result().shape
    if not operand.is_ranked or not result.is_ranked:
        return None
    kernel = attributes["kernel_shape"]
    count = len(kernel)
    pads = attributes.get("pads", [0] * (2 * count))
    steps, gaps = (attributes.get(name, [1] * count) for name in ("strides", "dilations"))
    is_alike = True
    ends: list[int] = []
    for axis, (size, step, gap) in enumerate(zip(kernel, steps, gaps, strict=True)):
        length, places, end = operand[axis + 2], result[axis + 2], pads[axis + count]
        covered = (size - 1) * gap + 1
        if length.is_dynamic or places.is_dynamic:
            return None
        is_alike &= (length + (pads[axis] + end - covered)).ceildiv(step) + 1 == places
        if length.is_static and places.is_static:
            ends.append(max(end, (int(places) - 1) * step + covered - int(length) - pads[axis]))
    if is_alike:
        return []
    is_counted = node.op_type == "AveragePool" and bool(attributes.get("count_include_pad", 0))
    is_wider = any(new > old for new, old in zip(ends, pads[count:], strict=False))
    fits = len(ends) == count and all(new < size for new, size in zip(ends, kernel, strict=True))
    return ends if fits and not (is_wider and is_counted) else None


def _pad_to_end(node: ReadNode) -> None:
    ends = _windows_to_end(node)
    if ends:
        attributes = node.attributes
        before = attributes.get("pads", [0] * len(ends))[: len(ends)]
        attributes.update({"pads": [*before, *ends], "ceil_mode": 0, "auto_pad": "NOTSET"})


_WINDOWS = Downgrade(lambda node: _windows_to_end(node) is not None, _pad_to_end)


# Others


def _modes_of_images(node: ReadNode) -> None:
    mode = node.attributes.get("mode", "linear")
    node.attributes["mode"] = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)


def _drop_lengths(node: ReadNode) -> None:
    node.inputs[6:] = []


ROWS: Mapping[str, Mapping[int, Downgrade]] = {
    "Attention": {
        24: Downgrade(lambda node: node.optional(6) is None, _drop_lengths),
        25: only({"left_window_size": -1, "right_window_size": -1}),
    },
    "AveragePool": {19: only({"dilations": 1}), 22: _WINDOWS},
    "Cast": {19: ignored("saturate"), 24: ignored("round_mode")},
    "CastLike": {19: ignored("saturate"), 24: ignored("round_mode")},
    "DFT": {20: Downgrade(lambda node: node.optional(2) is None or node.constant(2) is not None, _axis_to_attribute)},
    "DequantizeLinear": {21: only({"block_size": 0}), 23: Downgrade(_is_scaled_dtype, ignored("output_dtype").change)},
    "GridSample": {20: Downgrade(lambda node: node.rank(0) == 4, _modes_of_images)},
    "GroupNormalization": {21: Downgrade(lambda node: False, _keep)},  # a scale for each channel
    "LpPool": {18: only({"ceil_mode": 0, "dilations": 1}), 22: _WINDOWS},
    "MaxPool": {22: _WINDOWS},
    "OptionalHasElement": {18: Downgrade(lambda node: node.optional(0) is not None, _keep)},
    "Pad": {
        18: Downgrade(lambda node: node.optional(3) is None or _chosen_axes(node, 3) is not None, _pad_all_axes),
        19: without("mode", "wrap"),
    },
    "QuantizeLinear": {
        19: ignored("saturate"),
        21: Downgrade(_quantizes_whole_axes, _zero_point_for_dtype),
        23: only({"precision": 0}),
    },
    **{name: {18: Downgrade(_has_known_axes, _axes_to_attribute)} for name in REDUCTIONS},
    "Resize": {
        18: Downgrade(_resizes_plainly, _resize_all_axes),
        19: without("coordinate_transformation_mode", "half_pixel_symmetric"),
    },
    "ScatterElements": {18: without("reduction", "max", "min")},
    "ScatterND": {18: without("reduction", "max", "min")},
    "Split": {18: Downgrade(lambda node: True, _split_sizes)},
}

ML_ROWS: Mapping[str, Mapping[int, Downgrade]] = {
    "LabelEncoder": {4: absent("keys_tensor", "values_tensor", "default_tensor")},
}
"""The rows of domain ai.onnx.ml."""

REPLACED: Mapping[str, int] = {"GroupNormalization": 21}
"""Operators that compute something else before a version, so that their nodes cannot be written there."""


def row(op_type: str, domain: str, version: int) -> Downgrade | None:
    """Return the row of a version of an operator; None if it only added dtypes."""
    return (ROWS if not domain else ML_ROWS).get(op_type, {}).get(version)
