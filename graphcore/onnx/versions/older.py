"""Operators of opset 7 to 25 whose operands or attributes have changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from graphcore.arrays import casting
from graphcore.errors import ModelError
from graphcore.ir.symbol import Symbol
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


# ONNX's Cast by the library's, where the two differ beyond a dtype's range.
#
# The library saturates integers and lets float8 overflow; ONNX wraps where it casts floats to 2 or 4 bits, and
# saturates float8 unless it is told not to (https://onnx.ai/onnx/operators/onnx__Cast.html).

_FLOAT8 = frozenset({DType.float8_e4m3fn, DType.float8_e5m2, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz})


def cast(symbol: Symbol, target: DType, attributes: Mapping[str, Any]) -> Symbol:
    """A cast as a model means it. attributes: those of its Cast or CastLike."""
    graph = symbol.graph
    source = symbol.dtype
    if target in _FLOAT8 and source not in _FLOAT8 and attributes.get("saturate", 1):
        wide = graph.build.cast(symbol, _roomy(source))
        limit = float(target.max)
        bounds = (graph.build.scalar(-limit, wide.dtype), graph.build.scalar(limit, wide.dtype))
        symbol = graph.build.emit("Clip", (wide, *bounds), wide.type)
    if target.is_integer and target.bits < 8 and source.is_float:
        symbol = graph.build.cast(symbol, DType.int32)
    made = graph.build.cast(symbol, target)
    return made if made is not symbol else graph.build.emit("Identity", (symbol,), symbol.type)


def agree(op_type: str, inputs: list[Symbol | None]) -> None:
    """Put casts before operands that ONNX lets differ in dtype from the first, where onnxruntime does not.

    What is cast keeps its value: exponents, and scales that were narrower than what they divide.
    """
    if op_type not in ("Pow", "QuantizeLinear") or len(inputs) < 2:
        return
    x, other = inputs[:2]
    if x is None or other is None or not isinstance(x.type, TensorType) or not isinstance(other.type, TensorType):
        return
    if x.dtype is other.dtype:
        return
    if op_type == "Pow":
        wide = _EXPONENTS.get(other.dtype, other.dtype)
        whole = other.dtype is DType.uint64 and x.dtype.is_integer
        inputs[1] = other.graph.build.cast(other, DType.int64 if whole else wide)
    else:
        inputs[0], inputs[1] = x.graph.build.cast(x, DType.float32), other.graph.build.cast(other, DType.float32)


_EXPONENTS = {
    **dict.fromkeys((DType.int8, DType.int16, DType.uint8, DType.uint16), DType.int32),
    **dict.fromkeys((DType.float16, DType.bfloat16), DType.float32),
    DType.uint32: DType.int64,
    DType.uint64: DType.float64,
}
"""The dtypes of exponents beside which the kernels of Pow take another base."""


def _roomy(dtype: DType) -> DType:
    """A float dtype that holds the limits of float8 and its rounding."""
    return dtype if dtype in (DType.float32, DType.float64) else DType.float32


# Operators that onnxruntime has in ONNX's own domain and ONNX has not, or has since a later opset.
#
# onnxruntime writes them into the models that it has optimised, whatever their opset.

_SAME: Mapping[str, tuple[str, int, int]] = {
    "LayerNormalization": ("LayerNormalization", 17, 3),
    "SimplifiedLayerNormalization": ("RMSNormalization", 23, 1),
}
"""By onnxruntime's operator: ONNX's that computes the same from the same operands and attributes, the opset that has
it, and how many results the two have in common."""


def standard(proto: onnx.NodeProto, version: int, place: object) -> tuple[onnx.NodeProto, int]:
    """Return ONNX's node for one that the opset does not have, and the opset that has it; what was given if none does.

    Raises `ModelError` for a result that ONNX's operator does not give.
    """
    found = _SAME.get(proto.op_type)
    if found is None:
        return proto, version
    name, opset, results = found
    if any(proto.output[results:]):
        raise ModelError(
            f"load: {place}: result {results} of it is used, which ONNX's {name} does not give",
            help="export the model for inference, or load it before onnxruntime optimises it",
        )
    made = onnx.NodeProto()
    made.CopyFrom(proto)
    made.op_type = name
    del made.output[results:]
    return made, opset
