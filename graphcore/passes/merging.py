"""Value numbering for common subexpression elimination, initializers of loaded models, and liveness."""

from __future__ import annotations

import collections
import fnmatch
import math
import struct
from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol, root_of, source_of
from graphcore.ir.transform.match import COMMUTATIVE
from graphcore.ir.transform.walk import edit
from graphcore.operators import Trait, having
from graphcore.support.escaping import similar
from graphcore.support.source_lines import Imported, Line, Origin
from graphcore.types.dtypes import DType

Key: TypeAlias = "tuple[Hashable, ...]"

DOMAINS = frozenset({"", "ai.onnx.ml", "graphcore"})
"""Domains whose operators are pure; others may have side effects."""

RANDOM = having(Trait.RANDOM)
"""Operators that are not deterministic. Two nodes are two draws even with equal seeds."""

_SWAPPABLE = COMMUTATIVE - {"Max", "Min"}
"""Operators whose two operands can be swapped. Max(0.0, -0.0) and Max(-0.0, 0.0) are different zeros."""

_MAX_KEY_BYTES = 1 << 12  # bytes of constants and attributes that are compared


class Merger:
    """The nodes of one new graph, by keys of their computation."""

    def __init__(self) -> None:
        self._nodes: dict[Key, Node] = {}

    def key(self, node: Node, inputs: tuple[Symbol | None, ...], is_read: bool) -> Key | None:
        """Return the key of nodes with the same computation; None for a node that is never merged.

        Nodes of loaded models keep the runtime's own kernels, so their keys differ (`is_read`).
        """
        if node.op_type in RANDOM or node.domain not in DOMAINS:
            return None
        attributes: Hashable = None
        if node.attributes:
            try:
                attributes = tuple([(key, _attribute_key(node.attributes[key])) for key in sorted(node.attributes)])
            except TypeError:
                return None
        operands = tuple([-1 if s is None else s.id for s in inputs])
        if node.op_type in _SWAPPABLE and len(operands) == 2:
            operands = tuple(sorted(operands))
        types = tuple([id(s.type) for s in node.outputs])
        return node.op_type, node.domain, operands, attributes, types, is_read

    def find(self, key: Key | None) -> Node | None:
        """Return the node of a key, or None."""
        if key is None:
            return None
        node = self._nodes.get(key)
        # A default dtype adapts to that of the other operand, which differs from use to use.
        if node is None or any(getattr(s.type, "ambiguous", False) for s in node.outputs):
            return None
        return node

    def remember(self, key: Key | None, node: Node) -> None:
        """Record a node under its key, unless there is one already."""
        if key is not None:
            self._nodes.setdefault(key, node)

    def constant(self, symbol: Symbol, is_initializer: bool = False) -> Key | None:
        """Return the key of equal constants; None for weights, named, large and ambiguous constants.

        is_initializer: True for an initializer that counts as a constant, so that its name does not matter.
        """
        producer = symbol.producer
        assert isinstance(producer, Constant)
        if symbol.ambiguous or (not is_initializer and (producer.is_weight or symbol.given_name is not None)):
            return None
        array = producer.array
        if array.dtype == object or array.nbytes > _MAX_KEY_BYTES:
            return None
        return id(symbol.type), array.shape, array.tobytes()


def _attribute_key(value: Any) -> Hashable:
    """Return a key of an attribute: 0.0 is not -0.0, 1 is not 1.0 or True. Raises `TypeError` if there is none."""
    if isinstance(value, float):
        return float, struct.pack("<d", value)
    if isinstance(value, (bool, int, str, bytes, DType)):
        return type(value), value
    if isinstance(value, (list, tuple)):
        return list, tuple([_attribute_key(item) for item in value])
    if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= _MAX_KEY_BYTES:
        return np.ndarray, value.dtype, value.shape, value.tobytes()
    raise TypeError(f"a {type(value).__name__} cannot be a key")


