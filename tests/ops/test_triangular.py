"""lu, lu_factor and triangular_solve: by the bounds of backward error, and by what SciPy and NumPy define."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.graphs import Array

SHAPES = [(1, 1), (5, 5), (3, 6), (6, 3), (2, 4, 4), (2, 3, 5, 3), (0, 0), (0, 3), (3, 0), (0, 3, 3), (2, 0, 0)]
FLOATS = [np.float32, np.float64, np.complex64, np.complex128]


def random(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    array = rng.normal(size=shape)
    return np.asarray(array + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else array, dtype)


def results(function: Any, *arrays: Array, dims: dict[int, list[Any]] | None = None) -> list[Array]:
    types = [TensorType(DType.of(x.dtype), (dims or {}).get(i, list(x.shape))) for i, x in enumerate(arrays)]
    graph = Graph("g", types, promotion="array_api")
    result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, tuple) else (result,)))
    return list(gc.InferenceSession().load(graph)(*arrays))


def solved(a: Array, b: Array, **options: bool) -> Array:
    return results(lambda x, y: ops.triangular_solve(x, y, **options), a, b)[0]


def assert_decomposed(x: Array, p: Array, low: Array, up: Array) -> None:
    """Within min(m, n) eps |L| |U|, element by element: Higham, Accuracy and Stability, theorem 9.3."""
    m, n = x.shape[-2:]
    k = min(m, n)
    assert (p.shape[-2:], low.shape[-2:], up.shape[-2:]) == ((m, m), (m, k), (k, n))
    assert p.dtype == low.dtype == up.dtype == x.dtype
    np.testing.assert_array_equal(np.sort(p.real, axis=-1)[..., :-1], 0)
    np.testing.assert_array_equal(p.sum(-1), np.ones(p.shape[:-1]))
    np.testing.assert_array_equal(p.sum(-2), np.ones(p.shape[:-1]))
    np.testing.assert_array_equal(np.triu(low), np.broadcast_to(np.eye(m, k), low.shape))
    np.testing.assert_array_equal(np.tril(up, -1), np.zeros(up.shape))
    eps = np.finfo(x.dtype).eps
    assert (np.abs(low) <= 1 + 2 * eps).all()
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    rest = np.abs(p.astype(wide) @ low.astype(wide) @ up.astype(wide) - x)
    slack = 4 if x.dtype.kind == "c" else 1
    assert (rest <= slack * (k + 1) * eps * (p.real @ np.abs(low) @ np.abs(up))).all()


@pytest.mark.numbers
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_lu_multiplies_to_the_matrix_within_the_bound_of_elimination(shape: tuple[int, ...], dtype: Any) -> None:
    x = random(shape, dtype)
    assert_decomposed(x, *results(ops.lu, x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lu_is_scipys(dtype: Any) -> None:
    linalg = pytest.importorskip("scipy.linalg")
    for shape in [(5, 5), (3, 6), (6, 3), (2, 4, 4)]:
        x = random(shape, dtype)
        for item, want in zip(results(ops.lu, x), linalg.lu(x), strict=True):
            np.testing.assert_allclose(item, want, rtol=0, atol=64 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", FLOATS)
def test_lu_of_singular_matrices_has_zeros_on_the_diagonal_of_u(dtype: Any) -> None:
    for x in (np.zeros((3, 3)), np.ones((3, 3)), np.diag([0.0, 1.0, 0.0]), np.triu(np.ones((3, 3)), 1)):
        p, low, up = results(ops.lu, x.astype(dtype))
        assert_decomposed(x.astype(dtype), p, low, up)
        assert (np.diagonal(up) == 0).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_lu_factor_packs_what_lu_gives(shape: tuple[int, ...]) -> None:
    x = random(shape, np.float64)
    packed, order = results(ops.lu_factor, x, dims={0: [*shape[:-2], "m", "n"]})
    p, low, up = results(ops.lu, x)
    k = min(shape[-2:])
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.tril(packed, -1)[..., :k], np.tril(low, -1))
    np.testing.assert_array_equal(np.triu(packed)[..., :k, :], up)
    np.testing.assert_array_equal(order, p.argmax(-2) if x.shape[-2] else np.zeros(order.shape))


def test_lu_of_matrices_whose_size_only_the_run_knows() -> None:
    x = random((2, 7, 7), np.float64)
    assert_decomposed(x, *results(ops.lu, x, dims={0: ["b", "n", "n"]}))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once_when_decomposed(dtype: Any) -> None:
    x = random((5, 5), np.float32).astype(dtype)
    narrow = results(ops.lu, x)
    wide = results(ops.lu, x.astype(np.float32))
    for item, want in zip(narrow, wide, strict=True):
        assert item.dtype == dtype
        np.testing.assert_array_equal(item, want.astype(dtype))
    b = random((5,), np.float32).astype(dtype)
    np.testing.assert_array_equal(solved(x, b), solved(x.astype(np.float32), b.astype(np.float32)).astype(dtype))


OPTIONS = [
    dict(zip(("lower", "transposed", "unit_diagonal"), flags, strict=True))
    for flags in itertools.product((False, True), repeat=3)
]


def triangle(a: Array, lower: bool, transposed: bool, unit_diagonal: bool) -> Array:
    result = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        eye = np.eye(a.shape[-1], dtype=bool)
        result = np.where(eye, np.ones_like(result), result)
    return np.swapaxes(result, -1, -2) if transposed else result


@pytest.mark.numbers
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(k for k, v in o.items() if v) or "upper")
@pytest.mark.parametrize("dtype", FLOATS)
def test_triangular_solve_solves_within_the_bound_of_substitution(options: dict[str, bool], dtype: Any) -> None:
    """Within n eps |T| |x|, element by element: Higham, theorem 8.5."""
    for left, right in [((5, 5), (5, 2)), ((5, 5), (5,)), ((2, 4, 4), (4, 3)), ((4, 4), (3, 4, 1)), ((1, 1), (1,))]:
        a, b = random(left, dtype), random(right, dtype, 1)
        x = solved(a, b, **options)
        assert x.dtype == dtype
        t = triangle(a, **options)
        column = b[:, None] if b.ndim == 1 else b
        y = x[:, None] if b.ndim == 1 else x
        n = left[-1]
        wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
        bound = (8 if wide is np.complex128 else 2) * (n + 1) * np.finfo(dtype).eps * (np.abs(t) @ np.abs(y))
        assert (np.abs(t.astype(wide) @ y.astype(wide) - column) <= bound).all()


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(k for k, v in o.items() if v) or "upper")
def test_triangular_solve_reads_one_triangle(options: dict[str, bool]) -> None:
    a, b = random((4, 4), np.float64), random((4, 2), np.float64)
    clean = triangle(a, options["lower"], False, options["unit_diagonal"])
    other = np.triu(np.ones((4, 4), bool), 1) if options["lower"] else np.tril(np.ones((4, 4), bool), -1)
    if options["unit_diagonal"]:
        other |= np.eye(4, dtype=bool)
    np.testing.assert_array_equal(solved(np.where(other, np.nan, a), b, **options), solved(clean, b, **options))


def test_triangular_solve_of_singular_matrices_is_infinite_or_nan() -> None:
    x = solved(np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([1.0, 1.0]))
    assert not np.isfinite(x).all()
    assert np.isnan(solved(np.zeros((1, 1)), np.zeros(1))).all()


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [((0, 0), (0,), (0,)), ((0, 0), (0, 3), (0, 3)), ((3, 3), (3, 0), (3, 0)), ((0, 3, 3), (3, 2), (0, 3, 2))],
)
def test_triangular_solve_of_nothing_is_nothing(
    left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]
) -> None:
    assert solved(np.ones(left), np.ones(right)).shape == result


def test_integers_are_solved_as_floats() -> None:
    a = np.array([[2, 1], [0, 4]], np.int32)
    graph = Graph("g", [TensorType(DType.int32, [2, 2]), TensorType(DType.int32, [2])])
    graph.output(ops.triangular_solve(graph[0], graph[1]))
    (x,) = gc.InferenceSession().load(graph)(a, np.array([4, 8], np.int32))
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x, [1, 2])


def symbols(*shapes: list[Any]) -> Any:
    return Graph("g", [TensorType(DType.float32, shape) for shape in shapes]).inputs


def test_what_is_not_a_system_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"lu: x must have rank 2 or more, got 1"):
        ops.lu(*symbols([3]))
    with pytest.raises(
        ShapeError,
        match=r"lu: it must be known which is smaller, the number of rows, m, or of columns, n(.|\n)*lu_factor",
    ):
        ops.lu(*symbols(["m", "n"]))
    with pytest.raises(ShapeError, match=r"triangular_solve: a must be \[..., n, n\], got \[2, 3\]"):
        ops.triangular_solve(*symbols([2, 3], [2]))
    with pytest.raises(ShapeError, match=r"triangular_solve: b must be \[2\] or \[..., 2, k\], got \[3\]"):
        ops.triangular_solve(*symbols([2, 2], [3]))
    with pytest.raises(ShapeError, match="the batch axes do not broadcast"):
        ops.triangular_solve(*symbols([2, 3, 3], [4, 3, 1]))
    flag: Any = "U"
    a, b = symbols([2, 2], [2])
    with pytest.raises(DTypeError, match="lower must be a bool, got 'U'"):
        ops.triangular_solve(a, b, lower=flag)


@pytest.mark.parametrize(
    "promotion", ["max", "max_published", "kernel_float", "anvil", "array_api", "allo_hls", "allo_cpp"]
)
def test_graphs_of_any_promotion_system_decompose_alike(promotion: str) -> None:
    x = random((4, 4), np.float32)
    graph = Graph("g", [TensorType(DType.float32, [4, 4])], promotion=promotion)
    graph.output(*ops.lu(graph[0]), *ops.lu_factor(graph[0]), ops.triangular_solve(graph[0], graph[0], lower=True))
    *result, solution = gc.InferenceSession().load(graph)(x)
    for one, want in zip(result, [*results(ops.lu, x), *results(ops.lu_factor, x)], strict=True):
        np.testing.assert_array_equal(one, want)
    np.testing.assert_array_equal(solution, solved(x, x, lower=True))
