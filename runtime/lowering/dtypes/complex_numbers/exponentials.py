"""Exponentials, logarithms, roots and powers of complex numbers, with the special cases of C99's Annex G.

All are computed in float64 for any dtype, and rounded once to the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.runtime.lowering.dtypes.complex_numbers import parts as r
from graphcore.runtime.lowering.dtypes.complex_numbers.arithmetic import (
    from_real,
    inverse,
    operands,
    product,
    scaled,
    size,
)
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import ComplexPair, ComplexPolicy, Result
from graphcore.types.dtypes import DType

_MAX_EXPONENT = 709.0
"""The largest integer whose exponential is finite in float64."""

_FAR = 1e150
"""Stands for infinity in angles: far above float32, and its square is finite."""

INFINITY, NAN = math.inf, math.nan


Function: TypeAlias = "Callable[[ComplexPair, bool], ComplexPair]"
"""A function of complex numbers in float64. The second argument is True if the result is rounded to float32, so that
rounding errors of float64 do not matter."""


def elementwise(function: Function, on: ComplexPolicy, node: Node) -> Sequence[Result]:
    """Compute a function of complex numbers in float64."""
    (x,) = operands(on, node)
    dtype = x.real.dtype
    return (rounded(function(wide(x), dtype is DType.float32), dtype),)


def wide(x: ComplexPair) -> ComplexPair:
    return rounded(x, DType.float64)


def rounded(x: ComplexPair, dtype: DType) -> ComplexPair:
    return x.each(lambda part: e.cast(part, dtype))


def times_exp(factor: Symbol, x: Symbol, *, half: bool = False) -> Symbol:
    """Return factor * e^x, or half of it, which overflows only if the result does. factor: at most 1 in magnitude."""
    return _times_power(r.exp, _MAX_EXPONENT, factor, x, half=half)


def _times_power(
    power: Callable[[Symbol], Symbol], max_exponent: float, factor: Symbol, x: Symbol, *, half: bool
) -> Symbol:
    """max_exponent: the largest integer whose power is finite in float64."""
    first = e.emit("Min", x, e.const(x, max_exponent))
    rest = r.clip(e.sub(x, first), 0.0, 2 * max_exponent)
    second = e.emit("Min", rest, e.const(x, max_exponent))
    third = e.sub(rest, second)
    result = e.mul(factor, power(first))
    if half:
        result = e.mul(result, 0.5)
    return e.mul(e.mul(result, power(second)), power(third))


def exponential(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    sin, cos = sin_cos(y, narrow=narrow)
    if narrow:  # beyond e^700 every product overflows float32
        power = r.exp(e.emit("Min", x, e.const(x, 700.0)))
        real, imag = e.mul(power, cos), e.mul(power, sin)
    else:
        real, imag = times_exp(cos, x), times_exp(sin, x)
    return _limits(z, sin, cos, ComplexPair(real, imag), are_known=narrow)


def _power_of(base: float, log: float, rest: float, max_exponent: float, z: ComplexPair, narrow: bool) -> ComplexPair:
    """Return the powers of a number. log + rest: its logarithm. max_exponent: as for `_times_power`."""
    x, y = z
    sin, cos = sin_cos(*times_constant(y, log, rest))
    raised = lambda part: e.emit("Pow", e.const(part, base), part)  # noqa: E731
    powers = (_times_power(raised, max_exponent, part, x, half=False) for part in (cos, sin))
    return _limits(z, sin, cos, ComplexPair(*powers))


def _limits(z: ComplexPair, sin: Symbol, cos: Symbol, power: ComplexPair, *, are_known: bool = False) -> ComplexPair:
    """Set the values where a part is 0 or infinite. are_known: those at finite angles are correct already."""
    (x, y), (real, imag) = z, power
    zero = e.const(x, 0.0)
    flat = r.is_zero(y)
    imag = e.where(flat, y, imag)
    unlimited, turns = r.is_infinite(x), r.is_finite(y)
    has_no_angle = e.both(unlimited, e.opposite(turns))
    below = e.less(x, zero)
    real = e.where(has_no_angle, e.where(below, zero, x), real)
    imag = e.where(has_no_angle, e.where(below, r.signed_as(zero, y), e.const(x, NAN)), imag)
    if are_known:
        return ComplexPair(real, imag)
    # e^-inf is 0 with the signs of the cosine and the sine; e^inf is an infinity with them.
    straight = e.both(unlimited, turns, e.opposite(flat))
    limit = e.where(below, zero, e.const(x, INFINITY))
    real = e.where(straight, r.signed_as(limit, cos), real)
    imag = e.where(straight, r.signed_as(limit, sin), imag)
    return ComplexPair(e.where(e.both(unlimited, flat), limit, real), imag)


def exponential_less_one(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    half, _ = sin_cos(e.mul(y, 0.5), narrow=narrow)
    _, cos = sin_cos(y, narrow=narrow)
    near = e.sub(e.mul(r.expm1(x), cos), e.mul(e.mul(half, half), 2.0))
    whole = exponential(z, narrow)
    far = e.either(r.above(x, 40.0), e.opposite(e.both(r.is_finite(x), r.is_finite(y))))
    return ComplexPair(e.where(far, e.add(whole.real, -1.0), near), whole.imag)


def logarithm(z: ComplexPair, narrow: bool) -> ComplexPair:
    return ComplexPair(log_of_size(z, narrow), _angle(z, narrow))


def _angle(z: ComplexPair, narrow: bool) -> Symbol:
    """Return the angle. For float32 by the half angle, whose tangent is y / (|z| + x) = (|z| - x) / y."""
    if not narrow:
        return r.atan2(z.imag, z.real)
    x, y = (r.clip(part, -_FAR, _FAR) for part in z)
    length = r.sqrt(e.add(e.mul(x, x), e.mul(y, y)))
    length = e.emit("Max", length, e.const(length, 1 / _FAR))  # above 0
    is_left = r.is_negative(x)
    over = e.where(is_left, e.sub(length, x), y)
    return e.mul(e.emit("Atan", e.div(over, e.where(is_left, y, e.add(length, x)))), 2.0)


def log_of_size(z: ComplexPair, narrow: bool) -> Symbol:
    """Return log|z| without overflow, accurate if |z| is near 1."""
    if narrow:
        return _log_of_narrow_size(z)
    x, y = (r.magnitude(part) for part in z)
    swapped = e.less(x, y)
    high, low = e.where(swapped, y, x), e.where(swapped, x, y)
    unlimited = e.either(r.is_infinite(x), r.is_infinite(y))
    ratio = e.div(low, high)
    plain = e.add(r.log(high), e.mul(r.log1p(e.mul(ratio, ratio)), 0.5))
    near = e.both(r.above(high, 0.5), e.below(high, 2.0))
    beside = e.mul(r.log1p(squares_and(e.const(high, -1.0), high, low)), 0.5)
    result = e.where(near, beside, plain)
    result = e.where(e.both(r.is_zero(x), r.is_zero(y)), e.const(high, -INFINITY), result)
    return e.where(unlimited, e.const(high, INFINITY), result)


def _log_of_narrow_size(z: ComplexPair) -> Symbol:
    """Return half the logarithm of the sum of squares, with its rounding error near 1."""
    x, y = (r.magnitude(part) for part in z)
    high, low = e.emit("Max", x, y), e.emit("Min", x, y)
    square = e.mul(low, low)
    whole = e.add(e.mul(high, high), square)
    beyond = e.add(e.mul(e.add(high, -1.0), e.add(high, 1.0)), square)
    lost = e.div(e.sub(beyond, e.add(whole, -1.0)), e.emit("Max", whole, e.const(whole, 0.25)))
    result = e.mul(e.add(r.log(whole), lost), 0.5)
    unlimited = e.either(r.is_infinite(x), r.is_infinite(y))
    return e.where(unlimited, e.const(high, INFINITY), result)


def logarithm_of_one_more(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    above = ComplexPair(e.add(x, 1.0), y)
    small = e.both(e.below(r.magnitude(x), 0.5), e.below(r.magnitude(y), 2.0))
    double = e.mul(x, 2.0)
    beyond = e.add(e.add(double, e.mul(x, x)), e.mul(y, y)) if narrow else squares_and(double, y, x)
    near = e.mul(r.log1p(beyond), 0.5)
    return ComplexPair(e.where(small, near, log_of_size(above, narrow)), _angle(above, narrow))


def _narrow_square_root(z: ComplexPair) -> ComplexPair:
    """The formula of `square_root`, for numbers whose squares are finite in float64."""
    x, y = z
    unlimited = r.is_infinite(x)
    length = r.sqrt(e.add(e.mul(x, x), e.mul(y, y)))
    length = e.where(unlimited, e.const(x, INFINITY), length)
    half = r.sqrt(e.mul(e.add(r.magnitude(x), length), 0.5))
    other = e.div(y, e.mul(half, 2.0))
    is_left = e.below(x, 0.0)
    real = e.where(is_left, r.magnitude(other), half)
    imag = e.where(is_left, r.signed_as(half, y), e.where(r.is_zero(half), y, other))
    steep = r.is_infinite(y)
    return ComplexPair(e.where(steep, e.const(x, INFINITY), real), e.where(steep, y, imag))


def square_root(z: ComplexPair, narrow: bool) -> ComplexPair:
    """Kahan's algorithm, from "Branch cuts for complex elementary functions" (1987), scaled by powers of four."""
    if narrow:
        return _narrow_square_root(z)
    x, y = z
    largest = e.emit("Max", r.magnitude(x), r.magnitude(y))
    large, small = r.above(largest, 2.0**1000), e.below(largest, 2.0**-900)
    one = e.const(x, 1.0)
    scale = e.where(large, e.const(x, 2.0**-4), e.where(small, e.const(x, 2.0**200), one))
    back = e.where(large, e.const(x, 4.0), e.where(small, e.const(x, 2.0**-100), one))
    a, b = e.mul(x, scale), e.mul(y, scale)
    half = r.sqrt(e.mul(e.add(r.magnitude(a), size(ComplexPair(a, b))), 0.5))
    other = e.div(r.magnitude(b), e.mul(half, 2.0))
    is_left = e.below(x, 0.0)
    real, imag = e.where(is_left, other, half), e.where(is_left, half, other)
    real, imag = e.mul(real, back), r.signed_as(e.mul(imag, back), y)
    is_zero = e.both(r.is_zero(x), r.is_zero(y))
    zero, infinity, nan = (e.const(x, value) for value in (0.0, INFINITY, NAN))
    real, imag = e.where(is_zero, zero, real), e.where(is_zero, y, imag)
    # Infinite parts.
    flat = r.is_infinite(x)
    unknown = r.is_nan(y)
    of_zero = e.where(unknown, nan, zero)
    real = e.where(flat, e.where(is_left, of_zero, infinity), real)
    imag = e.where(flat, e.where(is_left, r.signed_as(infinity, y), e.where(unknown, nan, r.signed_as(zero, y))), imag)
    steep = r.is_infinite(y)
    real, imag = e.where(steep, infinity, real), e.where(steep, y, imag)
    lost = e.both(e.either(r.is_nan(x), unknown), e.opposite(flat), e.opposite(steep))
    return ComplexPair(e.where(lost, nan, real), e.where(lost, nan, imag))


