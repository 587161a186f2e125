"""Graphs as sources of a warm start, and the cache keys of all that they are made of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.state import open_expressions
from graphcore.ir.symbol import Constant, Node
from graphcore.runtime.model import Model
from graphcore.runtime.warm_start.cache import Cache
from graphcore.runtime.warm_start.source import DOMAINS, HASHED, kept_of
from graphcore.support.gc_pause import uncollected
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Type

_OWN = DOMAINS | {"graphcore"}
"""Domains of the operators whose meaning no program changes."""

_PLAIN = frozenset({bool, int, float, str, bytes, type(None), DType})


class _Unknown(Exception):
    """Something in a graph that cannot be told from others like it."""


class GraphSource:
    """A graph: a `Source`. Those with bodies, functions, custom operators or buffers have no key."""

    def __init__(self, cache: Cache, graph: Graph, load: Callable[[], Model]) -> None:
        """load: loads the graph without a cache."""
        self.cache = cache
        self.name = graph.name
        self.is_settled = True
        self._load = load
        self._graph = graph
        self._edits = graph.edits
        self.key: str | None = None
        self._constants = {s.name: s.producer.array for s in graph.symbols if isinstance(s.producer, Constant)}
        small = sum(array.nbytes for array in self._constants.values()) <= HASHED
        if small and not graph.buffers:
            with contextlib.suppress(_Unknown):
                self.key = cache.digest(*_parts(graph))

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return constants by name. Raises `KeyError`."""
        return {name: self._constants[name] for name in names}

    def entry(self) -> dict[str, Any] | None:
        """Return what an earlier load kept; None where nothing was."""
        return kept_of(self.cache, self.key)

    def again(self) -> Model:
        """Load all of the graph. Raises `GraphError` where nodes were inserted since."""
        if self._graph.edits != self._edits:
            raise GraphError(
                f"load: nodes were inserted into the graph since {self.name} was loaded",
                help="load the graph again: this model runs as it was",
            )
        return self._load()


def _parts(graph: Graph) -> Iterator[bytes | memoryview]:
    """Yield everything that what a graph is lowered to follows from."""
    types: dict[Type, str] = {}
    said: list[Any] = [graph.name, graph.promotion.note, graph.strict]
    said += [sorted(graph.metadata.items()), sorted(graph.opsets.items()), open_expressions.state_of(graph)]
    said += [[s.id for s in graph.input_symbols], [(name, s.id) for name, s in graph.named_outputs]]
    said.append(sorted(graph.watched))
    arrays: list[Array] = []
    for symbol in graph.symbols:
        type_ = symbol.type
        text = types.get(type_)
        if text is None:
            text = types[type_] = f"{type_!r} {getattr(type_, 'ambiguous', '')}"
        producer = symbol.producer
        if isinstance(producer, Constant):
            arrays.append(producer.array)
            said.append((text, symbol.given_name, producer.is_weight))
        else:
            said.append((text, symbol.given_name))
    for node in graph.nodes:
        if node.domain not in _OWN:
            raise _Unknown
        said.append(_node(node, arrays))
    yield repr(said).encode("utf-8", "surrogatepass")
    for array in arrays:
        if array.dtype == object:
            yield repr(array.tolist()).encode("utf-8", "surrogatepass")
            continue
        yield f"{array.dtype.name}{array.shape}".encode()
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _node(node: Node, arrays: list[Array]) -> tuple[Any, ...]:
    inputs = [None if s is None else s.id for s in node.inputs]
    attributes = [(key, _value(value, arrays)) for key, value in node.attributes.items()] if node.attributes else ()
    is_imported = type(node.origin) is Imported
    return node.op_type, node.domain, node.layer, is_imported, inputs, [s.id for s in node.outputs], attributes


def _value(value: Any, arrays: list[Array]) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        return [_value(item, arrays) for item in value]
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return "array"
    raise _Unknown


def graph_source(cache: Cache, graph: Graph, load: Callable[[], Model]) -> GraphSource | None:
    """Return the source of a warm start; None for a graph that loading has to look at, or to refuse."""
    try:
        graph.verify()
        with uncollected():
            found = GraphSource(cache, graph, load)
    except Exception:
        return None
    return None if found.key is None else found
