"""Integers of any width as sums of 64-bit tensors, one for each 32 bits: limb i counts 2^(32 i).

A limb is a uint64 tensor of residues modulo 2^64; its window, an interval of fewer than 2^64 integers, defines the
values that they represent. So negative digits and pending carries cost no operators: carries move up only when a window
would overflow, or when digits are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import zip_longest
from typing import NamedTuple

from graphcore.arrays.big_integers import DIGIT, count_of
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, joined
from graphcore.types.dtypes import DType

U64 = DType.uint64
_LOW = (1 << DIGIT) - 1
_DIGIT = Interval(0, _LOW)
_SIGNED_DIGIT = Interval(-(1 << 31), (1 << 31) - 1)
_ALL = Interval(0, (1 << 64) - 1)
UNLIMITED = 1 << 40
"""More limbs than any number has: for sums that are not reduced modulo anything."""


class Limb(NamedTuple):
    """A tensor and the window of the integers that it represents; without a tensor a constant, of any shape."""

    symbol: Symbol | None
    window: Interval

    @property
    def is_zero(self) -> bool:
        return self.symbol is None and self.window == (0, 0)


ZERO = Limb(None, Interval(0, 0))


@dataclass(frozen=True, slots=True)
class WideValue:
    """The sum of its limbs, which lies in `interval`. Every limb with a tensor has the shape of the value."""

    limbs: tuple[Limb, ...]
    interval: Interval


def is_window(interval: Interval) -> bool:
    """Return True if 64 bits distinguish its integers, also after the low digit is removed."""
    return (interval.hi >> DIGIT) - (interval.lo >> DIGIT) < 1 << DIGIT


class Limbs:
    """Arithmetic on limbs. constant: creates a uint64 scalar in the new graph."""

    def __init__(self, constant: Callable[[int], Symbol]) -> None:
        self._constant = constant
        self._split: dict[tuple[int, Interval], tuple[Limb, Limb]] = {}

    # One limb

    def symbol(self, limb: Limb) -> Symbol:
        """Return the tensor of a limb; for a constant a scalar."""
        return limb.symbol if limb.symbol is not None else self._constant(limb.window.lo % (1 << 64))

    def number(self, value: int) -> Limb:
        return Limb(None, Interval(value, value))

    def plus(self, a: Limb, b: Limb, window: Interval | None = None) -> Limb:
        """Return the sum; its window is that of all sums unless `window` is passed."""
        if a.is_zero:
            return b if window is None else Limb(b.symbol, window.intersection(b.window))
        if b.is_zero:
            return a if window is None else Limb(a.symbol, window.intersection(a.window))
        result_window = a.window + b.window if window is None else window
        if a.symbol is None and b.symbol is None:
            return self.number(a.window.lo + b.window.lo)
        return Limb(e.emit("Add", self.symbol(a), self.symbol(b)), result_window)

    def times(self, a: Limb, b: Limb, window: Interval | None = None) -> Limb:
        """Return the product; its window is that of all products unless `window` is passed."""
        if a.is_zero or b.is_zero:
            return ZERO
        result_window = a.window * b.window if window is None else window
        if a.symbol is None and b.symbol is None:
            return self.number(a.window.lo * b.window.lo)
        for one, other in ((a, b), (b, a)):
            if one.symbol is None and one.window == (1, 1):
                return other
        return Limb(e.emit("Mul", self.symbol(a), self.symbol(b)), result_window)

    def negative(self, a: Limb) -> Limb:
        if a.symbol is None:
            return Limb(None, -a.window)
        return Limb(e.emit("Sub", self._constant(0), a.symbol), -a.window)

    def masked(self, a: Limb, mask: int) -> Limb:
        """Return the bits of a limb that are set in `mask`."""
        if a.symbol is None:
            return self.number(a.window.lo & mask)
        if a.window.lo >= 0 and a.window.hi <= mask:
            return a
        if mask == _LOW:  # two casts are faster
            return Limb(e.cast_within(e.cast_within(a.symbol, DType.uint32), U64), _DIGIT)
        return Limb(e.emit("BitwiseAnd", a.symbol, self._constant(mask)), Interval(0, mask))

    def cut(self, a: Limb, bits: int) -> Limb:
        """Return the floor of a limb divided by 2^bits."""
        assert is_window(a.window), "a limb whose values 64 bits do not distinguish"
        window = a.window >> bits
        if a.symbol is None:
            return Limb(None, window)
        if window == (0, 0):
            return ZERO
        step = self._constant(bits)
        if a.window.lo >= 0 and a.window.hi < 1 << 64:
            return Limb(e.emit("BitShift", a.symbol, step, direction="RIGHT"), window)
        if a.window.lo >= -(1 << 63) and a.window.hi < 1 << 63 and bits == DIGIT:
            upper = e.emit("BitShift", a.symbol, step, direction="RIGHT")
            return Limb(self.extended(upper, 32), window)
        bias = -(window.lo << bits)
        moved = e.emit("Add", a.symbol, self._constant(bias % (1 << 64)))
        moved = e.emit("BitShift", moved, step, direction="RIGHT")
        return Limb(e.emit("Sub", moved, self._constant((bias >> bits) % (1 << 64))), window)

    def logical(self, a: Limb) -> Limb:
        """Return a limb with the low 32 bits of the floor of a limb divided by 2^32."""
        if a.symbol is None:
            return Limb(None, a.window >> DIGIT)
        if a.window.lo >= 0 and a.window.hi <= _LOW:
            return ZERO
        step = self._constant(DIGIT)
        return Limb(e.emit("BitShift", a.symbol, step, direction="RIGHT"), _DIGIT)

    def extended(self, symbol: Symbol, bits: int) -> Symbol:
        """Return the low bits of a tensor as a signed integer."""
        if bits in (8, 16, 32):  # two casts take a quarter of the time of three operators
            return e.cast_within(e.cast_within(symbol, DType.int(bits)), U64)
        low = e.emit("BitwiseAnd", symbol, self._constant((1 << bits) - 1))
        sign = self._constant(1 << (bits - 1))
        return e.emit("Sub", e.emit("BitwiseXor", low, sign), sign)

    def split(self, a: Limb) -> tuple[Limb, Limb]:
        """Return the low 32 bits, and the rest, which counts 2^32."""
        if a.symbol is None:
            return self.number(a.window.lo & _LOW), self.number(a.window.lo >> DIGIT)
        key = (a.symbol.id, a.window)
        parts = self._split.get(key)
        if parts is None:
            parts = self._split[key] = self.masked(a, _LOW), self.cut(a, DIGIT)
        return parts

    # Columns

    def column(self, entries: Sequence[Limb], spill: list[Limb]) -> Limb:
        """Return the sum of one column; its overflow is appended to `spill`, for the next column."""
        total = ZERO
        for entry in entries:
            if not is_window(total.window + entry.window):
                if entry.window.hi - entry.window.lo > total.window.hi - total.window.lo:
                    total, entry = entry, total
                total, carry = self.split(total)
                spill.append(carry)
            if not is_window(total.window + entry.window):
                entry, carry = self.split(entry)
                spill.append(carry)
            total = self.plus(total, entry)
        return total

    def modular(self, entries: Sequence[Limb]) -> Limb:
        """Return the sum of the topmost column, modulo 2^64."""
        total = ZERO
        for entry in entries:
            window = total.window + entry.window
            total = self.plus(total, entry, window if is_window(window) else _ALL)
        return total

    def summed(self, columns: Sequence[Sequence[Limb]], max_limbs: int, interval: Interval) -> WideValue:
        """Return the sum of all columns modulo 2^(32 max_limbs). interval: that of the sum before reduction."""
        waiting: list[list[Limb]] = [[limb for limb in column if not limb.is_zero] for column in columns]
        is_exact = not any(waiting[max_limbs:])
        limbs: list[Limb] = []
        while len(limbs) < min(len(waiting), max_limbs):
            entries = waiting[len(limbs)]
            if len(limbs) == max_limbs - 1:
                limbs.append(self.modular(entries))
                windows = (limb.window for limb in entries)
                is_exact &= limbs[-1].window == reduce(Interval.__add__, windows, Interval(0, 0))
                break
            spill: list[Limb] = []
            limbs.append(self.column(entries, spill))
            spill = [limb for limb in spill if not limb.is_zero]
            if spill:
                if len(limbs) == len(waiting):
                    waiting.append([])
                waiting[len(limbs)] += spill
        return _value(limbs, interval if is_exact else None)

    def digits(self, value: WideValue, least: int = 1, max_limbs: int = UNLIMITED) -> tuple[Limb, ...]:
        """Return digits in base 2^32, the last one signed: at least `least`, until the last one fits in a digit.

        Digits beyond `max_limbs` are dropped; then only the low 32 bits of the last one are meaningful.
        """
        done: list[Limb] = []
        limbs = list(value.limbs)
        carries: list[Limb] = []
        while True:
            entries = [*carries, *limbs[len(done) : len(done) + 1]]
            if len(done) == max_limbs - 1:
                return (*done, self.modular(entries))
            carries = []
            total = self.column(entries, carries)
            floor = value.interval >> (DIGIT * len(done))
            if len(done) + 1 >= len(limbs) and not any(not c.is_zero for c in carries):
                if total.symbol is not None:
                    total = Limb(total.symbol, total.window.intersection(floor))
                is_last = total.window.within(_SIGNED_DIGIT) or total.window.within(_DIGIT)
                if is_last and len(done) + 1 >= least:
                    return (*done, total)
            low, carry = self.split(total)
            done.append(low)
            if not carry.is_zero:
                carries.append(carry)

    # Values

    def add(self, a: WideValue, b: WideValue, max_limbs: int) -> WideValue:
        columns = list(zip_longest(a.limbs, b.limbs, fillvalue=ZERO))
        return self.summed(columns, max_limbs, a.interval + b.interval)

    def subtract(self, a: WideValue, b: WideValue, max_limbs: int) -> WideValue:
        b = self._reversible(b)
        columns: list[list[Limb]] = []
        for x, y in zip_longest(a.limbs, b.limbs, fillvalue=ZERO):
            window = x.window + -y.window
            if y.symbol is not None and is_window(window):
                columns.append([Limb(e.emit("Sub", self.symbol(x), y.symbol), window)])
            else:
                columns.append([x, self.negative(y)])
        return self.summed(columns, max_limbs, a.interval + -b.interval)

    def negate(self, a: WideValue) -> WideValue:
        return WideValue(tuple(map(self.negative, self._reversible(a).limbs)), -a.interval)

    def inverted(self, a: WideValue) -> WideValue:
        """Flip every bit: -a - 1."""
        low, *above = self._reversible(a).limbs
        once = Interval(-1, -1)
        flipped = Limb(None if low.symbol is None else e.emit("BitwiseNot", low.symbol), -low.window + once)
        return WideValue((flipped, *map(self.negative, above)), -a.interval + once)

    def _reversible(self, a: WideValue) -> WideValue:
        """Return the value in limbs whose negated windows are windows too, with a margin of one."""
        if all(is_window(-limb.window + Interval(-1, 0)) for limb in a.limbs):
            return a
        return WideValue(self.digits(a), a.interval)

    def multiply(self, a: WideValue, b: WideValue, max_limbs: int) -> WideValue:
        """Return the product modulo 2^(32 max_limbs): large limbs are split until all partial products fit."""
        left, right = list(a.limbs), list(b.limbs)
        while not _has_windows(left, right, max_limbs):
            # Digits stay unsplit, though limbs of the other side may be smaller and not digits.
            of_left, of_right = (
                0 if _are_digits(side) else max(limb.window.size for limb in side) for side in (left, right)
            )
            if of_left >= of_right:
                left = list(self.digits(WideValue(tuple(left), a.interval)))
            if of_right >= of_left:
                right = list(self.digits(WideValue(tuple(right), b.interval)))
        columns: list[list[Limb]] = [[] for _ in range(min(len(left) + len(right) - 1, max_limbs))]
        is_exact = True
        for i, x in enumerate(left):
            for j, y in enumerate(right):
                window = x.window * y.window
                if i + j >= max_limbs:
                    is_exact &= window == (0, 0)
                    continue
                is_exact &= is_window(window)
                columns[i + j].append(self.times(x, y, window if is_window(window) else _ALL))
        result = self.summed(columns, max_limbs, a.interval * b.interval)
        return result if is_exact else _value(result.limbs, None)

    def wrapped(self, value: WideValue, dtype: DType) -> WideValue:
        """Return the value of `dtype` that is equal modulo 2^bits."""
        limits = Interval(int(dtype.min), int(dtype.max))
        if value.interval.within(limits):
            return value
        count = count_of(dtype.bits)
        *rest, top = self.digits(value, count, count)
        bits = dtype.bits - DIGIT * (count - 1)
        if dtype.is_unsigned:
            top = self.masked(top, (1 << bits) - 1)
        elif top.symbol is None:
            sign = 1 << (bits - 1)
            top = self.number(((top.window.lo & ((1 << bits) - 1)) ^ sign) - sign)
        else:
            top = Limb(self.extended(top.symbol, bits), Interval(-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
        return _value([*rest, top], limits)

    def low64(self, value: WideValue) -> Limb:
        """Return the value modulo 2^64."""
        low, *above = value.limbs
        if above:
            upper = self.times(above[0], self.number(1 << DIGIT), _ALL)
            low = self.plus(low, upper, _ALL)
        return low

    def full(self, value: WideValue) -> list[Symbol]:
        """Return the tensors of its limbs, all of one shape."""
        some = next((limb.symbol for limb in value.limbs if limb.symbol is not None), None)
        if some is None:
            return [self.symbol(limb) for limb in value.limbs]
        zeros: Symbol | None = None
        tensors = []
        for limb in value.limbs:
            symbol = limb.symbol
            if symbol is None:
                zeros = e.emit("BitwiseAnd", some, self._constant(0)) if zeros is None else zeros
                symbol = e.emit("Add", zeros, self.symbol(limb)) if limb.window.lo else zeros
            tensors.append(symbol)
        return tensors

    def whole_digits(self, value: WideValue, least: int = 1) -> list[tuple[Symbol, Limb]]:
        """Return digits as `digits` does, each with its tensor, all of one shape."""
        digits = self.digits(value, least)
        return list(zip(self.full(WideValue(digits, value.interval)), digits, strict=True))

    def negative_mask(self, value: WideValue) -> Symbol:
        """Return a tensor of bools: True where a value is negative."""
        symbol, last = self.whole_digits(value)[-1]
        bias = max(0, -last.window.lo)
        if bias:
            symbol = e.emit("Add", symbol, self._constant(bias))
        return e.less(symbol, self._constant(bias))

    def zero_mask(self, value: WideValue) -> Symbol:
        """Return a tensor of bools: True where a value is 0."""
        combined = reduce(partial(e.emit, "BitwiseOr"), [symbol for symbol, _ in self.whole_digits(value)])
        return e.equal(combined, self._constant(0))

    def where(self, condition: Symbol, a: WideValue, b: WideValue) -> WideValue:
        """Return `a` where `condition` is true, else `b`."""
        left, right = self.aligned([a, b])
        limbs = []
        for place, (x, y) in enumerate(zip(left, right, strict=True)):
            if x.symbol is y.symbol and x.window == y.window:
                limbs.append(x)
                continue
            first = self.symbol(x)
            if x.symbol is None and y.symbol is None:  # the condition may not have the shape of the value
                first = self.full(WideValue(tuple(left), a.interval))[place]
            limbs.append(Limb(e.where(condition, first, self.symbol(y)), joined((x.window, y.window))))
        return WideValue(tuple(limbs), joined((a.interval, b.interval)))

    def aligned(self, values: Sequence[WideValue]) -> list[list[Limb]]:
        """Return the limbs of several values, equally many of each, so that corresponding ones have one window."""
        limbs = [value.limbs for value in values]
        count = max(map(len, limbs))
        rows = [[*row, *[ZERO] * (count - len(row))] for row in limbs]
        if all(is_window(joined([row[i].window for row in rows])) for i in range(count)):
            return rows
        rows = [list(self.digits(value)) for value in values]
        count = max(map(len, rows))
        return [list(self.digits(value, count)) for value in values]


def _value(limbs: Sequence[Limb], interval: Interval | None) -> WideValue:
    """Return a value without its leading zero limbs; its interval is intersected with that of the windows."""
    significant = list(limbs) or [ZERO]
    while len(significant) > 1 and significant[-1].is_zero:
        significant.pop()
    window = window_of(significant)
    return WideValue(tuple(significant), window if interval is None else interval.intersection(window))


def window_of(limbs: Sequence[Limb]) -> Interval:
    """Return the interval that follows from the windows of limbs."""
    windows = [limb.window for limb in limbs]
    return Interval(*(sum(end << (DIGIT * i) for i, end in enumerate(ends)) for ends in zip(*windows, strict=True)))


def _are_digits(limbs: Sequence[Limb]) -> bool:
    """Return True if limbs are digits in base 2^32; the last one may be signed."""
    *below, last = limbs
    return all(limb.window.within(_DIGIT) for limb in below) and (
        last.window.within(_DIGIT) or last.window.within(_SIGNED_DIGIT)
    )


def _has_windows(left: Sequence[Limb], right: Sequence[Limb], max_limbs: int) -> bool:
    """Return True if every partial product below the topmost column has a window."""
    return all(
        is_window(x.window * y.window) for i, x in enumerate(left) for j, y in enumerate(right) if i + j < max_limbs - 1
    )
