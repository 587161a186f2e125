"""Schur decompositions: reduction to Hessenberg form, then shifted QR steps that chase a bulge down the diagonal.

Matrices and the product of all reflections are one tensor, [..., m, n]: m is n, or 2n with the product below. A step of
the chase is one reflection for each matrix of the stack, each at its own position (Golub and Van Loan, Matrix
Computations, 7.4 and 7.5). Shifts and convergence tests are those of LAPACK's dlahqr.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from graphcore import ops
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol, present
from graphcore.ops import matrices as mat
from graphcore.ops.shared.dims import dim_value
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import _shape

_Band: TypeAlias = tuple[Symbol, Symbol, Symbol, Symbol]

STEPS = 30
"""Maximum number of QR steps for each eigenvalue, as in LAPACK. Two to three are usual."""


def schur(a: Symbol, *, vectors: bool) -> tuple[Symbol, Symbol | None, Symbol]:
    """Return T, Z and True if the iteration has converged: a = Z @ T @ Z.T.

    T has blocks of at most two rows on its diagonal. For complex matrices T is triangular, and Z.T conjugated. a:
    [..., n, n] with elements up to about 1. Returns T of [..., n, n], Z of the same shape with orthonormal columns if
    `vectors`, and bool [..., 1, 1].
    """
    both = ops.concat([a, mat.identities(a, -1, -1)], axis=-2) if vectors else a
    rows = mat.rows_of(both)
    rows = e.where(rows < mat.count_of(a, -1), rows, e.const(rows, -9))  # -9 below the matrix
    columns = mat.columns_of(a)
    both = _hessenberg(both, rows, mat.count_of(a, -1))
    both, converged = _iterate(both, rows, columns, mat.count_of(a, -1))
    if not vectors:
        return both, None, converged
    t, z = ops.split(both, [a.shape[-1], a.shape[-1]], axis=-2)
    return t, z, converged


def _apply_reflections(both: Symbol, vector: Symbol, factor: Symbol) -> Symbol:
    """Apply a reflection from both sides to the matrices, and from the right to the product of reflections."""
    inverse = ops.conj(factor) if both.dtype.is_complex else factor
    both = both - inverse * vector * ops.matmul(mat.adjoint(vector), both)
    n = both.shape[-1]
    right = vector if n is both.shape[-2] else ops.split(vector, [n, both.shape[-2] - n], axis=-2)[0]
    return both - ops.matmul(both, right) * (factor * mat.adjoint(right))


def _reflect(both: Symbol, x: Symbol, rows: Symbol, k: Symbol) -> Symbol:
    """Apply the reflection that clears `x`, [..., m, 1], below row `k`; rows above `k` do not take part."""
    zero = e.const(both, 0.0)
    x = e.where(rows >= k, x, zero)
    greatest = mat.reduced("ReduceMax", mat.rough_size(x), -2)
    x = mat.divided(x, e.where(greatest > 0.0, greatest, e.const(greatest, 1.0)))
    here = rows == k
    head = mat.reduced("ReduceSum", e.where(here, x, zero), -2)
    return _apply_reflections(both, *reflection(head, e.where(here, zero, x), here))


def _hessenberg(both: Symbol, rows: Symbol, n: Symbol) -> Symbol:
    def step(k: Symbol, both: Symbol, rows: Symbol) -> list[Symbol]:
        return [_reflect(both, mat.at(both, k, -1), rows, k + 1)]

    return mat.repeat(n - 2, [both], step, [rows])[0]


# QR steps


def _iterate(both: Symbol, rows: Symbol, columns: Symbol, n: Symbol) -> tuple[Symbol, Symbol]:
    last = n - 1
    before, after = neighbours(columns, last)
    info = np.finfo(both.dtype.numpy)
    eps, tiny = float(info.eps), float(info.tiny) / float(info.eps)

    def step(i: Symbol, both: Symbol, top: Symbol, count: Symbol, *constants: Symbol) -> list[Symbol]:
        rows, columns, before, after, last = constants
        band = band_of(both, rows, columns, after)
        active = e.both(_is_significant(*band, eps, tiny), columns < last)
        # Elements below the diagonal become 0, except active ones of the subdiagonal.
        is_nonzero = e.either(e.either(rows <= columns, rows < 0), e.both(rows == columns + 1, active))
        both = e.where(is_nonzero, both, e.const(both, 0.0))
        # Real matrices keep blocks of two rows, whose eigenvalues can be complex.
        unfinished = active if both.dtype.is_complex else e.both(active, gather_columns(active, before), columns > 0)
        hi = mat.reduced("ReduceMax", e.where(unfinished, columns + 1, e.const(columns, -1)), -1)
        busy = hi >= 0
        count = e.where(hi == top, count + 1, e.const(count, 0))
        free = e.both(e.opposite(active), columns < hi)
        lo = mat.reduced("ReduceMax", e.where(free, columns + 1, e.const(columns, 0)), -1)
        first_column = _first_of_single if both.dtype.is_complex else _first_of_double
        start = first_column(band, lo, hi, last, count)
        x = e.const(both, 0.0)
        for offset, part in enumerate(start):
            x = e.where(e.both(rows == lo + offset, busy), part, x)
        lengths = e.where(busy, hi - lo, e.const(hi, 0))
        longest = e.emit("ReduceMax", lengths, e.ints(lengths, range(lengths.rank)), shape=_shape(()), keepdims=0)
        (both,) = mat.repeat(e.emit("Max", longest, e.const(longest, 0)), [both], _chase, [x, lo, rows, columns])
        return [ops.any(busy), both, hi, count]

    limit = e.emit("Max", n, e.const(n, 10)) * STEPS * e.emit("Min", n, e.const(n, 1))
    zeros = e.cast(ops.real(mat.filled(both, [*range(both.rank - 2), Dim(1), Dim(1)])), DType.int64)
    states = [both, zeros - 2, zeros]
    both, top, _ = mat.repeat(limit, states, step, [rows, columns, before, after, last], stops=True)
    return both, top < 0


def _chase(j: Symbol, both: Symbol, x: Symbol, lo: Symbol, rows: Symbol, columns: Symbol) -> list[Symbol]:
    """Clear column k - 1 below row k, which moves the bulge on by one."""
    k = lo + j
    here = ops.unsqueeze(columns, -1) == k - 1
    column = _times_real(both, e.cast_within(here, real_of(both.dtype)))
    return [_reflect(both, e.where(j == 0, x, column), rows, k)]


def _times_real(x: Symbol, y: Symbol) -> Symbol:
    if not x.dtype.is_complex:
        return ops.matmul(x, y)
    return ops.complex(ops.matmul(ops.real(x), y), ops.matmul(ops.imag(x), y))


# Between the chases


def band_of(both: Symbol, rows: Symbol, columns: Symbol, after: Symbol) -> _Band:
    """Return the diagonal, the diagonal from its second element on, the subdiagonal and the superdiagonal.

    Each is [..., 1, n].
    """
    zero = e.const(both, 0.0)
    d, s, u = (
        mat.reduced("ReduceSum", e.where(rows == columns + offset if offset else rows == columns, both, zero), -2)
        for offset in (0, 1, -1)
    )
    return d, gather_columns(d, after), s, gather_columns(u, after)


def neighbours(columns: Symbol, last: Symbol) -> tuple[Symbol, Symbol]:
    """Return the numbers of the columns before and after each; the first and the last have themselves."""
    return e.emit("Max", columns - 1, e.const(columns, 0)), e.emit("Min", columns + 1, last)


def gather_columns(row: Symbol, order: Symbol) -> Symbol:
    return e.emit("Gather", row, order, axis=row.rank - 1, shape=row.shape)


def _is_significant(d: Symbol, below: Symbol, s: Symbol, u: Symbol, eps: float, tiny: float) -> Symbol:
    """Return True for subdiagonal elements that are not negligible (Ahues and Tisseur, LAPACK working note 122)."""
    sizes = [mat.rough_size(x) for x in (s, u, d, below)]
    difference = mat.rough_size(d - below)
    greater, lesser = ops.maximum(*sizes[:2]), ops.minimum(*sizes[:2])
    high, low = ops.maximum(sizes[3], difference), ops.minimum(sizes[3], difference)
    total = high + greater
    total = e.where(total > e.const(total, 0.0), total, e.const(total, 1.0))
    product = lesser * (greater / total) > ops.maximum(low * (high / total) * eps, e.const(total, tiny))
    beside = sizes[0] > (sizes[2] + sizes[3]) * eps
    return e.both(e.either(product, beside), sizes[0] > e.const(total, tiny))


def _at_place(row: Symbol, place: Symbol, last: Symbol) -> Symbol:
    """Return the element of each row at its own position, clamped to the row."""
    inside = e.emit("Max", e.emit("Min", place, last), e.const(place, 0))
    return e.emit("GatherElements", row, inside, axis=row.rank - 1, shape=place.shape)


def _is_usual(count: Symbol) -> Symbol:
    """Return False for every tenth step without convergence, which uses an exceptional shift."""
    return e.either(count % 10 != 0, count == 0)


def _first_of_single(band: _Band, lo: Symbol, hi: Symbol, last: Symbol, count: Symbol) -> list[Symbol]:
    """Return the first two elements of T - shift. The shift is the eigenvalue of the last two rows that is nearer to
    the last element."""
    d, below, s, u = band
    h11, h12, h21, h22 = (_at_place(row, hi - 1, last) for row in (d, u, s, below))
    product, half = h12 * h21, (h11 - h22) * 0.5
    root = ops.sqrt(half * half + product)
    opposed = ops.real(half) * ops.real(root) + ops.imag(half) * ops.imag(root) < 0.0
    total = half + e.where(opposed, -root, root)
    nothing = mat.rough_size(total) == 0.0
    step = e.where(nothing, e.const(d, 0.0), product / e.where(nothing, e.const(d, 1.0), total))
    odd = h22 + ops.cast(mat.rough_size(h21) * 0.75, d.dtype)
    shift = e.where(_is_usual(count), h22 - step, odd)
    return [_at_place(d, lo, last) - shift, _at_place(s, lo, last)]


def _first_of_double(band: _Band, lo: Symbol, hi: Symbol, last: Symbol, count: Symbol) -> list[Symbol]:
    """Return the first three elements of (T - shift)(T - other shift), with LAPACK's shifts."""
    d, below, s, u = band

    def at_place(row: Symbol, place: Symbol) -> Symbol:
        return _at_place(row, place, last)

    zero = e.const(d, 0.0)
    corner = [at_place(row, hi - 1) for row in (d, u, s, below)]
    usual = _is_usual(count)
    size = ops.abs(corner[2]) + ops.abs(at_place(s, hi - 2))
    odd = size * 0.75 + corner[3]
    h11, h12, h21, h22 = (e.where(usual, x, y) for x, y in zip(corner, (odd, size * -0.4375, size, odd), strict=True))
    middle = (h11 + h22) * 0.5
    determinant = (h11 - middle) * (h22 - middle) - h12 * h21
    root = ops.sqrt(ops.abs(determinant))
    higher, lower = middle + root, middle - root
    closer = e.where(ops.abs(higher - h22) <= ops.abs(lower - h22), higher, lower)
    is_pair = determinant > zero
    real, imaginary = e.where(is_pair, middle, closer), e.where(is_pair, root, zero)
    d0, d1, s0, u0 = (at_place(row, lo) for row in (d, below, s, u))
    away = d0 - real
    scale = ops.abs(away) + imaginary + ops.abs(s0)
    scale = e.where(scale > zero, scale, e.const(d, 1.0))
    share = s0 / scale
    return [
        share * u0 + away * (away / scale) + imaginary * (imaginary / scale),
        share * (away + (d1 - real)),
        share * at_place(s, lo + 1),
    ]


