"""Element-wise arithmetic and comparisons; roots, logarithms and trigonometry, for which integers become floats."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.build.declare import EXPANSIONS, LIBRARY, expansion, op
from graphcore.build.elementwise import binary, unary
from graphcore.build.operands import promote_one
from graphcore.ir.symbol import Symbol, TensorLike, present
from graphcore.ir.transform.walk import constant_array, constant_scalar
from graphcore.types.dtypes import DType, Kind
from graphcore.types.tensor_types import tensor_type

_WHOLE = (Kind.bool, Kind.signed, Kind.unsigned)
_BOOL = (Kind.bool,)
_UNSIGNED = (Kind.bool, Kind.unsigned)

# Arithmetic


@expansion("FloorDiv")
def _floor_div(x: Symbol, y: Symbol) -> Symbol:
    zero = e.const(x, 0)
    if not x.dtype.is_float:
        divisor = constant_array(y)
        if x.dtype.is_signed and x.dtype.bits <= 32 and divisor is None:
            return _floor_div_of_floats(x, y)
        quotient = e.emit("Div", x, y)  # truncates
        if x.dtype.is_unsigned:
            return quotient
        rest = e.emit("Sub", x, e.emit("Mul", quotient, y))
        if divisor is not None and divisor.size and (divisor > 0).all():
            return e.emit("Sub", quotient, e.cast(e.less(rest, zero), x.dtype))
        apart = e.less(e.emit("BitwiseXor", rest, y), zero)
        adjust = e.both(apart, e.opposite(e.equal(rest, zero)), e.opposite(e.equal(y, zero)))
        return e.emit("Sub", quotient, e.cast(adjust, x.dtype))
    # As NumPy does: through the exact remainder, so that the quotient is never one too high.
    rest, apart = _remainder(x, y)
    quotient = e.emit("Div", e.emit("Sub", x, rest), y)
    quotient = e.where(apart, e.emit("Sub", quotient, e.const(x, 1)), quotient)
    floor = e.emit("Floor", quotient)
    short = e.greater(e.emit("Sub", quotient, floor), e.const(x, 0.5))
    floor = e.where(short, e.emit("Add", floor, e.const(x, 1)), floor)
    true = e.emit("Div", x, y)
    # A quotient of 0 has the sign of the true quotient.
    nothing = e.emit("Mul", true, zero)
    return e.where(e.equal(y, zero), true, e.where(e.equal(quotient, zero), nothing, floor))


def _floor_div_of_floats(x: Symbol, y: Symbol) -> Symbol:
    """Divide through floats, which is faster: processors have no vector division of integers.

    A quotient that is not an integer is at least 1 / |x| of itself away from the next one, and so does not round to it:
    float32 has 24 bits and x at most 16, float64 53 and x at most 32. MIN // -1 wraps in the cast back.
    """
    wide, whole = (DType.float32, DType.int32) if x.dtype.bits <= 16 else (DType.float64, DType.int64)
    floor = e.emit("Floor", e.emit("Div", e.cast(x, wide), e.cast(y, wide)))
    quotient = e.cast_within(floor, whole)  # arbitrary for infinity and NaN, which are not selected below
    return e.cast_within(e.where(e.equal(y, e.const(y, 0)), e.const(quotient, 0), quotient), x.dtype)


@expansion("FloorMod")
def _floor_mod(x: Symbol, y: Symbol) -> Symbol:
    rest, apart = _remainder(x, y)
    zero = e.const(x, 0)
    # A remainder of 0 has the divisor's sign.
    nothing = e.emit("Mul", e.emit("Sign", y), zero)
    return e.where(e.equal(rest, zero), nothing, e.where(apart, e.emit("Add", rest, y), rest))


def _remainder(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol]:
    """Return the remainder of the truncated quotient, and a mask of those whose sign differs from the divisor's."""
    zero = e.const(x, 0)
    rest = e.emit("Mod", x, y, fmod=1)
    opposed = e.emit("Xor", e.less(rest, zero), e.less(y, zero))
    return rest, e.both(opposed, e.opposite(e.equal(rest, zero)))


