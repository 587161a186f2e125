"""`Model.map`: the items of an iterable, run as rows of batches, their results in the order of the items."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, GraphcoreError, RunTimeoutError
from graphcore.runtime.calls.batching import Batching, rows_of
from graphcore.runtime.calls.conversion import converted
from graphcore.runtime.calls.feeds import Feeds
from graphcore.runtime.stopping.limit import Limit, seconds_of
from graphcore.support.progress import ProgressOption, display_for
from graphcore.types.dims import Dim
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
        shown = display_for(progress, len(items) if isinstance(items, Sized) else None, "items")
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


# The arguments of `Model.map`, checked.


@dataclass(frozen=True, slots=True)
class Arguments:
    """rows: of a batch, None for the quickest number. padding: the part of a batch that may be filled up. window: items
    that are read ahead. seconds: of the run of a batch, None for no end."""

    model: str
    rows: int | None
    padding: float
    window: int
    seconds: float | None

    def limited(self, call: Call) -> Call:
        """Return a call that ends after its seconds; the call itself where it has no end."""
        if self.seconds is None:
            return call

        def within(*arrays: Any) -> list[Any]:
            with Limit(self.model, self.seconds):
                return call(*arrays)

        return within


def arguments(model: str, items: object, batch: object, padding: object, window: object, timeout: object) -> Arguments:
    """Return what `map` is asked for. model: its name, for errors. Raises `FeedError` for what makes no sense."""
    rows = None if batch is None else rows_of(model, batch, "batch")
    ahead = rows_of(model, window, "window")
    if not isinstance(padding, (int, float)) or isinstance(padding, bool) or not 0 <= padding < 1:
        raise FeedError(
            f"map: {model}: padding={padding!r:.80} is no part of a batch", help="give 0 or more, and below 1"
        )
    if isinstance(items, Mapping) or not isinstance(items, Iterable):
        raise FeedError(
            f"map: {model}: a {type(items).__name__} is no iterable of items",
            help="give rows: a list or a generator of arrays, of tuples of arrays, or of dicts of them",
        )
    seconds = None if timeout is None else seconds_of(f"map: {model}", timeout)
    return Arguments(model, rows, float(padding), ahead, seconds)


# The number of rows that run together, chosen by what batches took.

SIZES = (1, 4, 8, 16, 32, 64)
"""The numbers of rows to choose among."""

_FIRST = SIZES.index(4)
_TRIES = 2
_GAIN = 0.97
"""The part of the time up to which another number of rows counts as quicker: less is noise."""
_LOSS = 1.15
"""The part of the time from which on still larger batches are not tried."""
_AGAIN = 16
"""Of so many batches one is of another number of rows than the best."""
_FADES = 1.05
"""The factor by which the least time grows with each one that is longer."""


@dataclass(slots=True)
class _Cost:
    """tries: batches that were timed. least: the seconds of an element in the quickest of them."""

    tries: int = 0
    least: float = float("inf")


class Pace:
    """Chooses among `SIZES`, for rows of about as many elements, by the least time of an element.

    Begins with 4 and goes on to larger batches until they are slower; where none is quicker, a row alone is tried. Each
    is timed twice, and the quicker time counts, with less and less weight. Now and then a neighbour of the best one is
    timed again: a machine's speed changes, and other programs disturb.
    """

    def __init__(self) -> None:
        self._costs: dict[tuple[int, int], _Cost] = {}
        self._turns: dict[int, int] = {}

    def rows(self, elements: int) -> int:
        """Return how many rows to run together. elements: of a row."""
        kind = elements.bit_length()
        best = self._best(kind)
        if self._turns.get(kind, 0) % _AGAIN == _AGAIN - 1:
            best += 1 if self._turns[kind] // _AGAIN % 2 else -1
        return SIZES[min(max(best, 0), len(SIZES) - 1)]

    def _best(self, kind: int) -> int:
        """Return the place of the quickest number of rows, or of the next one to try."""
        best = _FIRST
        for index in range(_FIRST, len(SIZES)):
            cost = self._cost(kind, SIZES[index])
            if cost.tries < _TRIES:
                return index
            least = self._cost(kind, SIZES[best]).least
            if cost.least > least * _LOSS:
                break
            if cost.least < least * _GAIN:
                best = index
        if best == _FIRST:
            alone = self._cost(kind, SIZES[0])
            if alone.tries < _TRIES or alone.least < self._cost(kind, SIZES[best]).least * _GAIN:
                return 0
        return best

    def note(self, elements: int, rows: int, seconds: float) -> None:
        """Take down what a batch took. elements: of a row."""
        kind = elements.bit_length()
        self._turns[kind] = self._turns.get(kind, 0) + 1
        if rows in SIZES:
            cost = self._cost(kind, rows)
            cost.tries += 1
            cost.least = min(cost.least * _FADES, seconds / max(1, rows * elements))

    def _cost(self, kind: int, rows: int) -> _Cost:
        return self._costs.setdefault((kind, rows), _Cost())


# Rows of several lengths in one batch: padded along the named dims of the inputs, and cut again in the outputs.


@dataclass(frozen=True, slots=True)
class Ragged:
    """inputs: the names of the dims of a row, by axis; None where rows must agree. outputs: the dims of a row.
    pad: what fills a row up, by input."""

    inputs: Mapping[str, tuple[str | None, ...]]
    outputs: Mapping[str, tuple[Dim, ...] | None]
    pad: Mapping[str, Array]

    def kind(self, row: Mapping[str, Array]) -> tuple[tuple[int, ...], ...]:
        """Return the sizes that rows of one batch agree in."""
        if not self.inputs:
            return tuple(array.shape for array in row.values())
        return tuple(
            tuple(-1 if called else size for called, size in zip(self.inputs[name], array.shape, strict=True))
            if name in self.inputs
            else array.shape
            for name, array in row.items()
        )

    def sizes(self, row: Mapping[str, Array]) -> dict[str, int]:
        """Return the sizes of the dims that are filled up."""
        return {
            called: size
            for name, names in self.inputs.items()
            for called, size in zip(names, row[name].shape, strict=True)
            if called is not None
        }

    def elements(self, row: Mapping[str, Array], sizes: Mapping[str, int]) -> int:
        """Return how many elements a row has that is filled up to these sizes."""
        total = 0
        for name, array in row.items():
            names = self.inputs.get(name)
            pairs = zip(names, array.shape, strict=True) if names else ()
            total += math.prod(sizes[c] if c else n for c, n in pairs) if names else array.size
        return total

    def joined(self, rows: Sequence[Mapping[str, Array]], axes: Mapping[str, int]) -> dict[str, Array]:
        """Return the rows of one kind as a feed. axes: of the batch, by input."""
        feed = {}
        for name, axis in axes.items():
            arrays = [row[name] for row in rows]
            shapes = [array.shape for array in arrays]
            if all(shape == shapes[0] for shape in shapes):
                feed[name] = np.stack(arrays, axis)
                continue
            largest = tuple(map(max, *shapes))
            made = np.full((len(rows), *largest), self.pad[name], arrays[0].dtype)
            for number, array in enumerate(arrays):
                place: tuple[Any, ...] = (number, *map(slice, array.shape))
                made[place] = array
            feed[name] = np.ascontiguousarray(np.moveaxis(made, 0, axis))
        return feed

    def cut(self, results: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        """Return what a row gave, without what came of filling it up."""
        if not sizes:
            return [*results]
        return [
            array if dims is None else array[(*(slice(_size(dim, sizes)) for dim in dims), ...)]
            for array, dims in zip(results, self.outputs.values(), strict=True)
        ]


def _size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a dim of a row; None where no dim that is filled up tells it."""
    if dim.is_dynamic or dim.is_static or not dim.parameters <= sizes.keys():
        return None
    return dim.evaluate(sizes)


