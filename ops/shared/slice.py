"""Slices of an axis: their bounds as ONNX counts them, and the number of elements they take."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.shapes import check_scalar, retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.ops.shared.dims import dim_value
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_LEAST, _GREATEST = -(2**63), 2**63 - 1
BEYOND = 2**62
"""Larger than any axis."""

Number: TypeAlias = int | Symbol
"""An int, or an int64 scalar that is computed when the graph runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A part of an axis, as ONNX Slice has it: `start` and `stop`, or the default of an omitted bound."""

    axis: int
    start: Number
    stop: Number
    step: Number
    length: Dim
    is_whole: bool

    def called(self, name: str, length: Dim) -> Slice:
        """Return the same slice with another dim as its length."""
        if length is self.length:
            return self
        check_name(name, self.length, length)
        return replace(self, length=length, is_whole=False)


def whole_axis(x: Symbol, axis: int) -> Slice:
    return Slice(axis, 0, _GREATEST, 1, x.shape[axis], True)


def slice_of(name: str, x: Symbol, axis: int, index: slice) -> Slice:
    start, stop, step = (_bound(name, x, index, part) for part in ("start", "stop", "step"))
    if isinstance(step, int) and step == 0:
        raise ShapeError(
            f"{name}: the step of a slice is 0", operands={"x": x, "index": repr(index)}, help="1 takes every element"
        )
    if step is None:
        step = 1
    length = _length(x.shape[axis], start, stop, step)
    forward = isinstance(step, int) and step == 1
    from_first = start is None or (isinstance(start, int) and start == 0)
    same_length = length is x.shape[axis] and not length.is_dynamic
    is_whole = forward and (same_length or (from_first and stop is None))
    first, last = _ends(name, x, step)
    begin = first if start is None else _at_run_time(name, x, start)
    end = last if stop is None else _at_run_time(name, x, stop)
    stride = _at_run_time(name, x, step)
    if start is not None:
        end = _with_empty_start(x, axis, begin, end, stride)
    return Slice(
        axis,
        begin,
        end,
        stride,
        x.shape[axis] if is_whole else length,
        is_whole,
    )


def _bound(name: str, x: Symbol, index: slice, part: str) -> int | Dim | Symbol | None:
    value = getattr(index, part)
    if value is None:
        return None
    if isinstance(value, Dim):
        return value if value.value is None else value.value
    if isinstance(value, np.ndarray):
        value = x.graph.build.operand(value, name, part)
    if isinstance(value, Symbol):
        symbol = index_operand(x.graph, name, value, part)
        check_scalar(name, f"the {part} of a slice", symbol, {"x": x, part: symbol}, help="take one element of it")
        array = constant_array(symbol)
        return symbol if array is None else int(array[()])
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise DTypeError(
        f"{name}: the {part} of a slice must be an integer, got {value!r}",
        operands={"x": x},
        help="slices take ints, Dims, integer Symbols and None",
    )


def _ends(name: str, x: Symbol, step: int | Dim | Symbol) -> tuple[Number, Number]:
    """Return the bounds that mean both ends of an axis, in the direction of the step."""
    if isinstance(step, int):
        return (0, _GREATEST) if step > 0 else (_GREATEST, _LEAST)
    stride = _at_symbol(name, x, step)
    back = e.less(stride, e.const(stride, 0))
    first = e.where(back, e.const(stride, _GREATEST), e.const(stride, 0))
    return first, e.where(back, e.const(stride, _LEAST), e.const(stride, _GREATEST))


def _with_empty_start(x: Symbol, axis: int, start: Number, stop: Number, step: Number) -> Number:
    """Return the stop of a backward slice, which makes it empty if its start is before the first element.

    ONNX clamps such a start to the first element, NumPy to the position before.
    """
    size = x.shape[axis]
    if (isinstance(step, int) and step > 0) or (isinstance(start, int) and start >= -1):
        return stop
    if isinstance(step, int) and isinstance(start, int):
        if _never_negative(size + start):
            return stop
        if size.is_static:
            return 0
    length = e.emit("Gather", runtime_shape(x), x.graph.build.scalar(axis, DType.int64), shape=Shape())
    begin, end = (x.graph.build.scalar(v, DType.int64) if isinstance(v, int) else v for v in (start, stop))
    zero = e.const(length, 0)
    outside = e.both(e.less(begin, zero), e.less(e.emit("Add", begin, length), zero))
    if isinstance(step, Symbol):
        outside = e.both(outside, e.less(step, zero))
    return e.where(outside, zero, end)


def _length(size: Dim, start: Any, stop: Any, step: Any) -> Dim:
    """Return the number of elements in a slice of an axis.

    A bound v means v or, below zero, v + size, clamped to the axis. Bounds that do not change the result are omitted,
    so that the dim is as simple as possible: the ends are the minimum of some dims and the maximum of others, and
    their distance is the minimum of all differences.
    """
    if size.is_dynamic or not isinstance(step, int) or isinstance(start, Symbol) or isinstance(stop, Symbol):
        return Dim.dynamic()
    lower, upper = (Dim(0), size) if step > 0 else (Dim(0) - 1, size - 1)
    low, high = (start, stop) if step > 0 else (stop, start)
    least, greatest = _limited(low, size, lower), _limited(high, size, upper)
    if not least or not greatest:
        return Dim.dynamic()
    span = greatest[0] - least[0]
    for end in greatest:
        for begin in least:
            span = Dim.minimum(span, end - begin)
    span = Dim.maximum(span, 0)
    return span if abs(step) == 1 else span.ceildiv(abs(step))


def _limited(bound: int | Dim | None, size: Dim, limit: Dim) -> list[Dim]:
    """Return the dims whose minimum or maximum is an end of a slice; none where the bound's sign is unknown."""
    if bound is None:
        return [limit]
    value = Dim(0) + bound
    # size - 1 is below zero only for an empty axis, where any bound is right.
    if value is size - 1 or _never_negative(value):
        return [value, limit]
    return [value + size, limit] if _never_negative(-value - 1) else []


