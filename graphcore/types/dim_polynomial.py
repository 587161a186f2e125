"""Polynomials over the atoms of dims, the arithmetic of `Dim`; and the text form of dims.

An atom is a Dim that is a name, a floor division, a maximum or a minimum. A polynomial maps products of atoms to their
integer coefficients. This module creates no dims: `Atom` declares the attributes that it uses.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, Self, TypeAlias, TypeVar


class Atom(Protocol):
    """The attributes of `Dim` that this module uses."""

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

_MAX_STEPS = 200  # of a polynomial division; beyond, it is treated as not exact


def terms(dim: D) -> Terms[D]:
    return (((dim,), 1),) if dim._op else dim._terms


def order(term: tuple[Monomial[D], int]) -> tuple[int, list[str]]:
    """Sort key: higher degrees first, then the text of the atoms. Multiplication preserves this order."""
    return -len(term[0]), [atom._text for atom in term[0]]


def times(a: Monomial[D], b: Monomial[D]) -> Monomial[D]:
    return tuple(sorted(a + b, key=str)) if a and b else a or b


def without(m: Monomial[D], factors: Monomial[D]) -> Monomial[D] | None:
    """Return m divided by the factors, or None if it is not divisible."""
    remaining = list(m)
    for atom in factors:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return tuple(remaining)


def added(total: Poly[D], terms: Iterable[tuple[Monomial[D], int]]) -> Poly[D]:
    for m, c in terms:
        total[m] = total.get(m, 0) + c
    return total


def minus(a: Poly[D], b: Poly[D]) -> Poly[D]:
    return added(dict(a), ((m, -c) for m, c in b.items()))


def product(a: Terms[D], b: Terms[D]) -> Poly[D]:
    return added({}, ((times(m, n), c * d) for m, c in a for n, d in b))


def factors_of_product(a: Terms[D], b: Terms[D]) -> int:
    """Return the number of atoms in the terms of a product before equal terms are added."""
    return sum(len(m) for m, _ in a) * len(b) + sum(len(m) for m, _ in b) * len(a)


def factor_texts(terms: Terms[D]) -> list[tuple[int, list[str]]]:
    """Return coefficients and the texts of factors. A division needs no parentheses if it is the whole term."""
    return [(c, [f"({a})" if a._op == "//" and (c, len(m)) != (1, 1) else a._text for a in m]) for m, c in terms]


def scaled(poly: Poly[D], factor: int) -> Poly[D]:
    return {m: c * factor for m, c in poly.items()}


def cancelled(top: Poly[D], bottom: Poly[D]) -> tuple[Poly[D], Poly[D]]:
    """Divide both by their common numbers and atoms."""
    number = math.gcd(*top.values(), *bottom.values())
    shared = tuple(functools.reduce(operator.and_, map(Counter, (*top, *bottom))).elements())
    return divided(top, shared, number), divided(bottom, shared, number)


def divided(poly: Poly[D], factors: Monomial[D], number: int) -> Poly[D]:
    """Divide the terms that are divisible by the factors, and drop the others; coefficients round towards zero."""
    quotients = ((without(m, factors), abs(c) // number * (1 if c > 0 else -1)) for m, c in poly.items())
    return {m: c for m, c in quotients if m is not None and c}


def split(top: Poly[D], bottom: Poly[D]) -> tuple[Poly[D], Poly[D]]:
    """Return `whole` and `rest` with top = bottom * whole + rest, for a bottom of one term."""
    [(factors, number)] = bottom.items()
    whole = divided(top, factors, number)
    if not factors and top.get((), 0) // number:
        whole[()] = top[()] // number  # the remaining constant is in range(number)
    return whole, minus(top, product(tuple(whole.items()), ((factors, number),)))


def exact_quotient(top: Poly[D], bottom: Poly[D]) -> Poly[D] | None:
    """Return top / bottom by long division, or None if there is a remainder."""
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


# Lower bounds of dims, which decide comparisons, maxima and minima while a graph is being built.

MAX_PRODUCTS = 1000
"""The maximum number of terms of a product of sums before equal terms are added."""

_MAX_CASES = 16  # for one bound


def lower_bound(dim: D) -> int | None:
    if dim.is_dynamic:
        return None
    if dim._op == "name":
        return dim.min
    if dim._op == "":
        return _poly_bound(dict(dim._terms), _MAX_CASES)
    bounds = [arg.lower_bound for arg in dim._args]
    numbers = [bound for bound in bounds if bound is not None]
    if dim._op == "max":
        return max(numbers, default=None)
    if len(numbers) < len(bounds):
        return None
    if dim._op == "min":
        return min(numbers)
    below = dim._args[1].value
    if below is not None:
        return numbers[0] // below
    return min(numbers[0], 0) if numbers[1] >= 0 else None


def _poly_bound(poly: Poly[D], cases: int) -> int | None:
    bounds = [_term_bound(m, c) for m, c in poly.items() if c]
    numbers = [bound for bound in bounds if bound is not None]
    return sum(numbers) if len(numbers) == len(bounds) else _bound_by_cases(poly, cases)


def _term_bound(m: Monomial[D], c: int) -> int | None:
    if not m:
        return c
    bounds = [bound for atom in m if (bound := atom.lower_bound) is not None]
    if c < 0 or len(bounds) < len(m) or (len(m) > 1 and min(bounds) < 0):
        return None
    return c * math.prod(bounds)


def _bound_by_cases(poly: Poly[D], cases: int) -> int | None:
    """Return the bound after replacing the outermost division by x / d, or max or min by each of its arguments."""
    atoms = {atom for m, c in poly.items() if c for atom in m if atom._op != "name"}
    for atom in sorted(atoms, key=lambda a: (-len(a._text), a._text)):
        containing = {m: c for m, c in poly.items() if c and atom in m}
        others = {m: c for m, c in poly.items() if c and atom not in m}
        factors = {without(m, (atom,)) or (): c for m, c in containing.items()}
        size = max(len(terms(arg)) for arg in atom._args) + 1
        if any(atom in m for m in factors) or len(poly) * size > MAX_PRODUCTS or cases < len(atom._args):
            continue
        all_nonnegative = all(bound is not None and bound >= 0 for bound in (_term_bound(m, 1) for m in factors))
        if atom._op == "//":
            x, d = atom._args
            if all_nonnegative and is_at_least(d, 0):
                return _bound_by_division(others, factors, x, d, cases - 1)
            continue
        bounds = [_poly_bound(_plus(others, factors, arg), cases // len(atom._args)) for arg in atom._args]
        numbers = [bound for bound in bounds if bound is not None]
        if all_nonnegative and all((c > 0) == (atom._op == "max") for c in factors.values()):
            return max(numbers, default=None)
        return min(numbers) if len(numbers) == len(bounds) else None
    return None


def _bound_by_division(others: Poly[D], factors: Poly[D], x: D, d: D, cases: int) -> int | None:
    """Return the bound of others + factors * (x // d), from x - d + 1 <= x // d * d <= x and d >= 1."""
    rising = {m: c for m, c in factors.items() if c > 0}
    falling = {m: c for m, c in factors.items() if c < 0}
    scaled = _plus(_plus(product(tuple(others.items()), terms(d)), rising, x - d + 1), falling, x)
    bound = _poly_bound(scaled, cases)
    if bound is None or d.value is None:
        return None if bound is None else min(bound, 1)
    return -(-bound // d.value)


def _plus(a: Poly[D], factors: Poly[D], dim: D) -> Poly[D]:
    """Return a + factors * dim."""
    return added(dict(a), product(tuple(factors.items()), terms(dim)).items())


def is_at_least(dim: D, number: int) -> bool:
    """Return True if a dim is provably >= a number."""
    bound = dim.lower_bound
    return bound is not None and bound >= number


# The text form of dims: names, integers, `?`, + - * // %, parentheses, max(...) and min(...).

BOUND = ">="
"""The separator of a name and its minimum size."""

MAX_BOUND = 10**15 - 1
"""The largest minimum size."""

_NAME = rf"(?!\d)(?:[\w.:]|/(?!/))+(?:{BOUND}[0-9]{{1,15}}(?![\w.:]))?"
_TOKEN = re.compile(rf" *(?:(?P<int>[0-9]+(?![\w.:]))|(?P<name>{_NAME})|(?P<op>//|[-+*%(),?]))")
_BINARY: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "+": (1, operator.add),
    "-": (1, operator.sub),
    "*": (2, operator.mul),
    "//": (2, operator.floordiv),
    "%": (2, operator.mod),
}
# A model file may have any text as a dim: both limits bound the time and stack for parsing it.
_MAX_LENGTH = 4096
_MAX_DEPTH = 64


def of_sum(terms: Sequence[tuple[int, Sequence[str]]]) -> str:
    """Return the text of a sum of terms, pairs of coefficient and texts of factors. A positive term comes first."""
    first = next((i for i, (coefficient, _) in enumerate(terms) if coefficient > 0), 0)
    text = ""
    for coefficient, factors in (terms[first], *terms[:first], *terms[first + 1 :]):
        number = [] if abs(coefficient) == 1 and factors else [str(abs(coefficient))]
        sign = "-" if coefficient < 0 else "+"
        text += (f" {sign} " if text else sign.strip("+")) + " * ".join([*number, *factors])
    return text


def parse(text: str, leaf: Callable[[int | str], Any], functions: Mapping[str, Callable[[Any, Any], Any]]) -> Any:
    """Return the value of `text`. `leaf` converts names, `?` and integers to values; `functions` has max and min.

    Binary - and // need a space on either side, so that "batch-size" is an error and not a difference. Raises
    `ValueError` with a message of one line for invalid text.
    """
    if len(text) > _MAX_LENGTH:
        _refuse(text, f"it is longer than {_MAX_LENGTH} characters")
    parser = _Parser(text, leaf, functions)
    try:
        value = parser.expression(0)
    except ZeroDivisionError:
        _refuse(text, "it divides by zero")
    if parser.token != "":
        parser.refuse()
    return value


class _Parser:
    """A precedence climbing parser of one text. `token` is the next token, "" at the end."""

    def __init__(
        self, text: str, leaf: Callable[[int | str], Any], functions: Mapping[str, Callable[[Any, Any], Any]]
    ) -> None:
        self._text = text.rstrip(" ")
        self._leaf = leaf
        self._functions = functions
        self._end = 0
        self._depth = 0
        self._advance()

    def expression(self, above: int) -> Any:
        """Parse operands joined by operators that bind tighter than `above`."""
        value = self._operand()
        while self.token in _BINARY and _BINARY[self.token][0] > above:
            precedence, apply = _BINARY[self.token]
            if self.token in ("-", "//") and not self._spaced():
                self.refuse()
            self._advance()
            value = apply(value, self.expression(precedence))
        return value

    def _operand(self) -> Any:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            _refuse(self._text, f"it is nested more than {_MAX_DEPTH} levels deep")
        kind, token = self._kind, self._advance()
        if kind == "int":
            value = self._leaf(int(token))
        elif kind == "name" and self.token == "(" and token in self._functions:
            value = self._call(self._functions[token])
        elif kind == "name" or token == "?":
            value = self._leaf(token)
        elif token == "-":
            value = -self._operand()
        elif token == "(":
            value = self.expression(0)
            self._expect(")")
        else:
            self.refuse()
        self._depth -= 1
        return value

    def _call(self, function: Callable[[Any, Any], Any]) -> Any:
        self._advance()
        value = self.expression(0)
        if self.token != ",":
            self.refuse()
        while self.token == ",":
            self._advance()
            value = function(value, self.expression(0))
        self._expect(")")
        return value

    def _expect(self, token: str) -> None:
        if self._advance() != token:
            self.refuse()

    def _spaced(self) -> bool:
        start = self._end - len(self.token)
        return self._text[start - 1] == " " and self._text[self._end : self._end + 1] == " "

    def _advance(self) -> str:
        """Step to the next token; return the previous one."""
        previous = self.token if self._end else ""
        match = _TOKEN.match(self._text, self._end)
        if match is None and self._end < len(self._text):
            self.refuse()
        self._kind = (match.lastgroup or "") if match else ""
        self.token: str = match[self._kind] if match else ""
        self._end = match.end() if match else len(self._text)
        return previous

    def refuse(self) -> NoReturn:
        _refuse(
            self._text,
            "a name has letters, digits and _ . : / and does not start with a digit; "
            "an expression looks like '(a - 1) // 2', with spaces around - and //",
        )


def _refuse(text: str, why: str) -> NoReturn:
    excerpt = text if len(text) <= 60 else text[:57] + "..."
    raise ValueError(f"{excerpt!r} is not a valid dim: {why}")
