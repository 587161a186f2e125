"""Casts without BitCast, for providers that have no kernel for it.

A float64 is rounded to fewer bits by adding a number so large that only the wanted bits are left, and taking it away
again: Dekker's trick, after "A floating-point technique for extending the available precision" (1971). Ties go to even
because the large number is an even multiple of the unit in the last place that is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

NIBBLES = frozenset({DType.int4, DType.uint4})
F32, F64 = DType.float32, DType.float64

FORMATS: dict[DType, tuple[int, int]] = {
    DType.tensor_float32: (11, -126),
    DType.float16: (11, -14),
    DType.bfloat16: (8, -126),
    DType.float8_e4m3fn: (4, -6),
    DType.float8_e5m2: (3, -14),
}
"""Bits of the significand, with the one that is not stored, and the exponent of the least normal number."""


def barrier(on: Legaliser, symbol: Symbol) -> Symbol:
    """The Symbol again, so that onnxruntime sees no Cast after a Cast: a Reshape to its own shape moves nothing."""
    if not symbol.shape.is_ranked:
        shape = on.native("Shape", symbol, dtype=DType.int64, shape=_shape([Dim.dynamic()]))
        return on.native("Reshape", symbol, shape, shape=symbol.shape, allowzero=1)
    return on.graph._emit("Reshape", (symbol, on.ints([0] * symbol.rank)), symbol.type)


def rounded(on: Legaliser, x: Symbol, dtype: DType) -> Symbol:
    """float64 values rounded once to those of a narrower float, ties to even; beyond its range they stay large.

    The sign of what rounds to zero is kept.
    """
    # No more than 24 bits, so that the sum with it does not reach the next power of two.
    near = on.casts.plain(on.casts.plain(x, F32), F64)
    return with_sign_of_zero(on, _cut(on, x, near, dtype), x)


def rounded_tf32(on: Legaliser, x: Symbol) -> Symbol:
    """float32 values rounded to 10 mantissa bits."""
    wide = on.casts.plain(x, F64)
    return with_sign_of_zero(on, on.casts.plain(_cut(on, wide, wide, DType.tensor_float32), F32), x)


def _cut(on: Legaliser, x: Symbol, near: Symbol, dtype: DType) -> Symbol:
    digits, least = FORMATS[dtype]
    shift = 53 - digits
    large = on.native("Mul", on.native("Abs", near), on.const(2.0**shift, F64))
    bounds = on.const(1.5 * 2.0 ** (least + shift), F64), on.const(2.0 ** (129 + shift), F64)
    large = on.native("Clip", large, *bounds)
    return on.native("Sub", on.native("Add", x, large), large)


def with_sign_of_zero(on: Legaliser, made: Symbol, x: Symbol) -> Symbol:
    """`made`, its zeros with the signs of `x`, which is finite there."""
    zero = on.const(0.0, made.dtype)
    nothing = on.native("Equal", made, zero, dtype=DType.bool)
    return on.op("Where", nothing, on.native("Mul", x, zero), made, dtype=made.dtype, shape=made.shape)


def nibble(on: Legaliser, symbol: Symbol, target: DType) -> Symbol:
    """A cast from or to int4 or uint4, by way of float32: quantisation has kernels for them where Cast has none."""
    one = on.const(1.0, F32)
    if symbol.dtype in NIBBLES:
        wide = on.native("DequantizeLinear", symbol, one, dtype=F32, shape=symbol.shape)
        return on.casts.plain(wide, target)
    whole = on.casts.plain(symbol, DType.int32)
    sixteen, half = on.const(16, DType.int32), on.const(8, DType.int32)
    if target is DType.int4:
        whole = on.native("Sub", on.native("Mod", on.native("Add", whole, half), sixteen), half)
    else:
        whole = on.native("Mod", whole, sixteen)
    exact = on.casts.plain(whole, F32)
    return on.native("QuantizeLinear", exact, one, on.const(0, target), dtype=target, shape=symbol.shape)
