"""Special functions without ONNX operators: roots, the gamma function and its relatives, error functions.

All are computed in float64 and rounded once; `exp10` in float32 if it may be less accurate. The polynomials interpolate
at Chebyshev points, with the highest power first; those of t = (x - k) / (x + k) are also valid far from 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import IN_DOUBLE
from graphcore.build.elementwise import unary
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared import extended
from graphcore.types.dtypes import DType

# log(gamma(x)) / ((x - 1) * (x - 2)) from 1 to 8, k = 2.828125.
_LGAMMA = (
    0.08489368548743803, -0.09008274289533319, -0.03998011384687632, 0.04209966120325878, 0.047069273599287975,
    -0.05031163684656831, 0.014846474027862848, -0.016369920370964457, 0.02585440318557391, -0.028363455994977246,
    0.026955562343649965, -0.029986504510801662, 0.030455903247737646, -0.03439088718113903, 0.034669324655884085,
    -0.03995946270062574, 0.04026946218841227, -0.0477775922009052, 0.04804609850563933, -0.05959214106141452,
    0.05965964749770371, -0.07995723292999844, 0.0793578687457189, -0.1259276021998721, 0.12315308717464794,
    -0.3580576817761923, 0.3570289977947714,
)  # fmt: skip
# digamma(x) / (x - its root) from 1 to 10, k = 3.125.
_DIGAMMA = (
    3.892126339805362, -4.417685224941081, -3.69145211043156, 4.715496562462293, 2.9138796071194046,
    -3.813377719054076, -0.4736566046511745, 0.9416267069560024, 0.6590508743134701, -0.8210565055858666,
    0.40110016775657925, -0.3632927354431628, 0.44135060122706166, -0.4489662357647105, 0.43700666521803855,
    -0.4374987065828615, 0.43711121274277903, -0.4389081603440681, 0.436901501516481, -0.43932399470252037,
    0.4367246010100306, -0.44047731447624483, 0.43695507843939047, -0.4437042485078014, 0.439227083657055,
    -0.45431987241323796, 0.4501889868350933, -0.49577640207996604, 0.49988191304310636, -0.7785010390078955,
    0.5837460775437934,
)  # fmt: skip
# B(2n) / (2n * (2n - 1)) and B(2n) / 2n of Bernoulli's numbers.
_STIRLING = (
    0.17964437236883057, -0.029550653594771242, 0.00641025641025641, -0.0019175269175269176, 0.0008417508417508417,
    -0.0005952380952380953, 0.0007936507936507937, -0.002777777777777778, 0.08333333333333333,
)  # fmt: skip
_DIGAMMA_FAR = (-3617 / 8160, 1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
# The zeros of lgamma from -2.4 to -19, as distances to the nearest integer.
_ZEROS = """
    -0.45702473822080062303945414765118 0.2523173532725873986085115173085 -0.143580888349980058694358781820228
    4.4705715141402071467202716752792e-2 -3.9361839740536874234577096375355e-2 8.4553594399522776547398771935343e-3
    -8.2181683225935215523681373913697e-3 1.39251991912437055759208862808e-3 -1.385294453155097261981653741772e-3
    1.984921093623021079025881319201e-4 -1.98333407324751606981046444172e-4 2.48029041793358456638528331926e-5
    -2.4800270681959697710103794789e-5 2.75574902253180564257608522e-6 -2.7557148226503463607673921757e-6
    2.75573370833531647855579207e-7 -2.755730136466002498674120978e-7 2.5052109918476224994244258e-8
    -2.5052106852407544352506773e-8 2.0876757097960809593354889e-9 -2.087675687777539039883998e-9
    1.60590438435343552642463e-10 -1.60590438301088739442882e-10 1.1470745598081609911134e-11
    -1.147074559737783951661e-11 7.64716373183584567876e-13 -7.64716373180378727305e-13 4.7794773323880257153e-14
    -4.7794773323867448796e-14 2.8114572543455435e-15 -2.811457254345498e-15 1.5619206968586233e-16
    -1.561920696858622e-16 8.22063524662433e-18 -8.22063524662433e-18
