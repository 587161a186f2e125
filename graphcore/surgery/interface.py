"""Change the interface of a graph: rename, replace and cut inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from graphcore.errors import GraphError, ShapeError
from graphcore.ir.buffers import Buffer
from graphcore.ir.definitions import names_of, substituted
from graphcore.ir.graph import Graph
from graphcore.ir.literals import array_of, checked_cast
from graphcore.ir.names import checked_name
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Constant, Input, Symbol
from graphcore.ir.transform.walk import reads
from graphcore.support.source_lines import user_origin
from graphcore.surgery.copying import finish, is_input, replica, value_of
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type


@method(Graph)
def with_outputs(self: Graph, *outputs: str | Symbol, **named: str | Symbol) -> Graph:
    """Return a new graph with these outputs, in this order, without nodes that they do not need.

    Args:
        outputs: Names or Symbols of outputs and other values.
        named: Names or Symbols of values by their new output names.

    Raises:
        GraphError: A value does not exist, or a name is in use.

    Example:
        model.with_outputs("logits", hidden="encoder/layer.11/add_7")
    """
    what = "with_outputs"
    ends = [*named_values(self, what, outputs), *named_values(self, what, named)]
    if not ends:
        raise GraphError("with_outputs: no outputs given", help="give at least one name")
    return finish(replica(self, what), ends)


@method(Graph)
def with_inputs(self: Graph, *inputs: str | Symbol, **more: Type | Buffer) -> Graph:
    """Return a new graph with these inputs, in this order. Buffers are kept.

    Args:
        inputs: Names or Symbols of inputs, and of weights, which become inputs. Other inputs are dropped.
        more: Types of additional, unused inputs by name.

    Raises:
        GraphError: An output needs a dropped input. Bind it with `with_constants`, or cut the graph with `extract`.

    Example:
        model.with_inputs("mask", "ids")
        model.with_inputs("x", "decoder.weight")
    """
    what = "with_inputs"
    for each in inputs:
        if isinstance(each, str):
            refuse_folded(self, what, each)
    chosen = named_values(self, what, inputs)
    for name, symbol in chosen:
        refuse_folded(self, what, symbol.name)
        is_weight = isinstance(symbol.producer, Constant)
        if not is_weight and not is_input(symbol):
            raise GraphError(
                f"{what}: {name!r} is neither an input nor a weight",
                operands={"value": symbol},
                help="make it an input of a part of the graph: graph.extract([...], outputs)",
            )
        if sum(symbol is s for _, s in chosen) > 1:
            raise GraphError(f"{what}: input {name!r} is given twice", help="give it once")
    ends = [s for _, s in self.named_outputs]
    missing = [s for s in missing_inputs(self, [s for _, s in chosen], ends) if s.given_name not in self.buffers]
    if missing:
        names = ", ".join(repr(s.name) for s in missing)
        raise GraphError(
            f"{what}: cannot drop {names}, because the outputs depend on {'it' if len(missing) == 1 else 'them'}",
            operands={f"read by {reader}": s for reader, s in readers_of(self, missing).items()},
            help=f"bind it: graph.with_constants({{{missing[0].name!r}: value}}), or drop the outputs that need it",
        )
    buffer_inputs = [
        s for s in self.input_symbols if s.given_name in self.buffers and not any(s is c for _, c in chosen)
    ]
    replay = replica(self, what, inputs=[*(s for _, s in chosen), *buffer_inputs])
    for name, spec in more.items():
        type_ = spec.type if isinstance(spec, Buffer) else spec
        new_input = replay.new.build.input(type_, replay.new.names.claim(name, "input"), user_origin())
        if isinstance(spec, Buffer):
            replay.new.build.buffer(name, spec, new_input)
    return finish(replay)


def refuse_folded(graph: Graph, what: str, name: str) -> None:
    """Raise `GraphError` for a weight that an optimization pass folded into another constant."""
    pass_name = graph.folded.get(name)
    if pass_name is not None:
        raise GraphError(
            f"{what}: weight {name!r} cannot be replaced, because optimize folded it (pass {pass_name})",
            help=f"replace it before optimize, or keep it: graph.optimize(keep=[{name!r}])",
        )


@method(Graph)
def with_constants(self: Graph, values: Mapping[str, Any] | None = None, **named: Any) -> Graph:
    """Return a new graph with constants instead of some inputs.

    Named dims get the sizes of the arrays, also in the other inputs.

    Args:
        values: Arrays or numbers by the names of inputs, of the same shapes. They are converted to the dtype of the
            input if it can represent them.
        named: Additional values by keyword.

    Raises:
        GraphError: A name does not exist.
        DTypeError: The dtype of the input cannot represent a value.
        ShapeError: A value has another shape.

    Example:
        model.with_constants(sampling_rate=16000)
    """
    what = "with_constants"
    bound: list[tuple[Symbol, np.ndarray[Any, Any]]] = []
    for name, value in {**(values or {}), **named}.items():
        symbol = next((s for s in self.input_symbols if s.name == name), None)
        if symbol is None:
            names = ", ".join(repr(s.name) for s in self.input_symbols) or "none"
            raise GraphError(f"{what}: no input is called {name!r}", help=f"the inputs: {names}")
        bound.append((symbol, fitting(what, name, symbol, value)))
    rest = [s for s in self.input_symbols if not any(s is b for b, _ in bound)]
    sizes = {name: Dim(size) for name, size in _dims_of(bound).items()}
    types = {s.id: substituted(s.type, sizes) for s in rest}
    replay = replica(self, what, inputs=rest, types=types)
    for symbol, array in bound:
        type_ = tensor_type(symbol.dtype, Shape(array.shape))
        constant = replay.new.build.symbol(type_, Constant(array, False, user_origin()))
        replay.bind(symbol, constant)
    return finish(replay)


@method(Graph)
def with_weights(self: Graph, weights: Mapping[str, Any]) -> Graph:
    """Return a new graph with other arrays for some weights, by reference.

    Args:
        weights: Arrays by name, of the dtype of the weight or of one whose values it can represent. For another shape,
            the types of consumers are inferred again.

    Raises:
        GraphError: There is no weight of that name.
        DTypeError: The dtype of the weight cannot represent a value.
        ShapeError: A consumer does not support the new shape.

    Example:
        model.with_weights({"head.weight": fine_tuned})
    """
    what = "with_weights"
    own = {name: s for name, s in self.names.taken.items() if isinstance(s.producer, Constant)}
    replay = replica(self, what)
    for name, value in weights.items():
        refuse_folded(self, what, name)
        symbol = own.get(name)
        if symbol is None:
            names = ", ".join(map(repr, [*own][:8])) or "none"
            raise GraphError(f"{what}: no weight is called {name!r}", help=f"the weights: {names}")
        array = fitting(what, name, symbol, value, any_shape=True)
        type_ = tensor_type(symbol.dtype, Shape(array.shape))
        weight = replay.new.build.symbol(
            type_, Constant(array, True, user_origin()), replay.new.names.claim(name, "weight")
        )
        replay.bind(symbol, weight)
    return finish(replay)


def fitting(what: str, name: str, symbol: Symbol, value: Any, *, any_shape: bool = False) -> np.ndarray[Any, Any]:
    """Return the array for a value of a graph, in its dtype. Raises `DTypeError`, `ShapeError` if it does not fit."""
    type_ = symbol.type
    if not isinstance(type_, TensorType):
        raise GraphError(
            f"{what}: {name!r} must be a tensor, got {type_}",
            operands={"value": symbol},
            help="only tensors can be constants: leave it an input",
        )
    array, own = array_of(value, type_.dtype)
    if own is not type_.dtype:
        array = checked_cast(array, own, type_.dtype, f"{what}: {name!r}")
    shape = type_.shape
    if not any_shape and not shape.allows(array.shape):
        raise ShapeError(
            f"{what}: {name!r} has shape {shape}, and the value {list(array.shape)}",
            operands={"value": symbol},
            help="give an array of that shape",
        )
    return array


def _dims_of(bound: list[tuple[Symbol, np.ndarray[Any, Any]]]) -> dict[str, int]:
    """Return the sizes of named dims, from the shapes of arrays."""
    sizes: dict[str, int] = {}
    for symbol, array in bound:
        for dim, size in zip(symbol.shape, array.shape, strict=False) if symbol.shape.is_ranked else ():
            if dim.name is not None and sizes.setdefault(dim.name, size) != size:
                raise ShapeError(
                    f"with_constants: dim {dim} is {sizes[dim.name]} and {size}",
                    operands={"value": symbol},
                    help="give arrays whose dims of the same name are equal",
                )
    return sizes


# The part of a graph between some values and others.

Value: TypeAlias = "str | Symbol"
"""A value of a graph: its name, or its Symbol."""
Values: TypeAlias = "Value | Iterable[Value] | Mapping[str, Value]"
"""One or several values, or values by new name."""


@method(Graph)
def extract(self: Graph, inputs: Any = None, outputs: Any = ()) -> Graph:
    """Return a new graph of the part that computes some values from others.

    Names, source lines, layers and types are kept. Weights are the same arrays; unused ones are dropped. Buffers that
    are needed are kept.

    Args:
        inputs: The inputs of the part: names or Symbols of inputs, weights or results of nodes, or a mapping of them by
            new names. By default the inputs of the graph that are needed.
        outputs: The outputs of the part, in the same form.

    Raises:
        GraphError: A value does not exist, or an output needs an input that is not in `inputs`.

    Source: `onnx.utils.extract_model`.

    Example:
        backbone = model.extract(["images"], ["features"])
        head = model.extract({"features": "features"}, model.outputs)
    """
    what = "extract"
    ends = named_values(self, what, outputs)
    if not ends:
        raise GraphError("extract: no outputs given", help="name the outputs of the part: outputs=['features']")
    starts = None if inputs is None else named_values(self, what, inputs)
    start_symbols = [] if starts is None else [s for _, s in starts]
    for name, symbol in starts or ():
        if sum(symbol is s for s in start_symbols) > 1:
            raise GraphError(f"extract: input {name!r} is given twice", operands={"value": symbol}, help="give it once")
    missing = missing_inputs(self, start_symbols, [s for _, s in ends])
    added = [s for s in missing if starts is None or s.given_name in self.buffers]
    if len(added) < len(missing):
        readers = readers_of(self, [s for s in missing if s not in added])
        names = ", ".join(repr(s.name) for s in missing if not any(s is k for k in added))
        raise GraphError(
            f"extract: the outputs also depend on {names}",
            operands={f"read by {reader}": s for reader, s in readers.items()},
            help=f"add to the inputs: {names}; or cut at later values",
        )
    others = {s.name: name for name, s in starts or () if s.name != name}
    replay = replica(self, what, inputs=[*start_symbols, *added], names=others)
    return finish(replay, ends)


def named_values(graph: Graph, what: str, values: Values) -> list[tuple[str, Symbol]]:
    """Return values with their names: their own, or the keys of a mapping. Raises `GraphError`."""
    if isinstance(values, Mapping):
        return [(name, value_of(graph, what, value)) for name, value in values.items()]
    items = [values] if isinstance(values, (str, Symbol)) else [*values]
    result = []
    for value in items:
        symbol = value_of(graph, what, value)
        result.append((value if isinstance(value, str) else label_of(graph, symbol), symbol))
    return result


def label_of(graph: Graph, symbol: Symbol) -> str:
    """Return the output name of a Symbol, or its own name if it is not an output."""
    return next((name for name, s in graph.named_outputs if s is symbol and name), symbol.name)


def missing_inputs(graph: Graph, starts: list[Symbol], ends: list[Symbol]) -> list[Symbol]:
    """Return the inputs that `ends` depend on beside `starts`, in order; buffers include what they store."""
    stops = {s.id for s in starts}
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
        buffer_value = graph.buffers.get(symbol.given_name or "") if isinstance(symbol.producer, Input) else None
        if buffer_value is not None and buffer_value.value.id not in stops:
            waiting.append(graph.symbols[buffer_value.value.id])
    return [s for s in graph.input_symbols if s.id in used]


def readers_of(graph: Graph, symbols: list[Symbol]) -> dict[str, Symbol]:
    """Return each Symbol under a description of the first node that reads it."""
    readers: dict[str, Symbol] = {}
    for symbol in symbols:
        node = next((n for n in graph.nodes if any(s is symbol for s in reads(n))), None)
        readers[f"{node.op_type} {node.outputs[0].name!r}" if node and node.outputs else "an output"] = symbol
    return readers


# New names for the values and the dims of a graph.


@method(Graph)
def rename(
    self: Graph,
    names: Mapping[str, str] | None = None,
    *,
    values: Mapping[str, str] | None = None,
    dims: Mapping[str, str] | None = None,
) -> Graph:
    """Return a new graph with other names. Names may be swapped.

    Args:
        names: New names by old names, of inputs, outputs, weights, other values and dims.
        values: New names of values, for names that are also names of dims.
        dims: New names of dims, for names that are also names of values.

    Raises:
        GraphError: A name does not exist or is taken, or two dims would get the same name.

    Example:
        model.rename({"input.1": "image", "unk__0": "batch"})
    """
    dim_names = set(names_of(s.type for s in self.symbols))
    values, dims = dict(values or {}), dict(dims or {})
    for old, new in (names or {}).items():
        is_value = _is_value(self, old)
        if is_value and old in dim_names:
            raise GraphError(
                f"rename: {old!r} is both a value and a dim",
                help=f"say which: rename(values={{{old!r}: {new!r}}}) or rename(dims={{{old!r}: {new!r}}})",
            )
        (dims if old in dim_names else values)[old] = new
    _check_dims(dim_names, dims)
    _check_values(self, values)
    outputs = self.outputs.asdict()
    replay = replica(self, "rename", names=values, dims={old: Dim(new) for old, new in dims.items()})
    renamed = finish(replay, [(values.get(name, name), s) for name, s in outputs.items()])
    for old, new in values.items():
        symbol = None if old in outputs else replay.of(value_of(self, "rename", old))
        if symbol is not None and symbol.name != new:
            renamed.names.rename(symbol, new)
    return renamed


def _is_value(graph: Graph, name: str) -> bool:
    try:
        value_of(graph, "rename", name)
    except GraphError:
        return False
    return True


def _check_dims(dim_names: set[str], dims: Mapping[str, str]) -> None:
    for old, new in dims.items():
        if old not in dim_names:
            raise GraphError(
                f"rename: no dim is called {old!r}", help=f"the dims: {', '.join(sorted(dim_names)) or 'none'}"
            )
        try:
            is_name = Dim(new).name is not None
        except (ValueError, TypeError):
            is_name = False
        if not is_name:
            raise GraphError(
                f"rename: {new!r} is not a name of a dim", help="for a number or an expression use graph.with_dims(...)"
            )
        if new in dim_names and new not in dims:
            raise GraphError(
                f"rename: there is a dim {new!r} already",
                help=f"to merge the two: graph.with_dims({old}={new!r})",
            )
    if len({*dims.values()}) != len(dims):
        raise GraphError("rename: two dims would have the same name", help="to merge two dims use graph.with_dims(...)")


def _check_values(graph: Graph, values: Mapping[str, str]) -> None:
    for old, new in values.items():
        value_of(graph, "rename", old)
        checked_name(new, "rename")
        other = graph.names.taken.get(new)
        if other is not None and new not in values and new != old:
            raise GraphError(
                f"rename: the name {new!r} is taken", operands={"taken by": other}, help="choose another name"
            )
    if len({*values.values()}) != len(values):
        raise GraphError("rename: two values would have the same name", help="choose another name for one")
