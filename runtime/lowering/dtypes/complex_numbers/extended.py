"""Sums and products of float64 with what their rounding loses, and sines whose relative error is small everywhere.

Sums are D. Knuth's ("The Art of Computer Programming", volume 2, 4.2.2), products T. Dekker's ("A floating-point
technique for extending the available precision", 1971). Angles are reduced by W. Cody's and W. Waite's method, with the
parts of pi / 2 of 33 bits that fdlibm has.
"""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.dtypes.complex_numbers import real as r

_SPLITTER = 134217729.0
"""2^27 + 1: splits 53 bits into two halves."""
_QUARTER = (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21, 8.47842766036889956997e-32)
"""pi / 2, 33 bits a part."""
_MOST_TURNED = 2.0**20
"""Up to this angle the products of whole numbers and the parts of pi / 2 are exact."""


def sum_of(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
    """Return x + y and what its rounding loses."""
    made = r.add(x, y)
    other = r.sub(made, x)
    return made, r.add(r.sub(x, r.sub(made, other)), r.sub(y, other))


def product_of(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
    """Return x * y and what its rounding loses, where no product is above 2^996 or below 2^-969."""
    made = r.mul(x, y)
    (a, b), (c, d) = _halves(x), (_halves(x) if x is y else _halves(y))
    rest = r.add(r.add(r.sub(r.mul(a, c), made), r.mul(a, d)), r.mul(b, c))
    return made, r.add(rest, r.mul(b, d))


def _halves(x: Symbol) -> tuple[Symbol, Symbol]:
    large = r.times(x, _SPLITTER)
    high = r.sub(large, r.sub(large, x))
    return high, r.sub(x, high)


def squares_and(start: Symbol, x: Symbol, y: Symbol) -> Symbol:
    """Return start + x^2 + y^2, rounded about once however much of it cancels."""
    (p, p_rest), (q, q_rest) = product_of(x, x), product_of(y, y)
    first, first_rest = sum_of(start, p)
    second, second_rest = sum_of(first, q)
    return r.add(second, r.add(r.add(first_rest, second_rest), r.add(p_rest, q_rest)))


def sin_cos(y: Symbol, rest: Symbol | None = None, *, narrow: bool = False) -> tuple[Symbol, Symbol]:
    """Return the sine and the cosine of y + rest, NaN where y is not finite. rest: a few units in the last place of y.

    Up to angles of 2^20 their error is relative to them, beyond it and where `narrow` to 1.
    """
    if narrow:
        return r.sin(y), r.cos(y)
    turned = r.magnitude(y)
    whole = e.both(e.less(r.number(y, 0.78), turned), e.less(turned, r.number(y, _MOST_TURNED)))
    zero = r.number(y, 0.0)
    turns = e.where(whole, e.emit("Round", r.times(y, 2 / r.PI)), zero)
    first, second, third, fourth = (r.times(turns, part) for part in _QUARTER)
    near, lost = sum_of(r.sub(y, first), r.neg(second))
    lost = r.sub(r.sub(lost, third), fourth)
    if rest is not None:
        lost = r.add(lost, rest)
    angle = r.add(near, lost)
    if rest is None:
        angle = e.where(whole, angle, y)  # keeps the sign of 0
    sin, cos = r.sin(angle), r.cos(angle)
    turns = r.times(turns, 0.25)
    place = r.sub(turns, e.emit("Floor", turns))
    is_odd = e.either(e.equal(place, r.number(y, 0.25)), e.equal(place, r.number(y, 0.75)))
    below = r.above(place, 0.3)
    left = e.both(r.above(place, 0.2), e.less(place, r.number(y, 0.6)))
    sine, cosine = e.where(is_odd, cos, sin), e.where(is_odd, sin, cos)
    return e.where(below, r.neg(sine), sine), e.where(left, r.neg(cosine), cosine)


def times_constant(y: Symbol, value: float, rest: float) -> tuple[Symbol, Symbol]:
    """Return y * (value + rest) and what its rounding loses; 0 for that where y is beyond 2^900."""
    made, lost = product_of(y, r.number(y, value))
    lost = r.add(lost, r.times(y, rest))
    near = e.less(r.magnitude(y), r.number(y, 2.0**900))
    return made, e.where(near, lost, r.number(y, 0.0))
