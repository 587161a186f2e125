"""Products of a graph on tensor cores, which round float32 operands to 10 mantissa bits."""

from __future__ import annotations

from collections.abc import Iterator

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import walk
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

PLAIN = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
"""Operators whose float32 kernels multiply their operands on tensor cores where the provider's TF32 mode is on."""

PRODUCTS = PLAIN | {"Attention", "DeformConv", "GRU", "LSTM", "RNN"}
"""The others multiply what they have computed as well, which is not rounded before."""


def multiplies_in_tf32(graph: Graph, lowered: Graph) -> bool:
    """Return whether there are products of float32 numbers in the lowered graph, and all are tensor_float32 in the
    graph.

    The mode is one for the whole session: where both occur, those of tensor_float32 are computed in float32, which
    rounds their results alike.
    """
    rounded = sum(_dtype(node) is DType.tensor_float32 for node in _of(graph, PLAIN))
    return 0 < rounded == sum(_dtype(node) is DType.float32 for node in _of(lowered, PRODUCTS))


def _of(graph: Graph, operators: frozenset[str]) -> Iterator[Node]:
    return (node for node in walk(graph) if node.op_type in operators)


def _dtype(node: Node) -> DType | None:
    operand = node.inputs[0]
    type_ = operand.type if operand is not None else None
    return type_.dtype if isinstance(type_, TensorType) else None
