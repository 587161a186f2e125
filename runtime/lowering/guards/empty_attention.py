"""Attention over nothing: onnxruntime's kernel fails without queries or keys, and only the run may tell that.

Where a dim may be 0 a test is put before the kernel, and zeros in its place: what there is of a result that no key
takes part in. The result is empty itself where there are no queries.
"""

from __future__ import annotations

from graphcore.ir.draft import Draft
from graphcore.ir.graph import Graph
from graphcore.ir.rewrite import bodies
from graphcore.ir.symbol import Node, Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

NAME = "Attention without elements"
"""Of the trap."""

SIGNS = frozenset({"Attention"})

_COUNTED = (DType.float32, DType.int64, DType.int32)
"""Dtypes of inputs whose elements are counted, which every provider can."""
_FLAG = tensor_type(DType.bool, _shape([]))
_NUMBER = tensor_type(DType.int64, _shape([]))


def needed(graph: Graph) -> bool:
    """Whether there is such an attention, in the graph or one of its bodies."""
    for node in graph._nodes:
        if node.op_type == "Attention":
            if _may_fail(node):
                return True
        elif node.attributes and not _is_guard(node) and any(map(needed, bodies(node))):
            return True
    return False


def keep(graph: Graph) -> None:
    """Puts the test before such nodes of a new graph."""
    tests: dict[frozenset[Dim], Symbol] = {}
    nodes, kept = graph._nodes, graph._read
    graph._nodes = []
    for position, node in enumerate(nodes):
        if position == kept:
            graph._read = len(graph._nodes)
        if _may_fail(node):
            graph._layer, graph._origin = node.layer, node.origin
            _guard(graph, node, tests)
        elif node.attributes and not _is_guard(node):
            for body in bodies(node):
                keep(body)
        graph._nodes.append(node)
    graph._layer, graph._origin = "", None
    if kept >= len(nodes):
        graph._read = len(graph._nodes) if kept else 0


def _may_fail(node: Node) -> bool:
    """Whether a node is attention without a past, of which some dim may turn out to be 0."""
    if node.op_type != "Attention" or node.domain or len(node.outputs) != 1 or any(node.inputs[4:6]):
        return False
    q, k, v = node.inputs[:3]
    if not all(isinstance(s.type, TensorType) and s.shape.is_ranked for s in (q, k, v, *node.outputs) if s is not None):
        return False
    assert q is not None
    assert k is not None
    return bool(_unsure(q) | _unsure(k)) and (q.rank == 4 or node.outputs[0].shape[-1].is_static)


def _unsure(symbol: Symbol) -> frozenset[Dim]:
    return frozenset([d for d in symbol.shape if (d.lower_bound or 0) <= 0])


def _is_guard(node: Node) -> bool:
    """Whether a node is such a test already, in a model that was exported and is read."""
    branches = [[n.op_type for n in body._nodes] for body in bodies(node)] if node.op_type == "If" else []
    return len(branches) == 2 and branches[0][-2:] == ["Concat", "Expand"] and branches[1] == ["Attention"]


def _guard(graph: Graph, node: Node, tests: dict[frozenset[Dim], Symbol]) -> None:
    q, k = node.inputs[:2]
    assert q is not None
    assert k is not None
    test = _is_empty(graph, q, k, tests)
    node.attributes = {"then_branch": _nothing(graph, node), "else_branch": _kernel(graph, node)}
    node.op_type, node.inputs = "If", (test,)


def _nothing(graph: Graph, node: Node) -> Graph:
    """The body that gives zeros, as many as the result has."""
    body = _body(graph, node)
    q, _, v = [None if s is None else body._capture(s) for s in node.inputs[:3]]
    assert q is not None
    assert v is not None
    result = node.outputs[0]
    leading = result.rank - 1
    front = body._emit("Shape", (q,), _sizes(leading), {"end": leading})
    if result.rank == 4:
        last = body._emit("Shape", (v,), _sizes(1), {"start": 3})
    else:
        last = body._vector([int(result.shape[-1])])
    shape = body._emit("Concat", (front, last), _sizes(result.rank), {"axis": 0})
    return _giving(body, body._emit("Expand", (body._scalar(0.0, result.dtype), shape), result.type))


def _kernel(graph: Graph, node: Node) -> Graph:
    body = _body(graph, node)
    given = tuple([None if s is None else body._capture(s) for s in node.inputs])
    return _giving(body, body._emit("Attention", given, node.outputs[0].type, node.attributes))


def _sizes(count: int) -> Type:
    return tensor_type(DType.int64, _shape([Dim(count)]))


def _is_empty(graph: Graph, q: Symbol, k: Symbol, tests: dict[frozenset[Dim], Symbol]) -> Symbol:
    """Whether there are no queries or no keys. All layers ask the same where an input of the graph tells."""
    dims = _unsure(q) | _unsure(k)
    if dims in tests:
        return tests[dims]
    has_names = not any(d.is_dynamic for d in dims)
    telling = [s for s in graph._inputs if _tells(s, dims)] if has_names else []
    asked = telling[:1] or ([q] if has_names and _unsure(q) == _unsure(k) else [q, k])
    zero = graph._scalar(0, DType.int64)
    first, *more = [graph._emit("Equal", (graph._emit("Size", (s,), _NUMBER), zero), _FLAG) for s in asked]
    test = graph._emit("Or", (first, more[0]), _FLAG) if more else first
    if telling:
        tests[dims] = test
    return test


def _tells(symbol: Symbol, dims: frozenset[Dim]) -> bool:
    """Whether an input has no elements just where one of the dims is 0."""
    type_ = symbol.type
    if not isinstance(type_, TensorType) or type_.dtype not in _COUNTED or not type_.shape.is_ranked:
        return False
    return _unsure(symbol) == dims


def _body(graph: Graph, node: Node) -> Graph:
    """An empty body, of values of the graph around it."""
    body = Draft("attention")
    body._outer, body._layer, body._origin = graph, node.layer, node.origin
    return body


def _giving(body: Graph, result: Symbol) -> Graph:
    body._outputs = [(None, result)]
    body._inner = body
    return body


__all__ = ["SIGNS", "keep", "needed"]
