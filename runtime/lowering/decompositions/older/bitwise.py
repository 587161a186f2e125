"""Bitwise operators of integers by arithmetic, for opsets before 18, which lack them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Detour, Inputs, Made
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_I64 = DType.int64
_DTYPES = tuple(map(DType.of, "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()))
_BYTE = 256


def rows() -> dict[tuple[str, DType], Detour]:
    """Return the rows for an opset without these operators."""
    made: dict[tuple[str, DType], Detour] = {}
    for dtype in _DTYPES:
        made["BitwiseNot", dtype] = complement
        made.update({(f"Bitwise{name}", dtype): combined for name in ("And", "Or", "Xor")})
    return made


def complement(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """BitwiseNot: -1 - x."""
    (x,) = inputs
    return on.casts.cast(on.native("Sub", on.const(-1, _I64), _wide(on, x)), _I64, x.dtype)


def combined(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """BitwiseAnd, Or and Xor: x | y is x + y - (x & y), and x ^ y is x + y - 2 (x & y)."""
    x, y = inputs if on.known(inputs[0]) is None else inputs[::-1]
    shape, bits = types[0].shape, x.dtype.bits
    wide, other = _wide(on, x), _wide(on, y)
    mask = on.known(y)
    if op == "BitwiseXor" and mask is not None and mask.size and (_unsigned(mask, bits) == 1 << (bits - 1)).all():
        return on.casts.cast(on.native("Add", wide, other, shape=shape), _I64, x.dtype)
    low = _low_bits(mask, bits)
    if low is not None and low < 63:
        both = on.native("Mod", wide, on.const(1 << low, _I64), dtype=_I64, shape=shape)
    else:
        both = _and_of_bytes(on, wide, other, bits // 8, shape)
    if op != "BitwiseAnd":
        sum_ = on.native("Add", wide, other, shape=shape)
        both = on.native("Mul", both, on.const(2, _I64)) if op == "BitwiseXor" else both
        both = on.native("Sub", sum_, both, shape=shape)
    return on.casts.cast(both, _I64, x.dtype)


def _wide(on: Legaliser, x: Symbol) -> Symbol:
    return x if x.dtype is _I64 else on.casts.cast(x, x.dtype, _I64)


def _unsigned(array: np.ndarray[Any, Any], bits: int) -> Any:
    """The bits of integers as Python numbers."""
    return np.asarray(array.astype(object) & ((1 << bits) - 1))


def _low_bits(mask: np.ndarray[Any, Any] | None, bits: int) -> int | None:
    """How many of the lowest bits a known mask of one element keeps; None where it is another mask."""
    if mask is None or mask.size != 1:
        return None
    value = int(_unsigned(mask, bits).reshape(-1)[0])
    return value.bit_length() if value & (value + 1) == 0 else None


def _and_of_bytes(on: Legaliser, x: Symbol, y: Symbol, count: int, shape: Any) -> Symbol:
    """x & y byte by byte, each looked up in a table of all pairs."""
    table = _table(on)
    base = on.const(_BYTE, _I64)
    made: Symbol | None = None
    for place in range(count):
        low, high = on.native("Mod", x, base, dtype=_I64), on.native("Mod", y, base, dtype=_I64)
        pair = on.native("Add", on.native("Mul", low, base), high, shape=shape)
        byte = on.casts.cast(on.native("Gather", table, pair, shape=shape, axis=0), DType.uint8, _I64)
        weight = 1 << 8 * place
        byte = byte if not place else on.native("Mul", byte, on.const(weight, _I64))
        made = byte if made is None else on.native("Add", made, byte)
        x = on.native("Div", on.native("Sub", x, low), base)
        y = on.native("Div", on.native("Sub", y, high), base)
    assert made is not None
    return made


def _table(on: Legaliser) -> Symbol:
    made = on.graph._once.values.get("bytes & bytes")
    if made is None:
        bytes_ = np.arange(_BYTE, dtype=np.uint8)
        made = on.graph._constant((bytes_[:, None] & bytes_).reshape(-1), DType.uint8)
        on.graph._once.values["bytes & bytes"] = made
    return made


__all__ = ["combined", "complement", "rows"]
