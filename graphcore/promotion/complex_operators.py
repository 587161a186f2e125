"""The operators that support complex numbers, checked when a node is built, so that errors name the user's line.

Lowering computes complex numbers in their real and imaginary parts, with a rule for each operator. Operators without a
rule are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphcore.errors import DTypeError
from graphcore.operators import Trait, having
from graphcore.promotion.rules import IN_PARTS, SymbolLike
from graphcore.types.dtypes import DType, real_of_complex
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type

MOVES = having(Trait.MOVES, Trait.FILLS, Trait.JOINS) - {"CenterCropPad", "TensorScatter"}
"""Operators that move elements. Those removed are built by `ops.onnx` alone, which takes ONNX's dtypes."""

PASS_THROUGH = having(Trait.CARRIES, Trait.BODIES) - {"SequenceMap"}  # which `ops.onnx` alone builds
"""Operators that pass values of any type through."""

OPERATORS = (MOVES | PASS_THROUGH).union(
    {
        "Abs", "Acos", "Acosh", "Add", "Angle", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Cast", "Col2Im",
        "ComplexOf", "Conjugate", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Cosh", "CumProd", "CumSum", "Div",
        "Einsum", "Equal", "Exp", "Exp10", "Exp2", "Expm1", "Fma", "FromPairs", "Glu", "GridSample", "ImaginaryPart",
        "IsFinite", "IsInf", "IsNaN", "LayerNormalization", "Log", "Log10", "Log1p", "Log2", "LpNormalization",
        "Magnitude", "MatMul", "Mul", "Neg", "NotEqual", "Pow", "RMSNormalization", "RealPart", "Reciprocal",
        "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum", "Resize", "RoiAlign", "Rsqrt", "Shape", "Sigmoid",
        "Sign", "Sin", "Sinh", "Size", "Softsign", "Sqrt", "Square", "Sub", "Sum", "SwiGlu", "Swish", "Tan", "Tanh",
        "ToPairs",
    }
)  # fmt: skip
"""Operators with a lowering rule in parts."""

ORDERED = frozenset(
    {
        "ArgMax", "ArgMin", "Ceil", "Clip", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterOrEqual", "Hardmax",
        "LeakyRelu", "Less", "LessOrEqual", "LpPool", "Max", "MaxPool", "MaxUnpool", "Min", "Mod", "NonMaxSuppression",
        "PRelu", "Quantile", "ReduceMax", "ReduceMin", "Relu", "Round", "ThresholdedRelu", "TopK", "Trunc", "Unique",
    }
)  # fmt: skip
"""Operators that compare numbers, or round to integers."""

FUNCTIONS = "graphcore.functions"
_DOMAINS = frozenset({"", "graphcore"})
_REDUCTIONS = ("none", b"none", "add", b"add")
_OTHER_DOMAINS = (
    "operators of other domains take real tensors: pass ops.real(z) and ops.imag(z), and combine with ops.complex"
)
_EACH_PART = "compute each part: ops.complex(f(ops.real(z)), f(ops.imag(z))), or the magnitude: ops.abs(z)"
_COMPARE_BY = "choose what to compare: ops.real(z), ops.imag(z) or ops.abs(z), as in ops.argmax(ops.abs(z))"
_KEEP_ANGLE = "keep the angle: ops.sign(z) * f(ops.abs(z)); or compute the parts: ops.real(z), ops.imag(z)"
_SCATTER_HELP = (
    "add with ops.scatter_add; or gather the elements, compute, and put them back with ops.scatter. "
    "For an order, compare ops.real(z), ops.imag(z) or ops.abs(z)"
)
_NORM_HELP = (
    "use ops.rms_norm or ops.layer_norm, which use magnitudes, or normalise the parts: ops.real(z), ops.imag(z)"
)

