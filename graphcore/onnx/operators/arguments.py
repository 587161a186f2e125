"""Attributes and bodies of an operator as users write them, checked and brought to the kinds of its schema."""

from __future__ import annotations

import inspect
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphcore.errors import DTypeError, GraphError
from graphcore.ir.definitions import body, finish
from graphcore.ir.graph import Graph
from graphcore.ir.literals import array_of, checked_cast, holds_numpy, python_dtype
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Symbol
from graphcore.onnx.proto.model_proto import attribute as encode
from graphcore.onnx.proto.type_protos import joined
from graphcore.onnx.schemas.catalogue import KINDS, Attribute, Entry
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, TensorType, Type, known_type

_TAKEN: dict[int, str] = {
    KINDS.INT: "an int of 64 bits, or a DType that ONNX has",
    KINDS.INTS: "a list of ints",
    KINDS.FLOAT: "a number that float32 holds",
    KINDS.FLOATS: "a list of numbers that float32 holds",
    KINDS.STRING: "a str",
    KINDS.STRINGS: "a list of str",
    KINDS.TENSOR: "an array",
    KINDS.SPARSE_TENSOR: "an array, dense",
    KINDS.GRAPH: "a function of Symbols, or a Graph",
    KINDS.TYPE_PROTO: "a type, such as TensorType(DType.float32, [2])",
}


def encoded(of: Entry, said: Mapping[str, Any], graph: Graph) -> tuple[list[onnx.AttributeProto], dict[str, Any]]:
    """The attributes of a node, and those that are bodies, which are empty in it. Raises `GraphError`."""
    kinds = {a.name: a for a in of.attributes}
    made, bodies = [], {}
    for name, value in said.items():
        if kinds[name].kind == KINDS.GRAPH:
            if not isinstance(value, Graph) and not callable(value):
                raise _wrong(of, kinds[name], value)
            bodies[name] = value
            made.append(onnx.AttributeProto(name=name, type=KINDS.GRAPH, g=onnx.GraphProto()))
            continue
        content = _value(of, kinds[name], value, graph)
        if isinstance(content, list) and not content and kinds[name].kind != KINDS.INTS:
            continue  # an empty list of numbers or strings is what an absent one is
        if kinds[name].kind == KINDS.SPARSE_TENSOR:
            name = "value"  # constants are dense here
        made.append(onnx.AttributeProto.FromString(encode(name, content)))
    if of.op.name == "Constant" and not of.domain and len(made) != 1:
        raise GraphError(
            f"{of.label}: {len(made)} values are given",
            help=f"give one of {', '.join(kinds)}, with at least one element in a list",
        )
    return made, bodies


def _wrong(of: Entry, attribute: Attribute, value: Any) -> GraphError:
    return GraphError(
        f"{of.label}: attribute {attribute.name!r} is {value!r:.80}", help=f"give {_TAKEN[attribute.kind]}"
    )


def _value(of: Entry, attribute: Attribute, value: Any, graph: Graph) -> Any:
    """The value, of the attribute's kind."""
    kind = attribute.kind
    if kind in (KINDS.TENSOR, KINDS.SPARSE_TENSOR):
        return _array(of, attribute, value, graph)
    if kind == KINDS.TYPE_PROTO:
        if not isinstance(value, (TensorType, SequenceType, OptionalType)):
            raise _wrong(of, attribute, value)
        return value
    convert = _OF_ONE[kind] if kind in _OF_ONE else _OF_ONE[_OF_MANY[kind]]
    try:
        if kind in _OF_ONE:
            return convert(value)
        if isinstance(value, (str, bytes, Mapping, Symbol)):
            raise TypeError
        return [convert(item) for item in value]
    except (TypeError, ValueError, OverflowError, struct.error):
        raise _wrong(of, attribute, value) from None


def _int(value: Any) -> int:
    if isinstance(value, (DType, np.dtype, type)):
        dtype = DType.of(value)
        if dtype.storage is not dtype:
            raise TypeError
        return dtype.onnx
    if isinstance(value, Symbol):
        raise TypeError
    found = operator.index(value)
    if not -(1 << 63) <= found < 1 << 63:
        raise OverflowError
    return int(found)


def _float(value: Any) -> float:
    if isinstance(value, (str, bytes, Symbol)):
        raise TypeError
    struct.pack("<f", value)  # single precision is what attributes have
    return float(value)