_MAX_POWER = 100
"""The largest power that is computed by multiplications, as in NumPy."""


def power(on: ComplexPolicy, node: Node) -> Sequence[Result]:
    x, y = operands(on, node)
    dtype = x.real.dtype
    exponent = _small_integer(node.inputs[1])
    if exponent is not None:
        return (rounded(power_of(wide(x), exponent), dtype),)
    return (rounded(_general_power(wide(x), wide(y), dtype is DType.float32), dtype),)


def _small_integer(symbol: Symbol | None) -> int | None:
    """Return the value of a constant that is a small integer."""
    array = constant_array(symbol)
    if array is None or array.size != 1:
        return None
    value = array.reshape(()).item()
    is_whole = not value.imag and math.isfinite(value.real) and value.real == int(value.real)
    return int(value.real) if is_whole and abs(value.real) < _MAX_POWER else None


def power_of(x: ComplexPair, power: int) -> ComplexPair:
    """Return a small integer power, by multiplications."""
    if power < 0:
        return inverse(power_of(x, -power))
    result: ComplexPair | None = None
    square = x
    while power:
        if power & 1:
            result = square if result is None else product(result, square)
        power >>= 1
        if power:
            square = product(square, square)
    return result or from_real(e.add(r.zeros(x.real), e.const(x.real, 1.0)))


