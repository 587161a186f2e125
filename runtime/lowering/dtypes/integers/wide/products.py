"""Sums of products of wide integers: MatMul and Einsum, by float64 products of their words.

Integers are split into words so short that float64 adds all their products exactly. All products of equal weight are
one float64 product of the words, concatenated along the summed axis; then limbs carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from string import ascii_letters
from typing import NamedTuple

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.symbol import Node, Symbol
from graphcore.ops.shared.einsum import Equation, parse, spelled
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, Limbs, WideValue, window_of
from graphcore.runtime.lowering.dtypes.integers.wide import long_division
from graphcore.runtime.lowering.dtypes.integers.wide.operands import MAX_TERMS, Rule, max_limbs, refused
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

_F64, _I64 = DType.float64, DType.int64
_EXACT_BITS = 53
"""Integers up to 2^53 are exact in float64."""


class _WideOperand(NamedTuple):
    """A value within its width, and its shape."""

    value: WideValue
    shape: Shape


class _WordSizes(NamedTuple):
    """How operands are split into words. bits: the size of a word. counts: the number of words of each operand."""

    bits: int
    counts: tuple[int, ...]


def _word_sizes(intervals: Sequence[Interval], terms: int) -> _WordSizes:
    """Return the longest words whose products of equal weight add up exactly over `terms`."""
    for bits in range(min(DIGIT, _EXACT_BITS // len(intervals)), 0, -1):
        counts = tuple(_count(interval, bits) for interval in intervals)
        pairs = min(counts) if len(counts) > 1 else 1
        if len(counts) * bits + (terms * pairs - 1).bit_length() <= _EXACT_BITS:
            return _WordSizes(bits, counts)
    raise AssertionError("more terms than a tensor has")


def _count(interval: Interval, bits: int) -> int:
    """Return the number of words for an interval, with a signed last one."""
    return max(1, -(-max(interval.hi, ~interval.lo).bit_length() // bits))


def _words(limbs: Limbs, value: WideValue, bits: int, count: int) -> list[Symbol]:
    """Return a value as float64 words of `bits` bits, lowest first; the last one is signed."""
    digits = limbs.digits(value)
    words: list[Limb] = []
    for place in range(count):
        at, below = divmod(bits * place, DIGIT)
        word = limbs.cut(digits[at], below) if below else digits[at]
        is_last = place == count - 1
        if at + 1 < len(digits) and (is_last or below + bits > DIGIT):  # the last one has the sign
            above = digits[at + 1] if is_last else limbs.masked(digits[at + 1], (1 << (below + bits - DIGIT)) - 1)
            word = limbs.plus(word, limbs.times(above, limbs.number(1 << (DIGIT - below))))
        words.append(word if is_last else limbs.masked(word, (1 << bits) - 1))
    whole = limbs.full(WideValue((*words, *digits), value.interval))
    return [e.cast_within(e.bitcast(symbol, _I64), _F64) for symbol in whole[:count]]


def _contract(
    on: Widths,
    node: Node,
    operands: Sequence[_WideOperand],
    terms: int | None,
    product: Callable[[Sequence[Sequence[Symbol]]], Symbol],
) -> WideValue:
    """Return the sum of products of one or two operands.

    terms: the number of products in a sum. product: computes the sum of products of float64 words, equally many of each
    operand.
    """
    limbs = on.limbs
    intervals = [operand.value.interval for operand in operands]
    cut = _word_sizes(intervals, MAX_TERMS if terms is None else max(1, terms))
    words = [_words(limbs, o.value, cut.bits, n) for o, n in zip(operands, cut.counts, strict=True)]
    all_places = sum(cut.counts) - len(cut.counts) + 1
    places = min(all_places, -(-node.outputs[0].dtype.bits // cut.bits))
    bound = 1 << _EXACT_BITS
    columns: list[list[Limb]] = [[] for _ in range(cut.bits * places // DIGIT + 2)]
    for place in range(places):
        one = e.cast_within(product(_of_equal_weight(words, place)), _I64)
        limb = Limb(e.bitcast(one, U64), Interval(-bound, bound))
        at, below = divmod(cut.bits * place, DIGIT)
        if not below:
            columns[at].append(limb)
            continue
        factor = limbs.number(1 << below)
        for i, half in enumerate(limbs.split(limb)):
            columns[at + i].append(limbs.times(half, factor))
    each = reduce(Interval.__mul__, intervals)
    number = Interval(0, MAX_TERMS) if terms is None else Interval(terms, terms)
    result = limbs.summed(columns, max_limbs(node), each * number)
    return result if places == all_places else WideValue(result.limbs, window_of(result.limbs))


def _of_equal_weight(words: Sequence[Sequence[Symbol]], place: int) -> list[list[Symbol]]:
    """Return the words of each operand whose products have equal weight: their places add up to `place`."""
    if len(words) == 1:
        return [[words[0][place]]]
    first, second = words
    pairs = [(i, place - i) for i in range(len(first)) if 0 <= place - i < len(second)]
    return [[first[i] for i, _ in pairs], [second[j] for _, j in pairs]]


def _operand(on: Widths, symbol: Symbol | None) -> _WideOperand:
    assert symbol is not None
    return _WideOperand(on.exact_value(symbol), symbol.shape)


def _matmul(on: Widths, node: Node) -> Sequence[Result]:
    if long_division.is_long(node):
        return long_division.contracted(on, node)
    left, right = (_operand(on, s) for s in node.inputs)
    if not all(o.shape.is_ranked for o in (left, right)):
        raise refused(node, "the rank of an operand is not known")
    out = node.outputs[0].shape

    def product(parts: Sequence[Sequence[Symbol]]) -> Symbol:
        first, second = parts
        return e.emit("MatMul", _joined(first, -1), _joined(second, -2 if len(right.shape) > 1 else -1), shape=out)

    return (_contract(on, node, (left, right), _size(left.shape[-1:]), product),)


def _joined(parts: Sequence[Symbol], axis: int) -> Symbol:
    """Concatenate tensors of one shape along an axis."""
    return parts[0] if len(parts) == 1 else e.emit("Concat", *parts, axis=axis % parts[0].rank)


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
    current, labels, *_ = operands[0], equation.inputs[0]
    for i in range(1, max(2, len(operands))):
        later = {label for term in (*equation.inputs[i + 1 :], equation.output) for label in term}
        terms = [labels, *equation.inputs[i : i + 1]]
        result_labels = tuple(dict.fromkeys(label for term in terms for label in term if label in later))
        if i + 1 >= len(operands):
            result_labels = equation.output
        value = _step(on, node, [current, *operands[i : i + 1]], Equation(tuple(terms), result_labels), sizes, free)
        if i + 1 < len(operands):
            value = on.limbs.wrapped(value, node.outputs[0].dtype)
        current, labels = _WideOperand(value, _shape([sizes[label] for label in result_labels])), result_labels
    return (current.value,)


def _step(
    on: Widths,
    node: Node,
    operands: Sequence[_WideOperand],
    equation: Equation,
    sizes: dict[str, Dim],
    free: Sequence[str],
) -> WideValue:
    """Build an Einsum of one or two operands."""
    summed = {label for labels in equation.inputs for label in labels} - set(equation.output)
    shape = _shape([sizes[label] for label in equation.output])
    longer = Equation(tuple((free[0], *labels) for labels in equation.inputs), equation.output)

    def product(parts: Sequence[Sequence[Symbol]]) -> Symbol:
        if len(parts[0]) == 1:
            return e.emit("Einsum", *(part for (part,) in parts), shape=shape, equation=str(equation))
        return e.emit("Einsum", *map(_stacked, parts), shape=shape, equation=str(longer))

    return _contract(on, node, operands, _size([sizes[label] for label in summed]), product)


def _stacked(parts: Sequence[Symbol]) -> Symbol:
    """Stack tensors of one shape along a new first axis."""
    return e.emit("Concat", *(e.unsqueeze(part, 0) for part in parts), axis=0)


RULES: dict[str, Rule] = {"MatMul": _matmul, "Einsum": _einsum}
