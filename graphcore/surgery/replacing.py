"""Replace values, nodes and matches of a pattern: `Graph.replace`, `Graph.replace_all`, `Graph.find_all`."""

from __future__ import annotations

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
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Captured, Match, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Results, prune
from graphcore.ir.transform.walk import bodies, parts
from graphcore.support.escaping import counted, similar
from graphcore.surgery.copying import conclude, replica
from graphcore.surgery.patterns import Finder, defaults, finder
from graphcore.surgery.replay import Edit, Replay
from graphcore.surgery.result_types import describe_node
from graphcore.types.tensor_types import TensorType


@method(Graph)
def replace(self: Graph, what: str | Symbol | Node, fn: Callable[..., Any]) -> Graph:
    """Return a new graph in which a value or a node is replaced. This graph does not change.

    Types may change: consumers are built again with the same checks. Outputs keep their names.

    Args:
        what: A value, by its name or as a Symbol, or a Node (`graph["y"].producer`), also in bodies and functions. A
            captured Symbol is replaced only in its body.
        fn: For a value, `fn(value)` replaces it in all consumers, outputs, bodies and stores to buffers; the value
            itself remains as far as `fn` uses it. For a node, `fn(*operands)` returns the replacements of its results,
            as one value or a tuple. Omitted operands are None, and keyword-only parameters are attributes of the node.
            Nodes that only it used are dropped. `fn` builds on Symbols of the new graph, where `value.graph["name"]` is
            an earlier value, and returns Symbols, arrays or numbers.

    Raises:
        GraphError: The value does not exist, or no output depends on it.
        DTypeError: A consumer does not support the new dtype.
        ShapeError: A consumer does not support the new shape.

    Example:
        half = graph.replace("hidden", lambda h: h.cast("float16"))
        smooth = graph.replace(graph["y"].producer, lambda x: ops.gelu(x))
    """
    self.verify()
    _check_function("replace", fn)
    target = target_of(self, what)
    if isinstance(target, Node):
        change = _ReplaceEdit(f"replace of {describe_node(target)}", self, fn, node=target)
    else:
        change = _ReplaceEdit(f"replace of {target.name!r}", self, fn, value=target)
    result = change.run()
    if not change.is_done:
        raise GraphError(
            f"{change.what}: no output depends on it, so nothing would change",
            operands={} if isinstance(target, Node) else {"value": target},
            help="replace something that the outputs depend on; print(graph) shows the nodes",
        )
    return result


@method(Graph)
def replace_all(
    self: Graph,
    pattern: str | Callable[..., Any],
    fn: Callable[..., Any],
    *,
    where: Callable[[Match], bool] | None = None,
    missing_ok: bool = False,
) -> Graph:
    """Return a new graph in which all matches of a pattern are replaced. This graph does not change.

    Matches are searched once, from the outputs backwards, also in bodies and functions. Nodes of a match are not part
    of another match, unless something else uses them: then they remain. Types and names: see `replace`.

    Args:
        pattern: An operator, "Relu" or "com.microsoft::Gelu"; a function of Symbols, one per parameter, that returns
            the Symbol to match, written with ops or `gc.patterns.op`; or a `gc.patterns.Pattern` with conditions.
        fn: For an operator, takes its operands and returns all results. For a function, takes the values of its
            parameters, by name if all names are the same, else by position, then the other values that the pattern
            returns. Keyword-only parameters are attributes of the last node.
        where: Returns True for each match, a `gc.patterns.Match` of this graph, to replace.
        missing_ok: If True, return an equal graph if nothing matches.

    Raises:
        GraphError: Nothing matches, or the pattern cannot be traced. Other errors: see `replace`.

    Source: function-based rewriting of ONNX Script.

    Example:
        graph.replace_all("Relu", lambda x: ops.abs(x))
        graph.replace_all("LeakyRelu", lambda x, *, alpha: ops.where(x > 0, x, x * alpha))
        graph.replace_all(lambda x: x * ops.sigmoid(x), lambda x: ops.silu(x))
    """
    self.verify()
    label = pattern if isinstance(pattern, str) else "a pattern"
    what = f"replace_all of {label}"
    _check_function(what, fn)
    change = _ReplaceEdit(what, self, fn, find=_filter_matches(finder(what, self, pattern), where))
    if not change.matches and not missing_ok:
        raise GraphError(f"{what}: nothing in graph {self.name!r} matches", help=_no_match_help(self, pattern, where))
    return change.run()


