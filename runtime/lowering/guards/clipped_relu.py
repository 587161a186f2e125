"""Write a Relu of float64 before a Clip as a Clip: onnxruntime's optimiser fuses the two, and fails on float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.guards.guard import Guard
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType


def _is_needed(parts: Sequence[Graph]) -> bool:
    """Return whether a Clip reads such a Relu that was built here."""
    return any(True for graph in parts for _ in _clipped(graph))


def _run(parts: Sequence[Graph]) -> bool:
    """Make Clips from 0 up of such nodes. Return whether there are any."""
    found = {id(node): (graph, node) for graph in parts for node in _clipped(graph)}
    for graph, node in found.values():
        # Without an upper bound the kernel takes the greatest number for infinity.
        bounds = (graph.build.constant(np.array(bound), DType.float64) for bound in (0.0, np.inf))
        change(node, op_type="Clip", inputs=(node.inputs[0], *bounds))
    return bool(found)


def _clipped(graph: Graph) -> Iterator[Node]:
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
                yield relu


GUARD = Guard(
    "optimiser FuseReluClip",
    "Relu, Clip",
    "the optimiser fails on a Relu of float64 before a Clip",
    frozenset({"Relu"}),
    _is_needed,
    _run,
)
