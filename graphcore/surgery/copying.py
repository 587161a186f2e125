"""A graph made again as another one: the start and the end of every change of a graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.buffers import Buffer, BufferValue
from graphcore.ir.graph import Graph
from graphcore.ir.state.settings import NOTE, minima, without_minima
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import like
from graphcore.support.source_lines import user_origin
from graphcore.surgery.calling import call, output_names
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
    """Return a replay into a new graph that has inputs, buffers and notes, and no nodes yet.

    inputs: those that it has, by default all; they may be other Symbols of the old graph. types: of inputs that have
    another one, by number. names, dims: others for names of values and dims. buffers: others by name. kind: the replay.
    """
    new = like(old)
    new.site.has_untyped = old.site.has_untyped
    _rename_minima(new, dims or {})
    replay = kind(old, new, what, policy, names=names, dims=dims)
    for symbol in old.input_symbols if inputs is None else inputs:
        type_ = without_minima((types or {}).get(symbol.id, replay.type_of(symbol)), new.metadata)
        name = (names or {}).get(symbol.name, symbol.name)
        made = new.build.input(type_, new.names.claim(name, "input"), symbol.producer.origin)
        replay.bind(symbol, made, is_altered=not is_input(symbol))
        held = old.buffers.get(symbol.given_name or "")
        if held is not None and is_input(symbol):
            buffer = (buffers or {}).get(symbol.name) or _in_dims(held.buffer, type_)
            new.build.buffer(name, buffer, made)
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
    own = labelled_outputs(replay.old) if outputs is None else [*outputs]
    stored = [held.value for held in replay.old.buffers.values() if _is_kept(replay, held)]
    replay.make([*(s for _, s in own), *stored])
    return conclude(replay, own)


def conclude(replay: Replay, outputs: Sequence[tuple[str, Symbol]] | None = None) -> Graph:
    """Return the new graph, whose nodes are made, with outputs, stores to buffers and watched values.

    Outputs keep their names, whatever stands for their values. Raises `DTypeError` and `ShapeError` where what is
    stored to a buffer has another type than that.
    """
    old, new = replay.old, replay.new
    for name, held in old.buffers.items():
        if _is_kept(replay, held) and held.value is not old.names.taken[name]:  # else nothing is stored to it
            found = new.memory.values["buffer", id(held)]
            assert isinstance(found, BufferValue)
            found.value = _stored(replay, found, held.value)
    for label, symbol in old.watched.items():
        if symbol.graph is old and replay.is_bound(symbol):
            new.watched[label] = replay.of(symbol)
    made = [(name, replay.result(symbol)) for name, symbol in (labelled_outputs(old) if outputs is None else outputs)]
    set_outputs(replay, made)
    return new


def labelled_outputs(graph: Graph) -> list[tuple[str, Symbol]]:
    """Return the outputs of a graph with their names, in order."""
    return [(name or s.name, s) for name, s in graph.named_outputs]


def _is_kept(replay: Replay, held: BufferValue) -> bool:
    """Return whether the new graph has a buffer of the old one."""
    return ("buffer", id(held)) in replay.new.memory.values


def _stored(replay: Replay, held: BufferValue, symbol: Symbol) -> Symbol:
    made = replay.result(symbol, held.buffer.type)
    if made.type == replay.type_of(symbol):
        return made
    name, a, b = held.name, held.buffer.type, made.type
    fix = "give a value of that type there"
    if not isinstance(b, TensorType) or a.dtype is not b.dtype:
        raise DTypeError(
            f"{replay.what}: buffer {name!r} is {a}, and what is stored to it has become {b}",
            operands={"buffer": held, "stored": made},
            help=fix,
        )
    same = a.shape.is_ranked and b.shape.is_ranked and len(a.shape) == len(b.shape)
    if not same or any(m.is_static and n.is_static and m != n for m, n in zip(a.shape, b.shape, strict=True)):
        raise ShapeError(
            f"{replay.what}: buffer {name!r} is {a}, and what is stored to it has become {b}",
            operands={"buffer": held, "stored": made},
            help=fix,
        )
    return made.rebind(a.shape, message=f"buffer {name!r}") if a.shape != b.shape else made


def set_outputs(replay: Replay, outputs: Sequence[tuple[str, Symbol]]) -> None:
    """Set the outputs, whose values get their names where they have none. Raises `GraphError` for names in use."""
    for name, symbol in outputs:
        _give_name(replay, name, symbol)
    repeated = [name for i, (name, _) in enumerate(outputs) if name in [n for n, _ in outputs[:i]]]
    if repeated:
        raise GraphError(f"{replay.what}: output {repeated[0]!r} is given twice", help="choose another name")
    replay.new.build.outputs(outputs)


def _give_name(replay: Replay, label: str, symbol: Symbol) -> None:
    """Let an output's value have its name. What the output was before loses it."""
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


