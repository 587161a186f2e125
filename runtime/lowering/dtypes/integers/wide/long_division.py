"""Quotients and remainders of integers of thousands of bits: long division in a Scan, word by word.

It takes as many nodes for every width: see `words`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.definitions import body, finish
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.dtypes.integers import conversions, words
from graphcore.runtime.lowering.dtypes.integers.carrying import Digits, Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval
from graphcore.runtime.lowering.dtypes.integers.limbs import ENDLESS, NOTHING, U64, Limb, Limbs, Value
from graphcore.runtime.lowering.dtypes.integers.wide.operands import digits_of, most_limbs, refused
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_F64, _I64 = DType.float64, DType.int64
_BASE = 1 << words.BITS
_LOWEST, _HIGHEST = -6, 4
"""Words that count as much beside the divisor's highest one: further ones are below float64's digits, or 0."""


def divided(on: Widths, node: Node) -> Sequence[Result]:
    """Return the result of a Div, FloorDiv or Mod node, as the digits of its dtype."""
    left, right = node.inputs
    assert left is not None
    assert right is not None
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    if not (left.shape.is_ranked and right.shape.is_ranked and shape.is_ranked):
        raise refused(node, "the rank of an operand is not known")
    whole = _shape([Dim(words.count_of(dtype)), *shape])
    given = [words.aligned(words.of_digits(digits_of(on, s, dtype), dtype), len(whole)) for s in (left, right)]
    nothing = [e.emit("Mul", s, e.const(s, 0)) for s in given]
    x, y = (e.emit("Add", given[i], nothing[1 - i], shape=whole) for i in range(2))
    signs = [_sign(s, dtype) for s in (x, y)]
    x, y = (_magnitude(s, sign, dtype) for s, sign in zip((x, y), signs, strict=True))
    is_zero = _is_zero(y)
    quotient, rest = _divided(x, e.where(is_zero, words.one(y, dtype, len(whole)), y))
    made = _result(node, quotient, rest, y, signs)
    made = e.where(is_zero, e.const(made, 0), made)
    return (Digits(words.to_digits(_carried(made)[1], dtype)),)


def _result(node: Node, quotient: Symbol, rest: Symbol, y: Symbol, signs: list[Symbol | None]) -> Symbol:
    """Return the quotient or remainder of numbers with signs in words that are yet to be carried."""
    of_x, of_y = signs
    if of_x is None or of_y is None:
        return rest if node.op_type == "Mod" else quotient
    opposed = e.emit("Xor", of_x, of_y)
    apart = e.both(opposed, e.opposite(_is_zero(rest)))
    if node.op_type == "Mod":
        made = e.where(of_x, e.emit("Neg", rest), rest)
        if node.attributes.get("fmod"):
            return made
        divisor = e.where(of_y, e.emit("Neg", y), y)
        return e.where(apart, e.emit("Add", made, divisor), made)
    if node.op_type == "FloorDiv":
        quotient = e.emit("Add", quotient, _lowest(quotient, e.cast_within(apart, _I64)))
    return e.where(opposed, e.emit("Neg", quotient), quotient)


def _first(x: Symbol, place: int) -> Symbol:
    """Return one word, along an axis of length 1."""
    return e.emit("Gather", x, x.graph.build.vector([place]), shape=_one(x.shape), axis=0)


def _one(shape: Shape) -> Shape:
    return _shape([Dim(1), *shape[1:]])


def _lowest(like: Symbol, word: Symbol) -> Symbol:
    """Return words of which all but the lowest are 0."""
    count = int(like.shape[0])
    return e.emit("Mul", words.along(like, [1] + [0] * (count - 1), _I64, like.rank), word, shape=like.shape)


def _sign(x: Symbol, dtype: DType) -> Symbol | None:
    """Return where the highest bit is set; None for unsigned integers."""
    if dtype.is_unsigned:
        return None
    last = words.count_of(dtype) - 1
    bit = 1 << (dtype.bits - 1 - words.BITS * last)
    return e.opposite(e.less(_first(x, last), e.const(x, bit)))


def _magnitude(x: Symbol, negative: Symbol | None, dtype: DType) -> Symbol:
    if negative is None:
        return x
    last = words.count_of(dtype) - 1
    end = words.along(x, [0] * last + [1 << (dtype.bits - words.BITS * last)], _I64, x.rank)
    return _carried(e.where(negative, e.emit("Sub", end, x, shape=x.shape), x))[1]


def _is_zero(x: Symbol) -> Symbol:
    most = e.emit("ReduceMax", x, e.ints(x, [0]), shape=_one(x.shape), keepdims=1)
    return e.equal(most, e.const(most, 0))


def _divided(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
    """Return the quotient, in words that are yet to be carried, and the remainder of words.

    float64 tells each word of the quotient to half a unit, so that the remainder so far is at most a little more than
    half of the divisor, either way. Its words are kept between -2^15 - 2 and 2^15 + 2: what is in each that counts
    more goes to the next one, twice a step.
    """
    graph, rank, count = x.graph, x.rank, int(x.shape[0])
    longer = _shape([Dim(count + 2), *x.shape[1:]])
    pads = [0] * rank + [2] + [0] * (rank - 1)
    divisor = e.emit("Pad", y, e.ints(y, pads), None, None, shape=longer, mode="constant")
    weights = _weights(divisor)
    size = _weighed(divisor, weights)
    start = e.emit("Mul", divisor, e.const(divisor, 0))
    types = [tensor_type(_I64, longer), tensor_type(_I64, _shape(x.shape[1:]))]
    with body(graph, "divide", types) as step:
        rest, word = step.inputs
        low = e.emit("Unsqueeze", word, step.build.vector([0]), shape=_one(x.shape))
        above = _rows(rest, 0, count + 1)
        moved = e.emit("Concat", low, above, shape=longer, axis=0)
        own = {name: step.build.own(s, "Mul", name) for name, s in (("y", divisor), ("w", weights), ("size", size))}
        ratio = e.emit("Round", e.emit("Div", _weighed(moved, own["w"]), own["size"]))
        digit = e.cast_within(ratio, _I64)
        left = e.emit("Sub", moved, e.emit("Mul", digit, own["y"], shape=longer))
        for _ in range(2):
            left = _passed_on(left, low)
        found = e.emit("Squeeze", digit, step.build.vector([0]), shape=_shape(x.shape[1:]))
        finish(step, [left, found])
    attributes = {
        "body": step, "num_scan_inputs": 1, "scan_input_axes": [0], "scan_input_directions": [1],
        "scan_output_axes": [0], "scan_output_directions": [1],
    }  # fmt: skip
    rest, quotient = graph.build.emit_many("Scan", (start, x), [types[0], x.type], attributes)
    carry, rest = _carried(rest)
    below = e.cast_within(e.less(carry, e.const(carry, 0)), _I64)
    whole = e.emit("Add", rest, e.emit("Mul", below, divisor, shape=longer))
    rest = _rows(_carried(whole)[1], 0, count)
    return e.emit("Sub", quotient, _lowest(quotient, below)), rest


def _rows(x: Symbol, start: int, end: int) -> Symbol:
    build = x.graph.build
    shape = _shape([Dim(end - start), *x.shape[1:]])
    return e.emit("Slice", x, *(build.vector([v]) for v in (start, end, 0)), shape=shape)


def _weights(y: Symbol) -> Symbol:
    """Return by what each word counts beside the highest of y that is not 0."""
    places = words.along(y, range(int(y.shape[0])), _I64, y.rank)
    some = e.cast_within(e.greater(y, e.const(y, 0)), _I64)
    top = e.emit("ReduceMax", e.emit("Mul", some, places), e.ints(y, [0]), shape=_one(y.shape), keepdims=1)
    apart = e.emit("Sub", places, top, shape=y.shape)
    bounded = e.emit("Min", e.emit("Max", apart, e.const(apart, _LOWEST)), e.const(apart, _HIGHEST))
    table = [0.0, *(2.0 ** (words.BITS * i) for i in range(_LOWEST + 1, _HIGHEST + 1))]
    held = y.graph.build.constant(np.array(table), _F64)
    return e.emit("Gather", held, e.emit("Sub", bounded, e.const(bounded, _LOWEST)), shape=y.shape, axis=0)


def _weighed(x: Symbol, weights: Symbol) -> Symbol:
    parts = e.emit("Mul", e.cast_within(x, _F64), weights)
    return e.emit("ReduceSum", parts, e.ints(x, [0]), shape=_one(x.shape), keepdims=1)


def _passed_on(x: Symbol, nothing_like: Symbol) -> Symbol:
    """Return words with what is beyond -2^15 to 2^15 added to the next ones."""
    half = e.const(x, _BASE // 2)
    low = e.emit("Sub", e.emit("BitwiseAnd", e.emit("Add", x, half), e.const(x, _BASE - 1)), half)
    carry = e.emit("Div", e.emit("Sub", x, low), e.const(x, _BASE))
    zero = e.emit("Mul", nothing_like, e.const(x, 0))
    below = e.emit("Concat", zero, _rows(carry, 0, int(x.shape[0]) - 1), shape=x.shape, axis=0)
    return e.emit("Add", low, below)


def _carried(columns: Symbol) -> tuple[Symbol, Symbol]:
    """Return what goes beyond the last word, below 0 of a negative number, along an axis of length 1; and the words."""
    graph, shape = columns.graph, _shape(columns.shape[1:])
    types = [tensor_type(_I64, shape), tensor_type(_I64, shape)]
    with body(graph, "carry", types) as step:
        carry, column = step.inputs
        total = e.emit("Add", column, carry)
        low = e.emit("BitwiseAnd", total, e.const(total, _BASE - 1))
        finish(step, [e.emit("Div", e.emit("Sub", total, low), e.const(total, _BASE)), low])
    first = e.emit("Gather", columns, graph.build.scalar(0, _I64), shape=shape, axis=0)
    start = e.emit("Mul", first, e.const(first, 0))
    attributes = {"body": step, "num_scan_inputs": 1, "scan_input_axes": [0], "scan_output_axes": [0]}
    beyond, made = graph.build.emit_many("Scan", (start, columns), [types[0], columns.type], attributes)
    last = e.emit("Unsqueeze", beyond, e.ints(beyond, [0]), shape=_one(columns.shape))
    return last, made


# Products of integers of thousands of bits: limbs multiplied one by one take as many nodes as the square of their
# number.

_MOST_LIMBS = 32
"""Limbs of a product up to which the products of each two of them run faster than a Scan."""


def is_long(node: Node) -> bool:
    """Return whether the operands of a product are to be multiplied word by word."""
    return most_limbs(node) > _MOST_LIMBS and all(s is not None and s.shape.is_ranked for s in node.inputs)


def multiplied(on: Widths, node: Node, *, is_square: bool = False) -> Sequence[Result]:
    """Return the product of the first two operands, or the square of one, and what a third adds to it."""
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    given = _words_of(on, node, dtype)
    x, y, *terms = given * 2 if is_square else given
    whole = _shape([Dim(words.count_of(dtype)), *shape])
    if y.shape != whole:
        x, y = y, x
    if y.shape != whole:
        others = [e.emit("Mul", s, e.const(s, 0)) for s in (words.aligned(s, len(whole)) for s in (x, *terms))]
        y = reduce(lambda a, b: e.emit("Add", a, b, shape=whole), others, words.aligned(y, len(whole)))
    return (Digits(words.to_digits(words.multiplied(x, y, *terms), dtype)),)


def contracted(on: Widths, node: Node) -> Sequence[Result]:
    """Return the matrix product of two operands."""
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    x, y = _words_of(on, node, dtype)
    dims = list(shape)
    lines = []
    if x.rank == 2:  # of a vector: it has a row, which the result does not have
        x = e.emit("Unsqueeze", x, e.ints(x, [1]), shape=_shape([x.shape[0], Dim(1), x.shape[1]]))
        dims.insert(len(dims) - (y.rank > 2), Dim(1))
        lines.append(-1 - (y.rank > 2))
    if y.rank == 2:
        y = e.emit("Unsqueeze", y, e.ints(y, [2]), shape=_shape([*y.shape, Dim(1)]))
        dims.append(Dim(1))
        lines = [-1, *(axis - 1 for axis in lines)]
    whole = _shape([x.shape[0], *dims])
    made = words.contracted(x, words.aligned(y, max(x.rank, y.rank)), whole)
    if lines:
        made = e.emit("Squeeze", made, e.ints(made, lines), shape=_shape([x.shape[0], *shape]))
    return (Digits(words.to_digits(made, dtype)),)


def _words_of(on: Widths, node: Node, dtype: DType) -> list[Symbol]:
    """Return the operands in words of the result's dtype."""
    made = []
    for symbol in node.inputs:
        assert symbol is not None
        if symbol.dtype is dtype:
            digits = digits_of(on, symbol, dtype)
        else:
            digits = conversions.packed(on.limbs, on.exact_value(symbol), dtype, symbol.shape)
        made.append(words.of_digits(digits, dtype))
    return made


