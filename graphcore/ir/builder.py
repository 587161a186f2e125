"""The vocabulary in which nodes, constants and bodies are made: `graph.build`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphcore.errors import GraphError
from graphcore.ir import emit as nodes
from graphcore.ir import scope
from graphcore.ir.buffers import Buffer, value_of
from graphcore.ir.names import checked_name
from graphcore.ir.symbol import Input, Symbol
from graphcore.promotion import PromotionSystem
from graphcore.support.source_lines import Line, Origin
from graphcore.types.tensor_types import Type

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph


class GraphBuilder:
    """Adds to a graph. For those who declare ops and write passes; nothing is promoted or checked.

    Its methods are functions that stand with their subject, so that a call costs no more.
    """

    __slots__ = ("graph", "result_type")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.result_type = graph.promotion.result_type

    symbol = nodes.new_symbol
    emit = nodes.emit
    emit_many = nodes.emit_many
    append = nodes.append
    end_expressions = nodes.end_expressions

    constant = nodes.constant
    scalar = nodes.scalar
    vector = nodes.vector
    cast = nodes.cast

    operand = scope.operand
    own = scope.own
    capture = scope.capture
    innermost = scope.innermost

    def input(self, type_: Type, name: str | None = None, origin: Origin | Line | None = None) -> Symbol:
        """Append an input. name: one that no other Symbol has."""
        graph = self.graph
        made = self.symbol(type_, Input(len(graph._inputs), origin), name)
        graph._inputs += (made,)
        return made

    def rename(self, symbol: Symbol, name: str) -> None:
        """Give a Symbol another name, and the outputs that are called as it is. Raises `GraphError`."""
        graph = self.graph
        if symbol.given_name in graph.buffers:
            raise GraphError(
                f"name: buffer {symbol.name!r} keeps its name",
                help="name what it holds: ops.buffer_load(buffer).name = ...",
            )
        outputs = graph.names.renamed(symbol, checked_name(name, "name"), graph.named_outputs)
        if outputs:
            self.outputs(outputs)

    def inputs(self, inputs: Sequence[Symbol]) -> None:
        """Set the inputs to Symbols of the graph, as they are."""
        self.graph._inputs = tuple(inputs)

    def outputs(self, outputs: Sequence[tuple[str | None, Symbol]] | None) -> None:
        """Set the outputs, as they are; None for a graph that has none yet."""
        self.graph._outputs = None if outputs is None else list(outputs)

    def promotion(self, system: PromotionSystem) -> None:
        """Note the system that the graph was built with. What is added to it keeps the types that it is given."""
        object.__setattr__(self.graph, "promotion", system)

    def buffer(self, name: str, buffer: Buffer, value: Symbol) -> None:
        """Declare that an input is a buffer, which holds `value` at the end of the graph so far."""
        self.graph._buffers[name] = value_of(self.graph, buffer, value, name)
