"""The ranges of integer tensors, as closed intervals of Python ints, and how operators transform them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.types.dtypes import DType, Kind


class Interval(NamedTuple):
    """The integers from `lo` to `hi`, inclusive."""

    lo: int
    hi: int

    def within(self, other: Interval) -> bool:
        return self.lo >= other.lo and self.hi <= other.hi

    def intersection(self, other: Interval) -> Interval:
        """Return the intersection, or the interval itself if that is empty."""
        lo, hi = max(self.lo, other.lo), min(self.hi, other.hi)
        return Interval(lo, hi) if lo <= hi else self

    def __add__(self, other: object) -> Interval:
        assert isinstance(other, Interval)
        return Interval(self.lo + other.lo, self.hi + other.hi)

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __mul__(self, other: object) -> Interval:
        assert isinstance(other, Interval)
        corners = [a * b for a, b in product(self, other)]
        return Interval(min(corners), max(corners))

    def __rshift__(self, bits: int) -> Interval:
        return Interval(self.lo >> bits, self.hi >> bits)

    @property
    def size(self) -> int:
        """The largest magnitude."""
        return max(abs(self.lo), abs(self.hi))


def joined(intervals: Sequence[Interval]) -> Interval:
    """Return the smallest interval that contains all of some."""
    return Interval(min(i.lo for i in intervals), max(i.hi for i in intervals))


def of_dtype(dtype: DType) -> Interval | None:
    """Return the values of a dtype; None if it is not an integer or bool."""
    if dtype.is_integer or dtype.kind is Kind.bool:
        return Interval(int(dtype.min), int(dtype.max))
    return None


def of_array(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Interval | None:
    """Return the range of an array of integers or bools; None if it is empty."""
    if not array.size:
        return None
    plain = array if array.dtype.kind in "biuO" else array.astype(np.int8)
    return Interval(int(plain.min()), int(plain.max()))


def constant_axes(node: Node) -> Sequence[int] | None:
    """Return the non-negative axes of ReduceSum and similar operators, if they are known."""
    x = node.inputs[0]
    if x is None or not x.shape.is_ranked:
        return None
    every = () if node.attributes.get("noop_with_empty_axes") else range(x.rank)
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is None:
        return every
    if not isinstance(axes.producer, Constant) or axes.producer.is_weight:
        return None
    return [int(a) % x.rank for a in axes.producer.array.reshape(-1)] or every


def reduced_count(node: Node) -> int | None:
    """Return the number of elements that ReduceSum and similar operators combine for each result, if it is known."""
    x, axes = node.inputs[0], constant_axes(node)
    if x is None or axes is None:
        return None
    dims = [x.shape[axis] for axis in axes]
    return prod(int(d) for d in dims) if all(d.is_static for d in dims) else None


def known_scalar(symbol: Symbol | None) -> int | None:
    """Return the value of a constant all of whose elements are one integer."""
    array = constant_array(symbol)
    if array is None or array.dtype.kind not in "biuO":
        return None
    interval = of_array(array)
    return interval.lo if interval is not None and interval.lo == interval.hi else None


Rule: TypeAlias = Callable[[Sequence[Interval], Node], "Interval | None"]
"""(intervals of the integer operands, node) -> the interval of the result before wrapping; None if unknown."""


def _bits(intervals: Sequence[Interval]) -> int:
    """Return the number of bits, without the sign, that represent the values."""
    return max(max(i.hi, ~i.lo).bit_length() for i in intervals)


def bitwise_and(operands: Sequence[Interval], node: Node | None = None) -> Interval:
    nonnegative = [i for i in operands if i.lo >= 0]
    if nonnegative:
        return Interval(0, min(i.hi for i in nonnegative))
    return Interval(-(1 << _bits(operands)), (1 << _bits(operands)) - 1)


def bitwise_or(operands: Sequence[Interval], node: Node | None = None) -> Interval:
    top = 1 << _bits(operands)
    return Interval(0 if all(i.lo >= 0 for i in operands) else -top, top - 1)


def _not(operands: Sequence[Interval], node: Node) -> Interval:
    x = operands[0]
    storage = node.outputs[0].dtype.storage
    last = int(storage.max) if storage.is_unsigned and node.outputs[0].dtype.bits <= 64 else -1
    return Interval(last - x.hi, last - x.lo)


def _shifted_left(operands: Sequence[Interval], node: Node) -> Interval | None:
    x, count = operands
    if count.lo != count.hi or not 0 <= count.lo < 4096:
        return None
    return Interval(x.lo << count.lo, x.hi << count.lo)


def _shifted_right(operands: Sequence[Interval], node: Node) -> Interval:
    x, count = operands
    if count.lo == count.hi and count.lo >= 0:
        return x >> min(count.lo, 4096)
    return Interval(min(x.lo, 0), max(x.hi, 0))


def _quotient(operands: Sequence[Interval], node: Node) -> Interval:
    x, y = operands
    if x.lo >= 0 and y.lo >= 0:
        return Interval(0, x.hi)
    return Interval(-x.size, x.size)


def _modulo(operands: Sequence[Interval], node: Node) -> Interval:
    x, y = operands
    if node.attributes.get("fmod"):
        bound = min(x.size, max(y.size - 1, 0))
        return Interval(-bound if x.lo < 0 else 0, bound if x.hi > 0 else 0)
    return Interval(min(y.lo + 1, 0), max(y.hi - 1, 0))


def _summed(operands: Sequence[Interval], node: Node) -> Interval | None:
    count = reduced_count(node)
    return None if count is None else Interval(operands[0].lo * count, operands[0].hi * count)


def _of_products(operands: Sequence[Interval], node: Node) -> Interval | None:
    x = node.inputs[0]
    if x is None or not x.shape.is_ranked or not x.rank or not x.shape[-1].is_static:
        return None
    each, count = operands[0] * operands[1], int(x.shape[-1])
    return Interval(each.lo * count, each.hi * count)


def _extreme(choose: Callable[[Sequence[int]], int]) -> Rule:
    return lambda operands, node: Interval(choose([i.lo for i in operands]), choose([i.hi for i in operands]))


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Add", "Sum"), lambda operands, node: reduce(Interval.__add__, operands)),
    "Sub": lambda operands, node: operands[0] + -operands[1],
    "Mul": lambda operands, node: operands[0] * operands[1],
    "Square": lambda operands, node: Interval(0, operands[0].size ** 2),
    "Neg": lambda operands, node: -operands[0],
    "Abs": lambda operands, node: Interval(0, operands[0].size),
    "Sign": lambda operands, node: Interval(-1 if operands[0].lo < 0 else 0, 1),
    "BitwiseAnd": bitwise_and,
    "BitwiseOr": bitwise_or,
    "BitwiseXor": bitwise_or,
    "BitwiseNot": _not,
    "ShiftLeft": _shifted_left,
    "ShiftRight": _shifted_right,
    "Div": _quotient,
    "FloorDiv": _quotient,
    "Mod": _modulo,
    "Max": _extreme(max),
    "Min": _extreme(min),
    "ReduceSum": _summed,
    "MatMul": _of_products,
    "ReduceMax": lambda operands, node: operands[0],
    "ReduceMin": lambda operands, node: operands[0],
}
"""Operators whose results' intervals follow from those of their operands; the `MOVES` have the union of these."""
