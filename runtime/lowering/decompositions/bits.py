"""BitCast for dtypes without a kernel, CumProd, and other kernels that older releases do not have.

Shifted to the same exponent bias, the code of a float8 is the upper bits of the float32, also for subnormal numbers.
The payload of a NaN is lost.

For releases without BitCast, which is new in opset 26: the bits of a float are its exponent, from its logarithm with
one correction, and its fraction, from a division by that power of two, both in float64; a table of powers converts bits
to floats. All of it is exact. A NaN loses its sign and payload.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build import casts
from graphcore.runtime.lowering.build.builder import Builder, Decomposition, OpCall, Replacement
from graphcore.runtime.lowering.decompositions import older
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape

_F32, _U8, _U32 = DType.float32, DType.uint8, DType.uint32


class _Format(NamedTuple):
    """mantissa: its bits. bias: of the exponent. nan: the code of a NaN, to which the sign is added if `signed`."""

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


def bitcast(b: Builder, call: OpCall) -> Replacement:
    """Compute BitCast from and to the dtypes in `WITHOUT` by way of uint8."""
    (x,) = call.inputs
    target = call.types[0].dtype
    if x.dtype is target:
        return b.op("Identity", x)
    if x.dtype not in WITHOUT and target not in WITHOUT:
        return None
    code = _coded(b, x)
    return _decoded(b, code, target) if target in FORMATS else b.cast(code, target)


def nibble(b: Builder, call: OpCall) -> Replacement:
    """Compute BitCast between signed and unsigned integers of 2 or 4 bits by Cast, which wraps."""
    (x,) = call.inputs
    return b.op("Identity", x) if x.dtype is call.types[0].dtype else b.cast(x, call.types[0].dtype)


def needed(operand: TensorType, result: TensorType) -> bool:
    """Return True if a BitCast of 8-bit integers has no kernel."""
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
    if x.dtype is DType.float8_e5m2:  # scaling does not change infinity
        is_infinite = b.native("IsInf", wide, dtype=DType.bool)
        number = b.op("Where", is_infinite, b.scalar(0x7C, _U32), number, dtype=_U32)
    number = b.op("Where", unknown, b.scalar(form.nan, _U32), number, dtype=_U32)
    if x.dtype is not DType.float8_e8m0:
        sign = b.native("BitShift", bits, b.scalar(24, _U32), direction="RIGHT")
        sign = b.native("BitwiseAnd", sign, b.scalar(0x80, _U32))
        if not form.signed:
            sign = b.op("Where", unknown, b.scalar(0, _U32), sign, dtype=_U32)
        number = b.native("BitwiseOr", number, sign)
    return b.cast(number, _U8)


def _decoded(b: Builder, code: Symbol, target: DType) -> Symbol:
    """Return the floats of 8-bit codes, from a table of 256."""
    values = np.arange(256, dtype=np.uint8).view(target.numpy).astype(np.float32)
    table = b.constant(values, _F32)
    place = b.cast(code, DType.int32)
    result = b.op("Gather", table, place, dtype=_F32, shape=code.shape, axis=0)
    return b.native_cast(result, target)


# BitCast and CumProd for releases of onnxruntime before opset 26, and kernels that older ones lack or have wrong.

_F64, _I64, _BOOL = DType.float64, DType.int64, DType.bool


class _FloatFormat(NamedTuple):
    """fraction: its bits. least, greatest: the exponents of normal numbers. code: the unsigned integer of its width."""

    fraction: int
    least: int
    greatest: int
    code: DType


FORMATS_OF_FLOATS: dict[DType, _FloatFormat] = {
    DType.float16: _FloatFormat(10, -14, 15, DType.uint16),
    DType.bfloat16: _FloatFormat(7, -126, 127, DType.uint16),
    DType.float32: _FloatFormat(23, -126, 127, DType.uint32),
    DType.float64: _FloatFormat(52, -1022, 1023, DType.uint64),
}
_MULTIPLIED = tuple(map(DType.of, "int32 int64 uint32 uint64 float32 float64".split()))


class BitsViewed(GraphError):
    """The error for a BitCast of floats, which is slow without the operator that was to be avoided."""


LATE = frozenset({"BitCast", "CumProd", "TensorScatter"})
"""Operators that are new, and have no function body in ONNX."""


def rows_of_older() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for a runtime without these operators."""
    rows: dict[tuple[str, DType], Decomposition] = {
        ("BitCast", dtype): bitcast_by_arithmetic for dtype in (*older.INTEGERS, *FORMATS_OF_FLOATS)
    }
    rows.update({("CumProd", dtype): running_product for dtype in _MULTIPLIED})
    rows.update({("TensorScatter", dtype): older.tensor_scatter for dtype in older.STORED})
    return rows


