"""Workarounds for sizes that are known at run time only: numbers of axes, and pads of `auto_pad`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from graphcore import ops
from graphcore.build import primitives as e
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.runtime.lowering.passes import Pass, matching, node_workaround, operand_workaround, sizes_type
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import SequenceType, TensorType

# Write explicit pads for auto_pad around windows with dilations or with gaps between them.
#
# Kernels of onnxruntime pad as if there were no dilations, so that pools return less than ONNX defines and convolutions
# are refused; between windows with gaps they use negative pads, and start after the first element.

_FILTERS = {"AveragePool": None, "Conv": 1, "ConvInteger": 1, "LpPool": None, "MaxPool": None, "QLinearConv": 3}
"""The operators, with the operand whose shape has the window sizes if no attribute has."""


def _is_padded_wrongly(node: Node) -> bool:
    is_same = node.attributes.get("auto_pad", "").startswith("SAME")
    return is_same and (any(n != 1 for n in node.attributes.get("dilations", ())) or _has_gaps(node))


def _has_gaps(node: Node) -> bool:
    """Return True if the gaps between windows are so large that a kernel pads wrongly: 3 or more for convolutions."""
    place, steps = _FILTERS[node.op_type], node.attributes.get("strides", ())
    sizes = node.attributes.get("kernel_shape", ())
    filters = None if sizes or place is None else node.inputs[place]
    if filters is not None and filters.shape.is_ranked:
        sizes = [int(dim) if dim.is_static else step for dim, step in zip(filters.shape[2:], steps, strict=False)]
    max_gap = 0 if place is None else 2
    return any(step - size > max_gap for step, size in zip(steps, sizes, strict=False))


def _write_pads(graph: Graph, node: Node) -> None:
    attributes = {**node.attributes}
    upper = attributes.pop("auto_pad") == "SAME_UPPER"
    attributes.pop("ceil_mode", None)  # auto_pad overrides it
    x, sizes = present(node.inputs[0]), _sizes(node)
    gaps = attributes.get("dilations") or [1] * len(sizes)
    steps = attributes.get("strides") or [1] * len(gaps)
    is_pool = _FILTERS[node.op_type] is None  # pools do not accept pads of a whole window
    spans = [(size - 1) * gap + 1 for size, gap in zip(sizes, gaps, strict=True)]
    dims = list(x.shape[2:]) if x.shape.is_ranked else [Dim.dynamic()] * len(sizes)
    totals: list[int | None] = []
    for dim, span, step in zip(dims, spans, steps, strict=True):
        if dim.is_static:
            totals.append(max((-(-int(dim) // step) - 1) * step + span - int(dim), 0))
        else:
            totals.append(span - 1 if step == 1 or span == 1 else None)
    static_totals = [total for total in totals if total is not None]
    before = [total // 2 if upper else total - total // 2 for total in static_totals]
    after = [total - first for total, first in zip(static_totals, before, strict=True)]
    is_known = len(static_totals) == len(totals)
    if is_known and (not is_pool or all(n < size for n, size in zip(before + after, sizes * 2, strict=True))):
        change(node, attributes={**attributes, "pads": [*before, *after]})
        return
    if len(node.outputs) > 1:
        raise _unknown(node, "pads that are smaller than the window, since it also returns positions")
    b, dtype, maxima = graph.build, x.dtype, node.op_type == "MaxPool"
    image_sizes = b.emit("Shape", (x,), sizes_type(len(sizes)), {"start": 2})
    pads = b.vector([0, 0, *before, 0, 0, *after]) if is_known else _pads(graph, image_sizes, spans, steps, upper)
    lowest = b.scalar(-math.inf if dtype.is_float else dtype.min, dtype) if maxima else _zero_point(node)
    grown = [Dim.dynamic() if total is None else dim + total for dim, total in zip(dims, totals, strict=True)]
    front = list(x.shape[:2]) if x.shape.is_ranked else [Dim.dynamic()] * 2
    padded = b.emit("Pad", (x, pads, lowest), TensorType(dtype, [*front, *grown]))
    if node.op_type != "AveragePool" or attributes.pop("count_include_pad", 0):
        change(node, inputs=(padded, *node.inputs[1:]), attributes=attributes)
        return
    shape = b.emit("Concat", (b.vector([1, 1]), image_sizes), sizes_type(len(sizes) + 2), {"axis": 0})
    one = np.ones(1, dtype.numpy)
    ones = b.emit("ConstantOfShape", (shape,), TensorType(dtype, [1, 1, *dims]), {"value": one})
    ones = b.emit("Pad", (ones, pads), TensorType(dtype, [1, 1, *grown]))
    share = b.emit("AveragePool", (ones,), TensorType(dtype, [1, 1, *node.outputs[0].shape[2:]]), attributes)
    sums = b.emit("AveragePool", (padded,), node.outputs[0].type, attributes)
    change(node, op_type="Div", inputs=(sums, share), attributes={})


def _pads(graph: Graph, image_sizes: Symbol, spans: list[int], steps: list[int], upper: bool) -> Symbol:
    """Return the pads of images whose sizes are known at run time only."""
    b, every = graph.build, graph.build.vector(steps)
    rounded = e.add(image_sizes, b.vector([step - 1 for step in steps]))
    starts = e.mul(e.div(rounded, every), every)
    total = e.sub(starts, e.add(image_sizes, b.vector([step - n for step, n in zip(steps, spans, strict=True)])))
    total = e.mul(total, e.emit("Cast", e.greater(total, b.vector([0])), dtype=DType.int64, to=DType.int64))
    half = e.div(total, b.vector([2]))
    rest = e.sub(total, half)
    none, ends = b.vector([0, 0]), (half, rest) if upper else (rest, half)
    return e.emit("Concat", none, ends[0], none, ends[1], axis=0)


def _zero_point(node: Node) -> Symbol | None:
    """Return the value that pads convolutions of integers."""
    return node.inputs[2] if node.op_type in ("ConvInteger", "QLinearConv") and len(node.inputs) > 2 else None


def _sizes(node: Node) -> list[int]:
    """Return the sizes of the windows. Raises `GraphError` if they are known at run time only."""
    kernel_shape, place = node.attributes.get("kernel_shape"), _FILTERS[node.op_type]
    if kernel_shape or place is None:
        return list(kernel_shape or ())
    filters = node.inputs[place]
    if filters is None or not filters.shape.is_ranked or not all(dim.is_static for dim in filters.shape[2:]):
        raise _unknown(node, "the sizes of its filters")
    return [int(dim) for dim in filters.shape[2:]]


def _unknown(node: Node, what: str) -> GraphError:
    return GraphError(
        f"{node.op_type}: auto_pad with dilations or gaps needs {what}, since onnxruntime pads such windows wrongly",
        operands={"X": present(node.inputs[0])},
        help="declare the size (with_dims, or the command set-dims), or write pads instead of auto_pad",
    )


SAME_PADS = node_workaround(
    "windows with dilations and auto_pad",
    "kernels pad as if there were no dilations",
    _FILTERS,
    matching(_is_padded_wrongly, _FILTERS),
    _write_pads,
)


# Check the number of axes of operands of unknown rank: kernels that read sizes of missing axes crash.
#
# An Unsqueeze at the last required axis fails with an error if the operand has too few, and a Squeeze removes the new
# axis again. Neither copies.

MIN_AXES: Mapping[tuple[str, str], Mapping[int, int]] = {
    ("", "DFT"): {0: 2},
    ("", "GridSample"): {0: 3},
    ("", "STFT"): {0: 2},
    ("com.microsoft", "DynamicQuantizeMatMul"): {1: 2},
    ("com.microsoft", "GroupQueryAttention"): {7: 2, 8: 2},
}
"""By domain and operator, the minimum number of axes of operands; inference checks known ranks."""

OLDER: Mapping[tuple[str, str], Mapping[int, int]] = {
    ("", "AffineGrid"): {1: 1},
    ("", "Attention"): {0: 4},
    ("", "Conv"): {1: 3},
    ("", "Einsum"): {},
}
"""The same for kernels that check it themselves in the newest release. For Einsum the terms decide; Attention may have
queries of three axes and an attribute for the number of heads."""


def _min_axes(node: Node) -> Mapping[int, int]:
    key = node.domain, node.op_type
    if key == ("", "Einsum"):
        terms = node.attributes["equation"].partition("->")[0].split(",")
        return {place: sum(map(str.isalpha, term)) for place, term in enumerate(terms)}
    if key == ("", "Attention") and "q_num_heads" in node.attributes:
        return {}
    return MIN_AXES.get(key) or OLDER.get(key) or {}


def _unranked_operands(node: Node) -> Iterator[int]:
    """Yield the positions of the operands whose axes must be counted."""
    for place in _min_axes(node):
        x = node.inputs[place] if place < len(node.inputs) else None
        if x is not None and isinstance(x.type, TensorType) and not x.type.shape.is_ranked:
            yield place


def _count_axes(graph: Graph, node: Node, place: int) -> Symbol:
    b, x = graph.build, present(node.inputs[place])
    last = b.vector([_min_axes(node)[place]])
    return b.emit("Squeeze", (b.emit("Unsqueeze", (x, last), x.type), last), x.type)


def _workaround(trap: str, minima: Mapping[tuple[str, str], Mapping[int, int]]) -> Pass:
    signs = [op_type for _, op_type in minima]
    return operand_workaround(
        trap,
        "kernels crash on operands of fewer axes than the operator has",
        signs,
        lambda graph: (node for node in graph.nodes if (node.domain, node.op_type) in minima),
        _unranked_operands,
        _count_axes,
    )


FEW_AXES = _workaround("operands of fewer axes", MIN_AXES)
OLD = _workaround("operands of fewer axes that newer kernels refuse", OLDER)


# Compare the ranks of joined operands at run time: kernels crash if one has no elements and fewer axes than others. A
# Concat of the shapes fails with an error, since each follows a 1 and so is not empty.


_JOINS = ("Concat", "ConcatFromSequence")


def _has_unknown_rank(node: Node) -> bool:
    types = [s.type.element if isinstance(s.type, SequenceType) else s.type for s in node.inputs if s is not None]
    joins = len(types) > 1 or node.op_type == "ConcatFromSequence"
    return joins and any(isinstance(t, TensorType) and not t.shape.is_ranked for t in types)


def _compare_ranks(graph: Graph, node: Node) -> None:
    b, (first, *others) = graph.build, node.inputs
    assert first is not None
    if isinstance(first.type, SequenceType):
        element = b.emit("SequenceAt", (first, b.scalar(0, DType.int64)), first.type.element)
        change(node, inputs=(ops.list_map(lambda piece: _require_same_rank(piece, element), first),))
        return
    checked = _require_same_rank(first, *[other for other in others if other is not None])
    change(node, inputs=(checked, *others))


def _require_same_rank(x: Symbol, *others: Symbol) -> Symbol:
    """Return a value; the run fails if another one has a different rank."""
    b = x.graph.build

    def row(y: Symbol | None) -> Symbol:
        return e.unsqueeze(e.emit("Concat", b.vector([1]), e.emit("Shape", y), axis=0), 0)

    every = e.emit("Concat", row(x), *(row(b.capture(other)) for other in others), axis=0)
    first = e.emit("Gather", every, b.scalar(0, DType.int64), axis=0)
    shape = e.emit("Slice", first, b.vector([1]), b.vector([1 << 31]))
    return e.emit("Reshape", x, shape, shape=x.shape, allowzero=1)


RANKS = node_workaround(
    "joined operands of fewer axes",
    "kernels crash on an operand without elements that has fewer axes than others",
    _JOINS,
    matching(_has_unknown_rank, _JOINS),
    _compare_ranks,
)


# Keep onnxruntime from following the sizes of a Resize to a tensor whose rank it does not know: it takes the sizes of
# leading axes for none there, and refuses the model. A Reshape to their number stops it.

_UNRANKED = frozenset({"Loop", "SequenceAt"})
"""Operators whose results have no rank for onnxruntime, measured in 1.24.4 to 1.32.0; it knows those of If and Scan."""


def _has_unranked_sizes(node: Node) -> bool:
    sizes = node.inputs[3] if len(node.inputs) > 3 else None
    return sizes is not None and present(node.inputs[0]).shape.is_ranked and _is_of_unranked(sizes)


def _is_of_unranked(sizes: Symbol) -> bool:
    """Return True if a vector is computed from a tensor whose rank onnxruntime does not know."""
    pending, seen = [sizes], set()
    while pending:
        symbol = pending.pop()
        if symbol.id in seen:
            continue
        seen.add(symbol.id)
        node = symbol.producer
        if isinstance(symbol.type, TensorType) and not symbol.shape.is_ranked:
            return True
        if isinstance(node, Node):
            if node.op_type in _UNRANKED:
                return True
            pending += [operand for operand in node.inputs if operand is not None]
    return False


def _state_count(graph: Graph, node: Node, place: int) -> Symbol:
    count = len(node.attributes.get("axes") or present(node.inputs[0]).shape)
    return graph.build.emit("Reshape", (node.inputs[place], graph.build.vector([count])), sizes_type(count))


RESIZED = operand_workaround(
    "Resize to sizes of a tensor of unknown rank",
    "inference takes sizes of leading axes for none and refuses the model",
    ("Resize",),
    matching(_has_unranked_sizes, ("Resize",)),
    lambda node: (3,),
    _state_count,
    in_standard=True,
    when="Resize with computed sizes",
)