def row_types(types: Mapping[str, Type], axes: Mapping[str, int]) -> dict[str, Type]:
    """Return the types of a row: those of a batch without the axis of the batch."""
    made: dict[str, Type] = {}
    for name, type_ in types.items():
        assert isinstance(type_, TensorType)
        dims = [*type_.shape] if type_.shape.is_ranked else None
        if dims is not None:
            del dims[axes[name]]
        made[name] = type_ if dims is None else TensorType(type_.dtype, dims)
    return made


def ragged(batches: Batching, inputs: Mapping[str, Type], outputs: Mapping[str, Type], pad: Any) -> Ragged:
    """Return how rows are filled up. pad: a number for all inputs, or by input; None for not at all.

    Raises `FeedError` for inputs that there are not, and numbers that an input does not hold.
    """
    if pad is None:
        return Ragged({}, dict.fromkeys(outputs), {})
    given = pad if isinstance(pad, Mapping) else dict.fromkeys(inputs, pad)
    unknown = [name for name in given if name not in inputs]
    if unknown:
        raise FeedError(
            f"{batches.model}: pad names {unknown[0]!r:.80}, and there is no such input",
            help=f"the inputs: {', '.join(inputs)}",
        )
    values: dict[str, Array] = {}
    named: dict[str, tuple[str | None, ...]] = {}
    for name, type_ in row_types(inputs, batches.inputs).items():
        assert isinstance(type_, TensorType)
        if name not in given or not type_.shape.is_ranked:
            continue
        what = f"{batches.model}: what input {name!r} is filled up with"
        value = given[name]
        filler = value if isinstance(value, (np.ndarray, np.generic)) else converted(what, type_, value)
        if np.shape(filler) != () or np.asarray(filler).dtype != type_.dtype.numpy:
            raise FeedError(f"{what} is {value!r:.80}", help=f"give one value of {type_.dtype}")
        values[name] = np.asarray(filler)
        named[name] = tuple(dim.name for dim in type_.shape)
    known = {name: axis for name, axis in batches.outputs.items() if name not in batches.open}
    cut: dict[str, tuple[Dim, ...] | None] = {}
    for name, type_ in outputs.items():
        assert isinstance(type_, TensorType)
        is_known = name in known and type_.shape.is_ranked
        cut[name] = tuple(d for i, d in enumerate(type_.shape) if i != known[name]) if is_known else None
    return Ragged(named, cut, values)
