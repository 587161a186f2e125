"""Running sums, products along axes and of scatters, and powers of wide integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.definitions import body, finish
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.walk import constant_array
from graphcore.runtime.lowering.dtypes.integers import conversions, words
from graphcore.runtime.lowering.dtypes.integers.carrying import Result, WideDigits, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, constant_axes, known_scalar
from graphcore.runtime.lowering.dtypes.integers.kinds import is_wide
from graphcore.runtime.lowering.dtypes.integers.wide.operands import (
    MAX_TERMS,
    Rule,
    digits_of,
    max_limbs,
    refused,
    require_ranks,
    summed_by_digits,
)
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_I64 = DType.int64
_END = (1 << 63) - 1


def _running_sum(on: Widths, node: Node) -> Sequence[Result]:
    x, axis = map(present, node.inputs)
    place = known_scalar(axis)
    length = x.shape[place] if x.shape.is_ranked and place is not None else Dim.dynamic()
    terms = Interval(0, int(length) if length.is_static else MAX_TERMS)
    where = on.exact(axis)
    total = lambda digit: e.emit("CumSum", digit, where, shape=x.shape, **node.attributes)  # noqa: E731
    return (summed_by_digits(on, node, on.value(x), terms, total),)


# Products


def _product(on: Widths, node: Node) -> Sequence[Result]:
    """Multiply one half of the elements by the other until one is left."""
    x = present(node.inputs[0])
    axes = constant_axes(node)
    if axes is None or not x.shape.is_ranked:
        raise refused(node, "the axes are not known")
    if not axes:
        return (on.value(x),)
    remaining_axes = [axis for axis in range(x.rank) if axis not in axes]
    rows = _in_front(on, x, axes, remaining_axes)
    if (rows.shape[1].lower_bound or 0) < 1:
        rows = _prepend_one(rows, x.dtype)
    last = rows if rows.shape[1] == 1 else _multiply_halves(rows)
    digits = words.to_digits(e.emit("Gather", last, on.new.build.scalar(0, _I64), axis=1), x.dtype)
    if node.attributes.get("keepdims", 1):
        digits = e.unsqueeze(digits, *sorted(axes))
    return (WideDigits(digits),)


def _in_front(on: Widths, x: Symbol, axes: Sequence[int], remaining_axes: Sequence[int]) -> Symbol:
    """Return words [words, elements along the axes, *remaining axes]."""
    rows = words.of_digits(on.fed_digits(x), x.dtype, (*axes, *remaining_axes))
    if len(axes) == 1:
        return rows
    count = len(axes)
    together = _shape(list(rows.shape[1 : 1 + count])).size
    shape = _shape([rows.shape[0], together, *rows.shape[1 + count :]])
    build = rows.graph.build
    if shape.is_static:
        sizes = build.vector([int(d) for d in shape])
    else:
        size = e.emit("ReduceProd", e.emit("Shape", rows, start=1, end=1 + count), keepdims=1)
        parts = [build.vector([int(rows.shape[0])]), size]
        if remaining_axes:
            parts.append(e.emit("Shape", rows, start=1 + count))
        sizes = e.emit("Concat", *parts, axis=0)
    return e.emit("Reshape", rows, sizes, shape=shape, allowzero=1)


def _prepend_one(rows: Symbol, dtype: DType) -> Symbol:
    """Prepend a row of ones."""
    one = words.one(rows, dtype, rows.rank)
    if rows.rank > 2:
        line = rows.graph.build.vector([int(rows.shape[0]), 1])
        sizes = e.emit("Concat", line, e.emit("Shape", rows, start=2), axis=0)
        one = e.emit("Expand", one, sizes, shape=_shape([rows.shape[0], Dim(1), *rows.shape[2:]]))
    return e.emit("Concat", one, rows, axis=1)


def _multiply_halves(rows: Symbol) -> Symbol:
    """Return at most one row: the product of all rows, of which there is at least one."""
    build = rows.graph.build
    shape = _with_rows(rows.shape, Dim.dynamic())
    scalar = tensor_type(DType.bool, _shape(()))
    with body(rows.graph, "halves", [tensor_type(_I64, _shape(())), scalar, tensor_type(_I64, shape)]) as step:
        state = step.inputs[2]
        size = e.emit("Shape", state, start=1, end=2)
        half = e.emit("Div", size, e.const(size, 2))
        both = e.emit("Mul", half, e.const(half, 2))
        zero, end = step.build.vector([0]), step.build.vector([_END])
        product = words.multiplied(_rows(state, zero, half), _rows(state, half, both))
        after = e.emit("Concat", product, _rows(state, both, end), shape=shape, axis=1)
        finish(step, [e.squeeze(e.greater(size, e.const(size, 2)), 0), after])
    size = e.emit("Shape", rows, start=1, end=2)
    goes_on = e.squeeze(e.greater(size, e.const(size, 1)), 0)
    return build.emit("Loop", (None, goes_on, rows), tensor_type(_I64, shape), {"body": step})


def _running_product(on: Widths, node: Node) -> Sequence[Result]:
    """Multiply each row by the one 1, 2, 4, ... places before, so that it is the product of twice as many."""
    x = present(node.inputs[0])
    place = known_scalar(node.inputs[1])
    if place is None or not x.shape.is_ranked:
        raise refused(node, "the axis is not known")
    axis = place % x.rank
    remaining_axes = [a for a in range(x.rank) if a != axis]
    rows = _in_front(on, x, [axis], remaining_axes)
    build = on.new.build
    backwards = bool(node.attributes.get("reverse"))
    if backwards:
        rows = _reversed(rows)
    if node.attributes.get("exclusive"):
        longer = _prepend_one(rows, x.dtype)
        rows = _rows(longer, build.vector([0]), build.vector([-1]), rows.shape[1])
    rows = _multiply_doubling(rows)
    if backwards:
        rows = _reversed(rows)
    digits = words.to_digits(rows, x.dtype)
    order = [axis, *remaining_axes]
    if axis:
        perm = [*(order.index(a) for a in range(x.rank)), x.rank]
        digits = e.emit("Transpose", digits, shape=_shape([*x.shape, digits.shape[-1]]), perm=perm)
    return (WideDigits(digits),)


def _multiply_doubling(rows: Symbol) -> Symbol:
    one = _shape([Dim(1)])
    types = [
        tensor_type(_I64, _shape(())), tensor_type(DType.bool, _shape(())), tensor_type(_I64, rows.shape),
        tensor_type(_I64, one),
    ]  # fmt: skip
    with body(rows.graph, "doubles", types) as step:
        state, places = step.inputs[2:]
        zero, end = step.build.vector([0]), step.build.vector([_END])
        before = _rows(state, zero, e.emit("Neg", places))
        product = words.multiplied(before, _rows(state, places, end))
        after = e.emit("Concat", _rows(state, zero, places), product, shape=rows.shape, axis=1)
        twice = e.emit("Add", places, places)
        size = e.emit("Shape", state, start=1, end=2)
        finish(step, [e.squeeze(e.less(twice, size), 0), after, twice])
    build = rows.graph.build
    size = e.emit("Shape", rows, start=1, end=2)
    goes_on = e.squeeze(e.greater(size, e.const(size, 1)), 0)
    results = build.emit_many("Loop", (None, goes_on, rows, build.vector([1])), types[2:], {"body": step})
    return results[0]


def scatter_product(on: Widths, node: Node) -> WideDigits:
    """Multiply, in a Loop of as many turns as the most updates of one place: each turn takes one update of each place.

    Updates are numbered from 1, and those taken have the number 0, which stands for the factor 1.
    """
    data, indices, updates = map(present, node.inputs)
    require_ranks(node, data, updates)
    places = on.exact(indices)
    x, y = (words.of_digits(on.fed_digits(s), data.dtype) for s in (data, updates))
    build, rank = on.new.build, updates.rank
    flat = e.emit("Reshape", y, build.vector([int(y.shape[0]), -1]))
    factors = e.emit("Concat", words.one(y, data.dtype, 2), flat, axis=1)
    sizes = e.emit("Shape", y, start=1)
    count = e.emit("ReduceProd", sizes, keepdims=1)
    ones = e.emit("Expand", build.vector([1]), count)
    numbers = e.emit("CumSum", ones, build.scalar(0, _I64))
    numbers = e.emit("Reshape", numbers, sizes, shape=updates.shape, allowzero=1)
    gather = "GatherElements" if node.op_type == "ScatterElements" else "GatherND"
    axis = {"axis": node.attributes.get("axis", 0)} if gather == "GatherElements" else {}
    scalar = _shape(())
    types = [tensor_type(_I64, scalar), tensor_type(DType.bool, scalar), x.type, numbers.type]
    with body(on.new, "scatter", types) as step:
        product, waiting = step.inputs[2:]
        own = step.build.own(places, node.op_type, "indices")
        word = e.emit("Gather", product, e.const(waiting, 0), shape=data.shape, axis=0)
        none = e.emit("Mul", word, e.const(word, 0))
        taken = e.emit(node.op_type, none, own, waiting, shape=data.shape, reduction="max", **axis)
        factor = e.emit("Gather", step.build.own(factors, "Gather", "factors"), taken, shape=x.shape, axis=1)
        there = e.emit(gather, taken, own, shape=updates.shape, **axis)
        after = e.where(e.equal(there, waiting), e.const(waiting, 0), waiting)
        most = e.emit("ReduceMax", after, e.ints(after, range(rank)), shape=scalar, keepdims=0)
        finish(step, [e.greater(most, e.const(most, 0)), words.multiplied(product, factor), after])
    goes_on = e.squeeze(e.greater(count, e.const(count, 0)), 0)
    results = build.emit_many("Loop", (None, goes_on, x, numbers), types[2:], {"body": step})
    return WideDigits(words.to_digits(results[0], data.dtype))


def _rows(x: Symbol, start: Symbol, end: Symbol, count: Dim | None = None) -> Symbol:
    """Return a slice of the rows."""
    shape = None if count is None else _with_rows(x.shape, count)
    return e.emit("Slice", x, start, end, x.graph.build.vector([1]), shape=shape)


def _reversed(x: Symbol) -> Symbol:
    build = x.graph.build
    line = [build.vector([n]) for n in (-1, -_END, 1, -1)]
    return e.emit("Slice", x, *line, shape=x.shape)


def _with_rows(shape: Shape, count: Dim) -> Shape:
    return _shape([shape[0], count, *shape[2:]])


# Powers of wide integers: squared and multiplied in a Loop over the bits of the exponents.
#
# A small constant power needs no Loop. The Loop has as many nodes for every width: see `words`.

_F64, _U32 = DType.float64, DType.uint32
_I32 = DType.int32
_MAX_WORD = (1 << words.BITS) - 1
_MAX_PRODUCTS = 9
"""The number of products of two limbs beyond which a constant power takes more nodes than the Loop."""
_INT65 = DType.int(65)
"""The dtype for an exponent of up to 64 bits."""


def _power(on: Widths, node: Node) -> Sequence[Result]:
    base, exponent = map(present, node.inputs)
    power = known_scalar(exponent)
    if power is not None and power >= 0 and not exponent.rank and _products(power, max_limbs(node)) <= _MAX_PRODUCTS:
        return _unrolled(on, node, power)
    require_ranks(node, base, exponent)
    return (_looped(on, node, base, exponent),)


def _products(power: int, limbs: int) -> int:
    """Return the number of products of two limbs for a constant power."""
    return max(0, power.bit_length() + power.bit_count() - 2) * limbs * (limbs + 1) // 2


def _unrolled(on: Widths, node: Node, power: int) -> Sequence[Result]:
    base = on.value(present(node.inputs[0]))
    result = conversions.of_number(on.limbs, 1)
    while power:
        if power & 1:
            result = on.limbs.multiply(result, base, max_limbs(node))
        power >>= 1
        if power:
            base = on.limbs.multiply(base, base, max_limbs(node))
    return (result,)


def _looped(on: Widths, node: Node, base: Symbol, exponent: Symbol) -> WideDigits:
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    counted = exponent.dtype if is_wide(exponent) else _INT65
    digits = words.unsigned(digits_of(on, exponent, counted), counted)
    x = words.of_digits(digits_of(on, base, dtype), dtype)
    # An axis in front for the power and the square, and more so that x has the rank of the result.
    square = words.aligned(x, 2 + len(shape))
    if _may_be_negative(exponent, counted):
        square = _unless_inverse(x, square, digits, (dtype, counted))
    one = words.one(x, dtype, square.rank)
    start = e.where(_choice(square, [True, False]), one, square)
    trips = _trips(exponent, counted, digits, 0 if start.shape[2:] == shape else 1)
    type_ = tensor_type(_I64, _shape([*start.shape[:2], *shape]))
    last = x.graph.build.emit("Loop", (trips, None, start), type_, {"body": _step(start, one, digits, shape)})
    result = e.emit("Gather", last, e.const(trips, 0), shape=_shape([x.shape[0], *shape]), axis=1)
    return WideDigits(words.to_digits(result, dtype))


def _choice(like: Symbol, of: Sequence[bool]) -> Symbol:
    """Return a constant that distinguishes the power from the square, along the second axis."""
    return words.along(like, of, DType.bool, like.rank - 1)


def _step(start: Symbol, one: Symbol, digits: Symbol, shape: Shape) -> Graph:
    """Return the body of the Loop: from the current power and square to the next ones."""
    count = int(digits.shape[-1])
    dims = [a if a == b else Dim.dynamic() for a, b in zip(start.shape[2:], shape, strict=True)]
    scalar = _shape(())
    types = [
        tensor_type(_I64, scalar),
        tensor_type(DType.bool, scalar),
        tensor_type(_I64, _shape([*start.shape[:2], *dims])),
    ]
    with body(start.graph, "power", types) as step:
        turn, goes_on, state = step.inputs
        constant = step.build.constant
        # One row more than there are bits: see `_trips`.
        places = [min(i // DIGIT, count - 1) for i in range(count * DIGIT + 1)]
        place = e.emit("Gather", constant(np.array(places, np.int64), _I64), turn, shape=scalar, axis=0)
        masks = [1 << i % DIGIT for i in range(count * DIGIT)] + [0]
        mask = e.emit("Gather", constant(np.array(masks, np.uint32), _U32), turn, shape=scalar, axis=0)
        digit = e.emit("Gather", step.build.own(digits, "Gather", "digits"), place, shape=digits.shape[:-1], axis=-1)
        bit = e.cast_within(e.emit("BitwiseAnd", digit, mask), DType.bool)
        square = e.emit("Gather", state, step.build.vector([1]), shape=_with_rows(state.shape, Dim(1)), axis=1)
        factor = e.where(e.either(bit, _choice(state, [False, True])), square, step.build.own(one, "Where", "one"))
        return finish(step, [goes_on, words.multiplied(state, factor)])


def _may_be_negative(exponent: Symbol, dtype: DType) -> bool:
    array = constant_array(exponent)
    return dtype.is_signed if array is None else bool((array.astype(object) < 0).any())


def _unless_inverse(x: Symbol, square: Symbol, digits: Symbol, dtypes: tuple[DType, DType]) -> Symbol:
    """Replace by 0 where the inverse truncates to 0: for all but 1 and -1, if the exponent is negative.

    0, 1 and -1 to the power of a negative exponent's digits, read as unsigned, are correct.
    dtypes: of the base and of the exponent.
    """
    build = x.graph.build
    dtype, counted = dtypes
    last = e.emit("Gather", digits, build.scalar(int(digits.shape[-1]) - 1, _I64), shape=digits.shape[:-1], axis=-1)
    sign = e.const(last, (counted.bits - 1) % DIGIT)
    negative = e.cast_within(e.emit("BitShift", last, sign, direction="RIGHT"), DType.bool)
    # With these weights 1 has the smallest nonzero sum of words and -1 the largest, and no other number has either.
    weights = [1.0] + [2.0] * (words.count_of(dtype) - 1)
    weighted = e.emit("Mul", e.cast_within(x, _F64), words.along(x, weights, _F64, x.rank))
    total = e.emit("ReduceSum", weighted, e.ints(x, [0]), shape=_shape(x.shape[1:]), keepdims=0)
    max_last_word = (1 << (dtype.bits - words.BITS * (words.count_of(dtype) - 1))) - 1
    max_sum = sum(weights) * _MAX_WORD - weights[-1] * (_MAX_WORD - max_last_word)
    distance = e.emit("Abs", e.emit("Sub", total, e.const(total, (max_sum + 1) / 2)))
    vanishes = e.both(negative, e.less(distance, e.const(distance, (max_sum - 1) / 2)))
    return e.where(vanishes, e.const(square, 0), square)


def _trips(exponent: Symbol, dtype: DType, digits: Symbol, least: int) -> Symbol:
    """Return the bits of the largest exponent, at least `least`: 1 if the first iteration broadcasts the operands."""
    build = digits.graph.build
    array = constant_array(exponent)
    if array is not None:
        numbers = [int(v) % (1 << dtype.bits) for v in array.ravel()]
        return build.scalar(max([least, *(v.bit_length() for v in numbers)]), _I64)
    # The number of bits of an integer, from the exponent of the float32 that it rounds to.
    rounded = e.bitcast(e.cast_within(digits, DType.float32), _I32)
    powers = e.emit("Div", rounded, e.const(rounded, 1 << 23))
    offsets = build.constant((DIGIT * np.arange(int(digits.shape[-1])) - 126).astype(np.int32), _I32)
    bits = e.emit("Add", powers, offsets)
    count = e.emit("ReduceMax", bits, e.ints(bits, range(bits.rank)), shape=_shape(()), keepdims=0)
    if least:
        count = e.emit("Max", count, e.const(count, least))
    return e.cast_within(count, _I64)


RULES: dict[str, Rule] = {
    "CumSum": _running_sum,
    "ReduceProd": _product,
    "CumProd": _running_product,
    "IntegerPow": _power,
}
