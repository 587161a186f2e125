"""Integers of 2 and 4 bits, and other dtypes that most kernels do not read."""

from __future__ import annotations

from typing import Any

from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dtypes import DType


def shape(b: Builder, call: Call) -> Replacement:
    """Compute Shape of the operand in a wider dtype: onnxruntime drops a Cast before Shape, and then has no kernel."""
    (x,) = call.inputs
    wide = b.casts.apart(b.native_cast(x, DType.int8 if x.dtype.is_integer else DType.float32))
    made: tuple[Any, ...] = b.emit_many(call.op, (wide,), call.types, call.attributes)
    return made
