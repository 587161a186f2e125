"""The operators that take integers of more than 64 bits, checked at the user's line, where results grow so wide.

Lowering computes such integers in limbs, one rule an operator. What has no rule there is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.errors import DTypeError
from graphcore.promotion.rules.question import Value
from graphcore.types import dtypes
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type

OPERATORS = frozenset(
    {
        "Abs", "Add", "ArgMax", "ArgMin", "BitCast", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast",
        "Clip", "ConstantOfShape", "CumProd", "CumSum", "Div", "Einsum", "Equal", "FloorDiv", "Fma", "Greater",
        "GreaterOrEqual", "If", "IntegerPow", "Less", "LessOrEqual", "Loop", "MatMul", "Max", "Min", "Mod", "Mul",
        "Neg", "NotEqual", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Scan", "Shape", "ShiftLeft",
        "ShiftRight", "Sign", "Size", "Square", "Sub", "Sum", "TopK",
        # They put values elsewhere.
        "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
        "Pad", "Reshape", "ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split",
        "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Those that have a rule of limbs."""

EXPRESSIONS = frozenset({"SumOfTerms", "ProductOfTerms"})
"""Those that are made of operators that have one."""


def is_wide(type_: Type) -> bool:
    """Return whether it is, or is a list or optional of, integers of more than 64 bits."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return is_wide(type_.element)
    return isinstance(type_, TensorType) and dtypes.is_wide(type_.dtype)


def check(operator: str, inputs: Sequence[Value | None], type_: Type, position: int = 0) -> Type:
    """Return the type of a result as it is. Raises `DTypeError` where nothing computes it on such integers."""
    if operator in EXPRESSIONS:
        return type_
    try:  # every node comes through here, and hardly one has anything wide
        narrow = type_.dtype.bits <= 64 or not type_.dtype.is_integer  # type: ignore[union-attr]
        for symbol in inputs:
            if symbol is not None and symbol.type.dtype.bits > 64 and symbol.type.dtype.is_integer:
                narrow = False
    except AttributeError:
        narrow = not any(map(is_wide, (type_, *(s.type for s in inputs if s is not None))))
    why = None if narrow else _refusal(operator, inputs, type_)
    if why is None:
        return type_
    reason, help_ = why
    given = {f"input {i}": s for i, s in enumerate(inputs) if s is not None}
    raise DTypeError(f"{operator}: {reason}", operands=given, help=help_)


def _refusal(operator: str, inputs: Sequence[Value | None], type_: Type) -> tuple[str, str] | None:
    """Return why an operator does not run on wide integers, and what to do; None where it does."""
    wide = next((s.type for s in inputs if s is not None and is_wide(s.type)), type_)
    name = wide.dtype if isinstance(wide, TensorType) else wide
    narrower = "cast the operands to at most 64 bits first: .cast(DType.int64)"
    if operator not in OPERATORS:
        return f"nothing computes it on {name}, an integer of more than 64 bits", narrower
    return None
