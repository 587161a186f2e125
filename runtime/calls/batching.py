"""The batch dim of a Model: where it lies in inputs and outputs, and putting arrays together and apart along it."""

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
from graphcore.runtime.stopping.limit import Limit, current
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


_SIZES = 2, 3
"""The rows of the two runs that tell which axis of an output is the batch's."""

_CLOSE = 1e-3
"""The part of the largest float by which those of a row may differ, as kernels sum in another order in batches of
another size."""


@dataclass(frozen=True, slots=True)
class Batching:
    """inputs, outputs: the axis of the batch, by name. size: how many rows a batch has, None where any number. open:
    the outputs whose axis their type does not tell: `settled` finds it."""

    model: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    size: int | None
    open: Mapping[str, Type] = field(default_factory=dict)

    def settled(self, call: Callable[..., Sequence[Any]], feed: Mapping[str, Array]) -> Batching:
        """Return the axes with those of the open outputs, found by running two sizes: a row of a feed 2 and 3 times.

        Raises `ModelError` for an output that has no row for each, and what running raises.
        """
        if not self.open:
            return self
        row = self.part(feed, 0, 1)
        two, three = (
            dict(zip(self.outputs, call(*self.joined([row] * count).values()), strict=True)) for count in _SIZES
        )
        found = {name: self._found(name, two[name], three[name]) for name in self.open}
        return replace(self, outputs={**self.outputs, **found}, open={})

    def _found(self, name: str, two: Array, three: Array) -> int:
        axes = [i for i, sizes in enumerate(zip(two.shape, three.shape, strict=False)) if sizes == _SIZES]
        shapes = f"{list(two.shape)} of 2 rows and {list(three.shape)} of 3"
        if two.ndim != three.ndim or len(axes) != 1:
            what = "is the batch dim in more than one axis" if axes else "does not carry the batch dim"
            raise ModelError(
                f"batches: {self.model}: output {name!r} {what}: its shape is {shapes}",
                help="only models that give a row for each row can be run in batches; where an axis holds the rows all "
                f"the same, say which: Batcher(model, dim={{{name!r}: 0}})",
            )
        (axis,) = axes
        if not _is_alike(two, np.take(three, range(_SIZES[0]), axis)):
            raise ModelError(
                f"batches: {self.model}: output {name!r} has other values for a row in a batch of 3 than in one of 2",
                help="only models whose rows do not depend on each other can be run in batches",
            )
        return axis

    def rows(self, feed: Mapping[str, Array]) -> int:
        """Return how many rows a feed has. Raises `FeedError` where that is not one number in all inputs."""
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
                    help="give as many rows for each input",
                )
        return first

    def part(self, feed: Mapping[str, Array], first: int, end: int) -> dict[str, Array]:
        """Return some rows of a feed."""
        return {name: feed[name][(slice(None),) * axis + (slice(first, end),)] for name, axis in self.inputs.items()}

    def joined(self, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return one feed of several, their rows one after another."""
        if len(feeds) == 1:
            return dict(feeds[0])
        return {name: np.concatenate([feed[name] for feed in feeds], axis) for name, axis in self.inputs.items()}

    def padded(self, feed: Mapping[str, Array], rows: int) -> dict[str, Array]:
        """Return a feed with its last row again and again, up to the rows that a batch has: values that the model
        takes."""
        if self.size is None or rows >= self.size:
            return dict(feed)
        last = {
            name: np.repeat(a, self.size - rows, self.inputs[name])
            for name, a in self.part(feed, rows - 1, rows).items()
        }
        return self.joined([feed, last])

    def together(self, results: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the results of several runs as one run would give them."""
        axes = self.outputs.values()
        return [np.concatenate(arrays, axis) for arrays, axis in zip(zip(*results, strict=True), axes, strict=True)]

    def apart(self, results: Sequence[Array], counts: Sequence[int]) -> list[list[Array]]:
        """Return the results of one run for each of those whose rows it had, as arrays of their own."""
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
        """Return what each share of the rows of a feed gave, in arrays of its own. counts: the rows of each.

        Raises what `check` does, and what running raises.
        """
        rows = sum(counts)
        results = call(*self.padded(feed, rows).values())
        self.check(results, max(rows, self.size or 0))
        return self.apart(results, counts)

    def check(self, results: Sequence[Array], rows: int) -> None:
        """Raise `RunError` where an output does not have the rows that went in: its type may not tell."""
        for (name, axis), array in zip(self.outputs.items(), results, strict=True):
            if axis >= array.ndim or array.shape[axis] != rows:
                raise RunError(
                    f"{self.model}: output {name!r} of a batch of {rows} rows has the shape {list(array.shape)}",
                    help="only models that give a row for each row can be run in batches",
                )


def batching(
    model: str,
    inputs: Mapping[str, Type],
    outputs: Mapping[str, Type],
    dim: str | Mapping[str, int] | None = None,
) -> Batching:
    """Return where the batch lies. dim: its name, or its axes by the names of inputs and outputs; by default the first
    dim of the first input, in any axis of the others.

    An output that has dims of other names alone is open. Raises `ModelError` where an input or an output has no such
    dim, or is no tensor, and `GraphError` for axes of what there is not.
    """
    for name, type_ in (*inputs.items(), *outputs.items()):
        if not isinstance(type_, TensorType):
            _fail(model, f"{name} is {type_}, of which no batch can be made", inputs, outputs)
    if not inputs or not outputs:
        _fail(model, "there is nothing to batch without inputs", inputs, outputs)
    given = {} if dim is None or isinstance(dim, str) else _given(model, dim, {**inputs, **outputs})
    size: int | None = None
    chosen = dim if isinstance(dim, str) else None
    if chosen is None:
        name, first = next(iter(inputs.items()))
        assert isinstance(first, TensorType)
        if first.shape.is_ranked and not first.rank:
            _fail(model, f"input {name!r} has no axes", inputs, outputs)
        leading = first.shape[given.get(name, 0)] if first.shape.is_ranked else Dim.dynamic()
        chosen = leading.name
        size = int(leading) if leading.is_static else None
    found: list[dict[str, int]] = []
    unknown: dict[str, Type] = {}
    for kind, types in (("input", inputs), ("output", outputs)):
        found.append({})
        for name, type_ in types.items():
            assert isinstance(type_, TensorType)
            is_given = name in given
            axis = _checked(type_, given[name], size) if is_given else _axis(type_, chosen, size)
            may_be_found = kind == "output" and size is None and not is_given
            if axis is None and may_be_found and _is_named_otherwise(type_, chosen):
                unknown[name] = type_
                axis = 0
            if axis is None:
                what = repr(chosen) if chosen else f"of {size} rows" if size is not None else "as its first axis"
                _fail(model, f"{kind} {name!r} does not carry the batch dim {what} in one axis", inputs, outputs)
            found[-1][name] = axis
    if size is not None and size < 1:
        _fail(model, "a batch has no rows", inputs, outputs)
    return Batching(model, found[0], found[1], size, unknown)


def _given(model: str, dim: object, types: Mapping[str, Type]) -> dict[str, int]:
    """Return the axes that the user gives, counted from the front."""
    if not isinstance(dim, Mapping):
        raise GraphError(
            f"batches: {model}: dim={dim!r:.80} is no dim",
            help='give its name, dim="batch", or axes by inputs and outputs, dim={"logits": 0}',
        )
    made: dict[str, int] = {}
    for name, axis in dim.items():
        type_ = types.get(name)
        if not isinstance(type_, TensorType):
            raise GraphError(
                f"batches: {model}: dim names {name!r:.80}, and there is no such input or output",
                help=f"its inputs and outputs: {', '.join(types)}",
            )
        rank = type_.rank if type_.shape.is_ranked else None
        is_axis = isinstance(axis, (int, np.integer)) and not isinstance(axis, bool)
        if not is_axis or axis < -(rank or 0) or (rank is not None and axis >= rank):
            raise GraphError(
                f"batches: {model}: dim says axis {axis!r:.40} of {name!r}, which is {type_}",
                help="give the axis that the rows lie along",
            )
        made[name] = int(axis) % rank if rank else int(axis)
    return made


def _checked(type_: TensorType, axis: int, size: int | None) -> int | None:
    """Return an axis that the user gives; None where it has another number of rows than the batch."""
    dim = type_.shape[axis] if type_.shape.is_ranked else Dim.dynamic()
    return None if dim.is_static and int(dim) != size else axis


def _is_named_otherwise(type_: TensorType, name: str | None) -> bool:
    """Return True if a type has no dim that says the batch, and one whose size only a run tells."""
    dims = tuple(type_.shape)
    return any(not dim.is_static for dim in dims) and not any(name in dim.parameters for dim in dims)


def _is_alike(a: Array, b: Array) -> bool:
    """Return True if arrays of a shape are the same, floats nearly."""
    if a.dtype.kind not in "fcV":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    one, other = a.astype(wide), b.astype(wide)
    largest = np.abs(one, where=np.isfinite(one), out=np.zeros(one.shape)).max(initial=0)
    return bool(np.allclose(one, other, rtol=_CLOSE, atol=_CLOSE * largest, equal_nan=True))


def _axis(type_: TensorType, name: str | None, size: int | None) -> int | None:
    """Return the axis of the batch in a type; None where it has none, or more than one."""
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
        help='name the batch dim in every input and output: TensorType("float32", ["batch", 64]), or say which axis it '
        'is: Batcher(model, dim={"x": 0})',
    )


