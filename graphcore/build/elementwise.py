"""Element-wise ops of one and of two operands: how they are declared, and what they build."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphcore.build import operands
from graphcore.build.declare import (
    BROADCASTING,
    EXPANSIONS,
    FAST_EXPANSIONS,
    LIBRARY,
    MEANINGS,
    NOT_EAGER,
    at_once,
    attach_operator,
    register,
)
from graphcore.build.shapes import Roles, broadcast
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state import settings
from graphcore.ir.state.open_expressions import PRODUCT, SUM, Expression, open_expression, term_of
from graphcore.ir.state.settings import Accuracy
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, Rule, Scalar
from graphcore.types.dtypes import DType, Kind, real_of
from graphcore.types.tensor_types import TensorType, tensor_type

_NUMBERS = frozenset({bool, int, float, complex})


def unary(
    name: str,
    onnx: str,
    rule: Rule,
    doc: str,
    *,
    dunder: str = "",
    same_on: tuple[Kind, ...] = (),
    for_bool: str = "",
    body: Callable[[Symbol], Symbol] | None = None,
    fast: Callable[[Symbol], Symbol] | None = None,
    attributes: dict[str, Any] | None = None,
    gives_real: bool = False,
) -> Callable[[TensorLike], Symbol]:
    """Declare an element-wise op of one operand.

    onnx: the operator emitted, or the name of the library's own one that `body` says how to make. same_on: the
    kinds of dtype on which the op is the identity. for_bool: the operator emitted for bools, if another. fast: what
    `body` is where the node may be less accurate. gives_real: of complex numbers it gives real ones.
    """
    if fast:
        FAST_EXPANSIONS[onnx] = fast
    domain = LIBRARY if body else ""
    key = Key(name, rule, True)

    def function(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
        if accuracy is not None:
            with _at(name, onnx, accuracy):
                return function(x)
        if type(x) is Symbol and x.graph.scope.is_open:
            graph = x.graph
        elif (made := at_once(function, (x,), {})) is not NOT_EAGER:
            return made  # type: ignore[no-any-return]
        else:
            graph = operands.graph_of(name, (x,))
        symbol = graph.build.operand(x, name, "x")
        kinds = (name, symbol.type)
        plan = graph.memory.plans.get(kinds)
        if plan is None or not graph.promotion.remembered:
            plan = graph.memory.plans[kinds] = plan_of(graph, symbol)
        dtype, op_type, type_, result, is_vector = plan
        symbol = operands.cast_operand(symbol, dtype, type_.ambiguous, kinds)
        if is_vector:
            symbol = operands.vector_of_one(symbol)
        if not op_type:
            return symbol
        made = graph.build.emit(op_type, (symbol,), type_, attributes, domain)
        return made if result is None else operands.cast_operand(made, result, type_.ambiguous, kinds)

    def plan_of(graph: Graph, symbol: Symbol) -> tuple[DType | None, str, TensorType, DType | None, bool]:
        resolution = operands.resolve(graph, key, {"x": symbol}, (symbol,), (None,))
        (dtype,) = resolution.operands
        own = dtype or symbol.dtype
        is_same = own.kind in same_on and own is resolution.result
        op_type = "" if is_same else for_bool if for_bool and own is DType.bool else onnx
        made, result = _made_in(resolution)
        if gives_real:
            made = real_of(made)
        is_vector = operands.makes_vector(graph, name, (symbol,))
        shape = operands.VECTOR_OF_ONE if is_vector else symbol.type.shape
        return dtype, op_type, tensor_type(made, shape, resolution.ambiguous), result, is_vector

    _dress(function, name, f"{doc}\n\n{_contract_of_one(rule)}")
    register(name, function, onnx, rule, 1, dunder)
    if body:
        EXPANSIONS[onnx] = body
    if dunder:
        setattr(Symbol, f"__{dunder}__", function)
    return function


def binary(
    name: str,
    onnx: str,
    rule: Rule,
    doc: str,
    *,
    dunder: str = "",
    body: Callable[..., Symbol] | None = None,
    for_bool: str = "",
    for_float: str = "",
    attributes: dict[str, Any] | None = None,
) -> Callable[[TensorLike, TensorLike], Symbol]:
    """Declare an element-wise op of two operands that broadcast.

    onnx: the operator emitted, with `attributes`, or the name of the library's own one that `body` says how to make.
    for_bool, for_float: the operators emitted where the operands meet in bool or in a float, if they are others: `And`
    for `&`; those that `EXPANSIONS` knows are the library's own.
    """
    if body:
        EXPANSIONS[onnx] = body
    BROADCASTING.update({onnx, for_bool, for_float} - {""})
    key = Key(name, rule, True)

    def function(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
        if accuracy is not None:
            with _at(name, onnx, accuracy):
                return function(lhs, rhs)
        if (
            type(lhs) is Symbol
            and lhs.graph.scope.is_open
            and (rhs.graph is lhs.graph if type(rhs) is Symbol else type(rhs) in _NUMBERS)
        ):
            graph = lhs.graph
            left: Symbol | Scalar = lhs
            right: Symbol | Scalar = rhs  # type: ignore[assignment]
        elif (made := at_once(function, (lhs, rhs), {})) is not NOT_EAGER:
            return made  # type: ignore[no-any-return]
        else:
            graph, (left, right) = operands.given(name, {"lhs": lhs, "rhs": rhs})
        kinds = (
            name,
            left.type if type(left) is Symbol else (type(left), left),
            right.type if type(right) is Symbol else (type(right), right),
        )
        plan = graph.memory.plans.get(kinds)
        if type(plan) is not _Plan or not graph.promotion.remembered:
            if type(plan) is Pair and (whole := plan.expression(graph, left, right)) is not None:
                if type(left) is not Symbol:
                    left = graph.build.scalar(left, plan.type.dtype)  # type: ignore[arg-type]
                if type(right) is not Symbol:
                    right = graph.build.scalar(right, plan.type.dtype)  # type: ignore[arg-type]
                made = graph.build.emit(whole.operator, (left, right), plan.type, plan.attributes, LIBRARY)
                graph.memory.expressions[made.id] = whole
                return made
            if graph.promotion.flattens(name) and (joint := combined(graph, key, kinds, left, right)) is not None:
                return joint
            plan = graph.memory.plans[kinds] = plan_of(graph, {"lhs": lhs, "rhs": rhs}, left, right)
        if type(left) is not Symbol:
            left = graph.build.scalar(left, plan.lhs, plan.type.ambiguous)  # type: ignore[arg-type]
        if type(right) is not Symbol:
            right = graph.build.scalar(right, plan.rhs, plan.type.ambiguous)  # type: ignore[arg-type]
        if plan.is_plain:
            return graph.build.emit(plan.op_type, (left, right), plan.type, plan.attributes, plan.domain)
        if plan.lossy:
            cast = {"lhs": (left, plan.lhs), "rhs": (right, plan.rhs)}
            operands.report_lossy(graph, name, {role: (s, to) for role, (s, to) in cast.items() if to is not None})
        if plan.lhs is not None and left.type.dtype is not plan.lhs:
            left = operands.cast_operand(left, plan.lhs, plan.type.ambiguous, kinds)
        if plan.rhs is not None and right.type.dtype is not plan.rhs:
            right = operands.cast_operand(right, plan.rhs, plan.type.ambiguous, kinds)
        if plan.is_vector:
            left = operands.vector_of_one(left)
        made = graph.build.emit(plan.op_type, (left, right), plan.type, plan.attributes, plan.domain)
        return made if plan.result is None else operands.cast_operand(made, plan.result, plan.type.ambiguous, kinds)

    def plan_of(graph: Graph, given: Roles, left: Symbol | Scalar, right: Symbol | Scalar) -> _Plan:
        symbols = [v if isinstance(v, Symbol) else None for v in (left, right)]
        literals = [None if isinstance(v, Symbol) else v for v in (left, right)]
        answer = operands.resolve(graph, key, given, symbols, literals)
        pairs = zip(symbols, answer.operands, strict=True)
        to_left, to_right = (dtype if symbol is not None else dtype or answer.result for symbol, dtype in pairs)
        lhs = _symbol(graph, left, to_left, answer.ambiguous)
        rhs = _symbol(graph, right, to_right, answer.ambiguous)
        met = to_left or lhs.type.dtype
        op_type = (
            for_bool
            if for_bool and met is DType.bool
            else for_float
            if for_float and (met.is_float or met.is_complex)
            else onnx
        )
        domain = LIBRARY if op_type in EXPANSIONS else ""
        computed, result = _made_in(answer)
        is_vector = operands.makes_vector(graph, name, (lhs, rhs))
        shape = operands.VECTOR_OF_ONE if is_vector else broadcast(name, {"lhs": lhs, "rhs": rhs})
        type_ = tensor_type(computed, shape, answer.ambiguous)
        lossy = _loses(lhs, to_left) or _loses(rhs, to_right)
        stay = all(to is None or operand.type.dtype is to for operand, to in ((lhs, to_left), (rhs, to_right)))
        is_plain = stay and not lossy and result is None and not is_vector
        own = attributes if op_type == onnx else None
        return _Plan(to_left, to_right, op_type, domain, type_, lossy, result, is_plain, own, is_vector)

    _dress(function, name, f"{doc}\n\n{_contract_of_two(rule)}")
    register(name, function, onnx, rule, 2, dunder)
    if dunder:
        attach_operator(dunder, function)
    return function


def _at(name: str, onnx: str, level: Accuracy) -> settings.accuracy:
    """Return the block of one op of this accuracy. Raises `GraphError` for an op that has no other than "exact"."""
    if onnx not in settings.OPERATORS and level == settings.FAST:
        raise GraphError(f"{name}: it is exact, and no form of it is faster", help="leave accuracy out")
    return settings.accuracy(level)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan of an element-wise op for one pair of operand types.

    lhs, rhs: what the operands are cast to, and what numbers are made constants of; None leaves a Symbol as it is.
    """

    lhs: DType | None
    rhs: DType | None
    op_type: str
    domain: str
    type: TensorType
    """Of what the node makes."""
    lossy: bool
    result: DType | None
    """The dtype the result is cast to, where a system wants truth values to be numbers."""
    is_plain: bool
    """It is one node on the operands as they are, numbers being constants of the dtype."""
    attributes: dict[str, Any] | None
    is_vector: bool
    """Its scalar operands are vectors of one element."""


