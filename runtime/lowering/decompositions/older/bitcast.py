"""What older releases of onnxruntime have no operator or no kernel for: BitCast and CumProd, which came with opset 26,
and some kernels.

The bits of a float are its exponent, found by its logarithm and mended by one comparison, and its fraction, by division
through that power of two, both in float64; bits make a float by a table of powers. All of it is exact. A NaN loses its
sign and payload.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build import casts_without_bitcast
from graphcore.runtime.lowering.decompositions import bits
from graphcore.runtime.lowering.decompositions.cuda.products import norm
from graphcore.runtime.lowering.decompositions.older import kernels
from graphcore.runtime.lowering.decompositions.signature import Detour, Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_F64, _I64, _BOOL = DType.float64, DType.int64, DType.bool


class _Format(NamedTuple):
    """fraction: its bits. least, greatest: the exponents of normal numbers. code: the unsigned integer of its width."""

    fraction: int
    least: int
    greatest: int
    code: DType


FORMATS: dict[DType, _Format] = {
    DType.float16: _Format(10, -14, 15, DType.uint16),
    DType.bfloat16: _Format(7, -126, 127, DType.uint16),
    DType.float32: _Format(23, -126, 127, DType.uint32),
    DType.float64: _Format(52, -1022, 1023, DType.uint64),
}
_INTEGERS = tuple(map(DType.of, "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()))
_MULTIPLIED = tuple(map(DType.of, "int32 int64 uint32 uint64 float32 float64".split()))


class BitsViewed(GraphError):
    """The bits of floats are looked at, which takes long without the operator that was to be avoided."""


LATE = frozenset({"BitCast", "CumProd", "TensorScatter"})
"""Operators that came late, and have no function body in ONNX."""


def rows() -> dict[tuple[str, DType], Detour]:
    """The rows for a runtime without these operators."""
    made: dict[tuple[str, DType], Detour] = {("BitCast", dtype): bitcast for dtype in (*_INTEGERS, *FORMATS)}
    made.update({("CumProd", dtype): running_product for dtype in _MULTIPLIED})
    made.update({("LpNormalization", dtype): norm for dtype in (DType.float32, _F64)})
    made.update({("TensorScatter", dtype): kernels.written for dtype in kernels.STORED})
    made["Cos", _F64] = cosine
    return made


def traps() -> dict[tuple[str, DType], Detour]:
    """The rows for kernels that are wrong in older releases."""
    return {("Erf", DType.float32): error_function, ("AveragePool", DType.float32): kernels.average}


def bitcast(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """BitCast of integers is a cast, which wraps; of floats, arithmetic."""
    (x,) = inputs
    target = types[0].dtype
    if x.dtype is target:
        return casts_without_bitcast.barrier(on, x)
    if x.dtype not in FORMATS and target not in (*FORMATS, *bits.WITHOUT):
        return on.casts.plain(x, target)
    if target in bits.WITHOUT:
        return bits.bitcast(on, op, inputs, types, attributes)
    if "BitCast" in on.rules.runtime.avoided:
        raise BitsViewed("BitCast: the bits of floats are looked at")
    if x.dtype in FORMATS:
        code = _coded(on, x, FORMATS[x.dtype])
        # Two floats of one width have each other's bits.
        return _decoded(on, code, target) if target in FORMATS else on.casts.plain(code, target)
    unsigned = FORMATS[target].code
    code = x if unsigned is DType.uint64 or x.dtype is unsigned else on.casts.plain(x, unsigned)
    return _decoded(on, on.casts.plain(code, _I64), target)


def _coded(on: Legaliser, x: Symbol, form: _Format) -> Symbol:
    """The bits of floats as int64."""
    wide = x
    if x.dtype is not _F64:
        wide = on.casts.plain(x if x.dtype is DType.float32 else on.casts.plain(x, DType.float32), _F64)
    zero = on.const(0.0, _F64)
    unknown = on.native("IsNaN", wide, dtype=_BOOL)
    endless = on.native("IsInf", wide, dtype=_BOOL)
    size = on.native("Abs", wide)
    size = on.native("Where", on.native("Or", unknown, endless), on.const(1.0, _F64), size, dtype=_F64)
    least, greatest = form.least, form.greatest
    exponent = on.native("Mul", on.native("Log", size), on.const(1 / math.log(2), _F64))
    exponent = on.native("Clip", on.native("Floor", exponent), on.const(float(least), _F64), _last(on, greatest))
    place = on.casts.plain(on.native("Sub", exponent, on.const(float(least), _F64)), _I64)
    # The logarithm may be off by one either way near a power of two.
    powers = on.graph._constant(np.ldexp(1.0, np.arange(least, greatest + 1)), _F64)
    below = on.native("Less", size, _chosen(on, powers, place), dtype=_BOOL)
    place = on.native("Sub", place, on.casts.plain(below, _I64))
    place = on.native("Clip", place, on.const(0, _I64), on.const(greatest - least, _I64))
    following = on.graph._constant(np.append(np.ldexp(1.0, np.arange(least + 1, greatest + 1)), np.inf), _F64)
    reached = on.native("GreaterOrEqual", size, _chosen(on, following, place), dtype=_BOOL)
    place = on.native("Add", place, on.casts.plain(reached, _I64))
    inverse = on.graph._constant(np.ldexp(1.0, -np.arange(least, greatest + 1)), _F64)
    scaled = on.native("Mul", size, _chosen(on, inverse, place))
    fraction = on.casts.plain(on.native("Mul", scaled, on.const(2.0**form.fraction, _F64)), _I64)
    step = 1 << form.fraction
    # The first bit of a normal number's fraction counts the exponent up from 0, which a subnormal one keeps.
    made = on.native("Add", on.native("Mul", place, on.const(step, _I64)), fraction)
    top = (greatest - least + 2) * step
    made = on.native("Where", endless, on.const(top, _I64), made, dtype=_I64)
    negative = on.native("Less", on.native("Reciprocal", wide), zero, dtype=_BOOL)
    negative = on.native("Or", on.native("Less", wide, zero, dtype=_BOOL), negative)
    sign = 1 << (form.code.bits - 1)
    mark = on.const(sign - (1 << 64) if form.code.bits == 64 else sign, _I64)
    made = on.native("Where", negative, on.native("Add", made, mark), made, dtype=_I64)
    return on.native("Where", unknown, on.const(top + step // 2, _I64), made, dtype=_I64)


def _decoded(on: Legaliser, code: Symbol, target: DType) -> Symbol:
    """Floats of the bits that an int64 holds."""
    form = FORMATS[target]
    step = 1 << form.fraction
    if form.code.bits == 64:
        negative = on.native("Less", code, on.const(0, _I64), dtype=_BOOL)
        size = on.native("BitwiseAnd", code, on.const((1 << 63) - 1, _I64))
    else:
        sign = on.const(1 << (form.code.bits - 1), _I64)
        negative = on.native("GreaterOrEqual", code, sign, dtype=_BOOL)
        size = on.native("Sub", code, on.native("Mul", on.casts.plain(negative, _I64), sign))
    place = on.native("Div", size, on.const(step, _I64))
    fraction = on.native("Sub", size, on.native("Mul", place, on.const(step, _I64)))
    normal = on.casts.plain(on.native("Greater", place, on.const(0, _I64), dtype=_BOOL), _I64)
    whole = on.native("Add", fraction, on.native("Mul", normal, on.const(step, _I64)))
    count = form.greatest - form.least + 3
    scales = np.ldexp(1.0, np.maximum(np.arange(count), 1) - 1 + form.least - form.fraction)
    scales[-1] = np.inf
    made = on.native("Mul", on.casts.plain(whole, _F64), _chosen(on, on.graph._constant(scales, _F64), place))
    some = on.native("Greater", size, on.const((count - 1) * step, _I64), dtype=_BOOL)
    made = on.native("Where", some, on.const(float("nan"), _F64), made, dtype=_F64)
    sign_of = on.native("Where", negative, on.const(-1.0, _F64), on.const(1.0, _F64), dtype=_F64)
    made = on.native("Mul", made, sign_of)
    if target is _F64:
        return made
    narrow = on.casts.plain(made, DType.float32)
    return on.casts.plain(narrow, target)


def _last(on: Legaliser, greatest: int) -> Symbol:
    return on.const(float(greatest), _F64)


def _chosen(on: Legaliser, table: Symbol, place: Symbol) -> Symbol:
    return on.native("Gather", table, place, dtype=_F64, shape=place.shape, axis=0)


def running_product(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """CumProd by Hillis and Steele's scan: each times the one 1, 2, 4, ... before it, up to 2^30 for unknown sizes."""
    x, where = inputs
    known = on.known(where)
    if known is None:
        raise GraphError(
            "CumProd: the installed onnxruntime has no kernel, and its axis is known only when it runs",
            operands={"x": str(x.type), "axis": str(where.type)},
            help="give the axis as a constant, or install a newer onnxruntime",
        )
    axis = int(known.reshape(())) % x.rank
    size = x.shape[axis]
    if attributes.get("reverse"):
        x = _part(on, x, axis, -1, -(1 << 31), -1)
    if attributes.get("exclusive"):
        ones = on.op("Add", on.op("Sub", _part(on, x, axis, 0, 1), _part(on, x, axis, 0, 1)), on.const(1, x.dtype))
        x = _joined(on, [ones, _part(on, x, axis, 0, -1)], axis, size)
    step = 1
    while step < (int(size) if size.is_static else 1 << 31):
        product = on.op("Mul", _part(on, x, axis, step, 1 << 31), _part(on, x, axis, 0, -step))
        x = _joined(on, [_part(on, x, axis, 0, step), product], axis, size)
        step *= 2
    if attributes.get("reverse"):
        x = _part(on, x, axis, -1, -(1 << 31), -1)
    return x if step > 1 else on.op("Identity", x)


