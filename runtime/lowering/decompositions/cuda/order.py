"""The order of numbers: extremes of 64-bit integers, ArgMax and ArgMin, and TopK.

The provider reduces integers in float32, and its indices are not always the first. TopK of a long axis keeps equal
numbers in no order. The decompositions use extremes in float64, which are exact, and TopK of keys that are all
different.
"""

from __future__ import annotations

from typing import Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call, Replacement
from graphcore.runtime.lowering.build.compute import compute_in
from graphcore.runtime.lowering.decompositions.cuda.networks import joined, pieces
from graphcore.runtime.lowering.decompositions.rearranging import top_k_floats as top_k_by_bits
from graphcore.runtime.lowering.decompositions.shape_arithmetic import count_up, length, reshaped, symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

F64, I32, I64 = DType.float64, DType.int32, DType.int64

SHORT = 512
"""Axes up to this size are sorted whole, equal keys in the order of their places."""


def _places(b: Builder, x: Symbol, axis: int) -> Symbol:
    """Return 0, 1, ... along an axis, as int64, of a shape that broadcasts with `x`."""
    counted = count_up(b, length(b, x, axis))
    return symbol(b, reshaped(b, counted, [-1, *[1] * (x.rank - 1 - axis)]))


def extreme(b: Builder, call: Call) -> Replacement:
    """Compute the extreme of the high halves, then that of the low halves where the high one is it."""
    x, *axes = call.inputs
    keepdims = call.attributes.get("keepdims", 1)
    given = b.known(axes[0]) if axes and axes[0] is not None else None
    has_axes = bool(axes) and axes[0] is not None and (given is None or given.size > 0)
    if call.attributes.get("noop_with_empty_axes") and not has_axes:
        return b.op("Identity", x)
    kept = call.shape if keepdims else _shape([Dim.dynamic()] * x.rank)
    options = {**call.attributes, "keepdims": 1}
    low, high = pieces(b, x, 64, 32)
    top = b.native(call.op, high, *axes, shape=kept, **options)
    outside = b.scalar(-1.0 if call.op == "ReduceMax" else 2.0**33, F64)
    low = b.native("Where", b.native("Equal", high, top, dtype=DType.bool, shape=x.shape), low, outside, dtype=F64)
    made = joined(b, [b.native(call.op, low, *axes, shape=kept, **options), top], 32)
    if keepdims:
        return made
    return b.native("Squeeze", made, *axes, shape=call.shape)


def argument(b: Builder, call: Call) -> Replacement:
    """Compute ArgMax and ArgMin: the least of the indices that hold the extreme, or NaN."""
    (x,) = call.inputs
    if call.attributes.get("select_last_index"):
        return b.on_host(call)
    axis = call.attributes.get("axis", 0) % x.rank
    kept = _shape([Dim(1) if a == axis else d for a, d in enumerate(x.shape)])
    axes = b.vector([axis])
    best = b.op(call.op.replace("Arg", "Reduce"), x, axes, shape=kept, keepdims=1)
    found = b.op("Equal", x, best, dtype=DType.bool, shape=x.shape)
    if x.dtype.is_float:
        found = b.native("Or", found, b.native("IsNaN", x, dtype=DType.bool), shape=x.shape)
    places = b.native_cast(_places(b, x, axis), F64)
    chosen = b.native("Where", found, places, b.scalar(2.0**53, F64), dtype=F64, shape=x.shape)
    first = b.native("ReduceMin", chosen, axes, shape=call.shape, keepdims=call.attributes.get("keepdims", 1))
    return b.native_cast(first, I64)


def top_k_integers(b: Builder, call: Call) -> Replacement:
    """Compute TopK of up to 32 bits by keys that are never equal: each number with its index in the low bits."""
    x, k = call.inputs
    axis = call.attributes.get("axis", -1) % x.rank
    found = _top_k_keys(b, b.native_cast(x, I64), k, call.types[1], {**call.attributes, "axis": axis})
    return b.native("GatherElements", x, found, shape=call.shape, axis=axis), found


