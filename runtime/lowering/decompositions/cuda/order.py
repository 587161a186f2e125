"""The order of numbers: extremes of 64-bit integers, where an extreme is, and TopK.

Reductions of integers go through float32 there, and their indices are not always the first; TopK of a long axis keeps
equal numbers in no order. Built on extremes in float64, which are exact, and on TopK where no two keys are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.cuda.sums import joined, pieces
from graphcore.runtime.lowering.decompositions.select import top_k_floats as top_k_by_bits
from graphcore.runtime.lowering.decompositions.shape_arithmetic import count_up, length, reshaped, symbol
from graphcore.runtime.lowering.decompositions.signature import Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

F64, I32, I64 = DType.float64, DType.int32, DType.int64

SHORT = 512
"""Axes up to this size are sorted whole, equal keys in the order of their places."""


def _places(on: Legaliser, x: Symbol, axis: int) -> Symbol:
    """0, 1, ... along an axis, int64, of a shape that broadcasts with `x`."""
    counted = count_up(on, length(on, x, axis))
    return symbol(on, reshaped(on, counted, [-1, *[1] * (x.rank - 1 - axis)]))


def extreme(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The extreme of the high halves, and that of the low ones where the high one is it."""
    x, *axes = inputs
    keepdims = attributes.get("keepdims", 1)
    given = on.known(axes[0]) if axes and axes[0] is not None else None
    has_axes = bool(axes) and axes[0] is not None and (given is None or given.size > 0)
    if attributes.get("noop_with_empty_axes") and not has_axes:
        return on.op("Identity", x)
    kept = types[0].shape if keepdims else _shape([Dim.dynamic()] * x.rank)
    options = {**attributes, "keepdims": 1}
    low, high = pieces(on, x, 64, 32)
    top = on.native(op, high, *axes, shape=kept, **options)
    outside = on.const(-1.0 if op == "ReduceMax" else 2.0**33, F64)
    low = on.native("Where", on.native("Equal", high, top, dtype=DType.bool, shape=x.shape), low, outside, dtype=F64)
    made = joined(on, [on.native(op, low, *axes, shape=kept, **options), top], 32)
    if keepdims:
        return made
    return on.native("Squeeze", made, *axes, shape=types[0].shape)


def argument(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The least of the places that hold the extreme, or NaN."""
    (x,) = inputs
    if attributes.get("select_last_index"):
        return on.on_host(op, inputs, types, attributes)
    axis = attributes.get("axis", 0) % x.rank
    kept = _shape([Dim(1) if a == axis else d for a, d in enumerate(x.shape)])
    axes = on.ints([axis])
    best = on.op(op.replace("Arg", "Reduce"), x, axes, shape=kept, keepdims=1)
    found = on.op("Equal", x, best, dtype=DType.bool, shape=x.shape)
    if x.dtype.is_float:
        found = on.native("Or", found, on.native("IsNaN", x, dtype=DType.bool), shape=x.shape)
    places = on.casts.plain(_places(on, x, axis), F64)
    chosen = on.native("Where", found, places, on.const(2.0**53, F64), dtype=F64, shape=x.shape)
    first = on.native("ReduceMin", chosen, axes, shape=types[0].shape, keepdims=attributes.get("keepdims", 1))
    return on.casts.plain(first, I64)


def top_k_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Numbers of up to 32 bits with their places below them are keys that are never equal."""
    x, k = inputs
    axis = attributes.get("axis", -1) % x.rank
    found = _top_k_keys(on, on.casts.plain(x, I64), k, types[1], {**attributes, "axis": axis})
    return on.native("GatherElements", x, found, shape=types[0].shape, axis=axis), found


def _top_k_keys(on: Legaliser, x: Symbol, k: Symbol, type_: Any, attributes: dict[str, Any]) -> Symbol:
    """The places of the first int64 numbers, which have no more than 32 bits."""
    places = _places(on, x, attributes["axis"])
    if attributes.get("largest", 1):
        places = on.native("Sub", on.const((1 << 31) - 1, I64), places)
    keys = on.native("Add", on.native("Mul", x, on.const(1 << 31, I64)), places, shape=x.shape)
    _, found = on.graph._emit_many("TopK", (keys, k), [type_, type_], attributes)
    return found


def _is_short(x: Symbol, attributes: dict[str, Any]) -> bool:
    dim = x.shape[attributes.get("axis", -1)]
    return dim.is_static and int(dim) <= SHORT


def top_k_int64(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """A short axis is sorted as it is. A long one by its low halves, and that by its high halves."""
    x, k = inputs
    if _is_short(x, attributes):
        return None
    axis = attributes.get("axis", -1) % x.rank
    low = on.native("Mod", x, on.const(1 << 32, I64))
    high = on.native("Div", on.native("Sub", x, low), on.const(1 << 32, I64))
    size = reshaped(on, length(on, x, axis), [1])
    order = _top_k_keys(on, low, symbol(on, size), x.type, {**attributes, "axis": axis, "sorted": 1})
    sorted_ = on.native("GatherElements", high, order, shape=x.shape, axis=axis)
    found = _top_k_keys(on, sorted_, k, types[1], {**attributes, "axis": axis})
    places = on.native("GatherElements", order, found, shape=types[1].shape, axis=axis)
    return on.native("GatherElements", x, places, shape=types[0].shape, axis=axis), places


def top_k_floats(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """NaN is the greatest. A short axis is sorted by keys that have none, a long one by the bits as integers."""
    x, k = inputs
    if not _is_short(x, attributes):
        if x.dtype.bits == 16:
            return on.through(DType.float32, op, inputs, types, attributes)
        return top_k_by_bits(on, op, inputs, types, attributes)
    axis = attributes.get("axis", -1)
    unknown = on.native("IsNaN", x, dtype=DType.bool)
    if x.dtype is F64:
        found = _in_two_steps(on, x, unknown, k, types, attributes)
    else:
        keys = on.native("Clip", on.casts.plain(x, F64), on.const(-1e300, F64), on.const(1e300, F64))
        keys = on.native("Where", unknown, on.const(float("inf"), F64), keys, dtype=F64)
        _, found = on.graph._emit_many(op, (keys, k), [types[0].cast(F64), types[1]], attributes)
    return on.native("GatherElements", x, found, shape=types[0].shape, axis=axis), found


def _in_two_steps(
    on: Legaliser, x: Symbol, unknown: Symbol, k: Symbol, types: Any, attributes: dict[str, Any]
) -> Symbol:
    """All of it by the numbers, NaN taken for infinity; then by whether they are NaN, the rest staying in order."""
    axis = attributes.get("axis", -1)
    keys = on.native("Where", unknown, on.const(float("inf"), F64), x, dtype=F64)
    all_of_it = on.ints([int(x.shape[axis])])
    whole = [x.type, x.type.cast(I64)]
    _, sorted_ = on.graph._emit_many("TopK", (keys, all_of_it), whole, {**attributes, "sorted": 1})
    marks = on.native("GatherElements", on.casts.plain(unknown, I32), sorted_, shape=x.shape, axis=axis)
    _, found = on.graph._emit_many("TopK", (marks, k), [types[0].cast(I32), types[1]], attributes)
    return on.native("GatherElements", sorted_, found, shape=types[1].shape, axis=axis)