@expansion("BoolMod")
def _bool_mod(x: Symbol, y: Symbol) -> Symbol:
    both = e.emit("And", x, y)
    return e.emit("Xor", both, both)


@expansion("IntegerPow")
def _integer_pow(x: Symbol, y: Symbol) -> Symbol:
    """Compute by repeated squaring, which wraps as required; the bits of the exponent select the factors."""
    power = constant_scalar(y, weights=True)
    one, zero = e.const(x, 1), e.const(x, 0)
    if power is not None and power >= 0:
        return _known_power(x, power)
    # x ** n depends on n modulo 2^(bits - 2) where x is odd, and is 0 for n >= bits where x is even.
    bits = x.dtype.bits
    count = y if y.dtype.is_unsigned else e.where(e.less(y, zero), zero, y)
    result: Symbol | None = None
    square = x
    holds_two = x.dtype.max >= 2  # int2 and uint1 do not: their non-negative exponents are 0 and 1
    for _ in range(bits if x.dtype.is_unsigned else bits - 1):
        odd = e.equal(e.emit("Mod", count, e.const(x, 2)) if holds_two else count, one)
        factor = e.where(odd, square, one)
        result = factor if result is None else e.emit("Mul", result, factor)
        if not holds_two:
            break
        square = e.emit("Mul", square, square)
        count = e.emit("Div", count, e.const(x, 2))
    assert result is not None
    if y.dtype.is_unsigned:
        return result
    # 1 / x^n truncated: 1 for 1, 1 or -1 for -1, else 0.
    minus = e.const(x, -1)
    even = e.equal(e.emit("BitwiseAnd", y, one), zero)
    inverse = e.where(e.equal(x, one), one, e.where(e.equal(x, minus), e.where(even, one, minus), zero))
    return e.where(e.less(y, zero), inverse, result)


def _known_power(x: Symbol, power: int) -> Symbol:
    if power == 0:
        zero = e.emit("Mul", x, e.const(x, 0))
        return e.emit("Add", zero, e.const(x, 1))
    result: Symbol | None = None
    square = x
    while power:
        if power & 1:
            result = square if result is None else e.emit("Mul", result, square)
        power >>= 1
        if power:
            square = e.emit("Mul", square, square)
    return present(result)


add = binary(
    "add", "Add", "arithmetic", "The sum. Integers wrap; bools are *or*ed. ONNX Add.", dunder="add", for_bool="Or"
)
sub = binary(
    "sub",
    "Sub",
    "subtract",
    "The difference. Integers wrap; bools are refused. ONNX Sub.",
    dunder="sub",
    for_bool="Xor",
)  # for_bool: for kernel_float, the only system that has one
mul = binary(
    "mul", "Mul", "arithmetic", "The product. Integers wrap; bools are *and*ed. ONNX Mul.", dunder="mul", for_bool="And"
)
div = binary(
    "div",
    "Div",
    "divide",
    "The true quotient, float64 for integers and bools. ONNX Div.",
    dunder="truediv",
    for_bool="And",
)
floor_div = binary(
    "floor_div",
    "FloorDiv",
    "arithmetic",
    "The quotient rounded down. Integers divided by 0 are 0, MIN // -1 wraps. NumPy's floor_divide.",
    dunder="floordiv",
    for_bool="And",
)
mod = binary(
    "mod",
    "Mod",
    "arithmetic",
    "The remainder of floor division, with the divisor's sign; 0 for integers modulo 0. ONNX Mod, NumPy's remainder.",
    dunder="mod",
    for_bool="BoolMod",
    for_float="FloorMod",
)
fmod = binary(
    "fmod",
    "Mod",
    "arithmetic",
    "The remainder of the truncated quotient, with x's sign; 0 for integers modulo 0. C's fmod; ONNX Mod with fmod=1.",
    for_bool="BoolMod",
    attributes={"fmod": 1},
)
pow = binary(
    "pow",
    "IntegerPow",
    "arithmetic",
    "x to the power of y. Integers wrap and are exact; with a negative exponent the quotient is truncated. ONNX Pow.",
    dunder="pow",
    for_bool="BoolPow",
    for_float="Pow",
)
maximum = binary("maximum", "Max", "arithmetic", "The greater of two; NaN if either is NaN. ONNX Max.", for_bool="Or")
minimum = binary("minimum", "Min", "arithmetic", "The lesser of two; NaN if either is NaN. ONNX Min.", for_bool="And")


