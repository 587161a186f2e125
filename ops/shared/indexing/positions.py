"""Positions of elements: index operands made ready and checked, taken, found. What gathering and indexing share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.build.operands import retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type


def index_operand(graph: Graph, name: str, value: Any, role: str) -> Symbol:
    """Positions as a Symbol of an integer dtype. Raises `DTypeError` for others."""
    symbol = graph._operand(value, name, role)
    if not symbol.dtype.is_integer:
        raise DTypeError(
            f"{name}: {role} must be integers, not {symbol.dtype}",
            operands={role: symbol},
            help="take positions of a mask with ops.nonzero" if symbol.dtype is DType.bool
            else "cast them: .cast(DType.int64)",
        )  # fmt: skip
    return symbol


def whole(index: Symbol, dtype: DType | None = None) -> Symbol:
    """Positions in a dtype that ONNX takes them in: int64, or int32 as they are unless int64 is asked for."""
    if dtype is None and index.dtype is DType.int32:
        return index
    return index.graph._cast(index, DType.int64)


def known(symbol: Symbol) -> np.ndarray[Any, Any] | None:
    """The value of a constant; a weight's may still be changed by its owner, so it does not count."""
    producer = symbol.producer
    return producer.array if isinstance(producer, Constant) and not producer.is_weight else None


def check_bounds(name: str, index: Symbol, x: Symbol, axis: int, *, column: int | None = None) -> None:
    """Raises `ShapeError` where a known index is outside of an axis of known size. column: of rows, the only one."""
    array = known(index)
    looked = array if array is None or column is None else array[..., column]
    if looked is not None and looked.size:
        refuse_outside(name, int(looked.min()), x, axis)
        refuse_outside(name, int(looked.max()), x, axis)


def refuse_outside(name: str, position: int, x: Symbol, axis: int) -> None:
    """Raises `ShapeError` where a position is outside of an axis of known size."""
    size = x.shape[axis].value
    if size is not None and not -size <= position < size:
        raise ShapeError(
            f"{name}: index {position} is out of bounds for axis {axis} of size {size}",
            operands={"x": x},
            help=f"indices go from {-size} to {size - 1}" if size else "the axis is empty: nothing can be taken",
        )


def take(x: Symbol, index: Symbol, axis: int) -> Symbol:
    """ONNX Gather of indices that are int32 or int64."""
    shape = x.shape[:axis] + index.shape + x.shape[axis + 1 :]
    return x.graph._emit("Gather", (x, index), retype(x, shape=shape), {"axis": axis} if axis else None)


def as_condition(name: str, symbol: Symbol, role: str) -> Symbol:
    """A bool as it is, a number as whether it is not 0. Raises `DTypeError` for strings."""
    if symbol.dtype is DType.string:
        raise DTypeError(
            f"{name}: {role} is string, which is neither true nor false",
            operands={role: symbol},
            help="compare it first: ops.not_equal(x, y)",
        )
    return symbol.graph._cast(symbol, DType.bool)


def coordinates(mask: Symbol, count: Dim) -> Symbol:
    """ONNX NonZero: int64 [rank, count], a column for each true element."""
    return mask.graph._emit("NonZero", (mask,), tensor_type(DType.int64, _shape((Dim(mask.rank), count))))


def runtime_shape(x: Symbol, start: int = 0, end: int | None = None) -> Symbol:
    """Some of the sizes of `x` as an int64 vector: a constant where they are static, else ONNX Shape."""
    stop = x.rank if end is None else end
    dims = x.shape[start:stop]
    if dims.is_static:
        return x.graph._vector([int(d) for d in dims])
    bounds = {"start": start} if start else {}
    attributes = bounds if stop == x.rank else bounds | {"end": stop}
    return x.graph._emit("Shape", (x,), tensor_type(DType.int64, Shape([stop - start])), attributes)


def coordinate_length(name: str, roles: Mapping[str, Symbol], limit: int) -> int:
    """How many axes a row of indices names."""
    index = roles["indices"]
    depth = index.shape[-1].value if index.rank else None
    if depth is None or not 1 <= depth <= limit:
        what = "a scalar" if not index.rank else f"{index.shape[-1]} long"
        raise ShapeError(
            f"{name}: the last axis of indices is a position in x: it must be 1 to {limit} long, not {what}",
            operands=roles,
            help="make the last dim of indices static, with one number for each axis to index",
        )
    return depth


def refuse_scalar(name: str, x: Symbol) -> None:
    if not x.rank:
        raise ShapeError(
            f"{name}: a scalar has no positions", operands={"x": x}, help="give it an axis first: ops.unsqueeze(x, 0)"
        )
