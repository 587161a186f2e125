"""Integers whose dtype is only a default, computed in the narrower dtype that they are cast to.

A pass before the others. The low bits of a sum, product or bitwise combination depend only on the low bits of its
operands, so that a cast of the result can become casts of the operands if that takes fewer casts: `x + 1` of a bool `x`
that is cast to int16 needs one cast of `x`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies, nested, node_of
from graphcore.operators import ONNX, Trait, having
from graphcore.runtime.lowering.passes import Summary
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, tensor_type

_OPERATORS = having(Trait.ELEMENTWISE) & having(Trait.RING) & ONNX - {"Sum"}  # Sum is not built by ops
_ELSEWHERE = -1
"""The reader of outputs, and of values that the body of a node reads."""


def needed(summary: Summary) -> bool:
    """Return True if an integer of default dtype is cast to a narrower one, in the graph or a body."""
    return any(_is_narrowed(operand, result) for _, _, operand, result in summary.kinds("Cast"))


def narrowed(graph: Graph) -> Graph:
    """Return the graph with such values computed in the dtype that they are cast to, if that takes fewer casts."""
    return Rewrite(graph, _NarrowPolicy(graph)).run()


class _NarrowPolicy(Policy[Rewrite]):
    def __init__(self, graph: Graph) -> None:
        self._narrow = {
            id(part.symbols[i]): dtype for part in nested(graph) for i, dtype in _find_narrower(part).items()
        }

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        dtype = self._narrow.get(id(node.outputs[0])) if node.outputs else None
        if dtype is None:
            return None
        if node.op_type == "Cast":
            return (rewrite.of(present(node.inputs[0])),)
        parts = tuple(None if s is None else _narrow_operand(rewrite, s, dtype) for s in node.inputs)
        type_ = tensor_type(dtype, node.outputs[0].shape)
        return (rewrite.new.build.emit(node.op_type, parts, type_, node.attributes),)


def _is_narrowed(operand: Type | None, result: Type) -> bool:
    if not isinstance(operand, TensorType) or not operand.ambiguous or not operand.dtype.is_integer:
        return False
    return isinstance(result, TensorType) and result.dtype.is_integer and result.dtype.bits < operand.dtype.bits


def _find_narrower(graph: Graph) -> dict[int, DType]:
    """Return the narrower dtypes of values by Symbol id, and those of the casts that become unnecessary."""
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
        is_cast = node.op_type == "Cast" and not node.domain
        if is_cast and _is_narrowed(present(node.inputs[0]).type, node.outputs[0].type):
            narrow.update(_expression(node, readers))
    return narrow


def _expression(cast: Node, readers: Mapping[int, set[int]]) -> dict[int, DType]:
    """Return the cast and the values that only it reads; nothing if casting their operands first saves no cast."""
    result = cast.outputs[0]
    inside = {result.id}
    leaves: dict[int, Symbol] = {}
    waiting = [-present(cast.inputs[0]).id]
    seen = set(waiting)
    while waiting:  # latest first: all readers of a value come after it
        symbol = result.graph.symbols[-heapq.heappop(waiting)]
        producer, node = symbol.producer, node_of(symbol, *_OPERATORS)
        if node is not None and readers[symbol.id] <= inside:
            inside.add(symbol.id)
            for operand in node.inputs:
                if operand is not None and -operand.id not in seen:
                    seen.add(-operand.id)
                    heapq.heappush(waiting, -operand.id)
        elif not isinstance(producer, Constant) or producer.is_weight:
            leaves[symbol.id] = symbol
    gone = sum(_before_cast(leaf) is not leaf and readers[leaf.id] <= inside for leaf in leaves.values())
    sources = {_before_cast(leaf).id for leaf in leaves.values() if _before_cast(leaf).dtype is not result.dtype}
    if len(inside) == 1 or len(sources) >= 1 + gone:
        return {}
    return dict.fromkeys(inside, result.dtype)


def _before_cast(symbol: Symbol) -> Symbol:
    """Return the operand if the Symbol is a Cast of an integer or bool, else the Symbol."""
    cast = node_of(symbol, "Cast")
    if cast is not None:
        source = present(cast.inputs[0])
        if source.dtype.is_integer or source.dtype is DType.bool:
            return source
    return symbol


def _narrow_operand(rewrite: Rewrite, symbol: Symbol, dtype: DType) -> Symbol:
    """Return an operand in the narrower dtype."""
    new = rewrite.of(symbol)
    if new.dtype is dtype:  # computed in it already
        return new
    source = rewrite.of(_before_cast(symbol))
    return source.graph.build.cast(source, dtype)
