"""Floats: kernels that lose a sign or a NaN, and functions that there are none for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.runtime.lowering.decompositions.reductions import extreme_floats
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def absolute(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel negates what is not above 0, and so gives -0.0 for 0.0."""
    (x,) = inputs
    if not on.rules.allows(op, x.dtype):
        return None
    return on.native("Max", on.native(op, x), on.const(0.0, x.dtype), shape=types[0].shape)


def extreme(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """As for wider floats: NaN wins."""
    if not on.rules.allows(op, inputs[0].dtype):
        return None
    return extreme_floats(on, op, inputs, types, attributes)


def sign(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel compares with 0, and so gives 0 for NaN."""
    (x,) = inputs
    unknown = on.native("IsNaN", x, dtype=DType.bool)
    return on.native("Where", unknown, x, on.native(op, x), dtype=x.dtype)


def relu(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel takes what is not above 0, NaN among it, for 0."""
    (x,) = inputs
    zero = on.const(0.0, x.dtype)
    return on.native("Where", on.native("Less", x, zero, dtype=DType.bool), zero, x, dtype=x.dtype)


def through_double(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Functions that are built for float64."""
    return on.through(DType.float64, op, inputs, types, attributes)


def convolve_narrow(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """A bias is added to what has been rounded already."""
    if len(inputs) < 3 or inputs[2] is None:
        return None
    return on.through(DType.float32, op, inputs, types, attributes)


def scatter(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Greatest and least lose NaN; there is no kernel that combines bools, in which the CPU looks for it."""
    if attributes.get("reduction") not in ("max", "min"):
        return None
    x, indices, updates = inputs
    shape = types[0].shape
    made = on.native(op, x, indices, updates, shape=shape, **attributes)
    marks = [on.casts.plain(on.native("IsNaN", s, dtype=DType.bool), DType.int32) for s in (x, updates)]
    found = on.native(op, marks[0], indices, marks[1], shape=shape, **{**attributes, "reduction": "max"})
    unknown = on.casts.plain(found, DType.bool)
    return on.native("Where", unknown, on.const(float("nan"), x.dtype), made, dtype=x.dtype, shape=shape)
