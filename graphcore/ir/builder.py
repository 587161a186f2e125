"""`graph.build`: the functions that create nodes, constants and bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphcore.arrays.casting import Array
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
    """Adds nodes, constants and inputs to a graph, for op declarations and passes. Nothing is promoted or checked.

    The methods are functions of other modules, attached directly so that a call has no overhead.
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

    def input(
        self,
        type_: Type,
        name: str | None = None,
        origin: Origin | Line | None = None,
        default: Array | None = None,
    ) -> Symbol:
        """Append an input. The name must be unused. default: its value in calls that omit it; None for no default."""
        graph = self.graph
        symbol = self.symbol(type_, Input(len(graph._inputs), origin), name)
        graph._inputs += (symbol,)
        if default is not None and name is not None:
            graph._defaults[name] = default
        return symbol

    def rename(self, symbol: Symbol, name: str) -> None:
        """Rename a Symbol, and the outputs that have its name. Raises `GraphError`."""
        graph = self.graph
        if symbol.given_name in graph.buffers:
            raise GraphError(
                f"name: buffer {symbol.name!r} cannot be renamed",
                help="name its value: ops.buffer_load(buffer).name = ...",
            )
        old = symbol.given_name
        enclosing: Graph | None = graph
        while enclosing is not None:
            enclosing.source, enclosing = None, enclosing.scope.outer
        if graph.file_fields is not None and old is not None:
            graph.file_fields = graph.file_fields.renamed({old: name})
        outputs = graph.names.renamed(symbol, checked_name(name, "name"), graph.named_outputs)
        if old in graph._defaults:
            graph._defaults[name] = graph._defaults.pop(old)
        if outputs:
            self.outputs(outputs)

    def inputs(self, inputs: Sequence[Symbol]) -> None:
        """Set the inputs to Symbols of the graph."""
        self.graph._inputs = tuple(inputs)

    def outputs(self, outputs: Sequence[tuple[str | None, Symbol]] | None) -> None:
        """Set the outputs; None for a graph without outputs so far."""
        self.graph._outputs = None if outputs is None else list(outputs)

    def promotion(self, system: PromotionSystem) -> None:
        """Set the promotion system. Types of Symbols do not change."""
        object.__setattr__(self.graph, "promotion", system)

    def buffer(self, name: str, buffer: Buffer, value: Symbol) -> None:
        """Declare that an input is a buffer whose current value is `value`."""
        self.graph._buffers[name] = value_of(self.graph, buffer, value, name)
