"""Make signed weights of bytes unsigned where products of unsigned with signed bytes saturate.

x86 processors without VNNI add pairs of such products in 16 bits. Kernels and the optimiser that makes them of
DequantizeLinear nodes take weights that are 128 more, with a zero point that is, and give the numbers that are meant.
ConvInteger multiplies filters by x: there filters that are unsigned beside a signed x become signed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.runtime.lowering.guards.dequantized import dequantizing
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, tensor_type

_MICROSOFT = "com.microsoft"
_WEIGHTS: dict[tuple[str, str], tuple[tuple[int, int, int | None], ...]] = {
    ("ConvInteger", ""): ((1, 3, None),),
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
        if any(_saturates(node, at) for at, _, _ in _places(node)):
            yield node
        elif not node.domain and node.op_type in ("Conv", "Gemm", "MatMul"):
            weight, x = (dequantizing(s, _MOVES) for s in node.inputs[1::-1])
            if weight is None or x is None or id(weight) in made or not _saturates(weight, 0):
                continue
            if _dtype(x.inputs[0]) is DType.uint8:
                made.add(id(weight))
                yield weight


def _places(node: Node) -> Sequence[tuple[int, int, int | None]]:
    """Return the places of weights of a node, if its other operand is one beside which they may saturate."""
    rows = _WEIGHTS.get((node.op_type, node.domain), ())
    is_rounded = node.op_type.startswith("Dynamic")  # from float32 to unsigned bytes
    other = DType.int8 if node.op_type == "ConvInteger" else DType.uint8
    return rows if is_rounded or (rows and _dtype(node.inputs[0]) is other) else ()


def _dtype(symbol: Symbol | None) -> DType | None:
    return symbol.dtype if symbol is not None and isinstance(symbol.type, TensorType) else None


def _saturates(node: Node, at: int) -> bool:
    """Return whether weights have the other sign than the other operand, and are not known to be small enough."""
    symbol, is_first = node.inputs[at], node.op_type == "ConvInteger"
    if symbol is None or _dtype(symbol) is not (DType.uint8 if is_first else DType.int8):
        return False
    array = constant_array(symbol, weights=True, outer=True)
    widest = 2 * _WIDEST - 1 if is_first else _WIDEST  # beside 128, and beside 255
    return array is None or bool(array.size and (array.max() > widest or array.min() < -widest))


def _turn(graph: Graph, node: Node) -> None:
    if node.op_type == "DequantizeLinear":
        places: Sequence[tuple[int, int, int | None]] = ((0, 2, 1),)
    else:
        places = _places(node)
    inputs: list[Symbol | None] = [*node.inputs]
    for at, zero_at, scale_at in places:
        weight = inputs[at]
        if weight is None or not _saturates(node, at):
            continue
        inputs += [None] * (zero_at + 1 - len(inputs))
        zero, scale = inputs[zero_at], None if scale_at is None else inputs[scale_at]
        dims = () if scale is None else tuple(scale.shape.static_dims)
        zero = graph.build.constant(np.zeros(dims, weight.dtype.numpy), weight.dtype) if zero is None else zero
        inputs[zero_at] = _turned(graph, zero)
        inputs[at] = _turned(graph, weight)
    change(node, inputs=tuple(inputs))


def _turned(graph: Graph, x: Symbol) -> Symbol:
    """Return bytes that are 128 more and unsigned, or 128 less and signed, made once for all nodes that read them."""
    made_once = graph.memory.values
    if ("turned", x.id) not in made_once:
        made_once["turned", x.id] = _made(graph, x)
    return made_once["turned", x.id]


def _made(graph: Graph, x: Symbol) -> Symbol:
    dtype, step = (DType.uint8, 128) if x.dtype is DType.int8 else (DType.int8, -128)
    array = constant_array(x, weights=True, outer=True)
    if array is not None:
        turned: np.ndarray[Any, Any] = np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(128)
        return graph.build.constant(turned.view(dtype.numpy).reshape(array.shape), dtype)
    b, wide = graph.build, tensor_type(DType.int32, x.shape)
    moved = b.emit("Add", (b.emit("Cast", (x,), wide, {"to": DType.int32}), b.scalar(step, DType.int32)), wide)
    return b.emit("Cast", (moved,), tensor_type(dtype, x.shape), {"to": dtype})


GUARD = rewriting(
    "signed weights of bytes",
    "weights of bytes beside an operand of the other sign",
    "processors without VNNI saturate products of unsigned with signed bytes",
    {"DequantizeLinear", *(op_type for op_type, _ in _WEIGHTS)},
    _found,
    _turn,
    is_of_processors=True,
    in_standard=True,
)
