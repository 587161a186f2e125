"""Reductions: integers that wrap, floats whose NaN is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions.signature import Detour, Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def sum_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Integer sums go through float64 and saturate; a product with ones wraps, and is faster."""
    x = inputs[0]
    if x.dtype.bits < 32:
        return on.through(DType.int32, op, inputs, types, attributes)
    flat, finish = _reduced_last(on, inputs, types, attributes)
    if finish is None:
        return on.op("Identity", x)
    # A column rather than a vector of ones: the kernel refuses a vector where the batch turns out empty.
    last = flat.shape[-1]
    if last.is_static:
        ones = on.graph._constant(np.ones((int(last), 1), x.dtype.numpy), x.dtype)
    else:
        count = on.native("Shape", flat, dtype=DType.int64, shape=_shape([Dim(1)]), start=-1)
        column = on.native("Concat", count, on.ints([1]), shape=_shape([Dim(2)]), axis=0)
        filled = np.ones(1, x.dtype.numpy)
        ones = on.native("ConstantOfShape", column, dtype=x.dtype, shape=_shape([last, Dim(1)]), value=filled)
    total = on.op("MatMul", flat, ones, shape=_shape([*flat.shape[:-1], Dim(1)]))
    return finish(on.native("Squeeze", total, on.ints([-1]), shape=flat.shape[:-1]))


