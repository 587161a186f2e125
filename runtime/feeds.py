"""What is fed to a model, checked before a kernel sees it: names, dtypes, ranks and dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from graphcore import numerics
from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import DTypeError, FeedError
from graphcore.types import TensorType

Array = np.ndarray[Any, Any]


class Feeds:
    """The inputs of one model, in order, and the check of what is given for them."""

    def __init__(self, model: str, types: Mapping[str, TensorType]) -> None:
        self.model = model
        self.types = dict(types)
        self.names = tuple(types)
        self._plain = tuple((name, t.dtype.numpy, t.rank) for name, t in types.items())
        self._dims = _dim_check(self)

    def quick(self, arrays: tuple[Any, ...]) -> dict[str, Array] | None:
        """The feed of arrays that are right as they are; None where they must be looked at one by one."""
        plain = self._plain
        if len(arrays) != len(plain):
            return None
        feed = {}
        for (name, dtype, rank), array in zip(plain, arrays):  # noqa: B905 - as many, and every nanosecond counts
            # A dtype of the other byte order, or one made anew, is another object.
            if type(array) is not np.ndarray or array.dtype is not dtype or array.ndim != rank:
                return None
            if not array.flags.c_contiguous:
                return None
            feed[name] = array
        self._dims(feed)
        return feed

    def named(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Array]:
        """The feed of what is given by position and by name. Raises `FeedError`."""
        feed = self._placed(arrays, named)
        ready = {name: self._array(name, value) for name, value in feed.items()}
        self._dims(ready)
        return ready

    def _placed(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        takes = ", ".join(f"{name} {type_}" for name, type_ in self.types.items()) or "none"
        if len(arrays) > len(self.names):
            raise FeedError(
                f"{self.model}: {len(arrays)} arrays given for {len(self.names)} inputs", help=f"the inputs: {takes}"
            )
        feed = dict(zip(self.names, arrays, strict=False))
        for name, value in named.items():
            if name not in self.types:
                raise FeedError(f"{self.model}: there is no input {name!r}", help=f"the inputs: {takes}")
            if name in feed:
                raise FeedError(f"{self.model}: input {name!r} is given twice", help="give it by position or by name")
            feed[name] = value
        missing = [name for name in self.names if name not in feed]
        if missing:
            raise FeedError(f"{self.model}: nothing is given for {', '.join(missing)}", help=f"the inputs: {takes}")
        return {name: feed[name] for name in self.names}

    def _array(self, name: str, value: Any) -> Array:
        wanted = self.types[name]
        if not isinstance(value, (np.ndarray, np.generic)):
            fix = f"give an array: np.asarray(value, {wanted.dtype.numpy.name!r})"
            raise FeedError(f"{self.model}: input {name!r} is a {type(value).__name__}, no array", help=fix)
        array = numerics.native(np.asarray(value))
        if array.dtype != wanted.dtype.numpy and not _is_text(array, wanted.dtype):
            self._fail(name, array, f"input {name!r} is {wanted.dtype}", "cast it: array.astype(...)")
        if array.ndim != wanted.rank:
            self._fail(name, array, f"input {name!r} has rank {wanted.rank}", "reshape it, or add the axes it lacks")
        return array.astype(object) if array.dtype.kind in "UT" else array

    def _fail(self, name: str, array: Array, reason: str, fix: str) -> NoReturn:
        try:
            given = f"{DType.of(array.dtype)}{list(array.shape)}"
        except DTypeError:
            given = f"{array.dtype}{list(array.shape)}"
        raise FeedError(
            f"{self.model}: {reason}, and {given} is given",
            operands={"takes": str(self.types[name]), "given": given},
            help=fix,
        )


def _is_text(array: Array, dtype: DType) -> bool:
    return dtype is DType.string and array.dtype.kind in "UTO"


def _dim_check(feeds: Feeds) -> Callable[[Mapping[str, Array]], None]:
    """The check of sizes: static dims, and that a name means one size everywhere."""
    places: list[tuple[str, int, Dim]] = [
        (name, axis, dim)
        for name, type_ in feeds.types.items()
        for axis, dim in enumerate(type_.shape)
        if not dim.is_dynamic
    ]
    static = [(name, axis, int(dim)) for name, axis, dim in places if dim.is_static]
    first: dict[str, tuple[str, int]] = {}
    repeated: list[tuple[str, int, str]] = []
    derived: list[tuple[str, int, Dim]] = []
    for name, axis, dim in places:
        if dim.name is not None and dim.name in first:
            repeated.append((name, axis, dim.name))
        elif dim.name is not None:
            first[dim.name] = (name, axis)
        elif dim.is_symbolic:
            derived.append((name, axis, dim))

    def check(feed: Mapping[str, Array]) -> None:
        for name, axis, size in static:
            if feed[name].shape[axis] != size:
                _wrong(feeds, feed, name, axis, f"{size}")
        for name, axis, called in repeated:
            other, place = first[called]
            if feed[name].shape[axis] != feed[other].shape[place]:
                size = feed[other].shape[place]
                _wrong(feeds, feed, name, axis, f"{called}, which is {size} in input {other!r}")
        for name, axis, dim in derived:
            if dim.parameters <= first.keys():
                sizes = {called: feed[other].shape[place] for called, (other, place) in first.items()}
                if dim.evaluate(sizes) != feed[name].shape[axis]:
                    _wrong(feeds, feed, name, axis, f"{dim} = {dim.evaluate(sizes)}")

    return check


def _wrong(feeds: Feeds, feed: Mapping[str, Array], name: str, axis: int, expected: str) -> NoReturn:
    array = feed[name]
    feeds._fail(
        name,
        array,
        f"axis {axis} of input {name!r} is {expected}",
        f"give an array whose axis {axis} has that size, not {array.shape[axis]}",
    )
