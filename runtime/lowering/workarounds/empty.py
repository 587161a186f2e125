"""Kernels that fail on tensors without elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphcore.build import primitives as e
from graphcore.errors import GraphError
from graphcore.ir.definitions import body, outermost
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import Attributes, change
from graphcore.ir.state.settings import least, minima
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.walk import bodies, constant_array
from graphcore.operators import REDUCTIONS
from graphcore.runtime.lowering.passes import matching, node_workaround, operand_workaround
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type


def _count_from_front(graph: Graph, node: Node) -> None:
    axes = present(_axes_from_front(node))
    change(node, inputs=(node.inputs[0], graph.build.vector(axes)))


def _axes_from_front(node: Node) -> list[int] | None:
    """Return the non-negative axes; None if no axis is negative, or they are not constant."""
    if len(node.inputs) < 2:
        return None
    x, axes = node.inputs
    array = constant_array(axes, weights=True, outer=True)
    if x is None or array is None or not isinstance(x.type, TensorType) or not x.shape.is_ranked:
        return None
    numbers: list[int] = np.reshape(array, -1).tolist()
    return [axis % len(x.shape) for axis in numbers] if any(axis < 0 for axis in numbers) else None


NEGATIVE_AXES = node_workaround(
    "empty reduction along an axis below 0",
    "the kernel does not reduce empty tensors along negative axes",
    REDUCTIONS,
    matching(lambda node: _axes_from_front(node) is not None, REDUCTIONS),
    _count_from_front,
    when="Reduce*",
)


def _may_lack_axes(node: Node) -> bool:
    """Return True if the axes of a Squeeze are empty, or may be empty at run time."""
    return len(node.inputs) > 1 and node.inputs[1] is not None and _may_be_empty(node.inputs[1].shape)


def _may_be_empty(shape: Shape, start: int = 0) -> bool:
    """Return True if a tensor may have no elements along an axis from `start` on."""
    return not shape.is_ranked or any((dim.lower_bound or 0) < 1 for dim in shape[start:])


def _keep_axes(graph: Graph, node: Node) -> None:
    x, axes = map(present, node.inputs)
    if axes.shape.is_ranked and axes.shape.is_static:
        change(node, op_type="Identity", inputs=(x,))
        return
    sizes = e.emit("Shape", x)
    zeros, ones = (
        e.emit("ConstantOfShape", e.emit("Shape", of), value=np.array([value])) for of, value in ((axes, 0), (sizes, 1))
    )
    is_kept = e.emit("Cast", e.emit("ScatterElements", ones, axes, zeros), dtype=DType.bool, to=DType.bool)
    remaining_sizes = e.emit("Compress", sizes, is_kept)
    change(node, op_type="Reshape", inputs=(x, remaining_sizes), attributes=Attributes({"allowzero": 1}))


NO_AXES = node_workaround(
    "Squeeze along no axes",
    "the kernel removes every axis of size 1",
    {"Squeeze"},
    matching(_may_lack_axes, {"Squeeze"}),
    _keep_axes,
    in_standard=True,
)


# Test the inputs of Attention at run time: the kernel fails on empty ones, and sizes may be known at run time only.
#
# If a dim may be 0, an If chooses between the kernel and zeros, the result without keys. The result is empty itself if
# there are no queries.

_COUNTED = (DType.float32, DType.int64, DType.int32)
"""Dtypes of inputs of which every provider can compute the size."""
_FLAG = tensor_type(DType.bool, _shape([]))
_NUMBER = tensor_type(DType.int64, _shape([]))


def _untested(graph: Graph) -> Iterator[Node]:
    """Yield such nodes, except the one in the branch of a test."""
    outer = graph.scope.outer
    tests = [] if outer is None else [node for node in outer.nodes if _is_workaround(node)]
    is_branch = any(inner is graph for node in tests for inner in bodies(node))
    return (node for node in graph.nodes if not is_branch and _may_fail(node))


def _may_fail(node: Node) -> bool:
    """Return True if a node is an Attention without a past, of which some dim may be 0."""
    if node.op_type != "Attention" or node.domain or len(node.outputs) != 1 or any(node.inputs[4:6]):
        return False
    q, k, v = node.inputs[:3]
    if not all(isinstance(s.type, TensorType) and s.shape.is_ranked for s in (q, k, v, *node.outputs) if s is not None):
        return False
    assert q is not None
    return bool(_possibly_empty(q) | _possibly_empty(present(k))) and (
        q.rank == 4 or node.outputs[0].shape[-1].is_static
    )


def _possibly_empty(symbol: Symbol) -> frozenset[Dim]:
    lower_bounds = minima(outermost(symbol.graph).metadata)
    return frozenset([d for d in symbol.shape if least(d, lower_bounds) <= 0])


def _is_workaround(node: Node) -> bool:
    """Return True if a node is such a test already, in an exported model."""
    branches = [[n.op_type for n in inner.nodes] for inner in bodies(node)] if node.op_type == "If" else []
    return len(branches) == 2 and branches[0][-2:] == ["Concat", "Expand"] and branches[1] == ["Attention"]


def _write_test(graph: Graph, node: Node) -> None:
    """Turn a node into the test, with the kernel in one branch and zeros in the other."""
    q, k = map(present, node.inputs[:2])
    test = _is_empty(graph, q, k)
    branches = {"then_branch": _zeros(graph, node), "else_branch": _kernel(graph, node)}
    change(node, op_type="If", inputs=(test,), attributes=branches)


def _zeros(graph: Graph, node: Node) -> Graph:
    """Return the body that gives zeros in the shape of the result."""
    with body(graph, "attention") as zeros:
        b = zeros.build
        q, _, v = [None if s is None else b.capture(s) for s in node.inputs[:3]]
        assert q is not None
        assert v is not None
        result = node.outputs[0]
        front = e.emit("Shape", q, end=result.rank - 1)
        last = e.emit("Shape", v, start=3) if result.rank == 4 else b.vector([int(result.shape[-1])])
        shape = e.emit("Concat", front, last, axis=0)
        b.outputs([(None, b.emit("Expand", (b.scalar(0.0, result.dtype), shape), result.type))])
    return zeros


def _kernel(graph: Graph, node: Node) -> Graph:
    with body(graph, "attention") as inner:
        operands = tuple([None if s is None else inner.build.capture(s) for s in node.inputs])
        inner.build.outputs([(None, inner.build.emit("Attention", operands, node.outputs[0].type, node.attributes))])
    return inner


def _is_empty(graph: Graph, q: Symbol, k: Symbol) -> Symbol:
    """Return the test for no queries or no keys, shared by all layers if an input of the graph decides it."""
    dims, tests = _possibly_empty(q) | _possibly_empty(k), graph.memory.values
    if ("is empty", dims) in tests:
        shared: Symbol = tests["is empty", dims]
        return shared
    has_names = not any(d.is_dynamic for d in dims)
    deciding_inputs = [s for s in graph.input_symbols if _tells(s, dims)] if has_names else []
    tested = deciding_inputs[:1] or ([q] if has_names and _possibly_empty(q) == _possibly_empty(k) else [q, k])
    zero = graph.build.scalar(0, DType.int64)
    first, *more = [graph.build.emit("Equal", (graph.build.emit("Size", (s,), _NUMBER), zero), _FLAG) for s in tested]
    test = graph.build.emit("Or", (first, more[0]), _FLAG) if more else first
    if deciding_inputs:
        tests["is empty", dims] = test
    return test


def _tells(symbol: Symbol, dims: frozenset[Dim]) -> bool:
    """Return True if an input has no elements exactly if one of the dims is 0."""
    type_ = symbol.type
    if not isinstance(type_, TensorType) or type_.dtype not in _COUNTED or not type_.shape.is_ranked:
        return False
    return _possibly_empty(symbol) == dims


ATTENTION = node_workaround(
    "Attention without elements",
    "the kernel fails if there are no queries or keys",
    {"Attention"},
    _untested,
    _write_test,
    is_of_fusions=True,
    when="Attention from a fusion",
)


# Refuse convolutions whose filters have no elements along an axis.
#
# onnxruntime's kernel of Conv never ends and cannot be stopped; those of integers return uninitialised memory.
#
# If the sizes are known at run time only, a Reshape to at least one element along each of these axes fails with an
# error.

_FILTERS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""The operators, with the position of their filters."""
_LEADING = 2
"""The number of leading axes of filters that are channels."""


