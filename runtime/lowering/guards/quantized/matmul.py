"""Widen dequantised weights by arithmetic: onnxruntime fuses their product into one that quantises the other operand.

A DequantizeLinear of 8-bit weights before a MatMul becomes a MatMulNBits that rounds activations to int8, by default.
The numbers that are meant are those of a float product: the weights are widened by arithmetic, which the runtime does
once. Where both operands are dequantised, the runtime's integer product is the same but for its last rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphcore.ir.constants import constant_array
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.runtime.lowering.guards.quantized.dequantizing import dequantizing
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, tensor_type

_PRODUCTS = frozenset({"MatMul", "Gemm"})
_MOVES = frozenset({"Reshape", "Transpose"})
_BYTES = frozenset({DType.int8, DType.uint8})


def _dequantised(graph: Graph) -> Iterable[Node]:
    """Return the nodes that dequantise weights of such products."""
    return {id(weight): weight for node in graph.nodes for weight in _weights(node)}.values()


def _weights(node: Node) -> list[Node]:
    """Return the nodes that dequantise an operand of a product, where the other operand is a float."""
    if node.op_type not in _PRODUCTS or node.domain or len(node.inputs) < 2:
        return []
    made = [dequantizing(s, _MOVES) for s in node.inputs[:2]]
    return [weight for weight in made if weight is not None and _is_weight(weight)] if None in made else []


def _is_weight(node: Node) -> bool:
    """Return whether a node widens constant bytes to float32, by one scale or by one for each place of an axis."""
    x, scale = node.inputs[:2]
    if (
        x is None
        or scale is None
        or any(s is not None and constant_array(s, weights=True, outer=True) is None for s in node.inputs)
    ):
        return False
    if x.type.dtype not in _BYTES or scale.type.dtype is not DType.float32 or node.attributes.get("block_size"):
        return False
    result = node.outputs[0].type
    return isinstance(result, TensorType) and result.dtype is DType.float32 and scale.rank < 2


def _widen(graph: Graph, node: Node) -> None:
    """Make a node the product of the widened bytes, less their zero point, and the scale."""
    x, scale, *zero = node.inputs
    factor = constant_array(scale, weights=True, outer=True)
    assert x is not None
    assert factor is not None
    type_ = tensor_type(DType.float32, x.shape)
    wide = graph.build.emit("Cast", (x,), type_, {"to": DType.float32})
    point = constant_array(zero[0], weights=True, outer=True) if zero else None
    if point is not None:
        wide = graph.build.emit("Sub", (wide, _along(graph, node, x, point.astype(np.float32))), type_)
    change(node, op_type="Mul", attributes={}, inputs=(wide, _along(graph, node, x, factor)))


def _along(graph: Graph, node: Node, x: Symbol, array: np.ndarray[Any, Any]) -> Symbol:
    """Return a constant of one element, or of one for each place of the node's axis, that broadcasts against `x`."""
    if array.ndim:
        axis = node.attributes.get("axis", 1) % x.rank
        array = array.reshape([-1 if i == axis else 1 for i in range(x.rank)])
    return graph.build.constant(array, DType.float32)


GUARD = rewriting(
    "product with dequantised weights",
    "DequantizeLinear",
    "the optimiser would round the other operand to int8",
    {"DequantizeLinear"},
    _dequantised,
    _widen,
)
