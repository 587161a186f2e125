"""Calling a Graph on Symbols of another: its nodes become part of that one, or a function that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, overload

import numpy as np

from graphcore.build import operands
from graphcore.build.functions import Weight, traced
from graphcore.build.functions import call as call_function
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.buffers import BufferValue
from graphcore.ir.definitions import names_of, outermost, substituted, with_own
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.promotion import implicit_cast_type
from graphcore.support.escaping import escaped
from graphcore.support.source_lines import user_origin
from graphcore.surgery.replay import Replay
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type


class Results(tuple[Symbol, ...]):
    """The results of a Graph with several outputs: a tuple that knows their names, `results["scores"]`."""

    names: tuple[str, ...]
    """The names of the outputs, in order."""

    def __new__(cls, values: Mapping[str, Symbol]) -> Results:
        made = super().__new__(cls, values.values())
        made.names = tuple(values)
        return made

    @overload  # type: ignore[override]
    def __getitem__(self, key: int | str) -> Symbol: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Symbol, ...]: ...
    def __getitem__(self, key: int | str | slice) -> Symbol | tuple[Symbol, ...]:
        """Return a result by position or name. Raises `GraphError` for a name that no output has."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise GraphError(f"no output is called {key!r}", help=f"the outputs: {', '.join(map(repr, self.names))}")
        return super().__getitem__(self.names.index(key))

    def asdict(self) -> dict[str, Symbol]:
        """Return the results by name."""
        return dict(zip(self.names, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return Results, (self.asdict(),)

    def __repr__(self) -> str:
        return f"Results({', '.join(f'{name}={value!r}' for name, value in self.asdict().items())})"


def call(
    model: Graph,
    given: Sequence[Any],
    named: Mapping[str, Any],
    *,
    implicit_casts: bool = False,
    as_function: bool = False,
    layer: str | None = None,
    what: str = "",
) -> Symbol | Results:
    """Build the nodes of a graph, on operands of another one, in that one. See `Graph.__call__`. what: for errors."""
    what = what or f"call of graph {model.name!r}"
    model.verify()
    values = _bound(what, model, given, named)
    graph = _graph_of(what, model, values)
    symbols = {
        label: _operand(what, graph, label, wanted, values[label], implicit_casts)
        for label, wanted in _inputs(model).items()
    }
    inputs = _inputs(model)
    symbols = _rebound(inputs, symbols, unified(what, inputs, {label: s.type for label, s in symbols.items()}))
    graph.build.end_expressions([*symbols.values()])
    name = model.name if layer is None else layer
    made = (
        _as_function(what, graph, model, name, [*symbols.values()])
        if as_function
        else inline(what, graph, model, name, symbols)
    )
    return made[0] if len(made) == 1 else Results(dict(zip(output_names(model), made, strict=True)))


def output_names(graph: Graph) -> list[str]:
    """Return the names of a graph's outputs, in order."""
    return [name or s.name for name, s in graph.named_outputs]


def _inputs(model: Graph) -> dict[str, Symbol]:
    """Return the inputs by name, without those of buffers, which come along."""
    return {s.name: s for s in model.input_symbols if s.given_name not in model.buffers}


def _bound(what: str, model: Graph, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operands by the names of the inputs. Raises `GraphError` for too few, too many and unknown ones."""
    labels = [*_inputs(model)]
    for mapping in given if len(given) == 1 else ():
        if isinstance(mapping, Mapping):
            given, named = (), {**mapping, **named}
    values = dict(zip(labels, given, strict=False))
    taken = f"it takes {', '.join(f'{n}: {s.type}' for n, s in _inputs(model).items()) or 'none'}"
    if len(given) > len(labels):
        raise GraphError(f"{what}: {len(given)} operands are given, and it has {len(labels)} inputs", help=taken)
    for label, value in named.items():
        if label not in labels:
            raise GraphError(f"{what}: it has no input {label!r}", help=taken)
        if label in values:
            raise GraphError(f"{what}: input {label!r} is given twice", help="give it by position or by name")
        values[label] = value
    missing = [label for label in labels if label not in values]
    if missing:
        raise GraphError(f"{what}: nothing is given for {', '.join(map(repr, missing))}", help=taken)
    return values


def _graph_of(what: str, model: Graph, values: Mapping[str, Any]) -> Graph:
    if values and not any(isinstance(value, Symbol) for value in values.values()):
        try:
            return Graph.current()
        except GraphError:
            raise GraphError(
                f"{what}: no operand is a Symbol, so there is no graph to build in",
                help="to run it on arrays: gc.InferenceSession().load(graph)(...); to build with it, give Symbols or "
                "call it inside `with graph:`",
            ) from None
    return operands.graph_of(what, values.values())


def _operand(what: str, graph: Graph, label: str, wanted: Symbol, value: Any, implicit_casts: bool) -> Symbol:
    """Return an operand as a Symbol of the dtype that an input has. Raises `DTypeError`."""
    type_ = wanted.type
    if isinstance(type_, TensorType) and type(value) in (bool, int, float, complex):
        return graph.constant(value, type_.dtype)
    if isinstance(type_, TensorType) and isinstance(value, list):
        value = np.asarray(value, type_.dtype.numpy)
    made = graph.build.operand(value, what, f"input {label}")
    if isinstance(value, BufferValue):
        made = value.value
    if not isinstance(type_, TensorType) or not isinstance(made.type, TensorType):
        if type(type_) is not type(made.type):
            raise DTypeError(
                f"{what}: input {label!r} is {type_}",
                operands={f"input {label}": wanted, "given": made},
                help="give a value of that type",
            )
        return made
    if made.dtype is type_.dtype:
        return made
    fix = f"cast it: .cast({type_.dtype}), or call it with implicit_casts=True"
    if implicit_casts:
        joined = implicit_cast_type(made.dtype, type_.dtype, graph.promotion)
        if joined is type_.dtype:
            operands.report_lossy(graph, what, {f"input {label}": (made, joined)})
            return operands.cast_operand(made, joined)
        fix = f"they meet in {joined} under {graph.promotion}; cast it yourself: .cast({type_.dtype})"
    raise DTypeError(
        f"{what}: input {label!r} is {type_.dtype}, and {made.dtype} is given",
        operands={f"input {label}": wanted, "given": made},
        help=fix,
    )


# Dims


def unified(what: str, inputs: Mapping[str, Symbol], given: Mapping[str, Type]) -> dict[str, Dim]:
    """Return the dims that stand for the names in the types of inputs.

    Raises `ShapeError` where a dim is known to be another one than the input's.
    """
    found: dict[str, Dim] = {}
    owner: dict[str, str] = {}
    for label, symbol in inputs.items():
        for dim, actual in _pairs(symbol.type, given[label]):
            if dim.name is not None and (dim.name not in found or found[dim.name].is_dynamic):
                found[dim.name], owner[dim.name] = actual, label
    for label, symbol in inputs.items():
        a, b = symbol.type, given[label]
        if not isinstance(a, TensorType) or not isinstance(b, TensorType) or not a.shape.is_ranked:
            continue
        shown = {f"input {label}": symbol, "given": str(b)}
        if not b.shape.is_ranked or len(a.shape) != len(b.shape):
            rank = f"has rank {len(b.shape)}" if b.shape.is_ranked else "has no known rank"
            raise ShapeError(
                f"{what}: input {label!r} has rank {len(a.shape)}, and what is given {rank}",
                operands=shown,
                help="reshape it; where only the run can tell its dims, say so with .rebind(...)",
            )
        for axis, (dim, actual) in enumerate(zip(a.shape, b.shape, strict=True)):
            if dim.is_dynamic or not dim.parameters <= found.keys():
                continue
            expected = dim.substitute(found)
            if expected == actual or expected.is_dynamic or actual.is_dynamic:
                continue
            why = f", which is {found[dim.name]} in input {owner[dim.name]!r}" if dim.name in owner else ""
            raise ShapeError(
                f"{what}: dim {axis} of input {label!r} is {dim}{why}, and {actual} is given",
                operands=shown,
                help="give it that shape; where only the run can tell, say so with .rebind(...), and change what the "
                "graph takes with Graph.with_dims",
            )
    return found


def _rebound(inputs: Mapping[str, Symbol], given: Mapping[str, Symbol], dims: Mapping[str, Dim]) -> dict[str, Symbol]:
    """Return operands of known dims where the inputs have such: those that only the run can tell are checked then."""
    made = {}
    for label, symbol in given.items():
        expected = [dim.substitute(dims) for dim, _ in _pairs(inputs[label].type, symbol.type)]
        is_told = [
            a.is_dynamic and not e.is_dynamic and e.parameters <= _parameters(dims)
            for e, (_, a) in zip(expected, _pairs(inputs[label].type, symbol.type), strict=True)
        ]
        if any(is_told):
            actual = symbol.shape
            wanted = [e if told else a for e, a, told in zip(expected, actual, is_told, strict=True)]
            symbol = symbol.rebind(wanted, message=f"input {label!r}")
        made[label] = symbol
    return made


def _parameters(dims: Mapping[str, Dim]) -> set[str]:
    """Return the names in the dims that stand for others."""
    return {name for dim in dims.values() for name in dim.parameters}


def _pairs(a: Type, b: Type) -> Iterator[tuple[Dim, Dim]]:
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.shape.is_ranked and b.shape.is_ranked:
        yield from zip(a.shape, b.shape, strict=False)


# The nodes


def inline(what: str, graph: Graph, model: Graph, layer: str, symbols: Mapping[str, Symbol]) -> list[Symbol]:
    """Make the nodes of a graph in another one, and return what its outputs are there.

    layer: of the nodes, "" for none. symbols: by the names of the inputs, of the right dtypes. Raises `ShapeError`
    where dims do not fit.
    """
    inputs = _inputs(model)
    dims = unified(what, inputs, {label: s.type for label, s in symbols.items()})
    types = dict.fromkeys(s.type for s in model.symbols)
    own = [name for name in names_of(types) if name not in dims]
    with _layer(graph, layer):
        site = graph.site
        prefix = site.layer
        if own and (prefix or not _names_in(graph).isdisjoint(own)):
            dims = with_own(dims, own, prefix or f"{model.name}/")
        replay = Replay(model, graph, what, prefix=prefix, dims=dict(dims))
        for label, symbol in symbols.items():
            own_symbol = graph.build.own(symbol, what, f"input {label}")
            replay.bind(inputs[label], own_symbol, is_altered=own_symbol.is_constant)
        carry_buffers(replay)
        held = [buffer.value for buffer in model.buffers.values()]
        results = [s for _, s in model.named_outputs]
        replay.make([*results, *held, *model.watched.values()])
        store_buffers(replay)
    for label, symbol in model.watched.items():
        if symbol.graph is model:
            graph.watched[f"{prefix}{label}"] = replay.of(symbol)
    graph.site.has_untyped |= model.site.has_untyped
    for domain, version in model.opsets.items():
        graph.opsets[domain] = max(version, graph.opsets.get(domain, 0))
    return [replay.of(s) for s in results]


def _names_in(graph: Graph) -> set[str]:
    return {*names_of(dict.fromkeys(s.type for s in graph.symbols))}


@contextmanager
def _layer(graph: Graph, name: str) -> Iterator[None]:
    if not name:
        yield
        return
    with graph.layer(name):
        yield


def _as_function(what: str, graph: Graph, model: Graph, name: str, symbols: Sequence[Symbol]) -> list[Symbol]:
    """Call a graph as a function of the model; what it is traced for is remembered by the calling graph."""
    if model.buffers:
        raise GraphError(
            f"{what}: it has buffers, which no function has",
            help="call it without as_function=True, or pass what its buffers hold",
        )
    inputs = _inputs(model)
    dims = unified(what, inputs, {label: s.type for label, s in zip(inputs, symbols, strict=True)})
    declared: dict[str, Type] = {}
    for label, symbol, given in zip(inputs, inputs.values(), symbols, strict=True):
        declared[label] = symbol.type if substituted(symbol.type, dims) is given.type else given.type
    if any(declared[label] is not s.type for label, s in inputs.items()):
        declared = {label: s.type for label, s in zip(inputs, symbols, strict=True)}
        dims = {name: Dim(name) for name in names_of(declared.values())}

    def build(made: Sequence[Symbol]) -> Any:
        return tuple(inline(what, made[0].graph, model, "", dict(zip(inputs, made, strict=True))))

    root = outermost(graph)
    key = ("function of", id(model), len(model.nodes), tuple(declared.values()))
    held = root.memory.functions.get(key)
    if held is None:
        held = root.memory.functions[key] = model, traced(name, declared, graph, build)

    def weight(path: str, own: Weight) -> Symbol:
        made = root.memory.values.get((key, own.name))
        if made is None:
            made = root.memory.values[key, own.name] = root.weight(escaped(f"{path}/{own.name}"), own.array, own.dtype)
        return graph.build.own(made, what, own.name)

    return [*call_function(graph, name, held[1], symbols, dims, weight)]


# The buffers of a graph that is called, in the graph that calls it.


def carry_buffers(replay: Replay) -> None:
    """Declare the buffers of the old graph in the new one, before its nodes are made.

    Those of a graph that was called before are the same ones, which hold what they were left with.
    """
    new = replay.new
    if replay.old.buffers and new.scope.outer is not None:
        raise GraphError(
            f"{replay.what}: graph {replay.old.name!r} has buffers, and is called in a body",
            help="call it outside of the body, or make its buffers inputs and outputs",
        )
    for name, held in replay.old.buffers.items():
        symbol = replay.old.names.taken[name]
        key = ("buffer", id(held))
        found = new.memory.values.get(key)
        if not isinstance(found, BufferValue):
            free = replay.free_name(name, new, numbered=True)
            assert free is not None
            made = new.build.input(replay.type_of(symbol), free, user_origin())
            new.build.buffer(free, held.buffer, made)
            found = new.memory.values[key] = new.buffers[free]
        replay.bind(symbol, found.value, is_altered=False)


def store_buffers(replay: Replay) -> None:
    """Let the buffers hold what the old graph stores, after its nodes were made."""
    for held in replay.old.buffers.values():
        found = replay.new.memory.values[("buffer", id(held))]
        assert isinstance(found, BufferValue)
        found.value = replay.of(held.value)
