"""Quotients and remainders of integers of thousands of bits: long division in a Scan, word by word.

It needs as many nodes for every width: see `words`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.runtime.lowering.dtypes.integers import conversions, words
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, WideDigits, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, UNLIMITED, ZERO, Limb, Limbs, WideValue
from graphcore.runtime.lowering.dtypes.integers.wide.operands import digits_of, max_limbs, require_ranks
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_F64, _I64 = DType.float64, DType.int64
_BASE = 1 << words.BITS
_LOWEST, _HIGHEST = -6, 4
"""The words that matter beside the divisor's highest one: others are below float64's precision, or 0."""


def divided(on: Widths, node: Node) -> Sequence[Result]:
    """Return the result of a Div, FloorDiv or Mod node, as the digits of its dtype."""
    left, right = map(present, node.inputs)
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    require_ranks(node, left, right, node.outputs[0])
    whole = _shape([Dim(words.count_of(dtype)), *shape])
    operands = [words.aligned(words.of_digits(digits_of(on, s, dtype), dtype), len(whole)) for s in (left, right)]
    zeros = [e.emit("Mul", s, e.const(s, 0)) for s in operands]
    x, y = (e.emit("Add", operands[i], zeros[1 - i], shape=whole) for i in range(2))
    signs = [_sign(s, dtype) for s in (x, y)]
    x, y = (_magnitude(s, sign, dtype) for s, sign in zip((x, y), signs, strict=True))
    is_zero = _is_zero(y)
    quotient, rest = _divided(x, e.where(is_zero, words.one(y, dtype, len(whole)), y))
    result = _result(node, quotient, rest, y, signs)
    result = e.where(is_zero, e.const(result, 0), result)
    return (WideDigits(words.to_digits(words.propagate_carries(result)[1], dtype)),)


def _result(node: Node, quotient: Symbol, rest: Symbol, y: Symbol, signs: list[Symbol | None]) -> Symbol:
    """Return the quotient or remainder of signed numbers, in words with pending carries."""
    of_x, of_y = signs
    if of_x is None or of_y is None:
        return rest if node.op_type == "Mod" else quotient
    opposed = e.emit("Xor", of_x, of_y)
    differs = e.both(opposed, e.opposite(_is_zero(rest)))
    if node.op_type == "Mod":
        result = e.where(of_x, e.emit("Neg", rest), rest)
        if node.attributes.get("fmod"):
            return result
        divisor = e.where(of_y, e.emit("Neg", y), y)
        return e.where(differs, e.emit("Add", result, divisor), result)
    if node.op_type == "FloorDiv":
        quotient = e.emit("Add", quotient, _lowest(quotient, e.cast_within(differs, _I64)))
    return e.where(opposed, e.emit("Neg", quotient), quotient)


def _lowest(like: Symbol, word: Symbol) -> Symbol:
    """Return words of which all but the lowest are 0."""
    return e.emit("Mul", words.along(like, [1] + [0] * (int(like.shape[0]) - 1), _I64, like.rank), word)


def _sign(x: Symbol, dtype: DType) -> Symbol | None:
    """Return where the highest bit is set; None for unsigned integers."""
    if dtype.is_unsigned:
        return None
    last = words.count_of(dtype) - 1
    bit = 1 << (dtype.bits - 1 - words.BITS * last)
    top = e.emit("Gather", x, x.graph.build.vector([last]), axis=0)
    return e.opposite(e.less(top, e.const(x, bit)))


def _magnitude(x: Symbol, negative: Symbol | None, dtype: DType) -> Symbol:
    if negative is None:
        return x
    last = words.count_of(dtype) - 1
    end = words.along(x, [0] * last + [1 << (dtype.bits - words.BITS * last)], _I64, x.rank)
    return words.propagate_carries(e.where(negative, e.emit("Sub", end, x, shape=x.shape), x))[1]


def _is_zero(x: Symbol) -> Symbol:
    maximum = e.emit("ReduceMax", x, e.ints(x, [0]), keepdims=1)
    return e.equal(maximum, e.const(maximum, 0))


def _divided(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
    """Return the quotient, in words with pending carries, and the remainder.

    float64 gives each word of the quotient to within half a unit, so that the magnitude of the remainder is at most a
    little more than half of the divisor. Its words stay between -2^15 - 2 and 2^15 + 2: the excess of each goes to the
    next one, twice per step.
    """
    rank, count = x.rank, int(x.shape[0])
    longer = _shape([Dim(count + 2), *x.shape[1:]])
    pads = [0] * rank + [2] + [0] * (rank - 1)
    divisor = e.emit("Pad", y, e.ints(y, pads), None, None, shape=longer, mode="constant")
    weights = _weights(divisor)
    size = _weighed(divisor, weights)
    start = e.emit("Mul", divisor, e.const(divisor, 0))

    def step(rest: Symbol, word: Symbol) -> list[Symbol]:
        low = e.unsqueeze(word, 0)
        moved = e.emit("Concat", low, _rows(rest, 0, count + 1), axis=0)
        by, weights_of, below = (word.graph.build.own(s, "Mul", "y") for s in (divisor, weights, size))
        digit = e.cast_within(e.emit("Round", e.emit("Div", _weighed(moved, weights_of), below)), _I64)
        remainder = e.emit("Sub", moved, e.emit("Mul", digit, by, shape=longer))
        for _ in range(2):
            remainder = _pass_excess_on(remainder, low)
        return [remainder, e.squeeze(digit, 0)]

    rest, quotient = words.scanned(step, start, x, reverse=True)
    carry, rest = words.propagate_carries(rest)
    carry = e.unsqueeze(carry, 0)
    below = e.cast_within(e.less(carry, e.const(carry, 0)), _I64)
    whole = e.emit("Add", rest, e.emit("Mul", below, divisor, shape=longer))
    rest = _rows(words.propagate_carries(whole)[1], 0, count)
    return e.emit("Sub", quotient, _lowest(quotient, below)), rest


def _rows(x: Symbol, start: int, end: int) -> Symbol:
    return e.emit("Slice", x, *(e.ints(x, [v]) for v in (start, end, 0)))


def _weights(y: Symbol) -> Symbol:
    """Return the weight of each word relative to the highest nonzero word of y."""
    places = words.along(y, range(int(y.shape[0])), _I64, y.rank)
    some = e.cast_within(e.greater(y, e.const(y, 0)), _I64)
    top = e.emit("ReduceMax", e.emit("Mul", some, places), e.ints(y, [0]), keepdims=1)
    distance = e.emit("Sub", places, top, shape=y.shape)
    bounded = e.emit("Min", e.emit("Max", distance, e.const(distance, _LOWEST)), e.const(distance, _HIGHEST))
    table = [0.0, *(2.0 ** (words.BITS * i) for i in range(_LOWEST + 1, _HIGHEST + 1))]
    factors = y.graph.build.constant(np.array(table), _F64)
    return e.emit("Gather", factors, e.emit("Sub", bounded, e.const(bounded, _LOWEST)), shape=y.shape, axis=0)


def _weighed(x: Symbol, weights: Symbol) -> Symbol:
    parts = e.emit("Mul", e.cast_within(x, _F64), weights)
    return e.emit("ReduceSum", parts, e.ints(x, [0]), keepdims=1)


def _pass_excess_on(x: Symbol, nothing_like: Symbol) -> Symbol:
    """Return words whose excess beyond -2^15 to 2^15 is added to the next ones."""
    half = e.const(x, _BASE // 2)
    low = e.emit("Sub", e.emit("BitwiseAnd", e.emit("Add", x, half), e.const(x, _BASE - 1)), half)
    carry = e.emit("Div", e.emit("Sub", x, low), e.const(x, _BASE))
    zero = e.emit("Mul", nothing_like, e.const(x, 0))
    below = e.emit("Concat", zero, _rows(carry, 0, int(x.shape[0]) - 1), shape=x.shape, axis=0)
    return e.emit("Add", low, below)


# Products of integers of thousands of bits: multiplying limbs one by one takes as many nodes as the square of their
# number.

_MAX_LIMBS = 32
"""Products of up to so many limbs run faster limb by limb than in a Scan."""


def is_long(node: Node) -> bool:
    """Return True if the operands of a product are multiplied word by word."""
    return max_limbs(node) > _MAX_LIMBS and all(s is not None and s.shape.is_ranked for s in node.inputs)


def multiplied(on: Widths, node: Node, *, is_square: bool = False) -> Sequence[Result]:
    """Return the product of the first two operands, or the square of one, plus an optional third."""
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    operands = _words_of(on, node, dtype)
    x, y, *terms = operands * 2 if is_square else operands
    whole = _shape([Dim(words.count_of(dtype)), *shape])
    if y.shape != whole:
        x, y = y, x
    if y.shape != whole:
        others = [e.emit("Mul", s, e.const(s, 0)) for s in (words.aligned(s, len(whole)) for s in (x, *terms))]
        y = reduce(lambda a, b: e.emit("Add", a, b, shape=whole), others, words.aligned(y, len(whole)))
    return (WideDigits(words.to_digits(words.multiplied(x, y, *terms), dtype)),)


def contracted(on: Widths, node: Node) -> Sequence[Result]:
    """Return the matrix product of two operands."""
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    x, y = _words_of(on, node, dtype)
    dims = list(shape)
    lines = []
    if x.rank == 2:  # a vector becomes a row, which the result does not have
        x = e.unsqueeze(x, 1)
        dims.insert(len(dims) - (y.rank > 2), Dim(1))
        lines.append(-1 - (y.rank > 2))
    if y.rank == 2:
        y = e.unsqueeze(y, 2)
        dims.append(Dim(1))
        lines = [-1, *(axis - 1 for axis in lines)]
    whole = _shape([x.shape[0], *dims])
    result = words.contracted(x, words.aligned(y, max(x.rank, y.rank)), whole)
    if lines:
        result = e.squeeze(result, *lines)
    return (WideDigits(words.to_digits(result, dtype)),)


def _words_of(on: Widths, node: Node, dtype: DType) -> list[Symbol]:
    """Return the operands in words of the result's dtype."""
    operands = []
    for symbol in node.inputs:
        assert symbol is not None
        if symbol.dtype is dtype:
            digits = digits_of(on, symbol, dtype)
        else:
            digits = conversions.packed(on.limbs, on.exact_value(symbol), dtype, symbol.shape)
        operands.append(words.of_digits(digits, dtype))
    return operands