# Two graphs as one: outputs of the first are inputs of the second.


def compose(
    first: Graph,
    second: Graph,
    connect: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    implicit_casts: bool = False,
) -> Graph:
    """Return a new graph that computes `first`, and `second` on what it gives.

    connect: by the names of outputs of `first`, the names of the inputs of `second` that they feed. By default those
    of equal names, or the only output and the only input. The result has the inputs of `first`, then those of
    `second` that nothing feeds; and the outputs of `first` that feed nothing, then those of `second`. A name that both
    use is that of `second`'s value under a layer of its own; dims of one name are one dim. name: of the result, by
    default that of `first`. implicit_casts: see `Graph.__call__`. Weights are shared by reference, buffers come along.

    Raises `GraphError` for names that do not exist, and for inputs or outputs of both that have one name (see
    `Graph.rename`); `DTypeError` and `ShapeError` where what is connected does not go together.

        whole = gc.compose(preprocess, model, {"pixels": "images"})
    """
    first.verify()
    second.verify()
    chosen = _connections(first, second, connect)
    fed = {s.name: s for s in second.input_symbols if s.given_name not in second.buffers}
    own = {s.name: s for s in first.input_symbols if s.given_name not in first.buffers}
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
    whole = Graph(name or first.name, promotion=first.promotion, strict=first.strict)
    for label, type_ in inputs.items():
        whole.build.input(type_, whole.names.claim(label, "input"), user_origin())
    made = _by_name(first, call(first, [whole[label] for label in own], {}, layer="", what="compose"))
    given = {label: made[output] for output, label in chosen.items()}
    given.update({label: whole[label] for label in fed if label not in given})
    results = _by_name(second, call(second, (), given, implicit_casts=implicit_casts, layer="", what="compose"))
    outputs = {label: symbol for label, symbol in made.items() if label not in chosen}
    if both := outputs.keys() & results.keys():
        label = min(both)
        raise GraphError(
            f"compose: both graphs have an output {label!r}",
            operands={first.name: outputs[label], second.name: results[label]},
            help=f"rename one: second.rename({{{label!r}: {label + '_2'!r}}})",
        )
    _set_outputs(whole, {**outputs, **results})
    return whole


def _by_name(graph: Graph, made: Symbol | tuple[Symbol, ...]) -> dict[str, Symbol]:
    values = [made] if isinstance(made, Symbol) else [*made]
    return dict(zip(output_names(graph), values, strict=True))


def _set_outputs(graph: Graph, outputs: Mapping[str, Symbol]) -> None:
    for label, symbol in outputs.items():
        other = graph.names.taken.get(label)
        if other is not None and other is not symbol:
            raise GraphError(
                f"compose: an output and another value are called {label!r}",
                operands={"output": symbol, "value": other},
                help="rename one of them with Graph.rename",
            )
    labelled = graph.names.of_outputs([*outputs.items()])
    graph.build.outputs(labelled)
    graph.names.claim_outputs(labelled)


def _connections(first: Graph, second: Graph, connect: Mapping[str, str] | None) -> dict[str, str]:
    """Return the inputs of the second graph by the outputs that feed them. Raises `GraphError`."""
    outputs = output_names(first)
    inputs = [s.name for s in second.input_symbols if s.given_name not in second.buffers]
    shown = f"{first.name!r} gives {', '.join(outputs)}; {second.name!r} takes {', '.join(inputs)}"
    if connect is None:
        same = {label: label for label in outputs if label in inputs}
        if not same and len(outputs) == len(inputs) == 1:
            same = {outputs[0]: inputs[0]}
        if not same:
            raise GraphError(
                "compose: no output of the first graph has the name of an input of the second",
                help=f'say which feeds which: compose(first, second, {{"output": "input"}}); {shown}',
            )
        return same
    for output, label in connect.items():
        if output not in outputs:
            raise GraphError(f"compose: the first graph has no output {output!r}", help=shown)
        if label not in inputs:
            raise GraphError(f"compose: the second graph has no input {label!r}", help=shown)
    if len({*connect.values()}) != len(connect):
        raise GraphError("compose: two outputs feed one input", help=shown)
    if not connect:
        raise GraphError("compose: nothing is connected", help=shown)
    return dict(connect)
