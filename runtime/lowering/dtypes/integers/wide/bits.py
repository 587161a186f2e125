"""Bitwise logic and shifts of wide integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.integers import conversions
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, bitwise_and, bitwise_or, known_scalar
from graphcore.runtime.lowering.dtypes.integers.kinds import is_wide
from graphcore.runtime.lowering.dtypes.integers.limbs import ENDLESS, Limb, Value
from graphcore.runtime.lowering.dtypes.integers.wide.operands import Rule, filled_out, most_limbs, operands
from graphcore.types.dtypes import DType

_I64 = DType.int64


def _bitwise(op_type: str, rule: Callable[[Sequence[Interval]], Interval]) -> Rule:
    def build(on: Widths, node: Node) -> Sequence[Result]:
        x, y = operands(on, node)
        left, right = on.limbs.digits(x), on.limbs.digits(y)
        count = max(len(left), len(right))
        pairs = zip(on.limbs.digits(x, count), on.limbs.digits(y, count), strict=True)
        limbs = [
            Limb(e.emit(op_type, on.limbs.symbol(a), on.limbs.symbol(b)), rule((a.window, b.window))) for a, b in pairs
        ]
        return (Value(tuple(limbs), rule((x.interval, y.interval))),)

    return build


def _not(on: Widths, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node)
    return (on.limbs.inverted(x),)


def _shift_left(on: Widths, node: Node) -> Sequence[Result]:
    x, count = _shifted(on, node, exact=False)
    bits = node.outputs[0].dtype.bits
    limbs, most = on.limbs, most_limbs(node)
    if isinstance(count, int):
        factor = 1 << count if 0 <= count < bits else 0
        return (limbs.multiply(x, conversions.of_number(limbs, factor), most),)
    made = x
    for place in range((bits - 1).bit_length()):
        moved = limbs.multiply(made, conversions.of_number(limbs, 1 << (1 << place)), most)
        made = limbs.chosen(_bit(count, place), moved, made)
    made = limbs.chosen(_inside(count, bits), made, conversions.of_number(limbs, 0))
    return (made,)


def _shift_right(on: Widths, node: Node) -> Sequence[Result]:
    x, count = _shifted(on, node, exact=True)
    bits = node.outputs[0].dtype.bits
    limbs = on.limbs
    if isinstance(count, int):
        return (_down(on, x, count if 0 <= count < bits else bits),)
    made = x
    for place in range((bits - 1).bit_length()):
        made = limbs.chosen(_bit(count, place), _down(on, made, 1 << place), made)
    made = limbs.chosen(_inside(count, bits), made, _down(on, x, bits))
    return (made,)


def _shifted(on: Widths, node: Node, *, exact: bool) -> tuple[Value, int | Symbol]:
    """Return the operand of a shift, and its count: a number, or a tensor of int64 that broadcasts with it."""
    x, count = node.inputs
    assert x is not None
    assert count is not None
    known = known_scalar(count)
    value = on.exact_value(x) if exact else on.value(x)
    if known is not None and not count.rank:
        return value, known
    counts = small(on, count) if is_wide(count) else on.exact(count)
    if counts.dtype is DType.uint64:  # those beyond int64 are as good as any that is too large
        counts = e.emit("Min", counts, e.const(counts, (1 << 63) - 1))
    wide = e.cast_within(counts, _I64)
    (value,) = on.spread([value], node, [wide])
    return value, wide


def small(on: Widths, count: Symbol) -> Symbol:
    """Return a wide count as int64: those beyond are as good as any that is too large."""
    known = known_scalar(count)
    if known is not None and not count.rank:
        return on.new.build.scalar(min(max(known, -1), 1 << 32), _I64)
    low, high = (conversions.of_number(on.limbs, limit) for limit in (-1, 1 << 32))
    value = pick(on, pick(on, on.exact_value(count), low, greatest=True), high, greatest=False)
    return conversions.low_bits(on.limbs, value, _I64)[0]


def _bit(count: Symbol, place: int) -> Symbol:
    bit = e.emit("BitwiseAnd", count, e.const(count, 1 << place))
    return e.opposite(e.equal(bit, e.const(count, 0)))


def _inside(count: Symbol, bits: int) -> Symbol:
    return e.both(e.opposite(e.less(count, e.const(count, 0))), e.less(count, e.const(count, bits)))


def _down(on: Widths, x: Value, count: int) -> Value:
    """The floor of a value by 2^count."""
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
    return Value(tuple(digits), x.interval >> count)


# Comparisons and extremes of wide integers.


def _less(on: Widths, node: Node, *, swap: bool = False) -> Symbol:
    x, y = operands(on, node, exact=True)
    if swap:
        x, y = y, x
    return on.limbs.negative_mask(filled_out(on, node, on.limbs.subtract(x, y, ENDLESS)))


def _compared(*, swap: bool, opposite: bool) -> Rule:
    def build(on: Widths, node: Node) -> Sequence[Result]:
        made = _less(on, node, swap=swap)
        return (_truth(node, e.opposite(made) if opposite else made),)

    return build


def _equal(*, opposite: bool) -> Rule:
    def build(on: Widths, node: Node) -> Sequence[Result]:
        x, y = operands(on, node, exact=True)
        made = on.limbs.zero_mask(filled_out(on, node, on.limbs.subtract(x, y, ENDLESS)))
        return (_truth(node, e.opposite(made) if opposite else made),)

    return build


def _truth(node: Node, made: Symbol) -> Symbol:
    wanted = node.outputs[0].dtype
    return made if wanted is DType.bool else e.cast_within(made, wanted.storage)


def _extreme(*, greatest: bool) -> Rule:
    def build(on: Widths, node: Node) -> Sequence[Result]:
        chosen, *others = operands(on, node, exact=True)
        for other in others:
            chosen = pick(on, chosen, other, greatest=greatest)
        return (chosen,)

    return build


def pick(on: Widths, x: Value, y: Value, *, greatest: bool) -> Value:
    smaller = on.limbs.negative_mask(on.limbs.subtract(x, y, ENDLESS))
    made = on.limbs.chosen(smaller, *((y, x) if greatest else (x, y)))
    choose = max if greatest else min
    interval = Interval(choose(x.interval.lo, y.interval.lo), choose(x.interval.hi, y.interval.hi))
    return Value(made.limbs, interval)


def _clip(on: Widths, node: Node) -> Sequence[Result]:
    x, *bounds = operands(on, node, exact=True)
    given = [greatest for s, greatest in zip(node.inputs[1:], (True, False), strict=False) if s is not None]
    for bound, greatest in zip(bounds, given, strict=True):
        x = pick(on, x, bound, greatest=greatest)
    return (x,)


RULES: dict[str, Rule] = {
    "BitwiseAnd": _bitwise("BitwiseAnd", bitwise_and),
    "BitwiseOr": _bitwise("BitwiseOr", bitwise_or),
    "BitwiseXor": _bitwise("BitwiseXor", bitwise_or),
    "BitwiseNot": _not,
    "ShiftLeft": _shift_left,
    "ShiftRight": _shift_right,
    "Equal": _equal(opposite=False),
    "NotEqual": _equal(opposite=True),
    "Less": _compared(swap=False, opposite=False),
    "Greater": _compared(swap=True, opposite=False),
    "LessOrEqual": _compared(swap=True, opposite=True),
    "GreaterOrEqual": _compared(swap=False, opposite=True),
    "Max": _extreme(greatest=True),
    "Min": _extreme(greatest=False),
    "Clip": _clip,
}
