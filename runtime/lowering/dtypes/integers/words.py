"""Integers modulo 2^(16 n) as int64 tensors of words along a first axis: word i, from 0 to 2^16 - 1, counts 2^(16 i).

Their operators need as many nodes for 65 bits as for thousands: Scans run along the words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphcore.arrays import big_integers
from graphcore.arrays.big_integers import DIGIT
from graphcore.build import primitives as e
from graphcore.ir.definitions import body, finish
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

BITS = 16
_BASE = 1 << BITS
_I64, _U32 = DType.int64, DType.uint32


def count_of(dtype: DType) -> int:
    """Return the number of words of an integer dtype."""
    return -(-dtype.bits // BITS)


def along(like: Symbol, values: object, dtype: DType, rank: int) -> Symbol:
    """Return a constant along the first of `rank` axes."""
    array = np.asarray(values, dtype.numpy)
    return like.graph.build.constant(array.reshape(array.shape + (1,) * (rank - 1)), dtype)


def of_digits(digits: Symbol, dtype: DType, order: Sequence[int] | None = None) -> Symbol:
    """Return the words of uint32 digits along a last axis, modulo 2^bits.

    The rank must be known. order: the axes of the integers in their new order.
    """
    rank, count = digits.rank, count_of(dtype)
    order = range(rank - 1) if order is None else order
    first = e.emit("Transpose", unsigned(digits, dtype), perm=[rank - 1, *order])
    pairs = e.emit("Gather", first, e.ints(first, [i // 2 for i in range(count)]), axis=0)
    steps = along(pairs, [BITS * (i % 2) for i in range(count)], _U32, rank)
    moved = e.emit("BitShift", pairs, steps, direction="RIGHT")
    return e.cast_within(e.emit("BitwiseAnd", moved, e.const(moved, (1 << BITS) - 1)), _I64)


def to_digits(words: Symbol, dtype: DType) -> Symbol:
    """Return the uint32 digits of words, along a last axis; the sign or zeros fill the last digit."""
    rank, count = words.rank, big_integers.count_of(dtype.bits)
    last = count_of(dtype) - 1
    low = e.emit("Gather", words, e.ints(words, range(0, 2 * count, 2)), axis=0)
    upper = e.emit("Gather", words, e.ints(words, [min(i, last) for i in range(1, 2 * count, 2)]), axis=0)
    factors = [_BASE if i <= last else 0 for i in range(1, 2 * count, 2)]
    pairs = e.emit("Add", low, e.emit("Mul", upper, along(upper, factors, _I64, rank)))
    if dtype.bits % DIGIT:
        pairs = _wrap_last(pairs, dtype)
    return e.emit("Transpose", e.cast_within(pairs, _U32), perm=[*range(1, rank), 0])


def _wrap_last(digits: Symbol, dtype: DType) -> Symbol:
    """Return digits of int64 along the first axis with the last one wrapped to the width."""
    count, bits = big_integers.count_of(dtype.bits), dtype.bits % DIGIT
    masks = [(1 << DIGIT) - 1] * (count - 1) + [(1 << bits) - 1]
    low = e.emit("BitwiseAnd", digits, along(digits, masks, _I64, digits.rank))
    if dtype.is_unsigned:
        return low
    signs = along(digits, [0] * (count - 1) + [1 << (bits - 1)], _I64, digits.rank)
    return e.emit("Sub", e.emit("BitwiseXor", low, signs), signs)


def unsigned(digits: Symbol, dtype: DType) -> Symbol:
    """Return uint32 digits along a last axis modulo 2^bits: bits above the width are cleared."""
    if not dtype.bits % DIGIT:
        return digits
    masks = np.array(
        [(1 << DIGIT) - 1] * (big_integers.count_of(dtype.bits) - 1) + [(1 << dtype.bits % DIGIT) - 1], np.uint32
    )
    return e.emit("BitwiseAnd", digits, digits.graph.build.constant(masks, _U32))


def exact(digits: Symbol, dtype: DType) -> Symbol:
    """Return uint32 digits along a last axis, such as a caller feeds, wrapped to the width of the dtype."""
    result = unsigned(digits, dtype)
    if result is digits or dtype.is_unsigned:
        return result
    signs = np.array([0] * (big_integers.count_of(dtype.bits) - 1) + [1 << (dtype.bits % DIGIT - 1)], np.int64)
    sign_bits = digits.graph.build.constant(signs, _I64)
    result = e.emit("Sub", e.emit("BitwiseXor", e.cast_within(result, _I64), sign_bits), sign_bits)
    return e.cast_within(result, _U32)


def one(like: Symbol, dtype: DType, rank: int) -> Symbol:
    """Return the words of 1."""
    return along(like, [1] + [0] * (count_of(dtype) - 1), _I64, rank)


def aligned(x: Symbol, rank: int) -> Symbol:
    """Return words with axes of length 1 after the first, up to a rank."""
    new_axes = range(1, 1 + rank - x.rank)
    return e.unsqueeze(x, *new_axes) if new_axes else x


def multiplied(x: Symbol, y: Symbol, *terms: Symbol) -> Symbol:
    """Return the product of words, plus terms; all others broadcast to the shape of y."""
    columns = _columns(x, y, "Mul", y.shape)
    for term in terms:
        columns = e.emit("Add", columns, aligned(term, y.rank), shape=y.shape)
    return propagate_carries(columns)[1]


def contracted(x: Symbol, y: Symbol, shape: Shape) -> Symbol:
    """Return the matrix product of words, in the shape of the result with its words along the first axis."""
    return propagate_carries(_columns(x, y, "MatMul", shape))[1]


def _columns(x: Symbol, y: Symbol, op: str, shape: Shape) -> Symbol:
    """Return the sums of products of words of equal weight: Horner's rule along the words of x, last first."""

    def step(total: Symbol, word: Symbol) -> list[Symbol]:
        # A word that moves beyond the last one is dropped.
        moved = e.emit("Pad", total, e.ints(total, [1, -1]), None, e.ints(total, [0]), shape=shape, mode="constant")
        return [e.emit("Add", moved, e.emit(op, word, word.graph.build.own(y, op, "y"), shape=shape))]

    some = e.emit(op, e.emit("Gather", x, e.const(x, 0), axis=0), y, shape=shape) if op == "MatMul" else y
    return scanned(step, e.emit("Mul", some, e.const(y, 0)), x, reverse=True)[0]


