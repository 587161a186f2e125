"""`x[index] = value` as a new tensor: which rows are written, and the value brought to their shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphcore.build.operands import broadcast_shapes, retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ops.indexing import _sliced, _stacked
from graphcore.ops.shared.indexing.index import Array, Int, Mask, New, read
from graphcore.ops.shared.indexing.positions import known, runtime_shape
from graphcore.ops.shared.indexing.slice import Slice
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

_WRITTEN_OUT = 64  # positions along one axis that become a constant


def assigned(name: str, x: Symbol, items: tuple[Any, ...], value: Symbol) -> Symbol:
    """`x` with `value`, of its dtype, at what an index of ints and slices names. Raises as `getitem`, and `ShapeError`
    where the value does not broadcast to that."""
    entries = [e for e in read(name, x, items) if isinstance(e, (Int, Slice, New, Array, Mask))]
    if any(not isinstance(e, (Int, Slice)) for e in entries):
        raise DTypeError(
            f"{name}: only ints, integer scalars, slices and `...` say where to store",
            operands={"buffer": x},
            help="store what ops.scatter_nd, ops.masked_scatter or ops.where give: ops.buffer_store(buffer, ...)",
        )
    parts = [e for e in entries if isinstance(e, (Int, Slice))]
    depth = max((i + 1 for i, e in enumerate(parts) if isinstance(e, Int) or not e.is_whole), default=0)
    rows = [_positions(x, e) for e in parts[:depth]]
    wanted = _shape([e.length for e in parts if isinstance(e, Slice)])
    sizes = [
        runtime_shape(rows[i] if i < depth else x, *((0, 1) if i < depth else (i, i + 1)))
        for i, e in enumerate(parts)
        if isinstance(e, Slice) and not (value.shape == wanted and not wanted.is_dynamic)
    ]
    new = _broadcast(name, x, value, wanted, sizes)
    if any(dim == 0 for dim in wanted):
        return x
    dropped = [i for i, e in enumerate(parts) if isinstance(e, Int)]
    if dropped:
        dims = _shape([Dim(1) if isinstance(e, Int) else e.length for e in parts])
        new = x.graph._emit("Unsqueeze", (new, x.graph._vector(dropped)), retype(new, shape=dims))
    if not depth:
        return new
    return x.graph._emit("ScatterND", (x, _grid(name, rows), new), x.type)


def _positions(x: Symbol, entry: Int | Slice) -> Symbol:
    """The positions along one axis, an int64 vector."""
    graph = x.graph
    if isinstance(entry, Int):
        if isinstance(entry.position, int):
            return graph._vector([entry.position])
        return graph._emit("Reshape", (entry.position, graph._vector([1])), tensor_type(DType.int64, Shape([1])))
    size = x.shape[entry.axis]
    bounds = entry.start, entry.stop, entry.step
    if size.is_static and all(isinstance(b, int) for b in bounds):
        found = range(int(size))[slice(*bounds)]
        if len(found) <= _WRITTEN_OUT:
            return graph._vector([*found])
    if size.is_static:
        count = graph._scalar(int(size), DType.int64)
    else:
        vector = runtime_shape(x, entry.axis, entry.axis + 1)
        count = graph._emit("Squeeze", (vector, graph._vector([0])), tensor_type(DType.int64, Shape()))
    zero, one = graph._scalar(0, DType.int64), graph._scalar(1, DType.int64)
    every = graph._emit("Range", (zero, count, one), tensor_type(DType.int64, _shape([size])))
    return every if entry.is_whole else _sliced(every, [0], [replace(entry, axis=0)])


def _grid(name: str, rows: list[Symbol]) -> Symbol:
    """The coordinates of every combination of positions: int64 [*lengths, number of axes]."""
    depth = len(rows)
    if depth == 1:
        return _with_axes(rows[0], [1])
    return _stacked(name, [_with_axes(row, [i for i in range(depth) if i != axis]) for axis, row in enumerate(rows)])


def _with_axes(row: Symbol, axes: list[int]) -> Symbol:
    """A vector with axes of size 1 before and behind its own."""
    graph, array = row.graph, known(row)
    if array is not None:
        return graph._constant(np.expand_dims(array, tuple(axes)), DType.int64)
    shape = _shape([Dim(1) if i in axes else row.shape[0] for i in range(len(axes) + 1)])
    return graph._emit("Unsqueeze", (row, graph._vector(axes)), retype(row, shape=shape))


def _broadcast(name: str, x: Symbol, value: Symbol, wanted: Shape, sizes: list[Symbol]) -> Symbol:
    """The value in the shape of what is written. sizes: those of its axes when the graph runs."""
    if value.shape == wanted and not wanted.is_dynamic:
        return value
    try:
        met = broadcast_shapes([value.shape, wanted]) if len(value.shape) <= len(wanted) else None
    except ValueError:
        met = None
    if met is None or any(a is not b and not b.is_dynamic for a, b in zip(met, wanted, strict=True)):
        raise ShapeError(
            f"{name}: the value does not broadcast to {wanted}, the shape of what is stored to",
            operands={"buffer": x, "value": value},
            help="give it that shape, or dims of 1 where it repeats",
        )
    graph = x.graph
    if not sizes:
        return value
    length = tensor_type(DType.int64, Shape([len(sizes)]))
    vector = sizes[0] if len(sizes) == 1 else graph._emit("Concat", tuple(sizes), length, {"axis": 0})
    return graph._emit("Expand", (value, vector), retype(value, shape=wanted))


__all__ = ["assigned"]
