"""Parts of floats (signs, exponents, neighbours), and functions of two floats of C's math library."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import IN_DOUBLE, LIBRARY, expansion, op
from graphcore.build.elementwise import binary, unary
from graphcore.build.operands import graph_of, operand, promote, promote_one
from graphcore.build.shapes import broadcast
from graphcore.errors import DTypeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared import extended
from graphcore.types.dtypes import TRANSPORT, DType, Kind
from graphcore.types.tensor_types import tensor_type

# (exp(x) - 1 - x) / x^2
_EXP = [Fraction(1, math.factorial(n)) for n in range(13, 1, -1)]
_INTEGERS = {8: DType.int8, 16: DType.int16, 32: DType.int32, 64: DType.int64}


def _bits(x: Symbol) -> Symbol:
    return e.bitcast(x, _INTEGERS[x.dtype.bits])


def _is_nan(x: Symbol) -> Symbol:
    return e.emit("IsNaN", x, dtype=DType.bool)


# Signs


def _signbit(x: Symbol) -> Symbol:
    bits = _bits(x)
    return e.less(bits, e.const(bits, 0))


def _copysign(x: Symbol, y: Symbol) -> Symbol:
    size, sign = _bits(x), _bits(y)
    least = -(1 << (size.dtype.bits - 1))
    magnitude = e.emit("BitwiseAnd", size, e.const(size, -least - 1))
    combined = e.emit("BitwiseOr", magnitude, e.emit("BitwiseAnd", sign, e.const(size, least)))
    return e.bitcast(combined, x.dtype)


signbit = unary(
    "signbit",
    "SignBit",
    "test",
    "True where the sign bit is set: below 0, for -0.0, and for NaNs with a sign bit. NumPy's signbit.",
    body=_signbit,
)
copysign = binary(
    "copysign",
    "CopySign",
    "float",
    "The magnitude of the first with the sign of the second, also for zeros and NaNs. C's and NumPy's copysign.",
    body=_copysign,
)


# Neighbours


@op(onnx="BitCast", rule="float")
def nextafter(lhs: TensorLike, rhs: TensorLike) -> Symbol:
    """The next float after the first in the direction of the second; the second if the two are equal.

    Args:
        lhs: Numbers or bools whose shapes broadcast; integers become the float that holds their range.
        rhs: Numbers or bools whose shapes broadcast; integers become the float that holds their range. NaN where either
            is NaN.

    Returns:
        A Symbol of their common dtype, in which these are neighbours.

    Raises:
        PromotionError: For dtypes without a common dtype.
        DTypeError: For strings.
        ShapeError: For shapes that do not broadcast.

    C's and NumPy's nextafter.
    """
    (x, y), dtype = promote("nextafter", "float", {"lhs": lhs, "rhs": rhs})
    compute_dtype = DType.float32 if dtype is DType.tensor_float32 else dtype
    broadcast("nextafter", {"lhs": x, "rhs": y})
    if dtype in TRANSPORT:
        return _next_small(x, y)
    result = _next(
        x.graph.build.cast(x, compute_dtype),
        x.graph.build.cast(y, compute_dtype),
        1 if compute_dtype is dtype else 1 << 13,
    )
    return x.graph.build.cast(result, dtype, x.ambiguous and y.ambiguous)


def _next(x: Symbol, y: Symbol, unit: int) -> Symbol:
    """Return the neighbour of x towards y. unit: the difference between the bits of neighbours."""
    bits, zero = _bits(x), e.const(x, 0) if x.dtype is not DType.float8_e8m0 else None
    up, down = e.const(bits, unit), e.const(bits, -unit)
    # The bits of floats of one sign increase with their magnitude.
    rising = e.greater(y, x)
    away = rising if zero is None else e.equal(rising, e.greater(x, zero))
    stepped = e.emit("Add", bits, e.where(away, up, down))
    if zero is not None:
        lowest = e.const(bits, -(1 << (bits.dtype.bits - 1)))
        if x.dtype in (DType.float8_e4m3fnuz, DType.float8_e5m2fnuz):  # whose -0.0 is NaN
            stepped = e.where(e.equal(stepped, lowest), e.const(bits, 0), stepped)
        least = e.where(e.greater(y, zero), up, e.emit("Add", lowest, up))
        stepped = e.where(e.equal(x, zero), least, stepped)
    unknown = e.either(_is_nan(x), _is_nan(y))
    result = e.where(e.equal(x, y), y, e.bitcast(stepped, x.dtype))
    return e.where(unknown, e.emit("Add", x, y), result)


def _next_small(x: Symbol, y: Symbol) -> Symbol:
    """Return the neighbour of a float of 4 or 6 bits: more than half a step further, rounded."""
    sizes = np.arange(1 << (x.dtype.bits - 1), dtype=np.uint8).view(x.dtype.numpy).astype(np.float64)
    gaps = np.diff(sizes)
    wide = e.cast(x, DType.float32)
    step = e.const(wide, float(gaps[0]))
    for place in np.flatnonzero(np.diff(gaps)) + 1:
        below = e.less(e.emit("Abs", wide), e.const(wide, float(sizes[place])))
        step = e.where(below, step, e.const(wide, float(gaps[place])))
    # Below a power of two the step is half as long.
    part = e.where(e.greater(y, x), e.const(wide, 0.625), e.const(wide, -0.625))
    return e.where(e.equal(x, y), y, e.cast(e.emit("Add", wide, e.emit("Mul", step, part)), x.dtype))


# Exponents, in float64


def _parts(x: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Return a mantissa from 1 to 2 with the sign of x, the exponent in int64, and a mask of special values.

    Special are 0, infinities and NaN, for which the mantissa is 1.
    """
    size = e.emit("Abs", x)
    is_regular = e.both(e.greater(size, e.const(x, 0)), e.less(size, e.const(x, math.inf)))
    regular = e.where(is_regular, x, e.const(x, 1))
    small = e.less(e.emit("Abs", regular), e.const(x, 2.0**-1022))
    bits = _bits(e.where(small, e.emit("Mul", regular, e.const(x, 2.0**54)), regular))
    field = e.emit("BitwiseAnd", _shifted(bits), e.const(bits, 0x7FF))
    offset = e.where(small, e.const(bits, 1023 + 54), e.const(bits, 1023))
    fraction = e.emit("BitwiseAnd", bits, e.const(bits, -(0x7FF << 52) - 1))
    mantissa = e.bitcast(e.emit("BitwiseOr", fraction, e.const(bits, 1023 << 52)), DType.float64)
    return mantissa, e.emit("Sub", field, offset), e.opposite(is_regular)