_HELP: Mapping[str, str] = {
    **dict.fromkeys(("Ceil", "Floor", "Round", "Trunc", "Modf", "FloorDiv", "FloorMod", "Mod"), _EACH_PART),
    **dict.fromkeys(
        ("ArgMax", "ArgMin", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "MaxPool", "Min", "Quantile",
         "ReduceMax", "ReduceMin"),
        _COMPARE_BY,
    ),
    **dict.fromkeys(
        ("Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "LeakyRelu", "Mish", "PRelu",
         "QuickGelu", "Relu", "Selu", "Softplus", "ThresholdedRelu"),
        _KEEP_ANGLE,
    ),
    **dict.fromkeys(("BatchNormalization", "GroupNormalization", "InstanceNormalization"), _NORM_HELP),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), "write the step of the layer in ops.scan, whose states may be complex"),
    "Atan2": "use ops.angle(z) for the angle of a complex number, ops.atan(y / x) for the complex arc tangent",
    "Attention": "write it out with real weights: ops.softmax(ops.real(q @ ops.conj(k).T)) @ v",
    "Cbrt": "use z ** (1 / 3), the principal root",
    "LogSoftmax": "PyTorch has none either: ops.logsoftmax(ops.abs(z)), or z - ops.logsumexp(z, axis, True)",
    "MulComplex": "multiply values of a complex dtype by *",
    "QMatMul": "quantise the parts: ops.real(z), ops.imag(z)",
    "Quantize": "quantise the parts: ops.real(z), ops.imag(z)",
    "ReciprocalCbrt": "use z ** (-1 / 3), the reciprocal of the principal root",
    "RotaryEmbedding": "rotate complex numbers by a product: z * ops.exp(1j * angle)",
    "STFT": "window the frames of the signal, and transform them with ops.fft",
    "ScatterElements": _SCATTER_HELP,
    "ScatterND": _SCATTER_HELP,
    "Softmax": "PyTorch has none either: ops.softmax(ops.abs(z)), or ops.exp(z - ops.logsumexp(z, axis, True))",
    "TopK": "order by ops.real(z), ops.imag(z) or ops.abs(z): ops.take_along_axis(z, ops.argsort(ops.abs(z)))",
}  # fmt: skip
"""The help for operators with an alternative of their own."""


def is_complex(type_: Type) -> bool:
    """Return True for complex tensors, and for lists and optionals of them."""
    if isinstance(type_, TensorType):
        return type_.dtype.is_complex
    return isinstance(type_, (SequenceType, OptionalType)) and is_complex(type_.element)


def check(
    operator: str,
    inputs: Sequence[SymbolLike | None],
    types: Sequence[Type],
    attributes: Mapping[str, Any] | None,
    domain: str,
) -> None:
    """Raise `DTypeError` for an operator with complex operands or results that does not support them."""
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
        if attributes is None or (
            attributes.get("reduction", "none") in _REDUCTIONS and attributes.get("mode") not in ("max", b"max")
        ):
            return
    all_types = [*(s.type for s in inputs if s is not None), *types]
    dtype = next(_element_dtype(type_) for type_ in all_types if is_complex(type_))
    orders = (attributes or {}).get("reduction"), (attributes or {}).get("mode")
    is_ordered = operator in ORDERED or any(order in ("max", "min") for order in orders)
    why = "complex numbers have no order" if is_ordered else f"it does not support {dtype}"
    named_inputs = {f"input {i}": s for i, s in enumerate(inputs) if s is not None}
    help = _HELP.get(operator, IN_PARTS) if domain in _DOMAINS else _OTHER_DOMAINS
    raise DTypeError(f"{operator}: {why}", operands=named_inputs, help=help)


def _check_cast(source: SymbolLike | None, type_: Type) -> None:
    """Raise `DTypeError` for a cast of complex numbers to real ones."""
    if source is None or is_complex(type_) or not isinstance(type_, TensorType) or type_.dtype is DType.bool:
        return
    refused = real_of_complex(source.dtype, type_.dtype)
    raise DTypeError(refused.summary, operands={"x": source}, help=refused.help)


def _element_dtype(type_: Type) -> DType:
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    assert isinstance(type_, TensorType)
    return type_.dtype
