"""Eigenvalues and eigenvectors of square matrices: LAPACK's geev in Loops."""

from __future__ import annotations

import numpy as np

from graphcore import ops
from graphcore.array_api._algorithms.schur import band_of, gather_columns, neighbours, schur
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops import matrices as mat
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of


def eig(a: Symbol, *, vectors: bool) -> tuple[Symbol, Symbol | None]:
    """Return the eigenvalues, complex [..., n], and eigenvectors of length 1 as columns, complex [..., n, n].

    a: [..., n, n]. Results are NaN if `a` is not finite or the QR steps do not converge. Complex eigenvalues of real
    matrices come in conjugate pairs, with the positive imaginary part first, and conjugate vectors; real eigenvalues
    have real vectors. The largest element of a vector is real.
    """
    scale = mat.common_scale(a)
    is_finite = scale == scale
    a, d = balance(e.where(is_finite, mat.divided(a, scale), e.const(a, 0.0)))
    t, z, converged = schur(a, vectors=vectors)
    scale = e.where(e.both(is_finite, converged), scale, e.const(scale, float("nan")))
    blocks = None if a.dtype.is_complex else Blocks(t)
    values = ops.unsqueeze(mat.diagonal_of(t), -2) if blocks is None else blocks.values
    eigenvalues = ops.squeeze(mat.scaled(values, scale), -2)
    if z is None:
        return eigenvalues, None
    if blocks is not None:
        t, z = blocks.to_triangular(t), blocks.rotate(z)
    v = _normalise(mat.scaled(ops.matmul(z, _null_vectors(t, values)), d))
    if blocks is not None:
        v = blocks.pair_vectors(v)
    return eigenvalues, e.where(scale == scale, v, e.const(v, float("nan")))


def _null_vectors(t: Symbol, values: Symbol) -> Symbol:
    """Return the eigenvectors of upper triangular matrices as columns, by back substitution.

    t: complex [..., n, n]. values: its diagonal as [..., 1, n]. As in LAPACK's trevc, a column is scaled down when an
    element exceeds 1, and negligible differences of eigenvalues are replaced by a small number.
    """
    info = np.finfo(t.dtype.numpy)
    eps, tiny = float(info.eps), float(info.tiny) / float(info.eps)
    last = mat.count_of(t, -1) - 1
    least = mat.rough_size(values) * eps
    n = ops.cast(mat.count_of(t, -1), least.dtype)
    least = e.emit("Max", least, n * tiny)

    def step(i: Symbol, y: Symbol, t: Symbol, values: Symbol, least: Symbol, *constants: Symbol) -> list[Symbol]:
        rows, columns, last = constants
        zero, one = e.const(t, 0.0), e.const(t, 1.0)
        k = last - i
        rest = ops.matmul(e.where(columns > k, mat.at(t, k, -2), zero), y)
        gaps = mat.at(values, k, -1) - values
        gaps = e.where(mat.rough_size(gaps) < least, ops.cast(least, t.dtype), gaps)
        solution = e.where(columns > k, -rest / gaps, e.where(columns == k, one, zero))
        growth = e.emit("Max", mat.rough_size(solution), e.const(least, 1.0))
        return [mat.divided(e.where(rows == k, solution, y), growth)]

    start = mat.filled(t, range(t.rank))
    constants = [t, values, least, mat.rows_of(t), mat.columns_of(t), last]
    return mat.repeat(mat.count_of(t, -1), [start], step, constants)[0]


