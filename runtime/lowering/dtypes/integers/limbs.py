"""Integers of any width as sums of 64-bit tensors, one for each 32 bits: limb i counts 2^(32 i).

A limb is a uint64 tensor that stands for the integers of a window of less than 2^64 values, each by its residue. So
negative digits and carries that are not needed yet take no operators: carries go up only where a window would
overflow, or where digits are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
ENDLESS = 1 << 40
"""More limbs than any number has: for sums that are not taken modulo anything."""


class Limb(NamedTuple):
    """A tensor and the window of what it stands for; a constant, of any shape, where there is no tensor."""

    symbol: Symbol | None
    window: Interval

    @property
    def is_nothing(self) -> bool:
        return self.symbol is None and self.window == (0, 0)


NOTHING = Limb(None, Interval(0, 0))


@dataclass(frozen=True, slots=True)
class Value:
    """The sum of its limbs, which lies in `interval`. Every limb with a tensor has the whole shape of the value."""

    limbs: tuple[Limb, ...]
    interval: Interval


def is_window(interval: Interval) -> bool:
    """Return whether 64 bits tell its integers apart, also after the low digit is cut off."""
    return (interval.hi >> DIGIT) - (interval.lo >> DIGIT) < 1 << DIGIT


class Limbs:
    """Arithmetic on limbs. constant: makes a uint64 scalar of the graph that is built."""

    def __init__(self, constant: Callable[[int], Symbol]) -> None:
        self._constant = constant
        self._split: dict[tuple[int, Interval], tuple[Limb, Limb]] = {}

    # One limb

    def symbol(self, limb: Limb) -> Symbol:
        """The tensor of a limb; of a constant a scalar."""
        return limb.symbol if limb.symbol is not None else self._constant(limb.window.lo % (1 << 64))

    def number(self, value: int) -> Limb:
        return Limb(None, Interval(value, value))

    def plus(self, a: Limb, b: Limb, window: Interval | None = None) -> Limb:
        """The sum; its window is that of all sums, or the one given."""
        if a.is_nothing:
            return b if window is None else Limb(b.symbol, window.met(b.window))
        if b.is_nothing:
            return a if window is None else Limb(a.symbol, window.met(a.window))
        found = a.window + b.window if window is None else window
        if a.symbol is None and b.symbol is None:
            return self.number(a.window.lo + b.window.lo)
        return Limb(e.emit("Add", self.symbol(a), self.symbol(b)), found)

    def times(self, a: Limb, b: Limb, window: Interval | None = None) -> Limb:
        """The product; its window is that of all products, or the one given."""
        if a.is_nothing or b.is_nothing:
            return NOTHING
        found = a.window * b.window if window is None else window
        if a.symbol is None and b.symbol is None:
            return self.number(a.window.lo * b.window.lo)
        for one, other in ((a, b), (b, a)):
            if one.symbol is None and one.window == (1, 1):
                return other
        return Limb(e.emit("Mul", self.symbol(a), self.symbol(b)), found)

    def negative(self, a: Limb) -> Limb:
        if a.symbol is None:
            return Limb(None, -a.window)
        return Limb(e.emit("Sub", self._constant(0), a.symbol), -a.window)

    def masked(self, a: Limb, mask: int) -> Limb:
        """The bits of a limb that are set in `mask`."""
        if a.symbol is None:
            value = a.window.lo & mask
            return self.number(value)
        if a.window.lo >= 0 and a.window.hi <= mask:
            return a
        if mask == _LOW:  # two casts are faster
            return Limb(e.cast_within(e.cast_within(a.symbol, DType.uint32), U64), _DIGIT)
        return Limb(e.emit("BitwiseAnd", a.symbol, self._constant(mask)), Interval(0, mask))

    def cut(self, a: Limb, bits: int) -> Limb:
        """The floor of a limb by 2^bits."""
        assert is_window(a.window), "a limb whose values 64 bits do not tell apart"
        window = a.window >> bits
        if a.symbol is None:
            return Limb(None, window)
        if window == (0, 0):
            return NOTHING
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
        """Something whose low 32 bits are those of the floor of a limb by 2^32."""
        if a.symbol is None:
            return Limb(None, a.window >> DIGIT)
        if a.window.lo >= 0 and a.window.hi <= _LOW:
            return NOTHING
        step = self._constant(DIGIT)
        return Limb(e.emit("BitShift", a.symbol, step, direction="RIGHT"), _DIGIT)

    def extended(self, symbol: Symbol, bits: int) -> Symbol:
        """The low bits of a tensor, read as a signed integer."""
        if bits in (8, 16, 32):  # two casts are a quarter of the time of three operators
            return e.cast_within(e.cast_within(symbol, DType.int(bits)), U64)
        low = e.emit("BitwiseAnd", symbol, self._constant((1 << bits) - 1))
        sign = self._constant(1 << (bits - 1))
        return e.emit("Sub", e.emit("BitwiseXor", low, sign), sign)

    def split(self, a: Limb) -> tuple[Limb, Limb]:
        """Its low 32 bits and what is left, which counts 2^32."""
        if a.symbol is None:
            return self.number(a.window.lo & _LOW), self.number(a.window.lo >> DIGIT)
        key = (a.symbol.id, a.window)
        found = self._split.get(key)
        if found is None:
            found = self._split[key] = self.masked(a, _LOW), self.cut(a, DIGIT)
        return found

    # Columns

    def column(self, entries: Sequence[Limb], spill: list[Limb]) -> Limb:
        """Return the sum of one column; its overflow goes to the next one, `spill`."""
        total = NOTHING
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
        """The sum of what stands in the topmost column, modulo 2^64."""
        total = NOTHING
        for entry in entries:
            window = total.window + entry.window
            total = self.plus(total, entry, window if is_window(window) else _ALL)
        return total

    def summed(self, columns: Sequence[Sequence[Limb]], most: int, interval: Interval) -> Value:
        """The sum of all columns modulo 2^(32 most). interval: of the sum before it is taken modulo anything."""
        waiting: list[list[Limb]] = [[limb for limb in column if not limb.is_nothing] for column in columns]
        is_exact = not any(waiting[most:])
        limbs: list[Limb] = []
        while len(limbs) < min(len(waiting), most):
            entries = waiting[len(limbs)]
            if len(limbs) == most - 1:
                limbs.append(self.modular(entries))
                is_exact &= limbs[-1].window == _sum(entries)
                break
            spill: list[Limb] = []
            limbs.append(self.column(entries, spill))
            spill = [limb for limb in spill if not limb.is_nothing]
            if spill:
                if len(limbs) == len(waiting):
                    waiting.append([])
                waiting[len(limbs)] += spill
        return _value(limbs, interval if is_exact else None)

    def digits(self, value: Value, least: int = 1, most: int = ENDLESS) -> tuple[Limb, ...]:
        """Its digits in base 2^32, the last one signed: `least` or more of them, till the last one has a digit's size.

        Above `most` they are cut off, and the last one is anything that has its low 32 bits.
        """
        done: list[Limb] = []
        limbs = list(value.limbs)
        carries: list[Limb] = []
        while True:
            entries = [*carries, *limbs[len(done) : len(done) + 1]]
            if len(done) == most - 1:
                return (*done, self.modular(entries))
            carries = []
            total = self.column(entries, carries)
            floor = value.interval >> (DIGIT * len(done))
            if len(done) + 1 >= len(limbs) and not any(not c.is_nothing for c in carries):
                if total.symbol is not None:
                    total = Limb(total.symbol, total.window.met(floor))
                is_last = total.window.within(_SIGNED_DIGIT) or total.window.within(_DIGIT)
                if is_last and len(done) + 1 >= least:
                    return (*done, total)
            low, carry = self.split(total)
            done.append(low)
            if not carry.is_nothing:
                carries.append(carry)

    # Values

    def add(self, a: Value, b: Value, most: int) -> Value:
        return self.summed(_beside(a, b), most, a.interval + b.interval)

    def subtract(self, a: Value, b: Value, most: int) -> Value:
        b = self._reversible(b)
        columns: list[list[Limb]] = []
        for i in range(max(len(a.limbs), len(b.limbs))):
            x = a.limbs[i] if i < len(a.limbs) else NOTHING
            y = b.limbs[i] if i < len(b.limbs) else NOTHING
            window = x.window + -y.window
            if y.symbol is not None and is_window(window):
                columns.append([Limb(e.emit("Sub", self.symbol(x), y.symbol), window)])
            else:
                columns.append([x, self.negative(y)])
        return self.summed(columns, most, a.interval + -b.interval)

    def negate(self, a: Value) -> Value:
        return Value(tuple(map(self.negative, self._reversible(a).limbs)), -a.interval)

    def inverted(self, a: Value) -> Value:
        """Every bit flipped: -a - 1."""
        low, *above = self._reversible(a).limbs
        once = Interval(-1, -1)
        flipped = Limb(None if low.symbol is None else e.emit("BitwiseNot", low.symbol), -low.window + once)
        return Value((flipped, *map(self.negative, above)), -a.interval + once)

    def _reversible(self, a: Value) -> Value:
        """The value in limbs whose windows are windows too with the other sign, with room for one more."""
        if all(is_window(-limb.window + Interval(-1, 0)) for limb in a.limbs):
            return a
        return Value(self.digits(a), a.interval)

    def multiply(self, a: Value, b: Value, most: int) -> Value:
        """The product modulo 2^(32 most): the greatest limbs are split until every partial product has a window."""
        left, right = list(a.limbs), list(b.limbs)
        while not _has_windows(left, right, most):
            # Digits stay what they are, though limbs of the other side may be smaller and no digits.
            of_left, of_right = (
                0 if _are_digits(side) else max(limb.window.size for limb in side) for side in (left, right)
            )
            if of_left >= of_right:
                left = list(self.digits(Value(tuple(left), a.interval)))
            if of_right >= of_left:
                right = list(self.digits(Value(tuple(right), b.interval)))
        columns: list[list[Limb]] = [[] for _ in range(min(len(left) + len(right) - 1, most))]
        is_exact = True
        for i, x in enumerate(left):
            for j, y in enumerate(right):
                window = x.window * y.window
                if i + j >= most:
                    is_exact &= window == (0, 0)
                    continue
                is_exact &= is_window(window)
                columns[i + j].append(self.times(x, y, window if is_window(window) else _ALL))
        made = self.summed(columns, most, a.interval * b.interval)
        return made if is_exact else _value(made.limbs, None)

    def wrapped(self, value: Value, dtype: DType) -> Value:
        """The value of `dtype` that is the same modulo 2^bits."""
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

    def low64(self, value: Value) -> Limb:
        """The value modulo 2^64."""
        low, *above = value.limbs
        if above:
            upper = self.times(above[0], self.number(1 << DIGIT), _ALL)
            low = self.plus(low, upper, _ALL)
        return low

    def full(self, value: Value) -> list[Symbol]:
        """The tensors of its limbs, all of one shape."""
        some = next((limb.symbol for limb in value.limbs if limb.symbol is not None), None)
        if some is None:
            return [self.symbol(limb) for limb in value.limbs]
        nothing: Symbol | None = None
        made = []
        for limb in value.limbs:
            symbol = limb.symbol
            if symbol is None:
                nothing = e.emit("BitwiseAnd", some, self._constant(0)) if nothing is None else nothing
                symbol = e.emit("Add", nothing, self.symbol(limb)) if limb.window.lo else nothing
            made.append(symbol)
        return made

    def negative_mask(self, value: Value) -> Symbol:
        """Return whether a value is less than 0, as a tensor of bools."""
        digits = self.digits(value)
        bias = max(0, -digits[-1].window.lo)
        symbol = self.full(Value(digits, value.interval))[-1]
        if bias:
            symbol = e.emit("Add", symbol, self._constant(bias))
        return e.less(symbol, self._constant(bias))

    def zero_mask(self, value: Value) -> Symbol:
        """Return whether a value is 0, as a tensor of bools."""
        symbols = self.full(Value(self.digits(value), value.interval))
        met = symbols[0]
        for symbol in symbols[1:]:
            met = e.emit("BitwiseOr", met, symbol)
        return e.equal(met, self._constant(0))

    def chosen(self, condition: Symbol, a: Value, b: Value) -> Value:
        """`a` where `condition` holds, else `b`."""
        left, right = self.aligned([a, b])
        limbs = []
        for place, (x, y) in enumerate(zip(left, right, strict=True)):
            if x.symbol is y.symbol and x.window == y.window:
                limbs.append(x)
                continue
            first = self.symbol(x)
            if x.symbol is None and y.symbol is None:  # the condition may not have the shape of the value
                first = self.full(Value(tuple(left), a.interval))[place]
            limbs.append(Limb(e.where(condition, first, self.symbol(y)), joined((x.window, y.window))))
        return Value(tuple(limbs), joined((a.interval, b.interval)))

    def aligned(self, values: Sequence[Value]) -> list[list[Limb]]:
        """The limbs of several values, as many of each, such that corresponding ones have one window."""
        limbs = [value.limbs for value in values]
        count = max(map(len, limbs))
        rows = [[*row, *[NOTHING] * (count - len(row))] for row in limbs]
        if all(is_window(joined([row[i].window for row in rows])) for i in range(count)):
            return rows
        rows = [list(self.digits(value)) for value in values]
        count = max(map(len, rows))
        return [list(self.digits(value, count)) for value in values]


def _sum(entries: Sequence[Limb]) -> Interval:
    total = Interval(0, 0)
    for entry in entries:
        total = total + entry.window
    return total


def _value(limbs: Sequence[Limb], interval: Interval | None) -> Value:
    """A value of limbs without those above that are nothing; its interval is met with what the windows tell."""
    kept = list(limbs) or [NOTHING]
    while len(kept) > 1 and kept[-1].is_nothing:
        kept.pop()
    told = Interval(
        sum(limb.window.lo << (DIGIT * i) for i, limb in enumerate(kept)),
        sum(limb.window.hi << (DIGIT * i) for i, limb in enumerate(kept)),
    )
    return Value(tuple(kept), told if interval is None else interval.met(told))


def _beside(a: Value, b: Value) -> list[list[Limb]]:
    count = max(len(a.limbs), len(b.limbs))
    return [[*a.limbs[i : i + 1], *b.limbs[i : i + 1]] for i in range(count)]


def _are_digits(limbs: Sequence[Limb]) -> bool:
    """Return whether limbs are digits in base 2^32, the last of which may have a sign."""
    *below, last = limbs
    return all(limb.window.within(_DIGIT) for limb in below) and (
        last.window.within(_DIGIT) or last.window.within(_SIGNED_DIGIT)
    )


def _has_windows(left: Sequence[Limb], right: Sequence[Limb], most: int) -> bool:
    """Return whether every partial product that is not in the topmost column or beyond has a window."""
    return all(
        is_window(x.window * y.window) for i, x in enumerate(left) for j, y in enumerate(right) if i + j < most - 1
    )
