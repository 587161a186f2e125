"""Biases added inside the kernels of quantised products, which then write their result once.

onnxruntime has such a fusion for products of floats, and for quantised ones only where it fused those itself.
"""

from __future__ import annotations

from collections import Counter

from graphcore.ir.graph import Graph
from graphcore.ir.rewrite import bodies
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.passes.liveness import keep_nodes

_MICROSOFT = "com.microsoft"
_POSITIONS = {"MatMulIntegerToFloat": 6, "MatMulNBits": 5}
"""Which operand the bias is. Those in front of it may be left out."""


def fuse(graph: Graph) -> None:
    """Gives such products of a new graph, and of the bodies in it, the vectors that are added to their results."""
    has_products = False
    for node in graph._nodes:
        has_products = has_products or (node.op_type in _POSITIONS and node.domain == _MICROSOFT)
        for body in bodies(node) if node.attributes else ():
            fuse(body)
    if not has_products:
        return
    uses = Counter(s.id for node in graph._nodes for s in node.inputs if s is not None)
    uses.update(s.id for s in graph.outputs)
    for node in graph._nodes:
        uses.update(outer for body in bodies(node) for outer in body._captured)
    gone: set[int] = set()
    for node in graph._nodes:
        if node.op_type == "Add" and not node.domain and _fused(node, uses):
            gone.add(id(node))
    if gone:
        keep_nodes(graph, [id(node) not in gone for node in graph._nodes])


def _fused(node: Node, uses: Counter[int]) -> bool:
    """Whether a product takes the place of an Add of its result and a vector."""
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
            if not _is_flaw(other) and not _is_rest(other, inner.producer):
                continue
            product = inner.producer
        if not _takes(product, bias) or sum_.type is not node.outputs[0].type:
            continue
        position = _POSITIONS[product.op_type]
        product.inputs = (*product.inputs, *(None,) * (position - len(product.inputs)), bias)
        last.outputs = node.outputs
        node.outputs[0].producer = last
        return True
    return False


def _takes(node: Node, bias: Symbol) -> bool:
    position = _POSITIONS.get(node.op_type)
    if position is None or node.domain != _MICROSOFT or len(node.inputs) > position:
        return False
    made = node.outputs[0]
    return made.dtype is bias.dtype and bool(made.rank) and made.shape[-1] == bias.shape[0]


def _is_flaw(symbol: Symbol | None) -> bool:
    """Whether it is 0 or NaN whatever is fed: a product with zeros. So the order of the sums does not matter."""
    node = symbol.producer if symbol is not None else None
    if not isinstance(node, Node) or node.op_type != "MatMul" or node.domain:
        return False
    factor = node.inputs[1]
    return factor is not None and type(factor.producer) is Constant and not factor.producer.array.any()


def _is_rest(symbol: Symbol | None, product: Node) -> bool:
    """Whether it is what second digits give that belong to the product of the first: a product, or the sum of two."""
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
    """Whether it is a vector that is there before any product."""
    if not isinstance(symbol.producer, (Captured, Constant, Input)):
        return False
    return hasattr(symbol.type, "shape") and symbol.shape.is_ranked and symbol.rank == 1 and symbol.shape.is_static
