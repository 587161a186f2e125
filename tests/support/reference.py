"""The reference of every op, by docs/numbers.md, in NumPy, Python integers and extended floats, without library code.

Arrays hold a dtype as its `numpy` says; index and address are uint64, tensor_float32 is float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import ml_dtypes
import numpy as np

from graphcore import DType

Array = np.ndarray[Any, Any]
D = DType

# mantissa bits after the leading one, least exponent of a normal number, greatest finite value
FORMATS = {
    D.float16: (10, -14, 65504.0),
    D.bfloat16: (7, -126, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),  # type: ignore[no-untyped-call]
    D.tensor_float32: (10, -126, (2 - 2.0**-10) * 2.0**127),
    D.float32: (23, -126, float(np.finfo(np.float32).max)),
    D.float8_e4m3fn: (3, -6, 448.0),
    D.float8_e5m2: (2, -14, 57344.0),
    D.float6_e2m3fn: (3, 0, 7.5),
    D.float6_e3m2fn: (2, -2, 28.0),
    D.float4_e2m1: (1, 0, 6.0),
}


def rounded(values: Array, dtype: DType) -> Array:
    """Exact numbers (in x87 extended floats) rounded once, to nearest even, to a float dtype."""
    if dtype is D.float64:
        return values.astype(np.float64)
    mantissa, least, greatest = FORMATS[dtype]
    wide = values.astype(np.longdouble)
    finite = np.isfinite(wide)
    _, exponent = np.frexp(np.where(finite, wide, 1))
    unit = np.ldexp(np.longdouble(1), np.maximum(exponent - 1, least) - mantissa)
    near = np.where(finite, np.rint(np.where(finite, wide, 0) / unit) * unit, wide)
    over = np.abs(near) > greatest
    beyond = np.nan if dtype is D.float8_e4m3fn else np.inf if dtype.bits > 6 else greatest
    near = np.where(over, np.copysign(np.longdouble(beyond), wide), near)
    near = np.where((near == 0) & finite, np.copysign(np.longdouble(0), wide), near)
    return near.astype(np.float32).astype(dtype.numpy)


def wrapped(numbers: Any, dtype: DType) -> Array:
    """Python integers modulo 2^bits."""
    low, bits = int(dtype.min), dtype.bits
    flat = [(int(n) - low) % (1 << bits) + low for n in np.asarray(numbers, object).ravel()]
    return np.array(flat, dtype.numpy).reshape(np.shape(numbers))


def exact(array: Array) -> Array:
    """Any numbers as extended floats, which hold 64-bit integers exactly."""
    return array.astype(np.float32).astype(np.longdouble) if array.dtype.itemsize < 4 else array.astype(np.longdouble)


def cast(array: Array, source: DType, target: DType) -> Array:
    """Section 4.9."""
    if source is target:
        return array
    if target is D.bool:
        return np.asarray(exact(array) != 0)
    if target.is_float:
        return rounded(exact(array), target)
    if not source.is_float:
        return wrapped(array.astype(object), target)
    numbers = []
    for value in exact(array).ravel():
        if np.isnan(value):
            numbers.append(0)
        else:
            bounded = min(max(value, np.longdouble(target.min)), np.longdouble(target.max))
            numbers.append(int(bounded))
    return np.array(numbers, target.numpy).reshape(array.shape)


def _float(function: Callable[..., Array], dtype: DType, *operands: Array) -> Array:
    """A function of floats: computed in float32 (or float64) and rounded once."""
    with np.errstate(all="ignore"):
        if dtype is D.float64:
            return function(*operands)
        return rounded(exact(function(*(o.astype(np.float32) for o in operands))), dtype)


def _elementwise(function: Callable[[int, int], int], dtype: DType) -> Callable[[Array, Array], Array]:
    def apply(x: Array, y: Array) -> Array:
        return wrapped([function(int(a), int(b)) for a, b in zip(x.ravel(), y.ravel(), strict=True)], dtype)

    return apply


def _power(base: int, exponent: int) -> int:
    if exponent >= 0:
        return pow(base, exponent, 1 << 64)
    return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)


def _floor_divide(x: int, y: int) -> int:
    return 0 if y == 0 else x // y


def _remainder(x: int, y: int) -> int:
    return 0 if y == 0 else x % y


def arithmetic(op: str, x: Array, y: Array, dtype: DType) -> Array:
    """+ * - // % ** min max of two arrays of one dtype."""
    if dtype is D.bool:
        return {
            "+": x | y, "*": x & y, "//": x & y, "%": np.zeros_like(x), "**": x | ~y, "max": x | y, "min": x & y,
        }[op]  # fmt: skip
    if dtype.is_float:
        functions: dict[str, Callable[..., Array]] = {
            "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.remainder,
            "**": np.power, "max": np.maximum, "min": np.minimum,
        }  # fmt: skip
        return _float(functions[op], dtype, x, y)
    with np.errstate(all="ignore"):
        if op in ("max", "min"):
            return np.maximum(x, y) if op == "max" else np.minimum(x, y)
    integers: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
        "//": _floor_divide, "%": _remainder, "**": _power,
    }  # fmt: skip
    return _elementwise(integers[op], dtype)(x, y)


