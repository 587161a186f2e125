"""Open expressions: what Symbols are made of that a longer expression may yet swallow.

A promotion system may promote over all terms of a sum or product. Until anything but the same operators has used such a
Symbol, the graph keeps a record of its terms.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Symbol
from graphcore.promotion.rules import Operand, Scalar, Term
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph

SUM, PRODUCT = "SumOfTerms", "ProductOfTerms"

_new = object.__new__


class Expression:
    """The parts of an unfinished Symbol.

    parts: the terms as they were written, Symbols and Python numbers; terms: what a promotion system is told of each.
    negated: 1 for those that are subtracted. swallowed: whether it has become part of a longer expression.
    """

    __slots__ = ("has_numbers", "negated", "operator", "parts", "swallowed", "terms")

    def __init__(
        self, operator: str, parts: tuple[Symbol | Scalar, ...], terms: tuple[Term, ...], has_numbers: bool
    ) -> None:
        self.operator = operator
        self.parts = parts
        self.terms = terms
        self.negated = tuple([int(term.negated) for term in terms])
        self.has_numbers = has_numbers
        self.swallowed = False

    def of(self, parts: tuple[Symbol | Scalar, ...]) -> Expression:
        """Return the same expression of other terms of the same types."""
        made = _new(Expression)
        made.operator = self.operator
        made.parts = parts
        made.terms = self.terms
        made.negated = self.negated
        made.has_numbers = self.has_numbers
        made.swallowed = False
        return made

    def joined(self, other: Expression, *, subtracted: bool) -> Expression:
        """Return this one and then the other."""
        made = _new(Expression)
        made.operator = self.operator
        made.parts = self.parts + other.parts
        made.terms = self.terms + (tuple(map(_opposite, other.terms)) if subtracted else other.terms)
        made.negated = self.negated + (tuple([1 - n for n in other.negated]) if subtracted else other.negated)
        made.has_numbers = self.has_numbers or other.has_numbers
        made.swallowed = False
        return made


def open_expression(graph: Graph, operator: str, value: Symbol | Scalar) -> Expression | None:
    """Return what a value is made of, if it is an unfinished expression of that operator."""
    if type(value) is not Symbol:
        return None
    found: Expression | None = graph.memory.expressions.get(value.id)
    return found if found is not None and found.operator == operator and value.given_name is None else None


def is_swallowed(symbol: Symbol) -> bool:
    """Return whether a longer expression has taken over what it is made of, and nothing else uses it."""
    found = symbol.graph.memory.expressions.get(symbol.id)
    return found is not None and found.swallowed and symbol.given_name is None


def state_of(graph: Graph) -> list[tuple[Any, ...]]:
    """Return the unfinished expressions of a graph, Symbols as ("symbol", number)."""
    return [
        (
            number,
            found.operator,
            [("symbol", v.id) if isinstance(v, Symbol) else v for v in found.parts],
            found.negated,
            found.swallowed,
        )
        for number, found in graph.memory.expressions.items()
    ]


def restore(graph: Graph, state: Sequence[tuple[Any, ...]]) -> None:
    """Make the unfinished expressions of a graph what `state_of` returned."""
    for number, operator, described, negated, swallowed in state:
        parts = tuple([graph._symbols[v[1]] if isinstance(v, tuple) else v for v in described])
        terms = tuple([term_of(v, bool(minus)) for v, minus in zip(parts, negated, strict=True)])
        made = Expression(operator, parts, terms, any(not isinstance(v, Symbol) for v in parts))
        made.swallowed = swallowed
        graph.memory.expressions[number] = made


def term_of(value: Symbol | Scalar, negated: bool) -> Term:
    """Return what a promotion system is told of a term."""
    return _typed(value.type.dtype, negated) if isinstance(value, Symbol) else Term(Operand(None, value), negated)


@functools.lru_cache(4096)
def _typed(dtype: DType, negated: bool) -> Term:
    """Return one object for each: a system may tell the terms of long expressions apart by identity."""
    return Term(Operand(dtype), negated)


def _opposite(term: Term) -> Term:
    operand = term.operand
    if operand.dtype is None:
        return Term(operand, not term.negated)
    return _typed(operand.dtype, not term.negated)
