"""The standard's element-wise functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from graphcore import ops
from graphcore.array_api._eager.dispatch import Tensor, function
from graphcore.array_api._eager.scalars import as_arrays, met
from graphcore.build import primitives as e
from graphcore.errors import DTypeError
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip

# One operand


def _unary(name: str, body: Callable[[Any], Symbol]) -> Callable[[Tensor], Tensor]:
    """A function of one operand that is one of `graphcore.ops`."""

    def call(x: Tensor, /) -> Tensor:
        return body(x)

    return function(_dressed(call, name, body))


def _dressed(call: Callable[..., Any], name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = name
    call.__doc__ = body.__doc__
    return call


abs = _unary("abs", ops.abs)
acos = _unary("acos", ops.acos)
acosh = _unary("acosh", ops.acosh)
asin = _unary("asin", ops.asin)
asinh = _unary("asinh", ops.asinh)
atan = _unary("atan", ops.atan)
atanh = _unary("atanh", ops.atanh)
bitwise_invert = _unary("bitwise_invert", ops.bitwise_not)
ceil = _unary("ceil", ops.ceil)
cos = _unary("cos", ops.cos)
cosh = _unary("cosh", ops.cosh)
exp = _unary("exp", ops.exp)
floor = _unary("floor", ops.floor)
isfinite = _unary("isfinite", ops.is_finite)
isinf = _unary("isinf", ops.is_inf)
isnan = _unary("isnan", ops.is_nan)
log = _unary("log", ops.log)
log10 = _unary("log10", ops.log10)
log1p = _unary("log1p", ops.log1p)
log2 = _unary("log2", ops.log2)
logical_not = _unary("logical_not", ops.logical_not)
negative = _unary("negative", ops.negate)
positive = _unary("positive", ops.positive)
reciprocal = _unary("reciprocal", ops.reciprocal)
sign = _unary("sign", ops.sign)
sin = _unary("sin", ops.sin)
sinh = _unary("sinh", ops.sinh)
sqrt = _unary("sqrt", ops.sqrt)
square = _unary("square", ops.square)
tan = _unary("tan", ops.tan)
tanh = _unary("tanh", ops.tanh)
trunc = _unary("trunc", ops.trunc)


@function
def expm1(x: Tensor, /) -> Tensor:
    """exp(x) - 1, exact near 0.

    x: floats or complex numbers of any shape. A real part of -0.0 gives one of 0.0 beside an imaginary part, as the
    standard has it; NumPy's and that of `ops.expm1` is -0.0. Raises `PromotionError` for other dtypes.
    """
    made = ops.expm1(x)
    return ops.complex(ops.real(made) + 0.0, ops.imag(made)) if made.dtype.is_complex else made


@function
def round(x: Tensor, /) -> Tensor:
    """The nearest whole number, the even one of two. Of complex numbers each part is rounded.

    x: numbers of any shape. Returns the dtype of x. Raises `PromotionError` for bool.
    """
    number = ops.positive(x)
    if number.dtype.is_complex:
        return ops.complex(ops.round(ops.real(number)), ops.round(ops.imag(number)))
    return ops.round(number)


@function
def conj(x: Tensor, /) -> Tensor:
    """Return the complex conjugate, which of real numbers is the number itself.

    x: numbers of any shape. Raises `PromotionError` for bool, as the standard has it.
    """
    return ops.conj(ops.positive(x))


@function
def real(x: Tensor, /) -> Tensor:
    """Return the real part, which of real numbers is the number itself.

    x: numbers of any shape. Raises `PromotionError` for bool, as the standard has it.
    """
    return ops.real(ops.positive(x))


@function
def imag(x: Tensor, /) -> Tensor:
    """Return the imaginary part.

    x: complex numbers of any shape. Raises `DTypeError` for other dtypes, as the standard has it.
    """
    number = ops.positive(x)
    if not number.dtype.is_complex:
        raise DTypeError(
            f"imag: {number.dtype} is no complex dtype, and only those have imaginary parts",
            operands={"x": number},
            help="that of real numbers is zeros_like(x)",
        )
    return ops.imag(number)


@function
def signbit(x: Tensor, /) -> Tensor:
    """Return True where the sign bit is set: for negative numbers, -0.0, and NaNs that have it.

    x: floats of any shape. Returns bool. Raises `DTypeError` for other dtypes, as the standard has it.
    """
    number = _with_bits("signbit", ops.positive(x))
    return e.less(_bits(number), _const(number, 0))


# Two operands


def _binary(name: str, body: Callable[[Any, Any], Symbol]) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of two operands, of which one may be a Python scalar."""

    def call(x1: Tensor, x2: Tensor, /) -> Tensor:
        return body(x1, x2)

    inner = function(_dressed(call, name, body))

    @functools.wraps(inner)
    def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
        return inner(*as_arrays(name, (x1, x2)))

    return outer


