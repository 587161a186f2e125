"""Refuse a Conv whose filters have no elements along an axis: onnxruntime's kernel never ends, and cannot be stopped.

Where only the run knows, a Reshape to at least one element along each of these axes fails in words.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, tensor_type

_LEADING = 2
"""The axes of filters that are channels, before those of the kernel."""


def _found(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if node.op_type == "Conv" and not node.domain and node.inputs[1] is not None:
            type_ = node.inputs[1].type
            if isinstance(type_, TensorType) and not _has_elements(type_.shape):
                yield node


def _has_elements(shape: Shape) -> bool:
    return shape.is_ranked and all((dim.lower_bound or 0) > 0 for dim in shape[_LEADING:])


def _write(graph: Graph, node: Node) -> None:
    x, w, *others = node.inputs
    assert w is not None
    if w.shape.is_ranked and any(dim.is_static and not int(dim) for dim in w.shape[_LEADING:]):
        raise GraphError(
            "Conv: its filters have no elements along an axis, on which the kernel of onnxruntime never ends",
            operands={"W": w},
            help="give filters of at least one element along each axis",
        )
    b = graph.build
    count = Dim.dynamic() if not w.shape.is_ranked else Dim(w.rank)
    front = b.emit("Shape", (w,), _sizes(Dim(_LEADING)), {"end": _LEADING})
    kernel = b.emit("Shape", (w,), _sizes(count - _LEADING), {"start": _LEADING})
    least = b.emit("Max", (kernel, b.vector([1])), kernel.type)
    shape = b.emit("Concat", (front, least), _sizes(count), {"axis": 0})
    # Without allowzero a 0 of the channels is what stands there already.
    change(node, inputs=(x, b.emit("Reshape", (w, shape), w.type), *others))


def _sizes(count: Dim) -> TensorType:
    return tensor_type(DType.int64, Shape([count]))


GUARD = rewriting(
    "Conv without a kernel",
    "Conv",
    "the kernel never ends on filters without elements along an axis",
    {"Conv"},
    _found,
    _write,
)
