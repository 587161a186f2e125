"""Guard attention against empty inputs: the kernel fails on them, and sizes are known at run time only.

Where a dim may be 0, an If chooses between the kernel and zeros, the result without keys. The result is empty itself
where there are no queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from graphcore.ir.bodies import body, outermost
from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.state.dim_minima import least, minima
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.edit import edit
from graphcore.ir.transform.walk import bodies
from graphcore.runtime.lowering.guards.guard import Guard
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

_COUNTED = (DType.float32, DType.int64, DType.int32)
"""Dtypes of inputs whose elements are counted, which every provider can."""
_FLAG = tensor_type(DType.bool, _shape([]))
_NUMBER = tensor_type(DType.int64, _shape([]))


def _is_needed(parts: Sequence[Graph]) -> bool:
    """Return whether there is such an attention."""
    return any(_may_fail(node) for graph in _unguarded(parts) for node in graph.nodes)


def _run(parts: Sequence[Graph]) -> bool:
    """Put the test before such nodes. Return whether there are any."""
    is_changed = False
    for graph in [*_unguarded(parts)]:
        tests: dict[frozenset[Dim], Symbol] = {}
        found = [node for node in graph.nodes if _may_fail(node)]
        with edit(graph) as nodes:
            for node in found:
                nodes.insert_before(node, partial(_guard, graph, tests, node))
        is_changed |= bool(found)
    return is_changed


def _unguarded(parts: Sequence[Graph]) -> Iterator[Graph]:
    """Yield the graphs but the branches of such tests."""
    branches = {id(body) for graph in parts for node in graph.nodes if _is_guard(node) for body in bodies(node)}
    return (graph for graph in parts if id(graph) not in branches)


def _may_fail(node: Node) -> bool:
    """Return whether a node is attention without a past, of which some dim may turn out to be 0."""
    if node.op_type != "Attention" or node.domain or len(node.outputs) != 1 or any(node.inputs[4:6]):
        return False
    q, k, v = node.inputs[:3]
    if not all(isinstance(s.type, TensorType) and s.shape.is_ranked for s in (q, k, v, *node.outputs) if s is not None):
        return False
    assert q is not None
    assert k is not None
    return bool(_unsure(q) | _unsure(k)) and (q.rank == 4 or node.outputs[0].shape[-1].is_static)


def _unsure(symbol: Symbol) -> frozenset[Dim]:
    known = minima(outermost(symbol.graph).metadata)
    return frozenset([d for d in symbol.shape if least(d, known) <= 0])


def _is_guard(node: Node) -> bool:
    """Return whether a node is such a test already, in a model that was exported and is read."""
    branches = [[n.op_type for n in inner.nodes] for inner in bodies(node)] if node.op_type == "If" else []
    return len(branches) == 2 and branches[0][-2:] == ["Concat", "Expand"] and branches[1] == ["Attention"]


def _guard(graph: Graph, tests: dict[frozenset[Dim], Symbol], node: Node) -> None:
    """Make a node the test, with the kernel in one branch and zeros in the other."""
    q, k = node.inputs[:2]
    assert q is not None
    assert k is not None
    test = _is_empty(graph, q, k, tests)
    branches = {"then_branch": _zeros(graph, node), "else_branch": _kernel(graph, node)}
    change(node, op_type="If", inputs=(test,), attributes=branches)


def _zeros(graph: Graph, node: Node) -> Graph:
    """Return the body that gives zeros, as many as the result has."""
    with body(graph, "attention") as made:
        b = made.build
        q, _, v = [None if s is None else b.capture(s) for s in node.inputs[:3]]
        assert q is not None
        assert v is not None
        result = node.outputs[0]
        leading = result.rank - 1
        front = b.emit("Shape", (q,), _sizes(leading), {"end": leading})
        last = b.emit("Shape", (v,), _sizes(1), {"start": 3}) if result.rank == 4 else b.vector([int(result.shape[-1])])
        shape = b.emit("Concat", (front, last), _sizes(result.rank), {"axis": 0})
        b.outputs([(None, b.emit("Expand", (b.scalar(0.0, result.dtype), shape), result.type))])
    return made


def _kernel(graph: Graph, node: Node) -> Graph:
    with body(graph, "attention") as made:
        given = tuple([None if s is None else made.build.capture(s) for s in node.inputs])
        made.build.outputs([(None, made.build.emit("Attention", given, node.outputs[0].type, node.attributes))])
    return made


def _sizes(count: int) -> Type:
    return tensor_type(DType.int64, _shape([Dim(count)]))


def _is_empty(graph: Graph, q: Symbol, k: Symbol, tests: dict[frozenset[Dim], Symbol]) -> Symbol:
    """Return the test for no queries or no keys: the same for all layers where an input of the graph tells."""
    dims = _unsure(q) | _unsure(k)
    if dims in tests:
        return tests[dims]
    has_names = not any(d.is_dynamic for d in dims)
    telling = [s for s in graph.input_symbols if _tells(s, dims)] if has_names else []
    asked = telling[:1] or ([q] if has_names and _unsure(q) == _unsure(k) else [q, k])
    zero = graph.build.scalar(0, DType.int64)
    first, *more = [graph.build.emit("Equal", (graph.build.emit("Size", (s,), _NUMBER), zero), _FLAG) for s in asked]
    test = graph.build.emit("Or", (first, more[0]), _FLAG) if more else first
    if telling:
        tests[dims] = test
    return test


def _tells(symbol: Symbol, dims: frozenset[Dim]) -> bool:
    """Return whether an input has no elements exactly where one of the dims is 0."""
    type_ = symbol.type
    if not isinstance(type_, TensorType) or type_.dtype not in _COUNTED or not type_.shape.is_ranked:
        return False
    return _unsure(symbol) == dims


GUARD = Guard(
    "Attention without elements",
    "Attention from a fusion",
    "the kernel fails on no queries or keys",
    frozenset({"Attention"}),
    _is_needed,
    _run,
    is_of_fusions=True,
)
