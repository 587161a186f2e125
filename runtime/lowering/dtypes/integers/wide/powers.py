"""Powers of wide integers: squared and multiplied in a Loop over the bits of the exponents.

A known small power takes no Loop. The Loop has as many nodes for every width: see `words`.
"""

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
from graphcore.runtime.lowering.dtypes.integers.intervals import known_scalar
from graphcore.runtime.lowering.dtypes.integers.kinds import is_wide
from graphcore.runtime.lowering.dtypes.integers.wide.operands import Rule, digits_of, first, most_limbs, refused
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

_F64, _I64, _U32 = DType.float64, DType.int64, DType.uint32
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


RULES: dict[str, Rule] = {"IntegerPow": _power}
