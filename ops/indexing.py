"""Square brackets: NumPy's basic and advanced indexing of Symbols, and `x[index] = value` as a new tensor.

`shared/index.py` parses the indices.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from graphcore.build import primitives
from graphcore.build.declare import op
from graphcore.build.operands import operand
from graphcore.build.shapes import axis_of, retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ir.transform.walk import constant_array
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.ops.shared.index import Entry, IndexArray, IntIndex, Mask, New, read
from graphcore.ops.shared.slice import Slice, coordinates, runtime_shape, take, whole
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, _dim, _shape, tensor_type

__all__ = ["getitem", "slice", "slice_tensor"]

_WRITTEN_OUT = 64  # positions along one axis that become a constant

Item: TypeAlias = int | New
"""The source of a result's axis: an axis of x (>= 0), a dim of the index arrays (-1: first, -2: second), or new."""


@op(onnx="Gather, Slice, GatherND", rule="keep", dunder="getitem")
def getitem(x: TensorLike, index: Any) -> Symbol:
    """The part of `x` that an index selects, as `x[index]` in NumPy.

    Args:
        x: Of any dtype and shape.
        index: One or a tuple of ints and integer scalars (which drop their axis), slices with any step but 0 whose
            bounds are ints, Dims, None or integer Symbols, `...`, None (a new axis of size 1), integer arrays, lists
            and Symbols (which broadcast together), bool arrays and Symbols (the positions that are true). Negative
            positions count from the end. (slice, dim) in a tuple names a slice's length. Lengths follow from the dims;
            those that depend on values are unknown.

    Raises:
        ShapeError: For too many indices, constant positions out of bounds, a step of 0 and masks that do not fit.
        DTypeError: For an invalid index.

    ONNX Gather, Slice, GatherND, NonZero, Unsqueeze.
    """
    return _index("getitem", operand("getitem", x), index if type(index) is tuple else (index,))


@op(onnx="Gather, Slice, GatherND", rule="keep")
def slice_tensor(x: TensorLike, indices: Any) -> Symbol:
    """`x[indices]` as a function.

    Args:
        x: Of any dtype and shape.
        indices: One index or a list or tuple of indices, one per axis, as in `x[...]`; (slice, dim) names a slice's
            length. Raises as `getitem` does.

    ONNX Gather, Slice, GatherND, NonZero, Unsqueeze.
    """
    items = tuple(indices) if isinstance(indices, (list, tuple)) else (indices,)
    return _index("slice_tensor", operand("slice_tensor", x), items)


@op(onnx="Gather, Slice", rule="keep")
def slice(
    x: TensorLike,
    *slices: Any,
    out_dims: Sequence[DimLike] = (),
    axis: int = 0,
    keep_dims: bool = False,
) -> Symbol:
    """The part of `x` between positions of some axes.

    Args:
        x: Of any dtype and shape.
        slices: Slices, ints, integer scalars, `...` and None as in `x[...]`, the first one for `axis`.
        out_dims: All dims of the result; by default they follow from the dims of `x`.
        keep_dims: A single position keeps its axis, of size 1.

    Raises:
        ShapeError: As `getitem` does, and for impossible out_dims.
        DTypeError: For an invalid index.

    ONNX Slice, and Gather for single positions.
    """
    data = operand("slice", x)
    at = axis_of("slice", axis, data.rank, {"x": data})
    return _index("slice", data, (builtins.slice(None),) * at + slices, out_dims, keep_dims)


def _index(
    name: str, x: Symbol, items: tuple[Any, ...], out_dims: Sequence[DimLike] = (), keep_dims: bool = False
) -> Symbol:
    entries = read(name, x, items)
    if name == "slice":
        entries = _basic_entries(x, entries, out_dims, keep_dims)
    y, axes = _at_positions(x, entries)
    y = _emit_slices(y, axes, [e for e in entries if isinstance(e, Slice) and not e.is_whole])
    arrays = [e for e in entries if isinstance(e, (IndexArray, Mask))]
    order: list[Item] = list(axes)
    if arrays:
        y, order = _gather_arrays(name, y, axes, arrays)
    target = _result_order(entries, order)
    moved = [order.index(item) for item in target if not isinstance(item, New)]
    y = primitives.transpose(y, moved)
    new = [position for position, item in enumerate(target) if isinstance(item, New)]
    return _with_new_axes(y, new, [item for item in target if isinstance(item, New)]) if new else y


