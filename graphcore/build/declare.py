"""How ops are declared: once, each with its name, ONNX operator, promotion rule and docstring.

From the declaration come the function, the overload or method of Symbol, the table of ops in the docs, the expansion
that lowering uses where ONNX has no such operator, and the sweep over dtypes in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, cast

from graphcore.build import operands
from graphcore.build.nary import Pair, combined
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.promotion.system import Key, Resolution, Rule, Scalar
from graphcore.types.dtypes import DType, Kind
from graphcore.types.tensor_types import TensorType, tensor_type

P = ParamSpec("P")
R = TypeVar("R")

LIBRARY = "graphcore"
"""The domain of operators that ONNX has not; lowering expands them into ONNX's."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known of an op. onnx: the ONNX operator it emits, or what it is made of. family: the file it is in."""

    name: str
    function: Callable[..., Any]
    onnx: str
    rule: Rule
    family: str
    arity: int | None = None
    """1 or 2 for element-wise ops, which share one shape rule."""
    operator: str = ""
    """Python's operator for it, as printed in tables."""

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


REGISTRY: dict[str, Declaration] = {}
"""Every op by name."""

EXPANSIONS: dict[str, Callable[..., Any]] = {}
"""What the library's own operators are made of: op_type -> function(*Symbols, **attributes) -> Symbol(s).

The function is called while lowering, on Symbols of the dtype to compute in (float32 for narrower floats), and builds
with ops. It sees None for an optional operand left out.
"""

MEANINGS: dict[Rule, str] = {
    "join": "any dtypes meet in a common one",
    "arithmetic": "numbers and bools meet in a common dtype",
    "subtract": "numbers meet in a common dtype; bools are refused",
    "divide": "floats meet in a common dtype; integers and bools become float64",
    "compare": "operands meet in a common dtype; the result is bool",
    "bitwise": "integers and bools meet in a common dtype; floats are refused",
    "shift": "the left dtype is kept; both are integers",
    "logical": "operands become bool by `!= 0`",
    "float": "floats meet; integers become float16 (8 bits), float32 (16 bits) or float64",
    "test": "floats, or integers as floats; the result is bool",
    "number": "the dtype is kept",
    "keep": "the dtype is kept, whatever it is",
    "sum": "the dtype is kept; bools are counted in int64",
    "mean": "floats are kept; integers and bools give float64",
}
"""How operands promote under each rule, in words."""

_PYTHON_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "neg": "-x", "invert": "~x", "pos": "+x", "abs": "abs(x)", "round": "round(x)",
}  # fmt: skip
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


