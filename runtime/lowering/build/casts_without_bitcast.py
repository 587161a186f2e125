"""Casts without BitCast, for providers that have no kernel for it.

A float64 is rounded to fewer bits by adding a number so large that only the wanted bits are left, and taking it away
again: Dekker's trick, after "A floating-point technique for extending the available precision" (1971). Ties go to even
because the large number is an even multiple of the unit in the last place that is kept.
"""

from __future__ import annotations

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

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


def barrier(b: Builder, symbol: Symbol) -> Symbol:
    """The Symbol again, so that onnxruntime sees no Cast after a Cast: a Reshape to its own shape moves nothing."""
    if not symbol.shape.is_ranked:
        shape = b.native("Shape", symbol, dtype=DType.int64, shape=_shape([Dim.dynamic()]))
        return b.native("Reshape", symbol, shape, shape=symbol.shape, allowzero=1)
    return b.emit("Reshape", (symbol, b.vector([0] * symbol.rank)), symbol.type)


def rounded(b: Builder, x: Symbol, dtype: DType) -> Symbol:
    """float64 values rounded once to those of a narrower float, ties to even; beyond its range they stay large.

    The sign of what rounds to zero is kept.
    """
    # No more than 24 bits, so that the sum with it does not reach the next power of two.
    near = b.native_cast(b.native_cast(x, F32), F64)
    return with_sign_of_zero(b, _cut(b, x, near, dtype), x)


def rounded_tf32(b: Builder, x: Symbol) -> Symbol:
    """float32 values rounded to 10 mantissa bits."""
    wide = b.native_cast(x, F64)
    return with_sign_of_zero(b, b.native_cast(_cut(b, wide, wide, DType.tensor_float32), F32), x)


def _cut(b: Builder, x: Symbol, near: Symbol, dtype: DType) -> Symbol:
    digits, least = FORMATS[dtype]
    shift = 53 - digits
    large = b.native("Mul", b.native("Abs", near), b.scalar(2.0**shift, F64))
    bounds = b.scalar(1.5 * 2.0 ** (least + shift), F64), b.scalar(2.0 ** (129 + shift), F64)
    large = b.native("Clip", large, *bounds)
    return b.native("Sub", b.native("Add", x, large), large)


def with_sign_of_zero(b: Builder, made: Symbol, x: Symbol) -> Symbol:
    """`made`, its zeros with the signs of `x`, which is finite there."""
    zero = b.scalar(0.0, made.dtype)
    nothing = b.native("Equal", made, zero, dtype=DType.bool)
    return b.op("Where", nothing, b.native("Mul", x, zero), made, dtype=made.dtype, shape=made.shape)


def nibble(b: Builder, symbol: Symbol, target: DType) -> Symbol:
    """A cast from or to int4 or uint4, by way of float32: quantisation has kernels for them where Cast has none."""
    one = b.scalar(1.0, F32)
    if symbol.dtype in NIBBLES:
        wide = b.native("DequantizeLinear", symbol, one, dtype=F32, shape=symbol.shape)
        return b.native_cast(wide, target)
    whole = b.native_cast(symbol, DType.int32)
    sixteen, half = b.scalar(16, DType.int32), b.scalar(8, DType.int32)
    if target is DType.int4:
        whole = b.native("Sub", b.native("Mod", b.native("Add", whole, half), sixteen), half)
    else:
        whole = b.native("Mod", whole, sixteen)
    exact = b.native_cast(whole, F32)
    return b.native("QuantizeLinear", exact, one, b.scalar(0, target), dtype=target, shape=symbol.shape)
