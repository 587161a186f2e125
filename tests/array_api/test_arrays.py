"""Arrays of graphcore.array_api: creation, values, and indexing."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import graphcore.array_api as xp
from graphcore import DType
from graphcore.errors import DTypeError, GraphError, PromotionError, ShapeError
from tests.sampling import drawn
from tests.support.graphs import FLOATS, Values, assert_same

# Making


def test_asarray_takes_what_holds_values() -> None:
    assert xp.asarray(True).dtype is DType.bool
    assert xp.asarray([1, 2]).dtype is DType.int64
    assert xp.asarray([1, 2.5]).dtype is DType.float32
    assert xp.asarray([]).shape == (0,)
    assert xp.asarray([[1], [2]], dtype=xp.uint8).shape == (2, 1)
    assert np.asarray(xp.asarray([xp.asarray(1), xp.asarray(2)])).tolist() == [1, 2]
    assert xp.asarray(bytearray(b"\1\2")).dtype is DType.uint8
    assert xp.asarray(np.array([1, 2], ">i4")).dtype is DType.int32
    assert xp.asarray(1 << 63, dtype=xp.uint64).dtype is DType.uint64
    assert float(xp.asarray((1 << 24) + 1, dtype=xp.float32)) == float(1 << 24)


@pytest.mark.parametrize("value", [300, -1, [0, 256]])
def test_asarray_refuses_integers_that_the_dtype_cannot_hold(value: Any) -> None:
    with pytest.raises(DTypeError, match="cannot be held in uint8"):
        xp.asarray(value, dtype=xp.uint8)


@pytest.mark.parametrize("value", [1 << 63, "text", [[1], [2, 3]], {1: 2}, np.zeros(1, "M8[s]"), object()])
def test_asarray_refuses_what_is_not_an_array(value: Any) -> None:
    with pytest.raises(DTypeError):
        xp.asarray(value)


def test_memory_is_copied_and_shared_as_asked() -> None:
    own = np.zeros(3, np.float32)
    assert np.shares_memory(np.asarray(xp.asarray(own)), own)
    assert np.shares_memory(np.asarray(xp.asarray(own, copy=False)), own)
    assert not np.shares_memory(np.asarray(xp.asarray(own, copy=True)), own)
    assert np.shares_memory(np.from_dlpack(xp.from_dlpack(own)), own)
    for value, dtype in (([1.0], None), (own, xp.float64)):
        with pytest.raises(ValueError, match="copy"):
            xp.asarray(value, dtype=dtype, copy=False)
    x = xp.asarray(own)
    assert xp.astype(x, x.dtype, copy=False) is x
    assert not np.shares_memory(np.asarray(xp.astype(x, x.dtype)), own)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9).filter(bool))
@settings(max_examples=25)
def test_arange_equals_numpy(start: int, stop: int, step: int) -> None:
    assert_same(xp.arange(start, stop, step), np.arange(start, stop, step), "integers")
    halves = np.arange(start / 2, stop / 2, step / 2, dtype=np.float64)
    assert_same(xp.arange(start / 2, stop / 2, step / 2, dtype=xp.float64), halves, "halves")


def test_arange_counts_to_the_ends_of_its_dtype() -> None:
    top = (1 << 64) - 1
    assert np.asarray(xp.arange(top - 4, top, 2, dtype=xp.uint64)).tolist() == [top - 4, top - 2]
    assert np.asarray(xp.arange(top, top - 4, -2, dtype=xp.uint64)).tolist() == [top, top - 2]
    with pytest.raises(DTypeError, match="out of range for int8"):
        xp.arange(120, 140, dtype=xp.int8)
    with pytest.raises(ShapeError, match="step is 0"):
        xp.arange(0, 1, 0)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(0, 9), st.booleans())
@settings(max_examples=25)
def test_linspace_equals_numpy(start: float, stop: float, count: int, endpoint: bool) -> None:
    array = np.asarray(xp.linspace(start, stop, count, dtype=xp.float64, endpoint=endpoint))
    np.testing.assert_allclose(array, np.linspace(start, stop, count, endpoint=endpoint), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("k", [-5, -1, 0, 2, 1 << 70])
def test_eye_has_ones_on_its_diagonal(k: int) -> None:
    wanted = np.eye(3, 4, k=max(-9, min(k, 9)), dtype=np.int8)
    assert_same(xp.eye(3, 4, k=k, dtype=xp.int8), wanted, f"eye {k}")


@pytest.mark.parametrize("shape", [-1, (2, -3), 1.5, (2.5,)])
def test_shapes_that_are_none_are_refused(shape: Any) -> None:
    with pytest.raises(ShapeError, match="shape"):
        xp.zeros(shape)


def test_devices_other_than_the_cpu_are_refused() -> None:
    x = xp.ones(2, device="cpu")
    assert x.to_device("cpu") is x
    calls: list[Callable[[], Any]] = [
        lambda: xp.ones(2, device="gpu"),
        lambda: xp.asarray(1, device="tpu"),
        lambda: x.to_device("gpu"),
    ]
    for call in calls:
        with pytest.raises(GraphError, match="no device"):
            call()


# What Arrays are


def test_arrays_convert_as_scalars_where_they_are_some() -> None:
    assert bool(xp.asarray(True))
    assert (int(xp.asarray(3)), float(xp.asarray(2.5)), complex(xp.asarray(2.5))) == (3, 2.5, 2.5 + 0j)
    assert list(range(9))[xp.asarray(3)] == 3
    for convert in (bool, int, float, complex):
        with pytest.raises(TypeError, match="is not a scalar"):
            convert(xp.ones(2))
    with pytest.raises(TypeError, match="is not an integer dtype"):
        range(xp.asarray(2.5))
    with pytest.raises(TypeError):
        hash(xp.ones(2))


def test_arrays_are_sequences_pickle_copy_and_print() -> None:
    x = xp.asarray([[1, 2], [3, 4]])
    assert (len(x), [row.shape for row in x], x.size, x.ndim, x.device) == (2, [(2,), (2,)], 4, 2, "cpu")
    assert xp.asarray(3) in x
    assert repr(xp.asarray([1.5])) == "Array([1.5], dtype=float32)"
    for twin in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        twin[0, 0] = 9
        assert int(x[0, 0]) == 1
    with pytest.raises(TypeError):
        len(xp.asarray(1))
    with pytest.raises(ShapeError, match="T: the array must be a matrix, got rank"):
        _ = xp.ones((2, 2, 2)).T


def test_operators_in_place_keep_dtype_and_shape() -> None:
    x = alias = xp.asarray([1.0, 2.0])
    x += 1
    x *= xp.asarray(2.0)
    assert x is alias
    assert np.asarray(x).tolist() == [4.0, 6.0]
    with pytest.raises(TypeError, match="an in-place operation cannot change"):
        x += xp.ones(2, dtype=xp.float64)
    with pytest.raises(ValueError, match="an in-place operation cannot change"):
        x += xp.ones((3, 2))


def test_setitem_writes_as_numpy_does() -> None:
    keys: list[Any] = [0, -1, (1, 2), (slice(None), 1), (..., slice(None, None, -2)), slice(1, None)]
    for key in keys:
        own, x = np.arange(6).reshape(2, 3), xp.reshape(xp.arange(6), (2, 3))
        own[key] = 9
        x[key] = 9
        np.testing.assert_array_equal(np.asarray(x), own)
    x = xp.reshape(xp.arange(6), (2, 3))
    x[x > 2] = xp.asarray(0, dtype=xp.int8)
    assert np.asarray(x).tolist() == [[0, 1, 2], [0, 0, 0]]
    with pytest.raises(PromotionError, match="undefined"):
        x[0, 0] = 2.5
    with pytest.raises(DTypeError, match="do not promote"):
        xp.ones(2, dtype=xp.int8)[0] = xp.ones((), dtype=xp.int16)
    with pytest.raises(IndexError):
        x[5] = 1
    with pytest.raises(ShapeError):
        x[0] = xp.zeros(7, dtype=xp.int64)


@given(npst.basic_indices((3, 4, 2), allow_newaxis=True))
@settings(max_examples=drawn(40))
def test_getitem_equals_numpy_for_basic_indices(index: Any) -> None:
    own = np.arange(24, dtype=np.int16).reshape(3, 4, 2)
    assert_same(xp.asarray(own)[index], np.asarray(own[index]), f"{index}")


@given(npst.arrays(np.bool_, (3, 4)))
@settings(max_examples=20)
def test_getitem_equals_numpy_for_masks(mask: Values) -> None:
    own = np.arange(24, dtype=np.int16).reshape(3, 4, 2)
    assert_same(xp.asarray(own)[xp.asarray(mask)], own[mask], f"{mask}")


def test_positions_outside_of_an_array_are_refused() -> None:
    x = xp.ones((2, 3))
    for index in (2, (0, 3), (-3, 0), (0, 0, 0)):
        with pytest.raises(IndexError):
            x[index]
    for axis in (4, -4):
        with pytest.raises(IndexError):
            xp.expand_dims(x, axis=axis)


@given(
    npst.arrays(
        np.float32, npst.array_shapes(max_dims=2, min_side=0), elements=st.sampled_from([-0.0, 0.0, 1.5, np.nan])
    )
)
@settings(max_examples=25)
def test_unique_counts_nans_apart_and_zeros_together(values: Values) -> None:
    result = xp.unique_all(xp.asarray(values))
    unique, inverse = np.asarray(result.values), np.asarray(result.inverse_indices)
    wanted, counts = np.unique(values, return_counts=True, equal_nan=False)
    np.testing.assert_array_equal(unique, wanted)
    np.testing.assert_array_equal(np.asarray(result.counts), counts)
    np.testing.assert_array_equal(unique[inverse], values)
    np.testing.assert_array_equal(values.ravel()[np.asarray(result.indices)], unique)


@given(st.lists(st.floats(width=32)), st.lists(st.floats(width=32)), st.sampled_from(["left", "right"]))
@settings(max_examples=25)
def test_searchsorted_equals_numpy(expected: list[float], requested: list[float], side: Any) -> None:
    x, y = np.sort(np.array(expected, np.float32)), np.array(requested, np.float32)
    result = xp.searchsorted(xp.asarray(x), xp.asarray(y), side=side)
    np.testing.assert_array_equal(np.asarray(result), np.searchsorted(x, y, side=side))


@given(st.floats(width=64), st.floats(width=64))
@settings(max_examples=drawn(50))
def test_neighbours_and_signs_equal_numpy(x: float, y: float) -> None:
    a, b = xp.asarray(x, dtype=xp.float64), xp.asarray(y, dtype=xp.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(np.asarray(xp.nextafter(a, b)), np.nextafter(x, y))
        np.testing.assert_array_equal(np.asarray(xp.copysign(a, b)), np.copysign(x, y))
        assert bool(xp.signbit(a)) == bool(np.signbit(x))
        np.testing.assert_allclose(np.asarray(xp.hypot(a, b)), np.hypot(x, y), rtol=1e-14)
        np.testing.assert_allclose(np.asarray(xp.logaddexp(a, b)), np.logaddexp(x, y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["asin", "asinh", "atan", "atanh", "expm1", "log1p", "sin", "sinh", "sqrt", "tan", "tanh"]
)
def test_odd_functions_keep_the_sign_of_zero(name: str) -> None:
    for dtype in FLOATS:
        assert bool(xp.signbit(getattr(xp, name)(xp.asarray(-0.0, dtype=dtype)))), dtype


def test_floor_divide_of_infinities_is_the_standard_s() -> None:
    inf = math.inf
    for x, y, wanted in ((inf, 2.0, inf), (inf, -2.0, -inf), (2.0, -inf, -0.0), (-2.0, inf, -0.0), (-2.0, -inf, 0.0)):
        result = float(xp.floor_divide(xp.asarray(x), y))
        assert (result, math.copysign(1, result)) == (wanted, math.copysign(1, wanted)), (x, y)