# Calls of a Model in threads: some time later, and of large batches in pieces.


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pool_of(name: str, in_order: bool) -> ThreadPoolExecutor:
    """Return threads for the calls of one Model. in_order: a single one, which makes calls in the order of asking."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1 if in_order else max(2, processors()), f"graphcore {name}", _begin)


_local = threading.local()


def _begin() -> None:
    _local.works = True


def rows_of(name: str, rows: object, what: str = "micro_batch") -> int:
    """Return a number of rows. what: how errors call it. Raises `FeedError` for what is none."""
    if not isinstance(rows, (int, np.integer)) or isinstance(rows, bool) or rows < 1:
        raise FeedError(f"{name}: {what}={rows!r:.80} is no number of rows", help="give 1 or more")
    return int(rows)


def in_pieces(
    call: Callable[..., list[Any]],
    batches: Batching,
    rows: int,
    feed: Mapping[str, Array],
    pool: Callable[[], ThreadPoolExecutor] | None,
) -> list[Any]:
    """Return the results of a feed that was checked, run in pieces of so many rows, see `Model.execute`.

    call: runs a piece. pool: threads to run pieces in side by side; None for a session with threads of its own, which
    is busy with one piece.
    """
    if batches.size is not None:
        raise ModelError(
            f"{batches.model}: micro_batch={rows}: the model takes {batches.size} rows and no other number",
            help="make the first dim of the inputs a name",
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

    # A thread of a pool, which a callback of the user's may be in, waits for no other one: all might.
    if pool is None or processors() == 1 or getattr(_local, "works", False):
        return batches.together([*map(run, pieces)])
    try:
        return batches.together([*pool().map(run, pieces)])
    except BaseException:
        limit.cancel()  # what other threads run yet
        raise
