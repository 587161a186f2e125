"""Operators that choose among values: Where and TopK."""

from __future__ import annotations

from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dtypes import DType


def where_bool(b: Builder, call: Call) -> Replacement:
    condition, x, y = call.inputs
    return b.native(
        "Or", b.native("And", condition, x), b.native("And", b.native("Not", condition), y), shape=call.shape
    )


def where_bits(b: Builder, call: Call) -> Replacement:
    """Compute Where on the bits of floats as integers: the float kernel takes a -0.0 of x for an element not chosen.

    A constant without zeros can be x. That makes it x where it is y; onnxruntime would swap them again after a Not.
    """
    condition, x, y = call.inputs
    own = x.dtype
    if _has_no_zeros(b, x):
        return None
    if _has_no_zeros(b, y):
        opposite = b.native("Xor", condition, b.scalar(True, DType.bool))
        return b.native(call.op, opposite, y, x, dtype=own, shape=call.shape)
    if not b.rules.views_bits:
        return _where_signed(b, condition, x, y, call.types)
    bits = DType.int32 if own is DType.float32 else DType.int64
    made = b.native(call.op, condition, b.view(x, bits), b.view(y, bits), dtype=bits, shape=call.shape)
    return b.native("BitCast", made, dtype=own, to=own)


def _where_signed(b: Builder, condition: Symbol, x: Symbol, y: Symbol, types: Any) -> Symbol:
    """Return the kernel's choice, negated where it is a -0.0 of x: without the bits of floats."""
    own = x.dtype
    zero, one = b.scalar(0.0, own), b.scalar(1.0, own)
    below = b.native("Less", b.native("Reciprocal", x), zero, dtype=DType.bool)
    lost = b.native("And", b.native("Equal", x, zero, dtype=DType.bool), below)
    lost = b.native("And", condition, lost)
    chosen = b.native("Where", condition, x, y, dtype=own, shape=types[0].shape)
    # A condition of one element is right: then the sign is there.
    above = b.native("Greater", b.native("Reciprocal", chosen), zero, dtype=DType.bool)
    sign = b.native("Where", b.native("And", lost, above), b.scalar(-1.0, own), one, dtype=own)
    return b.native("Mul", chosen, sign, shape=types[0].shape)


def _has_no_zeros(b: Builder, symbol: Symbol) -> bool:
    array = b.known(symbol)
    return array is not None and bool(array.size) and not (array == 0).any()


def top_k_floats(b: Builder, call: Call) -> Replacement:
    """Compute TopK of floats by integers in the same order, NaN the greatest, which the kernel misplaces."""
    x, k = call.inputs
    whole = DType.int32 if x.dtype is DType.float32 else DType.int64
    least = -(1 << (whole.bits - 1))
    bits = b.view(x, whole)
    below = b.native("Less", bits, b.scalar(0, whole), dtype=DType.bool)
    keys = b.native("Where", below, b.native("Sub", b.scalar(least, whole), bits), bits, dtype=whole)
    unknown = b.native("IsNaN", x, dtype=DType.bool)
    keys = b.native("Where", unknown, b.scalar(-least - 1, whole), keys, dtype=whole)
    types = [t.cast(whole) if t.dtype is x.dtype else t for t in call.types]
    _, positions = b.legal(call._replace(inputs=[keys, k], types=types))
    axis = call.attributes.get("axis", -1)
    return b.native("GatherElements", x, positions, shape=call.shape, axis=axis), positions
