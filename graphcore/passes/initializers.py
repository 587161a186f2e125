"""Initializers of models that were read: which of them are constants to the passes, and which pass made use of that.

A weight that a user gave to a graph stays what its owner may change. An initializer of a file is a number like any
other, unless the caller keeps it: what is computed from it is computed once. Who replaces it afterwards is told which
pass used it, for `Graph.folded` has its name.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Symbol
from graphcore.support.source_lines import Imported

GROWTH = 16
"""The bytes that all new constants may take together beyond those they replace, in limits of one constant."""


class Initializers:
    """The initializers that count as constants in all walks over a graph, and those that were used.

    kept: names of those that stay weights. used: the pass that used an initializer, by name. room: the bytes that
    folding may still add to the model. reads: the names of those that the rule at work has read.
    """

    def __init__(self, graph: Graph, keep: object, limit: int) -> None:
        self.kept = _kept(graph, keep)
        self.used = dict(graph.folded)
        self.room = GROWTH * limit
        self.reads: list[str] = []

    def is_one(self, symbol: Symbol) -> bool:
        """Return whether a constant is an initializer that counts as a constant."""
        producer = symbol.producer
        if not isinstance(producer, Constant) or not producer.is_weight or type(producer.origin) is not Imported:
            return False
        return symbol.given_name is None or symbol.given_name not in self.kept

    def keeps(self, symbol: Symbol) -> bool:
        """Return whether a Symbol is a weight that stays one."""
        return symbol.given_name in self.kept and isinstance(symbol.producer, Constant)

    def array(self, symbol: Symbol) -> Array | None:
        """Return the value of an initializer, also where a body captures it; None for anything else."""
        while isinstance(symbol.producer, Captured):
            symbol = symbol.producer.symbol
        if not self.is_one(symbol):
            return None
        assert isinstance(symbol.producer, Constant)
        if symbol.given_name is not None:
            self.reads.append(symbol.given_name)
        return symbol.producer.array

    def commit(self, name: str) -> None:
        """Note that a pass used what was read."""
        for read in self.reads:
            self.used.setdefault(read, name)

    def merged(self, *symbols: Symbol) -> None:
        """Note that equal constants became one, so that none of them can be replaced alone."""
        for symbol in symbols:
            if symbol.given_name is not None and self.is_one(symbol):
                self.used.setdefault(symbol.given_name, "common_subexpressions")

    def finish(self, before: Graph, after: Graph) -> None:
        """Write into the new graph which weights of the old one can be replaced no more."""
        there = after.weights
        for name, symbol in before.weights.items():
            if name not in there and type(symbol.producer.origin) is Imported:
                self.used.setdefault(name, "dead_code")
        after.folded = self.used


def _kept(graph: Graph, keep: object) -> frozenset[str]:
    """Return the names of the weights that patterns match. Raises `GraphError` for a pattern that matches none."""
    patterns = [keep] if isinstance(keep, str) else [*keep] if isinstance(keep, Iterable) else [keep]
    names = [*graph.weights] if patterns else []
    made: set[str] = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise GraphError(f"optimize: keep has {pattern!r:.80}", help="give names of weights, or patterns: 'head.*'")
        found = [pattern] if pattern in names else fnmatch.filter(names, pattern)
        if not found and pattern != "*":
            near = difflib.get_close_matches(pattern, names, 3, 0.4) or names[:5]
            raise GraphError(
                f"optimize: no weight is called {pattern!r:.200}",
                help="they are called such as " + ", ".join(map(repr, near)) if near else "the graph has no weights",
            )
        made.update(found)
    return frozenset(made)
