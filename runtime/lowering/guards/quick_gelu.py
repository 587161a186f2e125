"""Keep a Sigmoid of float64 apart from a product: some releases fuse the two to a QuickGelu, of float32 alone."""

from __future__ import annotations

from collections.abc import Iterator

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import hide, rewriting
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType


def _products(graph: Graph) -> Iterator[Node]:
    """Yield the products, built here, with a Sigmoid of float64."""
    for node in graph.nodes:
        if node.op_type == "Mul" and not node.domain and type(node.origin) is not Imported:
            if any(map(_is_sigmoid, node.inputs)):
                yield node


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
