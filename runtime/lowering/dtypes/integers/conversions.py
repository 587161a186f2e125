"""Conversions between limbs of wide integers and uint32 digits, floats, bools and integers of ONNX."""

from __future__ import annotations

import functools
import math

import numpy as np

from graphcore.arrays.big_integers import DIGIT, count_of
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol, present
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, of_array, of_dtype
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, Limbs, WideValue, is_window, window_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape

_F64, _I64, _U32 = DType.float64, DType.int64, DType.uint32
_FLOAT_DIGITS = 32
"""The digits of the largest float64, which is below 2^1024."""


# Inputs, outputs, constants


def unpacked(symbol: Symbol, dtype: DType, limits: Interval | None = None) -> WideValue:
    """Return the value of uint32 digits along the last axis. limits: an interval that has it; without, it may exceed
    the dtype's range."""
    count = count_of(dtype.bits)
    limbs = []
    for place in range(count):
        at = symbol.graph.build.scalar(place, _I64)
        digit = e.emit("Gather", symbol, at, axis=-1)
        window = Interval(0, (1 << DIGIT) - 1)
        if place == count - 1 and dtype.is_signed:
            digit, window = e.bitcast(digit, DType.int32), Interval(-(1 << 31), (1 << 31) - 1)
        if place == count - 1 and limits is not None:
            window = window.intersection(limits >> (DIGIT * place))
        limbs.append(Limb(e.cast_within(digit, U64), window))
    interval = window_of(limbs)
    return WideValue(tuple(limbs), interval if limits is None else interval.intersection(limits))


def packed(limbs: Limbs, value: WideValue, dtype: DType, shape: Shape) -> Symbol:
    """Return the uint32 digits of a value modulo 2^bits along a last axis; the sign or zeros fill the last digit."""
    count = count_of(dtype.bits)
    if dtype.bits % DIGIT:
        value = limbs.wrapped(value, dtype)
    digits: list[Limb] = []
    last: list[Limb] = []
    carries: list[Limb] = []
    for place in range(count):
        entries = [*carries, *value.limbs[place : place + 1]]
        if place == count - 1:
            last = entries
            break
        carries = []
        digits.append(limbs.column(entries, carries))
        # Only 32 bits of the last digit count, so the sign of the carry into it does not matter.
        carries.append(limbs.logical(digits[-1]) if place == count - 2 else limbs.cut(digits[-1], DIGIT))
    # The last digit is summed in 32 bits, which halves the work.
    digits += last or [limbs.number(0)]
    parts = [e.cast_within(s, _U32) for s in limbs.full(WideValue(tuple(digits), value.interval))]
    symbols = parts[: count - 1]
    symbols.append(functools.reduce(functools.partial(e.emit, "Add"), parts[count - 1 :]))
    line = symbols[0].graph.build.vector([-1])
    columns = [e.emit("Unsqueeze", s, line, shape=_append_dim(shape, 1)) for s in symbols]
    return e.emit("Concat", *columns, shape=_append_dim(shape, count), axis=-1)


def _append_dim(shape: Shape, size: int) -> Shape:
    return Shape((*shape, size)) if shape.is_ranked else shape


def of_constant(limbs: Limbs, like: Symbol, array: np.ndarray[tuple[int, ...], np.dtype[np.object_]]) -> WideValue:
    """Return the value of an array of Python integers. like: a Symbol whose graph gets the constants."""
    interval = of_array(array) or Interval(0, 0)
    if not array.ndim:
        return of_number(limbs, interval.lo)
    if is_window(interval):
        return WideValue((_constant_limb(like, array),), interval)
    pieces = []
    rest = array
    count = count_of(max(interval.lo.bit_length(), interval.hi.bit_length()) + 1)
    for _ in range(count - 1):
        pieces.append(_constant_limb(like, rest % (1 << DIGIT)))
        rest = rest >> DIGIT
    pieces.append(_constant_limb(like, rest))
    return WideValue(tuple(pieces), interval)


def _constant_limb(like: Symbol, array: np.ndarray[tuple[int, ...], np.dtype[np.object_]]) -> Limb:
    window = of_array(array) or Interval(0, 0)
    return Limb(like.graph.build.constant((array % (1 << 64)).astype(np.uint64), U64), window)


