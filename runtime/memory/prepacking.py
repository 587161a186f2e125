"""Prepacking: weights that a session puts into an order of the kernels' own when it starts.

It takes a second copy of them and most of the start of a large model, and pays where several rows go through a matrix:
measured, two rows take 1.8 to 3.5 times as long without it, and one row 0.9 to 1.2 times through matrices of 2048 and
more columns, 1.5 times through those of 768.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.constants import constant_array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.walk import bodies, operators, walk
from graphcore.types.tensor_types import TensorType

Prepack: TypeAlias = Literal["auto", "on", "off"]

OFF = {"session.disable_prepacking": "1"}
PARALLEL = {"session.prepack.enable_parallel": "1"}
"""Measured: 1 GB of weights in 0.56 s in place of 1.0 on two cores; small models start as they do without."""

_CHOICES: tuple[Prepack, ...] = ("auto", "on", "off")

PACKED = frozenset(
    "Conv ConvTranspose ConvInteger QLinearConv MatMulInteger QLinearMatMul DequantizeLinear LSTM GRU RNN".split()
)
"""Operators of ONNX, beside the float products, whose kernels put weights in order."""

_PRODUCTS = frozenset({"Gemm", "MatMul"})

_LEFT = frozenset(
    "GroupQueryAttention MultiHeadAttention RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization"
    " BiasGelu FastGelu GatherBlockQuantized".split()
)
"""Operators of other domains whose kernels leave constants as they are. Of those that are not here all may."""


def require(prepack: Prepack) -> None:
    """Raise `GraphError` for what is no choice."""
    if prepack not in _CHOICES:
        raise GraphError(f"load: there is no prepack={prepack!r:.80}", help=f"use one of {', '.join(_CHOICES)}")


def entries(graph: Graph, prepack: Prepack) -> dict[str, str]:
    """Return entries of a session's configuration for a lowered graph. Raises `GraphError` for an unknown choice."""
    require(prepack)
    return PARALLEL if prepack == "on" or (prepack == "auto" and gains(graph)) else OFF


def gains(graph: Graph) -> bool:
    """Return whether some kernel of a lowered graph runs faster on weights in its own order."""
    has_some = any(domain or op_type in _PRODUCTS or op_type in PACKED for op_type, domain in operators(graph))
    return has_some and _gains(graph, set())


def reordered(graph: Graph) -> Iterator[Array]:
    """Yield the weights of 4 bits of a lowered graph, which their kernels read in their own order alone."""
    for node in walk(graph):
        if node.op_type == "MatMulNBits" and node.domain:
            arrays = (constant_array(s, weights=True, outer=True) for s in node.inputs[1:4])
            yield from (array for array in arrays if array is not None)


def _gains(graph: Graph, outer: set[int]) -> bool:
    """Return whether some kernel gains. outer: the `id` of what is constant outside of a body."""
    constant = set()
    for symbol in graph.symbols:
        producer = symbol.producer
        if isinstance(producer, Constant) or (isinstance(producer, Captured) and id(producer.symbol) in outer):
            constant.add(id(symbol))
    for node in graph.nodes:
        inputs = [s for s in node.inputs if s is not None]
        inner = bodies(node)
        if inputs and not inner and all(id(s) in constant for s in inputs):  # folded when the session starts
            constant.update(map(id, node.outputs))
        elif _packs(node, constant) or any(_gains(body, constant) for body in inner):
            return True
    return False


def _packs(node: Node, constant: set[int]) -> bool:
    if node.op_type in _LEFT:
        return False
    if node.domain or node.op_type in PACKED:
        return any(id(s) in constant and _is_matrix(s) for s in node.inputs if s is not None)
    if node.op_type not in _PRODUCTS:
        return False
    rows, weight = node.inputs[:2]
    return id(weight) in constant and (bool(node.attributes.get("transA")) or not _is_one_row(rows))


def _is_matrix(symbol: Symbol) -> bool:
    return isinstance(symbol.type, TensorType) and symbol.shape.is_ranked and symbol.rank > 1


def _is_one_row(symbol: Symbol | None) -> bool:
    if symbol is None or not symbol.shape.is_ranked:
        return False
    return all(dim.is_static and int(dim) == 1 for dim in tuple(symbol.shape)[:-1])
