"""The inputs, outputs and weights of a graph: dropped, added, put in another order, bound and replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graphcore.errors import GraphError, ShapeError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.ir.literals import array_of, held_as
from graphcore.ir.symbol import Constant, Symbol
from graphcore.support.source_lines import user_origin
from graphcore.surgery.copying import finish, is_input, replica
from graphcore.surgery.extracting import Values, missing_inputs, named_values, readers_of
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
        array = held_as(array, own, type_.dtype, f"{what}: {name!r}")
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
