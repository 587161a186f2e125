"""Elimination with partial pivoting and triangular systems of equations, a row at a time.

Of single operators, so that they mean the same in graphs of any promotion system.
"""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.axes import squeeze, unsqueeze
from graphcore.ops.matrices.loops import at, columns_of, count_of, filled, repeat, rows_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of


def pivoted(a: Symbol, k: Symbol, rows: Symbol) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    """Choose the pivot of column `k` among the rows from `k` on: the greatest magnitude, the first of equal ones.

    a: [..., m, n]. k: an int64 scalar. rows: int64 [m, 1]. Returns the place of the pivot, int64 [..., 1, 1]; its row,
    [..., 1, n]; the matrices with row k moved to that place; and the multiple of the pivot's row that each row below k
    loses, [..., m, 1]. A column without a pivot is passed over, as in LAPACK's getrf.
    """
    zero, one = e.const(a, 0.0), e.const(a, 1.0)
    batch = a.rank - 2
    column, row = at(a, k, -1), at(a, k, -2)
    sizes = e.emit("Abs", column, dtype=real_of(a.dtype))
    candidates = e.where(_from(rows, k), sizes, e.const(sizes, -1.0))
    shape = column.shape[:-2] + row.shape[-2:-1] + column.shape[-1:]
    place = e.emit("ArgMax", candidates, dtype=DType.int64, shape=shape, axis=batch, keepdims=1)
    chosen = unsqueeze(row_of_each(a, squeeze(place, -1)), -2)
    pivot = at(chosen, k, -1)
    moved = e.where(e.equal(rows, place), row, a)
    share = e.emit("Div", at(moved, k, -1), e.where(e.equal(pivot, zero), one, pivot))
    factor = e.where(e.greater(rows, k), share, zero)
    return place, chosen, moved, factor


def _from(rows: Symbol, k: Symbol) -> Symbol:
    return e.emit("GreaterOrEqual", rows, k, dtype=DType.bool)


def row_of_each(a: Symbol, place: Symbol) -> Symbol:
    """The row of each matrix at a place of its own. a: [..., m, n]. place: int64 [..., 1]. Returns [..., n]."""
    return e.emit("GatherND", a, place, shape=a.shape[:-2] + a.shape[-1:], batch_dims=a.rank - 2)


def factored(a: Symbol, steps: Symbol) -> tuple[Symbol, Symbol]:
    """Return L and U packed in one matrix, and the order of rows: rows of `a` in that order are L @ U.

    a: [..., m, n]. steps: the lesser of m and n, an int64 scalar. Returns [..., m, n], L without its ones below the
    diagonal, and int64 [..., m].
    """

    def step(k: Symbol, a: Symbol, order: Symbol, rows: Symbol, columns: Symbol) -> list[Symbol]:
        place, chosen, moved, factor = pivoted(a, k, rows)
        here = e.equal(rows, k)
        left = e.where(e.equal(columns, k), factor, reduced_by(moved, factor, chosen))
        left = e.where(e.less(columns, k), moved, left)
        left = e.where(e.greater(rows, k), left, e.where(here, chosen, moved))
        first = unsqueeze(row_of_each(order, squeeze(place, -1)), -2)
        order = e.where(here, first, e.where(e.equal(rows, place), at(order, k, -2), order))
        return [left, order]

    rows = rows_of(a)
    start = e.emit("Add", rows, filled(a, [*range(a.rank - 1), Dim(1)], 0, DType.int64))
    packed, order = repeat(steps, [a, start], step, [rows, columns_of(a)])
    return packed, squeeze(order, -1)


def reduced_by(rows: Symbol, factor: Symbol, row: Symbol) -> Symbol:
    """The rows less a multiple of one row for each."""
    return e.emit("Sub", rows, e.emit("Mul", factor, row))


def substituted(t: Symbol, y: Symbol, *, lower: bool = False, unit: bool = False) -> Symbol:
    """Return what triangular matrices multiply to `y`. t: [..., n, n]. y: [..., n, k]. Returns [..., n, k].

    lower: the lower triangle is read, else the upper one. unit: the diagonal is taken for ones, and not read.
    """
    last = e.emit("Sub", count_of(t, -2), t.graph.build.scalar(1, DType.int64))

    def step(i: Symbol, x: Symbol, t: Symbol, y: Symbol, rows: Symbol, columns: Symbol, last: Symbol) -> list[Symbol]:
        k = i if lower else e.emit("Sub", last, i)
        row, right = at(t, k, -2), at(y, k, -2)
        known = e.where((e.less if lower else e.greater)(columns, k), row, e.const(t, 0.0))
        rest = e.emit("Sub", right, e.emit("MatMul", known, x, shape=right.shape))
        made = rest if unit else e.emit("Div", rest, at(row, k, -1))
        return [e.where(e.equal(rows, k), made, x)]

    start = filled(y, range(y.rank))
    (x,) = repeat(count_of(t, -2), [start], step, [t, y, rows_of(t), columns_of(t), last])
    return x
