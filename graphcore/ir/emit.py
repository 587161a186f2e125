"""Create nodes, Symbols, constants and weights. A microsecond per node is a second for a million nodes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays import casting
from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.literals import (
    array_dtype,
    array_of,
    checked_cast,
    holds_numpy,
    python_dtype,
    require_text,
    scalar_array,
)
from graphcore.ir.names import checked_name
from graphcore.ir.state import settings
from graphcore.ir.state.frozen import NO_ATTRIBUTES, Attributes, change
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.promotion import complex_operators
from graphcore.promotion.rules import Scalar
from graphcore.support.source_lines import Line, Origin, is_ours, origin_of, user_origin
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, complex_in_use, tensor_type

if TYPE_CHECKING:
    from graphcore.ir.builder import GraphBuilder
    from graphcore.ir.graph import Graph

_casts_to: dict[DType, Attributes] = {}
"""The attributes of Cast nodes, shared by all casts to a dtype."""


class OpenNode(Node):
    """A node whose slots can be set. Setting `__class__` to Node closes it."""

    __slots__ = ()

    __init__ = object.__init__
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


class OpenSymbol(Symbol):
    """A Symbol whose slots can be set. Setting `__class__` to Symbol closes it."""

    __slots__ = ()

    __init__ = object.__init__
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


def new_symbol(
    builder: GraphBuilder, type_: Type, producer: Node | Constant | Input | Captured, name: str | None = None
) -> Symbol:
    """Return a new Symbol of the graph. The name must be unused."""
    graph = builder.graph
    symbol: Symbol = OpenSymbol()
    symbol.graph = graph
    symbol.type = type_
    symbol.producer = producer
    symbol.id = len(graph._symbols)
    symbol.given_name = name
    symbol.__class__ = Symbol
    graph._symbols.append(symbol)
    if name is not None:
        graph.names.taken[name] = symbol
    return symbol


def new_node(
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    attributes: Mapping[str, Any] | None,
    domain: str,
    layer: str,
    origin: Origin | Line | None,
) -> Node:
    """Return an open node without outputs that is not in a graph yet."""
    node: Node = OpenNode()
    node.op_type = op_type
    node.inputs = inputs
    if attributes is None:
        node.attributes = NO_ATTRIBUTES
    else:
        node.attributes = attributes if type(attributes) is Attributes else Attributes(attributes)
    node.domain = domain
    node.layer = layer
    node.origin = origin
    return node


def append(
    builder: GraphBuilder,
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    types: Sequence[Type],
    attributes: Mapping[str, Any] | None,
    domain: str,
    layer: str,
    origin: Origin | Line | None,
    names: Sequence[str | None] = (),
) -> tuple[Symbol, ...]:
    """Append a node with an explicit layer and origin, and return its outputs. names: unused names of the outputs."""
    graph = builder.graph
    node = new_node(op_type, inputs, attributes, domain, layer, origin)
    output_names = names or [None] * len(types)
    node.outputs = tuple(
        [new_symbol(builder, type_, node, name) for type_, name in zip(types, output_names, strict=True)]
    )
    node.__class__ = Node
    graph._nodes.append(node)
    return node.outputs


def emit(
    builder: GraphBuilder,
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    type_: Type,
    attributes: Mapping[str, Any] | None = None,
    domain: str = "",
) -> Symbol:
    """Append a node with one output of a known type, and return the output. Inlined, since calls cost the most."""
    graph = builder.graph
    site = graph.site
    if site.is_user:
        if not graph.scope.is_open:
            body, inputs = in_body(builder, inputs, op_type)
            return body.emit(op_type, inputs, type_, attributes, domain)
        frame = sys._getframe(2)
        code = frame.f_code
        is_user_code = is_ours.get(code.co_filename) is False
        origin: Origin | Line | None = (code, frame.f_lasti) if is_user_code else origin_of(frame)
        result_type = builder.result_type
        if result_type is not None:
            type_ = result_type(op_type, inputs, type_, 0)
        if complex_in_use:
            complex_operators.check(op_type, inputs, (type_,), attributes, domain)
        if graph.memory.expressions:
            end_expressions(builder, inputs)
        if settings.current.get() is not None and op_type in settings.OPERATORS and _is_float(type_):
            attributes = {**(attributes or {}), settings.KEY: settings.FAST}
    else:
        origin = site.origin
    node: Node = OpenNode()
    node.op_type = op_type
    node.inputs = inputs
    if attributes is None:
        node.attributes = NO_ATTRIBUTES
    else:
        node.attributes = attributes if type(attributes) is Attributes else Attributes(attributes)
    node.domain = domain
    node.layer = site.layer
    node.origin = origin
    symbols = graph._symbols
    symbol: Symbol = OpenSymbol()
    symbol.graph = graph
    symbol.type = type_
    symbol.producer = node
    symbol.id = len(symbols)
    symbol.given_name = None
    symbol.__class__ = Symbol
    node.outputs = (symbol,)
    node.__class__ = Node
    symbols.append(symbol)
    graph._nodes.append(node)
    return symbol


def _is_float(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype.is_float


def emit_many(
    builder: GraphBuilder,
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    types: Sequence[Type],
    attributes: Mapping[str, Any] | None = None,
    domain: str = "",
) -> tuple[Symbol, ...]:
    """Append a node with one output per type, and return the outputs."""
    if len(types) == 1:
        return (builder.emit(op_type, inputs, types[0], attributes, domain),)
    return _emit_several(builder, op_type, inputs, types, attributes, domain)


def _emit_several(
    builder: GraphBuilder,
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    types: Sequence[Type],
    attributes: Mapping[str, Any] | None,
    domain: str,
) -> tuple[Symbol, ...]:
    # A separate function: variables that comprehensions capture are slower everywhere in their function.
    graph = builder.graph
    if not graph.scope.is_open:
        body, inputs = in_body(builder, inputs, op_type)
        return body.emit_many(op_type, inputs, types, attributes, domain)
    if (result_type := builder.result_type) is not None:
        types = [result_type(op_type, inputs, type_, position) for position, type_ in enumerate(types)]
    if complex_in_use and graph.site.is_user:
        complex_operators.check(op_type, inputs, types, attributes, domain)
    end_expressions(builder, inputs)
    return append(builder, op_type, inputs, types, attributes, domain, graph.site.layer, line_of_new(graph))


def in_body(
    builder: GraphBuilder, inputs: Sequence[Symbol | None], op: str
) -> tuple[GraphBuilder, tuple[Symbol | None, ...]]:
    """Return the builder of the body under construction, and the operands as Symbols of that body."""
    body = builder.innermost().build
    return body, tuple([None if s is None else body.own(s, op, "an operand") for s in inputs])


def line_of_new(graph: Graph) -> Origin | Line | None:
    """Return the origin of a new node: the line of user code, or that of the node being rewritten."""
    return user_origin(3) if graph.site.is_user else graph.site.origin


def end_expressions(builder: GraphBuilder, inputs: Sequence[Symbol | None]) -> None:
    """Note that a node reads Symbols, so that no longer expression absorbs their terms."""
    expressions = builder.graph.memory.expressions
    for symbol in inputs:
        if symbol is not None:
            expressions.pop(symbol.id, None)


# Constants and weights. Scalars, vectors and casts are cached: equal values are one Symbol.


def constant(builder: GraphBuilder, array: np.ndarray[Any, Any], dtype: DType, name: str | None = None) -> Symbol:
    """Return a constant of an array that is stored as `dtype` requires and that no other code changes."""
    graph = builder.graph
    claimed = None if name is None else graph.names.claim(checked_name(name, "constant"), "constant")
    return new_symbol(builder, type_of(array, dtype), Constant(array, False, line_of_new(graph)), claimed)


def make_constant(graph: Graph, value: Any, dtype: object, name: str | None, ambiguous: bool) -> Symbol:
    """See `Graph.constant`."""
    if ambiguous and not graph.promotion.knows_ambiguous:
        raise GraphError(
            f"constant: promotion system {graph.promotion} has no ambiguous dtypes",
            help="leave out ambiguous=True, or build the graph with promotion='anvil' or 'kernel_float'",
        )
    requested = None if dtype is None else graph.promotion.dtype_of(dtype)
    array, source = array_of(value, requested)
    target = requested or graph.promotion.dtype_of(
        source if holds_numpy(value) else python_dtype(array, source, graph.promotion)
    )
    if target is not source:
        array = checked_cast(array, source, target, "constant")
    if array is value or array.base is not None:
        array = array.copy()
    symbol = graph.build.constant(array, target, name)
    return change(symbol, type=tensor_type(target, symbol.shape, ambiguous)) if ambiguous else symbol


def make_weight(graph: Graph, name: str, array: Any, dtype: object) -> Symbol:
    """See `Graph.weight`."""
    tensor = casting.third_party_array(array)
    array = array if tensor is None else tensor
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"weight {name!r}: must be an array, got {type(array).__name__}",
            help="pass a NumPy array: np.asarray(value)",
        )
    source = array_dtype(array, "weight", repr(name))
    target = graph.promotion.dtype_of(source if dtype is None else dtype)
    data = casting.native(array)
    if target is not source and not (target in (DType.index, DType.address) and source is DType.uint64):
        data = checked_cast(data, source, target, "weight")
    if target is DType.string and data.dtype.kind == "O":
        require_text(data, f"weight {name!r}")
    claimed = graph.names.claim(checked_name(name, "weight"), "weight")
    return new_symbol(graph.build, type_of(data, target), Constant(data, True, user_origin()), claimed)


def scalar(builder: GraphBuilder, value: Scalar, dtype: DType, ambiguous: bool = False) -> Symbol:
    """Return the cached scalar constant of a Python number that `dtype` can represent."""
    # 0.0 == -0.0 and 1 == True, but they are different constants.
    kind = type(value)
    key = (dtype, kind, value if value and kind is not complex else str(value), ambiguous)
    values = builder.graph.memory.values
    symbol = values.get(key)
    if symbol is None:
        type_ = tensor_type(dtype, _shape(()), ambiguous)
        symbol = values[key] = new_symbol(builder, type_, Constant(scalar_array(value, dtype), False, None))
    return symbol


def vector(builder: GraphBuilder, values: Sequence[int]) -> Symbol:
    """Return the cached int64 constant of integers: the form of axes, shapes and pads in ONNX."""
    key = ("vector", *values)
    cache = builder.graph.memory.values
    symbol = cache.get(key)
    if symbol is None:
        try:
            array = np.array(values, np.int64)
        except OverflowError:
            raise ShapeError(
                f"{str([*values])[:200]} has a number beyond int64, the dtype of sizes and axes",
                help="make the tensors smaller",
            ) from None
        new = new_symbol(builder, type_of(array, DType.int64), Constant(array, False, None))
        symbol = cache[key] = new
    return symbol


def cast(builder: GraphBuilder, symbol: Symbol, dtype: DType, ambiguous: bool = False) -> Symbol:
    """Return `symbol` cast to `dtype`: itself, a new constant for a constant, or a cached Cast node."""
    source = symbol.type.dtype
    if source is dtype:
        return symbol
    key = (symbol.id, dtype, ambiguous)
    casts = builder.graph.memory.casts
    result = casts.get(key)
    if result is None:
        producer = symbol.producer
        type_ = tensor_type(dtype, symbol.type.shape, ambiguous)
        if type(producer) is Constant and not producer.is_weight:
            array = casting.cast_array(producer.array, source, dtype)
            result = new_symbol(builder, type_, Constant(array, False, producer.origin))
        else:
            attributes = _casts_to.get(dtype) or _casts_to.setdefault(dtype, Attributes(to=dtype))
            result = builder.emit("Cast", (symbol,), type_, attributes)
        casts[key] = result
    return result


def type_of(array: np.ndarray[Any, Any], dtype: DType) -> TensorType:
    """Return the type of an array that stores values of `dtype`."""
    return tensor_type(dtype, _shape(map(Dim, array.shape)))
