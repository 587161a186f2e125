"""graphcore.array_api.linalg and fft: against NumPy's, and by the properties of matrix factorisations."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
import graphcore.array_api as xp
from graphcore import DType, Graph, TensorType
from graphcore.errors import DTypeError, PromotionError, ShapeError
from tests.sampling import drawn
from tests.support.graphs import Array, graph_of, run, run1

la: Any = xp.linalg
reference: Any = np.linalg

FLOATS = [np.float32, np.float64]
SQUARE = [(1, 1), (3, 3), (8, 8), (2, 4, 4), (2, 3, 5, 5), (0, 0), (0, 3, 3), (2, 0, 0)]
RECTANGULAR = [(4, 2), (2, 4), (7, 3), (3, 1), (1, 3), (2, 5, 3), (2, 3, 5), (3, 0), (0, 3), (0, 4, 2), (2, 0, 3)]


def a(value: object) -> xp.Array:
    return xp.asarray(value)


def n(value: object) -> Array:
    return np.asarray(value)


def mt(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def random(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def eps(x: Array) -> float:
    return float(np.finfo(x.dtype).eps)


def close(result: object, wanted: Array, units: float = 16.0, scale: float | None = None) -> None:
    """Equal to so many of the dtype's epsilons times the greatest magnitude there is."""
    array = n(result)
    assert array.shape == wanted.shape
    if not array.size:
        return
    size = float(np.abs(wanted.astype(np.float64)).max()) if scale is None else scale
    apart = np.abs(array.astype(np.float64) - wanted.astype(np.float64)).max()
    assert apart <= units * eps(array) * max(size, float(np.finfo(array.dtype).tiny)), (apart, size)


def orthonormal(q: Array, units: float = 32.0) -> None:
    """The columns."""
    close(mt(q) @ q, np.broadcast_to(np.eye(q.shape[-1], dtype=q.dtype), (*q.shape[:-2], *(q.shape[-1],) * 2)), units)


@st.composite
def stacks(draw: st.DrawFn, *, square: bool) -> Array:
    """Random matrices: whole numbers, repeated columns, very different magnitudes, or whatever comes."""
    dtype = draw(st.sampled_from(FLOATS))
    m = draw(st.integers(1, 7))
    k = m if square else draw(st.integers(1, 7))
    shape = (*draw(st.sampled_from([(), (), (2,), (2, 3)])), m, k)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    array = rng.normal(size=shape)
    kind = draw(st.sampled_from(["plain", "whole", "repeated", "graded", "low", "zeros"]))
    if kind == "whole":
        array = rng.integers(-2, 3, shape).astype(np.float64)
    elif kind == "repeated":
        array[..., -1] = array[..., 0]
    elif kind == "graded":
        array *= 10.0 ** rng.integers(-8, 9, (*shape[:-2], 1, k))
    elif kind == "low":
        array = array[..., :, :1] * array[..., :1, :]
    elif kind == "zeros":
        array *= rng.integers(0, 2, shape)
    return np.asarray(array * 10.0 ** draw(st.integers(-20, 20)), dtype)


# Products and parts


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float32, np.float64])
@pytest.mark.parametrize(("lhs", "rhs", "axis"), [((3,), (3,), -1), ((2, 3), (3,), -1), ((3, 1), (3, 4), -2)])
def test_cross_equals_numpys_when_shapes_broadcast(
    dtype: Any, lhs: tuple[int, ...], rhs: tuple[int, ...], axis: int
) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 9, s).astype(dtype) for s in (lhs, rhs))
    x_, y_ = np.broadcast_arrays(x, y)
    wanted = np.cross(x_, y_, axis=axis)
    result = n(la.cross(a(x), a(y), axis=axis))
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_products_are_numpys(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (2, 3, 4)).astype(dtype), rng.integers(-9, 9, (2, 4, 5)).astype(dtype)
    np.testing.assert_array_equal(n(la.matmul(a(x), a(y))), x @ y)
    np.testing.assert_array_equal(
        n(la.tensordot(a(x), a(y), axes=((2, 0), (1, 0)))), np.tensordot(x, y, ((2, 0), (1, 0)))
    )
    np.testing.assert_array_equal(n(la.vecdot(a(x), a(x[0]), axis=-2)), (x * x[0]).sum(-2))
    np.testing.assert_array_equal(n(la.outer(a(x[0, 0]), a(y[0, 0]))), np.outer(x[0, 0], y[0, 0]))
    np.testing.assert_array_equal(n(la.matrix_transpose(a(x))), mt(x))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint64, np.float32])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (2, 3, 4), (0, 3), (3, 0), (0, 2, 2)])
