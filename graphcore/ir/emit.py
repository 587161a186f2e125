"""Make nodes, Symbols, constants and weights. Every microsecond in here is a second for a million nodes."""

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
    held_as,
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
"""The attributes of casts, which are many, and of few dtypes."""


class OpenNode(Node):
    """A node whose slots are being set. It is one when its class is."""

    __slots__ = ()

    __init__ = object.__init__
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


class OpenSymbol(Symbol):
    """A Symbol whose slots are being set. It is one when its class is."""

    __slots__ = ()

    __init__ = object.__init__
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__


def new_symbol(
    builder: GraphBuilder, type_: Type, producer: Node | Constant | Input | Captured, name: str | None = None
) -> Symbol:
    """Return a new Symbol of the graph. name: one that no other Symbol has."""
    graph = builder.graph
    made: Symbol = OpenSymbol()
    made.graph = graph
    made.type = type_
    made.producer = producer
    made.id = len(graph._symbols)
    made.given_name = name
    made.__class__ = Symbol
    graph._symbols.append(made)
    if name is not None:
        graph.names.taken[name] = made
    return made


def new_node(
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    attributes: Mapping[str, Any] | None,
    domain: str,
    layer: str,
    origin: Origin | Line | None,
) -> Node:
    """Return an open node whose outputs are still to be made, and which is in no graph yet."""
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
    """Append a node of a given place, as it is, and return its outputs. names: of the outputs, which are free."""
    graph = builder.graph
    node = new_node(op_type, inputs, attributes, domain, layer, origin)
    given = names or [None] * len(types)
    node.outputs = tuple([new_symbol(builder, type_, node, name) for type_, name in zip(types, given, strict=True)])
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
    """Append a node with one output of a known type, and return that. In one piece, since calls cost the most."""
    graph = builder.graph
    site = graph.site
    if site.is_user:
        if not graph.scope.is_open:
            body, inputs = in_body(builder, inputs, op_type)
            return body.emit(op_type, inputs, type_, attributes, domain)
        frame = sys._getframe(2)
        code = frame.f_code
        known = is_ours.get(code.co_filename) is False
        origin: Origin | Line | None = (code, frame.f_lasti) if known else origin_of(frame)
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
    made: Symbol = OpenSymbol()
    made.graph = graph
    made.type = type_
    made.producer = node
    made.id = len(symbols)
    made.given_name = None
    made.__class__ = Symbol
    node.outputs = (made,)
    node.__class__ = Node
    symbols.append(made)
    graph._nodes.append(node)
    return made


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
    """Append a node with an output of each of the known types, and return those."""
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
    # What comprehensions read is slower to reach everywhere in a function: hence one of its own.
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
    """Return the builder of the body under construction in the graph, and the Symbols of that for the operands."""
    body = builder.innermost().build
    return body, tuple([None if s is None else body.own(s, op, "an operand") for s in inputs])


def line_of_new(graph: Graph) -> Origin | Line | None:
    """Return the line that a new node belongs to: the user's, or that of the node which it is made of."""
    return user_origin(3) if graph.site.is_user else graph.site.origin


def end_expressions(builder: GraphBuilder, inputs: Sequence[Symbol | None]) -> None:
    """Note that Symbols were read, so that no longer expression takes over their terms."""
    expressions = builder.graph.memory.expressions
    for symbol in inputs:
        if symbol is not None:
            expressions.pop(symbol.id, None)


# Constants and weights: scalars, vectors and casts are made once, so the same value is one Symbol


def constant(builder: GraphBuilder, array: np.ndarray[Any, Any], dtype: DType, name: str | None = None) -> Symbol:
    """Return a constant of an array that is right for `dtype` already and that no other code changes."""
    graph = builder.graph
    claimed = None if name is None else graph.names.claim(checked_name(name, "constant"), "constant")
    return new_symbol(builder, type_of(array, dtype), Constant(array, False, line_of_new(graph)), claimed)


