"""What is computed in another way, because onnxruntime has no kernel for it or one that gives other numbers.

One row an (operator, dtype): the function that builds the replacement. A detour returns None where the operator may
stay after all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graphcore.dtypes import DType
from graphcore.runtime.lowering.detours import activations, choice, double, integers, products, reductions, scatter
from graphcore.runtime.lowering.detours.kind import Detour, Inputs, Made
from graphcore.symbol import Symbol
from graphcore.types import TensorType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalise import Legaliser

SIGNED = (DType.int8, DType.int16, DType.int32, DType.int64)
UNSIGNED = (DType.uint8, DType.uint16, DType.uint32, DType.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
WIDE_FLOATS = (DType.float32, DType.float64)


def _table() -> dict[tuple[str, DType], Detour]:
    rows: list[tuple[Sequence[str], Sequence[DType], Detour]] = [
        (("Div", "Mod"), INTEGERS, integers.divide),
        (("Where",), (DType.bool,), choice.where_bool),
        (("Where",), WIDE_FLOATS, choice.where_bits),
        (("Max", "Min"), (DType.int64,), integers.extreme_int64),
        (("Clip",), (DType.int64,), integers.clip_int64),
        (("MatMul",), (DType.bool,), products.matmul_bool),
        (("MatMul",), (DType.float32, DType.int32, DType.int64), products.matmul),
        (("MatMul",), (DType.float64,), products.matmul_double),
        (("MatMul",), (DType.uint32, DType.uint64), products.matmul_unsigned),
        (("ReduceSum",), INTEGERS, reductions.sum_integers),
        (("ReduceProd",), INTEGERS, reductions.product_integers),
        (("ReduceMax", "ReduceMin"), WIDE_FLOATS, reductions.extreme_floats),
        (("ReduceMax", "ReduceMin"), (DType.int64,), reductions.extreme_int64_along),
        (("ArgMax", "ArgMin"), WIDE_FLOATS, reductions.argument_floats),
        (("TopK",), WIDE_FLOATS, choice.top_k_floats),
        (("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"), (DType.uint64,), integers.ordered_view),
        (("Sigmoid",), (DType.float32,), activations.sigmoid),
        (("ScatterElements", "ScatterND"), (DType.float16, DType.bfloat16), scatter.narrow),
        (("ScatterElements", "ScatterND"), WIDE_FLOATS, scatter.wide),
    ]
    table = {(op, dtype): detour for ops, dtypes, detour in rows for op in ops for dtype in dtypes}
    table.update({(op, DType.float64): _double(function) for op, function in double.FUNCTIONS.items()})
    return table


def _double(function: Callable[..., Symbol]) -> Detour:
    def detour(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
        return function(on, *inputs)

    return detour


DETOURS: dict[tuple[str, DType], Detour] = _table()

NEEDED: dict[tuple[str, DType], Callable[[TensorType, TensorType], bool]] = {
    ("MatMul", dtype): products.is_by_vector for dtype in (DType.float32, DType.int32, DType.int64)
}
"""When a detour is taken, by the types of the first operand and the result, where that can be told without building it:
so that a graph which needs none is seen to be legal."""
