"""What is fed to a model, checked before a kernel sees it: names, dtypes, ranks and dims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from graphcore import numerics
from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import DTypeError, FeedError
from graphcore.numerics import Array
from graphcore.types import TensorType


class Feeds:
    """The inputs of one model, in order, and the check of what is given for them.

    any_rank: inputs of which a file does not say the rank; the runtime is left to judge them.
    """

    def __init__(self, model: str, types: Mapping[str, TensorType], any_rank: Collection[str] = ()) -> None:
        self.model = model
        self.types = dict(types)
        self.names = tuple(types)
        self._any_rank = frozenset(any_rank)
        self._dims = _dim_check(self)
        self._has_text = any(t.dtype is DType.string for t in types.values())
        self._accepted: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...] | None = None

    def take(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Array]:
        """The feed of what is given by position and by name, in the inputs' order. Raises `FeedError`.

        Arrays like those accepted the last time, as most are, need no more than a look at each.
        """
        given = arrays if not named and len(arrays) == len(self.names) else self._in_order(arrays, named)
        accepted = self._accepted
        if accepted is None:
            return self._checked(given)
        feed = {}
        for (name, dtype, shape), array in zip(accepted, given, strict=True):
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return self._checked(given)
            if not ((flags := array.flags).carray or (flags.c_contiguous and flags.aligned)):
                return self._checked(given)
            feed[name] = array
        return feed

    def _checked(self, given: Sequence[Any]) -> dict[str, Array]:
        feed = {name: self._array(name, value) for name, value in zip(self.names, given, strict=True)}
        self._dims(feed)
        if not self._has_text:  # of which each element is looked at, every time
            self._accepted = tuple((name, array.dtype, array.shape) for name, array in feed.items())
        return feed

    def _in_order(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        if not arrays and named.keys() == self.types.keys():
            return [named[name] for name in self.names]
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
        return [feed[name] for name in self.names]

    def _array(self, name: str, value: Any) -> Array:
        wanted = self.types[name]
        if not isinstance(value, (np.ndarray, np.generic)):
            fix = f"give an array: np.asarray(value, {wanted.dtype.numpy.name!r})"
            raise FeedError(f"{self.model}: input {name!r} is a {type(value).__name__}, no array", help=fix)
        if isinstance(value, np.ma.MaskedArray):
            raise FeedError(
                f"{self.model}: input {name!r} is a masked array, and a model knows no masks",
                help="fill what is masked: array.filled(0)",
            )
        array = np.asarray(value)
        if wanted.dtype is DType.string:
            array = self._text(name, array)
        elif array.dtype.newbyteorder("=") != wanted.dtype.numpy:
            fix = f"cast it: array.astype({wanted.dtype.numpy.name!r})"
            self._fail(name, array, f"input {name!r} is {wanted.dtype}", fix)
        if array.ndim != wanted.rank and name not in self._any_rank:
            self._fail(name, array, f"input {name!r} has rank {wanted.rank}", "reshape it, or add the axes it lacks")
        array = numerics.native(array)
        return array if array.flags.aligned else array.copy()

    def _text(self, name: str, array: Array) -> Array:
        """Strings as the objects that onnxruntime reads. It would take any object, and print it."""
        if array.dtype.kind in "UT":
            return array.astype(object)
        if array.dtype.kind != "O":
            fix = "decode it: np.char.decode(array)" if array.dtype.kind == "S" else "convert it: array.astype(str)"
            self._fail(name, array, f"input {name!r} is string", fix)
        for item in array.flat:
            if not isinstance(item, str):
                raise FeedError(
                    f"{self.model}: input {name!r} is string, and holds {item!r:.40}, a {type(item).__name__}",
                    help="give an array of str only",
                )
        return array

    def _fail(self, name: str, array: Array, reason: str, fix: str) -> NoReturn:
        given = f"{_dtype_name(array)}{list(array.shape)}"
        raise FeedError(
            f"{self.model}: {reason}, and {given} is given",
            operands={"takes": str(self.types[name]), "given": given},
            help=fix,
        )


def _dtype_name(array: Array) -> str:
    if array.dtype.kind == "S":
        return "bytes"
    try:
        return DType.of(array.dtype).name
    except DTypeError:
        return str(array.dtype)


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
    derived = [(name, axis, dim) for name, axis, dim in derived if dim.parameters <= first.keys()]

    def check(feed: Mapping[str, Array]) -> None:
        for name, axis, size in static:
            if feed[name].shape[axis] != size:
                _wrong(feeds, feed, name, axis, f"{size}")
        for name, axis, called in repeated:
            other, place = first[called]
            size = feed[other].shape[place]
            if feed[name].shape[axis] != size:
                _wrong(feeds, feed, name, axis, f"{called}, which is {size} in input {other!r}")
        if not derived:
            return
        sizes = {called: feed[other].shape[place] for called, (other, place) in first.items()}
        for name, axis, dim in derived:
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
