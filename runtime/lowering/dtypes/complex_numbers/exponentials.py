"""Exponentials, logarithms, roots and powers of complex numbers, with the special cases of C99's Annex G.

All are computed in float64, whatever the dtype, and rounded to it once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from graphcore.build import primitives as e
from graphcore.ir.constants import constant_array
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.complex_numbers import real as r
from graphcore.runtime.lowering.dtypes.complex_numbers.arithmetic import (
    from_real,
    inverse,
    operands,
    product,
    scaled,
    size,
)
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import Pair, Parts, Result
from graphcore.types.dtypes import DType

_MOST = 709.0
"""The greatest whole number whose exponential float64 holds."""

INFINITY, NAN = math.inf, math.nan


def elementwise(function: Callable[[Pair], Pair]) -> Callable[[Parts, Node], Sequence[Result]]:
    """Return the rule of a function of complex numbers that is computed in float64."""

    def rule(on: Parts, node: Node) -> Sequence[Result]:
        (x,) = operands(on, node)
        return (rounded(function(wide(x)), x.real.dtype),)

    return rule


def wide(x: Pair) -> Pair:
    return Pair(*(e.cast(part, DType.float64) for part in x))


def rounded(x: Pair, dtype: DType) -> Pair:
    return Pair(*(e.cast(part, dtype) for part in x))


def times_exp(factor: Symbol, x: Symbol) -> Symbol:
    """Return factor * e^x, which overflows only where the product does. factor: at most 1 in magnitude."""
    first = e.emit("Min", x, r.number(x, _MOST))
    rest = r.clip(r.sub(x, first), 0.0, 2 * _MOST)
    second = e.emit("Min", rest, r.number(x, _MOST))
    third = r.sub(rest, second)
    made = r.mul(factor, r.exp(first))
    return r.mul(r.mul(made, r.exp(second)), r.exp(third))


def exponential(z: Pair) -> Pair:
    x, y = z
    real = times_exp(r.cos(y), x)
    imag = e.where(r.is_zero(y), y, times_exp(r.sin(y), x))
    unlimited, turns = r.is_infinite(x), r.is_finite(y)
    apart = e.both(unlimited, e.opposite(turns))
    below = e.less(x, r.number(x, 0.0))
    zero = r.number(x, 0.0)
    real = e.where(apart, e.where(below, zero, x), real)
    imag = e.where(apart, e.where(below, r.signed_as(zero, y), r.number(x, NAN)), imag)
    # e^-inf is 0 with the signs of the cosine and the sine; e^inf an infinity with them.
    straight = e.both(unlimited, turns, e.opposite(r.is_zero(y)))
    limit = e.where(below, zero, r.number(x, INFINITY))
    real = e.where(straight, r.signed_as(limit, r.cos(y)), real)
    imag = e.where(straight, r.signed_as(limit, r.sin(y)), imag)
    real = e.where(e.both(unlimited, r.is_zero(y)), limit, real)
    return Pair(real, imag)


def exponential_less_one(z: Pair) -> Pair:
    x, y = z
    half = r.sin(r.times(y, 0.5))
    near = r.sub(r.mul(r.expm1(x), r.cos(y)), r.times(r.mul(half, half), 2.0))
    whole = exponential(z)
    far = e.either(r.above(x, 40.0), e.opposite(e.both(r.is_finite(x), r.is_finite(y))))
    return Pair(e.where(far, r.plus(whole.real, -1.0), near), whole.imag)


def logarithm(z: Pair) -> Pair:
    return Pair(log_of_size(z), r.atan2(z.imag, z.real))


def log_of_size(z: Pair) -> Symbol:
    """Return log|z| without overflow, accurate where |z| is near 1."""
    x, y = (r.magnitude(part) for part in z)
    swapped = e.less(x, y)
    high, low = e.where(swapped, y, x), e.where(swapped, x, y)
    unlimited = e.either(r.is_infinite(x), r.is_infinite(y))
    ratio = r.div(low, high)
    plain = r.add(r.log(high), r.times(r.log1p(r.mul(ratio, ratio)), 0.5))
    beyond = r.add(r.mul(r.plus(high, -1.0), r.plus(high, 1.0)), r.mul(low, low))
    beside = r.times(r.log1p(beyond), 0.5)
    near = e.both(r.above(high, 0.5), e.less(high, r.number(high, 2.0)))
    made = e.where(near, beside, plain)
    made = e.where(e.both(r.is_zero(x), r.is_zero(y)), r.number(high, -INFINITY), made)
    return e.where(unlimited, r.number(high, INFINITY), made)


def logarithm_of_one_more(z: Pair) -> Pair:
    x, y = z
    above = Pair(r.plus(x, 1.0), y)
    small = e.both(e.less(r.magnitude(x), r.number(x, 0.5)), e.less(r.magnitude(y), r.number(y, 0.5)))
    near = r.times(r.log1p(r.add(r.mul(x, r.plus(x, 2.0)), r.mul(y, y))), 0.5)
    return Pair(e.where(small, near, log_of_size(above)), r.atan2(y, above.real))


def square_root(z: Pair) -> Pair:
    """Kahan's, in "Branch cuts for complex elementary functions" (1987), scaled by powers of four."""
    x, y = z
    most = r.greater_of(r.magnitude(x), r.magnitude(y))
    large, small = r.above(most, 2.0**1000), e.less(most, r.number(most, 2.0**-900))
    one = r.number(x, 1.0)
    scale = e.where(large, r.number(x, 2.0**-4), e.where(small, r.number(x, 2.0**200), one))
    back = e.where(large, r.number(x, 4.0), e.where(small, r.number(x, 2.0**-100), one))
    a, b = r.mul(x, scale), r.mul(y, scale)
    half = r.sqrt(r.times(r.add(r.magnitude(a), size(Pair(a, b))), 0.5))
    other = r.div(r.magnitude(b), r.times(half, 2.0))
    left = e.less(x, r.number(x, 0.0))
    real, imag = e.where(left, other, half), e.where(left, half, other)
    real, imag = r.mul(real, back), r.signed_as(r.mul(imag, back), y)
    nothing = e.both(r.is_zero(x), r.is_zero(y))
    zero, infinity, nan = (r.number(x, value) for value in (0.0, INFINITY, NAN))
    real, imag = e.where(nothing, zero, real), e.where(nothing, y, imag)
    # Infinite parts.
    flat = r.is_infinite(x)
    unknown = r.is_nan(y)
    of_zero = e.where(unknown, nan, zero)
    real = e.where(flat, e.where(left, of_zero, infinity), real)
    imag = e.where(flat, e.where(left, r.signed_as(infinity, y), e.where(unknown, nan, r.signed_as(zero, y))), imag)
    steep = r.is_infinite(y)
    real, imag = e.where(steep, infinity, real), e.where(steep, y, imag)
    lost = e.both(e.either(r.is_nan(x), unknown), e.opposite(flat), e.opposite(steep))
    return Pair(e.where(lost, nan, real), e.where(lost, nan, imag))