def of_number(limbs: Limbs, number: int) -> WideValue:
    """Return the value of one integer, of any shape."""
    interval = Interval(number, number)
    lower = []
    while not is_window(Interval(min(number, 0), max(number, 0))):
        lower.append(limbs.number(number % (1 << DIGIT)))
        number >>= DIGIT
    return WideValue((*lower, limbs.number(number)), interval)


# Integers


def widened(symbol: Symbol, interval: Interval) -> WideValue:
    """Return the value of an integer tensor of up to 64 bits, or of bools."""
    stored = e.bitcast if symbol.dtype is _I64 else e.cast_within
    return WideValue((Limb(stored(symbol, U64), interval),), interval)


def split(limbs: Limbs, symbol: Symbol, dtype: DType) -> WideValue:
    """Return the value of an odd integer of 33 to 63 bits, known modulo 2^bits: split in two before wrapping."""
    view = e.bitcast(symbol, U64)
    low = limbs.masked(Limb(view, Interval(0, (1 << 64) - 1)), (1 << DIGIT) - 1)
    upper = e.emit("BitShift", view, e.const(view, DIGIT), direction="RIGHT")
    bits = dtype.bits - DIGIT
    limits = Interval(int(dtype.min), int(dtype.max))
    if dtype.is_signed:
        top = Limb(limbs.extended(upper, bits), limits >> DIGIT)
    else:
        top = limbs.masked(Limb(upper, Interval(0, (1 << DIGIT) - 1)), (1 << bits) - 1)
    return WideValue((low, top), limits)


def low_bits(limbs: Limbs, value: WideValue, dtype: DType) -> tuple[Symbol, Interval]:
    """Return the value modulo 2^bits in a dtype that ONNX stores, and its interval."""
    low = value.limbs[0] if dtype.bits <= DIGIT else limbs.low64(value)
    symbol = limbs.symbol(low)
    limits = present(of_dtype(dtype))
    if low.symbol is None and dtype is _I64:  # stays a constant, for later rules
        number = ((low.window.lo + (1 << 63)) % (1 << 64)) - (1 << 63)
        return symbol.graph.build.scalar(number, _I64), Interval(number, number)
    interval = value.interval if value.interval.within(limits) else limits
    if dtype is _I64:
        return e.bitcast(symbol, _I64), interval
    return symbol if dtype is U64 else e.cast_within(symbol, dtype), interval


# Floats


def to_float(limbs: Limbs, value: WideValue, target: DType) -> Symbol:
    """Cast an integer within its dtype's range to `target`, any float, with one rounding."""
    for dtype in (_I64, U64):
        limits = of_dtype(dtype)
        if limits is not None and value.interval.within(limits):
            return e.cast(low_bits(limbs, value, dtype)[0], target)
    negative = limbs.negative_mask(value) if value.interval.lo < 0 else None
    size = value if negative is None else limbs.where(negative, limbs.negate(value), value)
    size = WideValue(size.limbs, Interval(0, value.interval.size))
    digits = [e.bitcast(symbol, _I64) for symbol, _ in limbs.whole_digits(size, 3)]
    constant = digits[0].graph.build.scalar
    # The highest nonzero digit, the two below it, whether anything below those is nonzero, and their scale.
    parts = digits[2::-1]
    scale: Symbol = constant(1.0, _F64)
    below: Symbol | None = None
    for place in range(3, min(len(digits), _FLOAT_DIGITS + 2)):
        below = digits[place - 3] if below is None else e.emit("BitwiseOr", below, digits[place - 3])
        some = e.opposite(e.equal(digits[place], constant(0, _I64)))
        rest = e.cast_within(e.opposite(e.equal(below, constant(0, _I64))), _I64)
        third = e.emit("BitwiseOr", digits[place - 2], rest)
        above = (digits[place], digits[place - 1], third)
        parts = [e.where(some, new, old) for new, old in zip(above, parts, strict=True)]
        scale = e.where(some, constant(2.0 ** (DIGIT * (place - 2)), _F64), scale)
    result = _rounded(*(e.cast_within(part, _F64) for part in parts), to_odd=target is not _F64)
    result = e.emit("Mul", result, scale)
    beyond = digits[_FLOAT_DIGITS + 2 :]
    if beyond:
        some = functools.reduce(functools.partial(e.emit, "BitwiseOr"), beyond)
        result = e.where(e.equal(some, constant(0, _I64)), result, constant(math.inf, _F64))
    if negative is not None:
        result = e.where(negative, e.emit("Neg", result), result)
    return e.cast(result, target)


