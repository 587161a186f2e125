"""Integers of more than 64 bits outside of graphs: object arrays of Python ints, and their digits in base 2^32."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from graphcore.types.dtypes import MAX_BITS, DType, Kind
from graphcore.types.dtypes import is_wide as is_wide

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

DIGIT = 32
"""The number of bits of a digit."""


def count_of(bits: int) -> int:
    """Return the number of digits of integers of a width."""
    return -(-bits // DIGIT)


def digits_of(dtype: DType) -> int:
    """Return the number of digits of a value of an integer dtype."""
    return count_of(dtype.bits)


def storage_axis(dtype: DType) -> tuple[int, ...]:
    """Return the length of the additional last axis of stored tensors of a dtype; () if there is none."""
    if dtype.is_complex:
        return (2,)
    return (digits_of(dtype),) if is_wide(dtype) else ()


def array_of(value: int) -> Array:
    """Return an object array of rank 0 with one integer."""
    result = np.empty((), object)
    result[()] = value
    return result


def integers(value: Any) -> Array | None:
    """Return an object array of the Python ints in an array, a number or nested lists; None for anything else."""
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        return None
    if array.dtype.kind in "iu":
        return array.astype(object)
    if array.dtype.kind != "O":
        return None
    if not all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in array.ravel()):
        return None
    return each(int, array)


def least_dtype(array: Array) -> DType:
    """Return the narrowest integer dtype of more than 64 bits for an array of Python ints, signed if possible."""
    bits = max((item.bit_length() for item in array.ravel()), default=0)
    if bits == MAX_BITS:
        return DType.uint(bits)  # no signed integer is wider
    return DType.int(max(65, bits + 1))


def to_digits(array: Array, dtype: DType) -> Array:
    """Return Python ints as uint32 digits along a new last axis, lowest first, in two's complement."""
    count = digits_of(dtype)
    digits = np.empty((*array.shape, count), np.uint32)
    rest = array
    for position in range(count):
        digits[..., position] = np.asarray(
            rest & 0xFFFFFFFF, np.uint32
        )  # NumPy converts arrays of rank 0 to plain ints
        rest = rest >> DIGIT
    return digits


def from_digits(digits: Array, dtype: DType) -> Array:
    """Return the Python ints of uint32 digits along the last axis, modulo 2^bits."""
    total = np.zeros(digits.shape[:-1], object)
    for position in range(digits.shape[-1]):
        total = total + (digits[..., position].astype(object) << (DIGIT * position))
    return wrapped(np.asarray(total, object), dtype)


def wrapped(array: Array, dtype: DType) -> Array:
    """Return Python ints modulo 2^bits of an integer dtype."""
    low = array & ((1 << dtype.bits) - 1)
    if dtype.kind is Kind.signed:
        sign = 1 << (dtype.bits - 1)
        low = (low ^ sign) - sign
    return np.asarray(low, object)


def of_floats(array: Array, target: DType) -> Array:
    """Return float64 values as Python ints: truncated, saturated to the range of `target`, 0 for NaN."""
    return each(lambda x: _truncated(float(x), int(target.min), int(target.max)), array)


def cast_integers(array: Array, target: DType) -> Array:
    """Return integers of any width as integers modulo 2^bits of `target`, or as bools."""
    integers = each(int, array)
    if target.kind is Kind.bool:
        return np.asarray(integers != 0, np.bool_)
    low = wrapped(integers, target)
    return low if is_wide(target) else low.astype(target.numpy)


def scaled(array: Array) -> tuple[Array, Array]:
    """Return int64 values and binary exponents, whose products round to floats as the integers do.

    The values have three bits more than float64; the last one is set if lower bits were dropped.
    """
    integers = each(int, array)
    shifts = each(lambda x: max(0, x.bit_length() - 56), integers).astype(np.int64)
    return each(_shortened, integers).astype(np.int64), shifts


def _shortened(value: int) -> int:
    size = abs(value)
    shift = max(0, size.bit_length() - 56)
    low = (size >> shift) | bool(size & ((1 << shift) - 1))
    return low if value >= 0 else -low


def _truncated(value: float, least: int, greatest: int) -> int:
    if value != value:
        return 0
    if value in (float("inf"), float("-inf")):
        return greatest if value > 0 else least
    return min(max(int(value), least), greatest)


def each(function: Any, array: Array) -> Array:
    """Return an object array of the results of a function for each element."""
    return np.asarray(np.frompyfunc(function, 1, 1)(array), object)
