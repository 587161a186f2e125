"""Arrow types of dtypes, and the check of column types against the inputs of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow

from graphcore.errors import FeedError
from graphcore.scale.storage import storage_dtype
from graphcore.support.escaping import suggestion
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

DTYPE_KEY = b"graphcore.dtype"
"""The metadata key of a field with the original dtype of stored values."""

_SAME = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 string".split()
_TYPES: dict[DType, pyarrow.DataType] = {DType.bool: pyarrow.bool_()} | {
    DType.of(name): getattr(pyarrow, name)() for name in _SAME
}


def value_type(dtype: DType) -> pyarrow.DataType:
    """Return the Arrow type of elements of a dtype: that of its storage dtype."""
    return _TYPES[storage_dtype(dtype)]


def field(name: str, type_: TensorType) -> pyarrow.Field:
    """Return the field of a column whose rows are tensors of a type, without the batch.

    Scalars are plain values, vectors of static size fixed_size_list, tensors of static shape fixed_shape_tensor, and
    tensors with a dynamic dim nested lists. If the storage dtype differs, the metadata of the field has the dtype.
    """
    arrow_type = value_type(type_.dtype)
    dims = list(type_.shape)
    if all(dim.is_static for dim in dims) and 0 not in [int(dim) for dim in dims] and type_.dtype is not DType.string:
        if len(dims) == 1:
            arrow_type = pyarrow.list_(arrow_type, int(dims[0]))
        elif dims:
            arrow_type = pyarrow.fixed_shape_tensor(arrow_type, [int(dim) for dim in dims])
    else:
        for _ in dims:
            arrow_type = pyarrow.list_(arrow_type)
    notes = {DTYPE_KEY: type_.dtype.name.encode()} if storage_dtype(type_.dtype) is not type_.dtype else None
    return pyarrow.field(name, arrow_type, metadata=notes)


@dataclass(frozen=True, slots=True)
class Column:
    """The type of a column. rank: the rank of rows, None if it varies. dims: their sizes, None if a size varies."""

    value: Any
    rank: int | None
    dims: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        if self.rank is None:
            return f"{name_of(self.value)}[...]"
        return f"{name_of(self.value)}[{', '.join('?' if dim is None else str(dim) for dim in self.dims)}]"


def name_of(value: Any) -> str:
    """Return the dtype name of an Arrow type: "float64" for Arrow's "double"."""
    return next((dtype.name for dtype, arrow in _TYPES.items() if arrow == value), str(value))


def column_of(type_: Any) -> Column:
    """Return the Column of a type of Arrow, or of a tensor type of Ray."""
    dims: list[int | None] = []
    while True:
        shape, value = (
            getattr(type_, "shape", None),
            getattr(type_, "scalar_type", None) or getattr(type_, "value_type", None),
        )
        if not isinstance(type_, pyarrow.DataType):
            return Column(type_, len(dims), tuple(dims))
        if isinstance(type_, pyarrow.BaseExtensionType) and value is not None:
            if shape is None:  # of Ray, with a shape per row
                rank = getattr(type_, "ndim", None)
                return Column(value, rank, (None,) * (rank or 0))
            dims += [None if size is None else int(size) for size in shape]
            type_ = value
        elif pyarrow.types.is_fixed_size_list(type_):
            dims.append(type_.list_size)
            type_ = type_.value_type
        elif pyarrow.types.is_list(type_) or pyarrow.types.is_large_list(type_):
            dims.append(None)
            type_ = type_.value_type
        else:
            if pyarrow.types.is_large_string(type_):
                type_ = pyarrow.string()
            return Column(type_, len(dims), tuple(dims))


def check(model: str, columns: Mapping[str, Any], chosen: Mapping[str, str], rows: Mapping[str, TensorType]) -> None:
    """Check the columns of a table against the inputs of a model, before any row is read.

    columns: the column types. chosen: the column of each input. rows: the type of a row of each input, without the
    batch. Raises `FeedError` with the column, its dtype and its shape.
    """
    for name, type_ in rows.items():
        column = chosen[name]
        if column not in columns:
            candidates = [other for other, arrow in columns.items() if _is_fit(column_of(arrow), type_)]
            example = f"{candidates[0]!r}" if len(candidates) == 1 else "..."
            raise FeedError(
                f"{model}: there is no column {column!r} for input {name!r}",
                help=f"{suggestion(column, columns)}the columns are {', '.join(columns)}: "
                f"give inputs={{{name!r}: {example}}}",
            )
        actual = column_of(columns[column])
        expected = value_type(type_.dtype)
        storage_note = "" if storage_dtype(type_.dtype) is type_.dtype else f", stored as {name_of(expected)}"
        if _is_fit(actual, type_):
            continue
        steps = [] if actual.value == expected else [f"cast it to {name_of(expected)}"]
        if actual.rank is not None and type_.shape.is_ranked and not _fits(actual.dims, type_):
            steps.append("reshape its rows")
        raise FeedError(
            f"{model}: column {column!r} is {actual}, but a row of input {name!r} must be {type_}{storage_note}",
            help=f"{' and '.join(steps)}, or give another column: inputs={{{name!r}: ...}}",
        )


def _is_fit(actual: Column, type_: TensorType) -> bool:
    if actual.value != value_type(type_.dtype):
        return False
    return actual.rank is None or not type_.shape.is_ranked or _fits(actual.dims, type_)


def _fits(dims: tuple[int | None, ...], type_: TensorType) -> bool:
    expected = tuple(type_.shape)
    if len(dims) != len(expected):
        return False
    return all(size is None or not dim.is_static or int(dim) == size for size, dim in zip(dims, expected, strict=True))
