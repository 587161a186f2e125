"""Decompositions for operators that OpenVINO computes otherwise than the CPU provider."""

from __future__ import annotations

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call, Decomposition, Replacement
from graphcore.runtime.lowering.decompositions import reductions
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

F32 = DType.float32
STAY: tuple[tuple[str, DType], ...] = (("Where", F32), ("ReduceSum", DType.int64))
"""Operators that the CPU's kernels get wrong and OpenVINO's do not."""


def rows() -> dict[tuple[str, DType], Decomposition | None]:
    """Return the rows of the target; None for those of the CPU that it does not need."""
    made: dict[tuple[str, DType], Decomposition | None] = dict.fromkeys(STAY)
    made.update({("IsNaN", F32): is_nan, ("Relu", F32): rectified, ("Exp", F32): exponential})
    made.update({(op, F32): extreme for op in ("Max", "Min")})
    made.update({(op, F32): turned for op in _TURNED})
    made.update({(op, F32): reductions.over_empty_axes(extreme_along) for op in ("ReduceMax", "ReduceMin")})
    made["Softmax", F32] = softmax
    made["Sigmoid", F32] = sigmoid
    return made


def is_nan(b: Builder, call: Call) -> Replacement:
    """Compute IsNaN, which has no kernel: NaN is not equal to itself."""
    (x,) = call.inputs
    return b.native("Not", b.native("Equal", x, x, dtype=DType.bool))


def rectified(b: Builder, call: Call) -> Replacement:
    """Compute Relu with NaN kept, for which the kernel gives 0."""
    (x,) = call.inputs
    zero = b.scalar(0.0, F32)
    return b.native("Where", b.native("Less", x, zero, dtype=DType.bool), zero, x, dtype=F32, shape=x.shape)


def exponential(b: Builder, call: Call) -> Replacement:
    """Compute Exp with NaN kept, for which the kernel gives infinity."""
    (x,) = call.inputs
    known = b.native("Equal", x, x, dtype=DType.bool)
    return b.native("Where", known, b.native(call.op, x), x, dtype=F32, shape=x.shape)


def sigmoid(b: Builder, call: Call) -> Replacement:
    """Compute Sigmoid with NaN kept, for which the kernel gives 0."""
    (x,) = call.inputs
    known = b.native("Equal", x, x, dtype=DType.bool)
    return b.native("Where", known, b.native(call.op, x), x, dtype=F32, shape=x.shape)


def extreme(b: Builder, call: Call) -> Replacement:
    """Compute Max and Min with NaN kept, which the kernels lose."""
    made, *others = call.inputs
    for other in others:
        pair = (other, made) if call.op == "Min" else (made, other)
        chosen = b.native("Less", *pair, dtype=DType.bool)
        unknown = b.native("Not", b.native("Equal", other, other, dtype=DType.bool))
        other_wins = b.native("Or", chosen, unknown)
        known = b.native("Equal", made, made, dtype=DType.bool)
        shape = b.native("Add", made, other).shape
        made = b.native("Where", b.native("And", other_wins, known), other, made, dtype=F32, shape=shape)
    return made if others else b.op("Identity", made)


_TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


def turned(b: Builder, call: Call) -> Replacement:
    """Compute a comparison by the opposite operator, which is right about NaN."""
    x, y = call.inputs
    return b.native(_TURNED[call.op], y, x, dtype=DType.bool, shape=call.shape)


def extreme_along(b: Builder, call: Call) -> Replacement:
    """Compute ReduceMax and ReduceMin with NaN and infinities kept: the kernels lose both."""
    x, shape = call.inputs[0], call.shape
    ends = b.scalar(float("-inf") if call.op == "ReduceMax" else float("inf"), F32)

    def some(test: Symbol) -> Symbol:
        other = b.native("Not", b.native("Equal", x, test, dtype=DType.bool))
        return b.native("ReduceMax", other, *call.inputs[1:], dtype=DType.bool, shape=shape, **call.attributes)

    kernel = b.native(call.op, *call.inputs, shape=shape, **call.attributes)
    made = b.native("Where", some(ends), kernel, ends, dtype=F32, shape=shape)
    return b.native("Where", some(x), b.scalar(float("nan"), F32), made, dtype=F32, shape=shape)


def softmax(b: Builder, call: Call) -> Replacement:
    """Compute Softmax with whole rows of NaN: for a NaN or an infinity the kernel makes one element NaN."""
    (x,) = call.inputs
    made = b.native(call.op, x, **call.attributes)
    axis = call.attributes.get("axis", -1)
    kept = _shape([Dim(1) if a == axis % x.rank else d for a, d in enumerate(x.shape)])
    total = b.native("ReduceSum", made, b.vector([axis]), shape=kept, keepdims=1)
    known = b.native("Equal", total, total, dtype=DType.bool)
    return b.native("Where", known, made, b.scalar(float("nan"), F32), dtype=F32, shape=x.shape)
