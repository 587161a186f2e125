"""The node that dequantises a value, perhaps before moves."""

from __future__ import annotations

from collections.abc import Container

from graphcore.ir.symbol import Node, Symbol


def dequantizing(symbol: Symbol | None, moves: Container[str] = ()) -> Node | None:
    """Return the DequantizeLinear that a value comes from; None where there is none. moves: what may come after it."""
    node = None if symbol is None else symbol.producer
    while isinstance(node, Node) and node.op_type in moves and not node.domain:
        node = None if node.inputs[0] is None else node.inputs[0].producer
    is_one = isinstance(node, Node) and node.op_type == "DequantizeLinear" and not node.domain
    return node if is_one and isinstance(node, Node) else None
