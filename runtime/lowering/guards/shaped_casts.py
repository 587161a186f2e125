"""Keep Casts of narrow dtypes before a Shape: onnxruntime's optimiser drops them, and has no Shape of such dtypes.

An Unsqueeze stands between, and the Shape begins after the axis that it adds. Sessions leave the optimiser out, for
models that others wrote too.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.guards.guard import built_here, rewriting
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType, tensor_type


def is_of_narrow(node: Node) -> bool:
    """Return whether a node is a Shape of what a Cast made of a dtype of 2 or 4 bits, or of float8."""
    if node.op_type != "Shape" or node.domain:
        return False
    cast = None if node.inputs[0] is None else node.inputs[0].producer
    if not isinstance(cast, Node) or cast.op_type != "Cast" or cast.domain or cast.inputs[0] is None:
        return False
    type_ = cast.inputs[0].type
    return isinstance(type_, TensorType) and (
        1 < type_.dtype.bits < 8 or (type_.dtype.is_float and type_.dtype.bits == 8)
    )


def _found(graph: Graph) -> Iterator[Node]:
    return filter(is_of_narrow, built_here(graph, {"Shape"}))


def _write(graph: Graph, node: Node) -> None:
    (x,) = node.inputs
    assert x is not None
    shape = Shape([Dim(1), *x.shape]) if x.shape.is_ranked else x.shape
    wide = graph.build.emit("Unsqueeze", (x, graph.build.vector([0])), tensor_type(x.dtype, shape))
    # Places from the end on are those that they were.
    moved = {key: at + 1 if at >= 0 else at for key, at in node.attributes.items() if key in ("start", "end")}
    start = moved.pop("start", 1)
    if start < 0 and x.shape.is_ranked:
        start = max(start, -x.rank)
    change(node, inputs=(wide,), attributes={"start": start, **moved})


GUARD = rewriting(
    "optimiser PreShapeNodeElimination",
    "Cast before Shape",
    "the optimiser drops the Cast, and there is no Shape of dtypes of 2 or 4 bits",
    {"Shape"},
    _found,
    _write,
)