# Initializers of loaded models: those that count as constants, and the passes that used them.
#
# A weight of a built graph can be changed by its owner. An initializer of a file is a constant like any other, unless
# the caller keeps it. `Graph.folded` has the pass that used it, for the error when it is replaced afterwards.

GROWTH = 16
"""All new constants together may add this many times the limit of one constant."""


class Initializers:
    """The initializers that count as constants in all sweeps over a graph, and those that were used.

    kept_names: of those that remain weights. used: the pass that used an initializer, by name. budget: the bytes that
    folding may still add to the model. reads: the names that the current rule has read. Without a graph none counts,
    and the model may grow.
    """

    def __init__(self, graph: Graph | None = None, keep: object = (), limit: int = 0) -> None:
        self.kept_names = frozenset[str]() if graph is None else _match_names(graph, keep)
        self.used = {} if graph is None else dict(graph.folded)
        self.budget = math.inf if graph is None else GROWTH * limit
        self.reads: list[str] = []
        self._are_constants = graph is not None

    def counts(self, symbol: Symbol) -> bool:
        """Return True if a Symbol is an initializer that counts as a constant."""
        producer = symbol.producer
        if not self._are_constants or not isinstance(producer, Constant):
            return False
        if not producer.is_weight or type(producer.origin) is not Imported:
            return False
        return symbol.given_name is None or symbol.given_name not in self.kept_names

    def keeps(self, symbol: Symbol) -> bool:
        """Return True if a Symbol is a weight that remains one."""
        return symbol.given_name in self.kept_names and isinstance(symbol.producer, Constant)

    def array(self, symbol: Symbol) -> Array | None:
        """Return the value of an initializer, even if a body captures it; None for anything else."""
        symbol = root_of(symbol)
        if not self.counts(symbol):
            return None
        assert isinstance(symbol.producer, Constant)
        if symbol.given_name is not None:
            self.reads.append(symbol.given_name)
        return symbol.producer.array

    def commit(self, name: str) -> None:
        """Record that a pass used the initializers in `reads`."""
        for read in self.reads:
            self.used.setdefault(read, name)

    def record_merge(self, *symbols: Symbol) -> None:
        """Record that equal constants became one, so that none of them can be replaced individually."""
        for symbol in symbols:
            if symbol.given_name is not None and self.counts(symbol):
                self.used.setdefault(symbol.given_name, "common_subexpressions")

    def finish(self, before: Graph, after: Graph) -> None:
        """Record in the new graph the weights of the old one that can no longer be replaced."""
        remaining = after.weights
        for name, symbol in before.weights.items():
            if name not in remaining and type(symbol.producer.origin) is Imported:
                self.used.setdefault(name, "dead_code")
        after.folded = self.used


def _match_names(graph: Graph, keep: object) -> frozenset[str]:
    """Return the names of the weights that patterns match. Raises `GraphError` for a pattern that matches none."""
    patterns = [keep] if isinstance(keep, str) else [*keep] if isinstance(keep, Iterable) else [keep]
    names = [*graph.weights] if patterns else []
    matched: set[str] = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise GraphError(
                f"optimize: keep must contain names or patterns, got {pattern!r:.80}",
                help="give names of weights, or patterns: 'head.*'",
            )
        matches = [pattern] if pattern in names else fnmatch.filter(names, pattern)
        if not matches and pattern != "*":
            near = similar(pattern, names, cutoff=0.4) or names[:5]
            raise GraphError(
                f"optimize: no weight is called {pattern!r:.200}",
                help="weights are called " + ", ".join(map(repr, near)) if near else "the graph has no weights",
            )
        matched.update(matches)
    return frozenset(matched)


# Liveness: the nodes and Symbols that outputs of a graph need, for dead code elimination.


