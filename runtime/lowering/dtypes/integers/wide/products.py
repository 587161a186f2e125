"""Sums of products of wide integers: MatMul and Einsum, by float64 products of their words.

Integers are cut into words so short that float64 adds up all their products exactly. What counts the same is one
product of float64, of the words one after the other along what is summed over; limbs carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from string import ascii_letters
from typing import NamedTuple

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.ops.shared.einsum import Equation, parse, spelled
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, Limbs, Value
from graphcore.runtime.lowering.dtypes.integers.wide import long_division
from graphcore.runtime.lowering.dtypes.integers.wide.operands import MOST_TERMS, Rule, most_limbs, refused
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

_F64, _I64 = DType.float64, DType.int64
_EXACT_BITS = 53
"""Whole numbers up to 2^53 are exact in float64."""


class _Operand(NamedTuple):
    """A value within its width, and its shape."""

    value: Value
    shape: Shape


class _Cut(NamedTuple):
    """The way to cut operands into words. bits: of a word. counts: of the words of each operand."""

    bits: int
    counts: tuple[int, ...]


def _cut(intervals: Sequence[Interval], terms: int) -> _Cut:
    """Return the longest words whose products, as many of each place as there are, add up exactly over `terms`."""
    for bits in range(min(DIGIT, _EXACT_BITS // len(intervals)), 0, -1):
        counts = tuple(_count(interval, bits) for interval in intervals)
        pairs = min(counts) if len(counts) > 1 else 1
        if len(counts) * bits + (terms * pairs - 1).bit_length() <= _EXACT_BITS:
            return _Cut(bits, counts)
    raise AssertionError("more terms than a tensor has")


def _count(interval: Interval, bits: int) -> int:
    """Return the words that hold an interval, the last of them with a sign."""
    return max(1, -(-max(interval.hi, ~interval.lo).bit_length() // bits))


def _words(limbs: Limbs, value: Value, bits: int, count: int) -> list[Symbol]:
    """Return a value as float64 tensors of so many bits each, the lowest first, the last one signed."""
    digits = limbs.digits(value)
    words: list[Limb] = []
    for place in range(count):
        at, below = divmod(bits * place, DIGIT)
        word = limbs.cut(digits[at], below) if below else digits[at]
        is_last = place == count - 1
        if at + 1 < len(digits) and (is_last or below + bits > DIGIT):  # the last one has the sign, wherever it is
            above = digits[at + 1] if is_last else limbs.masked(digits[at + 1], (1 << (below + bits - DIGIT)) - 1)
            word = limbs.plus(word, limbs.times(above, limbs.number(1 << (DIGIT - below))))
        words.append(word if is_last else limbs.masked(word, (1 << bits) - 1))
    whole = limbs.full(Value((*words, *digits), value.interval))
    return [e.cast_within(e.bitcast(symbol, _I64), _F64) for symbol in whole[:count]]


def _contracted(
    on: Widths,
    node: Node,
    operands: Sequence[_Operand],
    terms: int | None,
    product: Callable[[Sequence[Sequence[Symbol]]], Symbol],
) -> Value:
    """Return the sum of products of one or two operands.

    terms: how many products make one sum. product: as many float64 words of each operand to the sum of the products of
    each with its counterpart.
    """
    limbs = on.limbs
    intervals = [operand.value.interval for operand in operands]
    cut = _cut(intervals, MOST_TERMS if terms is None else max(1, terms))
    words = [_words(limbs, o.value, cut.bits, n) for o, n in zip(operands, cut.counts, strict=True)]
    all_places = sum(cut.counts) - len(cut.counts) + 1
    places = min(all_places, -(-node.outputs[0].dtype.bits // cut.bits))
    bound = 1 << _EXACT_BITS
    columns: list[list[Limb]] = [[] for _ in range(cut.bits * places // DIGIT + 2)]
    for place in range(places):
        one = e.cast_within(product(_met(words, place)), _I64)
        limb = Limb(e.bitcast(one, U64), Interval(-bound, bound))
        at, below = divmod(cut.bits * place, DIGIT)
        if not below:
            columns[at].append(limb)
            continue
        factor = limbs.number(1 << below)
        for i, half in enumerate(limbs.split(limb)):
            columns[at + i].append(limbs.times(half, factor))
    each = Interval(1, 1)
    for interval in intervals:
        each = each * interval
    number = Interval(0, MOST_TERMS) if terms is None else Interval(terms, terms)
    made = limbs.summed(columns, most_limbs(node), each * number)
    return made if places == all_places else Value(made.limbs, _told(made))


def _met(words: Sequence[Sequence[Symbol]], place: int) -> list[list[Symbol]]:
    """Return the words of each operand whose products count the same: their places add up to `place`."""
    if len(words) == 1:
        return [[words[0][place]]]
    mine, theirs = words
    pairs = [(i, place - i) for i in range(len(mine)) if 0 <= place - i < len(theirs)]
    return [[mine[i] for i, _ in pairs], [theirs[j] for _, j in pairs]]


def _told(value: Value) -> Interval:
    """Return the interval that the windows of limbs tell."""
    lows = sum(limb.window.lo << (DIGIT * i) for i, limb in enumerate(value.limbs))
    return Interval(lows, sum(limb.window.hi << (DIGIT * i) for i, limb in enumerate(value.limbs)))


def _operand(on: Widths, symbol: Symbol | None) -> _Operand:
    assert symbol is not None
    return _Operand(on.exact_value(symbol), symbol.shape)


def _matmul(on: Widths, node: Node) -> Sequence[Result]:
    if long_division.is_long(node):
        return long_division.contracted(on, node)
    left, right = (_operand(on, s) for s in node.inputs)
    if not all(o.shape.is_ranked for o in (left, right)):
        raise refused(node, "the rank of an operand is not known")
    out = node.outputs[0].shape

    def product(parts: Sequence[Sequence[Symbol]]) -> Symbol:
        mine, theirs = parts
        return e.emit("MatMul", _joined(mine, -1), _joined(theirs, -2 if len(right.shape) > 1 else -1), shape=out)

    return (_contracted(on, node, (left, right), _size(left.shape[-1:]), product),)


def _joined(parts: Sequence[Symbol], axis: int) -> Symbol:
    """Return tensors of one shape one after the other along an axis."""
    if len(parts) == 1:
        return parts[0]
    dims = list(parts[0].shape)
    dims[axis] = dims[axis] * len(parts)
    return e.emit("Concat", *parts, shape=_shape(dims), axis=axis % len(dims))


def _size(dims: Sequence[Dim]) -> int | None:
    return prod(int(d) for d in dims) if all(d.is_static for d in dims) else None


def _einsum(on: Widths, node: Node) -> Sequence[Result]:
    operands = [_operand(on, s) for s in node.inputs]
    if not all(o.shape.is_ranked for o in operands):
        raise refused(node, "the rank of an operand is not known")
    text = node.attributes["equation"]
    equation = parse(text.decode() if isinstance(text, bytes) else text, len(operands), {})
    equation = spelled(equation, [len(o.shape) for o in operands])
    used = {label for labels in (*equation.inputs, equation.output) for label in labels}
    free = [letter for letter in ascii_letters if letter not in used]
    if not free or "..." in used:
        raise refused(node, "it has more axes than there are letters")
    sizes: dict[str, Dim] = {}
    for operand, labels in zip(operands, equation.inputs, strict=True):
        for label, dim in zip(labels, operand.shape, strict=True):
            if sizes.get(label, Dim(1)) == 1:
                sizes[label] = dim
    made, labels, *_ = operands[0], equation.inputs[0]
    for i in range(1, max(2, len(operands))):
        later = {label for term in (*equation.inputs[i + 1 :], equation.output) for label in term}
        terms = [labels, *equation.inputs[i : i + 1]]
        kept = tuple(dict.fromkeys(label for term in terms for label in term if label in later))
        if i + 1 >= len(operands):
            kept = equation.output
        value = _step(on, node, [made, *operands[i : i + 1]], Equation(tuple(terms), kept), sizes, free)
        if i + 1 < len(operands):
            value = on.limbs.wrapped(value, node.outputs[0].dtype)
        made, labels = _Operand(value, _shape([sizes[label] for label in kept])), kept
    return (made.value,)


def _step(
    on: Widths, node: Node, operands: Sequence[_Operand], equation: Equation, sizes: dict[str, Dim], free: Sequence[str]
) -> Value:
    """Return Einsum of one or two operands."""
    summed = {label for labels in equation.inputs for label in labels} - set(equation.output)
    shape = _shape([sizes[label] for label in equation.output])
    longer = Equation(tuple((free[0], *labels) for labels in equation.inputs), equation.output)

    def product(parts: Sequence[Sequence[Symbol]]) -> Symbol:
        if len(parts[0]) == 1:
            return e.emit("Einsum", *(part for (part,) in parts), shape=shape, equation=str(equation))
        return e.emit("Einsum", *map(_stacked, parts), shape=shape, equation=str(longer))

    return _contracted(on, node, operands, _size([sizes[label] for label in summed]), product)


def _stacked(parts: Sequence[Symbol]) -> Symbol:
    """Return tensors of one shape together along a new axis in front."""
    shape = parts[0].shape
    line = parts[0].graph.build.vector([0])
    rows = [e.emit("Unsqueeze", part, line, shape=_shape([Dim(1), *shape])) for part in parts]
    return e.emit("Concat", *rows, shape=_shape([Dim(len(rows)), *shape]), axis=0)


RULES: dict[str, Rule] = {"MatMul": _matmul, "Einsum": _einsum}
