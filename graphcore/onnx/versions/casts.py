"""ONNX's Cast by the library's, where the two differ beyond a dtype's range.

The library saturates integers and lets float8 overflow; ONNX wraps where it casts floats to 2 or 4 bits, and saturates
float8 unless it is told not to (https://onnx.ai/onnx/operators/onnx__Cast.html).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from graphcore.errors import ModelError
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

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
