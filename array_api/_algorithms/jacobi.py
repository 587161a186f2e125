"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations.

A round rotates disjoint pairs of rows at once; the n rounds of a sweep bring every pair together once: in round r those
go together whose numbers add up to r modulo n (the modulus ordering, as convergent as going row by row: Luk and Park,
On parallel Jacobi orderings, 1989). Sweeps end when one has found nothing to rotate. Rows rather than columns, because
they lie in one piece.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphcore import ops
from graphcore.array_api._algorithms.schur import qr
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices import (
    adjoint,
    columns_of,
    common_scale,
    count_of,
    diagonal_of,
    divided,
    filled,
    identities,
    least,
    reduced,
    repeat,
    rows_of,
    scaled,
    square_sum,
    stack_axes,
)
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import Shape

SWEEPS = 30
"""No more of them: LAPACK's gesvj has the same limit. Six to ten are usual."""


def eigh(a: Symbol, *, vectors: bool) -> tuple[Symbol, Symbol | None]:
    """The eigenvalues of symmetric matrices in ascending order, [..., n], and eigenvectors as columns, [..., n, n].

    a: [..., n, n], of which the lower triangle is read.
    """
    scale = common_scale(a)
    a = divided(ops.tril(a), scale)
    a = a + adjoint(ops.tril(a, -1))
    if a.dtype.is_complex:
        a = e.where(rows_of(a) == columns_of(a), ops.cast(ops.real(a), a.dtype), a)
    threshold = float(np.finfo(a.dtype.numpy).eps) / 1024  # of matrices whose greatest element is about 1

    def step(i: Symbol, unsettled: Symbol, a: Symbol, *rest: Symbol) -> list[Symbol]:
        *kept, n, rows, columns = rest
        r, partner = _paired(i, n, rows)
        other = _permuted(a, partner)
        own, shared = ops.real(_diagonal(a)), _diagonal(other)
        if a.dtype.is_complex:
            shared = (ops.conj(shared) + _permuted(shared, partner)) * 0.5
        else:
            shared = (shared + _permuted(shared, partner)) * 0.5
        size = ops.abs(shared)
        rotates = e.both(size > threshold, partner != rows)
        rotate, loss = _rotation(_permuted(own, partner) - own, shared, size, rotates, rows, partner)
        made = adjoint(rotate(a, other))
        made = rotate(made, _permuted(made, partner))
        made = e.where(columns == partner, e.const(a, 0.0), made)
        made = e.where(columns == rows, ops.cast(own - loss, a.dtype), made)
        unsettled, go = _verdict(r, n, unsettled, rotates)
        return [go, unsettled, made, *(rotate(v, _permuted(v, partner)) for v in kept)]

    n = count_of(a, -1)
    kept = [identities(a, -1, -1) + ops.cast(scale * 0.0, a.dtype)] if vectors else []
    given = [n, rows_of(a), columns_of(a)]
    _, a, *kept = repeat(n * SWEEPS, [_false(a), a, *kept], step, given, stops=True)
    values = ops.real(diagonal_of(a)) * ops.squeeze(scale, -1)
    order = ops.argsort(values)
    return ops.sort(values), adjoint(_selected(kept[0], order)) if vectors else None


def singular_values(a: Symbol) -> Symbol:
    """The singular values in descending order. a: [..., m, n]. Returns [..., k], k the lesser of m and n."""
    return _orthogonalised(a, vectors=False)[1]


def svd(a: Symbol, *, full: bool) -> tuple[Symbol, Symbol, Symbol]:
    """U with orthonormal columns, singular values in descending order, and V.T with orthonormal rows.

    a: [..., m, n]. full: U and V are square. Those of the vectors that are not a product of rotations are the Q of a QR
    decomposition of the rotated rows scaled to length 1, which is orthonormal also where those have the length 0, and
    where there are too few of them.
    """
    units, values, rotations = _orthogonalised(a, vectors=True)
    assert rotations is not None
    q, r = qr(adjoint(units), complete=full)
    k = units.shape[-2]
    upper = r[..., : int(k), :] if k is not r.shape[-2] else r
    zero = e.const(values, 0.0)
    negative = ops.unsqueeze(ops.real(diagonal_of(upper)), -2) < zero
    if k is not r.shape[-2]:
        others = e.less(ops.real(filled(a, [*stack_axes(a), Dim(1), q.shape[-1] - k])), zero)
        negative = ops.concat([negative, others], axis=-1)
    q = e.where(negative, -q, q)
    return (adjoint(rotations), values, adjoint(q)) if _is_wide(a) else (q, values, rotations)


