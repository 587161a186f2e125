"""Operands that are positions: conversion, bounds checks and gathers, shared by gathering and indexing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcore.build.shapes import retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.constants import constant_array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type


def index_operand(graph: Graph, name: str, value: Any, role: str) -> Symbol:
    """Return positions as a Symbol of an integer dtype. Raises `DTypeError` for others."""
    symbol = graph.build.operand(value, name, role)
    if not symbol.dtype.is_integer:
        raise DTypeError(
            f"{name}: {role} must be integers, not {symbol.dtype}",
            operands={role: symbol},
            help="take positions of a mask with ops.nonzero" if symbol.dtype is DType.bool
            else "cast them: .cast(DType.int64)",
        )  # fmt: skip
    return symbol


def whole(index: Symbol, dtype: DType | None = None) -> Symbol:
    """Cast positions to a dtype that ONNX takes: int64; int32 is kept unless int64 is asked for."""
    if dtype is None and index.dtype is DType.int32:
        return index
    return index.graph.build.cast(index, DType.int64)


def check_bounds(name: str, index: Symbol, x: Symbol, axis: int, *, column: int | None = None) -> None:
    """Raise `ShapeError` where a known index is outside of an axis of known size. column: of rows, the only one."""
    array = constant_array(index)
    looked = array if array is None or column is None else array[..., column]
    if looked is not None and looked.size:
        refuse_outside(name, int(looked.min()), x, axis)
        refuse_outside(name, int(looked.max()), x, axis)


def refuse_outside(name: str, position: int, x: Symbol, axis: int) -> None:
    """Raise `ShapeError` where a position is outside of an axis of known size."""
    size = x.shape[axis].value
    if size is not None and not -size <= position < size:
        raise ShapeError(
            f"{name}: index {position} is out of bounds for axis {axis} of size {size}",
            operands={"x": x},
            help=f"indices go from {-size} to {size - 1}" if size else "the axis is empty: nothing can be taken",
        )


def take(x: Symbol, index: Symbol, axis: int) -> Symbol:
    """Emit ONNX Gather by int32 or int64 indices."""
    shape = x.shape[:axis] + index.shape + x.shape[axis + 1 :]
    return x.graph.build.emit("Gather", (x, index), retype(x, shape=shape), {"axis": axis} if axis else None)


def as_condition(name: str, symbol: Symbol, role: str) -> Symbol:
    """Return a bool as it is, a number as `!= 0`. Raises `DTypeError` for strings."""
    if symbol.dtype is DType.string:
        raise DTypeError(
            f"{name}: {role} is string, which is neither true nor false",
            operands={role: symbol},
            help="compare it first: ops.not_equal(x, y)",
        )
    return symbol.graph.build.cast(symbol, DType.bool)


def coordinates(mask: Symbol, count: Dim) -> Symbol:
    """Emit ONNX NonZero: int64 [rank, count], one column per true element."""
    return mask.graph.build.emit("NonZero", (mask,), tensor_type(DType.int64, _shape((Dim(mask.rank), count))))


def runtime_shape(x: Symbol, start: int = 0, end: int | None = None) -> Symbol:
    """Return some of the sizes of `x` as an int64 vector: a constant where they are static, else ONNX Shape."""
    stop = x.rank if end is None else end
    dims = x.shape[start:stop]
    if dims.is_static:
        return x.graph.build.vector([int(d) for d in dims])
    bounds = {"start": start} if start else {}
    attributes = bounds if stop == x.rank else bounds | {"end": stop}
    return x.graph.build.emit("Shape", (x,), tensor_type(DType.int64, Shape([stop - start])), attributes)


def coordinate_length(name: str, roles: Mapping[str, Symbol], limit: int) -> int:
    """Return how many axes a row of indices names."""
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
