"""Dequantised operands that optimisers of onnxruntime round, retype or move wrongly."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform import walk
from graphcore.ir.transform.walk import constant_array
from graphcore.runtime.lowering.passes import built_here, hidden, node_workaround, of_onnx, operand_workaround
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, tensor_type


def _lacks_zero_point(node: Node) -> bool:
    return len(node.inputs) < 3 or node.inputs[2] is None


def _without_zero_point(graph: Graph) -> Iterator[Node]:
    """Yield the nodes without a zero point, including those of imported models."""
    for node in of_onnx(graph, {"DequantizeLinear"}):
        x = node.inputs[0] if _lacks_zero_point(node) else None
        if x is not None and isinstance(x.type, TensorType) and x.dtype is not DType.uint8:
            yield node


def _add_zero_point(graph: Graph, node: Node) -> None:
    x, scale = map(present, node.inputs[:2])
    change(node, inputs=(x, scale, _zeros(graph, x.dtype, scale)))


def _zeros(graph: Graph, dtype: DType, scale: Symbol) -> Symbol:
    """Return zeros of a dtype in the shape of a scale."""
    sizes = [dim.value for dim in scale.shape]
    if None not in sizes:
        return graph.build.constant(np.zeros([n or 0 for n in sizes], dtype.numpy), dtype)
    zero = np.zeros(1, dtype.numpy)
    return e.emit("ConstantOfShape", e.emit("Shape", scale), dtype=dtype, shape=scale.shape, value=zero)


ZERO_POINTS = node_workaround(
    "DequantizeLinear without a zero point",
    "the optimiser that moves the Transpose would quantise to uint8",
    {"Transpose"},
    _without_zero_point,
    _add_zero_point,
    when="DequantizeLinear, Transpose",
)


# The node that dequantises a value, possibly before moves.


def dequantizing(symbol: Symbol | None, moves: Container[str] = ()) -> Node | None:
    """Return the DequantizeLinear that a value comes from, or None.

    moves: operators that may follow it, besides those without effect, which optimisers drop.
    """
    node = None if symbol is None else symbol.producer
    while isinstance(node, Node) and not node.domain and node.op_type != "DequantizeLinear":
        source = node.inputs[0] if node.op_type in moves else _unchanged(node)
        node = None if source is None else source.producer
    return node if isinstance(node, Node) and not node.domain else None


NEUTRAL: Mapping[str, float] = MappingProxyType({"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0})


def _unchanged(node: Node) -> Symbol | None:
    """Return the operand that a node returns unchanged; None if there is none."""
    neutral = NEUTRAL.get(node.op_type)
    if neutral is None:
        x = node.inputs[0] if node.op_type in ("Cast", "Expand", "Identity") else None
        return x if x is not None and x.type == node.outputs[0].type else None
    pairs = (node.inputs, node.inputs[::-1]) if node.op_type in ("Add", "Mul") else (node.inputs,)
    for x, number in pairs:
        array = constant_array(number, weights=True, outer=True)
        if array is not None and (array == neutral).all():
            return x
    return None


# Widen dequantised weights by arithmetic: onnxruntime fuses their product into one that quantises the other operand.
#
# A DequantizeLinear of 8-bit weights before a MatMul becomes a MatMulNBits that rounds activations to int8, by
# default. The intended result is that of a float product: arithmetic widens the weights, which the runtime does once.
# If both operands are dequantised, the runtime's integer product is the same but for its last rounding.

_PRODUCTS = frozenset({"MatMul", "Gemm"})
_MOVES = frozenset({"Reshape", "Transpose"})
_BYTES = frozenset({DType.int8, DType.uint8})


def _weights(node: Node) -> list[Node]:
    """Return the nodes that dequantise an operand of a product whose other operand is a float."""
    if node.op_type not in _PRODUCTS or node.domain or len(node.inputs) < 2:
        return []
    nodes = [dequantizing(s, _MOVES) for s in node.inputs[:2]]
    return [weight for weight in nodes if weight is not None and _is_weight(weight)] if None in nodes else []


def _is_weight(node: Node) -> bool:
    """Return True if a node widens constant bytes to float32, by one scale or by one for each index of an axis."""
    x, scale = node.inputs[:2]
    if x is None or scale is None:
        return False
    if any(s is not None and constant_array(s, weights=True, outer=True) is None for s in node.inputs):
        return False
    if x.type.dtype not in _BYTES or scale.type.dtype is not DType.float32 or node.attributes.get("block_size"):
        return False
    result = node.outputs[0].type
    return isinstance(result, TensorType) and result.dtype is DType.float32 and scale.rank < 2


def _widen(graph: Graph, node: Node) -> None:
    """Turn a node into the product of the widened bytes, less their zero point, and the scale."""
    x, scale, *zero = node.inputs
    factor = present(constant_array(scale, weights=True, outer=True))
    assert x is not None
    type_ = tensor_type(DType.float32, x.shape)
    wide = graph.build.emit("Cast", (x,), type_, {"to": DType.float32})
    point = constant_array(zero[0], weights=True, outer=True) if zero else None
    if point is not None:
        wide = graph.build.emit("Sub", (wide, _along(graph, node, x, point.astype(np.float32))), type_)
    change(node, op_type="Mul", attributes={}, inputs=(wide, _along(graph, node, x, factor)))


def _along(graph: Graph, node: Node, x: Symbol, array: np.ndarray[Any, Any]) -> Symbol:
    """Return a constant of one element, or of one for each index of the node's axis, that broadcasts against `x`."""
    if array.ndim:
        axis = node.attributes.get("axis", 1) % x.rank
        array = array.reshape([-1 if i == axis else 1 for i in range(x.rank)])
    return graph.build.constant(array, DType.float32)


