"""Add biases inside the kernels of quantised products, which then write their result once.

onnxruntime has such a fusion for products of floats, and for quantised ones only where it fused those itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphcore.ir.graph import Graph
from graphcore.ir.state.closed import change
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.ops.shared.quantized.products import is_flaw
from graphcore.passes.liveness import keep_nodes
from graphcore.runtime.lowering.summary import Summary

_MICROSOFT = "com.microsoft"
_POSITIONS = {"MatMulIntegerToFloat": 6, "MatMulNBits": 5}
"""Which operand the bias is. Those before it may be left out."""


def may_fuse(has: Summary) -> bool:
    """Return whether a graph or one of its bodies has such products."""
    return any((op_type, _MICROSOFT) in has.operators for op_type in _POSITIONS)


def fuse(parts: Sequence[Graph]) -> bool:
    """Give such products of a new graph and its bodies the vectors that are added to their results.

    Return whether there are any.
    """
    changed = [_fuse(part) for part in reversed(parts)]
    return any(changed)


def _fuse(graph: Graph) -> bool:
    if not any(node.op_type in _POSITIONS and node.domain == _MICROSOFT for node in graph.nodes):
        return False
    uses = Counter(s.id for node in graph.nodes for s in node.inputs if s is not None)
    uses.update(s.id for s in graph.outputs)
    for node in graph.nodes:
        uses.update(outer for body in bodies(node) for outer in body.scope.captured)
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op_type == "Add" and not node.domain and _fused(node, uses):
            gone.add(id(node))
    if gone:
        keep_nodes(graph, [id(node) not in gone for node in graph.nodes])
    return bool(gone)


def _fused(node: Node, uses: Counter[int]) -> bool:
    """Let a product take the place of an Add of its result and a vector. Return whether it does."""
    for sum_, bias in (node.inputs, node.inputs[::-1]):
        assert sum_ is not None
        assert bias is not None
        last = sum_.producer
        if not isinstance(last, Node) or not _is_vector(bias) or uses[sum_.id] > 1:
            continue
        product = last
        if last.op_type == "Add" and not last.domain:
            inner, other = last.inputs
            assert inner is not None
            if not isinstance(inner.producer, Node) or uses[inner.id] > 1:
                continue
            if not is_flaw(other) and not _is_rest(other, inner.producer):
                continue
            product = inner.producer
        if not _takes(product, bias) or sum_.type is not node.outputs[0].type:
            continue
        position = _POSITIONS[product.op_type]
        change(product, inputs=(*product.inputs, *(None,) * (position - len(product.inputs)), bias))
        change(last, outputs=node.outputs)
        change(node.outputs[0], producer=last)
        return True
    return False


def _takes(node: Node, bias: Symbol) -> bool:
    position = _POSITIONS.get(node.op_type)
    if position is None or node.domain != _MICROSOFT or len(node.inputs) > position:
        return False
    made = node.outputs[0]
    return made.dtype is bias.dtype and bool(made.rank) and made.shape[-1] == bias.shape[0]


def _is_rest(symbol: Symbol | None, product: Node) -> bool:
    """Return whether it is of second digits, whose first ones `product` multiplies: a product, or the sum of two."""
    sum_ = symbol.producer if symbol is not None else None
    if not isinstance(sum_, Node):
        return False
    if sum_.op_type == product.op_type == "MatMulIntegerToFloat":
        return sum_.inputs[1] is product.inputs[1] and sum_.inputs[0] is not product.inputs[0]
    if sum_.op_type != "Add" or sum_.domain:
        return False
    rest, other = (s.producer if s is not None else None for s in sum_.inputs)
    if not isinstance(rest, Node) or not isinstance(other, Node):
        return False
    if {n.op_type for n in (product, rest, other)} != {"MatMulIntegerToFloat"}:
        return False
    return rest.inputs[0] is product.inputs[0] and other.inputs[1] is product.inputs[1]


def _is_vector(symbol: Symbol) -> bool:
    """Return whether it is a vector that is there before any product."""
    if not isinstance(symbol.producer, (Captured, Constant, Input)):
        return False
    return hasattr(symbol.type, "shape") and symbol.shape.is_ranked and symbol.rank == 1 and symbol.shape.is_static
