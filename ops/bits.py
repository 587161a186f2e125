"""Bits of integers: shifts, bitwise logic, counts and reversal of bits; logic of bools."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import EXPANSIONS, LIBRARY, expansion, op
from graphcore.build.elementwise import binary, unary
from graphcore.build.operands import operand
from graphcore.errors import DTypeError
from graphcore.ir.symbol import Symbol, TensorLike, present
from graphcore.ir.transform.walk import constant_array
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import tensor_type

_UNSIGNED = {8: DType.uint8, 16: DType.uint16, 32: DType.uint32, 64: DType.uint64}


def _shift(x: Symbol, count: Symbol, direction: str) -> Symbol:
    """Shift the bits of any integer by any count; ONNX BitShift takes unsigned integers only."""
    dtype = x.dtype
    if dtype.bits < 8:
        wide = DType.int8 if dtype.is_signed else DType.uint8
        return e.cast(_shift_words(e.cast(x, wide), count, direction, dtype.bits), dtype)
    return _shift_words(x, count, direction, dtype.bits)


def _shift_words(x: Symbol, count: Symbol, direction: str, bits: int) -> Symbol:
    dtype = x.dtype
    unsigned = _UNSIGNED[dtype.bits]
    wide = e.cast(count, DType.int8 if count.dtype.is_signed else DType.uint8) if count.dtype.bits < 8 else count
    counts = constant_array(wide)
    certain = counts is not None and bool(((counts >= 0) & (counts < bits)).all())
    if certain and counts is not None and direction == "LEFT" and (dtype.is_signed or dtype is DType.uint16):
        # BitShift lacks these dtypes; a product wraps to the same bits.
        powers = np.left_shift(np.ones((), dtype.numpy), counts.astype(dtype.numpy))
        return e.emit("Mul", x, x.graph.build.constant(np.asarray(powers), dtype))
    inside = None if certain else _inside(wide, bits)
    steps = e.cast(_where_inside(wide, inside), unsigned)
    if direction == "RIGHT" and dtype.is_signed:
        # The unsigned view shifts in zeros: flip the bits of negative numbers before and after.
        mask = e.emit("Neg", e.cast(e.less(x, e.const(x, 0)), dtype))
        flipped = e.bitcast(e.emit("BitwiseXor", x, mask), unsigned)
        moved = e.bitcast(e.emit("BitShift", flipped, steps, direction=direction), dtype)
        return e.emit("BitwiseXor", _where_inside(moved, inside), mask)
    moved = e.bitcast(e.emit("BitShift", e.bitcast(x, unsigned), steps, direction=direction), dtype)
    return _where_inside(moved, inside)


def _where_inside(x: Symbol, inside: Symbol | None) -> Symbol:
    """Return x, and 0 where a count is outside: as a product, since onnxruntime has Where for few integer dtypes."""
    return x if inside is None else e.emit("Mul", x, e.cast(inside, x.dtype))


def _inside(count: Symbol, bits: int) -> Symbol | None:
    """Return a mask of counts from 0 to `bits` - 1; None if the dtype has no others."""
    inside = None
    if count.dtype.is_signed:
        inside = e.opposite(e.less(count, e.const(count, 0)))
    if count.dtype.max >= bits:
        below = e.less(count, e.const(count, bits))
        inside = below if inside is None else e.both(inside, below)
    return inside


EXPANSIONS.update(
    ShiftLeft=lambda x, count: _shift(x, count, "LEFT"), ShiftRight=lambda x, count: _shift(x, count, "RIGHT")
)

left_shift = binary(
    "left_shift",
    "ShiftLeft",
    "shift",
    "x with its bits shifted left by a count; 0 for counts outside 0 to bits - 1. ONNX BitShift.",
    dunder="lshift",
)
right_shift = binary(
    "right_shift",
    "ShiftRight",
    "shift",
    "x with its bits shifted right by a count, arithmetically if signed; sign bits for counts outside. ONNX BitShift.",
    dunder="rshift",
)
bitwise_and = binary(
    "bitwise_and", "BitwiseAnd", "bitwise", "Bits set in both; *and* of bools. ONNX BitwiseAnd, And.",
    dunder="and", for_bool="And",
)  # fmt: skip
bitwise_or = binary(
    "bitwise_or", "BitwiseOr", "bitwise", "Bits set in either; *or* of bools. ONNX BitwiseOr, Or.",
    dunder="or", for_bool="Or",
)  # fmt: skip
bitwise_xor = binary(
    "bitwise_xor", "BitwiseXor", "bitwise", "Bits set in one only; *xor* of bools. ONNX BitwiseXor, Xor.",
    dunder="xor", for_bool="Xor",
)  # fmt: skip
bitwise_not = unary(
    "bitwise_not", "BitwiseNot", "bitwise", "Every bit flipped; *not* of bools. ONNX BitwiseNot, Not.",
    dunder="invert", for_bool="Not",
)  # fmt: skip

# Logic of truth values: numbers are true if they are not 0

logical_and = binary("logical_and", "And", "logical", "True where both are true. ONNX And.")
logical_or = binary("logical_or", "Or", "logical", "True where either is true. ONNX Or.")
logical_xor = binary("logical_xor", "Xor", "logical", "True where exactly one is true. ONNX Xor.")
logical_not = unary("logical_not", "Not", "logical", "True where x is not true. ONNX Not.")


# Parts of ops on the bits of integers of any width

Offset: TypeAlias = int | Symbol
"""The position of a bit, from the lowest: an int, or an integer Symbol of any shape that broadcasts."""


def whole(name: str, symbol: Symbol, role: str) -> Symbol:
    """Return the Symbol if it has integers or bools. Raises `DTypeError` for others."""
    if symbol.dtype.is_integer or symbol.dtype is DType.bool:
        return symbol
    fix = "read its bits as an integer first: ops.bitcast(x, DType.uint32)" if symbol.dtype.is_float else ""
    raise DTypeError(f"{name} has no meaning for {symbol.dtype}", operands={role: symbol}, help=fix or "use integers")


def unsigned(symbol: Symbol) -> Symbol:
    """Return the same bits as an unsigned integer of the same width."""
    return symbol.graph.build.cast(symbol, DType.uint(symbol.dtype.bits))


def as_field(symbol: Symbol, width: int) -> Symbol:
    """Return the lowest bits of an unsigned integer."""
    field = symbol.graph.build.cast(symbol, DType.uint(width))
    return symbol.graph.build.cast(field, DType.bool) if width == 1 else field


def shifted(op_type: str, x: Symbol, count: Offset) -> Symbol:
    if isinstance(count, Symbol):
        shape = broadcast_shapes([x.shape, count.shape])
        return x.graph.build.emit(op_type, (x, count), tensor_type(x.dtype, shape), None, LIBRARY)
    if not count:
        return x
    return x.graph.build.emit(op_type, (x, e.const(x, count)), tensor_type(x.dtype, x.shape), None, LIBRARY)


def joined(fields: Sequence[Symbol]) -> Symbol:
    """Concatenate the bits of unsigned integers into one, those of the first the highest."""
    total = DType.uint(sum(field.dtype.bits for field in fields))
    place, parts = total.bits, []
    for field in fields:
        place -= field.dtype.bits
        parts.append(shifted("ShiftLeft", field.graph.build.cast(field, total), place))
    return functools.reduce(lambda a, b: e.emit("BitwiseOr", a, b), parts)


# Counts and reversal of bits

_WORD = 64


@op(onnx="BitReverse", rule="keep")
def bit_reverse(x: TensorLike) -> Symbol:
    """The bits of an integer in the opposite order.

    Args:
        x: Integers of any width or bools, any shape.

    Returns:
        The dtype of x, in whose width the lowest bit becomes the highest.

    Raises:
        DTypeError: For floats and strings.

    C++'s and LLVM's bitreverse.
    """
    symbol = whole("bit_reverse", operand("bit_reverse", x), "x")
    bits = unsigned(symbol)
    words = [_emit_count("BitReverse", word, word.dtype) for word in _words(bits)]
    reversed_bits = joined(words)
    return symbol.graph.build.cast(reversed_bits, symbol.dtype)


def _words(x: Symbol) -> list[Symbol]:
    """Split an unsigned integer into words of at most 64 bits, the lowest first."""
    bits = x.dtype.bits
    build = x.graph.build
    return [
        build.cast(shifted("ShiftRight", x, low), DType.uint(min(_WORD, bits - low))) for low in range(0, bits, _WORD)
    ]


@op(onnx="PopCount", rule="keep")
def popcount(x: TensorLike) -> Symbol:
    """The number of bits that are 1; negative numbers in two's complement.

    Args:
        x: Integers of any width or bools, any shape.

    Returns:
        Uint8, or for 256 bits and more the unsigned integer that holds the count.

    Raises:
        DTypeError: For floats and strings.

    C++'s popcount.
    """
    words, count = _words_and_dtype("popcount", x)
    parts = [x.graph.build.cast(_emit_count("PopCount", x, DType.uint8), count) for x in words]
    return functools.reduce(lambda a, b: e.emit("Add", a, b), parts)


def _zeros(name: str, where: str, cpp: str, op_type: str, order: int) -> Callable[..., Symbol]:
    """Declare the length of the run of zeros at one end. order: of the words in the search, 1 from the lowest."""
    doc = f"""The number of bits that are 0 {where} that is 1; the width for 0.

    Args:
        x: Integers of any width or bools, any shape.

    Returns:
        Uint8, or for 256 bits and more the unsigned integer that holds the count.

    Raises:
        DTypeError: For floats and strings.

    C++'s {cpp}.
    """

    @op(onnx=op_type, rule="keep", name=name, doc=doc)
    def count_zeros(x: TensorLike) -> Symbol:
        words, count = _words_and_dtype(name, x)
        return _run_of_zeros(op_type, words[::order], count)

    return count_zeros


leading_zeros = _zeros("leading_zeros", "above the highest", "countl_zero", "LeadingZeros", -1)
trailing_zeros = _zeros("trailing_zeros", "below the lowest", "countr_zero", "TrailingZeros", 1)


def _words_and_dtype(name: str, x: TensorLike) -> tuple[list[Symbol], DType]:
    symbol = whole(name, operand(name, x), "x")
    bits = symbol.dtype.bits
    return _words(unsigned(symbol)), DType.uint8 if bits < 256 else DType.uint16 if bits < 1 << 16 else DType.uint32


def _run_of_zeros(op_type: str, words: list[Symbol], count: DType) -> Symbol:
    """Return the number of zeros before the first one. words: in the order of the search."""
    zeros: Symbol | None = None
    for word in reversed(words):
        count_of_word = word.graph.build.cast(_emit_count(op_type, word, DType.uint8), count)
        if zeros is None:
            zeros = count_of_word
            continue
        beyond = e.emit("Add", zeros, e.const(zeros, word.dtype.bits))
        zeros = e.where(e.equal(word, e.const(word, 0)), beyond, count_of_word)
    return present(zeros)


def _emit_count(op_type: str, x: Symbol, dtype: DType) -> Symbol:
    """Emit one of the operators below on an unsigned integer of at most 64 bits."""
    type_ = tensor_type(dtype, x.shape)
    return x.graph.build.emit(op_type, (x,), type_, {"bits": x.dtype.bits}, LIBRARY)


_STORED = (DType.uint8, DType.uint32, DType.uint64)
"""Dtypes in which bits are counted: BitShift has no kernel for uint16."""


def _storage(bits: int) -> DType:
    return next(dtype for dtype in _STORED if bits <= dtype.bits)


def _pattern(dtype: DType, step: int) -> int:
    """Return the number whose bits are `step` ones, `step` zeros, and so on, from the lowest."""
    return sum(((1 << step) - 1) << low for low in range(0, dtype.bits, 2 * step))


def _right(x: Symbol, count: int) -> Symbol:
    return e.emit("BitShift", x, e.const(x, count), direction="RIGHT")


def _and(x: Symbol, mask: int) -> Symbol:
    return e.emit("BitwiseAnd", x, e.const(x, mask))


@expansion("PopCount")
def _pop_count(x: Symbol, *, bits: int) -> Symbol:
    return e.cast_within(_ones(e.cast(x, _storage(bits))), DType.uint8)


def _ones(x: Symbol) -> Symbol:
    """Return the number of ones: sums of pairs of bits, then of pairs of sums, and so on."""
    step = 1
    while step < x.dtype.bits:
        mask = _pattern(x.dtype, step)
        x = e.emit("Add", _and(x, mask), _and(_right(x, step), mask))
        step *= 2
    return x


@expansion("LeadingZeros")
def _leading_zeros(x: Symbol, *, bits: int) -> Symbol:
    x = e.cast(x, _storage(bits))
    step = 1
    while step < bits:
        x = e.emit("BitwiseOr", x, _right(x, step))
        step *= 2
    return e.cast_within(e.emit("Sub", e.const(x, bits), _ones(x)), DType.uint8)


@expansion("TrailingZeros")
def _trailing_zeros(x: Symbol, *, bits: int) -> Symbol:
    x = e.cast(x, _storage(bits))
    below = e.emit("BitwiseAnd", e.emit("BitwiseNot", x), e.emit("Sub", x, e.const(x, 1)))
    return e.emit("Min", e.cast_within(_ones(below), DType.uint8), e.const(x, bits, DType.uint8))


@expansion("BitReverse")
def _bit_reverse(x: Symbol, *, bits: int) -> Symbol:
    dtype = x.dtype
    x = e.cast(x, _storage(bits))
    step = x.dtype.bits // 2
    while step:
        mask = _pattern(x.dtype, step)
        low = e.emit("BitShift", _and(x, mask), e.const(x, step), direction="LEFT")
        x = e.emit("BitwiseOr", _and(_right(x, step), mask), low)
        step //= 2
    return e.cast(_right(x, x.dtype.bits - bits) if x.dtype.bits > bits else x, dtype)