def _normalise(v: Symbol) -> Symbol:
    """Normalise columns to length 1, with a real and positive largest element."""
    v = mat.divided(v, mat.reduced("ReduceMax", mat.rough_size(v), -2))
    sizes = ops.square(ops.real(v)) + ops.square(ops.imag(v))
    shape = mat.reduced("ReduceMax", sizes, -2).shape
    place = e.emit("ArgMax", sizes, dtype=DType.int64, shape=shape, axis=v.rank - 2, keepdims=1)
    here = mat.rows_of(v) == place
    lead = mat.reduced("ReduceSum", e.where(here, v, e.const(v, 0.0)), -2)
    v = v * mat.divided(ops.conj(lead), ops.abs(lead))
    v = e.where(here, ops.cast(ops.real(v), v.dtype), v)
    return mat.divided(v, ops.sqrt(mat.square_sum(v, -2)))


# Balancing: scale rows and columns by powers of 2, so that row i and column i have similar norms.

SWEEPS = 10
"""Maximum number of sweeps; three or four are usual."""


def balance(a: Symbol) -> tuple[Symbol, Symbol]:
    """Return inv(D) @ a @ D, and the diagonal of D as a column.

    a: [..., n, n] of finite numbers. Returns [..., n, n], and [..., n, 1] of powers of 2, at most 1. Scales each row
    and column in turn if that reduces the sum of both by 5 % (Parlett and Reinsch, 1969; LAPACK's gebal).
    """
    limit = float(np.finfo(real_of(a.dtype).numpy).max) ** 0.25

    def step(i: Symbol, unsettled: Symbol, a: Symbol, d: Symbol, *constants: Symbol) -> list[Symbol]:
        n, rows, columns = constants
        k = e.emit("Mod", i, n)
        is_row, is_column = rows == k, columns == k
        zero, one = e.const(d, 0.0), e.const(d, 1.0)
        below = mat.reduced("ReduceSum", e.where(is_row, zero, mat.rough_size(mat.at(a, k, -1))), -2)
        beside = mat.reduced("ReduceSum", e.where(is_column, zero, mat.rough_size(mat.at(a, k, -2))), -1)
        is_valid = e.both(below > zero, beside > zero)
        ratio = ops.sqrt(e.where(is_valid, beside, one)) / ops.sqrt(e.where(is_valid, below, one))
        factor = mat.binary_scale(ratio * float(np.sqrt(2.0)))
        new_scale = mat.at(d, k, -2) * factor
        is_valid = e.both(is_valid, new_scale < limit, new_scale > 1.0 / limit)
        improves = e.both(is_valid, below * factor + beside / factor < (below + beside) * 0.95)
        factor = e.where(improves, factor, one)
        a = mat.scaled(a, e.where(is_column, factor, one) / e.where(is_row, factor, one))
        unsettled = e.either(e.both(unsettled, k > 0), ops.any(improves))
        return [e.either(unsettled, k < n - 1), unsettled, a, d * e.where(is_row, factor, one)]

    n = mat.count_of(a, -1)
    start = ops.real(mat.filled(a, [*mat.stack_axes(a), -1, Dim(1)], 1.0))
    constants = [n, mat.rows_of(a), mat.columns_of(a)]
    settled = a.graph.build.scalar(False, DType.bool)
    _, a, d = mat.repeat(n * SWEEPS, [settled, a, start], step, constants, stops=True)
    return a, d / mat.reduced("ReduceMax", d, -2)


# The 2 x 2 blocks on the diagonal of real Schur forms: their eigenvalues, and rotations to triangular form.


