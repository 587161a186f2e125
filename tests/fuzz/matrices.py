"""Random matrices against what their factors must be: eager, and in a graph whose sizes only the run knows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import graphcore as gc
import graphcore.array_api as xp
from graphcore import DType, Graph, TensorType, ops, promotion

Array = np.ndarray[Any, Any]
la: Any = xp.linalg
UNITS = 256.0
KINDS = (np.float32, np.float64, np.complex64, np.complex128)


def matrices(rng: random.Random, number: int, steps: int) -> int:
    """Factorise, solve and decompose a stack of random matrices. Raises AssertionError."""
    result = np.random.default_rng(number)
    dtype = np.dtype(rng.choice(KINDS))
    n, m = rng.randint(0, 6), rng.randint(0, 6)
    stack = rng.choice(((), (), (2,), (0,), (2, 1)))
    what = rng.choice(("lu", "triangular", "solve", "eig", "eigh", "svd", "qr", "cholesky", "inv", "det"))
    rows = n if what not in ("svd", "qr", "lu") else m
    x = _drawn(rng, result, (*stack, rows, n), dtype)
    CHECKS[what](rng, result, x)
    return x.size


def _drawn(rng: random.Random, result: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return random numbers, of other sizes, with zeros, of low rank, or whole."""
    x = result.normal(size=shape) + (1j * result.normal(size=shape) if dtype.kind == "c" else 0)
    kind = rng.randrange(6)
    if kind == 0:
        x = np.round(x * 2)
    elif kind == 1:
        x = x * (result.random(shape) < 0.5)
    elif kind == 2 and shape[-1] and shape[-2]:
        x[..., -1, :] = x[..., 0, :]
    elif kind == 3:
        x = x * 10.0 ** rng.choice((-12, -6, 6, 12))
    elif kind == 4:
        x = x * 0
    return np.asarray(x, dtype)


def _h(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def _near(a: Array, b: Array, size: Any, dtype: Any, units: float = UNITS) -> None:
    assert a.shape == b.shape, f"{a.shape}, not {b.shape}"
    wrong = np.abs(a.astype(np.complex128) - b.astype(np.complex128)).max(initial=0.0)
    bound = units * float(np.finfo(dtype).eps) * max(float(np.abs(size).max(initial=0.0)), np.finfo(dtype).tiny)
    assert wrong <= bound, f"{wrong} apart, and {bound} is the most"


def _graphed(function: Any, *arrays: Array) -> list[Array]:
    """Return the results of a graph whose sizes are known only when it runs."""
    types = {f"x{i}": TensorType(DType.of(a.dtype), _dims(a, f"k{i}")) for i, a in enumerate(arrays)}
    graph = Graph("matrices", types, promotion=promotion.system("max", complex=True))
    with graph:
        result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, tuple) else (result,)))
    return list(gc.InferenceSession(intra_op_num_threads=1).load(graph)(*arrays))


def _dims(x: Array, last: str) -> list[int | str]:
    """Return names of all sizes of square matrices and their right sides; of others the stack alone has names."""
    stack: list[int | str] = [f"s{k}" for k in range(x.ndim - 2)]
    is_first, is_square = last == "k0", x.shape[-2] == x.shape[-1]
    if is_first and not is_square:
        return [*stack, *x.shape[-2:]]
    return [*stack, "n", "n" if is_first else last]


def _eye(x: Array) -> Array:
    """Return as many unit matrices as there are matrices, of as many columns."""
    n = x.shape[-1]
    return np.broadcast_to(np.eye(n), (*x.shape[:-2], n, n))


def _most(*arrays: Array) -> float:
    """Return the product of the greatest magnitudes."""
    return float(np.prod([np.abs(a).max(initial=0.0) for a in arrays]))


def _wide(*arrays: Array) -> list[Array]:
    return [a.astype(np.complex128) for a in arrays]


