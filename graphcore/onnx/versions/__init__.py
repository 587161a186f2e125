"""Operators of other opsets by those of the one that graphs are written with.

`table` holds every operator whose meaning changed, `unchanged` every one that changed without it; `functions` expands
what ONNX itself writes as a function of other operators.
"""

from __future__ import annotations

import functools

from graphcore.ir.symbol import Symbol
from graphcore.onnx.versions.older import Body, Read, expand_function, function_body
from graphcore.onnx.versions.table import next_change


@functools.cache
def is_unchanged(domain: str, op_type: str, version: int) -> bool:
    """Return whether an operator of a version of its domain is what it is at the opset that graphs are written with."""
    return next_change(domain, op_type, version) is None


def convert(node: Read) -> tuple[Symbol, ...] | None:
    """Return what computes the same at the opset that graphs are written with.

    Returns the results' Symbols, of nodes emitted into the graph; None where the node, which may have been changed in
    place, is one node of that opset. Raises `ModelError` for what has no equivalent.
    """
    version = node.version
    while (step := next_change(node.domain, node.op_type, version)) is not None:
        version, change = step
        made = change(node)
        if made is not None:
            return made
    return None


__all__ = ["Body", "Read", "convert", "expand_function", "function_body", "is_unchanged"]