@method(Graph)
def find_all(
    self: Graph, pattern: str | Callable[..., Any], *, where: Callable[[Match], bool] | None = None
) -> list[Match]:
    """Return the matches of a pattern, which `replace_all` would replace.

    Args:
        pattern: The pattern, see `replace_all`.
        where: A condition for matches, see `replace_all`.

    Returns:
        Matches with the last `node`, all `nodes`, the `result`, and the Symbol of each parameter, `match["x"]`.

    Raises:
        GraphError: The pattern cannot be traced.

    Example:
        print(len(graph.find_all(lambda x: x * ops.sigmoid(x))))
    """
    self.verify()
    what = f"find_all of {pattern if isinstance(pattern, str) else 'a pattern'}"
    change = _ReplaceEdit(what, self, lambda *_: None, find=_filter_matches(finder(what, self, pattern), where))
    return [change.matches[id(node)] for part in parts(self) for node in part.nodes if id(node) in change.matches]


def _check_function(what: str, fn: object) -> None:
    if not callable(fn):
        raise GraphError(
            f"{what}: the replacement must be a function, got {type(fn).__name__}",
            help="give a function of Symbols: lambda x: ops.abs(x)",
        )


def _filter_matches(find: Finder, where: Callable[[Match], bool] | None) -> Finder:
    def chosen(node: Node) -> Match | None:
        match = find(node)
        return match if match is None or where is None or where(match) else None

    return chosen


def _no_match_help(graph: Graph, pattern: str | Callable[..., Any], where: object) -> str:
    """Return the help text for a pattern that matches nothing."""
    last = "pass missing_ok=True if that is intended"
    if where is not None and (matches := find_all(graph, pattern)):
        return f"where= rejects all {len(matches)} matches; {last}"
    nodes = [node for part in parts(graph) for node in part.nodes]
    present = Counter(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes)
    if isinstance(pattern, str):
        by_lower = {name.rpartition("::")[2].lower(): name for name in present}
        close = similar(pattern.rpartition("::")[2].lower(), by_lower, 1)
        if close:
            return f"did you mean {by_lower[close[0]]!r}? {last}"
    counts = ", ".join(f"{name} ({count})" for name, count in present.most_common(8))
    return f"the graph has {counts or 'no nodes'}; {last}"


# The change


