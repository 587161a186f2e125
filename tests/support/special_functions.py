"""References of special functions in Python floats and extended floats, right to 1e-13, without SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Apply a function of Python floats to each element; overflow gives infinity, and no value NaN."""

    def made(x: float) -> float:
        try:
            return x if math.isnan(x) else function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return np.vectorize(made, otypes=[np.float64])


def _lgamma(x: float) -> float:
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def _tgamma(x: float) -> float:
    if not x:
        return math.copysign(math.inf, x)
    return math.gamma(x)


def _erfinv(x: float) -> float:
    if abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    if abs(x) < 1e-4:
        return x * math.sqrt(math.pi) / 2 * (1 + math.pi * x * x / 12)
    guess = math.copysign(NormalDist().inv_cdf((1 - abs(x)) / 2) / -math.sqrt(2), x)
    # Newton's step, in the function that is accurate there.
    wrong = math.erf(guess) - x if abs(x) < 0.5 else math.copysign((1 - abs(x)) - math.erfc(abs(guess)), x)
    return guess - wrong * math.sqrt(math.pi) / 2 * math.exp(guess * guess)


def _digamma(x: float) -> float:
    if not x:
        return -math.copysign(math.inf, x)
    if math.isinf(x):
        return x if x > 0 else math.nan
    if x < 0:
        if x == math.floor(x):
            return math.nan
        return _digamma(-x) - 1 / x - math.pi / math.tan(math.pi * (x - round(x)))
    lowered = 0.0
    while x < 25:
        lowered += 1 / x
        x += 1
    z = 1 / (x * x)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132)))))
    return math.log(x) - 0.5 / x - series - lowered


SPECIAL: dict[str, Callable[[Array], Array]] = {
    "cbrt": np.cbrt,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "exp10": lambda x: np.power(10.0, x),
    "erfc": _each(math.erfc),
    "erfinv": _each(_erfinv),
    "lgamma": _each(_lgamma),
    "tgamma": _each(_tgamma),
    "digamma": _each(_digamma),
}
"""In float64."""


def _erfcx(x: float) -> float:
    if x < 25:
        return math.exp(x * x) * math.erfc(x)
    if math.isinf(x):
        return 0.0
    z = 1 / (2 * x * x)
    return (1 - z * (1 - 3 * z * (1 - 5 * z * (1 - 7 * z)))) / (x * math.sqrt(math.pi))


def _normcdfinv(x: float) -> float:
    if not 0 < x < 1:
        return -math.inf if x == 0 else math.inf if x == 1 else math.nan
    return NormalDist().inv_cdf(x)


def _erfcinv(x: float) -> float:
    upper = min(x, 2 - x) / 2
    if upper < 0:
        return math.nan
    size = -_normcdfinv(upper) / math.sqrt(2) if x != 1 else 0.0
    if 0.5 < x < 1.5:
        return _erfinv(1 - x)
    return math.copysign(size, 1 - x)


NORMAL: dict[str, Callable[[Array], Array]] = {
    "erfcx": _each(_erfcx),
    "erfcinv": _each(_erfcinv),
    "normcdf": _each(lambda x: math.erfc(-x / math.sqrt(2)) / 2),
    "normcdfinv": _each(_normcdfinv),
}
"""The error functions, in float64."""
