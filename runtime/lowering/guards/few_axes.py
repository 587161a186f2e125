"""Count the axes of operands of unknown rank: kernels that read sizes of axes which are not there end the process.

An Unsqueeze at the last axis that there must be fails in words where it is not there, and a Squeeze takes the new axis
away. Neither copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.types.tensor_types import TensorType

LEAST: Mapping[tuple[str, str], Mapping[int, int]] = {
    ("", "DFT"): {0: 2},
    ("", "GridSample"): {0: 3},
    ("", "STFT"): {0: 2},
    ("com.microsoft", "DynamicQuantizeMatMul"): {1: 2},
    ("com.microsoft", "GroupQueryAttention"): {7: 2, 8: 2},
}
"""By domain and operator, the fewest axes of operands; inference asks for them where the rank is known."""


def _found(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.nodes if any(True for _ in _unsure(node)))


def _unsure(node: Node) -> Iterator[tuple[int, Symbol, int]]:
    """Yield the operands whose axes are to be counted, with their positions and the fewest axes."""
    for place, least in LEAST.get((node.domain, node.op_type), {}).items():
        x = node.inputs[place] if place < len(node.inputs) else None
        if x is not None and isinstance(x.type, TensorType) and not x.type.shape.is_ranked:
            yield place, x, least


def _write(graph: Graph, node: Node) -> None:
    b = graph.build
    inputs = [*node.inputs]
    for place, x, least in _unsure(node):
        last = b.vector([least])
        inputs[place] = b.emit("Squeeze", (b.emit("Unsqueeze", (x, last), x.type), last), x.type)
    change(node, inputs=tuple(inputs))


GUARD = rewriting(
    "operands of fewer axes",
    ", ".join(op_type for _, op_type in LEAST),
    "kernels end the process on operands of fewer axes than the operator has",
    {op_type for _, op_type in LEAST},
    _found,
    _write,
)