def _shifted(bits: Symbol) -> Symbol:
    words = e.bitcast(bits, DType.uint64)
    return e.bitcast(e.emit("BitShift", words, e.const(words, 52), direction="RIGHT"), DType.int64)


def _power(exponent: Symbol) -> Symbol:
    """Return 2 ** exponent for int64 exponents from -1022 to 1023."""
    field = e.emit("Add", exponent, e.const(exponent, 1023))
    return e.bitcast(e.emit("Mul", field, e.const(exponent, 1 << 52)), DType.float64)


def _bounded(x: Symbol, low: int, high: int) -> Symbol:
    return e.emit("Min", e.emit("Max", x, e.const(x, low)), e.const(x, high))


@expansion("Frexp")
def _frexp(x: Symbol) -> tuple[Symbol, Symbol]:
    mantissa, exponent, is_special = _parts(x)
    half = e.emit("Mul", mantissa, e.const(x, 0.5))
    count = e.where(is_special, e.const(exponent, 0), e.emit("Add", exponent, e.const(exponent, 1)))
    return e.where(is_special, x, half), e.cast(count, DType.int32)


def _logb(x: Symbol) -> Symbol:
    _, exponent, is_special = _parts(x)
    square = e.emit("Mul", x, x)
    edge = e.where(e.equal(x, e.const(x, 0)), e.const(x, -math.inf), square)
    return e.where(is_special, edge, e.cast(exponent, x.dtype))


