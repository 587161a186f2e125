"""Count the axes of operands of unknown rank: kernels that read sizes of axes which are not there end the process.

An Unsqueeze at the last axis that there must be fails in words where it is not there, and a Squeeze takes the new axis
away. Neither copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import Guard, rewriting
from graphcore.types.tensor_types import TensorType

LEAST: Mapping[tuple[str, str], Mapping[int, int]] = {
    ("", "DFT"): {0: 2},
    ("", "GridSample"): {0: 3},
    ("", "STFT"): {0: 2},
    ("com.microsoft", "DynamicQuantizeMatMul"): {1: 2},
    ("com.microsoft", "GroupQueryAttention"): {7: 2, 8: 2},
}
"""By domain and operator, the fewest axes of operands; inference asks for them where the rank is known."""

OLDER: Mapping[tuple[str, str], Mapping[int, int]] = {
    ("", "AffineGrid"): {1: 1},
    ("", "Attention"): {0: 4},
    ("", "Conv"): {1: 3},
    ("", "Einsum"): {},
}
"""The same of kernels that say so in the newest release. The terms of Einsum tell; Attention may say how many heads
queries of three axes have."""


def _least(node: Node) -> Mapping[int, int]:
    key = node.domain, node.op_type
    if key == ("", "Einsum"):
        terms = node.attributes["equation"].partition("->")[0].split(",")
        return {place: sum(map(str.isalpha, term)) for place, term in enumerate(terms)}
    if key == ("", "Attention") and "q_num_heads" in node.attributes:
        return {}
    return LEAST.get(key) or OLDER.get(key) or {}


def _unsure(node: Node) -> Iterator[tuple[int, Symbol, int]]:
    """Yield the operands whose axes are to be counted, with their positions and the fewest axes."""
    for place, least in _least(node).items():
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


def _guard(trap: str, least: Mapping[tuple[str, str], Mapping[int, int]]) -> Guard:
    signs = [op_type for _, op_type in least]
    return rewriting(
        trap,
        ", ".join(signs),
        "kernels end the process on operands of fewer axes than the operator has",
        signs,
        lambda graph: (n for n in graph.nodes if (n.domain, n.op_type) in least and any(True for _ in _unsure(n))),
        _write,
    )


GUARD = _guard("operands of fewer axes", LEAST)
OLD = _guard("operands of fewer axes that newer kernels refuse", OLDER)