@op(onnx="FloorDiv, Mod", rule="arithmetic", dunder="divmod")
def divmod(lhs: TensorLike, rhs: TensorLike) -> tuple[Symbol, Symbol]:
    """`floor_div` and `mod` of two tensors."""
    return floor_div(lhs, rhs), mod(lhs, rhs)


negate = unary("negate", "Neg", "subtract", "The negative of x; integers wrap. ONNX Neg.", dunder="neg", same_on=_BOOL)
positive = unary("positive", "Identity", "number", "The tensor itself.", dunder="pos", same_on=tuple(Kind))
abs = unary(
    "abs",
    "Abs",
    "number",
    "The magnitude, real for complex numbers; MIN stays MIN. ONNX Abs.",
    dunder="abs",
    same_on=_UNSIGNED,
    gives_real=True,
)
sign = unary(
    "sign",
    "Sign",
    "number",
    "-1, 0 or 1 by the sign, z / abs(z) for complex numbers; NaN stays NaN. ONNX Sign.",
    same_on=_BOOL,
)
square = unary("square", "Square", "number", "x * x. Integers wrap.", same_on=_BOOL, body=lambda x: e.emit("Mul", x, x))
reciprocal = unary("reciprocal", "Reciprocal", "float", "1 / x. ONNX Reciprocal.")

# Rounding

floor = unary(
    "floor", "Floor", "number", "The largest integer not above x. ONNX Floor.", dunder="floor", same_on=_WHOLE
)
ceil = unary("ceil", "Ceil", "number", "The smallest integer not below x. ONNX Ceil.", dunder="ceil", same_on=_WHOLE)
round = unary("round", "Round", "number", "The nearest integer, ties to even. ONNX Round.", same_on=_WHOLE)
rint = unary(
    "rint", "Round", "float", "The nearest integer, ties to even, as a float. C's and NumPy's rint; ONNX Round."
)
trunc = unary(
    "trunc",
    "Trunc",
    "number",
    "x rounded towards zero to an integer.",
    dunder="trunc",
    same_on=_WHOLE,
    body=lambda x: e.where(e.less(x, e.const(x, 0)), e.emit("Ceil", x), e.emit("Floor", x)),
)


@op(onnx="Modf", rule="float")
def modf(x: TensorLike) -> tuple[Symbol, Symbol]:
    """The fractional and the integer part of x, both with its sign.

    Args:
        x: Any shape, numbers or bools; integers become the float that holds their range.

    Returns:
        Two Symbols of x's shape, whose sum is x; the fraction of an infinity is 0.

    Raises:
        DTypeError: For strings.

    C's and NumPy's modf.
    """
    symbol, dtype = promote_one("modf", "float", x)
    type_ = tensor_type(dtype, symbol.shape, symbol.ambiguous)
    fraction, whole = symbol.graph.build.emit_many("Modf", (symbol,), [type_, type_], None, LIBRARY)
    return fraction, whole