def _basic_entries(x: Symbol, entries: list[Entry], out_dims: Sequence[DimLike], keep_dims: bool) -> list[Entry]:
    """Return the entries of `slice`, with `keep_dims` and `out_dims` applied."""
    if any(isinstance(e, (IndexArray, Mask)) for e in entries):
        raise ShapeError(
            "slice: got an array of positions", operands={"x": x}, help="index with it: x[...], or use ops.gather"
        )
    if keep_dims:
        entries = [part for e in entries for part in ((e, New()) if isinstance(e, IntIndex) else (e,))]
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
    renamed = {id(e): e.called("slice", dim) for e, dim in zip(lasting, dims, strict=True)}
    return [renamed.get(id(e), e) for e in entries]


def _at_positions(x: Symbol, entries: list[Entry]) -> tuple[Symbol, list[int]]:
    """Take the single positions, which drop their axes; return the result and the remaining axes of x."""
    axes = list(range(x.rank))
    for entry in entries:
        if isinstance(entry, IntIndex):
            at = axes.index(entry.axis)
            position = entry.position
            index = x.graph.build.scalar(position, DType.int64) if isinstance(position, int) else position
            x = take(x, index, at)
            del axes[at]
    return x, axes


def _emit_slices(x: Symbol, axes: list[int], slices: list[Slice]) -> Symbol:
    """Emit all slices as one ONNX Slice."""
    if not slices:
        return x
    graph = x.graph
    dims = list(x.shape)
    for entry in slices:
        dims[axes.index(entry.axis)] = entry.length
    starts, stops, steps = (_vector(x, [getattr(e, part) for e in slices]) for part in ("start", "stop", "step"))
    inputs: tuple[Symbol, ...] = (x, starts, stops, graph.build.vector([axes.index(e.axis) for e in slices]))
    if any(e.step != 1 if isinstance(e.step, int) else True for e in slices):
        inputs += (steps,)
    return graph.build.emit("Slice", inputs, retype(x, shape=_shape(dims)))


def _vector(x: Symbol, values: list[int | Symbol]) -> Symbol:
    """Join ints and int64 scalars into one int64 vector."""
    numbers = [v for v in values if isinstance(v, int)]
    if len(numbers) == len(values):
        return x.graph.build.vector(numbers)
    one = tensor_type(DType.int64, Shape([1]))
    parts = tuple(
        x.graph.build.vector([v])
        if isinstance(v, int)
        else x.graph.build.emit("Reshape", (v, x.graph.build.vector([1])), one)
        for v in values
    )
    if len(parts) == 1:
        return parts[0]
    return x.graph.build.emit("Concat", parts, tensor_type(DType.int64, Shape([len(parts)])), {"axis": 0})


def _gather_arrays(name: str, x: Symbol, axes: list[int], arrays: list[IndexArray | Mask]) -> tuple[Symbol, list[Item]]:
    """Gather the elements at index arrays; return them and the `Item` of each axis of the result."""
    taken: list[int] = []
    for entry in arrays:
        taken += entry.axes
    if len(arrays) == 1 and isinstance(arrays[0], Mask):
        rows = coordinates(arrays[0].mask, Dim.dynamic())
        if len(taken) > 1:
            return _gather_nd(x, axes, taken, primitives.transpose(rows, [1, 0]))
        return _gather(x, axes, taken[0], primitives.squeeze(rows, 0))
    positions: list[Symbol] = []
    for entry in arrays:
        positions += _rows(entry.mask) if isinstance(entry, Mask) else [entry.positions]
    if len(taken) == 1:
        return _gather(x, axes, taken[0], whole(positions[0]))
    return _gather_nd(x, axes, taken, _stack_indices(name, positions))


def _gather(x: Symbol, axes: list[int], axis: int, index: Symbol) -> tuple[Symbol, list[Item]]:
    at = axes.index(axis)
    return take(x, index, at), [*axes[:at], *range(-1, -1 - index.rank, -1), *axes[at + 1 :]]


def _gather_nd(x: Symbol, axes: list[int], taken: list[int], indices: Symbol) -> tuple[Symbol, list[Item]]:
    remaining = [axis for axis in axes if axis not in taken]
    perm = [axes.index(axis) for axis in (*taken, *remaining)]
    x = primitives.transpose(x, perm)
    shape = indices.shape[:-1] + x.shape[len(taken) :]
    gathered = x.graph.build.emit("GatherND", (x, indices), retype(x, shape=shape))
    return gathered, [*range(-1, -indices.rank, -1), *remaining]