def _rounded(a: Symbol, b: Symbol, c: Symbol, *, to_odd: bool) -> Symbol:
    """Return a 2^64 + b 2^32 + c as float64, rounded once: the sum of the upper two and its error are exact.

    to_odd: an inexact result becomes the neighbour whose last bit is set, which rounds to fewer bits as the exact sum
    does.
    """
    constant = a.graph.build.scalar
    a = e.emit("Mul", a, constant(2.0**64, _F64))
    b = e.emit("Mul", b, constant(2.0**32, _F64))
    upper = e.emit("Add", a, b)
    lost = e.emit("Sub", b, e.emit("Sub", upper, a))
    rest = e.emit("Add", lost, c)
    result = e.emit("Add", upper, rest)
    if not to_odd:
        return result
    error = e.emit("Sub", rest, e.emit("Sub", result, upper))
    zero = constant(0.0, _F64)
    up, down = (e.cast_within(test(error, zero), _I64) for test in (e.greater, e.less))
    bits = e.bitcast(result, _I64)
    is_even = e.emit("BitwiseAnd", e.emit("BitwiseNot", bits), constant(1, _I64))
    step = e.emit("Mul", e.emit("Sub", up, down), is_even)
    return e.bitcast(e.emit("Add", bits, step), _F64)


def of_float(limbs: Limbs, symbol: Symbol, dtype: DType) -> WideValue:
    """Truncate a float tensor and saturate it at the limits of `dtype`; NaN becomes 0."""
    constant = symbol.graph.build.scalar
    zero = constant(0.0, _F64)
    x = e.cast(symbol, _F64)
    x = e.where(e.emit("IsNaN", x, dtype=DType.bool), zero, x)
    count, bits = count_of(dtype.bits), dtype.bits - dtype.is_signed
    is_limited = bits < DIGIT * _FLOAT_DIGITS  # a finite float may lie beyond the limits
    limit = constant(2.0**bits if is_limited else math.inf, _F64)
    over = e.cast_within(e.emit("GreaterOrEqual", x, limit, dtype=DType.bool), U64)
    sign = e.emit("Sign", x) if dtype.is_signed else None
    size = e.emit("Abs", x) if sign is not None else e.emit("Max", x, zero)
    infinite = e.equal(size, limit)
    rest = e.emit("Floor", e.emit("Min", size, limit) if is_limited else e.where(infinite, zero, size))
    pieces: list[Limb] = []
    for place in range(count - 1, -1, -1):
        digit = rest
        if place >= _FLOAT_DIGITS:
            if place < count - 1:
                pieces.insert(0, limbs.number(0))
                continue
            digit = e.where(infinite, constant(2.0 ** (bits - DIGIT * place), _F64), zero)
        elif place:
            digit = e.emit("Floor", e.emit("Mul", rest, constant(2.0 ** (-DIGIT * place), _F64)))
            rest = e.emit("Sub", rest, e.emit("Mul", digit, constant(2.0 ** (DIGIT * place), _F64)))
            if place == count - 1 and not is_limited:
                digit = e.where(infinite, constant(2.0 ** (bits - DIGIT * place), _F64), digit)
        signed = digit if sign is None else e.emit("Mul", digit, sign)
        whole = e.bitcast(e.cast_within(signed, _I64), U64)
        window = Interval(0 if sign is None else -(1 << DIGIT), 1 << DIGIT)
        pieces.insert(0, Limb(whole, window))
    low = pieces[0]
    pieces[0] = Limb(e.emit("Sub", limbs.symbol(low), over), low.window + Interval(-1, 0))
    return WideValue(tuple(pieces), Interval(int(dtype.min), int(dtype.max)))
