"""Axes of reductions, counted from the front: onnxruntime reduces an empty tensor along no axis that is below 0."""

from __future__ import annotations

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.rewrite import bodies
from graphcore.ir.symbol import Node, array_of
from graphcore.types.tensor_types import TensorType

NAME = "empty reduction along an axis below 0"
"""Of the trap."""

SIGNS = frozenset({f"Reduce{kind}" for kind in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()})


def needed(graph: Graph) -> bool:
    """Whether an axis of a reduction is below 0, in the graph or one of its bodies."""
    for node in graph._nodes:
        if node.op_type in SIGNS:
            if _counted(node) is not None:
                return True
        elif node.attributes and any(map(needed, bodies(node))):
            return True
    return False


def keep(graph: Graph) -> None:
    """Gives such nodes of a new graph axes that mean the same."""
    for node in graph._nodes:
        if node.op_type in SIGNS:
            axes = _counted(node)
            if axes is not None:
                node.inputs = node.inputs[0], graph._vector(axes)
        for body in bodies(node) if node.attributes else ():
            keep(body)


def _counted(node: Node) -> list[int] | None:
    """The axes counted from the front, where some are not and all are known."""
    if node.domain or len(node.inputs) < 2:
        return None
    x, axes = node.inputs
    known = array_of(axes)
    if x is None or known is None or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
        return None
    found: list[int] = np.reshape(known, -1).tolist()
    return [axis % len(x.shape) for axis in found] if any(axis < 0 for axis in found) else None
