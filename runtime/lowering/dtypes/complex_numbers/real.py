"""Single operators on real Symbols, by short names: what the formulas of complex functions are written with."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

PI = 3.141592653589793
LN_2 = 0.6931471805599453


def number(like: Symbol, value: float) -> Symbol:
    """Return a scalar constant of the dtype of `like`."""
    return e.const(like, value)


def add(x: Symbol, y: Symbol) -> Symbol:
    return e.emit("Add", x, y)


def sub(x: Symbol, y: Symbol) -> Symbol:
    return e.emit("Sub", x, y)


def mul(x: Symbol, y: Symbol) -> Symbol:
    return e.emit("Mul", x, y)


def times(x: Symbol, value: float) -> Symbol:
    return mul(x, number(x, value))


def plus(x: Symbol, value: float) -> Symbol:
    return add(x, number(x, value))


def div(x: Symbol, y: Symbol) -> Symbol:
    return e.emit("Div", x, y)


def neg(x: Symbol) -> Symbol:
    return e.emit("Neg", x)


def magnitude(x: Symbol) -> Symbol:
    return e.emit("Abs", x)


def sqrt(x: Symbol) -> Symbol:
    return e.emit("Sqrt", x)


def exp(x: Symbol) -> Symbol:
    return e.emit("Exp", x)


def log(x: Symbol) -> Symbol:
    return e.emit("Log", x)


def log1p(x: Symbol) -> Symbol:
    return _own("Log1p", x)


def expm1(x: Symbol) -> Symbol:
    return _own("Expm1", x)


def sin(x: Symbol) -> Symbol:
    """Return the sine; NaN of what is not finite, whatever the kernel makes of it."""
    return e.emit("Sin", _finite(x))


def cos(x: Symbol) -> Symbol:
    return e.emit("Cos", _finite(x))


def _finite(x: Symbol) -> Symbol:
    return e.where(is_finite(x), x, number(x, float("nan")))


def atan2(y: Symbol, x: Symbol) -> Symbol:
    return x.graph.build.emit("Atan2", (y, x), tensor_type(x.dtype, e._joint([y.shape, x.shape])), {}, LIBRARY)


def _own(op_type: str, x: Symbol) -> Symbol:
    """One of the library's own operators of one operand, which is expanded later."""
    return x.graph.build.emit(op_type, (x,), x.type, {}, LIBRARY)


def greater_of(x: Symbol, y: Symbol) -> Symbol:
    return e.emit("Max", x, y)


def clip(x: Symbol, least: float, greatest: float) -> Symbol:
    return e.emit("Clip", x, number(x, least), number(x, greatest))


def is_nan(x: Symbol) -> Symbol:
    return e.emit("IsNaN", x, dtype=DType.bool)


def is_infinite(x: Symbol) -> Symbol:
    return e.emit("IsInf", x, dtype=DType.bool)


def is_finite(x: Symbol) -> Symbol:
    return e.less(magnitude(x), number(x, float("inf")))


def is_zero(x: Symbol) -> Symbol:
    return e.equal(x, number(x, 0.0))


def above(x: Symbol, value: float) -> Symbol:
    return e.greater(x, number(x, value))


def is_negative(x: Symbol) -> Symbol:
    """Return whether a number is below 0, or is -0.0."""
    zero = number(x, 0.0)
    return e.either(e.less(x, zero), e.less(div(number(x, 1.0), x), zero))


def signed_as(size: Symbol, sign: Symbol) -> Symbol:
    """Return a number of 0 or more with the sign of another, which may be -0.0."""
    return e.where(is_negative(sign), neg(size), size)


def zeros(like: Symbol) -> Symbol:
    """Return zeros of the shape of `like`."""
    zero = number(like, 0.0)
    if like.shape.is_ranked and not like.rank:
        return zero
    return e.emit("Expand", zero, shape_of(like), shape=like.shape)


def shape_of(x: Symbol) -> Symbol:
    """Return the dims as an int64 vector."""
    rank = Dim(len(x.shape)) if x.shape.is_ranked else Dim.dynamic()
    return e.emit("Shape", x, dtype=DType.int64, shape=_shape([rank]))
