"""Trigonometric and hyperbolic functions of complex numbers and their inverses, with the cases of C99's Annex G.

The inverses are by W. Kahan: "Branch cuts for complex elementary functions, or much ado about nothing's sign bit"
(1987). Circular functions are hyperbolic ones of i z, as Annex G defines them.
"""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.dtypes.complex_numbers import parts as r
from graphcore.runtime.lowering.dtypes.complex_numbers.arithmetic import size
from graphcore.runtime.lowering.dtypes.complex_numbers.exponentials import (
    INFINITY,
    NAN,
    Function,
    log_of_size,
    sin_cos,
    square_root,
    times_exp,
)
from graphcore.runtime.lowering.dtypes.complex_numbers.parts import ComplexPair

_FAR = 22.0
"""From here on cosh x and |sinh x| are both e^|x| / 2 in float64."""
_LARGE = 2.0**500
"""Beyond this magnitude squares may overflow, and adding 1 has no effect."""


def times_i(z: ComplexPair) -> ComplexPair:
    """Return i z."""
    return ComplexPair(r.neg(z.imag), z.real)


def times_minus_i(z: ComplexPair) -> ComplexPair:
    """Return -i z."""
    return ComplexPair(z.imag, r.neg(z.real))


def circular(hyperbolic: Function) -> Function:
    """Return -i f(i z) for sine, tangent and their inverses."""
    return lambda z, narrow: times_minus_i(hyperbolic(times_i(z), narrow))


def _cosh_sinh(x: Symbol) -> tuple[Symbol, Symbol]:
    """Return both for |x| up to `_FAR`."""
    near = r.clip(r.magnitude(x), 0.0, _FAR)
    less = r.expm1(near)
    whole = e.add(less, 1.0)
    sinh = e.mul(e.add(less, e.div(less, whole)), 0.5)
    cosh = e.mul(e.add(whole, e.div(1.0, whole)), 0.5)
    return cosh, e.where(r.is_zero(x), x, e.where(e.below(x, 0.0), r.neg(sinh), sinh))


def _times_cosh_sinh(x: Symbol, sin: Symbol, cos: Symbol) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    """Return cosh x and sinh x times a cosine and a sine: (cosh cos, sinh sin, sinh cos, cosh sin)."""
    cosh, sinh = _cosh_sinh(x)
    far = r.above(r.magnitude(x), _FAR)
    long = r.magnitude(x)
    far_cos, far_sin = (times_exp(part, long, half=True) for part in (cos, sin))
    is_left = e.below(x, 0.0)
    return (
        e.where(far, far_cos, e.mul(cosh, cos)),
        e.where(far, e.where(is_left, r.neg(far_sin), far_sin), e.mul(sinh, sin)),
        e.where(far, e.where(is_left, r.neg(far_cos), far_cos), e.mul(sinh, cos)),
        e.where(far, far_sin, e.mul(cosh, sin)),
    )


