"""graphcore.array_api.linalg of complex matrices: against NumPy's, and by the properties of factorisations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcore as gc
import graphcore.array_api as xp
from graphcore import DType, Graph, TensorType
from tests.support.graphs import Array

la: Any = xp.linalg
reference: Any = np.linalg
pytestmark = pytest.mark.numbers

DTYPES = [np.complex64, np.complex128]
SQUARE = [(1, 1), (3, 3), (6, 6), (2, 4, 4), (0, 0), (0, 3, 3), (2, 0, 0)]
RECTANGULAR = [(4, 2), (2, 4), (3, 1), (1, 3), (2, 5, 3), (2, 3, 5), (3, 0), (0, 3), (0, 4, 2)]


def n(value: object) -> Array:
    return np.asarray(value)


def h(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def random(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape), dtype)


def close(result: object, wanted: Array, units: float = 64.0) -> None:
    array = n(result)
    assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
    size = float(np.abs(wanted).max(initial=0.0))
    np.testing.assert_allclose(array, wanted, rtol=0, atol=units * np.finfo(array.dtype).eps * max(size, 1.0))


def unitary(q: Array) -> None:
    """The columns are orthonormal."""
    close(h(q) @ q, np.broadcast_to(np.eye(q.shape[-1], dtype=q.dtype), (*q.shape[:-2], *(q.shape[-1],) * 2)))


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elimination_is_numpys(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype) + 3 * np.eye(shape[-1], dtype=dtype)
    b = random((*shape[:-1], 2), dtype, 1)
    close(la.det(xp.asarray(x)), np.asarray(reference.det(x)), 512)
    sign, logarithm = la.slogdet(xp.asarray(x))
    wanted = reference.slogdet(x)
    close(sign, np.asarray(wanted.sign))
    close(logarithm, np.asarray(wanted.logabsdet))
    assert logarithm.dtype is DType.of(np.dtype(dtype)).storage
    close(la.inv(xp.asarray(x)), reference.inv(x))
    close(la.solve(xp.asarray(x), xp.asarray(b)), reference.solve(x, b))
    close(la.matrix_power(xp.asarray(x), 3), reference.matrix_power(x, 3))
    close(la.matrix_power(xp.asarray(x), -2), reference.matrix_power(x, -2))


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_hermitian_matrices_are_decomposed(shape: tuple[int, ...], dtype: Any) -> None:
    g = random(shape, dtype)
    x = g @ h(g) + np.eye(shape[-1], dtype=dtype)
    lower = n(la.cholesky(xp.asarray(x)))
    close(lower @ h(lower), x)
    np.testing.assert_array_equal(np.diagonal(lower, 0, -2, -1).imag, 0)
    np.testing.assert_array_equal(n(la.cholesky(xp.asarray(x), upper=True)), h(lower))
    values, vectors = map(n, la.eigh(xp.asarray(x)))
    assert values.dtype == np.finfo(dtype).dtype
    close(values, reference.eigvalsh(x))
    close(la.eigvalsh(xp.asarray(x)), values)
    close((vectors * values[..., None, :]) @ h(vectors), x)
    unitary(vectors)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_lower_triangle_of_hermitian_matrices_is_read(dtype: Any) -> None:
    x = random((4, 4), dtype)
    x = x @ h(x) + np.eye(4, dtype=dtype)
    spoilt = np.tril(x) + np.triu(np.full((4, 4), 7, dtype), 1) + np.diag(np.full(4, 3j)).astype(dtype)
    np.testing.assert_array_equal(n(la.cholesky(xp.asarray(spoilt))), n(la.cholesky(xp.asarray(x))))
    np.testing.assert_array_equal(n(la.eigvalsh(xp.asarray(spoilt))), n(la.eigvalsh(xp.asarray(x))))


@pytest.mark.parametrize("shape", [*SQUARE, *RECTANGULAR])
@pytest.mark.parametrize("dtype", DTYPES)
def test_qr_has_orthonormal_columns_and_lapacks_signs(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype)
    for mode in ("reduced", "complete"):
        q, r = map(n, la.qr(xp.asarray(x), mode=mode))
        wanted = reference.qr(x, mode=mode)
        close(q @ r, x)
        unitary(q)
        close(r, wanted.R)
        np.testing.assert_array_equal(np.tril(r, -1), np.zeros(r.shape))


@pytest.mark.parametrize("shape", [*SQUARE, *RECTANGULAR])
@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_values_are_numpys_and_their_vectors_orthonormal(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype)
    k = min(shape[-2:])
    wanted = reference.svd(x, compute_uv=False)
    for full in (False, True):
        u, s, vh = map(n, la.svd(xp.asarray(x), full_matrices=full))
        close(s, wanted)
        close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x)
        unitary(u)
        unitary(h(vh))
    close(la.svdvals(xp.asarray(x)), wanted)
    close(la.pinv(xp.asarray(x)), reference.pinv(x), 256)
    np.testing.assert_array_equal(
        n(la.matrix_rank(xp.asarray(x))), reference.matrix_rank(x) if x.size else np.zeros(shape[:-2])
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_low_ranks_are_found(dtype: Any) -> None:
    x = random((5, 2), dtype) @ random((2, 5), dtype, 1)
    assert int(la.matrix_rank(xp.asarray(x))) == 2
    close(la.pinv(xp.asarray(x)), reference.pinv(x, rtol=5 * np.finfo(dtype).eps), 512)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_are_real_and_numpys(dtype: Any) -> None:
    x = random((2, 3, 4), dtype)
    for order in ("fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf):
        close(la.matrix_norm(xp.asarray(x), ord=order), reference.matrix_norm(x, ord=order))
    for order in (0, 1, 2, 3, -1, 2.5, np.inf, -np.inf):
        close(la.vector_norm(xp.asarray(x), ord=order, axis=-1), reference.vector_norm(x, ord=order, axis=-1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_and_parts_are_numpys(dtype: Any) -> None:
    x, y = random((2, 3, 3), dtype), random((2, 3, 3), dtype, 1)
    close(la.matmul(xp.asarray(x), xp.asarray(y)), x @ y)
    close(la.vecdot(xp.asarray(x), xp.asarray(y)), np.vecdot(x, y))
    close(la.vecdot(xp.asarray(x), xp.asarray(y), axis=-2), (np.conj(x) * y).sum(-2))
    close(la.outer(xp.asarray(x[0, 0]), xp.asarray(y[0, 0])), np.outer(x[0, 0], y[0, 0]))
    close(la.cross(xp.asarray(x), xp.asarray(y)), np.cross(x, y))
    close(la.trace(xp.asarray(x), offset=1), np.trace(x, 1, -2, -1))
    close(la.tensordot(xp.asarray(x[0]), xp.asarray(y[0])), np.tensordot(x[0], y[0]))
    np.testing.assert_array_equal(n(la.diagonal(xp.asarray(x))), np.diagonal(x, 0, -2, -1))
    np.testing.assert_array_equal(n(la.matrix_transpose(xp.asarray(x))), np.swapaxes(x, -1, -2))
    empty = xp.zeros((0, 3), dtype=DType.of(np.dtype(dtype)))
    assert la.vecdot(empty, empty).shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_that_are_not_finite_give_nan(dtype: Any) -> None:
    x = random((2, 3, 3), dtype)
    x[0, 1, 1] = complex(1, np.nan)
    for values in (la.svdvals(xp.asarray(x)), la.eigvalsh(xp.asarray(x))):
        assert np.isnan(n(values)[0]).all()
        assert np.isfinite(n(values)[1]).all()


def test_symbols_whose_size_only_the_run_knows_are_decomposed() -> None:
    graph = Graph("g", {"x": TensorType(DType.complex128, ["b", "n", "n"])}, promotion="array_api")
    x = graph["x"]
    graph.output(la.inv(x), *la.qr(x), *la.eigh(xp.matmul(x, xp.conj(x.mT))))
    array = random((2, 4, 4), np.complex128)
    inverse, q, r, values, vectors = gc.InferenceSession().load(graph)(array)
    close(inverse @ array, np.broadcast_to(np.eye(4, dtype=complex), (2, 4, 4)), 1024)
    close(q @ r, array)
    close((vectors * values[..., None, :]) @ h(vectors), array @ h(array))