"""
# (sin(pi * x) / (pi * x) - 1) / x^2 up to 1/2 and (cos(pi * x) - 1) / x^2 up to 1/4, in x * x.
_SINE, _COSINE = (
    [(-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + i) for k in range(11 if i else 8, 0, -1)] for i in (1, 0)
)
_HALF_LOG_2_PI = 0.9189385332046728
_DIGAMMA_ROOT, _DIGAMMA_ROOT_LOW = 1.4616321449683622, 9.549995429965697e-17


def _function(
    name: str, onnx: str, doc: str, body: Callable[[Symbol], Symbol], *, has_fast_form: bool = False
) -> Callable[[TensorLike], Symbol]:
    """Declare a function. has_fast_form: its body is also the less accurate form for dtypes below float64."""
    IN_DOUBLE.add(onnx)
    return unary(name, onnx, "float", doc, body=body, fast=body if has_fast_form else None)


# Roots and powers


def _cbrt(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    # One step of Halley's method from a root of 26 bits: accurate to 0.67 units in the last place.
    root = e.upper(e.emit("Pow", size, e.const(x, 1 / 3)))
    quotient = e.emit("Div", size, e.emit("Mul", root, root))
    step = e.emit("Div", e.emit("Sub", quotient, root), e.emit("Add", e.emit("Add", root, root), quotient))
    result = e.emit("Mul", e.emit("Sign", x), e.emit("Add", root, e.emit("Mul", root, step)))
    return e.where(e.equal(e.emit("Add", x, x), x), x, result)  # zeros and infinities are their own roots


# The gamma function


def _near_log_gamma(size: Symbol, small: Symbol) -> Symbol:
    """Return log(gamma(x)) from 1 to 8, and log(gamma(x + 1)) below 1, where `small` is true and x + 1 would round."""
    less_one = e.sub(size, 1)
    moved = e.clamp_max(e.where(small, e.add(size, 1), size), 8)
    factors = e.emit("Mul", e.where(small, size, less_one), e.where(small, less_one, e.sub(size, 2)))
    return e.emit("Mul", factors, e.polynomial(e.ratio(moved, 2.828125), _LGAMMA))


def _stirling(x: Symbol) -> Symbol:
    """Return the series of log(gamma(x)) minus Stirling's formula, for x >= 8."""
    inverse = e.emit("Reciprocal", x)
    return e.emit("Mul", inverse, e.polynomial(e.square(inverse), _STIRLING))


def _sine_of_turns(size: Symbol) -> tuple[Symbol, Symbol]:
    """Return sin(pi * x) and cos(pi * x) up to their sign, from the distance of x to the nearest integer."""
    angle = e.mul(e.emit("Sub", size, e.emit("Round", size)), math.pi)
    return e.emit("Sin", angle, accuracy="fast"), e.emit("Cos", angle, accuracy="fast")


@functools.cache
def _rows_of_zeros() -> list[Any]:
    """Return the zeros z in two parts, 1 / abs(sin), pi / tan, series of (lgamma(1 + z) - lgamma(1 + z - h)) / h."""
    exact = [Decimal(word) for word in _ZEROS.split()]
    zeros, low = np.array(exact, float), np.array([float(z - Decimal(float(z))) for z in exact])
    a = np.arange(5, len(zeros) + 5) // 2 + 1 - zeros
    b, steps = a + 10, a + np.arange(10)[:, None]
    series = [np.log(b) - 0.5 / b - np.polyval(_DIGAMMA_FAR, b**-2) / b**2 - (1 / steps).sum(0)]
    steep = math.pi / np.tan(math.pi * zeros)
    steep[:4] = -0.42674487780194525, 3.0961797453081568, -6.485818976132328, 22.221235036167986  # to the last digit
    series[0][:4] = 1.088858570219712, 1.1818295596965578, 1.2960656819990233, 1.4961741903642813
    for k in range(2, 13):  # -zeta(k, a) / k
        far = sum(c * math.comb(2 * j + k, k - 1) * b ** (-1.0 - k - 2 * j) for j, c in enumerate(_DIGAMMA_FAR[::-1]))
        series.append(-((steps**-k).sum(0) + b ** (1.0 - k) / (k - 1) + b**-k / 2 + far) / k)
    return [zeros, low, 1 / np.abs(np.sin(math.pi * zeros)), steep, *series[::-1]]