def _never_negative(dim: Dim) -> bool:
    bound = dim.lower_bound
    return bound is not None and bound >= 0


# Numbers computed when the graph runs


def _at_run_time(name: str, x: Symbol, value: Any) -> Number:
    if not isinstance(value, int):
        return _at_symbol(name, x, value)
    # Clipped to int64, but not to the greatest int32 or int64, which onnxruntime reads as no bound.
    return 2**31 if value == 2**31 - 1 else max(-BEYOND, min(value, BEYOND))


def _at_symbol(name: str, x: Symbol, value: Dim | Symbol) -> Symbol:
    symbol = number_of(name, x, value) if isinstance(value, Dim) else value
    assert isinstance(symbol, Symbol)
    return whole(symbol, DType.int64)


def number_of(name: str, x: Symbol, dim: Dim) -> Number:
    """Return a dim as an int, or as an int64 scalar computed from the shapes of x and of the inputs."""
    if dim.value is not None:
        return dim.value
    if dim.is_dynamic:
        raise ShapeError(
            f"{name}: an index cannot be an unknown dim (?)", operands={"x": x},
            help="name the dim, or compute it in the graph with ops.shape_of(x)",
        )  # fmt: skip
    return dim_value(x.graph, dim, [x], op=name)


def check_name(name: str, known_length: Dim, length: Dim) -> None:
    if known_length.is_static and length.is_static and known_length is not length:
        raise ShapeError(
            f"{name}: a length of {known_length} cannot be named {length}", help="omit the dim, to have it inferred"
        )


# Operands that are positions: conversion, bounds checks and gathers, shared by gathering and indexing.


def index_operand(graph: Graph, name: str, value: Any, role: str) -> Symbol:
    """Return positions as a Symbol of an integer dtype. Raises `DTypeError` for other dtypes."""
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
    """Cast positions to int64, or leave them in int32 if `dtype` is None: ONNX takes no others."""
    if dtype is None and index.dtype is DType.int32:
        return index
    return index.graph.build.cast(index, DType.int64)


def check_bounds(name: str, index: Symbol, x: Symbol, axis: int, *, column: int | None = None) -> None:
    """Raise `ShapeError` if a constant index is outside of an axis of static size. column: the only one to check."""
    array = constant_array(index)
    checked = array if array is None or column is None else array[..., column]
    if checked is not None and checked.size:
        refuse_outside(name, int(checked.min()), x, axis)
        refuse_outside(name, int(checked.max()), x, axis)


def refuse_outside(name: str, position: int, x: Symbol, axis: int) -> None:
    """Raise `ShapeError` if a position is outside of an axis of static size."""
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
    """Cast to bool: a number is true if it is not 0. Raises `DTypeError` for strings."""
    if symbol.dtype is DType.string:
        raise DTypeError(
            f"{name}: {role} must be bools or numbers, got string",
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
    """Return the number of axes that a row of indices covers."""
    index = roles["indices"]
    depth = index.shape[-1].value if index.rank else None
    if depth is None or not 1 <= depth <= limit:
        what = "a scalar" if not index.rank else f"{index.shape[-1]}"
        raise ShapeError(
            f"{name}: the last axis of indices is a position in x: its length must be 1 to {limit}, got {what}",
            operands=roles,
            help="make the last dim of indices static, with one number for each axis to index",
        )
    return depth


def refuse_scalar(name: str, x: Symbol) -> None:
    if not x.rank:
        raise ShapeError(
            f"{name}: x must have an axis, got a scalar", operands={"x": x}, help="add one first: ops.unsqueeze(x, 0)"
        )