@expansion("Ldexp")
def _ldexp(x: Symbol, exponent: Symbol) -> Symbol:
    mantissa, own_exponent, is_special = _parts(x)
    target = e.emit("Add", own_exponent, _bounded(exponent, -3000, 3000))
    # Exact until the last product, which rounds a result that is subnormal or too large.
    whole = _bounded(target, -1022, 1023)
    rest = _bounded(e.emit("Sub", target, whole), -100, 100)
    result = e.emit("Mul", e.emit("Mul", mantissa, _power(whole)), _power(rest))
    return e.where(is_special, x, result)


@op(onnx="Frexp", rule="float")
def frexp(x: TensorLike) -> tuple[Symbol, Symbol]:
    """A mantissa from 0.5 to 1 with the sign of x, and the exponent of 2: their product is x.

    Args:
        x: Any shape, numbers or bools; integers become the float that holds their range.

    Returns:
        Two Symbols of x's shape, the mantissa of its float and the exponent in int32; for zeros, infinities and NaN x
        itself and 0.

    Raises:
        DTypeError: For strings.

    C's and NumPy's frexp.
    """
    symbol, dtype = promote_one("frexp", "float", x)
    types = [tensor_type(dtype, symbol.shape, symbol.ambiguous), tensor_type(DType.int32, symbol.shape)]
    mantissa, exponent = symbol.graph.build.emit_many("Frexp", (symbol,), types, None, LIBRARY)
    return mantissa, exponent


@op(onnx="Ldexp", rule="float")
def ldexp(x: TensorLike, exponent: TensorLike) -> Symbol:
    """x times 2 to the power of an integer, rounded once.

    Args:
        x: Numbers or bools; integers become the float that holds their range.
        exponent: Integers or bools whose shape broadcasts with it.

    Returns:
        A Symbol of x's float.

    Raises:
        DTypeError: For exponents that are not integers and for strings.
        ShapeError: For shapes that do not broadcast.

    C's and NumPy's ldexp.
    """
    graph = graph_of("ldexp", (x, exponent))
    with graph:
        number, dtype = promote_one("ldexp", "float", x)
        count = operand("ldexp", exponent, "exponent")
    if not (count.dtype.is_integer or count.dtype is DType.bool):
        raise DTypeError(
            f"ldexp: exponent must be an integer, got {count.dtype}",
            operands={"x": number, "exponent": count},
            help="cast it: exponent.cast(DType.int32), or use x * 2**exponent",
        )
    shape = broadcast("ldexp", {"x": number, "exponent": count})
    bounded = (
        count if count.dtype.bits <= 32 else _bounded(count, *((-5000, 5000) if count.dtype.is_signed else (0, 5000)))
    )
    steps = graph.build.cast(bounded, DType.int64)
    return graph.build.emit("Ldexp", (number, steps), tensor_type(dtype, shape, number.ambiguous), None, LIBRARY)


logb = unary(
    "logb",
    "Logb",
    "float",
    "The exponent of 2 as a float: log2 of the magnitude, rounded down, exactly; -inf for 0. C's logb.",
    body=_logb,
)
IN_DOUBLE.update(("Frexp", "Ldexp", "Logb"))


# Distances and remainders


