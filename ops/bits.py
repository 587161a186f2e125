"""Shifts and bitwise logic of integers, logic of bools."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import expansion
from graphcore.build.elementwise import binary, unary
from graphcore.ir.constants import constant_array
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

# Bits

_UNSIGNED = {8: DType.uint8, 16: DType.uint16, 32: DType.uint32, 64: DType.uint64}


@expansion("ShiftLeft")
def _shift_left(x: Symbol, count: Symbol) -> Symbol:
    return _shifted(x, count, "LEFT")


@expansion("ShiftRight")
def _shift_right(x: Symbol, count: Symbol) -> Symbol:
    return _shifted(x, count, "RIGHT")


def _shifted(x: Symbol, count: Symbol, direction: str) -> Symbol:
    """Shift the bits of any integer by any count; ONNX BitShift takes unsigned integers only."""
    own = x.dtype
    if own.bits < 8:
        wide = DType.int8 if own.is_signed else DType.uint8
        return e.cast(_shifted_by(e.cast(x, wide), count, direction, own.bits), own)
    return _shifted_by(x, count, direction, own.bits)


def _shifted_by(x: Symbol, count: Symbol, direction: str, bits: int) -> Symbol:
    own = x.dtype
    unsigned = _UNSIGNED[own.bits]
    wide = e.cast(count, DType.int8 if count.dtype.is_signed else DType.uint8) if count.dtype.bits < 8 else count
    counts = constant_array(wide)
    certain = counts is not None and bool(((counts >= 0) & (counts < bits)).all())
    if certain and counts is not None and direction == "LEFT" and (own.is_signed or own is DType.uint16):
        # BitShift lacks these dtypes; a product wraps to the same bits.
        return e.emit("Mul", x, _powers(x, counts))
    inside = None if certain else _inside(wide, bits)
    steps = e.cast(_where_inside(wide, inside), unsigned)
    if direction == "RIGHT" and own.is_signed:
        # The unsigned view shifts in zeros: flip the bits of negative numbers before and after.
        mask = e.emit("Neg", e.cast(e.less(x, e.const(x, 0)), own))
        flipped = e.bitcast(e.emit("BitwiseXor", x, mask), unsigned)
        moved = e.bitcast(e.emit("BitShift", flipped, steps, direction=direction), own)
        return e.emit("BitwiseXor", _where_inside(moved, inside), mask)
    moved = e.bitcast(e.emit("BitShift", e.bitcast(x, unsigned), steps, direction=direction), own)
    return _where_inside(moved, inside)


def _where_inside(x: Symbol, inside: Symbol | None) -> Symbol:
    """Return x, and 0 where a count is outside: a product, since onnxruntime has Where for few integers."""
    return x if inside is None else e.emit("Mul", x, e.cast(inside, x.dtype))


def _inside(count: Symbol, bits: int) -> Symbol | None:
    """Return whether a count is in 0 to `bits` - 1; None where its dtype holds no other."""
    inside = None
    if count.dtype.is_signed:
        inside = e.opposite(e.less(count, e.const(count, 0)))
    if count.dtype.max >= bits:
        below = e.less(count, e.const(count, bits))
        inside = below if inside is None else e.both(inside, below)
    return inside


def _powers(x: Symbol, counts: np.ndarray[Any, Any]) -> Symbol:
    """Return two to the power of each count, in the dtype of `x`."""
    ones = np.ones((), x.dtype.numpy)
    return x.graph.build.constant(np.asarray(np.left_shift(ones, counts.astype(x.dtype.numpy))), x.dtype)


left_shift = binary(
    "left_shift",
    "ShiftLeft",
    "shift",
    "x with its bits moved up by a count; 0 for counts outside 0 to bits - 1. ONNX BitShift.",
    dunder="lshift",
)
right_shift = binary(
    "right_shift",
    "ShiftRight",
    "shift",
    "x with its bits moved down by a count, arithmetic for signed; all sign for counts outside. ONNX BitShift.",
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

# Logic of truth values: numbers are true where they are not 0

logical_and = binary("logical_and", "And", "logical", "True where both are true. ONNX And.")
logical_or = binary("logical_or", "Or", "logical", "True where either is true. ONNX Or.")
logical_xor = binary("logical_xor", "Xor", "logical", "True where exactly one is true. ONNX Xor.")
logical_not = unary("logical_not", "Not", "logical", "True where x is not true. ONNX Not.")
