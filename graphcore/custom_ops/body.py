"""The body of a declared operator, traced once for each signature."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from graphcore.build.functions import Traced, traced
from graphcore.custom_ops.signature import Signature
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ShapeError
from graphcore.ir.definitions import Definition, Dims, names_of, substituted, with_own
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

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
