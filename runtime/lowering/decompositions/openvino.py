"""What OpenVINO computes in another way than the CPU provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.decompositions import reductions
from graphcore.runtime.lowering.decompositions.signature import Detour, Inputs, Made
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

F32 = DType.float32
STAY: tuple[tuple[str, DType], ...] = (("Where", F32), ("ReduceSum", DType.int64))
"""What the CPU's kernels get wrong, and OpenVINO's do not."""


def rows() -> dict[tuple[str, DType], Detour | None]:
    """The rows of the target; None for those of the CPU that it has no use for."""
    made: dict[tuple[str, DType], Detour | None] = dict.fromkeys(STAY)
    made.update({("IsNaN", F32): is_nan, ("Relu", F32): rectified, ("Exp", F32): exponential})
    made.update({(op, F32): extreme for op in ("Max", "Min")})
    made.update({(op, F32): turned for op in _TURNED})
    made.update({(op, F32): reductions.over_nothing(extreme_along) for op in ("ReduceMax", "ReduceMin")})
    made["Softmax", F32] = softmax
    made["Sigmoid", F32] = sigmoid
    return made


def is_nan(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """What is no number is not equal to itself; there is no kernel."""
    (x,) = inputs
    return on.native("Not", on.native("Equal", x, x, dtype=DType.bool))


def rectified(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel gives 0 for NaN."""
    (x,) = inputs
    zero = on.const(0.0, F32)
    return on.native("Where", on.native("Less", x, zero, dtype=DType.bool), zero, x, dtype=F32, shape=x.shape)


def exponential(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel gives infinity for NaN."""
    (x,) = inputs
    known = on.native("Equal", x, x, dtype=DType.bool)
    return on.native("Where", known, on.native(op, x), x, dtype=F32, shape=x.shape)


def sigmoid(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernel gives 0 for NaN."""
    (x,) = inputs
    known = on.native("Equal", x, x, dtype=DType.bool)
    return on.native("Where", known, on.native(op, x), x, dtype=F32, shape=x.shape)


def extreme(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernels lose NaN: of two numbers the one that is less, or more, and each that is none."""
    made, *others = inputs
    for other in others:
        pair = (other, made) if op == "Min" else (made, other)
        chosen = on.native("Less", *pair, dtype=DType.bool)
        unknown = on.native("Not", on.native("Equal", other, other, dtype=DType.bool))
        other_wins = on.native("Or", chosen, unknown)
        known = on.native("Equal", made, made, dtype=DType.bool)
        shape = on.native("Add", made, other).shape
        made = on.native("Where", on.native("And", other_wins, known), other, made, dtype=F32, shape=shape)
    return made if others else on.op("Identity", made)


_TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


def turned(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernels take NaN for the less; those of the opposite operators do not."""
    x, y = inputs
    return on.native(_TURNED[op], y, x, dtype=DType.bool, shape=types[0].shape)


def extreme_along(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """The kernels lose NaN, and give the greatest finite number where all are infinite."""
    x, shape = inputs[0], types[0].shape
    ends = on.const(float("-inf") if op == "ReduceMax" else float("inf"), F32)

    def some(test: Symbol) -> Symbol:
        other = on.native("Not", on.native("Equal", x, test, dtype=DType.bool))
        return on.native("ReduceMax", other, *inputs[1:], dtype=DType.bool, shape=shape, **attributes)

    kernel = on.native(op, *inputs, shape=shape, **attributes)
    made = on.native("Where", some(ends), kernel, ends, dtype=F32, shape=shape)
    return on.native("Where", some(x), on.const(float("nan"), F32), made, dtype=F32, shape=shape)


def softmax(on: Legaliser, op: str, inputs: Inputs, types: Any, attributes: dict[str, Any]) -> Made:
    """Of a NaN or an infinity the kernel makes one NaN; there is none but NaN in such a row."""
    (x,) = inputs
    made = on.native(op, x, **attributes)
    axis = attributes.get("axis", -1)
    kept = _shape([Dim(1) if a == axis % x.rank else d for a, d in enumerate(x.shape)])
    total = on.native("ReduceSum", made, on.ints([axis]), shape=kept, keepdims=1)
    known = on.native("Equal", total, total, dtype=DType.bool)
    return on.native("Where", known, made, on.const(float("nan"), F32), dtype=F32, shape=x.shape)


__all__ = ["rows"]
