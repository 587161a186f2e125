"""Replacing values, nodes, and all that a pattern describes: `Graph.replace`, `Graph.replace_all`, `Graph.find_all`."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.buffers import BufferValue
from graphcore.ir.definitions import Definition, definition_of
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Match, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Results, prune
from graphcore.ir.transform.walk import bodies, parts
from graphcore.surgery.copying import conclude, replica
from graphcore.surgery.patterns import Finder, defaults, finder
from graphcore.surgery.replay import Edit, Replay
from graphcore.surgery.result_types import described
from graphcore.types.tensor_types import TensorType


def replace(graph: Graph, what: Any, fn: Callable[..., Any]) -> Graph:
    """Return a new graph with something else in place of a value or a node. See `Graph.replace`."""
    graph.verify()
    _check_function("replace", fn)
    target = target_of(graph, what)
    if isinstance(target, Node):
        change = _Change(f"replace of {described(target)}", graph, fn, node=target)
    else:
        change = _Change(f"replace of {target.name!r}", graph, fn, value=target)
    made = change.run()
    if not change.is_done:
        raise GraphError(
            f"{change.what}: no output is made of it, so nothing would change",
            operands={} if isinstance(target, Node) else {"value": target},
            help="replace what the outputs are made of; print(graph) shows it",
        )
    return made


def replace_all(
    graph: Graph,
    pattern: str | Callable[..., Any],
    fn: Callable[..., Any],
    where: Callable[[Match], bool] | None,
    missing_ok: bool,
) -> Graph:
    """Return a new graph with something else in place of all that a pattern describes. See `Graph.replace_all`."""
    graph.verify()
    shown = pattern if isinstance(pattern, str) else "a pattern"
    what = f"replace_all of {shown}"
    _check_function(what, fn)
    change = _Change(what, graph, fn, find=_chosen(finder(what, graph, pattern), where))
    if not change.matches and not missing_ok:
        raise GraphError(f"{what}: nothing in graph {graph.name!r} matches", help=_nothing(graph, pattern, where))
    return change.run()


def find_all(graph: Graph, pattern: str | Callable[..., Any], where: Callable[[Match], bool] | None) -> list[Match]:
    """Return what `replace_all` would replace. See `Graph.find_all`."""
    graph.verify()
    what = f"find_all of {pattern if isinstance(pattern, str) else 'a pattern'}"
    change = _Change(what, graph, _no_function, find=_chosen(finder(what, graph, pattern), where))
    return [change.matches[id(node)] for part in parts(graph) for node in part.nodes if id(node) in change.matches]


def _check_function(what: str, fn: object) -> None:
    if not callable(fn):
        raise GraphError(
            f"{what}: what is put in place comes from a function, and a {type(fn).__name__} is given",
            help="give a function of Symbols: lambda x: ops.abs(x)",
        )


def _no_function(*_: Any) -> None:
    raise AssertionError("nothing is replaced")


def _chosen(find: Finder, where: Callable[[Match], bool] | None) -> Finder:
    def chosen(node: Node) -> Match | None:
        found = find(node)
        return found if found is None or where is None or where(found) else None

    return chosen


def _nothing(graph: Graph, pattern: str | Callable[..., Any], where: object) -> str:
    """Return what to do where nothing matches."""
    last = "pass missing_ok=True if that is right"
    if where is not None and (matches := find_all(graph, pattern, None)):
        return f"where= refuses all {len(matches)} matches; {last}"
    present = Counter(_full_name(node) for part in parts(graph) for node in part.nodes)
    if isinstance(pattern, str):
        by_lower = {name.rpartition("::")[2].lower(): name for name in present}
        close = difflib.get_close_matches(pattern.rpartition("::")[2].lower(), by_lower, 1)
        if close:
            return f"did you mean {by_lower[close[0]]!r}? {last}"
    shown = ", ".join(f"{name} ({count})" for name, count in present.most_common(8))
    return f"the graph has {shown or 'no nodes'}; {last}"


def _full_name(node: Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


# The change


@dataclass
class _Change(Edit):
    """A graph, and what takes which place in it.

    node, value, find: what is replaced: one node, one value, or the nodes that this finds. matches: those found, by
    the identity of the node. dropped: the identities of nodes that nothing needs any more.
    """

    what: str
    graph: Graph
    fn: Callable[..., Any]
    node: Node | None = None
    value: Symbol | None = None
    find: Finder | None = None
    matches: dict[int, Match] = field(default_factory=dict)
    is_done: bool = False
    _dropped: set[int] = field(default_factory=set)
    _beside: set[int] = field(default_factory=set)
    """The identities of matched nodes that stay, for other results of theirs are needed."""
    _definitions: dict[Definition, Definition | None] = field(default_factory=dict)
    _parts: set[int] = field(default_factory=set)
    """The identities of the graph, and of the bodies in it."""

    def __post_init__(self) -> None:
        graph = self.graph
        self._parts = {id(part) for part in parts(graph)}
        held = [buffer.value for buffer in graph.buffers.values()]
        self._look(graph, [*graph.outputs, *held, *graph.watched.values()])

    # Which nodes are needed

    def _look(self, graph: Graph, results: Sequence[Symbol]) -> set[int]:
        """Find what is replaced in a graph, its last nodes first. Returns the numbers of Symbols that are needed."""
        used = {s.id for s in results if s.graph is graph}
        for node in reversed(graph.nodes):
            if node.outputs and not any(s.id in used for s in node.outputs):
                self._dropped.add(id(node))
                continue
            found = None if self.find is None or not node.outputs else self.find(node)
            if found is not None:
                self.matches[id(node)] = found
                if not found.values:
                    used.update(s.id for s in node.inputs if s is not None)
                    continue
                used.update(s.id for s in (*found.values.values(), *found.others) if s is not None)
                if not any(s.id in used for s in node.outputs[1:]):
                    continue
                self._beside.add(id(node))
            used.update(s.id for s in node.inputs if s is not None)
            if node is self.node:
                continue
            for body in bodies(node):
                inside = self._look(body, [*body.outputs, *body.watched.values()])
                for symbol in body.scope.captured.values():
                    if symbol.id in inside and isinstance(symbol.producer, Captured):
                        used.add(symbol.producer.symbol.id)
            definition = definition_of(node)
            if definition is not None and definition not in self._definitions:
                self._definitions[definition] = None
                self._look(definition.body, definition.body.outputs)
        return used

    # The new graph

    def run(self) -> Graph:
        """Return the new graph."""
        replay = replica(self.graph, self.what)
        for symbol in self.graph.weights.values():
            replay.of(symbol)
        replay.policy = self  # from here on: the function may ask for weights by name
        for symbol in (*self.graph.input_symbols, *self.graph.weights.values()):
            replay.settle(symbol)
        replay.make_all()
        made = conclude(replay)
        prune(made)
        return made

    replaces_values = True

    def is_dropped(self, node: Node) -> bool:
        return id(node) in self._dropped

    def definition(self, definition: Definition) -> Definition:
        """Return a function with what it has of the change, made once."""
        made = self._definitions.get(definition)
        if made is not None:
            return made
        made = definition
        if definition in self._definitions and self._is_in(definition.body):
            body = definition.body
            replay = replica(body, self.what, policy=self)
            for symbol in body.input_symbols:
                replay.settle(symbol)
            replay.make_all()
            results = replay.own_results(body.outputs)
            names = [name for name, _ in body.named_outputs]
            replay.new.build.outputs([*zip(names, results, strict=True)])
            prune(replay.new)
            replay.new.scope.is_finished = True
            made = Definition(definition.name, replay.new, definition.domain, definition.attributes)
        self._definitions[definition] = made
        return made

    def _is_in(self, body: Graph) -> bool:
        """Return whether a body, or what it calls, has what is replaced."""
        return any(
            part is getattr(self.value, "graph", None)
            or any(id(node) in self.matches or node is self.node for node in part.nodes)
            for part in parts(body)
        )

    def _is_replaced(self, node: Node) -> bool:
        return (id(node) in self.matches or node is self.node) and id(node) not in self._beside

    def operands(self, rewrite: Replay, node: Node) -> Inputs:
        return () if self._is_replaced(node) else super().operands(rewrite, node)

    def replace_node(self, rewrite: Replay, node: Node, inputs: Inputs) -> Results | None:
        if not self._is_replaced(node):
            return None
        replay, found = rewrite, self.matches.get(id(node))
        first = len(replay.new.symbols)
        if found is not None and found.values:
            made: list[Symbol | None] = [self._of_match(replay, found)]
            made += [None] * (len(node.outputs) - 1)
        else:
            values = [None if s is None else replay.of(s) for s in node.inputs]
            made = [*self._call(replay, node, values, None, node.outputs)]
        for symbol, result in zip(node.outputs, made, strict=True):
            if result is not None and result.graph is replay.new and result.id >= first:
                name = replay.free_name(symbol.given_name, replay.new)
                if name is not None and result.given_name is None and isinstance(result.producer, Node):
                    replay.new.names.rename(result, name)
        return replay.put(node, made)

    def replace_value(self, replay: Replay, symbol: Symbol, made: Symbol) -> Symbol:
        if symbol is self.value:
            node = symbol.producer if isinstance(symbol.producer, Node) else None
            return self._call(replay, node, [made], None, [symbol])[0]
        producer = symbol.producer
        if isinstance(producer, Node) and id(producer) in self._beside and symbol is producer.outputs[0]:
            return self._of_match(replay, self.matches[id(producer)])
        return made

    def _of_match(self, replay: Replay, found: Match) -> Symbol:
        values = {name: None if s is None else replay.of(s) for name, s in found.values.items()}
        others = [replay.of(s) for s in found.others]
        names = None if others else tuple(values)
        return self._call(replay, found.node, [*values.values(), *others], names, [found.result])[0]

    # The user's function

    def _call(
        self,
        replay: Replay,
        node: Node | None,
        values: list[Symbol | None],
        names: tuple[str, ...] | None,
        wanted: Sequence[Symbol],
    ) -> list[Symbol]:
        """Return what the function gives in place of values, of which there are as many."""
        arguments, attributes = self._arguments(node, values, names)
        self.is_done = True
        with _at(replay.new, "" if node is None else node.layer):
            returned = self.fn(*arguments, **attributes)
            results = [*returned] if isinstance(returned, (tuple, list)) else [returned]
            if len(results) != len(wanted):
                raise GraphError(
                    f"{self.what}: the function gave {len(results)} values, and {len(wanted)} are to be replaced",
                    operands={f"result {i}": s for i, s in enumerate(wanted)},
                    help="return one for each, in order",
                )
            made = [self._result(replay, value, old) for value, old in zip(results, wanted, strict=True)]
            replay.new.build.end_expressions(made)
        return made

    def _result(self, replay: Replay, value: Any, old: Symbol) -> Symbol:
        new = replay.new
        if isinstance(value, Symbol) and id(value.graph) in self._parts:
            raise GraphError(
                f"{self.what}: the function gave {value.name!r} of the old graph",
                operands={"result": value},
                help="use what the function is given; what was made before is x.graph['name'] there",
            )
        if isinstance(value, (Symbol, np.ndarray)):
            return new.build.operand(value, self.what, "the result")
        if isinstance(value, (bool, int, float, complex)) and isinstance(old.type, TensorType):
            return new.constant(value, old.dtype)
        raise GraphError(
            f"{self.what}: the function gave a {type(value).__name__}",
            operands={"replaced": old},
            help="return the Symbol, array or number that is to be read instead",
        )

    def _arguments(
        self, node: Node | None, values: list[Symbol | None], names: tuple[str, ...] | None
    ) -> tuple[list[Symbol | None], dict[str, Any]]:
        """Return what the function is called with: operands, by position or as they are named, and attributes."""
        try:
            signature = inspect.signature(self.fn)
        except (TypeError, ValueError):  # of a function that is not Python's
            return values, {}
        parameters = signature.parameters.values()
        own = {p.name: p.default is p.empty for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
        is_open = any(p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY) for p in parameters)
        attributes: dict[str, Any] = {}
        given = values
        required = {name for name, is_needed in own.items() if is_needed}
        if names is not None and not is_open and own.keys() & {*names} and required <= {*names}:
            attributes = {name: s for name, s in zip(names, values, strict=True) if name in own}
            values = []
        elif names is None and not is_open:
            while values and values[-1] is None and len(values) > len(own):
                values = values[:-1]
        known = {} if node is None else {**defaults(node), **node.attributes}
        for parameter in parameters:
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name in known:
                attributes[parameter.name] = known[parameter.name]
        try:
            signature.bind(*values, **attributes)
        except TypeError as error:
            labels = names or [f"operand {i}" for i in range(len(given))]
            raise GraphError(
                f"{self.what}: the function does not take what it is given: {error}",
                operands={label: "absent" if s is None else s for label, s in zip(labels, given, strict=False)},
                help=f"it is called with {len(given)} values; keyword-only parameters are attributes of the node",
            ) from None
        return values, attributes


@contextmanager
def _at(graph: Graph, layer: str) -> Iterator[None]:
    """Let what is built inside go into a graph, in a layer."""
    before, graph.site.layer = graph.site.layer, layer
    try:
        with graph:
            yield
    finally:
        graph.site.layer = before


# The values and nodes of a graph that are meant by a name, a Symbol or a node.


def target_of(graph: Graph, what: Any) -> Node | Symbol:
    """Return the node or value that is meant. Raises `GraphError` where the graph has none such."""
    if isinstance(what, str):
        return _named(graph, what)
    if isinstance(what, BufferValue):
        what = _named(graph, what.name)
    if isinstance(what, Node):
        if not any(node is what for part in parts(graph) for node in part.nodes):
            raise GraphError(
                f"replace: {described(what)} is no node of graph {graph.name!r}",
                help="nodes are those of graph.nodes, and of bodies and functions in it",
            )
        return what
    if not isinstance(what, Symbol):
        raise GraphError(
            f"replace: a value or a node is replaced, and a {type(what).__name__} is given",
            help="give a value's name, a Symbol or a node: graph.replace(graph['y'].producer, fn)",
        )
    if not any(part is what.graph for part in parts(graph)):
        raise GraphError(
            f"replace: {what.name!r} is no value of graph {graph.name!r}, but of another graph, {what.graph.name!r}",
            operands={"value": what},
            help=f"give it by name, or as graph[{what.name!r}]",
        )
    return what


def _named(graph: Graph, name: str) -> Symbol:
    found = graph.names.find(name, graph.symbols, graph.named_outputs)
    if found is not None and found.graph is graph:
        return found
    everything = [s.name for s in graph.symbols]
    inside = [s for part in parts(graph) if part is not graph for s in part.symbols if s.name == name]
    if inside:
        raise GraphError(
            f"replace: {name!r} is a value in the body {inside[0].graph.name!r}, where names are not unique",
            operands={"value": inside[0]},
            help="give the Symbol or the node: those of node.attributes[...].nodes",
        )
    close = difflib.get_close_matches(name, everything, 3)
    raise GraphError(
        f"replace: nothing in graph {graph.name!r} is called {name!r}",
        help=f"did you mean {' or '.join(map(repr, close))}?" if close else "print(graph) shows the names",
    )