def propagate_carries(columns: Symbol) -> tuple[Symbol, Symbol]:
    """Return integers along the first axis as words, after the carry out of the last one, which may be negative."""

    def step(carry: Symbol, column: Symbol) -> list[Symbol]:
        total = e.emit("Add", column, carry)
        low = e.emit("BitwiseAnd", total, e.const(total, _BASE - 1))
        return [e.emit("Div", e.emit("Sub", total, low), e.const(total, _BASE)), low]

    first = e.emit("Gather", columns, e.const(columns, 0), axis=0)
    carry, result = scanned(step, e.emit("Mul", first, e.const(first, 0)), columns)
    return carry, result


def scanned(
    step: Callable[[Symbol, Symbol], Sequence[Symbol]], start: Symbol, x: Symbol, *, reverse: bool = False
) -> Sequence[Symbol]:
    """Return the last state of a Scan along the words of x, and if the steps have results of one word each, these.

    step: takes the state and a word, and returns the next state and the result. `ops.scan` takes longer to build.
    """
    with body(x.graph, "scan", [start.type, tensor_type(_I64, _shape(x.shape[1:]))]) as inner:
        results = step(*inner.inputs)
        finish(inner, results)
    direction = [int(reverse)]
    attributes = {"body": inner, "num_scan_inputs": 1, "scan_input_axes": [0], "scan_input_directions": direction}
    if len(results) > 1:
        attributes |= {"scan_output_axes": [0], "scan_output_directions": direction}
    return x.graph.build.emit_many("Scan", (start, x), [start.type, x.type][: len(results)], attributes)
