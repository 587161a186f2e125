"""The signature of a declared operator, read off a Python function: operands, and attributes by keyword."""

from __future__ import annotations

import inspect
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from graphcore.build import operands
from graphcore.build.functions import Traced, traced
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ShapeError
from graphcore.ir.definitions import Definition, Dims, names_of, substituted, with_own
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.promotion.rules import Rule
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_INT = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class OperandOf:
    """One parameter for operands. optional: None may be given; omissible: and it may be left out."""

    name: str
    is_optional: bool = False
    is_omissible: bool = False
    is_variadic: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of attribute: how a value becomes what nodes hold, and that what functions get."""

    name: str
    held: Callable[[Any], Any]
    given: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AttributeOf:
    """One keyword for an attribute."""

    name: str
    kind: Kind
    default: Any
    is_required: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of an operator."""

    text: str
    operands: tuple[OperandOf, ...]
    attributes: Mapping[str, AttributeOf]

    @property
    def variadic(self) -> OperandOf | None:
        """The parameter that takes any number of operands, the last one."""
        return self.operands[-1] if self.operands and self.operands[-1].is_variadic else None

    def labels(self, count: int) -> list[str]:
        """Return the names of so many operands, for errors."""
        fixed = [o.name for o in self.operands if not o.is_variadic]
        many = self.variadic
        rest = count - len(fixed)
        return [*fixed, *(f"{many.name}[{i}]" for i in range(rest))] if many is not None else fixed

    def bound(self, label: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The operands by position, None for those left out, and the attributes."""
        fixed = [o for o in self.operands if not o.is_variadic]
        many = self.variadic
        if many is None and len(arguments) > len(fixed):
            raise self.misused(label, f"{len(arguments)} operands are given, and it takes {len(fixed)}")
        values = dict(zip([o.name for o in fixed], arguments, strict=False))
        rest = arguments[len(fixed) :]
        said: dict[str, Any] = {}
        names = {o.name for o in fixed}
        for name, value in named.items():
            if name in values:
                raise self.misused(label, f"{name} is given twice")
            (values if name in names else said)[name] = value
        for operand in fixed:
            if operand.name not in values and not operand.is_omissible:
                raise self.misused(label, f"the operand {operand.name!r} is missing")
            if values.get(operand.name) is None and not operand.is_optional:
                raise self.misused(label, f"the operand {operand.name!r} is None")
        if any(value is None for value in rest):
            raise self.misused(label, "None is among the operands")
        return [*(values.get(o.name) for o in fixed), *rest], said

    def held(self, label: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes as nodes hold them, defaults among them. Raises `GraphError`."""
        unknown = [name for name in said if name not in self.attributes]
        if unknown:
            known = ", ".join(self.attributes) or "none"
            raise GraphError(f"{label}: it has no attribute {unknown[0]!r}", help=f"its attributes: {known}")
        made = {}
        for name, attribute in self.attributes.items():
            value = said.get(name, attribute.default)
            if value is None:
                if attribute.is_required:
                    raise self.misused(label, f"the attribute {name!r} is missing")
                continue
            try:
                found = attribute.kind.held(value)
            except (TypeError, ValueError, OverflowError, DTypeError):
                raise GraphError(
                    f"{label}: attribute {name!r} is {value!r:.80}", help=f"give {attribute.kind.name}"
                ) from None
            if not isinstance(found, list) or found:  # ONNX has no empty list: absent and empty are the same
                made[name] = found
        return made

    def given(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes as functions get them; None for what is not there."""
        made = {}
        for name, attribute in self.attributes.items():
            nothing = None if attribute.default is None else ()
            made[name] = attribute.kind.given(held[name]) if name in held else nothing
        return made

    def check(self, label: str, function: Any) -> None:
        """Raise `GraphError` for a function that takes something else. Defaults and kinds need not be said again."""
        found = _signature(label, function)
        keywords = {n for n, p in found.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
        starred = {n for n, p in found.parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL}
        positional = [(n, n in starred) for n in found.parameters if n not in keywords]
        if positional != [(o.name, o.is_variadic) for o in self.operands] or keywords != self.attributes.keys():
            raise GraphError(
                f"{label}: the function takes {found}, and the operator {self.text}",
                help="give it the same operands in the same order, and the same attributes after a *",
            )

    def misused(self, label: str, why: str) -> GraphError:
        return GraphError(f"{label}: {why}", help=f"it is called as {label.rpartition('::')[2]}{self.text}")


def signature_of(label: str, function: Callable[..., Any]) -> Signature:
    """The signature of a function, which is an operator's. Raises `GraphError` for parameters that none can have."""
    found = _signature(label, function)
    operands: list[OperandOf] = []
    attributes: dict[str, AttributeOf] = {}
    for parameter in found.parameters.values():
        name, default = parameter.name, parameter.default
        says_none = "None" in _text(parameter.annotation)
        is_absent = default is inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            kind = _kind(label, name, _text(parameter.annotation), None if is_absent else default)
            attributes[name] = AttributeOf(name, kind, None if is_absent else default, is_absent)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            operands.append(OperandOf(name, is_variadic=True))
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise GraphError(f"{label}: **{name} names no attribute", help="list the attributes, each with its kind")
        elif is_absent or default is None:
            operands.append(OperandOf(name, default is None or says_none, default is None))
        else:
            raise GraphError(
                f"{label}: {name!r} has the default {default!r:.80}, and operands have none but None",
                help=f"put it after a *, which makes it an attribute: *, {name}={default!r:.80}",
            )
    return Signature(_shown(found), tuple(operands), attributes)


def _signature(label: str, function: Any) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise GraphError(f"{label}: a {type(function).__name__} is no function with a signature") from None


def _shown(signature: inspect.Signature) -> str:
    """The signature in one line, operands without what they are."""
    bare = [
        p if p.kind is inspect.Parameter.KEYWORD_ONLY else p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)).replace("'", "")


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _kind(label: str, name: str, annotation: str, default: Any) -> Kind:
    plain = re.sub(r"[\s'\"]|\|None|None\||Optional\[(.*)\]", r"\1", annotation.replace(" ", ""))
    plain = re.sub(r"[\w.]*\.(?=\w)", "", plain)
    plain = "ndarray" if plain.startswith(("ndarray", "NDArray")) else plain
    if not plain and default is not None:
        plain = type(default).__name__
        if isinstance(default, (tuple, list)) and default:
            plain = f"{plain}[{type(default[0]).__name__}]"
    found = KINDS.get(re.sub(r"^(tuple|list|Sequence)\[(\w+)(,\.\.\.)?\]$", r"list[\2]", plain))
    if found is None:
        raise GraphError(
            f"{label}: of what kind the attribute {name!r} is, is not said",
            help=f"annotate it with one of {', '.join(KINDS)}",
        )
    return found


def _int(value: Any) -> int:
    if isinstance(value, Symbol):
        raise TypeError
    found = int(operator.index(value))
    if found not in _INT:
        raise OverflowError
    return found


def _float(value: Any) -> float:
    """Round to the single precision that nodes hold, so that functions get the same numbers before and after a file."""
    if isinstance(value, (str, bytes, Symbol, np.ndarray)):
        raise TypeError
    wide = float(value)
    with np.errstate(over="ignore"):
        made = float(np.float32(wide))
    if np.isinf(made) and not np.isinf(wide):
        raise OverflowError
    return made


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # lone surrogates have no UTF-8
    return value


def _bool(value: Any) -> int:
    if value not in (0, 1):
        raise ValueError
    return int(value)


def _dtype(value: Any) -> int:
    dtype = DType.of(value)
    if dtype.storage is not dtype:
        raise TypeError
    return dtype.onnx


def _array(value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, np.ndarray):
        raise TypeError
    DType.of(value.dtype)
    made = value.copy()
    made.setflags(write=False)
    return made


def _many(held: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def convert(values: Any) -> list[Any]:
        if isinstance(values, (str, bytes, Mapping, Symbol)) or not isinstance(values, (Sequence, np.ndarray)):
            raise TypeError
        return [held(value) for value in values]

    return convert


def _same(value: Any) -> Any:
    return value


KINDS: dict[str, Kind] = {
    "int": Kind("an int of 64 bits", _int, int),
    "float": Kind("a number that float32 holds", _float, float),
    "bool": Kind("True or False", _bool, bool),
    "str": Kind("a str", _str, _same),
    "list[int]": Kind("a list of ints", _many(_int), tuple),
    "list[float]": Kind("a list of numbers that float32 holds", _many(_float), tuple),
    "list[str]": Kind("a list of str", _many(_str), tuple),
    "DType": Kind("a DType that ONNX has", _dtype, DType.of),
    "ndarray": Kind("an array", _array, _same),
}
"""The kinds of attributes by what annotates them; tuples and sequences are as lists. Functions get tuples."""


# The operands of a declaration: how they promote, and which dtypes they may have.

NONE = "none"
"""The promotion of operands that stay as they are."""


def groups(label: str, signature: Signature, promote: str | Mapping[str, str]) -> list[tuple[str, frozenset[str]]]:
    """The promotion rules, each with the operands that meet under it."""
    names = [o.name for o in signature.operands]
    table = {" ".join(names): promote} if isinstance(promote, str) else dict(promote)
    made: list[tuple[str, frozenset[str]]] = []
    told: set[str] = set()
    for group, rule in table.items():
        _check_names(label, "promote", signature, group.split())
        if rule not in (NONE, *get_args(Rule)):
            raise GraphError(
                f"{label}: no promotion is called {rule!r:.80}", help=f"use one of none, {', '.join(get_args(Rule))}"
            )
        made.append((rule, frozenset(group.split())))
        told.update(group.split())
    return [*made, (NONE, frozenset(names) - told)]


def allowed(label: str, signature: Signature, dtypes: Mapping[str, str]) -> dict[str, frozenset[DType]]:
    found = {}
    for group, row in dtypes.items():
        _check_names(label, "dtypes", signature, group.split())
        allowed = frozenset(operands.dtype_of(label, name) for name in row.split())
        found.update(dict.fromkeys(group.split(), allowed))
    return found


def _check_names(label: str, what: str, signature: Signature, names: Sequence[str]) -> None:
    known = [o.name for o in signature.operands]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise GraphError(f"{label}: {what} names {unknown[0]!r}, which is no operand", help=f"{', '.join(known)}")


# The body of a declared operator, traced once for each signature.

_ABSENT = TensorType(DType.float32, [])
_KEPT = 512  # signatures of a body

_lock = threading.RLock()
_tracing: ContextVar[tuple[Body, ...]] = ContextVar("graphcore_custom", default=())


class Body:
    """The body of an operator, and its definitions."""

    def __init__(self, label: str, signature: Signature, function: Callable[..., Any]) -> None:
        self.label = label
        self.name = label.rpartition("::")[2]
        self._signature = signature
        self._function = function
        self._traced: dict[Any, Traced] = {}

    def definition(
        self,
        types: Sequence[Type | None],
        held: Mapping[str, Any],
        results: Sequence[Type] | None,
        roles: Mapping[str, object],
        layer: str,
    ) -> tuple[Definition, Dims]:
        """The function for operands of these types, None for those left out, and the dims of a call of it.

        held: all attributes, as nodes hold them. results: the types that it must give. Raises `GraphError` for a body
        that gives others, calls itself, makes weights or uses what is outside of it.
        """
        names = names_of([t for t in types if t is not None])
        plain = {name: Dim(f"d{i}") for i, name in enumerate(names)}
        canonical = tuple(None if t is None else substituted(t, plain) for t in types)
        count = None if results is None else len(results)
        key = canonical, frozen(held), count
        with _lock:
            found = self._traced.get(key)
            if found is None:
                while len(self._traced) >= _KEPT:
                    self._traced.pop(next(iter(self._traced)))
                found = self._traced[key] = self._trace(canonical, held, count, roles, names)
        bound = {f"d{i}": Dim(name) for i, name in enumerate(names)}
        dims = with_own(bound, found.own, layer or f"{self.name}_")
        for wanted, made in zip(results or (), found.definition.body.outputs, strict=False):
            actual = substituted(made.type, dims)
            if not _agree(wanted, actual):
                raise GraphError(
                    f"{self.label}: its body gives {actual} where its type rule says {wanted}",
                    operands=roles,
                    help="make the two agree",
                )
        return found.definition, dims

    def _trace(
        self,
        types: Sequence[Type | None],
        held: Mapping[str, Any],
        count: int | None,
        roles: Mapping[str, object],
        names: Sequence[str],
    ) -> Traced:
        chain = _tracing.get()
        if self in chain:
            path = " -> ".join(body.label for body in (*chain, self))
            raise GraphError(f"{self.label}: it is made of itself: {path}", help="ONNX has no recursion")
        labels = self._signature.labels(len(types))

        def build(inputs: Sequence[Symbol]) -> Any:
            given = [*inputs, *[None] * (len(types) - len(inputs))]
            values = [None if t is None else s for t, s in zip(types, given, strict=True)]
            made = self._function(*values, **self._signature.given(held))
            return made[:count] if isinstance(made, (tuple, list)) and count is not None else made

        last = max((i for i, t in enumerate(types) if t is not None), default=-1)
        # An operand that is left out before others is an input that nothing reads, so that these keep their places.
        named = {
            re.sub(r"\W", "_", label).rstrip("_"): _ABSENT if t is None else t
            for label, t in zip(labels[: last + 1], types, strict=False)
        }
        token = _tracing.set((*chain, self))
        try:
            made = traced(self.name, named, Graph("custom"), build)
        except Exception as error:
            raise translated(self.label, "its body", error, roles, names) from error
        finally:
            _tracing.reset(token)
        if made.weights:
            raise GraphError(f"{self.label}: its body makes weights", help="pass them as operands, or use constants")
        given = len(made.definition.body.outputs)
        if count is not None and given != count:
            raise GraphError(f"{self.label}: its body gives {given} results, and {count} are declared", operands=roles)
        return made


def translated(
    label: str, what: str, error: Exception, roles: Mapping[str, object], names: Sequence[str] = ()
) -> GraphcoreError:
    """Return an error of a rule or body as one of the call. names: of the dims d0, d1, ... of a body, in order."""
    if isinstance(error, GraphcoreError):
        kind = type(error) if isinstance(error, (DTypeError, ShapeError)) else GraphError
        called = {f"d{i}": name for i, name in enumerate(names)}
        summary = re.sub(r"\bd\d+\b", lambda found: called.get(found[0], found[0]), error.summary)
        summary = summary if summary.startswith(label) else f"{label}: {summary}"
        return kind(summary, operands=roles, help=error.help)
    kinds: dict[type[Exception], type[GraphcoreError]] = {ValueError: ShapeError, TypeError: DTypeError}
    if type(error) in kinds:
        return kinds[type(error)](f"{label}: {error}", operands=roles)
    return GraphError(f"{label}: {what} raised {type(error).__name__}: {error}", operands=roles)


def _agree(wanted: Type, actual: Type) -> bool:
    """Return whether two types may be of one value: nothing that is known of both differs."""
    if not isinstance(wanted, TensorType) or not isinstance(actual, TensorType):
        return wanted == actual
    if wanted.dtype is not actual.dtype:
        return False
    if not wanted.shape.is_ranked or not actual.shape.is_ranked:
        return True
    pairs = zip(wanted.shape, actual.shape, strict=False)
    return len(wanted.shape) == len(actual.shape) and all(
        a == b or not a.is_static or not b.is_static for a, b in pairs
    )


def frozen(held: Mapping[str, Any]) -> tuple[Any, ...]:
    """Attributes as a key."""
    return tuple([(name, _frozen(value)) for name, value in held.items()])


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return repr(value) if isinstance(value, float) else value  # 0.0 is not -0.0
