"""`Model.map`: the items of an iterable, run as rows of batches, their results in the order of the items."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, GraphcoreError, RunTimeoutError
from graphcore.runtime.calls.batching import Batching
from graphcore.runtime.calls.feeds import Feeds
from graphcore.runtime.calls.rows.pace import SIZES, Pace
from graphcore.runtime.calls.rows.ragged import Ragged, ragged, row_types
from graphcore.support.progress import ProgressOption, shown_by
from graphcore.types.tensor_types import TensorType, Type

Call: TypeAlias = Callable[..., list[Any]]

WINDOW = 1024
"""Items that are read ahead, to be put together by their lengths."""
_MOST_BYTES = 64 << 20
"""Bytes of items that are read ahead at most, beyond those of one batch."""


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """number: which one of the iterable's. elements: of all its arrays."""

    number: int
    row: Mapping[str, Array]
    kind: tuple[tuple[int, ...], ...]
    elements: int


class Mapped:
    """A run over items: checks each, puts those that fit into batches, and hands back each one's results.

    call: runs a feed. batch: rows of a batch, None for the number that pace finds quickest. pad, padding: what rows are
    filled up with, and the part of a batch that may be it. window: items that are read ahead.
    """

    def __init__(
        self,
        call: Call,
        batches: Batching,
        inputs: Mapping[str, Type],
        outputs: Mapping[str, Type],
        pace: Pace,
        batch: int | None,
        pad: Any,
        padding: float,
        window: int,
    ) -> None:
        self._call = call
        self._batches = batches
        self._pace = pace
        self._batch = batches.size if batches.size is not None and batch is None else batch
        if batches.size is not None and self._batch is not None:
            self._batch = min(self._batch, batches.size)
        self._padding = padding
        self._ragged: Ragged = ragged(batches, inputs, outputs, pad)
        self._feeds = Feeds(batches.model, row_types(inputs, batches.inputs))
        # Rows that all have one shape are not gathered beyond a batch: results come soon.
        is_even = all(map(_has_one_shape, self._feeds.types.values()))
        self._window = self._batch or SIZES[-1] if is_even else max(window, self._batch or 1)

    def results(self, items: Iterable[Any], progress: ProgressOption) -> Iterator[list[Array]]:
        """Yield the results of each item, in order; raise what reading and running them raises, in its place."""
        source = enumerate(items)
        shown = shown_by(progress, len(items) if isinstance(items, Sized) else None, "items")
        done = 0
        try:
            while True:
                taken, ending = self._read(source)
                made = self._run(taken)
                for item in taken:
                    found = made.pop(item.number)
                    if isinstance(found, Exception):
                        raise found
                    yield found
                done += len(taken)
                if shown is not None:
                    shown.show(done)
                if isinstance(ending, StopIteration):
                    return
                if ending is not None:
                    raise ending
        finally:
            if shown is not None:
                shown.close()

    def _read(self, source: Iterator[tuple[int, Any]]) -> tuple[list[_Item], Exception | None]:
        """Return the items of the next window, and what ended it early: the end, or an error."""
        taken: list[_Item] = []
        size = 0
        while len(taken) < self._window and (size < _MOST_BYTES or len(taken) < (self._batch or 1)):
            try:
                number, value = next(source)
            except Exception as error:  # of the user's own generator too: what came before is run first
                return taken, error
            try:
                row = self._feeds.take(*_given(value))
            except FeedError as error:
                return taken, _of_item(error, number)
            taken.append(_Item(number, row, self._ragged.kind(row), sum(a.size for a in row.values())))
            size += sum(array.nbytes for array in row.values())
        return taken, None

    def _run(self, items: Sequence[_Item]) -> dict[int, list[Array] | Exception]:
        """Return the results of items by number, or their errors; after the first error there may be none."""
        made: dict[int, list[Array] | Exception] = {}
        first_failed = float("inf")
        left = sorted(items, key=lambda item: (item.kind, -item.elements))
        at = 0
        while at < len(left):
            group = self._group(left, at)
            at += len(group)
            group = [item for item in group if item.number < first_failed]
            if group:
                found = self._batch_of(group)
                made.update(found)
                failed = [number for number, result in found.items() if isinstance(result, Exception)]
                first_failed = min([first_failed, *failed])
        return made

    def _group(self, items: Sequence[_Item], at: int) -> Sequence[_Item]:
        """Return the items from a place on that make a batch: as many as wanted, of one kind, with little padding."""
        first = items[at]
        wanted = self._batch or self._pace.rows(first.elements)
        if not self._ragged.inputs:
            end = at + 1
            while end < len(items) and end - at < wanted and items[end].kind == first.kind:
                end += 1
            return items[at:end]
        largest = self._ragged.sizes(first.row)
        end, filled = at, 0
        while end < len(items) and end - at < wanted and items[end].kind == first.kind:
            item = items[end]
            sizes = self._ragged.sizes(item.row)
            if sizes != largest:
                largest = {name: max(size, largest[name]) for name, size in sizes.items()}
            each = self._ragged.elements(first.row, largest)
            if filled + item.elements < (1 - self._padding) * each * (end - at + 1):
                break
            filled += item.elements
            end += 1
        return items[at:end]

    def _batch_of(self, items: Sequence[_Item]) -> dict[int, list[Array] | Exception]:
        """Return the results of the items of a batch by number; where it fails, each item is run by itself."""
        try:
            feed = self._ragged.joined([item.row for item in items], self._batches.inputs)
            self._batches = self._batches.settled(self._call, feed)
            started = time.perf_counter()
            shares = self._batches.run(self._call, feed, [1] * len(items))
            self._pace.note(items[0].elements, len(items), time.perf_counter() - started)
        except GraphcoreError as error:
            if len(items) == 1 or isinstance(error, RunTimeoutError):  # each alone would take as long again
                number = min(item.number for item in items)
                return {number: _of_item(error, number)}
            made: dict[int, list[Array] | Exception] = {}
            for item in sorted(items, key=lambda item: item.number):
                made.update(self._batch_of([item]))
                if isinstance(made[item.number], Exception):
                    break
            return made
        axes = self._batches.outputs.values()
        rows = ([_first(a, axis) for a, axis in zip(share, axes, strict=True)] for share in shares)
        return {
            item.number: self._ragged.cut(row, self._ragged.sizes(item.row))
            for item, row in zip(items, rows, strict=True)
        }


def _first(array: Array, axis: int) -> Array:
    """Return the first row along an axis, an array of no axes too."""
    place: tuple[Any, ...] = (*(slice(None),) * axis, 0, ...)
    return array[place]  # type: ignore[no-any-return]


def _given(item: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arrays of an item by position, and by name."""
    if isinstance(item, tuple):
        return item, {}
    return (item,), {}


def _of_item(error: GraphcoreError, number: int) -> GraphcoreError:
    """Return an error that says which item it is about."""
    made = error.with_help(f"item {number}: {error.summary}", error.help)
    made.__cause__ = error
    return made


def _has_one_shape(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.shape.is_ranked and all(dim.is_static for dim in type_.shape)
