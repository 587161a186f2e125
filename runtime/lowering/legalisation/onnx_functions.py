"""Operators without a kernel by the function body that ONNX gives them: the last resort of lowering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.rewrite import bodies
from graphcore.ir.symbol import Constant, Input, Symbol
from graphcore.onnx.proto.model_proto import OPSET
from graphcore.onnx.read.reader import read_nodes
from graphcore.onnx.versions import function_body
from graphcore.runtime.lowering.expansion.expand import expand
from graphcore.types.tensor_types import Type

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser


def by_function(
    on: Legaliser,
    op_type: str,
    inputs: Sequence[Symbol | None],
    types: Sequence[Type],
    attributes: dict[str, Any],
) -> tuple[Symbol, ...] | None:
    """What an operator's function body makes of the operands; None where there is none that could be told."""
    body = function_body(op_type, "", OPSET, inputs, attributes, len(types))
    if body is None:
        return None
    # The body is read into a graph of its own, so that only what is legal enters the one being made.
    aside = Graph("function", promotion=on.graph.promotion)
    names: dict[str, Symbol | None] = dict.fromkeys(body.inputs)
    stand: dict[int, Symbol] = {}
    for name, symbol in zip(body.inputs, inputs, strict=False):
        if symbol is None:
            continue
        producer = symbol.producer
        own = Constant(producer.array, False, None) if isinstance(producer, Constant) else Input(len(stand), None)
        made = names[name] = aside._symbol(symbol.type, own)
        stand[made.id] = symbol
        aside._inputs += (made,)
    try:
        read_nodes(aside, body.nodes, names, body.version)
    except GraphcoreError:  # types that inference cannot tell without a shape
        return None
    results = [names.get(name) for name in body.outputs[: len(types)]]
    if any(r is None for r in results):
        return None
    aside._outputs = [(None, r) for r in results if r is not None]
    return inlined(on, expand(aside, on.rules), stand)


def inlined(on: Legaliser, graph: Graph, stand: dict[int, Symbol]) -> tuple[Symbol, ...] | None:
    """The results of a graph, its nodes made legal one by one. stand: what stands for its inputs, by position."""
    found = {graph._inputs[i].id: symbol for i, symbol in enumerate(stand.values())}

    def of(symbol: Symbol) -> Symbol:
        if symbol.id not in found:
            assert isinstance(symbol.producer, Constant)
            found[symbol.id] = on.graph._constant(symbol.producer.array, symbol.dtype)
        return found[symbol.id]

    for node in graph._nodes:
        if bodies(node):
            return None
        made = on._node(node, tuple(None if s is None else of(s) for s in node.inputs))
        found.update({old.id: new for old, new in zip(node.outputs, made, strict=True)})
    return tuple(of(symbol) for symbol in graph.outputs)
