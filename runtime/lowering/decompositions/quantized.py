"""Quantisation and products of quantised numbers where the kernels take fewer dtypes than ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_F32, _I32 = DType.float32, DType.int32

NARROW_SCALES = "DequantizeLinear of narrow scales"
"""The trap that the types of an operand and a result do not tell of."""


def quantize(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """QuantizeLinear of operands of several dtypes: in float32."""
    x, scale, *zero = inputs
    if x.dtype is scale.dtype and x.dtype.is_float:
        return None
    wide = (on.casts.cast(x, x.dtype, _F32), on.casts.cast(scale, scale.dtype, _F32), *zero)
    kept = {key: value for key, value in attributes.items() if key != "precision"}
    return on.op(op, *wide, dtype=types[0].dtype, shape=types[0].shape, **kept)


def dequantize(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """DequantizeLinear to bfloat16, or to another float than the scale's: in float32, rounded once."""
    x, scale, *zero = inputs
    wanted = types[0].dtype
    if scale.dtype is wanted and wanted is not DType.bfloat16:
        return None
    kept = {key: value for key, value in attributes.items() if key != "output_dtype"}
    wide = on.casts.cast(scale, scale.dtype, _F32)
    made = on.op(op, x, wide, *zero, dtype=_F32, shape=types[0].shape, **kept)
    return on.casts.cast(made, _F32, wanted)


def becomes_other(operand: TensorType, result: TensorType) -> bool:
    """Whether a DequantizeLinear may be one that no kernel takes."""
    return result.dtype is not _F32


def product(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """QLinearMatMul of float8: the product of the numbers that are meant, quantised again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    factors = []
    for x, scale, zero, is_left in ((a, a_scale, a_zero, True), (b, b_scale, b_zero, False)):
        wide = on.casts.cast(x, x.dtype, _F32)
        if not _is_zero(on, zero):
            wide = on.op("Sub", wide, _beside(on, on.casts.cast(zero, zero.dtype, _F32), is_left))
        factors.append(on.op("Mul", wide, _beside(on, on.casts.cast(scale, scale.dtype, _F32), is_left)))
    made = on.op("MatMul", *factors, shape=types[0].shape)
    scaled = on.op("Div", made, _beside(on, on.casts.cast(y_scale, y_scale.dtype, _F32), True))
    if not _is_zero(on, y_zero):
        scaled = on.op("Add", scaled, _beside(on, on.casts.cast(y_zero, y_zero.dtype, _F32), True))
    return on.op("QuantizeLinear", scaled, on.const(1.0, _F32), on.const(0.0, y_zero.dtype), dtype=types[0].dtype)


def _is_zero(on: Legaliser, point: Symbol) -> bool:
    """Whether a zero point is known to be 0, as it is where floats are meant."""
    array = on.known(point)
    return array is not None and not array.astype(np.float32).any()


def _beside(on: Legaliser, scale: Symbol, is_left: bool) -> Symbol:
    """Scales of the rows of a left factor as a column; of the columns of a right one they broadcast already."""
    if scale.rank != 1 or scale.shape[0] == 1 or not is_left:
        return scale
    return on.op("Unsqueeze", scale, on.ints([-1]), shape=_shape([scale.shape[0], Dim(1)]))


def convolve(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ConvInteger with a zero point for each filter, which the kernel has not: of int32, the zero points taken off."""
    x, filters, *zeros = inputs
    x_zero, zero = (*zeros, None, None)[:2]
    if zero is None or not zero.rank or zero.shape[0] == 1:
        return None
    column = on.op("Reshape", zero, on.ints([-1] + [1] * (filters.rank - 1)), shape=_column(zero, filters))
    centred = on.op("Sub", on.casts.cast(filters, filters.dtype, _I32), on.casts.cast(column, column.dtype, _I32))
    wide = on.casts.cast(x, x.dtype, _I32)
    if x_zero is not None:
        point = on.op("Reshape", x_zero, on.ints([1] * x.rank), shape=_shape([Dim(1)] * x.rank))
        wide = on.op("Sub", wide, on.casts.cast(point, point.dtype, _I32), shape=x.shape)
    return on.op("Conv", wide, centred, dtype=_I32, shape=types[0].shape, **attributes)


def _column(zero: Symbol, filters: Symbol) -> Any:
    return _shape([zero.shape[0], *[Dim(1)] * (filters.rank - 1)])
