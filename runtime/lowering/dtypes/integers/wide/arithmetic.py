"""Sums, products, quotients and powers of wide integers."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, reduced_count
from graphcore.runtime.lowering.dtypes.integers.limb_division import divided
from graphcore.runtime.lowering.dtypes.integers.limbs import ENDLESS, U64, Limb, Value
from graphcore.runtime.lowering.dtypes.integers.wide import long_division
from graphcore.runtime.lowering.dtypes.integers.wide.operands import (
    MOST_TERMS,
    Rule,
    first,
    most_limbs,
    operands,
)
from graphcore.types.dtypes import DType

_I64 = DType.int64
MOST_BITS_OF_FLOATS = 991
"""The widest integers whose quotients float64 tells digit by digit, unrolled: it has no powers of two far above."""


def _add(on: Widths, node: Node) -> Sequence[Result]:
    total, *others = operands(on, node)
    for other in others:
        total = on.limbs.add(total, other, most_limbs(node))
    return (total,)


def _subtract(on: Widths, node: Node) -> Sequence[Result]:
    x, y = operands(on, node)
    return (on.limbs.subtract(x, y, most_limbs(node)),)


def _multiply(on: Widths, node: Node) -> Sequence[Result]:
    if long_division.is_long(node):
        return long_division.multiplied(on, node)
    x, y = operands(on, node)
    return (on.limbs.multiply(x, y, most_limbs(node)),)


def _multiply_add(on: Widths, node: Node) -> Sequence[Result]:
    if long_division.is_long(node):
        return long_division.multiplied(on, node)
    x, y, z = operands(on, node)
    product = on.limbs.multiply(x, y, most_limbs(node))
    return (on.limbs.add(product, z, most_limbs(node)),)


def _square(on: Widths, node: Node) -> Sequence[Result]:
    if long_division.is_long(node):
        return long_division.multiplied(on, node, is_square=True)
    (x,) = operands(on, node)
    made = on.limbs.multiply(x, x, most_limbs(node))
    return (Value(made.limbs, made.interval.met(Interval(0, x.interval.size**2))),)


def _negate(on: Widths, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node)
    return (on.limbs.negate(x),)


def _abs(on: Widths, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node, exact=True)
    if x.interval.lo >= 0:
        return (x,)
    made = on.limbs.chosen(on.limbs.negative_mask(x), on.limbs.negate(x), x)
    return (Value(made.limbs, Interval(0, x.interval.size)),)


def _sign(on: Widths, node: Node) -> Sequence[Result]:
    (x,) = operands(on, node, exact=True)
    limbs = on.limbs
    some = e.cast_within(e.opposite(limbs.zero_mask(x)), U64)
    if x.interval.lo >= 0:
        return (Value((Limb(some, Interval(0, 1)),), Interval(0, 1)),)
    twice = e.emit("Mul", e.cast_within(limbs.negative_mask(x), U64), e.const(some, 2))
    return (Value((Limb(e.emit("Sub", some, twice), Interval(-1, 1)),), Interval(-1, 1)),)


def _sum(on: Widths, node: Node) -> Sequence[Result]:
    """The digits of the sum are the sums of the digits, which stay far below 2^64."""
    x = on.value(first(node))
    count = reduced_count(node)
    terms = Interval(0, MOST_TERMS) if count is None else Interval(count, count)
    axes = [on.exact(s) for s in node.inputs[1:] if s is not None]
    shape = node.outputs[0].shape
    limbs = []
    digits = on.limbs.digits(x)
    for digit, symbol in zip(digits, on.limbs.full(Value(digits, x.interval)), strict=True):
        signed = e.bitcast(symbol, _I64)
        total = e.emit("ReduceSum", signed, *axes, shape=shape, **node.attributes)
        limbs.append([Limb(e.bitcast(total, U64), digit.window * terms)])
    return (on.limbs.summed(limbs, most_limbs(node), x.interval * terms),)


def _divided(on: Widths, node: Node) -> tuple[Value, Value, Value, Value]:
    """x, y, and the quotient and remainder of their magnitudes."""
    x, y = operands(on, node, exact=True)
    quotient, rest = divided(on.limbs, _magnitude(on, x), _magnitude(on, y))
    return x, y, quotient, rest


def _magnitude(on: Widths, x: Value) -> Value:
    if x.interval.lo >= 0:
        return x
    if x.interval.hi <= 0:
        return on.limbs.negate(x)
    made = on.limbs.chosen(on.limbs.negative_mask(x), on.limbs.negate(x), x)
    return Value(made.limbs, Interval(0, x.interval.size))


def _signed(on: Widths, x: Value, negative: Symbol | None) -> Value:
    return x if negative is None else on.limbs.chosen(negative, on.limbs.negate(x), x)


def _below(on: Widths, x: Value) -> Symbol | None:
    """Return where a value is below 0; None where it never is."""
    return on.limbs.negative_mask(x) if x.interval.lo < 0 else None


def _opposed(on: Widths, x: Value, y: Value) -> Symbol | None:
    left, right = _below(on, x), _below(on, y)
    if left is None or right is None:
        return left if right is None else right
    return e.emit("Xor", left, right)


def _divide(on: Widths, node: Node) -> Sequence[Result]:
    if node.outputs[0].dtype.bits > MOST_BITS_OF_FLOATS:
        return long_division.divided(on, node)
    x, y, quotient, _ = _divided(on, node)
    return (_signed(on, quotient, _opposed(on, x, y)),)


def _floor_divide(on: Widths, node: Node) -> Sequence[Result]:
    if node.outputs[0].dtype.bits > MOST_BITS_OF_FLOATS:
        return long_division.divided(on, node)
    x, y, quotient, rest = _divided(on, node)
    opposed = _opposed(on, x, y)
    if opposed is None:
        return (quotient,)
    inexact = e.both(opposed, e.opposite(on.limbs.zero_mask(rest)))
    step = Value((Limb(e.cast_within(inexact, U64), Interval(0, 1)),), Interval(0, 1))
    return (on.limbs.subtract(_signed(on, quotient, opposed), step, most_limbs(node)),)


def _modulo(on: Widths, node: Node) -> Sequence[Result]:
    if node.outputs[0].dtype.bits > MOST_BITS_OF_FLOATS:
        return long_division.divided(on, node)
    x, y, _, rest = _divided(on, node)
    rest = _signed(on, rest, _below(on, x))
    opposed = _opposed(on, x, y)
    if node.attributes.get("fmod") or opposed is None:
        return (rest,)
    apart = e.both(opposed, e.opposite(on.limbs.zero_mask(rest)))
    return (on.limbs.chosen(apart, on.limbs.add(rest, y, ENDLESS), rest),)


RULES: dict[str, Rule] = {
    "Add": _add,
    "Sum": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "Fma": _multiply_add,
    "Square": _square,
    "Neg": _negate,
    "Abs": _abs,
    "Sign": _sign,
    "ReduceSum": _sum,
    "Div": _divide,
    "FloorDiv": _floor_divide,
    "Mod": _modulo,
}
