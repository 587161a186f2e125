"""Functions of Symbols that run on arrays: traced once for each signature, compiled, and kept."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias, overload

import numpy as np

from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import DTypeError, FeedError, GraphError
from graphcore.graph import Graph
from graphcore.promotion import NoPromotion, PromotionSystem, system
from graphcore.promotion.system import Scalar, check_literal
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.symbol import Symbol
from graphcore.types import TensorType

Compiled: TypeAlias = tuple[Model, Callable[[list[Any]], Any]]


class Jitted:
    """A function of Symbols that is called with arrays. Made by `jit`. Threads share its traces."""

    def __init__(
        self, function: Callable[..., Any], promotion: str | PromotionSystem, session: InferenceSession | None
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        """The function of Symbols."""
        self._system = system(promotion)
        self._guesses = self._system.guesses_literals
        self._session = session
        self._compiled: dict[Hashable, Compiled] = {}
        self._lock = threading.RLock()  # a function being traced may call itself with other arguments

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        labels = sorted(named)
        arrays = []
        key: list[Hashable] = [len(arguments), *labels]
        for position, value in enumerate((*arguments, *(named[label] for label in labels))):
            if isinstance(value, np.ndarray):
                arrays.append(value)
                key += value.dtype, value.ndim
            elif self._guesses and type(value) in (bool, int, float):
                arrays.append(self._guessed(value))
                key.append(type(value).__name__)
            elif isinstance(value, Symbol):  # called while another function is traced
                return self.function(*arguments, **named)
            else:
                label = str(position) if position < len(arguments) else labels[position - len(arguments)]
                key.append(_static(label, value))
        signature = tuple(key)
        found = self._compiled.get(signature)
        if found is None:
            found = self._trace_once(signature, arguments, named)
        model, rebuild = found
        return rebuild(model(*arrays))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method: the instance is an argument like any other that is no array."""
        return self if instance is None else functools.partial(self, instance)

    def _trace_once(
        self, signature: tuple[Hashable, ...], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Compiled:
        # Arrays of the other byte order are fed to the same model.
        same = tuple(part.newbyteorder("=") if isinstance(part, np.dtype) else part for part in signature)
        with self._lock:
            found = self._compiled.get(same) or self._trace(arguments, named)
            self._compiled[same] = self._compiled[signature] = found
        return found

    def _trace(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Compiled:
        labels = (*_positional_labels(self.function, len(arguments), named), *sorted(named))
        values = (*arguments, *(named[label] for label in sorted(named)))
        types = {
            label: type_
            for label, value in zip(labels, values, strict=True)
            if (type_ := self._traced_type(label, value)) is not None
        }
        name = getattr(self.function, "__name__", "").strip("<>") or "function"
        graph = Graph(name, types, promotion=self._system)
        traced = {label: graph[label] if label in types else value for label, value in zip(labels, values, strict=True)}
        with graph:
            made = self.function(
                *(traced[label] for label in labels[: len(arguments)]), **{label: traced[label] for label in named}
            )
        results, rebuild = _structure(made)
        graph.output(*results)
        return (self._session or InferenceSession()).load(graph), rebuild

    def _guessed(self, value: Scalar) -> np.ndarray[Any, Any]:
        """A Python number as an array of the dtype that it is guessed to have."""
        dtype = self._system.default_dtype([value])
        try:
            check_literal(value, dtype)
        except NoPromotion as refusal:
            raise DTypeError(
                f"jit: {refusal.reason}, the dtype of such a Python number in {self._system}",
                help="give a NumPy array of the dtype that is meant",
            ) from None
        return np.asarray(value, dtype.numpy)

    def _traced_type(self, label: str, value: Any) -> TensorType | None:
        """The type of the input that an argument becomes; None for one that stays as it is."""
        if isinstance(value, np.ndarray):
            return TensorType(_dtype(label, value), [Dim.dynamic()] * value.ndim)
        if self._guesses and type(value) in (bool, int, float):
            return TensorType(self._system.default_dtype([value]), [], ambiguous=True)
        return None


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
    Any other argument must be hashable, is passed as it is, and belongs to the signature; where the promotion system
    guesses the dtypes of Python numbers ("anvil"), those are traced too, as scalars of an ambiguous dtype. Called with
    Symbols, while another function is traced, it builds into that one's graph. promotion: a system's name or a
    `PromotionSystem`. session: where to load; by default the CPU's. The
    result has the structure of what the function returned, with arrays in place of Symbols. Calling it raises
    `FeedError` for unhashable arguments and `GraphError` where the function returns no Symbols.

        @gc.jit
        def scaled(x, y): return ops.softmax(x * y)
    """
    if function is None:
        return lambda given: jit(given, promotion=promotion, session=session)
    if not callable(function):
        raise GraphError(f"jit: a {type(function).__name__} is no function", help="give a function of Symbols")
    return Jitted(function, promotion, session)


def _static(label: str, value: Any) -> Hashable:
    """A key of an argument that is no array: of equal ones, where Python's own calls 0.0, -0.0, 0 and False equal."""
    if isinstance(value, tuple):
        return tuple, tuple(_static(label, item) for item in value)
    if isinstance(value, (float, complex, np.generic)):  # by their text NaNs are equal, and zeros of two signs are not
        return type(value), repr(value)
    try:
        hash(value)
    except TypeError:
        raise FeedError(
            f"jit: argument {label} is a {type(value).__name__}, neither an array nor hashable",
            help="give an array: np.asarray(value)",
        ) from None
    return type(value), value


def _dtype(label: str, array: np.ndarray[Any, Any]) -> DType:
    try:
        return DType.of(array.dtype)
    except DTypeError as error:
        raise FeedError(
            f"jit: argument {label!r} is {array.dtype}, which no graph computes with", help=error.help
        ) from None


def _positional_labels(function: Callable[..., Any], count: int, named: dict[str, Any]) -> list[str]:
    """Names for the first `count` arguments: the function's own where it has some, and none of `named`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # what is written in C may not say
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = [p.name for p in parameters if p.kind in kinds]
    labels: list[str] = []
    for position in range(count):
        label = own[position] if position < len(own) else f"arg{position}"
        while label in named or label in labels or (position >= len(own) and label in own):
            label += "_"
        labels.append(label)
    return labels


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
