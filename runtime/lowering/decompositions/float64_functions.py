"""float64 functions that onnxruntime has no kernel for, to 1e-12."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

F64 = DType.float64


def _c(on: Legaliser, value: float) -> Symbol:
    return on.const(float(value), F64)


def _where(on: Legaliser, condition: Symbol, x: Symbol, y: Symbol) -> Symbol:
    return on.native("Where", condition, x, y, dtype=F64)


def _greater(on: Legaliser, x: Symbol, bound: float) -> Symbol:
    return on.native("Greater", x, _c(on, bound), dtype=DType.bool)


def _tan(on: Legaliser, x: Symbol) -> Symbol:
    return on.native("Div", on.op("Sin", x), on.op("Cos", x))


def _halves(on: Legaliser, x: Symbol) -> tuple[Symbol, Symbol]:
    """exp(|x|) / 2 and exp(-|x|) / 2, the first without overflow while its own value has none."""
    size = on.native("Abs", x)
    root = on.native("Exp", on.native("Mul", size, _c(on, 0.5)))
    large = on.native("Mul", on.native("Mul", root, _c(on, 0.5)), root)
    return large, on.native("Mul", on.native("Exp", on.native("Neg", size)), _c(on, 0.5))


def _sinh(on: Legaliser, x: Symbol) -> Symbol:
    large, small = _halves(on, x)
    return on.native("Mul", on.native("Sign", x), on.native("Sub", large, small))


def _cosh(on: Legaliser, x: Symbol) -> Symbol:
    large, small = _halves(on, x)
    return on.native("Add", large, small)


_LOG_2 = 0.6931471805599453


def _asinh(on: Legaliser, x: Symbol) -> Symbol:
    size = on.native("Abs", x)
    huge = _greater(on, size, 1e150)
    held = _where(on, huge, _c(on, 1.0), size)
    root = on.native("Sqrt", on.native("Add", on.native("Mul", held, held), _c(on, 1.0)))
    plain = on.native("Log", on.native("Add", held, root))
    far = on.native("Add", on.native("Log", size), _c(on, _LOG_2))
    return on.native("Mul", on.native("Sign", x), _where(on, huge, far, plain))


def _acosh(on: Legaliser, x: Symbol) -> Symbol:
    huge = _greater(on, x, 1e150)
    held = _where(on, huge, _c(on, 1.0), x)
    one = _c(on, 1.0)
    root = on.native(
        "Mul", on.native("Sqrt", on.native("Sub", held, one)), on.native("Sqrt", on.native("Add", held, one))
    )
    plain = on.native("Log", on.native("Add", held, root))
    return _where(on, huge, on.native("Add", on.native("Log", x), _c(on, _LOG_2)), plain)


def _atanh(on: Legaliser, x: Symbol) -> Symbol:
    one = _c(on, 1.0)
    ratio = on.native("Div", on.native("Add", one, x), on.native("Sub", one, x))
    return on.native("Mul", on.native("Log", ratio), _c(on, 0.5))


# atan(x) = x + x * z * P(z) / Q(z) with z = x * x, for |x| < 0.66: the rational approximation of the Cephes library.
_P = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
      -1.228866684490136173410e2, -6.485021904942025371773e1)  # fmt: skip
_Q = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
      4.853903996359136964868e2, 1.945506571482613964425e2)  # fmt: skip


def _polynomial(on: Legaliser, x: Symbol, coefficients: tuple[float, ...]) -> Symbol:
    """By Horner's rule, the highest power first."""
    made = _c(on, coefficients[0])
    for coefficient in coefficients[1:]:
        made = on.native("Add", on.native("Mul", made, x), _c(on, coefficient))
    return made


def _atan(on: Legaliser, x: Symbol) -> Symbol:
    size = on.native("Abs", x)
    far, middle = _greater(on, size, 2.414213562373095), _greater(on, size, 0.66)
    one = _c(on, 1.0)
    ratio = on.native("Div", on.native("Sub", size, one), on.native("Add", size, one))
    inverse = on.native("Neg", on.native("Reciprocal", size))
    reduced = _where(on, far, inverse, _where(on, middle, ratio, size))
    turn = _where(on, far, _c(on, 1.5707963267948966), _where(on, middle, _c(on, 0.7853981633974483), _c(on, 0.0)))
    z = on.native("Mul", reduced, reduced)
    rational = on.native("Div", _polynomial(on, z, _P), _polynomial(on, z, _Q))
    made = on.native("Add", on.native("Mul", on.native("Mul", reduced, z), rational), reduced)
    made = on.native("Add", turn, made)
    return on.native("Mul", made, on.native("Sign", x))


def _asin(on: Legaliser, x: Symbol) -> Symbol:
    one = _c(on, 1.0)
    rest = on.native("Sqrt", on.native("Mul", on.native("Sub", one, x), on.native("Add", one, x)))
    return _atan(on, on.native("Div", x, rest))


def _acos(on: Legaliser, x: Symbol) -> Symbol:
    return on.native("Sub", _c(on, 1.5707963267948966), _asin(on, x))


# exp(x * x) * erfc(x) for 0 <= x <= 6.5 as a polynomial in t = (x - 2.5) / (x + 2.5), the highest power first:
# interpolated at Chebyshev points, within 4e-15 once it is multiplied by exp(-x * x).
_ERFCX = (
    -2.6955360884997023e-07, -1.440827744441214e-06, -2.945851672282603e-06, -2.395858694643555e-06,
    4.893729225371838e-07, 1.8266758265937993e-06, -8.834756771236408e-07, -2.5864167160485752e-06,
    7.173228566184364e-06, 1.8585690378673834e-05, -3.4116045798279445e-05, -0.0001288627368396443,
    0.0002283744674395808, 0.0008759136747564525, -0.0026423656886868196, -0.00399370106966424,
    0.03992253906919074, -0.1250330523810065, 0.2517131932175144, -0.37173673394895973,
    0.2108063640611435,
)  # fmt: skip


def _erf(on: Legaliser, x: Symbol) -> Symbol:
    size = on.native("Min", on.native("Abs", x), _c(on, 6.5))
    t = on.native("Div", on.native("Sub", size, _c(on, 2.5)), on.native("Add", size, _c(on, 2.5)))
    tail = on.native("Exp", on.native("Neg", on.native("Mul", size, size)))
    rest = on.native("Mul", tail, _polynomial(on, t, _ERFCX))
    return on.native("Mul", on.native("Sub", _c(on, 1.0), rest), on.native("Sign", x))


def _softplus(on: Legaliser, x: Symbol) -> Symbol:
    tail = on.native("Exp", on.native("Neg", on.native("Abs", x)))
    return on.native("Add", on.native("Max", x, _c(on, 0.0)), on.native("Log", on.native("Add", tail, _c(on, 1.0))))


def _odd(function: Callable[[Legaliser, Symbol], Symbol]) -> Callable[[Legaliser, Symbol], Symbol]:
    """A function that is 0 at 0, with the sign of its argument there."""

    def made(on: Legaliser, x: Symbol) -> Symbol:
        is_zero = on.native("Equal", x, _c(on, 0.0), dtype=DType.bool)
        return on.op("Where", is_zero, x, function(on, x), dtype=F64)  # the plain kernel makes 0.0 of -0.0

    return made


FUNCTIONS: dict[str, Callable[..., Symbol]] = {
    "Tan": _tan,
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
"""ONNX operator -> its float64 detour."""
