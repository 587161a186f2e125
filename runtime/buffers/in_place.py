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
    is_output = any(s is start for _, s in graph.named_outputs)
    return not is_output and _is_written(graph, start, end)


def _is_written(graph: Graph, start: Symbol, end: Symbol) -> bool:
    """Return whether a single writer reads a value and gives another one: in both branches, where that is an If."""
    writer = end.producer
    if not isinstance(writer, Node):
        return False
    if writer.op_type == "If" and not writer.domain:
        position = next(i for i, s in enumerate(writer.outputs) if s is end)
        if _reads(graph, start, but=writer):
            return False
        own = [(inner, _own(inner, start), inner.outputs[position]) for inner in bodies(writer)]
        return all(s is not None and _is_written(inner, s, made) for inner, s, made in own)
    operands = _WRITERS.get((writer.domain, writer.op_type), {})
    read = next((operands.get(i) for i, s in enumerate(writer.outputs) if s is end), None)
    if read is None or read >= len(writer.inputs) or writer.inputs[read] is not start:
        return False
    return _reads(graph, start) == 1


def _reads(graph: Graph, symbol: Symbol, but: Node | None = None) -> int:
    """Return how often nodes read the elements of a value; in a body counts for two, as it may be at any time.

    but: a node whose bodies are not looked at.
    """
    direct = sum(s is symbol for node in graph.nodes if node.op_type not in _SHAPES for s in node.inputs)
    captured = any(_own(body, symbol) is not None for node in graph.nodes if node is not but for body in bodies(node))
    return direct + 2 * captured


def _own(body: Graph, symbol: Symbol) -> Symbol | None:
    """Return what stands for a value of the outer graph in a body; None where it is not read there."""
    return next((s for s in body.symbols if isinstance(s.producer, Captured) and s.producer.symbol is symbol), None)


__all__ = ["may_share"]