def _may_lack_elements(symbol: Symbol | None) -> bool:
    """Return True if the spatial axes of a tensor may have no elements."""
    return symbol is not None and isinstance(symbol.type, TensorType) and _may_be_empty(symbol.shape, _LEADING)


def _write_kernel(graph: Graph, node: Node, place: int) -> Symbol:
    w = present(node.inputs[place])
    if w.shape.is_ranked and any(dim.is_static and not int(dim) for dim in w.shape[_LEADING:]):
        raise GraphError(
            f"{node.op_type}: its filters have no elements along an axis, on which kernels of onnxruntime hang or fail",
            operands={"W": w},
            help="pass filters with at least one element along each axis",
        )
    least = e.emit("Max", e.emit("Shape", w, start=_LEADING), e.ints(w, [1]))
    shape = e.emit("Concat", e.emit("Shape", w, end=_LEADING), least, axis=0)
    # Without allowzero a size of 0 keeps the size of the operand, for the channels.
    return e.emit("Reshape", w, shape, shape=w.shape)


KERNELS = operand_workaround(
    "Conv without a kernel",
    "on filters without elements along an axis kernels never end, or return uninitialised memory",
    _FILTERS,
    matching(lambda node: _may_lack_elements(node.inputs[_FILTERS[node.op_type]]), _FILTERS),
    lambda node: (_FILTERS[node.op_type],),
    _write_kernel,
)


