"""Functions of float64 for which onnxruntime has no kernel, exact to 1e-12, also near 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder
from graphcore.types.dtypes import DType

F64 = DType.float64


def _c(b: Builder, value: float) -> Symbol:
    return b.scalar(float(value), F64)


def _where(b: Builder, condition: Symbol, x: Symbol, y: Symbol) -> Symbol:
    return b.native("Where", condition, x, y, dtype=F64)


def _greater(b: Builder, x: Symbol, bound: float) -> Symbol:
    return b.native("Greater", x, _c(b, bound), dtype=DType.bool)


# pi / 2 in three parts, the first two of 33 bits: their products with integers up to 2^20 are exact.
_QUARTER = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_MAX_REDUCED = 1.6e6


def _tan(b: Builder, x: Symbol) -> Symbol:
    """Compute the tangent of x less k pi / 2, the nearest multiple; for odd k the result is -1 divided by that.

    Near a pole the sine and the cosine of x lose the relevant digits. Beyond 2^20 quarters x is not reduced.
    """
    k = b.native("Round", b.native("Mul", x, _c(b, 2 / math.pi)))
    near = b.native("Less", b.native("Abs", x), _c(b, _MAX_REDUCED), dtype=DType.bool)
    k = _where(b, near, k, _c(b, 0.0))
    rest = x
    for part in _QUARTER:
        rest = b.native("Sub", rest, b.native("Mul", k, _c(b, part)))
    tangent = b.native("Div", b.op("Sin", rest), b.op("Cos", rest))
    half = b.native("Mul", k, _c(b, 0.5))
    is_even = b.native("Equal", half, b.native("Floor", half), dtype=DType.bool)
    return _where(b, is_even, tangent, b.native("Div", _c(b, -1.0), tangent))


def _halves(b: Builder, x: Symbol) -> tuple[Symbol, Symbol]:
    """Return exp(|x|) / 2 and exp(-|x|) / 2; the first overflows only if its own value does."""
    size = b.native("Abs", x)
    root = b.native("Exp", b.native("Mul", size, _c(b, 0.5)))
    large = b.native("Mul", b.native("Mul", root, _c(b, 0.5)), root)
    return large, b.native("Mul", b.native("Exp", b.native("Neg", size)), _c(b, 0.5))


def _near(b: Builder, x: Symbol, coefficients: Sequence[float], far: Symbol) -> Symbol:
    """Return x P(x * x) where |x| < 0.5, by the coefficients of P, highest power first; else `far`."""
    near = b.native("Mul", x, _polynomial(b, b.native("Mul", x, x), coefficients))
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


def _cosh(b: Builder, x: Symbol) -> Symbol:
    large, small = _halves(b, x)
    return b.native("Add", large, small)


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
    safe = _where(b, huge, _c(b, 1.0), x)
    one = _c(b, 1.0)
    root = b.native("Mul", b.native("Sqrt", b.native("Sub", safe, one)), b.native("Sqrt", b.native("Add", safe, one)))
    plain = b.native("Log", b.native("Add", safe, root))
    return _where(b, huge, b.native("Add", b.native("Log", x), _c(b, _LOG_2)), plain)


def _atanh(b: Builder, x: Symbol) -> Symbol:
    one = _c(b, 1.0)
    ratio = b.native("Div", b.native("Add", one, x), b.native("Sub", one, x))
    is_near = b.native("Less", b.native("Abs", x), _c(b, 0.5), dtype=DType.bool)
    safe = _where(b, is_near, x, _c(b, 0.0))
    near = _log1p(b, b.native("Div", b.native("Add", safe, safe), b.native("Sub", one, safe)))
    return b.native("Mul", _where(b, is_near, near, b.native("Log", ratio)), _c(b, 0.5))


# atan(x) = x + x * z * P(z) / Q(z) with z = x * x, for |x| < 0.66: the rational approximation of the Cephes library.
_P = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
      -1.228866684490136173410e2, -6.485021904942025371773e1)  # fmt: skip
_Q = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
      4.853903996359136964868e2, 1.945506571482613964425e2)  # fmt: skip


def _polynomial(b: Builder, x: Symbol, coefficients: Sequence[float]) -> Symbol:
    """Return the polynomial by Horner's rule, highest power first."""
    result = _c(b, coefficients[0])
    for coefficient in coefficients[1:]:
        result = b.native("Add", b.native("Mul", result, x), _c(b, coefficient))
    return result