def shift(op: str, x: Array, count: Array, dtype: DType) -> Array:
    """Section 4.4."""

    def by(a: int, n: int) -> int:
        if 0 <= n < dtype.bits:
            return a << n if op == "<<" else a >> n
        return -1 if op == ">>" and a < 0 else 0

    return _elementwise(by, dtype)(x, count)


def compare(op: str, x: Array, y: Array) -> Array:
    functions: dict[str, Callable[..., Array]] = {
        "<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal, ">": np.greater, ">=": np.greater_equal,
    }  # fmt: skip
    if x.dtype.itemsize < 4 and x.dtype.kind not in "iub":
        x, y = x.astype(np.float32), y.astype(np.float32)
    return np.asarray(functions[op](x, y))


def total(x: Array, dtype: DType) -> Array:
    """The sum over the last axis: wraps in its dtype; floats are summed in float64, close to any order of sums."""
    if dtype is D.bool:
        return np.asarray(x.sum(axis=-1, dtype=np.int64))
    if not dtype.is_float:
        return wrapped(x.astype(object).sum(axis=-1), dtype)
    return rounded(exact(x).sum(axis=-1), dtype)


def mean(x: Array, dtype: DType) -> Array:
    average = exact(x).mean(axis=-1)
    return rounded(average, dtype) if dtype.is_float else average.astype(np.float64)


def product(x: Array, y: Array, dtype: DType) -> Array:
    """The matrix product; its sums wrap, or are small enough whole numbers to be exact."""
    if dtype is D.bool:
        return np.asarray((x.astype(int) @ y.astype(int)) > 0)
    if dtype.is_float:
        with np.errstate(invalid="ignore"):
            return rounded(exact(x) @ exact(y), dtype)
    return wrapped(x.astype(object) @ y.astype(object), dtype)


def samples(dtype: DType, count: int, seed: int) -> Array:
    """Extreme and random values of a dtype, `count` of them."""
    random = np.random.default_rng(seed)
    if dtype is D.bool:
        return random.random(count) < 0.5
    if not dtype.is_float:
        low, high = int(dtype.min), int(dtype.max)
        edges = sorted({low, low + 1, max(low, -1), 0, 1, 2, 3, 7, high // 2, high - 1, high})
        raw = [int(v) for v in random.integers(0, 1 << 63, count, dtype=np.uint64) * 2 + random.integers(0, 2, count)]
        wide = max(0, dtype.bits - 64)
        spread = [low + ((v << wide | v >> 1) >> max(0, 64 - dtype.bits)) for v in raw]
        small = [max(low, int(v)) for v in random.integers(-9, 70, count)]
        numbers = [edges[i % len(edges)] if i % 3 == 0 else (spread if i % 3 == 1 else small)[i] for i in range(count)]
        return np.array([numbers[i] for i in random.permutation(count)], dtype.numpy)
    greatest = float(dtype.max)
    edges_f = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan, greatest, -greatest, 3.0, 1e-7, 1.5, -2.5]
    random_f = random.standard_normal(count) * np.exp(random.uniform(-6, 6, count))
    values = [edges_f[(i // 2) % len(edges_f)] if i % 2 == 0 else random_f[i] for i in range(count)]
    return rounded(np.array([values[i] for i in random.permutation(count)], np.longdouble), dtype)


# Special functions in Python floats and extended floats, right to 1e-13, without SciPy


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Apply a function of Python floats to each element; overflow gives infinity, and no value NaN."""

    def evaluate(x: float) -> float:
        try:
            return x if math.isnan(x) else function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return np.vectorize(evaluate, otypes=[np.float64])


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
