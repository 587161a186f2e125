"""Call a Graph on Symbols of another graph: its nodes are inlined there, or become a function that it calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from graphcore.build import operands
from graphcore.build.functions import DeclaredWeight, traced
from graphcore.build.functions import call as call_function
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.buffers import BufferValue
from graphcore.ir.definitions import names_of, outermost, substituted, with_own
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, Symbols, present
from graphcore.promotion import implicit_cast_type
from graphcore.support.escaping import escaped
from graphcore.support.source_lines import user_origin
from graphcore.surgery.replay import Replay
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type


def call(
    model: Graph,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    implicit_casts: bool = False,
    as_function: bool = False,
    layer: str | None = None,
    what: str = "",
) -> Symbol | Symbols:
    """Build the nodes of `model` in the graph of the operands. See `Graph.__call__`. what: named in errors."""
    what = what or f"call of graph {model.name!r}"
    model.verify()
    values = _bind_args(what, model, args, kwargs)
    graph = _graph_of(what, model, values)
    inputs = inputs_of(model)
    symbols = {k: _operand(what, graph, k, wanted, values[k], implicit_casts) for k, wanted in inputs.items()}
    symbols = _rebind(inputs, symbols, unify_dims(what, inputs, {label: s.type for label, s in symbols.items()}))
    graph.build.end_expressions([*symbols.values()])
    name = model.name if layer is None else layer
    results = (
        _as_function(what, graph, model, name, [*symbols.values()])
        if as_function
        else inline(what, graph, model, name, symbols)
    )
    return results[0] if len(results) == 1 else Symbols(results, model.outputs.names)


def inputs_of(model: Graph) -> dict[str, Symbol]:
    """Return the inputs by name, without those of buffers, which are declared automatically."""
    return {s.name: s for s in model.input_symbols if s.given_name not in model.buffers}


def _bind_args(what: str, model: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operands by input name. Raises `GraphError` for missing, surplus and unknown operands."""
    labels = [*inputs_of(model)]
    for mapping in args if len(args) == 1 else ():
        if isinstance(mapping, Mapping):
            args, kwargs = (), {**mapping, **kwargs}
    values = dict(zip(labels, args, strict=False))
    taken = f"it takes {', '.join(f'{n}: {s.type}' for n, s in inputs_of(model).items()) or 'none'}"
    if len(args) > len(labels):
        raise GraphError(f"{what}: got {len(args)} operands for {len(labels)} inputs", help=taken)
    for label, value in kwargs.items():
        if label not in labels:
            raise GraphError(f"{what}: there is no input {label!r}", help=taken)
        if label in values:
            raise GraphError(f"{what}: input {label!r} is given twice", help="give it by position or by name, not both")
        values[label] = value
    values = {**model.defaults, **values}
    missing = [label for label in labels if label not in values]
    if missing:
        raise GraphError(f"{what}: missing operands for {', '.join(map(repr, missing))}", help=taken)
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
    """Return an operand as a Symbol of the input's dtype. Raises `DTypeError`."""
    type_ = wanted.type
    is_plain = type(value) in (bool, int, float, complex) or value is wanted.graph.defaults.get(label)
    if isinstance(type_, TensorType) and is_plain:
        return graph.constant(value, type_.dtype)
    if isinstance(type_, TensorType) and isinstance(value, list):
        value = np.asarray(value, type_.dtype.numpy)
    operand = graph.build.operand(value, what, f"input {label}")
    if isinstance(value, BufferValue):
        operand = value.value
    if not isinstance(type_, TensorType) or not isinstance(operand.type, TensorType):
        if type(type_) is not type(operand.type):
            raise DTypeError(
                f"{what}: input {label!r} is {type_}, got {operand.type}",
                operands={f"input {label}": wanted, "given": operand},
                help="pass a value of that type",
            )
        return operand
    if operand.dtype is type_.dtype:
        return operand
    fix = f"cast it: .cast({type_.dtype}), or call it with implicit_casts=True"
    if implicit_casts:
        joined = implicit_cast_type(operand.dtype, type_.dtype, graph.promotion)
        if joined is type_.dtype:
            operands.report_lossy(graph, what, {f"input {label}": (operand, joined)})
            return operands.cast_operand(operand, joined)
        fix = f"they meet in {joined} under {graph.promotion}; cast it yourself: .cast({type_.dtype})"
    raise DTypeError(
        f"{what}: input {label!r} is {type_.dtype}, got {operand.dtype}",
        operands={f"input {label}": wanted, "given": operand},
        help=fix,
    )


