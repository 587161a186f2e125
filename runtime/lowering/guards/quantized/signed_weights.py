"""Make signed weights of bytes unsigned where products of unsigned with signed bytes saturate.

x86 processors without VNNI add pairs of such products in 16 bits. Kernels and the optimiser that makes them of
DequantizeLinear nodes take weights that are 128 more, with a zero point that is, and give the numbers that are meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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

_MICROSOFT = "com.microsoft"
_WEIGHTS: dict[tuple[str, str], tuple[tuple[int, int, int | None], ...]] = {
    ("MatMulInteger", ""): ((1, 3, None),),
    ("QLinearConv", ""): ((3, 5, None),),
    ("QLinearMatMul", ""): ((3, 5, None),),
    ("DynamicQuantizeLSTM", _MICROSOFT): ((1, 9, 8), (2, 11, 10)),
    ("DynamicQuantizeMatMul", _MICROSOFT): ((1, 3, 2),),
    ("MatMulIntegerToFloat", _MICROSOFT): ((1, 5, 3),),
    ("QGemm", _MICROSOFT): ((3, 5, None),),
}
"""The operands that are weights, their zero points, and scales that a zero point left out takes the shape of."""
_MOVES = frozenset({"Flatten", "MaxPool", "Relu", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_WIDEST = 64
"""Two products of 255 with it stay within 16 bits."""


def _found(graph: Graph) -> Iterator[Node]:
    made = set()
    for node in graph.nodes:
        if any(_is_signed(node.inputs[at]) for at, _, _ in _places(node)):
            yield node
        elif not node.domain and node.op_type in ("Conv", "Gemm", "MatMul"):
            weight, x = (dequantizing(s, _MOVES) for s in node.inputs[1::-1])
            if weight is None or x is None or id(weight) in made or not _is_signed(weight.inputs[0]):
                continue
            if _dtype(x.inputs[0]) is DType.uint8:
                made.add(id(weight))
                yield weight


def _places(node: Node) -> Sequence[tuple[int, int, int | None]]:
    """Return the places of signed weights of a node beside which the other operand is unsigned."""
    rows = _WEIGHTS.get((node.op_type, node.domain), ())
    is_rounded = node.op_type.startswith("Dynamic")  # from float32 to unsigned bytes
    return rows if is_rounded or (rows and _dtype(node.inputs[0]) is DType.uint8) else ()


def _dtype(symbol: Symbol | None) -> DType | None:
    return symbol.dtype if symbol is not None and isinstance(symbol.type, TensorType) else None


def _is_signed(symbol: Symbol | None) -> bool:
    """Return whether a value is of int8, and not known to be small enough."""
    if symbol is None or _dtype(symbol) is not DType.int8:
        return False
    array = constant_array(symbol, weights=True, outer=True)
    return array is None or bool(array.size and (array.max() > _WIDEST or array.min() < -_WIDEST))


def _turn(graph: Graph, node: Node) -> None:
    if node.op_type == "DequantizeLinear":
        places: Sequence[tuple[int, int, int | None]] = ((0, 2, 1),)
    else:
        places = _places(node)
    inputs: list[Symbol | None] = [*node.inputs]
    for at, zero_at, scale_at in places:
        weight = inputs[at]
        if weight is None or not _is_signed(weight):
            continue
        inputs += [None] * (zero_at + 1 - len(inputs))
        zero, scale = inputs[zero_at], None if scale_at is None else inputs[scale_at]
        dims = () if scale is None else tuple(scale.shape.static_dims)
        zero = graph.build.constant(np.zeros(dims, np.int8), DType.int8) if zero is None else zero
        inputs[zero_at] = _unsigned(graph, zero)
        inputs[at] = _unsigned(graph, weight)
    change(node, inputs=tuple(inputs))


def _unsigned(graph: Graph, x: Symbol) -> Symbol:
    """Return bytes that are 128 more, made once for all nodes that read them."""
    made_once = graph.memory.values
    if ("unsigned", x.id) not in made_once:
        made_once["unsigned", x.id] = _made_unsigned(graph, x)
    return made_once["unsigned", x.id]


def _made_unsigned(graph: Graph, x: Symbol) -> Symbol:
    array = constant_array(x, weights=True, outer=True)
    if array is not None:
        turned: np.ndarray[Any, Any] = np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(128)
        return graph.build.constant(turned.reshape(array.shape), DType.uint8)
    b, wide = graph.build, tensor_type(DType.int32, x.shape)
    moved = b.emit("Add", (b.emit("Cast", (x,), wide, {"to": DType.int32}), b.scalar(128, DType.int32)), wide)
    return b.emit("Cast", (moved,), tensor_type(DType.uint8, x.shape), {"to": DType.uint8})


_REWRITING = rewriting(
    "signed weights of bytes",
    "int8 weights of products with uint8",
    "processors without VNNI saturate products of unsigned with signed bytes",
    {"DequantizeLinear", *(op_type for op_type, _ in _WEIGHTS)},
    _found,
    _turn,
)
GUARD = replace(_REWRITING, is_of_processors=True, in_standard=True)

__all__ = ["GUARD"]
