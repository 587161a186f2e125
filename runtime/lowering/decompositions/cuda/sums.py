"""Sums of integers in float64, in pieces that stay exact: the kernels use float32, or there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dtypes import DType

F64, I64 = DType.float64, DType.int64

FEW = 1 << 21
"""So many numbers of 32 bits add up to no more than float64 holds exactly."""


def pieces(b: Builder, x: Symbol, bits: int, width: int) -> list[Symbol]:
    """Return int64 numbers of `bits` bits as float64 pieces of `width`, the lowest first; the last one has the sign."""
    made = []
    size = b.scalar(1 << width, I64)
    while bits > width:
        low = b.native("Mod", x, size)
        made.append(b.native_cast(low, F64))
        x = b.native("Div", b.native("Sub", x, low), size)
        bits -= width
    return [*made, b.native_cast(x, F64)]


def joined(b: Builder, parts: list[Symbol], width: int) -> Symbol:
    """Return the int64 numbers of `pieces`, wrapped."""
    made = b.native_cast(parts[0], I64)
    for i, part in enumerate(parts[1:], 1):
        weight = 1 << width * i
        weighed = b.native("Mul", b.native_cast(part, I64), b.scalar(weight, I64))
        made = b.native("Add", made, weighed)
    return made


def _reduced_count(b: Builder, inputs: Sequence[Any]) -> int | None:
    """Return how many numbers are added up to one; None where that is not known."""
    x = inputs[0]
    if not x.shape.is_ranked:
        return None
    axes = b.known(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    dims = x.shape if axes is None else [x.shape[int(a)] for a in axes]
    count = 1
    for dim in dims:
        if not dim.is_static:
            return None
        count *= int(dim)
    return count


def sum_integers(b: Builder, call: Call) -> Replacement:
    """Compute ReduceSum in float64: each piece's sum is exact in any order, and together they wrap."""
    x = call.inputs[0]
    own = x.dtype
    wide = b.native_cast(x, I64)
    count = _reduced_count(b, call.inputs)
    width = 32 if own.bits <= 16 or (count is not None and count <= FEW) else 22
    shape = call.shape
    parts = pieces(b, wide, own.bits, width)
    total = joined(b, [b.native(call.op, p, *call.inputs[1:], shape=shape, **call.attributes) for p in parts], width)
    return b.native_cast(total, own)


def matmul(b: Builder, call: Call) -> Replacement:
    """Compute MatMul by 16-bit pieces, as many as the result's bits need; exact for 2^21 products in a sum."""
    inner = call.inputs[0].shape[-1]
    if inner.is_static and int(inner) > FEW:
        return b.on_host(call)
    return _products(b, call)


def einsum(b: Builder, call: Call) -> Replacement:
    """Compute Einsum of one or two operands as `matmul` does."""
    if len(call.inputs) == 1:
        x = call.inputs[0]
        parts = pieces(b, b.native_cast(x, I64), x.dtype.bits, 22)
        total = joined(b, [b.native(call.op, p, shape=call.shape, **call.attributes) for p in parts], 22)
        return b.native_cast(total, x.dtype)
    if len(call.inputs) > 2:
        return b.on_host(call)
    return _products(b, call)


def _products(b: Builder, call: Call) -> Symbol:
    own, shape = call.inputs[0].dtype, call.shape
    left, right = (pieces(b, b.native_cast(s, I64), own.bits, 16) for s in call.inputs)
    made = None
    for i, one in enumerate(left):
        for j, other in enumerate(right[: len(right) - i]):
            product = b.native_cast(b.native(call.op, one, other, shape=shape, **call.attributes), I64)
            if i + j:
                product = b.native("Mul", product, b.scalar(1 << 16 * (i + j), I64))
            made = product if made is None else b.native("Add", made, product)
    assert made is not None
    return b.native_cast(made, own)


def pad(b: Builder, call: Call) -> Replacement:
    """Compute Pad of both halves of the bits in float64."""
    x, pads, value, *axes = (*call.inputs, None)[: max(3, len(call.inputs))]
    values = [None, None] if value is None else pieces(b, value, 64, 32)
    parts = [
        b.native(call.op, part, pads, v, *axes, dtype=F64, shape=call.shape, **call.attributes)
        for part, v in zip(pieces(b, x, 64, 32), values, strict=True)
    ]
    return joined(b, parts, 32)
