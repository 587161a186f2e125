"""The complementary, scaled and inverse error functions, and the distribution function of normal numbers.

All are computed in float64 and rounded once. The polynomials interpolate at Chebyshev points, the highest power first;
where their argument is t = (x - k) / (x + k), they hold far from 0 too.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from graphcore.build import primitives as e
from graphcore.build import series
from graphcore.build.declare import IN_DOUBLE
from graphcore.build.elementwise import unary
from graphcore.ir.symbol import Symbol, TensorLike

# exp(x * x) * erfc(x) * (x + k) from 0.5 to 28, k = 3.75.
_ERFCX = (
    -4.254554070227477e-10, -4.088720322192388e-09, 3.5445427017102115e-09, 3.874668114334615e-08,
    -2.7263623935315195e-08, -2.6263958796208333e-07, 2.800087375247973e-07, 1.655559147866216e-06,
    -3.289435726433237e-06, -8.90379342074379e-06, 3.747167318396314e-05, 1.0593960523707054e-05,
    -0.00034864683998736946, 0.0007948231030348226, 0.000986338077332185, -0.012535880041272693,
    0.04911877861545084, -0.1319554011785297, 0.2790620490337779, -0.4904702912076784, 0.7363189252217517,
    -0.9587415766529096, 1.0919229095627891,
)  # fmt: skip
# erf(x) / x up to 0.5, in x * x.
_ERF = (
    -1.462091340945175e-07, 1.637123442577e-06, -1.4923003368152099e-05, 0.00012055286202005714,
    -0.0008548326510724796, 0.0052239776220169365, -0.02686617064499972, 0.1128379167095487, -0.3761263890318375,
    1.1283791670955126,
)  # fmt: skip
# erfinv(x) / x up to 0.5, in x * x.
_ERFINV = (
    0.11314166859159029, -0.07607360776328573, 0.07345020539520401, 0.008446011584224939, 0.03159332043375326,
    0.031145242581416724, 0.036522988083139016, 0.042832578482160585, 0.05173148498700453, 0.06495961132717862,
    0.08655212936268364, 0.1275561753044084, 0.23201366653465907, 0.886226925452758,
)  # fmt: skip
# erfinv(1 - exp(-x * x)) / x from 1/2 on, k = 1.5.
_ERFINV_TAIL = (
    -0.00498783231115724, 0.019278797115048547, -0.030444704495258334, 0.017396576588789583, 0.017303411516738715,
    -0.0419169417214818, 0.02788795056431298, 0.016918423161280113, -0.051951335712539265, 0.0394856174357495,
    0.016163118204580808, -0.06665237608696382, 0.057790516370277635, 0.01496324822449475, -0.09264292637221168,
    0.09160944144052209, 0.013850816188199552, -0.153053907732998, 0.17272480877987606, 0.02606319895484827,
    -0.40549023560556213, 0.5524487453882198, 0.7633091880364665,
)  # fmt: skip
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


def _function(name: str, onnx: str, doc: str, body: Callable[[Symbol], Symbol]) -> Callable[[TensorLike], Symbol]:
    IN_DOUBLE.add(onnx)
    return unary(name, onnx, "float", doc, body=body)


def _scaled_erfc(x: Symbol) -> Symbol:
    """Return erfc(x) from 0.5 up to 28."""
    high = series.upper(x)
    # exp(-x * x) would lose the digits that the square rounds off; in halves it does not underflow early.
    half = e.emit("Exp", series.mul(e.emit("Mul", high, high), -0.5))
    rest = e.emit("Exp", e.emit("Mul", e.emit("Sub", high, x), e.emit("Add", high, x)))
    scaled = e.emit("Div", series.polynomial(series.ratio(x, 3.75), _ERFCX), series.add(x, 3.75))
    return e.emit("Mul", e.emit("Mul", e.emit("Mul", scaled, rest), half), half)


def _erfc(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    inside = series.polynomial(series.square(series.at_most(size, 0.5)), _ERF)
    near = e.emit("Sub", e.const(x, 1), e.emit("Mul", x, inside))
    far = _scaled_erfc(series.at_least(series.at_most(size, 28.0), 0.5))
    far = e.where(series.below(x, 0), e.emit("Sub", e.const(x, 2), far), far)
    return e.where(series.below(size, 0.5), near, far)


def _erfinv(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    rest = e.emit("Sub", e.const(x, 1), size)
    root = e.emit("Sqrt", e.emit("Neg", e.emit("Log", rest)))  # NaN above 1
    tail = e.emit("Mul", root, series.polynomial(series.ratio(root, 1.5), _ERFINV_TAIL))
    tail = series.where(series.equals(rest, 0), math.inf, tail)
    near = e.emit("Mul", x, series.polynomial(series.square(x), _ERFINV))
    return e.where(series.below(size, 0.5), near, e.emit("Mul", e.emit("Sign", x), tail))


def _scaled(size: Symbol) -> Symbol:
    """Return exp(x * x) * erfc(x) from 0.5 on."""
    near = series.at_most(size, 28.0)
    made = e.emit("Div", series.polynomial(series.ratio(near, 3.75), _ERFCX), e.emit("Add", near, e.const(near, 3.75)))
    inverse = e.emit("Reciprocal", series.at_least(size, 28.0))
    beyond = e.emit(
        "Mul", series.mul(inverse, 1 / math.sqrt(math.pi)), series.polynomial(series.square(inverse), _ERFCX_FAR)
    )
    return e.where(e.greater(size, e.const(size, 28.0)), beyond, made)


def _exp_of_square(x: Symbol, factor: float) -> Symbol:
    """Return exp(factor * x * x), a power of two being the factor: the digits that the square rounds off count."""
    high = series.upper(x)
    rest = e.emit("Mul", e.emit("Sub", x, high), e.emit("Add", x, high))
    return e.emit(
        "Mul", e.emit("Exp", series.mul(series.square(high), factor)), e.emit("Exp", series.mul(rest, factor))
    )


def _erfcx(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    held = series.at_most(size, 28.0)
    growth = _exp_of_square(held, 1.0)
    inside = series.polynomial(series.square(series.at_most(size, 0.5)), _ERF)
    near = e.emit("Mul", growth, e.emit("Sub", e.const(x, 1), e.emit("Mul", x, inside)))
    far = _scaled(series.at_least(size, 0.5))
    far = e.where(series.below(x, 0), e.emit("Sub", e.emit("Add", growth, growth), far), far)
    return e.where(series.below(size, 0.5), near, far)


def _erfcinv(x: Symbol) -> Symbol:
    one = e.const(x, 1)
    away = e.emit("Sub", one, x)
    near = e.emit("Mul", away, series.polynomial(series.square(away), _ERFINV))
    tail = e.emit("Min", x, e.emit("Sub", e.const(x, 2), x))
    # Some kernels have no logarithms of subnormal numbers.
    small = series.below(tail, 2.0**-1000)
    log = e.emit("Log", e.where(small, series.mul(tail, 2.0**60), tail))
    log = e.emit("Sub", log, e.where(small, e.const(x, 60 * math.log(2)), e.const(x, 0)))
    root = e.emit("Sqrt", e.emit("Neg", log))  # NaN outside of 0 to 2
    low, high = series.at_most(root, 6.0), series.at_most(series.at_least(root, 5.5), 27.4)
    lower = series.polynomial(series.ratio(low, 1.5), _ERFINV_TAIL)
    upper = series.polynomial(series.ratio(high, 12.0), _ERFCINV_FAR)
    size = e.emit("Mul", root, e.where(series.below(root, 6.0), lower, upper))
    far = e.where(e.greater(x, one), e.emit("Neg", size), size)
    return e.where(series.below(e.emit("Abs", away), 0.5), near, far)


_ROOT = math.sqrt(0.5)


def _normcdf(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    held = series.at_most(size, 39.0)
    scaled = _scaled(series.at_least(series.mul(held, _ROOT), 0.5))
    # In halves exp(-x * x / 2) does not underflow before the product does.
    half = _exp_of_square(held, -0.25)
    tail = e.emit("Mul", e.emit("Mul", series.mul(scaled, 0.5), half), half)
    tail = series.where(e.greater(size, e.const(x, 39.0)), 0, tail)
    far = e.where(series.below(x, 0), tail, e.emit("Sub", e.const(x, 1), tail))
    turned = series.mul(x, _ROOT)
    inside = e.emit("Mul", turned, series.polynomial(series.square(series.at_most(series.mul(size, _ROOT), 0.5)), _ERF))
    near = e.emit("Add", e.const(x, 0.5), series.mul(inside, 0.5))
    return e.where(series.below(series.mul(size, _ROOT), 0.5), near, far)


def _normcdfinv(x: Symbol) -> Symbol:
    upper = series.mul(_erfcinv(e.emit("Add", x, x)), math.sqrt(2))
    return e.emit("Sub", e.const(x, 0), upper)  # 0.0 of 0.5, not -0.0


erfc = _function("erfc", "Erfc", "1 - erf(x), accurate where that is small. C's erfc.", _erfc)
erfinv = _function("erfinv", "Erfinv", "The number whose error function is x; NaN outside -1 to 1.", _erfinv)
erfcx = _function("erfcx", "Erfcx", "exp(x * x) * erfc(x), which does not underflow. CUDA's and SciPy's erfcx.", _erfcx)
erfcinv = _function(
    "erfcinv", "Erfcinv", "The number whose erfc is x; NaN outside 0 to 2. CUDA's and SciPy's.", _erfcinv
)
normcdf = _function(
    "normcdf", "NormCdf", "The distribution function of normal numbers, from 0 to 1. CUDA's; SciPy's ndtr.", _normcdf
)
normcdfinv = _function(
    "normcdfinv",
    "NormCdfInverse",
    "The normal number that as large a part x lies below; NaN outside 0 to 1. CUDA's; SciPy's ndtri.",
    _normcdfinv,
)
