"""Quotients and remainders of integers of more than 64 bits, by school's long division in base 2^32."""

from __future__ import annotations

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval
from graphcore.runtime.lowering.dtypes.integers.limbs import ENDLESS, NOTHING, U64, Limb, Limbs, Value
from graphcore.types.dtypes import DType

_F64, _I64 = DType.float64, DType.int64
_ZERO = Interval(0, 0)
_WORD = Interval(0, (1 << 64) - 1)


def divided(limbs: Limbs, x: Value, y: Value) -> tuple[Value, Value]:
    """The quotient, rounded down, and the remainder of two integers that are not negative; 0 and 0 where y is 0."""
    nothing = None if y.interval.lo > 0 else limbs.zero_mask(y)
    if nothing is not None:
        one = Value((Limb(e.cast_within(nothing, U64), Interval(0, 1)),), Interval(0, 1))
        y = Value(limbs.add(y, one, ENDLESS).limbs, Interval(1, max(1, y.interval.hi)))
    by_digit = y.interval.hi < 1 << DIGIT
    quotient, rest = _by_digit(limbs, x, y) if by_digit else _by_number(limbs, x, y)
    if nothing is None:
        return quotient, rest
    zero = Value((NOTHING,), _ZERO)
    return limbs.chosen(nothing, zero, quotient), limbs.chosen(nothing, zero, rest)


def _by_digit(limbs: Limbs, x: Value, y: Value) -> tuple[Value, Value]:
    """By a divisor of 32 bits: each step divides 64 bits by 32."""
    (by, *_) = limbs.digits(y)
    divisor = limbs.symbol(by)
    rest = NOTHING
    quotients: list[Limb] = []
    for digit in reversed(limbs.digits(x)):
        dividend = limbs.symbol(limbs.plus(limbs.times(rest, limbs.number(1 << DIGIT), _WORD), digit, _WORD))
        quotient = e.emit("Div", dividend, divisor)
        rest = Limb(e.emit("Sub", dividend, e.emit("Mul", quotient, divisor)), Interval(0, y.interval.hi - 1))
        quotients.insert(0, Limb(quotient, Interval(0, (1 << DIGIT) - 1)))
    return Value(tuple(quotients), Interval(0, x.interval.hi)), Value((rest,), rest.window)


def _by_number(limbs: Limbs, x: Value, y: Value) -> tuple[Value, Value]:
    """By any divisor: float64 tells each digit of the quotient, and the remainder may turn negative in between.

    The float quotient is below 2^34 and off by 2^-15 at most, so what is left of the remainder after a step is at most
    a little more than half of the divisor, either way, and the next quotient again below 2^34. In the end it is off by
    one at most.
    """
    most = y.interval.hi
    divisor = _as_float(limbs, y)
    left = Interval(-most, most)
    rest = Value((NOTHING,), _ZERO)
    quotients: list[Limb] = []
    for digit in reversed(limbs.digits(x)):
        taken = Interval(left.lo << DIGIT, (left.hi + 1) << DIGIT)
        rest = limbs.summed([[digit], *([limb] for limb in rest.limbs)], ENDLESS, taken)
        ratio = e.emit("Round", e.emit("Div", _as_float(limbs, rest), divisor))
        whole = Limb(e.bitcast(e.cast_within(ratio, _I64), U64), Interval(-(1 << 34), 1 << 34))
        quotients.insert(0, whole)
        product = limbs.multiply(Value((whole,), whole.window), y, ENDLESS)
        rest = _shortened(limbs, limbs.subtract(rest, product, ENDLESS), left)
    below = limbs.negative_mask(rest)
    rest = limbs.chosen(below, limbs.add(rest, y, ENDLESS), rest)
    step = Value((Limb(e.cast_within(below, U64), Interval(0, 1)),), Interval(0, 1))
    quotient = limbs.subtract(Value(tuple(quotients), Interval(0, x.interval.hi + 1)), step, ENDLESS)
    return Value(quotient.limbs, Interval(0, x.interval.hi)), Value(rest.limbs, Interval(0, most - 1))


def _shortened(limbs: Limbs, value: Value, interval: Interval) -> Value:
    """The value in no more digits than are needed for the interval that it is known to lie in."""
    count = max(1, -(-(interval.hi.bit_length() + 1) // DIGIT))
    *low, top = limbs.digits(value, count, count)
    if top.symbol is not None:
        top = Limb(limbs.extended(top.symbol, DIGIT), interval >> (DIGIT * (count - 1)))
    return Value((*low, top), interval)


def _as_float(limbs: Limbs, value: Value) -> Symbol:
    """The value as float64, off by a few parts in 2^53: the sums from the top down are exact till they have 53 bits."""
    total: Symbol | None = None
    digits = limbs.digits(value)
    for place, symbol in reversed(list(enumerate(limbs.full(Value(digits, value.interval))))):
        part = e.cast_within(e.bitcast(symbol, _I64), _F64)
        part = e.emit("Mul", part, e.const(part, 2.0 ** (DIGIT * place))) if place else part
        total = part if total is None else e.emit("Add", total, part)
    assert total is not None
    return total
