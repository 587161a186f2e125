"""The operators that changed between the oldest opset that files have and the newest, and how to undo each change.

One row an operator and version that changed it, as `table` has for the way forward. A row says whether a node can be
written without that version, and does so: attributes that have their default are left out, operands become attributes
again. A version without a row brought more dtypes alone. What computes something else is left to lowering.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.versions.older import MOVED, Made, Read
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Fits: TypeAlias = Callable[[Read], bool]
Change: TypeAlias = Callable[[Read], Made]


@dataclass(frozen=True, slots=True)
class Row:
    """fits: whether a node can be written without a version. change: what writes it so."""

    fits: Fits
    change: Change


def _as_it_is(node: Read) -> Made:
    return None


def only(defaults: Mapping[str, Any]) -> Row:
    """Return the row of a version that brought attributes: they have to have their defaults, and are left out."""

    def fits(node: Read) -> bool:
        return all(_is_default(node.attributes.get(name), default) for name, default in defaults.items())

    def change(node: Read) -> Made:
        for name in defaults:
            node.attributes.pop(name, None)
        return None

    return Row(fits, change)


def _is_default(value: Any, default: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, (list, tuple)):
        return all(v == default for v in value)
    return bool(value == default)


def ignored(*names: str) -> Row:
    """Return the row of a version whose attributes mean something for dtypes alone that came with it, too."""
    return Row(lambda node: True, only(dict.fromkeys(names)).change)


def absent(*names: str) -> Row:
    """Return the row of a version that brought attributes without a default."""
    return Row(lambda node: not any(name in node.attributes for name in names), _as_it_is)


def without(name: str, *values: Any) -> Row:
    """Return the row of a version that brought values of an attribute."""
    return Row(lambda node: node.attributes.get(name) not in values, _as_it_is)


# Reductions and other operators of which an attribute became an operand


def _has_known_axes(node: Read) -> bool:
    axes = node.known(1)
    if node.given(1) is None or (axes is not None and not axes.size):
        return not node.attributes.get("noop_with_empty_axes", 0)
    return axes is not None


def _axes_to_attribute(node: Read) -> Made:
    axes = node.known(1)
    node.inputs[1:] = []
    node.attributes.pop("noop_with_empty_axes", None)
    if axes is not None and axes.size:
        node.attributes["axes"] = axes.reshape(-1).tolist()
    return None


def _has_known_axis(node: Read) -> bool:
    return node.given(2) is None or node.known(2) is not None


def _axis_to_attribute(node: Read) -> Made:
    """The axis of a Fourier transform was an attribute with another default."""
    axis = node.known(2)
    node.inputs[2:] = []
    node.attributes["axis"] = -2 if axis is None else int(axis.reshape(()))
    return None


def _split_sizes(node: Read) -> Made:
    """Parts that are not equal had to have sizes."""
    count = int(node.attributes.pop("num_outputs", len(node.types)))
    if node.given(1) is not None:
        return None
    x, axis = node.operand(0), int(node.attributes.get("axis", 0))
    shape = node.tensor(0).shape
    size = shape[axis] if shape.is_ranked else None
    if size is not None and size.is_static:
        each = math.ceil(int(size) / count)
        if int(size) % count:
            last = int(size) - each * (count - 1)
            node.put(1, node.graph.build.vector([each] * (count - 1) + [last]))
        return None
    one = TensorType(DType.int64, [1])
    place = node.graph.build.vector([axis])
    whole = node.emit("Gather", one, node.emit("Shape", TensorType(DType.int64, ["?"]), x), place, axis=0)
    above = node.emit("Add", one, whole, node.graph.build.vector([count - 1]))
    part = node.emit("Div", one, above, node.graph.build.vector([count]))
    rest = node.emit("Mul", one, part, node.graph.build.vector([count - 1]))
    sizes = [*[part] * (count - 1), node.emit("Sub", one, whole, rest)]
    node.put(1, node.emit("Concat", TensorType(DType.int64, [count]), *sizes, axis=0))
    return None


# Axes of Pad and Resize, which were all of them


def _chosen_axes(node: Read, position: int) -> list[int] | None:
    """The axes that a node names, none below zero; None where they or the rank are not known."""
    rank = node.rank(0)
    given = node.known(position) if node.op_type == "Pad" else np.array(node.attributes["axes"])
    return None if rank is None or given is None else [int(a) % rank for a in given.reshape(-1)]


def _has_known_pad_axes(node: Read) -> bool:
    return node.given(3) is None or _chosen_axes(node, 3) is not None


def _pad_all_axes(node: Read) -> Made:
    axes = _chosen_axes(node, 3) if node.given(3) is not None else None
    node.inputs[3:] = []
    if axes is not None:
        rank = node.rank(0)
        assert rank is not None
        zeros = node.graph.build.vector([0] * (2 * rank))
        node.put(1, _placed(node, zeros, node.operand(1), [*axes, *(a + rank for a in axes)]))
    return None


def _placed(node: Read, whole: Symbol, part: Symbol, places: list[int]) -> Symbol:
    """A vector with the elements of another one at known places."""
    known, base = constant_array(part, weights=True, outer=True), constant_array(whole, weights=True, outer=True)
    if known is not None and base is not None:
        made = base.copy()
        made[places] = known.reshape(-1)
        return node.graph.build.constant(made, whole.dtype)
    return node.emit("ScatterElements", whole.type, whole, node.graph.build.vector(places), part, axis=0)


def _resizes_plainly(node: Read) -> bool:
    attributes = node.attributes
    if attributes.get("antialias", 0) or attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    if not attributes.get("axes"):
        return True
    is_cropped = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return not is_cropped and _chosen_axes(node, 0) is not None


def _resize_all_axes(node: Read) -> Made:
    axes = _chosen_axes(node, 0) if node.attributes.get("axes") else None
    for name in ("antialias", "axes", "keep_aspect_ratio_policy"):
        node.attributes.pop(name, None)
    if axes is None:
        return None
    rank = node.rank(0)
    assert rank is not None
    scales, sizes = node.given(2), node.given(3)
    if sizes is not None:
        whole = node.emit("Shape", TensorType(DType.int64, [rank]), node.operand(0))
        node.put(3, _placed(node, whole, sizes, axes))
    elif scales is not None:
        node.put(2, _placed(node, node.graph.build.constant(np.ones(rank, np.float32), DType.float32), scales, axes))
    return None


# Quantization


def _chosen_dtype(node: Read) -> int:
    chosen = node.attributes.get("output_dtype", 0)
    return chosen.onnx if isinstance(chosen, DType) else int(chosen)


def _is_scaled_dtype(node: Read) -> bool:
    chosen = _chosen_dtype(node)
    return not chosen or chosen == node.tensor(1).dtype.onnx


def _drop_output_dtype(node: Read) -> Made:
    node.attributes.pop("output_dtype", None)
    return None


def _quantizes_whole_axes(node: Read) -> bool:
    if node.attributes.get("block_size", 0):
        return False
    chosen = _chosen_dtype(node)
    if not chosen or node.given(2) is not None or chosen == DType.uint8.onnx:
        return True
    return node.tensor(1).shape.is_static


def _zero_point_for_dtype(node: Read) -> Made:
    """The dtype of the result was that of the zero point."""
    node.attributes.pop("block_size", None)
    chosen = _chosen_dtype(node)
    node.attributes.pop("output_dtype", None)
    if chosen and node.given(2) is None and chosen != DType.uint8.onnx:
        dtype = node.result().dtype
        zeros = np.zeros([int(d) for d in node.tensor(1).shape], dtype.numpy)
        node.put(2, node.graph.build.constant(zeros, dtype))
    return None


# Pooling


def _windows_to_end(node: Read) -> list[int] | None:
    """Return the pads after each axis with which ceil_mode is not needed; None where no pads do.

    No window begins after the end of an axis: with ceil_mode there was one, which is left out now. Empty where the
    node counts its windows alike.
    """
    attributes = node.attributes
    if not attributes.get("ceil_mode", 0) or attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return []
    given, made = node.tensor(0).shape, node.result().shape
    if not given.is_ranked or not made.is_ranked:
        return None
    kernel = attributes["kernel_shape"]
    count = len(kernel)
    pads = attributes.get("pads", [0] * (2 * count))
    steps, gaps = (attributes.get(name, [1] * count) for name in ("strides", "dilations"))
    is_alike = True
    found: list[int] = []
    for axis, (size, step, gap) in enumerate(zip(kernel, steps, gaps, strict=True)):
        there, places, end = given[axis + 2], made[axis + 2], pads[axis + count]
        covered = (size - 1) * gap + 1
        if there.is_dynamic or places.is_dynamic:
            return None
        is_alike &= (there + (pads[axis] + end - covered)).ceildiv(step) + 1 == places
        if there.is_static and places.is_static:
            found.append(max(end, (int(places) - 1) * step + covered - int(there) - pads[axis]))
    if is_alike:
        return []
    is_counted = node.op_type == "AveragePool" and bool(attributes.get("count_include_pad", 0))
    is_wider = any(new > old for new, old in zip(found, pads[count:], strict=False))
    fits = len(found) == count and all(new < size for new, size in zip(found, kernel, strict=True))
    return found if fits and not (is_wider and is_counted) else None


def _pad_to_end(node: Read) -> Made:
    found = _windows_to_end(node)
    if found:
        attributes = node.attributes
        before = attributes.get("pads", [0] * len(found))[: len(found)]
        attributes.update({"pads": [*before, *found], "ceil_mode": 0, "auto_pad": "NOTSET"})
    return None


_WINDOWS = Row(lambda node: _windows_to_end(node) is not None, _pad_to_end)


# Others


def _has_no_third_axis(node: Read) -> bool:
    return node.rank(0) == 4


def _modes_of_images(node: Read) -> Made:
    mode = node.attributes.get("mode", "linear")
    node.attributes["mode"] = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return None


def _has_no_lengths(node: Read) -> bool:
    return node.given(6) is None


def _drop_lengths(node: Read) -> Made:
    node.inputs[6:] = []
    return None


_REDUCTIONS = sorted(name for name in MOVED if name.startswith("Reduce") and name != "ReduceSum")

ROWS: Mapping[str, Mapping[int, Row]] = {
    "Attention": {
        24: Row(_has_no_lengths, _drop_lengths),
        25: only({"left_window_size": -1, "right_window_size": -1}),
    },
    "AveragePool": {19: only({"dilations": 1}), 22: _WINDOWS},
    "Cast": {19: ignored("saturate"), 24: ignored("round_mode")},
    "CastLike": {19: ignored("saturate"), 24: ignored("round_mode")},
    "DFT": {20: Row(_has_known_axis, _axis_to_attribute)},
    "DequantizeLinear": {21: only({"block_size": 0}), 23: Row(_is_scaled_dtype, _drop_output_dtype)},
    "GridSample": {20: Row(_has_no_third_axis, _modes_of_images)},
    "GroupNormalization": {21: Row(lambda node: False, _as_it_is)},  # a scale for each channel
    "LpPool": {18: only({"ceil_mode": 0, "dilations": 1}), 22: _WINDOWS},
    "MaxPool": {22: _WINDOWS},
    "OptionalHasElement": {18: Row(lambda node: node.given(0) is not None, _as_it_is)},
    "Pad": {18: Row(_has_known_pad_axes, _pad_all_axes), 19: without("mode", "wrap")},
    "QuantizeLinear": {
        19: ignored("saturate"),
        21: Row(_quantizes_whole_axes, _zero_point_for_dtype),
        23: only({"precision": 0}),
    },
    **{name: {18: Row(_has_known_axes, _axes_to_attribute)} for name in _REDUCTIONS},
    "Resize": {
        18: Row(_resizes_plainly, _resize_all_axes),
        19: without("coordinate_transformation_mode", "half_pixel_symmetric"),
    },
    "ScatterElements": {18: without("reduction", "max", "min")},
    "ScatterND": {18: without("reduction", "max", "min")},
    "Split": {18: Row(lambda node: True, _split_sizes)},
}

ML_ROWS: Mapping[str, Mapping[int, Row]] = {
    "LabelEncoder": {4: absent("keys_tensor", "values_tensor", "default_tensor")},
}
"""The rows of domain ai.onnx.ml."""

REPLACED: Mapping[str, int] = {"GroupNormalization": 21}
"""Operators that compute something else before a version: there, a node of them has no form."""


def row(op_type: str, domain: str, version: int) -> Row | None:
    """Return the row of a version of an operator; None where that brought dtypes alone."""
    return (ROWS if not domain else ML_ROWS).get(op_type, {}).get(version)