def _atan(b: Builder, x: Symbol) -> Symbol:
    size = b.native("Abs", x)
    far, middle = _greater(b, size, 2.414213562373095), _greater(b, size, 0.66)
    one = _c(b, 1.0)
    ratio = b.native("Div", b.native("Sub", size, one), b.native("Add", size, one))
    inverse = b.native("Neg", b.native("Reciprocal", size))
    reduced = _where(b, far, inverse, _where(b, middle, ratio, size))
    turn = _where(b, far, _c(b, 1.5707963267948966), _where(b, middle, _c(b, 0.7853981633974483), _c(b, 0.0)))
    z = b.native("Mul", reduced, reduced)
    rational = b.native("Div", _polynomial(b, z, _P), _polynomial(b, z, _Q))
    result = b.native("Add", b.native("Mul", b.native("Mul", reduced, z), rational), reduced)
    result = b.native("Add", turn, result)
    return b.native("Mul", result, b.native("Sign", x))


def _asin(b: Builder, x: Symbol) -> Symbol:
    one = _c(b, 1.0)
    rest = b.native("Sqrt", b.native("Mul", b.native("Sub", one, x), b.native("Add", one, x)))
    return _atan(b, b.native("Div", x, rest))


def _acos(b: Builder, x: Symbol) -> Symbol:
    return b.native("Sub", _c(b, 1.5707963267948966), _asin(b, x))


# exp(x * x) * erfc(x) for 0 <= x <= 6.5 as a polynomial in t = (x - 2.5) / (x + 2.5), highest power first:
# interpolated at Chebyshev points, within 4e-15 after multiplication by exp(-x * x).
_ERFCX = (
    -2.6955360884997023e-07, -1.440827744441214e-06, -2.945851672282603e-06, -2.395858694643555e-06,
    4.893729225371838e-07, 1.8266758265937993e-06, -8.834756771236408e-07, -2.5864167160485752e-06,
    7.173228566184364e-06, 1.8585690378673834e-05, -3.4116045798279445e-05, -0.0001288627368396443,
    0.0002283744674395808, 0.0008759136747564525, -0.0026423656886868196, -0.00399370106966424,
    0.03992253906919074, -0.1250330523810065, 0.2517131932175144, -0.37173673394895973,
    0.2108063640611435,
)  # fmt: skip


# The Taylor series of erf(x) / x in x * x; the next term is below 1e-17 for |x| < 0.5.
_ERF = [2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(12, -1, -1)]


def _erf(b: Builder, x: Symbol) -> Symbol:
    size = b.native("Min", b.native("Abs", x), _c(b, 6.5))
    t = b.native("Div", b.native("Sub", size, _c(b, 2.5)), b.native("Add", size, _c(b, 2.5)))
    tail = b.native("Exp", b.native("Neg", b.native("Mul", size, size)))
    rest = b.native("Mul", tail, _polynomial(b, t, _ERFCX))
    far = b.native("Mul", b.native("Sub", _c(b, 1.0), rest), b.native("Sign", x))
    return _near(b, x, _ERF, far)


def _softplus(b: Builder, x: Symbol) -> Symbol:
    tail = b.native("Exp", b.native("Neg", b.native("Abs", x)))
    return b.native("Add", b.native("Max", x, _c(b, 0.0)), _log1p(b, tail))


def _odd(function: Callable[[Builder, Symbol], Symbol]) -> Callable[[Builder, Symbol], Symbol]:
    """Return a function that keeps a zero argument with its sign."""

    def function_with_sign(b: Builder, x: Symbol) -> Symbol:
        is_zero = b.native("Equal", x, _c(b, 0.0), dtype=DType.bool)
        return b.op("Where", is_zero, x, function(b, x), dtype=F64)  # the function itself may turn -0.0 into 0.0

    return function_with_sign


FUNCTIONS: dict[str, Callable[..., Symbol]] = {
    "Tan": _odd(_tan),
    "Sinh": _odd(_sinh),
    "Cosh": _cosh,
    "Asinh": _odd(_asinh),
    "Acosh": _acosh,
    "Atan": _odd(_atan),
    "Asin": _odd(_asin),
    "Acos": _acos,
    "Atanh": _odd(_atanh),
    "Erf": _odd(_erf),
    "Softplus": _softplus,
}
"""ONNX operator -> its float64 decomposition."""
