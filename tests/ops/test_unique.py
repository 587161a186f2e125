"""Different values, against Python's own sorting and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import ShapeError
from tests.sampling import drawn
from tests.support.graphs import Array, run

pytestmark = pytest.mark.releases

DTYPES = [np.bool_, np.int8, np.uint16, np.int64, np.uint64, np.float16, np.float32, np.float64]


def numbers(dtype: Any, *shape: int) -> Array:
    """Few of them different."""
    return np.random.default_rng(2).integers(0, 3, shape).astype(dtype)


def check(got: list[Array], x: Array, axis: int | None) -> None:
    want = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    for result, wanted in zip(got, want, strict=True):
        np.testing.assert_array_equal(result, wanted.reshape(result.shape) if wanted.size == result.size else wanted)
    assert got[0].dtype == x.dtype
    assert got[2].shape == (x.shape if axis is None else (x.shape[axis],))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (1,), (40,), (4, 3, 5), ()])
def test_unique_is_that_of_numpy(dtype: Any, shape: tuple[int, ...]) -> None:
    x = numbers(dtype, *shape)
    many: list[Any] = [shape, [f"d{i}" for i in range(len(shape))], ["?"] * len(shape)]
    for dims in many:
        check(run(ops.unique, x, dims=[dims]), x, None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_slices_are_compared_when_an_axis_is_named(dtype: Any, axis: int) -> None:
    x = numbers(dtype, 3, 8, 2)
    many: list[Any] = [[3, 8, 2], ["a", "b", "c"], ["?", "?", 2]]
    for dims in many:
        check(run(lambda x: ops.unique(x, axis), x, dims=[dims]), x, axis % 3)


def test_strings_are_ordered() -> None:
    graph = Graph("words", {"x": TensorType(DType.string, ["n", 2])})
    flat, rows = ops.unique(graph["x"]), ops.unique(graph["x"], 0)
    graph.output(*flat, *rows)
    x = np.array([["b", "a"], ["a", "c"], ["b", "a"]], object)
    values, indices, inverse, counts, *of_rows = gc.InferenceSession().load(graph)(x)
    assert values.tolist() == ["a", "b", "c"]
    assert indices.tolist() == [1, 0, 3]
    assert inverse.tolist() == [[1, 0], [0, 2], [1, 0]]
    assert counts.tolist() == [3, 2, 1]
    assert of_rows[0].tolist() == [["a", "c"], ["b", "a"]]
    assert [r.tolist() for r in of_rows[1:]] == [[1, 0], [1, 0, 1], [1, 2]]


def test_nans_all_differ_and_zeros_are_one() -> None:
    x = np.array([np.nan, 0.0, np.nan, -0.0, 1.0], np.float32)
    values, indices, inverse, counts = run(ops.unique, x)
    np.testing.assert_array_equal(values, [0, 1, np.nan, np.nan])
    assert indices.tolist() == [1, 4, 0, 2]
    assert inverse.tolist() == [2, 0, 3, 0, 1]
    assert counts.tolist() == [2, 1, 1, 1]
    rows = run(lambda x: ops.unique(x, 0), x[:, None])
    assert rows[3].tolist() == [2, 1, 1, 1]


@settings(max_examples=drawn(30), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12))
def test_values_are_in_order_with_their_counts(given_numbers: list[int]) -> None:
    x = np.array(given_numbers, np.int64)
    values, _, inverse, counts = MODEL(x)
    assert values.tolist() == sorted(set(given_numbers))
    assert counts.tolist() == [given_numbers.count(v) for v in sorted(set(given_numbers))]
    np.testing.assert_array_equal(values[inverse], x)


def _model() -> gc.Model:
    graph = Graph("unique", {"x": TensorType(DType.int64, ["n"])})
    graph.output(*ops.unique(graph["x"]))
    return gc.InferenceSession().load(graph)


MODEL = _model()


def test_number_of_values_has_the_name_that_is_given() -> None:
    graph = Graph("unique", {"x": TensorType(DType.float32, ["n", 4])})
    y = ops.unique(graph["x"], out_dim="values")
    assert [s.shape for s in y] == [["values"], ["values"], ["n", 4], ["values"]]
    y = ops.unique(graph["x"], 0, out_dim="rows")
    assert [s.shape for s in y] == [["rows", 4], ["rows"], ["n"], ["rows"]]
    assert ops.unique(graph["x"]).values.shape[0].is_dynamic
    with pytest.raises(ShapeError, match="there is no axis 2 of a tensor of rank 2"):
        ops.unique(graph["x"], 2)
