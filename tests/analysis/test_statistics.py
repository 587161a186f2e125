"""Tests of statistics of arrays, of every dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from graphcore import DType
from graphcore.analysis import statistics as module
from graphcore.analysis.statistics import Statistics, statistics
from graphcore.errors import DTypeError

NUMBERS = [dtype for dtype in vars(DType).values() if isinstance(dtype, DType) and dtype is not DType.string]


@pytest.mark.parametrize("dtype", sorted(set(NUMBERS), key=str), ids=str)
def test_numbers_of_every_dtype_are_taken_for_what_they_are(dtype: DType) -> None:
    array = np.array([1, 0, 1, 1], np.int8).astype(dtype.numpy)
    result = statistics(array, dtype)
    if dtype is DType.float8_e8m0:  # which has no zero
        assert (result.max, result.elements) == (1.0, 4)
        return
    assert (result.min, result.max, result.mean) == (0, 1, 0.75)
    assert (result.elements, result.zeros, result.nan, result.infinite) == (4, 1, 0, 0)
    assert sum(result.histogram) == 4
    assert (result.histogram[0], result.histogram[-1]) == (1, 3)
    assert len(result.histogram) == (32 if dtype.is_float or dtype.is_complex else 2)


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (np.array([-8, 7], ml_dtypes.int4), None, (-8, 7, -0.5, 0, 0, 0)),
        (np.array([np.nan, np.inf, -np.inf, 0, -0.0, 2], np.float32), None, (0, 2, 2 / 3, 1, 2, 2)),
        (np.array([np.nan, -448, 448], ml_dtypes.float8_e4m3fn), None, (-448, 448, 0, 1, 0, 0)),
        (np.array([3.0, np.inf], ml_dtypes.bfloat16), None, (3, 3, 3, 0, 1, 0)),
        (np.array([2**63, 2**64 - 1], np.uint64), None, (2**63, 2**64 - 1, 1.5 * 2**63, 0, 0, 0)),
        (np.array([2**80, -(2**80)], object), DType.int(100), (-(2**80), 2**80, 0, 0, 0, 0)),
        (np.array([True, False, False]), None, (0, 1, 1 / 3, 0, 0, 2)),
        (np.array(5, np.int64), None, (5, 5, 5, 0, 0, 0)),
        (np.array([2**70, 0], object), None, (0, 2**70, 2**69, 0, 0, 1)),
        (np.array(["a", "", ""], object), None, (None, None, None, 0, 0, 2)),
        (np.zeros((0, 3), np.float32), None, (None, None, None, 0, 0, 0)),
        (np.full(3, np.nan, np.float64), None, (None, None, None, 3, 0, 0)),
    ],
)
def test_statistics_are(array: Any, dtype: DType | None, expected: tuple[Any, ...]) -> None:
    result = statistics(array, dtype)
    assert (result.min, result.max, result.mean, result.nan, result.infinite, result.zeros) == pytest.approx(expected)
    assert result.elements == array.size
    assert (result.min is None) is (result.histogram == ())


def test_range_of_the_largest_floats_has_a_mean_and_a_histogram() -> None:
    largest = np.finfo(np.float64).max
    result = statistics(np.array([largest, largest, -largest, 0.0]), bins=3)
    assert (result.min, result.max) == (-largest, largest)
    assert result.mean == pytest.approx(largest / 4)
    assert result.histogram == (1, 1, 2)


def test_what_is_read_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).standard_normal((7, 33)).astype(np.float32)
    array[3, 5], array[6, 1] = np.nan, np.inf
    whole = statistics(array)
    monkeypatch.setattr(module, "_CHUNK", 10)
    chunked = statistics(array)
    assert chunked == Statistics(**{**_fields(whole), "mean": chunked.mean})
    assert chunked.mean == pytest.approx(whole.mean)
    assert statistics(array[:, ::2]).elements == 7 * 17  # what is not contiguous too


def _fields(result: Statistics) -> dict[str, Any]:
    return {name: getattr(result, name) for name in Statistics.__slots__}


@given(arrays.arrays(np.float32, st.integers(1, 40)), st.integers(1, 9))
def test_histogram_counts_each_finite_element_once(array: Any, bins: int) -> None:
    result = statistics(array, bins=bins)
    finite = array[np.isfinite(array)]
    assert sum(result.histogram) == finite.size == result.elements - result.nan - result.infinite
    if not finite.size:
        return
    assert (result.min, result.max) == (finite.min(), finite.max())
    largest = float(np.abs(finite).max())
    assert result.mean == pytest.approx(float(np.mean(finite.astype(np.float64))), rel=1e-9, abs=1e-12 * largest)
    assert len(result.histogram) == (1 if result.min == result.max else bins)
    assert result.histogram[0] > 0 < result.histogram[-1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 2], "array must be an array, got list"),
        (None, "array must be an array"),
        (np.array([object()]), "objects of object have no dtype"),
        (np.array([1, "a"], object), "objects of int, str have no dtype"),
        (np.array(["2026-11-23"], "M8[D]"), "no dtype"),
    ],
)
def test_what_has_no_statistics_is_refused(value: Any, expected: str) -> None:
    with pytest.raises(DTypeError, match=expected):
        statistics(value)