_INTEGERS = {16: DType.int16, 32: DType.int32, 64: DType.int64}


def _with_bits(name: str, *operands: Symbol) -> Symbol:
    """Return the first of floats of one dtype, whose bits are those of integers. Raises `DTypeError` for others."""
    first = operands[0]
    if not first.dtype.is_float or first.dtype.bits not in _INTEGERS:
        raise DTypeError(
            f"{name}: it reads the bits of floats of 16, 32 or 64 bits, and {first.dtype} is none",
            operands={f"x{i + 1}" if len(operands) > 1 else "x": operand for i, operand in enumerate(operands)},
            help="compare integers with x < 0, and cast other floats: astype(x, float32)",
        )
    return first


def _bits(x: Symbol) -> Symbol:
    """The bits of floats as signed integers."""
    return e.bitcast(x, _INTEGERS[x.dtype.bits])


def _const(x: Symbol, value: int) -> Symbol:
    """A constant of the integers that hold the bits of `x`."""
    return e.const(x, value, _INTEGERS[x.dtype.bits])


def _copysign(x1: Tensor, x2: Tensor) -> Symbol:
    """The magnitude of x1 with the sign of x2, that of zeros and NaNs too. C's copysign."""
    size, sign = met("copysign", "float", x1, x2)
    _with_bits("copysign", size, sign)
    low, high = (1 << (size.dtype.bits - 1)) - 1, -(1 << (size.dtype.bits - 1))
    magnitude = e.emit("BitwiseAnd", _bits(size), _const(size, low))
    return e.bitcast(e.emit("BitwiseOr", magnitude, e.emit("BitwiseAnd", _bits(sign), _const(size, high))), size.dtype)


def _hypot(x1: Tensor, x2: Tensor) -> Symbol:
    """sqrt(x1^2 + x2^2), without overflow on the way; infinity where either is, even beside NaN."""
    x, y = (e.emit("Abs", s) for s in met("hypot", "float", x1, x2))
    unlimited = e.either(e.emit("IsInf", x, dtype=DType.bool), e.emit("IsInf", y, dtype=DType.bool))
    high, low = e.emit("Max", x, y), e.emit("Min", x, y)
    zero = e.const(high, 0)
    ratio = e.where(e.equal(high, zero), zero, e.emit("Div", low, high))
    made = e.emit("Mul", high, e.emit("Sqrt", e.emit("Add", e.const(high, 1), e.emit("Mul", ratio, ratio))))
    return e.where(unlimited, e.const(high, float("inf")), made)


def _logaddexp(x1: Tensor, x2: Tensor) -> Symbol:
    """log(exp(x1) + exp(x2)), without overflow on the way."""
    x, y = met("logaddexp", "float", x1, x2)
    distance = ops.negate(ops.abs(ops.sub(x, y)))
    # Two equal infinities are no distance apart, though their difference is NaN.
    return ops.add(ops.maximum(x, y), ops.log1p(ops.exp(ops.where(ops.equal(x, y), e.const(x, 0), distance))))