def product_integers(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Integer products go through float64 and saturate; the last of the running products is exact and wraps."""
    x = inputs[0]
    if x.dtype.bits < 32:
        return on.through(DType.int32, op, inputs, types, attributes)
    flat, finish = _reduced_last(on, inputs, types, attributes)
    if finish is None:
        return on.op("Identity", x)
    # A 1 in front, so that there is a last one even of none.
    pads = on.ints([0] * (flat.rank - 1) + [1] + [0] * flat.rank)
    longer = _shape([*flat.shape[:-1], flat.shape[-1] + 1])
    padded = on.native("Pad", flat, pads, on.const(1, x.dtype), shape=longer, mode="constant")
    running = on.native("CumProd", padded, on.const(-1, DType.int64), shape=longer)
    return finish(on.native("Gather", running, on.const(-1, DType.int64), shape=flat.shape[:-1], axis=-1))


def _reduced_last(
    on: Legaliser, inputs: Inputs, types: Any, attributes: dict[str, Any]
) -> tuple[Symbol, Callable[[Symbol], Symbol] | None]:
    """The operand with the axes to reduce brought together as the last one, and what gives the result its shape."""
    x = inputs[0]
    axes = _axes(on, inputs, x.rank)
    if not axes:
        if attributes.get("noop_with_empty_axes") or not x.rank:
            return x, None
        axes = list(range(x.rank))
    kept = [a for a in range(x.rank) if a not in axes]
    order = [*kept, *axes]
    if order != list(range(x.rank)):
        x = on.native("Transpose", x, shape=_shape([x.shape[a] for a in order]), perm=order)
    if len(axes) > 1:
        kept_shape = x.shape[: len(kept)]
        together = x.shape[len(kept) :].size
        lengths = on.native("Shape", x, dtype=DType.int64, shape=_shape([Dim(len(kept))]), start=0, end=len(kept))
        rest = on.native("Shape", x, dtype=DType.int64, shape=_shape([Dim(len(axes))]), start=len(kept))
        one = on.native("ReduceProd", rest, dtype=DType.int64, shape=_shape([Dim(1)]), keepdims=1)
        target = on.native("Concat", lengths, one, shape=_shape([Dim(len(kept) + 1)]), axis=0)
        if all(d.is_static for d in (*kept_shape, together)):
            target = on.ints([int(d) for d in (*kept_shape, together)])
        x = on.native("Reshape", x, target, shape=_shape([*kept_shape, together]), allowzero=1)

    def finish(made: Symbol) -> Symbol:
        if not attributes.get("keepdims", 1):
            return made
        return on.native("Unsqueeze", made, on.ints(sorted(axes)), shape=types[0].shape)

    return x, finish


def _axes(on: Legaliser, inputs: Inputs, rank: int) -> list[int]:
    if len(inputs) < 2 or inputs[1] is None:
        return []
    given = on.known(inputs[1])
    if given is None:
        raise GraphError(
            "a reduction of integers needs axes that are known when the graph is lowered",
            operands={"x": str(inputs[0].type), "axes": str(inputs[1].type)},
            help="give the axes as a constant, or cast x to a float first",
        )
    return [int(a) % rank for a in given]


def extreme_floats(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ReduceMax and ReduceMin see a NaN only when it comes first."""
    x = inputs[0]
    made = on.native(op, *inputs, shape=types[0].shape, **attributes)
    unknown = on.native("IsNaN", x, dtype=DType.bool)
    any_unknown = on.native("ReduceMax", unknown, *inputs[1:], dtype=DType.bool, shape=types[0].shape, **attributes)
    return on.native("Where", any_unknown, on.const(float("nan"), x.dtype), made, dtype=x.dtype, shape=types[0].shape)


def extreme_int64_along(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ReduceMax and ReduceMin of int64 have the order of Max and Min; ArgMax and ArgMin have the right one."""
    flat, finish = _reduced_last(on, inputs, types, attributes)
    if finish is None:
        return on.op("Identity", inputs[0])
    one = _shape([*flat.shape[:-1], Dim(1)])
    place = on.native(op.replace("Reduce", "Arg"), flat, dtype=DType.int64, shape=one, axis=-1, keepdims=1)
    chosen = on.native("GatherElements", flat, place, shape=one, axis=-1)
    return finish(on.native("Squeeze", chosen, on.ints([-1]), shape=flat.shape[:-1]))


def extreme_int16(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Where the run may find nothing to reduce: what int32 gives then is beyond int16, and would wrap to 0 or -1."""
    x = inputs[0]
    if x.shape.is_ranked and all((d.lower_bound or 0) > 0 for d in x.shape):
        return None
    wide = on.casts.cast(x, DType.int16, DType.int32)
    made = on.native(op, wide, *inputs[1:], dtype=DType.int32, shape=types[0].shape, **attributes)
    bound, end = ("Max", DType.int16.min) if op == "ReduceMax" else ("Min", DType.int16.max)
    kept = on.native(bound, made, on.const(end, DType.int32), dtype=DType.int32, shape=types[0].shape)
    return on.casts.cast(kept, DType.int32, DType.int16)


def argument_floats(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """ArgMax and ArgMin misplace NaN: the first one is what is asked for."""
    (x,) = inputs
    made = on.native(op, x, dtype=DType.int64, shape=types[0].shape, **attributes)
    unknown = on.casts.plain(on.native("IsNaN", x, dtype=DType.bool), DType.int32)
    first = on.native("ArgMax", unknown, dtype=DType.int64, shape=types[0].shape, **attributes)
    axis = attributes.get("axis", 0)
    any_unknown = on.native(
        "ReduceMax", unknown, on.ints([axis]), shape=types[0].shape, keepdims=attributes.get("keepdims", 1)
    )
    condition = on.casts.plain(any_unknown, DType.bool)
    return on.native("Where", condition, first, made, dtype=DType.int64, shape=types[0].shape)


def over_nothing(then: Detour | None) -> Detour:
    """ReduceMax and ReduceMin over no elements: the least and the greatest number of all, which the kernels refuse.

    then: the detour where there are elements, or where it is known only to the running graph whether there are.
    """

    def detour(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
        x = inputs[0]
        if not is_empty(x.type, types[0]):
            return then(on, op, inputs, types, attributes) if then else None
        dtype = x.dtype
        if dtype.is_float and (dtype.bits >= 16 or dtype is DType.float8_e5m2):
            value: Any = float("-inf" if op == "ReduceMax" else "inf")
        else:
            value = dtype.min if op == "ReduceMax" else dtype.max
        # A sum of nothing, which is 0, has the shape of the result.
        nothing = on.casts.cast(x, dtype, DType.float32)
        sums = on.native("ReduceSum", nothing, *inputs[1:], shape=types[0].shape, **attributes)
        shape = on.op("Shape", sums, dtype=DType.int64, shape=_rank_of(types[0]))
        return on.op(
            "Expand", on.const(bool(value) if dtype is DType.bool else value, dtype), shape, shape=types[0].shape
        )

    return detour


def is_empty(operand: TensorType, result: TensorType) -> bool:
    """Whether there is certainly nothing to reduce."""
    return operand.shape.is_ranked and any(d.is_static and not int(d) for d in operand.shape)


def _rank_of(type_: TensorType) -> Shape:
    return _shape([Dim(type_.shape.rank) if type_.shape.is_ranked else Dim.dynamic()])
