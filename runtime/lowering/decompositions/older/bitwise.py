"""Bitwise operators of integers by arithmetic, for opsets before 18, which lack them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Decomposition, Replacement
from graphcore.types.dtypes import DType

_I64 = DType.int64
_DTYPES = tuple(map(DType.of, "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()))
_BYTE = 256


def rows() -> dict[tuple[str, DType], Decomposition]:
    """Return the rows for an opset without these operators."""
    made: dict[tuple[str, DType], Decomposition] = {}
    for dtype in _DTYPES:
        made["BitwiseNot", dtype] = complement
        made.update({(f"Bitwise{name}", dtype): combined for name in ("And", "Or", "Xor")})
    return made


def complement(b: Builder, call: Call) -> Replacement:
    """Compute BitwiseNot as -1 - x."""
    (x,) = call.inputs
    return b.cast(b.native("Sub", b.scalar(-1, _I64), _wide(b, x)), x.dtype)


def combined(b: Builder, call: Call) -> Replacement:
    """Compute BitwiseAnd, Or and Xor: x | y is x + y - (x & y), and x ^ y is x + y - 2 (x & y)."""
    x, y = call.inputs if b.known(call.inputs[0]) is None else call.inputs[::-1]
    shape, bits = call.shape, x.dtype.bits
    wide, other = _wide(b, x), _wide(b, y)
    mask = b.known(y)
    if call.op == "BitwiseXor" and mask is not None and mask.size and (_unsigned(mask, bits) == 1 << (bits - 1)).all():
        return b.cast(b.native("Add", wide, other, shape=shape), x.dtype)
    low = _low_bits(mask, bits)
    if low is not None and low < 63:
        both = b.native("Mod", wide, b.scalar(1 << low, _I64), dtype=_I64, shape=shape)
    else:
        both = _and_of_bytes(b, wide, other, bits // 8, shape)
    if call.op != "BitwiseAnd":
        sum_ = b.native("Add", wide, other, shape=shape)
        both = b.native("Mul", both, b.scalar(2, _I64)) if call.op == "BitwiseXor" else both
        both = b.native("Sub", sum_, both, shape=shape)
    return b.cast(both, x.dtype)


def _wide(b: Builder, x: Symbol) -> Symbol:
    return x if x.dtype is _I64 else b.cast(x, _I64)


def _unsigned(array: np.ndarray[Any, Any], bits: int) -> Any:
    """Return the bits of integers as Python numbers."""
    return np.asarray(array.astype(object) & ((1 << bits) - 1))


def _low_bits(mask: np.ndarray[Any, Any] | None, bits: int) -> int | None:
    """Return how many of the lowest bits a known mask of one element keeps; None where it is another mask."""
    if mask is None or mask.size != 1:
        return None
    value = int(_unsigned(mask, bits).reshape(-1)[0])
    return value.bit_length() if value & (value + 1) == 0 else None


def _and_of_bytes(b: Builder, x: Symbol, y: Symbol, count: int, shape: Any) -> Symbol:
    """Return x & y byte by byte, each looked up in a table of all pairs."""
    table = _table(b)
    base = b.scalar(_BYTE, _I64)
    made: Symbol | None = None
    for place in range(count):
        low, high = b.native("Mod", x, base, dtype=_I64), b.native("Mod", y, base, dtype=_I64)
        pair = b.native("Add", b.native("Mul", low, base), high, shape=shape)
        byte = b.cast(b.native("Gather", table, pair, shape=shape, axis=0), _I64)
        weight = 1 << 8 * place
        byte = byte if not place else b.native("Mul", byte, b.scalar(weight, _I64))
        made = byte if made is None else b.native("Add", made, byte)
        x = b.native("Div", b.native("Sub", x, low), base)
        y = b.native("Div", b.native("Sub", y, high), base)
    assert made is not None
    return made


def _table(b: Builder) -> Symbol:
    made = b.graph.memory.values.get("bytes & bytes")
    if made is None:
        bytes_ = np.arange(_BYTE, dtype=np.uint8)
        made = b.constant((bytes_[:, None] & bytes_).reshape(-1), DType.uint8)
        b.graph.memory.values["bytes & bytes"] = made
    return made