def test_diagonal_is_numpys_for_every_offset(dtype: Any, shape: tuple[int, ...]) -> None:
    x = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    for offset in range(-6, 7):
        result = n(la.diagonal(a(x), offset=offset))
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.diagonal(x, offset, -2, -1))


@pytest.mark.parametrize(
    ("dtype", "result"),
    [(np.int8, np.int64), (np.int64, np.int64), (np.uint8, np.uint64), (np.float32, np.float32)],
)
def test_trace_sums_in_the_standards_dtype(dtype: Any, result: Any) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype) * 5
    for offset in (-3, -1, 0, 2, 9):
        output = n(la.trace(a(x), offset=offset))
        assert output.dtype == result
        np.testing.assert_array_equal(output, np.trace(x.astype(result), offset, -2, -1))
    assert la.trace(a(x), dtype=xp.float64).dtype is xp.float64


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("dtype", FLOATS)
def test_matrix_power_is_repeated_multiplication(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype) + 3 * np.eye(shape[-1], dtype=dtype)
    for power in (0, 1, 2, 5, 10):
        close(la.matrix_power(a(x), power), reference.matrix_power(x, power), 64)
    result = n(la.matrix_power(a(x), -3))
    np.testing.assert_allclose(result, reference.matrix_power(x.astype(np.float64), -3), rtol=1e-3, atol=1e-3)


# Elimination


@given(stacks(square=True), st.integers(0, 4), st.integers(0, 2**32))
@settings(max_examples=drawn(60))
def test_solve_leaves_a_small_residual(x: Array, columns: int, seed: int) -> None:
    x = x + np.abs(x).max() * np.eye(x.shape[-1], dtype=x.dtype) * 4 + np.eye(x.shape[-1], dtype=x.dtype)
    b = random((*x.shape[:-1], columns) if columns else x.shape[-1:], x.dtype.type, seed)
    result = n(la.solve(a(x), a(b)))
    assert result.shape == ((*x.shape[:-1], columns) if columns else x.shape[:-1])
    if not columns:
        result, b = result[..., None], np.broadcast_to(b[:, None], (*x.shape[:-1], 1))
    close(x @ result, b, 64, scale=float(np.abs(x).max() * np.abs(result).max() if result.size else 0))


@pytest.mark.parametrize("dtype", FLOATS)
def test_solve_broadcasts_stacks_and_promotes(dtype: Any) -> None:
    x, b = random((2, 1, 3, 3), dtype), random((4, 3, 2), np.float64, 1)
    result = n(la.solve(a(x), a(b)))
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, reference.solve(x.astype(np.float64), b), rtol=1e-9)


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("dtype", FLOATS)
def test_inverse_and_determinant_are_numpys(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype, 3)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(n(la.inv(a(x))), reference.inv(wide), rtol=0, atol=4e4 * eps(x))
    np.testing.assert_allclose(n(la.det(a(x))), reference.det(wide), rtol=300 * eps(x))
    sign, size = la.slogdet(a(x))
    wanted_sign, wanted_size = reference.slogdet(wide)
    np.testing.assert_array_equal(n(sign), wanted_sign)
    np.testing.assert_allclose(n(size), wanted_size, rtol=100 * eps(x), atol=100 * eps(x))


def test_determinants_of_permutations_are_their_parities() -> None:
    rng = np.random.default_rng(0)
    x = np.stack([np.eye(6)[rng.permutation(6)] for _ in range(20)])
    np.testing.assert_array_equal(n(la.det(a(x))), np.round(reference.det(x)))


