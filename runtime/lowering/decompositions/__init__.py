"""Decompositions of operators for which onnxruntime has no kernel, or a wrong one.

One row an (operator, dtype): the function that builds the replacement. It returns None where the kernel may stay.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions import (
    cuda,
    einsum_pow,
    float64_functions,
    fourier,
    matmul,
    model_rows,
    openvino,
    rearranging,
    reductions,
)
from graphcore.runtime.lowering.decompositions.older import bitcast, bitwise, empty, kernels
from graphcore.runtime.lowering.decompositions.signature import Decomposition, Replacement
from graphcore.runtime.lowering.targets.incorrect import HALVES
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.lowering.targets.traps import of_kernel
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

SIGNED = (DType.int8, DType.int16, DType.int32, DType.int64)
UNSIGNED = (DType.uint8, DType.uint16, DType.uint32, DType.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
WIDE_FLOATS = (DType.float32, DType.float64)


def _table() -> dict[tuple[str, DType], Decomposition]:
    rows: list[tuple[Sequence[str], Sequence[DType], Decomposition]] = [
        (("Div", "Mod"), INTEGERS, matmul.divide),
        (("Pow",), (DType.int32, DType.int64), einsum_pow.power),
        (("Einsum",), (DType.int32, DType.int64), einsum_pow.einsum),
        (("Einsum",), WIDE_FLOATS, einsum_pow.turned),
        (("Where",), (DType.bool,), rearranging.where_bool),
        (("Where",), WIDE_FLOATS, rearranging.where_bits),
        (("Max", "Min"), (DType.int64,), matmul.extreme_int64),
        (("Clip",), (DType.int64,), matmul.clip_int64),
        (("Sign",), (DType.int64,), matmul.sign_int64),
        (("MatMul",), (DType.bool,), matmul.matmul_bool),
        (("MatMul",), (DType.float32, DType.int32, DType.int64), matmul.matmul),
        (("MatMul",), (DType.int8, DType.uint8), matmul.matmul_bytes),
        (("MatMul",), (DType.float64,), matmul.matmul_double),
        (("MatMul",), (DType.uint32, DType.uint64), matmul.matmul_unsigned),
        (("ReduceSum",), INTEGERS, reductions.sum_integers),
        (("ReduceProd",), INTEGERS, reductions.product_integers),
        (("ReduceMax", "ReduceMin"), WIDE_FLOATS, reductions.extreme_floats),
        (("ReduceMax", "ReduceMin"), (DType.int64,), reductions.extreme_int64_along),
        (("ReduceMax", "ReduceMin"), (DType.int16,), reductions.extreme_int16),
        (("ArgMax", "ArgMin"), WIDE_FLOATS, reductions.argument_floats),
        (("TopK",), WIDE_FLOATS, rearranging.top_k_floats),
        (("Unique",), WIDE_FLOATS, rearranging.unique_floats),
        (("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"), (DType.uint64,), matmul.ordered_view),
        (("Sigmoid",), (DType.float32,), model_rows.sigmoid),
        (("LogSoftmax",), (DType.float64,), model_rows.log_softmax),
        (("Shape", "Size"), (DType.int2, DType.uint2, DType.int4, DType.uint4, DType.float8_e8m0), model_rows.shape),
        (fourier.ROUNDED, (DType.int32, DType.int64), fourier.rounded),
        (("ScatterElements", "ScatterND"), (DType.float16, DType.bfloat16), rearranging.narrow),
        (("ScatterElements", "ScatterND"), WIDE_FLOATS, rearranging.wide),
        *model_rows.ROWS,
    ]
    table = {(op, dtype): decomposition for ops, dtypes, decomposition in rows for op in ops for dtype in dtypes}
    table.update({(op, DType.float64): _of_operands(function) for op, function in float64_functions.FUNCTIONS.items()})
    table.update({key: reductions.over_empty_axes(table.get(key)) for key in model_rows.EXTREMES})
    return table


def _of_operands(function: Callable[..., Symbol]) -> Decomposition:
    """Return the decomposition that gives a function the operands alone."""

    def decomposition(b: Builder, call: Call) -> Replacement:
        return function(b, *call.inputs)

    return decomposition


DECOMPOSITIONS: dict[tuple[str, DType], Decomposition] = _table()


Needed: TypeAlias = Mapping[tuple[str, DType], Callable[[TensorType, TensorType], bool]]

NEEDED: Needed = {
    **{("MatMul", dtype): matmul.may_be_empty for dtype in (DType.float32, DType.int32, DType.int64)},
    **model_rows.NEEDED,
}
"""Tells whether a row is taken, by the types of the first operand and the result, where they alone tell.