def _lgamma_near_zero(size: Symbol, sine: Symbol, other: Symbol) -> Symbol:
    """Return lgamma(-size) for sizes near zeros and below 19.4, else `other`. sine: abs(sin(pi * size))."""
    inside = e.clamp_min(size, 2)
    whole = e.emit("Floor", e.add(inside, 0.35))
    place = e.cast_within(e.sub(e.add(whole, e.emit("Floor", inside)), 4), DType.int32)
    zero, low, inverse, steep, slope, *series = extended.rows(_rows_of_zeros(), place)
    away = e.sub(e.sub(e.sub(whole, size), zero), low)
    for coefficient in series:
        slope = e.add(e.mul(slope, away), coefficient)
    bend = e.mul(e.mul(steep, away), e.polynomial(e.square(away), _SINE))
    bend = e.add(bend, e.polynomial(e.square(away), _COSINE))
    change = e.mul(away, e.add(steep, e.mul(away, bend)))  # ratio - 1 without cancellation
    ratio = e.mul(sine, inverse)
    lost = e.div(e.sub(e.sub(ratio, 1), change), e.clamp_min(ratio, 0.5))
    # lgamma(-z) = 0 = -lgamma(1 + z) - log(sin(pi * z) / pi), which is subtracted from the same of -size.
    value = e.sub(e.add(e.mul(away, slope), lost), e.emit("Log", ratio))
    return e.where(e.below(e.emit("Abs", away), 0.25), value, other)


