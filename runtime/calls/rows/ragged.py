"""Rows of several lengths in one batch: padded along the named dims of the inputs, and cut again in the outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError
from graphcore.runtime.calls.batching import Batching
from graphcore.runtime.calls.conversion import converted
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type


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
