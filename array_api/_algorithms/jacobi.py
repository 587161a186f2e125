"""Eigenvalues of symmetric matrices and singular values, by Jacobi rotations.

A round rotates disjoint pairs of rows at once. The n rounds of a sweep combine every pair once: round r has the pairs
whose numbers add up to r modulo n (the modulus ordering, which converges like the cyclic one: Luk and Park, On parallel
Jacobi orderings, 1989). Sweeps end when one has nothing to rotate. Rows, not columns, since rows are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphcore import ops
from graphcore.array_api._algorithms.schur import qr
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops import matrices as mat
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import Shape

SWEEPS = 30
"""Maximum number of sweeps, as in LAPACK's gesvj. Six to ten are usual."""


def eigh(a: Symbol, *, vectors: bool) -> tuple[Symbol, Symbol | None]:
    """Return the eigenvalues of symmetric matrices in ascending order, [..., n], and eigenvectors as columns.

    a: [..., n, n]; only the lower triangle is read. The eigenvectors are [..., n, n].
    """
    scale = mat.common_scale(a)
    a = mat.divided(ops.tril(a), scale)
    a = a + mat.adjoint(ops.tril(a, -1))
    if a.dtype.is_complex:
        a = e.where(mat.rows_of(a) == mat.columns_of(a), ops.cast(ops.real(a), a.dtype), a)
    threshold = float(np.finfo(a.dtype.numpy).eps) / 1024  # for matrices whose largest element is about 1

    def step(i: Symbol, unsettled: Symbol, a: Symbol, *rest: Symbol) -> list[Symbol]:
        *rotated, n, rows, columns = rest
        r, partner = _pair_rows(i, n, rows)
        other = _permute_rows(a, partner)
        diagonal, shared = ops.real(_diagonal(a)), _diagonal(other)
        if a.dtype.is_complex:
            shared = (ops.conj(shared) + _permute_rows(shared, partner)) * 0.5
        else:
            shared = (shared + _permute_rows(shared, partner)) * 0.5
        size = ops.abs(shared)
        rotates = e.both(size > threshold, partner != rows)
        rotate, loss = _rotation(_permute_rows(diagonal, partner) - diagonal, shared, size, rotates, rows, partner)
        result = mat.adjoint(rotate(a, other))
        result = rotate(result, _permute_rows(result, partner))
        result = e.where(columns == partner, e.const(a, 0.0), result)
        result = e.where(columns == rows, ops.cast(diagonal - loss, a.dtype), result)
        unsettled, go = _update_state(r, n, unsettled, rotates)
        return [go, unsettled, result, *(rotate(v, _permute_rows(v, partner)) for v in rotated)]

    n = mat.count_of(a, -1)
    rotated = [mat.identities(a, -1, -1) + ops.cast(scale * 0.0, a.dtype)] if vectors else []
    constants = [n, mat.rows_of(a), mat.columns_of(a)]
    _, a, *rotated = mat.repeat(n * SWEEPS, [_scalar_false(a), a, *rotated], step, constants, stops=True)
    values = ops.real(mat.diagonal_of(a)) * ops.squeeze(scale, -1)
    order = ops.argsort(values)
    return ops.sort(values), mat.adjoint(_select_rows(rotated[0], order)) if vectors else None


def singular_values(a: Symbol) -> Symbol:
    """Return the singular values in descending order. a: [..., m, n]. Returns [..., min(m, n)]."""
    return _orthogonalise(a, vectors=False)[1]


def svd(a: Symbol, *, full: bool) -> tuple[Symbol, Symbol, Symbol]:
    """Return U with orthonormal columns, singular values in descending order, and V.T with orthonormal rows.

    a: [..., m, n]. full: U and V are square. One side is the product of rotations. The other is Q of a QR decomposition
    of the normalised rotated rows, which is orthonormal even if rows have length 0 or there are too few of them.
    """
    units, values, rotations = _orthogonalise(a, vectors=True)
    assert rotations is not None
    q, r = qr(mat.adjoint(units), complete=full)
    k = units.shape[-2]
    upper = r[..., : int(k), :] if k is not r.shape[-2] else r
    zero = e.const(values, 0.0)
    negative = ops.unsqueeze(ops.real(mat.diagonal_of(upper)), -2) < zero
    if k is not r.shape[-2]:
        others = e.less(ops.real(mat.filled(a, [*mat.stack_axes(a), Dim(1), q.shape[-1] - k])), zero)
        negative = ops.concat([negative, others], axis=-1)
    q = e.where(negative, -q, q)
    return (mat.adjoint(rotations), values, mat.adjoint(q)) if _is_wide(a) else (q, values, rotations)


