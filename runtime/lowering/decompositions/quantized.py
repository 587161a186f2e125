"""Quantisation and products of quantised numbers where the kernels take fewer dtypes than ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

_F32, _I32 = DType.float32, DType.int32

NARROW_SCALES = "DequantizeLinear of narrow scales"
"""The trap that the types of an operand and a result do not tell of."""


def quantize(b: Builder, call: Call) -> Replacement:
    """Compute QuantizeLinear of operands of several dtypes in float32."""
    x, scale, *zero = call.inputs
    if x.dtype is scale.dtype and x.dtype.is_float:
        return None
    wide = (b.cast(x, _F32), b.cast(scale, _F32), *zero)
    kept = {key: value for key, value in call.attributes.items() if key != "precision"}
    return b.op(call.op, *wide, dtype=call.types[0].dtype, shape=call.shape, **kept)


def dequantize(b: Builder, call: Call) -> Replacement:
    """Compute DequantizeLinear to bfloat16, or to another float than the scale's, in float32, and round once."""
    x, scale, *zero = call.inputs
    wanted = call.types[0].dtype
    if scale.dtype is wanted and wanted is not DType.bfloat16:
        return None
    kept = {key: value for key, value in call.attributes.items() if key != "output_dtype"}
    wide = b.cast(scale, _F32)
    made = b.op(call.op, x, wide, *zero, dtype=_F32, shape=call.shape, **kept)
    return b.cast(made, wanted)


def becomes_other(operand: TensorType, result: TensorType) -> bool:
    """Return whether a DequantizeLinear may be one that no kernel takes."""
    return result.dtype is not _F32


def product(b: Builder, call: Call) -> Replacement:
    """Compute QLinearMatMul of float8: the product of the dequantised numbers, quantised again."""
    left, left_scale, left_zero, right, right_scale, right_zero, y_scale, y_zero = call.inputs
    factors = []
    for x, scale, zero, is_left in ((left, left_scale, left_zero, True), (right, right_scale, right_zero, False)):
        wide = b.cast(x, _F32)
        if not _is_zero(b, zero):
            wide = b.op("Sub", wide, _beside(b, b.cast(zero, _F32), is_left))
        factors.append(b.op("Mul", wide, _beside(b, b.cast(scale, _F32), is_left)))
    made = b.op("MatMul", *factors, shape=call.shape)
    scaled = b.op("Div", made, _beside(b, b.cast(y_scale, _F32), True))
    if not _is_zero(b, y_zero):
        scaled = b.op("Add", scaled, _beside(b, b.cast(y_zero, _F32), True))
    return b.op("QuantizeLinear", scaled, b.scalar(1.0, _F32), b.scalar(0.0, y_zero.dtype), dtype=call.types[0].dtype)


def _is_zero(b: Builder, point: Symbol) -> bool:
    """Return whether a zero point is known to be 0, as it is where floats are meant."""
    array = b.known(point)
    return array is not None and not array.astype(np.float32).any()


def _beside(b: Builder, scale: Symbol, is_left: bool) -> Symbol:
    """Return scales of the rows of a left factor as a column; those of the columns of a right one broadcast already."""
    if scale.rank != 1 or scale.shape[0] == 1 or not is_left:
        return scale
    return b.op("Unsqueeze", scale, b.vector([-1]), shape=_shape([scale.shape[0], Dim(1)]))


def convolve(b: Builder, call: Call) -> Replacement:
    """Compute ConvInteger with a zero point for each filter, which the kernel lacks, by Conv of int32."""
    x, filters, *zeros = call.inputs
    x_zero, zero = (*zeros, None, None)[:2]
    if zero is None or not zero.rank or zero.shape[0] == 1:
        return None
    column = b.op("Reshape", zero, b.vector([-1] + [1] * (filters.rank - 1)), shape=_column(zero, filters))
    centred = b.op("Sub", b.cast(filters, _I32), b.cast(column, _I32))
    wide = b.cast(x, _I32)
    if x_zero is not None:
        point = b.op("Reshape", x_zero, b.vector([1] * x.rank), shape=_shape([Dim(1)] * x.rank))
        wide = b.op("Sub", wide, b.cast(point, _I32), shape=x.shape)
    return b.op("Conv", wide, centred, dtype=_I32, shape=call.shape, **call.attributes)


def _column(zero: Symbol, filters: Symbol) -> Any:
    return _shape([zero.shape[0], *[Dim(1)] * (filters.rank - 1)])
