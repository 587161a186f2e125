"""The operators that take complex numbers, checked at the user's line.

Lowering computes complex numbers in their real and imaginary parts, one rule an operator. What has no rule there is
refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphcore.errors import DTypeError
from graphcore.promotion.rules.question import Value
from graphcore.types.complex_dtypes import real_of_complex
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type

OPERATORS = frozenset(
    {
        "Abs", "Acos", "Acosh", "Add", "Angle", "Asin", "Asinh", "Atan", "Atanh", "Cast", "ComplexOf", "Conjugate",
        "ConstantOfShape", "Cos", "Cosh", "CumProd", "CumSum", "Div", "Einsum", "Equal", "Exp", "Exp2", "Expm1",
        "ImaginaryPart", "IsFinite", "IsInf", "IsNaN", "Log", "Log10", "Log1p", "Log2", "MatMul", "Mul", "Neg",
        "NotEqual", "Pow", "RealPart", "Reciprocal", "ReduceMean", "ReduceProd", "ReduceSum", "Rsqrt", "Shape", "Sign",
        "Sin", "Sinh", "Size", "Sqrt", "Square", "Sub", "Sum", "Tan", "Tanh",
        # They put values elsewhere.
        "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
        "OneHot", "Pad", "Reshape", "ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split",
        "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
        # They have bodies, lists and optionals.
        "ConcatFromSequence", "If", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement", "Scan",
        "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
        "SplitToSequence",
    }
)  # fmt: skip
"""Those that have a rule of parts."""

ORDERED = frozenset(
    {
        "ArgMax", "ArgMin", "Ceil", "Clip", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterOrEqual", "Hardmax",
        "LeakyRelu", "Less", "LessOrEqual", "LpPool", "Max", "MaxPool", "MaxUnpool", "Min", "Mod", "NonMaxSuppression",
        "PRelu", "ReduceMax", "ReduceMin", "Relu", "Round", "ThresholdedRelu", "TopK", "Trunc", "Unique",
    }
)  # fmt: skip
"""Those that ask which of two numbers is the greater, or for the whole number next to one."""

FUNCTIONS = "graphcore.functions"
_DOMAINS = frozenset({"", "graphcore"})
_REDUCTIONS = ("none", b"none", "add", b"add")
_IN_PARTS = "compute on the parts: ops.real(z), ops.imag(z), ops.abs(z)"


def is_complex(type_: Type) -> bool:
    """Return whether it is, or is a list or optional of, complex numbers."""
    if isinstance(type_, TensorType):
        return type_.dtype.is_complex
    return isinstance(type_, (SequenceType, OptionalType)) and is_complex(type_.element)


def check(
    operator: str,
    inputs: Sequence[Value | None],
    types: Sequence[Type],
    attributes: Mapping[str, Any] | None,
    domain: str,
) -> None:
    """Raise `DTypeError` where an operator is given, or gives, complex numbers and nothing computes it on them."""
    for symbol in inputs:
        if symbol is not None and is_complex(symbol.type):
            break
    else:
        if not any(map(is_complex, types)):
            return
    if domain == FUNCTIONS:
        return
    if operator in OPERATORS and domain in _DOMAINS:
        if operator == "Cast":
            _check_cast(inputs[0], types[0])
        if attributes is None or attributes.get("reduction", "none") in _REDUCTIONS:
            return
    found = [*(s.type for s in inputs if s is not None), *types]
    dtype = next(_leaf(type_) for type_ in found if is_complex(type_))
    is_ordered = operator in ORDERED or (attributes is not None and attributes.get("reduction") in ("max", "min"))
    why = "complex numbers have no order" if is_ordered else f"nothing computes it on {dtype}"
    given = {f"input {i}": s for i, s in enumerate(inputs) if s is not None}
    raise DTypeError(f"{operator}: {why}", operands=given, help=_IN_PARTS)


def _check_cast(source: Value | None, type_: Type) -> None:
    """Raise `DTypeError` for a cast of complex numbers to real ones."""
    if source is None or is_complex(type_) or not isinstance(type_, TensorType) or type_.dtype is DType.bool:
        return
    refused = real_of_complex(source.dtype, type_.dtype)
    raise DTypeError(refused.summary, operands={"x": source}, help=refused.help)


def _leaf(type_: Type) -> DType:
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    assert isinstance(type_, TensorType)
    return type_.dtype


__all__ = ["OPERATORS", "ORDERED", "check", "is_complex"]
