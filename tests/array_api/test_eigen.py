"""graphcore.array_api.linalg.eig and eigvals: by the backward error A v = w v, and against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
import graphcore.array_api as xp
from graphcore import DType, Graph, TensorType
from graphcore.errors import DTypeError, ShapeError
from tests.sampling import drawn
from tests.support.graphs import Array

la: Any = xp.linalg
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def random(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    array = rng.normal(size=shape)
    return np.asarray(array + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else array, dtype)


def eig(x: Array) -> tuple[Array, Array]:
    result = la.eig(xp.asarray(x))
    values, vectors = np.asarray(result.eigenvalues), np.asarray(result.eigenvectors)
    assert values.shape == x.shape[:-1]
    assert vectors.shape == x.shape
    assert values.dtype == vectors.dtype == np.result_type(x.dtype, np.complex64)
    return values, vectors


def assert_eigen(x: Array, units: float = 8.0) -> tuple[Array, Array]:
    """Raise where A v differs from w v by more than units * n eps |A|, or where a vector is not of length 1."""
    values, vectors = eig(x)
    eps, n = np.finfo(x.dtype).eps, x.shape[-1]
    wide = x.astype(np.complex128)
    apart = np.abs(wide @ vectors.astype(np.complex128) - vectors.astype(np.complex128) * values[..., None, :])
    norms = np.sqrt((np.abs(wide) ** 2).sum((-2, -1)))
    assert (apart.max((-2, -1), initial=0.0) <= units * n * eps * norms).all(), apart.max() / eps
    np.testing.assert_allclose((np.abs(vectors.astype(np.complex128)) ** 2).sum(-2), 1, rtol=0, atol=8 * n * eps)
    return values, vectors


def assert_near(result: Array, wanted: Array, tolerance: float) -> None:
    """Each eigenvalue is near one that is wanted, one for one."""
    results = list(wanted)
    for value in result:
        nearest = min(range(len(results)), key=lambda i: abs(results[i] - value))
        assert abs(results.pop(nearest) - value) <= tolerance


@pytest.mark.numbers
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (7, 7), (16, 16), (3, 2, 5, 5), (4, 2, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors_are_multiplied_by_their_eigenvalues(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype)
    values, _ = assert_eigen(x)
    tolerance = 100 * np.finfo(dtype).eps * np.abs(x).max() * shape[-1]
    for item, matrix in zip(values.reshape(-1, shape[-1]), x.reshape(-1, *shape[-2:]), strict=True):
        assert_near(item, np.linalg.eigvals(matrix), tolerance)
        assert_near(np.asarray(la.eigvals(xp.asarray(matrix))), item, tolerance)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_of_64_rows_are_decomposed(dtype: Any) -> None:
    assert_eigen(random((64, 64), dtype), units=2)


NAMED: dict[str, Any] = {
    "triangular": np.triu(random((8, 8), np.float64)),
    "lower triangular": np.tril(random((8, 8), np.float64)),
    "symmetric": (lambda x: x + x.T)(random((8, 8), np.float64)),
    "rotation": [[0, -1], [1, 0]],
    "Jordan": np.diag(np.ones(7), 1) + 2 * np.eye(8),
    "nilpotent": np.diag(np.ones(7), 1),
    "identity": np.eye(5),
    "zeros": np.zeros((4, 4)),
    "ones": np.ones((6, 6)),
    "cyclic": np.roll(np.eye(7), 1, 0),
    "cyclic of 4": np.roll(np.eye(4), 1, 0),
    "far from normal": np.triu(np.tril(np.ones((20, 20)), 3)) - np.diag(np.ones(19), -1),
    "large": random((5, 5), np.float64) * 1e30,
    "small": random((5, 5), np.float64) * 1e-30,
    "companion": np.vstack([-np.poly(np.arange(1, 6))[1:], np.eye(5)[:4]]),
    "two blocks": np.kron(np.eye(2), np.array([[1.0, 2], [-3, 1]])),
    "equal real pair": [[3, 1], [-1, 1]],
}


@pytest.mark.numbers
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_matrices_are_decomposed(name: str, dtype: Any) -> None:
    assert_eigen(np.asarray(NAMED[name], np.float64).astype(dtype))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_defective_eigenvalues_are_near_within_the_root_of_epsilon(dtype: Any) -> None:
    mixed = random((4, 4), np.float64)
    jordan = np.diag([2.0, 2, 2, 5]) + np.diag([1.0, 1, 0], 1)
    x = (mixed @ jordan @ np.linalg.inv(mixed)).astype(dtype)
    values, _ = assert_eigen(x)
    assert_near(values, np.array([2, 2, 2, 5]), 1e-3)


@given(st.integers(0, 2**32), st.integers(1, 7), st.sampled_from(DTYPES))
@settings(max_examples=drawn(40), deadline=None)
def test_any_matrices_are_decomposed(seed: int, n: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    x = random((2, n, n), dtype, seed)
    kind = seed % 4
    if kind == 1:
        x = np.asarray(rng.integers(-2, 3, x.shape), dtype)
    elif kind == 2:
        x[..., -1] = x[..., 0]
    elif kind == 3:
        x *= rng.integers(0, 2, x.shape)
    assert_eigen(x, units=64)  # of 8,545 matrices with zeros one took 34, and the others at most 6


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigenvalues_of_real_matrices_are_real_or_exact_pairs(dtype: Any) -> None:
    for seed in range(5):
        values, vectors = eig(random((9, 9), dtype, seed))
        column = 0
        while column < 9:
            if values[column].imag == 0:
                assert not np.signbit(values[column].imag)
                np.testing.assert_array_equal(vectors[:, column].imag, 0)
                column += 1
                continue
            assert values[column].imag > 0
            assert values[column + 1] == values[column].conj()
            np.testing.assert_array_equal(vectors[:, column + 1], vectors[:, column].conj())
            column += 2


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigenvalues_on_a_triangle_are_exact(dtype: Any) -> None:
    x = np.triu(random((6, 6), dtype))
    values, _ = eig(x)
    np.testing.assert_array_equal(values, np.diagonal(x))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_matrices_that_are_not_finite_have_no_eigenvalues_and_spoil_no_others(dtype: Any, value: float) -> None:
    x = random((2, 4, 4), dtype)
    clean, vectors = eig(x)
    x[0, 1, 2] = value
    values, result = eig(x)
    assert np.isnan(values[0]).all()
    assert np.isnan(result[0]).all()
    np.testing.assert_array_equal(values[1], clean[1])
    np.testing.assert_array_equal(result[1], vectors[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0)])
def test_empty_stacks_have_empty_decompositions(shape: tuple[int, ...], dtype: Any) -> None:
    values, vectors = eig(np.zeros(shape, dtype))
    assert (values.shape, vectors.shape) == (shape[:-1], shape)
    assert np.asarray(la.eigvals(xp.zeros(shape, dtype=DType.of(np.dtype(dtype))))).shape == shape[:-1]


def test_symbols_whose_size_only_the_run_knows_are_decomposed() -> None:
    graph = Graph("g", {"x": TensorType(DType.float64, ["b", "n", "n"])}, promotion="array_api")
    result = la.eig(graph["x"])
    assert result.eigenvalues.type == TensorType(DType.complex128, ["b", "n"])
    graph.output(*result)
    model = gc.InferenceSession().load(graph)
    for n in (1, 2, 5, 0):
        x = random((2, n, n), np.float64)
        values, vectors = model(x)
        np.testing.assert_allclose(x @ vectors, vectors * values[..., None, :], atol=1e-13)


def test_what_has_no_eigenvalues_is_refused() -> None:
    with pytest.raises(ShapeError, match="eig: matrices of 2 rows and 3 columns are not square"):
        la.eig(xp.zeros((2, 3)))
    with pytest.raises(ShapeError, match="eigvals: x must be matrices, got rank 1"):
        la.eigvals(xp.zeros(2))
    with pytest.raises(DTypeError, match="eig: int64 is not a floating dtype"):
        la.eig(xp.zeros((2, 2), dtype=xp.int64))
