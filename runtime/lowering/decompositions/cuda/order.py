"""The order of numbers: maxima and minima of 64-bit integers, ArgMax and ArgMin, and TopK.

The provider reduces integers in float32, and does not always return the first index. TopK of a long axis returns equal
numbers in any order. The decompositions use maxima and minima in float64, which are exact, and TopK of keys that are
all different.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build import casts
from graphcore.runtime.lowering.build.builder import Builder, OpCall, Replacement
from graphcore.runtime.lowering.build.casts import compute_in
from graphcore.runtime.lowering.decompositions import bits
from graphcore.runtime.lowering.decompositions.cuda.networks import joined, pieces
from graphcore.runtime.lowering.decompositions.rearranging import top_k_floats as top_k_by_bits
from graphcore.runtime.lowering.decompositions.reductions import extreme_floats
from graphcore.runtime.lowering.decompositions.shape_arithmetic import length, places, reshaped, symbol
from graphcore.runtime.lowering.decompositions.windows import reduced
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

F64, I32, I64 = DType.float64, DType.int32, DType.int64

_MAX_SORTED_AT_ONCE = 512
"""Axes up to this size are sorted in one step, equal keys in the order of their positions."""


def extreme(b: Builder, call: OpCall) -> Replacement:
    """Compute the maximum or minimum of the high halves, then that of the low halves of numbers that have it."""
    x, *axes = call.inputs
    keepdims = call.attributes.get("keepdims", 1)
    constant_axes = b.array_of(axes[0]) if axes and axes[0] is not None else None
    has_axes = bool(axes) and axes[0] is not None and (constant_axes is None or constant_axes.size > 0)
    if call.attributes.get("noop_with_empty_axes") and not has_axes:
        return b.op("Identity", x)
    reduced_shape = call.shape if keepdims else _shape([Dim.dynamic()] * x.rank)
    options = {**call.attributes, "keepdims": 1}
    low, high = pieces(b, x, 64, 32)
    top = b.native(call.op, high, *axes, shape=reduced_shape, **options)
    outside = b.scalar(-1.0 if call.op == "ReduceMax" else 2.0**33, F64)
    low = b.native("Where", b.native("Equal", high, top, dtype=DType.bool, shape=x.shape), low, outside, dtype=F64)
    result = joined(b, [b.native(call.op, low, *axes, shape=reduced_shape, **options), top], 32)
    if keepdims:
        return result
    return b.native("Squeeze", result, *axes, shape=call.shape)


def argument(b: Builder, call: OpCall) -> Replacement:
    """Compute ArgMax and ArgMin: the smallest index of the maximum or minimum, or of NaN."""
    (x,) = call.inputs
    if call.attributes.get("select_last_index"):
        return b.on_host(call)
    axis = call.attributes.get("axis", 0) % x.rank
    best = reduced(b, call.op.replace("Arg", "Reduce"), x, [axis], keepdims=True)
    is_best = b.op("Equal", x, best, dtype=DType.bool, shape=x.shape)
    if x.dtype.is_float:
        is_best = b.native("Or", is_best, b.native("IsNaN", x, dtype=DType.bool), shape=x.shape)
    indices = b.native_cast(places(b, x, axis), F64)
    chosen = b.native("Where", is_best, indices, b.scalar(2.0**53, F64), dtype=F64, shape=x.shape)
    keepdims = call.attributes.get("keepdims", 1)
    first = b.native("ReduceMin", chosen, b.vector([axis]), shape=call.shape, keepdims=keepdims)
    return b.native_cast(first, I64)


def top_k_integers(b: Builder, call: OpCall) -> Replacement:
    """Compute TopK of up to 32 bits by keys that are never equal: each number with its index in the low bits."""
    x, k = call.inputs
    axis = call.attributes.get("axis", -1) % x.rank
    indices = _top_k_keys(b, b.native_cast(x, I64), k, call.types[1], {**call.attributes, "axis": axis})
    return b.native("GatherElements", x, indices, shape=call.shape, axis=axis), indices


def _top_k_keys(b: Builder, x: Symbol, k: Symbol, type_: Any, attributes: dict[str, Any]) -> Symbol:
    """Return the indices of the first int64 numbers, which have at most 32 bits."""
    low = places(b, x, attributes["axis"])
    if attributes.get("largest", 1):
        low = b.native("Sub", b.scalar((1 << 31) - 1, I64), low)
    keys = b.native("Add", b.native("Mul", x, b.scalar(1 << 31, I64)), low, shape=x.shape)
    _, indices = b.emit_many("TopK", (keys, k), [type_, type_], attributes)
    return indices


def _is_short(x: Symbol, attributes: dict[str, Any]) -> bool:
    dim = x.shape[attributes.get("axis", -1)]
    return dim.is_static and int(dim) <= _MAX_SORTED_AT_ONCE


def top_k_int64(b: Builder, call: OpCall) -> Replacement:
    """Compute TopK of int64: sort a short axis directly, a long one by its low halves and then by its high halves."""
    x, k = call.inputs
    if _is_short(x, call.attributes):
        return None
    axis = call.attributes.get("axis", -1) % x.rank
    low = b.native("Mod", x, b.scalar(1 << 32, I64))
    high = b.native("Div", b.native("Sub", x, low), b.scalar(1 << 32, I64))
    size = reshaped(b, length(b, x, axis), [1])
    order = _top_k_keys(b, low, symbol(b, size), x.type, {**call.attributes, "axis": axis, "sorted": 1})
    sorted_ = b.native("GatherElements", high, order, shape=x.shape, axis=axis)
    indices = _top_k_keys(b, sorted_, k, call.types[1], {**call.attributes, "axis": axis})
    places = b.native("GatherElements", order, indices, shape=call.types[1].shape, axis=axis)
    return b.native("GatherElements", x, places, shape=call.shape, axis=axis), places


def top_k_floats(b: Builder, call: OpCall) -> Replacement:
    """Compute TopK with NaN as the maximum: sort a short axis by keys without NaN, a long one by bits as integers."""
    x, k = call.inputs
    if not _is_short(x, call.attributes):
        if x.dtype.bits == 16:
            return compute_in(b, DType.float32, call)
        return top_k_by_bits(b, call)
    axis = call.attributes.get("axis", -1)
    unknown = b.native("IsNaN", x, dtype=DType.bool)
    if x.dtype is F64:
        indices = _in_two_steps(b, x, unknown, k, call.types, call.attributes)
    else:
        keys = b.native("Clip", b.native_cast(x, F64), b.scalar(-1e300, F64), b.scalar(1e300, F64))
        keys = b.native("Where", unknown, b.scalar(float("inf"), F64), keys, dtype=F64)
        _, indices = b.emit_many(call.op, (keys, k), [call.types[0].cast(F64), call.types[1]], call.attributes)
    return b.native("GatherElements", x, indices, shape=call.shape, axis=axis), indices


def _in_two_steps(b: Builder, x: Symbol, unknown: Symbol, k: Symbol, types: Any, attributes: dict[str, Any]) -> Symbol:
    """Return the order by number, with NaN as infinity, then by being NaN, in a stable sort."""
    axis = attributes.get("axis", -1)
    keys = b.native("Where", unknown, b.scalar(float("inf"), F64), x, dtype=F64)
    all_of_it = b.vector([int(x.shape[axis])])
    whole = [x.type, x.type.cast(I64)]
    _, sorted_ = b.emit_many("TopK", (keys, all_of_it), whole, {**attributes, "sorted": 1})
    marks = b.native("GatherElements", b.native_cast(unknown, I32), sorted_, shape=x.shape, axis=axis)
    _, order = b.emit_many("TopK", (marks, k), [types[0].cast(I32), types[1]], attributes)
    return b.native("GatherElements", sorted_, order, shape=types[1].shape, axis=axis)


# Bits of integers, by arithmetic.


def bitcast(b: Builder, call: OpCall) -> Replacement:
    """Compute BitCast of integers of one width by Cast, which wraps. Wider floats are left to the CPU."""
    (x,) = call.inputs
    target = call.types[0].dtype
    if target is x.dtype:
        return casts.barrier(b, x)
    if target.is_integer and x.dtype.is_integer and target.bits == x.dtype.bits:
        return b.native_cast(x, target)
    if target in bits.WITHOUT:
        return bits.bitcast(b, call)
    return b.emit_many(call.op, (x,), call.types, call.attributes)


def shift(b: Builder, call: OpCall) -> Replacement:
    """Compute shifts by Mul and Div with powers of two; 0 for counts of at least the width."""
    x, count = call.inputs
    dtype, shape = x.dtype, call.shape
    powers = [1 << i for i in range(dtype.bits)]
    place = b.native_cast(b.native("Min", count, b.scalar(dtype.bits, dtype)), DType.int64)

    def chosen(values: list[int]) -> Symbol:
        table = b.constant(np.array(values, dtype.numpy), dtype)
        return b.native("Gather", table, place, shape=count.shape, axis=0)

    if call.attributes["direction"] in ("LEFT", b"LEFT"):
        return b.native("Mul", x, chosen([*powers, 0]), shape=shape)
    quotient = b.native("Div", x, chosen([*powers, 1]), shape=shape)
    array = b.array_of(count)
    if array is not None and (array < dtype.bits).all():
        return quotient
    return b.native("Mul", quotient, chosen([*([1] * dtype.bits), 0]), shape=shape)


# Operators of floats whose kernels lose a sign or a NaN, and functions without kernels.


def absolute(b: Builder, call: OpCall) -> Replacement:
    """Compute Abs with another operator: the kernel negates all numbers that are not above 0, so 0.0 becomes -0.0."""
    (x,) = call.inputs
    if not b.rules.allows(call.op, x.dtype):
        return None
    return b.native("Max", b.native(call.op, x), b.scalar(0.0, x.dtype), shape=call.shape)


def bits_extreme(b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceMax and ReduceMin as for wider floats: NaN wins."""
    if not b.rules.allows(call.op, call.inputs[0].dtype):
        return None
    return extreme_floats(b, call)


def convolve_narrow(b: Builder, call: OpCall) -> Replacement:
    """Compute Conv of narrow floats in float32: the kernel adds the bias to a rounded sum."""
    if len(call.inputs) < 3 or call.inputs[2] is None:
        return None
    return compute_in(b, DType.float32, call)
