"""Gaussian elimination with partial pivoting, and Cholesky's decomposition."""

from __future__ import annotations

from graphcore import ops
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices import (
    adjoint,
    at,
    columns_of,
    count_of,
    diagonal_of,
    divided,
    filled,
    identities,
    pivoted,
    reduced_by,
    repeat,
    rows_of,
    stack_axes,
    substituted,
)


def eliminated(a: Symbol) -> tuple[Symbol, Symbol]:
    """Return rows made upper triangular by elimination, and the parity of the exchanges of rows.

    a: [..., n, n + k], square matrices and k more columns, to which the same is done. Returns [..., n, n + k]
    with junk below the diagonal, and [..., 1, 1] of 1 and -1. A column without a pivot is passed over, as in LAPACK's
    getrf: the diagonal has a 0 there.
    """

    def step(k: Symbol, a: Symbol, parity: Symbol, rows: Symbol) -> list[Symbol]:
        place, chosen, moved, factor = pivoted(a, k, rows)
        below = rows > k
        left = e.where(below, reduced_by(moved, factor, chosen), e.where(rows == k, chosen, moved))
        return [left, parity * e.where(place == k, e.const(parity, 1.0), e.const(parity, -1.0))]

    parity = filled(a, [*stack_axes(a)], 1.0)
    parity = ops.unsqueeze(parity, (-2, -1))
    left, parity = repeat(count_of(a, -2), [a, parity], step, [rows_of(a)])
    return left, parity


def solved(a: Symbol, b: Symbol) -> Symbol:
    """Return what square matrices multiply to `b`. a: [..., n, n]. b: [..., n, k], of the same stack.

    Infinite or NaN for singular matrices.
    """
    both, _ = eliminated(ops.concat([a, b], axis=-1))
    n = a.shape[-1]
    u, y = ops.split(both, [n, b.shape[-1]], axis=-1)
    return substituted(u, y)


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
        rest = at(a, k, -1) - ops.matmul(lower, adjoint(at(lower, k, -2)))
        pivot = ops.real(at(rest, k, -2))
        root = ops.sqrt(e.where(pivot > 0.0, pivot, e.const(pivot, float("nan"))))
        column = e.where(rows < k, e.const(a, 0.0), divided(rest, root))
        if a.dtype.is_complex:
            column = e.where(rows == k, ops.cast(root, a.dtype), column)
        return [e.where(columns == k, column, lower)]

    start = filled(a, range(a.rank))
    (lower,) = repeat(count_of(a, -2), [start], step, [a, rows_of(a), columns_of(a)])
    return lower