def _top_k_keys(b: Builder, x: Symbol, k: Symbol, type_: Any, attributes: dict[str, Any]) -> Symbol:
    """Return the indices of the first int64 numbers, which have no more than 32 bits."""
    places = _places(b, x, attributes["axis"])
    if attributes.get("largest", 1):
        places = b.native("Sub", b.scalar((1 << 31) - 1, I64), places)
    keys = b.native("Add", b.native("Mul", x, b.scalar(1 << 31, I64)), places, shape=x.shape)
    _, found = b.emit_many("TopK", (keys, k), [type_, type_], attributes)
    return found


def _is_short(x: Symbol, attributes: dict[str, Any]) -> bool:
    dim = x.shape[attributes.get("axis", -1)]
    return dim.is_static and int(dim) <= SHORT


def top_k_int64(b: Builder, call: Call) -> Replacement:
    """Compute TopK of int64: sort a short axis as it is, a long one by its low halves and then by its high halves."""
    x, k = call.inputs
    if _is_short(x, call.attributes):
        return None
    axis = call.attributes.get("axis", -1) % x.rank
    low = b.native("Mod", x, b.scalar(1 << 32, I64))
    high = b.native("Div", b.native("Sub", x, low), b.scalar(1 << 32, I64))
    size = reshaped(b, length(b, x, axis), [1])
    order = _top_k_keys(b, low, symbol(b, size), x.type, {**call.attributes, "axis": axis, "sorted": 1})
    sorted_ = b.native("GatherElements", high, order, shape=x.shape, axis=axis)
    found = _top_k_keys(b, sorted_, k, call.types[1], {**call.attributes, "axis": axis})
    places = b.native("GatherElements", order, found, shape=call.types[1].shape, axis=axis)
    return b.native("GatherElements", x, places, shape=call.shape, axis=axis), places


def top_k_floats(b: Builder, call: Call) -> Replacement:
    """Compute TopK with NaN the greatest: sort a short axis by keys without NaN, a long one by the bits as integers."""
    x, k = call.inputs
    if not _is_short(x, call.attributes):
        if x.dtype.bits == 16:
            return compute_in(b, DType.float32, call)
        return top_k_by_bits(b, call)
    axis = call.attributes.get("axis", -1)
    unknown = b.native("IsNaN", x, dtype=DType.bool)
    if x.dtype is F64:
        found = _in_two_steps(b, x, unknown, k, call.types, call.attributes)
    else:
        keys = b.native("Clip", b.native_cast(x, F64), b.scalar(-1e300, F64), b.scalar(1e300, F64))
        keys = b.native("Where", unknown, b.scalar(float("inf"), F64), keys, dtype=F64)
        _, found = b.emit_many(call.op, (keys, k), [call.types[0].cast(F64), call.types[1]], call.attributes)
    return b.native("GatherElements", x, found, shape=call.shape, axis=axis), found


def _in_two_steps(b: Builder, x: Symbol, unknown: Symbol, k: Symbol, types: Any, attributes: dict[str, Any]) -> Symbol:
    """Return the order by number, NaN as infinity, and then by whether it is NaN, in a stable sort."""
    axis = attributes.get("axis", -1)
    keys = b.native("Where", unknown, b.scalar(float("inf"), F64), x, dtype=F64)
    all_of_it = b.vector([int(x.shape[axis])])
    whole = [x.type, x.type.cast(I64)]
    _, sorted_ = b.emit_many("TopK", (keys, all_of_it), whole, {**attributes, "sorted": 1})
    marks = b.native("GatherElements", b.native_cast(unknown, I32), sorted_, shape=x.shape, axis=axis)
    _, found = b.emit_many("TopK", (marks, k), [types[0].cast(I32), types[1]], attributes)
    return b.native("GatherElements", sorted_, found, shape=types[1].shape, axis=axis)
