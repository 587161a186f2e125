"""Scatters that combine floats: onnxruntime has none for narrow floats, and its extremes lose NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def narrow(on: Legaliser, op: str, inputs: Sequence[Any], types: Any, attributes: dict[str, Any]) -> Any:
    """Several updates of one element are combined in float32 and rounded once."""
    if attributes.get("reduction", "none") == "none":
        return None
    return on.through(DType.float32, op, inputs, types, attributes)


def wide(on: Legaliser, op: str, inputs: Sequence[Any], types: Any, attributes: dict[str, Any]) -> Symbol | None:
    """The kernels keep whichever operand is not NaN, or the later one."""
    if attributes.get("reduction") not in ("max", "min"):
        return None
    x, indices, updates = inputs
    made = on.native(op, x, indices, updates, shape=types[0].shape, **attributes)
    before, new = (on.native("IsNaN", s, dtype=DType.bool) for s in (x, updates))
    # Added bools are *or*ed: true wherever a NaN is or comes.
    any_unknown = on.native(op, before, indices, new, shape=types[0].shape, **{**attributes, "reduction": "add"})
    return on.native("Where", any_unknown, on.const(float("nan"), x.dtype), made, dtype=x.dtype, shape=types[0].shape)
