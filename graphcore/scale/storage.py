"""Storage dtypes: the dtypes that store bfloat16, float8 and integers of odd widths in tables and requests.

Floats are stored as float32 and integers as the next wider type, each value exactly. See docs/howto/batch_jobs.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError
from graphcore.types.dtypes import DType, Kind
from graphcore.types.tensor_types import TensorType, Type

_COMMON = frozenset(
    {
        DType.bool, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32,
        DType.uint64, DType.float16, DType.float32, DType.float64, DType.string,
    }
)  # fmt: skip
_MAX_BITS = 64


def storage_dtype(dtype: DType) -> DType:
    """Return the dtype that stores values of a dtype: the dtype itself if every table format has it."""
    if dtype in _COMMON:
        return dtype
    if dtype.kind is Kind.float:
        return DType.float32
    size = next(size for size in (8, 16, 32, 64) if dtype.bits <= size)
    return DType.of(f"{'int' if dtype.is_signed else 'uint'}{size}")


def to_storage(array: Array, dtype: DType) -> Array:
    """Return an array in the storage dtype of `dtype`, with the same values."""
    return array if dtype is DType.string else array.astype(storage_dtype(dtype).numpy, copy=False)


def from_storage(array: Array, dtype: DType, what: str) -> Array:
    """Return an array of a storage dtype in `dtype`. what: its name, for errors.

    Raises `FeedError` for a value that the dtype cannot represent, such as 0.1 for bfloat16 and 8 for int4.
    """
    if dtype is DType.string or array.dtype == dtype.numpy:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(dtype.numpy)
        round_trip = result.astype(array.dtype)
        is_same = (round_trip == array) | ((round_trip != round_trip) & (array != array))
    if dtype.is_integer and dtype.bits not in (8, 16, 32, 64):
        is_same &= (array >= dtype.min) & (array <= dtype.max)
    if not is_same.all():
        value = array[~is_same].reshape(-1)[0]
        raise FeedError(
            f"{what}: {value} is not a value of {dtype}",
            help=f"round to {dtype} beforehand: {dtype} is stored as {storage_dtype(dtype)}",
        )
    return result


def require_tensors(model: str, kind: str, types: Mapping[str, Type]) -> dict[str, TensorType]:
    """Return the types as tensor types. kind: "input" or "output".

    Raises `ModelError` for sequences, maps, optionals and integers of more than 64 bits.
    """
    result = {}
    for name, type_ in types.items():
        if not isinstance(type_, TensorType) or type_.dtype.bits > _MAX_BITS:
            raise ModelError(
                f"{model}: {kind} {name!r} is {type_}, which cannot be sent between machines",
                help="use tensors of at most 64 bits per element",
            )
        result[name] = type_
    return result
