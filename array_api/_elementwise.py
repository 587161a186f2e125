"""Element-wise functions of the standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcore import ops
from graphcore.array_api._eager import Tensor, as_arrays, function, public
from graphcore.errors import DTypeError
from graphcore.ir.symbol import Symbol

# One operand


def _unary(name: str, body: Callable[[Any], Symbol]) -> Callable[[Tensor], Tensor]:
    """Return a function of one operand from one of `graphcore.ops`."""

    def call(x: Tensor, /) -> Tensor:
        return body(x)

    return function(_set_names(call, name, body))


def _set_names(call: Callable[..., Any], name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = name
    doc = body.__doc__ or ""
    call.__doc__ = doc.replace("    lhs: ", "    x1: ").replace("    rhs: ", "    x2: ")
    return call


_OPS = {
    "bitwise_invert": "bitwise_not", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
    "divide": "div", "isfinite": "is_finite", "isinf": "is_inf", "isnan": "is_nan", "multiply": "mul",
    "negative": "negate", "remainder": "mod", "subtract": "sub",
}  # fmt: skip
"""The ops of functions with another name."""

for _name in (
    "abs acos acosh asin asinh atan atanh bitwise_invert ceil cos cosh exp floor isfinite isinf isnan log log10 log1p"
    " log2 logical_not negative positive reciprocal sign sin sinh sqrt square tan trunc"
).split():
    globals()[_name] = _unary(_name, getattr(ops, _OPS.get(_name, _name)))


@function
def expm1(x: Tensor, /) -> Tensor:
    """Return exp(x) - 1, accurate near 0.

    Args:
        x: Floats or complex numbers of any shape. For complex numbers, a real part of -0.0 gives 0.0, as in the
            standard; NumPy and `ops.expm1` give -0.0.

    Raises:
        PromotionError: For other dtypes.
    """
    result = ops.expm1(x)
    return ops.complex(ops.real(result) + 0.0, ops.imag(result)) if result.dtype.is_complex else result


@function
def round(x: Tensor, /) -> Tensor:
    """Round to the nearest integer, halves to even.

    Both parts of complex numbers are rounded.

    Args:
        x: Numbers of any shape.

    Returns:
        The dtype of x.

    Raises:
        PromotionError: For bool.
    """
    number = ops.positive(x)
    if number.dtype.is_complex:
        return ops.complex(ops.round(ops.real(number)), ops.round(ops.imag(number)))
    return ops.round(number)


@function
def conj(x: Tensor, /) -> Tensor:
    """Return the complex conjugate; real numbers do not change.

    Args:
        x: Numbers of any shape.

    Raises:
        PromotionError: For bool, as in the standard.
    """
    return ops.conj(ops.positive(x))


@function
def real(x: Tensor, /) -> Tensor:
    """Return the real part; real numbers do not change.

    Args:
        x: Numbers of any shape.

    Raises:
        PromotionError: For bool, as in the standard.
    """
    return ops.real(ops.positive(x))


@function
def imag(x: Tensor, /) -> Tensor:
    """Return the imaginary part.

    Args:
        x: Complex numbers of any shape.

    Raises:
        DTypeError: For other dtypes, as in the standard.
    """
    number = ops.positive(x)
    if not number.dtype.is_complex:
        raise DTypeError(
            f"imag: {number.dtype} is not a complex dtype",
            operands={"x": number},
            help="the imaginary part of real numbers is zeros_like(x)",
        )
    return ops.imag(number)


@function
def tanh(x: Tensor, /) -> Tensor:
    """Return the hyperbolic tangent.

    Args:
        x: Floats or complex numbers of any shape. If the real part is infinite and the imaginary part b finite, the
            imaginary part of the result is a zero with the sign of b, as in the standard; in C and `ops.tanh` it has
            the sign of sin(2 b).

    Raises:
        PromotionError: For other dtypes.
    """
    result = ops.tanh(x)
    if not result.dtype.is_complex:
        return result
    imaginary, part = ops.imag(x), ops.imag(result)
    limit = ops.logical_and(ops.is_inf(ops.real(x)), ops.is_finite(imaginary))
    return ops.complex(ops.real(result), ops.where(limit, ops.copysign(0.0, imaginary), part))


@function
def signbit(x: Tensor, /) -> Tensor:
    """Return True where the sign bit is set: for negative numbers, -0.0, and NaNs with the sign bit.

    Args:
        x: Floats of any shape.

    Returns:
        Bool.

    Raises:
        DTypeError: For other dtypes, as in the standard.
    """
    number = ops.positive(x)
    if not number.dtype.is_float:
        raise DTypeError(
            f"signbit: x must be floats, got {number.dtype}",
            operands={"x": number},
            help="compare integers with x < 0",
        )
    return ops.signbit(number)


# Two operands


def _binary(name: str, body: Callable[[Any, Any], Symbol]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function of two operands, of which one can be a Python scalar."""

    def call(x1: Tensor, x2: Tensor, /) -> Tensor:
        return body(x1, x2)

    return function(scalars=slice(0, 2))(_set_names(call, name, body))


def _floor_divide(x1: Tensor, x2: Tensor) -> Symbol:
    """Return the quotient rounded down. Integers divided by 0 give 0, MIN // -1 wraps.

    If one operand is infinite, the result is the true quotient: infinity, or a signed zero, as in the standard. NumPy
    and `ops.floor_div` give NaN and -1.
    """
    quotient = ops.floor_div(x1, x2)
    if not quotient.dtype.is_float:
        return quotient
    one_infinite = ops.logical_xor(_is_inf(x1), _is_inf(x2))
    return ops.where(one_infinite, ops.div(x1, x2), quotient)


def _is_inf(x: Tensor) -> Tensor:
    return ops.is_inf(x) if isinstance(x, Symbol) else ops.constant(x in (float("inf"), float("-inf")))


for _name in (
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal greater"
    " greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply"
    " nextafter not_equal pow remainder subtract"
).split():
    globals()[_name] = _binary(_name, getattr(ops, _OPS.get(_name, _name)))
floor_divide = _binary("floor_divide", _floor_divide)

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
    """Limit x to a bound, which takes the dtype of x."""
    limit = ops.cast(bound, x.dtype) if isinstance(bound, Symbol) else bound
    is_nan = ops.is_nan(limit) if isinstance(limit, Symbol) and limit.dtype.is_float else None
    is_beyond = beyond(x, limit)
    return ops.where(is_beyond if is_nan is None else ops.logical_or(is_beyond, is_nan), limit, x)


def clip(x: Tensor, /, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Limit the elements of x to the range from `min` to `max`.

    Args:
        x: Numbers of any shape.
        min: Numbers, or Symbols or Arrays that broadcast with x; None for no bound.
        max: As `min`.

    Returns:
        The dtype of x; NaNs do not change.

    Raises:
        PromotionError: If the dtype of a bound does not promote to that of x.
        ShapeError: If the shapes do not broadcast.
    """
    return _clip(*as_arrays("clip", (x, min, max)))


__all__ = public(globals())
