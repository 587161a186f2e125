"""Functions of Symbols that run on arrays: traced once for each signature, compiled, and kept."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import FeedError, GraphError
from graphcore.graph import Graph
from graphcore.promotion import PromotionSystem
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.symbol import Symbol
from graphcore.types import TensorType


class Jitted:
    """A function of Symbols that is called with arrays. Made by `jit`."""

    def __init__(
        self, function: Callable[..., Any], promotion: str | PromotionSystem, session: InferenceSession | None
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        """The function of Symbols."""
        self._promotion = promotion
        self._session = session
        self._compiled: dict[Any, tuple[Model, Callable[[list[Any]], Any]]] = {}
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = [(str(i), a) for i, a in enumerate(arguments)] + sorted(named.items())
        key = tuple((label, *_signature(label, value)) for label, value in given)
        found = self._compiled.get(key)
        if found is None:
            with self._lock:
                found = self._compiled.get(key) or self._compile(arguments, named)
                self._compiled[key] = found
        model, rebuild = found
        return rebuild(model(*(value for _, value in given if isinstance(value, np.ndarray))))

    def _compile(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Model, Callable[[list[Any]], Any]]:
        labelled = {**{f"arg{i}": a for i, a in enumerate(arguments)}, **dict(sorted(named.items()))}
        types = {
            label: TensorType(value.dtype.newbyteorder("="), [Dim.dynamic()] * value.ndim)
            for label, value in labelled.items()
            if isinstance(value, np.ndarray)
        }
        name = getattr(self.function, "__name__", "").strip("<>") or "function"
        graph = Graph(name, types, promotion=self._promotion)
        symbols = {label: graph[label] for label in types}
        with graph:
            made = self.function(
                *(symbols.get(f"arg{i}", a) for i, a in enumerate(arguments)),
                **{label: symbols.get(label, value) for label, value in named.items()},
            )
        results, rebuild = _structure(made)
        graph.output(*results)
        return (self._session or InferenceSession()).load(graph), rebuild


@overload
def jit(function: Callable[..., Any]) -> Jitted: ...
@overload
def jit(
    *, promotion: str | PromotionSystem = "max", session: InferenceSession | None = None
) -> Callable[[Callable[..., Any]], Jitted]: ...
@overload
def jit(
    function: Callable[..., Any], *, promotion: str | PromotionSystem, session: InferenceSession | None = None
) -> Jitted: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    promotion: str | PromotionSystem = "max",
    session: InferenceSession | None = None,
) -> Any:
    """Makes a function of Symbols one of arrays.

    function: builds with ops on its arguments and returns a Symbol, or a tuple, list or dict of them. Arguments that
    are NumPy arrays are traced: the graph knows their dtypes and ranks, and is used again for all arrays of the same.
    Any other argument must be hashable, is passed as it is, and belongs to the signature. session: where to load; by
    default the CPU's. The result has the structure of what the function returned, with arrays in place of Symbols.
    Calling it raises `FeedError` for unhashable arguments and `GraphError` where the function returns no Symbols.

        @gc.jit
        def scaled(x, y): return ops.softmax(x * y)
    """
    if function is None:
        return lambda given: Jitted(given, promotion, session)
    return Jitted(function, promotion, session)


def _signature(label: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray):
        return DType.of(value.dtype.newbyteorder("=")), value.ndim
    try:
        hash(value)
    except TypeError:
        raise FeedError(
            f"jit: argument {label} is a {type(value).__name__}, neither an array nor hashable",
            help="give an array: np.asarray(value)",
        ) from None
    return type(value), value


def _structure(made: Any) -> tuple[list[Symbol], Callable[[list[Any]], Any]]:
    """The Symbols that a function returned, and what puts arrays in their places."""
    if isinstance(made, Symbol):
        return [made], lambda arrays: arrays[0]
    if isinstance(made, dict) and made and all(isinstance(s, Symbol) for s in made.values()):
        keys = list(made)
        return list(made.values()), lambda arrays: dict(zip(keys, arrays, strict=True))
    if isinstance(made, (tuple, list)) and made and all(isinstance(s, Symbol) for s in made):
        kind = list if isinstance(made, list) else tuple
        return list(made), kind
    raise GraphError(
        f"jit: the function returned a {type(made).__name__}, no Symbols",
        help="return a Symbol, or a tuple, list or dict of them",
    )
