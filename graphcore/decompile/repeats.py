"""Find the repeated blocks of a graph: runs of nodes that are the same but for the values they read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphcore.decompile.templates import Literal, Template
from graphcore.ir.names import first_free
from graphcore.ir.symbol import Node

_LEAST_SAVED = 6
"""The nodes that a loop must save."""
_FRAME = 5
"""The lines of a function and of a loop that calls it."""
_MAX_RESULTS = 6
"""The values that a block returns."""
_PLAIN = frozenset({"val", "constant", "node", "tmp", "x", "onnx", "block"})
"""Words before the numbers of names that tell nothing."""

Key: TypeAlias = "int | tuple[str, int, int]"
"""A value: the identity of a Symbol, or a parameter or list of a loop."""


@dataclass(frozen=True, slots=True)
class Index:
    """A number in a name: `first`, plus a multiple of the index of each loop in `steps`."""

    first: int
    steps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Value:
    """A reference to a value. item: the position in the list of values that `key` then is."""

    key: Key
    item: int | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A reference by name to a weight or an input of the graph."""

    is_weight: bool
    parts: tuple[str | Index, ...]
    key: int

    @property
    def counts_up(self) -> bool:
        """True if the name depends on the index of a loop."""
        return any(isinstance(part, Index) and part.steps for part in self.parts)


Reference: TypeAlias = "Value | Named | Literal | None"


def named(name: str, key: int, *, is_weight: bool) -> Named:
    """Return a reference by name, whose numbers are parts of their own."""
    split = (Index(int(p)) if p.isdecimal() and str(int(p)) == p else p for p in re.split(r"(\d+)", name))
    return Named(is_weight, tuple(split), key)


@dataclass(slots=True, eq=False)
class Step:
    """A node to write. template: None if it has bodies. token: equal for nodes that the same text builds.

    captured: the values that its bodies read.
    """

    node: Node
    template: Template | None
    references: list[Reference]
    results: tuple[int, ...]
    token: object
    captured: tuple[Key, ...] = ()

    @property
    def literals(self) -> list[Literal | None]:
        """The literals among the operands."""
        return [own if isinstance(own, Literal) else None for own in self.references]

    def reads(self) -> Iterator[Key]:
        """Yield the values that it reads."""
        yield from (own.key for own in self.references if isinstance(own, Value))
        yield from self.captured

    def makes(self) -> Iterator[Key]:
        """Yield the values that it makes."""
        yield from self.results


class State(NamedTuple):
    """A value that each iteration hands to the next one.

    start: before the loop. parameter: in an iteration. first, last: at the end of the first and the last iteration.
    """

    start: Reference
    parameter: Key
    first: Key
    last: Key


@dataclass(slots=True, eq=False)
class Repeat:
    """A block that is repeated `count` times. items: of the first iteration. states: what it hands to the next one.

    returned: further values of the last iteration that are used after the loop, with those of the first. collected:
    values that are used of several iterations, with the lists of them.
    """

    number: int
    count: int
    stem: str
    items: list[Item]
    states: list[State]
    returned: list[tuple[Key, Key]]
    collected: list[tuple[Key, Key]]

    def inner_reads(self) -> list[Key]:
        """Return the values from outside that an iteration reads, without its states."""
        own = {key for item in self.items for key in item.makes()} | {state.parameter for state in self.states}
        return [*dict.fromkeys(key for item in self.items for key in item.reads() if key not in own)]

    def reads(self) -> Iterator[Key]:
        """Yield the values that it reads."""
        yield from (own.start.key for own in self.states if isinstance(own.start, Value))
        yield from self.inner_reads()

    def makes(self) -> Iterator[Key]:
        """Yield the values that it makes."""
        yield from (own.last for own in self.states)
        yield from (key for pair in (*self.returned, *self.collected) for key in pair[1:])

    def indices(self) -> list[int]:
        """Return the loops whose indices an iteration reads."""
        starts = [own.start for item in self.items if isinstance(item, Repeat) for own in item.states]
        references = [own for item in self.items if isinstance(item, Step) for own in item.references] + starts
        parts = [part for own in references if isinstance(own, Named) for part in own.parts]
        outer = [number for part in parts if isinstance(part, Index) for number, _ in part.steps]
        inner = [n for item in self.items if isinstance(item, Repeat) for n in item.indices() if n != item.number]
        return [*dict.fromkeys((*outer, *inner))]


