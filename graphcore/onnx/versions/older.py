"""Operators of opset 7 to 25 whose operands or attributes have changed since."""

from __future__ import annotations

import numpy as np

from graphcore.arrays import casting
from graphcore.onnx.versions.node import Made, Read, unknown
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

MOVED: dict[str, tuple[str, ...]] = {
    "Slice": ("starts", "ends", "axes"),
    "TopK": ("k",),
    "Split": ("split",),
    "Squeeze": ("axes",),
    "Unsqueeze": ("axes",),
    **{
        f"Reduce{kind}": ("axes",)
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}
"""Attributes that became operands, after the one that there was."""


def moved(node: Read) -> Made:
    """Attributes that became operands: lists of integers."""
    for position, name in enumerate(MOVED[node.op_type], 1):
        value = node.attributes.pop(name, None)
        if value is not None and value != []:
            node.put(position, node.graph.build.vector(value if isinstance(value, list) else [value]))
    return None


def split(node: Read) -> Made:
    """Equal parts were meant where no sizes are given."""
    if node.given(1) is None:
        node.attributes["num_outputs"] = len(node.types)
    return None


def clip(node: Read) -> Made:
    """The bounds were attributes."""
    for position, name in enumerate(("min", "max"), 1):
        if name in node.attributes:
            value = casting.cast_array(
                np.array(node.attributes.pop(name), np.float32), DType.float32, node.tensor(0).dtype
            )
            node.put(position, node.graph.build.constant(value, node.tensor(0).dtype))
    return None


def pad(node: Read) -> Made:
    """The amounts and the value were attributes."""
    node.put(1, node.graph.build.vector(node.attributes.pop("pads")))
    value = node.attributes.pop("value", 0.0)
    if value and node.attributes.get("mode", "constant") == "constant":
        node.put(2, node.scalar(value, node.tensor(0).dtype))
    return None


def flattening(node: Read) -> Made:
    """Softmax and its kin were over all axes from one on, by default the second."""
    axis = node.attributes.pop("axis", 1)
    type_ = node.tensor(0)
    rank = node.rank(0)
    if rank is not None and axis % max(rank, 1) == rank - 1:
        node.attributes["axis"] = -1
        return None
    x = node.operand(0)
    flat = unknown(type_.dtype, 2)
    if rank is not None:
        start = axis + rank if axis < 0 else axis
        flat = TensorType(type_.dtype, [type_.shape[:start].size, type_.shape[start:].size])
    rows = node.emit("Flatten", flat, x, axis=axis)
    made = node.emit(node.op_type, flat, rows, axis=-1)
    return (node.emit("Reshape", type_, made, node.dims(x), allowzero=1),)


def dropout(node: Read) -> Made:
    """Nothing is dropped, whatever the ratio, without the operand that says that this is training."""
    node.attributes.clear()
    if len(node.types) == 1:
        return None
    shape = node.tensor(0).shape
    x = node.operand(0)
    made, mask = node.graph.build.emit_many("Dropout", (x,), (node.types[0], TensorType(DType.bool, shape)))
    return made, node.graph.build.cast(mask, node.result(1).dtype)


def scatter(node: Read) -> Made:
    node.op_type = "ScatterElements"
    return None


def one_hot(node: Read) -> Made:
    """An index below zero gave a row without a one; it counts from the end now."""
    indices = node.operand(0)
    dtype = node.tensor(0).dtype
    values = node.known(0)
    if dtype.is_integer and (not dtype.is_signed or (values is not None and (values >= 0).all())):
        return None
    whole = node.graph.build.cast(indices, DType.int64)
    shape = node.tensor(0).shape
    below = node.emit("Less", TensorType(DType.bool, shape), whole, node.scalar(0, DType.int64))
    beyond = node.scalar(np.iinfo(np.int64).max, DType.int64)
    node.put(0, node.emit("Where", TensorType(DType.int64, shape), below, beyond, whole))
    return None


def erf(node: Read) -> Made:
    """Integers were taken too: what is left of their error function is its sign, from where float64 rounds it to 1."""
    type_ = node.tensor(0)
    if not type_.dtype.is_integer:
        return None
    truth = TensorType(DType.bool, type_.shape)
    x = node.operand(0)
    above = node.graph.build.cast(node.emit("Greater", truth, x, node.scalar(5, type_.dtype)), type_.dtype)
    if not type_.dtype.is_signed:
        return (above,)
    below = node.graph.build.cast(node.emit("Less", truth, x, node.scalar(-5, type_.dtype)), type_.dtype)
    return (node.emit("Sub", type_, above, below),)


def roi_align(node: Read) -> Made:
    """Corners were not moved by half a pixel."""
    node.attributes["coordinate_transformation_mode"] = "output_half_pixel"
    return None


def grid_sample(node: Read) -> Made:
    """Modes were named for two axes."""
    mode = node.attributes.get("mode", "bilinear")
    node.attributes["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return None


def fourier(node: Read) -> Made:
    """The axis was an attribute."""
    node.put(2, node.scalar(int(node.attributes.pop("axis", 1)), DType.int64))
    return None
