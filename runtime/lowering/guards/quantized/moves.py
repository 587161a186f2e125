"""Keep moves of dequantised int8 and int32 apart from what dequantises it.

An optimiser quantises again after a move (QDQPropagationTransformer): there is no QuantizeLinear to int32. Another one
makes uint8 of int8 (QDQS8ToU8Transformer), beside an attribute of newer opsets that still says int8. A Sum of one
operand gives that operand and is left alone. Sessions leave the optimisers out, for models that others wrote too. Moves
that are quantised again by the graph itself are left as they are: both nodes then go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphcore.ir.constants import constant_array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering.guards.guard import built_here, hide, rewriting
from graphcore.runtime.lowering.guards.quantized.dequantizing import dequantizing
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType

_MOVES = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def _moves(graph: Graph) -> Sequence[Node]:
    """Return the moves of dequantised int8, built here, that others than QuantizeLinear read."""
    found = [node for node in built_here(graph, _MOVES) if _dequantises_int8(node.inputs[0])]
    if not found:
        return ()
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for symbol in node.inputs:
            if symbol is not None:
                readers.setdefault(symbol.id, []).append(node)
    given = {symbol.id for symbol in graph.outputs}
    return [node for node in found if not _is_quantised(node, readers, given)]


def _is_move(node: Node) -> bool:
    return node.op_type in _MOVES and not node.domain and type(node.origin) is not Imported


def moves_int32(node: Node) -> bool:
    """Return whether a node moves what is dequantised from int32."""
    made = dequantizing(node.inputs[0]) if node.op_type in _MOVES and not node.domain else None
    x = None if made is None else made.inputs[0]
    return x is not None and x.type.dtype is DType.int32


def _dequantises_int8(symbol: Symbol | None) -> bool:
    """Return whether a value is made of int8 by one scale and a zero point."""
    node = dequantizing(symbol)
    if node is None or len(node.inputs) < 3:
        return False
    x, scale = node.inputs[:2]
    if x is None or scale is None or x.type.dtype is not DType.int8 or scale.rank > 1:
        return False
    return constant_array(x, weights=True, outer=True) is None


def _is_quantised(node: Node, readers: Mapping[int, Sequence[Node]], given: set[int]) -> bool:
    """Return whether what a move gives is only ever quantised again, perhaps after other moves."""
    result = node.outputs[0]
    if result.id in given:
        return False
    after = readers.get(result.id, ())
    return all(n.op_type == "QuantizeLinear" or (_is_move(n) and _is_quantised(n, readers, given)) for n in after)


INT8 = rewriting(
    "optimiser QDQS8ToU8Transformer",
    "DequantizeLinear before a move",
    "the optimiser makes uint8 of int8 and leaves what says int8",
    {"DequantizeLinear"},
    _moves,
    lambda graph, node: hide(graph, node, 0),
)
INT32 = rewriting(
    "optimiser QDQPropagationTransformer",
    "DequantizeLinear before a move",
    "the optimiser quantises to int32, which no kernel does",
    {"DequantizeLinear"},
    lambda graph: filter(moves_int32, built_here(graph, _MOVES)),
    lambda graph, node: hide(graph, node, 0),
)