def _general_power(x: ComplexPair, y: ComplexPair, narrow: bool) -> ComplexPair:
    power = exponential(product(y, logarithm(x, narrow)), narrow)
    zero, one, nan = (e.const(x.real, value) for value in (0.0, 1.0, NAN))
    base_is_zero = e.both(r.is_zero(x.real), r.is_zero(x.imag))
    rises = r.above(y.real, 0.0)
    none = e.both(r.is_zero(y.real), r.is_zero(y.imag))
    real = e.where(base_is_zero, e.where(rises, zero, nan), power.real)
    imag = e.where(base_is_zero, e.where(rises, zero, nan), power.imag)
    itself = e.both(e.equal(y.real, one), r.is_zero(y.imag))
    real, imag = e.where(itself, x.real, real), e.where(itself, x.imag, imag)
    return ComplexPair(e.where(none, one, real), e.where(none, zero, imag))


RULES: dict[str, Function] = {
    "Exp": exponential,
    "Exp10": partial(_power_of, 10.0, 2.302585092994046, -2.1707562233822494e-16, 308.0),
    "Exp2": partial(_power_of, 2.0, r.LN_2, 2.319046813846299558e-17, 1023.0),
    "Expm1": exponential_less_one,
    "Log": logarithm,
    "Log10": lambda z, narrow: scaled(logarithm(z, narrow), 1 / math.log(10)),
    "Log1p": logarithm_of_one_more,
    "Log2": lambda z, narrow: scaled(logarithm(z, narrow), 1 / r.LN_2),
    "Rsqrt": lambda z, narrow: inverse(square_root(z, narrow)),
    "Sqrt": square_root,
}
"""The functions that `elementwise` computes."""


