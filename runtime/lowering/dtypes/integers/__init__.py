"""Integers of any width: stored in ONNX's up to 64 bits, in limbs beyond.

A pass before the others, which then see only dtypes that ONNX has.
"""

from graphcore.ir.graph import Graph
from graphcore.runtime.lowering.dtypes.integers.carrying import WideRules, Widths, needed
from graphcore.runtime.lowering.dtypes.integers.wide.bits import small
from graphcore.runtime.lowering.dtypes.integers.wide.operators import SUPPORTED_WIDE, computed


def store(graph: Graph) -> Graph:
    """Return the graph with integers of ONNX's widths in place of others. Raises `DTypeError` for what has no rule."""
    return Widths(graph, WideRules(computed, small)).run()


__all__ = ["SUPPORTED_WIDE", "needed", "store"]