def rank(a: Symbol, rtol: Symbol | float | None) -> Symbol:
    """Return the number of singular values that are not negligible: int64 of [...]."""
    values = singular_values(a)
    return ops.sum(ops.cast(values > _negligible(a, values, rtol), DType.int64), axis=-1)


def pseudo_inverse(a: Symbol, rtol: Symbol | float | None) -> Symbol:
    """Return the Moore-Penrose pseudo-inverse. a: [..., m, n]. Returns [..., n, m]."""
    u, values, vh = svd(a, full=False)
    negligible = values <= _negligible(a, values, rtol)
    zero, one = e.const(values, 0.0), e.const(values, 1.0)
    inverse = e.where(negligible, zero, one / e.where(negligible, one, values))
    return ops.matmul(mat.scaled(mat.adjoint(vh), ops.unsqueeze(inverse, -2)), mat.adjoint(u))


def _negligible(a: Symbol, values: Symbol, rtol: Symbol | float | None) -> Symbol:
    """Return the threshold of singular values: rtol times the largest of each matrix, [..., 1].

    rtol: by default max(m, n) times the epsilon of the dtype.
    """
    greatest = _first(values)
    if rtol is not None:
        return greatest * rtol
    sides = [ops.cast(mat.count_of(a, axis), values.dtype) for axis in (-2, -1)]
    return greatest * (ops.maximum(*sides) * float(np.finfo(a.dtype.numpy).eps))


def _first(values: Symbol) -> Symbol:
    """Return the first element along the last axis, or no element if the axis is known to be empty."""
    length = values.shape[-1]
    bounds = [e.ints(values, [bound]) for bound in (0, 1, values.rank - 1)]
    return e.emit("Slice", values, *bounds, shape=Shape([*values.shape[:-1], length if length == 0 else 1]))


def _is_wide(a: Symbol) -> bool:
    m, n = a.shape[-2:]
    return m is not n and mat.least(m, n) is m


def _orthogonalise(a: Symbol, *, vectors: bool) -> tuple[Symbol, Symbol, Symbol | None]:
    """Rotate the rows of wide matrices, or the columns of others, until they are orthogonal (Hestenes's method).

    a: [..., m, n]. Returns the rows normalised to length 1 (or 0), in descending order of their lengths; the lengths,
    which are the singular values; and the product of the rotations, [..., k, k]. NaN for matrices that are not finite.
    """
    scale = mat.common_scale(a)
    a = mat.divided(a if _is_wide(a) else mat.adjoint(a), scale)
    a, rotations = _rotate_rows(a, mat.identities(a, -2, -2) + ops.cast(scale * 0.0, a.dtype) if vectors else None)
    zero, one = e.const(scale, 0.0), e.const(scale, 1.0)
    greatest = mat.reduced("ReduceMax", ops.abs(a), -1)
    greatest = e.where(greatest == zero, one, greatest)
    a = mat.divided(a, greatest)
    length = ops.sqrt(mat.square_sum(a, -1))
    values = ops.squeeze(length * greatest * scale, -1)
    order = ops.argsort(values, descending=True)
    units = _select_rows(mat.divided(a, e.where(length == zero, one, length)), order)
    return units, ops.sort(values, descending=True), None if rotations is None else _select_rows(rotations, order)


def _rotate_rows(a: Symbol, rotations: Symbol | None) -> tuple[Symbol, Symbol | None]:
    """Rotate the rows of `a`, [..., k, l], until they are orthogonal, and those of `rotations` in the same way."""
    info = np.finfo(a.dtype.numpy)
    tolerance = ops.sqrt(ops.cast(mat.count_of(a, -1), real_of(a.dtype))) * float(
        info.eps
    )  # for the cosine between two rows
    negligible = float(info.tiny) ** 0.75  # for products of rows whose largest element is about 1

    def step(i: Symbol, unsettled: Symbol, a: Symbol, *rest: Symbol) -> list[Symbol]:
        *rotated, n, rows, tolerance = rest
        r, partner = _pair_rows(i, n, rows)
        other = _permute_rows(a, partner)
        product = a * (ops.conj(other) if a.dtype.is_complex else other)
        squares, shared = mat.square_sum(a, -1), mat.reduced("ReduceSum", product, -1)
        length, size = ops.sqrt(squares), ops.abs(shared)
        limit = e.emit("Max", length * _permute_rows(length, partner) * tolerance, e.const(squares, negligible))
        rotates = e.both(size > limit, partner != rows)
        rotate, _ = _rotation(_permute_rows(squares, partner) - squares, shared, size, rotates, rows, partner)
        unsettled, go = _update_state(r, n, unsettled, rotates)
        return [go, unsettled, rotate(a, other), *(rotate(v, _permute_rows(v, partner)) for v in rotated)]

    n = mat.count_of(a, -2)
    rotated = [] if rotations is None else [rotations]
    _, a, *rotated = mat.repeat(
        n * SWEEPS, [_scalar_false(a), a, *rotated], step, [n, mat.rows_of(a), tolerance], stops=True
    )
    return a, rotated[0] if rotated else None


