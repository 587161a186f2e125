"""Balancing: rows and columns scaled by powers of 2, so that those of one number are about equally great."""

from __future__ import annotations

import numpy as np

from graphcore import ops
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices.loops import (
    at,
    binary_scale,
    columns_of,
    count_of,
    filled,
    reduced,
    repeat,
    rough_size,
    rows_of,
    scaled,
    stack_axes,
)
from graphcore.types.complex_dtypes import real_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType

SWEEPS = 10
"""No more of them: three or four are usual."""


def balanced(a: Symbol) -> tuple[Symbol, Symbol]:
    """Return the inverse of D times `a` times D, and D, diagonal, as a column.

    a: [..., n, n] of finite numbers. Returns [..., n, n] and [..., n, 1] of powers of 2, 1 the greatest. Each row and
    column in turn, where it lessens the sum of both by a twentieth (Parlett and Reinsch, 1969; LAPACK's gebal).
    """
    limit = float(np.finfo(real_of(a.dtype).numpy).max) ** 0.25

    def step(i: Symbol, unsettled: Symbol, a: Symbol, d: Symbol, *given: Symbol) -> list[Symbol]:
        n, rows, columns = given
        k = e.emit("Mod", i, n)
        is_row, is_column = rows == k, columns == k
        zero, one = e.const(d, 0.0), e.const(d, 1.0)
        below = reduced("ReduceSum", e.where(is_row, zero, rough_size(at(a, k, -1))), -2)
        beside = reduced("ReduceSum", e.where(is_column, zero, rough_size(at(a, k, -2))), -1)
        usual = e.both(below > zero, beside > zero)
        ratio = ops.sqrt(e.where(usual, beside, one)) / ops.sqrt(e.where(usual, below, one))
        factor = binary_scale(ratio * float(np.sqrt(2.0)))
        own = at(d, k, -2) * factor
        usual = e.both(usual, own < limit, own > 1.0 / limit)
        wins = e.both(usual, below * factor + beside / factor < (below + beside) * 0.95)
        factor = e.where(wins, factor, one)
        a = scaled(a, e.where(is_column, factor, one) / e.where(is_row, factor, one))
        unsettled = e.either(e.both(unsettled, k > 0), ops.any(wins))
        return [e.either(unsettled, k < n - 1), unsettled, a, d * e.where(is_row, factor, one)]

    n = count_of(a, -1)
    start = ops.real(filled(a, [*stack_axes(a), -1, Dim(1)], 1.0))
    given = [n, rows_of(a), columns_of(a)]
    settled = a.graph.build.scalar(False, DType.bool)
    _, a, d = repeat(n * SWEEPS, [settled, a, start], step, given, stops=True)
    return a, d / reduced("ReduceMax", d, -2)
