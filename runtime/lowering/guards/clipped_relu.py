"""Write a Relu of float64 before a Clip as a Clip: onnxruntime's optimiser fuses the two, and fails on float64."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType


def _write(graph: Graph, node: Node) -> None:
    """Make a Clip from 0 up of a Relu."""
    # Without an upper bound the kernel takes the greatest number for infinity.
    bounds = (graph.build.constant(np.array(bound), DType.float64) for bound in (0.0, np.inf))
    change(node, op_type="Clip", inputs=(node.inputs[0], *bounds))


def _clipped(graph: Graph) -> Iterable[Node]:
    """Return the Relus of float64 that were built here and that a Clip reads."""
    found: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op_type == "Clip" and not node.domain and node.inputs[0] is not None:
            relu = node.inputs[0].producer
            if (
                isinstance(relu, Node)
                and relu.op_type == "Relu"
                and not relu.domain
                and relu.outputs[0].dtype is DType.float64
                and type(relu.origin) is not Imported
            ):
                found[id(relu)] = relu
    return found.values()


GUARD = rewriting(
    "optimiser FuseReluClip",
    "Relu, Clip",
    "the optimiser fails on a Relu of float64 before a Clip",
    {"Relu"},
    _clipped,
    _write,
)
