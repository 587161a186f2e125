"""BitCast between 8-bit integers and what has no kernel for it: bool and float8.

The codes of a float8 are what float32 has in its upper bits, once the exponent is shifted to the same bias: numbers
below the normal ones line up too. A NaN's payload is not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

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
"""What BitCast has no kernel for."""
BYTES = (DType.int8, DType.uint8)


def bitcast(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """BitCast from and to what `WITHOUT` has, by way of uint8."""
    (x,) = inputs
    target = types[0].dtype
    if x.dtype is target:
        return on.op("Identity", x)
    if x.dtype not in WITHOUT and target not in WITHOUT:
        return None
    code = _coded(on, x)
    if target is DType.bool:
        return on.casts.cast(code, _U8, target)
    return _decoded(on, code, target) if target in FORMATS else on.casts.cast(code, _U8, target)


def nibble(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """BitCast between signed and unsigned integers of 2 or 4 bits: casts wrap."""
    (x,) = inputs
    return on.op("Identity", x) if x.dtype is types[0].dtype else on.casts.cast(x, x.dtype, types[0].dtype)


def needed(operand: TensorType, result: TensorType) -> bool:
    """Whether a BitCast of 8-bit integers has no kernel."""
    return operand.dtype is result.dtype or result.dtype in WITHOUT


def _coded(on: Legaliser, x: Symbol) -> Symbol:
    form = FORMATS.get(x.dtype)
    if form is None:
        return on.casts.cast(x, x.dtype, _U8)
    wide = on.casts.plain(x, _F32)
    bits = on.native("BitCast", wide, dtype=_U32, to=_U32)
    unknown = on.native("IsNaN", wide, dtype=DType.bool)
    scaled = wide
    if form.bias != 127:
        scaled = on.native("Mul", on.native("Abs", wide), on.const(2.0 ** (form.bias - 127), _F32))
    number = on.native("BitCast", scaled, dtype=_U32, to=_U32)
    number = on.native("BitShift", number, on.const(23 - form.mantissa, _U32), direction="RIGHT")
    if x.dtype is DType.float8_e5m2:  # infinity has no exponent that a factor shifts
        endless = on.native("IsInf", wide, dtype=DType.bool)
        number = on.op("Where", endless, on.const(0x7C, _U32), number, dtype=_U32)
    number = on.op("Where", unknown, on.const(form.nan, _U32), number, dtype=_U32)
    if x.dtype is not DType.float8_e8m0:
        sign = on.native("BitwiseAnd", on.native("BitShift", bits, on.const(24, _U32), direction="RIGHT"), _top(on))
        if not form.signed:
            sign = on.op("Where", unknown, on.const(0, _U32), sign, dtype=_U32)
        number = on.native("BitwiseOr", number, sign)
    return on.casts.cast(number, _U32, _U8)


def _top(on: Legaliser) -> Symbol:
    return on.const(0x80, _U32)


def _decoded(on: Legaliser, code: Symbol, target: DType) -> Symbol:
    """By a table: the codes are few."""
    values = np.arange(256, dtype=np.uint8).view(target.numpy).astype(np.float32)
    table = on.graph._constant(values, _F32)
    place = on.casts.cast(code, _U8, DType.int32)
    made = on.op("Gather", table, place, dtype=_F32, shape=code.shape, axis=0)
    return on.casts.plain(made, target)
