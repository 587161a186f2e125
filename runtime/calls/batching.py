"""The batch dim of a Model: its axis in inputs and outputs, and joining and splitting arrays along it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, GraphError, ModelError, RunError
from graphcore.runtime.calls.feeds import summary
from graphcore.runtime.stopping.limit import Limit, current, is_count
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


_PROBE_SIZES = 2, 3
"""The numbers of rows of two runs that show which axis of an output is the batch's."""

_TOLERANCE = 1e-3
"""Floats of a row may differ by this part of the largest one: kernels sum in another order in batches of other
sizes."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The axes of the batch in a model.

    inputs, outputs: the axis by name. size: the rows of a batch; None for any number. open: outputs whose type does not
    show the axis: `settled` finds it.
    """

    model: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    size: int | None
    open: Mapping[str, Type] = field(default_factory=dict)

    def settled(self, call: Callable[..., Sequence[Any]], feed: Mapping[str, Array]) -> Batching:
        """Return the batching with the axes of open outputs, found by running a row of a feed 2 and 3 times.

        Raises `ModelError` for an output without one row for each row, and errors of running.
        """
        if not self.open:
            return self
        row = self.part(feed, 0, 1)
        two, three = (
            dict(zip(self.outputs, call(*self.joined([row] * count).values()), strict=True)) for count in _PROBE_SIZES
        )
        axes = {name: self._find_axis(name, two[name], three[name]) for name in self.open}
        return replace(self, outputs={**self.outputs, **axes}, open={})

    def _find_axis(self, name: str, two: Array, three: Array) -> int:
        axes = [i for i, sizes in enumerate(zip(two.shape, three.shape, strict=False)) if sizes == _PROBE_SIZES]
        shapes = f"{list(two.shape)} for 2 rows and {list(three.shape)} for 3"
        if two.ndim != three.ndim or len(axes) != 1:
            what = "has the batch dim in more than one axis" if axes else "does not have the batch dim"
            raise ModelError(
                f"batches: {self.model}: output {name!r} {what}: its shape is {shapes}",
                help="only models that return a row for each row can run in batches; if an axis does have the rows, "
                f"name it: Batcher(model, dim={{{name!r}: 0}})",
            )
        (axis,) = axes
        if not _is_alike(two, np.take(three, range(_PROBE_SIZES[0]), axis)):
            raise ModelError(
                f"batches: {self.model}: output {name!r} has other values for a row in a batch of 3 than in one of 2",
                help="only models whose rows do not depend on each other can run in batches",
            )
        return axis

    def rows(self, feed: Mapping[str, Array]) -> int:
        """Return the number of rows of a feed. Raises `FeedError` if it differs between inputs."""
        for name, axis in self.inputs.items():
            if axis >= feed[name].ndim:
                raise FeedError(
                    f"{self.model}: input {name!r} is {summary(feed[name])}, which has no axis of rows",
                    help="give an array with the rows along its first axis",
                )
        counts = {name: feed[name].shape[axis] for name, axis in self.inputs.items()}
        first: int = next(iter(counts.values()))
        for name, count in counts.items():
            if count != first:
                raise FeedError(
                    f"{self.model}: input {name!r} has {count} rows, and input {next(iter(counts))!r} has {first}",
                    help="give the same number of rows for each input",
                )
        return first

    def part(self, feed: Mapping[str, Array], first: int, end: int) -> dict[str, Array]:
        """Return some rows of a feed."""
        return {name: feed[name][(slice(None),) * axis + (slice(first, end),)] for name, axis in self.inputs.items()}

    def joined(self, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Concatenate the rows of several feeds."""
        if len(feeds) == 1:
            return dict(feeds[0])
        return {name: np.concatenate([feed[name] for feed in feeds], axis) for name, axis in self.inputs.items()}

    def padded(self, feed: Mapping[str, Array], rows: int) -> dict[str, Array]:
        """Repeat the last row of a feed, whose values are valid, up to the size of a batch."""
        if self.size is None or rows >= self.size:
            return dict(feed)
        last = {
            name: np.repeat(a, self.size - rows, self.inputs[name])
            for name, a in self.part(feed, rows - 1, rows).items()
        }
        return self.joined([feed, last])

    def together(self, results: Sequence[Sequence[Array]]) -> list[Array]:
        """Concatenate the results of several runs."""
        axes = self.outputs.values()
        return [np.concatenate(arrays, axis) for arrays, axis in zip(zip(*results, strict=True), axes, strict=True)]

    def apart(self, results: Sequence[Array], counts: Sequence[int]) -> list[list[Array]]:
        """Split the results of one run into copies for each share of its rows."""
        shares: list[list[Array]] = [[] for _ in counts]
        for array, axis in zip(results, self.outputs.values(), strict=True):
            first = 0
            for share, count in zip(shares, counts, strict=True):
                share.append(array[(slice(None),) * axis + (slice(first, first + count),)].copy())
                first += count
        return shares

    def run(
        self, call: Callable[..., Sequence[Any]], feed: Mapping[str, Array], counts: Sequence[int]
    ) -> list[list[Array]]:
        """Run a feed and return the results of each share of its rows, as copies. counts: the rows of each share.

        Raises as `check` does, and errors of running.
        """
        rows = sum(counts)
        results = call(*self.padded(feed, rows).values())
        self.check(results, max(rows, self.size or 0))
        return self.apart(results, counts)

    def check(self, results: Sequence[Array], rows: int) -> None:
        """Raise `RunError` if an output has another number of rows than the feed, which its type may not show."""
        for (name, axis), array in zip(self.outputs.items(), results, strict=True):
            if axis >= array.ndim or array.shape[axis] != rows:
                raise RunError(
                    f"{self.model}: output {name!r} of a batch of {rows} rows has the shape {list(array.shape)}",
                    help="only models that return a row for each row can run in batches",
                )


def batching(
    model: str,
    inputs: Mapping[str, Type],
    outputs: Mapping[str, Type],
    dim: str | Mapping[str, int] | None = None,
) -> Batching:
    """Return the axes of the batch.

    dim: the name of the batch dim, or its axes by inputs and outputs. The default is the first dim of the first input,
    in any axis of the others. An output with only dims of other names is open. Raises `ModelError` if an input or
    output has no such dim or is not a tensor, and `GraphError` for axes of unknown inputs and outputs.
    """
    for name, type_ in (*inputs.items(), *outputs.items()):
        if not isinstance(type_, TensorType):
            _fail(model, f"{name} is {type_}, which cannot be batched", inputs, outputs)
    if not inputs or not outputs:
        _fail(model, "only models with inputs and outputs can run in batches", inputs, outputs)
    dim_axes = {} if dim is None or isinstance(dim, str) else _check_dim(model, dim, {**inputs, **outputs})
    size: int | None = None
    chosen = dim if isinstance(dim, str) else None
    if chosen is None:
        name, first = next(iter(inputs.items()))
        assert isinstance(first, TensorType)
        if first.shape.is_ranked and not first.rank:
            _fail(model, f"input {name!r} has no axes, so it has no batch dim", inputs, outputs)
        leading = first.shape[dim_axes.get(name, 0)] if first.shape.is_ranked else Dim.dynamic()
        chosen = leading.name
        size = int(leading) if leading.is_static else None
    axes: list[dict[str, int]] = []
    unknown: dict[str, Type] = {}
    for kind, types in (("input", inputs), ("output", outputs)):
        axes.append({})
        for name, type_ in types.items():
            assert isinstance(type_, TensorType)
            is_given = name in dim_axes
            axis = _checked(type_, dim_axes[name], size) if is_given else _axis(type_, chosen, size)
            may_be_found = kind == "output" and size is None and not is_given
            if axis is None and may_be_found and _may_carry_batch(type_, chosen):
                unknown[name] = type_
                axis = 0
            if axis is None:
                what = repr(chosen) if chosen else f"of {size} rows" if size is not None else "as its first axis"
                _fail(model, f"{kind} {name!r} does not have the batch dim {what} in one axis", inputs, outputs)
            axes[-1][name] = axis
    if size is not None and size < 1:
        _fail(model, "the batch dim is 0, so a batch has no rows", inputs, outputs)
    return Batching(model, axes[0], axes[1], size, unknown)


def _check_dim(model: str, dim: object, types: Mapping[str, Type]) -> dict[str, int]:
    """Return the user's axes, counted from the front."""
    if not isinstance(dim, Mapping):
        raise GraphError(
            f"batches: {model}: dim={dim!r:.80} is not a dim",
            help='give its name, dim="batch", or axes by inputs and outputs, dim={"logits": 0}',
        )
    axes: dict[str, int] = {}
    for name, axis in dim.items():
        type_ = types.get(name)
        if not isinstance(type_, TensorType):
            raise GraphError(
                f"batches: {model}: dim names {name!r:.80}, which is not a tensor input or output",
                help=f"its inputs and outputs: {', '.join(types)}",
            )
        rank = type_.rank if type_.shape.is_ranked else None
        is_axis = isinstance(axis, (int, np.integer)) and not isinstance(axis, bool)
        if not is_axis or axis < -(rank or 0) or (rank is not None and axis >= rank):
            raise GraphError(
                f"batches: {model}: dim names axis {axis!r:.40} of {name!r}, which does not exist in {type_}",
                help="give the axis of the rows, such as 0",
            )
        axes[name] = int(axis) % rank if rank else int(axis)
    return axes


def _checked(type_: TensorType, axis: int, size: int | None) -> int | None:
    """Return the user's axis; None if it has another number of rows than the batch."""
    dim = type_.shape[axis] if type_.shape.is_ranked else Dim.dynamic()
    return None if dim.is_static and int(dim) != size else axis


def _may_carry_batch(type_: TensorType, name: str | None) -> bool:
    """Return True if a type has no dim of the batch, but one whose size is only known at run time."""
    dims = tuple(type_.shape)
    return any(not dim.is_static for dim in dims) and not any(name in dim.parameters for dim in dims)


def _is_alike(a: Array, b: Array) -> bool:
    """Return True if arrays of a shape are equal, floats within the tolerance."""
    if a.dtype.kind not in "fcV":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    one, other = a.astype(wide), b.astype(wide)
    largest = np.abs(one, where=np.isfinite(one), out=np.zeros(one.shape)).max(initial=0)
    return bool(np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * largest, equal_nan=True))


