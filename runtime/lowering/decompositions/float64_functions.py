"""Functions of float64 for which onnxruntime has no kernel, or an inexact one: within 4 units in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder
from graphcore.support.lazy import Lazy
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.ops import activation, special
else:  # files that run as they are need no ops
    activation, special = Lazy("graphcore.ops.activation"), Lazy("graphcore.ops.special")

F64 = DType.float64


def _c(b: Builder, value: float) -> Symbol:
    return b.scalar(float(value), F64)


def _where(b: Builder, condition: Symbol, x: Symbol, y: Symbol) -> Symbol:
    return b.native("Where", condition, x, y, dtype=F64)


def _greater(b: Builder, x: Symbol, bound: float) -> Symbol:
    return b.native("Greater", x, _c(b, bound), dtype=DType.bool)


# Angles

# pi in three parts, the first two of 33 bits: their products with small integers and halves are exact.
_HALF_TURN = (3.1415926534682512, 1.2154201012607932e-10, 4.0445324975919012e-21)
_MAX_NEAR = 64.0
"""Up to this angle the kernels lose relative accuracy near the zeros."""
# A multiple of 2 pi above half the largest float64, less its rounding error.
_MULTIPLE, _MULTIPLE_LOST = 1.241672507613542e308, 2.586287505210448e-17


def _less_half_turns(x: Symbol, turns: Symbol) -> Symbol:
    """Return x - turns * pi."""
    for part in _HALF_TURN:
        x = e.sub(x, e.mul(turns, part))
    return x


def _with_parity(b: Builder, whole: Symbol, x: Symbol) -> Symbol:
    """Return x, negated for odd integers."""
    half = e.mul(whole, 0.5)
    return e.mul(x, e.sub(1.0, e.mul(e.sub(half, b.native("Floor", half)), 4.0)))


def _sin(b: Builder, x: Symbol) -> Symbol:
    near = e.below(b.native("Abs", x), _MAX_NEAR)
    turns = b.native("Floor", e.add(e.mul(x, 1 / math.pi), 0.5))  # 0.0 for -0.0, which stays
    turns = _where(b, near, turns, _c(b, 0.0))
    return _with_parity(b, turns, b.native("Sin", _less_half_turns(x, turns)))


def _cos(b: Builder, x: Symbol) -> Symbol:
    """Return the sine of the distance to the nearest zero, for angles that lack an accurate kernel."""
    turns, kernel = b.native("Floor", e.mul(x, 1 / math.pi)), b.rules.allows("Cos", F64)
    away = _less_half_turns(x, e.add(turns, 0.5)) if kernel else _less_quarters(b, x, e.add(e.mul(turns, 2.0), 1.0))
    near = e.sub(0.0, _with_parity(b, turns, b.native("Sin", away)))
    limit = _MAX_NEAR if kernel else _MAX_REDUCED
    return _where(b, e.below(b.native("Abs", x), limit), near, _kernel_cos(b, x))


def _kernel_cos(b: Builder, x: Symbol) -> Symbol:
    """Return the cosine by the kernel; in releases without one as sin(2x) / 2 sin(x), for angles beyond the limit."""
    if b.rules.allows("Cos", F64):
        return b.native("Cos", x)
    size = b.native("Abs", x)
    huge = _greater(b, size, 8.98e307)
    size = e.sub(size, e.where_number(huge, _MULTIPLE, _c(b, 0.0)))  # exact, and 2x is finite
    sine = b.native("Sin", size)
    ratio = e.emit("Div", b.native("Sin", e.add(size, size)), e.add(sine, sine))
    ratio = e.where_number(e.equals(size, 0.0), 1.0, ratio)
    return e.add(ratio, e.mul(sine, e.where_number(huge, _MULTIPLE_LOST, _c(b, 0.0))))


# pi / 2 as a sum of three float64, and (1 - x / tan(x)) / x^2 up to pi / 4, in x * x.
_QUARTER = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_COTANGENT = (
    3.1511610375953593e-10, 2.128462012232429e-09, 2.2306908395348942e-08, 2.192178978867523e-07,
    2.164415803036177e-06, 2.137779721889877e-05, 0.00021164021182672914, 0.0021164021163930105,
    0.022222222222222393, 0.3333333333333333,
)  # fmt: skip
_MAX_REDUCED = 2.0**48
"""Beyond this angle the kernels are those of C."""


def _less_quarters(b: Builder, x: Symbol, k: Symbol) -> Symbol:
    """Return x - k * pi / 2, rounded once."""
    (first, lost), (second, rest) = (e.product_of(k, _c(b, part)) for part in _QUARTER[:2])
    total, wrong = e.sum_of(e.sub(x, first), b.native("Neg", lost))
    total, more = e.sum_of(total, b.native("Neg", second))
    return e.add(total, e.sub(e.add(wrong, more), e.add(rest, e.mul(k, _QUARTER[2]))))


def _tan(b: Builder, x: Symbol) -> Symbol:
    """Return the tangent of x less the nearest multiple k of pi / 2; for odd k -1 divided by that."""
    near = e.below(b.native("Abs", x), _MAX_REDUCED)
    k = b.native("Round", e.mul(x, 2 / math.pi))
    angle = _less_quarters(b, x, k)
    square = e.square(angle)
    cotangent = e.sub(1.0, e.mul(square, e.polynomial(square, _COTANGENT)))  # times the angle
    half = e.mul(k, 0.5)
    is_even = e.equal(half, b.native("Floor", half))
    above = _where(b, is_even, angle, b.native("Neg", cotangent))
    tangent = e.emit("Div", above, _where(b, is_even, cotangent, angle))
    return _where(b, near, tangent, e.emit("Div", b.native("Sin", x), _kernel_cos(b, x)))


# Hyperbolic functions


def _halves(b: Builder, x: Symbol) -> tuple[Symbol, Symbol]:
    """Return exp(|x|) / 2 and exp(-|x|) / 2; the first overflows only if its own value does."""
    size = b.native("Abs", x)
    near = e.clamp_max(size, 700.0)
    large = e.mul(e.mul(b.native("Exp", near), 0.5), b.native("Exp", e.sub(size, near)))
    return large, e.mul(b.native("Exp", b.native("Neg", size)), 0.5)


def _tanh(b: Builder, x: Symbol) -> Symbol:
    """Return the kernel's result, less its error beyond 1."""
    size, near = b.native("Abs", x), b.native("Tanh", x)
    power = b.native("Exp", e.add(size, size))
    far = e.mul(b.native("Sign", x), e.sub(1.0, e.div(2.0, e.add(power, 1.0))))
    return e.sub(near, _where(b, _greater(b, size, 1.0), e.sub(near, far), _c(b, 0.0)))  # keeps -0.0


