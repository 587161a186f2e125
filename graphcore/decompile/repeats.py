"""Find the repeated blocks of a graph: runs of nodes that are the same but for the values they read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import NamedTuple, TypeAlias

import numpy as np

from graphcore.decompile.templates import Template
from graphcore.decompile.text import Expr
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


def index(loop: int) -> str:
    """Return the variable of a loop's index."""
    return "ijk"[loop] if loop < 3 else f"i{loop}"


class Index(NamedTuple):
    """A number in a name: `first`, plus `step` times the index of a loop."""

    first: int
    step: int = 0
    loop: int = 0

    def __str__(self) -> str:
        times = "" if self.step == 1 else f"{self.step} * "
        plus = f" + {self.first}" if self.first else ""
        return f"{{{times}{index(self.loop)}{plus}}}" if self.step else str(self.first)


@dataclass(frozen=True, slots=True)
class Value:
    """A reference to a value."""

    key: Key


@dataclass(frozen=True, slots=True)
class Named:
    """A reference by name to a weight or an input of the graph."""

    is_weight: bool
    parts: tuple[str | Index, ...]
    key: int

    @property
    def loops(self) -> list[int]:
        """The loops on whose indices the name depends."""
        return [part.loop for part in self.parts if isinstance(part, Index) and part.step]

    @property
    def text(self) -> str:
        """The name as the text of a literal, of an f-string if numbers count up."""
        parts = [
            part.replace("{", "{{").replace("}", "}}") if self.loops and isinstance(part, str) else part
            for part in self.parts
        ]
        return "".join(map(str, parts))


Reference: TypeAlias = "Value | Named | Expr | None"


def named(name: str, key: int, *, is_weight: bool) -> Named:
    """Return a reference by name, whose numbers are parts of their own."""
    split = (Index(int(p)) if p.isdecimal() and str(int(p)) == p else p for p in re.split(r"(\d+)", name))
    return Named(is_weight, tuple(split), key)


