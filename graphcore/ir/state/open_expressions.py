"""Open expressions: the terms of sums and products that a longer expression may still absorb.

A promotion system may promote over all terms of a sum or product. The graph records the terms of such a Symbol until
another operator uses it.
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
    """An open sum or product.

    parts: the terms as written, Symbols and Python numbers. terms: their descriptions for the promotion system.
    negated: 1 for subtracted terms. swallowed: True if a longer expression has absorbed it.
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
        """Return the same expression on other parts of the same types."""
        result = _new(Expression)
        result.operator = self.operator
        result.parts = parts
        result.terms = self.terms
        result.negated = self.negated
        result.has_numbers = self.has_numbers
        result.swallowed = False
        return result

    def joined(self, other: Expression, *, subtracted: bool) -> Expression:
        """Return the concatenation of two expressions."""
        terms = self.terms + (tuple(map(_opposite, other.terms)) if subtracted else other.terms)
        return Expression(self.operator, self.parts + other.parts, terms, self.has_numbers or other.has_numbers)


def open_expression(graph: Graph, operator: str, value: Symbol | Scalar) -> Expression | None:
    """Return the open expression of a value if its operator is `operator`, else None."""
    if type(value) is not Symbol:
        return None
    expression: Expression | None = graph.memory.expressions.get(value.id)
    return (
        expression if expression is not None and expression.operator == operator and value.given_name is None else None
    )


def is_swallowed(symbol: Symbol) -> bool:
    """Return True if a longer expression has absorbed the terms of a Symbol, and nothing else uses it."""
    expression = symbol.graph.memory.expressions.get(symbol.id)
    return expression is not None and expression.swallowed and symbol.given_name is None


def state_of(graph: Graph) -> list[tuple[Any, ...]]:
    """Return the open expressions of a graph, with Symbols as ("symbol", number)."""
    return [
        (
            number,
            expression.operator,
            [("symbol", v.id) if isinstance(v, Symbol) else v for v in expression.parts],
            expression.negated,
            expression.swallowed,
        )
        for number, expression in graph.memory.expressions.items()
    ]


def restore(graph: Graph, state: Sequence[tuple[Any, ...]]) -> None:
    """Restore the open expressions of a graph from the result of `state_of`."""
    for number, operator, described, negated, swallowed in state:
        parts = tuple([graph._symbols[v[1]] if isinstance(v, tuple) else v for v in described])
        terms = tuple([term_of(v, bool(minus)) for v, minus in zip(parts, negated, strict=True)])
        expression = Expression(operator, parts, terms, any(not isinstance(v, Symbol) for v in parts))
        expression.swallowed = swallowed
        graph.memory.expressions[number] = expression


def term_of(value: Symbol | Scalar, negated: bool) -> Term:
    """Return the description of a term for the promotion system."""
    return _typed(value.type.dtype, negated) if isinstance(value, Symbol) else Term(Operand(None, value), negated)


@functools.lru_cache(4096)
def _typed(dtype: DType, negated: bool) -> Term:
    """Return one object per dtype and sign: systems may compare the terms of long expressions by identity."""
    return Term(Operand(dtype), negated)


def _opposite(term: Term) -> Term:
    operand = term.operand
    if operand.dtype is None:
        return Term(operand, not term.negated)
    return _typed(operand.dtype, not term.negated)
