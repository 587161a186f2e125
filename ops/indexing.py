"""Square brackets: NumPy's basic and advanced indexing of Symbols. What they may hold is read in `_index.py`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from graphcore.build.declare import op
from graphcore.build.operands import axis_of, broadcast_shapes, operand, retype
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.indexing.index import Array, Entry, Int, Mask, New, read
from graphcore.ops.shared.indexing.positions import coordinates, known, runtime_shape, take, whole
from graphcore.ops.shared.indexing.slice import Slice
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, _dim, _shape, tensor_type

__all__ = ["getitem", "slice", "slice_tensor"]

Item: TypeAlias = int | New
"""What an axis of a result is: an axis of x (>= 0), a dim of the index arrays (-1 the first, -2 the second), or new."""


@op(onnx="Gather, Slice, GatherND", rule="keep", dunder="getitem")
def getitem(x: TensorLike, index: Any) -> Symbol:
    """The part of `x` that square brackets name, as in NumPy. ONNX Gather, Slice, GatherND, NonZero, Unsqueeze.

    x: of any dtype and shape. index: one or a tuple of ints and integer scalars (which drop their axis), slices with
    any step but 0 whose bounds are ints, Dims, None or integer Symbols, `...`, None (a new axis of size 1), integer
    arrays, lists and Symbols (which broadcast together), bool arrays and Symbols (the positions that are true).
    Negative positions count from the end. (slice, dim) in a tuple says what a slice's length is called. Lengths follow
    from the dims; those that depend on values are unknown. Raises `ShapeError` for too many indices, known positions
    out of bounds, a step of 0 and masks that do not fit; `DTypeError` for what is no index.
    """
    return _indexed("getitem", operand("getitem", x), index if type(index) is tuple else (index,))


@op(onnx="Gather, Slice, GatherND", rule="keep")
def slice_tensor(x: TensorLike, indices: Any) -> Symbol:
    """`x[indices]` as a function. ONNX Gather, Slice, GatherND, NonZero, Unsqueeze.

    x: of any dtype and shape. indices: one index or a list or tuple of indices, one an axis, as `x[...]` takes them;
    (slice, dim) says what a slice's length is called. Raises as `getitem`.
    """
    given = tuple(indices) if isinstance(indices, (list, tuple)) else (indices,)
    return _indexed("slice_tensor", operand("slice_tensor", x), given)


@op(onnx="Gather, Slice", rule="keep")
def slice(
    x: TensorLike,
    *slices: Any,
    out_dims: Sequence[DimLike] = (),
    axis: int = 0,
    keep_dims: bool = False,
) -> Symbol:
    """The part of `x` between positions of some axes. ONNX Slice, and Gather for single positions.

    x: of any dtype and shape. slices: slices, ints, integer scalars, `...` and None as `x[...]` takes them, the first
    of them for `axis`. out_dims: what the dims of the result are called, all of them; by default they follow from the
    dims of `x`. keep_dims: a single position keeps its axis, of size 1. Raises `ShapeError` as `getitem` does, and
    for out_dims that cannot be; `DTypeError` for what is no index.
    """
    data = operand("slice", x)
    at = axis_of("slice", axis, data.rank, {"x": data})
    return _indexed("slice", data, (builtins.slice(None),) * at + slices, out_dims, keep_dims)


def _indexed(
    name: str, x: Symbol, items: tuple[Any, ...], out_dims: Sequence[DimLike] = (), keep_dims: bool = False
) -> Symbol:
    entries = read(name, x, items)
    if name == "slice":
        entries = _only_basic(x, entries, out_dims, keep_dims)
    y, axes = _at_positions(x, entries)
    y = _sliced(y, axes, [e for e in entries if isinstance(e, Slice) and not e.is_whole])
    arrays = [e for e in entries if isinstance(e, (Array, Mask))]
    order: list[Item] = list(axes)
    if arrays:
        y, order = _gathered(name, y, axes, arrays)
    wanted = _result_order(entries, order)
    moved = [order.index(item) for item in wanted if not isinstance(item, New)]
    if moved != sorted(moved):
        y = y.graph._emit("Transpose", (y,), retype(y, shape=_shape(y.shape[i] for i in moved)), {"perm": moved})
    new = [position for position, item in enumerate(wanted) if isinstance(item, New)]
    return _with_new_axes(y, new, [item for item in wanted if isinstance(item, New)]) if new else y


def _only_basic(x: Symbol, entries: list[Entry], out_dims: Sequence[DimLike], keep_dims: bool) -> list[Entry]:
    """The entries of `slice`, with axes kept and dims called as asked."""
    if any(isinstance(e, (Array, Mask)) for e in entries):
        raise ShapeError(
            "slice: arrays of positions are no slices", operands={"x": x}, help="index with them: x[...], or ops.gather"
        )
    if keep_dims:
        entries = [part for e in entries for part in ((e, New()) if isinstance(e, Int) else (e,))]
    if not out_dims:
        return entries
    dims = [_dim(d) for d in out_dims]
    lasting = [e for e in entries if isinstance(e, (Slice, New))]
    if len(dims) != len(lasting):
        raise ShapeError(
            f"slice: {len(dims)} out_dims for a result of rank {len(lasting)}",
            operands={"x": x},
            help="give one dim for each axis of the result",
        )
    called = {id(e): e.called("slice", dim) for e, dim in zip(lasting, dims, strict=True)}
    return [called.get(id(e), e) for e in entries]


def _at_positions(x: Symbol, entries: list[Entry]) -> tuple[Symbol, list[int]]:
    """x without the axes that single positions drop, and the axes of x that are left."""
    axes = list(range(x.rank))
    for entry in entries:
        if isinstance(entry, Int):
            at = axes.index(entry.axis)
            position = entry.position
            index = x.graph._scalar(position, DType.int64) if isinstance(position, int) else position
            x = take(x, index, at)
            del axes[at]
    return x, axes


def _sliced(x: Symbol, axes: list[int], slices: list[Slice]) -> Symbol:
    """All slices as one ONNX Slice."""
    if not slices:
        return x
    graph = x.graph
    dims = list(x.shape)
    for entry in slices:
        dims[axes.index(entry.axis)] = entry.length
    starts, stops, steps = (_vector(x, [getattr(e, part) for e in slices]) for part in ("start", "stop", "step"))
    inputs: tuple[Symbol, ...] = (x, starts, stops, graph._vector([axes.index(e.axis) for e in slices]))
    if any(e.step != 1 if isinstance(e.step, int) else True for e in slices):
        inputs += (steps,)
    return graph._emit("Slice", inputs, retype(x, shape=_shape(dims)))


def _vector(x: Symbol, values: list[int | Symbol]) -> Symbol:
    """Numbers known now or when the graph runs (int64 scalars), as one int64 vector."""
    numbers = [v for v in values if isinstance(v, int)]
    if len(numbers) == len(values):
        return x.graph._vector(numbers)
    one = tensor_type(DType.int64, Shape([1]))
    parts = tuple(
        x.graph._vector([v]) if isinstance(v, int) else x.graph._emit("Reshape", (v, x.graph._vector([1])), one)
        for v in values
    )
    if len(parts) == 1:
        return parts[0]
    return x.graph._emit("Concat", parts, tensor_type(DType.int64, Shape([len(parts)])), {"axis": 0})


def _gathered(name: str, x: Symbol, axes: list[int], arrays: list[Array | Mask]) -> tuple[Symbol, list[Item]]:
    """The elements at the arrays' positions, and what each axis of the result is: see `Item`."""
    taken: list[int] = []
    for entry in arrays:
        taken += entry.axes
    if len(arrays) == 1 and isinstance(arrays[0], Mask):
        rows = coordinates(arrays[0].mask, Dim.dynamic())
        if len(taken) > 1:
            turned = tensor_type(DType.int64, _shape(reversed(rows.shape)))
            indices = x.graph._emit("Transpose", (rows,), turned, {"perm": [1, 0]})
            return _gather_nd(x, axes, taken, indices)
        flat = x.graph._emit("Squeeze", (rows, x.graph._vector([0])), retype(rows, shape=rows.shape[1:]))
        return _gather(x, axes, taken[0], flat)
    positions: list[Symbol] = []
    for entry in arrays:
        positions += _rows(entry.mask) if isinstance(entry, Mask) else [entry.positions]
    if len(taken) == 1:
        return _gather(x, axes, taken[0], whole(positions[0]))
    return _gather_nd(x, axes, taken, _stacked(name, positions))


