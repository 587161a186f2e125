"""Reductions: integers wrap, and NaN in floats is preserved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Decomposition, OpCall, Replacement
from graphcore.runtime.lowering.decompositions.shape_arithmetic import shape_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape


def sum_integers(b: Builder, call: OpCall) -> Replacement:
    """Compute integer sums by a product with ones, which wraps and is faster: the kernel saturates in float64."""
    x = call.inputs[0]
    flat, finish = merge_reduced_axes(b, call)
    if finish is None:
        return b.op("Identity", x)
    # A column of ones, not a vector: the kernel refuses a vector if the batch is empty.
    last = flat.shape[-1]
    if last.is_static:
        ones = b.constant(np.ones((int(last), 1), x.dtype.numpy), x.dtype)
    else:
        column = b.native("Concat", b.native("Shape", flat, start=-1), b.vector([1]), axis=0)
        filled = np.ones(1, x.dtype.numpy)
        ones = b.native("ConstantOfShape", column, dtype=x.dtype, shape=_shape([last, Dim(1)]), value=filled)
    total = b.op("MatMul", flat, ones, shape=_shape([*flat.shape[:-1], Dim(1)]))
    return finish(b.native("Squeeze", total, b.vector([-1]), shape=flat.shape[:-1]))


def product_integers(b: Builder, call: OpCall) -> Replacement:
    """Compute integer products as the last running product, exact and wrapped: the kernel saturates in float64."""
    x = call.inputs[0]
    flat, finish = merge_reduced_axes(b, call)
    if finish is None:
        return b.op("Identity", x)
    padded = _prepend(b, flat, 1)
    running = b.native("CumProd", padded, b.scalar(-1, DType.int64), shape=padded.shape)
    return finish(b.native("Gather", running, b.scalar(-1, DType.int64), shape=flat.shape[:-1], axis=-1))


def _prepend(b: Builder, flat: Symbol, number: float) -> Symbol:
    """Prepend a number along the last axis, so that it is not empty."""
    pads = b.vector([0] * (flat.rank - 1) + [1] + [0] * flat.rank)
    return b.native("Pad", flat, pads, b.scalar(number, flat.dtype), mode="constant")


def merge_reduced_axes(b: Builder, call: OpCall) -> tuple[Symbol, Callable[[Symbol], Symbol] | None]:
    """Return the operand with the reduced axes merged into the last one, and the function that shapes the result."""
    x = call.inputs[0]
    axes = _axes(b, call.inputs, x.rank)
    if not axes:
        if call.attributes.get("noop_with_empty_axes") or not x.rank:
            return x, None
        axes = list(range(x.rank))
    remaining = [a for a in range(x.rank) if a not in axes]
    order = [*remaining, *axes]
    if order != list(range(x.rank)):
        x = b.native("Transpose", x, perm=order)
    if len(axes) > 1:
        kept_shape = x.shape[: len(remaining)]
        together = x.shape[len(remaining) :].size
        lengths = b.native("Shape", x, start=0, end=len(remaining))
        one = b.native("ReduceProd", b.native("Shape", x, start=len(remaining)), keepdims=1)
        target = b.native("Concat", lengths, one, axis=0)
        if all(d.is_static for d in (*kept_shape, together)):
            target = b.vector([int(d) for d in (*kept_shape, together)])
        x = b.native("Reshape", x, target, shape=_shape([*kept_shape, together]), allowzero=1)

    def finish(result: Symbol) -> Symbol:
        if not call.attributes.get("keepdims", 1):
            return result
        return b.native("Unsqueeze", result, b.vector(sorted(axes)), shape=call.shape)

    return x, finish


def _axes(b: Builder, inputs: Sequence[Any], rank: int) -> list[int]:
    if len(inputs) < 2 or inputs[1] is None:
        return []
    axes = b.array_of(inputs[1])
    if axes is None:
        raise GraphError(
            "a reduction of integers needs axes that are known when the graph is lowered",
            operands={"x": str(inputs[0].type), "axes": str(inputs[1].type)},
            help="pass the axes as a constant, or cast x to a float first",
        )
    return [int(a) % rank for a in axes]


def extreme_floats(b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceMax and ReduceMin with NaN preserved: the kernels notice a NaN only in the first place."""
    x = call.inputs[0]
    result = b.native(call.op, *call.inputs, shape=call.shape, **call.attributes)
    unknown = b.native("IsNaN", x, dtype=DType.bool)
    any_unknown = b.op("ReduceMax", unknown, *call.inputs[1:], dtype=DType.bool, shape=call.shape, **call.attributes)
    return b.native("Where", any_unknown, b.scalar(float("nan"), x.dtype), result, dtype=x.dtype, shape=call.shape)