@dataclass(slots=True, eq=False)
class Step:
    """A node to write. template: None if it has bodies or is a call. text: with `_` for operands.

    captured: the values that its bodies read.
    """

    node: Node
    template: Template | None
    references: list[Reference]
    results: tuple[int, ...]
    text: str
    captured: tuple[Key, ...] = ()

    @property
    def token(self) -> object:
        """A key that is equal for nodes that the same text builds of operands of the same kinds."""
        kinds = (own.is_weight if isinstance(own, Named) else type(own) for own in self.references)
        return self.text, *kinds, len(self.results)

    def reads(self) -> Iterator[Key]:
        """Yield the values that it reads."""
        yield from (own.key for own in self.references if isinstance(own, Value))
        yield from self.captured


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

    returned: further values of the first iteration, with what is used of them after the loop: the value of the last
    iteration, or the list of those of all iterations.
    """

    number: int
    count: int
    stem: str
    items: list[Item]
    states: list[State]
    returned: list[tuple[Key, Key]]

    @property
    def references(self) -> list[Reference]:
        """The references of the loop itself."""
        return [own.start for own in self.states]

    def inner_reads(self) -> list[Key]:
        """Return the values from outside that an iteration reads, without its states."""
        own = {key for item in self.items for key in item.results} | {state.parameter for state in self.states}
        return [*dict.fromkeys(key for item in self.items for key in item.reads() if key not in own)]

    def reads(self) -> Iterator[Key]:
        """Yield the values that it reads."""
        yield from (own.key for own in self.references if isinstance(own, Value))
        yield from self.inner_reads()

    @property
    def results(self) -> list[Key]:
        """The values that it makes."""
        return [*(own.last for own in self.states), *(last for _, last in self.returned)]

    def indices(self) -> list[int]:
        """Return the loops whose indices an iteration reads."""
        own = [n for item in self.items for r in item.references if isinstance(r, Named) for n in r.loops]
        inner = [n for item in self.items if isinstance(item, Repeat) for n in item.indices() if n != item.number]
        return [*dict.fromkeys((*own, *inner))]


Item: TypeAlias = "Step | Repeat"


class _Place(NamedTuple):
    """A result of a step: of a scope, or of the block that is the iteration before."""

    step: int
    result: int


_OUTSIDE = _Place(-(1 << 40), 0)
_Changes: TypeAlias = "dict[tuple[int, int], _Place | Named]"
"""What operands of a block are that differ between iterations, by step and operand: names that count up, without parts
if weights have other names and get names that do."""


@dataclass(slots=True)
class Folder:
    """Folds the steps of a module into loops.

    renamed: the names of weights that a loop counts up and that had others. items: values that are items of lists.
    """

    renamed: dict[int, str] = field(default_factory=dict)
    items: dict[Key, tuple[Key, int]] = field(default_factory=dict)
    _counted: set[int] = field(default_factory=set)
    _stems: set[str] = field(default_factory=set)

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
        origins: dict[Key, _Place] = {
            key: _Place(i, position) for i, step in enumerate(steps) for position, key in enumerate(step.results)
        }
        for times in range(length // period, 1, -1):
            if (times - 1) * period < _LEAST_SAVED:
                break
            candidates = []
            for first in range(start, start + length - times * period + 1):
                blocks = [steps[first + k * period : first + (k + 1) * period] for k in range(times)]
                changes = _changes(blocks, first, origins, len(self._stems))
                if changes is not None:
                    states = {own for own in changes.values() if isinstance(own, _Place)}
                    candidates.append((len(states), first, blocks, changes))
            if candidates:
                _, first, blocks, changes = min(candidates, key=lambda own: own[:2])
                loop = self._loop(blocks, changes, needed, steps)
                if loop is not None:
                    return first, first + times * period, loop
        return None

    def _loop(
        self, blocks: list[list[Step]], changes: _Changes, needed: Set[Key], scope: Sequence[Step]
    ) -> Repeat | None:
        number = len(self._stems)
        stem = first_free(_stem(changes.values(), number), self._stems.__contains__)
        states: dict[tuple[_Place, Reference], State] = {}
        places: dict[tuple[int, ...], str] = {}
        renamed: dict[int, str] = {}
        counted: set[int] = set()
        steps = [replace(step, references=[*step.references]) for step in blocks[0]]
        for (offset, operand), change in changes.items():
            row = [block[offset].references[operand] for block in blocks]
            names = [own for own in row if isinstance(own, Named)]
            keys = tuple(own.key for own in names)
            if isinstance(change, _Place):
                if (change, row[0]) not in states:
                    first, last = (block[change.step].results[change.result] for block in (blocks[0], blocks[-1]))
                    states[change, row[0]] = State(row[0], ("carried", number, len(states)), first, last)
                new: Reference = Value(states[change, row[0]].parameter)
            elif change.parts:
                counted.update(keys)
                new = change
            else:
                place = places.setdefault(keys, f"{offset}.{operand}")
                labels = {key: f"{stem}.{k}.{place}" for k, key in enumerate(keys)}
                clashes = [key for key, name in labels.items() if renamed.get(key, name) != name]
                if clashes or any(own.loops for own in names):
                    return None
                renamed |= labels
                new = Named(True, (f"{stem}.", Index(0, 1, number), f".{place}"), keys[0])
            steps[offset].references[operand] = new
        if renamed.keys() & (counted | self._counted) or self.renamed.keys() & (counted | renamed.keys()):
            return None
        returned, listed = _used_after(blocks, changes, needed, scope, number)
        saved = (len(blocks) - 1) * len(steps) - _FRAME - 3 * len({key for key, _ in listed.values()})
        if saved <= 0 or not 0 < len(states) + len(returned) <= _MAX_RESULTS:
            return None
        self.items |= listed
        self.renamed |= renamed
        self._counted |= counted
        self._stems.add(stem)
        handed = {own.last for own in states.values()}
        returned = [pair for pair in returned if pair[1] not in handed]
        inner = {own.first for own in states.values()} | {first for first, _ in returned}
        return Repeat(number, len(blocks), stem, self.fold(steps, inner), [*states.values()], returned)


def _used_after(
    blocks: list[list[Step]], changes: _Changes, needed: Set[Key], scope: Sequence[Step], number: int
) -> tuple[list[tuple[Key, Key]], dict[Key, tuple[Key, int]]]:
    """Return the results of a loop beside its states, and the values that are items of lists."""
    uses: dict[Key, list[Step | None]] = {key: [None] for key in needed}
    for step in scope:
        for key in step.reads():
            uses.setdefault(key, []).append(step)
    handed = {own for own in changes.values() if isinstance(own, _Place)}
    iteration: dict[Step | None, int] = {step: k for k, block in enumerate(blocks) for step in block}
    returned: list[tuple[Key, Key]] = []
    items: dict[Key, tuple[Key, int]] = {}
    for offset, step in enumerate(blocks[0]):
        for position, first in enumerate(step.results):
            results = [block[offset].results[position] for block in blocks]
            reach = 1 if (offset, position) in handed else 0
            used = [
                k
                for k, key in enumerate(results)
                if any(iteration.get(user, -1) not in (k, k + reach) for user in uses.get(key, ()))
            ]
            if used == [len(blocks) - 1]:
                returned.append((first, results[-1]))
            elif used:
                returned.append((first, ("list", number, len(returned))))
                items |= {results[k]: (returned[-1][1], k) for k in used}
    return returned, items


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


def _changes(blocks: list[list[Step]], first: int, origins: Mapping[Key, _Place], number: int) -> _Changes | None:
    """Return the changes of the operands that differ between blocks; None if it is not a loop."""
    period = len(blocks[0])
    changes: _Changes = {}
    for offset, steps in enumerate(zip(*blocks, strict=True)):
        for operand, row in enumerate(zip(*(step.references for step in steps), strict=True)):
            if isinstance(row[0], Expr) or all(own == row[0] for own in row):
                continue
            change: _Place | Named | None = None
            if isinstance(row[0], Value):
                places = [origins.get(own.key, _OUTSIDE) for own in row if isinstance(own, Value)]
                start, *others = [_Place(own.step - first - k * period, own.result) for k, own in enumerate(places)]
                is_one = len({*others}) == 1
                if is_one and start == others[0] and start.step >= 0:  # computed in the same iteration
                    continue
                if is_one and start.step < 0 and -period <= others[0].step < 0:
                    change = others[0]._replace(step=others[0].step + period)
            else:
                change = _names([own for own in row if isinstance(own, Named)], number)
            if change is None:
                return None
            changes[offset, operand] = change
    return changes


def _names(row: Sequence[Named], number: int) -> Named | None:
    """Return the names as one that counts up, without parts if they do not, None if they cannot be changed to."""
    can_be_renamed = row[0].is_weight and len({own.key for own in row}) == len(row)
    irregular = replace(row[0], parts=()) if can_be_renamed else None
    result: list[str | Index] = []
    for parts in zip_longest(*(own.parts for own in row), fillvalue=""):
        if all(other == parts[0] for other in parts):
            result.append(parts[0])
            continue
        numbers = [part.first for part in parts if isinstance(part, Index) and not part.step]
        steps = {b - a for a, b in pairwise(numbers)}
        if len(numbers) < len(parts) or len(steps) > 1 or min(steps) <= 0:
            return irregular
        result.append(Index(numbers[0], steps.pop(), number))
    return replace(row[0], parts=tuple(result))


def _stem(changes: Iterable[_Place | Named], number: int) -> str:
    """Return the name of a block: the word before the number in most names of its weights."""
    words: Counter[str] = Counter()
    for change in changes:
        parts = change.parts if isinstance(change, Named) else ()
        before = next((a for a, b in pairwise(parts) if isinstance(b, Index) and b.step and b.loop == number), "")
        last = re.findall(r"[A-Za-z]+", str(before))[-1:]
        words.update(word.lower() for word in last if word.lower() not in _PLAIN)
    return max(words, key=lambda word: words[word], default="block")
