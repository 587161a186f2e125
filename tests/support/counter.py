"""The counting generator of random numbers, in NumPy on Python's integers: the reference of its ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore import DType
from tests.support import reference

Array = np.ndarray[Any, Any]
DIGITS = {
    "float64": 53,
    "float32": 24,
    "tensor_float32": 11,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e5m2": 3,
}
WORD = 1 << 32


def scrambled(x: Any) -> Any:
    """The last step of MurmurHash3, of 32 bits."""
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) % WORD
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) % WORD
    return x ^ (x >> 16)


def words(seed: int, count: int, stream: int) -> Array:
    """32 bits for each place, as uint64."""
    low, high = seed % WORD, (seed >> 32) % WORD
    first = scrambled(low ^ scrambled((high + 0x9E3779B9) % WORD))
    second = scrambled((first + 0x9E3779B9) % WORD)
    first, second = (first + stream * 0x9E3779B9) % WORD, (second + stream * 0x85EBCA6B) % WORD
    places = np.arange(count, dtype=np.uint64)
    return np.asarray(scrambled(scrambled(places ^ np.uint64(first)) ^ np.uint64(second)))


def integers(seed: int, count: int, low: int, high: int) -> Array:
    """Python integers from low below high."""
    both = [int(a) | int(b) << 32 for a, b in zip(words(seed, count, 0), words(seed, count, 1), strict=True)]
    return np.array([low + n % (high - low) for n in both], object)


def uniform(seed: int, count: int, dtype: DType) -> Array:
    """Numbers in [0, 1), of the dtype that they are exact in: float64."""
    digits = DIGITS[dtype.name]
    if digits < 53:
        return (words(seed, count, 0) >> np.uint64(32 - digits)).astype(np.float64) * 2.0**-digits
    upper, lower = words(seed, count, 0) >> np.uint64(5), words(seed, count, 1) >> np.uint64(6)
    return (upper.astype(np.float64) * 2.0**26 + lower.astype(np.float64)) * 2.0**-53


def between(seed: int, count: int, low: float, high: float, dtype: DType) -> Array:
    """Numbers from low below high: float32's steps, or float64's, rounded to the dtype."""
    own: Any = np.float64 if dtype is DType.float64 else np.float32
    result = uniform(seed, count, dtype).astype(own) * own(own(high) - own(low)) + own(low)
    return np.asarray(reference.rounded(result.astype(np.longdouble), dtype))


def normal(seed: int, count: int, dtype: DType) -> Array:
    """Numbers of the bell curve, in extended precision."""
    if dtype is DType.float64:
        first = uniform(seed, count, dtype).astype(np.longdouble) + np.longdouble(2.0**-54)
        digits, stream = 53, 2
    else:
        whole = words(seed, count, 0).astype(np.float32) + np.float32(0.5)
        first = (whole * np.float32(2.0**-32)).astype(np.longdouble)
        digits, stream = 24, 2
    if digits == 24:
        second = (words(seed, count, stream) >> np.uint64(8)).astype(np.float64) * 2.0**-24
        turn = (second.astype(np.float32) * np.float32(2 * np.pi)).astype(np.longdouble)
    else:
        upper, lower = words(seed, count, 2) >> np.uint64(5), words(seed, count, 3) >> np.uint64(6)
        second = (upper.astype(np.float64) * 2.0**26 + lower.astype(np.float64)) * 2.0**-53
        turn = (second * (2 * np.pi)).astype(np.longdouble)
    return np.asarray(np.sqrt(-2 * np.log(first)) * np.cos(turn))
