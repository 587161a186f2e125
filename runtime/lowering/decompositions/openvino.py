"""Decompositions for operators that OpenVINO computes differently from the CPU provider."""

from __future__ import annotations

from functools import partial

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Decomposition, OpCall, Replacement
from graphcore.runtime.lowering.decompositions import neural, reductions
from graphcore.types.dtypes import DType

F32 = DType.float32
STAY: tuple[tuple[str, DType], ...] = (("Where", F32), ("ReduceSum", DType.int64))
"""Operators whose kernels are wrong in the CPU provider but correct in OpenVINO."""


def rows() -> dict[tuple[str, DType], Decomposition | None]:
    """Return the rows of the target; None for rows of the CPU that it does not need."""
    table: dict[tuple[str, DType], Decomposition | None] = dict.fromkeys(STAY)
    table.update({("IsNaN", F32): is_nan, ("Relu", F32): neural.relu, ("Softmax", F32): softmax})
    table.update({(op, F32): keep_nan for op in ("Exp", "Sigmoid")})
    table.update({(op, F32): extreme for op in ("Max", "Min")})
    table.update({(op, F32): swap_operands for op in _OPPOSITES})
    table.update({(op, F32): partial(reductions.over_empty_axes, extreme_along) for op in ("ReduceMax", "ReduceMin")})
    return table


def is_nan(b: Builder, call: OpCall) -> Replacement:
    """Compute IsNaN, which has no kernel: NaN is not equal to itself."""
    (x,) = call.inputs
    return b.native("Not", b.native("Equal", x, x, dtype=DType.bool))


def keep_nan(b: Builder, call: OpCall) -> Replacement:
    """Compute Exp and Sigmoid with NaN preserved: the kernels return infinity and 0 for it."""
    (x,) = call.inputs
    is_number = b.native("Equal", x, x, dtype=DType.bool)
    return b.native("Where", is_number, b.native(call.op, x), x, dtype=F32, shape=x.shape)


def extreme(b: Builder, call: OpCall) -> Replacement:
    """Compute Max and Min with NaN preserved, which the kernels lose."""
    result, *others = call.inputs
    for other in others:
        pair = (other, result) if call.op == "Min" else (result, other)
        unknown = b.native("Not", b.native("Equal", other, other))
        other_wins = b.native("Or", b.native("Less", *pair), unknown)
        is_number = b.native("Equal", result, result)
        result = b.native("Where", b.native("And", other_wins, is_number), other, result)
    return result if others else b.op("Identity", result)


_OPPOSITES = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


def swap_operands(b: Builder, call: OpCall) -> Replacement:
    """Compute a comparison by the opposite operator with swapped operands, which is correct for NaN."""
    x, y = call.inputs
    return b.native(_OPPOSITES[call.op], y, x, dtype=DType.bool, shape=call.shape)


def extreme_along(b: Builder, call: OpCall) -> Replacement:
    """Compute ReduceMax and ReduceMin with NaN and infinities preserved: the kernels lose both."""
    x, shape = call.inputs[0], call.shape
    ends = b.scalar(float("-inf") if call.op == "ReduceMax" else float("inf"), F32)

    def some(test: Symbol) -> Symbol:
        other = b.native("Not", b.native("Equal", x, test, dtype=DType.bool))
        return b.native("ReduceMax", other, *call.inputs[1:], dtype=DType.bool, shape=shape, **call.attributes)

    kernel = b.native(call.op, *call.inputs, shape=shape, **call.attributes)
    result = b.native("Where", some(ends), kernel, ends, dtype=F32, shape=shape)
    return b.native("Where", some(x), b.scalar(float("nan"), F32), result, dtype=F32, shape=shape)


def softmax(b: Builder, call: OpCall) -> Replacement:
    """Compute Softmax with whole rows of NaN: for a NaN or an infinity the kernel returns one NaN."""
    (x,) = call.inputs
    result = b.native(call.op, x, **call.attributes)
    total = b.native("ReduceSum", result, b.vector([call.attributes.get("axis", -1)]), keepdims=1)
    is_number = b.native("Equal", total, total)
    return b.native("Where", is_number, result, b.scalar(float("nan"), F32), shape=x.shape)
