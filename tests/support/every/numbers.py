"""Ops that compute element by element, on the parts of floats, and on bits."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from graphcore import DType, Symbol, ops
from graphcore.build.declare import REGISTRY
from graphcore.types.dtypes import complex_of
from tests.ops.test_activation import ELEMENTWISE as ACTIVATIONS
from tests.ops.test_elementwise import REAL
from tests.support import reference
from tests.support.every.case import (
    BOOL,
    FLOATS,
    NONE,
    Array,
    Case,
    Operand,
    back,
    double_of_integers,
    exact,
    moved,
    operands,
    own,
    real,
    smallest_float,
    to_bool,
    truth,
)
from tests.support.reference import NORMAL, SPECIAL

D = DType
PAIR = ("n 4", "n 4")
ONE = ("n 4",)


def arithmetic(name: str, symbol: str, refused: frozenset[DType] = NONE) -> Case:
    """One of + - * // % ** and the extremes, by `reference.arithmetic`."""

    def want(dtype: DType, x: Array, y: Array) -> Array:
        return reference.arithmetic(symbol, x, y, dtype).reshape(x.shape).astype(x.dtype)

    return Case(operands(*PAIR), REGISTRY[name].function, want, own, refused, near=symbol == "**")


def same(name: str, formula: Callable[[Array], Any], refused: frozenset[DType] = NONE) -> Case:
    """Computed in the dtype itself: floats in float32, integers exactly."""

    def want(dtype: DType, x: Array) -> Array:
        if dtype is D.bool or (not dtype.is_float and name in ("floor", "ceil", "round", "round_half_away", "trunc")):
            return x
        if dtype.is_float:
            return reference._float(formula, dtype, x)
        return reference.wrapped([formula(np.asarray(int(v), object)) for v in x.ravel()], dtype).reshape(x.shape)

    return Case(operands(*ONE), REGISTRY[name].function, want, own, refused)


def of_parts(dtype: DType, x: Array, y: Array) -> Array:
    """Complex numbers of their parts, each rounded to the float of a real function."""
    whole = complex_of(smallest_float(dtype))
    array = np.empty(x.shape, whole.numpy)
    array.real, array.imag = (back(exact(part), smallest_float(dtype)) for part in (x, y))
    return array


def shift(name: str, symbol: str) -> Case:
    def want(dtype: DType, x: Array, count: Array) -> Array:
        return reference.shift(symbol, x, count, dtype).reshape(x.shape)

    return Case(operands(*PAIR), REGISTRY[name].function, want, own, FLOATS | BOOL)


def bitwise(name: str, formula: Callable[..., Any]) -> Case:
    def want(dtype: DType, *x: Array) -> Array:
        if dtype is D.bool:
            return np.asarray(formula(*x)) if name != "bitwise_not" else ~x[0]
        return reference.wrapped(formula(*map(exact, x)), dtype)

    return Case(operands(*(ONE if name == "bitwise_not" else PAIR)), REGISTRY[name].function, want, own, FLOATS)


def quotient(dtype: DType, x: Array, y: Array) -> Array:
    target = double_of_integers(dtype)
    return reference._float(np.divide, target, reference.cast(x, dtype, target), reference.cast(y, dtype, target))


def both(dtype: DType, x: Array, y: Array) -> list[Array]:
    return [reference.arithmetic(symbol, x, y, dtype).reshape(x.shape).astype(x.dtype) for symbol in ("//", "%")]


def remainder(dtype: DType, x: Array, y: Array) -> Array:
    """The remainder of the truncated quotient, which is exact."""
    if dtype is D.bool:
        return np.zeros_like(x)
    if dtype.is_float:
        return reference._float(np.fmod, dtype, x, y)
    pairs = zip(exact(x).ravel(), exact(y).ravel(), strict=True)
    results = [a - b * int(Fraction(a, b)) if b else 0 for a, b in ((int(a), int(b)) for a, b in pairs)]
    return reference.wrapped(results, dtype).reshape(x.shape)


def fused(dtype: DType, x: Array, y: Array, z: Array) -> Array:
    """x * y + z of exact fractions, rounded once; float64 rounds the product too."""
    if dtype is D.bool:
        return np.asarray((x & y) | z)
    if not dtype.is_float:
        return reference.wrapped(exact(x) * exact(y) + exact(z), dtype)
    if dtype is D.float64:
        return np.asarray(x * y + z)
    sums = [_odd(*parts) for parts in zip(*(v.astype(np.float64).ravel() for v in (x, y, z)), strict=True)]
    return reference.rounded(np.array(sums, np.longdouble).reshape(x.shape), dtype)


