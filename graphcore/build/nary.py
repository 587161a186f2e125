"""Nested + and - (or *) as one expression, for promotion systems that promote over all of its terms.

Such an expression is one node with every term as an operand, which lowering makes a balanced tree of. A value is an
expression as long as nothing but the same operators has used it: once named, output, cast or read by another node it is
a term like any other.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graphcore.build import operands
from graphcore.build.shapes import broadcast
from graphcore.errors import GraphError
from graphcore.ir.state.open_expressions import PRODUCT, SUM, Expression, open_expression, term_of
from graphcore.ir.symbol import Symbol
from graphcore.promotion.rules.question import Key, NoPromotion, Operand, Scalar
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, tensor_type

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph

_OPERATORS = {"add": SUM, "sub": SUM, "mul": PRODUCT}

MOST_TERMS = 4096
"""Of one expression. `x = x + x`, twelve times over, has as many: it would double with every further line."""


class Pair(NamedTuple):
    """The result for two operands of known types, neither of which is an unfinished expression itself."""

    type: TensorType
    attributes: dict[str, Any] | None
    like: Expression
    """That of two others of the same types."""

    def expression(self, graph: Graph, lhs: Symbol | Scalar, rhs: Symbol | Scalar) -> Expression | None:
        """Return what two operands become; None where one of them is an unfinished expression."""
        opened = graph.memory.expressions
        if (type(lhs) is Symbol and lhs.id in opened) or (type(rhs) is Symbol and rhs.id in opened):
            return None
        return self.like.of((lhs, rhs))


def combined(graph: Graph, key: Key, kinds: Hashable, lhs: Symbol | Scalar, rhs: Symbol | Scalar) -> Symbol | None:
    """Return the node of the whole expression that an op of two operands ends; None where the pair promotes alone.

    kinds: of the operands, under which the graph keeps what becomes of them. Raises `PromotionError` or `DTypeError` as
    the system says, `ShapeError` for shapes that do not broadcast, `GraphError` for more than `MOST_TERMS` terms.
    """
    operator = _OPERATORS[key.op]
    given = (lhs, rhs)
    left, right = open_expression(graph, operator, lhs), open_expression(graph, operator, rhs)
    is_remembered = left is None and right is None and graph.promotion.remembered
    # 0.0 and -0.0 are one key, but what is remembered are types, which both have.
    pair = graph.memory.plans.get(kinds) if is_remembered else None
    if type(pair) is Pair:
        whole = pair.like.of(given)
    else:
        type_ = _type(graph, key, given, left, right)
        if type_ is None:
            return None
        whole = (left or _of_one(operator, lhs)).joined(right or _of_one(operator, rhs), subtracted=key.op == "sub")
        pair = Pair(type_, {"negated": list(whole.negated)} if operator == SUM else None, whole)
        # What a side lost on the way to its own type was reported when it was made.
        if any(isinstance(v, Symbol) and _is_lossy(v.type.dtype, type_.dtype) for v in given):
            roles = zip(("lhs", "rhs"), given, strict=True)
            operands.report_lossy(graph, key.op, {role: (v, type_.dtype) for role, v in roles if isinstance(v, Symbol)})
        elif is_remembered:
            graph.memory.plans[kinds] = pair
    dtype = pair.type.dtype
    terms = tuple([v if isinstance(v, Symbol) else graph.build.scalar(v, dtype) for v in whole.parts])
    made = graph.build.emit(operator, terms, pair.type, pair.attributes, "graphcore")
    if left is not None:
        left.swallowed = True
    if right is not None:
        right.swallowed = True
    graph.memory.expressions[made.id] = whole
    return made


def _type(
    graph: Graph, key: Key, given: Sequence[Symbol | Scalar], left: Expression | None, right: Expression | None
) -> TensorType | None:
    """Return the type of the whole expression; None where the system takes the pair alone."""
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
    shape = broadcast(key.op, {r: v for r, v in roles.items() if isinstance(v, Symbol)})
    return tensor_type(resolution.result, shape)


@functools.lru_cache(4096)
def _is_lossy(source: DType, target: DType) -> bool:
    return source is not target and operands.is_lossy(source, target)


def _of_one(operator: str, value: Symbol | Scalar) -> Expression:
    return Expression(operator, (value,), (term_of(value, False),), not isinstance(value, Symbol))


def _described(value: Symbol | Scalar, expression: Expression | None) -> Operand:
    if expression is None:
        return term_of(value, False).operand
    assert isinstance(value, Symbol)
    return Operand(value.type.dtype, terms=expression.terms)