def live_nodes(graph: Graph, *, by_name: bool = True) -> tuple[list[bool], set[int]]:
    """Return for each node whether outputs need it, or it has no results, and the numbers of live Symbols.

    by_name: include nodes that values with users' names need. Names in loaded models do not count: there every value
    has one.
    """
    used = {symbol.id for symbol in graph.outputs}
    nodes = graph.nodes
    is_live = [False] * len(nodes)
    for position in range(len(nodes) - 1, -1, -1):
        node = nodes[position]
        for output in node.outputs:
            if output.id in used or (by_name and output.given_name is not None and type(node.origin) is not Imported):
                break
        else:
            if node.outputs:
                continue
        is_live[position] = True
        for symbol in node.inputs:
            if symbol is not None:
                used.add(symbol.id)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                used.update(value.scope.captured)
    return is_live, used


def readers(graph: Graph) -> dict[int, int]:
    """Return the number of reads of each Symbol: by nodes, by bodies, as an output, as the new value of a buffer."""
    counts = collections.Counter(symbol.id for symbol in graph.outputs)
    counts.update(state.value.id for state in graph.buffers.values())
    counts.update(symbol.id for symbol in graph.watched.values())
    for node in graph.nodes:
        counts.update(symbol.id for symbol in node.inputs if symbol is not None)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                counts.update(value.scope.captured.keys())
    return counts


def sliced_alone(graph: Graph) -> set[int]:
    """Return the numbers of Symbols that are read only by Slices."""
    counts = readers(graph)
    cuts = collections.Counter(
        node.inputs[0].id
        for node in graph.nodes
        if node.op_type == "Slice" and not node.domain and node.inputs[0] is not None
    )
    return {number for number, count in cuts.items() if count == counts[number]}


def prune(graph: Graph) -> None:
    """Remove dead code from a graph in place. Its bodies are pruned already.

    Lowering keeps a value in two dtypes until it knows which of them is used.
    """
    is_live, used = live_nodes(graph, by_name=False)
    if not all(is_live):
        edit(graph, dropped={id(node) for node, stays in zip(graph.nodes, is_live, strict=True) if not stays})
    captured = graph.scope.captured
    if captured:
        graph.scope.captured = {outer: inner for outer, inner in captured.items() if inner.id in used}


# The nodes that a rule replaced.

_OF_TYPES = frozenset({"Shape", "Size"})
"""Operators whose results do not depend on the values of their operands."""
_MAX_REPLACED = 64
"""The number of values that are searched for nodes that a rule replaced."""


def replaced_origins(inputs: Iterable[Symbol | None], added: Iterable[Node]) -> list[Origin | Line | None]:
    """Return the origins, in order, of the nodes and constants between what new nodes read and the operands of the node
    that they replace. inputs: these operands. added: the new nodes.
    """
    ends = {s.id for node in added for s in node.inputs if s is not None}
    inside: dict[int, bool] = {}

    def is_inside(symbol: Symbol | None) -> bool:
        """Return True if a value is computed from `ends` and constants alone."""
        if symbol is None or symbol.id in ends:
            return True
        if symbol.id not in inside:
            inside[symbol.id] = False
            producer = source_of(symbol)
            if isinstance(producer, Node) and len(inside) <= _MAX_REPLACED:
                is_of_types = producer.op_type in _OF_TYPES
                inside[symbol.id] = producer is symbol.producer and (
                    is_of_types or all(map(is_inside, producer.inputs))
                )
            elif isinstance(producer, Constant):
                inside[symbol.id] = True
        return inside[symbol.id]

    origins: dict[int, Origin | Line | None] = {}
    waiting = [*inputs]
    while waiting:
        symbol = waiting.pop()
        if symbol is None or symbol.id in ends or symbol.id in origins or not is_inside(symbol):
            continue
        producer = source_of(symbol)
        assert isinstance(producer, (Node, Constant))
        origins[symbol.id] = producer.origin
        if isinstance(producer, Node) and producer.op_type not in _OF_TYPES:
            waiting += producer.inputs
    return [origins[number] for number in sorted(origins)]