def _odd(x: float, y: float, z: float) -> np.longdouble:
    """x * y + z in an extended float whose last bit says whether anything was lost."""
    plain = np.longdouble(x) * np.longdouble(y) + np.longdouble(z)
    if not np.isfinite(plain):
        return plain
    true = Fraction(x) * Fraction(y) + Fraction(z)
    if true == Fraction(*plain.as_integer_ratio()):
        return plain
    below = Fraction(*plain.as_integer_ratio()) < true
    other = np.nextafter(plain, np.longdouble(np.inf if below else -np.inf))
    return plain if int(np.abs(np.frexp(plain)[0]) * np.longdouble(2) ** 64) % 2 else other


def compared(name: str, symbol: str) -> Case:
    return Case(operands(*PAIR), REGISTRY[name].function, lambda dtype, x, y: reference.compare(symbol, x, y), to_bool)


def clipped(dtype: DType, x: Array, low: Array, high: Array) -> Array:
    if dtype is D.bool:
        return np.asarray((x | low) & high)
    wide = (v.astype(np.float32) if dtype.is_float and dtype.bits < 32 else v for v in (x, low, high))
    value, least, greatest = wide
    return np.minimum(np.maximum(value, least), greatest).astype(x.dtype)


def positive_part(dtype: DType, x: Array) -> Array:
    return np.where(x < 0, np.zeros((), x.dtype), x)