A graph that needs no row is seen to be legal without building any."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The operators that a target computes by decompositions.

    rows: by operator and dtype. own: those of them that stand for a kernel that the target lacks, and build with other
    operators than the one they are for. needed: when a row is taken, where that can be told.
    """

    rows: Mapping[tuple[str, DType], Decomposition]
    own: Mapping[tuple[str, DType], Decomposition]
    needed: Needed


@functools.cache
def rows_of(rules: Legality) -> Replaced:
    """Return the rows of a target: for the kernels that it lacks, and for the traps of the releases in use."""
    if not rules.decomposes:  # standard ONNX of an opset that lacks an operator
        late = {key: d for key, d in bitcast.rows().items() if key[0] in bitcast.LATE}
        return Replaced({}, {key: d for key, d in {**late, **bitwise.rows()}.items() if not rules.allows(*key)}, {})
    made = {
        key: decomposition
        for key, decomposition in DECOMPOSITIONS.items()
        if not rules.allows(*key) or rules.has_trap(of_kernel(*key))
    }
    if rules.target.name == "cuda":
        return _with_own(made, cuda.rows(made))
    if rules.target.name == "openvino":
        return _with_own(made, {**bitcast.rows(), **empty.sums(made), **openvino.rows()})
    lacking = {
        key: decomposition
        for key, decomposition in bitcast.rows().items()
        if not rules.allows(*key) and rules.has_lost(*key)
    }
    lacking.update({key: d for key, d in kernels.rows().items() if not rules.allows(*key)})
    made.update(kernels.traps(rules.runtime))
    # Those of traps build on the kernel that they mend.
    mended = {k: d for k, d in bitcast.traps().items() if rules.has_trap(of_kernel(*k)) and not rules.has_lost(*k)}
    own = {**lacking, **mended}
    if rules.has_trap(rearranging.EMPTY) or rules.has_trap(rearranging.ONE_AXIS):
        own.update({("ReverseSequence", d): rearranging.reverse for d in rules.dtypes("ReverseSequence") or ()})
    guards = empty.rows({**made, **own})
    own.update({key: guard for key, guard in guards.items() if rules.has_trap(empty.trap(*key))})
    untold = {"DequantizeLinear"} if rules.has_trap(matmul.NARROW_SCALES) else set()
    needed = {key: test for key, test in NEEDED.items() if key not in own and key[0] not in untold}
    return Replaced({**made, **own}, own, needed)


def _with_own(
    rows: Mapping[tuple[str, DType], Decomposition], own: Mapping[tuple[str, DType], Decomposition | None]
) -> Replaced:
    """Return the rows of a target that puts its own before others. None: it needs no row."""
    whole = {key: decomposition for key, decomposition in {**rows, **own}.items() if decomposition is not None}
    return Replaced(whole, {key: whole[key] for key in own if key in whole}, NEEDED)


AS_WRITTEN = frozenset(
    "ArgMax ArgMin GlobalMaxPool MaxPool ReduceMax ReduceMin ScatterElements ScatterND Sigmoid TopK Where".split()
)
"""Operators whose float32 kernels differ from what docs/numbers.md says in NaN, the sign of zero or far tails alone.

Nodes of models that others wrote keep them, and with them their speed."""


def keeps_half(
    rules: Legality, op_type: str, dtype: DType, operand: Type | None = None, result: Type | None = None
) -> bool:
    """Return whether a node of a model that others wrote is left to the runtime in float16 or bfloat16.

    It is not where the kernel of float32, which the runtime may put casts around, needs a replacement. operand, result:
    the types of the first operand and result, where they are known.
    """
    if dtype not in HALVES or not rules.runs_half(op_type, dtype):
        return False
    replaced = rows_of(rules)
    wide = op_type, DType.float32
    if (op_type, dtype) in replaced.rows:
        return False
    if wide not in replaced.rows or op_type in AS_WRITTEN:
        return True
    needed = replaced.needed.get(wide)
    if needed is None or not isinstance(operand, TensorType) or not isinstance(result, TensorType):
        return False
    return not needed(operand, result)


def keeps_kernel(op_type: str, dtype: DType, operand: Type | None) -> bool:
    """Return whether a node of a model that others wrote keeps its kernel. operand: the type of its first operand."""
    if dtype is not DType.float32 or op_type not in AS_WRITTEN:
        return False
    shape = operand.shape if isinstance(operand, TensorType) else None
    return shape is None or not shape.is_ranked or 0 not in shape.static_dims  # some fail on empty operands
