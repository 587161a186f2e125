"""Helpers of the rules for wide operators: operands as limbs, and the error for operators without a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphcore.arrays.big_integers import count_of
from graphcore.build import primitives as e
from graphcore.errors import DTypeError
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes import not_computed
from graphcore.runtime.lowering.dtypes.integers import conversions
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval
from graphcore.runtime.lowering.dtypes.integers.kinds import is_wide
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, WideValue
from graphcore.types.dtypes import DType

MAX_TERMS = 1 << 32
"""An upper bound of the number of terms of a sum: that many take 32 GiB per limb."""

Rule: TypeAlias = Callable[[Widths, Node], Sequence[Result]]
"""Computes a node: limbs for its wide results, Symbols of the new graph for others."""


def refused(node: Node, why: str = "") -> DTypeError:
    """Return the error for an operator on wide integers that has no rule."""
    wide = next(s for s in (*node.inputs, *node.outputs) if s is not None and is_wide(s))
    why = why or f"nothing computes it on {wide.dtype}, an integer of more than 64 bits"
    return not_computed(node, why, "cast the operands to at most 64 bits first: .cast(DType.int64)")


def require_ranks(node: Node, *operands: Symbol | None) -> None:
    """Raise `DTypeError` if the rank of an operand is not known."""
    if not all(s is None or s.shape.is_ranked for s in operands):
        raise refused(node, "the rank of an operand is not known")


def operands(on: Widths, node: Node, *, exact: bool = False) -> list[WideValue]:
    """Return the values of a node's operands, which broadcast. exact: within their widths."""
    symbols = [s for s in node.inputs if s is not None]
    values = [on.exact_value(s) if exact else on.value(s) for s in symbols]
    return on.spread(values, node)


def digits_of(on: Widths, symbol: Symbol, dtype: DType) -> Symbol:
    """Return the uint32 digits of an integer along a last axis, modulo 2^bits."""
    if is_wide(symbol):
        return on.fed_digits(symbol)
    return conversions.packed(on.limbs, on.value(symbol), dtype, symbol.shape)


def max_limbs(node: Node) -> int:
    """Return the number of limbs of a node's result."""
    return count_of(node.outputs[0].dtype.bits)


def summed_by_digits(
    on: Widths, node: Node, value: WideValue, terms: Interval, total: Callable[[Symbol], Symbol]
) -> WideValue:
    """Return the result of a node that adds elements: its digits are the sums of the digits, which stay far below 2^63.

    terms: the numbers of addends. total: computes the sums of int64.
    """
    columns = [
        [Limb(e.bitcast(total(e.bitcast(symbol, DType.int64)), U64), digit.window * terms)]
        for symbol, digit in on.limbs.whole_digits(value)
    ]
    return on.limbs.summed(columns, max_limbs(node), value.interval * terms)


def filled_out(on: Widths, node: Node, value: WideValue) -> WideValue:
    """Return the value with limbs of the shape of the node's result, at least one of them not a constant."""
    symbols = [limb.symbol for limb in value.limbs if limb.symbol is not None]
    whole = next((s for s in symbols if _rank(s)), None)
    if whole is not None and not all(map(_rank, symbols)):  # results of constants alone are scalars
        nothing = on.zeros([whole])
        limbs = [
            b if b.symbol is None or _rank(b.symbol) else b._replace(symbol=e.emit("Add", nothing, b.symbol))
            for b in value.limbs
        ]
        return WideValue(tuple(limbs), value.interval)
    if whole is not None or (symbols and not _rank(node.outputs[0])):
        return value
    tensors = [
        b.symbol for s in node.inputs if s is not None and is_wide(s) for b in on.value(s).limbs if b.symbol is not None
    ]
    if not tensors:
        return value
    low, *above = value.limbs
    zeros = Limb(on.zeros(tensors), Interval(0, 0))
    return filled_out(on, node, WideValue((on.limbs.plus(zeros, low), *above), value.interval))


def with_shape(on: Widths, value: WideValue) -> WideValue:
    """Return the value with a lowest limb of its shape, which is a constant if its bits are known."""
    low, *above = value.limbs
    whole = next((b.symbol for b in above if b.symbol is not None and _rank(b.symbol)), None)
    if whole is None or (low.symbol is not None and _rank(low.symbol)):
        return value
    return WideValue((on.limbs.plus(Limb(on.zeros([whole]), Interval(0, 0)), low), *above), value.interval)


def _rank(symbol: Symbol) -> int:
    """Return the rank, or 1 if it is unknown."""
    return symbol.rank if symbol.shape.is_ranked else 1