@given(st.integers(1, 6), st.integers(0, 2**32))
@settings(max_examples=25)
def test_determinant_of_a_product_is_the_product_of_determinants(size: int, seed: int) -> None:
    x, y = random((size, size), np.float64, seed), random((size, size), np.float64, seed + 1)
    product = float(la.det(la.matmul(a(x), a(y))))
    scale = float(la.matrix_norm(a(x), ord=2) * la.matrix_norm(a(y), ord=2)) ** size
    assert abs(product - float(la.det(a(x))) * float(la.det(a(y)))) <= 1e-13 * scale


@pytest.mark.parametrize("dtype", FLOATS)
def test_singular_matrices_have_determinant_0_and_no_finite_inverse(dtype: Any) -> None:
    x = np.array(
        [[[1, 2, 3], [2, 4, 6], [0, 1, 1]], [[0, 0, 0], [0, 0, 0], [0, 0, 0]], [[0, 0, 1], [0, 0, 2], [0, 0, 3]]], dtype
    )
    np.testing.assert_array_equal(n(la.det(a(x))), [0, 0, 0])
    sign, size = la.slogdet(a(x))
    np.testing.assert_array_equal(n(sign), [0, 0, 0])
    np.testing.assert_array_equal(n(size), [-np.inf] * 3)
    assert not np.isfinite(n(la.inv(a(x)))).all(axis=(-1, -2)).any()


def test_slogdet_does_not_overflow() -> None:
    x = np.eye(50, dtype=np.float32) * np.float32(-1e20)
    x[0, 0] = 1e20
    sign, size = la.slogdet(a(x))
    assert float(sign) == -1
    assert float(size) == pytest.approx(50 * math.log(1e20), rel=1e-6)


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("dtype", FLOATS)
def test_cholesky_multiplies_back_and_reads_the_lower_triangle(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype)
    x = x @ mt(x) + np.eye(shape[-1], dtype=dtype)
    lower = n(la.cholesky(a(np.tril(x))))
    np.testing.assert_array_equal(lower, np.tril(lower))
    close(lower @ mt(lower), x)
    np.testing.assert_array_equal(n(la.cholesky(a(x), upper=True)), mt(lower))


def test_cholesky_gives_nan_where_a_matrix_is_not_positive_definite() -> None:
    x = np.stack([np.eye(3), np.diag([1.0, -1.0, 1.0]), np.ones((3, 3))])
    np.testing.assert_array_equal(np.isnan(n(la.cholesky(a(x)))).any(axis=(-1, -2)), [False, True, True])


# Reflections and rotations


@given(stacks(square=False), st.sampled_from(["reduced", "complete"]))
@settings(max_examples=drawn(60))
def test_qr_multiplies_back_with_orthonormal_columns(x: Array, mode: str) -> None:
    q, r = map(n, la.qr(a(x), mode=mode))
    wanted_q, wanted_r = reference.qr(x, mode=mode)
    assert q.shape == wanted_q.shape
    assert r.shape == wanted_r.shape
    np.testing.assert_array_equal(r, np.triu(r))
    orthonormal(q)
    close(q @ r, x, 32)


@pytest.mark.parametrize("shape", [*SQUARE, *RECTANGULAR])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_has_numpys_shapes_and_signs(shape: tuple[int, ...], mode: str) -> None:
    x = random(shape, np.float64)
    result = la.qr(a(x), mode=mode)
    assert type(result).__name__ == "QRResult"
    for part, wanted in zip((result.Q, result.R), reference.qr(x, mode=mode), strict=True):
        close(part, wanted, 32, scale=8)


@given(stacks(square=True))
@settings(max_examples=drawn(60))
def test_eigh_finds_eigenvalues_and_orthonormal_vectors(x: Array) -> None:
    x = np.tril(x) + mt(np.tril(x, -1))
    values, vectors = map(n, la.eigh(a(np.tril(x))))  # the upper triangle is not read
    assert (np.diff(values) >= 0).all()
    orthonormal(vectors)
    close(x @ vectors, vectors * values[..., None, :], 64, scale=float(np.abs(x).max()) * x.shape[-1])
    close(values, reference.eigvalsh(x.astype(np.float64)), 64, scale=float(np.abs(x).max()) * x.shape[-1])
    np.testing.assert_array_equal(n(la.eigvalsh(a(x))), values)


