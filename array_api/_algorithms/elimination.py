"""Gaussian elimination with partial pivoting, and Cholesky's decomposition."""

from __future__ import annotations

from graphcore import ops
from graphcore.array_api._algorithms.diagonals import diagonal_of
from graphcore.array_api._algorithms.loops import (
    at,
    columns_of,
    count_of,
    filled,
    identities,
    repeat,
    rows_of,
    stack_axes,
    turned,
)
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType


def eliminated(a: Symbol) -> tuple[Symbol, Symbol]:
    """Return rows made upper triangular by elimination, and the parity of the exchanges of rows.

    a: [..., n, n + k], square matrices and k more columns, to which the same is done. Returns [..., n, n + k]
    with junk below the diagonal, and [..., 1, 1] of 1 and -1. A column without a pivot is passed over, as in LAPACK's
    getrf: the diagonal has a 0 there.
    """
    batch = a.rank - 2

    def step(k: Symbol, a: Symbol, parity: Symbol, rows: Symbol) -> list[Symbol]:
        zero, one, minus = (e.const(a, value) for value in (0.0, 1.0, -1.0))
        column, row = at(a, k, -1), at(a, k, -2)
        candidates = e.where(rows >= k, ops.abs(column), minus)
        place = e.emit("ArgMax", candidates, dtype=DType.int64, shape=parity.shape, axis=batch, keepdims=1)
        chosen = e.emit("GatherND", a, ops.squeeze(place, -1), shape=a.shape[:-2] + a.shape[-1:], batch_dims=batch)
        chosen = ops.unsqueeze(chosen, -2)
        pivot = at(chosen, k, -1)
        moved = e.where(rows == place, row, a)
        below = rows > k
        factor = e.where(below, at(moved, k, -1) / e.where(pivot == zero, one, pivot), zero)
        left = e.where(below, moved - factor * chosen, e.where(rows == k, chosen, moved))
        return [left, parity * e.where(place == k, one, minus)]

    parity = filled(a, [*stack_axes(a)], 1.0)
    parity = ops.unsqueeze(parity, (-2, -1))
    left, parity = repeat(count_of(a, -2), [a, parity], step, [rows_of(a)])
    return left, parity


def back_substituted(u: Symbol, y: Symbol) -> Symbol:
    """Return what upper triangular matrices multiply to `y`. u: [..., n, n]. y: [..., n, k]. Returns [..., n, k]."""
    last = count_of(u, -2) - 1

    def step(i: Symbol, x: Symbol, u: Symbol, y: Symbol, rows: Symbol, columns: Symbol, last: Symbol) -> list[Symbol]:
        k = last - i
        row = at(u, k, -2)
        after = e.where(columns > k, row, e.const(u, 0.0))
        solved = (at(y, k, -2) - ops.matmul(after, x)) / at(row, k, -1)
        return [e.where(rows == k, solved, x)]

    start = filled(y, range(y.rank))
    (x,) = repeat(count_of(u, -2), [start], step, [u, y, rows_of(u), columns_of(u), last])
    return x


def solved(a: Symbol, b: Symbol) -> Symbol:
    """Return what square matrices multiply to `b`. a: [..., n, n]. b: [..., n, k], of the same stack.

    Infinite or NaN for singular matrices.
    """
    both, _ = eliminated(ops.concat([a, b], axis=-1))
    n = a.shape[-1]
    u, y = ops.split(both, [n, b.shape[-1]], axis=-1)
    return back_substituted(u, y)


def inverted(a: Symbol) -> Symbol:
    return solved(a, identities(a, -2, -1))


def pivots(a: Symbol) -> tuple[Symbol, Symbol]:
    """The pivots of square matrices, [..., n], and the parity of the exchanges of rows, [...]."""
    upper, parity = eliminated(a)
    return diagonal_of(upper), ops.squeeze(parity, (-2, -1))


def cholesky(a: Symbol) -> Symbol:
    """The lower triangular L of symmetric positive-definite A = L @ L.T, of which the lower triangle is read.

    Column by column, each from those before it (Golub and Van Loan, Matrix Computations, 4.2.5). NaN from the column on
    in which a matrix turns out not to be positive definite.
    """

    def step(k: Symbol, lower: Symbol, a: Symbol, rows: Symbol, columns: Symbol) -> list[Symbol]:
        zero, unknown = e.const(a, 0.0), e.const(a, float("nan"))
        rest = at(a, k, -1) - ops.matmul(lower, turned(at(lower, k, -2)))
        pivot = at(rest, k, -2)
        root = ops.sqrt(e.where(pivot > zero, pivot, unknown))
        column = e.where(rows < k, zero, rest / root)
        return [e.where(columns == k, column, lower)]

    start = filled(a, range(a.rank))
    (lower,) = repeat(count_of(a, -2), [start], step, [a, rows_of(a), columns_of(a)])
    return lower
