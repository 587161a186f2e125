"""Looking at values inside a graph: the same graph with those as outputs."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence

from graphcore.errors import FeedError, GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.pickling import copied
from graphcore.types.tensor_types import TensorType


def names_of(watch: object, model: str) -> list[str] | None:
    """Return the names that a user wants to watch, None for those that are marked. model: for errors.

    Raises `FeedError` for what are no names.
    """
    names = [watch] if isinstance(watch, str) else watch
    if names is None:
        return None
    if not (isinstance(names, Collection) and all(isinstance(name, str) for name in names)):
        raise FeedError(
            f"debug: {model}: watch={watch!r:.80} are no names", help='give one, or a list: watch="encoder/0/*"'
        )
    return [*names]


def watched(graph: Graph, patterns: Iterable[str]) -> list[Symbol]:
    """Return the tensors that nodes make whose names match one of the patterns, in the order in which they are made.

    patterns: names as `str(graph)` shows them, or after the path of their layer, with `*`, `?` and `[...]` as in the
    shell; `*` goes across layers. Raises `GraphError` for a pattern that nothing matches.
    """
    made = [s for node in graph.nodes for s in node.outputs if isinstance(s.type, TensorType)]
    names = [(symbol, {symbol.name, _path(symbol)}) for symbol in made]
    chosen: set[int] = set()
    for pattern in patterns:
        found = {s.id for s, own in names if any(fnmatch.fnmatchcase(name, pattern) for name in own)}
        if not found:
            raise _no_such(graph, pattern, [s.name for s in made])
        chosen |= found
    return [symbol for symbol in made if symbol.id in chosen]


def marked(graph: Graph) -> dict[str, Symbol]:
    """Return what was marked by `print`, by label. Raises `GraphError` where nothing was."""
    if not graph.watched:
        raise GraphError(
            f"debug: nothing of graph {graph.name!r} is marked",
            help='mark values where they are made, x.print("label"), or say which: watch="encoder/0/*"',
        )
    return dict(graph.watched)


def _path(symbol: Symbol) -> str:
    layer = symbol.producer.layer if isinstance(symbol.producer, Node) else ""
    return symbol.name if symbol.name.startswith(layer) else layer + symbol.name


def _no_such(graph: Graph, pattern: str, names: Sequence[str]) -> GraphError:
    import difflib

    near = difflib.get_close_matches(pattern, names, 3, 0.4) or names[:5]
    return GraphError(
        f"debug: no node of graph {graph.name!r} makes a tensor that is called {pattern!r}",
        help="they are called such as " + ", ".join(map(repr, near)) if near else "it has no nodes",
    )


def with_outputs(graph: Graph, symbols: Iterable[Symbol]) -> Graph:
    """A copy of the graph whose outputs are values of it."""
    made = copied(graph)
    made.build.outputs([(f"watched/{i}", made.symbols[symbol.id]) for i, symbol in enumerate(symbols)])
    return made