def _nextafter(x1: Tensor, x2: Tensor) -> Symbol:
    """The float next to x1 on the way to x2; x2 itself where they are equal. C's nextafter."""
    x, y = met("nextafter", "float", x1, x2)
    _with_bits("nextafter", x, y)
    bits, one, zero = _bits(x), _const(x, 1), e.const(x, 0)
    # The bits of floats of one sign count upwards with their magnitude.
    away = e.equal(e.greater(y, x), e.greater(x, zero))
    stepped = e.emit("Add", bits, e.where(away, one, _const(x, -1)))
    # From 0 to the least float above or below it.
    least = e.where(e.greater(y, zero), one, e.emit("Add", _const(x, -(1 << (x.dtype.bits - 1))), one))
    made = e.bitcast(e.where(e.equal(x, zero), least, stepped), x.dtype)
    unknown = e.either(e.emit("IsNaN", x, dtype=DType.bool), e.emit("IsNaN", y, dtype=DType.bool))
    return e.where(unknown, e.const(x, float("nan")), e.where(e.equal(x, y), y, made))


def _floor_divide(x1: Tensor, x2: Tensor) -> Symbol:
    """The quotient rounded down. Integers divided by 0 give 0, MIN // -1 wraps.

    Where one operand is infinite it is the true quotient: infinity, or a zero of its sign, as the standard has it.
    NumPy and `ops.floor_div` give NaN and -1 there.
    """
    made = ops.floor_div(x1, x2)
    if not made.dtype.is_float:
        return made
    unlimited = ops.logical_xor(_is_inf(x1), _is_inf(x2))
    return ops.where(unlimited, ops.div(x1, x2), made)


def _is_inf(x: Tensor) -> Tensor:
    return ops.is_inf(x) if isinstance(x, Symbol) else ops.constant(x in (float("inf"), float("-inf")))


add = _binary("add", ops.add)
atan2 = _binary("atan2", ops.atan2)
bitwise_and = _binary("bitwise_and", ops.bitwise_and)
bitwise_left_shift = _binary("bitwise_left_shift", ops.left_shift)
bitwise_or = _binary("bitwise_or", ops.bitwise_or)
bitwise_right_shift = _binary("bitwise_right_shift", ops.right_shift)
bitwise_xor = _binary("bitwise_xor", ops.bitwise_xor)
copysign = _binary("copysign", _copysign)
divide = _binary("divide", ops.div)
equal = _binary("equal", ops.equal)
floor_divide = _binary("floor_divide", _floor_divide)
greater = _binary("greater", ops.greater)
greater_equal = _binary("greater_equal", ops.greater_equal)
hypot = _binary("hypot", _hypot)
less = _binary("less", ops.less)
less_equal = _binary("less_equal", ops.less_equal)
logaddexp = _binary("logaddexp", _logaddexp)
logical_and = _binary("logical_and", ops.logical_and)
logical_or = _binary("logical_or", ops.logical_or)
logical_xor = _binary("logical_xor", ops.logical_xor)
maximum = _binary("maximum", ops.maximum)
minimum = _binary("minimum", ops.minimum)
multiply = _binary("multiply", ops.mul)
nextafter = _binary("nextafter", _nextafter)
not_equal = _binary("not_equal", ops.not_equal)
pow = _binary("pow", ops.pow)
remainder = _binary("remainder", ops.mod)
subtract = _binary("subtract", ops.sub)

# Three operands


@function
def _clip(x: Tensor, min: Tensor, max: Tensor) -> Tensor:
    symbol = ops.positive(x)
    if min is not None:
        symbol = _bounded(symbol, min, ops.less)
    if max is not None:
        symbol = _bounded(symbol, max, ops.greater)
    return symbol


def _bounded(x: Symbol, bound: Tensor, beyond: Callable[[Any, Any], Symbol]) -> Symbol:
    """x with what is beyond a bound put to it; the bound takes the dtype of x."""
    limit = ops.cast(bound, x.dtype) if isinstance(bound, Symbol) else bound
    unknown = ops.is_nan(limit) if isinstance(limit, Symbol) and limit.dtype.is_float else None
    chosen = beyond(x, limit)
    return ops.where(chosen if unknown is None else ops.logical_or(chosen, unknown), limit, x)


def clip(x: Tensor, /, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """x with what is below `min` raised to it, and then what is above `max` lowered to it.

    x: numbers of any shape. min, max: numbers, or Symbols or Arrays that broadcast with it; None for no bound. Returns
    the dtype of x, whose NaNs stay. Raises `PromotionError` where a bound does not go with x, `ShapeError` where the
    shapes do not broadcast.
    """
    return _clip(*as_arrays("clip", (x, min, max)))
