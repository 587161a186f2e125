"""Count the axes of operands of unknown rank: kernels that read sizes of axes which are not there end the process.

An Unsqueeze at the last axis that there must be fails in words where it is not there, and a Squeeze takes the new axis
away. Neither copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.types.tensor_types import TensorType

LEAST: Mapping[str, int] = {"DFT": 2, "GridSample": 3, "STFT": 2}
"""The fewest axes of the first operand, which ONNX's inference asks for where the rank is known."""


def _found(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if node.op_type in LEAST and not node.domain and node.inputs[0] is not None:
            type_ = node.inputs[0].type
            if isinstance(type_, TensorType) and not type_.shape.is_ranked:
                yield node


def _write(graph: Graph, node: Node) -> None:
    x, *others = node.inputs
    assert x is not None
    b = graph.build
    apart = b.emit("Unsqueeze", (x, b.vector([LEAST[node.op_type]])), x.type)
    change(node, inputs=(b.emit("Squeeze", (apart, b.vector([LEAST[node.op_type]])), x.type), *others))


GUARD = rewriting(
    "operands of fewer axes",
    ", ".join(LEAST),
    "kernels end the process on operands of fewer axes than the operator has",
    LEAST,
    _found,
    _write,
)