def _rows(mask: Symbol) -> list[Symbol]:
    """Return the coordinates of the true elements along each axis."""
    positions = coordinates(mask, Dim.dynamic())
    return [take(positions, mask.graph.build.scalar(row, DType.int64), 0) for row in range(mask.rank)]


def _stack_indices(name: str, positions: list[Symbol]) -> Symbol:
    """Broadcast index arrays together into the rows of one array: int64 [*broadcast, number of arrays]."""
    try:
        shape = broadcast_shapes([p.shape for p in positions])
    except ValueError as clash:
        raise ShapeError(
            f"{name}: index arrays do not broadcast together: {clash}",
            operands={f"index {i}": p for i, p in enumerate(positions)},
            help="give them one shape, or index the axes one after the other",
        ) from None
    graph = positions[0].graph
    arrays = [constant_array(p) for p in positions]
    values = [a for a in arrays if a is not None]
    if len(values) == len(arrays):
        return graph.build.constant(np.stack(np.broadcast_arrays(*values), axis=-1).astype(np.int64), DType.int64)
    expanded = _expand_indices([whole(p, DType.int64) for p in positions], shape)
    columns = [primitives.unsqueeze(column, -1) for column in expanded]
    rows = retype(columns[0], shape=_shape((*shape, Dim(len(columns)))))
    return graph.build.emit("Concat", tuple(columns), rows, {"axis": -1})


def _expand_indices(arrays: list[Symbol], shape: Shape) -> list[Symbol]:
    """Expand arrays to their common broadcast shape."""
    if all(a.shape == shape and not shape.is_dynamic for a in arrays):
        return arrays
    graph = arrays[0].graph
    if shape.is_static:
        target = graph.build.vector([int(d) for d in shape])
        return [
            a if a.shape == shape else graph.build.emit("Expand", (a, target), retype(a, shape=shape)) for a in arrays
        ]
    # Expand broadcasts both ways, so the first array is expanded by each of the others to the common shape.
    grown = arrays[0]
    for other in arrays[1:]:
        common = broadcast_shapes([grown.shape, other.shape])
        grown = graph.build.emit("Expand", (grown, runtime_shape(other)), retype(grown, shape=common))
    target = runtime_shape(grown)
    return [grown, *(graph.build.emit("Expand", (a, target), retype(a, shape=shape)) for a in arrays[1:])]


def _result_order(entries: list[Entry], order: list[Item]) -> list[Item]:
    """Order the axes of the result by NumPy's rule: those of index arrays are where the arrays are, or first.

    They are first if another index separates the arrays. A single position counts as an array beside arrays.
    """
    gathered = [item for item in order if isinstance(item, int) and item < 0]
    has_arrays = any(isinstance(e, (IndexArray, Mask)) for e in entries)
    advanced = [i for i, e in enumerate(entries) if isinstance(e, (IntIndex, IndexArray, Mask))] if has_arrays else []
    together = bool(advanced) and advanced[-1] - advanced[0] == len(advanced) - 1
    target: list[Item] = [] if together else [*gathered]
    for position, entry in enumerate(entries):
        if together and position == advanced[0]:
            target += gathered
        if isinstance(entry, Slice):
            target.append(entry.axis)
        elif isinstance(entry, New):
            target.append(entry)
    return target


def _with_new_axes(x: Symbol, positions: list[int], entries: list[New]) -> Symbol:
    dims = list(x.shape)
    for position, entry in zip(positions, entries, strict=True):
        dims.insert(position, entry.length)
    return x.graph.build.emit("Unsqueeze", (x, x.graph.build.vector(positions)), retype(x, shape=_shape(dims)))


# Assignment: `x[index] = value` as a new tensor


