"""Polynomials over the atoms of dims: what the arithmetic of `Dim` is done with.

An atom is a Dim that is a name, a floor division, a maximum or a minimum. A polynomial maps products of atoms to their
integer coefficients. Nothing here makes dims: `Atom` is all that is asked of one.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol, Self, TypeAlias, TypeVar


class Atom(Protocol):
    """The part of a dim that is used here. See `Dim`."""

    @property
    def value(self) -> int | None: ...
    @property
    def min(self) -> int: ...
    @property
    def is_dynamic(self) -> bool: ...
    @property
    def lower_bound(self) -> int | None: ...
    @property
    def _op(self) -> str: ...
    @property
    def _args(self) -> tuple[Self, ...]: ...
    @property
    def _terms(self) -> Any: ...
    @property
    def _text(self) -> str: ...
    def __add__(self, other: Self | int, /) -> Self: ...
    def __sub__(self, other: Self | int, /) -> Self: ...


D = TypeVar("D", bound=Atom)

Monomial: TypeAlias = tuple[D, ...]  # atoms in the order of their text, repeated for powers
Terms: TypeAlias = tuple[tuple[Monomial[D], int], ...]
Poly: TypeAlias = dict[Monomial[D], int]

_MAX_STEPS = 200  # of a polynomial division before it counts as not exact


def terms(dim: D) -> Terms[D]:
    return (((dim,), 1),) if dim._op else dim._terms


def order(term: tuple[Monomial[D], int]) -> tuple[int, list[str]]:
    """Higher degrees first, then by the text of the atoms: an order that multiplication keeps."""
    return -len(term[0]), [atom._text for atom in term[0]]


def times(a: Monomial[D], b: Monomial[D]) -> Monomial[D]:
    return tuple(sorted(a + b, key=str)) if a and b else a or b


def without(m: Monomial[D], factors: Monomial[D]) -> Monomial[D] | None:
    """m divided by the factors, or None where it is not divisible."""
    left = list(m)
    for atom in factors:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def added(total: Poly[D], terms: Iterable[tuple[Monomial[D], int]]) -> Poly[D]:
    for m, c in terms:
        total[m] = total.get(m, 0) + c
    return total


def minus(a: Poly[D], b: Poly[D]) -> Poly[D]:
    return added(dict(a), ((m, -c) for m, c in b.items()))


def product(a: Terms[D], b: Terms[D]) -> Poly[D]:
    return added({}, ((times(m, n), c * d) for m, c in a for n, d in b))


def factors_of_product(a: Terms[D], b: Terms[D]) -> int:
    """Return how many atoms the terms of a product have before equal ones are added."""
    return sum(len(m) for m, _ in a) * len(b) + sum(len(m) for m, _ in b) * len(a)


def written(terms: Terms[D]) -> list[tuple[int, list[str]]]:
    """Coefficients and the texts of the factors; a division stands bare only where it is the whole term."""
    return [(c, [f"({a})" if a._op == "//" and (c, len(m)) != (1, 1) else a._text for a in m]) for m, c in terms]


def scaled(poly: Poly[D], factor: int) -> Poly[D]:
    return {m: c * factor for m, c in poly.items()}


def cancelled(top: Poly[D], bottom: Poly[D]) -> tuple[Poly[D], Poly[D]]:
    """Both divided by the numbers and atoms that every term has."""
    number = math.gcd(*top.values(), *bottom.values())
    shared = tuple(functools.reduce(operator.and_, map(Counter, (*top, *bottom))).elements())
    return divided(top, shared, number), divided(bottom, shared, number)


def divided(poly: Poly[D], factors: Monomial[D], number: int) -> Poly[D]:
    """The terms that the factors divide, divided; coefficients are rounded towards zero."""
    quotients = ((without(m, factors), abs(c) // number * (1 if c > 0 else -1)) for m, c in poly.items())
    return {m: c for m, c in quotients if m is not None and c}


def split(top: Poly[D], bottom: Poly[D]) -> tuple[Poly[D], Poly[D]]:
    """`whole` and `rest` with top = bottom * whole + rest, for a bottom of one term."""
    [(factors, number)] = bottom.items()
    whole = divided(top, factors, number)
    if not factors and top.get((), 0) // number:
        whole[()] = top[()] // number  # the constant that is left is in range(number)
    return whole, minus(top, product(tuple(whole.items()), ((factors, number),)))


def exact_quotient(top: Poly[D], bottom: Poly[D]) -> Poly[D] | None:
    """top / bottom by long division, or None where something is left over."""
    divisor = tuple(bottom.items())
    leading, number = min(divisor, key=order)
    whole: Poly[D] = {}
    for _ in range(_MAX_STEPS):
        if not top:
            return whole
        m, c = min(top.items(), key=order)
        factor = without(m, leading)
        if factor is None or c % number:
            return None
        whole[factor] = c // number
        top = {m: c for m, c in minus(top, product(((factor, c // number),), divisor)).items() if c}
    return None
