"""The bits of integers of any width, counted and turned around."""

from __future__ import annotations

import functools

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.operands import operand
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.bitfields import joined, shifted, unsigned, whole
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import tensor_type

_WORD = 64


@op(onnx="BitReverse", rule="keep")
def bit_reverse(x: TensorLike) -> Symbol:
    """The bits of an integer in the opposite order.

    x: integers of any width or bools, any shape. Returns the dtype of x, within whose width the lowest bit becomes the
    highest. Raises `DTypeError` for floats and strings. C++'s and LLVM's bitreverse.
    """
    symbol = whole("bit_reverse", operand("bit_reverse", x), "x")
    own = unsigned(symbol)
    words = [_emitted("BitReverse", word, word.dtype) for word in _words(own)]
    made = joined(words)
    return symbol.graph.build.cast(made, symbol.dtype)


def _words(x: Symbol) -> list[Symbol]:
    """Return an unsigned integer in words of at most 64 bits, the lowest first."""
    bits = x.dtype.bits
    build = x.graph.build
    return [
        build.cast(shifted("ShiftRight", x, low), DType.uint(min(_WORD, bits - low))) for low in range(0, bits, _WORD)
    ]


@op(onnx="PopCount", rule="keep")
def popcount(x: TensorLike) -> Symbol:
    """The number of bits that are 1, of negative numbers in two's complement.

    x: integers of any width or bools, any shape. Returns uint8, or for 256 bits and more the unsigned integer that
    holds it. Raises `DTypeError` for floats and strings. C++'s popcount, of the bits as they are.
    """
    words, count = _counted("popcount", x)
    parts = [x.graph.build.cast(_emitted("PopCount", x, DType.uint8), count) for x in words]
    return functools.reduce(lambda a, b: e.emit("Add", a, b), parts)


@op(onnx="LeadingZeros", rule="keep")
def leading_zeros(x: TensorLike) -> Symbol:
    """The number of bits that are 0 above the highest that is 1; the width for 0.

    x: integers of any width or bools, any shape. Returns uint8, or for 256 bits and more the unsigned integer that
    holds it. Raises `DTypeError` for floats and strings. C++'s countl_zero.
    """
    words, count = _counted("leading_zeros", x)
    return _run_of_zeros("LeadingZeros", words[::-1], count)


@op(onnx="TrailingZeros", rule="keep")
def trailing_zeros(x: TensorLike) -> Symbol:
    """The number of bits that are 0 below the lowest that is 1; the width for 0.

    x: integers of any width or bools, any shape. Returns uint8, or for 256 bits and more the unsigned integer that
    holds it. Raises `DTypeError` for floats and strings. C++'s countr_zero.
    """
    words, count = _counted("trailing_zeros", x)
    return _run_of_zeros("TrailingZeros", words, count)


def _counted(name: str, x: TensorLike) -> tuple[list[Symbol], DType]:
    symbol = whole(name, operand(name, x), "x")
    bits = symbol.dtype.bits
    return _words(unsigned(symbol)), DType.uint8 if bits < 256 else DType.uint16 if bits < 1 << 16 else DType.uint32


def _run_of_zeros(op_type: str, words: list[Symbol], count: DType) -> Symbol:
    """Return the zeros before the first one, the words being in the order in which they are looked at."""
    found: Symbol | None = None
    for word in reversed(words):
        own = word.graph.build.cast(_emitted(op_type, word, DType.uint8), count)
        if found is None:
            found = own
            continue
        beyond = e.emit("Add", found, e.const(found, word.dtype.bits))
        found = e.where(e.equal(word, e.const(word, 0)), beyond, own)
    assert found is not None
    return found


def _emitted(op_type: str, x: Symbol, dtype: DType) -> Symbol:
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


def _left(x: Symbol, count: int) -> Symbol:
    return e.emit("BitShift", x, e.const(x, count), direction="LEFT")


def _and(x: Symbol, mask: int) -> Symbol:
    return e.emit("BitwiseAnd", x, e.const(x, mask))


@expansion("PopCount")
def _pop_count(x: Symbol, *, bits: int) -> Symbol:
    return e.cast_within(_ones(e.cast(x, _storage(bits))), DType.uint8)


def _ones(x: Symbol) -> Symbol:
    """Return the number of ones: sums of pairs of bits, of those, and so on."""
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
    own = x.dtype
    x = e.cast(x, _storage(bits))
    step = x.dtype.bits // 2
    while step:
        mask = _pattern(x.dtype, step)
        x = e.emit("BitwiseOr", _and(_right(x, step), mask), _left(_and(x, mask), step))
        step //= 2
    return e.cast(_right(x, x.dtype.bits - bits) if x.dtype.bits > bits else x, own)