# QR decompositions by Householder reflections.


def qr(a: Symbol, *, complete: bool) -> tuple[Symbol, Symbol]:
    """Return Q with orthonormal columns and upper triangular R with Q @ R = a.

    a: [..., m, n] of known sizes. Returns [..., m, k] and [..., k, n]; k is m if complete, else min(m, n). The
    reflections are those of LAPACK's geqrf, including signs of R: I - tau v v.T with v = 1 at the diagonal, each
    computed from a column scaled by its largest element.
    """
    k = present(mat.least(a.shape[-2], a.shape[-1]))
    r, reflections, factors = _reflect_columns(a, k)
    q = mat.identities(a, -2, -2 if complete else k)
    q = _apply(q, reflections, factors, k)
    return q, ops.triu(r if complete or k is a.shape[-2] else r[..., : int(k), :])


def _reflect_columns(a: Symbol, k: Dim) -> tuple[Symbol, Symbol, Symbol]:
    """Reflect `a`, and return it with the vectors of the reflections, [..., m, k], and their factors, [..., 1, k]."""

    def step(k: Symbol, r: Symbol, vectors: Symbol, factors: Symbol, rows: Symbol, columns: Symbol) -> list[Symbol]:
        zero = e.const(r, 0.0)
        column = e.where(rows < k, zero, mat.at(r, k, -1))
        greatest = mat.reduced("ReduceMax", ops.abs(column), -2)
        column = mat.divided(column, e.where(greatest > 0.0, greatest, e.const(greatest, 1.0)))
        head = mat.at(column, k, -2)
        rest = e.where(rows > k, column, zero)
        vector, factor = reflection(head, rest, rows == k)
        inverse = ops.conj(factor) if r.dtype.is_complex else factor
        r = r - inverse * vector * ops.matmul(mat.adjoint(vector), r)
        here = columns == k
        return [r, e.where(here, vector, vectors), e.where(here, factor, factors)]

    stack = mat.stack_axes(a)
    vectors, factors = mat.filled(a, [*stack, -2, k]), mat.filled(a, [*stack, Dim(1), k])
    count = _count(a, k)
    return mat.repeat(count, [a, vectors, factors], step, [mat.rows_of(a), mat.columns_of(vectors)])  # type: ignore[return-value]