# Pool images that may have no channels plane by plane: kernels refuse images without channels, and the optimiser of
# layouts fails on them. An empty batch works, and no Reshape copies. Planes without elements are reduced.

_POOLS = {
    "AveragePool": "",
    "GlobalAveragePool": "ReduceMean",
    "GlobalMaxPool": "ReduceMax",
    "LpPool": "",
    "MaxPool": "",
}
"""The operators, with the reduction that pools whole planes."""


def _is_failing_pool(node: Node) -> bool:
    """Return True if a pool may fail, except one of no channels with a second result for the positions."""
    x = node.inputs[0] if len(node.outputs) == 1 else None
    if x is None or not x.shape.is_ranked or x.rank <= _LEADING:
        return False
    return x.shape[1] in _possibly_empty(x) or _is_of_nothing(node, x)


def _is_of_nothing(node: Node, x: Symbol) -> bool:
    return bool(_POOLS[node.op_type]) and any(dim == 0 for dim in x.shape[_LEADING:])


def _write_pool(graph: Graph, node: Node) -> None:
    b, x, result = graph.build, present(node.inputs[0]), node.outputs[0]
    if _is_of_nothing(node, x):
        axes = b.vector(list(range(_LEADING, x.rank)))
        change(node, op_type=_POOLS[node.op_type], inputs=(x, axes), attributes={"keepdims": 1})
        return
    front = e.emit("Shape", x, end=_LEADING)
    planes = e.emit("ReduceProd", front, keepdims=1)

    def sizes(y: Symbol, *leading: Symbol) -> Symbol:
        return e.emit("Concat", *leading, e.emit("Shape", y, start=_LEADING), axis=0)

    batch, exact = [x.shape[0] * x.shape[1], Dim(1)], {"allowzero": 1}
    type_ = TensorType(x.dtype, [*batch, *x.shape[_LEADING:]])
    flat = b.emit("Reshape", (x, sizes(x, planes, b.vector([1]))), type_, exact)
    pooled = b.emit(node.op_type, (flat,), TensorType(x.dtype, [*batch, *result.shape[_LEADING:]]), node.attributes)
    change(node, op_type="Reshape", inputs=(pooled, sizes(pooled, front)), attributes=exact)


POOLS = node_workaround(
    "pools without elements",
    "kernels refuse images without channels, and planes without elements",
    _POOLS,
    matching(_is_failing_pool, _POOLS),
    _write_pool,
)


# Normalise images whose planes may have no elements as an empty batch of planes with elements: kernels read the first
# element of every plane of a computed image. No Reshape copies.


def _write_normalization(graph: Graph, node: Node) -> None:
    x, one = present(node.inputs[0]), graph.build.vector([1])
    batch, channels = (e.emit("Shape", x, start=i, end=i + 1) for i in range(_LEADING))
    planes = e.emit("Shape", x, start=_LEADING)
    some = e.emit("ReduceMin", e.emit("Concat", planes, one, axis=0))
    few = e.emit("Mul", batch, e.emit("Min", some, one))
    shape = e.emit("Concat", few, channels, e.emit("Max", planes, one), axis=0)
    filled = e.emit("Reshape", x, shape, shape=Shape.unknown(), allowzero=1)
    even = e.emit("InstanceNormalization", filled, *node.inputs[1:], **node.attributes)
    change(node, op_type="Reshape", inputs=(even, e.emit("Shape", x)), attributes={"allowzero": 1})