# Quotients and remainders of integers of more than 64 bits, by long division in base 2^32.

_ZERO = Interval(0, 0)
_WORD = Interval(0, (1 << 64) - 1)


def limbs_divided(limbs: Limbs, x: WideValue, y: WideValue) -> tuple[WideValue, WideValue]:
    """Return the floored quotient and the remainder of two nonnegative integers; 0 and 0 if y is 0."""
    is_zero = None if y.interval.lo > 0 else limbs.zero_mask(y)
    if is_zero is not None:
        one = conversions.widened(is_zero, Interval(0, 1))
        y = WideValue(limbs.add(y, one, UNLIMITED).limbs, Interval(1, max(1, y.interval.hi)))
    by_digit = y.interval.hi < 1 << DIGIT
    quotient, rest = _by_digit(limbs, x, y) if by_digit else _by_number(limbs, x, y)
    if is_zero is None:
        return quotient, rest
    zero = WideValue((ZERO,), _ZERO)
    return limbs.where(is_zero, zero, quotient), limbs.where(is_zero, zero, rest)


def _by_digit(limbs: Limbs, x: WideValue, y: WideValue) -> tuple[WideValue, WideValue]:
    """Divide by a divisor of 32 bits: each step divides 64 bits by 32."""
    (by, *_) = limbs.digits(y)
    divisor = limbs.symbol(by)
    rest = ZERO
    quotients: list[Limb] = []
    for digit in reversed(limbs.digits(x)):
        dividend = limbs.symbol(limbs.plus(limbs.times(rest, limbs.number(1 << DIGIT), _WORD), digit, _WORD))
        quotient = e.emit("Div", dividend, divisor)
        rest = Limb(e.emit("Sub", dividend, e.emit("Mul", quotient, divisor)), Interval(0, y.interval.hi - 1))
        quotients.insert(0, Limb(quotient, Interval(0, (1 << DIGIT) - 1)))
    return WideValue(tuple(quotients), Interval(0, x.interval.hi)), WideValue((rest,), rest.window)


