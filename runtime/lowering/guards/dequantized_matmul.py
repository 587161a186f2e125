"""Products with weights that a node dequantises: onnxruntime takes the two for one that quantises the other operand.

A DequantizeLinear of 8-bit weights before a MatMul becomes a MatMulNBits that rounds activations to int8, by default.
The numbers that are meant are those of a float product: the weights are widened by arithmetic, which the runtime does
once. Where both operands are dequantised, the runtime's integer product is the same but for its last rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.rewrite import bodies
from graphcore.ir.symbol import Node, Symbol, array_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, tensor_type

NAME = "product with dequantised weights"
"""Of the trap."""

SIGNS = frozenset({"DequantizeLinear"})
_PRODUCTS = frozenset({"MatMul", "Gemm"})
_BYTES = frozenset({DType.int8, DType.uint8})


def needed(graph: Graph) -> bool:
    """Whether there is such a product, in the graph or one of its bodies."""
    return any(
        _weights(node) if node.op_type in _PRODUCTS else bool(node.attributes) and any(map(needed, bodies(node)))
        for node in graph._nodes
    )


def keep(graph: Graph) -> None:
    """Widens such weights of a new graph by arithmetic."""
    found: dict[int, Node] = {}
    for node in graph._nodes:
        if node.op_type in _PRODUCTS:
            found.update((id(weight), weight) for weight in _weights(node))
        for body in bodies(node) if node.attributes else ():
            keep(body)
    if not found:
        return
    nodes, kept = graph._nodes, graph._read
    graph._nodes = []
    for position, node in enumerate(nodes):
        if position == kept:
            graph._read = len(graph._nodes)
        if id(node) in found:
            _widen(graph, node)
        graph._nodes.append(node)
    if kept >= len(nodes):
        graph._read = len(graph._nodes) if kept else 0


def _weights(node: Node) -> list[Node]:
    """The nodes that dequantise an operand of a product, where the other operand is a float."""
    if node.domain or len(node.inputs) < 2:
        return []
    made = [_dequantising(s) for s in node.inputs[:2]]
    return [weight for weight in made if weight is not None and _is_weight(weight)] if None in made else []


def _dequantising(symbol: Symbol | None) -> Node | None:
    producer = None if symbol is None else symbol.producer
    while isinstance(producer, Node) and producer.op_type in ("Transpose", "Reshape") and not producer.domain:
        producer = None if producer.inputs[0] is None else producer.inputs[0].producer
    is_one = isinstance(producer, Node) and producer.op_type == "DequantizeLinear" and not producer.domain
    return producer if is_one and isinstance(producer, Node) else None


def _is_weight(node: Node) -> bool:
    """Whether it widens known bytes to float32, by scales of the whole or of an axis."""
    x, scale = node.inputs[:2]
    if x is None or scale is None or any(s is not None and array_of(s) is None for s in node.inputs):
        return False
    if x.type.dtype not in _BYTES or scale.type.dtype is not DType.float32 or node.attributes.get("block_size"):
        return False
    result = node.outputs[0].type
    return isinstance(result, TensorType) and result.dtype is DType.float32 and scale.rank < 2


def _widen(graph: Graph, node: Node) -> None:
    """Makes the node the product of the widened bytes, less their zero point, and the scale."""
    x, scale, *zero = node.inputs
    factor = array_of(scale)
    assert x is not None
    assert factor is not None
    wide = _emitted(graph, node, "Cast", (x,), x.shape, {"to": DType.float32})
    point = array_of(zero[0]) if zero else None
    if point is not None:
        wide = _emitted(graph, node, "Sub", (wide, _along(graph, node, x, point.astype(np.float32))), x.shape, {})
    node.op_type, node.attributes = "Mul", {}
    node.inputs = wide, _along(graph, node, x, factor)


def _along(graph: Graph, node: Node, x: Symbol, array: np.ndarray[Any, Any]) -> Symbol:
    """A constant of one element, or of one for each place of the node's axis, which broadcasts against `x`."""
    if array.ndim:
        axis = node.attributes.get("axis", 1) % x.rank
        array = array.reshape([-1 if i == axis else 1 for i in range(x.rank)])
    return graph._constant(array, DType.float32)


def _emitted(
    graph: Graph, like: Node, op_type: str, inputs: tuple[Symbol, ...], shape: Shape, attributes: dict[str, Any]
) -> Symbol:
    made = graph._node(op_type, inputs, attributes, "", like.layer, like.origin)
    made.outputs = (graph._symbol(tensor_type(DType.float32, shape), made),)
    graph._nodes.append(made)
    return made.outputs[0]
