"""The signature of a declared operator, from a Python function: operands, and attributes by keyword."""

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
from graphcore.support.escaping import counted
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_INT = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class OperandParameter:
    """A parameter for operands. is_optional: can be None. is_omissible: can be left out, too."""

    name: str
    is_optional: bool = False
    is_omissible: bool = False
    is_variadic: bool = False


@dataclass(frozen=True, slots=True)
class AttributeKind:
    """A kind of attribute. to_node: converts values for nodes. to_python: converts back for Python functions."""

    name: str
    to_node: Callable[[Any], Any]
    to_python: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AttributeParameter:
    """A keyword for an attribute."""

    name: str
    kind: AttributeKind
    default: Any
    is_required: bool


@dataclass(frozen=True, slots=True)
class OpSignature:
    """The parameters of an operator."""

    text: str
    operands: tuple[OperandParameter, ...]
    attributes: Mapping[str, AttributeParameter]

    @property
    def variadic(self) -> OperandParameter | None:
        """The last parameter, if it takes any number of operands."""
        return self.operands[-1] if self.operands and self.operands[-1].is_variadic else None

    def labels(self, count: int) -> list[str]:
        """Return the names of `count` operands, for errors."""
        fixed = [o.name for o in self.operands if not o.is_variadic]
        variadic = self.variadic
        rest = count - len(fixed)
        return [*fixed, *(f"{variadic.name}[{i}]" for i in range(rest))] if variadic is not None else fixed

    def bind(self, label: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the operands by position, None for those left out, and the attributes."""
        fixed = [o for o in self.operands if not o.is_variadic]
        variadic = self.variadic
        if variadic is None and len(arguments) > len(fixed):
            raise self.call_error(label, f"it takes {counted(len(fixed), 'operand')}, got {len(arguments)}")
        values = dict(zip([o.name for o in fixed], arguments, strict=False))
        rest = arguments[len(fixed) :]
        attributes: dict[str, Any] = {}
        names = {o.name for o in fixed}
        for name, value in named.items():
            if name in values:
                raise self.call_error(label, f"{name} is passed twice")
            (values if name in names else attributes)[name] = value
        for operand in fixed:
            if operand.name not in values and not operand.is_omissible:
                raise self.call_error(label, f"the operand {operand.name!r} is missing")
            if values.get(operand.name) is None and not operand.is_optional:
                raise self.call_error(label, f"the operand {operand.name!r} must not be None")
        if any(value is None for value in rest):
            raise self.call_error(label, "operands must not be None")
        return [*(values.get(o.name) for o in fixed), *rest], attributes

    def node_attributes(self, label: str, passed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes as stored in nodes, with defaults. Raises `GraphError`."""
        unknown = [name for name in passed if name not in self.attributes]
        if unknown:
            names = ", ".join(self.attributes) or "none"
            raise GraphError(f"{label}: the operator has no attribute {unknown[0]!r}", help=f"its attributes: {names}")
        result = {}
        for name, attribute in self.attributes.items():
            value = passed.get(name, attribute.default)
            if value is None:
                if attribute.is_required:
                    raise self.call_error(label, f"the attribute {name!r} is missing")
                continue
            try:
                content = attribute.kind.to_node(value)
            except (TypeError, ValueError, OverflowError, DTypeError):
                raise GraphError(
                    f"{label}: attribute {name!r} is {value!r:.80}", help=f"give {attribute.kind.name}"
                ) from None
            if not isinstance(content, list) or content:  # in ONNX an empty list is the same as an absent one
                result[name] = content
        return result

    def python_attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes for Python functions; None for absent ones."""
        result = {}
        for name, attribute in self.attributes.items():
            nothing = None if attribute.default is None else ()
            result[name] = attribute.kind.to_python(attributes[name]) if name in attributes else nothing
        return result

    def check(self, label: str, function: Any) -> None:
        """Raise `GraphError` for a function with other parameters. Defaults and annotations are not compared."""
        signature = _signature(label, function)
        keywords = {n for n, p in signature.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
        starred = {n for n, p in signature.parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL}
        positional = [(n, n in starred) for n in signature.parameters if n not in keywords]
        if positional != [(o.name, o.is_variadic) for o in self.operands] or keywords != self.attributes.keys():
            raise GraphError(
                f"{label}: the function has the signature {signature}, but the operator has {self.text}",
                help="use the same operands in the same order, and the same attributes after a *",
            )

    def call_error(self, label: str, why: str) -> GraphError:
        return GraphError(f"{label}: {why}", help=f"the signature is {label.rpartition('::')[2]}{self.text}")


def signature_of(label: str, function: Callable[..., Any]) -> OpSignature:
    """Return the signature of an operator from its function. Raises `GraphError` for unsupported parameters."""
    signature = _signature(label, function)
    operands: list[OperandParameter] = []
    attributes: dict[str, AttributeParameter] = {}
    for parameter in signature.parameters.values():
        name, default = parameter.name, parameter.default
        says_none = "None" in _text(parameter.annotation)
        is_absent = default is inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            kind = _kind(label, name, _text(parameter.annotation), None if is_absent else default)
            attributes[name] = AttributeParameter(name, kind, None if is_absent else default, is_absent)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            operands.append(OperandParameter(name, is_variadic=True))
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise GraphError(f"{label}: **{name} is not supported", help="list the attributes, each with an annotation")
        elif is_absent or default is None:
            operands.append(OperandParameter(name, default is None or says_none, default is None))
        else:
            raise GraphError(
                f"{label}: the default of operand {name!r} must be None, got {default!r:.80}",
                help=f"put it after a * to make it an attribute: *, {name}={default!r:.80}",
            )
    bare = [
        p if p.kind is inspect.Parameter.KEYWORD_ONLY else p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)).replace("'", "")
    return OpSignature(text, tuple(operands), attributes)


def _signature(label: str, function: Any) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise GraphError(
            f"{label}: a function with a signature is required, got {type(function).__name__}",
            help="wrap it in a Python function: def rule(x): ...",
        ) from None


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _kind(label: str, name: str, annotation: str, default: Any) -> AttributeKind:
    plain = re.sub(r"[\s'\"]|\|None|None\||Optional\[(.*)\]", r"\1", annotation.replace(" ", ""))
    plain = re.sub(r"[\w.]*\.(?=\w)", "", plain)
    plain = "ndarray" if plain.startswith(("ndarray", "NDArray")) else plain
    if not plain and default is not None:
        plain = type(default).__name__
        if isinstance(default, (tuple, list)) and default:
            plain = f"{plain}[{type(default[0]).__name__}]"
    kind = KINDS.get(re.sub(r"^(tuple|list|Sequence)\[(\w+)(,\.\.\.)?\]$", r"list[\2]", plain))
    if kind is None:
        raise GraphError(
            f"{label}: the kind of attribute {name!r} is unknown",
            help=f"annotate it with one of {', '.join(KINDS)}",
        )
    return kind


def _int(value: Any) -> int:
    if isinstance(value, Symbol):
        raise TypeError
    number = int(operator.index(value))
    if number not in _INT:
        raise OverflowError
    return number


def _float(value: Any) -> float:
    """Round to single precision as in files, so that functions get the same numbers before and after saving."""
    if isinstance(value, (str, bytes, Symbol, np.ndarray)):
        raise TypeError
    wide = float(value)
    with np.errstate(over="ignore"):
        rounded = float(np.float32(wide))
    if np.isinf(rounded) and not np.isinf(wide):
        raise OverflowError
    return rounded


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # raises for lone surrogates, which have no UTF-8
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
    copied = value.copy()
    copied.setflags(write=False)
    return copied


def _many(convert_one: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def convert(values: Any) -> list[Any]:
        if isinstance(values, (str, bytes, Mapping, Symbol)) or not isinstance(values, (Sequence, np.ndarray)):
            raise TypeError
        return [convert_one(value) for value in values]

    return convert


KINDS: dict[str, AttributeKind] = {
    "int": AttributeKind("an int of 64 bits", _int, int),
    "float": AttributeKind("a number that float32 holds", _float, float),
    "bool": AttributeKind("True or False", _bool, bool),
    "str": AttributeKind("a str", _str, lambda value: value),
    "list[int]": AttributeKind("a list of ints", _many(_int), tuple),
    "list[float]": AttributeKind("a list of numbers that float32 holds", _many(_float), tuple),
    "list[str]": AttributeKind("a list of str", _many(_str), tuple),
    "DType": AttributeKind("a DType that ONNX has", _dtype, DType.of),
    "ndarray": AttributeKind("an array", _array, lambda value: value),
}
"""The kinds of attributes by annotation; tuples and sequences count as lists. Functions get tuples."""


# The operands of a declaration: their promotion, and the dtypes that they can have.

NONE = "none"
"""The rule of operands that are not promoted."""


def groups(label: str, signature: OpSignature, promote: str | Mapping[str, str]) -> list[tuple[str, frozenset[str]]]:
    """Return the promotion rules, each with its operands."""
    names = [o.name for o in signature.operands]
    table = {" ".join(names): promote} if isinstance(promote, str) else dict(promote)
    rules: list[tuple[str, frozenset[str]]] = []
    grouped: set[str] = set()
    for group, rule in table.items():
        _check_names(label, "promote", signature, group.split())
        if rule not in (NONE, *get_args(Rule)):
            raise GraphError(
                f"{label}: no promotion is called {rule!r:.80}", help=f"use one of none, {', '.join(get_args(Rule))}"
            )
        rules.append((rule, frozenset(group.split())))
        grouped.update(group.split())
    return [*rules, (NONE, frozenset(names) - grouped)]


def allowed_dtypes(label: str, signature: OpSignature, dtypes: Mapping[str, str]) -> dict[str, frozenset[DType]]:
    by_name = {}
    for group, row in dtypes.items():
        _check_names(label, "dtypes", signature, group.split())
        allowed = frozenset(operands.dtype_of(label, name) for name in row.split())
        by_name.update(dict.fromkeys(group.split(), allowed))
    return by_name


def _check_names(label: str, what: str, signature: OpSignature, names: Sequence[str]) -> None:
    existing = [o.name for o in signature.operands]
    unknown = [name for name in names if name not in existing]
    if unknown:
        raise GraphError(
            f"{label}: {what} names {unknown[0]!r}, which is not an operand",
            help=f"the operands are {', '.join(existing)}",
        )


# The body of a declared operator, traced once per signature.

_ABSENT = TensorType(DType.float32, [])
_MAX_CACHED = 512  # signatures of a body

_lock = threading.RLock()
_tracing: ContextVar[tuple[TracedBody, ...]] = ContextVar("graphcore_custom", default=())


class TracedBody:
    """The body of an operator, and its traced definitions."""

    def __init__(self, label: str, signature: OpSignature, function: Callable[..., Any]) -> None:
        self.label = label
        self.name = label.rpartition("::")[2]
        self._signature = signature
        self._function = function
        self._traced: dict[Any, Traced] = {}

    def definition(
        self,
        types: Sequence[Type | None],
        attributes: Mapping[str, Any],
        results: Sequence[Type] | None,
        roles: Mapping[str, object],
        layer: str,
    ) -> tuple[Definition, Dims]:
        """Return the definition for operands of these types, None for those left out, and the dims of a call of it.

        attributes: all of them, as stored in nodes. results: the declared types. Raises `GraphError` for a body that
        returns other types, calls itself, creates weights or uses values of another graph.
        """
        names = names_of([t for t in types if t is not None])
        plain = {name: Dim(f"d{i}") for i, name in enumerate(names)}
        canonical = tuple(None if t is None else substituted(t, plain) for t in types)
        count = None if results is None else len(results)
        key = canonical, cache_key(attributes), count
        with _lock:
            cached = self._traced.get(key)
            if cached is None:
                while len(self._traced) >= _MAX_CACHED:
                    self._traced.pop(next(iter(self._traced)))
                cached = self._traced[key] = self._trace(canonical, attributes, count, roles, names)
        bound = {f"d{i}": Dim(name) for i, name in enumerate(names)}
        dims = with_own(bound, cached.own, layer or f"{self.name}_")
        for declared, output in zip(results or (), cached.definition.body.outputs, strict=False):
            actual = substituted(output.type, dims)
            if not _agree(declared, actual):
                raise GraphError(
                    f"{self.label}: its body returns {actual}, but its type rule returns {declared}",
                    operands=roles,
                    help="change one of them",
                )
        return cached.definition, dims

    def _trace(
        self,
        types: Sequence[Type | None],
        attributes: Mapping[str, Any],
        count: int | None,
        roles: Mapping[str, object],
        names: Sequence[str],
    ) -> Traced:
        chain = _tracing.get()
        if self in chain:
            path = " -> ".join(body.label for body in (*chain, self))
            raise GraphError(f"{self.label}: its body calls itself: {path}", help="ONNX has no recursion")
        labels = self._signature.labels(len(types))

        def build(inputs: Sequence[Symbol]) -> Any:
            operands_or_none = [*inputs, *[None] * (len(types) - len(inputs))]
            values = [None if t is None else s for t, s in zip(types, operands_or_none, strict=True)]
            results = self._function(*values, **self._signature.python_attributes(attributes))
            return results[:count] if isinstance(results, (tuple, list)) and count is not None else results

        last = max((i for i, t in enumerate(types) if t is not None), default=-1)
        # An operand that is left out before others becomes an unused input, so that the others keep their positions.
        named = {
            re.sub(r"\W", "_", label).rstrip("_"): _ABSENT if t is None else t
            for label, t in zip(labels[: last + 1], types, strict=False)
        }
        token = _tracing.set((*chain, self))
        try:
            trace = traced(self.name, named, Graph("custom"), build)
        except Exception as error:
            raise translate_error(self.label, "its body", error, roles, names) from error
        finally:
            _tracing.reset(token)
        if trace.weights:
            raise GraphError(f"{self.label}: its body creates weights", help="pass them as operands, or use constants")
        result_count = len(trace.definition.body.outputs)
        if count is not None and result_count != count:
            raise GraphError(
                f"{self.label}: its body returns {result_count} results, but {count} are declared",
                operands=roles,
                help="return as many Symbols as the rule returns types",
            )
        return trace


def translate_error(
    label: str, what: str, error: Exception, roles: Mapping[str, object], names: Sequence[str] = ()
) -> GraphcoreError:
    """Turn an error of a rule or body into an error of the call. names: of the dims d0, d1, ... of a body, in order."""
    if isinstance(error, GraphcoreError):
        kind = type(error) if isinstance(error, (DTypeError, ShapeError)) else GraphError
        dims = {f"d{i}": name for i, name in enumerate(names)}
        summary = re.sub(r"\bd\d+\b", lambda match: dims.get(match[0], match[0]), error.summary)
        summary = summary if summary.startswith(label) else f"{label}: {summary}"
        return kind(summary, operands=roles, help=error.help)
    kinds: dict[type[Exception], type[GraphcoreError]] = {ValueError: ShapeError, TypeError: DTypeError}
    if type(error) in kinds:
        return kinds[type(error)](f"{label}: {error}", operands=roles)
    return GraphError(f"{label}: {what} raised {type(error).__name__}: {error}", operands=roles)


def _agree(declared: Type, actual: Type) -> bool:
    """Return True if two types can belong to one value: no known parts differ."""
    if not isinstance(declared, TensorType) or not isinstance(actual, TensorType):
        return declared == actual
    if declared.dtype is not actual.dtype:
        return False
    if not declared.shape.is_ranked or not actual.shape.is_ranked:
        return True
    pairs = zip(declared.shape, actual.shape, strict=False)
    return len(declared.shape) == len(actual.shape) and all(
        a == b or not a.is_static or not b.is_static for a, b in pairs
    )


def cache_key(attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return attributes as a key of a cache."""
    return tuple([(name, _key_of(value)) for name, value in attributes.items()])


def _key_of(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_key_of, value))
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return repr(value) if isinstance(value, float) else value  # 0.0 is not -0.0