def _part(on: Legaliser, x: Symbol, axis: int, start: int, stop: int, step: int = 1) -> Symbol:
    dims = [Dim.dynamic() if a == axis and step > 0 else d for a, d in enumerate(x.shape)]
    return on.op("Slice", x, *(on.ints([n]) for n in (start, stop, axis, step)), shape=_shape(dims))


def _joined(on: Legaliser, parts: list[Symbol], axis: int, size: Dim) -> Symbol:
    shape = _shape([size if a == axis else d for a, d in enumerate(parts[0].shape)])
    return on.op("Concat", *parts, shape=shape, axis=axis)


def cosine(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Of float64: 1 - 2 sin(x / 2)^2, and half of a number is exact."""
    (x,) = inputs
    half = on.native("Sin", on.native("Mul", x, on.const(0.5, _F64)))
    return on.native("Sub", on.const(1.0, _F64), on.native("Mul", on.native("Add", half, half), half))


def error_function(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel gives 1 for NaN."""
    (x,) = inputs
    unknown = on.native("IsNaN", x, dtype=_BOOL)
    return on.native("Where", unknown, x, on.native(op, x), dtype=x.dtype, shape=x.shape)


__all__ = ["LATE", "BitsViewed", "bitcast", "rows", "running_product", "traps"]
