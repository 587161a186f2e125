"""Ops on the parts of floats, and what C's mathematical functions make of two of them."""

from __future__ import annotations

import math

import numpy as np

from graphcore import DType, ops
from graphcore.build.declare import REGISTRY
from tests.support import reference
from tests.support.every.case import Array, Case, Operand, operands, real, smallest_float, truth
from tests.support.every.numbers import ONE, PAIR, same, wide
from tests.support.special_functions import NORMAL

D = DType
_nearest = np.vectorize(
    lambda x, y: math.nan if math.isnan(x + y) or math.isinf(x) or not y else math.remainder(x, y), otypes=[float]
)


def neighbour(dtype: DType, x: Array, y: Array) -> Array:
    """The next value of the float in which both are held."""
    target = smallest_float(dtype)
    a, b = (reference.cast(v, dtype, target) for v in (x, y))
    if target is not D.tensor_float32:
        return np.where(a == b, b, np.nextafter(a, b))
    unit = np.int32(1 << 13)
    away = (b > a) == (a > 0)
    stepped = (a.view(np.int32) + np.where(away, unit, -unit)).view(np.float32)
    stepped = np.where(a == 0, np.copysign(unit.view(np.float32), b), stepped)
    return np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), np.where(a == b, b, stepped))


def parts_of(x: Array) -> tuple[Array, Array]:
    mantissa, count = np.frexp(x)
    return mantissa, np.where(np.isfinite(x), count, 0)


def exponent(x: Array) -> Array:
    whole = np.frexp(x)[1] - 1
    return np.where(x == 0, -np.inf, np.where(np.isfinite(x), whole, x * x))


def steps(dtype: DType) -> Array:
    return np.array([0, 1, -1, 3, -3, 12, -12, 100, -100, 3000, -3000, 1, 2, 3, 4, 5, 6, 7, 8, -140], np.int32).reshape(
        5, 4
    )


def above(x: Array, y: Array) -> Array:
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0))


def half_away(x: Array) -> Array:
    whole = np.floor(np.abs(x))
    return np.copysign(np.where(np.abs(x) - whole >= 0.5, whole + 1, whole), x)


CASES: dict[str, Case] = {
    "round_half_away": same("round_half_away", half_away),
    "signbit": truth(ONE, ops.signbit, lambda x: np.signbit(x.astype(np.longdouble))),
    "copysign": real(PAIR, ops.copysign, np.copysign, near=False),
    "nextafter": Case(operands(*PAIR), ops.nextafter, neighbour, smallest_float),
    "frexp": real(ONE, lambda x: [part.cast(ops.frexp(x)[0].dtype) for part in ops.frexp(x)], parts_of, near=False),
    "ldexp": real(
        ["n 4", Operand("n 4", steps, D.int32)], ops.ldexp, lambda x, k: np.ldexp(x, k.astype(np.int64)), near=False
    ),
    "logb": real(ONE, ops.logb, exponent, near=False),
    "hypot": real(PAIR, ops.hypot, np.hypot),
    "rhypot": real(PAIR, ops.rhypot, lambda x, y: 1 / np.hypot(x, y)),
    "ieee_remainder": real(PAIR, ops.ieee_remainder, wide(_nearest), near=False),
    "fdim": real(PAIR, ops.fdim, above),
    "heaviside": real(PAIR, ops.heaviside, np.heaviside, near=False),
    "logaddexp": real(PAIR, ops.logaddexp, np.logaddexp),
    **{name: real(["n 8: tame"], REGISTRY[name].function, wide(formula)) for name, formula in NORMAL.items()},
}
