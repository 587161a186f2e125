"""Comparisons and extremes of wide integers."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval
from graphcore.runtime.lowering.dtypes.integers.limbs.limbs import ENDLESS, Value
from graphcore.runtime.lowering.dtypes.integers.wide.operands import Rule, filled_out, operands
from graphcore.types.dtypes import DType


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