def extreme_int64_along(b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceMax and ReduceMin of int64 by ArgMax and ArgMin, whose order is correct."""
    flat, finish = merge_reduced_axes(b, call)
    if finish is None:
        return b.op("Identity", call.inputs[0])
    if (flat.shape[-1].lower_bound or 0) < 1:
        flat = _prepend(b, flat, flat.dtype.min if call.op == "ReduceMax" else flat.dtype.max)
    one, last = _shape([*flat.shape[:-1], Dim(1)]), flat.rank - 1  # kernels refuse negative axes of empty operands
    place = b.native(call.op.replace("Reduce", "Arg"), flat, dtype=DType.int64, shape=one, axis=last, keepdims=1)
    chosen = b.native("GatherElements", flat, place, shape=one, axis=-1)
    return finish(b.native("Squeeze", chosen, b.vector([-1]), shape=flat.shape[:-1]))


def extreme_int16(b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceMax and ReduceMin of int16 in int32, clipped: int32's result of an empty axis would wrap."""
    x = call.inputs[0]
    if x.shape.is_ranked and all((d.lower_bound or 0) > 0 for d in x.shape):
        return None
    wide = b.cast(x, DType.int32)
    result = b.native(call.op, wide, *call.inputs[1:], dtype=DType.int32, shape=call.shape, **call.attributes)
    bound, end = ("Max", DType.int16.min) if call.op == "ReduceMax" else ("Min", DType.int16.max)
    clipped = b.native(bound, result, b.scalar(end, DType.int32), dtype=DType.int32, shape=call.shape)
    return b.cast(clipped, DType.int16)


def argument_floats(b: Builder, call: OpCall) -> Replacement:
    """Compute ArgMax and ArgMin with the index of the first NaN, which the kernels misplace."""
    (x,) = call.inputs
    result = b.native(call.op, x, dtype=DType.int64, shape=call.shape, **call.attributes)
    axis, keepdims = call.attributes.get("axis", 0), call.attributes.get("keepdims", 1)
    unknown, has_nan = nan_along(b, x, axis, call.shape, keepdims)
    first = b.native("ArgMax", unknown, dtype=DType.int64, shape=call.shape, **call.attributes)
    return b.native("Where", has_nan, first, result, dtype=DType.int64, shape=call.shape)


def nan_along(b: Builder, x: Symbol, axis: int, shape: Shape, keepdims: int) -> tuple[Symbol, Symbol]:
    """Return 1 for each NaN, and whether there is one along an axis."""
    unknown = b.native_cast(b.native("IsNaN", x, dtype=DType.bool), DType.int32)
    any_unknown = b.native("ReduceMax", unknown, b.vector([axis]), shape=shape, keepdims=keepdims)
    return unknown, b.native_cast(any_unknown, DType.bool)


def over_empty_axes(then: Decomposition | None, b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceMax and ReduceMin over no elements, which the kernels refuse: the limits of the dtype.

    then: the decomposition if there are elements, or if that is known at run time only.
    """
    x = call.inputs[0]
    if not is_empty(x.type, call.types[0]):
        return then(b, call) if then else None
    dtype = x.dtype
    if dtype.is_float and (dtype.bits >= 16 or dtype is DType.float8_e5m2):
        value: Any = float("-inf" if call.op == "ReduceMax" else "inf")
    else:
        value = dtype.min if call.op == "ReduceMax" else dtype.max
    # A sum over an empty axis has the shape of the result.
    floats = b.cast(x, DType.float32)
    sums = b.native("ReduceSum", floats, *call.inputs[1:], shape=call.shape, **call.attributes)
    shape = shape_of(b, sums)
    return b.op("Expand", b.scalar(bool(value) if dtype is DType.bool else value, dtype), shape, shape=call.shape)


def is_empty(operand: TensorType, result: TensorType) -> bool:
    """Return True if the operand is certainly empty."""
    return operand.shape.is_ranked and any(d.is_static and not int(d) for d in operand.shape)
