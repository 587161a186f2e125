"""Nested + and - (or *) as one expression, for promotion systems that promote over all of its terms.

Such an expression is one node with every term as an operand, which lowering makes a balanced tree of. A value is an
expression as long as nothing but the same operators has used it: once named, output, cast or read by another node it is
a term like any other.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graphcore.build import operands
from graphcore.errors import GraphError
from graphcore.ir.symbol import Symbol
from graphcore.promotion.system import Key, NoPromotion, Operand, Scalar, Term
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, tensor_type

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph

SUM, PRODUCT = "SumOfTerms", "ProductOfTerms"
_OPERATORS = {"add": SUM, "sub": SUM, "mul": PRODUCT}

_new = object.__new__

MOST_TERMS = 4096
"""Of one expression. `x = x + x`, twelve times over, has as many: it would double with every further line."""


class Expression:
    """What an unfinished Symbol is made of.

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
        """The same expression of other terms of the same types."""
        made = _new(Expression)
        made.operator = self.operator
        made.parts = parts
        made.terms = self.terms
        made.negated = self.negated
        made.has_numbers = self.has_numbers
        made.swallowed = False
        return made

    def joined(self, other: Expression, *, subtracted: bool) -> Expression:
        """This one and then the other."""
        made = _new(Expression)
        made.operator = self.operator
        made.parts = self.parts + other.parts
        made.terms = self.terms + (tuple(map(_opposite, other.terms)) if subtracted else other.terms)
        made.negated = self.negated + (tuple([1 - n for n in other.negated]) if subtracted else other.negated)
        made.has_numbers = self.has_numbers or other.has_numbers
        made.swallowed = False
        return made


class Pair(NamedTuple):
    """What two operands of known types become, unless one of them is an unfinished expression itself."""

    type: TensorType
    attributes: dict[str, Any] | None
    like: Expression
    """That of two others of the same types."""


def combined(graph: Graph, key: Key, given: Sequence[Symbol | Scalar]) -> Symbol | None:
    """The node of the whole expression that an op of two operands ends; None where the system takes the pair alone.

    Raises `PromotionError` or `DTypeError` as the system says, `ShapeError` for shapes that do not broadcast,
    `GraphError` for more than `MOST_TERMS` terms.
    """
    operator = _OPERATORS[key.op]
    lhs, rhs = given
    left, right = open_expression(graph, operator, lhs), open_expression(graph, operator, rhs)
    lookup = None
    found: Pair | None = None
    if left is None and right is None and graph.promotion.remembered:
        # 0.0 and -0.0 are one key, but what is remembered are types, which both have.
        lookup = (key.op, *[part for v in given for part in ((v.type,) if isinstance(v, Symbol) else (type(v), v))])
        known = graph._plans.get(lookup)
        found = known if type(known) is Pair else None
    if found is None:
        type_ = _type(graph, key, given, left, right)
        if type_ is None:
            return None
        whole = (left or _of_one(operator, lhs)).joined(right or _of_one(operator, rhs), subtracted=key.op == "sub")
        attributes = {"negated": list(whole.negated)} if operator == SUM else None
        # What a side lost on the way to its own type was spoken of when it was made.
        if any(isinstance(v, Symbol) and _is_lossy(v.type.dtype, type_.dtype) for v in given):
            roles = zip(("lhs", "rhs"), given, strict=True)
            operands.report_lossy(graph, key.op, {role: (v, type_.dtype) for role, v in roles if isinstance(v, Symbol)})
        elif lookup is not None:
            graph._plans[lookup] = Pair(type_, attributes, whole)
    else:
        type_, attributes = found.type, found.attributes
        whole = found.like.of((lhs, rhs))
    terms = whole.parts
    if whole.has_numbers:
        terms = tuple([v if isinstance(v, Symbol) else graph._scalar(v, type_.dtype) for v in terms])
    made = graph._emit(operator, terms, type_, attributes, "graphcore")  # type: ignore[arg-type]
    for side in (left, right):
        if side is not None:
            side.swallowed = True
    graph._expressions[made.id] = whole
    return made