@given(stacks(square=False), st.booleans())
@settings(max_examples=25)
def test_svd_multiplies_back_with_orthonormal_sides(x: Array, full: bool) -> None:
    check_svd(x, full)


@pytest.mark.full
@given(stacks(square=False), st.booleans())
@settings(max_examples=drawn(80))
def test_svd_multiplies_back_when_of_many_matrices(x: Array, full: bool) -> None:
    check_svd(x, full)


def check_svd(x: Array, full: bool) -> None:
    result = la.svd(a(x), full_matrices=full)
    u, s, vh = n(result.U), n(result.S), n(result.Vh)
    for part, wanted in zip((u, s, vh), reference.svd(x, full_matrices=full), strict=True):
        assert part.shape == wanted.shape
        assert part.dtype == x.dtype
    k, size = s.shape[-1], float(np.abs(x).max()) * max(x.shape[-2:])
    assert (np.diff(s) <= 0).all()
    assert (s >= 0).all()
    orthonormal(u)
    orthonormal(mt(vh))
    close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, 32, scale=size)
    close(s, reference.svd(x.astype(np.float64), compute_uv=False), 32, scale=size)
    np.testing.assert_array_equal(n(la.svdvals(a(x))), s)


@pytest.mark.parametrize("shape", [*SQUARE, *RECTANGULAR])
@pytest.mark.parametrize("full", [False, True])
def test_svd_has_numpys_shapes_also_of_empty_matrices(shape: tuple[int, ...], full: bool) -> None:
    x = random(shape, np.float32)
    for part, wanted in zip(la.svd(a(x), full_matrices=full), reference.svd(x, full_matrices=full), strict=True):
        assert part.shape == wanted.shape
    u, _, vh = map(n, la.svd(a(x), full_matrices=full))
    orthonormal(u)
    orthonormal(mt(vh))


def test_svd_keeps_small_singular_values_of_scaled_columns() -> None:
    # Of matrices whose columns differ in scale only, each value is right to its own last digits.
    x = reference.qr(random((5, 5), np.float64))[0] * 10.0 ** np.array([0, -30, -60, -90, -120])
    np.testing.assert_allclose(n(la.svdvals(a(x))), 10.0 ** np.array([0, -30, -60, -90, -120]), rtol=1e-14)


@pytest.mark.parametrize("scale", [1e37, 1e-37, 1e-44])
def test_decompositions_hold_at_the_ends_of_float32(scale: float) -> None:
    x = np.array([[3, 1, -2], [1, 2, 0], [-2, 0, 1]], np.float32) * np.float32(scale)
    s = n(la.svdvals(a(x))).astype(np.float64)
    np.testing.assert_allclose(s, reference.svd(x.astype(np.float64), compute_uv=False), rtol=1e-5, atol=3e-45)
    w = n(la.eigvalsh(a(x))).astype(np.float64)
    np.testing.assert_allclose(w, reference.eigvalsh(x.astype(np.float64)), rtol=1e-5, atol=3e-45)
    q, r = la.qr(a(x))
    np.testing.assert_allclose(
        n(q).astype(np.float64) @ n(r).astype(np.float64), x, rtol=1e-5, atol=float(s[0]) * 1e-5 + 3e-45
    )
    norm = reference.norm(x.astype(np.float64))
    np.testing.assert_allclose(float(la.matrix_norm(a(x))), norm, rtol=1e-6, atol=3e-45)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_svd_and_eigh_of_what_is_not_finite_are_nan_and_leave_other_matrices_alone(wrong: float) -> None:
    x = np.stack([np.eye(3), np.eye(3)])
    x[1, 2, 0] = wrong
    for part in (*la.svd(a(x)), *la.eigh(a(x)), la.eigvalsh(a(x)), la.svdvals(a(x)), la.pinv(a(x))):
        assert np.isfinite(n(part)[0]).all()
        assert np.isnan(n(part)[1]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_rotations_stay_accurate_for_larger_matrices(dtype: Any) -> None:
    x = random((48, 48), dtype)
    u, s, vh = map(n, la.svd(a(x)))
    orthonormal(u)
    orthonormal(vh)
    close((u * s) @ vh, x, 32)
    symmetric = x + x.T
    w, v = map(n, la.eigh(a(symmetric)))
    orthonormal(v)
    close(symmetric @ v, v * w, 96)


# What comes of singular values


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 7), st.sampled_from(FLOATS), st.integers(0, 2**32))
@settings(max_examples=drawn(40))
def test_pinv_meets_penroses_conditions_for_every_rank(m: int, k: int, rank: int, dtype: Any, seed: int) -> None:
    rank = min(m, k, rank)
    rng = np.random.default_rng(seed)
    left, right = (reference.qr(rng.normal(size=(size, size)))[0][:, :rank] for size in (m, k))
    x = np.asarray((left * rng.uniform(1, 9, rank)) @ right.T, dtype)
    result = n(la.pinv(a(x)))
    assert int(la.matrix_rank(a(x))) == reference.matrix_rank(x.astype(np.float64), rtol=1e-3) == rank
    close(x @ result @ x, x, 128, scale=9)
    close(result @ x @ result, result, 128, scale=9)
    close(x @ result, (x @ result).T, 128, scale=9)
    close(result @ x, (result @ x).T, 128, scale=9)