Item: TypeAlias = "Step | Repeat"


class _Irregular:
    """The change of an operand whose names do not count up: they get names that do."""


_IRREGULAR = _Irregular()
_Parts: TypeAlias = "tuple[str | Index | tuple[int, int], ...]"
_Change: TypeAlias = "tuple[int, int] | _Parts | _Irregular"
"""Of an operand that differs between iterations: the step and result of the iteration before that it is, the parts of
names with (first, step) for numbers that count up, or `_IRREGULAR`."""


@dataclass(slots=True)
class Folder:
    """Folds the steps of a module into loops.

    renamed: the names of weights that a loop counts up and that had others. moved: values that are needed after a scope
    and are items of lists.
    """

    renamed: dict[int, str] = field(default_factory=dict)
    moved: dict[Key, Value] = field(default_factory=dict)
    _counted: set[int] = field(default_factory=set)
    _stems: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=count)

    def fold(self, steps: list[Step], needed: Set[Key]) -> list[Item]:
        """Return the items of a scope. needed: the values that are used after it."""
        for period, start, length in _runs([step.token for step in steps]):
            result = self._repeat(steps, period, start, length, needed)
            if result is not None:
                first, last, loop = result
                after = self.fold(steps[last:], needed)
                reads = {key for item in (loop, *after) for key in item.reads()}
                return [*self.fold(steps[:first], needed | reads), loop, *after]
        return [*steps]

    def _repeat(
        self, steps: list[Step], period: int, start: int, length: int, needed: Set[Key]
    ) -> tuple[int, int, Repeat] | None:
        """Return where the best loop of a run begins and ends, and the loop: the longest, which carries least."""
        for times in range(length // period, 1, -1):
            if (times - 1) * period < _LEAST_SAVED:
                break
            candidates = []
            for first in range(start, start + length - times * period + 1):
                blocks = [steps[first + k * period : first + (k + 1) * period] for k in range(times)]
                changes = _changes(blocks)
                if changes is not None:
                    states = {own for own in changes.values() if isinstance(own, tuple) and isinstance(own[0], int)}
                    candidates.append((len(states), first, blocks, changes))
            if candidates:
                _, first, blocks, changes = min(candidates, key=lambda own: own[:2])
                loop = self._loop(blocks, changes, needed, steps)
                if loop is not None:
                    return first, first + times * period, loop
        return None

    def _loop(
        self,
        blocks: list[list[Step]],
        changes: Mapping[tuple[int, int], _Change],
        needed: Set[Key],
        scope: Sequence[Step],
    ) -> Repeat | None:
        number = next(self._numbers)
        stem = first_free(_stem(changes.values()), self._stems.__contains__)
        states: dict[tuple[Any, Reference], State] = {}
        renamed: dict[int, str] = {}
        steps = [replace(step, references=[*step.references]) for step in blocks[0]]
        for (offset, operand), change in changes.items():
            row = [block[offset].references[operand] for block in blocks]
            keys = [own.key for own in row if isinstance(own, Named)]
            first = row[0]
            if isinstance(change, _Irregular):
                place = renamed.get(keys[0], f"{stem}.0.{offset}.{operand}").removeprefix(f"{stem}.0.")
                names = [f"{stem}.{k}.{place}" for k in range(len(blocks))]
                before = [renamed.get(key) for key in keys]
                is_free = not (self.renamed.keys() | self._counted) & {*keys} and not any(
                    own.counts_up for own in row if isinstance(own, Named)
                )
                if not is_free or (before != names and any(before)):
                    return None
                renamed |= dict(zip(keys, names, strict=True))
                new: Reference = Named(True, (f"{stem}.", Index(0, ((number, 1),)), f".{place}"), keys[0])
            elif keys:
                if self.renamed.keys() & {*keys}:
                    return None
                assert isinstance(first, Named)
                parts = tuple(Index(p[0], ((number, p[1]),)) if isinstance(p, tuple) else p for p in change)
                new = replace(first, parts=parts)  # type: ignore[arg-type]
            else:
                source, result = change
                state = states.get((change, first))
                if state is None:
                    ends = [block[source].results[result] for block in (blocks[0], blocks[-1])]  # type: ignore[index]
                    state = states[change, first] = State(first, ("carried", number, len(states)), *ends)
                new = Value(state.parameter)
            steps[offset].references[operand] = new
        counted = {
            key
            for place, change in changes.items()
            if not isinstance(change, _Irregular)
            for block in blocks
            for own in [block[place[0]].references[place[1]]]
            if isinstance(own, Named)
            for key in [own.key]
        }
        if renamed.keys() & counted:
            return None
        ends_ = self._used_after(blocks, changes, needed, scope, number)
        if ends_ is None:
            return None
        returned, collected, moves = ends_
        saved = (len(blocks) - 1) * len(steps) - _FRAME - 3 * len(collected)
        if saved <= 0 or len(states) + len(returned) + len(collected) > _MAX_RESULTS:
            return None
        for user, key, value in moves:
            if user is None:
                self.moved[key] = value
            else:
                user.references = [value if own == Value(key) else own for own in user.references]
        self.renamed |= renamed
        self._counted |= counted
        self._stems.add(stem)
        last = {own.last for own in states.values()}
        returned = [pair for pair in returned if pair[1] not in last]
        inner = {own.first for own in states.values()} | {first for first, _ in (*returned, *collected)}
        items = self.fold(steps, inner)
        return Repeat(number, len(blocks), stem, items, [*states.values()], returned, collected)

    def _used_after(
        self,
        blocks: list[list[Step]],
        changes: Mapping[tuple[int, int], _Change],
        needed: Set[Key],
        scope: Sequence[Step],
        number: int,
    ) -> tuple[list[tuple[Key, Key]], list[tuple[Key, Key]], list[tuple[Step | None, Key, Value]]] | None:
        """Return the values of the last iteration that are used after a loop, the lists, and the steps that read items.

        None if a body reads an item.
        """
        uses: dict[Key, list[Step]] = {}
        for step in scope:
            for key in step.reads():
                uses.setdefault(key, []).append(step)
        handed = {own for own in changes.values() if isinstance(own, tuple)}
        inside = [{*map(id, block)} for block in [*blocks, []]]
        returned: list[tuple[Key, Key]] = []
        collected: list[tuple[Key, Key]] = []
        moves: list[tuple[Step | None, Key, Value]] = []
        for offset, step in enumerate(blocks[0]):
            for position, first in enumerate(step.results):
                results = [block[offset].results[position] for block in blocks]
                outer: list[tuple[int, Step | None]] = []
                for k, key in enumerate(results):
                    within = inside[k] | (inside[k + 1] if (offset, position) in handed else set())
                    outer += [(k, user) for user in uses.get(key, ()) if id(user) not in within]
                    outer += [(k, None)] * (key in needed)
                if not outer:
                    continue
                if {k for k, _ in outer} == {len(blocks) - 1}:
                    returned.append((first, results[-1]))
                    continue
                listed: Key = ("list", number, len(collected))
                collected.append((first, listed))
                moves += [(user, results[k], Value(listed, k)) for k, user in outer]
        if any(user is not None and key in user.captured for user, key, _ in moves):
            return None
        return returned, collected, moves


def _runs(tokens: Sequence[object]) -> list[tuple[int, int, int]]:
    """Return runs (period, start, length) in which tokens are those of a period before, the most savings first."""
    numbers: dict[object, int] = {}
    row = np.array([numbers.setdefault(token, len(numbers)) for token in tokens])
    runs = []
    for period in range(2, len(row) // 2 + 1):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row[:-period] == row[period:], [0]))))
        runs += [(period, int(a), int(b - a) + period) for a, b in edges.reshape(-1, 2) if b - a >= period]
    saved = {run: (run[2] // run[0] - 1) * run[0] for run in runs}
    return sorted((run for run in runs if saved[run] >= _LEAST_SAVED), key=lambda run: (-saved[run], run))


def _changes(blocks: Sequence[Sequence[Step]]) -> dict[tuple[int, int], _Change] | None:
    """Return the changes of the operands that differ between blocks, by step and operand; None if it is not a loop."""
    places: list[Mapping[Key, tuple[int, int]]] = [
        {key: (offset, position) for offset, step in enumerate(block) for position, key in enumerate(step.results)}
        for block in blocks
    ]
    changes: dict[tuple[int, int], _Change] = {}
    for offset, steps in enumerate(zip(*blocks, strict=True)):
        for operand, row in enumerate(zip(*(step.references for step in steps), strict=True)):
            if isinstance(row[0], (Literal, type(None))) or all(own == row[0] for own in row):
                continue
            names = [own for own in row if isinstance(own, Named)]
            if names:
                change: _Change | None = _names(names) if len(names) == len(row) else None
            else:
                change = _state_place([own for own in row if isinstance(own, Value)], places)
                if change == ():  # computed in the same iteration
                    continue
            if change is None:
                return None
            changes[offset, operand] = change
    return changes


def _state_place(
    row: Sequence[Value], places: Sequence[Mapping[Key, tuple[int, int]]]
) -> tuple[int, int] | tuple[()] | None:
    """Return the place in the iteration before of an operand; () if it is in the same one, None if it is elsewhere."""
    if any(own.item is not None for own in row):
        return None
    same = {places[k].get(own.key) for k, own in enumerate(row)}
    if None not in same:
        return () if len(same) == 1 else None
    before = {places[k].get(own.key) for k, own in enumerate(row[1:])}
    if same != {None} or len(before) > 1:
        return None
    return before.pop()


def _names(row: Sequence[Named]) -> _Parts | _Irregular | None:
    """Return the parts of names that count up, `_IRREGULAR` if they do not, None if they cannot be made to."""
    kinds = {own.is_weight for own in row}
    irregular = _IRREGULAR if kinds == {True} and len({own.key for own in row}) == len(row) else None
    if len(kinds) > 1 or len({len(own.parts) for own in row}) > 1:
        return irregular
    result: list[str | Index | tuple[int, int]] = []
    for parts in zip(*(own.parts for own in row), strict=True):
        if all(other == parts[0] for other in parts):
            result.append(parts[0])
            continue
        numbers = [part.first for part in parts if isinstance(part, Index) and not part.steps]
        steps = {b - a for a, b in pairwise(numbers)}
        if len(numbers) < len(parts) or len(steps) > 1 or min(steps) <= 0:
            return irregular
        result.append((numbers[0], steps.pop()))
    return tuple(result)


def _stem(changes: Any) -> str:
    """Return the name of a block: the word before the number in most names of its weights."""
    words: Counter[str] = Counter()
    for change in changes:
        if isinstance(change, tuple) and not isinstance(change[0], int):
            position = next((i for i, part in enumerate(change) if isinstance(part, tuple)), 0)
            before = change[position - 1] if position else ""
            last = re.findall(r"[A-Za-z]+", before) if isinstance(before, str) else []
            words.update(word.lower() for word in last[-1:] if word.lower() not in _PLAIN)
    return max(words, key=lambda word: words[word], default="block")
