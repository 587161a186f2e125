"""The batch dim of a Model: where it lies in inputs and outputs, and putting arrays together and apart along it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.runtime.calls.feeds import summary
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type


@dataclass(frozen=True, slots=True)
class Batching:
    """inputs, outputs: the axis of the batch, by name. size: how many rows a batch has, None where any number."""

    model: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    size: int | None

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

    def check(self, results: Sequence[Array], rows: int) -> None:
        """Raise `RunError` where an output does not have the rows that went in: its type may not tell."""
        for (name, axis), array in zip(self.outputs.items(), results, strict=True):
            if axis >= array.ndim or array.shape[axis] != rows:
                raise RunError(
                    f"{self.model}: output {name!r} of a batch of {rows} rows has the shape {list(array.shape)}",
                    help="only models that give a row for each row can be run in batches",
                )


def batching(model: str, inputs: Mapping[str, Type], outputs: Mapping[str, Type], dim: str | None = None) -> Batching:
    """Return where the batch lies. dim: its name; by default the first dim of the first input, in any axis of the
    others.

    Raises `ModelError` where an input or an output has no such dim, or is no tensor.
    """
    for name, type_ in (*inputs.items(), *outputs.items()):
        if not isinstance(type_, TensorType):
            _fail(model, f"{name} is {type_}, of which no batch can be made", inputs, outputs)
    if not inputs or not outputs:
        _fail(model, "there is nothing to batch without inputs", inputs, outputs)
    size: int | None = None
    chosen = dim
    if chosen is None:
        first = next(iter(inputs.values()))
        assert isinstance(first, TensorType)
        if first.shape.is_ranked and not first.rank:
            _fail(model, f"input {next(iter(inputs))!r} has no axes", inputs, outputs)
        leading = first.shape[0] if first.shape.is_ranked else Dim.dynamic()
        chosen = leading.name
        size = int(leading) if leading.is_static else None
    found: list[dict[str, int]] = []
    for kind, types in (("input", inputs), ("output", outputs)):
        found.append({})
        for name, type_ in types.items():
            assert isinstance(type_, TensorType)
            axis = _axis(type_, chosen, size)
            if axis is None:
                what = repr(chosen) if chosen else f"of {size} rows" if size is not None else "as its first axis"
                _fail(model, f"{kind} {name!r} does not carry the batch dim {what} in one axis", inputs, outputs)
            found[-1][name] = axis
    if size is not None and size < 1:
        _fail(model, "a batch has no rows", inputs, outputs)
    return Batching(model, found[0], found[1], size)


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
        help='name the batch dim in every input and output: TensorType("float32", ["batch", 64])',
    )


__all__ = ["Batching", "batching"]
