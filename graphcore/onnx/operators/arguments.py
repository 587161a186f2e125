"""Check the attributes and bodies that users pass to an operator, and convert them to the kinds of its schema."""

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
from graphcore.ir.transform.rewrite import with_names
from graphcore.onnx.proto.model_proto import attribute as encode
from graphcore.onnx.proto.type_protos import join_types
from graphcore.onnx.schemas.catalogue import KINDS, Attribute, OperatorSpec
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, TensorType, Type, known_type


def encode_attributes(
    spec: OperatorSpec, attributes: Mapping[str, Any], graph: Graph
) -> tuple[list[onnx.AttributeProto], dict[str, Any]]:
    """Return a node's attributes, with empty graphs for its bodies, and the bodies. Raises `GraphError`."""
    kinds = {a.name: a for a in spec.attributes}
    protos, bodies = [], {}
    for name, value in attributes.items():
        if kinds[name].kind == KINDS.GRAPH:
            if not isinstance(value, Graph) and not callable(value):
                raise _wrong(spec, kinds[name], value)
            bodies[name] = value
            protos.append(onnx.AttributeProto(name=name, type=KINDS.GRAPH, g=onnx.GraphProto()))
            continue
        content = _value(spec, kinds[name], value, graph)
        if isinstance(content, list) and not content and kinds[name].kind != KINDS.INTS:
            continue  # an empty list of numbers or strings means that the attribute is absent
        if kinds[name].kind == KINDS.SPARSE_TENSOR:
            name = "value"  # constants are dense here
        protos.append(onnx.AttributeProto.FromString(encode(name, content)))
    if spec.op.name == "Constant" and not spec.domain and len(protos) != 1:
        raise GraphError(
            f"{spec.label}: exactly one value is required, got {len(protos)}",
            help=f"give one of {', '.join(kinds)}; a list needs at least one element",
        )
    return protos, bodies


def _wrong(spec: OperatorSpec, attribute: Attribute, value: Any) -> GraphError:
    return GraphError(
        f"{spec.label}: attribute {attribute.name!r} must be {attribute.accepted}, got {value!r:.80}",
        help=f"the signature is {spec.usage}",
    )


def _value(spec: OperatorSpec, attribute: Attribute, value: Any, graph: Graph) -> Any:
    """Convert a value to the attribute's kind."""
    kind = attribute.kind
    if kind in (KINDS.TENSOR, KINDS.SPARSE_TENSOR):
        return _array(spec, attribute, value, graph)
    if kind == KINDS.TYPE_PROTO:
        if not isinstance(value, (TensorType, SequenceType, OptionalType)):
            raise _wrong(spec, attribute, value)
        return value
    convert = _OF_ONE[kind] if kind in _OF_ONE else _OF_ONE[_OF_MANY[kind]]
    try:
        if kind in _OF_ONE:
            return convert(value)
        if isinstance(value, (str, bytes, Mapping, Symbol)):
            raise TypeError
        return [convert(item) for item in value]
    except (TypeError, ValueError, OverflowError, struct.error):
        raise _wrong(spec, attribute, value) from None


