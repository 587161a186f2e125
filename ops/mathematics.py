"""Element-wise functions into the reals: roots, logarithms, trigonometry; integers become floats."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.build.declare import expansion
from graphcore.build.elementwise import binary, unary
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

# Roots, exponentials and logarithms

sqrt = unary("sqrt", "Sqrt", "float", "The square root; NaN below 0. ONNX Sqrt.")
rsqrt = unary("rsqrt", "Rsqrt", "float", "1 / sqrt(x).", body=lambda x: e.emit("Reciprocal", e.emit("Sqrt", x)))
exp = unary("exp", "Exp", "float", "e to the power of x. ONNX Exp.")
log = unary("log", "Log", "float", "The natural logarithm; NaN below 0. ONNX Log.")


@expansion("Log1p")
def _log1p(x: Symbol) -> Symbol:
    # Kahan's correction for the rounding of 1 + x; where that is infinite or 0, the plain logarithm is right.
    one = e.const(x, 1)
    near = e.emit("Add", one, x)
    log_near = e.emit("Log", near)
    # Multiplied last: the product of a large x and its logarithm would overflow.
    corrected = e.emit("Mul", log_near, e.emit("Div", x, e.emit("Sub", near, one)))
    plain = e.either(e.emit("IsInf", near, dtype=DType.bool), e.equal(near, e.const(x, 0)))
    return e.where(e.equal(near, one), x, e.where(plain, log_near, corrected))


@expansion("Expm1")
def _expm1(x: Symbol) -> Symbol:
    one = e.const(x, 1)
    near = e.emit("Exp", x)
    less_one = e.emit("Sub", near, one)
    corrected = e.emit("Mul", less_one, e.emit("Div", x, e.emit("Log", near)))  # in this order: no overflow
    # Where exp(x) - 1 rounds to -1 the correction is wrong: some kernels return a tiny exp(x), others 0.
    plain = e.either(e.emit("IsInf", near, dtype=DType.bool), e.equal(less_one, e.const(x, -1)))
    return e.where(e.equal(near, one), x, e.where(plain, less_one, corrected))


_LOG_2, _LOG_10 = 0.6931471805599453, 2.302585092994046

log1p = unary(
    "log1p",
    "Log1p",
    "float",
    "log(1 + x), accurate near 0.",
    body=_log1p,
    fast=lambda x: e.emit("Log", e.emit("Add", x, e.const(x, 1))),
)
expm1 = unary(
    "expm1",
    "Expm1",
    "float",
    "exp(x) - 1, accurate near 0.",
    body=_expm1,
    fast=lambda x: e.emit("Sub", e.emit("Exp", x), e.const(x, 1)),
)
log2 = unary(
    "log2",
    "Log2",
    "float",
    "The logarithm to base 2.",
    body=lambda x: e.emit("Div", e.emit("Log", x), e.const(x, _LOG_2)),
)
log10 = unary(
    "log10",
    "Log10",
    "float",
    "The logarithm to base 10.",
    body=lambda x: e.emit("Div", e.emit("Log", x), e.const(x, _LOG_10)),
)
exp2 = unary(
    "exp2",
    "Exp2",
    "float",
    "2 to the power of x.",
    body=lambda x: e.emit("Pow", e.const(x, 2.0), x),
    fast=lambda x: e.emit("Exp", e.emit("Mul", x, e.const(x, _LOG_2))),
)
erf = unary("erf", "Erf", "float", "The error function. ONNX Erf.")

# Trigonometry

sin = unary("sin", "Sin", "float", "The sine of x in radians. ONNX Sin.")
cos = unary("cos", "Cos", "float", "The cosine of x in radians. ONNX Cos.")
tan = unary("tan", "Tan", "float", "The tangent of x in radians. ONNX Tan.")
asin = unary("asin", "Asin", "float", "The angle in radians whose sine is x; NaN outside -1 to 1. ONNX Asin.")
acos = unary("acos", "Acos", "float", "The angle in radians whose cosine is x; NaN outside -1 to 1. ONNX Acos.")
atan = unary("atan", "Atan", "float", "The angle in radians whose tangent is x. ONNX Atan.")
sinh = unary("sinh", "Sinh", "float", "The hyperbolic sine. ONNX Sinh.")
cosh = unary("cosh", "Cosh", "float", "The hyperbolic cosine. ONNX Cosh.")
tanh = unary("tanh", "Tanh", "float", "The hyperbolic tangent. ONNX Tanh.")
asinh = unary("asinh", "Asinh", "float", "The inverse hyperbolic sine. ONNX Asinh.")
acosh = unary("acosh", "Acosh", "float", "The inverse hyperbolic cosine; NaN below 1. ONNX Acosh.")
atanh = unary("atanh", "Atanh", "float", "The inverse hyperbolic tangent; NaN outside -1 to 1. ONNX Atanh.")


@expansion("Sinc")
def _sinc(x: Symbol) -> Symbol:
    # What is left of x beside the nearest whole number is exact, so that the zeros are.
    whole = e.emit("Round", x)
    sine = e.emit("Sin", e.emit("Mul", e.emit("Sub", x, whole), e.const(x, 3.141592653589793)))
    odd = e.emit("Sub", whole, e.emit("Mul", e.emit("Floor", e.emit("Mul", whole, e.const(x, 0.5))), e.const(x, 2)))
    sine = e.where(e.equal(odd, e.const(x, 1)), e.emit("Sub", e.const(x, 0), sine), sine)
    is_zero = e.equal(x, e.const(x, 0))
    angle = e.emit("Mul", e.where(is_zero, e.const(x, 1), x), e.const(x, 3.141592653589793))
    return e.where(is_zero, e.const(x, 1), e.emit("Div", sine, angle))


sinc = unary(
    "sinc",
    "Sinc",
    "float",
    "sin(pi * x) / (pi * x), 1 at 0 and exactly 0 at other whole numbers. NumPy's sinc.",
    body=_sinc,
)


@expansion("Atan2")
def _atan2(y: Symbol, x: Symbol) -> Symbol:
    zero = e.const(x, 0)
    pi = e.const(x, 3.141592653589793)
    # The angle within a quarter turn, from the quotient that cannot overflow.
    ax, ay = e.emit("Abs", x), e.emit("Abs", y)
    low, high = e.emit("Min", ax, ay), e.emit("Max", ax, ay)
    both_unlimited = e.both(e.emit("IsInf", ax, dtype=DType.bool), e.emit("IsInf", ay, dtype=DType.bool))
    ratio = e.where(
        e.either(both_unlimited, e.equal(high, zero)),
        e.where(both_unlimited, e.const(x, 1), zero),
        e.emit("Div", low, high),
    )
    angle = e.emit("Atan", ratio)
    angle = e.where(e.greater(ay, ax), e.emit("Sub", e.const(x, 1.5707963267948966), angle), angle)
    left = e.less(e.emit("Div", e.const(x, 1), x), zero)  # tells -0.0 from 0.0
    angle = e.where(e.either(left, e.less(x, zero)), e.emit("Sub", pi, angle), angle)
    below = e.either(e.less(y, zero), e.less(e.emit("Div", e.const(y, 1), y), zero))
    angle = e.where(below, e.emit("Neg", angle), angle)
    unknown = e.either(e.emit("IsNaN", x, dtype=DType.bool), e.emit("IsNaN", y, dtype=DType.bool))
    return e.where(unknown, e.const(x, float("nan")), angle)


atan2 = binary("atan2", "Atan2", "float", "The angle in radians of the point (y, x), from -pi to pi.", body=_atan2)

# Tests of floats

is_nan = unary("is_nan", "IsNaN", "test", "True where x is NaN; integers never are. ONNX IsNaN.")
is_inf = unary("is_inf", "IsInf", "test", "True where x is an infinity; integers never are. ONNX IsInf.")
is_finite = unary(
    "is_finite",
    "IsFinite",
    "test",
    "True where x is neither NaN nor an infinity.",
    body=lambda x: e.opposite(e.either(e.emit("IsNaN", x, dtype=DType.bool), e.emit("IsInf", x, dtype=DType.bool))),
)
