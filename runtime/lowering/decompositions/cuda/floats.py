"""Operators of floats whose kernels lose a sign or a NaN, and functions without kernels."""

from __future__ import annotations

from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.build.compute import compute_in
from graphcore.runtime.lowering.decompositions.reductions import extreme_floats
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dtypes import DType


def absolute(b: Builder, call: Call) -> Replacement:
    """Compute Abs by other operators: the kernel negates all that is not above 0, and so gives -0.0 for 0.0."""
    (x,) = call.inputs
    if not b.rules.allows(call.op, x.dtype):
        return None
    return b.native("Max", b.native(call.op, x), b.scalar(0.0, x.dtype), shape=call.shape)


def extreme(b: Builder, call: Call) -> Replacement:
    """Compute Max and Min as for wider floats: NaN wins."""
    if not b.rules.allows(call.op, call.inputs[0].dtype):
        return None
    return extreme_floats(b, call)


def sign(b: Builder, call: Call) -> Replacement:
    """Compute Sign with NaN kept: the kernel compares with 0, and so gives 0 for NaN."""
    (x,) = call.inputs
    unknown = b.native("IsNaN", x, dtype=DType.bool)
    return b.native("Where", unknown, x, b.native(call.op, x), dtype=x.dtype)


def relu(b: Builder, call: Call) -> Replacement:
    """Compute Relu with NaN kept: the kernel gives 0 for all that is not above 0."""
    (x,) = call.inputs
    zero = b.scalar(0.0, x.dtype)
    return b.native("Where", b.native("Less", x, zero, dtype=DType.bool), zero, x, dtype=x.dtype)


def through_double(b: Builder, call: Call) -> Replacement:
    """Compute in float64 the functions that are written for it."""
    return compute_in(b, DType.float64, call)


def convolve_narrow(b: Builder, call: Call) -> Replacement:
    """Compute Conv of narrow floats in float32: the kernel adds the bias to a rounded sum."""
    if len(call.inputs) < 3 or call.inputs[2] is None:
        return None
    return compute_in(b, DType.float32, call)


def scatter(b: Builder, call: Call) -> Replacement:
    """Compute extremes of a scatter with NaN kept: its marks are int32, since no kernel combines bools."""
    if call.attributes.get("reduction") not in ("max", "min"):
        return None
    x, indices, updates = call.inputs
    shape = call.shape
    made = b.native(call.op, x, indices, updates, shape=shape, **call.attributes)
    marks = [b.native_cast(b.native("IsNaN", s, dtype=DType.bool), DType.int32) for s in (x, updates)]
    found = b.native(call.op, marks[0], indices, marks[1], shape=shape, **{**call.attributes, "reduction": "max"})
    unknown = b.native_cast(found, DType.bool)
    return b.native("Where", unknown, b.scalar(float("nan"), x.dtype), made, dtype=x.dtype, shape=shape)
