"""Quick looks at the elements of feeds: bools, strings and lists, of which the dtype and shape do not tell enough."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from graphcore.arrays import casting
from graphcore.arrays.casting import Array
from graphcore.types.dtypes import DType, is_carried
from graphcore.types.tensor_types import ForeignType, SequenceType, TensorType, Type

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
    """Return whether all elements of an array of objects are strings; joining them takes a third of looking at each."""
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
    """Return whether NumPy's own strings, which may be a view of any bytes, have code points alone."""
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
