"""Integers of widths that ONNX lacks, brought into their range."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.dtypes.integers.intervals import Interval
from graphcore.types.dtypes import DType


def wrapped(symbol: Symbol, dtype: DType, held: Interval) -> Symbol:
    """A tensor of a storage dtype brought into the range of the narrower one."""
    mask = (1 << dtype.bits) - 1
    low = symbol
    if held.lo < 0 or held.hi > mask:
        low = e.emit("BitwiseAnd", symbol, e.const(symbol, mask))
    if dtype.is_unsigned:
        return low
    sign = e.const(symbol, 1 << (dtype.bits - 1))
    return e.emit("Sub", e.emit("BitwiseXor", low, sign), sign)