def given_constant(graph: Graph, value: Any, dtype: object, name: str | None, ambiguous: bool) -> Symbol:
    """See `Graph.constant`."""
    if ambiguous and not graph.promotion.knows_ambiguous:
        raise GraphError(
            f"constant: in {graph.promotion} no dtype is ambiguous",
            help="leave it out, or build the graph with promotion='anvil' or 'kernel_float'",
        )
    given = None if dtype is None else graph.promotion.dtype_of(dtype)
    array, own = array_of(value, given)
    wanted = given or (own if holds_numpy(value) else python_dtype(array, own, graph.promotion))
    if wanted is not own:
        array = held_as(array, own, wanted, "constant")
    if array is value or array.base is not None:
        array = array.copy()
    made = graph.build.constant(array, wanted, name)
    return change(made, type=tensor_type(wanted, made.shape, ambiguous)) if ambiguous else made


def given_weight(graph: Graph, name: str, array: Any, dtype: object) -> Symbol:
    """See `Graph.weight`."""
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"weight {name!r}: a {type(array).__name__} is no array", help="give a NumPy array: np.asarray(value)"
        )
    own = array_dtype(array, "weight", repr(name))
    wanted = own if dtype is None else graph.promotion.dtype_of(dtype)
    held = casting.native(array)
    if wanted is not own and not (wanted in (DType.index, DType.address) and own is DType.uint64):
        held = held_as(held, own, wanted, "weight")
    if wanted is DType.string and held.dtype.kind == "O":
        require_text(held, f"weight {name!r}")
    claimed = graph.names.claim(checked_name(name, "weight"), "weight")
    return new_symbol(graph.build, type_of(held, wanted), Constant(held, True, user_origin()), claimed)


def scalar(builder: GraphBuilder, value: Scalar, dtype: DType, ambiguous: bool = False) -> Symbol:
    """Return a scalar constant of a Python number that `dtype` holds; the same one is made once."""
    # 0.0 and -0.0 are equal, and so are 1 and True: neither pair is one constant.
    kind = type(value)
    key = (dtype, kind, value if value and kind is not complex else str(value), ambiguous)
    values = builder.graph.memory.values
    found = values.get(key)
    if found is None:
        type_ = tensor_type(dtype, _shape(()), ambiguous)
        found = values[key] = new_symbol(builder, type_, Constant(scalar_array(value, dtype), False, None))
    return found


def vector(builder: GraphBuilder, values: Sequence[int]) -> Symbol:
    """Return an int64 constant, as ONNX takes axes, shapes and pads; the same one is made once."""
    key = ("vector", *values)
    made_once = builder.graph.memory.values
    found = made_once.get(key)
    if found is None:
        try:
            array = np.array(values, np.int64)
        except OverflowError:
            raise ShapeError(
                f"{str([*values])[:200]} has a number beyond int64, which sizes and axes are",
                help="make the tensors smaller",
            ) from None
        made = new_symbol(builder, type_of(array, DType.int64), Constant(array, False, None))
        found = made_once[key] = made
    return found


def cast(builder: GraphBuilder, symbol: Symbol, dtype: DType, ambiguous: bool = False) -> Symbol:
    """Return `symbol` as `dtype`: itself if it is, a new constant of a constant, else a Cast node, made once."""
    own = symbol.type.dtype
    if own is dtype:
        return symbol
    key = (symbol.id, dtype, ambiguous)
    casts = builder.graph.memory.casts
    found = casts.get(key)
    if found is None:
        producer = symbol.producer
        type_ = tensor_type(dtype, symbol.type.shape, ambiguous)
        if type(producer) is Constant and not producer.is_weight:
            array = casting.cast_array(producer.array, own, dtype)
            found = new_symbol(builder, type_, Constant(array, False, producer.origin))
        else:
            attributes = _casts_to.get(dtype) or _casts_to.setdefault(dtype, Attributes(to=dtype))
            found = builder.emit("Cast", (symbol,), type_, attributes)
        casts[key] = found
    return found


def type_of(array: np.ndarray[Any, Any], dtype: DType) -> TensorType:
    """Return the type of an array of values of a dtype."""
    return tensor_type(dtype, _shape(map(Dim, array.shape)))