def _lu(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    p, low, up = _wide(*_graphed(ops.lu, x))
    if x.size:
        _near(p @ low @ up, x, x, x.dtype)
        assert (np.abs(low) <= 1 + 1e-5).all() or x.dtype.kind == "c", "a factor beyond 1"
        assert not np.triu(low, 1).any()
        assert not np.tril(up, -1).any()


def _triangular(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    n = x.shape[-1]
    x = np.asarray(
        result.normal(size=x.shape) + (1j * result.normal(size=x.shape) if x.dtype.kind == "c" else 0), x.dtype
    )
    x = np.asarray(x + 3 * np.eye(n), x.dtype)
    b = _drawn(rng, result, (*x.shape[:-1], rng.randint(0, 3)), x.dtype)
    lower = rng.random() < 0.5
    (got,) = _graphed(lambda a, v: ops.triangular_solve(a, v, lower=lower), x, b)
    t = np.tril(x) if lower else np.triu(x)
    wide_t, wide_got = _wide(t, got)
    _near(wide_t @ wide_got, b, _most(t, got), x.dtype)


def _solve(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    x = np.asarray(result.normal(size=x.shape) + 4 * np.eye(x.shape[-1]), x.dtype)
    b = _drawn(rng, result, (*x.shape[:-1], 2), x.dtype)
    wide, got = _wide(x, np.asarray(la.solve(xp.asarray(x), xp.asarray(b))))
    _near(wide @ got, b, _most(x, got), x.dtype)


def _eig(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    match = la.eig(xp.asarray(x))
    values, vectors = _wide(np.asarray(match.eigenvalues), np.asarray(match.eigenvectors))
    _near(x.astype(np.complex128) @ vectors, vectors * values[..., None, :], x, x.dtype)
    if x.size:
        np.testing.assert_allclose((np.abs(vectors) ** 2).sum(-2), 1, atol=256 * np.finfo(x.dtype).eps)


def _eigh(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    x = np.asarray(x + _h(x), x.dtype)
    match = la.eigh(xp.asarray(x))
    values, vectors = np.asarray(match.eigenvalues), np.asarray(match.eigenvectors)
    _near(values, np.linalg.eigvalsh(x.astype(np.complex128)), x, x.dtype)
    wide = vectors.astype(np.complex128)
    _near((wide * values[..., None, :]) @ _h(wide), x, x, x.dtype)
    _near(_h(wide) @ wide, _eye(x), np.ones(1), x.dtype)


def _svd(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    full = rng.random() < 0.5
    u, s, v = (np.asarray(a) for a in la.svd(xp.asarray(x), full_matrices=full))
    _near(s, np.linalg.svd(x.astype(np.complex128), compute_uv=False), x, x.dtype)
    k = s.shape[-1]
    wide_u, wide_v = _wide(u, v)
    _near((wide_u[..., :k] * s[..., None, :]) @ wide_v[..., :k, :], x, x, x.dtype)
    _near(_h(wide_u) @ wide_u, _eye(u), np.ones(1), x.dtype)


def _qr(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    q, r = (np.asarray(a) for a in la.qr(xp.asarray(x), mode=rng.choice(("reduced", "complete"))))
    wide = q.astype(np.complex128)
    _near(wide @ r.astype(np.complex128), x, x, x.dtype)
    _near(_h(wide) @ wide, _eye(q), np.ones(1), x.dtype)


def _cholesky(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    x = np.asarray(
        result.normal(size=x.shape) + (1j * result.normal(size=x.shape) if x.dtype.kind == "c" else 0), x.dtype
    )
    x = np.asarray(x @ _h(x) + np.eye(x.shape[-1]), x.dtype)
    upper = rng.random() < 0.5
    (low,) = _wide(np.asarray(la.cholesky(xp.asarray(x), upper=upper)))
    _near(_h(low) @ low if upper else low @ _h(low), x, x, x.dtype)


def _inv(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    x = np.asarray(result.normal(size=x.shape) + 4 * np.eye(x.shape[-1]), x.dtype)
    (got,) = _wide(np.asarray(la.inv(xp.asarray(x))))
    _near(x.astype(np.complex128) @ got, _eye(x), max(1.0, _most(x, got)), x.dtype)


def _det(rng: random.Random, result: np.random.Generator, x: Array) -> None:
    got = np.asarray(la.det(xp.asarray(x)))
    lengths = np.sqrt((np.abs(x.astype(np.complex128)) ** 2).sum(-1)).prod(-1)  # Hadamard's bound
    if lengths.size and lengths.max() < 1e30 and (lengths.max() > 1e-30 or not lengths.max()):
        _near(got, np.linalg.det(x.astype(np.complex128)), lengths, x.dtype)


CHECKS = {
    "lu": _lu, "triangular": _triangular, "solve": _solve, "eig": _eig, "eigh": _eigh, "svd": _svd, "qr": _qr,
    "cholesky": _cholesky, "inv": _inv, "det": _det,
}  # fmt: skip

__all__ = ["matrices"]
