"""Keep a Sigmoid of float64 apart from a product: some releases fuse the two to a QuickGelu, of float32 alone."""

from __future__ import annotations

from collections.abc import Iterator

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import built_here, hide, rewriting
from graphcore.types.dtypes import DType


def _products(graph: Graph) -> Iterator[Node]:
    """Return the products with a Sigmoid of float64."""
    return (node for node in built_here(graph, {"Mul"}) if any(map(_is_sigmoid, node.inputs)))


def _write(graph: Graph, node: Node) -> None:
    for place, operand in enumerate(node.inputs):
        if _is_sigmoid(operand):
            hide(graph, node, place)


def _is_sigmoid(symbol: Symbol | None) -> bool:
    node = None if symbol is None else symbol.producer
    if not isinstance(node, Node) or node.op_type != "Sigmoid" or node.domain:
        return False
    return node.outputs[0].dtype is DType.float64


GUARD = rewriting(
    "optimiser QuickGeluFusion",
    "Sigmoid, Mul",
    "the optimiser makes of both an operator that has no kernel in float64",
    {"Sigmoid"},
    _products,
    _write,
)