def _int(value: Any) -> int:
    if isinstance(value, (DType, np.dtype, type)):
        dtype = DType.of(value)
        if dtype.storage is not dtype:
            raise TypeError
        return dtype.onnx
    if isinstance(value, Symbol):
        raise TypeError
    number = operator.index(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError
    return int(number)


def _float(value: Any) -> float:
    if isinstance(value, (str, bytes, Symbol)):
        raise TypeError
    struct.pack("<f", value)  # attributes are stored in single precision
    return float(value)


def _str(value: Any) -> str | bytes:
    if not isinstance(value, (str, bytes)):
        raise TypeError
    if isinstance(value, str):
        value.encode()  # raises for lone surrogates, which have no UTF-8
    return value


_OF_ONE: dict[int, Callable[[Any], Any]] = {KINDS.INT: _int, KINDS.FLOAT: _float, KINDS.STRING: _str}
_OF_MANY: dict[int, int] = {KINDS.INTS: KINDS.INT, KINDS.FLOATS: KINDS.FLOAT, KINDS.STRINGS: KINDS.STRING}


def _array(spec: OperatorSpec, attribute: Attribute, value: Any, graph: Graph) -> np.ndarray[Any, Any]:
    if value is None or isinstance(value, (Symbol, Graph)):
        raise _wrong(spec, attribute, value)
    try:
        array, dtype = array_of(value)
    except DTypeError:
        raise _wrong(spec, attribute, value) from None
    if not holds_numpy(value):
        target = python_dtype(array, dtype, graph.promotion)
        array = array if target is dtype else checked_cast(array, dtype, target, spec.label)
    if spec.op.name == "ConstantOfShape":
        array = array.reshape(-1) if array.ndim == 0 else array
        if array.shape != (1,):
            raise GraphError(
                f"{spec.label}: value must have one element, got shape {list(array.shape)}", help="give one element"
            )
    return array.copy()


@dataclass(frozen=True, slots=True)
class BodyArgument:
    """An argument for a body of a node: a function of Symbols, or a Graph. label and name: of the operator and body."""

    label: str
    name: str
    graph: Graph
    depth: int

    def build(self, argument: Any, types: Sequence[Type]) -> Graph:
        """Return the body whose inputs have these types: a function of Symbols is called, a Graph is used directly."""
        return self._of_graph(argument, types) if isinstance(argument, Graph) else self._of_function(argument, types)

    def _of_function(self, function: Callable[..., Any], types: Sequence[Type]) -> Graph:
        _check_taken(function, len(types), f"{self.label}: {self.name}")
        inputs = {f"input{i}": known_type(type_) for i, type_ in enumerate(types)}
        with body(self.graph, self.name, inputs) as graph:
            results = function(*graph.inputs)
            values = results if isinstance(results, (list, tuple)) else [results]
            if results is None or not values:
                raise GraphError(
                    f"{self.label}: the function for {self.name} returns nothing", help="return a Symbol, or a list"
                )
            return finish(graph, [self._result(graph, i, value) for i, value in enumerate(values)])

    def _result(self, body: Graph, position: int, value: Any) -> Symbol:
        """Return a result of the function as a Symbol whose dtype is final, not a default."""
        symbol = body.build.operand(value, self.label, f"{self.name}[{position}]")
        return settle_dtype(body.build.emit("Identity", (symbol,), symbol.type)) if symbol.ambiguous else symbol

    def _of_graph(self, graph: Graph, types: Sequence[Type]) -> Graph:
        if graph is self.graph or graph.scope.outer not in (None, self.graph) or not graph.outputs:
            raise GraphError(
                f"{self.label}: {self.name} is graph {graph.name!r}, which cannot be a body here",
                help="pass a function of Symbols, or a Graph that has outputs and uses no values of another graph",
            )
        if len(graph.inputs) != len(types):
            raise GraphError(
                f"{self.label}: {self.name} needs {len(types)} inputs, got a graph with {len(graph.inputs)}",
                help="declare one input for each operand that the operator passes to its body",
            )
        for symbol, type_ in zip(graph.inputs, types, strict=True):
            is_unknown = isinstance(type_, OpaqueType) and not type_.onnx
            if not is_unknown and join_types((symbol.type, type_)) != symbol.type:
                raise GraphError(
                    f"{self.label}: an input of {self.name} is declared {symbol.type}, but receives {type_}",
                    operands={"input": symbol},
                    help="declare the type that it has in every iteration, with '?' for dims that change",
                )
        if graph.scope.outer is not None:
            return graph
        copied = graph.copy()
        copied.build.outputs([(name, copied.symbols[s.id]) for name, s in graph.named_outputs])
        copied.scope.outer = self.graph
        copied.scope.is_finished = True
        return with_names(copied)


def settle_dtype(symbol: Symbol) -> Symbol:
    """Make the dtype of a Symbol final, not a default, so that bodies and their nodes agree on dtypes."""
    return change(symbol, type=known_type(symbol.type))


def _check_taken(function: Callable[..., Any], count: int, what: str) -> None:
    """Raise `GraphError` for a function whose signature does not accept this many Symbols."""
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        parameters.bind(*[None] * count)
    except TypeError:
        raise GraphError(
            f"{what} must take {count} Symbols, got a function with the signature {parameters}",
            help="declare one parameter for each value that the operator passes to its body",
        ) from None
