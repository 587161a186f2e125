"""Convert operators of other opsets to the opset of Graphs.

`table` has every change of an operator, `adapters` converts those with another meaning, and `older` expands the
functions that ONNX defines by other operators.
"""

from __future__ import annotations

import functools

from graphcore.ir.symbol import Symbol
from graphcore.onnx.versions.older import ExpandedOperator, ReadNode, expand_function, function_body
from graphcore.onnx.versions.table import next_change


@functools.cache
def is_unchanged(domain: str, op_type: str, version: int) -> bool:
    """Return True if an operator of a version of its domain means the same at the opset of Graphs."""
    return next_change(domain, op_type, version) is None


def convert(node: ReadNode) -> tuple[Symbol, ...] | None:
    """Convert a node to the opset of Graphs.

    Returns the results of the nodes emitted into the graph; None if the node, possibly changed in place, is a node of
    that opset. Raises `ModelError` if there is no equivalent.
    """
    version = node.version
    while (step := next_change(node.domain, node.op_type, version)) is not None:
        version, change = step
        results = change(node)
        if results is not None:
            return results
    return None


__all__ = ["ExpandedOperator", "ReadNode", "convert", "expand_function", "function_body", "is_unchanged"]