def sinh(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    sin, cos = sin_cos(y, narrow=narrow)
    _, _, real, imag = _times_cosh_sinh(x, sin, cos)
    zero, nan = e.const(x, 0.0), e.const(x, NAN)
    turns = r.is_finite(y)
    unlimited = r.is_infinite(x)
    straight = e.both(unlimited, turns)
    infinity = e.const(x, INFINITY)
    below = e.less(x, zero)
    real = e.where(straight, r.signed_as(infinity, e.where(below, r.neg(cos), cos)), real)
    imag = e.where(straight, r.signed_as(infinity, sin), imag)
    has_no_angle = e.both(unlimited, e.opposite(turns))
    real, imag = e.where(has_no_angle, x, real), e.where(has_no_angle, nan, imag)
    real = e.where(e.both(r.is_zero(x), e.opposite(turns)), x, real)
    real = e.where(e.both(unlimited, r.is_zero(y)), x, real)
    return ComplexPair(real, e.where(r.is_zero(y), y, imag))


def cosh(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    sin, cos = sin_cos(y, narrow=narrow)
    real, imag, _, _ = _times_cosh_sinh(x, sin, cos)
    zero, nan, infinity = (e.const(x, value) for value in (0.0, NAN, INFINITY))
    turns = r.is_finite(y)
    unlimited = r.is_infinite(x)
    straight = e.both(unlimited, turns)
    below = e.less(x, zero)
    real = e.where(straight, r.signed_as(infinity, cos), real)
    imag = e.where(straight, r.signed_as(infinity, e.where(below, r.neg(sin), sin)), imag)
    has_no_angle = e.both(unlimited, e.opposite(turns))
    real, imag = e.where(has_no_angle, infinity, real), e.where(has_no_angle, nan, imag)
    imag = e.where(e.both(r.is_zero(x), e.opposite(turns)), zero, imag)
    flat = r.is_zero(y)
    side = e.where(r.is_nan(x), y, e.mul(y, r.clip(x, -1.0, 1.0)))
    return ComplexPair(e.where(e.both(unlimited, flat), infinity, real), e.where(flat, side, imag))


def tanh(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    sin, cos = sin_cos(y, narrow=narrow)
    _, s = _cosh_sinh(x)
    square = e.mul(s, s)
    rho = r.sqrt(e.add(square, 1.0))
    below = e.add(e.mul(cos, cos), square)  # sums of squares: a tangent would overflow near its poles
    is_pole = r.is_zero(below)
    below = e.where(is_pole, e.const(x, 1.0), below)
    real = e.where(is_pole, x, e.div(e.mul(rho, s), below))
    imag = e.where(is_pole, e.div(sin, cos), e.div(e.mul(sin, cos), below))
    far = r.above(r.magnitude(x), _FAR)
    one, zero, nan = (e.const(x, value) for value in (1.0, 0.0, NAN))
    fade = r.exp(e.mul(r.magnitude(x), -2.0))
    real = e.where(far, r.signed_as(one, x), real)
    imag = e.where(far, e.mul(e.mul(e.mul(sin, cos), 4.0), fade), imag)
    turns = r.is_finite(y)
    imag = e.where(e.both(r.is_infinite(x), e.opposite(turns)), r.signed_as(zero, y), imag)
    real = e.where(e.both(r.is_zero(x), e.opposite(turns)), x, real)
    lost = e.opposite(e.either(r.is_infinite(x), e.either(r.is_zero(x), turns)))
    real = e.where(e.either(lost, r.is_nan(x)), nan, real)
    imag = e.where(r.is_nan(x), nan, imag)
    return ComplexPair(real, e.where(r.is_zero(y), y, imag))


# Inverses


def _asinh(x: Symbol) -> Symbol:
    """Return the inverse hyperbolic sine of a real number."""
    long = r.magnitude(x)
    square = e.mul(long, long)
    near = r.log1p(e.add(long, e.div(square, e.add(r.sqrt(e.add(square, 1.0)), 1.0))))
    far = e.add(r.log(long), r.LN_2)
    return r.signed_as(e.where(r.above(long, _LARGE), far, near), x)


def _roots(z: ComplexPair) -> tuple[ComplexPair, ComplexPair]:
    """Return the square roots of 1 - z and of 1 + z."""
    one = e.const(z.real, 1.0)
    less, more = ComplexPair(e.sub(one, z.real), r.neg(z.imag)), ComplexPair(e.add(one, z.real), z.imag)
    return square_root(less, False), square_root(more, False)


def _is_large(z: ComplexPair) -> Symbol:
    return e.either(r.above(r.magnitude(z.real), _LARGE), r.above(r.magnitude(z.imag), _LARGE))


def acos(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    less, more = _roots(z)
    real = e.mul(r.atan2(less.real, more.real), 2.0)
    imag = _asinh(e.sub(e.mul(more.real, less.imag), e.mul(more.imag, less.real)))
    far = _is_large(z)
    real = e.where(far, r.atan2(r.magnitude(y), x), real)
    imag = e.where(far, r.signed_as(e.add(log_of_size(z, narrow), r.LN_2), r.neg(y)), imag)
    quarter = e.const(x, r.PI / 2)
    return ComplexPair(e.where(r.is_zero(x), quarter, real), imag)


def asin(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    less, more = _roots(z)
    real = r.atan2(x, e.sub(e.mul(less.real, more.real), e.mul(less.imag, more.imag)))
    imag = _asinh(e.sub(e.mul(less.real, more.imag), e.mul(less.imag, more.real)))
    far = _is_large(z)
    real = e.where(far, r.atan2(x, r.magnitude(y)), real)
    imag = e.where(far, r.signed_as(e.add(log_of_size(z, narrow), r.LN_2), y), imag)
    return ComplexPair(e.where(r.is_zero(x), x, real), imag)


def acosh(z: ComplexPair, narrow: bool) -> ComplexPair:
    angle = acos(z, narrow)
    return ComplexPair(r.magnitude(angle.imag), r.signed_as(angle.real, z.imag))


def atanh(z: ComplexPair, narrow: bool) -> ComplexPair:
    x, y = z
    one, zero, quarter = (e.const(x, value) for value in (1.0, 0.0, r.PI / 2))
    long, high = r.magnitude(x), r.magnitude(y)
    less = e.sub(one, long)
    below = e.add(e.mul(less, less), e.mul(y, y))
    real = e.mul(r.log1p(e.div(e.mul(long, 4.0), below)), 0.25)
    at_one = e.both(e.equal(long, one), e.below(high, 2.0**-60))
    real = e.where(at_one, e.mul(e.sub(e.const(x, r.LN_2), r.log(high)), 0.5), real)
    imag = e.mul(r.atan2(e.mul(y, 2.0), e.sub(e.mul(less, e.add(one, long)), e.mul(y, y))), 0.5)
    far = _is_large(z)
    half = ComplexPair(e.mul(long, 0.5), e.mul(y, 0.5))  # half of an overflowing magnitude is finite
    length = size(half)
    real = e.where(far, e.mul(e.div(e.div(half.real, length), length), 0.5), real)
    real = e.where(e.either(r.is_infinite(x), r.is_infinite(y)), zero, real)
    imag = e.where(far, r.signed_as(quarter, y), imag)
    imag = e.where(e.either(r.is_nan(y), e.both(r.is_nan(x), r.is_finite(y))), e.const(x, NAN), imag)
    lost = e.both(r.is_nan(y), e.opposite(e.either(r.is_zero(x), r.is_infinite(x))))
    real = e.where(lost, e.const(x, NAN), real)
    real = r.signed_as(real, x)
    return ComplexPair(e.where(r.is_zero(x), x, real), imag)


RULES: dict[str, Function] = {
    "Acos": acos,
    "Acosh": acosh,
    "Asin": asin,
    "Asinh": circular(asin),
    "Atan": circular(atanh),
    "Atanh": atanh,
    "Cos": lambda z, narrow: cosh(times_i(z), narrow),
    "Cosh": cosh,
    "Sin": circular(sinh),
    "Sinh": sinh,
    "Tan": circular(tanh),
    "Tanh": tanh,
}
"""The functions that `elementwise` computes."""
