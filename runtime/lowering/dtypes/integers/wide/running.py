"""Running sums, products along axes, and powers of wide integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.definitions import body, finish
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.runtime.lowering.dtypes.integers import conversions, words
from graphcore.runtime.lowering.dtypes.integers.carrying import Digits, Result, Widths
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval, constant_axes, known_scalar
from graphcore.runtime.lowering.dtypes.integers.kinds import is_wide
from graphcore.runtime.lowering.dtypes.integers.limbs import U64, Limb, Value
from graphcore.runtime.lowering.dtypes.integers.wide.operands import (
    MOST_TERMS,
    Rule,
    digits_of,
    first,
    most_limbs,
    refused,
)
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

_I64 = DType.int64
_END = (1 << 63) - 1


def _running_sum(on: Widths, node: Node) -> Sequence[Result]:
    """The digits of the sums are the running sums of the digits, which stay far below 2^63."""
    x = first(node)
    axis = node.inputs[1]
    assert axis is not None
    value = on.value(x)
    place = known_scalar(axis)
    length = x.shape[place] if x.shape.is_ranked and place is not None else Dim.dynamic()
    terms = Interval(0, int(length) if length.is_static else MOST_TERMS)
    where = on.exact(axis)
    columns = []
    digits = on.limbs.digits(value)
    for digit, symbol in zip(digits, on.limbs.full(Value(digits, value.interval)), strict=True):
        total = e.emit("CumSum", e.bitcast(symbol, _I64), where, shape=x.shape, **node.attributes)
        columns.append([Limb(e.bitcast(total, U64), digit.window * terms)])
    return (on.limbs.summed(columns, most_limbs(node), value.interval * terms),)


# Products


def _product(on: Widths, node: Node) -> Sequence[Result]:
    """Multiply one half of the elements with the other until one is left."""
    x, out = first(node), node.outputs[0]
    axes = constant_axes(node)
    if axes is None or not x.shape.is_ranked:
        raise refused(node, "the axes are not known")
    if not axes:
        return (on.value(x),)
    kept = [axis for axis in range(x.rank) if axis not in axes]
    rows = _in_front(on, x, axes, kept)
    if (rows.shape[1].lower_bound or 0) < 1:
        rows = _after_one(rows, x.dtype)
    last = rows
    if rows.shape[1] != 1:
        last = _halved(rows)
    found = e.emit("Gather", last, on.new.build.scalar(0, _I64), shape=_without(rows.shape, 1), axis=1)
    digits = words.to_digits(found, x.dtype)
    if node.attributes.get("keepdims", 1):
        shape = _shape([*out.shape, digits.shape[-1]])
        digits = e.emit("Unsqueeze", digits, on.new.build.vector(sorted(axes)), shape=shape)
    return (Digits(digits),)


def _in_front(on: Widths, x: Symbol, axes: Sequence[int], kept: Sequence[int]) -> Symbol:
    """Return words [words, elements along the axes, *kept axes]."""
    made = words.of_digits(on.fed_digits(x), x.dtype, (*axes, *kept))
    if len(axes) == 1:
        return made
    count = len(axes)
    together = _shape(list(made.shape[1 : 1 + count])).size
    shape = _shape([made.shape[0], together, *made.shape[1 + count :]])
    build = made.graph.build
    if shape.is_static:
        sizes = build.vector([int(d) for d in shape])
    else:
        each = e.emit("Shape", made, dtype=_I64, shape=_shape([Dim(count)]), start=1, end=1 + count)
        size = e.emit("ReduceProd", each, shape=_shape([Dim(1)]), keepdims=1)
        parts = [build.vector([int(made.shape[0])]), size]
        if kept:
            parts.append(e.emit("Shape", made, dtype=_I64, shape=_shape([Dim(len(kept))]), start=1 + count))
        sizes = e.emit("Concat", *parts, shape=_shape([Dim(2 + len(kept))]), axis=0)
    return e.emit("Reshape", made, sizes, shape=shape, allowzero=1)


def _after_one(rows: Symbol, dtype: DType) -> Symbol:
    """Return the rows after one of ones."""
    build = rows.graph.build
    one = words.one(rows, dtype, rows.rank)
    if rows.rank > 2:
        rest = e.emit("Shape", rows, dtype=_I64, shape=_shape([Dim(rows.rank - 2)]), start=2)
        line = build.vector([int(rows.shape[0]), 1])
        sizes = e.emit("Concat", line, rest, shape=_shape([Dim(rows.rank)]), axis=0)
        one = e.emit("Expand", one, sizes, shape=_shape([rows.shape[0], Dim(1), *rows.shape[2:]]))
    shape = _shape([rows.shape[0], rows.shape[1] + 1, *rows.shape[2:]])
    return e.emit("Concat", one, rows, shape=shape, axis=1)


def _halved(rows: Symbol) -> Symbol:
    """Return one row at most: the product of all, of which there is one at least."""
    build = rows.graph.build
    shape = _with_rows(rows.shape, Dim.dynamic())
    scalar = tensor_type(DType.bool, _shape(()))
    with body(rows.graph, "halves", [tensor_type(_I64, _shape(())), scalar, tensor_type(_I64, shape)]) as step:
        state = step.inputs[2]
        size = e.emit("Shape", state, dtype=_I64, shape=_shape([Dim(1)]), start=1, end=2)
        half = e.emit("Div", size, e.const(size, 2))
        both = e.emit("Mul", half, e.const(half, 2))
        zero, end = step.build.vector([0]), step.build.vector([_END])
        product = words.multiplied(_rows(state, zero, half), _rows(state, half, both))
        after = e.emit("Concat", product, _rows(state, both, end), shape=shape, axis=1)
        finish(step, [_scalar(e.greater(size, e.const(size, 2))), after])
    size = e.emit("Shape", rows, dtype=_I64, shape=_shape([Dim(1)]), start=1, end=2)
    goes_on = _scalar(e.greater(size, e.const(size, 1)))
    return build.emit("Loop", (None, goes_on, rows), tensor_type(_I64, shape), {"body": step})


def _running_product(on: Widths, node: Node) -> Sequence[Result]:
    """Multiply each with the one 1, 2, 4, ... places before, so that it is the product of twice as many."""
    x = first(node)
    place = known_scalar(node.inputs[1])
    if place is None or not x.shape.is_ranked:
        raise refused(node, "the axis is not known")
    axis = place % x.rank
    kept = [a for a in range(x.rank) if a != axis]
    rows = _in_front(on, x, [axis], kept)
    build = on.new.build
    backwards = bool(node.attributes.get("reverse"))
    if backwards:
        rows = _reversed(rows)
    if node.attributes.get("exclusive"):
        longer = _after_one(rows, x.dtype)
        rows = _rows(longer, build.vector([0]), build.vector([-1]), rows.shape[1])
    rows = _doubled(rows)
    if backwards:
        rows = _reversed(rows)
    digits = words.to_digits(rows, x.dtype)
    order = [axis, *kept]
    if axis:
        perm = [*(order.index(a) for a in range(x.rank)), x.rank]
        digits = e.emit("Transpose", digits, shape=_shape([*x.shape, digits.shape[-1]]), perm=perm)
    return (Digits(digits),)


def _doubled(rows: Symbol) -> Symbol:
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
        size = e.emit("Shape", state, dtype=_I64, shape=one, start=1, end=2)
        finish(step, [_scalar(e.less(twice, size)), after, twice])
    build = rows.graph.build
    size = e.emit("Shape", rows, dtype=_I64, shape=one, start=1, end=2)
    goes_on = _scalar(e.greater(size, e.const(size, 1)))
    made = build.emit_many("Loop", (None, goes_on, rows, build.vector([1])), types[2:], {"body": step})
    return made[0]


def _rows(x: Symbol, start: Symbol, end: Symbol, count: Dim | None = None) -> Symbol:
    """Return a slice of the rows."""
    shape = _with_rows(x.shape, Dim.dynamic() if count is None else count)
    return e.emit("Slice", x, start, end, x.graph.build.vector([1]), shape=shape)


def _reversed(x: Symbol) -> Symbol:
    build = x.graph.build
    line = [build.vector([n]) for n in (-1, -_END, 1, -1)]
    return e.emit("Slice", x, *line, shape=x.shape)


def _scalar(x: Symbol) -> Symbol:
    return e.emit("Squeeze", x, x.graph.build.vector([0]), shape=_shape(()))


def _with_rows(shape: Shape, count: Dim) -> Shape:
    return _shape([shape[0], count, *shape[2:]])


def _without(shape: Shape, axis: int) -> Shape:
    return _shape([d for i, d in enumerate(shape) if i != axis])


# Powers of wide integers: squared and multiplied in a Loop over the bits of the exponents.
#
# A known small power takes no Loop. The Loop has as many nodes for every width: see `words`.

_F64, _U32 = DType.float64, DType.uint32
_I32 = DType.int32
_MOST_WORD = (1 << words.BITS) - 1
_MOST_PRODUCTS = 9
"""Products of two limbs, beyond which a known power takes more nodes than the Loop."""
_NARROW = DType.int(65)
"""The dtype of an exponent of up to 64 bits."""


def _power(on: Widths, node: Node) -> Sequence[Result]:
    base, exponent = node.inputs
    assert base is not None
    assert exponent is not None
    power = known_scalar(exponent)
    if power is not None and power >= 0 and not exponent.rank and _products(power, most_limbs(node)) <= _MOST_PRODUCTS:
        return _unrolled(on, node, power)
    if not base.shape.is_ranked or not exponent.shape.is_ranked:
        raise refused(node, "the rank of an operand is not known")
    return (_looped(on, node, base, exponent),)


def _products(power: int, limbs: int) -> int:
    """Return how many products of two limbs a known power takes."""
    return max(0, power.bit_length() + power.bit_count() - 2) * limbs * (limbs + 1) // 2


def _unrolled(on: Widths, node: Node, power: int) -> Sequence[Result]:
    base = on.value(first(node))
    made = conversions.of_number(on.limbs, 1)
    while power:
        if power & 1:
            made = on.limbs.multiply(made, base, most_limbs(node))
        power >>= 1
        if power:
            base = on.limbs.multiply(base, base, most_limbs(node))
    return (made,)


def _looped(on: Widths, node: Node, base: Symbol, exponent: Symbol) -> Digits:
    dtype, shape = node.outputs[0].dtype, node.outputs[0].shape
    counted = exponent.dtype if is_wide(exponent) else _NARROW
    digits = words.unsigned(digits_of(on, exponent, counted), counted)
    x = words.of_digits(digits_of(on, base, dtype), dtype)
    # An axis in front for the power and the square, and others so that x has the rank of the result.
    square = words.aligned(x, 2 + len(shape))
    if _may_be_negative(exponent, counted):
        square = _unless_inverse(x, square, digits, (dtype, counted))
    one = words.one(x, dtype, square.rank)
    start = e.where(_choice(square, [True, False]), one, square)
    trips = _trips(exponent, counted, digits, 0 if start.shape[2:] == shape else 1)
    last = x.graph.build.emit(
        "Loop", (trips, None, start), _wider(start, shape), {"body": _step(start, one, digits, shape)}
    )
    result = e.emit("Gather", last, e.const(trips, 0), shape=_shape([x.shape[0], *shape]), axis=1)
    return Digits(words.to_digits(result, dtype))


def _wider(start: Symbol, shape: Shape) -> TensorType:
    return tensor_type(_I64, _shape([*start.shape[:2], *shape]))


def _choice(like: Symbol, of: Sequence[bool]) -> Symbol:
    """Return a constant that tells the power from the square, along the second axis."""
    return words.along(like, of, DType.bool, like.rank - 1)


def _step(start: Symbol, one: Symbol, digits: Symbol, shape: Shape) -> Graph:
    """Return the body of the Loop: from the power and the square so far to the next ones."""
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
        square = e.emit("Gather", state, step.build.vector([1]), shape=_second(state.shape), axis=1)
        factor = e.where(e.either(bit, _choice(state, [False, True])), square, step.build.own(one, "Where", "one"))
        return finish(step, [goes_on, words.multiplied(state, factor)])


def _second(shape: Shape) -> Shape:
    return _shape([shape[0], Dim(1), *shape[2:]])


def _may_be_negative(exponent: Symbol, dtype: DType) -> bool:
    held = constant_array(exponent)
    return dtype.is_signed if held is None else bool((held.astype(object) < 0).any())


def _unless_inverse(x: Symbol, square: Symbol, digits: Symbol, dtypes: tuple[DType, DType]) -> Symbol:
    """Return 0 in place of those whose inverse truncates to 0: all but 1 and -1, where the exponent is negative.

    To the power of the digits of a negative exponent, read as unsigned, 1 and -1 and 0 are what they are to be.
    dtypes: of the base and of the exponent.
    """
    build = x.graph.build
    own, counted = dtypes
    last = e.emit("Gather", digits, build.scalar(int(digits.shape[-1]) - 1, _I64), shape=digits.shape[:-1], axis=-1)
    sign = e.const(last, (counted.bits - 1) % DIGIT)
    negative = e.cast_within(e.emit("BitShift", last, sign, direction="RIGHT"), DType.bool)
    # 1 has the least sum of words but for 0, and -1 the greatest, with weights that nothing else makes up for.
    weights = [1.0] + [2.0] * (words.count_of(own) - 1)
    weighted = e.emit("Mul", e.cast_within(x, _F64), words.along(x, weights, _F64, x.rank))
    total = e.emit("ReduceSum", weighted, e.ints(x, [0]), shape=_shape(x.shape[1:]), keepdims=0)
    most = sum(weights) * _MOST_WORD - weights[-1] * (_MOST_WORD - _greatest_last_word(own))
    apart = e.emit("Abs", e.emit("Sub", total, e.const(total, (most + 1) / 2)))
    vanishes = e.both(negative, e.less(apart, e.const(apart, (most - 1) / 2)))
    return e.where(vanishes, e.const(square, 0), square)


def _greatest_last_word(dtype: DType) -> int:
    return (1 << (dtype.bits - words.BITS * (words.count_of(dtype) - 1))) - 1


def _trips(exponent: Symbol, dtype: DType, digits: Symbol, least: int) -> Symbol:
    """Return the bits of the greatest exponent or one more. least: 1 where the first turn broadcasts the operands."""
    build = digits.graph.build
    held = constant_array(exponent)
    if held is not None:
        numbers = [int(v) % (1 << dtype.bits) for v in held.ravel()]
        return build.scalar(max([least, *(v.bit_length() for v in numbers)]), _I64)
    # The bits of a number by the exponent of the float32 that it rounds to.
    rounded = e.bitcast(e.cast_within(digits, DType.float32), _I32)
    powers = e.emit("Div", rounded, e.const(rounded, 1 << 23))
    offsets = build.constant((DIGIT * np.arange(int(digits.shape[-1])) - 126).astype(np.int32), _I32)
    bits = e.emit("Add", powers, offsets)
    most = e.emit("ReduceMax", bits, e.ints(bits, range(bits.rank)), shape=_shape(()), keepdims=0)
    if least:
        most = e.emit("Max", most, e.const(most, least))
    return e.cast_within(most, _I64)


RULES: dict[str, Rule] = {
    "CumSum": _running_sum,
    "ReduceProd": _product,
    "CumProd": _running_product,
    "IntegerPow": _power,
}
