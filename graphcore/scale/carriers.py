"""Carriers: the dtypes in which values travel where bfloat16, float8 and integers of 2 and 4 bits are not known.

Floats travel as float32 and integers as int8 or uint8, each value exactly. See docs/howto/batch_jobs.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError
from graphcore.types.dtypes import DType, Kind
from graphcore.types.tensor_types import TensorType, Type

_KNOWN = frozenset(
    {
        DType.bool, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32,
        DType.uint64, DType.float16, DType.float32, DType.float64, DType.string,
    }
)  # fmt: skip
_WIDEST = 64


def carrier(dtype: DType) -> DType:
    """Return the dtype in which values of a dtype travel: itself where every table format knows it."""
    if dtype in _KNOWN:
        return dtype
    if dtype.kind is Kind.float:
        return DType.float32
    return DType.of(_bytes_of(dtype))


def _bytes_of(dtype: DType) -> np.dtype[np.generic]:
    size = next(size for size in (8, 16, 32, 64) if dtype.bits <= size)
    return np.dtype(f"{'int' if dtype.is_signed else 'uint'}{size}")


def carried(array: Array, dtype: DType) -> Array:
    """Return an array of a dtype in the dtype of its carrier: the same values."""
    return array if dtype is DType.string else array.astype(carrier(dtype).numpy, copy=False)


def restored(array: Array, dtype: DType, what: str) -> Array:
    """Return an array of a carrier in the dtype that it carries. what: as errors call it.

    Raises `FeedError` for a value that the dtype does not have, such as 0.1 for bfloat16 and 8 for int4.
    """
    if dtype is DType.string or array.dtype == dtype.numpy:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        made = array.astype(dtype.numpy)
        back = made.astype(array.dtype)
        is_same = (back == array) | ((back != back) & (array != array))
    if dtype.is_integer and dtype.bits not in (8, 16, 32, 64):
        is_same &= (array >= dtype.min) & (array <= dtype.max)
    if not is_same.all():
        value = array[~is_same].reshape(-1)[0]
        raise FeedError(
            f"{what}: {value} is no value of {dtype}",
            help=f"round to {dtype} beforehand: {dtype} travels as {carrier(dtype)}",
        )
    return made


def tensors(model: str, kind: str, types: Mapping[str, Type]) -> dict[str, TensorType]:
    """Return the types, all of tensors. kind: "input" or "output".

    Raises `ModelError` for sequences, maps, optionals and integers of more than 64 bits.
    """
    made = {}
    for name, type_ in types.items():
        if not isinstance(type_, TensorType) or type_.dtype.bits > _WIDEST:
            raise ModelError(
                f"{model}: {kind} {name!r} is {type_}, which does not travel between machines",
                help="give a model of tensors of at most 64 bits a value",
            )
        made[name] = type_
    return made
