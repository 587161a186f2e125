"""A graph made again as another one: the start and the end of every change of a graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from graphcore.errors import GraphError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.ir.state.dim_minima import NOTE, minima, without_minima
from graphcore.ir.symbol import Node, Symbol
from graphcore.surgery.replay import Replay
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type


def replica(
    old: Graph,
    what: str,
    *,
    inputs: Sequence[Symbol] | None = None,
    types: Mapping[int, Type] | None = None,
    names: Mapping[str, str] | None = None,
    dims: Mapping[str, Dim] | None = None,
) -> Replay:
    """Return a replay into a new graph that has inputs, buffers and notes, and no nodes yet.

    inputs: those that it has, by default all; they may be other Symbols of the old graph. types: of inputs that have
    another one, by number. names, dims: others for names of values and dims.
    """
    new = Graph(old.name, promotion=old.promotion, strict=old.strict)
    new.metadata, new.opsets = dict(old.metadata), dict(old.opsets)
    new.site.has_untyped = old.site.has_untyped
    _rename_minima(new, dims or {})
    replay = Replay(old, new, what, names=names, dims=dims)
    for symbol in old.input_symbols if inputs is None else inputs:
        type_ = without_minima((types or {}).get(symbol.id, replay.type_of(symbol)), new.metadata)
        name = (names or {}).get(symbol.name, symbol.name)
        made = new.build.input(type_, new.names.claim(name, "input"), symbol.producer.origin)
        replay.bind(symbol, made, is_altered=not is_input(symbol))
        held = old.buffers.get(symbol.given_name or "")
        if held is not None and is_input(symbol):
            new.build.buffer(name, _in_dims(held.buffer, type_), made)
            new.memory.values["buffer", id(held)] = new.buffers[name]
    return replay


def _rename_minima(graph: Graph, dims: Mapping[str, Dim]) -> None:
    """Note the least sizes of dims under the names that these have now."""
    known = minima(graph.metadata)
    if not known or not dims:
        return
    named = {dims.get(name, Dim(name)).name: least for name, least in known.items()}
    graph.metadata[NOTE] = json.dumps({name: least for name, least in named.items() if name}, sort_keys=True)


def _in_dims(buffer: Buffer, type_: Type) -> Buffer:
    """Return a buffer like another one, of a type of the same dtype."""
    if buffer.type is type_ or not isinstance(type_, TensorType):
        return buffer
    return Buffer(type_.dtype, type_.shape, initial=buffer.initial, in_place=buffer.in_place)


def finish(replay: Replay, outputs: Iterable[tuple[str, Symbol]] | None = None) -> Graph:
    """Make the nodes that outputs and buffers need, set the outputs, and return the new graph.

    outputs: names and Symbols of the old graph, by default its own outputs.
    """
    old, new = replay.old, replay.new
    own = [(name or s.name, s) for name, s in old.named_outputs] if outputs is None else [*outputs]
    kept = {name: held for name, held in old.buffers.items() if ("buffer", id(held)) in new.memory.values}
    replay.run([*(s for _, s in own), *(held.value for held in kept.values())])
    for held in kept.values():
        new.memory.values["buffer", id(held)].value = replay.of(held.value)  # type: ignore[attr-defined]
    for label, symbol in old.watched.items():
        if symbol.graph is old and replay.is_bound(symbol):
            new.watched[label] = replay.of(symbol)
    set_outputs(new, [(name, replay.of(s)) for name, s in own])
    return new


def set_outputs(graph: Graph, outputs: Sequence[tuple[str, Symbol]]) -> None:
    """Set the outputs, whose values get their names where they have none. Raises `GraphError` for names in use."""
    for name, symbol in outputs:
        graph.names.check_output(name, symbol)
        if symbol.given_name is None and isinstance(symbol.producer, Node) and name not in graph.names.taken:
            graph.names.rename(symbol, name)
    repeated = [name for i, (name, _) in enumerate(outputs) if name in [n for n, _ in outputs[:i]]]
    if repeated:
        raise GraphError(f"output: the name {repeated[0]!r} is given twice", help="choose another name")
    graph.build.outputs([(name, symbol) for name, symbol in outputs])


def is_input(symbol: Symbol) -> bool:
    """Return whether a Symbol is an input of its graph."""
    return any(symbol is s for s in symbol.graph.input_symbols)


def value_of(graph: Graph, what: str, value: object) -> Symbol:
    """Return the Symbol of a graph for a name of an output, input, weight or other value, or for one of its Symbols.

    Raises `GraphError` where there is none.
    """
    if isinstance(value, Symbol):
        if value.graph is not graph:
            raise GraphError(
                f"{what}: the value belongs to graph {value.graph.name!r}, not to this one",
                operands={"value": value},
                help="give a value of the graph itself, by its Symbol or name; values in bodies cannot be reached",
            )
        return graph.symbols[value.id]
    if isinstance(value, str):
        for name, symbol in graph.named_outputs:
            if name == value:
                return symbol
        try:
            found = graph[value]
        except GraphError as error:
            raise GraphError(f"{what}: no value of graph {graph.name!r} is called {value!r}", help=error.help) from None
        return graph.symbols[found.id]
    raise GraphError(f"{what}: a {type(value).__name__} is no value of a graph", help="give a name or a Symbol")


__all__ = ["finish", "is_input", "replica", "set_outputs", "value_of"]
