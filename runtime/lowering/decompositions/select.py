"""Choosing among values: Where and TopK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.ir.symbol import Symbol
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def where_bool(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    condition, x, y = inputs
    return on.native(
        "Or", on.native("And", condition, x), on.native("And", on.native("Not", condition), y), shape=types[0].shape
    )


def where_bits(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The float kernel takes a -0.0 of x for nothing chosen; that of integers, on the same bits, cannot err.

    A constant without zeros can be x. That makes it x where it is y; onnxruntime would swap them again behind a Not.
    """
    condition, x, y = inputs
    own = x.dtype
    if _has_no_zeros(on, x):
        return None
    if _has_no_zeros(on, y):
        opposite = on.native("Xor", condition, on.const(True, DType.bool))
        return on.native(op, opposite, y, x, dtype=own, shape=types[0].shape)
    if not on.rules.views_bits:
        return _where_signed(on, condition, x, y, types)
    bits = DType.int32 if own is DType.float32 else DType.int64
    made = on.native(op, condition, on.viewed(x, bits), on.viewed(y, bits), dtype=bits, shape=types[0].shape)
    return on.native("BitCast", made, dtype=own, to=own)


def _where_signed(on: Legaliser, condition: Symbol, x: Symbol, y: Symbol, types: Any) -> Symbol:
    """The kernel's choice, negated where it is a -0.0 of x: without the bits of floats."""
    own = x.dtype
    zero, one = on.const(0.0, own), on.const(1.0, own)
    below = on.native("Less", on.native("Reciprocal", x), zero, dtype=DType.bool)
    lost = on.native("And", on.native("Equal", x, zero, dtype=DType.bool), below)
    lost = on.native("And", condition, lost)
    chosen = on.native("Where", condition, x, y, dtype=own, shape=types[0].shape)
    # A condition of one element is right: then the sign is there.
    above = on.native("Greater", on.native("Reciprocal", chosen), zero, dtype=DType.bool)
    sign = on.native("Where", on.native("And", lost, above), on.const(-1.0, own), one, dtype=own)
    return on.native("Mul", chosen, sign, shape=types[0].shape)


def _has_no_zeros(on: Legaliser, symbol: Symbol) -> bool:
    array = on.known(symbol)
    return array is not None and bool(array.size) and not (array == 0).any()


def top_k_floats(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """TopK misplaces NaN: look for integers in the order of the floats, NaN the greatest, and take what is there."""
    x, k = inputs
    whole = DType.int32 if x.dtype is DType.float32 else DType.int64
    least = -(1 << (whole.bits - 1))
    bits = on.viewed(x, whole)
    below = on.native("Less", bits, on.const(0, whole), dtype=DType.bool)
    keys = on.native("Where", below, on.native("Sub", on.const(least, whole), bits), bits, dtype=whole)
    unknown = on.native("IsNaN", x, dtype=DType.bool)
    keys = on.native("Where", unknown, on.const(-least - 1, whole), keys, dtype=whole)
    _, positions = on.legal(op, [keys, k], [t.cast(whole) if t.dtype is x.dtype else t for t in types], attributes, "")
    axis = attributes.get("axis", -1)
    return on.native("GatherElements", x, positions, shape=types[0].shape, axis=axis), positions
