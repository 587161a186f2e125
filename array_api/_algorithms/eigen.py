"""Eigenvalues and eigenvectors of any square matrices: LAPACK's geev in Loops."""

from __future__ import annotations

import numpy as np

from graphcore import ops
from graphcore.array_api._algorithms.balance import balanced
from graphcore.array_api._algorithms.blocks import Blocks
from graphcore.array_api._algorithms.schur import schur
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices.diagonals import diagonal_of
from graphcore.ops.matrices.loops import (
    at,
    columns_of,
    common_scale,
    count_of,
    divided,
    filled,
    reduced,
    repeat,
    rough_size,
    rows_of,
    scaled,
    square_sum,
)
from graphcore.types.dtypes import DType


def eig(a: Symbol, *, vectors: bool) -> tuple[Symbol, Symbol | None]:
    """The eigenvalues, complex [..., n], and eigenvectors of length 1 as columns, complex [..., n, n].

    a: [..., n, n]. NaN where it is not finite, and where the QR steps do not converge. Of real matrices the complex
    eigenvalues come in pairs, that with the positive imaginary part first, with vectors that are conjugates; the others
    have real vectors. The greatest element of a vector is real.
    """
    scale = common_scale(a)
    is_finite = scale == scale
    a, d = balanced(e.where(is_finite, divided(a, scale), e.const(a, 0.0)))
    t, z, found = schur(a, vectors=vectors)
    scale = e.where(e.both(is_finite, found), scale, e.const(scale, float("nan")))
    blocks = None if a.dtype.is_complex else Blocks(t)
    values = ops.unsqueeze(diagonal_of(t), -2) if blocks is None else blocks.values
    whole = ops.squeeze(scaled(values, scale), -2)
    if z is None:
        return whole, None
    if blocks is not None:
        t, z = blocks.triangular(t), blocks.turned(z)
    v = _normalised(scaled(ops.matmul(z, _null_vectors(t, values)), d))
    if blocks is not None:
        v = blocks.paired(v)
    return whole, e.where(scale == scale, v, e.const(v, float("nan")))


def _null_vectors(t: Symbol, values: Symbol) -> Symbol:
    """Eigenvectors of upper triangular matrices as columns, by substitution from the last row up.

    t: complex [..., n, n]. values: its diagonal as [..., 1, n]. Each column is scaled down when an element exceeds 1,
    and differences of eigenvalues that are nothing are taken for a little, as in LAPACK's trevc.
    """
    info = np.finfo(t.dtype.numpy)
    eps, tiny = float(info.eps), float(info.tiny) / float(info.eps)
    last = count_of(t, -1) - 1
    least = rough_size(values) * eps
    n = ops.cast(count_of(t, -1), least.dtype)
    least = e.emit("Max", least, n * tiny)

    def step(i: Symbol, y: Symbol, t: Symbol, values: Symbol, least: Symbol, *given: Symbol) -> list[Symbol]:
        rows, columns, last = given
        zero, one = e.const(t, 0.0), e.const(t, 1.0)
        k = last - i
        rest = ops.matmul(e.where(columns > k, at(t, k, -2), zero), y)
        apart = at(values, k, -1) - values
        apart = e.where(rough_size(apart) < least, ops.cast(least, t.dtype), apart)
        made = e.where(columns > k, -rest / apart, e.where(columns == k, one, zero))
        growth = e.emit("Max", rough_size(made), e.const(least, 1.0))
        return [divided(e.where(rows == k, made, y), growth)]

    start = filled(t, range(t.rank))
    given = [t, values, least, rows_of(t), columns_of(t), last]
    return repeat(count_of(t, -1), [start], step, given)[0]


def _normalised(v: Symbol) -> Symbol:
    """The columns with length 1 and with real and positive greatest elements."""
    v = divided(v, reduced("ReduceMax", rough_size(v), -2))
    sizes = ops.square(ops.real(v)) + ops.square(ops.imag(v))
    shape = reduced("ReduceMax", sizes, -2).shape
    place = e.emit("ArgMax", sizes, dtype=DType.int64, shape=shape, axis=v.rank - 2, keepdims=1)
    here = rows_of(v) == place
    lead = reduced("ReduceSum", e.where(here, v, e.const(v, 0.0)), -2)
    v = v * divided(ops.conj(lead), ops.abs(lead))
    v = e.where(here, ops.cast(ops.real(v), v.dtype), v)
    return divided(v, ops.sqrt(square_sum(v, -2)))
