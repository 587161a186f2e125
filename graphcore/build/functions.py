"""Functions as users write them: one Python function, traced once for each signature, called any number of times."""

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
from graphcore.support.escaping import escaped
from graphcore.support.parameters import P, R
from graphcore.support.source_lines import user_origin
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type

_tracing: ContextVar[tuple[Any, ...]] = ContextVar("graphcore_tracing", default=())
_lock = threading.RLock()
_KEPT = 512  # signatures of a function


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight that a body makes: each call has one, of this array until another is loaded."""

    name: str
    array: np.ndarray[Any, Any]
    dtype: object


@dataclass(frozen=True, slots=True)
class Traced:
    """A definition and how to call it."""

    definition: Definition
    weights: tuple[Weight, ...]
    results: Structure
    """The nesting of its outputs."""
    own: tuple[str, ...]
    """The names of dims that its operands do not have."""


class Body(Graph):
    """The graph of a function while it is traced. Constants from outside are copied in, weights become operands."""

    def __init__(self, name: str, inputs: Mapping[str, Type], promotion: PromotionSystem, strict: bool) -> None:
        super().__init__(name, inputs, promotion=promotion, strict=strict)
        self.build: GraphBuilder = _BodyBuilder(self)
        if self.buffers:
            raise GraphError(
                f"function {name!r}: operand {next(iter(self.buffers))!r} is declared as a Buffer",
                help="declare its TensorType, pass what the buffer holds, and store what the function gives",
            )
        self._weights: list[Weight] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph.__new__, (Graph,), self.__getstate__()

    def weight(self, name: str, array: Any, dtype: object = None) -> Symbol:
        """A weight that each call has one of; an operand here. See `Graph.weight`."""
        if self.named_outputs:
            raise GraphError(f"weight {name!r}: function {self.name!r} is traced already", help="make it in the body")
        held = Graph("aside").weight(name, array, dtype)
        assert isinstance(held.producer, Constant)
        made = self.build.input(held.type, self.names.claim(name, "weight"), user_origin())
        self._weights.append(Weight(name, held.producer.array, held.type.dtype))
        return made


class _BodyBuilder(GraphBuilder):
    """Takes constants alone from outside of the function."""

    __slots__ = ("_copied",)

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._copied: dict[int, tuple[Symbol, Symbol]] = {}

    def capture(self, symbol: Symbol) -> Symbol | None:
        """Return the Symbol itself, or a copy of a constant; None for any other Symbol from outside."""
        if symbol.graph is self.graph:
            return symbol
        producer = symbol.producer
        if not isinstance(producer, Constant) or producer.is_weight:
            return None
        found = self._copied.get(id(symbol))
        if found is None:
            found = self._copied[id(symbol)] = symbol, self.symbol(symbol.type, producer)
        return found[1]

    def own(self, value: object, op: str, role: str) -> Symbol:
        """Return the Symbol of the body for a value. Raises `GraphError` for one from outside that is no constant."""
        is_open = self.graph.scope.is_open and isinstance(value, Symbol) and not value.graph.scope.is_finished
        if is_open and isinstance(value, Symbol) and self.capture(value) is None:
            raise GraphError(
                f"{op}: {role} belongs to graph {value.graph.name!r}, outside of function {self.graph.name!r}",
                operands={role: value},
                help="pass it to the function as an operand; only constants are taken in",
            )
        return super().own(value, op, role)


def traced(
    name: str,
    types: Mapping[str, Type],
    around: Graph,
    build: Callable[[Sequence[Symbol]], Any],
) -> Traced:
    """Return what `build` makes of inputs of these types. Raises `GraphError` where that is no Symbols.

    around: the graph that is being built.
    """
    body = Body(name, types, around.promotion, around.strict)
    scope = around.scope
    before, scope.building = scope.building, body  # so that Symbols from outside are looked at by the body
    try:
        with body:
            made = build(body.inputs)
    finally:
        scope.building = before
    leaves: list[Any] = []
    place = f"function {name!r}"
    results = structure_of(made, _is_single, leaves, f"{place}: ")
    others = [leaf for leaf in leaves if not isinstance(leaf, Symbol)]
    if others or not leaves:
        what = type(others[0] if others else made).__name__
        raise GraphError(
            f"{place} returned a {what} where Symbols are wanted",
            help="return a Symbol, or a tuple, list or dict of them",
        )
    labels = labels_of(results)
    own_of = body.build.own
    body.output(*[own_of(s, place, f"result {label}".rstrip()) for label, s in zip(labels, leaves, strict=True)])
    body.scope.is_finished = True
    bound_names = {*names_of(types.values())}
    own = tuple(name for name in names_of({s.type: None for s in body.symbols}) if name not in bound_names)
    return Traced(Definition(_identifier(name), body), tuple(body._weights), results, own)


def call(
    graph: Graph,
    layer: str,
    function: Traced,
    given: Sequence[Symbol],
    dims: Dims,
    weight: Callable[[str, Weight], Symbol] | None = None,
) -> Any:
    """Emit a call: a layer with one node and the weights of this call. Returns what the function returned.

    weight: return the Symbol for one of the weights, by the path of the layer; by default each call makes its own.
    """
    definition = function.definition

    def made_for_call(path: str, held: Weight) -> Symbol:
        return graph.weight(f"{path}/{held.name}", held.array, held.dtype)

    with graph.layer(layer) as path:
        weight = made_for_call if weight is None else weight
        inputs = (*given, *(weight(path, held) for held in function.weights))
        site = graph.site
        chosen = with_own(dims, function.own, site.layer)
        graph.build.end_expressions(inputs)
        made = graph.build.append(
            definition.name,
            inputs,
            [substituted(s.type, chosen) for s in definition.body.outputs],
            {"definition": definition, "dims": tuple(chosen.items())},
            FUNCTIONS,
            site.layer,
            user_origin(2),
        )
    return rebuilt(function.results, iter(made))


class Function(Generic[P, R]):
    """A Python function of Symbols whose calls are nodes. Made by `gc.function`."""

    def __init__(self, function: Callable[P, R], name: str | None = None) -> None:
        own = getattr(function, "__name__", "").strip("<>") or "function"
        self.function = function
        self.name = checked_name(own if name is None else name, "function")
        try:
            self._signature = inspect.signature(function)
        except ValueError:
            _refuse_function(f"function {self.name!r}", function)
        self._traced: dict[Hashable, tuple[Traced, list[str]]] = {}
        self.__doc__ = function.__doc__
        self.__name__ = own
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
        """A call, in the graph of the Symbols given or the current one. Returns what the function returns."""
        self._check_recursion()
        given = self._bound(arguments, named)
        place = f"function {self.name!r}"
        leaves: list[Any] = []
        structure = {k: structure_of(v, _is_operand, leaves, f"{place}: ", k) for k, v in given.arguments.items()}
        labels = [label for k, part in structure.items() for label in labels_of(part, k)]
        graph = operands.graph_of(place, leaves)
        symbols = [graph.build.operand(v, place, f"operand {label}") for label, v in zip(labels, leaves, strict=True)]
        types: list[Type] = [s.type for s in symbols]
        names = names_of(types)
        plain = {name: Dim(f"d{i}") for i, name in enumerate(names)}
        key = (tuple(structure.items()), tuple(substituted(t, plain) for t in types), graph.promotion, graph.strict)
        with _lock:
            found = self._traced.get(key)
            if found is None:
                typed = dict(zip(_distinct(labels), types, strict=True))
                while len(self._traced) >= _KEPT:
                    self._traced.pop(next(iter(self._traced)))
                found = self._traced[key] = self._trace(given, structure, typed, graph), names
        function, own = found
        dims = {name: Dim(actual) for name, actual in zip(own, names, strict=True)}
        return cast(R, call(graph, self.name, function, symbols, dims))

    def _trace(
        self, given: inspect.BoundArguments, structure: dict[str, Structure], types: dict[str, Type], graph: Graph
    ) -> Traced:
        def build(inputs: Sequence[Symbol]) -> Any:
            stand = iter(inputs)
            for label, part in structure.items():
                given.arguments[label] = rebuilt(part, stand)
            return self.function(*given.args, **given.kwargs)

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
            given = self._signature.bind(*arguments, **named)
        except TypeError as error:
            raise GraphError(
                f"function {self.name!r}: {error}", help=f"call it as {self.name}{self._signature}"
            ) from None
        given.apply_defaults()
        return given


class Subgraph:
    """A function with declared operands, of one graph. Made by `Graph.subgraph`."""

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
        """A call. Operands have the declared types; dims that are named there may be any. Returns what it returned."""
        place = f"subgraph {self.name!r}"
        labels = [*self._types]
        wrong = len(arguments) + len(named) != len(labels) or not named.keys() <= {*labels[len(arguments) :]}
        if wrong:
            shown = [*(f"operand {i}" for i in range(len(arguments))), *named]
            raise GraphError(
                f"{place} takes {len(labels)} operands, and {len(shown)} are given: {', '.join(shown) or 'none'}",
                help=f"give {', '.join(f'{label}: {t}' for label, t in self._types.items()) or 'none'}",
            )
        values = [*arguments, *(named[label] for label in labels[len(arguments) :])]
        symbols = [v for v in values if isinstance(v, Symbol)]
        graph = operands.graph_of(place, symbols) if symbols else self.graph.build.innermost()
        given = [self._operand(graph, *pair) for pair in zip(self._types.items(), values, strict=True)]
        dims = bound(place, labels, [*self._types.values()], [s.type for s in given])
        return call(graph, self.name, self._traced, given, dims)

    def _operand(self, graph: Graph, declared: tuple[str, Type], value: Any) -> Symbol:
        label, wanted = declared
        place = f"subgraph {self.name!r}"
        if isinstance(wanted, TensorType) and type(value) in (bool, int, float, complex):
            return graph.constant(value, wanted.dtype)
        made = graph.build.operand(value, place, f"operand {label}")
        fits, fix = made.type == wanted, "give one of that type"
        if isinstance(wanted, TensorType) and isinstance(made.type, TensorType):
            fits, fix = made.dtype is wanted.dtype, f"cast it: {label}.cast({wanted.dtype})"
        if not fits:
            raise DTypeError(f"{place}: operand {label} is declared as {wanted}", operands={label: made}, help=fix)
        return made


@overload
def function(function: Callable[P, R], *, name: str | None = None) -> Function[P, R]: ...
@overload
def function(*, name: str | None = None) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Make a Python function of Symbols one whose calls are nodes, exported as a function of the ONNX model.

    function: builds with ops on its operands and returns a Symbol, or a tuple, list or dict of them, nested if need
    be. Symbols and arrays among the arguments, in tuples, lists and dicts too, are operands; anything else must be
    hashable and is passed as it is. The body is traced once for each signature: types of the operands (dims may have
    other names), other arguments, promotion system. name: of the function and of the layer of each call, by default
    the function's own. Weights that the body makes (`Graph.current().weight(...)`) exist once a call, under its layer.

    Calling raises `GraphError` for arguments that the function does not take, where it calls itself, uses a Symbol
    from outside that is no constant, or returns no Symbols.

        @gc.function
        def gated(x, w): return ops.silu(x @ w) * x
    """
    if function is None:
        return lambda given: Function(given, name) if callable(given) else _refuse_function("function", given)
    return Function(function, name) if callable(function) else _refuse_function("function", function)


def _refuse_function(what: str, value: object) -> NoReturn:
    raise GraphError(f"{what}: a {type(value).__name__} is no function", help="give a function of Symbols")


def _is_single(value: object) -> bool:
    return not isinstance(value, (tuple, list, dict))


def _is_operand(value: object) -> bool:
    return isinstance(value, (Symbol, np.ndarray, np.generic))


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{made}" if made[0].isdigit() else made


def _distinct(labels: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    return [unlike(label, taken) for label in labels]
