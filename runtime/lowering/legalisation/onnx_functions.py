"""Operators without a kernel by the function body that ONNX gives them: the last resort of lowering."""

from __future__ import annotations

from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Input, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.onnx.opset import OPSET
from graphcore.onnx.read.reader import read_nodes
from graphcore.onnx.versions import function_body
from graphcore.runtime.lowering.build.builder import Builder, Call, LegalNode
from graphcore.runtime.lowering.expansion.expand import expand


def by_function(b: Builder, call: Call, legal_node: LegalNode) -> tuple[Symbol, ...] | None:
    """Build an operator's function body on its operands; return None where there is none whose types can be told."""
    op_type, inputs, types, attributes, _ = call
    body = function_body(op_type, "", OPSET, inputs, attributes, len(types))
    if body is None:
        return None
    # The body is read into a graph of its own, so that only what is legal enters the one being made.
    aside = Graph("function", promotion=b.graph.promotion)
    names: dict[str, Symbol | None] = dict.fromkeys(body.inputs)
    operands: dict[int, Symbol] = {}
    for name, symbol in zip(body.inputs, inputs, strict=False):
        if symbol is None:
            continue
        producer = symbol.producer
        own = Constant(producer.array, False, None) if isinstance(producer, Constant) else Input(len(operands), None)
        made = names[name] = aside.build.symbol(symbol.type, own)
        operands[made.id] = symbol
        aside.build.inputs([*aside.input_symbols, made])
    try:
        read_nodes(aside, body.nodes, names, body.version)
    except GraphcoreError:  # types that inference cannot tell without a shape
        return None
    results = [names.get(name) for name in body.outputs[: len(types)]]
    if any(r is None for r in results):
        return None
    aside.build.outputs([(None, r) for r in results if r is not None])
    return _inlined(b, expand(aside, b.rules), list(operands.values()), legal_node)


def _inlined(b: Builder, graph: Graph, operands: list[Symbol], legal_node: LegalNode) -> tuple[Symbol, ...] | None:
    """Make the nodes of a graph legal one by one, on operands in the place of its inputs, and return the results."""
    found = {graph.input_symbols[i].id: symbol for i, symbol in enumerate(operands)}

    def of(symbol: Symbol) -> Symbol:
        if symbol.id not in found:
            assert isinstance(symbol.producer, Constant)
            found[symbol.id] = b.constant(symbol.producer.array, symbol.dtype)
        return found[symbol.id]

    for node in graph.nodes:
        if bodies(node):
            return None
        made = legal_node(node, tuple(None if s is None else of(s) for s in node.inputs))
        found.update({old.id: new for old, new in zip(node.outputs, made, strict=True)})
    return tuple(of(symbol) for symbol in graph.outputs)


__all__ = ["LegalNode", "by_function"]