def _axis(type_: TensorType, name: str | None, size: int | None) -> int | None:
    """Return the axis of the batch in a type; None if it has none, or more than one."""
    if not type_.shape.is_ranked:
        return 0
    dims = tuple(type_.shape)
    if name is None:
        fits = dims and (dims[0].is_dynamic or (dims[0].is_static and int(dims[0]) == size))
        return 0 if fits else None
    axes = [axis for axis, dim in enumerate(dims) if dim.name == name]
    others = [dim for dim in dims if dim.name != name and name in dim.parameters]
    if len(axes) == 1 and not others:
        return axes[0]
    return 0 if not axes and not others and dims and dims[0].is_dynamic else None


def _fail(model: str, reason: str, inputs: Mapping[str, Type], outputs: Mapping[str, Type]) -> NoReturn:
    raise ModelError(
        f"batches: {model}: {reason}",
        operands={name: str(type_) for name, type_ in (*inputs.items(), *outputs.items())},
        help='name the batch dim in every input and output: TensorType("float32", ["batch", 64]), or give its axis: '
        'Batcher(model, dim={"x": 0})',
    )


# Calls of a Model in threads: asynchronous calls, and large batches in pieces.


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pool_of(name: str, in_order: bool) -> ThreadPoolExecutor:
    """Return a thread pool for the calls of one Model. in_order: one thread, so that calls run in order."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1 if in_order else max(2, processors()), f"graphcore {name}", _mark_worker)


_local = threading.local()


def _mark_worker() -> None:
    _local.works = True


def rows_of(name: str, rows: object, what: str = "micro_batch") -> int:
    """Return a number of rows. what: its name in errors. Raises `FeedError` for an invalid number."""
    if not is_count(rows):
        raise FeedError(
            f"{name}: {what} must be an integer of at least 1, got {rows!r:.80}", help="give 1 or more rows"
        )
    return int(rows)


def in_pieces(
    call: Callable[..., list[Any]],
    batches: Batching,
    rows: int,
    feed: Mapping[str, Array],
    pool: Callable[[], ThreadPoolExecutor] | None,
) -> list[Any]:
    """Run a checked feed in pieces of `rows` rows and return the results, see `Model.execute`.

    call: runs a piece. pool: threads that run pieces in parallel; None for a session with its own threads, which one
    piece keeps busy.
    """
    if batches.size is not None:
        raise ModelError(
            f"{batches.model}: micro_batch={rows} splits a batch, and the model takes exactly {batches.size} rows",
            help='give the first dim of the inputs a name, such as "batch", instead of a size',
        )
    total = batches.rows(feed)
    if total <= rows:
        return call(*feed.values())
    pieces = [(start, min(start + rows, total)) for start in range(0, total, rows)]

    limit = current() or Limit(batches.model)

    def run(piece: tuple[int, int]) -> list[Array]:
        with limit:
            results = call(*batches.part(feed, *piece).values())
        batches.check(results, piece[1] - piece[0])
        return results

    # A thread of the pool, which may run a user's callback, must not wait for another one: all could wait.
    if pool is None or processors() == 1 or getattr(_local, "works", False):
        return batches.together([*map(run, pieces)])
    try:
        return batches.together([*pool().map(run, pieces)])
    except BaseException:
        limit.cancel()  # stop the runs of other threads
        raise
