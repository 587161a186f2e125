"""Write pads in numbers where auto_pad asks for them around windows with dilations or with gaps between them.

Kernels of onnxruntime pad as if there were no dilations, so that pools give less than ONNX says and convolutions are
refused; between windows with gaps they pad by numbers below 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import rewriting
from graphcore.types.tensor_types import TensorType

_FILTERS = {"AveragePool": None, "Conv": 1, "ConvInteger": 1, "LpPool": None, "MaxPool": None, "QLinearConv": 3}
"""The operators, with the operand that has the sizes of the windows where no attribute does."""


def _found(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        if node.op_type in _FILTERS and not node.domain and node.attributes.get("auto_pad", "").startswith("SAME"):
            if any(n != 1 for n in node.attributes.get("dilations", ())) or _has_gaps(node):
                yield node


def _has_gaps(node: Node) -> bool:
    """Return whether windows of a pool leave gaps between them on an image of known size."""
    steps, sizes = node.attributes.get("strides", ()), node.attributes.get("kernel_shape", ())
    shape = _operand(node).shape
    is_known = shape.is_ranked and all(dim.is_static for dim in shape[2:])
    return (
        is_known
        and _FILTERS[node.op_type] is None
        and any(step > size for step, size in zip(steps, sizes, strict=False))
    )


def _write(graph: Graph, node: Node) -> None:
    attributes = {**node.attributes}
    upper = attributes.pop("auto_pad") == "SAME_UPPER"
    attributes.pop("ceil_mode", None)  # which auto_pad takes the place of
    x, sizes = _operand(node), _sizes(node)
    gaps = attributes.get("dilations") or [1] * len(sizes)
    steps = attributes.get("strides") or [1] * len(gaps)
    is_pool = _FILTERS[node.op_type] is None  # of which no kernel takes pads of a whole window
    before, after, counts = [], [], np.ones(())
    for axis, (size, gap, step) in enumerate(zip(sizes, gaps, steps, strict=True)):
        covered = (size - 1) * gap + 1
        dim = x.shape[axis + 2] if x.shape.is_ranked else None
        if dim is None or not dim.is_static:
            if step != 1 or (is_pool and covered > size):
                raise _unknown(node, f"the size of axis {axis + 2}")
            total = covered - 1
        else:
            there = int(dim)
            starts = step * np.arange(-(-there // step))
            total = max(int(starts.max(initial=0)) + covered - there, 0)
            taps = starts[:, None] + gap * np.arange(size) - (total // 2 if upper else total - total // 2)
            counts = counts[..., None] * ((taps >= 0) & (taps < there)).sum(1)
        before.append(total // 2 if upper else total - total // 2)
        after.append(total - before[-1])
    if not is_pool or all(pad < size for pad, size in zip(before + after, sizes * 2, strict=True)):
        change(node, attributes={**attributes, "pads": [*before, *after]})
        return
    grown = [dim + pads for dim, pads in zip(x.shape, [0, 0, *map(sum, zip(before, after, strict=True))], strict=True)]
    if len(node.outputs) > 1:
        raise _unknown(node, "pads of less than a window where places are asked for")
    b, maxima = graph.build, node.op_type == "MaxPool"
    lowest = b.scalar(-math.inf if x.dtype.is_float else x.dtype.min, x.dtype) if maxima else None
    padded = b.emit("Pad", (x, b.vector([0, 0, *before, 0, 0, *after]), lowest), TensorType(x.dtype, grown))
    if node.op_type != "AveragePool" or attributes.pop("count_include_pad", 0):
        change(node, inputs=(padded,), attributes=attributes)
        return
    with np.errstate(divide="ignore"):
        scale = b.constant((math.prod(sizes) / counts).astype(x.dtype.numpy), x.dtype)
    made = b.emit("AveragePool", (padded,), node.outputs[0].type, attributes)
    change(node, op_type="Mul", inputs=(made, scale), attributes={})


def _operand(node: Node) -> Symbol:
    x = node.inputs[0]
    assert x is not None
    return x


def _sizes(node: Node) -> list[int]:
    """Return the sizes of the windows. Raises `GraphError` where only the run knows them."""
    given, place = node.attributes.get("kernel_shape"), _FILTERS[node.op_type]
    if given or place is None:
        return list(given or ())
    filters = node.inputs[place]
    if filters is None or not filters.shape.is_ranked or not all(dim.is_static for dim in filters.shape[2:]):
        raise _unknown(node, "the sizes of its filters")
    return [int(dim) for dim in filters.shape[2:]]


def _unknown(node: Node, what: str) -> GraphError:
    return GraphError(
        f"{node.op_type}: auto_pad with dilations or gaps needs {what}, since onnxruntime pads such windows wrongly",
        operands={"X": _operand(node)},
        help="give the size (with_dims, or set-dims of the command), or write pads in place of auto_pad",
    )


GUARD = rewriting(
    "windows with dilations and auto_pad",
    "AveragePool, Conv, ConvInteger, LpPool, MaxPool, QLinearConv",
    "kernels pad as if there were no dilations",
    _FILTERS,
    _found,
    _write,
)