@dataclass
class _ReplaceEdit(Edit):
    """The edit that replaces one node, one value, or all matches.

    node, value, find: the node or value to replace, or the function that finds matches. matches: by the identity of
    their last node. _dropped: the identities of nodes that nothing needs any more.
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
    _partly_needed: set[int] = field(default_factory=set)
    """The identities of matched nodes that stay, because other results of theirs are needed."""
    _definitions: dict[Definition, Definition | None] = field(default_factory=dict)
    _parts: set[int] = field(default_factory=set)
    """The identities of the graph, and of the bodies in it."""

    def __post_init__(self) -> None:
        graph = self.graph
        self._parts = {id(part) for part in parts(graph)}
        buffer_values = [buffer.value for buffer in graph.buffers.values()]
        self._find_matches(graph, [*graph.outputs, *buffer_values, *graph.watched.values()])

    # Which nodes are needed

    def _find_matches(self, graph: Graph, results: Sequence[Symbol]) -> set[int]:
        """Find the matches in a graph, last nodes first. Returns the ids of the Symbols that are needed."""
        used = {s.id for s in results if s.graph is graph}
        for node in reversed(graph.nodes):
            if node.outputs and not any(s.id in used for s in node.outputs):
                self._dropped.add(id(node))
                continue
            match = None if self.find is None or not node.outputs else self.find(node)
            if match is not None:
                self.matches[id(node)] = match
                if not match.values:
                    used.update(s.id for s in node.inputs if s is not None)
                    continue
                used.update(s.id for s in (*match.values.values(), *match.others) if s is not None)
                if not any(s.id in used for s in node.outputs[1:]):
                    continue
                self._partly_needed.add(id(node))
            used.update(s.id for s in node.inputs if s is not None)
            if node is self.node:
                continue
            for body in bodies(node):
                inside = self._find_matches(body, [*body.outputs, *body.watched.values()])
                for symbol in body.scope.captured.values():
                    if symbol.id in inside and isinstance(symbol.producer, Captured):
                        used.add(symbol.producer.symbol.id)
            definition = definition_of(node)
            if definition is not None and definition not in self._definitions:
                self._definitions[definition] = None
                self._find_matches(definition.body, definition.body.outputs)
        return used

    # The new graph

    def run(self) -> Graph:
        """Return the new graph."""
        replay = replica(self.graph, self.what)
        for symbol in self.graph.weights.values():
            replay.of(symbol)
        replay.policy = self  # from here on: the function may look up weights by name
        for symbol in (*self.graph.input_symbols, *self.graph.weights.values()):
            replay.settle(symbol)
        replay.make_all()
        result = conclude(replay)
        prune(result)
        return result

    replaces_values = True

    def is_dropped(self, node: Node) -> bool:
        return id(node) in self._dropped

    def definition(self, definition: Definition) -> Definition:
        """Return a function with the replacements in its body, cached."""
        new_definition = self._definitions.get(definition)
        if new_definition is not None:
            return new_definition
        new_definition = definition
        if definition in self._definitions and self._has_replacements(definition.body):
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
            new_definition = Definition(definition.name, replay.new, definition.domain, definition.attributes)
        self._definitions[definition] = new_definition
        return new_definition

    def _has_replacements(self, body: Graph) -> bool:
        """Return True if a body, or what it calls, has something to replace."""
        return any(
            part is getattr(self.value, "graph", None)
            or any(id(node) in self.matches or node is self.node for node in part.nodes)
            for part in parts(body)
        )

    def _is_replaced(self, node: Node) -> bool:
        return (id(node) in self.matches or node is self.node) and id(node) not in self._partly_needed

    def operands(self, rewrite: Replay, node: Node) -> Inputs:
        return () if self._is_replaced(node) else super().operands(rewrite, node)

    def replace_node(self, rewrite: Replay, node: Node, inputs: Inputs) -> Results | None:
        if not self._is_replaced(node):
            return None
        replay, match = rewrite, self.matches.get(id(node))
        first = len(replay.new.symbols)
        if match is not None and match.values:
            results: list[Symbol | None] = [self._replace_match(replay, match)]
            results += [None] * (len(node.outputs) - 1)
        else:
            values = [None if s is None else replay.of(s) for s in node.inputs]
            results = [*self._call(replay, node, values, None, node.outputs)]
        for symbol, result in zip(node.outputs, results, strict=True):
            if result is not None and result.graph is replay.new and result.id >= first:
                name = replay.free_name(symbol.given_name, replay.new)
                if name is not None and result.given_name is None and isinstance(result.producer, Node):
                    replay.new.names.rename(result, name)
        return replay.put(node, results)

    def replace_value(self, replay: Replay, symbol: Symbol, value: Symbol) -> Symbol:
        if symbol is self.value:
            node = symbol.producer if isinstance(symbol.producer, Node) else None
            return self._call(replay, node, [value], None, [symbol])[0]
        producer = symbol.producer
        if isinstance(producer, Node) and id(producer) in self._partly_needed and symbol is producer.outputs[0]:
            return self._replace_match(replay, self.matches[id(producer)])
        return value

    def _replace_match(self, replay: Replay, match: Match) -> Symbol:
        values = {name: None if s is None else replay.of(s) for name, s in match.values.items()}
        others = [replay.of(s) for s in match.others]
        names = None if others else tuple(values)
        return self._call(replay, match.node, [*values.values(), *others], names, [match.result])[0]

    # The user's function

    def _call(
        self,
        replay: Replay,
        node: Node | None,
        values: list[Symbol | None],
        names: tuple[str, ...] | None,
        wanted: Sequence[Symbol],
    ) -> list[Symbol]:
        """Return the results of the function, one for each value it replaces."""
        arguments, attributes = self._arguments(node, values, names)
        self.is_done = True
        with _in_layer(replay.new, "" if node is None else node.layer):
            returned = self.fn(*arguments, **attributes)
            results = [*returned] if isinstance(returned, (tuple, list)) else [returned]
            if len(results) != len(wanted):
                raise GraphError(
                    f"{self.what}: the function returned {len(results)} values to replace {len(wanted)}",
                    operands={f"result {i}": s for i, s in enumerate(wanted)},
                    help="return one for each, in order",
                )
            symbols = [self._result(replay, value, old) for value, old in zip(results, wanted, strict=True)]
            replay.new.build.end_expressions(symbols)
        return symbols

    def _result(self, replay: Replay, value: Any, old: Symbol) -> Symbol:
        new = replay.new
        if isinstance(value, Symbol) and id(value.graph) in self._parts:
            raise GraphError(
                f"{self.what}: the function returned {value.name!r} of the old graph",
                operands={"result": value},
                help="use the function's parameters; earlier values of the new graph are x.graph['name']",
            )
        if isinstance(value, (Symbol, np.ndarray)):
            return new.build.operand(value, self.what, "the result")
        if isinstance(value, (bool, int, float, complex)) and isinstance(old.type, TensorType):
            return new.constant(value, old.dtype)
        raise GraphError(
            f"{self.what}: the function must return a Symbol, array or number, got {type(value).__name__}",
            operands={"replaced": old},
            help="return the value to use instead",
        )

    def _arguments(
        self, node: Node | None, values: list[Symbol | None], names: tuple[str, ...] | None
    ) -> tuple[list[Symbol | None], dict[str, Any]]:
        """Return the arguments of the function: operands, by position or name, and attributes."""
        try:
            signature = inspect.signature(self.fn)
        except (TypeError, ValueError):  # a function that is not written in Python
            return values, {}
        parameters = signature.parameters.values()
        own = {p.name: p.default is p.empty for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
        is_open = any(p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY) for p in parameters)
        attributes: dict[str, Any] = {}
        all_values = values
        required = {name for name, is_needed in own.items() if is_needed}
        if names is not None and not is_open and own.keys() & {*names} and required <= {*names}:
            attributes = {name: s for name, s in zip(names, values, strict=True) if name in own}
            values = []
        elif names is None and not is_open:
            while values and values[-1] is None and len(values) > len(own):
                values = values[:-1]
        node_attributes = {} if node is None else {**defaults(node), **node.attributes}
        for parameter in parameters:
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name in node_attributes:
                attributes[parameter.name] = node_attributes[parameter.name]
        try:
            signature.bind(*values, **attributes)
        except TypeError as error:
            labels = names or [f"operand {i}" for i in range(len(all_values))]
            raise GraphError(
                f"{self.what}: the function does not accept its arguments: {error}",
                operands={label: "absent" if s is None else s for label, s in zip(labels, all_values, strict=False)},
                help=f"it is called with {counted(len(all_values), 'value')}; keyword-only parameters are attributes "
                "of the node",
            ) from None
        return values, attributes


@contextmanager
def _in_layer(graph: Graph, layer: str) -> Iterator[None]:
    """Build what follows in a layer of a graph."""
    before, graph.site.layer = graph.site.layer, layer
    try:
        with graph:
            yield
    finally:
        graph.site.layer = before


# Lookup of values and nodes by name, Symbol or node.


def target_of(graph: Graph, what: Any) -> Node | Symbol:
    """Return the node or value of a graph for a name, Symbol or node. Raises `GraphError` if there is none."""
    if isinstance(what, str):
        return _value_named(graph, what)
    if isinstance(what, BufferValue):
        what = _value_named(graph, what.name)
    if isinstance(what, Node):
        if not any(node is what for part in parts(graph) for node in part.nodes):
            raise GraphError(
                f"replace: {describe_node(what)} is not a node of graph {graph.name!r}",
                help="give a node of graph.nodes, or of a body or function in it",
            )
        return what
    if not isinstance(what, Symbol):
        raise GraphError(
            f"replace: the target must be a name, Symbol or node, got {type(what).__name__}",
            help="give a value's name, a Symbol or a node: graph.replace(graph['y'].producer, fn)",
        )
    if not any(part is what.graph for part in parts(graph)):
        raise GraphError(
            f"replace: {what.name!r} is not a value of graph {graph.name!r}, but of another graph, {what.graph.name!r}",
            operands={"value": what},
            help=f"give it by name, or as graph[{what.name!r}]",
        )
    return what


def _value_named(graph: Graph, name: str) -> Symbol:
    symbol = graph.names.find(name, graph.symbols, graph.named_outputs)
    if symbol is not None and symbol.graph is graph:
        return symbol
    everything = [s.name for s in graph.symbols]
    inside = [s for part in parts(graph) if part is not graph for s in part.symbols if s.name == name]
    if inside:
        raise GraphError(
            f"replace: {name!r} is a value in the body {inside[0].graph.name!r}, where names are not unique",
            operands={"value": inside[0]},
            help="give the Symbol or the node: see node.attributes[...].nodes",
        )
    close = similar(name, everything)
    raise GraphError(
        f"replace: nothing in graph {graph.name!r} is called {name!r}",
        help=f"did you mean {' or '.join(map(repr, close))}?" if close else "print(graph) shows the names",
    )
