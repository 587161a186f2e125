"""The interface of a graph: inputs and outputs renamed, replaced and cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from graphcore.errors import GraphError, ShapeError
from graphcore.ir.buffers import Buffer
from graphcore.ir.definitions import names_of
from graphcore.ir.graph import Graph
from graphcore.ir.literals import array_of, checked_cast
from graphcore.ir.names import checked_name
from graphcore.ir.symbol import Constant, Input, Symbol
from graphcore.support.source_lines import user_origin
from graphcore.surgery.copying import finish, is_input, labelled_outputs, replica, value_of
from graphcore.surgery.replay import reads
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type


def with_outputs(graph: Graph, outputs: Values, named: Mapping[str, str | Symbol]) -> Graph:
    """Return a graph with other outputs. See `Graph.with_outputs`."""
    what = "with_outputs"
    ends = [*named_values(graph, what, outputs), *named_values(graph, what, named)]
    if not ends:
        raise GraphError("with_outputs: no outputs are given", help="give at least one name")
    return finish(replica(graph, what), ends)


def with_inputs(graph: Graph, inputs: Iterable[str | Symbol], more: Mapping[str, Type | Buffer]) -> Graph:
    """Return a graph with other inputs. See `Graph.with_inputs`."""
    what = "with_inputs"
    wanted = [*inputs]
    for each in wanted:
        if isinstance(each, str):
            refuse_folded(graph, what, each)
    chosen = named_values(graph, what, wanted)
    for name, symbol in chosen:
        refuse_folded(graph, what, symbol.name)
        is_weight = isinstance(symbol.producer, Constant)
        if not is_weight and not is_input(symbol):
            raise GraphError(
                f"{what}: {name!r} is neither an input nor a weight",
                operands={"value": symbol},
                help="cut the graph at it: graph.extract([...], outputs)",
            )
        if sum(symbol is s for _, s in chosen) > 1:
            raise GraphError(f"{what}: input {name!r} is given twice", help="give it once")
    ends = [s for _, s in graph.named_outputs]
    missing = [s for s in missing_inputs(graph, [s for _, s in chosen], ends) if s.given_name not in graph.buffers]
    if missing:
        names = ", ".join(repr(s.name) for s in missing)
        raise GraphError(
            f"{what}: {names} cannot be dropped, the outputs need it",
            operands={f"read by {reader}": s for reader, s in readers_of(graph, missing).items()},
            help=f"bind it: graph.with_constants({{{missing[0].name!r}: value}}), or drop the outputs that need it",
        )
    kept = [s for s in graph.input_symbols if s.given_name in graph.buffers and not any(s is c for _, c in chosen)]
    replay = replica(graph, what, inputs=[*(s for _, s in chosen), *kept])
    for name, given in more.items():
        type_ = given.type if isinstance(given, Buffer) else given
        made = replay.new.build.input(type_, replay.new.names.claim(name, "input"), user_origin())
        if isinstance(given, Buffer):
            replay.new.build.buffer(name, given, made)
    return finish(replay)


def refuse_folded(graph: Graph, what: str, name: str) -> None:
    """Raise `GraphError` for a weight that a pass made a constant of: the graph has what was computed from it."""
    found = graph.folded.get(name)
    if found is not None:
        raise GraphError(
            f"{what}: weight {name!r} cannot be replaced, optimize folded it: pass {found}",
            help=f"replace it before, or keep it: graph.optimize(keep=[{name!r}])",
        )


def with_constants(graph: Graph, values: Mapping[str, Any]) -> Graph:
    """Return a graph with constants in place of inputs. See `Graph.with_constants`."""
    what = "with_constants"
    bound: list[tuple[Symbol, np.ndarray[Any, Any]]] = []
    for name, value in values.items():
        symbol = next((s for s in graph.input_symbols if s.name == name), None)
        if symbol is None:
            names = ", ".join(repr(s.name) for s in graph.input_symbols) or "none"
            raise GraphError(f"{what}: no input is called {name!r}", help=f"the inputs: {names}")
        bound.append((symbol, fitting(what, name, symbol, value)))
    rest = [s for s in graph.input_symbols if not any(s is b for b, _ in bound)]
    types = {s.id: _in_dims(s.type, _dims_of(bound)) for s in rest}
    replay = replica(graph, what, inputs=rest, types=types)
    for symbol, array in bound:
        type_ = tensor_type(symbol.dtype, Shape(array.shape))
        made = replay.new.build.symbol(type_, Constant(array, False, user_origin()))
        replay.bind(symbol, made)
    return finish(replay)


def with_weights(graph: Graph, arrays: Mapping[str, Any]) -> Graph:
    """Return a graph with other arrays for weights. See `Graph.with_weights`."""
    what = "with_weights"
    found = {name: s for name, s in graph.names.taken.items() if isinstance(s.producer, Constant)}
    replay = replica(graph, what)
    for name, value in arrays.items():
        refuse_folded(graph, what, name)
        symbol = found.get(name)
        if symbol is None:
            shown = ", ".join(map(repr, [*found][:8])) or "none"
            raise GraphError(f"{what}: no weight is called {name!r}", help=f"the weights: {shown}")
        array = fitting(what, name, symbol, value, any_shape=True)
        type_ = tensor_type(symbol.dtype, Shape(array.shape))
        made = replay.new.build.symbol(
            type_, Constant(array, True, user_origin()), replay.new.names.claim(name, "weight")
        )
        replay.bind(symbol, made)
    return finish(replay)


def fitting(what: str, name: str, symbol: Symbol, value: Any, *, any_shape: bool = False) -> np.ndarray[Any, Any]:
    """Return an array for a value of a graph, of its dtype. Raises `DTypeError`, `ShapeError` where it does not fit."""
    type_ = symbol.type
    if not isinstance(type_, TensorType):
        raise GraphError(f"{what}: {name!r} is {type_}, no tensor", operands={"value": symbol}, help="bind tensors")
    array, own = array_of(value, type_.dtype)
    if own is not type_.dtype:
        array = checked_cast(array, own, type_.dtype, f"{what}: {name!r}")
    shape = type_.shape
    fits = not shape.is_ranked or (
        len(shape) == array.ndim
        and all(not d.is_static or int(d) == n for d, n in zip(shape, array.shape, strict=True))
    )
    if not fits and not any_shape:
        raise ShapeError(
            f"{what}: {name!r} has shape {shape}, and the value {list(array.shape)}",
            operands={"value": symbol},
            help="give an array of that shape",
        )
    return array


def _dims_of(bound: list[tuple[Symbol, np.ndarray[Any, Any]]]) -> dict[str, int]:
    """Return the sizes that arrays give to names of dims."""
    found: dict[str, int] = {}
    for symbol, array in bound:
        for dim, size in zip(symbol.shape, array.shape, strict=False) if symbol.shape.is_ranked else ():
            if dim.name is not None and found.setdefault(dim.name, size) != size:
                raise ShapeError(
                    f"with_constants: dim {dim} is {found[dim.name]} and {size}",
                    operands={"value": symbol},
                    help="give arrays whose dims of one name are equal",
                )
    return found


def _in_dims(type_: Type, dims: Mapping[str, int]) -> Type:
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked or not dims:
        return type_
    return tensor_type(type_.dtype, type_.shape.substitute(dims), type_.ambiguous)


# A part of a graph, between some values and others.

Value: TypeAlias = "str | Symbol"
"""A value of a graph: its name, or its Symbol."""
Values: TypeAlias = "Value | Iterable[Value] | Mapping[str, Value]"
"""Some of them, or some by names that they get."""


def extract(graph: Graph, inputs: Values | None, outputs: Values) -> Graph:
    """Return the part of a graph that computes values from others. See `Graph.extract`."""
    what = "extract"
    ends = named_values(graph, what, outputs)
    if not ends:
        raise GraphError("extract: no outputs are given", help="name what the part is to give: outputs=['features']")
    starts = None if inputs is None else named_values(graph, what, inputs)
    given = [] if starts is None else [s for _, s in starts]
    for name, symbol in starts or ():
        if sum(symbol is s for s in given) > 1:
            raise GraphError(f"extract: input {name!r} is given twice", operands={"value": symbol}, help="give it once")
    missing = missing_inputs(graph, given, [s for _, s in ends])
    kept = [s for s in missing if starts is None or s.given_name in graph.buffers]
    if len(kept) < len(missing):
        readers = readers_of(graph, [s for s in missing if s not in kept])
        names = ", ".join(repr(s.name) for s in missing if not any(s is k for k in kept))
        raise GraphError(
            f"extract: the outputs also need {names}",
            operands={f"read by {reader}": s for reader, s in readers.items()},
            help=f"add to the inputs: {names}; or cut at values that come after",
        )
    others = {s.name: name for name, s in starts or () if s.name != name}
    replay = replica(graph, what, inputs=[*given, *kept], names=others)
    return finish(replay, ends)


def named_values(graph: Graph, what: str, values: Values) -> list[tuple[str, Symbol]]:
    """Return values with the names that they get: their own, or the keys of a mapping. Raises `GraphError`."""
    if isinstance(values, Mapping):
        return [(name, value_of(graph, what, value)) for name, value in values.items()]
    given = [values] if isinstance(values, (str, Symbol)) else [*values]
    made = []
    for value in given:
        symbol = value_of(graph, what, value)
        made.append((value if isinstance(value, str) else label_of(graph, symbol), symbol))
    return made


def label_of(graph: Graph, symbol: Symbol) -> str:
    """Return the name of the output that a Symbol is, or its own."""
    return next((name for name, s in graph.named_outputs if s is symbol and name), symbol.name)


def missing_inputs(graph: Graph, given: list[Symbol], ends: list[Symbol]) -> list[Symbol]:
    """Return the inputs that values need beside those given, in their order; buffers with what they store."""
    stops = {s.id for s in given}
    used: set[int] = set()
    waiting = [s for s in ends if s.id not in stops]
    makers = {s.id: node for node in graph.nodes for s in node.outputs}
    while waiting:
        symbol = waiting.pop()
        if symbol.id in used:
            continue
        used.add(symbol.id)
        node = makers.get(symbol.id)
        if node is not None:
            waiting += [s for s in reads(node) if s.id not in stops]
        held = graph.buffers.get(symbol.given_name or "") if isinstance(symbol.producer, Input) else None
        if held is not None and held.value.id not in stops:
            waiting.append(graph.symbols[held.value.id])
    return [s for s in graph.input_symbols if s.id in used]


def readers_of(graph: Graph, symbols: list[Symbol]) -> dict[str, Symbol]:
    """Return the first node that reads each Symbol, in words, with the Symbol."""
    found: dict[str, Symbol] = {}
    for symbol in symbols:
        node = next((n for n in graph.nodes if any(s is symbol for s in reads(n))), None)
        found[f"{node.op_type} {node.outputs[0].name!r}" if node and node.outputs else "an output"] = symbol
    return found


# Other names for the values and the dims of a graph.


def rename(
    graph: Graph,
    names: Mapping[str, str],
    values: Mapping[str, str],
    dims: Mapping[str, str],
) -> Graph:
    """Return a graph with other names. See `Graph.rename`."""
    known = set(names_of(dict.fromkeys(s.type for s in graph.symbols)))
    values, dims = dict(values), dict(dims)
    for old, new in names.items():
        is_value = _is_value(graph, old)
        if is_value and old in known:
            raise GraphError(
                f"rename: {old!r} is a value and a dim",
                help=f"say which: rename(values={{{old!r}: {new!r}}}) or rename(dims={{{old!r}: {new!r}}})",
            )
        (dims if old in known else values)[old] = new
    _check_dims(known, dims)
    _check_values(graph, values)
    labels = {name or s.name for name, s in graph.named_outputs}
    replay = replica(graph, "rename", names=values, dims={old: Dim(new) for old, new in dims.items()})
    made = finish(replay, [(values.get(name, name), s) for name, s in labelled_outputs(graph)])
    for old, new in values.items():
        symbol = None if old in labels else replay.of(value_of(graph, "rename", old))
        if symbol is not None and symbol.name != new:
            made.names.rename(symbol, new)
    return made


def _is_value(graph: Graph, name: str) -> bool:
    try:
        value_of(graph, "rename", name)
    except GraphError:
        return False
    return True


def _check_dims(known: set[str], dims: Mapping[str, str]) -> None:
    for old, new in dims.items():
        if old not in known:
            raise GraphError(f"rename: no dim is called {old!r}", help=f"the dims: {_shown(known)}")
        try:
            is_name = Dim(new).name is not None
        except (ValueError, TypeError):
            is_name = False
        if not is_name:
            raise GraphError(
                f"rename: {new!r} is no name of a dim", help="a number or an expression: graph.with_dims(...)"
            )
        if new in known and new not in dims:
            raise GraphError(
                f"rename: there is a dim {new!r} already",
                help=f"to make both one: graph.with_dims({old}={new!r})",
            )
    if len({*dims.values()}) != len(dims):
        raise GraphError("rename: two dims would have one name", help="to make both one: graph.with_dims(...)")


def _shown(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _check_values(graph: Graph, values: Mapping[str, str]) -> None:
    for old, new in values.items():
        value_of(graph, "rename", old)
        checked_name(new, "rename")
        other = graph.names.taken.get(new)
        if other is not None and new not in values and new != old:
            raise GraphError(f"rename: the name {new!r} is taken", operands={"taken by": other}, help="choose another")
    if len({*values.values()}) != len(values):
        raise GraphError("rename: two values would have one name", help="choose another name for one")
