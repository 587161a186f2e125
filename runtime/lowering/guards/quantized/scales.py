"""Keep operands that are dequantised by scales along an axis from being multiplied as integers.

onnxruntime's QDQSelectorActionTransformer makes one operator of DequantizeLinear and what reads it, for any scales. Its
kernels take one scale, and scales for the filters of a Conv and the columns of a second factor; of others they refuse
some, and multiply by wrong ones elsewhere. Sessions leave the optimiser out, for models that others wrote too.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import built_here, hide, rewriting
from graphcore.runtime.lowering.guards.quantized.dequantizing import dequantizing
from graphcore.types.dtypes import DType

_FUSED = frozenset(
    "Add ArgMax AveragePool Concat Conv ConvTranspose Div Gemm GlobalAveragePool LeakyRelu MatMul Mul Pow Resize"
    " Sigmoid Softmax Sub TopK Where".split()
)
"""Operators that are computed on integers."""
_MOVES = frozenset({"Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_BYTES = frozenset({DType.int8, DType.uint8})


def has_scales(node: Node) -> bool:
    """Return whether an operator that may be computed on integers has such an operand."""
    if node.op_type not in _FUSED or node.domain:
        return False
    for place, operand in enumerate(node.inputs):
        made = _dequantizing(operand)
        if made is None or operand is None or _has_one(made):
            continue
        if operand.producer is not made or not _is_taken(node, place, made):
            return True
    return False


def _dequantizing(symbol: Symbol | None) -> Node | None:
    """Return the node that dequantises bytes, perhaps before moves."""
    node = dequantizing(symbol, _MOVES)
    x = None if node is None else node.inputs[0]
    return node if x is not None and x.type.dtype in _BYTES else None


def _has_one(made: Node) -> bool:
    """Return whether a node dequantises by one scale."""
    scale = made.inputs[1]
    assert scale is not None
    return scale.shape.is_ranked and (scale.rank == 0 or (scale.rank == 1 and scale.shape[0] == 1))


def _is_taken(node: Node, place: int, made: Node) -> bool:
    """Return whether kernels take scales along the axis of an operand."""
    if made.attributes.get("block_size"):
        return True  # which the optimiser leaves alone, or multiplies as blocks
    x = made.inputs[0]
    assert x is not None
    rank = x.rank if x.shape.is_ranked else 0
    axis = made.attributes.get("axis", 1)
    axis = axis + rank if axis < 0 else axis
    if node.op_type in ("Conv", "ConvTranspose"):
        return place == 1 and axis == (0 if node.op_type == "Conv" else 1)
    if place != 1 or rank != 2:
        return False
    if node.op_type == "Gemm":
        has_zero = len(made.inputs) > 2 and made.inputs[2] is not None
        return has_zero and axis == (0 if node.attributes.get("transB") else 1)
    return node.op_type == "MatMul" and axis == 1


def _found(graph: Graph) -> Iterator[Node]:
    return filter(has_scales, built_here(graph, _FUSED))


def _write(graph: Graph, node: Node) -> None:
    """Hide all that is dequantised: a product of one such factor is another trap, which rounds the other factor."""
    for place, operand in enumerate(node.inputs):
        if _dequantizing(operand) is not None:
            hide(graph, node, place)


GUARD = rewriting(
    "optimiser QDQSelectorActionTransformer",
    "DequantizeLinear by scales along an axis",
    "the optimiser multiplies integers whose scales its kernels do not take",
    {"DequantizeLinear"},
    _found,
    _write,
)