_MOST_STEPS = 100
"""The greatest power that is computed by multiplying, as NumPy's is."""


def _pow(on: Parts, node: Node) -> Sequence[Result]:
    x, y = operands(on, node)
    dtype = x.real.dtype
    power = _whole(node.inputs[1])
    if power is not None:
        return (rounded(power_of(wide(x), power), dtype),)
    return (rounded(_general_power(wide(x), wide(y)), dtype),)


def _whole(symbol: Symbol | None) -> int | None:
    """Return the value of a constant that is a small whole number."""
    array = constant_array(symbol)
    if array is None or array.size != 1:
        return None
    value = array.reshape(()).item()
    is_whole = not value.imag and math.isfinite(value.real) and value.real == int(value.real)
    return int(value.real) if is_whole and abs(value.real) < _MOST_STEPS else None


def power_of(x: Pair, power: int) -> Pair:
    """Return a small whole power, by multiplying."""
    if power < 0:
        return inverse(power_of(x, -power))
    made: Pair | None = None
    square = x
    while power:
        if power & 1:
            made = square if made is None else product(made, square)
        power >>= 1
        if power:
            square = product(square, square)
    return made or from_real(r.add(r.zeros(x.real), r.number(x.real, 1.0)))


def _general_power(x: Pair, y: Pair) -> Pair:
    made = exponential(product(y, logarithm(x)))
    zero, one, nan = (r.number(x.real, value) for value in (0.0, 1.0, NAN))
    base_is_zero = e.both(r.is_zero(x.real), r.is_zero(x.imag))
    rises = r.above(y.real, 0.0)
    none = e.both(r.is_zero(y.real), r.is_zero(y.imag))
    real = e.where(base_is_zero, e.where(rises, zero, nan), made.real)
    imag = e.where(base_is_zero, e.where(rises, zero, nan), made.imag)
    itself = e.both(e.equal(y.real, one), r.is_zero(y.imag))
    real, imag = e.where(itself, x.real, real), e.where(itself, x.imag, imag)
    return Pair(e.where(none, one, real), e.where(none, zero, imag))


def _rsqrt(z: Pair) -> Pair:
    return inverse(square_root(z))


RULES = {
    "Exp": elementwise(exponential),
    "Exp2": elementwise(lambda z: exponential(scaled(z, r.LN_2))),
    "Expm1": elementwise(exponential_less_one),
    "Log": elementwise(logarithm),
    "Log10": elementwise(lambda z: scaled(logarithm(z), 1 / math.log(10))),
    "Log1p": elementwise(logarithm_of_one_more),
    "Log2": elementwise(lambda z: scaled(logarithm(z), 1 / r.LN_2)),
    "Pow": _pow,
    "Rsqrt": elementwise(_rsqrt),
    "Sqrt": elementwise(square_root),
}
