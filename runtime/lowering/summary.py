"""A summary of a graph, its bodies and the functions that it calls: what the passes of lowering are chosen by."""

from __future__ import annotations

from typing import TypeAlias

from graphcore.ir.definitions import Definition
from graphcore.ir.graph import Graph
from graphcore.ir.state import accuracy as accuracies
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

Kind: TypeAlias = tuple[str, str, Type | None, Type]
"""The facts of a node that legality depends on: operator, domain, types of the first operand and result."""


class Summary:
    """The contents of a graph when the summary is made: make a new one of a changed graph.

    operators: with their domains, those in bodies and in called functions included. op_types: their names. domains:
    theirs but ONNX's own. parts: the graph itself, then the bodies in it. called: the bodies of the functions that are
    called, and the bodies in those. is_marked: whether some node says how accurate it is to be.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.operators: set[tuple[str, str]] = set()
        self.parts = [graph]
        self.called: list[Graph] = []
        self.is_marked = False
        self._types: set[Type] | None = None
        self._walk()
        self.op_types = frozenset([op_type for op_type, _ in self.operators])
        self.domains = frozenset([domain for _, domain in self.operators if domain])

    def _walk(self) -> None:
        """Find the operators of all, the parts and the functions in one walk."""
        seen: set[Definition] = set()
        for own in (self.parts, self.called):
            for graph in own:  # which grows meanwhile
                nodes = graph.nodes
                self.operators |= {(node.op_type, node.domain) for node in nodes}
                for node in [node for node in nodes if node.attributes]:
                    if accuracies.KEY in node.attributes:
                        self.is_marked = True
                    for value in node.attributes.values():
                        if not isinstance(value, (Graph, Definition)):
                            continue
                        if isinstance(value, Graph):
                            own.append(value)
                        elif value not in seen:
                            seen.add(value)
                            self.called.append(value.body)

    @property
    def has_calls(self) -> bool:
        """Return whether a node of the graph or of a body calls a function."""
        return bool(self.called)

    @property
    def types(self) -> set[Type]:
        """The types of all values of the graph and its bodies: a walk of its own, on first use."""
        if self._types is None:  # functools.cached_property takes a lock
            self._types = {symbol.type for part in self.parts for symbol in part.symbols}
        return self._types

    @property
    def dtypes(self) -> set[DType]:
        """The dtypes of all tensors of the graph and its bodies."""
        return {type_.dtype for type_ in self.types if isinstance(type_, TensorType)}

    @property
    def list_types(self) -> list[Type]:
        """The types of all values of the graph and its bodies that are no tensors."""
        return [type_ for type_ in self.types if not isinstance(type_, TensorType)]

    def kinds(self, op_type: str) -> set[Kind]:
        """Return the kinds of the nodes of one of ONNX's operators in the graph and its bodies."""
        if (op_type, "") not in self.operators:
            return set()
        return {kind for part in self.parts for kind in kinds_of(part, op_type)}


def kinds_of(graph: Graph, op_type: str = "") -> set[Kind]:
    """Return the kinds of a graph's own nodes. op_type: of those of this one of ONNX's operators."""
    return {
        (n.op_type, n.domain, s.type if n.inputs and (s := n.inputs[0]) is not None else None, n.outputs[0].type)
        for n in graph.nodes
        if n.outputs and (not op_type or (n.op_type == op_type and not n.domain))
    }