def _lgamma(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    small, negative = e.below(size, 1), e.below(x, 0)
    large = e.clamp_min(size, 8)
    far = e.emit("Mul", e.sub(large, 0.5), e.sub(e.emit("Log", large), 1))
    far = e.emit("Add", far, e.add(_stirling(large), _HALF_LOG_2_PI - 0.5))
    body = e.where(e.below(size, 8), _near_log_gamma(size, small), far)
    # gamma(x) is gamma(x + 1) / x, and gamma(-x) is -pi / (x * sin(pi * x) * gamma(x)).
    sine = e.emit("Abs", _sine_of_turns(size)[0])
    reflected = e.mul(e.where(small, sine, e.emit("Mul", sine, size)), 1 / math.pi)
    factor = e.emit("Log", e.where(negative, reflected, e.clamp_max(size, 1)))
    result = e.where(negative, e.emit("Sub", e.emit("Neg", factor), body), e.emit("Sub", body, factor))
    result = e.where_number(e.equals(result, 0), 0, result)  # 0.0 at 1 and 2, not -0.0
    has_zeros = e.both(negative, e.below(size, 19.4))
    result = extended.where_any(has_zeros, _lgamma_near_zero, result, size, sine, result)
    return e.where_number(e.equals(size, math.inf), math.inf, result)


def _tgamma(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    small, negative, near = e.below(size, 1), e.below(x, 0), e.below(size, 8)
    large = e.clamp_max(e.clamp_min(size, 8), 185)
    # As two factors, which do not overflow before the product does.
    half = e.emit("Pow", large, e.mul(e.sub(large, 0.5), 0.5))
    root = e.mul(e.emit("Exp", _stirling(large)), math.sqrt(2 * math.pi))
    other = e.emit("Mul", e.emit("Mul", half, e.emit("Exp", e.emit("Neg", large))), root)
    first = e.where(near, _near_gamma(size, small), other)
    second = e.where_number(near, 1, half)
    direct = e.emit("Mul", e.emit("Div", first, e.clamp_max(size, 1)), second)
    whole = e.emit("Round", size)
    odd = e.emit("Sub", whole, e.mul(e.emit("Floor", e.mul(whole, 0.5)), 2))
    sine = e.emit("Mul", _sine_of_turns(size)[0], e.clamp_min(size, 1))
    sine = e.where(e.equals(odd, 1), sine, e.emit("Neg", sine))
    reflected = e.emit("Div", e.emit("Div", e.div(math.pi, sine), first), second)
    reflected = e.where_number(e.equals(sine, 0), math.nan, reflected)
    result = e.where_number(e.equals(x, 0), e.emit("Reciprocal", x), e.where(negative, reflected, direct))
    return e.where(*_factorial(x), result)


def _near_gamma(size: Symbol, small: Symbol) -> Symbol:
    """Return gamma(x) from 1 to 8, and gamma(x + 1) below 1, where `small` is true.

    From 4 on it is a product with gamma(x - 3), as the exponential of a smaller number has a smaller error.
    """
    high = e.greater(size, e.const(size, 4))
    lowered = e.sub(size, 3)
    factors = e.emit("Mul", e.emit("Mul", e.sub(size, 1), e.sub(size, 2)), lowered)
    gamma = e.emit("Exp", _near_log_gamma(e.where(high, lowered, size), small))
    return e.emit("Mul", gamma, e.where_number(high, factors, 1))


def _factorial(x: Symbol) -> tuple[Symbol, Symbol]:
    """Return a mask of integers whose gamma function float64 can hold, and its values."""
    inside = e.both(e.greater(x, e.const(x, 0.5)), e.below(x, 171.5), e.equal(e.emit("Round", x), x))
    place = e.cast_within(e.where_number(inside, x, 1), DType.int32)
    values = np.array([math.nan, *(float(math.factorial(n)) for n in range(171))])
    table = x.graph.build.constant(values, DType.float64)
    return inside, e.emit("Gather", table, place, shape=x.shape, axis=0)


# sin(x) / x up to pi / 2, in x * x; (log(1 + x) - x) / x^2; the product of x + k for k up to 16.
_SIN = [Fraction((-1) ** n, math.factorial(2 * n + 1)) for n in range(18, -1, -1)]
_LOG = [Fraction((-1) ** (n + 1), n) for n in range(16, 1, -1)]
_STEPS = functools.reduce(lambda p, k: [a + k * b for a, b in zip([*p, 0], [0, *p], strict=True)], range(1, 17), [1])


@functools.cache
def _digamma_series() -> list[Fraction]:
    """Return the coefficients of digamma far from 0, by the numbers of Bernoulli."""
    numbers = [Fraction(1)]
    for n in range(1, 37):
        numbers.append(-sum((math.comb(n + 1, k) * b for k, b in enumerate(numbers)), Fraction()) / (n + 1))
    return [-numbers[n] / n for n in range(36, 0, -2)]


def _digamma_near_zero(size: Symbol) -> Symbol:
    """Return digamma(-size) near its zeros, as (digamma(1 + size) + pi / tan(pi * size)) with 32 digits."""
    zero = e.const(size, 0)
    one, pi = (e.const(size, 1), zero), (e.const(size, math.pi), e.const(size, 1.2246467991473532e-16))
    far = e.sum_of(size, e.const(size, 16))
    inverse = extended.quotient(one, far)
    square = extended.product(inverse, inverse)
    series = extended.product(square, extended.polynomial(square, _digamma_series()))
    steps = extended.polynomial((size, zero), [Fraction(c) for c in _STEPS])
    slope = extended.polynomial((size, zero), [Fraction(c * (16 - n)) for n, c in enumerate(_STEPS[:-1])])
    last = extended.quotient(slope, steps)
    # log(far) is log(far * w) - log(w), with w near 1 / far.
    power = e.emit("Neg", e.emit("Log", far[0]))
    number, scale, away = extended.near_exp(power)
    ratio, lost = e.product_of(far[0], e.mul(number, scale))
    near = e.sum_of(e.sub(ratio, 1), e.add(lost, e.mul(far[1], e.mul(number, scale))))
    bend = extended.product(extended.product(near, near), extended.polynomial(near, _LOG))
    halves = (e.mul(part, 0.5) for part in inverse)
    terms = (*away, *near, *bend, *halves, *series, *(e.emit("Neg", part) for part in last))
    high, middle, low = extended.total(e.emit("Neg", power), *terms)
    turn = e.sub(size, e.emit("Round", size))
    sine, cosine = (_sine_of_pi((s, zero), pi) for s in (turn, e.sub(0.5, e.emit("Abs", turn))))
    terms = extended.product((high, e.add(middle, low)), sine)
    high, middle, low = extended.total(*terms, *extended.product(pi, cosine))
    return e.emit("Div", e.add(high, e.add(middle, low)), sine[0])


def _sine_of_pi(x: extended.Pair, pi: extended.Pair) -> extended.Pair:
    angle = extended.product(x, pi)
    return extended.product(angle, extended.polynomial(extended.product(angle, angle), _SIN))


def _digamma(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    small, negative = e.below(size, 1), e.below(x, 0)
    moved = e.where(small, e.add(size, 1), size)
    away = e.sub(e.sub(moved, _DIGAMMA_ROOT), _DIGAMMA_ROOT_LOW)
    near = e.emit("Mul", away, e.polynomial(e.ratio(e.clamp_max(moved, 10), 3.125), _DIGAMMA))
    large = e.clamp_min(size, 10)
    inverse = e.emit("Reciprocal", large)
    square = e.square(inverse)
    far = e.emit("Sub", e.emit("Log", large), e.mul(inverse, 0.5))
    far = e.emit("Sub", far, e.emit("Mul", square, e.polynomial(square, _DIGAMMA_FAR)))
    body = e.where(e.below(size, 10), near, far)
    # digamma(x) is digamma(x + 1) - 1 / x, and digamma(-x) is digamma(x) + 1 / x + pi / tan(pi * x).
    reciprocal = e.emit("Reciprocal", size)
    sine, cosine = _sine_of_turns(size)
    turned = e.mul(e.emit("Div", cosine, sine), math.pi)
    reflected = e.emit("Add", e.emit("Add", body, e.where_number(small, 0, reciprocal)), turned)
    near = e.both(negative, e.less(e.emit("Abs", reflected), e.add(e.mul(e.emit("Abs", body), 0.75), 0.75)))
    reflected = extended.where_any(near, _digamma_near_zero, reflected, size)
    reflected = e.where_number(e.equals(sine, 0), math.nan, reflected)
    direct = e.emit("Sub", body, e.where_number(small, reciprocal, 0))
    return e.where(e.equals(x, 0), e.emit("Neg", e.emit("Reciprocal", x)), e.where(negative, reflected, direct))


cbrt = _function("cbrt", "Cbrt", "The cube root, negative for negative numbers. C's and NumPy's cbrt.", _cbrt)
rcbrt = _function("rcbrt", "ReciprocalCbrt", "1 / cbrt(x). CUDA's rcbrt.", lambda x: e.emit("Reciprocal", _cbrt(x)))
exp10 = _function(
    "exp10", "Exp10", "10 to the power of x.", lambda x: e.emit("Pow", e.const(x, 10.0), x), has_fast_form=True
)
lgamma = _function("lgamma", "Lgamma", "The logarithm of the magnitude of the gamma function. C's lgamma.", _lgamma)
tgamma = _function("tgamma", "Tgamma", "The gamma function; NaN for negative integers. C's tgamma.", _tgamma)
digamma = _function(
    "digamma",
    "Digamma",
    "The derivative of log(gamma(x)); NaN for negative integers. SciPy's digamma.",
    _digamma,
)


# Error functions, and the distribution function of normal numbers

# (1 / (exp(x * x) * erfc(x)) - 1) / 2x, k = 2.5.
_ERFCX = (
    -1.4150119642087755e-09, -1.2648813929212715e-09, 1.6540132124872013e-08, 1.267411127510999e-08,
    -1.0559266920213942e-07, -7.088051042767568e-08, 5.051354694345264e-07, 3.1592156992694014e-07,
    -2.0589977917459733e-06, -1.2687461946369642e-06, 7.613449754745501e-06, 4.629423432259163e-06,
    -2.648015102112463e-05, -1.4859011876138154e-05, 8.885300274736516e-05, 3.929327182872229e-05,
    -0.0002928920483850554, -6.614022691888039e-05, 0.0009585159925348583, -0.00011035308969145655,
    -0.0031215558989138533, 0.0020131845554225113, 0.010049298096599654, -0.01637823255350631, -0.031191414588553918,
    0.1755321608797154, 0.7487379609753658,
)  # fmt: skip
# erf(x) / x up to 0.5, in x * x.
ERF = (
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


def _gauss(x: Symbol, factor: float) -> tuple[Symbol, Symbol]:
    """Return two factors of exp(-factor * x * x), of which only the second makes it subnormal.

    They have the digits that the square rounds off. factor: a power of two.
    """
    high = e.upper(x)
    rest = e.emit("Mul", e.emit("Sub", high, x), e.mul(e.emit("Add", x, high), factor))
    rest = e.polynomial(rest, (1 / 6, 0.5, 1.0, 0.0))
    return e.exp_factors(e.mul(e.square(high), -factor), rest)


def _scaled(x: Symbol) -> Symbol:
    """Return exp(x * x) * erfc(x) for x >= 0."""
    slope = e.polynomial(e.ratio(e.clamp_max(x, 1e300), 2.5), _ERFCX)
    return e.div(0.5, e.add(e.emit("Mul", x, slope), 0.5))


def scaled_erfc(x: Symbol) -> Symbol:
    """Return erfc(x) from 0 to 28."""
    power, scale = _gauss(x, 1.0)
    return e.emit("Mul", e.emit("Mul", _scaled(x), power), scale)


def _erfc(x: Symbol) -> Symbol:
    far = scaled_erfc(e.clamp_max(e.emit("Abs", x), 28.0))
    return e.where(e.below(x, 0), e.emit("Sub", e.const(x, 2), far), far)


def _erfinv(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    rest = e.emit("Sub", e.const(x, 1), size)
    root = e.emit("Sqrt", e.emit("Neg", e.emit("Log", rest)))  # NaN above 1
    tail = e.emit("Mul", root, e.polynomial(e.ratio(root, 1.5), _ERFINV_TAIL))
    tail = e.where_number(e.equals(rest, 0), math.inf, tail)
    near = e.emit("Mul", x, e.polynomial(e.square(x), _ERFINV))
    return e.where(e.below(size, 0.5), near, e.emit("Mul", e.emit("Sign", x), tail))


def _erfcx(x: Symbol) -> Symbol:
    size = e.emit("Abs", x)
    power, scale = _gauss(e.clamp_max(size, 28.0), 1.0)
    scaled = _scaled(size)
    growth = e.emit("Div", e.div(2.0, power), scale)
    return e.where(e.below(x, 0), e.emit("Sub", growth, scaled), scaled)


def _erfcinv(x: Symbol) -> Symbol:
    one = e.const(x, 1)
    away = e.emit("Sub", one, x)
    near = e.emit("Mul", away, e.polynomial(e.square(away), _ERFINV))
    tail = e.emit("Min", x, e.emit("Sub", e.const(x, 2), x))
    # Some kernels have no logarithms of subnormal numbers.
    small = e.below(tail, 2.0**-1000)
    log = e.emit("Log", e.where(small, e.mul(tail, 2.0**60), tail))
    log = e.emit("Sub", log, e.where(small, e.const(x, 60 * math.log(2)), e.const(x, 0)))
    root = e.emit("Sqrt", e.emit("Neg", log))  # NaN outside of 0 to 2
    low, high = e.clamp_max(root, 6.0), e.clamp_max(e.clamp_min(root, 5.5), 27.4)
    lower = e.polynomial(e.ratio(low, 1.5), _ERFINV_TAIL)
    upper = e.polynomial(e.ratio(high, 12.0), _ERFCINV_FAR)
    size = e.emit("Mul", root, e.where(e.below(root, 6.0), lower, upper))
    far = e.where(e.greater(x, one), e.emit("Neg", size), size)
    return e.where(e.below(e.emit("Abs", away), 0.5), near, far)


# _ERFCX * sqrt(0.5), k = 2.5 * sqrt(2). The last but one is rounded so that the sum is right for large numbers.
_NORMAL = (*(c * math.sqrt(0.5) for c in _ERFCX[:-2]), 0.12411998127437483, 0.5294376895374697)


def normal_tail(size: Symbol, share: Symbol) -> Symbol:
    """Return 4 * share * max(size, 1) * normcdf(-size) for sizes up to 1e10."""
    power, scale = _gauss(size, 0.5)
    slope = e.polynomial(e.ratio(size, 3.5355339059327378), _NORMAL)
    below = e.add(e.mul(e.clamp_max(size, 1.0), slope), e.div(0.5, e.clamp_min(size, 1.0)))
    return e.mul(e.mul(e.emit("Div", share, below), power), scale)


def _normcdf(x: Symbol) -> Symbol:
    size = e.clamp_max(e.emit("Abs", x), 1e10)
    tail = normal_tail(size, e.div(0.25, e.clamp_min(size, 1.0)))
    return e.where(e.below(x, 0), tail, e.sub(1.0, tail))


def _normcdfinv(x: Symbol) -> Symbol:
    upper = e.mul(_erfcinv(e.emit("Add", x, x)), math.sqrt(2))
    return e.emit("Sub", e.const(x, 0), upper)  # 0.0 for 0.5, not -0.0


erfc = _function("erfc", "Erfc", "1 - erf(x), accurate where it is small. C's erfc.", _erfc)
erfinv = _function("erfinv", "Erfinv", "The number whose error function is x; NaN outside -1 to 1.", _erfinv)
erfcx = _function("erfcx", "Erfcx", "exp(x * x) * erfc(x), which does not underflow. CUDA's and SciPy's erfcx.", _erfcx)
erfcinv = _function(
    "erfcinv", "Erfcinv", "The number whose erfc is x; NaN outside 0 to 2. CUDA's and SciPy's.", _erfcinv
)
normcdf = _function(
    "normcdf",
    "NormCdf",
    "The distribution function of normal numbers, from 0 to 1. CUDA's; SciPy's ndtr.",
    _normcdf,
)
normcdfinv = _function(
    "normcdfinv",
    "NormCdfInverse",
    "The inverse of normcdf: the number below which normal numbers are with probability x. CUDA's; SciPy's ndtri.",
    _normcdfinv,
)