def _gather(x: Symbol, axes: list[int], axis: int, index: Symbol) -> tuple[Symbol, list[Item]]:
    at = axes.index(axis)
    return take(x, index, at), [*axes[:at], *_array_axes(index.rank), *axes[at + 1 :]]


def _gather_nd(x: Symbol, axes: list[int], taken: list[int], indices: Symbol) -> tuple[Symbol, list[Item]]:
    left = [axis for axis in axes if axis not in taken]
    perm = [axes.index(axis) for axis in (*taken, *left)]
    graph = x.graph
    if perm != sorted(perm):
        x = graph._emit("Transpose", (x,), retype(x, shape=_shape(x.shape[i] for i in perm)), {"perm": perm})
    shape = indices.shape[:-1] + x.shape[len(taken) :]
    made = graph._emit("GatherND", (x, indices), retype(x, shape=shape))
    return made, [*_array_axes(indices.rank - 1), *left]


def _array_axes(count: int) -> list[int]:
    return [-1 - i for i in range(count)]


def _rows(mask: Symbol) -> list[Symbol]:
    """The coordinates of the true elements along each axis."""
    found = coordinates(mask, Dim.dynamic())
    return [take(found, mask.graph._scalar(row, DType.int64), 0) for row in range(mask.rank)]


def _stacked(name: str, positions: list[Symbol]) -> Symbol:
    """Index arrays broadcast together, as the rows of one array: int64 [*broadcast, number of arrays]."""
    try:
        shape = broadcast_shapes([p.shape for p in positions])
    except ValueError as clash:
        raise ShapeError(
            f"{name}: index arrays do not broadcast together: {clash}",
            operands={f"index {i}": p for i, p in enumerate(positions)},
            help="give them one shape, or index one axis after the other",
        ) from None
    graph = positions[0].graph
    arrays = [known(p) for p in positions]
    values = [a for a in arrays if a is not None]
    if len(values) == len(arrays):
        return graph._constant(np.stack(np.broadcast_arrays(*values), axis=-1).astype(np.int64), DType.int64)
    columns = []
    for column in _expanded([whole(p, DType.int64) for p in positions], shape):
        type_ = retype(column, shape=_shape((*column.shape, Dim(1))))
        columns.append(graph._emit("Unsqueeze", (column, graph._vector([-1])), type_))
    rows = retype(columns[0], shape=_shape((*shape, Dim(len(columns)))))
    return graph._emit("Concat", tuple(columns), rows, {"axis": -1})


