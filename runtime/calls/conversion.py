"""Convert feeds to NumPy arrays: numbers and lists of them, DLPack tensors, objects with `__array__`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from graphcore.arrays import casting
from graphcore.arrays.casting import Array
from graphcore.errors import DTypeError, FeedError
from graphcore.ir.literals import array_of, checked_cast, holds_numpy
from graphcore.ir.symbol import Symbol
from graphcore.support.escaping import suggestion
from graphcore.types.dtypes import DType, has_storage_axis, is_wide
from graphcore.types.tensor_types import OpaqueType, SequenceType, TensorType, Type


def converted(what: str, wanted: TensorType, value: Any) -> Array:
    """Return a feed as an array, whose dtype and shape are checked later.

    Python numbers, text and nested lists of them become arrays of the wanted dtype by the rules of constants: ints
    exactly, floats rounded. Tensors of other libraries, which keep their dtype, are read by
    `casting.third_party_array`, and other objects through `__array__`. what: the name of the feed in errors. Raises
    `FeedError`.
    """
    if isinstance(value, (bool, int, float, str, list, tuple)):
        return _from_numbers(what, wanted, value)
    kind = type(value)
    if isinstance(value, Symbol):
        raise FeedError(
            f"{what} is a Symbol, which has no value",
            operands={"given": value},
            help="give an array; to use a model inside of a graph, build its graph from the Symbol",
        )
    if hasattr(kind, "__dlpack__") or hasattr(kind, "__array__"):
        return _from_other(what, value)
    raise FeedError(f"{what} must be an array, got {kind.__name__}", help=_make_array(wanted))


def _from_numbers(what: str, wanted: TensorType, value: Any) -> Array:
    if any(casting.is_masked(item) for item in _items(value)):
        raise FeedError(f"{what} contains a masked array, but models have no masks", help="fill it: array.filled(0)")
    dtype = wanted.dtype
    if is_wide(dtype):
        return _objects(what, wanted, value)
    try:
        array, value_dtype = array_of(value, dtype)
    except DTypeError:
        raise _not_an_array(what, wanted, value) from None
    if value_dtype is dtype or (holds_numpy(value) and array.size):
        return array
    try:
        return checked_cast(array, value_dtype, dtype, what)
    except DTypeError as refusal:
        if DType.string in (value_dtype, dtype):
            fix = _make_array(wanted)
            of = f" of {value_dtype}" if isinstance(value, (list, tuple)) else ""
            raise FeedError(f"{what} must be {dtype}, got {type(value).__name__}{of}", help=fix) from None
        raise FeedError(
            f"{refusal.summary}, the dtype of the input",
            help=f"give numbers that {dtype} holds, or an array that is cast",
        ) from None


def _objects(what: str, wanted: TensorType, value: Any) -> Array:
    """Return Python integers of any size as an object array, which is checked against the dtype later."""
    try:
        return np.array(value, object)
    except ValueError:  # of lists of different lengths
        raise _not_an_array(what, wanted, value) from None


def _items(value: Any, depth: int = 64) -> Iterator[Any]:
    """Yield the items of nested lists, down to the maximum depth of NumPy's arrays."""
    if isinstance(value, (list, tuple)) and depth:
        for member in value:
            yield member
            yield from _items(member, depth - 1)


def _from_other(what: str, value: Any) -> Array:
    """Return the array of another library's object."""
    try:
        array = casting.third_party_array(value)
        return np.asarray(value) if array is None else array
    except DTypeError as refusal:
        raise FeedError(f"{what}: {refusal.summary}", help=refusal.help) from None
    except Exception as error:  # each library has its own reasons
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise FeedError(
            f"{what} of type {type(value).__name__} cannot be converted to an array: {reason}",
            help="give an array of NumPy: np.asarray(x)",
        ) from None


def _not_an_array(what: str, wanted: TensorType, value: Any) -> FeedError:
    return FeedError(f"{what} must be an array, got {value!r:.60} ({type(value).__name__})", help=_make_array(wanted))


def _make_array(wanted: TensorType) -> str:
    return f"give an array: np.asarray(value, {wanted.dtype.numpy.name!r})"


# Quick checks of the elements of feeds: bools, strings and lists, for which dtype and shape are not enough.

Look: TypeAlias = Callable[[Any], Any]
"""Returns a value for the runtime, or None if the value needs the full check."""