def test_rank_and_pinv_are_numpys_for_tolerances_of_all_kinds() -> None:
    x = random((3, 5, 4), np.float64)
    x[0, :, 3] = x[0, :, 0]
    x[1] = 0
    for rtol in (None, 0.3, 1, np.float64(0.2), np.array([0.5, 0.1, 0.9])):
        result = la.matrix_rank(a(x), rtol=rtol)
        assert result.dtype is xp.int64
        np.testing.assert_array_equal(n(result), reference.matrix_rank(x, rtol=rtol))
        close(la.pinv(a(x), rtol=rtol), reference.pinv(x, rtol=rtol), 64)
    each = np.array([0.5, 0.1, 0.9], np.float32)
    np.testing.assert_array_equal(n(la.matrix_rank(a(x), rtol=a(each))), reference.matrix_rank(x, rtol=each))
    assert int(la.matrix_rank(a(np.zeros((0, 3))))) == 0
    assert la.pinv(a(np.zeros((2, 0, 3), np.float32))).shape == (2, 3, 0)


# Norms


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (2, 3, 4), (1, 1), (0, 2, 3)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_matrix_norm_is_numpys(order: float, shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype)
    for keepdims in (False, True):
        result = la.matrix_norm(a(x), ord=order, keepdims=keepdims)
        close(result, reference.matrix_norm(x, ord=order, keepdims=keepdims))
    assert n(la.matrix_norm(a(np.zeros((2, 3, 0), dtype)), ord="nuc", keepdims=True)).tolist() == [[[0]], [[0]]]


@pytest.mark.parametrize("order", [2, 1, 0, -1, -2, 3, 0.5, -2.5, 7.25, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 1), ()])
@pytest.mark.parametrize("dtype", FLOATS)
def test_vector_norm_is_numpys(order: float, axis: int | tuple[int, ...] | None, dtype: Any) -> None:
    x = random((2, 3, 4), dtype)
    for keepdims in (False, True):
        result = la.vector_norm(a(x), axis=axis, ord=order, keepdims=keepdims)
        if axis == ():
            close(result, np.abs(x) if order else np.ones_like(x))
        else:
            close(result, reference.vector_norm(x, axis=axis, ord=order, keepdims=keepdims))