# Sines with a small relative error everywhere.
#
# Angles are reduced by the method of W. Cody and W. Waite, with the parts of pi / 2 of 33 bits from fdlibm.

_QUARTER = (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21, 8.47842766036889956997e-32)
"""pi / 2, 33 bits a part."""
_MAX_ANGLE = 2.0**20
"""Up to this angle the products of integers and the parts of pi / 2 are exact."""


def squares_and(start: Symbol, x: Symbol, y: Symbol) -> Symbol:
    """Return start + x^2 + y^2, rounded about once even under cancellation."""
    (p, p_rest), (q, q_rest) = e.product_of(x, x), e.product_of(y, y)
    first, first_rest = e.sum_of(start, p)
    second, second_rest = e.sum_of(first, q)
    return e.add(second, e.add(e.add(first_rest, second_rest), e.add(p_rest, q_rest)))


def sin_cos(y: Symbol, rest: Symbol | None = None, *, narrow: bool = False) -> tuple[Symbol, Symbol]:
    """Return the sine and the cosine of y + rest, NaN where y is not finite. rest: a few units in the last place of y.

    Up to angles of 2^20 their error is relative to them, beyond and if `narrow` relative to 1.
    """
    if narrow:
        return r.sin(y), r.cos(y)
    magnitude = r.magnitude(y)
    whole = e.both(e.less(e.const(y, 0.78), magnitude), e.below(magnitude, _MAX_ANGLE))
    zero = e.const(y, 0.0)
    turns = e.where(whole, e.emit("Round", e.mul(y, 2 / r.PI)), zero)
    first, second, third, fourth = (e.mul(turns, part) for part in _QUARTER)
    near, lost = e.sum_of(e.sub(y, first), r.neg(second))
    lost = e.sub(e.sub(lost, third), fourth)
    if rest is not None:
        lost = e.add(lost, rest)
    angle = e.add(near, lost)
    if rest is None:
        angle = e.where(whole, angle, y)  # keeps the sign of 0
    sin, cos = r.sin(angle), r.cos(angle)
    turns = e.mul(turns, 0.25)
    place = e.sub(turns, e.emit("Floor", turns))
    is_odd = e.either(e.equal(place, e.const(y, 0.25)), e.equal(place, e.const(y, 0.75)))
    below = r.above(place, 0.3)
    is_left = e.both(r.above(place, 0.2), e.below(place, 0.6))
    sine, cosine = e.where(is_odd, cos, sin), e.where(is_odd, sin, cos)
    return e.where(below, r.neg(sine), sine), e.where(is_left, r.neg(cosine), cosine)


def times_constant(y: Symbol, value: float, rest: float) -> tuple[Symbol, Symbol]:
    """Return y * (value + rest) and its rounding error; 0 for the error if y is beyond 2^900."""
    result, lost = e.product_of(y, e.const(y, value))
    lost = e.add(lost, e.mul(y, rest))
    near = e.below(r.magnitude(y), 2.0**900)
    return result, e.where(near, lost, e.const(y, 0.0))
