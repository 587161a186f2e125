"""The error function's kin: scaled, inverse, and the distribution function of normal numbers.

Computed in float64, whatever float they are asked of, and rounded once, as in `special`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from graphcore.build import primitives as e
from graphcore.build.declare import IN_DOUBLE
from graphcore.build.elementwise import unary
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.special import (
    _ERF,
    _ERFCX,
    _ERFINV,
    _ERFINV_TAIL,
    _below,
    _max,
    _min,
    _mul,
    _polynomial,
    _ratio,
    _square,
    _upper,
    _where,
)

# erfcinv(exp(-x * x)) / x from 5.5 to 27.4, k = 12.
_ERFCINV_FAR = (
    -0.0190630838890942, 0.014888298333551559, 0.012922790759888567, -0.02207989974823604, 0.020378518402776935,
    -0.026098307140020614, 0.03505576200321765, -0.042571803602388436, 0.049551354803687726, -0.056593436784160116,
    0.06339651719676219, -0.06973483798335743, 0.07544741209107211, -0.08036543040843333, 0.08427515029647958,
    -0.08697118005911333, 0.08817908806884023, -0.08763857761155203, 0.08493019072594464, -0.07965450154948095,
    0.07090387303320883, -0.05779078775428057, 0.03572209251558625, 0.9893527496558694,
)  # fmt: skip
# The factors of 1 / x^2 in the series of x * sqrt(pi) * erfcx(x), the highest first.
_ERFCX_FAR = (162.421875, -29.53125, 6.5625, -1.875, 0.75, -0.5, 1.0)


def _scaled(size: Symbol) -> Symbol:
    """Return exp(x * x) * erfc(x) from 0.5 on."""
    near = _min(size, 28.0)
    made = e.emit("Div", _polynomial(_ratio(near, 3.75), _ERFCX), e.emit("Add", near, e.const(near, 3.75)))
    inverse = e.emit("Reciprocal", _max(size, 28.0))
    series = e.emit("Mul", _mul(inverse, 1 / math.sqrt(math.pi)), _polynomial(_square(inverse), _ERFCX_FAR))
    return e.where(e.greater(size, e.const(size, 28.0)), series, made)


def _exp_of_square(x: Symbol, factor: float) -> Symbol:
    """Return exp(factor * x * x), a power of two being the factor: the digits that the square rounds off count."""
    high = _upper(x)
    rest = e.emit("Mul", e.emit("Sub", x, high), e.emit("Add", x, high))
    return e.emit("Mul", e.emit("Exp", _mul(_square(high), factor)), e.emit("Exp", _mul(rest, factor)))


def _erfcx(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    held = _min(size, 28.0)
    growth = _exp_of_square(held, 1.0)
    inside = _polynomial(_square(_min(size, 0.5)), _ERF)
    near = e.emit("Mul", growth, e.emit("Sub", e.const(x, 1), e.emit("Mul", x, inside)))
    far = _scaled(_max(size, 0.5))
    far = e.where(_below(x, 0), e.emit("Sub", e.emit("Add", growth, growth), far), far)
    return e.where(_below(size, 0.5), near, far)


def _erfcinv(x: Symbol) -> Symbol:
    one = e.const(x, 1)
    away = e.emit("Sub", one, x)
    near = e.emit("Mul", away, _polynomial(_square(away), _ERFINV))
    tail = e.emit("Min", x, e.emit("Sub", e.const(x, 2), x))
    # Some kernels have no logarithms of subnormal numbers.
    small = _below(tail, 2.0**-1000)
    log = e.emit("Log", e.where(small, _mul(tail, 2.0**60), tail))
    log = e.emit("Sub", log, e.where(small, e.const(x, 60 * math.log(2)), e.const(x, 0)))
    root = e.emit("Sqrt", e.emit("Neg", log))  # NaN outside of 0 to 2
    low, high = _min(root, 6.0), _min(_max(root, 5.5), 27.4)
    lower = _polynomial(_ratio(low, 1.5), _ERFINV_TAIL)
    upper = _polynomial(_ratio(high, 12.0), _ERFCINV_FAR)
    size = e.emit("Mul", root, e.where(_below(root, 6.0), lower, upper))
    far = e.where(e.greater(x, one), e.emit("Neg", size), size)
    return e.where(_below(e.emit("Abs", away), 0.5), near, far)


_ROOT = math.sqrt(0.5)


def _normcdf(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    held = _min(size, 39.0)
    scaled = _scaled(_max(_mul(held, _ROOT), 0.5))
    # In halves exp(-x * x / 2) does not underflow before the product does.
    half = _exp_of_square(held, -0.25)
    tail = e.emit("Mul", e.emit("Mul", _mul(scaled, 0.5), half), half)
    tail = _where(e.greater(size, e.const(x, 39.0)), 0, tail)
    far = e.where(_below(x, 0), tail, e.emit("Sub", e.const(x, 1), tail))
    turned = _mul(x, _ROOT)
    inside = e.emit("Mul", turned, _polynomial(_square(_min(_mul(size, _ROOT), 0.5)), _ERF))
    near = e.emit("Add", e.const(x, 0.5), _mul(inside, 0.5))
    return e.where(_below(_mul(size, _ROOT), 0.5), near, far)


def _normcdfinv(x: Symbol) -> Symbol:
    upper = _mul(_erfcinv(e.emit("Add", x, x)), math.sqrt(2))
    return e.emit("Sub", e.const(x, 0), upper)  # 0.0 of 0.5, not -0.0


def _kin(name: str, onnx: str, doc: str, body: Callable[[Symbol], Symbol]) -> Callable[[TensorLike], Symbol]:
    IN_DOUBLE.add(onnx)
    return unary(name, onnx, "float", doc, body=body)


erfcx = _kin("erfcx", "Erfcx", "exp(x * x) * erfc(x), which does not underflow. CUDA's and SciPy's erfcx.", _erfcx)
erfcinv = _kin("erfcinv", "Erfcinv", "The number whose erfc is x; NaN outside 0 to 2. CUDA's and SciPy's.", _erfcinv)
normcdf = _kin(
    "normcdf", "NormCdf", "The distribution function of normal numbers, from 0 to 1. CUDA's; SciPy's ndtr.", _normcdf
)
normcdfinv = _kin(
    "normcdfinv",
    "NormCdfInverse",
    "The normal number that as large a part x lies below; NaN outside 0 to 1. CUDA's; SciPy's ndtri.",
    _normcdfinv,
)
