"""Columns of Arrow as arrays, one a row, and arrays as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError
from graphcore.scale.batch.arrow_types import column_of, value_type
from graphcore.scale.carriers import carried, carrier, restored
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

Row: TypeAlias = "Array | FeedError"
"""The array of a row, or why there is none."""


def arrays_of(column: pyarrow.ChunkedArray, type_: TensorType, name: str) -> list[Row]:
    """Return an array for each row of a column. type_: of a row. name: the column's, as errors call it.

    A row that is null, has a null in it, is not rectangular, or has a value that the dtype has not, is an error.
    """
    made: list[Row] = []
    for chunk in column.chunks:
        made += _chunk(chunk, type_, name)
    return made


def _chunk(chunk: Any, type_: TensorType, name: str) -> list[Row]:
    raw = _raw(chunk, type_, name)
    dtype = type_.dtype
    if dtype is DType.string or carrier(dtype) is dtype:
        return raw
    made: list[Row] = []
    for row in raw:
        try:
            made.append(row if isinstance(row, FeedError) else restored(row, dtype, f"column {name!r}"))
        except FeedError as error:
            made.append(error)
    return made


def _raw(chunk: Any, type_: TensorType, name: str) -> list[Row]:
    """Return the rows of a chunk in the dtype of the carrier."""
    sizes: tuple[int, ...]
    if isinstance(chunk, pyarrow.FixedShapeTensorArray):
        sizes, values = tuple(chunk.type.shape), chunk.storage
        if chunk.type.permutation not in (None, [*range(len(sizes))]):
            return list(chunk.to_numpy_ndarray())
    elif isinstance(chunk, pyarrow.ExtensionArray):  # Ray's tensors
        return [_null(name) if row is None else np.asarray(row) for row in chunk.to_numpy(zero_copy_only=False)]
    else:
        sizes, values = _even(chunk.type), chunk
    whole = column_of(values.type).rank
    if values.null_count or type_.dtype is DType.string or whole != len(_even(values.type)):
        vectors = None if type_.dtype is DType.string else _vectors(values)
        if vectors is not None:
            return vectors
        return [_shaped(_one(value, type_, name), sizes) for value in values.to_pylist()]
    for _ in _even(values.type):
        values = values.flatten()
    if values.null_count:
        each = int(np.prod(sizes))
        listed = values.to_pylist()
        parts = [listed[at : at + each] if sizes else listed[at] for at in range(0, len(listed), each)]
        return [_shaped(_one(part, TensorType(type_.dtype, sizes), name), sizes) for part in parts]
    flat = values.to_numpy(zero_copy_only=False).astype(carrier(type_.dtype).numpy, copy=False)
    return list(flat.reshape(-1, *sizes))


def _shaped(row: Row, sizes: tuple[int, ...]) -> Row:
    """Return a row of a column of one size in that shape."""
    if isinstance(row, FeedError) or not sizes or row.shape == sizes or row.size != int(np.prod(sizes)):
        return row
    return row.reshape(sizes)


def _even(type_: Any) -> tuple[int, ...]:
    """Return the sizes of lists of fixed size, from the outside in, up to the first that is none."""
    sizes: list[int] = []
    while pyarrow.types.is_fixed_size_list(type_):
        sizes.append(type_.list_size)
        type_ = type_.value_type
    return tuple(sizes)


def _vectors(chunk: Any) -> list[Row] | None:
    """Return the rows of lists of numbers as views of their values; None for other chunks and for nulls."""
    is_list = pyarrow.types.is_list(chunk.type) or pyarrow.types.is_large_list(chunk.type)
    if not is_list or chunk.null_count or pyarrow.types.is_nested(chunk.type.value_type) or chunk.values.null_count:
        return None
    values, ends = chunk.values.to_numpy(zero_copy_only=False), chunk.offsets.to_numpy()
    return [values[first:end] for first, end in pairwise(ends)]


def _one(value: Any, type_: TensorType, name: str) -> Row:
    if value is None:
        return _null(name)
    dtype = type_.dtype
    try:
        made = np.asarray(value, object if dtype is DType.string else carrier(dtype).numpy)
    except (TypeError, ValueError, OverflowError):
        return FeedError(f"column {name!r}: {value!r:.60} is not rectangular, or has nulls", help="clean the column")
    if dtype is DType.string and not all(isinstance(text, str) for text in made.flat):
        return FeedError(f"column {name!r}: {value!r:.60} has what is no text", help="clean the column")
    if (dtype.is_float or dtype is DType.bool) and _has_null(value):
        return FeedError(f"column {name!r}: {value!r:.60} has a null", help="fill it beforehand")
    if not made.size and type_.shape.is_ranked and made.ndim < type_.rank:  # an empty list does not tell the other dims
        made = made.reshape(*made.shape, *(int(d) if d.is_static else 0 for d in list(type_.shape)[made.ndim :]))
    return made


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))


def _null(name: str) -> FeedError:
    return FeedError(f"column {name!r}: the row is null", help="fill it, or filter it out, beforehand")


def column(rows: Sequence[Array | None], type_: TensorType, field: pyarrow.Field) -> pyarrow.Array:
    """Return the column of arrays, one a row; a row of None is null. type_: of a row. field: `arrow_types.field`."""
    dtype = type_.dtype
    arrow = field.type
    if isinstance(arrow, pyarrow.BaseExtensionType) or pyarrow.types.is_fixed_size_list(arrow):
        size = int(np.prod([int(dim) for dim in type_.shape]))
        storage = arrow.storage_type if isinstance(arrow, pyarrow.BaseExtensionType) else arrow
        blank = np.zeros(size, carrier(dtype).numpy)
        flat = [blank if row is None else carried(row, dtype).reshape(-1) for row in rows]
        values = _values(np.concatenate(flat) if flat else blank[:0], dtype)
        mask = pyarrow.array([row is None for row in rows], pyarrow.bool_())
        made = pyarrow.FixedSizeListArray.from_arrays(values, type=storage, mask=mask)
        return made if storage is arrow else pyarrow.ExtensionArray.from_storage(arrow, made)
    return _nested([None if row is None else carried(row, dtype) for row in rows], type_.rank, dtype)


def _nested(rows: Sequence[Array | None], rank: int, dtype: DType) -> pyarrow.Array:
    if rank == 0:
        listed = [None if row is None else row.item() if isinstance(row, np.ndarray) else row for row in rows]
        return pyarrow.array(listed, value_type(dtype))
    mask = pyarrow.array([row is None for row in rows], pyarrow.bool_())
    ends = np.cumsum([0, *(0 if row is None else len(row) for row in rows)]).astype(np.int32)
    if rank == 1:
        flat = [row for row in rows if row is not None]
        kind = object if dtype is DType.string else carrier(dtype).numpy
        values = _values(np.concatenate(flat) if flat else np.zeros(0, kind), dtype)
    else:
        values = _nested([part for row in rows if row is not None for part in row], rank - 1, dtype)
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), values, mask=mask)


def _values(flat: Array, dtype: DType) -> pyarrow.Array:
    if dtype is DType.string:
        return pyarrow.array([str(text) for text in flat], pyarrow.string())
    return pyarrow.array(flat.astype(carrier(dtype).numpy, copy=False), value_type(dtype))