def _str(value: Any) -> str | bytes:
    if not isinstance(value, (str, bytes)):
        raise TypeError
    if isinstance(value, str):
        value.encode()  # lone surrogates have no UTF-8
    return value


_OF_ONE: dict[int, Callable[[Any], Any]] = {KINDS.INT: _int, KINDS.FLOAT: _float, KINDS.STRING: _str}
_OF_MANY: dict[int, int] = {KINDS.INTS: KINDS.INT, KINDS.FLOATS: KINDS.FLOAT, KINDS.STRINGS: KINDS.STRING}


def _array(of: Entry, attribute: Attribute, value: Any, graph: Graph) -> np.ndarray[Any, Any]:
    if value is None or isinstance(value, (Symbol, Graph)):
        raise _wrong(of, attribute, value)
    try:
        array, own = array_of(value)
    except DTypeError:
        raise _wrong(of, attribute, value) from None
    if not holds_numpy(value):
        wanted = python_dtype(array, own, graph.promotion)
        array = array if wanted is own else checked_cast(array, own, wanted, of.label)
    if of.op.name == "ConstantOfShape":
        array = array.reshape(-1) if array.ndim == 0 else array
        if array.shape != (1,):
            raise GraphError(f"{of.label}: value has the shape {list(array.shape)}", help="give one element")
    return array.copy()


@dataclass(frozen=True, slots=True)
class Body:
    """A body of a node in a graph, as errors call it."""

    label: str
    name: str
    graph: Graph
    depth: int

    def made(self, given: Any, types: Sequence[Type]) -> Graph:
        """The body whose inputs are of these types: what a function of Symbols gives, or a Graph as it is."""
        return self._of_graph(given, types) if isinstance(given, Graph) else self._of_function(given, types)

    def _of_function(self, function: Callable[..., Any], types: Sequence[Type]) -> Graph:
        _check_taken(function, len(types), f"{self.label}: {self.name}")
        inputs = {f"input{i}": known_type(type_) for i, type_ in enumerate(types)}
        with body(self.graph, self.name, inputs) as made:
            results = function(*made.inputs)
            listed = results if isinstance(results, (list, tuple)) else [results]
            if results is None or not listed:
                raise GraphError(f"{self.label}: {self.name} gives nothing", help="return one Symbol, or a list")
            return finish(made, [self._result(made, i, value) for i, value in enumerate(listed)])

    def _result(self, body: Graph, position: int, value: Any) -> Symbol:
        """Return what the function gave, of a dtype that is not only a default any more."""
        given = body.build.operand(value, self.label, f"{self.name}[{position}]")
        return settled(body.build.emit("Identity", (given,), given.type)) if given.ambiguous else given

    def _of_graph(self, given: Graph, types: Sequence[Type]) -> Graph:
        if given is self.graph or given.scope.outer not in (None, self.graph) or not given.outputs:
            raise GraphError(
                f"{self.label}: {self.name} is graph {given.name!r}, which is no body here",
                help="give a function of Symbols, or a Graph that has outputs and uses nothing of another",
            )
        if len(given.inputs) != len(types):
            raise GraphError(
                f"{self.label}: {self.name} has {len(given.inputs)} inputs, and {len(types)} are given",
                help="one for each operand",
            )
        for symbol, type_ in zip(given.inputs, types, strict=True):
            is_unknown = isinstance(type_, ForeignType) and not type_.onnx
            if not is_unknown and joined((symbol.type, type_)) != symbol.type:
                raise GraphError(
                    f"{self.label}: an input of {self.name} is {symbol.type}, and {type_} is given",
                    operands={"input": symbol},
                    help="declare it as it is in every turn, with '?' for dims that change",
                )
        if given.scope.outer is not None:
            return given
        made = given.copy()
        made.build.outputs([(name, made.symbols[s.id]) for name, s in given.named_outputs])
        made.scope.outer = self.graph
        made.scope.is_finished = True
        return made


def settled(symbol: Symbol) -> Symbol:
    """The Symbol itself, of a dtype that is not only a default any more: bodies and their nodes agree on dtypes."""
    return change(symbol, type=known_type(symbol.type))


def _check_taken(function: Callable[..., Any], count: int, what: str) -> None:
    """Raise `GraphError` for a function that is known not to take this many Symbols."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        found.bind(*[None] * count)
    except TypeError:
        raise GraphError(
            f"{what} does not take {count} Symbols: it is a function of {found}",
            help="give it a parameter for each that the operator gives its body",
        ) from None
