"""BitCast between 8-bit integers and the dtypes without a kernel for it: bool and float8.

The codes of a float8 are what float32 has in its upper bits, once the exponent is shifted to the same bias: numbers
below the normal ones line up too. A NaN's payload is not kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call, Replacement
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

_F32, _U8, _U32 = DType.float32, DType.uint8, DType.uint32


class _Format(NamedTuple):
    """mantissa: its bits. bias: of the exponent. nan: the code of a NaN, to which the sign is added where `signed`."""

    mantissa: int
    bias: int
    nan: int
    signed: bool = True


FORMATS: dict[DType, _Format] = {
    DType.float8_e4m3fn: _Format(3, 7, 0x7F),
    DType.float8_e5m2: _Format(2, 15, 0x7F),
    DType.float8_e4m3fnuz: _Format(3, 8, 0x80, signed=False),
    DType.float8_e5m2fnuz: _Format(2, 16, 0x80, signed=False),
    DType.float8_e8m0: _Format(0, 127, 0xFF, signed=False),
}
WITHOUT = frozenset({DType.bool, *FORMATS})
"""Dtypes that BitCast has no kernel for."""
BYTES = (DType.int8, DType.uint8)


def bitcast(b: Builder, call: Call) -> Replacement:
    """Compute BitCast from and to the dtypes in `WITHOUT` by way of uint8."""
    (x,) = call.inputs
    target = call.types[0].dtype
    if x.dtype is target:
        return b.op("Identity", x)
    if x.dtype not in WITHOUT and target not in WITHOUT:
        return None
    code = _coded(b, x)
    if target is DType.bool:
        return b.cast(code, target)
    return _decoded(b, code, target) if target in FORMATS else b.cast(code, target)


def nibble(b: Builder, call: Call) -> Replacement:
    """Compute BitCast between signed and unsigned integers of 2 or 4 bits by Cast, which wraps."""
    (x,) = call.inputs
    return b.op("Identity", x) if x.dtype is call.types[0].dtype else b.cast(x, call.types[0].dtype)


def needed(operand: TensorType, result: TensorType) -> bool:
    """Return whether a BitCast of 8-bit integers has no kernel."""
    return operand.dtype is result.dtype or result.dtype in WITHOUT


def _coded(b: Builder, x: Symbol) -> Symbol:
    form = FORMATS.get(x.dtype)
    if form is None:
        return b.cast(x, _U8)
    wide = b.native_cast(x, _F32)
    bits = b.native("BitCast", wide, dtype=_U32, to=_U32)
    unknown = b.native("IsNaN", wide, dtype=DType.bool)
    scaled = wide
    if form.bias != 127:
        scaled = b.native("Mul", b.native("Abs", wide), b.scalar(2.0 ** (form.bias - 127), _F32))
    number = b.native("BitCast", scaled, dtype=_U32, to=_U32)
    number = b.native("BitShift", number, b.scalar(23 - form.mantissa, _U32), direction="RIGHT")
    if x.dtype is DType.float8_e5m2:  # infinity has no exponent that a factor shifts
        endless = b.native("IsInf", wide, dtype=DType.bool)
        number = b.op("Where", endless, b.scalar(0x7C, _U32), number, dtype=_U32)
    number = b.op("Where", unknown, b.scalar(form.nan, _U32), number, dtype=_U32)
    if x.dtype is not DType.float8_e8m0:
        sign = b.native("BitwiseAnd", b.native("BitShift", bits, b.scalar(24, _U32), direction="RIGHT"), _top(b))
        if not form.signed:
            sign = b.op("Where", unknown, b.scalar(0, _U32), sign, dtype=_U32)
        number = b.native("BitwiseOr", number, sign)
    return b.cast(number, _U8)


def _top(b: Builder) -> Symbol:
    return b.scalar(0x80, _U32)


def _decoded(b: Builder, code: Symbol, target: DType) -> Symbol:
    """Return the floats of 8-bit codes by a table: there are only 256."""
    values = np.arange(256, dtype=np.uint8).view(target.numpy).astype(np.float32)
    table = b.constant(values, _F32)
    place = b.cast(code, DType.int32)
    made = b.op("Gather", table, place, dtype=_F32, shape=code.shape, axis=0)
    return b.native_cast(made, target)