def reflection(head: Symbol, rest: Symbol, here: Symbol) -> tuple[Symbol, Symbol]:
    """Return v and tau so that (I - tau v v.T).T x is a multiple of a unit vector, as in LAPACK's larfg.

    head: the element of x at the position of the unit vector, [..., 1, 1]. rest: the other elements, [..., m, 1] with 0
    at that position. here: bool [..., m, 1], True at the position, where v is 1. Tau is 0 if nothing has to be done.
    For complex numbers, transposes are conjugated.
    """
    zero, one = e.const(rest, 0.0), e.const(rest, 1.0)
    beneath = mat.square_sum(rest, -2)
    if rest.dtype.is_complex:
        return _complex_reflection(head, rest, here, beneath)
    norm = ops.sqrt(head * head + beneath)
    image = e.where(head < zero, norm, -norm)
    idle = beneath == zero
    factor = e.where(idle, zero, (image - head) / e.where(idle, one, image))
    return e.where(here, one, rest / e.where(idle, one, head - image)), factor


def _complex_reflection(head: Symbol, rest: Symbol, here: Symbol, beneath: Symbol) -> tuple[Symbol, Symbol]:
    """Return v and tau for complex numbers. As in LAPACK the multiple is real, so a complex head needs a reflection."""
    zero, one = e.const(rest, 0.0), e.const(rest, 1.0)
    real, imag = ops.real(head), ops.imag(head)
    norm = ops.sqrt(real * real + imag * imag + beneath)
    image = e.where(real < 0.0, norm, -norm)
    idle = e.both(beneath == 0.0, imag == 0.0)
    factor = mat.divided(ops.complex(image - real, -imag), e.where(idle, e.const(image, 1.0), image))
    factor = e.where(idle, zero, factor)
    # Columns are scaled to about 1, so that squares neither overflow nor underflow in the division.
    difference = real - image
    size = e.where(idle, e.const(image, 1.0), difference * difference + imag * imag)
    return e.where(here, one, rest * ops.complex(difference / size, -imag / size)), factor


def _apply(q: Symbol, vectors: Symbol, factors: Symbol, k: Dim) -> Symbol:
    """Apply the reflections to `q`, the last one first."""
    last = _count(q, k) - 1

    def step(i: Symbol, q: Symbol, vectors: Symbol, factors: Symbol, last: Symbol) -> list[Symbol]:
        k = last - i
        vector = mat.at(vectors, k, -1)
        return [q - mat.at(factors, k, -1) * vector * ops.matmul(mat.adjoint(vector), q)]

    return mat.repeat(_count(q, k), [q], step, [vectors, factors, last])[0]


def _count(x: Symbol, k: Dim) -> Symbol:
    return dim_value(x.graph, k, (x,))
