"""Scatters that combine floats: onnxruntime has none for narrow floats, and its extremes lose NaN."""

from __future__ import annotations

from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.build.compute import compute_in
from graphcore.types.dtypes import DType


def narrow(b: Builder, call: Call) -> Any:
    """Compute a scatter of narrow floats in float32: several updates of one element are rounded once."""
    if call.attributes.get("reduction", "none") == "none":
        return None
    return compute_in(b, DType.float32, call)


def wide(b: Builder, call: Call) -> Symbol | None:
    """Compute a scatter with NaN kept: the kernels keep whichever operand is not NaN, or the later one."""
    if call.attributes.get("reduction") not in ("max", "min"):
        return None
    x, indices, updates = call.inputs
    made = b.native(call.op, x, indices, updates, shape=call.shape, **call.attributes)
    before, new = (b.native("IsNaN", s, dtype=DType.bool) for s in (x, updates))
    # Added bools are *or*ed: true wherever a NaN is or comes.
    any_unknown = b.native(call.op, before, indices, new, shape=call.shape, **{**call.attributes, "reduction": "add"})
    return b.native("Where", any_unknown, b.scalar(float("nan"), x.dtype), made, dtype=x.dtype, shape=call.shape)
