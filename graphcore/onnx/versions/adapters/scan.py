"""Scan of opset 8, which went through the sequences of a batch."""

from __future__ import annotations

from graphcore.ir.bodies import new_body
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Captured, Symbol
from graphcore.onnx.versions.node import Made, Read
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type


def batched(node: Read) -> Made:
    """A Scan over the batch, with a Scan over one sequence as its body. States begin anew with every sequence."""
    lengths, operands = node.given(0), node.inputs[1:]
    body: Graph = node.attributes["body"]
    count = int(node.attributes["num_scan_inputs"])
    states = len(operands) - count
    if states < 0 or len(body.inputs) != len(operands) or any(s is None for s in operands):
        raise node.refusal(
            f"its body has {len(body.inputs)} inputs where {len(operands)} are given", "write the model again"
        )
    given = [s for s in (lengths, *operands) if s is not None]
    around = new_body(node.graph, "sequence", [_without_batch(symbol) for symbol in given])
    around.site.layer = ""
    inner = list(around.inputs)
    length = inner.pop(0) if lengths is not None else None
    whole = inner[states:]
    if length is not None:
        inner[states:] = [_first(around, symbol, length) for symbol in whole]
    results: list[Type] = [symbol.type for symbol in body.outputs[:states]]
    results += [_stacked(symbol.type) for symbol in body.outputs[states:]]
    _move(body, around)
    attributes = {"body": body, "num_scan_inputs": count}
    if node.attributes.get("directions"):
        attributes["scan_input_directions"] = node.attributes["directions"]
    made = around.build.emit_many("Scan", tuple(inner), results, attributes)
    if length is not None:
        made = (*made[:states], *(_padded(around, s, whole[0], length) for s in made[states:]))
    around.build.outputs([(None, symbol) for symbol in made])
    return node.graph.build.emit_many("Scan", tuple(given), node.types, {"body": around, "num_scan_inputs": len(given)})


def _move(body: Graph, around: Graph) -> None:
    """Put a body into another graph, inside of the one it was in: what it captures is captured on the way."""
    scope = body.scope
    captured, scope.captured, scope.outer = scope.captured, {}, around
    for symbol in captured.values():
        assert isinstance(symbol.producer, Captured)
        outer = around.build.capture(symbol.producer.symbol)
        assert outer is not None
        change(symbol, producer=Captured(outer))
        scope.captured[outer.id] = symbol


def _without_batch(symbol: Symbol) -> Type:
    type_: Type = symbol.type
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked or not type_.shape:
        return type_
    return tensor_type(type_.dtype, type_.shape[1:])


def _stacked(type_: Type) -> Type:
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    return TensorType(type_.dtype, ["?", *type_.shape])


def _first(graph: Graph, symbol: Symbol, length: Symbol) -> Symbol:
    """The elements of a sequence up to its own length."""
    end = graph.build.emit("Unsqueeze", (length, graph.build.vector([0])), TensorType(DType.int64, [1]))
    return graph.build.emit(
        "Slice", (symbol, graph.build.vector([0]), end, graph.build.vector([0])), _of_some_length(symbol)
    )


def _padded(graph: Graph, symbol: Symbol, whole: Symbol, length: Symbol) -> Symbol:
    """Results of a shorter sequence, filled up to the longest; what with is not defined."""
    one = TensorType(DType.int64, [1])
    longest = graph.build.emit("Shape", (whole,), one, {"start": 0, "end": 1})
    own = graph.build.emit("Unsqueeze", (length, graph.build.vector([0])), one)
    missing = graph.build.emit("Sub", (longest, own), one)
    pads = graph.build.emit("Concat", (graph.build.vector([0]), missing), TensorType(DType.int64, [2]), {"axis": 0})
    return graph.build.emit("Pad", (symbol, pads, None, graph.build.vector([0])), _of_some_length(symbol))


def _of_some_length(symbol: Symbol) -> TensorType:
    shape = symbol.shape
    return tensor_type(symbol.dtype, Shape(["?", *shape[1:]]) if shape.is_ranked else shape)
