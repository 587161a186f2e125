"""Feeds that are no NumPy arrays, as arrays: numbers and lists of them, DLPack tensors, objects with `__array__`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphcore.arrays import casting
from graphcore.arrays.casting import Array
from graphcore.errors import DTypeError, FeedError
from graphcore.ir.literals import array_of, held_as, holds_numpy
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType, is_wide
from graphcore.types.tensor_types import TensorType


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