def wide(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula of float64, which is enough for what is not compared beyond 1e-12."""
    return lambda *x: formula(*(v.astype(np.float64) for v in x))


def activation(name: str, alike: str = "") -> Case:
    call, formula = ACTIVATIONS[alike or name]
    return real(["n 8: unit"], call, wide(formula))


CASES: dict[str, Case] = {
    "add": arithmetic("add", "+"),
    "sub": arithmetic("sub", "-", BOOL),
    "mul": arithmetic("mul", "*"),
    "div": Case(operands(*PAIR), operator.truediv, quotient, double_of_integers),
    "floor_div": arithmetic("floor_div", "//"),
    "mod": arithmetic("mod", "%"),
    "fmod": Case(operands(*PAIR), ops.fmod, remainder, own),
    "modf": real(["n 4"], ops.modf, np.modf, near=False),
    "rint": real(["n 4"], ops.rint, np.rint, near=False),
    "divmod": Case(operands(*PAIR), divmod, both, own),
    "pow": arithmetic("pow", "**"),
    "maximum": arithmetic("maximum", "max"),
    "minimum": arithmetic("minimum", "min"),
    "negate": same("negate", np.negative, BOOL),
    "positive": same("positive", np.positive),
    "abs": same("abs", np.abs),
    "sign": same("sign", np.sign),
    "square": same("square", np.square),
    "floor": same("floor", np.floor),
    "ceil": same("ceil", np.ceil),
    "round": same("round", np.rint),
    "trunc": same("trunc", np.trunc),
    "left_shift": shift("left_shift", "<<"),
    "right_shift": shift("right_shift", ">>"),
    "bitwise_and": bitwise("bitwise_and", operator.and_),
    "bitwise_or": bitwise("bitwise_or", operator.or_),
    "bitwise_xor": bitwise("bitwise_xor", operator.xor),
    "bitwise_not": bitwise("bitwise_not", operator.invert),
    "logical_and": truth(PAIR, ops.logical_and, np.logical_and),
    "logical_or": truth(PAIR, ops.logical_or, np.logical_or),
    "logical_xor": truth(PAIR, ops.logical_xor, lambda x, y: (x != 0) != (y != 0)),
    "logical_not": truth(ONE, ops.logical_not, lambda x: x == 0),
    "equal": compared("equal", "=="),
    "not_equal": compared("not_equal", "!="),
    "less": compared("less", "<"),
    "less_equal": compared("less_equal", "<="),
    "greater": compared("greater", ">"),
    "greater_equal": compared("greater_equal", ">="),
    "is_nan": truth(ONE, ops.is_nan, lambda x: np.isnan(x.astype(np.longdouble))),
    "is_inf": truth(ONE, ops.is_inf, lambda x: np.isinf(x.astype(np.longdouble))),
    "is_finite": truth(ONE, ops.is_finite, lambda x: np.isfinite(x.astype(np.longdouble))),
    "real": moved(ONE, ops.real, lambda x: x),
    "imag": moved(ONE, ops.imag, np.zeros_like),
    "conj": moved(ONE, ops.conj, lambda x: x),
    "angle": real(["n 8: tame"], ops.angle, wide(lambda x: np.arctan2(np.zeros_like(x), x))),
    "complex": Case(operands(*PAIR), ops.complex, of_parts, lambda dtype: complex_of(smallest_float(dtype))),
    "fma": Case(operands(*PAIR, "n 4"), ops.fma, fused, own),
    "atan2": real(["n 4: tame", "n 4: tame"], ops.atan2, wide(np.arctan2)),
    **{
        name: real(["n 8: tame"], REGISTRY[name].function, wide(formula))
        for name, formula in {**REAL, **SPECIAL}.items()
    },
    "relu": Case(operands(*ONE), ops.relu, positive_part, own),
    "clip": Case(operands("n 4", "n 4", "n 4"), ops.clip, clipped, own),
    "swiglu": real(["n 8: unit", "n 8: unit"], ops.swiglu, wide(lambda x, y: ACTIVATIONS["silu"][1](x) * y)),
    "prelu": real(["n 8: unit", "8: unit"], ops.prelu, lambda x, slope: np.where(x < 0, x * slope, x), near=False),
    **{
        name: activation(name)
        for name in "sigmoid silu gelu softplus softsign hardswish hardsigmoid mish elu selu celu leaky_relu "
        "thresholded_relu hardtanh glu softmax logsoftmax".split()
    },
}


# The parts of floats, and what C's mathematical functions make of two of them

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


CASES |= {
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


# Bits: fields, counts, and values read as other dtypes


def codes(x: Array, bits: int) -> Array:
    """Return integers or bools as Python integers from 0 on."""
    return np.array([int(v) % (1 << bits) for v in x.ravel()], object).reshape(x.shape)


def of_bits(call: Callable[..., Any], formula: Callable[[int, int], int], gives: Callable[[DType], DType]) -> Case:
    """An op on the bits of integers. formula: of the bits, as an integer from 0 on, and their number."""

    def want(dtype: DType, x: Array) -> Array:
        results = [formula(code, dtype.bits) for code in codes(x, dtype.bits).ravel()]
        target = gives(dtype)
        result = np.array(results, bool) if target is D.bool else reference.wrapped(results, target)
        return result.reshape(x.shape)

    return Case(operands(*ONE), call, want, gives, FLOATS)


def counted(dtype: DType) -> DType:
    return D.uint8


def field(bits: int) -> Callable[[DType], DType]:
    def gives(dtype: DType) -> DType:
        width = min(bits, dtype.bits)
        return D.bool if width == 1 else D.uint(width)

    return gives


def low(x: Symbol) -> Symbol:
    return ops.bit_extract(x, 0, min(3, x.dtype.bits))


def inserted(x: Symbol) -> Symbol:
    return ops.bit_insert(x, x.bits[0], x.dtype.bits - 1, 1)


def reversed_bits(code: int, bits: int) -> int:
    return int(format(code, f"0{bits}b")[::-1], 2)


def in_bytes(dtype: DType, x: Array) -> Array:
    if dtype.bits != 4:
        return x.view(np.uint8)
    halves = codes(x, 4).astype(np.uint8)
    return np.asarray(halves[:, ::2] | (halves[:, 1::2] << 4))


CASES |= {
    "popcount": of_bits(ops.popcount, lambda code, bits: code.bit_count(), counted),
    "leading_zeros": of_bits(ops.leading_zeros, lambda code, bits: bits - code.bit_length(), counted),
    "trailing_zeros": of_bits(
        ops.trailing_zeros, lambda code, bits: (code & -code).bit_length() - 1 if code else bits, counted
    ),
    "bit_reverse": of_bits(ops.bit_reverse, reversed_bits, own),
    "bit_extract": of_bits(low, lambda code, bits: code & 7, field(3)),
    "bit_insert": of_bits(inserted, lambda code, bits: code & ~(1 << (bits - 1)) | (code & 1) << (bits - 1), own),
    "bit_concat": of_bits(
        lambda x: ops.bit_concat(x.bits[0], low(x)),
        lambda code, bits: (code & 1) << min(3, bits) | code & 7,
        lambda dtype: D.uint(min(3, dtype.bits) + 1),
    ),
    "bitcast": Case(
        operands("n 4: unit"),  # a NaN of 8 bits loses its payload
        lambda x: ops.bitcast(x, D.uint8),
        in_bytes,
        counted,
    ),
}