# Dims


def unify_dims(what: str, inputs: Mapping[str, Symbol], types: Mapping[str, Type]) -> dict[str, Dim]:
    """Return the actual dims for the dim names in the types of inputs.

    Raises `ShapeError` if an operand's dim is known to differ from the input's.
    """
    dims: dict[str, Dim] = {}
    owner: dict[str, str] = {}
    for label, symbol in inputs.items():
        for dim, actual in dim_pairs(symbol.type, types[label]):
            if dim.name is not None and (dim.name not in dims or dims[dim.name].is_dynamic):
                dims[dim.name], owner[dim.name] = actual, label
    for label, symbol in inputs.items():
        a, b = symbol.type, types[label]
        if not isinstance(a, TensorType) or not isinstance(b, TensorType) or not a.shape.is_ranked:
            continue
        details = {f"input {label}": symbol, "given": str(b)}
        if not b.shape.is_ranked or len(a.shape) != len(b.shape):
            rank = f"has rank {len(b.shape)}" if b.shape.is_ranked else "has no known rank"
            raise ShapeError(
                f"{what}: input {label!r} has rank {len(a.shape)}, and the operand {rank}",
                operands=details,
                help="reshape it; if its dims are known only at run time, declare them with .rebind(...)",
            )
        for axis, (dim, actual) in enumerate(zip(a.shape, b.shape, strict=True)):
            if dim.is_dynamic or not dim.parameters <= dims.keys():
                continue
            expected = dim.substitute(dims)
            if expected == actual or expected.is_dynamic or actual.is_dynamic:
                continue
            why = f", which is {dims[dim.name]} in input {owner[dim.name]!r}" if dim.name in owner else ""
            raise ShapeError(
                f"{what}: dim {axis} of input {label!r} is {dim}{why}, got {actual}",
                operands=details,
                help="give it that shape; if the dim is known only at run time, declare it with .rebind(...). "
                "Graph.with_dims changes the dims of the inputs",
            )
    return dims


def _rebind(inputs: Mapping[str, Symbol], symbols: Mapping[str, Symbol], dims: Mapping[str, Dim]) -> dict[str, Symbol]:
    """Return operands with the dims of the inputs: dims known only at run time are checked there."""
    rebound = {}
    names = {name for dim in dims.values() for name in dim.parameters}  # of the actual dims
    for label, symbol in symbols.items():
        expected = [dim.substitute(dims) for dim, _ in dim_pairs(inputs[label].type, symbol.type)]
        needs_check = [
            a.is_dynamic and not e.is_dynamic and e.parameters <= names
            for e, (_, a) in zip(expected, dim_pairs(inputs[label].type, symbol.type), strict=True)
        ]
        if any(needs_check):
            actual = symbol.shape
            wanted = [e if check else a for e, a, check in zip(expected, actual, needs_check, strict=True)]
            symbol = symbol.rebind(wanted, message=f"input {label!r}")
        rebound[label] = symbol
    return rebound


