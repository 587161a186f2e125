"""The declaration of ops: once each, with name, ONNX operator, promotion rule and docstring.

From the declaration come the function, the overload or method of Symbol, the table of ops in the docs, the expansion
that lowering uses where ONNX has no such operator, and the sweep over dtypes in the tests.
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
"""The domain of operators that ONNX lacks; lowering expands them into ONNX's."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The record of an op. onnx: the ONNX operator it emits, or what it is made of. family: the file it is in."""

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
        """Return the first line of its docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


REGISTRY: dict[str, Declaration] = {}
"""Every op by name."""

EXPANSIONS: dict[str, Callable[..., Any]] = {}
"""The expansions of the library's own operators: op_type -> function(*Symbols, **attributes) -> Symbol(s).

The function is called while lowering, on Symbols of the dtype to compute in (float32 for narrower floats), and builds
with ops. It sees None for an optional operand left out.
"""

IN_DOUBLE: set[str] = set()
"""Those of the library's own operators whose expansion computes floats in float64, from which each is rounded once."""

BROADCASTING: set[str] = set()
"""The operators, ONNX's and the library's own, whose operands broadcast against each other."""

FAST_EXPANSIONS: dict[str, Callable[..., Any]] = {}
"""Those of nodes that may be less accurate, where they are shorter."""


def expanded(op_type: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]) -> Any:
    """Return what one of the library's own operators is made of on these operands, as accurate as its node says."""
    body = FAST_EXPANSIONS.get(op_type) if settings.is_fast(attributes) else None
    return (body or EXPANSIONS[op_type])(*inputs, **settings.without(attributes))


# Ops on eager tensors

AtOnce: TypeAlias = "Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]"

_at_once: list[tuple[type, AtOnce]] = []
"""The class of eager tensors and what computes a function of Symbols on them; empty until there are any."""

NOT_EAGER = object()
"""The answer of `at_once` for arguments of which none is an eager tensor, or some are Symbols."""


def at_once_by(kind: type, run: AtOnce) -> None:
    """Have ops that are called on a class of eager tensors computed by `run`: (function, arguments, named)."""
    _at_once.append((kind, run))


def at_once(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Return what an op gives for eager tensors, or `NOT_EAGER`."""
    for kind, run in _at_once:
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
"""A description of each promotion rule."""

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

    onnx: the operator it emits. rule: its promotion rule. dunder: the Python operator it answers ("matmul" for `@`).
    method: attach it to Symbol, under its own name or the one given. name: where it is not the function's. doc: the
    docstring of a function that was made for one of several ops, which is called `name` then. computes: eager tensors
    are its operands; otherwise they are values like arrays.
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        if doc:
            function.__name__ = function.__qualname__ = name
            function.__doc__ = doc

        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            if computes and _at_once and (made := at_once(function, arguments, named)) is not NOT_EAGER:
                return made  # type: ignore[no-any-return]
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
    """Declare what one of the library's own operators is made of. See `EXPANSIONS`; fast: `FAST_EXPANSIONS`.

    broadcasts: it is one of `BROADCASTING`, as those of two operands are that `binary` declares.
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
    """Make a function what Symbol does for a Python operator, on either side of it."""
    setattr(Symbol, f"__{dunder}__", function)
    if dunder not in _COMPARISONS and dunder not in ("getitem",):

        def reflected(self: Symbol, other: TensorLike) -> Any:
            return function(other, self)

        setattr(Symbol, f"__r{dunder}__", reflected)