def _expanded(arrays: list[Symbol], shape: Shape) -> list[Symbol]:
    """Arrays brought to the shape they broadcast to."""
    if all(a.shape == shape and not shape.is_dynamic for a in arrays):
        return arrays
    graph = arrays[0].graph
    if shape.is_static:
        target = graph._vector([int(d) for d in shape])
        return [a if a.shape == shape else graph._emit("Expand", (a, target), retype(a, shape=shape)) for a in arrays]
    # Expand broadcasts both ways, so the first array grows with each of the others to the shape of all.
    grown = arrays[0]
    for other in arrays[1:]:
        met = broadcast_shapes([grown.shape, other.shape])
        grown = graph._emit("Expand", (grown, runtime_shape(other)), retype(grown, shape=met))
    target = runtime_shape(grown)
    return [grown, *(graph._emit("Expand", (a, target), retype(a, shape=shape)) for a in arrays[1:])]


def _result_order(entries: list[Entry], order: list[Item]) -> list[Item]:
    """The axes of the result by NumPy's rule: those of index arrays stand where the arrays do, or first.

    They stand first where something else is between the arrays. A single position counts as an array beside arrays.
    """
    gathered = [item for item in order if isinstance(item, int) and item < 0]
    has_arrays = any(isinstance(e, (Array, Mask)) for e in entries)
    advanced = [i for i, e in enumerate(entries) if isinstance(e, (Int, Array, Mask))] if has_arrays else []
    together = bool(advanced) and advanced[-1] - advanced[0] == len(advanced) - 1
    wanted: list[Item] = [] if together else [*gathered]
    for position, entry in enumerate(entries):
        if together and position == advanced[0]:
            wanted += gathered
        if isinstance(entry, Slice):
            wanted.append(entry.axis)
        elif isinstance(entry, New):
            wanted.append(entry)
    return wanted


def _with_new_axes(x: Symbol, positions: list[int], entries: list[New]) -> Symbol:
    dims = list(x.shape)
    for position, entry in zip(positions, entries, strict=True):
        dims.insert(position, entry.length)
    return x.graph._emit("Unsqueeze", (x, x.graph._vector(positions)), retype(x, shape=_shape(dims)))