def _scaled_hypot(x: Symbol, y: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Return sqrt(x^2 + y^2) divided by a power of two, that power, and a mask of infinite results.

    Borges, "Algorithm 1014: An Improved Algorithm for hypot(x, y)" (2020), without fused operations: the correction of
    a square root of a rounded sum.
    """
    ax, ay = e.emit("Abs", x), e.emit("Abs", y)
    unlimited = e.either(*(e.emit("IsInf", size, dtype=DType.bool) for size in (ax, ay)))
    high, low = e.emit("Max", ax, ay), e.emit("Min", ax, ay)
    one = e.const(x, 1)
    down = e.where(e.greater(high, e.const(x, 2.0**500)), e.const(x, 2.0**-600), one)
    down = e.where(e.less(high, e.const(x, 2.0**-400)), e.const(x, 2.0**600), down)
    up = e.emit("Div", one, down)
    a, b = e.emit("Mul", high, down), e.emit("Mul", low, down)
    root = e.emit("Sqrt", e.emit("Add", e.emit("Mul", a, a), e.emit("Mul", b, b)))

    def twice(value: Symbol) -> Symbol:
        return e.emit("Add", value, value)

    # The excess of the square of the root, from differences that are exact or nearly so.
    over = e.emit("Sub", root, b)
    near = e.emit(
        "Add",
        e.emit("Mul", a, e.emit("Sub", twice(over), a)),
        e.emit("Mul", e.emit("Sub", over, twice(e.emit("Sub", a, b))), over),
    )
    beyond = e.emit("Sub", root, a)
    four = twice(twice(beyond))
    far = e.emit(
        "Add",
        e.emit("Mul", twice(beyond), e.emit("Sub", a, twice(b))),
        e.emit("Add", e.emit("Mul", e.emit("Sub", four, b), b), e.emit("Mul", beyond, beyond)),
    )
    wrong = e.where(e.greater(root, twice(b)), far, near)
    apart = e.equal(root, e.const(x, 0))
    step = e.emit("Div", wrong, e.where(apart, one, twice(root)))
    # Where one is negligible beside the other, there is nothing to correct.
    alone = e.opposite(e.greater(e.emit("Mul", b, e.const(x, 2.0**54)), a))
    fixed = e.where(alone, e.emit("Add", a, b), e.emit("Sub", root, step))
    return fixed, up, unlimited


def _hypot(x: Symbol, y: Symbol) -> Symbol:
    root, factor, unlimited = _scaled_hypot(x, y)
    return e.where(unlimited, e.const(x, math.inf), e.emit("Mul", root, factor))


def _rhypot(x: Symbol, y: Symbol) -> Symbol:
    root, factor, unlimited = _scaled_hypot(x, y)
    return e.where(unlimited, e.const(x, 0), e.emit("Div", e.emit("Reciprocal", root), factor))


def _ieee_remainder(x: Symbol, y: Symbol) -> Symbol:
    size, divisor = e.emit("Abs", x), e.emit("Abs", y)
    rest = e.emit("Mod", size, e.emit("Add", divisor, divisor), fmod=1)
    more = e.greater(e.emit("Add", rest, rest), divisor)
    less = e.emit("Sub", rest, divisor)
    again = e.opposite(e.less(e.emit("Add", less, less), divisor))
    less = e.where(again, e.emit("Sub", less, divisor), less)
    rest = e.where(more, less, rest)
    negative = e.less(_bits(x), e.const(_bits(x), 0))
    # x - x is 0.0, and NaN of an infinity, whose remainder is that.
    return e.emit("Add", e.where(negative, e.emit("Neg", rest), rest), e.emit("Neg", e.emit("Sub", x, x)))


def _round_half_away(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    floor = e.emit("Floor", size)
    more = e.opposite(e.less(e.emit("Sub", size, floor), e.const(x, 0.5)))
    rounded = e.where(more, e.emit("Add", floor, e.const(x, 1)), floor)
    return e.where(e.less(size, e.const(x, math.inf)), _copysign(rounded, x), x)


def _fdim(x: Symbol, y: Symbol) -> Symbol:
    above = e.where(e.greater(x, y), e.emit("Sub", x, y), e.const(x, 0))
    unknown = e.either(_is_nan(x), _is_nan(y))
    return e.where(unknown, e.emit("Add", x, y), above)


def _heaviside(x: Symbol, y: Symbol) -> Symbol:
    zero = e.const(x, 0)
    step = e.where(e.less(x, zero), zero, e.where(e.equal(x, zero), y, e.const(x, 1)))
    return e.where(_is_nan(x), x, step)


@expansion("LogAddExp", fast=True)
def _short_logaddexp(x: Symbol, y: Symbol) -> Symbol:
    greater, less = e.emit("Max", x, y), e.emit("Min", x, y)
    distance, lost = e.sum_of(less, e.emit("Neg", greater))
    # The distance of two equal infinities is 0, though their difference is NaN.
    small = e.emit("Exp", e.where_number(e.equal(x, y), 0.0, distance))
    small = e.add(small, e.mul(small, e.where_number(e.below(e.emit("Abs", lost), 1), lost, 0.0)))
    return e.emit("Add", greater, _log1p(small))


def _logaddexp(x: Symbol, y: Symbol) -> Symbol:
    greater, less, result = e.emit("Max", x, y), e.emit("Min", x, y), _short_logaddexp(x, y)
    # The sum loses digits if the result is between greater / 2 and -1.5 greater.
    cancels = e.less(e.emit("Abs", e.add(e.mul(greater, 0.5), result)), e.emit("Neg", greater))
    return extended.where_any(cancels, _log_near_one, result, greater, less)


def _log_near_one(x: Symbol, y: Symbol) -> Symbol:
    """Return log(exp(x) + exp(y)) for x from -2.8 to 0 and y <= x, where the sum may be near 1."""
    unit = e.where_number(e.below(y, -300.0), 2.0**500, e.const(y, 1))  # products of smaller numbers would vanish
    weights, terms = [], []
    for power in (x, e.clamp_min(y, -744.0)):
        number, scale, (high, middle, low) = extended.near_exp(power)
        weights.append(e.mul(number, e.mul(scale, unit)))
        away = high, middle
        rest, last = extended.product(extended.product(away, away), extended.polynomial(away, _EXP))
        for part in (high, rest, middle):
            above = e.upper(part)  # whose product with 12 bits is exact
            terms += [e.mul(weights[-1], above), e.mul(weights[-1], e.sub(part, above))]
        terms.append(e.mul(weights[-1], e.add(last, low)))
    high, middle, low = extended.total(*weights, e.emit("Neg", unit), *terms)
    return _log1p(e.div(e.add(high, e.add(middle, low)), unit))


def _log1p(x: Symbol) -> Symbol:
    """Return log(1 + x) for x >= -0.5, by Kahan's correction for the rounding of the sum."""
    one = e.const(x, 1)
    near = e.emit("Add", one, x)
    gap = e.emit("Sub", near, one)
    corrected = e.emit("Mul", e.emit("Log", near), e.emit("Div", x, e.where(e.equal(near, one), one, gap)))
    return e.where(e.equal(near, one), x, corrected)


hypot = binary(
    "hypot",
    "Hypot",
    "float",
    "sqrt(x^2 + y^2) without intermediate overflow; infinite where either is, even beside NaN. C's and NumPy's hypot.",
    body=_hypot,
)
rhypot = binary(
    "rhypot", "ReciprocalHypot", "float", "1 / hypot(x, y), without intermediate overflow. CUDA's rhypot.", body=_rhypot
)
round_half_away = unary(
    "round_half_away",
    "RoundHalfAway",
    "number",
    "The nearest integer, ties away from 0. C's round.",
    same_on=(Kind.bool, Kind.signed, Kind.unsigned),
    body=_round_half_away,
)
ieee_remainder = binary(
    "ieee_remainder",
    "IeeeRemainder",
    "float",
    "x minus the nearest multiple of y, the even one of two, exactly; 0 has the sign of x. C's remainder.",
    body=_ieee_remainder,
)
fdim = binary(
    "fdim", "Fdim", "float", "x - y where that is above 0, else 0.0; NaN where either is NaN. C's fdim.", body=_fdim
)
heaviside = binary(
    "heaviside",
    "Heaviside",
    "float",
    "0.0 where the first is below 0, 1.0 above, and the second where it is 0; NaN stays. NumPy's heaviside.",
    body=_heaviside,
)
logaddexp = binary(
    "logaddexp",
    "LogAddExp",
    "float",
    "log(exp(x) + exp(y)), without intermediate overflow. NumPy's logaddexp.",
    body=_logaddexp,
)
IN_DOUBLE.update(("Hypot", "ReciprocalHypot", "LogAddExp"))
