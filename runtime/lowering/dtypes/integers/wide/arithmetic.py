"""Sums, products, quotients and bits of wide integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.runtime.lowering.dtypes.integers import conversions
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import (
    Interval,
    bitwise_and,
    bitwise_or,
    known_scalar,
    reduced_count,
)
from graphcore.runtime.lowering.dtypes.integers.kinds import is_wide
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, UNLIMITED, Limb, Limbs, WideValue
from graphcore.runtime.lowering.dtypes.integers.wide import long_division
from graphcore.runtime.lowering.dtypes.integers.wide.long_division import limbs_divided
from graphcore.runtime.lowering.dtypes.integers.wide.operands import (
    MAX_TERMS,
    Rule,
    filled_out,
    max_limbs,
    operands,
    summed_by_digits,
)
from graphcore.types.dtypes import DType

_I64 = DType.int64
MAX_BITS_IN_FLOATS = 991
"""The widest integers that are divided digit by digit in float64, unrolled: far wider ones overflow its powers of 2."""


def _add(on: Widths, node: Node) -> Sequence[Result]:
    return (reduce(lambda total, x: on.limbs.add(total, x, max_limbs(node)), operands(on, node)),)


def _subtract(on: Widths, node: Node) -> Sequence[Result]:
    x, y = operands(on, node)
    return (on.limbs.subtract(x, y, max_limbs(node)),)


def _multiply(on: Widths, node: Node) -> Sequence[Result]:
    """Multiply two operands; Fma adds a third."""
    if long_division.is_long(node):
        return long_division.multiplied(on, node)
    x, y, *terms = operands(on, node)
    result = on.limbs.multiply(x, y, max_limbs(node))
    for term in terms:
        result = on.limbs.add(result, term, max_limbs(node))
    return (result,)


def _square(on: Widths, node: Node) -> Sequence[Result]:
    if long_division.is_long(node):
        return long_division.multiplied(on, node, is_square=True)
    (x,) = operands(on, node)
    result = on.limbs.multiply(x, x, max_limbs(node))
    return (WideValue(result.limbs, result.interval.intersection(Interval(0, x.interval.size**2))),)


def _sign(on: Widths, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node, exact=True)
    limbs = on.limbs
    some = e.cast_within(e.opposite(limbs.zero_mask(x)), U64)
    if x.interval.lo >= 0:
        return (conversions.widened(some, Interval(0, 1)),)
    twice = e.emit("Mul", e.cast_within(limbs.negative_mask(x), U64), e.const(some, 2))
    return (conversions.widened(e.emit("Sub", some, twice), Interval(-1, 1)),)


def _sum(on: Widths, node: Node) -> Sequence[Result]:
    count = reduced_count(node)
    terms = Interval(0, MAX_TERMS) if count is None else Interval(count, count)
    axes = [on.exact(s) for s in node.inputs[1:] if s is not None]
    total = lambda digit: e.emit("ReduceSum", digit, *axes, shape=node.outputs[0].shape, **node.attributes)  # noqa: E731
    return (summed_by_digits(on, node, on.value(present(node.inputs[0])), terms, total),)


def _divide(result: Callable[..., WideValue], on: Widths, node: Node) -> Sequence[Result]:
    """Divide. result: returns the result of x, y, and the quotient and remainder of their magnitudes."""
    if node.outputs[0].dtype.bits > MAX_BITS_IN_FLOATS:
        return long_division.divided(on, node)
    x, y = operands(on, node, exact=True)
    return (result(on, node, x, y, *limbs_divided(on.limbs, _magnitude(on, x), _magnitude(on, y))),)


def _magnitude(on: Widths, x: WideValue) -> WideValue:
    if x.interval.lo >= 0:
        return x
    if x.interval.hi <= 0:
        return on.limbs.negate(x)
    result = on.limbs.where(on.limbs.negative_mask(x), on.limbs.negate(x), x)
    return WideValue(result.limbs, Interval(0, x.interval.size))


def _signed(on: Widths, x: WideValue, negative: Symbol | None) -> WideValue:
    return x if negative is None else on.limbs.where(negative, on.limbs.negate(x), x)


def _negative_mask(on: Widths, x: WideValue) -> Symbol | None:
    """Return a mask of negative values; None if there are none."""
    return on.limbs.negative_mask(x) if x.interval.lo < 0 else None


def _have_opposite_signs(on: Widths, x: WideValue, y: WideValue) -> Symbol | None:
    left, right = _negative_mask(on, x), _negative_mask(on, y)
    if left is None or right is None:
        return left if right is None else right
    return e.emit("Xor", left, right)


def _floor_divided(
    on: Widths, node: Node, x: WideValue, y: WideValue, quotient: WideValue, rest: WideValue
) -> WideValue:
    opposed = _have_opposite_signs(on, x, y)
    if opposed is None:
        return quotient
    inexact = e.both(opposed, e.opposite(on.limbs.zero_mask(rest)))
    step = conversions.widened(inexact, Interval(0, 1))
    return on.limbs.subtract(_signed(on, quotient, opposed), step, max_limbs(node))


def _modulo(on: Widths, node: Node, x: WideValue, y: WideValue, _: WideValue, rest: WideValue) -> WideValue:
    rest = _signed(on, rest, _negative_mask(on, x))
    opposed = _have_opposite_signs(on, x, y)
    if node.attributes.get("fmod") or opposed is None:
        return rest
    differs = e.both(opposed, e.opposite(on.limbs.zero_mask(rest)))
    return on.limbs.where(differs, on.limbs.add(rest, y, UNLIMITED), rest)


# Bitwise logic and shifts of wide integers.


def _bitwise(rule: Callable[[Sequence[Interval]], Interval], on: Widths, node: Node) -> Sequence[Result]:
    x, y = operands(on, node)
    count = max(len(on.limbs.digits(x)), len(on.limbs.digits(y)))
    limbs = [
        Limb(e.emit(node.op_type, on.limbs.symbol(a), on.limbs.symbol(b)), rule((a.window, b.window)))
        for a, b in zip(on.limbs.digits(x, count), on.limbs.digits(y, count), strict=True)
    ]
    return (WideValue(tuple(limbs), rule((x.interval, y.interval))),)


def _shift_left(on: Widths, node: Node) -> Sequence[Result]:
    x, count = _shifted(on, node, exact=False)
    bits = node.outputs[0].dtype.bits
    limbs, limit = on.limbs, max_limbs(node)
    if isinstance(count, int):
        factor = 1 << count if 0 <= count < bits else 0
        return (limbs.multiply(x, conversions.of_number(limbs, factor), limit),)
    result = x
    for place in range((bits - 1).bit_length()):
        moved = limbs.multiply(result, conversions.of_number(limbs, 1 << (1 << place)), limit)
        result = limbs.where(_bit(count, place), moved, result)
    result = limbs.where(_is_in_range(count, bits), result, conversions.of_number(limbs, 0))
    return (result,)


def _shift_right(on: Widths, node: Node) -> Sequence[Result]:
    x, count = _shifted(on, node, exact=True)
    bits = node.outputs[0].dtype.bits
    limbs = on.limbs
    if isinstance(count, int):
        return (_floor_shift(on, x, count if 0 <= count < bits else bits),)
    result = x
    for place in range((bits - 1).bit_length()):
        result = limbs.where(_bit(count, place), _floor_shift(on, result, 1 << place), result)
    result = limbs.where(_is_in_range(count, bits), result, _floor_shift(on, x, bits))
    return (result,)


def _shifted(on: Widths, node: Node, *, exact: bool) -> tuple[WideValue, int | Symbol]:
    """Return the operand of a shift, and its count: a number, or a tensor of int64 that broadcasts with it."""
    x, count = map(present, node.inputs)
    number = known_scalar(count)
    value = on.exact_value(x) if exact else on.value(x)
    if number is not None and not count.rank:
        return value, number
    counts = clip_count(on, count) if is_wide(count) else on.exact(count)
    if counts.dtype is DType.uint64:  # counts beyond int64 act like any that is too large
        counts = e.emit("Min", counts, e.const(counts, (1 << 63) - 1))
    wide = e.cast_within(counts, _I64)
    (value,) = on.spread([value], node, [wide])
    return value, wide


def clip_count(on: Widths, count: Symbol) -> Symbol:
    """Return a wide count as int64; counts beyond act like any that is too large."""
    number = known_scalar(count)
    if number is not None and not count.rank:
        return on.new.build.scalar(min(max(number, -1), 1 << 32), _I64)
    low, high = (conversions.of_number(on.limbs, limit) for limit in (-1, 1 << 32))
    value = pick(on, pick(on, on.exact_value(count), low, greatest=True), high, greatest=False)
    return conversions.low_bits(on.limbs, value, _I64)[0]


def _bit(count: Symbol, place: int) -> Symbol:
    bit = e.emit("BitwiseAnd", count, e.const(count, 1 << place))
    return e.opposite(e.equal(bit, e.const(count, 0)))


def _is_in_range(count: Symbol, bits: int) -> Symbol:
    return e.both(e.opposite(e.less(count, e.const(count, 0))), e.less(count, e.const(count, bits)))


def _floor_shift(on: Widths, x: WideValue, count: int) -> WideValue:
    """Return the floor of a value divided by 2^count."""
    limbs = on.limbs
    places, bits = divmod(count, DIGIT)
    digits = limbs.digits(x, places + 1)[places:]
    if bits:
        moved = []
        for i, digit in enumerate(digits):
            low = limbs.cut(digit, bits)
            if i + 1 < len(digits):
                upper = limbs.masked(digits[i + 1], (1 << bits) - 1)
                low = limbs.plus(low, limbs.times(upper, limbs.number(1 << (DIGIT - bits))))
            moved.append(low)
        digits = tuple(moved)
    return WideValue(tuple(digits), x.interval >> count)


# Comparisons, maxima and minima of wide integers.


def _compare(
    test: Callable[[Limbs, WideValue], Symbol], on: Widths, node: Node, *, swap: bool = False, opposite: bool = False
) -> Sequence[Result]:
    """Compare by a test of the difference."""
    x, y = operands(on, node, exact=True)
    difference = on.limbs.subtract(*((y, x) if swap else (x, y)), UNLIMITED)
    mask = test(on.limbs, filled_out(on, node, difference))
    mask = e.opposite(mask) if opposite else mask
    dtype = node.outputs[0].dtype
    return (mask if dtype is DType.bool else e.cast_within(mask, dtype.storage),)


def _extreme(on: Widths, node: Node) -> Sequence[Result]:
    choose = partial(pick, on, greatest=node.op_type == "Max")
    return (reduce(choose, operands(on, node, exact=True)),)


def pick(on: Widths, x: WideValue, y: WideValue, *, greatest: bool) -> WideValue:
    smaller = on.limbs.negative_mask(on.limbs.subtract(x, y, UNLIMITED))
    result = on.limbs.where(smaller, *((y, x) if greatest else (x, y)))
    choose = max if greatest else min
    interval = Interval(choose(x.interval.lo, y.interval.lo), choose(x.interval.hi, y.interval.hi))
    return WideValue(result.limbs, interval)


def _clip(on: Widths, node: Node) -> Sequence[Result]:
    x, *bounds = operands(on, node, exact=True)
    are_lower = [greatest for s, greatest in zip(node.inputs[1:], (True, False), strict=False) if s is not None]
    for bound, greatest in zip(bounds, are_lower, strict=True):
        x = pick(on, x, bound, greatest=greatest)
    return (x,)


RULES: dict[str, Rule] = {
    "Add": _add,
    "Sum": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "Fma": _multiply,
    "Square": _square,
    "Neg": lambda on, node: (on.limbs.negate(*operands(on, node)),),
    "Abs": lambda on, node: (_magnitude(on, *operands(on, node, exact=True)),),
    "Sign": _sign,
    "ReduceSum": _sum,
    "Div": partial(_divide, lambda on, _, x, y, quotient, rest: _signed(on, quotient, _have_opposite_signs(on, x, y))),
    "FloorDiv": partial(_divide, _floor_divided),
    "Mod": partial(_divide, _modulo),
    "BitwiseAnd": partial(_bitwise, bitwise_and),
    "BitwiseOr": partial(_bitwise, bitwise_or),
    "BitwiseXor": partial(_bitwise, bitwise_or),
    "BitwiseNot": lambda on, node: (on.limbs.inverted(*operands(on, node)),),
    "ShiftLeft": _shift_left,
    "ShiftRight": _shift_right,
    "Equal": partial(_compare, Limbs.zero_mask),
    "NotEqual": partial(_compare, Limbs.zero_mask, opposite=True),
    "Less": partial(_compare, Limbs.negative_mask),
    "Greater": partial(_compare, Limbs.negative_mask, swap=True),
    "LessOrEqual": partial(_compare, Limbs.negative_mask, swap=True, opposite=True),
    "GreaterOrEqual": partial(_compare, Limbs.negative_mask, opposite=True),
    "Max": _extreme,
    "Min": _extreme,
    "Clip": _clip,
}
