"""Declares element-wise ops of one and two operands, and builds their nodes."""

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
    attach_operator,
    register,
    run_eagerly,
)
from graphcore.build.shapes import Roles, broadcast
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state import settings
from graphcore.ir.state.open_expressions import PRODUCT, SUM, Expression, open_expression, term_of
from graphcore.ir.state.settings import Accuracy
from graphcore.ir.symbol import Symbol, TensorLike, present
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

    onnx: the operator that it emits, or the name of the library's own operator with the expansion `body`. same_on: the
    kinds of dtypes on which the op is the identity. for_bool: the operator that it emits for bools, if different. fast:
    the expansion for nodes that may be less accurate. gives_real: True if results on complex numbers are real.
    """
    if fast:
        FAST_EXPANSIONS[onnx] = fast
    domain = LIBRARY if body else ""
    key = Key(name, rule, True)

    def function(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
        if accuracy is not None:
            with _accuracy_block(name, onnx, accuracy):
                return function(x)
        if type(x) is Symbol and x.graph.scope.is_open:
            graph = x.graph
        elif (output := run_eagerly(function, (x,), {})) is not NOT_EAGER:
            return output  # type: ignore[no-any-return]
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
        output = graph.build.emit(op_type, (symbol,), type_, attributes, domain)
        return output if result is None else operands.cast_operand(output, result, type_.ambiguous, kinds)

    def plan_of(graph: Graph, symbol: Symbol) -> tuple[DType | None, str, TensorType, DType | None, bool]:
        resolution = operands.resolve(graph, key, {"x": symbol}, (symbol,), (None,))
        (dtype,) = resolution.operands
        source = dtype or symbol.dtype
        is_same = source.kind in same_on and source is resolution.result
        op_type = "" if is_same else for_bool if for_bool and source is DType.bool else onnx
        computed, result = _node_dtypes(resolution)
        if gives_real:
            computed = real_of(computed)
        is_vector = operands.makes_vector(graph, name, (symbol,))
        shape = operands.VECTOR_OF_ONE if is_vector else symbol.type.shape
        return dtype, op_type, tensor_type(computed, shape, resolution.ambiguous), result, is_vector

    _set_metadata(function, name, f"{doc}\n\n{_unary_doc(rule)}")
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

    onnx: the operator that it emits with `attributes`, or the name of the library's own operator with the expansion
    `body`. for_bool, for_float: the operators for the common dtype bool or float, if different, such as `And` for `&`.
    Operators in `EXPANSIONS` are the library's own.
    """
    if body:
        EXPANSIONS[onnx] = body
    BROADCASTING.update({onnx, for_bool, for_float} - {""})
    key = Key(name, rule, True)

    def function(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
        if accuracy is not None:
            with _accuracy_block(name, onnx, accuracy):
                return function(lhs, rhs)
        if (
            type(lhs) is Symbol
            and lhs.graph.scope.is_open
            and (rhs.graph is lhs.graph if type(rhs) is Symbol else type(rhs) in _NUMBERS)
        ):
            graph = lhs.graph
            left: Symbol | Scalar = lhs
            right: Symbol | Scalar = rhs  # type: ignore[assignment]
        elif (result := run_eagerly(function, (lhs, rhs), {})) is not NOT_EAGER:
            return result  # type: ignore[no-any-return]
        else:
            graph, (left, right) = operands.graph_and_operands(name, {"lhs": lhs, "rhs": rhs})
        kinds = (
            name,
            left.type if type(left) is Symbol else (type(left), left),
            right.type if type(right) is Symbol else (type(right), right),
        )
        plan = graph.memory.plans.get(kinds)
        if type(plan) is not _ElementwisePlan or not graph.promotion.remembered:
            if type(plan) is ExpressionPlan and (expression := plan.expression(graph, left, right)) is not None:
                if type(left) is not Symbol:
                    left = graph.build.scalar(left, plan.type.dtype)  # type: ignore[arg-type]
                if type(right) is not Symbol:
                    right = graph.build.scalar(right, plan.type.dtype)  # type: ignore[arg-type]
                result = graph.build.emit(expression.operator, (left, right), plan.type, plan.attributes, LIBRARY)
                graph.memory.expressions[result.id] = expression
                return result
            if graph.promotion.flattens(name) and (joint := combine(graph, key, kinds, left, right)) is not None:
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
        result = graph.build.emit(plan.op_type, (left, right), plan.type, plan.attributes, plan.domain)
        return result if plan.result is None else operands.cast_operand(result, plan.result, plan.type.ambiguous, kinds)

    def plan_of(graph: Graph, roles: Roles, left: Symbol | Scalar, right: Symbol | Scalar) -> _ElementwisePlan:
        symbols = [v if isinstance(v, Symbol) else None for v in (left, right)]
        literals = [None if isinstance(v, Symbol) else v for v in (left, right)]
        resolution = operands.resolve(graph, key, roles, symbols, literals)
        pairs = zip(symbols, resolution.operands, strict=True)
        to_left, to_right = (dtype if symbol is not None else dtype or resolution.result for symbol, dtype in pairs)
        lhs = _symbol(graph, left, to_left, resolution.ambiguous)
        rhs = _symbol(graph, right, to_right, resolution.ambiguous)
        common = to_left or lhs.type.dtype
        op_type = (
            for_bool
            if for_bool and common is DType.bool
            else for_float
            if for_float and (common.is_float or common.is_complex)
            else onnx
        )
        domain = LIBRARY if op_type in EXPANSIONS else ""
        computed, result = _node_dtypes(resolution)
        is_vector = operands.makes_vector(graph, name, (lhs, rhs))
        shape = operands.VECTOR_OF_ONE if is_vector else broadcast(name, {"lhs": lhs, "rhs": rhs})
        type_ = tensor_type(computed, shape, resolution.ambiguous)
        lossy = _loses(lhs, to_left) or _loses(rhs, to_right)
        no_casts = all(to is None or operand.type.dtype is to for operand, to in ((lhs, to_left), (rhs, to_right)))
        is_plain = no_casts and not lossy and result is None and not is_vector
        node_attributes = attributes if op_type == onnx else None
        return _ElementwisePlan(
            to_left, to_right, op_type, domain, type_, lossy, result, is_plain, node_attributes, is_vector
        )

    _set_metadata(function, name, f"{doc}\n\n{_binary_doc(rule)}")
    register(name, function, onnx, rule, 2, dunder)
    if dunder:
        attach_operator(dunder, function)
    return function


def _accuracy_block(name: str, onnx: str, level: Accuracy) -> settings.accuracy:
    """Return the accuracy block of one op. Raises `GraphError` for "fast" if the op has no fast form."""
    if onnx not in settings.OPERATORS and level == settings.FAST:
        raise GraphError(f"{name}: the op has no fast form; it is always exact", help="leave out accuracy")
    return settings.accuracy(level)


@dataclass(frozen=True, slots=True)
class _ElementwisePlan:
    """The plan of an element-wise op for one pair of operand types.

    lhs, rhs: the dtypes that operands are cast to, and of constants for numbers; None does not cast a Symbol.
    """

    lhs: DType | None
    rhs: DType | None
    op_type: str
    domain: str
    type: TensorType
    """The type of the node's output."""
    lossy: bool
    result: DType | None
    """The dtype that the result is cast to, in systems where truth values are numbers."""
    is_plain: bool
    """True if the op is one node without casts, with numbers as constants."""
    attributes: dict[str, Any] | None
    is_vector: bool
    """True if scalar operands become vectors of one element."""


def _symbol(graph: Graph, value: Symbol | Scalar, dtype: DType | None, ambiguous: bool) -> Symbol:
    """Return an operand as a Symbol; a number becomes a constant of `dtype`."""
    if isinstance(value, Symbol):
        return value
    return graph.build.scalar(value, present(dtype), ambiguous)


def _loses(symbol: Symbol, dtype: DType | None) -> bool:
    """Return True if a Symbol is cast to `dtype`, which cannot hold its range."""
    source = symbol.type.dtype
    return dtype is not None and dtype is not source and operands.is_lossy(source, dtype)


def _node_dtypes(resolution: Resolution) -> tuple[DType, DType | None]:
    """Return the dtype of an op's node, and the dtype that its result is cast to, or None."""
    computed = resolution.computed
    return (resolution.result, None) if computed is None else (computed, resolution.result)


def _unary_doc(rule: Rule) -> str:
    gives = "of dtype bool" if rule in ("compare", "logical", "test") else "of the dtype that promotion gives"
    return (
        f"Args:\n    x: A Symbol, array or Python number of any shape. Promotion `{rule}`: {MEANINGS[rule]}.\n\n"
        f"Returns:\n    A Symbol of the same shape, {gives}.\n\n"
        "Raises:\n    DTypeError: The op is not defined for the dtype of x."
    )


def _binary_doc(rule: Rule) -> str:
    return (
        "Args:\n    lhs: A Symbol, array or Python number; the shapes broadcast, as in NumPy.\n"
        f"    rhs: Likewise. Promotion `{rule}`: {MEANINGS[rule]}.\n\n"
        "Returns:\n    A Symbol of the broadcast shape.\n\n"
        "Raises:\n    PromotionError: The dtypes have no common dtype.\n"
        "    DTypeError: The op is not defined for a dtype, or the dtype cannot hold a Python number.\n"
        "    ShapeError: The shapes do not broadcast."
    )


def _set_metadata(function: Callable[..., Any], name: str, doc: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__module__ = str(sys._getframe(2).f_globals.get("__name__", ""))


# Nested + and - (or *) as one expression, for promotion systems that promote over all terms.
#
# Such an expression is one node with all terms as operands, which lowering converts to a balanced tree. A value remains
# an expression while only the same operators use it: once it is named, output, cast or read by another node, it is a
# single term.

_OPERATORS = {"add": SUM, "sub": SUM, "mul": PRODUCT}

MAX_TERMS = 4096
"""The maximum number of terms of an expression: `x = x + x`, twelve times. Each repetition doubles the number."""


class ExpressionPlan(NamedTuple):
    """The plan for two operands of known types that are not open expressions themselves."""

    type: TensorType
    attributes: dict[str, Any] | None
    like: Expression
    """The expression of two other operands of the same types."""

    def expression(self, graph: Graph, lhs: Symbol | Scalar, rhs: Symbol | Scalar) -> Expression | None:
        """Return the expression of two operands; None if one of them is an open expression."""
        expressions = graph.memory.expressions
        if (type(lhs) is Symbol and lhs.id in expressions) or (type(rhs) is Symbol and rhs.id in expressions):
            return None
        return self.like.of((lhs, rhs))


def combine(graph: Graph, key: Key, kinds: Hashable, lhs: Symbol | Scalar, rhs: Symbol | Scalar) -> Symbol | None:
    """Emit the whole expression that an op of two operands completes; return None if the pair is promoted alone.

    kinds: the key of the operands' types in the cache of plans. Raises `PromotionError` or `DTypeError` from the
    promotion system, `ShapeError` for shapes that do not broadcast, `GraphError` for more than `MAX_TERMS` terms.
    """
    operator = _OPERATORS[key.op]
    values = (lhs, rhs)
    left, right = open_expression(graph, operator, lhs), open_expression(graph, operator, rhs)
    is_remembered = left is None and right is None and graph.promotion.remembered
    # 0.0 and -0.0 are the same key, but the plan depends only on types.
    pair = graph.memory.plans.get(kinds) if is_remembered else None
    if type(pair) is ExpressionPlan:
        expression = pair.like.of(values)
    else:
        type_ = _expression_type(graph, key, values, left, right)
        if type_ is None:
            return None
        expression = (left or _single(operator, lhs)).joined(
            right or _single(operator, rhs), subtracted=key.op == "sub"
        )
        pair = ExpressionPlan(type_, {"negated": list(expression.negated)} if operator == SUM else None, expression)
        # Losses within one side were reported when that side was built.
        if any(isinstance(v, Symbol) and _is_lossy(v.type.dtype, type_.dtype) for v in values):
            roles = zip(("lhs", "rhs"), values, strict=True)
            operands.report_lossy(graph, key.op, {role: (v, type_.dtype) for role, v in roles if isinstance(v, Symbol)})
        elif is_remembered:
            graph.memory.plans[kinds] = pair
    dtype = pair.type.dtype
    terms = tuple([v if isinstance(v, Symbol) else graph.build.scalar(v, dtype) for v in expression.parts])
    symbol = graph.build.emit(operator, terms, pair.type, pair.attributes, "graphcore")
    if left is not None:
        left.swallowed = True
    if right is not None:
        right.swallowed = True
    graph.memory.expressions[symbol.id] = expression
    return symbol


def _expression_type(
    graph: Graph, key: Key, values: Sequence[Symbol | Scalar], left: Expression | None, right: Expression | None
) -> TensorType | None:
    """Return the type of the whole expression; None if the system promotes the pair alone."""
    lhs, rhs = values
    roles = {"lhs": lhs, "rhs": rhs}
    count = (len(left.parts) if left else 1) + (len(right.parts) if right else 1)
    if count > MAX_TERMS:
        raise GraphError(
            f"{key.op}: an expression of {count} terms exceeds the maximum of {MAX_TERMS} that are promoted together",
            operands={role: v for role, v in roles.items() if isinstance(v, Symbol)},
            help="split it by naming a part (x.name = 'total') or a cast, or use ops.sum",
        )
    described = [_describe(lhs, left), _describe(rhs, right)]
    try:
        resolution = graph.promotion.resolve(key, described)
    except NoPromotion as refusal:
        raise operands.promotion_error(key.op, refusal, roles) from None
    if not resolution.expression:
        return None
    shape = broadcast(key.op, {r: v for r, v in roles.items() if isinstance(v, Symbol)})
    return tensor_type(resolution.result, shape)


@functools.lru_cache(4096)
def _is_lossy(source: DType, target: DType) -> bool:
    return source is not target and operands.is_lossy(source, target)


def _single(operator: str, value: Symbol | Scalar) -> Expression:
    return Expression(operator, (value,), (term_of(value, False),), not isinstance(value, Symbol))


def _describe(value: Symbol | Scalar, expression: Expression | None) -> Operand:
    if expression is None:
        return term_of(value, False).operand
    assert isinstance(value, Symbol)
    return Operand(value.type.dtype, terms=expression.terms)
