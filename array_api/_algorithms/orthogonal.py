"""QR decompositions by Householder's reflections."""

from __future__ import annotations

from graphcore import ops
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices import (
    adjoint,
    at,
    columns_of,
    divided,
    filled,
    identities,
    least,
    reduced,
    repeat,
    rows_of,
    square_sum,
    stack_axes,
)
from graphcore.ops.shared.dims import dim_value
from graphcore.types.dims import Dim


def qr(a: Symbol, *, complete: bool) -> tuple[Symbol, Symbol]:
    """Q with orthonormal columns and upper triangular R whose product is `a`.

    a: [..., m, n] of known sizes. Returns [..., m, k] and [..., k, n], k being m if complete, else the lesser of m and
    n. The reflections are LAPACK's geqrf's, signs of R included: I - tau v v.T, v being 1 at the diagonal, each
    computed from a column scaled by its greatest element.
    """
    k = least(a.shape[-2], a.shape[-1])
    assert k is not None
    r, reflections, factors = _reflected(a, k)
    q = identities(a, -2, -2 if complete else k)
    q = _applied(q, reflections, factors, k)
    return q, ops.triu(r if complete or k is a.shape[-2] else r[..., : int(k), :])


def _reflected(a: Symbol, k: Dim) -> tuple[Symbol, Symbol, Symbol]:
    """Return what reflections make of `a`, their vectors as columns, [..., m, k], and their factors, [..., 1, k]."""

    def step(k: Symbol, r: Symbol, vectors: Symbol, factors: Symbol, rows: Symbol, columns: Symbol) -> list[Symbol]:
        zero = e.const(r, 0.0)
        column = e.where(rows < k, zero, at(r, k, -1))
        greatest = reduced("ReduceMax", ops.abs(column), -2)
        column = divided(column, e.where(greatest > 0.0, greatest, e.const(greatest, 1.0)))
        head = at(column, k, -2)
        rest = e.where(rows > k, column, zero)
        vector, factor = reflection(head, rest, rows == k)
        inverse = ops.conj(factor) if r.dtype.is_complex else factor
        r = r - inverse * vector * ops.matmul(adjoint(vector), r)
        here = columns == k
        return [r, e.where(here, vector, vectors), e.where(here, factor, factors)]

    stack = stack_axes(a)
    vectors, factors = filled(a, [*stack, -2, k]), filled(a, [*stack, Dim(1), k])
    count = _count(a, k)
    return repeat(count, [a, vectors, factors], step, [rows_of(a), columns_of(vectors)])  # type: ignore[return-value]


def reflection(head: Symbol, rest: Symbol, here: Symbol) -> tuple[Symbol, Symbol]:
    """Return v and tau with (I - tau v v.T).T x = a multiple of a unit vector, as LAPACK's larfg chooses them.

    x is given as its element at the place of that vector, [..., 1, 1], and the others, [..., m, 1] with 0 there.
    here: bool [..., m, 1], True at the place, where v is 1. Tau is 0 where there is nothing to be done. Of complex
    numbers the transposes are conjugated.
    """
    zero, one = e.const(rest, 0.0), e.const(rest, 1.0)
    beneath = square_sum(rest, -2)
    if rest.dtype.is_complex:
        return _complex_reflection(head, rest, here, beneath)
    norm = ops.sqrt(head * head + beneath)
    image = e.where(head < zero, norm, -norm)
    idle = beneath == zero
    factor = e.where(idle, zero, (image - head) / e.where(idle, one, image))
    return e.where(here, one, rest / e.where(idle, one, head - image)), factor


def _complex_reflection(head: Symbol, rest: Symbol, here: Symbol, beneath: Symbol) -> tuple[Symbol, Symbol]:
    """The multiple is real, as in LAPACK: so that there is something to be done for a complex head alone."""
    zero, one = e.const(rest, 0.0), e.const(rest, 1.0)
    real, imag = ops.real(head), ops.imag(head)
    norm = ops.sqrt(real * real + imag * imag + beneath)
    image = e.where(real < 0.0, norm, -norm)
    idle = e.both(beneath == 0.0, imag == 0.0)
    factor = divided(ops.complex(image - real, -imag), e.where(idle, e.const(image, 1.0), image))
    factor = e.where(idle, zero, factor)
    # Columns are scaled to elements of about 1, so that squares neither overflow nor vanish: no careful division.
    apart = real - image
    size = e.where(idle, e.const(image, 1.0), apart * apart + imag * imag)
    return e.where(here, one, rest * ops.complex(apart / size, -imag / size)), factor


def _applied(q: Symbol, vectors: Symbol, factors: Symbol, k: Dim) -> Symbol:
    """The product of the reflections with `q`, the last reflection first."""
    last = _count(q, k) - 1

    def step(i: Symbol, q: Symbol, vectors: Symbol, factors: Symbol, last: Symbol) -> list[Symbol]:
        k = last - i
        vector = at(vectors, k, -1)
        return [q - at(factors, k, -1) * vector * ops.matmul(adjoint(vector), q)]

    return repeat(_count(q, k), [q], step, [vectors, factors, last])[0]


def _count(x: Symbol, k: Dim) -> Symbol:
    return dim_value(x.graph, k, (x,))
