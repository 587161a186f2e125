"""Copy a graph into a new one: the start and the end of every edit of a graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from graphcore.errors import DTypeError, GraphcoreError, GraphError, ShapeError
from graphcore.ir.buffers import Buffer, BufferValue
from graphcore.ir.graph import Graph
from graphcore.ir.literals import default_array
from graphcore.ir.state.settings import NOTE, minima, without_minima
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import like
from graphcore.support.source_lines import user_origin
from graphcore.surgery.calling import call, inputs_of
from graphcore.surgery.replay import Edit, Replay
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
    buffers: Mapping[str, Buffer] | None = None,
    kind: type[Replay] = Replay,
    policy: Edit | None = None,
) -> Replay:
    """Return a replay into a new graph that has inputs, buffers and metadata, and no nodes yet.

    inputs: of the new graph, by default all; they may be any Symbols of the old graph. types: new types of inputs, by
    symbol id. names, dims: replacements for names of values and dims. buffers: replacements by name. kind: the class of
    the replay.
    """
    new = like(old)
    if new.file_fields is not None:
        new.file_fields = new.file_fields.renamed(names or {})
    new.site.has_untyped = old.site.has_untyped
    _rename_minima(new, dims or {})
    replay = kind(old, new, what, policy, names=names, dims=dims)
    for symbol in old.input_symbols if inputs is None else inputs:
        type_ = without_minima((types or {}).get(symbol.id, replay.type_of(symbol)), new.metadata)
        name = (names or {}).get(symbol.name, symbol.name)
        default = old.defaults.get(symbol.given_name or "") if is_input(symbol) else None
        if default is not None and isinstance(type_, TensorType):
            default = default_array(type_, name, default)
        new_input = new.build.input(type_, new.names.claim(name, "input"), symbol.producer.origin, default)
        replay.bind(symbol, new_input, is_altered=not is_input(symbol))
        buffer_value = old.buffers.get(symbol.given_name or "")
        if buffer_value is not None and is_input(symbol):
            buffer = (buffers or {}).get(symbol.name) or _in_dims(buffer_value.buffer, type_)
            new.build.buffer(name, buffer, new_input)
            new.memory.values["buffer", id(buffer_value)] = new.buffers[name]
    return replay


def _rename_minima(graph: Graph, dims: Mapping[str, Dim]) -> None:
    """Record the minimum sizes of dims under their new names."""
    sizes = minima(graph.metadata)
    if not sizes or not dims:
        return
    named = {dims.get(name, Dim(name)).name: least for name, least in sizes.items()}
    graph.metadata[NOTE] = json.dumps({name: least for name, least in named.items() if name}, sort_keys=True)


def _in_dims(buffer: Buffer, type_: Type) -> Buffer:
    """Return the buffer with another type of the same dtype."""
    if buffer.type is type_ or not isinstance(type_, TensorType):
        return buffer
    return Buffer(type_.dtype, type_.shape, initial=buffer.initial, in_place=buffer.in_place)


def finish(replay: Replay, outputs: Iterable[tuple[str, Symbol]] | None = None) -> Graph:
    """Build the nodes that outputs and buffers need, set the outputs, and return the new graph.

    outputs: names and Symbols of the old graph, by default its own outputs.
    """
    own = [*(replay.old.outputs.asdict().items() if outputs is None else outputs)]
    stored = [buffer_value.value for buffer_value in replay.old.buffers.values() if _has_buffer(replay, buffer_value)]
    replay.make([*(s for _, s in own), *stored])
    return conclude(replay, own)


def conclude(replay: Replay, outputs: Sequence[tuple[str, Symbol]] | None = None) -> Graph:
    """Set outputs, stores to buffers and watched values of the new graph, whose nodes exist, and return it.

    Outputs keep their names, whatever replaces their values. Raises `DTypeError` and `ShapeError` if the value stored
    to a buffer does not have the buffer's type.
    """
    old, new = replay.old, replay.new
    for name, buffer_value in old.buffers.items():
        if (
            _has_buffer(replay, buffer_value) and buffer_value.value is not old.names.taken[name]
        ):  # else nothing is stored to it
            new_value = new.memory.values["buffer", id(buffer_value)]
            assert isinstance(new_value, BufferValue)
            new_value.value = _stored_value(replay, new_value, buffer_value.value)
    for label, symbol in old.watched.items():
        if symbol.graph is old and replay.is_bound(symbol):
            new.watched[label] = replay.of(symbol)
    own = old.outputs.asdict().items() if outputs is None else outputs
    set_outputs(replay, [(name, replay.result(symbol)) for name, symbol in own])
    return new


def _has_buffer(replay: Replay, buffer_value: BufferValue) -> bool:
    """Return True if the new graph has this buffer of the old one."""
    return ("buffer", id(buffer_value)) in replay.new.memory.values


def _stored_value(replay: Replay, buffer_value: BufferValue, symbol: Symbol) -> Symbol:
    value = replay.result(symbol, buffer_value.buffer.type)
    if value.type == replay.type_of(symbol):
        return value
    name, a, b = buffer_value.name, buffer_value.buffer.type, value.type
    kind: type[GraphcoreError] | None = None
    if not isinstance(b, TensorType) or a.dtype is not b.dtype:
        kind = DTypeError
    elif not (a.shape.is_ranked and b.shape.is_ranked and len(a.shape) == len(b.shape)) or any(
        m.is_static and n.is_static and m != n for m, n in zip(a.shape, b.shape, strict=True)
    ):
        kind = ShapeError
    if kind is not None:
        raise kind(
            f"{replay.what}: buffer {name!r} is {a}, and the value stored to it has become {b}",
            operands={"buffer": buffer_value, "stored": value},
            help="replace the stored value by one of the buffer's type",
        )
    return value.rebind(a.shape, message=f"buffer {name!r}") if a.shape != b.shape else value


def set_outputs(replay: Replay, outputs: Sequence[tuple[str, Symbol]]) -> None:
    """Set the outputs, and name values that have no name. Raises `GraphError` for names in use."""
    for name, symbol in outputs:
        _give_name(replay, name, symbol)
    repeated = [name for i, (name, _) in enumerate(outputs) if name in [n for n, _ in outputs[:i]]]
    if repeated:
        raise GraphError(f"{replay.what}: output {repeated[0]!r} is given twice", help="choose another name")
    replay.new.build.outputs(outputs)


def _give_name(replay: Replay, label: str, symbol: Symbol) -> None:
    """Give an output's name to its value. The node's value that had the name loses it."""
    names = replay.new.names
    other = names.taken.get(label)
    if other is not None and other is not symbol:
        if not isinstance(other.producer, Node):
            raise GraphError(
                f"{replay.what}: the name of output {label!r} is taken",
                operands={"output": symbol, "taken by": other},
                help="give the other value another name",
            )
        names.release(other)
    if symbol.given_name is None and isinstance(symbol.producer, Node):
        names.rename(symbol, label)


def is_input(symbol: Symbol) -> bool:
    """Return True if a Symbol is an input of its graph."""
    return any(symbol is s for s in symbol.graph.input_symbols)


def value_of(graph: Graph, what: str, value: object) -> Symbol:
    """Return the Symbol of a graph for the name of an output, input, weight or other value, or for a Symbol of it.

    Raises `GraphError` if there is none.
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
            named_symbol = graph[value]
        except GraphError as error:
            raise GraphError(f"{what}: no value of graph {graph.name!r} is called {value!r}", help=error.help) from None
        return graph.symbols[named_symbol.id]
    raise GraphError(
        f"{what}: a value must be a name or a Symbol, got {type(value).__name__}", help="give a name or a Symbol"
    )


