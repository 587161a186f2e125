"""A part of a graph, between some values and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Input, Symbol
from graphcore.surgery.copying import finish, replica, value_of
from graphcore.surgery.replay import reads

Value: TypeAlias = "str | Symbol"
"""A value of a graph: its name, or its Symbol."""
Values: TypeAlias = "Value | Iterable[Value] | Mapping[str, Value]"
"""Some of them, or some by names that they get."""


def extract(graph: Graph, inputs: Values | None, outputs: Values) -> Graph:
    """Return the part of a graph that computes values from others. See `Graph.extract`."""
    what = "extract"
    ends = named_values(graph, what, outputs)
    if not ends:
        raise GraphError("extract: no outputs are given", help="name what the part is to give: outputs=['features']")
    starts = None if inputs is None else named_values(graph, what, inputs)
    given = [] if starts is None else [s for _, s in starts]
    for name, symbol in starts or ():
        if sum(symbol is s for s in given) > 1:
            raise GraphError(f"extract: input {name!r} is given twice", operands={"value": symbol}, help="give it once")
    missing = missing_inputs(graph, given, [s for _, s in ends])
    kept = [s for s in missing if starts is None or s.given_name in graph.buffers]
    if len(kept) < len(missing):
        readers = readers_of(graph, [s for s in missing if s not in kept])
        names = ", ".join(repr(s.name) for s in missing if not any(s is k for k in kept))
        raise GraphError(
            f"extract: the outputs also need {names}",
            operands={f"read by {reader}": s for reader, s in readers.items()},
            help=f"add to the inputs: {names}; or cut at values that come after",
        )
    others = {s.name: name for name, s in starts or () if s.name != name}
    replay = replica(graph, what, inputs=[*given, *kept], names=others)
    return finish(replay, ends)


def named_values(graph: Graph, what: str, values: Values) -> list[tuple[str, Symbol]]:
    """Return values with the names that they get: their own, or the keys of a mapping. Raises `GraphError`."""
    if isinstance(values, Mapping):
        return [(name, value_of(graph, what, value)) for name, value in values.items()]
    given = [values] if isinstance(values, (str, Symbol)) else [*values]
    made = []
    for value in given:
        symbol = value_of(graph, what, value)
        made.append((value if isinstance(value, str) else label_of(graph, symbol), symbol))
    return made


def label_of(graph: Graph, symbol: Symbol) -> str:
    """Return the name of the output that a Symbol is, or its own."""
    return next((name for name, s in graph.named_outputs if s is symbol and name), symbol.name)


def missing_inputs(graph: Graph, given: list[Symbol], ends: list[Symbol]) -> list[Symbol]:
    """Return the inputs that values need beside those given, in their order; buffers with what they store."""
    stops = {s.id for s in given}
    used: set[int] = set()
    waiting = [s for s in ends if s.id not in stops]
    makers = {s.id: node for node in graph.nodes for s in node.outputs}
    while waiting:
        symbol = waiting.pop()
        if symbol.id in used:
            continue
        used.add(symbol.id)
        node = makers.get(symbol.id)
        if node is not None:
            waiting += [s for s in reads(node) if s.id not in stops]
        held = graph.buffers.get(symbol.given_name or "") if isinstance(symbol.producer, Input) else None
        if held is not None and held.value.id not in stops:
            waiting.append(graph.symbols[held.value.id])
    return [s for s in graph.input_symbols if s.id in used]


def readers_of(graph: Graph, symbols: list[Symbol]) -> dict[str, Symbol]:
    """Return the first node that reads each Symbol, in words, with the Symbol."""
    found: dict[str, Symbol] = {}
    for symbol in symbols:
        node = next((n for n in graph.nodes if any(s is symbol for s in reads(n))), None)
        found[f"{node.op_type} {node.outputs[0].name!r}" if node and node.outputs else "an output"] = symbol
    return found
