"""Write the zero point of each DequantizeLinear: where there is none, TransposeOptimizer quantises to uint8 again.

It moves a Transpose beyond the node, and puts a QuantizeLinear and a DequantizeLinear in between. Without a zero point
the former gives uint8, which is not what the latter takes; some releases end the process.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, tensor_type


def _untold(graph: Graph) -> Iterator[Node]:
    """Yield the nodes without a zero point, those of others' models too."""
    for node in graph.nodes:
        if node.op_type == "DequantizeLinear" and not node.domain and (len(node.inputs) < 3 or node.inputs[2] is None):
            x = node.inputs[0]
            if x is not None and isinstance(x.type, TensorType) and x.dtype is not DType.uint8:
                yield node


def _tell(graph: Graph, node: Node) -> None:
    x, scale = node.inputs[:2]
    assert x is not None
    assert scale is not None
    change(node, inputs=(x, scale, _zeros(graph, x.dtype, scale)))


def _zeros(graph: Graph, dtype: DType, scale: Symbol) -> Symbol:
    """Return zeros of a dtype in the shape of a scale."""
    sizes = [dim.value for dim in scale.shape]
    if None not in sizes:
        return graph.build.constant(np.zeros([n or 0 for n in sizes], dtype.numpy), dtype)
    shape = graph.build.emit("Shape", (scale,), tensor_type(DType.int64, Shape([scale.rank])))
    return graph.build.emit(
        "ConstantOfShape", (shape,), tensor_type(dtype, scale.shape), {"value": np.zeros(1, dtype.numpy)}
    )


GUARD = rewriting(
    "DequantizeLinear without a zero point",
    "DequantizeLinear, Transpose",
    "the optimiser that moves the Transpose would quantise to uint8",
    {"Transpose"},
    _untold,
    _tell,
)
