"""Bits of integers without bitwise kernels: by arithmetic, and *and* by a table of all pairs of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build import casts_without_bitcast
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

_BYTES = np.bitwise_and.outer(np.arange(256), np.arange(256)).astype(np.uint8).reshape(-1)
_BYTES.setflags(write=False)


def bitcast(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Integers of one width are cast, which wraps. Floats as integers and back are left to the CPU."""
    (x,) = inputs
    target = types[0].dtype
    if target is x.dtype:
        return casts_without_bitcast.barrier(on, x)
    if target.is_integer and x.dtype.is_integer and target.bits == x.dtype.bits:
        return on.casts.plain(x, target)
    return on.graph._emit_many(op, (x,), types, attributes)


def invert(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """-1 - x, where -1 is all bits set."""
    (x,) = inputs
    return on.native("Sub", on.const(-1 if x.dtype.is_signed else int(x.dtype.max), x.dtype), x)


def bitwise(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """*or* and *exclusive or* are the sum without what *and* has once or twice in it."""
    x, y = inputs
    shape = types[0].shape
    common = _and(on, x, y, shape)
    if op == "BitwiseAnd":
        return common
    if op == "BitwiseXor":
        common = on.native("Add", common, common)
    return on.native("Sub", on.native("Add", x, y, shape=shape), common, shape=shape)


def _and(on: Legaliser, x: Symbol, y: Symbol, shape: Any) -> Symbol:
    for value, mask in ((x, y), (y, x)):
        array = on.known(mask)
        if array is not None and array.size == 1:
            masked = _masked(on, value, int(array.reshape(())), shape)
            if masked is not None:
                return masked
    own = x.dtype
    wide = DType.int64 if own.bits == 64 else DType.int32
    table = on.graph._constant(_BYTES.astype(wide.numpy), wide)
    if own.bits == 8:
        left, right = (on.native("Mod", on.casts.plain(s, wide), on.const(256, wide)) for s in (x, y))
        place = on.native("Add", on.native("Mul", left, on.const(256, wide)), right, shape=shape)
        return on.casts.plain(on.native("Gather", table, place, shape=shape, axis=0), own)
    count = own.bits // 8
    weights = on.graph._constant(np.array([1 << 8 * i for i in range(count)], wide.numpy), wide)
    left, right = (_bytes(on, on.casts.plain(s, wide), weights) for s in (x, y))
    parts = _shape([*shape, Dim(count)])
    place = on.native("Add", on.native("Mul", left, on.const(256, wide)), right, shape=parts)
    found = on.native("Mul", on.native("Gather", table, place, shape=parts, axis=0), weights, shape=parts)
    # The running sum is exact in the dtype, where a reduction goes through float32.
    total = on.native("CumSum", found, on.const(-1, DType.int64), shape=parts)
    return on.casts.plain(on.native("Gather", total, on.const(count - 1, DType.int64), shape=shape, axis=-1), own)


def _bytes(on: Legaliser, x: Symbol, weights: Symbol) -> Symbol:
    """The bytes of an integer along a new last axis, the lowest first."""
    column = on.native("Unsqueeze", x, on.ints([-1]), shape=_shape([*x.shape, Dim(1)]))
    parts = _shape([*x.shape, weights.shape[0]])
    below = on.native("Mod", column, weights, shape=parts)
    whole = on.native("Div", on.native("Sub", column, below, shape=parts), weights, shape=parts)
    return on.native("Mod", whole, on.const(256, x.dtype), shape=parts)


def _masked(on: Legaliser, x: Symbol, mask: int, shape: Any) -> Symbol | None:
    """*and* with a constant that is a run of ones at either end."""
    own = x.dtype
    bits = mask % (1 << own.bits)
    if bits == 0:
        return None
    low = bits.bit_length()
    if bits == (1 << low) - 1 and low < own.bits - own.is_signed:
        return on.native("Mod", x, on.const(1 << low, own), shape=shape)
    rest = (1 << own.bits) - bits
    if rest & (rest - 1) == 0 and rest < 1 << (own.bits - own.is_signed) and rest > 1:
        return on.native("Sub", x, on.native("Mod", x, on.const(rest, own)), shape=shape)
    return None


def shift(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Products with powers of two and quotients by them; 0 for a count that is not below the width."""
    x, count = inputs
    own, shape = x.dtype, types[0].shape
    powers = [1 << i for i in range(own.bits)]
    place = on.casts.plain(on.native("Min", count, on.const(own.bits, own)), DType.int64)

    def chosen(values: list[int]) -> Symbol:
        table = on.graph._constant(np.array(values, own.numpy), own)
        return on.native("Gather", table, place, shape=count.shape, axis=0)

    if attributes["direction"] in ("LEFT", b"LEFT"):
        return on.native("Mul", x, chosen([*powers, 0]), shape=shape)
    quotient = on.native("Div", x, chosen([*powers, 1]), shape=shape)
    known = on.known(count)
    if known is not None and (known < own.bits).all():
        return quotient
    return on.native("Mul", quotient, chosen([*([1] * own.bits), 0]), shape=shape)