IMAGES = node_workaround(
    "InstanceNormalization without elements",
    "the kernel reads the first element of planes that have none",
    {"InstanceNormalization"},
    matching(lambda node: _may_lack_elements(node.inputs[0]), {"InstanceNormalization"}),
    _write_normalization,
)


# Refuse limits of NonMaxSuppression without elements: the kernel reads the first one without a check.
#
# If the sizes are known at run time only, a Reshape to one element fails with an error.


def _limits(node: Node) -> Iterator[int]:
    """Yield the positions of the limits of a node that may have no elements."""
    for place, x in enumerate(node.inputs):
        if place > 1 and x is not None and isinstance(x.type, TensorType) and _may_be_empty(x.shape):
            yield place


def _write_limit(graph: Graph, node: Node, place: int) -> Symbol:
    x = present(node.inputs[place])
    if x.shape.is_ranked and any(dim == 0 for dim in x.shape):
        raise GraphError(
            "NonMaxSuppression: a limit has no elements, but onnxruntime reads one",
            operands={f"input {place}": x},
            help="pass one number, or leave the operand out",
        )
    return graph.build.emit("Reshape", (x, graph.build.vector([1])), TensorType(x.dtype, [1]))


LIMITS = operand_workaround(
    "limits of NonMaxSuppression without elements",
    "the kernel reads a limit from an operand without elements",
    {"NonMaxSuppression"},
    matching(lambda node: True, {"NonMaxSuppression"}),
    _limits,
    _write_limit,
)


# Add a term of zeros to products of integers without terms: kernels return uninitialised memory for these.

_PRODUCTS = {"ConvInteger": (1, 2), "MatMulInteger": (1, 2), "QLinearConv": (3, 2), "QLinearMatMul": (3, 2)}
"""The operators, with the positions of the right factor and of the zero point of the left one."""


def _terms(node: Node) -> tuple[int, int] | None:
    """Return the axes of both factors that are summed over, if there may be no terms; None otherwise."""
    right, zero = _PRODUCTS[node.op_type]
    x, y = node.inputs[0], node.inputs[right]
    point = node.inputs[zero] if len(node.inputs) > zero else None
    if x is None or y is None or not (x.shape.is_ranked and y.shape.is_ranked and x.rank and y.rank):
        return None
    if point is not None and not (point.shape.is_ranked and point.rank == 0):
        return None
    axes = (1, 1) if "Conv" in node.op_type else (x.rank - 1, max(y.rank - 2, 0))
    if x.rank <= axes[0] or y.rank <= axes[1]:
        return None
    return None if any((s.shape[a].lower_bound or 0) > 0 for s, a in zip((x, y), axes, strict=True)) else axes


def _add_term(graph: Graph, node: Node) -> None:
    b, inputs, axes = graph.build, [*node.inputs], _terms(node)
    right, zero = _PRODUCTS[node.op_type]
    assert axes is not None
    count = e.emit("Shape", inputs[0], start=axes[0], end=axes[0] + 1)
    missing = e.emit("Max", e.emit("Sub", b.vector([1]), count), b.vector([0]))
    group = node.attributes.get("group", 1)
    for place, axis, times, point in (
        (0, axes[0], group, inputs[zero] if len(inputs) > zero else None),
        (right, axes[1], 1, None),
    ):
        x = present(inputs[place])
        more = missing if times == 1 else e.mul(missing, times)
        parts = (b.vector([0] * (x.rank + axis)), more, b.vector([0] * (x.rank - axis - 1)))
        pads = e.emit("Concat", *parts, axis=0)
        operands = (x, pads) if point is None else (x, pads, point)
        dims = [Dim.maximum(d, times) if a == axis else d for a, d in enumerate(x.shape)]
        inputs[place] = b.emit("Pad", operands, TensorType(x.dtype, dims))
    change(node, inputs=tuple(inputs))


TERMS = node_workaround(
    "integer products of nothing",
    "kernels do not write the result of an empty sum",
    _PRODUCTS,
    matching(lambda node: _terms(node) is not None, _PRODUCTS),
    _add_term,
)
