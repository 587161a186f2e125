"""User-defined functions: Python functions that are traced once per signature; each call is one node."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MethodType
from typing import Any, Generic, NoReturn, cast, overload

import numpy as np

from graphcore.build import operands
from graphcore.build.pytree import Structure, labels_of, rebuilt, structure_of
from graphcore.errors import DTypeError, GraphError
from graphcore.ir.builder import GraphBuilder
from graphcore.ir.definitions import FUNCTIONS, Definition, Dims, bound, names_of, substituted, unlike, with_own
from graphcore.ir.graph import Graph
from graphcore.ir.names import checked_name
from graphcore.ir.symbol import Constant, Symbol
from graphcore.promotion import PromotionSystem
from graphcore.support.escaping import counted, escaped
from graphcore.support.parameters import P, R
from graphcore.support.source_lines import user_origin
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type

_tracing: ContextVar[tuple[Any, ...]] = ContextVar("graphcore_tracing", default=())
_lock = threading.RLock()
_MAX_SIGNATURES = 512  # signatures of a function


@dataclass(frozen=True, slots=True)
class DeclaredWeight:
    """A weight declared in a body. Each call has its own weight, with this array until another is loaded."""

    name: str
    array: np.ndarray[Any, Any]
    dtype: object


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced function."""

    definition: Definition
    weights: tuple[DeclaredWeight, ...]
    results: Structure
    """The nesting of the outputs."""
    own: tuple[str, ...]
    """The names of dims that the operands do not have."""


class FunctionBody(Graph):
    """The graph of a function during tracing. Constants from outside are copied in; weights become operands."""

    def __init__(self, name: str, inputs: Mapping[str, Type], promotion: PromotionSystem, strict: bool) -> None:
        super().__init__(name, inputs, promotion=promotion, strict=strict)
        self.build: GraphBuilder = _BodyBuilder(self)
        if self.buffers:
            raise GraphError(
                f"function {name!r}: operand {next(iter(self.buffers))!r} is declared as a Buffer",
                help="declare its TensorType, pass the value of the buffer, and store the result of the function",
            )
        self._weights: list[DeclaredWeight] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph.__new__, (Graph,), self.__getstate__()

    def weight(self, name: str, array: Any, dtype: object = None) -> Symbol:
        """Declare a weight: an operand of the body, of which each call has its own. See `Graph.weight`."""
        if self.named_outputs:
            raise GraphError(
                f"weight {name!r}: function {self.name!r} is traced already", help="create the weight in the body"
            )
        weight = Graph("aside").weight(name, array, dtype)
        assert isinstance(weight.producer, Constant)
        symbol = self.build.input(weight.type, self.names.claim(name, "weight"), user_origin())
        self._weights.append(DeclaredWeight(name, weight.producer.array, weight.type.dtype))
        return symbol


class _BodyBuilder(GraphBuilder):
    """Captures only constants from outside of the function."""

    __slots__ = ("_copied",)

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._copied: dict[int, tuple[Symbol, Symbol]] = {}

    def capture(self, symbol: Symbol) -> Symbol | None:
        """Return a Symbol of the body, or a copy of a constant; None for any other Symbol from outside."""
        if symbol.graph is self.graph:
            return symbol
        producer = symbol.producer
        if not isinstance(producer, Constant) or producer.is_weight:
            return None
        entry = self._copied.get(id(symbol))
        if entry is None:
            entry = self._copied[id(symbol)] = symbol, self.symbol(symbol.type, producer)
        return entry[1]

    def own(self, value: object, op: str, role: str) -> Symbol:
        """Return the Symbol of the body for a value. Raises `GraphError` for outside values other than constants."""
        is_open = self.graph.scope.is_open and isinstance(value, Symbol) and not value.graph.scope.is_finished
        if is_open and isinstance(value, Symbol) and self.capture(value) is None:
            raise GraphError(
                f"{op}: {role} belongs to graph {value.graph.name!r}, outside of function {self.graph.name!r}",
                operands={role: value},
                help="pass it to the function as an operand; a function can only capture constants",
            )
        return super().own(value, op, role)


def traced(
    name: str,
    types: Mapping[str, Type],
    outer: Graph,
    build: Callable[[Sequence[Symbol]], Any],
) -> Traced:
    """Trace `build` on inputs of these types. Raises `GraphError` if it returns anything but Symbols.

    outer: the graph that is being built.
    """
    body = FunctionBody(name, types, outer.promotion, outer.strict)
    scope = outer.scope
    before, scope.building = scope.building, body  # so that the body handles Symbols from outside
    try:
        with body:
            returned = build(body.inputs)
    finally:
        scope.building = before
    leaves: list[Any] = []
    place = f"function {name!r}"
    results = structure_of(returned, lambda value: not isinstance(value, (tuple, list, dict)), leaves, f"{place}: ")
    others = [leaf for leaf in leaves if not isinstance(leaf, Symbol)]
    if others or not leaves:
        what = type(others[0] if others else returned).__name__
        raise GraphError(
            f"{place} must return Symbols, got {what}",
            help="return a Symbol, or a tuple, list or dict of them",
        )
    labels = labels_of(results)
    own_of = body.build.own
    body.output(*[own_of(s, place, f"result {label}".rstrip()) for label, s in zip(labels, leaves, strict=True)])
    body.scope.is_finished = True
    bound_names = {*names_of(types.values())}
    own_names = tuple(name for name in names_of(s.type for s in body.symbols) if name not in bound_names)
    return Traced(Definition(_identifier(name), body), tuple(body._weights), results, own_names)


