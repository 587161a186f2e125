"""Declarations of ops: name, ONNX operator, promotion rule and docstring.

A declaration defines the function, the operator or method of Symbol, the row in the docs, the expansion that lowering
uses if ONNX has no such operator, and the sweep over dtypes in the tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

from graphcore.ir.state import settings
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.promotion.rules import Rule

P = ParamSpec("P")
R = TypeVar("R")

LIBRARY = "graphcore"
"""The domain of operators that ONNX lacks; lowering expands them into ONNX operators."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The record of an op. onnx: the ONNX operator or operators that it emits. family: the name of its module."""

    name: str
    function: Callable[..., Any]
    onnx: str
    rule: Rule
    family: str
    arity: int | None = None
    """1 or 2 for element-wise ops, which share one shape rule."""
    operator: str = ""
    """The Python operator, as printed in tables."""

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


REGISTRY: dict[str, Declaration] = {}
"""All ops by name."""

EXPANSIONS: dict[str, Callable[..., Any]] = {}
"""The expansions of the library's own operators: op_type -> function(*Symbols, **attributes) -> Symbol(s).

Lowering calls the function on Symbols of the dtype to compute in (float32 for narrower floats). It builds the expansion
with ops. An omitted optional operand is None.
"""

IN_DOUBLE: set[str] = set()
"""The library's own operators whose expansion computes floats in float64 and rounds once."""

BROADCASTING: set[str] = set()
"""The operators of ONNX and of the library whose operands broadcast."""

FAST_EXPANSIONS: dict[str, Callable[..., Any]] = {}
"""Shorter expansions for nodes that may be less accurate."""


def expanded(op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> Any:
    """Build the expansion of one of the library's own operators, with the accuracy in its attributes."""
    body = FAST_EXPANSIONS.get(op_type) if settings.is_fast(attributes) else None
    return (body or EXPANSIONS[op_type])(*inputs, **settings.without(attributes))


# Ops on eager tensors

EagerRunner: TypeAlias = "Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]"

_eager_runners: list[tuple[type, EagerRunner]] = []
"""Classes of eager tensors, each with the function that computes ops on them; empty until they are imported."""

NOT_EAGER = object()
"""The result of `run_eagerly` if no argument is an eager tensor, or some are Symbols."""


def register_eager(kind: type, run: EagerRunner) -> None:
    """Compute ops on a class of eager tensors by `run(function, arguments, named)`."""
    _eager_runners.append((kind, run))


def run_eagerly(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Return the result of an op on eager tensors, or `NOT_EAGER`."""
    for kind, run in _eager_runners:
        if any(_has(kind, value) for value in (*arguments, *named.values())):
            return run(function, arguments, dict(named))
    return NOT_EAGER


def _has(kind: type, value: object) -> bool:
    return type(value) is kind or (
        isinstance(value, (list, tuple, dict))
        and any(_has(kind, v) for v in (value.values() if isinstance(value, dict) else value))
    )


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
"""Descriptions of the promotion rules."""

_PYTHON_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "neg": "-x", "invert": "~x", "pos": "+x", "abs": "abs(x)", "round": "round(x)", "getitem": "x[...]",
    "ceil": "math.ceil(x)", "floor": "math.floor(x)", "trunc": "math.trunc(x)", "divmod": "divmod(x, y)",
}  # fmt: skip
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


def op(
    *,
    onnx: str,
    rule: Rule = "keep",
    dunder: str = "",
    method: str | bool = False,
    name: str = "",
    doc: str = "",
    computes: bool = True,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare a function as an op.

    onnx: the operator that it emits. rule: its promotion rule. dunder: the Python operator that it implements ("matmul"
    for `@`). method: attach it to Symbol, under its own name or the given one. name: the name of the op, by default
    that of the function. doc: the docstring of a generated function, which also gets the name `name`. computes: True
    if eager tensors are operands, False if they are values like arrays.
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        if doc:
            function.__name__ = function.__qualname__ = name
            function.__doc__ = doc

        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            if computes and _eager_runners and (result := run_eagerly(function, arguments, named)) is not NOT_EAGER:
                return result  # type: ignore[no-any-return]
            return function(*arguments, **named)

        register(name or function.__name__.rstrip("_"), call, onnx, rule, None, dunder)
        if dunder:
            attach_operator(dunder, function)
        if method:
            setattr(Symbol, method if isinstance(method, str) else function.__name__, function)
        return call

    return declare


def expansion(
    op_type: str, *, fast: bool = False, broadcasts: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare the expansion of one of the library's own operators. See `EXPANSIONS`; fast: `FAST_EXPANSIONS`.

    broadcasts: add the operator to `BROADCASTING`, as `binary` does.
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        (FAST_EXPANSIONS if fast else EXPANSIONS)[op_type] = function
        if broadcasts:
            BROADCASTING.add(op_type)
        return function

    return declare


def register(name: str, function: Callable[..., Any], onnx: str, rule: Rule, arity: int | None, dunder: str) -> None:
    """Add an op to the registry."""
    family = function.__module__.rsplit(".", 1)[-1]
    REGISTRY[name] = Declaration(name, function, onnx, rule, family, arity, _PYTHON_OPERATORS.get(dunder, ""))


def attach_operator(dunder: str, function: Callable[..., Any]) -> None:
    """Implement a Python operator of Symbol, and its reflected form."""
    setattr(Symbol, f"__{dunder}__", function)
    if dunder not in _COMPARISONS and dunder not in ("getitem",):

        def reflected(self: Symbol, other: TensorLike) -> Any:
            return function(other, self)

        setattr(Symbol, f"__r{dunder}__", reflected)