def rank(a: Symbol, rtol: Symbol | float | None) -> Symbol:
    """Return how many singular values are not negligible. Returns int64 of [...]."""
    values = singular_values(a)
    return ops.sum(ops.cast(values > _negligible(a, values, rtol), DType.int64), axis=-1)


def pseudo_inverse(a: Symbol, rtol: Symbol | float | None) -> Symbol:
    """The pseudo-inverse of Moore and Penrose. a: [..., m, n]. Returns [..., n, m]."""
    u, values, vh = svd(a, full=False)
    negligible = values <= _negligible(a, values, rtol)
    zero, one = e.const(values, 0.0), e.const(values, 1.0)
    inverse = e.where(negligible, zero, one / e.where(negligible, one, values))
    return ops.matmul(scaled(adjoint(vh), ops.unsqueeze(inverse, -2)), adjoint(u))


def _negligible(a: Symbol, values: Symbol, rtol: Symbol | float | None) -> Symbol:
    """Return what singular values must exceed: rtol times the greatest of each matrix, [..., 1].

    rtol: by default the greater of the sides of a matrix times the dtype's epsilon.
    """
    greatest = _first(values)
    if rtol is not None:
        return greatest * rtol
    sides = [ops.cast(count_of(a, axis), values.dtype) for axis in (-2, -1)]
    return greatest * (ops.maximum(*sides) * float(np.finfo(a.dtype.numpy).eps))


def _first(values: Symbol) -> Symbol:
    """The first along the last axis, of which there is one, or none where the axis is known to be empty."""
    length = values.shape[-1]
    bounds = [e.ints(values, [bound]) for bound in (0, 1, values.rank - 1)]
    return e.emit("Slice", values, *bounds, shape=Shape([*values.shape[:-1], length if length == 0 else 1]))


def _is_wide(a: Symbol) -> bool:
    m, n = a.shape[-2:]
    return m is not n and least(m, n) is m


def _orthogonalised(a: Symbol, *, vectors: bool) -> tuple[Symbol, Symbol, Symbol | None]:
    """The rows of wide matrices, the columns of others, rotated until they are orthogonal (Hestenes's method).

    a: [..., m, n]. Returns them as rows of length 1 (or 0), in descending order of their former lengths; those lengths,
    which are the singular values; and the product of the rotations, [..., k, k]. NaN for matrices that are not finite.
    """
    scale = common_scale(a)
    a = divided(a if _is_wide(a) else adjoint(a), scale)
    a, rotations = _rounds(a, identities(a, -2, -2) + ops.cast(scale * 0.0, a.dtype) if vectors else None)
    zero, one = e.const(scale, 0.0), e.const(scale, 1.0)
    greatest = reduced("ReduceMax", ops.abs(a), -1)
    greatest = e.where(greatest == zero, one, greatest)
    a = divided(a, greatest)
    length = ops.sqrt(square_sum(a, -1))
    values = ops.squeeze(length * greatest * scale, -1)
    order = ops.argsort(values, descending=True)
    units = _selected(divided(a, e.where(length == zero, one, length)), order)
    return units, ops.sort(values, descending=True), None if rotations is None else _selected(rotations, order)


def _rounds(a: Symbol, rotations: Symbol | None) -> tuple[Symbol, Symbol | None]:
    """`a`, [..., k, l], with its rows rotated until they are orthogonal, and `rotations` rotated alike."""
    info = np.finfo(a.dtype.numpy)
    tolerance = ops.sqrt(ops.cast(count_of(a, -1), real_of(a.dtype))) * float(
        info.eps
    )  # of the cosine between two rows
    negligible = float(info.tiny) ** 0.75  # of products of rows whose greatest element is about 1

    def step(i: Symbol, unsettled: Symbol, a: Symbol, *rest: Symbol) -> list[Symbol]:
        *kept, n, rows, tolerance = rest
        r, partner = _paired(i, n, rows)
        other = _permuted(a, partner)
        product = a * (ops.conj(other) if a.dtype.is_complex else other)
        own, shared = square_sum(a, -1), reduced("ReduceSum", product, -1)
        length, size = ops.sqrt(own), ops.abs(shared)
        limit = e.emit("Max", length * _permuted(length, partner) * tolerance, e.const(own, negligible))
        rotates = e.both(size > limit, partner != rows)
        rotate, _ = _rotation(_permuted(own, partner) - own, shared, size, rotates, rows, partner)
        unsettled, go = _verdict(r, n, unsettled, rotates)
        return [go, unsettled, rotate(a, other), *(rotate(v, _permuted(v, partner)) for v in kept)]

    n = count_of(a, -2)
    kept = [] if rotations is None else [rotations]
    _, a, *kept = repeat(n * SWEEPS, [_false(a), a, *kept], step, [n, rows_of(a), tolerance], stops=True)
    return a, kept[0] if kept else None


