"""Feeds that are no NumPy arrays, as arrays: numbers and lists of them, DLPack tensors, objects with `__array__`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from graphcore.arrays import casting
from graphcore.arrays.casting import Array
from graphcore.errors import DTypeError, FeedError
from graphcore.ir.literals import array_of, held_as, holds_numpy
from graphcore.ir.symbol import Symbol
from graphcore.support.escaping import suggestion
from graphcore.types.dtypes import DType, is_carried, is_wide
from graphcore.types.tensor_types import ForeignType, SequenceType, TensorType, Type


def converted(what: str, wanted: TensorType, value: Any) -> Array:
    """Return a feed as an array, whose dtype and shape are still to be checked.

    Python numbers, text and nested lists of them become arrays of the wanted dtype, if that holds them as it would hold
    a constant: ints exactly, floats rounded. What has `__dlpack__`, as tensors of PyTorch and JAX arrays have, is read
    where it lies, and what NumPy knows no DLPack type for through `__array__`, as everything else that has that. They
    keep their dtype. what: how errors call it. Raises `FeedError`.
    """
    if isinstance(value, (bool, int, float, str, list, tuple)):
        return _of_numbers(what, wanted, value)
    kind = type(value)
    if isinstance(value, Symbol):
        raise FeedError(
            f"{what} is a Symbol, which has no value",
            operands={"given": value},
            help="give an array; to use a model inside of a graph, build its graph from the Symbol",
        )
    if hasattr(kind, "__dlpack__") or hasattr(kind, "__array__"):
        return _of_other(what, value)
    raise FeedError(f"{what} is a {kind.__name__}, no array", help=_make_array(wanted))


def _of_numbers(what: str, wanted: TensorType, value: Any) -> Array:
    if any(casting.is_masked(item) for item in _items(value)):
        raise FeedError(f"{what} has a masked array in it, and a model knows no masks", help="fill it: array.filled(0)")
    dtype = wanted.dtype
    if is_wide(dtype):
        return _objects(what, wanted, value)
    try:
        array, own = array_of(value, dtype)
    except DTypeError:
        raise _no_array(what, wanted, value) from None
    if own is dtype or (holds_numpy(value) and array.size):
        return array
    try:
        return held_as(array, own, dtype, what)
    except DTypeError as refusal:
        if DType.string in (own, dtype):
            fix = _make_array(wanted)
            raise FeedError(f"{what} is {dtype}, and a {type(value).__name__} of {own} is given", help=fix) from None
        raise FeedError(
            f"{refusal.summary}, the dtype of the input",
            help=f"give numbers that {dtype} holds, or an array that is cast",
        ) from None


def _objects(what: str, wanted: TensorType, value: Any) -> Array:
    """Return Python integers of any size as an array of them, which is checked against the dtype later."""
    try:
        return np.array(value, object)
    except ValueError:  # of lists of different lengths
        raise _no_array(what, wanted, value) from None


def _items(value: Any, depth: int = 64) -> Iterator[Any]:
    """Yield the members of nested lists, down to the depth of NumPy's arrays."""
    if isinstance(value, (list, tuple)) and depth:
        for member in value:
            yield member
            yield from _items(member, depth - 1)


def _of_other(what: str, value: Any) -> Array:
    """Return what another library calls an array."""
    refusals: list[str] = []
    for convert in (np.from_dlpack, np.asarray):
        if not hasattr(type(value), "__dlpack__" if convert is np.from_dlpack else "__array__"):
            continue
        try:
            return convert(value)
        except Exception as error:  # each library has its own reasons: another device, gradients, a dtype
            refusals.append(f"{type(error).__name__}: {error}".partition("\n")[0])
    raise FeedError(
        f"{what} is a {type(value).__name__} that gives no array: {refusals[-1]}",
        help="give an array in the CPU's memory: tensor.detach().cpu().numpy(), np.asarray(x)",
    )


def _no_array(what: str, wanted: TensorType, value: Any) -> FeedError:
    return FeedError(f"{what} is {value!r:.60}, a {type(value).__name__} that is no array", help=_make_array(wanted))


def _make_array(wanted: TensorType) -> str:
    return f"give an array: np.asarray(value, {wanted.dtype.numpy.name!r})"


# Quick looks at the elements of feeds: bools, strings and lists, of which the dtype and shape do not tell enough.

Look: TypeAlias = Callable[[Any], Any]
"""Returns a value as the runtime takes it, or None where it is to be checked in full."""

