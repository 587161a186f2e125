"""Sums of integers, which the kernels compute in float32 or not at all: in float64, in pieces that stay exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

F64, I64 = DType.float64, DType.int64

FEW = 1 << 21
"""So many numbers of 32 bits add up to no more than float64 holds exactly."""


def pieces(on: Legaliser, x: Symbol, bits: int, width: int) -> list[Symbol]:
    """int64 numbers of `bits` bits as float64 numbers of `width`, the lowest first; the last one has the sign."""
    made = []
    size = on.const(1 << width, I64)
    while bits > width:
        low = on.native("Mod", x, size)
        made.append(on.casts.plain(low, F64))
        x = on.native("Div", on.native("Sub", x, low), size)
        bits -= width
    return [*made, on.casts.plain(x, F64)]


def joined(on: Legaliser, parts: list[Symbol], width: int) -> Symbol:
    """The reverse of `pieces`, in int64, wrapping."""
    made = on.casts.plain(parts[0], I64)
    for i, part in enumerate(parts[1:], 1):
        weight = 1 << width * i
        weighed = on.native("Mul", on.casts.plain(part, I64), on.const(weight, I64))
        made = on.native("Add", made, weighed)
    return made


def _reduced_count(inputs: Inputs, on: Legaliser) -> int | None:
    """How many numbers are added up to one, where that is known."""
    x = inputs[0]
    if not x.shape.is_ranked:
        return None
    axes = on.known(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    dims = x.shape if axes is None else [x.shape[int(a)] for a in axes]
    count = 1
    for dim in dims:
        if not dim.is_static:
            return None
        count *= int(dim)
    return count


def sum_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Each piece's sum is exact in float64, whatever the order; together they wrap."""
    x = inputs[0]
    own = x.dtype
    wide = on.casts.plain(x, I64)
    count = _reduced_count(inputs, on)
    width = 32 if own.bits <= 16 or (count is not None and count <= FEW) else 22
    shape = types[0].shape
    parts = pieces(on, wide, own.bits, width)
    total = joined(on, [on.native(op, p, *inputs[1:], shape=shape, **attributes) for p in parts], width)
    return on.casts.plain(total, own)


def matmul(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Products of 16-bit pieces, as many as the result's bits are made of; exact for 2^21 of them added up."""
    inner = inputs[0].shape[-1]
    if inner.is_static and int(inner) > FEW:
        return on.on_host(op, inputs, types, attributes)
    return _products(on, op, inputs, types, attributes)


def einsum(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Of one operand or two, as `matmul`."""
    if len(inputs) == 1:
        x = inputs[0]
        parts = pieces(on, on.casts.plain(x, I64), x.dtype.bits, 22)
        total = joined(on, [on.native(op, p, shape=types[0].shape, **attributes) for p in parts], 22)
        return on.casts.plain(total, x.dtype)
    if len(inputs) > 2:
        return on.on_host(op, inputs, types, attributes)
    return _products(on, op, inputs, types, attributes)


def _products(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Symbol:
    own, shape = inputs[0].dtype, types[0].shape
    left, right = (pieces(on, on.casts.plain(s, I64), own.bits, 16) for s in inputs)
    made = None
    for i, a in enumerate(left):
        for j, b in enumerate(right[: len(right) - i]):
            product = on.casts.plain(on.native(op, a, b, shape=shape, **attributes), I64)
            if i + j:
                product = on.native("Mul", product, on.const(1 << 16 * (i + j), I64))
            made = product if made is None else on.native("Add", made, product)
    assert made is not None
    return on.casts.plain(made, own)


def pad(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Both halves of the bits in float64."""
    x, pads, value, *axes = (*inputs, None)[: max(3, len(inputs))]
    values = [None, None] if value is None else pieces(on, value, 64, 32)
    parts = [
        on.native(op, part, pads, v, *axes, dtype=F64, shape=types[0].shape, **attributes)
        for part, v in zip(pieces(on, x, 64, 32), values, strict=True)
    ]
    return joined(on, parts, 32)
