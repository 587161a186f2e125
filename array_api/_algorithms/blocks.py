"""The blocks of two rows on the diagonal of real Schur forms: their eigenvalues, and what makes them triangular."""

from __future__ import annotations

from graphcore import ops
from graphcore.array_api._algorithms.schur import band_of, neighbours, picked
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices.loops import adjoint, columns_of, count_of, rows_of, square_sum


class Blocks:
    """The blocks of quasi-triangular matrices, all at once, as rows with one element for each column.

    A block has its first column where the element below the diagonal is not 0. values: the eigenvalues, complex
    [..., 1, n].
    """

    __slots__ = (
        "_before_each", "_columns", "_cosine", "_first", "_is_conjugate", "_is_pair", "_rows", "_second", "_sine",
        "values",
    )  # fmt: skip

    def __init__(self, t: Symbol) -> None:
        rows, columns = rows_of(t), columns_of(t)
        before, after = neighbours(columns, count_of(t, -1) - 1)
        d, below, s, u = band_of(t, rows, columns, after)
        zero, one = e.const(t, 0.0), e.const(t, 1.0)
        self._rows, self._columns, self._before_each = rows, columns, before
        self._first = e.both(s != zero, columns < count_of(t, -1) - 1)
        self._second = e.both(picked(self._first, before), columns > 0)
        # LAPACK's lanv2: the root of the discriminant without overflow on the way.
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
        """Each element in the next column."""
        return picked(row, self._before_each)

    def _rotation(self) -> Symbol:
        """Unitary matrices whose blocks have the eigenvector of the first eigenvalue in their first column."""
        zero, one = e.const(self.values, 0.0), e.const(self.values, 1.0)
        own = e.where(self._second, ops.conj(self._before(self._cosine)), one)
        own = e.where(self._first, self._cosine, own)
        below = e.where(self._first, self._sine, zero)
        above = e.where(self._second, -self._before(self._sine), zero)
        made = e.where(self._rows == self._columns, own, zero)
        made = e.where(self._rows == self._columns + 1, below, made)
        return e.where(self._rows == self._columns - 1, above, made)

    def triangular(self, t: Symbol) -> Symbol:
        """The matrices between the rotations that make the blocks triangular, with the eigenvalues on the diagonal."""
        turn = self._rotation()
        made = ops.triu(ops.matmul(adjoint(turn), ops.matmul(ops.cast(t, turn.dtype), turn)))
        return e.where(self._rows == self._columns, self.values, made)

    def turned(self, z: Symbol) -> Symbol:
        """The product of a matrix and the rotations."""
        turn = self._rotation()
        return ops.matmul(ops.cast(z, turn.dtype), turn)

    def paired(self, v: Symbol) -> Symbol:
        """The eigenvectors, exactly conjugate for pairs of eigenvalues and real for real ones."""
        real = ops.real(v)
        real = ops.cast(real / ops.sqrt(square_sum(real, -2)), v.dtype)
        return e.where(self._is_pair, v, e.where(self._is_conjugate, ops.conj(self._before(v)), real))