def _near(b: Builder, x: Symbol, coefficients: Sequence[float], far: Symbol) -> Symbol:
    """Return x P(x * x) where |x| < 0.5, by the coefficients of P, highest power first; else `far`."""
    near = b.native("Mul", x, e.polynomial(b.native("Mul", x, x), coefficients))
    is_near = b.native("Less", b.native("Abs", x), _c(b, 0.5), dtype=DType.bool)
    return _where(b, is_near, near, far)


def _log1p(b: Builder, x: Symbol) -> Symbol:
    """Return log(1 + x) for finite x, with a correction for the digits that 1 + x loses."""
    whole = b.native("Add", x, _c(b, 1.0))
    lost = b.native("Sub", b.native("Sub", whole, _c(b, 1.0)), x)
    return b.native("Sub", b.native("Log", whole), b.native("Div", lost, whole))


def _sinh(b: Builder, x: Symbol) -> Symbol:
    large, small = _halves(b, x)
    far = b.native("Mul", b.native("Sign", x), b.native("Sub", large, small))
    return _near(b, x, [1 / math.factorial(n) for n in range(13, 0, -2)], far)


_LOG_2 = 0.6931471805599453


def _asinh(b: Builder, x: Symbol) -> Symbol:
    size = b.native("Abs", x)
    huge = _greater(b, size, 1e150)
    safe = _where(b, huge, _c(b, 1.0), size)
    square = b.native("Mul", safe, safe)
    root = b.native("Sqrt", b.native("Add", square, _c(b, 1.0)))
    plain = _log1p(b, b.native("Add", safe, b.native("Div", square, b.native("Add", root, _c(b, 1.0)))))
    far = b.native("Add", b.native("Log", size), _c(b, _LOG_2))
    return b.native("Mul", b.native("Sign", x), _where(b, huge, far, plain))