def call(
    graph: Graph,
    layer: str,
    function: Traced,
    operands: Sequence[Symbol],
    dims: Dims,
    weight: Callable[[str, DeclaredWeight], Symbol] | None = None,
) -> Any:
    """Emit a call, a layer with one node and the weights of this call, and return the results of the function.

    weight: returns the Symbol of a weight for the path of the layer; by default each call has its own weights.
    """
    definition = function.definition

    def make_weight(path: str, weight: DeclaredWeight) -> Symbol:
        return graph.weight(f"{path}/{weight.name}", weight.array, weight.dtype)

    with graph.layer(layer) as path:
        weight = make_weight if weight is None else weight
        inputs = (*operands, *(weight(path, item) for item in function.weights))
        site = graph.site
        call_dims = with_own(dims, function.own, site.layer)
        graph.build.end_expressions(inputs)
        results = graph.build.append(
            definition.name,
            inputs,
            [substituted(s.type, call_dims) for s in definition.body.outputs],
            {"definition": definition, "dims": tuple(call_dims.items())},
            FUNCTIONS,
            site.layer,
            user_origin(2),
        )
    return rebuilt(function.results, iter(results))


class Function(Generic[P, R]):
    """A Python function of Symbols whose calls are nodes. `gc.function` creates it."""

    def __init__(self, function: Callable[P, R], name: str | None = None) -> None:
        own_name = getattr(function, "__name__", "").strip("<>") or "function"
        self.function = function
        self.name = checked_name(own_name if name is None else name, "function")
        try:
            self._signature = inspect.signature(function)
        except ValueError:
            _refuse_function(f"function {self.name!r}", function)
        self._traced: dict[Hashable, tuple[Traced, list[str]]] = {}
        self.__doc__ = function.__doc__
        self.__name__ = own_name
        self.__wrapped__ = function

    @overload
    def __get__(self, instance: None, owner: object = None) -> Function[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: object = None) -> Callable[..., R]: ...
    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return escaped(f"<function {self.name}, traced for {len(self._traced)} signatures>")

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Call the function in the graph of its operands, or in the current one, and return its results."""
        self._check_recursion()
        bound_arguments = self._bound(arguments, named)
        place = f"function {self.name!r}"
        leaves: list[Any] = []
        structure = {
            k: structure_of(v, _is_operand, leaves, f"{place}: ", k) for k, v in bound_arguments.arguments.items()
        }
        labels = [label for k, part in structure.items() for label in labels_of(part, k)]
        graph = operands.graph_of(place, leaves)
        symbols = [graph.build.operand(v, place, f"operand {label}") for label, v in zip(labels, leaves, strict=True)]
        types: list[Type] = [s.type for s in symbols]
        names = names_of(types)
        plain = {name: Dim(f"d{i}") for i, name in enumerate(names)}
        key = (tuple(structure.items()), tuple(substituted(t, plain) for t in types), graph.promotion, graph.strict)
        with _lock:
            entry = self._traced.get(key)
            if entry is None:
                typed = dict(zip(_distinct(labels), types, strict=True))
                while len(self._traced) >= _MAX_SIGNATURES:
                    self._traced.pop(next(iter(self._traced)))
                entry = self._traced[key] = self._trace(bound_arguments, structure, typed, graph), names
        function, parameters = entry
        dims = {name: Dim(actual) for name, actual in zip(parameters, names, strict=True)}
        return cast(R, call(graph, self.name, function, symbols, dims))

    def _trace(
        self,
        bound_arguments: inspect.BoundArguments,
        structure: dict[str, Structure],
        types: dict[str, Type],
        graph: Graph,
    ) -> Traced:
        def build(inputs: Sequence[Symbol]) -> Any:
            remaining = iter(inputs)
            for label, part in structure.items():
                bound_arguments.arguments[label] = rebuilt(part, remaining)
            return self.function(*bound_arguments.args, **bound_arguments.kwargs)

        token = _tracing.set((*_tracing.get(), self))
        try:
            return traced(self.name, types, graph, build)
        finally:
            _tracing.reset(token)

    def _check_recursion(self) -> None:
        chain = _tracing.get()
        if any(function is self for function in chain):
            names = " -> ".join(function.name for function in (*chain, self))
            raise GraphError(
                f"function {self.name!r} calls itself: {names}",
                help="ONNX has no recursion: write a loop in Python, or ops.while_loop",
            )

    def _bound(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> inspect.BoundArguments:
        try:
            bound_arguments = self._signature.bind(*arguments, **named)
        except TypeError as error:
            raise GraphError(
                f"function {self.name!r}: {error}", help=f"call it as {self.name}{self._signature}"
            ) from None
        bound_arguments.apply_defaults()
        return bound_arguments


class Subgraph:
    """A function of one graph with declared operands. `Graph.subgraph` creates it."""

    def __init__(
        self, graph: Graph, name: str, function: Callable[..., Any], types: Mapping[str, Type] | Sequence[Type]
    ) -> None:
        if not callable(function):
            _refuse_function(f"subgraph {name!r}", function)
        self.graph = graph
        self.name = checked_name(name, "subgraph")
        named = types if isinstance(types, Mapping) else {f"input{i}": type_ for i, type_ in enumerate(types)}
        self._types = dict(named)

        def build(inputs: Sequence[Symbol]) -> Any:
            return function(*inputs)

        self._traced = traced(name, self._types, graph.build.innermost(), build)

    def __repr__(self) -> str:
        return escaped(f"<subgraph {self.name}({', '.join(map(str, self._types.values()))})>")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function and return its results. Operands must have the declared types; named dims may differ."""
        place = f"subgraph {self.name!r}"
        labels = [*self._types]
        wrong = len(arguments) + len(named) != len(labels) or not named.keys() <= {*labels[len(arguments) :]}
        if wrong:
            passed = [*(f"operand {i}" for i in range(len(arguments))), *named]
            raise GraphError(
                f"{place} takes {counted(len(labels), 'operand')}, got {len(passed)}: {', '.join(passed) or 'none'}",
                help=f"pass {', '.join(f'{label}: {t}' for label, t in self._types.items()) or 'none'}",
            )
        values = [*arguments, *(named[label] for label in labels[len(arguments) :])]
        symbols = [v for v in values if isinstance(v, Symbol)]
        graph = operands.graph_of(place, symbols) if symbols else self.graph.build.innermost()
        inputs = [self._operand(graph, *pair) for pair in zip(self._types.items(), values, strict=True)]
        dims = bound(place, labels, [*self._types.values()], [s.type for s in inputs])
        return call(graph, self.name, self._traced, inputs, dims)

    def _operand(self, graph: Graph, declared: tuple[str, Type], value: Any) -> Symbol:
        label, type_ = declared
        place = f"subgraph {self.name!r}"
        if isinstance(type_, TensorType) and type(value) in (bool, int, float, complex):
            return graph.constant(value, type_.dtype)
        symbol = graph.build.operand(value, place, f"operand {label}")
        fits, fix = symbol.type == type_, "pass an operand of that type"
        if isinstance(type_, TensorType) and isinstance(symbol.type, TensorType):
            fits, fix = symbol.dtype is type_.dtype, f"cast it: {label}.cast({type_.dtype})"
        if not fits:
            raise DTypeError(f"{place}: operand {label} is declared as {type_}", operands={label: symbol}, help=fix)
        return symbol