def op(
    *, onnx: str, rule: Rule = "keep", dunder: str = "", method: str | bool = False, name: str = ""
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declares a function as an op.

    onnx: the operator it emits. rule: its promotion rule. dunder: the Python operator it answers ("matmul" for `@`).
    method: attach it to Symbol, under its own name or the one given. name: where it is not the function's.
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        _register(name or function.__name__.rstrip("_"), function, onnx, rule, None, dunder)
        if dunder:
            _attach_operator(dunder, function)
        if method:
            setattr(Symbol, method if isinstance(method, str) else function.__name__, function)
        return function

    return declare


def expansion(op_type: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declares what one of the library's own operators is made of. See `EXPANSIONS`."""

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        EXPANSIONS[op_type] = function
        return function

    return declare


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
    attributes: dict[str, Any] | None = None,
) -> Callable[[TensorLike], Symbol]:
    """Declares an element-wise op of one operand.

    onnx: the operator emitted, or the name of the library's own one that `body` says how to make. same_on: the
    kinds of dtype on which the op is the identity. for_bool: the operator emitted for bools, if another.
    """
    domain = LIBRARY if body else ""
    key = Key(name, rule, True)

    def function(x: TensorLike) -> Symbol:
        graph = x.graph if type(x) is Symbol and x.graph._inner is None else operands.graph_of(name, (x,))
        symbol = graph._operand(x, name, "x")
        plan = graph._plans.get((name, symbol.type))
        if plan is None or not graph.promotion.remembered:
            plan = graph._plans[name, symbol.type] = plan_of(graph, symbol)
        dtype, op_type, type_, result = plan
        symbol = operands.cast_operand(symbol, dtype, type_.ambiguous)
        if not op_type:
            return symbol
        made = graph._emit(op_type, (symbol,), type_, attributes, domain)
        return made if result is None else operands.cast_operand(made, result, type_.ambiguous)

    def plan_of(graph: Graph, symbol: Symbol) -> tuple[DType | None, str, TensorType, DType | None]:
        resolution = operands.resolve(graph, key, {"x": symbol}, (symbol,), (None,))
        (dtype,) = resolution.operands
        own = dtype or symbol.dtype
        is_same = own.kind in same_on and own is resolution.result
        op_type = "" if is_same else for_bool if for_bool and own is DType.bool else onnx
        made, result = _made_in(resolution)
        return dtype, op_type, tensor_type(made, symbol.type.shape, resolution.ambiguous), result

    _dress(function, name, f"{doc}\n\n{_contract_of_one(rule)}")
    _register(name, function, onnx, rule, 1, dunder)
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
) -> Callable[[TensorLike, TensorLike], Symbol]:
    """Declares an element-wise op of two operands that broadcast.

    onnx: the operator emitted, or the name of the library's own one that `body` says how to make. for_bool, for_float:
    the operators emitted where the operands meet in bool or in a float, if they are others: `And` for `&`; those that
    `EXPANSIONS` knows are the library's own.
    """
    if body:
        EXPANSIONS[onnx] = body
    key = Key(name, rule, True)

    def plan_of(graph: Graph, lhs: Symbol, rhs: Symbol) -> _Plan:
        roles = {"lhs": lhs, "rhs": rhs}
        resolution = operands.resolve(graph, key, roles, (lhs, rhs), (None, None))
        return plan_for(graph, roles, resolution)

    def plan_for(graph: Graph, roles: dict[str, Symbol], resolution: Resolution) -> _Plan:
        left, right = roles.values()
        to_left, to_right = resolution.operands
        met = to_left or left.type.dtype
        op_type = for_bool if for_bool and met is DType.bool else for_float if for_float and met.is_float else onnx
        shape = operands.broadcast(name, roles)
        lossy = any(
            to is not None and to is not s.type.dtype and operands.is_lossy(s.type.dtype, to)
            for s, to in ((left, to_left), (right, to_right))
        )
        domain = LIBRARY if op_type in EXPANSIONS else ""
        made, result = _made_in(resolution)
        return _Plan(to_left, to_right, op_type, domain, tensor_type(made, shape, resolution.ambiguous), lossy, result)

    def function(lhs: TensorLike, rhs: TensorLike) -> Symbol:
        if type(lhs) is Symbol and type(rhs) is Symbol and lhs.graph is rhs.graph and lhs.graph._inner is None:
            graph = lhs.graph
            plan = graph._plans.get((name, lhs.type, rhs.type))
            if plan is None or not graph.promotion.remembered:
                if graph.promotion.flattens(name) and (made := combined(graph, key, (lhs, rhs))) is not None:
                    return made
                plan = graph._plans[name, lhs.type, rhs.type] = plan_of(graph, lhs, rhs)
            elif type(plan) is Pair:
                if lhs.id in graph._expressions or rhs.id in graph._expressions:
                    return cast(Symbol, combined(graph, key, (lhs, rhs)))
                whole = plan.like.of((lhs, rhs))
                made = graph._emit(whole.operator, (lhs, rhs), plan.type, plan.attributes, LIBRARY)
                graph._expressions[made.id] = whole
                return made
        elif type(rhs) in _PYTHON_NUMBERS and type(lhs) is Symbol and lhs.graph._inner is None:
            graph = lhs.graph
            lookup = (name, lhs.type, type(rhs), rhs)
            found = graph._plans.get(lookup)
            if found is None or not graph.promotion.remembered:
                if (
                    graph.promotion.flattens(name)
                    and (made := combined(graph, key, (lhs, cast(Scalar, rhs)))) is not None
                ):
                    return made
                roles = {"lhs": lhs, "rhs": rhs}
                answer = operands.resolve(graph, key, roles, (lhs, None), (None, cast(Scalar, rhs)))
                dtype = answer.operands[1] or answer.result
                scalar = graph._scalar(rhs, dtype, answer.ambiguous)  # type: ignore[arg-type]
                found = graph._plans[lookup] = dtype, plan_for(graph, {"lhs": lhs, "rhs": scalar}, answer)
            elif type(found) is Pair:
                if lhs.id in graph._expressions:
                    return cast(Symbol, combined(graph, key, (lhs, cast(Scalar, rhs))))
                whole = found.like.of((lhs, cast(Scalar, rhs)))
                scalar = graph._scalar(rhs, found.type.dtype)  # type: ignore[arg-type]
                made = graph._emit(whole.operator, (lhs, scalar), found.type, found.attributes, LIBRARY)
                graph._expressions[made.id] = whole
                return made
            dtype, plan = found
            rhs = graph._scalar(rhs, dtype, plan.type.ambiguous)  # type: ignore[arg-type]
        else:
            graph = operands.graph_of(name, (lhs, rhs))
            roles = {"lhs": lhs, "rhs": rhs}
            symbols, literals = operands._split(graph, name, roles)
            if graph.promotion.flattens(name):
                both = [cast(Scalar, v) if s is None else s for s, v in zip(symbols, literals, strict=True)]
                if (made := combined(graph, key, both)) is not None:
                    return made
            answer = operands.resolve(graph, key, roles, symbols, literals)
            lhs, rhs = (
                graph._scalar(cast(Scalar, literal), to or answer.result, answer.ambiguous)
                if symbol is None
                else symbol
                for symbol, literal, to in zip(symbols, literals, answer.operands, strict=True)
            )
            plan = plan_for(graph, {"lhs": lhs, "rhs": rhs}, answer)
        if plan.lossy:
            given = {"lhs": (lhs, plan.lhs), "rhs": (rhs, plan.rhs)}
            operands.report_lossy(graph, name, {role: (s, to) for role, (s, to) in given.items() if to is not None})
        if plan.lhs is not None and lhs.type.dtype is not plan.lhs:
            lhs = operands.cast_operand(lhs, plan.lhs, plan.type.ambiguous)
        if plan.rhs is not None and rhs.type.dtype is not plan.rhs:
            rhs = operands.cast_operand(rhs, plan.rhs, plan.type.ambiguous)
        made = graph._emit(plan.op_type, (lhs, rhs), plan.type, None, plan.domain)
        return made if plan.result is None else operands.cast_operand(made, plan.result, plan.type.ambiguous)

    _dress(function, name, f"{doc}\n\n{_contract_of_two(rule)}")
    _register(name, function, onnx, rule, 2, dunder)
    if dunder:
        _attach_operator(dunder, function)
    return function


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an element-wise op does for one pair of operand types."""

    lhs: DType | None
    rhs: DType | None
    op_type: str
    domain: str
    type: TensorType
    """Of what the node makes."""
    lossy: bool
    result: DType | None
    """What that is cast to, where a system wants truth values to be numbers."""


def _made_in(resolution: Resolution) -> tuple[DType, DType | None]:
    """The dtype of an op's node, and the one that it is cast to then, if another."""
    computed = resolution.computed
    return (resolution.result, None) if computed is None else (computed, resolution.result)


_PYTHON_NUMBERS = frozenset({bool, int, float})


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
    import sys

    return str(sys._getframe(depth).f_globals.get("__name__", ""))


def _register(name: str, function: Callable[..., Any], onnx: str, rule: Rule, arity: int | None, dunder: str) -> None:
    family = function.__module__.rsplit(".", 1)[-1]
    REGISTRY[name] = Declaration(
        name, function, onnx, rule, family, arity, _PYTHON_OPERATORS.get(dunder, dunder and "x[...]")
    )


def _attach_operator(dunder: str, function: Callable[..., Any]) -> None:
    setattr(Symbol, f"__{dunder}__", function)
    if dunder not in _COMPARISONS and dunder not in ("getitem",):

        def reflected(self: Symbol, other: TensorLike) -> Any:
            return function(other, self)

        setattr(Symbol, f"__r{dunder}__", reflected)