# One round


def _paired(i: Symbol, n: Symbol, rows: Symbol) -> tuple[Symbol, Symbol]:
    """The number of the round within its sweep, and for every row which one it goes with: itself, if none. [n, 1]."""
    r = e.emit("Mod", i, n)
    partner = r - rows
    return r, e.where(partner < 0, partner + n, partner)


def _tangent(apart: Symbol, shared: Symbol, rotates: Symbol, rows: Symbol, partner: Symbol) -> Symbol:
    """The tangent of the angle by which each row is rotated against its partner, 0 for those that stay. [..., n, 1].

    The lesser root of t*t + 2*z*t = 1, z being apart / (2 * shared). Opposite for the two of a pair to the last bit.
    """
    zero, one = e.const(apart, 0.0), e.const(apart, 1.0)
    z = apart / (e.where(rotates, shared, one) * 2.0)
    size = ops.abs(z)
    within = e.emit("Min", size, e.const(z, 1e9))  # its square is a number, and 1 is nothing beside the square of 1e9
    root = e.emit("Max", size, ops.sqrt(within * within + one))
    upward = e.either(z > zero, e.both(z == zero, rows < partner))
    found = e.where(rotates, e.where(upward, one, -one) / (size + root), zero)
    return (found - _permuted(found, partner)) * 0.5


def _rotation(
    apart: Symbol, shared: Symbol, size: Symbol, rotates: Symbol, rows: Symbol, partner: Symbol
) -> tuple[Callable[[Symbol, Symbol], Symbol], Symbol]:
    """Return what rotates rows against those of their partners, and what the product of a row with itself loses.

    apart: what the partner's has more. shared: the product of the two rows, and size its magnitude: of complex rows
    the partner's is turned by the angle of the product first.
    """
    is_complex = shared.dtype.is_complex
    tangent = _tangent(apart, size if is_complex else shared, rotates, rows, partner)
    cosine = e.const(tangent, 1.0) / ops.sqrt(tangent * tangent + 1.0)
    sine = cosine * tangent
    half = sine / (cosine + 1.0)
    phase = divided(shared, e.where(rotates, size, e.const(size, 1.0))) if is_complex else None

    def rotate(x: Symbol, other: Symbol) -> Symbol:
        """cosine * x - sine * other, in a form that rounds the less the smaller the angle is (Rutishauser's)."""
        if phase is None:
            return x - sine * (other + half * x)
        return x - scaled(phase * other + scaled(x, half), sine)

    return rotate, tangent * (size if is_complex else shared)


def _verdict(r: Symbol, n: Symbol, unsettled: Symbol, rotates: Symbol) -> tuple[Symbol, Symbol]:
    """Return whether this sweep has rotated anything so far, and whether to go on."""
    unsettled = e.either(e.both(unsettled, r > 0), ops.any(rotates))
    return unsettled, e.either(unsettled, r < n - 1)


def _false(x: Symbol) -> Symbol:
    return x.graph.build.scalar(False, DType.bool)


def _permuted(x: Symbol, partner: Symbol) -> Symbol:
    """The rows of matrices in another order, the same for all. partner: [n, 1]."""
    order = ops.squeeze(partner, 1)
    return e.emit("Gather", x, order, shape=x.shape, axis=x.rank - 2)


def _diagonal(a: Symbol) -> Symbol:
    """The diagonal of square matrices as a column: [..., n, 1]."""
    return ops.unsqueeze(diagonal_of(a), -1)


# Around the rounds


def _selected(a: Symbol, order: Symbol) -> Symbol:
    """The rows of matrices in an order of each. a: [..., m, n]. order: [..., m]."""
    return e.emit("GatherND", a, ops.unsqueeze(order, -1), shape=a.shape, batch_dims=a.rank - 2)