def dim_pairs(a: Type, b: Type) -> list[tuple[Dim, Dim]]:
    """Return the dims of two tensors of one known rank in pairs; none for other types."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return []
    if not a.shape.is_ranked or not b.shape.is_ranked or len(a.shape) != len(b.shape):
        return []
    return list(zip(a.shape, b.shape, strict=True))


# The nodes


def inline(what: str, graph: Graph, model: Graph, layer: str, symbols: Mapping[str, Symbol]) -> list[Symbol]:
    """Build the nodes of `model` in `graph`, and return its outputs there.

    layer: of the nodes, "" for none. symbols: by input name, of the inputs' dtypes. Raises `ShapeError` if dims do
    not match.
    """
    inputs = inputs_of(model)
    dims = unify_dims(what, inputs, {label: s.type for label, s in symbols.items()})
    inner_names = [name for name in names_of(s.type for s in model.symbols) if name not in dims]
    with graph.layer(layer) if layer else nullcontext():
        site = graph.site
        prefix = site.layer
        if inner_names and (prefix or not {*names_of(s.type for s in graph.symbols)}.isdisjoint(inner_names)):
            dims = with_own(dims, inner_names, prefix or f"{model.name}/")
        replay = Replay(model, graph, what, prefix=prefix, dims=dict(dims))
        for label, symbol in symbols.items():
            own_symbol = graph.build.own(symbol, what, f"input {label}")
            replay.bind(inputs[label], own_symbol, is_altered=own_symbol.is_constant)
        declare_buffers(replay)
        buffer_values = [buffer.value for buffer in model.buffers.values()]
        results = [s for _, s in model.named_outputs]
        replay.make([*results, *buffer_values, *model.watched.values()])
        store_buffers(replay)
    for label, symbol in model.watched.items():
        if symbol.graph is model:
            graph.watched[f"{prefix}{label}"] = replay.of(symbol)
    graph.site.has_untyped |= model.site.has_untyped
    for domain, version in model.opsets.items():
        graph.opsets[domain] = max(version, graph.opsets.get(domain, 0))
    return [replay.of(s) for s in results]


def _as_function(what: str, graph: Graph, model: Graph, name: str, symbols: Sequence[Symbol]) -> list[Symbol]:
    """Call a graph as a function; the calling graph caches it by the types it is traced for."""
    if model.buffers:
        raise GraphError(
            f"{what}: graph {model.name!r} has buffers, and functions cannot have buffers",
            help="call it without as_function=True, or pass the contents of its buffers as operands",
        )
    inputs = inputs_of(model)
    dims = unify_dims(what, inputs, {label: s.type for label, s in zip(inputs, symbols, strict=True)})
    declared: dict[str, Type] = {}
    for label, symbol, operand in zip(inputs, inputs.values(), symbols, strict=True):
        declared[label] = symbol.type if substituted(symbol.type, dims) is operand.type else operand.type
    if any(declared[label] is not s.type for label, s in inputs.items()):
        declared = {label: s.type for label, s in zip(inputs, symbols, strict=True)}
        dims = {name: Dim(name) for name in names_of(declared.values())}

    def build(parameters: Sequence[Symbol]) -> Any:
        return tuple(inline(what, parameters[0].graph, model, "", dict(zip(inputs, parameters, strict=True))))

    root = outermost(graph)
    key = ("function of", id(model), len(model.nodes), tuple(declared.values()))
    cached = root.memory.functions.get(key)
    if cached is None:
        cached = root.memory.functions[key] = model, traced(name, declared, graph, build)

    def weight(path: str, own: DeclaredWeight) -> Symbol:
        symbol = root.memory.values.get((key, own.name))
        if symbol is None:
            symbol = root.memory.values[key, own.name] = root.weight(
                escaped(f"{path}/{own.name}"), own.array, own.dtype
            )
        return graph.build.own(symbol, what, own.name)

    return [*call_function(graph, name, cached[1], symbols, dims, weight)]


# The buffers of a graph that is called, in the graph that calls it.


def declare_buffers(replay: Replay) -> None:
    """Declare the buffers of the old graph in the new one, before its nodes are built.

    A graph that is called again shares its buffers with the first call, contents included.
    """
    new = replay.new
    if replay.old.buffers and new.scope.outer is not None:
        raise GraphError(
            f"{replay.what}: graph {replay.old.name!r} has buffers, so it cannot be called in a body",
            help="call it outside of the body, or make its buffers inputs and outputs",
        )
    for name, buffer_value in replay.old.buffers.items():
        symbol = replay.old.names.taken[name]
        key = ("buffer", id(buffer_value))
        new_value = new.memory.values.get(key)
        if not isinstance(new_value, BufferValue):
            free = present(replay.free_name(name, new, numbered=True))
            new_input = new.build.input(replay.type_of(symbol), free, user_origin())
            new.build.buffer(free, buffer_value.buffer, new_input)
            new_value = new.memory.values[key] = new.buffers[free]
        replay.bind(symbol, new_value.value, is_altered=False)


def store_buffers(replay: Replay) -> None:
    """Store to the buffers what the old graph stores, after its nodes are built."""
    for buffer_value in replay.old.buffers.values():
        new_value = replay.new.memory.values[("buffer", id(buffer_value))]
        assert isinstance(new_value, BufferValue)
        new_value.value = replay.of(buffer_value.value)
