"""Decide whether what a graph stores to a buffer may be written to the memory that it reads the buffer from."""

from __future__ import annotations

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Node, Symbol
from graphcore.ir.transform.walk import bodies

_WRITERS = {
    ("", "ScatterND"): {0: 0},
    ("", "ScatterElements"): {0: 0},
    ("", "TensorScatter"): {0: 0},
    ("com.microsoft", "GroupQueryAttention"): {1: 3, 2: 4},
}
"""Operators whose kernels copy an operand to a result, where that lies elsewhere, and then change parts: which results
and which operands. Of attention each cache may be shared or not, and a shared one is not copied."""

_SHAPES = frozenset({"Shape", "Size"})
"""Operators that read no elements."""


def may_share(graph: Graph, name: str, output: str) -> bool:
    """Return whether one memory may be an input and an output of a lowered graph.

    So it is where a single writer reads the input and gives the output. Whoever else reads what is stored reads the
    output, which is there when the input has been read; any other kernel might read what it has overwritten, and a
    second writer would copy all the same.
    """
    start = next(s for s in graph.input_symbols if s.name == name)
    end = next(s for label, s in graph.named_outputs if (label or s.name) == output)
    writer = end.producer
    if not isinstance(writer, Node):
        return False
    operands = _WRITERS.get((writer.domain, writer.op_type), {})
    read = next((operands.get(i) for i, s in enumerate(writer.outputs) if s is end), None)
    if read is None or read >= len(writer.inputs) or writer.inputs[read] is not start:
        return False
    is_output = any(s is start for _, s in graph.named_outputs)
    return _reads(graph, start) == 1 and not is_output


def _reads(graph: Graph, symbol: Symbol) -> int:
    """Return how often nodes read the elements of a value; in a body counts for two, as it may be at any time."""
    direct = sum(s is symbol for node in graph.nodes if node.op_type not in _SHAPES for s in node.inputs)
    captured = any(
        isinstance(s.producer, Captured) and s.producer.symbol is symbol
        for node in graph.nodes
        for body in bodies(node)
        for s in body.symbols
    )
    return direct + 2 * captured


__all__ = ["may_share"]
