"""`Model.map`: run the items of an iterable as rows of batches, and yield results in the order of the items."""

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
"""Number of items that are read ahead, to group them by length."""
_MAX_BYTES_AHEAD = 64 << 20
"""Maximum bytes of items that are read ahead, beyond one batch."""


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """An item. number: its index in the iterable. elements: of all its arrays."""

    number: int
    row: Mapping[str, Array]
    kind: tuple[tuple[int, ...], ...]
    elements: int


class MapRun:
    """A run over items: checks each item, groups items into batches, and yields the results of each item.

    call: runs a feed.
    """

    def __init__(
        self,
        call: Call,
        batches: Batching,
        inputs: Mapping[str, Type],
        outputs: Mapping[str, Type],
        pace: Pace,
        arguments: MapArguments,
    ) -> None:
        self._model_call = call
        self._seconds = arguments.seconds
        self._batches = batches
        self._pace = pace
        sizes = [size for size in (arguments.rows, batches.size) if size is not None]
        self._batch = min(sizes, default=None)
        self._padding = arguments.padding
        self._ragged: Ragged = ragged(batches, inputs, outputs, arguments.pad)
        self._feeds = Feeds(batches.model, row_types(inputs, batches.inputs))
        # Rows of one shape are not collected beyond a batch, so that results come soon.
        is_even = all(map(_has_one_shape, self._feeds.types.values()))
        self._window = self._batch or SIZES[-1] if is_even else max(arguments.window, self._batch or 1)

    def results(self, items: Iterable[Any], progress: ProgressOption) -> Iterator[list[Array]]:
        """Yield the results of each item, in order; raise errors of reading and running in the place of the item."""
        source = enumerate(items)
        progress_line = display_for(progress, len(items) if isinstance(items, Sized) else None, "items")
        done = 0
        try:
            while True:
                batch_items, ending = self._read(source)
                results = self._run(batch_items)
                for item in batch_items:
                    result = results.pop(item.number)
                    if isinstance(result, Exception):
                        raise result
                    yield result
                done += len(batch_items)
                if progress_line is not None:
                    progress_line.show(done)
                if isinstance(ending, StopIteration):
                    return
                if ending is not None:
                    raise ending
        finally:
            if progress_line is not None:
                progress_line.close()

    def _call(self, *arrays: Any) -> list[Any]:
        if self._seconds is None:
            return self._model_call(*arrays)
        with Limit(self._batches.model, self._seconds):
            return self._model_call(*arrays)

    def _read(self, source: Iterator[tuple[int, Any]]) -> tuple[list[_Item], Exception | None]:
        """Return the items of the next window, and the exception that ended it early, such as StopIteration."""
        items: list[_Item] = []
        size = 0
        while len(items) < self._window and (size < _MAX_BYTES_AHEAD or len(items) < (self._batch or 1)):
            try:
                number, value = next(source)
            except Exception as error:  # also an error of the user's generator: the items before it run first
                return items, error
            try:
                row = self._feeds.take(value if isinstance(value, tuple) else (value,), {})
            except FeedError as error:
                return items, _with_item(error, number)
            items.append(_Item(number, row, self._ragged.kind(row), sum(a.size for a in row.values())))
            size += sum(array.nbytes for array in row.values())
        return items, None

    def _run(self, items: Sequence[_Item]) -> dict[int, list[Array] | Exception]:
        """Return the results or errors of items by number; items after the first error may be missing."""
        results: dict[int, list[Array] | Exception] = {}
        first_failed = float("inf")
        remaining = sorted(items, key=lambda item: (item.kind, -item.elements))
        at = 0
        while at < len(remaining):
            group = self._group(remaining, at)
            at += len(group)
            group = [item for item in group if item.number < first_failed]
            if group:
                batch_results = self._batch_of(group)
                results.update(batch_results)
                failed = [number for number, result in batch_results.items() if isinstance(result, Exception)]
                first_failed = min([first_failed, *failed])
        return results

    def _group(self, items: Sequence[_Item], at: int) -> Sequence[_Item]:
        """Return the items of the next batch from index `at` on: of one kind, with little padding."""
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
        """Return the results of a batch by item number; if it fails, run each item separately."""
        try:
            feed = self._ragged.joined([item.row for item in items], self._batches.inputs)
            self._batches = self._batches.settled(self._call, feed)
            started = time.perf_counter()
            shares = self._batches.run(self._call, feed, [1] * len(items))
            self._pace.note(items[0].elements, len(items), time.perf_counter() - started)
        except GraphcoreError as error:
            if len(items) == 1 or isinstance(error, RunTimeoutError):  # each item would take as long again
                number = min(item.number for item in items)
                return {number: _with_item(error, number)}
            results: dict[int, list[Array] | Exception] = {}
            for item in sorted(items, key=lambda item: item.number):
                results.update(self._batch_of([item]))
                if isinstance(results[item.number], Exception):
                    break
            return results
        axes = self._batches.outputs.values()
        rows = ([_first(a, axis) for a, axis in zip(share, axes, strict=True)] for share in shares)
        return {
            item.number: self._ragged.cut(row, self._ragged.sizes(item.row))
            for item, row in zip(items, rows, strict=True)
        }


