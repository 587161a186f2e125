"""Count axes of reductions from the front: onnxruntime reduces an empty tensor along no axis that is below 0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphcore.ir.constants import constant_array
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.types.tensor_types import TensorType

_REDUCTIONS = frozenset({f"Reduce{kind}" for kind in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()})


def _negative(graph: Graph) -> Iterator[Node]:
    """Yield the reductions along an axis below 0."""
    return (node for node in graph.nodes if _counted(node) is not None)


def _write(graph: Graph, node: Node) -> None:
    axes = _counted(node)
    assert axes is not None
    change(node, inputs=(node.inputs[0], graph.build.vector(axes)))


def _counted(node: Node) -> list[int] | None:
    """Return the axes counted from the front; None where they are already, or not constant."""
    if node.op_type not in _REDUCTIONS or node.domain or len(node.inputs) < 2:
        return None
    x, axes = node.inputs
    known = constant_array(axes, weights=True, outer=True)
    if x is None or known is None or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
        return None
    found: list[int] = np.reshape(known, -1).tolist()
    return [axis % len(x.shape) for axis in found] if any(axis < 0 for axis in found) else None


GUARD = rewriting(
    "empty reduction along an axis below 0",
    "Reduce*",
    "the kernel leaves out reductions of empty tensors along them",
    _REDUCTIONS,
    _negative,
    _write,
)