# One round


def _pair_rows(i: Symbol, n: Symbol, rows: Symbol) -> tuple[Symbol, Symbol]:
    """Return the number of the round in its sweep, and the partner of each row, [n, 1]: itself if it has none."""
    r = e.emit("Mod", i, n)
    partner = r - rows
    return r, e.where(partner < 0, partner + n, partner)


def _tangent(difference: Symbol, shared: Symbol, rotates: Symbol, rows: Symbol, partner: Symbol) -> Symbol:
    """Return the tangent of the rotation angle of each row, [..., n, 1]; 0 for rows that are not rotated.

    It is the smaller root of t*t + 2*z*t = 1 with z = difference / (2 * shared), and exactly opposite for a pair.
    """
    zero, one = e.const(difference, 0.0), e.const(difference, 1.0)
    z = difference / (e.where(rotates, shared, one) * 2.0)
    size = ops.abs(z)
    within = e.emit("Min", size, e.const(z, 1e9))  # so that the square is finite; 1 is negligible relative to 1e18
    root = e.emit("Max", size, ops.sqrt(within * within + one))
    upward = e.either(z > zero, e.both(z == zero, rows < partner))
    tangent = e.where(rotates, e.where(upward, one, -one) / (size + root), zero)
    return (tangent - _permute_rows(tangent, partner)) * 0.5


def _rotation(
    difference: Symbol, shared: Symbol, size: Symbol, rotates: Symbol, rows: Symbol, partner: Symbol
) -> tuple[Callable[[Symbol, Symbol], Symbol], Symbol]:
    """Return the function that rotates rows with their partners, and the decrease of each row's product with itself.

    difference: the partner's product with itself minus that of the row. shared: the product of the two rows. size: its
    magnitude. For complex rows, the partner is first multiplied by the phase of the product.
    """
    is_complex = shared.dtype.is_complex
    tangent = _tangent(difference, size if is_complex else shared, rotates, rows, partner)
    cosine = e.const(tangent, 1.0) / ops.sqrt(tangent * tangent + 1.0)
    sine = cosine * tangent
    half = sine / (cosine + 1.0)
    phase = mat.divided(shared, e.where(rotates, size, e.const(size, 1.0))) if is_complex else None

    def rotate(x: Symbol, other: Symbol) -> Symbol:
        """Return cosine * x - sine * other, in Rutishauser's form, which rounds less for smaller angles."""
        if phase is None:
            return x - sine * (other + half * x)
        return x - mat.scaled(phase * other + mat.scaled(x, half), sine)

    return rotate, tangent * (size if is_complex else shared)


def _update_state(r: Symbol, n: Symbol, unsettled: Symbol, rotates: Symbol) -> tuple[Symbol, Symbol]:
    """Return True if this sweep has rotated anything so far, and True to continue."""
    unsettled = e.either(e.both(unsettled, r > 0), ops.any(rotates))
    return unsettled, e.either(unsettled, r < n - 1)


def _scalar_false(x: Symbol) -> Symbol:
    return x.graph.build.scalar(False, DType.bool)


def _permute_rows(x: Symbol, partner: Symbol) -> Symbol:
    """Reorder the rows of matrices, in the same way for all. partner: [n, 1]."""
    order = ops.squeeze(partner, 1)
    return e.emit("Gather", x, order, shape=x.shape, axis=x.rank - 2)


def _diagonal(a: Symbol) -> Symbol:
    """Return the diagonal of square matrices as a column: [..., n, 1]."""
    return ops.unsqueeze(mat.diagonal_of(a), -1)


# Before and after the rounds


def _select_rows(a: Symbol, order: Symbol) -> Symbol:
    """Reorder the rows of each matrix. a: [..., m, n]. order: [..., m]."""
    return e.emit("GatherND", a, ops.unsqueeze(order, -1), shape=a.shape, batch_dims=a.rank - 2)