def _first(array: Array, axis: int) -> Array:
    """Return the first row along an axis as an array, also if it has no axes."""
    place: tuple[Any, ...] = (*(slice(None),) * axis, 0, ...)
    return array[place]  # type: ignore[no-any-return]


def _with_item(error: GraphcoreError, number: int) -> GraphcoreError:
    """Return an error that names its item."""
    item_error = error.with_help(f"item {number}: {error.summary}", error.help)
    item_error.__cause__ = error
    return item_error


def _has_one_shape(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.shape.is_ranked and all(dim.is_static for dim in type_.shape)


# The arguments of `Model.map`, checked.


@dataclass(frozen=True, slots=True)
class MapArguments:
    """The checked arguments of `Model.map`.

    rows: of a batch, None for the fastest number by `Pace`. pad: the value that fills rows up. padding: the maximum
    part of a batch that is padding. window: number of items that are read ahead. seconds: limit of the run of a batch;
    None for no limit.
    """

    rows: int | None
    pad: Any
    padding: float
    window: int
    seconds: float | None


def check_arguments(
    model: str, items: object, batch: object, pad: object, padding: object, window: object, timeout: object
) -> MapArguments:
    """Check the arguments of `map`. model: its name, for errors. Raises `FeedError` for invalid arguments."""
    rows = None if batch is None else rows_of(model, batch, "batch")
    ahead = rows_of(model, window, "window")
    if not isinstance(padding, (int, float)) or isinstance(padding, bool) or not 0 <= padding < 1:
        raise FeedError(
            f"map: {model}: padding must be a fraction of a batch, got {padding!r:.80}",
            help="give 0 or more, and below 1",
        )
    if isinstance(items, Mapping) or not isinstance(items, Iterable):
        raise FeedError(
            f"map: {model}: items must be an iterable of items, got {type(items).__name__}",
            help="give rows: a list or a generator of arrays, of tuples of arrays, or of dicts of them",
        )
    seconds = None if timeout is None else seconds_of(f"map: {model}", timeout)
    return MapArguments(rows, pad, float(padding), ahead, seconds)


# The number of rows of a batch, chosen by measured times.

SIZES = (1, 4, 8, 16, 32, 64)
"""The candidates for the number of rows."""

_FIRST_INDEX = SIZES.index(4)
_TRIES = 2
_GAIN = 0.97
"""Another number of rows is faster if it takes at most this part of the time: less is noise."""
_LOSS = 1.15
"""Larger batches are not tried if a batch takes more than this part of the time."""
_RETRY_EVERY = 16
"""One of this many batches tries another number of rows than the best."""
_DECAY = 1.05
"""The factor by which the least time grows with each slower batch."""


@dataclass(slots=True)
class _Cost:
    """tries: number of timed batches. least: the seconds per element in the fastest of them."""

    tries: int = 0
    least: float = float("inf")


class Pace:
    """Chooses among `SIZES` by the least time per element, for rows of similar size.

    Starts with 4 and tries larger batches until they are slower; if none is faster, it tries single rows. Each size is
    timed twice and the faster time counts, with decreasing weight. From time to time it times a neighbour of the best
    size again, because the speed of a machine changes.
    """

    def __init__(self) -> None:
        self._costs: dict[tuple[int, int], _Cost] = {}
        self._turns: dict[int, int] = {}

    def rows(self, elements: int) -> int:
        """Return the number of rows of the next batch. elements: of a row."""
        kind = elements.bit_length()
        best = self._best(kind)
        if self._turns.get(kind, 0) % _RETRY_EVERY == _RETRY_EVERY - 1:
            best += 1 if self._turns[kind] // _RETRY_EVERY % 2 else -1
        return SIZES[min(max(best, 0), len(SIZES) - 1)]

    def _best(self, kind: int) -> int:
        """Return the index of the fastest number of rows, or of the next one to try."""
        best = _FIRST_INDEX
        for index in range(_FIRST_INDEX, len(SIZES)):
            cost = self._cost(kind, SIZES[index])
            if cost.tries < _TRIES:
                return index
            least = self._cost(kind, SIZES[best]).least
            if cost.least > least * _LOSS:
                break
            if cost.least < least * _GAIN:
                best = index
        if best == _FIRST_INDEX:
            alone = self._cost(kind, SIZES[0])
            if alone.tries < _TRIES or alone.least < self._cost(kind, SIZES[best]).least * _GAIN:
                return 0
        return best

    def note(self, elements: int, rows: int, seconds: float) -> None:
        """Record the time of a batch. elements: of a row."""
        kind = elements.bit_length()
        self._turns[kind] = self._turns.get(kind, 0) + 1
        if rows in SIZES:
            cost = self._cost(kind, rows)
            cost.tries += 1
            cost.least = min(cost.least * _DECAY, seconds / max(1, rows * elements))

    def _cost(self, kind: int, rows: int) -> _Cost:
        return self._costs.setdefault((kind, rows), _Cost())


# Rows of several lengths in one batch: padded along the named dims of the inputs, and cut in the outputs.


@dataclass(frozen=True, slots=True)
class Ragged:
    """How rows are padded. inputs: the dim names of a row by axis; None if rows must agree. outputs: the dims of a row.
    pad: the value that fills up rows, by input."""

    inputs: Mapping[str, tuple[str | None, ...]]
    outputs: Mapping[str, tuple[Dim, ...] | None]
    pad: Mapping[str, Array]

    def kind(self, row: Mapping[str, Array]) -> tuple[tuple[int, ...], ...]:
        """Return the sizes that must agree in all rows of a batch."""
        if not self.inputs:
            return tuple(array.shape for array in row.values())
        return tuple(
            tuple(-1 if dim_name else size for dim_name, size in zip(self.inputs[name], array.shape, strict=True))
            if name in self.inputs
            else array.shape
            for name, array in row.items()
        )

    def sizes(self, row: Mapping[str, Array]) -> dict[str, int]:
        """Return the sizes of padded dims."""
        return {
            dim_name: size
            for name, names in self.inputs.items()
            for dim_name, size in zip(names, row[name].shape, strict=True)
            if dim_name is not None
        }

    def elements(self, row: Mapping[str, Array], sizes: Mapping[str, int]) -> int:
        """Return the number of elements of a row that is padded to these sizes."""
        total = 0
        for name, array in row.items():
            names = self.inputs.get(name, (None,) * array.ndim)
            total += math.prod(sizes[c] if c else n for c, n in zip(names, array.shape, strict=True))
        return total

    def joined(self, rows: Sequence[Mapping[str, Array]], axes: Mapping[str, int]) -> dict[str, Array]:
        """Stack rows of one kind to a feed. axes: of the batch, by input."""
        feed = {}
        for name, axis in axes.items():
            arrays = [row[name] for row in rows]
            shapes = [array.shape for array in arrays]
            if all(shape == shapes[0] for shape in shapes):
                feed[name] = np.stack(arrays, axis)
                continue
            largest = tuple(map(max, *shapes))
            padded = np.full((len(rows), *largest), self.pad[name], arrays[0].dtype)
            for number, array in enumerate(arrays):
                place: tuple[Any, ...] = (number, *map(slice, array.shape))
                padded[place] = array
            feed[name] = np.ascontiguousarray(np.moveaxis(padded, 0, axis))
        return feed

    def cut(self, results: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        """Return the results of a row without the padding."""
        if not sizes:
            return [*results]
        return [
            array if dims is None else array[(*(slice(_size(dim, sizes)) for dim in dims), ...)]
            for array, dims in zip(results, self.outputs.values(), strict=True)
        ]


def _size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a dim of a row; None if it does not depend on padded dims."""
    if dim.is_dynamic or dim.is_static or not dim.parameters <= sizes.keys():
        return None
    return dim.evaluate(sizes)


def row_types(types: Mapping[str, Type], axes: Mapping[str, int], rows: Dim | None = None) -> dict[str, TensorType]:
    """Return the types of a row: the batch types without the batch axis, or with any number of `rows`."""
    row: dict[str, TensorType] = {}
    for name, type_ in types.items():
        assert isinstance(type_, TensorType)
        row[name] = type_
        if type_.shape.is_ranked:
            dims, axis = [*type_.shape], axes[name]
            dims[axis : axis + 1] = [] if rows is None else [rows]
            row[name] = TensorType(type_.dtype, dims)
    return row


def ragged(batches: Batching, inputs: Mapping[str, Type], outputs: Mapping[str, Type], pad: Any) -> Ragged:
    """Return the padding of rows. pad: a number for all inputs, or by input; None for no padding.

    Raises `FeedError` for unknown inputs, and numbers that the dtype of an input cannot hold.
    """
    if pad is None:
        return Ragged({}, dict.fromkeys(outputs), {})
    pads = pad if isinstance(pad, Mapping) else dict.fromkeys(inputs, pad)
    unknown = [name for name in pads if name not in inputs]
    if unknown:
        raise FeedError(
            f"{batches.model}: pad names {unknown[0]!r:.80}, which is not an input",
            help=f"the inputs: {', '.join(inputs)}",
        )
    values: dict[str, Array] = {}
    named: dict[str, tuple[str | None, ...]] = {}
    for name, type_ in row_types(inputs, batches.inputs).items():
        if name not in pads or not type_.shape.is_ranked:
            continue
        what = f"{batches.model}: the pad value of input {name!r}"
        value = pads[name]
        filler = value if isinstance(value, (np.ndarray, np.generic)) else converted(what, type_, value)
        if np.shape(filler) != () or np.asarray(filler).dtype != type_.dtype.numpy:
            raise FeedError(
                f"{what} must be one {type_.dtype}, got {value!r:.80}",
                help=f"give a number, or a scalar array of {type_.dtype}",
            )
        values[name] = np.asarray(filler)
        named[name] = tuple(dim.name for dim in type_.shape)
    output_axes = {name: axis for name, axis in batches.outputs.items() if name not in batches.open}
    types = row_types({name: type_ for name, type_ in outputs.items() if name in output_axes}, output_axes)
    cut = {n: tuple(types[n].shape) if n in types and types[n].shape.is_ranked else None for n in outputs}
    return Ragged(named, cut, values)
