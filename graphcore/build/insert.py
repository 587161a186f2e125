"""Putting nodes between a value and what uses it: the one edit of a graph that there is, and the user's own.

The new nodes come right after the value, so the graph stays in an order that it can run in: Symbols get new numbers,
and everything that knows them by number is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphcore.errors import DTypeError, GraphError, ShapeError
from graphcore.ir.state.frozen import change
from graphcore.ir.state.open_expressions import is_swallowed
from graphcore.ir.symbol import Captured, Constant, Input, Node, Symbol
from graphcore.ir.transform.walk import bodies
from graphcore.types.tensor_types import TensorType

if TYPE_CHECKING:
    from graphcore.ir.graph import Graph

_OP = "insert_transformation"


def insert(symbol: Symbol, transform: Callable[[Symbol], Symbol]) -> Symbol:
    """See `Symbol.insert_transformation`."""
    graph = symbol.graph
    _check_open(graph, symbol)
    symbol = graph.build.own(symbol, _OP, "the Symbol")
    if is_swallowed(symbol):
        raise GraphError(
            f"{_OP}: the terms of the Symbol have become those of a longer expression, which does not read it",
            operands={"value": symbol},
            help="name it where it is made (x.name = 'total'): that ends the expression",
        )
    producer = symbol.producer
    if type(producer) is Constant and not producer.is_weight and any(key[0] == symbol.id for key in graph.memory.casts):
        raise GraphError(
            f"{_OP}: the constant was cast already, which made other constants of it",
            operands={"value": symbol},
            help="insert it before the constant is used, or make it a weight",
        )
    return _Edit(graph, symbol).run(transform)


def _check_open(graph: Graph, symbol: Symbol) -> None:
    if graph.scope.is_finished:
        raise GraphError(
            f"{_OP}: the body {graph.name!r} is finished: nothing can be added to it",
            operands={"value": symbol},
            help="insert it in the function that makes the body",
        )
    if graph.scope.building is not None:
        raise GraphError(
            f"{_OP}: a body is being built in graph {graph.name!r}, whose values cannot be changed from there",
            operands={"value": symbol},
            help="insert it before or after cond, the loop or the call of the function",
        )


class _Edit:
    """One insertion: what there was before it, and how everything is put in order.

    Not a `Rewrite`: the user holds Symbols of the graph, which stay the same objects.
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
        self.held = [(buffer, buffer.value) for buffer in graph._buffers.values()]
        self.open = [found for found in graph.memory.expressions.values() if not found.swallowed]
        self.labels = [(label or value.name, value) for label, value in graph._outputs or ()]
        # What was made of the Symbol before will be made of another: the transformation makes its own.
        casts = graph.memory.casts
        self.casts = {key: casts.pop(key) for key in [*casts] if key[0] == symbol.id}
        graph.memory.forget_values(_is_made)
        graph.memory.forget_sizes(self._is_of_sizes)

    def run(self, transform: Callable[[Symbol], Symbol]) -> Symbol:
        graph, symbol, memory = self.graph, self.symbol, self.graph.memory
        try:
            with graph:
                made = self._checked(transform(symbol))
            moved = self._moved(made)
        except BaseException:
            self._undo()
            raise
        if made is symbol:
            memory.casts = {**self.casts, **memory.casts}
            return symbol
        for node in self.nodes:
            self._read_instead(node, made)
        for held in graph._buffers.values():
            if held.value is symbol and not isinstance(symbol.producer, Input):
                held.value = made
        for expression in self.memory.expressions.values():
            expression.parts = tuple([made if part is symbol else part for part in expression.parts])
        for own in [key for key, value in self.memory.implicit.items() if value is symbol]:
            memory.implicit[own] = made
        self._order(moved)
        memory.expressions.pop(symbol.id, None)
        memory.expressions.pop(made.id, None)
        for (_, *rest), cast in self.casts.items():
            memory.casts.setdefault((made.id, *rest), cast)  # type: ignore[arg-type]
        self._name_outputs(made)
        graph.edits += 1
        return made

    def _checked(self, made: Symbol) -> Symbol:
        symbol = self.symbol
        if not isinstance(made, Symbol):
            raise GraphError(
                f"{_OP}: the transformation returned a {type(made).__name__}",
                operands={"value": symbol},
                help="return the Symbol that is to be read instead",
            )
        made = self.graph.build.own(made, _OP, "the result")
        before, now = symbol.type, made.type
        if isinstance(before, TensorType) and isinstance(now, TensorType) and before.dtype is now.dtype:
            if before.shape == now.shape:
                return made
            raise ShapeError(
                f"{_OP}: the transformation changes the shape: {before.shape} to {now.shape}",
                operands={"value": symbol, "result": made},
                help="what reads it was built for that shape: reshape the result, or say what it is with rebind",
            )
        if before != now:
            raise DTypeError(
                f"{_OP}: the transformation changes the type: {before} to {now}",
                operands={"value": symbol, "result": made},
                help="what reads it was built for that type: cast the result back",
            )
        return made

    def _is_of_sizes(self, sizes: Symbol) -> bool:
        """Return True for what was made of the Symbol's sizes where the type does not tell them."""
        producer = sizes.producer
        if type(producer) is not Node:
            return False
        return any(s is self.symbol for s in producer.inputs) and not self._is_told(producer)

    def _is_told(self, node: object) -> bool:
        """Return whether a node is a Shape whose sizes the Symbol's type tells: it may go on reading the Symbol."""
        type_ = self.symbol.type
        if type(node) is not Node or node.op_type != "Shape" or node.domain or not isinstance(type_, TensorType):
            return False
        if not type_.shape.is_ranked:
            return False
        axes = slice(node.attributes.get("start"), node.attributes.get("end"))
        return not any(dim.is_dynamic for dim in tuple(type_.shape)[axes])

    # What comes before the new nodes

    def _first(self) -> int:
        """Return how many of the old Symbols stay in front: up to the Symbol, or to the last of the inputs."""
        producer = self.symbol.producer
        last = max(s.id for s in producer.outputs) if type(producer) is Node else self.symbol.id
        while last + 1 < len(self.symbols) and type(self.symbols[last + 1].producer) is Input:
            last += 1
        return last + 1

    def _moved(self, made: Symbol) -> set[int]:
        """The numbers of later Symbols that the transformation reads, and what those are made of.

        Raises `GraphError` where one of them is made of the Symbol itself.
        """
        first, count = self._first(), len(self.symbols)
        found: set[int] = set()
        waiting = [made, *self.graph._symbols[count:]]
        seen: set[int] = set()
        while waiting:
            symbol = waiting.pop()
            if symbol.id in seen or symbol.id < first:
                continue
            seen.add(symbol.id)
            producer = symbol.producer
            if symbol.id < count:
                found.add(symbol.id)
                if type(producer) is Node:
                    found.update(s.id for s in producer.outputs)
                    if self._reads(producer):
                        raise GraphError(
                            f"{_OP}: the result is made of what reads the Symbol, and would be made of itself",
                            operands={"value": self.symbol, "made of it": symbol},
                            help="compute it from the Symbol that is given to the transformation",
                        )
            if type(producer) is Node:
                waiting += _operands(producer)
        return found

    def _reads(self, node: Node) -> bool:
        return any(s is self.symbol for s in _operands(node)) and not self._is_told(node)

    # Reading another Symbol

    def _read_instead(self, node: Node, made: Symbol) -> None:
        symbol = self.symbol
        if any(s is symbol for s in node.inputs) and not self._is_told(node):
            change(node, inputs=tuple([made if s is symbol else s for s in node.inputs]))
        for body in bodies(node):
            _recapture(body, symbol, made)

    def _name_outputs(self, made: Symbol) -> None:
        """The outputs under the names that they had, the Symbol's own as the name of what stands for it."""
        graph, symbol, names = self.graph, self.symbol, self.graph.names
        if graph._outputs is None:
            return
        outputs: list[tuple[str | None, Symbol]] = []
        for label, value in self.labels:
            if value is symbol:
                if symbol.given_name == label and type(symbol.producer) is Node:
                    del names.taken[label]
                    change(symbol, given_name=None)
                value = made
            if value.given_name is None and type(value.producer) is Node and label not in names.taken:
                names.rename(value, label)
            names.taken.setdefault(label, value)  # so that nothing without a name is called so
            outputs.append((label, value))
        graph._outputs = outputs

    # Order and numbers

    def _order(self, moved: set[int]) -> None:
        graph = self.graph
        first, count = self._first(), len(self.symbols)
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
        # What is remembered by number is made again.
        graph.memory.forget_sizes(_is_made)
        graph.memory.forget_values(_is_made)
        for node in graph._nodes:
            for body in bodies(node):
                body.scope.captured = {_outside(s).id: s for s in body.scope.captured.values()}

    def _undo(self) -> None:
        """The graph as it was: what the transformation made is in it no more."""
        graph = self.graph
        del graph._symbols[len(self.symbols) :]
        del graph._nodes[len(self.nodes) :]
        graph._inputs = self.inputs
        graph.memory = self.memory
        graph.scope.captured = self.captured
        graph.site.layers = self.layers
        graph.watched = self.watched
        graph.names.taken = self.names
        for buffer, value in self.held:
            buffer.value = value
        for expression in self.open:
            expression.swallowed = False


def _operands(node: Node) -> list[Symbol]:
    """Return the Symbols a node reads, its bodies included."""
    found = [s for s in node.inputs if s is not None]
    for body in bodies(node):
        found += [_outside(s) for s in body.scope.captured.values()]
    return found


def _outside(captured: Symbol) -> Symbol:
    assert isinstance(captured.producer, Captured)
    return captured.producer.symbol


def _recapture(body: Graph, old: Symbol, new: Symbol) -> None:
    """Let a body read `new` of the graph around it where it reads `old`."""
    mine = body.scope.captured.get(old.id)
    if mine is None:
        return
    other = body.scope.captured.get(new.id)
    if other is None:
        change(mine, producer=Captured(new))
        body.scope.captured[new.id] = body.scope.captured.pop(old.id)
        return
    for node in body._nodes:
        change(node, inputs=tuple([other if s is mine else s for s in node.inputs]))
        for inner in bodies(node):
            _recapture(inner, mine, other)
    body._outputs = [(label, other if s is mine else s) for label, s in body._outputs or ()]


def _is_made(symbol: Symbol) -> bool:
    """Return True for what a node makes."""
    return type(symbol.producer) is Node
