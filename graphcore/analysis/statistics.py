"""Statistics of arrays of every dtype: range, mean, NaNs, infinities, zeros and a histogram, read in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphcore.errors import DTypeError
from graphcore.types.dtypes import DType, is_wide

Array: TypeAlias = "np.ndarray[Any, Any]"

_CHUNK = 1 << 20
"""Elements that are processed at once, so that a mapped file need not fit into memory."""

BINS = 32
"""The default number of bins of a histogram."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of an array.

    Attributes:
        elements: The number of elements.
        min: The minimum of finite elements, an int for integers; None if there are none.
        max: The maximum, likewise.
        mean: The mean, likewise.
        nan: The number of NaNs.
        infinite: The number of infinities.
        zeros: The number of zeros.
        histogram: The numbers of finite elements in equal bins from min to max, the last one including max; at most as
            many bins as there are integers in the range.
    """

    elements: int
    min: int | float | None
    max: int | float | None
    mean: float | None
    nan: int
    infinite: int
    zeros: int
    histogram: tuple[int, ...]


def statistics(array: Array, dtype: object = None, *, bins: int = BINS) -> Statistics:
    """Return statistics of an array.

    Complex numbers count by their magnitudes. Strings have only a number of elements, and empty ones count as zeros.

    Args:
        array: Any shape, of a dtype of NumPy or ml_dtypes; objects for strings and for integers of more than 64 bits.
        dtype: The dtype of its elements, if it is not that of the array: anything that `DType.of` accepts.
        bins: The maximum number of bins of the histogram, at least 1.

    Raises:
        DTypeError: The value is not an array, or its elements have no dtype.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"statistics: array must be an array, got {type(array).__name__}", help="give a NumPy array")
    element_dtype = _dtype_of(array) if dtype is None else DType.of(dtype)
    if element_dtype is DType.string:
        empty = sum(int(np.count_nonzero(chunk == "")) for chunk in _chunks(array))
        return Statistics(array.size, None, None, None, 0, 0, empty, ())
    if element_dtype.is_complex:
        return _number_statistics(np.abs(array), element_dtype.storage, max(1, bins))
    if is_wide(element_dtype) or (array.dtype == object and element_dtype.is_integer):
        return _integer_statistics([int(v) for v in array.reshape(-1).tolist()], bins)
    return _number_statistics(array, element_dtype, max(1, bins))


def _dtype_of(array: Array) -> DType:
    """Return the dtype of an array's elements, its own or that of its objects. Raises `DTypeError`."""
    if array.dtype != object:
        return DType.of(array.dtype)
    kinds = {type(value) for value in array.reshape(-1).tolist()}
    if kinds <= {int}:
        return DType.int64
    if kinds <= {str, bytes}:
        return DType.string
    raise DTypeError(
        f"statistics: objects of {', '.join(sorted(kind.__name__ for kind in kinds))} have no dtype",
        help="give numbers or text",
    )


def _chunks(array: Array) -> Iterator[Array]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def _computable(chunk: Array, dtype: DType) -> Array:
    """Return a chunk in a dtype that NumPy computes in, exactly."""
    if dtype is DType.bool:
        return chunk.astype(np.uint8)
    if dtype.is_float:
        return chunk if chunk.dtype in (np.float32, np.float64) else chunk.astype(np.float32)
    return chunk if chunk.dtype.kind in "iu" else chunk.astype(np.int8 if dtype.is_signed else np.uint8)


def _number_statistics(array: Array, dtype: DType, bins: int) -> Statistics:
    nan = infinite = zeros = count = 0
    total, lowest, highest = 0.0, None, None
    for chunk in _chunks(array):
        values = _computable(chunk, dtype)
        zeros += values.size - int(np.count_nonzero(values))
        if dtype.is_float:
            is_finite = np.isfinite(values)
            if not is_finite.all():
                missing = int(np.count_nonzero(np.isnan(values)))
                nan += missing
                infinite += values.size - int(np.count_nonzero(is_finite)) - missing
                values = values[is_finite]
        if not values.size:
            continue
        # Divided before they are summed, since the sum of large floats may overflow.
        wide = values.astype(np.float64) / array.size
        total += float(np.sum(wide))
        count += values.size
        low, high = values.min().item(), values.max().item()
        lowest = low if lowest is None else min(lowest, low)
        highest = high if highest is None else max(highest, high)
    if lowest is None or highest is None:
        return Statistics(array.size, None, None, None, nan, infinite, zeros, ())
    mean = min(max(total * (array.size / count), lowest), highest)
    histogram = _histogram(array, dtype, lowest, highest, bins)
    return Statistics(array.size, lowest, highest, float(mean), nan, infinite, zeros, histogram)


def _histogram(array: Array, dtype: DType, low: float, high: float, bins: int) -> tuple[int, ...]:
    bins = _bins(low, high, bins, dtype.is_float)
    counts = np.zeros(bins, np.int64)
    # Halved, so that the range of the largest floats does not overflow.
    start, width = low / 2, high / 2 - low / 2
    for chunk in _chunks(array):
        values = _computable(chunk, dtype).astype(np.float64)
        if dtype.is_float:
            values = values[np.isfinite(values)]
        if not width:
            counts[0] += values.size
            continue
        places = ((values / 2 - start) / width * bins).astype(np.int64)
        counts += np.bincount(np.clip(places, 0, bins - 1), minlength=bins)
    return tuple(counts.tolist())


def _bins(low: float, high: float, bins: int, is_float: bool) -> int:
    if low == high:
        return 1
    return bins if is_float else min(bins, int(high) - int(low) + 1)


def _integer_statistics(values: list[int], bins: int) -> Statistics:
    if not values:
        return Statistics(0, None, None, None, 0, 0, 0, ())
    low, high = min(values), max(values)
    count = _bins(low, high, max(1, bins), False)
    counts = [0] * count
    for value in values:
        counts[min((value - low) * count // max(high - low, 1), count - 1)] += 1
    try:
        mean = sum(values) / len(values)
    except OverflowError:  # the quotient is out of range
        mean = math.copysign(math.inf, sum(values))
    return Statistics(len(values), low, high, mean, 0, 0, values.count(0), tuple(counts))