def _by_number(limbs: Limbs, x: WideValue, y: WideValue) -> tuple[WideValue, WideValue]:
    """Divide by any divisor: float64 gives each digit of the quotient, and the remainder may be negative in between.

    The float quotient is below 2^34 with an error of at most 2^-15, so the magnitude of the remainder after a step is
    at most a little more than half of the divisor, and the next quotient again below 2^34. In the end it is off by at
    most one.
    """
    max_divisor = y.interval.hi
    divisor = _as_float(limbs, y)
    remainder_bounds = Interval(-max_divisor, max_divisor)
    rest = WideValue((ZERO,), _ZERO)
    quotients: list[Limb] = []
    for digit in reversed(limbs.digits(x)):
        bounds = Interval(remainder_bounds.lo << DIGIT, (remainder_bounds.hi + 1) << DIGIT)
        rest = limbs.summed([[digit], *([limb] for limb in rest.limbs)], UNLIMITED, bounds)
        ratio = e.emit("Round", e.emit("Div", _as_float(limbs, rest), divisor))
        whole = Limb(e.bitcast(e.cast_within(ratio, _I64), U64), Interval(-(1 << 34), 1 << 34))
        quotients.insert(0, whole)
        product = limbs.multiply(WideValue((whole,), whole.window), y, UNLIMITED)
        rest = _shorten(limbs, limbs.subtract(rest, product, UNLIMITED), remainder_bounds)
    below = limbs.negative_mask(rest)
    rest = limbs.where(below, limbs.add(rest, y, UNLIMITED), rest)
    step = conversions.widened(below, Interval(0, 1))
    quotient = limbs.subtract(WideValue(tuple(quotients), Interval(0, x.interval.hi + 1)), step, UNLIMITED)
    return WideValue(quotient.limbs, Interval(0, x.interval.hi)), WideValue(rest.limbs, Interval(0, max_divisor - 1))


def _shorten(limbs: Limbs, value: WideValue, interval: Interval) -> WideValue:
    """Return the value in no more digits than its interval needs."""
    count = max(1, -(-(interval.hi.bit_length() + 1) // DIGIT))
    *low, top = limbs.digits(value, count, count)
    if top.symbol is not None:
        top = Limb(limbs.extended(top.symbol, DIGIT), interval >> (DIGIT * (count - 1)))
    return WideValue((*low, top), interval)


def _as_float(limbs: Limbs, value: WideValue) -> Symbol:
    """Return the value as float64, within a few parts in 2^53: sums from the top are exact until they have 53 bits."""
    total: Symbol | None = None
    for place, (symbol, _) in reversed(list(enumerate(limbs.whole_digits(value)))):
        part = e.cast_within(e.bitcast(symbol, _I64), _F64)
        part = e.emit("Mul", part, e.const(part, 2.0 ** (DIGIT * place))) if place else part
        total = part if total is None else e.emit("Add", total, part)
    return present(total)
