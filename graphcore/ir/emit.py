"""How nodes and Symbols are made. Every microsecond in here is a second a million nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.support.source_lines import Line, Origin, is_ours, origin_of, user_origin
from graphcore.types.tensor_types import Type

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph

_new_node = Node.__new__
_new_symbol = Symbol.__new__


def new_symbol(
    graph: Graph, type_: Type, producer: Node | Constant | Input | Captured, name: str | None = None
) -> Symbol:
    """A Symbol of the graph, under a name that is nobody else's."""
    made = _new_symbol(Symbol)
    made.graph = graph
    made.type = type_
    made.producer = producer
    made.id = len(graph._symbols)
    made._name = name
    graph._symbols.append(made)
    if name is not None:
        graph._names.taken[name] = made
    return made


def new_node(
    graph: Graph,
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    attributes: dict[str, Any],
    domain: str,
    layer: str,
    origin: Origin | Line | None,
) -> Node:
    """A node whose outputs are still to be made; it is not in the graph yet."""
    node = _new_node(Node)
    node.op_type = op_type
    node.inputs = inputs
    node.attributes = attributes
    node.domain = domain
    node.layer = layer
    node.origin = origin
    return node


def emit(
    graph: Graph,
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    type_: Type,
    attributes: dict[str, Any] | None = None,
    domain: str = "",
) -> Symbol:
    """A node with one output of a known type. Written out in one piece, since calls are most of what it would cost."""
    if graph._is_written:
        if graph._inner is not None:
            body, inputs = graph._in_body(inputs, op_type)
            return body._emit(op_type, inputs, type_, attributes, domain)
        frame = sys._getframe(2)
        code = frame.f_code
        known = is_ours.get(code.co_filename) is False
        origin: Origin | Line | None = (code, frame.f_lasti) if known else origin_of(frame)
        if graph._result_type is not None:
            type_ = graph._result_type(op_type, inputs, type_)
        if graph._expressions:
            end_expressions(graph, inputs)
    else:
        origin = graph._origin
    node = _new_node(Node)
    node.op_type = op_type
    node.inputs = inputs
    node.attributes = {} if attributes is None else attributes
    node.domain = domain
    node.layer = graph._layer
    node.origin = origin
    symbols = graph._symbols
    made = _new_symbol(Symbol)
    made.graph = graph
    made.type = type_
    made.producer = node
    made.id = len(symbols)
    made._name = None
    node.outputs = (made,)
    symbols.append(made)
    graph._nodes.append(node)
    return made


def emit_many(
    graph: Graph,
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    types: Sequence[Type],
    attributes: dict[str, Any] | None = None,
    domain: str = "",
) -> tuple[Symbol, ...]:
    """A node with an output for each of the known types."""
    if len(types) == 1:
        return (graph._emit(op_type, inputs, types[0], attributes, domain),)
    return _emit_several(graph, op_type, inputs, types, attributes, domain)


def _emit_several(
    graph: Graph,
    op_type: str,
    inputs: tuple[Symbol | None, ...],
    types: Sequence[Type],
    attributes: dict[str, Any] | None,
    domain: str,
) -> tuple[Symbol, ...]:
    # What comprehensions read is slower to reach everywhere in a function: hence one of its own.
    if graph._inner is not None:
        body, inputs = graph._in_body(inputs, op_type)
        return body._emit_many(op_type, inputs, types, attributes, domain)
    if graph._result_type is not None:
        types = [graph._result_type(op_type, inputs, type_) for type_ in types]
    end_expressions(graph, inputs)
    node = new_node(graph, op_type, inputs, attributes or {}, domain, graph._layer, line_of_new(graph))
    node.outputs = tuple(new_symbol(graph, type_, node) for type_ in types)
    graph._nodes.append(node)
    return node.outputs


def line_of_new(graph: Graph) -> Origin | Line | None:
    """The line that what is made now belongs to: the user's, or that of the node which it is made of."""
    return user_origin(3) if graph._is_written else graph._origin


def end_expressions(graph: Graph, inputs: Sequence[Symbol | None]) -> None:
    """What a node reads is a value from here on, and no part of a longer expression."""
    for symbol in inputs:
        if symbol is not None:
            graph._expressions.pop(symbol.id, None)


__all__ = ["emit", "emit_many", "end_expressions", "line_of_new", "new_node", "new_symbol"]
