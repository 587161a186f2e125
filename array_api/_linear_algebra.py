"""Products of vectors and matrices in the main namespace of the standard.

Empty arrays are computed without onnxruntime's MatMul, which does not broadcast axes of length 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore import ops
from graphcore.array_api._algorithms.jacobi import singular_values
from graphcore.array_api._eager import Tensor, function
from graphcore.build import primitives as e
from graphcore.build.shapes import same_dim
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ops import matrices as mat

__all__ = ["matmul", "tensordot", "vecdot"]


@function
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the matrix product. x1: [..., m, k] or [k], x2: [..., k, n] or [k], numbers. Raises `ShapeError`."""
    if not _is_empty(x1, x2) or not (x1.ndim and x2.ndim) or not same_dim(x1.shape[-1], x2.shape[-2:][0]):
        return ops.matmul(x1, x2)
    if x2.ndim == 1:
        return ops.sum(ops.mul(x1, x2), axis=-1)
    columns = ops.unsqueeze(x2, -3) if x1.ndim > 1 else x2
    return ops.sum(ops.mul(ops.unsqueeze(x1, -1), columns), axis=-2)


def _is_empty(x1: Tensor, x2: Tensor) -> bool:
    """Return True if one of the arrays is known to be empty."""
    return any(dim == 0 for x in (x1, x2) for dim in x.shape)


@function
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sum of products over axes: the last ones of x1 with the first ones of x2, or the given ones of both.

    Args:
        x1: Numbers.
        x2: Numbers.

    Raises:
        ShapeError: For invalid axes, or axes of different sizes.
    """
    return ops.tensordot(x1, x2, axes)


@function
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the dot products of vectors along an axis, counted from the end; the other axes broadcast.

    Args:
        x1: Numbers.
        x2: Numbers.

    Raises:
        ShapeError: For an invalid axis and for shapes that do not broadcast.
    """
    is_axis = type(axis) is int and -min(x1.ndim, x2.ndim) <= axis < 0
    if not _is_empty(x1, x2) or not is_axis or not same_dim(x1.shape[axis], x2.shape[axis]):
        return ops.vecdot(x1, x2, axis)
    return ops.sum(ops.mul(ops.conj(x1), x2), axis=axis)


# Gaussian elimination with partial pivoting, and the Cholesky decomposition.


def eliminate(a: Symbol) -> tuple[Symbol, Symbol]:
    """Eliminate to upper triangular form, and return it with the parity of the row exchanges.

    a: [..., n, n + k], square matrices with k additional columns, which are transformed too. Returns [..., n, n + k]
    with undefined values below the diagonal, and [..., 1, 1] of 1 and -1. A column without a pivot is skipped, as in
    LAPACK's getrf: its diagonal element is 0.
    """

    def step(k: Symbol, a: Symbol, parity: Symbol, rows: Symbol) -> list[Symbol]:
        place, chosen, moved, factor = mat.pivoted(a, k, rows)
        below = rows > k
        remaining = e.where(below, mat.reduced_by(moved, factor, chosen), e.where(rows == k, chosen, moved))
        return [remaining, parity * e.where(place == k, e.const(parity, 1.0), e.const(parity, -1.0))]

    parity = mat.filled(a, [*mat.stack_axes(a)], 1.0)
    parity = ops.unsqueeze(parity, (-2, -1))
    upper, parity = mat.repeat(mat.count_of(a, -2), [a, parity], step, [mat.rows_of(a)])
    return upper, parity


def solve(a: Symbol, b: Symbol) -> Symbol:
    """Solve a @ x = b. a: [..., n, n]. b: [..., n, k], with the same leading axes.

    The result is infinite or NaN for singular matrices.
    """
    both, _ = eliminate(ops.concat([a, b], axis=-1))
    n = a.shape[-1]
    u, y = ops.split(both, [n, b.shape[-1]], axis=-1)
    return mat.substituted(u, y)


def invert(a: Symbol) -> Symbol:
    return solve(a, mat.identities(a, -2, -1))


def pivots(a: Symbol) -> tuple[Symbol, Symbol]:
    """Return the pivots of square matrices, [..., n], and the parity of the row exchanges, [...]."""
    upper, parity = eliminate(a)
    return mat.diagonal_of(upper), ops.squeeze(parity, (-2, -1))


