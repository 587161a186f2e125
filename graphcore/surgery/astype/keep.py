"""The choice of what stays in its dtype: patterns of operators, layers and names of values."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable

from graphcore.errors import GraphError
from graphcore.ir.definitions import definition_of
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.walk import parts


class Keep:
    """Patterns with `*`, `?` and `[...]` as in the shell, compared with operators, layers and names of values."""

    def __init__(self, graph: Graph, given: object) -> None:
        """Raise `GraphError` for what is no pattern, and for patterns that match nothing."""
        self._patterns = _patterns(given)
        self._found: dict[str, bool] = {}
        if self._patterns:
            _check(graph, self._patterns)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def has_node(self, node: Node) -> bool:
        """Return whether a node stays in its dtype."""
        return bool(self._patterns) and any(map(self._matches, _names(node)))

    def has_value(self, symbol: Symbol) -> bool:
        """Return whether an input, weight or constant stays in its dtype."""
        return symbol.given_name is not None and bool(self._patterns) and self._matches(symbol.given_name)

    def _matches(self, name: str) -> bool:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)
        return found


def _names(node: Node) -> set[str]:
    """Return what patterns are compared with: the operator, the layers around it, and the names of the results."""
    found = {node.op_type}
    layers = node.layer.rstrip("/").split("/")
    found |= {"/".join(layers[: i + 1]) for i in range(len(layers))}
    for symbol in node.outputs:
        name = symbol.name
        found |= {name, name if name.startswith(node.layer) else node.layer + name}
    return found - {""}


def _patterns(given: object) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if all(isinstance(each, str) for each in found):
        return found
    raise GraphError(
        f"astype: keep is {given!r:.80}", help="give a pattern such as 'Softmax' or 'encoder/*', or a list of them"
    )


def _check(graph: Graph, patterns: tuple[str, ...]) -> None:
    known: dict[str, None] = {}
    for part in parts(graph):
        for node in part.nodes:
            known.update(dict.fromkeys(sorted(_names(node))))
            definition = definition_of(node)
            if definition is not None:
                known[definition.name] = None
        named = (s for s in part.symbols if s.given_name and (isinstance(s.producer, Constant) or s.is_constant))
        known.update(dict.fromkeys(s.given_name or "" for s in named))
        known.update(dict.fromkeys(s.name for s in part.input_symbols))
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in known):
            near = difflib.get_close_matches(pattern, known, 3, 0.4) or [*known][:5]
            raise GraphError(
                f"astype: no operator, layer or value is called {pattern!r}",
                help="they are called such as " + ", ".join(map(repr, near)) if near else "the graph is empty",
            )
