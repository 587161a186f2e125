"""QR decompositions by Householder's reflections."""

from __future__ import annotations

from graphcore import ops
from graphcore.array_api._algorithms.loops import (
    at,
    columns_of,
    filled,
    identities,
    reduced,
    repeat,
    rows_of,
    stack_axes,
    turned,
)
from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.dims import dim_value
from graphcore.types.dims import Dim


def least(m: Dim, n: Dim) -> Dim | None:
    """The lesser of two sizes; None where it is not known which that is."""
    if m is n and not m.is_dynamic:
        return m
    return Dim(min(int(m), int(n))) if m.is_static and n.is_static else None


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
        zero, one = e.const(r, 0.0), e.const(r, 1.0)
        column = e.where(rows < k, zero, at(r, k, -1))
        greatest = reduced("ReduceMax", ops.abs(column), -2)
        column = column / e.where(greatest > zero, greatest, one)
        head = at(column, k, -2)
        rest = e.where(rows > k, column, zero)
        beneath = reduced("ReduceSumSquare", rest, -2)
        norm = ops.sqrt(head * head + beneath)
        image = e.where(head < zero, norm, -norm)
        idle = beneath == zero
        factor = e.where(idle, zero, (image - head) / e.where(idle, one, image))
        vector = e.where(rows == k, one, rest / e.where(idle, one, head - image))
        r = r - factor * vector * ops.matmul(turned(vector), r)
        here = columns == k
        return [r, e.where(here, vector, vectors), e.where(here, factor, factors)]

    stack = stack_axes(a)
    vectors, factors = filled(a, [*stack, -2, k]), filled(a, [*stack, Dim(1), k])
    count = _count(a, k)
    return repeat(count, [a, vectors, factors], step, [rows_of(a), columns_of(vectors)])  # type: ignore[return-value]


def _applied(q: Symbol, vectors: Symbol, factors: Symbol, k: Dim) -> Symbol:
    """The product of the reflections with `q`, the last reflection first."""
    last = _count(q, k) - 1

    def step(i: Symbol, q: Symbol, vectors: Symbol, factors: Symbol, last: Symbol) -> list[Symbol]:
        k = last - i
        vector = at(vectors, k, -1)
        return [q - at(factors, k, -1) * vector * ops.matmul(turned(vector), q)]

    return repeat(_count(q, k), [q], step, [vectors, factors, last])[0]


def _count(x: Symbol, k: Dim) -> Symbol:
    return dim_value(x.graph, k, (x,))
