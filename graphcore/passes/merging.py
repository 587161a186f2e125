"""Value numbering for common subexpression elimination: the keys of equal nodes and constants."""

from __future__ import annotations

import collections
import difflib
import fnmatch
import struct
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.ir.transform.match import COMMUTATIVE
from graphcore.ir.transform.walk import edit
from graphcore.operators import Trait, having
from graphcore.support.source_lines import Imported
from graphcore.types.dtypes import DType

Key: TypeAlias = "tuple[Hashable, ...]"

DOMAINS = frozenset({"", "ai.onnx.ml", "graphcore"})
"""Domains whose operators are pure; what others do is not known."""

RANDOM = having(Trait.RANDOM)
"""Operators that are not deterministic. Two of them are two draws even where a seed is given."""

_IN_ANY_ORDER = COMMUTATIVE - {"Max", "Min"}
"""Operators of two operands that may change places. Max(0.0, -0.0) and Max(-0.0, 0.0) are different zeros."""

_LARGEST = 1 << 12  # bytes of constants and attributes that are compared


class Merger:
    """The available nodes of one new graph, by what they compute."""

    def __init__(self) -> None:
        self._nodes: dict[Key, Node] = {}

    def key(self, node: Node, inputs: tuple[Symbol | None, ...], is_read: bool) -> Key | None:
        """Return the key that nodes that compute the same share; None for a node that is never merged.

        Nodes of a model that was read keep the runtime's own kernels: they have keys of their own.
        """
        if node.op_type in RANDOM or node.domain not in DOMAINS:
            return None
        attributes: Hashable = None
        if node.attributes:
            try:
                attributes = tuple([(key, _frozen(node.attributes[key])) for key in sorted(node.attributes)])
            except TypeError:
                return None
        operands = tuple([-1 if s is None else s.id for s in inputs])
        if node.op_type in _IN_ANY_ORDER and len(operands) == 2:
            operands = tuple(sorted(operands))
        types = tuple([id(s.type) for s in node.outputs])
        return node.op_type, node.domain, operands, attributes, types, is_read

    def found(self, key: Key | None) -> Node | None:
        """Return the node of a key, None where there is none."""
        if key is None:
            return None
        found = self._nodes.get(key)
        # A default dtype gives way to that of the other operand, which differs from use to use.
        if found is None or any(getattr(s.type, "ambiguous", False) for s in found.outputs):
            return None
        return found

    def remember(self, key: Key | None, node: Node) -> None:
        """Record a node under its key, unless there is one already."""
        if key is not None:
            self._nodes.setdefault(key, node)

    def constant(self, symbol: Symbol, is_initializer: bool = False) -> Key | None:
        """Return the key that equal constants share; None for weights, named, large and ambiguous ones.

        is_initializer: it is one that counts as a constant, whose name is only that of a value in a file.
        """
        producer = symbol.producer
        assert isinstance(producer, Constant)
        if symbol.ambiguous or (not is_initializer and (producer.is_weight or symbol.given_name is not None)):
            return None
        array = producer.array
        if array.dtype == object or array.nbytes > _LARGEST:
            return None
        return id(symbol.type), array.shape, array.tobytes()


def _frozen(value: Any) -> Hashable:
    """Return an attribute as a key: 0.0 is not -0.0, 1 is not 1.0 or True. Raises `TypeError` for what has none."""
    if isinstance(value, float):
        return float, struct.pack("<d", value)
    if isinstance(value, (bool, int, str, bytes, DType)):
        return type(value), value
    if isinstance(value, (list, tuple)):
        return list, tuple([_frozen(item) for item in value])
    if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= _LARGEST:
        return _of_array(value)
    raise TypeError(f"a {type(value).__name__} is no key")


def _of_array(array: Array) -> Hashable:
    return np.ndarray, array.dtype, array.shape, array.tobytes()


# Initializers of models that were read: which of them are constants to the passes, and which pass made use of that.
#
# A weight that a user gave to a graph stays what its owner may change. An initializer of a file is a number like any
# other, unless the caller keeps it: what is computed from it is computed once. Who replaces it afterwards is told
# which pass used it, for `Graph.folded` has its name.

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


# Liveness: which nodes and Symbols lead to the outputs of a graph, for dead code elimination.


class Live(NamedTuple):
    """Liveness of a graph. nodes: for each node, whether it is live. symbols: the numbers of live Symbols."""

    nodes: list[bool]
    symbols: set[int]


def live_nodes(graph: Graph, *, by_name: bool = True) -> Live:
    """Return what leads to an output, and nodes without results.

    by_name: also what leads to a value that a user named. Names in a model that was read do not count: there every
    value has one.
    """
    used = {symbol.id for symbol in graph.outputs}
    nodes = graph.nodes
    kept = [False] * len(nodes)
    for position in range(len(nodes) - 1, -1, -1):
        node = nodes[position]
        for made in node.outputs:
            if made.id in used or (by_name and made.given_name is not None and type(node.origin) is not Imported):
                break
        else:
            if node.outputs:
                continue
        kept[position] = True
        for symbol in node.inputs:
            if symbol is not None:
                used.add(symbol.id)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                used.update(value.scope.captured)
    return Live(kept, used)


def readers(graph: Graph) -> dict[int, int]:
    """Return how often each Symbol is read: by nodes, by bodies, as an output and as what a buffer becomes."""
    counts = collections.Counter(symbol.id for symbol in graph.outputs)
    counts.update(held.value.id for held in graph.buffers.values())
    counts.update(symbol.id for symbol in graph.watched.values())
    for node in graph.nodes:
        counts.update(symbol.id for symbol in node.inputs if symbol is not None)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                counts.update(value.scope.captured.keys())
    return counts


def sliced_alone(graph: Graph) -> set[int]:
    """Return the numbers of the Symbols that Slices alone take parts of."""
    counts = readers(graph)
    cuts = collections.Counter(
        node.inputs[0].id
        for node in graph.nodes
        if node.op_type == "Slice" and not node.domain and node.inputs[0] is not None
    )
    return {number for number, count in cuts.items() if count == counts[number]}


def prune(graph: Graph) -> None:
    """Remove dead code from a graph in place. Its bodies are pruned already.

    Lowering keeps a value in two dtypes until it knows which of them is asked for.
    """
    kept, used = live_nodes(graph, by_name=False)
    if not all(kept):
        edit(graph, dropped={id(node) for node, stays in zip(graph.nodes, kept, strict=True) if not stays})
    captured = graph.scope.captured
    if captured:
        graph.scope.captured = {outer: inner for outer, inner in captured.items() if inner.id in used}
