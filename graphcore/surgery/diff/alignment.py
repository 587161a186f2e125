"""Pair the nodes and values of two graphs: by name first, then by their operands and readers."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.surgery.diff.records import Contents, array_of, is_named
from graphcore.types.tensor_types import TensorType

_TRANSPARENT = frozenset({"Cast", "Identity"})

Key = Callable[[Node], "Hashable | None"]


class Alignment:
    """The pairs of nodes and values of two graphs.

    Nodes are paired if they have results of the same name and the same operator; then forwards, by equal operands; then
    backwards, from outputs and paired nodes; then through casts; finally in order.
    """

    def __init__(self, old: Graph, new: Graph, contents: Contents, outer: Alignment | None = None) -> None:
        self.old = old
        self.new = new
        self.outer = outer
        self._contents = contents
        self.values: dict[int, Symbol] = {}
        """Values of the second graph, by the ids of those of the first."""
        self.sources: dict[int, Symbol] = {}
        self.nodes: dict[int, Node] = {}
        """Nodes of the second graph, by the identity of those of the first."""
        self.taken: set[int] = set()
        self._pair_inputs()
        self._pair_named()
        self._pair_nodes()

    # Values

    def pair(self, old: Symbol, new: Symbol) -> None:
        """Pair two values."""
        if old.id not in self.values and new.id not in self.sources:
            self.values[old.id] = new
            self.sources[new.id] = old

    def token(self, symbol: Symbol, is_old: bool, *, loose: bool = False) -> Hashable | None:
        """Return a key that is equal for paired values of the two graphs, None for an unpaired value.

        loose: casts are ignored, and constants are all alike.
        """
        producer = symbol.producer
        while loose and isinstance(producer, Node) and producer.op_type in _TRANSPARENT and not producer.domain:
            operand = producer.inputs[0]
            if (id(producer) in self.nodes if is_old else id(producer) in self.taken) or operand is None:
                break
            symbol, producer = operand, operand.producer
        if isinstance(producer, Captured):
            return None if self.outer is None else self.outer.token(producer.symbol, is_old, loose=loose)
        is_paired = symbol.id in self.values if is_old else symbol.id in self.sources
        if isinstance(producer, Constant) and not is_paired and (loose or not is_named(symbol)):
            return "constant" if loose else self._contents.of(producer.array)
        if not is_old:
            return id(self.new), symbol.id
        partner = self.values.get(symbol.id)
        return None if partner is None else (id(self.new), partner.id)

    def are_one(self, old: Symbol, new: Symbol) -> bool:
        """Return True if two values are paired, or are unnamed constants of equal contents."""
        return self.token(old, True) == self.token(new, False)

    def _pair_inputs(self) -> None:
        """Pair inputs by name, and the rest in order by equal types, then by those of other names of dims.

        Inputs of bodies are paired by position.
        """
        old, new = self.old.input_symbols, self.new.input_symbols
        if self.outer is not None:
            for a, b in zip(old, new, strict=False):
                self.pair(a, b)
            return
        named = {s.name: s for s in new}
        for a in old:
            if a.name in named:
                self.pair(a, named[a.name])
        for key in (lambda s: s.type, _pattern):
            rest = [s for s in new if s.id not in self.sources]
            for a in old:
                partner = next((s for s in rest if key(s) == key(a)), None) if a.id not in self.values else None
                if partner is not None:
                    rest = [s for s in rest if s is not partner]
                    self.pair(a, partner)

    def _pair_named(self) -> None:
        """Pair weights of the same name, and nodes of the same operator with results of the same name."""
        for a, b in self._named_pairs():
            if isinstance(a.producer, Constant) and isinstance(b.producer, Constant):
                self.pair(a, b)
            elif isinstance(a.producer, Node) and isinstance(b.producer, Node):
                self._pair_node(a.producer, b.producer)

    def _named_pairs(self) -> list[tuple[Symbol, Symbol]]:
        new = self.new.names.taken
        return [(a, new[name]) for name, a in self.old.names.taken.items() if name in new]

    # Nodes

    def _pair_node(self, old: Node, new: Node, *, any_operator: bool = False) -> bool:
        """Pair two unpaired nodes, their results, and the weights they read. Returns True if that succeeds."""
        if id(old) in self.nodes or id(new) in self.taken or len(old.outputs) != len(new.outputs):
            return False
        if not any_operator and (old.op_type, old.domain) != (new.op_type, new.domain):
            return False
        self.nodes[id(old)] = new
        self.taken.add(id(new))
        for a, b in zip(old.outputs, new.outputs, strict=True):
            self.pair(a, b)
        for a, b in self._operands(old, new):
            if isinstance(a.producer, Constant) and isinstance(b.producer, Constant) and is_named(a) and is_named(b):
                self.pair(a, b)
        return True

    @staticmethod
    def _operands(old: Node, new: Node) -> Iterable[tuple[Symbol, Symbol]]:
        return ((a, b) for a, b in zip(old.inputs, new.inputs, strict=False) if a is not None and b is not None)

    def _pair_nodes(self) -> None:
        self._pair_by_operands(exactly=True)
        self._pair_backwards()
        self._pair_by_operands(exactly=False)
        self._pair_backwards()
        if self._pair_in_order():
            self._pair_by_operands(exactly=False)
            self._pair_backwards()
        for a, b in self._named_pairs():
            if isinstance(a.producer, Node) and isinstance(b.producer, Node):
                self._pair_node(a.producer, b.producer, any_operator=True)

    def _unpaired(self) -> tuple[list[Node], list[Node]]:
        return (
            [n for n in self.old.nodes if id(n) not in self.nodes],
            [n for n in self.new.nodes if id(n) not in self.taken],
        )

    def _pair_by_operands(self, *, exactly: bool) -> None:
        """Pair nodes of equal operands. exactly: with equal attributes, and not through casts."""
        old, new = self._unpaired()
        if not old or not new:
            return
        waiting: dict[Hashable, deque[Node]] = defaultdict(deque)
        for node in new:
            waiting[self._key(node, False, exactly)].append(node)
        for node in old:
            key = self._key(node, True, exactly)
            candidates = waiting.get(key) if key is not None else None
            while candidates:
                if self._pair_node(node, candidates.popleft()):
                    break

    def _key(self, node: Node, is_old: bool, exactly: bool) -> Hashable | None:
        tokens = [None if s is None else (self.token(s, is_old, loose=not exactly),) for s in node.inputs]
        if (None,) in tokens:
            return None
        attributes = self._contents.attributes(node) if exactly else ()
        return node.op_type, node.domain, len(node.outputs), tuple(tokens), attributes

    def _pair_backwards(self) -> None:
        """Pair the producers of outputs and of operands of paired nodes, if the operators are the same."""
        waiting = [*self._output_pairs()]
        for node in reversed(self.old.nodes):
            partner = self.nodes.get(id(node))
            if partner is not None:
                waiting += self._operands(node, partner)
        while waiting:
            a, b = waiting.pop()
            first, second = a.producer, b.producer
            if not isinstance(first, Node) or not isinstance(second, Node):
                continue
            if first.op_type != second.op_type:
                # One of them may be cast.
                if second.op_type in _TRANSPARENT and second.inputs[0] is not None and id(second) not in self.taken:
                    waiting.append((a, second.inputs[0]))
                elif first.op_type in _TRANSPARENT and first.inputs[0] is not None and id(first) not in self.nodes:
                    waiting.append((first.inputs[0], b))
                continue
            if _position(first, a) == _position(second, b) and self._pair_node(first, second):
                waiting += self._operands(first, second)

    def _output_pairs(self) -> list[tuple[Symbol, Symbol]]:
        """Return pairs of outputs: by name, and the rest in order."""
        old, new = self.old.outputs.asdict(), self.new.outputs.asdict()
        pairs = [(s, new[name]) for name, s in old.items() if name in new]
        rest = [s for name, s in new.items() if name not in old]
        pairs += zip([s for name, s in old.items() if name not in new], rest, strict=False)
        new_buffers = self.new.buffers
        pairs += [
            (buffer.value, new_buffers[name].value) for name, buffer in self.old.buffers.items() if name in new_buffers
        ]
        return pairs

    def _pair_in_order(self) -> bool:
        """Pair the remaining nodes of the same operator in order: those with equal attributes and arrays first."""
        has_paired = False
        for key in (self._operator_and_arrays, self._operator):
            old, new = self._unpaired()
            for i, j in common([*map(key, old)], [*map(key, new)]):
                has_paired = self._pair_node(old[i], new[j]) or has_paired
        return has_paired

    @staticmethod
    def _operator(node: Node) -> Hashable:
        return node.op_type, node.domain, len(node.outputs)

    def _operator_and_arrays(self, node: Node) -> Hashable:
        arrays = [self._contents.of(a) for s in node.inputs if s is not None and (a := array_of(s)) is not None]
        return self._operator(node), self._contents.attributes(node), tuple(arrays)


def _pattern(symbol: Symbol) -> Hashable:
    """Return the type of an input without the names of its dims."""
    type_ = symbol.type
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    return type_.dtype, tuple(dim.value for dim in type_.shape)


def _position(node: Node, symbol: Symbol) -> int:
    return next((i for i, s in enumerate(node.outputs) if s is symbol), -1)


# The longest common subsequence of two sequences that are mostly the same.

_MAX_STEPS = 3_000_000
"""Steps after which the search stops: for sequences of thousands with little in common."""


def common(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence, in order; none after too many steps.

    Source: Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1 (1986).
    """
    m, n = len(old), len(new)
    ends = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(m + n, _MAX_STEPS // (m + n + 1)) + 1):
        trail.append(dict(ends))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and ends[k - 1] < ends[k + 1])
            x = ends[k + 1] if down else ends[k - 1] + 1
            while x < m and x - k < n and old[x] == new[x - k]:
                x += 1
            ends[k] = x
            if x >= m and x - k >= n:
                return [*_path(trail, m, n)][::-1]
    return []


def _path(trail: list[dict[int, int]], x: int, y: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of equal elements on the way back from the end."""
    for edits in range(len(trail) - 1, -1, -1):
        ends, k = trail[edits], x - y
        down = k == -edits or (k != edits and ends[k - 1] < ends[k + 1])
        before = k + 1 if down else k - 1
        start = ends[before] if edits else 0
        first = start if down or not edits else start + 1
        while x > first and y > 0 and x > 0:
            x, y = x - 1, y - 1
            yield x, y
        x, y = start, start - before
