"""`Symbol.insert_transformation`: inserts nodes between a value and its consumers, in place.

The new nodes follow the value directly, so the graph stays in topological order. Symbols get new numbers, and the
caches that refer to numbers are updated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.state.attaching import method
from graphcore.ir.state.frozen import change
from graphcore.ir.state.open_expressions import is_swallowed
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.ir.transform.walk import bodies, reads, renumbered
from graphcore.types.tensor_types import TensorType

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph

_OP = "insert_transformation"


@method(Symbol)
def insert_transformation(self: Symbol, transform: Callable[[Symbol], Symbol]) -> Symbol:
    """Replace the Symbol by `transform(self)` in all nodes that read it now.

    Nodes, bodies that capture the Symbol, outputs (which keep their names) and values of buffers read the new Symbol.
    The transformation itself, and later uses, read the old one. Later Symbols get new numbers and new generated names.
    Loaded Models do not change. After an error the graph is unchanged.

    Args:
        transform: Called once with the Symbol; returns a Symbol of the same dtype and shape.

    Returns:
        The new Symbol.

    Raises:
        DTypeError: The dtype changes.
        ShapeError: The shape changes.
        GraphError: The result depends on a consumer of the Symbol, the Symbol belongs to a finished body, or its graph
            has a body under construction.

    Example:
        hidden.insert_transformation(lambda h: ops.clip(h, -10, 10))
    """
    graph = self.graph
    _check_open(graph, self)
    symbol = graph.build.own(self, _OP, "the Symbol")
    if is_swallowed(symbol):
        raise GraphError(
            f"{_OP}: a longer expression has absorbed the terms of the Symbol and does not read it",
            operands={"value": symbol},
            help="name the Symbol where it is computed (x.name = 'total'): that ends the expression",
        )
    producer = symbol.producer
    if type(producer) is Constant and not producer.is_weight and any(key[0] == symbol.id for key in graph.memory.casts):
        raise GraphError(
            f"{_OP}: the constant was cast already, which created other constants that do not read it",
            operands={"value": symbol},
            help="insert the transformation before the constant is used, or make it a weight",
        )
    return _Insertion(graph, symbol).run(transform)


def _check_open(graph: Graph, symbol: Symbol) -> None:
    if graph.scope.is_finished:
        raise GraphError(
            f"{_OP}: the body {graph.name!r} is finished: nothing can be added to it",
            operands={"value": symbol},
            help="insert it in the function of the body",
        )
    if graph.scope.building is not None:
        raise GraphError(
            f"{_OP}: graph {graph.name!r} has a body under construction, and its values cannot be changed meanwhile",
            operands={"value": symbol},
            help="insert it before or after cond, the loop or the call of the function",
        )


class _Insertion:
    """One insertion, and the previous state of the graph to undo it.

    Not a `Rewrite`: the user has references to Symbols of the graph, which must stay the same objects.
    """

    def __init__(self, graph: Graph, symbol: Symbol) -> None:
        self.graph = graph
        self.symbol = symbol
        self.nodes = list(graph._nodes)
        self.symbols = list(graph._symbols)
        self.inputs = graph._inputs
        self.memory = graph.memory.copy()
        self.captured = dict(graph.scope.captured)
        self.layers = dict(graph.site.layers)
        self.watched = dict(graph.watched)
        self.names = dict(graph.names.taken)
        self.buffer_values = [(buffer, buffer.value) for buffer in graph._buffers.values()]
        self.open = [expression for expression in graph.memory.expressions.values() if not expression.swallowed]
        self.labels = [(label or value.name, value) for label, value in graph._outputs or ()]
        # Cached casts, values and sizes of the Symbol will read the result: the transformation must build its own.
        casts = graph.memory.casts
        self.casts = {key: casts.pop(key) for key in [*casts] if key[0] == symbol.id}
        graph.memory.forget_values(_is_node_output)
        graph.memory.forget_sizes(self._is_of_sizes)

    def run(self, transform: Callable[[Symbol], Symbol]) -> Symbol:
        graph, symbol, memory = self.graph, self.symbol, self.graph.memory
        try:
            with graph:
                result = self._check_result(transform(symbol))
            moved = self._find_moved(result)
        except BaseException:
            self._undo()
            raise
        if result is symbol:
            memory.casts = {**self.casts, **memory.casts}
            return symbol
        for node in self.nodes:
            self._replace_reads(node, result)
        for buffer in graph._buffers.values():
            if buffer.value is symbol and not isinstance(symbol.producer, Input):
                buffer.value = result
        for expression in self.memory.expressions.values():
            expression.parts = tuple([result if part is symbol else part for part in expression.parts])
        for number in [key for key, value in self.memory.implicit.items() if value is symbol]:
            memory.implicit[number] = result
        self._order(moved)
        memory.expressions.pop(symbol.id, None)
        memory.expressions.pop(result.id, None)
        for (_, *rest), cast in self.casts.items():
            memory.casts.setdefault((result.id, *rest), cast)  # type: ignore[arg-type]
        self._name_outputs(result)
        graph.edits += 1
        return result

    def _check_result(self, result: Symbol) -> Symbol:
        symbol = self.symbol
        if not isinstance(result, Symbol):
            raise GraphError(
                f"{_OP}: the transformation must return a Symbol, got {type(result).__name__}",
                operands={"value": symbol},
                help="return the Symbol that replaces the value",
            )
        result = self.graph.build.own(result, _OP, "the result")
        before, now = symbol.type, result.type
        if isinstance(before, TensorType) and isinstance(now, TensorType) and before.dtype is now.dtype:
            if before.shape == now.shape:
                return result
            raise ShapeError(
                f"{_OP}: the transformation changes the shape: {before.shape} to {now.shape}",
                operands={"value": symbol, "result": result},
                help="its consumers were built for that shape: reshape the result, or state its dims with rebind",
            )
        if before != now:
            raise DTypeError(
                f"{_OP}: the transformation changes the type: {before} to {now}",
                operands={"value": symbol, "result": result},
                help="its consumers were built for that type: cast the result back",
            )
        return result

    def _is_of_sizes(self, sizes: Symbol) -> bool:
        """Return True for a Symbol that depends on sizes of the edited Symbol that its type does not determine."""
        producer = sizes.producer
        if type(producer) is not Node:
            return False
        return any(s is self.symbol for s in producer.inputs) and not self._has_known_sizes(producer)

    def _has_known_sizes(self, node: object) -> bool:
        """Return True for a Shape node whose result follows from the type: it may keep reading the Symbol."""
        type_ = self.symbol.type
        if type(node) is not Node or node.op_type != "Shape" or node.domain or not isinstance(type_, TensorType):
            return False
        if not type_.shape.is_ranked:
            return False
        axes = slice(node.attributes.get("start"), node.attributes.get("end"))
        return not any(dim.is_dynamic for dim in tuple(type_.shape)[axes])

    # Symbols before the new nodes

    def _count_before(self) -> int:
        """Return the number of old Symbols that stay in front: up to the edited one and the inputs after it."""
        producer = self.symbol.producer
        last = max(s.id for s in producer.outputs) if type(producer) is Node else self.symbol.id
        while last + 1 < len(self.symbols) and type(self.symbols[last + 1].producer) is Input:
            last += 1
        return last + 1

    def _find_moved(self, result: Symbol) -> set[int]:
        """Return the numbers of later Symbols that the transformation depends on.

        Raises `GraphError` if one of them depends on the edited Symbol.
        """
        first, count = self._count_before(), len(self.symbols)
        moved: set[int] = set()
        waiting = [result, *self.graph._symbols[count:]]
        seen: set[int] = set()
        while waiting:
            symbol = waiting.pop()
            if symbol.id in seen or symbol.id < first:
                continue
            seen.add(symbol.id)
            producer = symbol.producer
            if symbol.id < count:
                moved.add(symbol.id)
                if type(producer) is Node:
                    moved.update(s.id for s in producer.outputs)
                    if any(s is self.symbol for s in reads(producer)) and not self._has_known_sizes(producer):
                        raise GraphError(
                            f"{_OP}: the result depends on a consumer of the Symbol, and would depend on itself",
                            operands={"value": self.symbol, "consumer": symbol},
                            help="compute it from the argument of the transformation",
                        )
            if type(producer) is Node:
                waiting += reads(producer)
        return moved

    # Replacement of operands

    def _replace_reads(self, node: Node, result: Symbol) -> None:
        symbol = self.symbol
        if any(s is symbol for s in node.inputs) and not self._has_known_sizes(node):
            change(node, inputs=tuple([result if s is symbol else s for s in node.inputs]))
        for body in bodies(node):
            _recapture(body, symbol, result)

    def _name_outputs(self, result: Symbol) -> None:
        """Keep the names of the outputs; the result takes over the name of the Symbol."""
        graph, symbol, names = self.graph, self.symbol, self.graph.names
        if graph._outputs is None:
            return
        outputs: list[tuple[str | None, Symbol]] = []
        for label, value in self.labels:
            if value is symbol:
                if symbol.given_name == label and type(symbol.producer) is Node:
                    del names.taken[label]
                    change(symbol, given_name=None)
                value = result
            if value.given_name is None and type(value.producer) is Node and label not in names.taken:
                names.rename(value, label)
            names.taken.setdefault(label, value)  # so that no generated name equals it
            outputs.append((label, value))
        graph._outputs = outputs

    # Order and numbers

    def _order(self, moved: set[int]) -> None:
        graph = self.graph
        first, count = self._count_before(), len(self.symbols)
        new = graph._symbols[count:]
        rest = [s for s in self.symbols[first:] if s.id not in moved]
        later = [s for s in self.symbols[first:] if s.id in moved]
        ours = {id(node) for node in self.nodes}

        def place(node: Node) -> int:
            if id(node) not in ours:
                return 2
            number = node.outputs[0].id if node.outputs else count
            return 0 if number < first else 1 if number in moved else 3

        graph._nodes.sort(key=place)
        graph._symbols[:] = [*self.symbols[:first], *later, *new, *rest]
        numbers = {symbol.id: number for number, symbol in enumerate(graph._symbols)}
        for number, symbol in enumerate(graph._symbols):
            change(symbol, id=number)
        graph.memory.renumber(numbers)
        # Cached values and sizes are keyed by number.
        graph.memory.forget_sizes(_is_node_output)
        graph.memory.forget_values(_is_node_output)
        for node in graph._nodes:
            for body in bodies(node):
                body.scope.captured = renumbered(body)

    def _undo(self) -> None:
        """Restore the graph, without the nodes of the transformation."""
        graph = self.graph
        del graph._symbols[len(self.symbols) :]
        del graph._nodes[len(self.nodes) :]
        graph._inputs = self.inputs
        graph.memory = self.memory
        graph.scope.captured = self.captured
        graph.site.layers = self.layers
        graph.watched = self.watched
        graph.names.taken = self.names
        for buffer, value in self.buffer_values:
            buffer.value = value
        for expression in self.open:
            expression.swallowed = False


def _recapture(body: Graph, old: Symbol, new: Symbol) -> None:
    """Replace the captured Symbol `old` in a body by `new`."""
    captured = body.scope.captured.get(old.id)
    if captured is None:
        return
    other = body.scope.captured.get(new.id)
    if other is None:
        change(captured, producer=Captured(new))
        body.scope.captured[new.id] = body.scope.captured.pop(old.id)
        return
    for node in body._nodes:
        change(node, inputs=tuple([other if s is captured else s for s in node.inputs]))
        for inner in bodies(node):
            _recapture(inner, captured, other)
    body._outputs = [(label, other if s is captured else s) for label, s in body._outputs or ()]


def _is_node_output(symbol: Symbol) -> bool:
    """Return True for an output of a node."""
    return type(symbol.producer) is Node