def _symbol(graph: Graph, value: Symbol | Scalar, dtype: DType | None, ambiguous: bool) -> Symbol:
    """Return an operand as a Symbol; a number becomes a constant of `dtype`."""
    if isinstance(value, Symbol):
        return value
    assert dtype is not None
    return graph.build.scalar(value, dtype, ambiguous)


def _loses(symbol: Symbol, dtype: DType | None) -> bool:
    """Return whether the cast of a Symbol to `dtype`, if there is one, cannot hold its range."""
    own = symbol.type.dtype
    return dtype is not None and dtype is not own and operands.is_lossy(own, dtype)


def _made_in(resolution: Resolution) -> tuple[DType, DType | None]:
    """Return the dtype of an op's node, and the one that its result is cast to, if another."""
    computed = resolution.computed
    return (resolution.result, None) if computed is None else (computed, resolution.result)


def _contract_of_one(rule: Rule) -> str:
    gives = "of dtype bool" if rule in ("compare", "logical", "test") else "of the dtype that promotion gives"
    return (
        f"x: a Symbol, array or Python number of any shape; promotion `{rule}`: {MEANINGS[rule]}.\n"
        f"Returns a Symbol of the same shape, {gives}. Raises `DTypeError` for dtypes it has no meaning for."
    )


def _contract_of_two(rule: Rule) -> str:
    return (
        "lhs, rhs: Symbols, arrays or Python numbers whose shapes broadcast, as in NumPy; promotion\n"
        f"`{rule}`: {MEANINGS[rule]}.\n"
        "Returns a Symbol of the broadcast shape. Raises `PromotionError` for dtypes that do not meet, `DTypeError`\n"
        "for those it has no meaning for and numbers it cannot hold, `ShapeError` for shapes that do not broadcast."
    )


def _dress(function: Callable[..., Any], name: str, doc: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__module__ = _family_module()


def _family_module(depth: int = 3) -> str:
    return str(sys._getframe(depth).f_globals.get("__name__", ""))


# Nested + and - (or *) as one expression, for promotion systems that promote over all of its terms.
#
# Such an expression is one node with every term as an operand, which lowering makes a balanced tree of. A value is an
# expression as long as nothing but the same operators has used it: once named, output, cast or read by another node it
# is a term like any other.

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