class Blocks:
    """The blocks of quasi-triangular matrices as rows with an element for each column.

    The first column of a block is one with a nonzero element below the diagonal. values: the eigenvalues, complex
    [..., 1, n].
    """

    __slots__ = (
        "_before_each", "_columns", "_cosine", "_first", "_is_conjugate", "_is_pair", "_rows", "_second", "_sine",
        "values",
    )  # fmt: skip

    def __init__(self, t: Symbol) -> None:
        rows, columns = mat.rows_of(t), mat.columns_of(t)
        before, after = neighbours(columns, mat.count_of(t, -1) - 1)
        d, below, s, u = band_of(t, rows, columns, after)
        zero, one = e.const(t, 0.0), e.const(t, 1.0)
        self._rows, self._columns, self._before_each = rows, columns, before
        self._first = e.both(s != zero, columns < mat.count_of(t, -1) - 1)
        self._second = e.both(gather_columns(self._first, before), columns > 0)
        # LAPACK's lanv2: the root of the discriminant without intermediate overflow.
        half = (d - below) * 0.5
        greater, lesser = ops.maximum(ops.abs(s), ops.abs(u)), ops.minimum(ops.abs(s), ops.abs(u))
        lesser = e.where((s < zero) == (u < zero), lesser, -lesser)
        scale = ops.maximum(ops.abs(half), greater)
        scale = e.where(scale > zero, scale, one)
        squared = half / scale * half + greater / scale * lesser
        root = ops.sqrt(scale) * ops.sqrt(ops.abs(squared))
        is_pair = squared < zero
        away = half + e.where(half < zero, -root, root)
        nearer = below - e.where(away == zero, zero, greater / e.where(away == zero, one, away) * lesser)
        middle = below + half
        real, height = e.where(is_pair, middle, below + away), e.where(is_pair, root, zero)
        other = self._before(e.where(is_pair, middle, nearer))
        value = e.where(self._first, real, e.where(self._second, other, d))
        self._is_pair = e.both(self._first, is_pair)
        self._is_conjugate = e.both(self._second, self._before(self._is_pair))
        imaginary = e.where(self._is_conjugate, -self._before(height), zero)
        self.values = ops.complex(value, e.where(self._first, height, imaginary))
        # The eigenvector of the first eigenvalue of a block, of length 1.
        upper = ops.complex(e.where(is_pair, half, away), height)
        size = ops.maximum(ops.maximum(ops.abs(ops.real(upper)), height), ops.abs(s))
        size = e.where(self._first, size, one)
        upper, lower = upper / ops.cast(size, upper.dtype), s / size
        length = ops.sqrt(ops.square(ops.real(upper)) + ops.square(ops.imag(upper)) + lower * lower)
        length = e.where(self._first, length, one)
        self._cosine = upper / ops.cast(length, upper.dtype)
        self._sine = ops.cast(lower / length, upper.dtype)

    def _before(self, row: Symbol) -> Symbol:
        """Shift elements to the next column."""
        return gather_columns(row, self._before_each)

    def _rotation(self) -> Symbol:
        """Return unitary matrices whose blocks have the eigenvector of the first eigenvalue as first column."""
        zero, one = e.const(self.values, 0.0), e.const(self.values, 1.0)
        diagonal = e.where(self._second, ops.conj(self._before(self._cosine)), one)
        diagonal = e.where(self._first, self._cosine, diagonal)
        below = e.where(self._first, self._sine, zero)
        above = e.where(self._second, -self._before(self._sine), zero)
        result = e.where(self._rows == self._columns, diagonal, zero)
        result = e.where(self._rows == self._columns + 1, below, result)
        return e.where(self._rows == self._columns - 1, above, result)

    def to_triangular(self, t: Symbol) -> Symbol:
        """Rotate matrices to triangular form, with the eigenvalues on the diagonal."""
        turn = self._rotation()
        result = ops.triu(ops.matmul(mat.adjoint(turn), ops.matmul(ops.cast(t, turn.dtype), turn)))
        return e.where(self._rows == self._columns, self.values, result)

    def rotate(self, z: Symbol) -> Symbol:
        """Multiply a matrix by the rotations."""
        turn = self._rotation()
        return ops.matmul(ops.cast(z, turn.dtype), turn)

    def pair_vectors(self, v: Symbol) -> Symbol:
        """Make eigenvectors exactly conjugate for pairs of eigenvalues, and real for real ones."""
        real = ops.real(v)
        real = ops.cast(real / ops.sqrt(mat.square_sum(real, -2)), v.dtype)
        return e.where(self._is_pair, v, e.where(self._is_conjugate, ops.conj(self._before(v)), real))
