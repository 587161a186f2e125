"""What is computed in another way, because onnxruntime has no kernel for it or one that gives other numbers.

One row an (operator, dtype): the function that builds the replacement. A detour returns None where the operator may
stay after all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphcore.dtypes import DType
from graphcore.graph import Target
from graphcore.runtime.lowering.detours import (
    activations,
    choice,
    cuda,
    double,
    equations,
    images,
    integers,
    models,
    nibbles,
    older,
    older_empty,
    older_kernels,
    openvino,
    products,
    reductions,
    scatter,
    signals,
)
from graphcore.runtime.lowering.detours.kind import Detour, Inputs, Made
from graphcore.symbol import Symbol
from graphcore.types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalise import Legaliser

SIGNED = (DType.int8, DType.int16, DType.int32, DType.int64)
UNSIGNED = (DType.uint8, DType.uint16, DType.uint32, DType.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
WIDE_FLOATS = (DType.float32, DType.float64)


def _table() -> dict[tuple[str, DType], Detour]:
    rows: list[tuple[Sequence[str], Sequence[DType], Detour]] = [
        (("Div", "Mod"), INTEGERS, integers.divide),
        (("Pow",), (DType.int32, DType.int64), equations.power),
        (("Einsum",), (DType.int32, DType.int64), equations.einsum),
        (("Einsum",), WIDE_FLOATS, equations.turned),
        (("Where",), (DType.bool,), choice.where_bool),
        (("Where",), WIDE_FLOATS, choice.where_bits),
        (("Max", "Min"), (DType.int64,), integers.extreme_int64),
        (("Clip",), (DType.int64,), integers.clip_int64),
        (("Sign",), (DType.int64,), integers.sign_int64),
        (("MatMul",), (DType.bool,), products.matmul_bool),
        (("MatMul",), (DType.float32, DType.int32, DType.int64), products.matmul),
        (("MatMul",), (DType.int8, DType.uint8), products.matmul_bytes),
        (("MatMul",), (DType.float64,), products.matmul_double),
        (("MatMul",), (DType.uint32, DType.uint64), products.matmul_unsigned),
        (("ReduceSum",), INTEGERS, reductions.sum_integers),
        (("ReduceProd",), INTEGERS, reductions.product_integers),
        (("ReduceMax", "ReduceMin"), WIDE_FLOATS, reductions.extreme_floats),
        (("ReduceMax", "ReduceMin"), (DType.int64,), reductions.extreme_int64_along),
        (("ReduceMax", "ReduceMin"), (DType.int16,), reductions.extreme_int16),
        (("ArgMax", "ArgMin"), WIDE_FLOATS, reductions.argument_floats),
        (("TopK",), WIDE_FLOATS, choice.top_k_floats),
        (("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"), (DType.uint64,), integers.ordered_view),
        (("Sigmoid",), (DType.float32,), activations.sigmoid),
        (("Shape", "Size"), (DType.int2, DType.uint2, DType.int4, DType.uint4, DType.float8_e8m0), nibbles.shape),
        (signals.ROUNDED, (DType.int32, DType.int64), signals.rounded),
        (("ScatterElements", "ScatterND"), (DType.float16, DType.bfloat16), scatter.narrow),
        (("ScatterElements", "ScatterND"), WIDE_FLOATS, scatter.wide),
        *images.ROWS,
        *models.ROWS,
    ]
    table = {(op, dtype): detour for ops, dtypes, detour in rows for op in ops for dtype in dtypes}
    table.update({(op, DType.float64): _double(function) for op, function in double.FUNCTIONS.items()})
    table.update({key: reductions.over_nothing(table.get(key)) for key in models.EXTREMES})
    return table


def _double(function: Callable[..., Symbol]) -> Detour:
    def detour(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
        return function(on, *inputs)

    return detour


DETOURS: dict[tuple[str, DType], Detour] = _table()


@functools.cache
def detours_of(target: Target, views_bits: bool = True) -> Mapping[tuple[str, DType], Detour]:
    """The table of a target: its own rows before those that hold for every one.

    views_bits: whether the runtime has BitCast; the CUDA provider has none anyway.
    """
    if target == "openvino":
        made: dict[tuple[str, DType], Detour | None] = {
            **DETOURS,
            **older.rows(),
            **older_empty.sums(DETOURS),
            **openvino.rows(),
        }
        return {key: detour for key, detour in made.items() if detour is not None}
    if target != "cuda":
        return (
            DETOURS if views_bits else {**DETOURS, **older.rows(), **older_kernels.rows(), **older_empty.rows(DETOURS)}
        )
    return {key: detour for key, detour in {**DETOURS, **cuda.rows(DETOURS)}.items() if detour is not None}


@functools.cache
def own_detours_of(target: Target, views_bits: bool) -> dict[tuple[str, DType], Detour]:
    """The rows that only a target has, for what it lacks: they build with other operators than the one they are for."""
    others = detours_of("cpu", True)
    return {key: detour for key, detour in detours_of(target, views_bits).items() if others.get(key) is not detour}


NEEDED: dict[tuple[str, DType], Callable[[TensorType, TensorType], bool]] = {
    **{("MatMul", dtype): products.may_be_of_nothing for dtype in (DType.float32, DType.int32, DType.int64)},
    **models.NEEDED,
}
"""When a detour is taken, by the types of the first operand and the result, where that can be told without building it:
so that a graph which needs none is seen to be legal."""


def needed_of(
    target: Target, views_bits: bool = True
) -> Mapping[tuple[str, DType], Callable[[TensorType, TensorType], bool]]:
    """`NEEDED` for a target; an older release needs more of what is of nothing."""
    return _NEEDED_BY_OLDER if target == "cpu" and not views_bits else NEEDED


_NEEDED_BY_OLDER = {
    key: needed
    for key, needed in NEEDED.items()
    if key[0] not in ("ReduceMax", "ReduceMin") or key[1] not in older_empty.EXTREMES
}

AS_WRITTEN = frozenset(
    "ArgMax ArgMin GlobalMaxPool MaxPool ReduceMax ReduceMin ScatterElements ScatterND Sigmoid TopK Where".split()
)
"""Operators whose float32 kernels differ from what docs/numbers.md says in NaN, the sign of zero or far tails alone.

Nodes of models that others wrote keep them, and with them their speed."""


def keeps_kernel(op_type: str, dtype: DType, operand: Type | None) -> bool:
    """Whether a node of a model that others wrote keeps its kernel. operand: the type of its first operand."""
    if dtype is not DType.float32 or op_type not in AS_WRITTEN:
        return False
    shape = operand.shape if isinstance(operand, TensorType) else None
    return shape is None or not shape.is_ranked or 0 not in shape.static_dims  # of nothing some have no maximum