def _acosh(b: Builder, x: Symbol) -> Symbol:
    huge = _greater(b, x, 1e150)
    above = e.sub(_where(b, huge, _c(b, 1.0), x), 1.0)
    root = e.mul(b.native("Sqrt", above), b.native("Sqrt", e.add(above, 2.0)))  # NaN below 1
    plain = _log1p(b, e.add(above, root))
    return _where(b, huge, e.add(b.native("Log", x), _LOG_2), plain)


def _atanh(b: Builder, x: Symbol) -> Symbol:
    ratio = e.emit("Div", e.add(x, 1.0), e.sub(1.0, x))
    is_near = b.native("Less", b.native("Abs", x), _c(b, 0.5), dtype=DType.bool)
    safe = _where(b, is_near, x, _c(b, 0.0))
    near = _log1p(b, e.emit("Div", e.add(safe, safe), e.sub(1.0, safe)))
    return b.native("Mul", _where(b, is_near, near, b.native("Log", ratio)), _c(b, 0.5))


# atan(x) = x + x * z * P(z) / Q(z) with z = x * x, for |x| < 0.66: the rational approximation of the Cephes library.
_P = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
      -1.228866684490136173410e2, -6.485021904942025371773e1)  # fmt: skip
_Q = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
      4.853903996359136964868e2, 1.945506571482613964425e2)  # fmt: skip


def _atan(b: Builder, x: Symbol) -> Symbol:
    size = b.native("Abs", x)
    far, middle = _greater(b, size, 2.414213562373095), _greater(b, size, 0.66)
    ratio = e.ratio(size, 1.0)
    inverse = b.native("Neg", b.native("Reciprocal", size))
    reduced = _where(b, far, inverse, _where(b, middle, ratio, size))
    turn = _where(b, far, _c(b, 1.5707963267948966), _where(b, middle, _c(b, 0.7853981633974483), _c(b, 0.0)))
    z = b.native("Mul", reduced, reduced)
    rational = b.native("Div", e.polynomial(z, _P), e.polynomial(z, _Q))
    result = b.native("Add", b.native("Mul", b.native("Mul", reduced, z), rational), reduced)
    result = b.native("Add", turn, result)
    return b.native("Mul", result, b.native("Sign", x))


def _asin(b: Builder, x: Symbol) -> Symbol:
    rest = b.native("Sqrt", e.mul(e.sub(1.0, x), e.add(x, 1.0)))
    return _atan(b, b.native("Div", x, rest))


def _acos(b: Builder, x: Symbol) -> Symbol:
    """Return the angle from the tangent of the angle or, near the middle, of its complement."""
    size = b.native("Abs", x)
    rest = b.native("Sqrt", e.mul(e.sub(1.0, size), e.add(size, 1.0)))
    middle = e.below(size, 0.5)
    angle = _atan(b, e.emit("Div", _where(b, middle, x, rest), _where(b, middle, rest, size)))
    side = _where(b, e.below(x, 0.0), e.sub(math.pi, angle), angle)
    return _where(b, middle, e.sub(math.pi / 2, angle), side)


def _erf(b: Builder, x: Symbol) -> Symbol:
    size = b.native("Abs", x)
    far = e.mul(b.native("Sign", x), e.sub(1.0, special.scaled_erfc(e.clamp_max(size, 28.0))))
    return _near(b, x, special.ERF, far)


# Activations