# Composition of two graphs: outputs of the first are inputs of the second.


def compose(
    first: Graph,
    second: Graph,
    connect: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    implicit_casts: bool = False,
) -> Graph:
    """Return a new graph that computes `first`, then `second` on its outputs.

    The result has the inputs of `first`, then the unconnected inputs of `second`; its outputs are the unconnected
    outputs of `first`, then those of `second`. If both graphs use a name for a value, that of `second` gets a layer
    prefix; dims of the same name are the same dim. Weights are shared by reference; buffers of both graphs are kept.

    Args:
        first: The graph that runs first.
        second: The graph that reads outputs of `first`.
        connect: Output names of `first` mapped to the input names of `second` that they feed. By default outputs
            feed the inputs of the same name; a single output feeds a single input.
        name: Of the result, by default that of `first`.
        implicit_casts: See `Graph.__call__`.

    Raises:
        GraphError: A name does not exist, or both graphs have an input or output of that name (see `Graph.rename`).
        DTypeError, ShapeError: A connected output and input have incompatible types.

    Example:
        composed = gc.compose(preprocess, model, {"pixels": "images"})
    """
    for graph in (first, second):
        if not isinstance(graph, Graph):
            raise GraphError(
                f"compose: both arguments must be Graphs, got {type(graph).__name__}",
                help="load the file first: Graph.load(path)",
            )
        graph.verify()
    chosen = _connections(first, second, connect)
    fed, own = inputs_of(second), inputs_of(first)
    inputs: dict[str, Type] = {label: s.type for label, s in own.items()}
    for label, symbol in fed.items():
        if label in chosen.values():
            continue
        if label in inputs:
            raise GraphError(
                f"compose: both graphs have an input {label!r}",
                operands={first.name: own[label], second.name: symbol},
                help=f"rename one: second.rename({{{label!r}: {label + '_2'!r}}}); or connect an output to it",
            )
        inputs[label] = symbol.type
    result = Graph(name or first.name, promotion=first.promotion, strict=first.strict)
    for label, type_ in inputs.items():
        default = (first if label in own else second).defaults.get(label)
        result.build.input(type_, result.names.claim(label, "input"), user_origin(), default)
    first_results = _by_name(first, call(first, [result[label] for label in own], {}, layer="", what="compose"))
    operands = {label: first_results[output] for output, label in chosen.items()}
    operands.update({label: result[label] for label in fed if label not in operands})
    results = _by_name(second, call(second, (), operands, implicit_casts=implicit_casts, layer="", what="compose"))
    outputs = {label: symbol for label, symbol in first_results.items() if label not in chosen}
    if both := outputs.keys() & results.keys():
        label = min(both)
        raise GraphError(
            f"compose: both graphs have an output {label!r}",
            operands={first.name: outputs[label], second.name: results[label]},
            help=f"rename one: second.rename({{{label!r}: {label + '_2'!r}}})",
        )
    _set_outputs(result, {**outputs, **results})
    return result