_MIN_BATCHED = 100
"""From this many strings in a NumPy string array on, checking all at once is faster than converting them to objects."""
_UTF_32, _SWAPPED_UTF_32 = ("utf-32-le", "utf-32-be") if sys.byteorder == "little" else ("utf-32-be", "utf-32-le")
_LAST_BMP = 0xD7FF
"""The last code point before the surrogates. Strings with larger ones are converted to objects."""


def quick_look(type_: Type) -> Look | None:
    """Return the quick check for each value of an input's type; None for tensors that dtype and shape fully
    describe."""
    if isinstance(type_, TensorType):
        if type_.dtype.is_complex:
            return casting.paired
        return {DType.bool: _bools, DType.string: text}.get(type_.dtype)
    if isinstance(type_, SequenceType):
        return _elements(type_.element)
    return _map if isinstance(type_, OpaqueType) else _never


def are_all_text(array: Array) -> bool:
    """Return True if all elements of an object array are strings."""
    try:
        # Joining them takes a third of the time of checking each type.
        "".join((array if array.ndim == 1 else array.ravel()).tolist())
    except TypeError:
        return False
    return True


def text(array: Array) -> Array | None:
    """Return strings for the runtime; None if they need the full check.

    The runtime ends NumPy's own strings at their first NUL, and crashes on invalid code points.
    """
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        return None
    kind = array.dtype.kind
    if kind == "O":
        return array if are_all_text(array) else None
    if kind != "U" or not array.dtype.isnative:
        return None
    if array.size >= _MIN_BATCHED and array.itemsize:
        points = array.view(np.uint32)
        letters = np.add.reduce(np.char.str_len(array), None)
        is_read_so = np.maximum.reduce(points, None) <= _LAST_BMP and np.count_nonzero(points) == letters
        return array if is_read_so else None
    return array.astype(object) if is_text(array) else None


def is_text(array: Array) -> bool:
    """Return True if NumPy's own strings, which may be a view of any bytes, have only valid code points."""
    try:
        array.tobytes().decode(_UTF_32 if array.dtype.isnative else _SWAPPED_UTF_32, "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _bools(array: Array) -> Array:
    # The bytes may be other than 0 and 1; a copy costs less than a check.
    return array.view(np.uint8).astype(np.bool_)


def _map(value: object) -> object:
    return value if type(value) is dict else None


def _never(value: object) -> None:
    return None


def _elements(element: Type) -> Look:
    """Return the quick check of a list of tensors; others need the full check."""
    if not isinstance(element, TensorType) or element.dtype in (DType.bool, DType.string):
        return _never
    if has_storage_axis(element.dtype) or not element.shape.is_ranked:
        return _never
    dtype = element.dtype.numpy
    rank = element.rank
    fixed = tuple((axis, int(dim)) for axis, dim in enumerate(element.shape) if dim.is_static)

    def look(value: Any) -> Any:
        if type(value) is not list:
            return None
        for array in value:
            # Arrays that own their memory are aligned, and the runtime copies strides; reading flags takes twice as
            # long.
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


def check_wide(model: str, wide: object) -> None:
    """Raise `FeedError` for a value that is not a form of integers of more than 64 bits."""
    if not isinstance(wide, str) or wide not in ("limbs", "object"):
        raise FeedError(
            f"{model}: wide={wide!r:.80} is not a form of integers of more than 64 bits",
            help="give wide='limbs' for uint32 digits, or wide='object' for Python integers",
        )


def requested(
    model: str,
    outputs: Collection[str],
    output_names: Sequence[str] | None,
    input_feed: object,
    run_options: object,
    session: str,
) -> Sequence[str]:
    """Return the names of the requested outputs; all outputs for None.

    model, session: names of the model and of the session class for errors. Raises `FeedError` for unknown outputs, a
    feed that is not a mapping by names, and run_options other than None.
    """
    names = [*outputs] if output_names is None else output_names
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise FeedError(
            f"run: {model}: {names!r:.80} is not a list of outputs", help='give names: model.run(["y"], {"x": x})'
        )
    for name in names:
        if name not in outputs:
            raise FeedError(
                f"run: {model}: there is no output {name!r:.80}",
                help=f"{suggestion(name, outputs)}the outputs: {', '.join(outputs)}",
            )
    if not isinstance(input_feed, Mapping) or not all(isinstance(name, str) for name in input_feed):
        raise FeedError(
            f"run: {model}: the feed must be a dict of arrays by name, got {input_feed!r:.80}",
            help='give a dict: model.run(None, {"x": x})',
        )
    if run_options is not None:
        raise FeedError(f"run: {model}: run_options must be None", help=f"give options to {session}")
    return names