# Quotients and remainders of integers of more than 64 bits, by school's long division in base 2^32.

_ZERO = Interval(0, 0)
_WORD = Interval(0, (1 << 64) - 1)


def limbs_divided(limbs: Limbs, x: Value, y: Value) -> tuple[Value, Value]:
    """The quotient, rounded down, and the remainder of two integers that are not negative; 0 and 0 where y is 0."""
    nothing = None if y.interval.lo > 0 else limbs.zero_mask(y)
    if nothing is not None:
        one = Value((Limb(e.cast_within(nothing, U64), Interval(0, 1)),), Interval(0, 1))
        y = Value(limbs.add(y, one, ENDLESS).limbs, Interval(1, max(1, y.interval.hi)))
    by_digit = y.interval.hi < 1 << DIGIT
    quotient, rest = _by_digit(limbs, x, y) if by_digit else _by_number(limbs, x, y)
    if nothing is None:
        return quotient, rest
    zero = Value((NOTHING,), _ZERO)
    return limbs.chosen(nothing, zero, quotient), limbs.chosen(nothing, zero, rest)


def _by_digit(limbs: Limbs, x: Value, y: Value) -> tuple[Value, Value]:
    """By a divisor of 32 bits: each step divides 64 bits by 32."""
    (by, *_) = limbs.digits(y)
    divisor = limbs.symbol(by)
    rest = NOTHING
    quotients: list[Limb] = []
    for digit in reversed(limbs.digits(x)):
        dividend = limbs.symbol(limbs.plus(limbs.times(rest, limbs.number(1 << DIGIT), _WORD), digit, _WORD))
        quotient = e.emit("Div", dividend, divisor)
        rest = Limb(e.emit("Sub", dividend, e.emit("Mul", quotient, divisor)), Interval(0, y.interval.hi - 1))
        quotients.insert(0, Limb(quotient, Interval(0, (1 << DIGIT) - 1)))
    return Value(tuple(quotients), Interval(0, x.interval.hi)), Value((rest,), rest.window)