def assign(name: str, x: Symbol, items: tuple[Any, ...], value: Symbol) -> Symbol:
    """Return `x` with `value`, of its dtype, stored at an index of ints and slices.

    Raises as `getitem` does, and `ShapeError` if the value does not broadcast to the part.
    """
    entries = [e for e in read(name, x, items) if isinstance(e, (IntIndex, Slice, New, IndexArray, Mask))]
    if any(not isinstance(e, (IntIndex, Slice)) for e in entries):
        raise DTypeError(
            f"{name}: only ints, integer scalars, slices and `...` can index a store",
            operands={"buffer": x},
            help="store the result of ops.scatter_nd, ops.masked_scatter or ops.where: ops.buffer_store(buffer, ...)",
        )
    parts = [e for e in entries if isinstance(e, (IntIndex, Slice))]
    depth = max((i + 1 for i, e in enumerate(parts) if isinstance(e, IntIndex) or not e.is_whole), default=0)
    rows = [_positions(x, e) for e in parts[:depth]]
    shape = _shape([e.length for e in parts if isinstance(e, Slice)])
    sizes = [
        runtime_shape(rows[i] if i < depth else x, *((0, 1) if i < depth else (i, i + 1)))
        for i, e in enumerate(parts)
        if isinstance(e, Slice) and not (value.shape == shape and not shape.is_dynamic)
    ]
    new = _broadcast(name, x, value, shape, sizes)
    if any(dim == 0 for dim in shape):
        return x
    dropped = [i for i, e in enumerate(parts) if isinstance(e, IntIndex)]
    if dropped:
        new = primitives.unsqueeze(new, *dropped)
    if not depth:
        return new
    return x.graph.build.emit("ScatterND", (x, _grid(name, rows), new), x.type)


def _positions(x: Symbol, entry: IntIndex | Slice) -> Symbol:
    """Return the positions along one axis, an int64 vector."""
    graph = x.graph
    if isinstance(entry, IntIndex):
        if isinstance(entry.position, int):
            return graph.build.vector([entry.position])
        return graph.build.emit(
            "Reshape", (entry.position, graph.build.vector([1])), tensor_type(DType.int64, Shape([1]))
        )
    size = x.shape[entry.axis]
    bounds = entry.start, entry.stop, entry.step
    if size.is_static and all(isinstance(b, int) for b in bounds):
        positions = range(int(size))[builtins.slice(*bounds)]
        if len(positions) <= _WRITTEN_OUT:
            return graph.build.vector([*positions])
    if size.is_static:
        count = graph.build.scalar(int(size), DType.int64)
    else:
        vector = runtime_shape(x, entry.axis, entry.axis + 1)
        count = primitives.squeeze(vector, 0)
    zero, one = graph.build.scalar(0, DType.int64), graph.build.scalar(1, DType.int64)
    every = graph.build.emit("Range", (zero, count, one), tensor_type(DType.int64, _shape([size])))
    return every if entry.is_whole else _emit_slices(every, [0], [replace(entry, axis=0)])


def _grid(name: str, rows: list[Symbol]) -> Symbol:
    """Return the coordinates of every combination of positions: int64 [*lengths, number of axes]."""
    depth = len(rows)
    if depth == 1:
        return _with_axes(rows[0], [1])
    return _stack_indices(
        name, [_with_axes(row, [i for i in range(depth) if i != axis]) for axis, row in enumerate(rows)]
    )


def _with_axes(row: Symbol, axes: list[int]) -> Symbol:
    """Insert axes of size 1 into a vector."""
    array = constant_array(row)
    if array is not None:
        return row.graph.build.constant(np.expand_dims(array, tuple(axes)), DType.int64)
    return primitives.unsqueeze(row, *axes)


def _broadcast(name: str, x: Symbol, value: Symbol, shape: Shape, sizes: list[Symbol]) -> Symbol:
    """Broadcast the value to the shape of the stored part. sizes: its sizes when the graph runs."""
    if value.shape == shape and not shape.is_dynamic:
        return value
    try:
        common = broadcast_shapes([value.shape, shape]) if len(value.shape) <= len(shape) else None
    except ValueError:
        common = None
    if common is None or any(a is not b and not b.is_dynamic for a, b in zip(common, shape, strict=True)):
        raise ShapeError(
            f"{name}: the value does not broadcast to {shape}, the shape of the stored part",
            operands={"buffer": x, "value": value},
            help="give it that shape, or dims of 1 to repeat",
        )
    graph = x.graph
    if not sizes:
        return value
    length = tensor_type(DType.int64, Shape([len(sizes)]))
    vector = sizes[0] if len(sizes) == 1 else graph.build.emit("Concat", tuple(sizes), length, {"axis": 0})
    return graph.build.emit("Expand", (value, vector), retype(value, shape=shape))
