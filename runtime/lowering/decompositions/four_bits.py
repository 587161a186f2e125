"""Integers of 2 and 4 bits, and other dtypes that most kernels do not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def shape(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """That of the operand in a wider dtype. onnxruntime drops a Cast before Shape, and then has no kernel."""
    (x,) = inputs
    wide = on.casts.apart(on.casts.plain(x, DType.int8 if x.dtype.is_integer else DType.float32))
    made: tuple[Any, ...] = on.graph._emit_many(op, (wide,), types, attributes)
    return made