MATMUL = node_workaround(
    "product with dequantised weights",
    "the optimiser would round the other operand to int8",
    {"DequantizeLinear"},
    lambda graph: {id(weight): weight for node in graph.nodes for weight in _weights(node)}.values(),
    _widen,
)


# Keep moves of dequantised int8 and int32 apart from the node that dequantises.
#
# QDQPropagationTransformer quantises again after a move: there is no QuantizeLinear to int32, and up to opset 20 one
# without a zero point gives uint8. QDQS8ToU8Transformer turns int8 into uint8, beside an attribute of newer opsets that
# still says int8. A Sum of one operand returns that operand and is not optimised. Sessions disable the optimisers, for
# imported models too. Moves that the graph itself quantises again are unchanged: both nodes then disappear.

_QUANTIZED_MOVES = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def _moves(graph: Graph) -> Sequence[Node]:
    """Return the moves of dequantised int8, except imported ones, whose result other nodes than QuantizeLinear read."""
    moves = [node for node in built_here(graph, _QUANTIZED_MOVES) if _dequantises_int8(node.inputs[0])]
    if not moves:
        return ()
    readers = walk.readers(graph)
    output_ids = {symbol.id for symbol in graph.outputs}
    return [node for node in moves if not _is_quantised(node, readers, output_ids)]


def _is_move(node: Node) -> bool:
    return node.op_type in _QUANTIZED_MOVES and not node.domain and type(node.origin) is not Imported


def is_requantised(node: Node) -> bool:
    """Return True if a node moves values dequantised from int32, or from signed integers without a zero point."""
    source = dequantizing(node.inputs[0]) if node.op_type in _QUANTIZED_MOVES and not node.domain else None
    if source is None or source.inputs[0] is None:
        return False
    dtype = source.inputs[0].type.dtype
    return dtype is DType.int32 or (dtype is not DType.uint8 and _lacks_zero_point(source))


def _dequantises_int8(symbol: Symbol | None) -> bool:
    """Return True if a value is dequantised from int8 by one scale and a zero point."""
    node = dequantizing(symbol)
    if node is None or len(node.inputs) < 3:
        return False
    x, scale = node.inputs[:2]
    if x is None or scale is None or x.type.dtype is not DType.int8 or scale.rank > 1:
        return False
    return constant_array(x, weights=True, outer=True) is None


def _is_quantised(node: Node, readers: Mapping[int, Sequence[Node]], output_ids: set[int]) -> bool:
    """Return True if the result of a move is always quantised again, possibly after other moves."""
    result = node.outputs[0]
    if result.id in output_ids:
        return False
    after = readers.get(result.id, ())
    return all(n.op_type == "QuantizeLinear" or (_is_move(n) and _is_quantised(n, readers, output_ids)) for n in after)


INT8 = operand_workaround(
    "optimiser QDQS8ToU8Transformer",
    "the optimiser turns int8 into uint8 but not the attribute that says int8",
    {"DequantizeLinear"},
    _moves,
    lambda node: (0,),
    hidden,
    when="DequantizeLinear before a move",
)
MOVED = operand_workaround(
    "optimiser QDQPropagationTransformer",
    "the optimiser quantises to int32, for which there is no kernel, or signed integers to uint8",
    {"DequantizeLinear"},
    lambda graph: filter(is_requantised, built_here(graph, _QUANTIZED_MOVES)),
    lambda node: (0,),
    hidden,
    when="DequantizeLinear before a move",
)


# Keep operands that are dequantised by scales along an axis from being multiplied as integers.
#
# onnxruntime's QDQSelectorActionTransformer fuses DequantizeLinear and the node that reads it, for any scales. Its
# kernels support one scale, and scales for the filters of a Conv or the columns of a second factor; they refuse some
# others, and multiply by wrong ones elsewhere. Sessions disable the optimiser, for imported models too.

