"""Activations whose kernels are less exact than docs/numbers.md promises."""

from __future__ import annotations

from typing import Any

from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape


def sigmoid(b: Builder, call: Call) -> Replacement:
    """Compute Sigmoid by other operators: the kernel gives 0 below -18."""
    (x,) = call.inputs
    one = b.scalar(1.0, x.dtype)
    return b.native("Reciprocal", b.native("Add", one, b.native("Exp", b.native("Neg", x))))


def log_softmax(b: Builder, call: Call) -> Replacement:
    """Compute LogSoftmax with every row of a NaN all NaN: the kernel sees a NaN only where it comes first."""
    (x,) = call.inputs
    made = b.native(call.op, x, shape=call.shape, **call.attributes)
    axis = call.attributes.get("axis", -1)
    row = _shape([Dim(1) if i == axis % x.rank else d for i, d in enumerate(x.shape)])
    unknown = b.native_cast(b.native("IsNaN", x, dtype=DType.bool), DType.int32)
    any_unknown = b.native("ReduceMax", unknown, b.vector([axis]), shape=row, keepdims=1)
    condition = b.native_cast(any_unknown, DType.bool)
    return b.native("Where", condition, b.scalar(float("nan"), x.dtype), made, dtype=x.dtype, shape=call.shape)


# Integers of 2 and 4 bits, and other dtypes that most kernels do not read.


def shape(b: Builder, call: Call) -> Replacement:
    """Compute Shape of the operand in a wider dtype: onnxruntime drops a Cast before Shape, and then has no kernel."""
    (x,) = call.inputs
    wide = b.casts.apart(b.native_cast(x, DType.int8 if x.dtype.is_integer else DType.float32))
    made: tuple[Any, ...] = b.emit_many(call.op, (wide,), call.types, call.attributes)
    return made