def _by_name(graph: Graph, results: Symbol | tuple[Symbol, ...]) -> dict[str, Symbol]:
    values = [results] if isinstance(results, Symbol) else [*results]
    return dict(zip(graph.outputs.names, values, strict=True))


def _set_outputs(graph: Graph, outputs: Mapping[str, Symbol]) -> None:
    for label, symbol in outputs.items():
        other = graph.names.taken.get(label)
        if other is not None and other is not symbol:
            raise GraphError(
                f"compose: the output name {label!r} is also the name of another value",
                operands={"output": symbol, "value": other},
                help="rename one of them with Graph.rename",
            )
    labelled = graph.names.of_outputs([*outputs.items()])
    graph.build.outputs(labelled)
    graph.names.claim_outputs(labelled)


def _connections(first: Graph, second: Graph, connect: Mapping[str, str] | None) -> dict[str, str]:
    """Return the inputs of the second graph by the outputs that feed them. Raises `GraphError`."""
    outputs, inputs = first.outputs.names, [*inputs_of(second)]
    summary = f"{first.name!r} gives {', '.join(outputs)}; {second.name!r} takes {', '.join(inputs)}"
    if connect is None:
        same = {label: label for label in outputs if label in inputs}
        if not same and len(outputs) == len(inputs) == 1:
            same = {outputs[0]: inputs[0]}
        if not same:
            raise GraphError(
                "compose: no output of the first graph has the name of an input of the second",
                help=f'name the connections: compose(first, second, {{"output": "input"}}); {summary}',
            )
        return same
    for output, label in connect.items():
        if output not in outputs:
            raise GraphError(f"compose: the first graph has no output {output!r}", help=summary)
        if label not in inputs:
            raise GraphError(f"compose: the second graph has no input {label!r}", help=summary)
    if len({*connect.values()}) != len(connect):
        raise GraphError("compose: connect feeds two outputs to one input", help=summary)
    if not connect:
        raise GraphError("compose: connect is empty, so no output feeds an input", help=summary)
    return dict(connect)
