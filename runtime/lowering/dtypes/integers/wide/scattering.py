"""Scatters that combine wide integers: their sums, and the greater or lesser of them."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, joined
from graphcore.runtime.lowering.dtypes.integers.kinds import is_wide
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, Value
from graphcore.runtime.lowering.dtypes.integers.wide.movement import moved
from graphcore.runtime.lowering.dtypes.integers.wide.operands import MOST_TERMS, Rule, most_limbs, refused
from graphcore.runtime.lowering.dtypes.integers.wide.sorting import digit_of, key_of
from graphcore.types.dtypes import DType

_I32, _I64 = DType.int32, DType.int64


def _scatter(on: Widths, node: Node) -> Sequence[Result]:
    data, indices, updates = node.inputs
    assert data is not None
    assert indices is not None
    assert updates is not None
    how = node.attributes.get("reduction", "none")
    how = how.decode() if isinstance(how, bytes) else how
    if how == "none":
        return moved(on, node)
    if not is_wide(data) or not is_wide(updates):
        raise refused(node)
    places = on.exact(indices)
    if how == "add":
        return (_added(on, node, on.value(data), on.value(updates), places),)
    if how in ("max", "min"):
        return (_chosen(on, node, on.exact_value(data), on.exact_value(updates), places, greatest=how == "max"),)
    raise refused(node, f'nothing computes reduction="{how}" on {data.dtype}, an integer of more than 64 bits')


def _added(on: Widths, node: Node, data: Value, updates: Value, places: Symbol) -> Value:
    """Add up the digits, whose sums stay below 2^64."""
    shape = node.outputs[0].shape
    given = on.limbs.digits(updates)
    base = on.limbs.digits(data, len(given))
    given = on.limbs.digits(updates, len(base))
    terms = Interval(0, MOST_TERMS // 2)
    columns = []
    rows = on.limbs.full(Value(base, data.interval)), on.limbs.full(Value(given, updates.interval))
    for one, other, x, y in zip(base, given, *rows, strict=True):
        signed = (e.bitcast(x, _I64), places, e.bitcast(y, _I64))
        total = e.emit(node.op_type, *signed, shape=shape, **node.attributes)
        columns.append([Limb(e.bitcast(total, U64), one.window + other.window * terms)])
    return on.limbs.summed(columns, most_limbs(node), data.interval + updates.interval * terms)


def _chosen(on: Widths, node: Node, data: Value, updates: Value, places: Symbol, *, greatest: bool) -> Value:
    """Choose digit by digit, from the last one on, among those whose digits so far are the best."""
    shape = node.outputs[0].shape
    interval = joined((data.interval, updates.interval))
    given, others = on.limbs.digits(data), on.limbs.digits(updates)
    count = max(len(given), len(others))
    if interval.lo < 0 and interval.hi >> (DIGIT * count - 1):  # the last digit of one has a sign, the other's has none
        count += 1
    pairs = []
    for value in (data, updates):
        digits = on.limbs.digits(value, count)
        pairs.append(list(zip(on.limbs.full(Value(digits, value.interval)), digits, strict=True)))
    worst = -(1 << 31) if greatest else (1 << 31) - 1
    gather = "GatherElements" if node.op_type == "ScatterElements" else "GatherND"
    attributes = {"axis": node.attributes.get("axis", 0)} if gather == "GatherElements" else {}
    stays: Symbol | None = None
    comes: Symbol | None = None
    chosen: list[Limb] = []
    for (one, limb), (another, other) in reversed(list(zip(*pairs, strict=True))):
        window = joined((limb.window, other.window))
        own, new = (key_of(on, Limb(symbol, window)) for symbol in (one, another))
        mine = own if stays is None else e.where(stays, own, e.const(own, worst))
        theirs = new if comes is None else e.where(comes, new, e.const(new, worst))
        best = e.emit(node.op_type, mine, places, theirs, shape=shape, **node.attributes)
        chosen.insert(0, digit_of(on, best, Limb(one, window)))
        kept = e.equal(mine, best)
        stays = kept if stays is None else e.both(stays, kept)
        there = e.emit(gather, best, places, shape=new.shape, **attributes)
        taken = e.equal(theirs, there)
        comes = taken if comes is None else e.both(comes, taken)
    return Value(tuple(chosen), interval)


RULES: dict[str, Rule] = {"ScatterElements": _scatter, "ScatterND": _scatter}