_FUSED = frozenset(
    "Add ArgMax AveragePool Concat Conv ConvTranspose Div Gemm GlobalAveragePool LeakyRelu MatMul Mul Pow Resize"
    " Sigmoid Softmax Sub TopK Where".split()
)
"""Operators that are computed on integers."""
_MOVED_SCALES = frozenset({"Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def has_scales(node: Node) -> bool:
    """Return True if an operator that may be computed on integers has such an operand."""
    if node.op_type not in _FUSED or node.domain:
        return False
    for place, operand in enumerate(node.inputs):
        source = _dequantizing(operand)
        if source is None or operand is None or _has_single_scale(source):
            continue
        if operand.producer is not source or not _is_supported(node, place, source):
            return True
    return False


def _dequantizing(symbol: Symbol | None) -> Node | None:
    """Return the node that dequantises bytes, possibly before moves."""
    node = dequantizing(symbol, _MOVED_SCALES)
    x = None if node is None else node.inputs[0]
    return node if x is not None and x.type.dtype in _BYTES else None


def _has_single_scale(node: Node) -> bool:
    """Return True if a node dequantises by one scale."""
    scale = present(node.inputs[1])
    return scale.shape.is_ranked and (scale.rank == 0 or (scale.rank == 1 and scale.shape[0] == 1))


def _is_supported(node: Node, place: int, source: Node) -> bool:
    """Return True if kernels support scales along the axis of an operand."""
    if source.attributes.get("block_size"):
        return True  # not optimised, or multiplied as blocks
    x = present(source.inputs[0])
    rank = x.rank if x.shape.is_ranked else 0
    axis = source.attributes.get("axis", 1)
    axis = axis + rank if axis < 0 else axis
    if node.op_type in ("Conv", "ConvTranspose"):
        return place == 1 and axis == (0 if node.op_type == "Conv" else 1)
    if place != 1 or rank != 2:
        return False
    if node.op_type == "Gemm":
        has_zero = len(source.inputs) > 2 and source.inputs[2] is not None
        return has_zero and axis == (0 if node.attributes.get("transB") else 1)
    return node.op_type == "MatMul" and axis == 1


def _dequantised(node: Node) -> Iterator[int]:
    """Yield all dequantised operands: a product of one such factor is another trap, which rounds the other factor."""
    return (place for place, operand in enumerate(node.inputs) if _dequantizing(operand) is not None)


SCALES = operand_workaround(
    "optimiser QDQSelectorActionTransformer",
    "the optimiser multiplies integers whose scales its kernels do not support",
    {"DequantizeLinear"},
    lambda graph: filter(has_scales, built_here(graph, _FUSED)),
    _dequantised,
    hidden,
    when="DequantizeLinear by scales along an axis",
)


# Keep quantised values of 2 and 4 bits from optimisers that compute on the integers, or drop a node between a
# DequantizeLinear and a QuantizeLinear: there are kernels for products with constant weights only, and no Identity.


def _parts_of_bytes(graph: Graph) -> Iterator[Node]:
    """Yield nodes that quantise to 2 or 4 bits, or dequantise them, except from constant factors of products."""
    nodes = [node for node in of_onnx(graph, {"DequantizeLinear", "QuantizeLinear"}) if 1 < _quantised_bits(node) < 8]
    readers = walk.readers(graph) if nodes else {}
    for node in nodes:
        x, result = node.inputs[0], node.outputs[0]
        is_weight = node.op_type == "DequantizeLinear" and constant_array(x, weights=True, outer=True) is not None
        products = is_weight and {reader.op_type for reader in readers.get(result.id, ())} <= _PRODUCTS
        if not is_weight or (_quantised_bits(node) == 2 and not products):
            yield node


def _quantised_bits(node: Node) -> int:
    """Return the bits of the quantised side of a node; 0 if the other side is not float32."""
    x, result = node.inputs[0], node.outputs[0]
    if x is None:
        return 0
    types = (x.type, result.type) if node.op_type == "DequantizeLinear" else (result.type, x.type)
    return types[0].dtype.bits if types[1].dtype is DType.float32 else 0


def _hide_float(graph: Graph, node: Node) -> None:
    """Put a Sum of one term on the side of the floats."""
    if node.op_type == "QuantizeLinear":
        change(node, inputs=(hidden(graph, node, 0), *node.inputs[1:]))
        return
    result = graph.build.emit("DequantizeLinear", node.inputs, node.outputs[0].type, dict(node.attributes))
    change(node, op_type="Sum", inputs=(result,), attributes={})


PARTS = node_workaround(
    "optimisers of quantised parts of bytes",
    "optimisers compute on integers of 2 and 4 bits, for which there are no kernels",
    {"DequantizeLinear", "QuantizeLinear"},
    _parts_of_bytes,
    _hide_float,
    when="DequantizeLinear, QuantizeLinear of 2 and 4 bits",
)