def open_expression(graph: Graph, operator: str, value: Symbol | Scalar) -> Expression | None:
    """What a value is made of, if it is an unfinished expression of that operator."""
    if type(value) is not Symbol:
        return None
    found: Expression | None = graph._expressions.get(value.id)
    return found if found is not None and found.operator == operator and value._name is None else None


def is_swallowed(symbol: Symbol) -> bool:
    """Whether a longer expression has taken over what it is made of, and nothing else uses it."""
    found = symbol.graph._expressions.get(symbol.id)
    return found is not None and found.swallowed and symbol._name is None


def state_of(graph: Graph) -> list[tuple[Any, ...]]:
    """The unfinished expressions of a graph, Symbols as ("symbol", number)."""
    return [
        (
            number,
            found.operator,
            [("symbol", v.id) if isinstance(v, Symbol) else v for v in found.parts],
            found.negated,
            found.swallowed,
        )
        for number, found in graph._expressions.items()
    ]


def restore(graph: Graph, state: Sequence[tuple[Any, ...]]) -> None:
    """Makes the unfinished expressions of a graph what `state_of` said."""
    for number, operator, described, negated, swallowed in state:
        parts = tuple([graph._symbols[v[1]] if isinstance(v, tuple) else v for v in described])
        terms = tuple([_term(v, bool(minus)) for v, minus in zip(parts, negated, strict=True)])
        made = Expression(operator, parts, terms, any(not isinstance(v, Symbol) for v in parts))
        made.swallowed = swallowed
        graph._expressions[number] = made


def _type(
    graph: Graph, key: Key, given: Sequence[Symbol | Scalar], left: Expression | None, right: Expression | None
) -> TensorType | None:
    """The type of the whole expression; None where the system takes the pair alone."""
    lhs, rhs = given
    roles = {"lhs": lhs, "rhs": rhs}
    count = (len(left.parts) if left else 1) + (len(right.parts) if right else 1)
    if count > MOST_TERMS:
        raise GraphError(
            f"{key.op}: an expression of {count} terms; {MOST_TERMS} are the most that are promoted as one",
            operands={role: v for role, v in roles.items() if isinstance(v, Symbol)},
            help="end it on the way, by a name (x.name = 'total') or a cast, or use ops.sum",
        )
    described = [_described(lhs, left), _described(rhs, right)]
    try:
        resolution = graph.promotion.resolve(key, described)
    except NoPromotion as refusal:
        raise operands.refused(key.op, refusal, roles) from None
    if not resolution.expression:
        return None
    shape = operands.broadcast(key.op, {r: v for r, v in roles.items() if isinstance(v, Symbol)})
    return tensor_type(resolution.result, shape)


@functools.lru_cache(4096)
def _is_lossy(source: DType, target: DType) -> bool:
    return source is not target and operands.is_lossy(source, target)


def _of_one(operator: str, value: Symbol | Scalar) -> Expression:
    return Expression(operator, (value,), (_term(value, False),), not isinstance(value, Symbol))


def _described(value: Symbol | Scalar, expression: Expression | None) -> Operand:
    if expression is None:
        return _term(value, False).operand
    assert isinstance(value, Symbol)
    return Operand(value.type.dtype, terms=expression.terms)


def _term(value: Symbol | Scalar, negated: bool) -> Term:
    return _typed(value.type.dtype, negated) if isinstance(value, Symbol) else Term(Operand(None, value), negated)


@functools.lru_cache(4096)
def _typed(dtype: DType, negated: bool) -> Term:
    """One object for each: a system may tell the terms of long expressions apart by identity."""
    return Term(Operand(dtype), negated)


def _opposite(term: Term) -> Term:
    operand = term.operand
    if operand.dtype is None:
        return Term(operand, not term.negated)
    return _typed(operand.dtype, not term.negated)


__all__ = ["MOST_TERMS", "PRODUCT", "SUM", "Expression", "Pair", "combined", "is_swallowed", "open_expression"]