def _by_number(limbs: Limbs, x: Value, y: Value) -> tuple[Value, Value]:
    """By any divisor: float64 tells each digit of the quotient, and the remainder may turn negative in between.

    The float quotient is below 2^34 and off by 2^-15 at most, so what is left of the remainder after a step is at most
    a little more than half of the divisor, either way, and the next quotient again below 2^34. In the end it is off by
    one at most.
    """
    most = y.interval.hi
    divisor = _as_float(limbs, y)
    left = Interval(-most, most)
    rest = Value((NOTHING,), _ZERO)
    quotients: list[Limb] = []
    for digit in reversed(limbs.digits(x)):
        taken = Interval(left.lo << DIGIT, (left.hi + 1) << DIGIT)
        rest = limbs.summed([[digit], *([limb] for limb in rest.limbs)], ENDLESS, taken)
        ratio = e.emit("Round", e.emit("Div", _as_float(limbs, rest), divisor))
        whole = Limb(e.bitcast(e.cast_within(ratio, _I64), U64), Interval(-(1 << 34), 1 << 34))
        quotients.insert(0, whole)
        product = limbs.multiply(Value((whole,), whole.window), y, ENDLESS)
        rest = _shortened(limbs, limbs.subtract(rest, product, ENDLESS), left)
    below = limbs.negative_mask(rest)
    rest = limbs.chosen(below, limbs.add(rest, y, ENDLESS), rest)
    step = Value((Limb(e.cast_within(below, U64), Interval(0, 1)),), Interval(0, 1))
    quotient = limbs.subtract(Value(tuple(quotients), Interval(0, x.interval.hi + 1)), step, ENDLESS)
    return Value(quotient.limbs, Interval(0, x.interval.hi)), Value(rest.limbs, Interval(0, most - 1))


def _shortened(limbs: Limbs, value: Value, interval: Interval) -> Value:
    """The value in no more digits than are needed for the interval that it is known to lie in."""
    count = max(1, -(-(interval.hi.bit_length() + 1) // DIGIT))
    *low, top = limbs.digits(value, count, count)
    if top.symbol is not None:
        top = Limb(limbs.extended(top.symbol, DIGIT), interval >> (DIGIT * (count - 1)))
    return Value((*low, top), interval)


def _as_float(limbs: Limbs, value: Value) -> Symbol:
    """The value as float64, off by a few parts in 2^53: the sums from the top down are exact till they have 53 bits."""
    total: Symbol | None = None
    digits = limbs.digits(value)
    for place, symbol in reversed(list(enumerate(limbs.full(Value(digits, value.interval))))):
        part = e.cast_within(e.bitcast(symbol, _I64), _F64)
        part = e.emit("Mul", part, e.const(part, 2.0 ** (DIGIT * place))) if place else part
        total = part if total is None else e.emit("Add", total, part)
    assert total is not None
    return total