_MANY = 100
"""The strings of an array of NumPy's own from which on a look at all at once costs less than making objects of them."""
_UTF_32, _SWAPPED_UTF_32 = ("utf-32-le", "utf-32-be") if sys.byteorder == "little" else ("utf-32-be", "utf-32-le")
_LAST = 0xD7FF
"""The last code point before those that are halves of others, and beyond which the runtime is given objects."""


def quick_look(type_: Type) -> Look | None:
    """Return the look at values of an input's type, every time; None for tensors whose dtype and shape say all."""
    if isinstance(type_, TensorType):
        if type_.dtype.is_complex:
            return casting.paired
        return {DType.bool: _bools, DType.string: text}.get(type_.dtype)
    if isinstance(type_, SequenceType):
        return _elements(type_.element)
    return _given if isinstance(type_, ForeignType) else _refused


def are_all_text(array: Array) -> bool:
    """Return True if all elements of an array of objects are strings; joining them takes a third of looking at each."""
    try:
        "".join(
            (array if array.ndim == 1 else array.ravel()).tolist()
        )  # a third of the time that a look at each type takes
    except TypeError:
        return False
    return True


def text(array: Array) -> Array | None:
    """Return strings as the runtime reads them; None where that wants a full check.

    Of an array of NumPy's own strings it ends each at its first NUL, and it dies of code points that are none.
    """
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        return None
    kind = array.dtype.kind
    if kind == "O":
        return array if are_all_text(array) else None
    if kind != "U" or not array.dtype.isnative:
        return None
    if array.size >= _MANY and array.itemsize:
        points = array.view(np.uint32)
        letters = np.add.reduce(np.char.str_len(array), None)
        is_read_so = np.maximum.reduce(points, None) <= _LAST and np.count_nonzero(points) == letters
        return array if is_read_so else None
    return array.astype(object) if is_text(array) else None


def is_text(array: Array) -> bool:
    """Return True if NumPy's own strings, which may be a view of any bytes, have code points alone."""
    try:
        array.tobytes().decode(_UTF_32 if array.dtype.isnative else _SWAPPED_UTF_32, "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _bools(array: Array) -> Array:
    return array.view(np.uint8).astype(
        np.bool_
    )  # whose bytes may be others than 0 and 1; a copy costs less than a look


def _given(value: object) -> object:
    return value if type(value) is dict else None


def _refused(value: object) -> None:
    return None


def _elements(element: Type) -> Look:
    """Return the look at a list of tensors whose dtype and shape say all; others are checked in full."""
    if not isinstance(element, TensorType) or element.dtype in (DType.bool, DType.string):
        return _refused
    if is_carried(element.dtype) or not element.shape.is_ranked:
        return _refused
    dtype = element.dtype.numpy
    rank = element.rank
    fixed = tuple((axis, int(dim)) for axis, dim in enumerate(element.shape) if dim.is_static)

    def look(value: Any) -> Any:
        if type(value) is not list:
            return None
        for array in value:
            # What owns its memory is aligned, and the runtime copies strides; to ask for flags takes twice as long.
            if (
                type(array) is ndarray
                and array.dtype is dtype
                and array.ndim == rank
                and (array.base is None or array.flags.carray)
            ):
                continue
            return None
        for axis, size in fixed:
            if any(array.shape[axis] != size for array in value):
                return None
        return value

    return look


# The arguments of `model.run`, which are those of `onnxruntime.InferenceSession.run`.


def requested(
    model: str,
    known: Collection[str],
    output_names: Sequence[str] | None,
    input_feed: object,
    run_options: object,
    session: str,
) -> Sequence[str]:
    """Return the names of the outputs that a run is to give, all of `known` for None.

    model, session: names for errors, of the model and of the class whose options are meant. Raises `FeedError` for
    names that are no outputs, a feed that is no mapping by names, and run_options that are not None.
    """
    names = [*known] if output_names is None else output_names
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise FeedError(
            f"run: {model}: {names!r:.80} is no list of outputs", help='give names: model.run(["y"], {"x": x})'
        )
    for name in names:
        if name not in known:
            raise FeedError(
                f"run: {model}: there is no output {name!r:.80}",
                help=f"{suggestion(name, known)}the outputs: {', '.join(known)}",
            )
    if not isinstance(input_feed, Mapping) or not all(isinstance(name, str) for name in input_feed):
        raise FeedError(
            f"run: {model}: the feed is {input_feed!r:.80}", help='give a dict by name: model.run(None, {"x": x})'
        )
    if run_options is not None:
        raise FeedError(f"run: {model}: a call takes no run_options", help=f"give options to {session}")
    return names
