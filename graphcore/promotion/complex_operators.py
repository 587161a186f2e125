"""The operators that take complex numbers, checked at the user's line.

Lowering computes complex numbers in their real and imaginary parts, one rule an operator. What has no rule there is
refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphcore.errors import DTypeError
from graphcore.operators import Trait, having
from graphcore.promotion.rules import IN_PARTS, Value
from graphcore.types.dtypes import DType, real_of_complex
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type

MOVES = having(Trait.MOVES, Trait.FILLS, Trait.JOINS) - {"CenterCropPad", "TensorScatter"}
"""Those that put elements elsewhere. The others are built by `ops.onnx` alone, which takes ONNX's dtypes."""

CARRIERS = having(Trait.CARRIES, Trait.BODIES) - {"SequenceMap"}  # which `ops.onnx` alone builds
"""Those that take and give whole values, whatever is in them."""

OPERATORS = (MOVES | CARRIERS).union(
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
"""Those that have a rule of parts."""

ORDERED = frozenset(
    {
        "ArgMax", "ArgMin", "Ceil", "Clip", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterOrEqual", "Hardmax",
        "LeakyRelu", "Less", "LessOrEqual", "LpPool", "Max", "MaxPool", "MaxUnpool", "Min", "Mod", "NonMaxSuppression",
        "PRelu", "Quantile", "ReduceMax", "ReduceMin", "Relu", "Round", "ThresholdedRelu", "TopK", "Trunc", "Unique",
    }
)  # fmt: skip
"""Those that ask which of two numbers is the greater, or for the whole number next to one."""

FUNCTIONS = "graphcore.functions"
_DOMAINS = frozenset({"", "graphcore"})
_REDUCTIONS = ("none", b"none", "add", b"add")
_OF_OTHERS = "operators of other domains take real tensors: give ops.real(z) and ops.imag(z), and join by ops.complex"
_EACH_PART = "compute each part: ops.complex(f(ops.real(z)), f(ops.imag(z))), or the magnitude: ops.abs(z)"
_BY_SIZE = "say what to compare: ops.real(z), ops.imag(z) or ops.abs(z), as in ops.argmax(ops.abs(z))"
_OF_THE_SIZE = "keep the angle: ops.sign(z) * f(ops.abs(z)); or compute the parts: ops.real(z), ops.imag(z)"
_ANOTHER_WAY = (
    "add with ops.scatter_add; or gather the elements, compute, and put them back with ops.scatter. "
    "Where an order is meant, say by what: ops.real(z), ops.imag(z), ops.abs(z)"
)
_NORM = "use ops.rms_norm or ops.layer_norm, which go by magnitudes, or normalise the parts: ops.real(z), ops.imag(z)"

_WAYS: Mapping[str, str] = {
    **dict.fromkeys(("Ceil", "Floor", "Round", "Trunc", "Modf", "FloorDiv", "FloorMod", "Mod"), _EACH_PART),
    **dict.fromkeys(
        ("ArgMax", "ArgMin", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "MaxPool", "Min", "Quantile",
         "ReduceMax", "ReduceMin"),
        _BY_SIZE,
    ),
    **dict.fromkeys(
        ("Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "LeakyRelu", "Mish", "PRelu",
         "QuickGelu", "Relu", "Selu", "Softplus", "ThresholdedRelu"),
        _OF_THE_SIZE,
    ),
    **dict.fromkeys(("BatchNormalization", "GroupNormalization", "InstanceNormalization"), _NORM),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), "write the step of the layer in ops.scan, whose states may be complex"),
    "Atan2": "use ops.angle(z) for the angle of a complex number, ops.atan(y / x) for the complex arc tangent",
    "Attention": "write it out, with the weights that are meant: ops.softmax(ops.real(q @ ops.conj(k).T)) @ v",
    "Cbrt": "use z ** (1 / 3), the principal root",
    "LogSoftmax": "PyTorch has none either: ops.logsoftmax(ops.abs(z)), or z - ops.logsumexp(z, axis, True)",
    "MulComplex": "multiply values of a complex dtype by *",
    "QMatMul": "quantise the parts: ops.real(z), ops.imag(z)",
    "Quantize": "quantise the parts: ops.real(z), ops.imag(z)",
    "ReciprocalCbrt": "use z ** (-1 / 3), of the principal root",
    "RotaryEmbedding": "turn pairs that are complex numbers by a product: z * ops.exp(1j * angle)",
    "STFT": "window the frames of the signal, and transform them with ops.fft",
    "ScatterElements": _ANOTHER_WAY,
    "ScatterND": _ANOTHER_WAY,
    "Softmax": "PyTorch has none either: ops.softmax(ops.abs(z)), or ops.exp(z - ops.logsumexp(z, axis, True))",
    "TopK": "order by ops.real(z), ops.imag(z) or ops.abs(z): ops.take_along_axis(z, ops.argsort(ops.abs(z)))",
}  # fmt: skip
"""The way around, where there is one of an operator's own."""


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
        if attributes is None or (
            attributes.get("reduction", "none") in _REDUCTIONS and attributes.get("mode") not in ("max", b"max")
        ):
            return
    found = [*(s.type for s in inputs if s is not None), *types]
    dtype = next(_leaf(type_) for type_ in found if is_complex(type_))
    orders = (attributes or {}).get("reduction"), (attributes or {}).get("mode")
    is_ordered = operator in ORDERED or any(order in ("max", "min") for order in orders)
    why = "complex numbers have no order" if is_ordered else f"nothing computes it on {dtype}"
    given = {f"input {i}": s for i, s in enumerate(inputs) if s is not None}
    help = _WAYS.get(operator, IN_PARTS) if domain in _DOMAINS else _OF_OTHERS
    raise DTypeError(f"{operator}: {why}", operands=given, help=help)


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