def test_vector_norm_neither_overflows_nor_vanishes() -> None:
    for order in (2, 3, 50, -2, -40):
        for scale in (1e30, 1e-30):
            x = np.array([3, 4, 5], np.float32) * np.float32(scale)
            wanted = (np.array([3.0, 4, 5]) ** order).sum() ** (1 / order) * scale
            assert float(la.vector_norm(a(x), ord=order)) == pytest.approx(wanted, rel=1e-5)
    zeros = np.zeros((2, 3), np.float32)
    for any_order in (2, 0, -1, 3.5, np.inf):
        assert n(la.vector_norm(a(zeros), ord=any_order, axis=-1)).tolist() == [0, 0]
    assert float(la.vector_norm(a(np.array([np.inf, 1.0])))) == np.inf
    assert math.isnan(float(la.vector_norm(a(np.array([np.nan, 1.0])))))
    assert float(la.vector_norm(a(np.zeros(0)))) == 0


# Graphs

NAMED: dict[str, tuple[Callable[..., Any], int]] = {
    "solve": (lambda x: la.solve(x, x), 1),
    "inv": (la.inv, 1),
    "det": (la.det, 1),
    "slogdet": (la.slogdet, 2),
    "cholesky": (lambda x: la.cholesky(la.matmul(x, xp.matrix_transpose(x))), 1),
    "qr": (la.qr, 2),
    "eigh": (lambda x: la.eigh(x + xp.matrix_transpose(x)), 2),
    "svd": (la.svd, 3),
    "pinv": (la.pinv, 1),
    "matrix_rank": (la.matrix_rank, 1),
    "matrix_power": (lambda x: la.matrix_power(x, -3), 1),
    "matrix_norm": (lambda x: la.matrix_norm(x, ord="nuc"), 1),
    "vector_norm": (lambda x: la.vector_norm(x, axis=(0, 1), ord=3), 1),
    "diagonal": (la.diagonal, 1),
    "trace": (la.trace, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("promotion", ["max", "array_api"])
def test_symbols_of_named_sizes_build_one_graph_for_all_of_them(name: str, promotion: str) -> None:
    function, count = NAMED[name]
    graph = graph_of(function, np.zeros((2, 3, 3)), dims=[["stack", "n", "n"]], promotion=promotion)
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    model = gc.InferenceSession().load(graph)
    for shape in ((2, 3, 3), (1, 1, 1), (3, 6, 6)):
        x = random(shape, np.float64)
        result, eager = model(x), function(a(x))
        wanted = eager if isinstance(eager, tuple) else (eager,)
        assert len(result) == count
        for part, other in zip(result, wanted, strict=True):
            np.testing.assert_allclose(part, n(other), rtol=1e-9, atol=1e-11)


def test_graphs_with_loops_export_load_copy_and_pickle(tmp_path: object) -> None:
    x = random((2, 4, 3), np.float32)
    graph = graph_of(la.svd, x, dims=[x.shape])
    wanted = gc.InferenceSession().load(graph)(x)
    path = f"{tmp_path}/svd.onnx"
    graph.export(path)
    again = copy.deepcopy(graph)
    for same in (Graph.load(path), again, pickle.loads(pickle.dumps(graph))):
        for part, other in zip(gc.InferenceSession().load(same)(x), wanted, strict=True):
            np.testing.assert_array_equal(part, other)
    onnx.checker.check_model(graph.to_onnx(target="onnx"), full_check=True)


def count_nodes(graph: onnx.GraphProto) -> int:
    """Those of bodies included."""
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.name == "body"]
    return len(graph.node) + sum(map(count_nodes, bodies))


@pytest.mark.parametrize("name", ["inv", "eigvalsh", "svdvals", "qr", "cholesky"])
def test_graphs_do_not_grow_with_the_matrix(name: str) -> None:
    graphs = [graph_of(getattr(la, name), np.zeros((size, size)), dims=[(size, size)]) for size in (4, 64)]
    small, large = (count_nodes(graph.to_onnx().graph) for graph in graphs)
    assert small == large < 150


def test_float32_and_static_sizes_run_from_symbols() -> None:
    x = random((2, 4, 3), np.float32)
    u, s, vh = run(lambda x: la.svd(x, full_matrices=False), x, dims=[x.shape])
    close((u * s[..., None, :]) @ vh, x)
    np.testing.assert_array_equal(
        run1(lambda x: la.matrix_rank(x, rtol=0.5), x, dims=[x.shape]), reference.matrix_rank(x, rtol=0.5)
    )


# Refusals


@pytest.mark.parametrize("name", ["cholesky", "det", "eigh", "eigvalsh", "inv", "slogdet", "solve", "matrix_power"])
def test_matrices_that_are_not_square_are_refused(name: str) -> None:
    call = {"solve": lambda x: la.solve(x, x), "matrix_power": lambda x: la.matrix_power(x, 2)}.get(
        name, getattr(la, name)
    )
    with pytest.raises(ShapeError, match=f"{name}: matrices of 3 rows and 2 columns are not square"):
        call(a(np.zeros((3, 2))))
    with pytest.raises(ShapeError, match="x must be matrices, got rank"):
        call(a(np.zeros(3)))
    with pytest.raises(DTypeError, match=f"{name}: int64 is not a floating dtype of 32 bits or more"):
        call(a(np.zeros((3, 3), np.int64)))
    graph = Graph("g", {"x": TensorType(DType.float32, ["m", "n"])})
    with pytest.raises(ShapeError, match="m rows and n columns are not square"):
        call(graph["x"])


@pytest.mark.parametrize("name", ["qr", "svd", "svdvals", "pinv", "matrix_rank", "matrix_norm"])
def test_sizes_that_are_not_known_are_refused_where_the_lesser_one_counts(name: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["m", "n"])})
    with pytest.raises(
        ShapeError, match=f"{name}: it must be known which is smaller, the number of rows m or of columns n"
    ):
        getattr(la, name)(graph["x"], **({"ord": 2} if name == "matrix_norm" else {}))
    with pytest.raises(DTypeError, match="is not a floating dtype of 32 bits or more"):
        getattr(la, name)(a(np.zeros((2, 2), np.int32)))


REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "cross: length": (
        lambda: la.cross(a(np.zeros(2)), a(np.zeros(3))),
        ShapeError,
        "the vectors must have 3 elements, got 2 and 3",
    ),
    "cross: axis": (lambda: la.cross(a(np.zeros(3)), a(np.zeros(3)), axis=0), ShapeError, "no axis 0 in both"),
    "cross: bool": (lambda: la.cross(a([True] * 3), a([True] * 3)), PromotionError, "bool is undefined"),
    "outer": (lambda: la.outer(a(np.zeros((2, 2))), a(np.zeros(2))), ShapeError, "outer: lhs must have rank 1, got 2"),
    "power": (lambda: la.matrix_power(a(np.eye(2)), 0.5), DTypeError, "n must be an int, got 0.5"),
    "mode": (lambda: la.qr(a(np.eye(2)), mode="full"), DTypeError, "unknown mode 'full'"),
    "offset": (lambda: la.diagonal(a(np.eye(2)), offset=0.5), DTypeError, "offset=0.5 is not an int"),
    "rtol": (lambda: la.pinv(a(np.eye(2)), rtol="small"), DTypeError, "rtol must be a number or floats, got 'small'"),
    "matrix ord": (lambda: la.matrix_norm(a(np.eye(2)), ord=3), DTypeError, "unknown ord=3"),
    "vector ord": (lambda: la.vector_norm(a(np.eye(2)), ord="fro"), DTypeError, "ord must be a number, got 'fro'"),
    "vector axis": (lambda: la.vector_norm(a(np.eye(2)), axis=2), ShapeError, "no axis 2"),
    "vector empty": (lambda: la.vector_norm(a(np.zeros(0)), ord=-1), ShapeError, "is undefined for empty vectors"),
    "matrix empty": (lambda: la.matrix_norm(a(np.zeros((0, 2))), ord=-2), ShapeError, "undefined for empty matrices"),
    "solve: rows": (lambda: la.solve(a(np.eye(2)), a(np.zeros((3, 1)))), ShapeError, "x2 is"),
    "solve: stacks": (lambda: la.solve(a(np.zeros((2, 2, 2))), a(np.zeros((3, 2, 1)))), ShapeError, "do not broadcast"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arguments_are_refused(case: str) -> None:
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call()