@expansion("Modf")
def _modf(x: Symbol) -> tuple[Symbol, Symbol]:
    whole = e.where(e.less(x, e.const(x, 0)), e.emit("Ceil", x), e.emit("Floor", x))
    finite = e.where(e.emit("IsInf", x, dtype=DType.bool), e.emit("Sign", x), x)
    nothing = e.emit("Mul", finite, e.const(x, 0))  # with the sign of x
    return e.where(e.equal(x, whole), nothing, e.emit("Sub", x, whole)), whole


def _round_method(self: Symbol, digits: int = 0) -> Symbol:
    if digits:
        scale = 10.0**digits
        return round(self * scale) / scale
    return round(self)


setattr(Symbol, "__round__", _round_method)  # noqa: B010 - an assignment would be checked as an override


# Comparisons


EXPANSIONS.update(
    BoolPow=lambda x, y: e.either(x, e.opposite(y)),
    BoolLess=lambda x, y: e.both(e.opposite(x), y),
    BoolLessEqual=lambda x, y: e.either(e.opposite(x), y),
    BoolGreater=lambda x, y: e.both(x, e.opposite(y)),
    BoolGreaterEqual=lambda x, y: e.either(x, e.opposite(y)),
)

equal = binary("equal", "Equal", "compare", "True where both are equal. ONNX Equal.", dunder="eq")
not_equal = binary(
    "not_equal",
    "NotEqual",
    "compare",
    "True where the two differ; NaN differs from itself. ONNX Not of Equal.",
    dunder="ne",
    body=lambda x, y: e.opposite(e.equal(x, y)),
    for_bool="Xor",
)
less = binary("less", "Less", "compare", "True where the first is less. ONNX Less.", dunder="lt", for_bool="BoolLess")
less_equal = binary(
    "less_equal", "LessOrEqual", "compare", "True where the first is not greater. ONNX LessOrEqual.",
    dunder="le", for_bool="BoolLessEqual",
)  # fmt: skip
greater = binary(
    "greater",
    "Greater",
    "compare",
    "True where the first is greater. ONNX Greater.",
    dunder="gt",
    for_bool="BoolGreater",
)
greater_equal = binary(
    "greater_equal", "GreaterOrEqual", "compare", "True where the first is not less. ONNX GreaterOrEqual.",
    dunder="ge", for_bool="BoolGreaterEqual",
)  # fmt: skip


# Roots, exponentials and logarithms

sqrt = unary("sqrt", "Sqrt", "float", "The square root; NaN below 0. ONNX Sqrt.")
rsqrt = unary("rsqrt", "Rsqrt", "float", "1 / sqrt(x).", body=lambda x: e.emit("Reciprocal", e.emit("Sqrt", x)))
exp = unary("exp", "Exp", "float", "e to the power of x. ONNX Exp.")
log = unary("log", "Log", "float", "The natural logarithm; NaN below 0. ONNX Log.")


def _log1p(x: Symbol) -> Symbol:
    # Kahan's correction for the rounding of 1 + x; where it is infinite or 0, the uncorrected logarithm is right.
    one = e.const(x, 1)
    near = e.emit("Add", one, x)
    log_near = e.emit("Log", near)
    # Multiplied last: the product of a large x and its logarithm would overflow.
    corrected = e.emit("Mul", log_near, e.emit("Div", x, e.emit("Sub", near, one)))
    plain = e.either(e.emit("IsInf", near, dtype=DType.bool), e.equal(near, e.const(x, 0)))
    return e.where(e.equal(near, one), x, e.where(plain, log_near, corrected))


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


def _sinc(x: Symbol) -> Symbol:
    # The distance to the nearest integer is exact, and so are the zeros.
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
    "sin(pi * x) / (pi * x), 1 at 0 and exactly 0 at other integers. NumPy's sinc.",
    body=_sinc,
)


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
    is_negative = e.less(e.emit("Div", e.const(x, 1), x), zero)  # distinguishes -0.0 from 0.0
    angle = e.where(e.either(is_negative, e.less(x, zero)), e.emit("Sub", pi, angle), angle)
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