@overload
def function(function: Callable[P, R], *, name: str | None = None) -> Function[P, R]: ...
@overload
def function(*, name: str | None = None) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Turn a Python function of Symbols into a function of the model: each call is one node.

    The body is traced once per signature: the types of the operands (names of dims may differ), the other arguments and
    the promotion system. It is exported as a function of the ONNX model. Each call has its own weights
    (`Graph.current().weight(...)` in the body), under its layer.

    Args:
        function: Builds with ops on its operands and returns a Symbol, or nested tuples, lists or dicts of Symbols.
            Symbols and arrays among its arguments, also in tuples, lists and dicts, are operands; all other arguments
            must be hashable.
        name: The name of the function and of the layer of each call, by default that of the Python function.

    Raises:
        GraphError: The object is not callable. On a call: the arguments do not fit the signature, the function calls
            itself, uses a Symbol from outside that is not a constant, or does not return Symbols.

    Example:
        @gc.function
        def gated(x, w): return ops.silu(x @ w) * x
    """
    if function is None:
        return lambda decorated: (
            Function(decorated, name) if callable(decorated) else _refuse_function("function", decorated)
        )
    return Function(function, name) if callable(function) else _refuse_function("function", function)


def _refuse_function(what: str, value: object) -> NoReturn:
    raise GraphError(f"{what}: must be a function, got {type(value).__name__}", help="pass a function of Symbols")


def _is_operand(value: object) -> bool:
    return isinstance(value, (Symbol, np.ndarray, np.generic))


def _identifier(name: str) -> str:
    identifier = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{identifier}" if identifier[0].isdigit() else identifier


def _distinct(labels: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    return [unlike(label, taken) for label in labels]
