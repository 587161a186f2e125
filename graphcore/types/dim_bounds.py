"""Numbers that a dim is provably never below: what decides comparisons, maxima and minima while a graph is built."""

from __future__ import annotations

import math

from graphcore.types.dim_polynomial import D, Monomial, Poly, added, product, terms, without

MAX_PRODUCTS = 1000
"""A product of sums larger than this is not multiplied out."""

_MAX_CASES = 16  # looked at for one bound


def lower_bound(dim: D) -> int | None:
    if dim.is_dynamic:
        return None
    if dim._op == "name":
        return dim.min
    if dim._op == "":
        return _poly_bound(dict(dim._terms), _MAX_CASES)
    bounds = [arg.lower_bound for arg in dim._args]
    known = [bound for bound in bounds if bound is not None]
    if dim._op == "max":
        return max(known, default=None)
    if len(known) < len(bounds):
        return None
    if dim._op == "min":
        return min(known)
    below = dim._args[1].value
    if below is not None:
        return known[0] // below
    return min(known[0], 0) if known[1] >= 0 else None


def _poly_bound(poly: Poly[D], cases: int) -> int | None:
    bounds = [_term_bound(m, c) for m, c in poly.items() if c]
    known = [bound for bound in bounds if bound is not None]
    return sum(known) if len(known) == len(bounds) else _bound_by_cases(poly, cases)


def _term_bound(m: Monomial[D], c: int) -> int | None:
    if not m:
        return c
    known = [bound for atom in m if (bound := atom.lower_bound) is not None]
    if c < 0 or len(known) < len(m) or (len(m) > 1 and min(known) < 0):
        return None
    return c * math.prod(known)


def _bound_by_cases(poly: Poly[D], cases: int) -> int | None:
    """The bound after the outermost division, max or min is replaced: by x / d, or by each of its arguments."""
    atoms = {atom for m, c in poly.items() if c for atom in m if atom._op != "name"}
    for atom in sorted(atoms, key=lambda a: (-len(a._text), a._text)):
        held = {m: c for m, c in poly.items() if c and atom in m}
        others = {m: c for m, c in poly.items() if c and atom not in m}
        factors = {without(m, (atom,)) or (): c for m, c in held.items()}
        size = max(len(terms(arg)) for arg in atom._args) + 1
        if any(atom in m for m in factors) or len(poly) * size > MAX_PRODUCTS or cases < len(atom._args):
            continue
        steady = all(bound is not None and bound >= 0 for bound in (_term_bound(m, 1) for m in factors))
        if atom._op == "//":
            x, d = atom._args
            if steady and is_at_least(d, 0):
                return _bound_by_division(others, factors, x, d, cases - 1)
            continue
        bounds = [_poly_bound(_plus(others, factors, arg), cases // len(atom._args)) for arg in atom._args]
        known = [bound for bound in bounds if bound is not None]
        if steady and all((c > 0) == (atom._op == "max") for c in factors.values()):
            return max(known, default=None)
        return min(known) if len(known) == len(bounds) else None
    return None


def _bound_by_division(others: Poly[D], factors: Poly[D], x: D, d: D, cases: int) -> int | None:
    """The bound of others + factors * (x // d), from d times that: x - d + 1 <= x // d * d <= x, and d >= 1."""
    rising = {m: c for m, c in factors.items() if c > 0}
    falling = {m: c for m, c in factors.items() if c < 0}
    scaled = _plus(_plus(product(tuple(others.items()), terms(d)), rising, x - d + 1), falling, x)
    bound = _poly_bound(scaled, cases)
    if bound is None or d.value is None:
        return None if bound is None else min(bound, 1)
    return -(-bound // d.value)


def _plus(a: Poly[D], factors: Poly[D], dim: D) -> Poly[D]:
    """a + factors * dim."""
    return added(dict(a), product(tuple(factors.items()), terms(dim)).items())


def is_at_least(dim: D, number: int) -> bool:
    """Provably."""
    bound = dim.lower_bound
    return bound is not None and bound >= number
