"""Pairs of nodes and values of two graphs: by names first, then by what they are made of and what reads them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.surgery.diff.records import Contents, array_of, is_named

_TRANSPARENT = frozenset({"Cast", "Identity"})

Key = Callable[[Node], "Hashable | None"]


class Alignment:
    """Which node and value of one graph is which of another.

    Nodes are paired where they have results of one name and the same operator; then forwards, where they read the same;
    backwards, from outputs and what is paired; then through casts, and at last in order.
    """

    def __init__(self, old: Graph, new: Graph, contents: Contents, outer: Alignment | None = None) -> None:
        self.old = old
        self.new = new
        self.outer = outer
        self._contents = contents
        self.values: dict[int, Symbol] = {}
        """Values of the second graph, by the numbers of those of the first."""
        self.sources: dict[int, Symbol] = {}
        self.nodes: dict[int, Node] = {}
        """Nodes of the second graph, by the identity of those of the first."""
        self.taken: set[int] = set()
        self._pair_inputs()
        self._pair_named()
        self._pair_nodes()

    # Values

    def pair(self, old: Symbol, new: Symbol) -> None:
        """Note that two values are one."""
        if old.id not in self.values and new.id not in self.sources:
            self.values[old.id] = new
            self.sources[new.id] = old

    def token(self, symbol: Symbol, is_old: bool, *, loose: bool = False) -> Hashable | None:
        """Return a key of a value that the same value of the other graph has; None where it is not paired.

        loose: casts are looked through, and constants are all alike.
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
        found = self.values.get(symbol.id)
        return None if found is None else (id(self.new), found.id)

    def are_one(self, old: Symbol, new: Symbol) -> bool:
        """Return whether two values are paired; constants without names are where they hold the same."""
        return self.token(old, True) == self.token(new, False)

    def _pair_inputs(self) -> None:
        """Pair inputs by name, and the rest in order: by position in bodies, else where the types are equal."""
        old, new = self.old.input_symbols, self.new.input_symbols
        if self.outer is not None:
            for a, b in zip(old, new, strict=False):
                self.pair(a, b)
            return
        named = {s.name: s for s in new}
        for a in old:
            if a.name in named:
                self.pair(a, named[a.name])
        rest = [s for s in new if s.id not in self.sources]
        for a in old:
            found = next((s for s in rest if s.type == a.type), None) if a.id not in self.values else None
            if found is not None:
                rest = [s for s in rest if s is not found]
                self.pair(a, found)

    def _pair_named(self) -> None:
        """Pair weights of one name, and nodes of one operator whose results have one name."""
        for name, a in self.old.names.taken.items():
            b = self.new.names.taken.get(name)
            if b is None:
                continue
            if isinstance(a.producer, Constant) and isinstance(b.producer, Constant):
                self.pair(a, b)
            elif isinstance(a.producer, Node) and isinstance(b.producer, Node):
                self._pair_node(a.producer, b.producer)

    # Nodes

    def _pair_node(self, old: Node, new: Node, *, any_operator: bool = False) -> bool:
        """Pair two nodes that are free, their results, and weights that they read. Returns whether they are paired."""
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
        self._in_order_of_reading(exactly=True)
        self._backwards()
        self._in_order_of_reading(exactly=False)
        self._backwards()
        if self._in_order():
            self._in_order_of_reading(exactly=False)
            self._backwards()
        for name, a in self.old.names.taken.items():
            b = self.new.names.taken.get(name)
            if b is not None and isinstance(a.producer, Node) and isinstance(b.producer, Node):
                self._pair_node(a.producer, b.producer, any_operator=True)

    def _free(self) -> tuple[list[Node], list[Node]]:
        return (
            [n for n in self.old.nodes if id(n) not in self.nodes],
            [n for n in self.new.nodes if id(n) not in self.taken],
        )

    def _in_order_of_reading(self, *, exactly: bool) -> None:
        """Pair nodes that read the same. exactly: with the same attributes, not through casts."""
        old, new = self._free()
        if not old or not new:
            return
        waiting: dict[Hashable, deque[Node]] = defaultdict(deque)
        for node in new:
            waiting[self._key(node, False, exactly)].append(node)
        for node in old:
            key = self._key(node, True, exactly)
            found = waiting.get(key) if key is not None else None
            while found:
                if self._pair_node(node, found.popleft()):
                    break

    def _key(self, node: Node, is_old: bool, exactly: bool) -> Hashable | None:
        tokens = [None if s is None else (self.token(s, is_old, loose=not exactly),) for s in node.inputs]
        if (None,) in tokens:
            return None
        attributes = self._contents.attributes(node) if exactly else ()
        return node.op_type, node.domain, len(node.outputs), tuple(tokens), attributes

    def _backwards(self) -> None:
        """Pair what makes the operands of paired nodes, and what makes outputs, where the operators are the same."""
        waiting = [*self._ends()]
        for node in reversed(self.old.nodes):
            found = self.nodes.get(id(node))
            if found is not None:
                waiting += self._operands(node, found)
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

    def _ends(self) -> list[tuple[Symbol, Symbol]]:
        """Return pairs of outputs: by name, and the rest in order."""
        new = {name or s.name: s for name, s in self.new.named_outputs}
        old = {name or s.name: s for name, s in self.old.named_outputs}
        found = [(s, new[name]) for name, s in old.items() if name in new]
        rest = [s for name, s in new.items() if name not in old]
        found += zip([s for name, s in old.items() if name not in new], rest, strict=False)
        kept = self.new.buffers
        found += [(held.value, kept[name].value) for name, held in self.old.buffers.items() if name in kept]
        return found

    def _in_order(self) -> bool:
        """Pair nodes of one operator in the order in which they come, where nothing else tells: equal ones first."""
        found = False
        for key in (self._whole, self._operator):
            old, new = self._free()
            for i, j in common([*map(key, old)], [*map(key, new)]):
                found = self._pair_node(old[i], new[j]) or found
        return found

    @staticmethod
    def _operator(node: Node) -> Hashable:
        return node.op_type, node.domain, len(node.outputs)

    def _whole(self, node: Node) -> Hashable:
        arrays = [self._contents.of(a) for s in node.inputs if s is not None and (a := array_of(s)) is not None]
        return self._operator(node), self._contents.attributes(node), tuple(arrays)


def _position(node: Node, symbol: Symbol) -> int:
    return next((i for i, s in enumerate(node.outputs) if s is symbol), -1)


# The longest common subsequence of two sequences that are mostly the same.

_MOST = 3_000_000
"""Steps before it is given up: of sequences of thousands that have little in common."""


def common(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return pairs of positions of equal elements, in order and as many as there can be; none after too many steps.

    Source: Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1 (1986).
    """
    m, n = len(old), len(new)
    ends = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(m + n, _MOST // (m + n + 1)) + 1):
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
