"""Sorting and running totals against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.graphs import run, run1

Array = np.ndarray[Any, Any]
DTYPES = [np.bool_, np.int8, np.int16, np.uint16, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64]


def numbers(dtype: Any, *shape: int) -> Array:
    """Small whole numbers, many of them equal."""
    info = np.random.default_rng(0).integers(0 if np.dtype(dtype).kind in "ub" else -3, 4, shape)
    return info.astype(dtype)


def symbol(dtype: DType, *shape: int | str) -> Symbol:
    return Graph("test", {"x": TensorType(dtype, shape)})["x"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_and_argsort_are_numpys_stable_ones(dtype: Any) -> None:
    x = numbers(dtype, 4, 6, 20)
    np.testing.assert_array_equal(run1(ops.sort, x), np.sort(x))
    np.testing.assert_array_equal(run1(lambda s: ops.argsort(s, axis=1), x), np.argsort(x, axis=1, kind="stable"))
    np.testing.assert_array_equal(run1(lambda s: ops.sort(s, axis=0, descending=True), x), np.sort(x, axis=0)[::-1])


@pytest.mark.parametrize("dims", [None, [["n", 300]]], ids=str)
def test_argsort_keeps_equal_ones_in_place_when_descending(dims: Any) -> None:
    x = numbers(np.int32, 3, 300)
    got = run1(lambda s: ops.argsort(s, descending=True), x, dims=dims)
    np.testing.assert_array_equal(got, np.argsort(-x, kind="stable"))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32, np.float64])
def test_sort_puts_nan_last_as_the_greatest(dtype: Any) -> None:
    x = np.array([[3, np.nan, 1, -np.inf, np.nan, np.inf, 0], [0, -0.0, 1, -0.0, -1, 1e-3, -1e-3]], dtype)
    wide = x.astype(np.float64)  # NumPy sorts NaN of ml_dtypes anywhere
    np.testing.assert_array_equal(run1(ops.sort, x).astype(np.float64), np.sort(wide))
    np.testing.assert_array_equal(run1(ops.argsort, x), np.argsort(wide, kind="stable"))
    np.testing.assert_array_equal(run1(lambda s: ops.argsort(s, descending=True), x)[0], [1, 4, 5, 0, 2, 6, 3])


def test_sort_is_empty_when_x_is_empty() -> None:
    assert run1(ops.sort, np.zeros((3, 0), np.float32)).shape == (3, 0)
    assert run1(ops.sort, np.zeros((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float32])
@pytest.mark.parametrize("axis", [-1, 0])
def test_top_k_gives_the_greatest_and_where_they_are(dtype: Any, axis: int) -> None:
    x = numbers(dtype, 5, 8)
    order = np.argsort(-x.astype(np.int64), axis=axis, kind="stable")
    want = np.take(order, range(3), axis=axis)
    values, positions = run(lambda s: ops.top_k(s, 3, axis=axis), x)
    np.testing.assert_array_equal(positions, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis))


def test_bottom_k_gives_the_least_first() -> None:
    x = numbers(np.float32, 4, 9)
    values, positions = run(lambda s: ops.bottom_k(s, 4), x)
    np.testing.assert_array_equal(values, np.sort(x)[:, :4])
    np.testing.assert_array_equal(positions, np.argsort(x, kind="stable")[:, :4])


def test_top_k_takes_k_from_a_symbol_or_a_dim() -> None:
    x = numbers(np.float32, 4, 9)
    want = np.sort(x)[:, ::-1]
    values, _ = run(lambda s, k: ops.top_k(s, k), x, np.array(2, np.int32))
    np.testing.assert_array_equal(values, want[:, :2])
    values, _ = run(lambda s, y: ops.top_k(s, y.shape[0]), x, np.zeros(3, np.float32), dims=[["n", 9], ["k"]])
    np.testing.assert_array_equal(values, want[:, :3])
    assert run(lambda s: ops.top_k(s, 0), x)[0].shape == (4, 0)


def test_top_k_knows_its_dims() -> None:
    x = symbol(DType.int8, "batch", 4, "time")
    values, positions = ops.top_k(x, 2, axis=1)
    assert values.type == TensorType(DType.int8, ["batch", 2, "time"])
    assert positions.type == TensorType(DType.int64, ["batch", 2, "time"])
    assert ops.sort(x).shape == x.shape
    assert ops.top_k(x, x.shape[0], axis=0)[0].shape == x.shape


def test_top_k_refuses_counts_that_are_none() -> None:
    x = symbol(DType.float32, "batch", 4)
    with pytest.raises(ShapeError, match=r"top_k: k is 5, but axis 1 has only 4 elements(.|\n)*take at most 4"):
        ops.top_k(x, 5)
    with pytest.raises(ShapeError, match="bottom_k: k must be >= 0, got -1"):
        ops.bottom_k(x, -1)
    with pytest.raises(DTypeError, match=r"top_k: k=1\.5 is not a count"):
        ops.top_k(x, 1.5)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"top_k: k must have an integer dtype, got float32"):
        ops.top_k(x, x)
    with pytest.raises(ShapeError, match="top_k: no Symbol has a dim 'k'"):
        ops.top_k(x, "k", axis=0)


@pytest.mark.parametrize("name", ["sort", "argsort", "cumsum", "cumprod"])
def test_sorting_refuses_what_is_not_an_axis_and_strings(name: str) -> None:
    with pytest.raises(ShapeError, match=f"{name}: there is no axis 2 of a tensor of rank 2"):
        getattr(ops, name)(symbol(DType.float32, "batch", 4), axis=2)
    with pytest.raises(ShapeError, match="a scalar has no axes"):
        getattr(ops, name)(symbol(DType.float32))
    with pytest.raises(DTypeError, match=f"{name} has no meaning for string"):
        getattr(ops, name)(symbol(DType.string, 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, -1])
def test_running_totals_are_numpys_and_wrap(dtype: Any, axis: int) -> None:
    x = numbers(dtype, 4, 60 if np.dtype(dtype).kind in "iu" else 5)
    wide: Any = np.int64 if dtype is np.bool_ else dtype
    np.testing.assert_array_equal(run1(lambda s: ops.cumsum(s, axis=axis), x), np.cumsum(x, axis, wide))
    got = run1(lambda s: ops.cumprod(s, axis=axis), x + x.dtype.type(1) if dtype is not np.bool_ else x)
    np.testing.assert_array_equal(got, np.cumprod(x + x.dtype.type(1) if dtype is not np.bool_ else x, axis, wide))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("reverse", [False, True])
def test_exclusive_running_total_leaves_the_element_out(name: str, reverse: bool) -> None:
    x = np.arange(1, 11, dtype=np.int16).reshape(2, 5)
    along = x[:, ::-1] if reverse else x
    first = np.full((2, 1), 0 if name == "cumsum" else 1)
    want = np.concatenate([first, getattr(np, name)(along, axis=1, dtype=np.int16)[:, :-1]], 1)
    got = run1(lambda s: getattr(ops, name)(s, exclusive=True, reverse=reverse), x)
    np.testing.assert_array_equal(got, want[:, ::-1] if reverse else want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_equal_numpy(name: str, reverse: bool) -> None:
    function = {"cummax": np.maximum, "cummin": np.minimum}[name]
    x = np.array([[2, 5, 1, 3], [-1, -4, 0, -2], [3, -5, 4, 1]], np.int16)
    arrays: list[Array] = [x, x.astype(np.float32), x > 0]
    results = run(lambda *inputs: [getattr(ops, name)(s, 1, reverse) for s in inputs], *arrays)
    for array, result in zip(arrays, results, strict=True):
        wanted = function.accumulate(array[:, ::-1], 1)[:, ::-1] if reverse else function.accumulate(array, 1)
        np.testing.assert_array_equal(result, wanted, strict=True)


def test_cumsum_of_float16_accumulates_in_float32() -> None:
    x = np.full((1, 3000), 1, np.float16)
    assert run1(ops.cumsum, x)[0, -1] == 3000