def cholesky(a: Symbol) -> Symbol:
    """Return the lower triangular L of symmetric positive-definite A = L @ L.T. Only the lower triangle is read.

    Computes each column from those before it (Golub and Van Loan, Matrix Computations, 4.2.5). If a matrix is not
    positive definite, L is NaN from the first column on that shows it.
    """

    def step(k: Symbol, lower: Symbol, a: Symbol, rows: Symbol, columns: Symbol) -> list[Symbol]:
        rest = mat.at(a, k, -1) - ops.matmul(lower, mat.adjoint(mat.at(lower, k, -2)))
        pivot = ops.real(mat.at(rest, k, -2))
        root = ops.sqrt(e.where(pivot > 0.0, pivot, e.const(pivot, float("nan"))))
        column = e.where(rows < k, e.const(a, 0.0), mat.divided(rest, root))
        if a.dtype.is_complex:
            column = e.where(rows == k, ops.cast(root, a.dtype), column)
        return [e.where(columns == k, column, lower)]

    start = mat.filled(a, range(a.rank))
    (lower,) = mat.repeat(mat.count_of(a, -2), [start], step, [a, mat.rows_of(a), mat.columns_of(a)])
    return lower


# Norms of vectors and matrices, also of elements whose squares overflow or underflow.

SPECTRAL = ("nuc", 2, -2)
"""Norms of singular values."""

MATRIX_NORMS = ("fro", *SPECTRAL, 1, -1, math.inf, -math.inf)


def vector_norm(x: Symbol, axes: Sequence[int], ord: float, *, keepdims: bool) -> Symbol:
    """Return the norm of order `ord` over axes counted from 0. Over no elements it is 0, or an error for orders < 0."""
    size = ops.abs(x)
    if any(x.shape[axis] == 0 for axis in axes):
        if ord < 0:
            raise ShapeError(
                f"vector_norm: ord={ord} is undefined for empty vectors", operands={"x": x}, help="use ord=0 or more"
            )
        return ops.sum(size, axes, keepdims)
    if ord == math.inf:
        return ops.max(size, axis=axes, keepdims=keepdims)
    if ord == -math.inf:
        return ops.min(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return ops.cast(ops.count_nonzero(x, axes, keepdims), size.dtype)
    if ord == 1:
        return ops.sum(size, axes, keepdims)
    if ord == 2:
        return euclidean(size, axes, keepdims=keepdims)
    # Dividing by the maximum, or by the minimum for orders below 0, makes all powers at most 1.
    reference = (ops.max if ord > 0 else ops.min)(size, axis=axes, keepdims=True)
    is_normal = e.both(reference > 0.0, e.less(reference, e.const(size, math.inf)))
    reference = e.where(is_normal, reference, e.const(size, 1.0))
    power, root = (
        e.const(size, float(np.float64(value).astype(size.dtype.numpy))) for value in (ord, _reciprocal(ord))
    )
    total = ops.sum(e.emit("Pow", size / reference, power), axes, keepdims)
    return e.emit("Pow", total, root) * _squeeze(reference, axes, keepdims)


def _reciprocal(ord: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float64(1.0) / np.float64(ord))


def euclidean(size: Symbol, axes: Sequence[int], *, keepdims: bool) -> Symbol:
    """Return the root of the sum of squares of nonnegative numbers, over axes that are not empty."""
    if not axes:
        return size
    scale = mat.binary_scale(ops.max(size, axis=axes, keepdims=True))
    scaled = size / scale
    return ops.sqrt(ops.sum(scaled * scaled, axes, keepdims)) * _squeeze(scale, axes, keepdims)


def _squeeze(x: Symbol, axes: Sequence[int], keepdims: bool) -> Symbol:
    return x if keepdims or not axes else ops.squeeze(x, tuple(axes))


def matrix_norm(x: Symbol, ord: Any, *, keepdims: bool) -> Symbol:
    """Return one of `MATRIX_NORMS`. It is 0 for empty matrices, or an error for norms that are a minimum."""
    axes = (x.rank - 2, x.rank - 1)
    if any(x.shape[axis] == 0 for axis in axes):
        if ord in (-1, -2, -math.inf):
            raise ShapeError(
                f"matrix_norm: ord={ord} is undefined for empty matrices", operands={"x": x}, help='use ord="fro"'
            )
        return ops.sum(ops.abs(x), axes, keepdims)
    if ord == "fro":
        return euclidean(ops.abs(x), axes, keepdims=keepdims)
    if ord in SPECTRAL:
        values = singular_values(x)
        norm = ops.sum(values, axis=-1) if ord == "nuc" else values[..., 0 if ord == 2 else -1]
        return ops.unsqueeze(norm, (-2, -1)) if keepdims else norm
    summed, compared = (-2, -1) if abs(ord) == 1 else (-1, -2)
    sums = ops.sum(ops.abs(x), summed, keepdims=True)
    norm = (ops.max if ord > 0 else ops.min)(sums, axis=compared, keepdims=True)
    return norm if keepdims else ops.squeeze(norm, axes)
