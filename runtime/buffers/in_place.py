"""Decide whether what a graph stores to a buffer may be written to the memory that it reads the buffer from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

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


class Sharing:
    """Decides it for the buffers of one lowered graph, whose readers are listed once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._inputs = {s.name: s for s in graph.input_symbols}
        self._outputs = {label or s.name: s for label, s in graph.named_outputs}
        self._readers: dict[int, _Readers] = {}

    def may_share(self, name: str, output: str) -> bool:
        """Return whether one memory may be an input and an output of the graph.

        So it is where a single writer reads the input and gives the output. Whoever else reads what is stored reads the
        output, which is there when the input has been read; any other kernel might read what it has overwritten, and a
        second writer would copy all the same.
        """
        start, end = self._inputs[name], self._outputs[output]
        is_output = any(s is start for s in self._outputs.values())
        return not is_output and self._is_written(self._graph, start, end)

    def _is_written(self, graph: Graph, start: Symbol, end: Symbol) -> bool:
        """Return whether a single writer reads a value and gives another one: in both branches, where that is an If."""
        writer = end.producer
        if not isinstance(writer, Node):
            return False
        readers = self._of(graph)
        if writer.op_type == "If" and not writer.domain:
            if readers.count(start, but=writer):
                return False
            position = next(i for i, s in enumerate(writer.outputs) if s is end)
            own = [(inner, self._of(inner).own(start), inner.outputs[position]) for inner in bodies(writer)]
            return all(s is not None and self._is_written(inner, s, made) for inner, s, made in own)
        operands = _WRITERS.get((writer.domain, writer.op_type), {})
        read = next((operands.get(i) for i, s in enumerate(writer.outputs) if s is end), None)
        if read is None or read >= len(writer.inputs) or writer.inputs[read] is not start:
            return False
        return readers.count(start) == 1

    def _of(self, graph: Graph) -> _Readers:
        found = self._readers.get(id(graph))
        if found is None:
            found = self._readers[id(graph)] = _Readers(graph, self._of)
        return found


class _Readers:
    """The readers of the values of a graph."""

    def __init__(self, graph: Graph, of: Callable[[Graph], _Readers]) -> None:
        """of: gives the readers of another graph."""
        self._direct = Counter(id(s) for node in graph.nodes if node.op_type not in _SHAPES for s in node.inputs)
        self._captured = {id(s.producer.symbol): s for s in graph.symbols if isinstance(s.producer, Captured)}
        inner = [(node, bodies(node)) for node in graph.nodes]
        self._inner = [(node, [of(body) for body in own]) for node, own in inner if own]

    def own(self, symbol: Symbol) -> Symbol | None:
        """Return what stands in the graph for a value of the one around it; None where it is not read there."""
        return self._captured.get(id(symbol))

    def count(self, symbol: Symbol, but: Node | None = None) -> int:
        """Return how often nodes read the elements of a value; in a body counts for two, as it may be at any time.

        but: a node whose bodies are not looked at.
        """
        inner = any(body.own(symbol) is not None for node, own in self._inner if node is not but for body in own)
        return self._direct[id(symbol)] + 2 * inner