def _sigmoid(b: Builder, x: Symbol) -> Symbol:
    small = b.native("Exp", b.native("Neg", b.native("Abs", x)))
    return e.emit("Div", _where(b, e.below(x, 0.0), small, _c(b, 1.0)), e.add(small, 1.0))


# sqrt(8 / pi) and its product with 0.044715, each as a sum of two float64.
_SLOPE, _SLOPE_REST = 1.5957691216057308, -9.96930880911092e-17
_CUBIC, _CUBIC_REST = 0.07135481627260025, -4.1218577217431825e-18


def _gelu(b: Builder, x: Symbol, approximate: str = "none") -> Symbol:
    if approximate == "tanh":  # 1 + tanh(u) is 2 sigmoid(2u)
        near = e.clamp_max(e.clamp_min(x, -30.0), 30.0)
        square, lost = e.product_of(near, near)
        cubic, rest = e.product_of(square, _c(b, _CUBIC))
        rest = e.add(rest, e.add(e.mul(square, _CUBIC_REST), e.mul(lost, _CUBIC)))
        slope, more = e.sum_of(_c(b, _SLOPE), cubic)
        inner, wrong = e.product_of(near, slope)
        return activation.times_sigmoid(x, inner, e.add(wrong, e.mul(near, e.add(e.add(rest, more), _SLOPE_REST))))
    size = e.clamp_max(b.native("Abs", x), 1e10)
    positive = e.emit("Max", x, e.mul(e.clamp_max(x, 1.0), 0.0))  # else -0.0, and NaN for -inf as the kernel's
    return e.sub(positive, special.normal_tail(size, e.mul(e.clamp_max(size, 1.0), 0.25)))


def _mish(b: Builder, x: Symbol) -> Symbol:
    """Return x w (w + 2) / (w (w + 2) + 2) with w = exp(x); where x is positive, both divided by w * w."""
    below = e.below(x, 0.0)
    power, tail = e.exp_factors(b.native("Neg", b.native("Abs", x)))
    above = _where(b, below, e.mul(power, e.add(power, 2.0)), e.add(e.add(power, power), 1.0))
    share = e.emit("Div", above, e.add(above, _where(b, below, _c(b, 2.0), e.mul(e.square(power), 2.0))))
    return e.mul(e.mul(x, share), _where(b, below, tail, _c(b, 1.0)))


def _softplus(b: Builder, x: Symbol) -> Symbol:
    tail = b.native("Exp", b.native("Neg", b.native("Abs", x)))
    return b.native("Add", b.native("Max", x, _c(b, 0.0)), _log1p(b, tail))


def _odd(function: Callable[[Builder, Symbol], Symbol], b: Builder, x: Symbol) -> Symbol:
    """Return a function of x, and x where it is 0, with its sign."""
    is_zero = b.native("Equal", x, _c(b, 0.0), dtype=DType.bool)
    return b.op("Where", is_zero, x, function(b, x), dtype=F64)  # the function itself may turn -0.0 into 0.0


FUNCTIONS: dict[str, Callable[..., Symbol]] = {
    "Sin": _sin,
    "Cos": _cos,
    "Tan": partial(_odd, _tan),
    "Sinh": partial(_odd, _sinh),
    "Cosh": lambda b, x: e.add(*_halves(b, x)),
    "Tanh": _tanh,
    "Asinh": partial(_odd, _asinh),
    "Acosh": _acosh,
    "Atan": partial(_odd, _atan),
    "Asin": partial(_odd, _asin),
    "Acos": _acos,
    "Atanh": partial(_odd, _atanh),
    "Erf": partial(_odd, _erf),
    "Sigmoid": _sigmoid,
    "Swish": lambda b, x, **attributes: activation.swish(x, **attributes),
    "Gelu": _gelu,
    "Mish": _mish,
    "Softplus": _softplus,
}
"""ONNX operator -> its float64 decomposition."""

WITH_KERNELS = ("Cos", "Sigmoid", "Sin", "Tanh")
"""Those of them that replace a less accurate kernel. Imported models, and nodes that may be less accurate, keep it."""
