"""Functions of Symbols that run on arrays: traced once for each signature, compiled and cached."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeAlias, TypedDict, Unpack, overload

import numpy as np

from graphcore.arrays.eager_array import EagerArray
from graphcore.build.pytree import Structure, labels_of, rebuilt, structure_of
from graphcore.errors import DTypeError, FeedError, GraphError, PromotionError
from graphcore.ir.definitions import unlike
from graphcore.ir.graph import Graph
from graphcore.ir.scope import size_of
from graphcore.ir.state import settings
from graphcore.ir.symbol import Symbol
from graphcore.promotion import PromotionSystem, system
from graphcore.promotion.rules import Scalar
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.runtime.tracing.tensor import Tensor, guessed, of_symbol
from graphcore.support.parameters import Arrays, P, R
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, is_wide
from graphcore.types.tensor_types import TensorType, Type

Compiled: TypeAlias = tuple[Model, Structure, list[Type]]


class Jitted(Generic[P, R, Arrays]):
    """A function of Symbols that is called with arrays. Made by `jit`. Threads share its traces.

    To type checkers, a call with Symbols returns what the function returns; any other call has arrays in place of
    Symbols.
    """

    def __init__(
        self, function: Callable[P, R], promotion: str | PromotionSystem, session: InferenceSession | None
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        """The function of Symbols."""
        self._system = system(promotion)
        self._guesses = self._system.guesses_literals
        self._session = session
        self._compiled: dict[Hashable, Compiled] = {}
        self._lock = threading.RLock()  # a function being traced may call itself with other arguments

    @overload
    def __call__(self, first: Symbol, /, *arguments: Any, **named: Any) -> R: ...
    @overload
    def __call__(self, /, *arguments: P.args, **named: P.kwargs) -> Arrays: ...
    @overload
    def __call__(self, /, *arguments: Any, **named: Any) -> Arrays: ...
    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        operands: list[Any] = []
        key: list[Hashable] = [len(arguments), settings.current.get()]
        is_plain = is_eager = False  # whether there are NumPy arrays, and Tensors
        for label, value in (*enumerate(arguments), *(sorted(named.items()) if named else ())):
            if isinstance(value, np.ndarray):
                operands.append(value)
                key += label, value.dtype, value.ndim
                is_plain = True
                continue
            leaves: list[Any] = []
            key += label, structure_of(value, self._leaf_of(value), leaves, "jit: argument ", str(label), FeedError)
            for operand in leaves:
                if isinstance(operand, Symbol):  # called while another function is traced
                    return self.function(*arguments, **named)
                if isinstance(operand, (np.ndarray, np.generic)):
                    array = np.asarray(operand)
                    key += "array", array.dtype, array.ndim
                    is_plain = True
                elif isinstance(operand, EagerArray):
                    array = operand._data
                    key += "eager", operand.dtype, getattr(operand, "ambiguous", False), array.ndim
                    is_eager = is_eager or self._is_tensor(operand)
                else:
                    array = self._guessed(operand)
                    key += type(operand).__name__, array.dtype, 0
                operands.append(array)
        signature = tuple(key)
        compiled = self._compiled.get(signature)
        if compiled is None:
            compiled = self._trace_once(signature, arguments, named)
        model, results, types = compiled
        if self._system.aliases:
            operands = [self._aliased(operand) for operand in operands]
        if not (is_eager or (self._guesses and not is_plain)):
            return rebuilt(results, iter(model(*operands)))
        outputs = model.execute(*operands, wide="object") if any(map(_is_wide, types)) else model(*operands)
        tensors = [of_symbol(values, type_, self._system) for values, type_ in zip(outputs, types, strict=True)]
        return rebuilt(results, iter(tensors))

    def graph(self, /, *arguments: Any, **named: Any) -> Graph:
        """Trace a call with these arguments again and return its graph, to print, export or change it.

        arguments, named: as for a call. Raises what a call raises before it runs, and `FeedError` for Symbols.
        """
        operands: list[Any] = []
        for label, value in (*enumerate(arguments), *named.items()):
            structure_of(value, self._leaf_of(value), operands, "jit: argument ", str(label), FeedError)
        for operand in operands:
            if isinstance(operand, Symbol):
                raise FeedError(
                    "jit: .graph() traces arrays, got a Symbol",
                    operands={"argument": operand},
                    help="give an array of its dtype and rank, or call the function to build in the Symbol's graph",
                )
            if not isinstance(operand, (np.ndarray, np.generic, EagerArray)):
                self._guessed(operand)  # which raises for a number that the dtype does not hold
        return self._traced(arguments, named)[0]

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Jitted[P, R, Arrays]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Arrays]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind as a method: the instance is an argument like any other that is not an array."""
        return self if instance is None else functools.partial(self, instance)

    def _trace_once(
        self, signature: tuple[Hashable, ...], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Compiled:
        # Arrays of the other byte order are fed to the same model.
        same = tuple(part.newbyteorder("=") if isinstance(part, np.dtype) else part for part in signature)
        with self._lock:
            compiled = self._compiled.get(same) or self._trace(arguments, named)
            self._compiled[same] = self._compiled[signature] = compiled
        return compiled

    def _trace(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Compiled:
        graph, structure, types = self._traced(arguments, named)
        return (self._session or InferenceSession()).load(graph), structure, types

    def _traced(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Graph, Structure, list[Type]]:
        places = (*_positional_labels(self.function, len(arguments), named), *sorted(named))
        values = (*arguments, *(named[label] for label in sorted(named)))
        structures: dict[str, Structure] = {}
        types: dict[str, TensorType] = {}
        taken: set[str] = set()
        for place, value in zip(places, values, strict=True):
            operands: list[Any] = []
            structures[place] = part = structure_of(value, self._leaf_of(value), operands, "jit: ", place, FeedError)
            for label, operand in zip(labels_of(part, place), operands, strict=True):
                types[unlike(label, taken)] = self._traced_type(label, operand)
        name = getattr(self.function, "__name__", "").strip("<>") or "function"
        graph = Graph(name, types, promotion=self._system)
        inputs = iter(graph.inputs)
        traced = {place: rebuilt(part, inputs) for place, part in structures.items()}
        with graph:
            returned = self.function(
                *(traced[place] for place in places[: len(arguments)]), **{place: traced[place] for place in named}
            )
        results: list[Any] = []
        structure = structure_of(returned, _is_result, results, "jit: ")
        if not results:
            raise _result_error(returned)
        symbols = [_as_symbol(graph, result) for result in results]
        types_made = [symbol.type for symbol in symbols]
        graph.output(*symbols)
        return graph, structure, types_made

    def _is_tensor(self, operand: EagerArray) -> bool:
        """Return True if an eager array is a Tensor. Raises `PromotionError` for one of another promotion system."""
        if not isinstance(operand, Tensor):
            return False
        if operand.promotion is not self._system:
            raise PromotionError(
                f"jit: the function is traced under {self._system}, got a Tensor of {operand.promotion}",
                operands={"argument": operand},
                help=f"use jit(function, promotion={operand.promotion.name!r})",
            )
        return True

    def _guessed(self, value: Scalar) -> np.ndarray[Any, Any]:
        """Return a Python number as an array of its default dtype."""
        return guessed(value, self._system, "jit")._data

    def _aliased(self, array: Any) -> Any:
        """Return an array in the dtype that stands for its own in the promotion system."""
        alias = self._system.aliases.get(DType.of(array.dtype))
        return array if alias is None else array.astype(alias.numpy)

    def _leaf_of(self, argument: Any) -> Callable[[Any], bool]:
        """Return the test for operands in an argument: arrays, and where numbers are operands, numbers that are whole
        arguments."""
        return (lambda value: True) if self._guesses and type(argument) in (bool, int, float) else _is_tensor

    def _traced_type(self, label: str, value: Any) -> TensorType:
        """Return the type of the graph input for an operand."""
        if isinstance(value, (np.ndarray, np.generic)):
            return TensorType(_dtype(label, value), [Dim.dynamic()] * value.ndim)
        if isinstance(value, EagerArray):
            is_guess = getattr(value, "ambiguous", False)
            return TensorType(value.dtype, [Dim.dynamic()] * value.ndim, ambiguous=is_guess)
        return TensorType(self._system.default_dtype([value]), [], ambiguous=True)


_Array: TypeAlias = np.ndarray[Any, Any]


class _Options(TypedDict, total=False):
    promotion: str | PromotionSystem
    session: InferenceSession | None


class Jit(Protocol):
    """The type of `jit`, and of the decorator that it returns for options alone."""

    @overload
    def __call__(self, function: None = None, **options: Unpack[_Options]) -> Jit: ...
    @overload
    def __call__(self, function: Callable[P, Symbol], **options: Unpack[_Options]) -> Jitted[P, Symbol, _Array]: ...
    @overload
    def __call__(
        self, function: Callable[P, tuple[Symbol, Symbol]], **options: Unpack[_Options]
    ) -> Jitted[P, tuple[Symbol, Symbol], tuple[_Array, _Array]]: ...
    @overload
    def __call__(
        self, function: Callable[P, tuple[Symbol, Symbol, Symbol]], **options: Unpack[_Options]
    ) -> Jitted[P, tuple[Symbol, Symbol, Symbol], tuple[_Array, _Array, _Array]]: ...
    @overload
    def __call__(
        self, function: Callable[P, tuple[Symbol, ...]], **options: Unpack[_Options]
    ) -> Jitted[P, tuple[Symbol, ...], tuple[_Array, ...]]: ...
    @overload
    def __call__(
        self, function: Callable[P, list[Symbol]], **options: Unpack[_Options]
    ) -> Jitted[P, list[Symbol], list[_Array]]: ...
    @overload
    def __call__(
        self, function: Callable[P, dict[str, Symbol]], **options: Unpack[_Options]
    ) -> Jitted[P, dict[str, Symbol], dict[str, _Array]]: ...
    @overload
    def __call__(self, function: Callable[P, R], **options: Unpack[_Options]) -> Jitted[P, R, Any]: ...


def _typed(function: Callable[..., Any]) -> Jit:
    return function


@_typed
def jit(
    function: Callable[..., Any] | None = None,
    *,
    promotion: str | PromotionSystem = "max",
    session: InferenceSession | None = None,
) -> Any:
    """Compile a function of Symbols to a function of arrays.

    Args:
        function: Builds with ops on its arguments and returns a Symbol, or a tuple, list or dict of Symbols, also
            nested. Python numbers and arrays among them are constants, and None stays None. NumPy arrays among the
            arguments, also in tuples, lists and dicts, are traced; NumPy scalars are arrays without axes. The graph
            has their dtypes and ranks, and is used again for all arrays of the same. Any other argument must be
            hashable, is passed unchanged, and belongs to the signature. If the promotion system guesses the dtypes of
            Python numbers ("anvil", "jax"), numbers that are arguments are traced as scalars of an ambiguous dtype.
        promotion: A system's name or a `PromotionSystem`.
        session: Where to load; by default the CPU's.

    Returns:
        A function of arrays. Its result has the structure of what `function` returns, with arrays in place of Symbols.
        They are Tensors if an argument is a Tensor, which must be of the same promotion system. Under "anvil" they are
        Tensors unless an argument is a NumPy array. Called with Symbols while another function is traced, the function
        builds into that function's graph.
        `.graph(...)` returns the graph that a call with these arguments runs. A call raises `FeedError` for unhashable
        arguments, and `GraphError` if `function` returns no Symbols.

    Example:
        @gc.jit
        def scaled(x, y): return ops.softmax(x * y)
    """
    if function is None:
        return lambda decorated: jit(decorated, promotion=promotion, session=session)
    if not callable(function):
        raise GraphError(
            f"jit: function must be callable, got {type(function).__name__}", help="give a function of Symbols"
        )
    return Jitted(function, promotion, session)


def _is_tensor(value: object) -> bool:
    # NumPy scalars of text or time are not numbers: they belong to the signature.
    return isinstance(value, (np.ndarray, Symbol, EagerArray)) or (
        isinstance(value, np.generic) and not isinstance(value, (np.flexible, np.datetime64, np.timedelta64))
    )


def _is_wide(type_: Type) -> bool:
    return isinstance(type_, TensorType) and is_wide(type_.dtype)


def _is_result(value: object) -> bool:
    return value is not None and not isinstance(value, (tuple, list, dict))


def _as_symbol(graph: Graph, result: object) -> Symbol:
    """Return a function's result as a Symbol: numbers and arrays are constants. Raises `GraphError`."""
    if isinstance(result, Symbol):
        return result
    if isinstance(result, Dim):
        return graph.constant(size_of(result, "jit", "a result"))
    if isinstance(result, (bool, int, float, EagerArray)):
        return graph.build.operand(result, "jit", "a result")  # a number is ambiguous where the system guesses dtypes
    if isinstance(result, (np.ndarray, np.generic)):
        return graph.constant(result)
    raise _result_error(result)


def _result_error(result: object) -> GraphError:
    return GraphError(
        f"jit: the function must return Symbols, got {type(result).__name__}",
        help="return a Symbol, or a tuple, list or dict of them",
    )


def _dtype(label: str, array: np.ndarray[Any, Any] | np.generic) -> DType:
    try:
        return DType.of(array.dtype)
    except DTypeError as error:
        raise FeedError(
            f"jit: argument {label!r} has dtype {array.dtype}, which graphs do not support", help=error.help
        ) from None


def _positional_labels(function: Callable[..., Any], count: int, named: dict[str, Any]) -> list[str]:
    """Return names for the first `count` arguments: the function's own if it has some, without those in `named`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function written in C may have no signature
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
