"""Integers whose dtype was only a default, computed in the narrower dtype that they were given in the end.

A pass before the others. The low bits of a sum, product or bitwise combination depend on the low bits of its operands
alone, so that what is cast once it is computed may as well be cast before, where that takes fewer casts: `x + 1` of a
bool `x` that ends as int16 is one cast of `x`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies, nested
from graphcore.operators import ONNX, Trait, having
from graphcore.runtime.lowering.passes import Summary
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, tensor_type

_OPERATORS = having(Trait.ELEMENTWISE) & having(Trait.RING) & ONNX - {"Sum"}  # which ops do not build
_ELSEWHERE = -1
"""The reader of outputs, and of what the body of a node reads."""


def needed(has: Summary) -> bool:
    """Return whether an integer that was only a default is cast to a narrower one, in the graph or a body."""
    return any(_is_narrowed(operand, result) for _, _, operand, result in has.kinds("Cast"))


def narrowed(graph: Graph) -> Graph:
    """The graph with such values computed in the dtype that they are cast to, where that takes fewer casts."""
    return Rewrite(graph, _Narrowing(graph)).run()


class _Narrowing(Policy[Rewrite]):
    def __init__(self, graph: Graph) -> None:
        self._narrow = {id(part.symbols[i]): dtype for part in nested(graph) for i, dtype in _found(part).items()}

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        dtype = self._narrow.get(id(node.outputs[0])) if node.outputs else None
        if dtype is None:
            return None
        if node.op_type == "Cast":
            return (rewrite.of(_operand(node)),)
        parts = tuple(None if s is None else _as(rewrite, s, dtype) for s in node.inputs)
        type_ = tensor_type(dtype, node.outputs[0].shape)
        return (rewrite.new.build.emit(node.op_type, parts, type_, node.attributes),)


def _narrows(node: Node) -> bool:
    if node.op_type != "Cast" or node.domain:
        return False
    return _is_narrowed(_operand(node).type, node.outputs[0].type)


def _is_narrowed(operand: Type | None, result: Type) -> bool:
    if not isinstance(operand, TensorType) or not operand.ambiguous or not operand.dtype.is_integer:
        return False
    return isinstance(result, TensorType) and result.dtype.is_integer and result.dtype.bits < operand.dtype.bits


def _operand(node: Node) -> Symbol:
    (symbol,) = node.inputs
    assert symbol is not None
    return symbol


def _found(graph: Graph) -> dict[int, DType]:
    """The narrower dtypes of values by number, and those of the casts that go because of them."""
    readers: defaultdict[int, set[int]] = defaultdict(set)
    for output in graph.outputs:
        readers[output.id].add(_ELSEWHERE)
    for node in graph.nodes:
        for symbol in node.inputs:
            if symbol is not None:
                readers[symbol.id].update(s.id for s in node.outputs)
        for body in bodies(node):
            for number in body.scope.captured:
                readers[number].add(_ELSEWHERE)
    narrow: dict[int, DType] = {}
    for node in graph.nodes:
        if _narrows(node):
            narrow.update(_expression(node, readers))
    return narrow


def _expression(cast: Node, readers: Mapping[int, set[int]]) -> dict[int, DType]:
    """The values that only this cast makes use of, and the cast; nothing where casting them first saves no cast."""
    made = cast.outputs[0]
    inside = {made.id}
    leaves: dict[int, Symbol] = {}
    waiting = [-_operand(cast).id]
    seen = set(waiting)
    while waiting:  # the latest first: all that read a value come after it
        symbol = made.graph.symbols[-heapq.heappop(waiting)]
        producer = symbol.producer
        if (
            isinstance(producer, Node)
            and producer.op_type in _OPERATORS
            and not producer.domain
            and readers[symbol.id] <= inside
        ):
            inside.add(symbol.id)
            for operand in producer.inputs:
                if operand is not None and -operand.id not in seen:
                    seen.add(-operand.id)
                    heapq.heappush(waiting, -operand.id)
        elif not isinstance(producer, Constant) or producer.is_weight:
            leaves[symbol.id] = symbol
    gone = sum(_wraps(leaf) is not leaf and readers[leaf.id] <= inside for leaf in leaves.values())
    sources = {_wraps(leaf).id for leaf in leaves.values() if _wraps(leaf).dtype is not made.dtype}
    if len(inside) == 1 or len(sources) >= 1 + gone:
        return {}
    return dict.fromkeys(inside, made.dtype)


def _wraps(symbol: Symbol) -> Symbol:
    """Return the operand of a Cast from an integer or bool that made the Symbol, if one did."""
    producer = symbol.producer
    if isinstance(producer, Node) and producer.op_type == "Cast" and not producer.domain:
        source = _operand(producer)
        if source.dtype.is_integer or source.dtype is DType.bool:
            return source
    return symbol


def _as(rewrite: Rewrite, symbol: Symbol, dtype: DType) -> Symbol:
    """An operand in the narrower dtype."""
    new = rewrite.of(symbol)
    if new.dtype is dtype:  # computed in it
        return new
    source = rewrite.of(_wraps(symbol))
    return source.graph.build.cast(source, dtype)