def bitcast_by_arithmetic(b: Builder, call: OpCall) -> Replacement:
    """Compute BitCast of integers by Cast, which wraps; of floats by arithmetic."""
    (x,) = call.inputs
    target = call.types[0].dtype
    if x.dtype is target:
        return casts.barrier(b, x)
    if x.dtype not in FORMATS_OF_FLOATS and target not in (*FORMATS_OF_FLOATS, *WITHOUT):
        return b.native_cast(x, target)
    if target in WITHOUT:
        return bitcast(b, call)
    if "BitCast" in b.rules.runtime.avoided:
        raise BitsViewed("BitCast: reading the bits of floats is slow without this operator")
    if x.dtype in FORMATS_OF_FLOATS:
        code = _coded_float(b, x, FORMATS_OF_FLOATS[x.dtype])
        # A float becomes the float of the same width with these bits.
        return _decoded_float(b, code, target) if target in FORMATS_OF_FLOATS else b.native_cast(code, target)
    unsigned = FORMATS_OF_FLOATS[target].code
    code = x if unsigned is DType.uint64 or x.dtype is unsigned else b.native_cast(x, unsigned)
    return _decoded_float(b, b.native_cast(code, _I64), target)


def _coded_float(b: Builder, x: Symbol, form: _FloatFormat) -> Symbol:
    """Return the bits of floats as int64."""
    wide = x
    if x.dtype is not _F64:
        wide = b.native_cast(x if x.dtype is DType.float32 else b.native_cast(x, DType.float32), _F64)
    zero = b.scalar(0.0, _F64)
    unknown = b.native("IsNaN", wide, dtype=_BOOL)
    is_infinite = b.native("IsInf", wide, dtype=_BOOL)
    size = b.native("Abs", wide)
    size = b.native("Where", b.native("Or", unknown, is_infinite), b.scalar(1.0, _F64), size, dtype=_F64)
    least, greatest = form.least, form.greatest
    exponent = b.native("Mul", b.native("Log", size), b.scalar(1 / math.log(2), _F64))
    ends = b.scalar(float(least), _F64), b.scalar(float(greatest), _F64)
    exponent = b.native("Clip", b.native("Floor", exponent), *ends)
    place = b.native_cast(b.native("Sub", exponent, ends[0]), _I64)
    # The logarithm may be off by one either way near a power of two.
    powers = b.constant(np.ldexp(1.0, np.arange(least, greatest + 1)), _F64)
    below = b.native("Less", size, _lookup(b, powers, place), dtype=_BOOL)
    place = b.native("Sub", place, b.native_cast(below, _I64))
    place = b.native("Clip", place, b.scalar(0, _I64), b.scalar(greatest - least, _I64))
    following = b.constant(np.append(np.ldexp(1.0, np.arange(least + 1, greatest + 1)), np.inf), _F64)
    reached = b.native("GreaterOrEqual", size, _lookup(b, following, place), dtype=_BOOL)
    place = b.native("Add", place, b.native_cast(reached, _I64))
    inverse = b.constant(np.ldexp(1.0, -np.arange(least, greatest + 1)), _F64)
    scaled = b.native("Mul", size, _lookup(b, inverse, place))
    fraction = b.native_cast(b.native("Mul", scaled, b.scalar(2.0**form.fraction, _F64)), _I64)
    step = 1 << form.fraction
    # The implicit bit of a normal number increments the exponent, which starts from 0; a subnormal number has none.
    bits = b.native("Add", b.native("Mul", place, b.scalar(step, _I64)), fraction)
    top = (greatest - least + 2) * step
    bits = b.native("Where", is_infinite, b.scalar(top, _I64), bits, dtype=_I64)
    negative = b.native("Less", b.native("Reciprocal", wide), zero, dtype=_BOOL)
    negative = b.native("Or", b.native("Less", wide, zero, dtype=_BOOL), negative)
    sign = 1 << (form.code.bits - 1)
    mark = b.scalar(sign - (1 << 64) if form.code.bits == 64 else sign, _I64)
    bits = b.native("Where", negative, b.native("Add", bits, mark), bits, dtype=_I64)
    return b.native("Where", unknown, b.scalar(top + step // 2, _I64), bits, dtype=_I64)


def _decoded_float(b: Builder, code: Symbol, target: DType) -> Symbol:
    """Return the floats whose bits an int64 contains."""
    form = FORMATS_OF_FLOATS[target]
    step = 1 << form.fraction
    if form.code.bits == 64:
        negative = b.native("Less", code, b.scalar(0, _I64), dtype=_BOOL)
        size = b.native("BitwiseAnd", code, b.scalar((1 << 63) - 1, _I64))
    else:
        sign = b.scalar(1 << (form.code.bits - 1), _I64)
        negative = b.native("GreaterOrEqual", code, sign, dtype=_BOOL)
        size = b.native("Sub", code, b.native("Mul", b.native_cast(negative, _I64), sign))
    place = b.native("Div", size, b.scalar(step, _I64))
    fraction = b.native("Sub", size, b.native("Mul", place, b.scalar(step, _I64)))
    normal = b.native_cast(b.native("Greater", place, b.scalar(0, _I64), dtype=_BOOL), _I64)
    whole = b.native("Add", fraction, b.native("Mul", normal, b.scalar(step, _I64)))
    count = form.greatest - form.least + 3
    scales = np.ldexp(1.0, np.maximum(np.arange(count), 1) - 1 + form.least - form.fraction)
    scales[-1] = np.inf
    value = b.native("Mul", b.native_cast(whole, _F64), _lookup(b, b.constant(scales, _F64), place))
    some = b.native("Greater", size, b.scalar((count - 1) * step, _I64), dtype=_BOOL)
    value = b.native("Where", some, b.scalar(float("nan"), _F64), value, dtype=_F64)
    sign_of = b.native("Where", negative, b.scalar(-1.0, _F64), b.scalar(1.0, _F64), dtype=_F64)
    value = b.native("Mul", value, sign_of)
    if target is _F64:
        return value
    narrow = b.native_cast(value, DType.float32)
    return b.native_cast(narrow, target)


def _lookup(b: Builder, table: Symbol, place: Symbol) -> Symbol:
    return b.native("Gather", table, place, dtype=_F64, shape=place.shape, axis=0)


def running_product(b: Builder, call: OpCall) -> Replacement:
    """Compute CumProd by the scan of Hillis and Steele, at distances 1, 2, 4, ..., up to 2^30 for unknown sizes."""
    x, where = call.inputs
    array = b.array_of(where)
    if array is None:
        raise GraphError(
            "CumProd: the installed onnxruntime has no kernel, and the axis is not a constant",
            operands={"x": str(x.type), "axis": str(where.type)},
            help="pass the axis as a constant, or install a newer onnxruntime",
        )
    axis = int(array.reshape(())) % x.rank
    size = x.shape[axis]
    if call.attributes.get("reverse"):
        x = part(b, x, axis, -1, -(1 << 31), -1)
    if call.attributes.get("exclusive"):
        ones = b.op("Add", b.op("Sub", part(b, x, axis, 0, 1), part(b, x, axis, 0, 1)), b.scalar(1, x.dtype))
        x = concatenated(b, [ones, part(b, x, axis, 0, -1)], axis, size)
    step = 1
    while step < (int(size) if size.is_static else 1 << 31):
        product = b.op("Mul", part(b, x, axis, step, 1 << 31), part(b, x, axis, 0, -step))
        x = concatenated(b, [part(b, x, axis, 0, step), product], axis, size)
        step *= 2
    if call.attributes.get("reverse"):
        x = part(b, x, axis, -1, -(1 << 31), -1)
    return x if step > 1 else b.op("Identity", x)


def part(b: Builder, x: Symbol, axis: int, start: int, stop: int, step: int = 1) -> Symbol:
    """Return a slice along an axis."""
    dims = [Dim.dynamic() if a == axis and step > 0 else d for a, d in enumerate(x.shape)]
    return b.op("Slice", x, *(b.vector([n]) for n in (start, stop, axis, step)), shape=_shape(dims))


def concatenated(b: Builder, parts: list[Symbol], axis: int, size: Dim) -> Symbol:
    """Return parts in a row along an axis. size: of the result."""
    shape = _shape([size if a == axis else d for a, d in enumerate(parts[0].shape)])
    return b.op("Concat", *parts, shape=shape, axis=axis)


def keep_nan(b: Builder, call: OpCall) -> Replacement:
    """Compute Erf and Sign with NaN kept, for which kernels give 1 and 0."""
    (x,) = call.inputs
    unknown = b.native("IsNaN", x, dtype=_BOOL)
    return b.native("Where", unknown, x, b.native(call.op, x), dtype=x.dtype, shape=x.shape)
