"""Gathers and scatters: elements at positions, positions of elements, and elements written to positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphcore.arrays import casting
from graphcore.build import operands
from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import graph_of
from graphcore.build.shapes import axis_of, broadcast, check_shape, retype, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ir.transform.walk import constant_array
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.ops.shared.dims import Axis, SizeLike, shape_vector
from graphcore.ops.shared.reshape import dim_of, graph_and_sizes
from graphcore.ops.shared.slice import (
    as_condition,
    check_bounds,
    coordinate_length,
    coordinates,
    index_operand,
    refuse_scalar,
    runtime_shape,
    take,
    whole,
)
from graphcore.promotion.rules import Key
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, _dim, _shape, tensor_type

# Taking


@op(onnx="Gather", rule="keep")
def gather(x: TensorLike, indices: TensorLike, axis: int = 0) -> Symbol:
    """The slices of `x` at `indices` along one axis.

    ONNX Gather, NumPy's `take`.

    Args:
        x: [..., n, ...] of any dtype, n at `axis`.
        indices: Integers of any shape; negative ones count from the end of the axis.

    Returns:
        The dtype of `x` and its shape with n replaced by the shape of `indices`.

    Raises:
        DTypeError: For indices that are not integers.
        ShapeError: For an invalid axis and for constant indices out of bounds.
    """
    graph = graph_of("gather", (x, indices))
    data = graph.build.operand(x, "gather", "x")
    at = axis_of("gather", axis, data.rank, {"x": data})
    index = index_operand(graph, "gather", indices, "indices")
    check_bounds("gather", index, data, at)
    return take(data, whole(index), at)


@op(onnx="Gather", rule="keep")
def embedding(table: TensorLike, ids: TensorLike) -> Symbol:
    """The rows of a table at `ids`, one for each id.

    Args:
        table: [n, d] of any dtype.
        ids: Integers of any shape, from 0 to n - 1.

    Returns:
        [*ids, d] of the dtype of `table`.

    Raises:
        DTypeError: For ids that are not integers.
        ShapeError: For a table of another rank and for constant ids out of bounds.

    ONNX Gather, PyTorch's `embedding`.
    """
    name = "embedding"
    graph = graph_of(name, (table, ids))
    data = graph.build.operand(table, name, "table")
    index = index_operand(graph, name, ids, "ids")
    roles = {"table": data, "ids": index}
    if data.rank != 2:
        raise ShapeError(
            f"{name}: table must have rank 2, got {data.rank}",
            operands=roles,
            help="give [n, d]; ops.gather takes slices of any tensor",
        )
    array = constant_array(index)
    if array is not None and array.size and array.min() < 0:
        raise ShapeError(f"{name}: id {array.min()} is below 0", operands=roles, help="ids go from 0 to n - 1")
    check_bounds(name, index, data, 0)
    return take(data, whole(index), 0)


@op(onnx="GatherND", rule="keep")
def gather_nd(x: TensorLike, indices: TensorLike, batch_dims: int = 0) -> Symbol:
    """The slices of `x` at coordinates along its first axes.

    Args:
        x: [*batch, n_1, ..., n_k, *rest] of any dtype.
        indices: Integers of shape [*batch, *outer, k], each row a position in n_1 ... n_k; negative numbers count from
            the end.
        batch_dims: The length of `batch`.

    Returns:
        [*batch, *outer, *rest] of the dtype of `x`.

    Raises:
        DTypeError: For indices that are not integers.
        ShapeError: For k unknown or too large, for batch dims that differ and for constant indices out of bounds.

    ONNX GatherND.
    """
    graph = graph_of("gather_nd", (x, indices))
    data = graph.build.operand(x, "gather_nd", "x")
    index = index_operand(graph, "gather_nd", indices, "indices")
    roles = {"x": data, "indices": index}
    is_count = isinstance(batch_dims, (int, np.integer)) and not isinstance(batch_dims, bool)
    if not is_count or not 0 <= batch_dims < max(1, min(data.rank, index.rank)):
        raise ShapeError(
            f"gather_nd: batch_dims={batch_dims!r} is not possible for ranks {data.rank} and {index.rank}",
            operands=roles,
            help="it is the number of leading axes that x and indices share, less than either rank",
        )
    for position in range(batch_dims):
        if not same_dim(data.shape[position], index.shape[position]):
            raise ShapeError(
                f"gather_nd: batch dims differ at axis {position}: {data.shape[position]} and {index.shape[position]}",
                operands=roles,
                help="make the first batch_dims axes of x and indices the same",
            )
    depth = coordinate_length("gather_nd", roles, data.rank - batch_dims)
    for column in range(depth):
        check_bounds("gather_nd", index, data, batch_dims + column, column=column)
    shape = index.shape[:-1] + data.shape[batch_dims + depth :]
    attributes = {"batch_dims": int(batch_dims)} if batch_dims else None
    return graph.build.emit("GatherND", (data, whole(index, DType.int64)), retype(data, shape=shape), attributes)


@op(onnx="GatherElements", rule="keep")
def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """One element of `x` for each element of `indices`, along one axis.

    ONNX GatherElements, NumPy's `take_along_axis`.

    Args:
        x: Of any dtype and shape.
        indices: Integers of the same rank, of any size along `axis`; the other dims broadcast with those of `x`.
            Negative indices count from the end.

    Returns:
        The dtype of `x` in the broadcast shape of `indices`.

    Raises:
        DTypeError: For indices that are not integers.
        ShapeError: For ranks or dims that do not match and for constant indices out of bounds.
    """
    graph = graph_of("take_along_axis", (x, indices))
    data = graph.build.operand(x, "take_along_axis", "x")
    index = index_operand(graph, "take_along_axis", indices, "indices")
    roles = {"x": data, "indices": index}
    if data.rank != index.rank:
        raise ShapeError(
            f"take_along_axis: the ranks of x and indices differ: {data.rank} and {index.rank}",
            operands=roles,
            help="add axes of size 1 with ops.unsqueeze, or take whole slices with ops.gather",
        )
    at = axis_of("take_along_axis", axis, data.rank, roles)
    check_bounds("take_along_axis", index, data, at)
    hidden = [_shape((*s.shape[:at], Dim(1), *s.shape[at + 1 :])) for s in (data, index)]
    try:
        common = broadcast_shapes(hidden)
    except ValueError as clash:
        raise ShapeError(
            f"take_along_axis: dims other than axis {at} do not broadcast: {clash}",
            operands=roles,
            help="make them equal or 1; only the sizes along the axis may differ",
        ) from None
    index = whole(index)
    inputs = []
    for symbol, other in ((data, index), (index, data)):
        wanted = _shape((*common[:at], symbol.shape[at], *common[at + 1 :]))
        inputs.append(symbol if symbol.shape == wanted else _expand_beside(symbol, other, at, wanted))
    return graph.build.emit("GatherElements", tuple(inputs), retype(data, shape=inputs[1].shape), {"axis": at})


@op(onnx="NonZero", rule="keep")
def nonzero(x: TensorLike, out_dim: DimLike | None = None) -> Symbol:
    """The coordinates of the elements that are not zero, one row each.

    Args:
        x: Of any number or bool dtype, rank >= 1; NaN is not zero.
        out_dim: A name for the number of rows, unknown otherwise.

    Returns:
        Int64 [out_dim, rank of x], rows in the order of the elements.

    Raises:
        ShapeError: For a scalar.
        DTypeError: For strings.

    ONNX NonZero, transposed.
    """
    data = operands.operand("nonzero", x)
    refuse_scalar("nonzero", data)
    rows = Dim.dynamic() if out_dim is None else _dim(out_dim)
    positions = coordinates(as_condition("nonzero", data, "x"), rows)
    return e.transpose(positions, [1, 0])


# Selection


@op(onnx="Where", rule="join")
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Symbol:
    """The elements of `x` where `condition` is true and those of `y` elsewhere.

    ONNX Where, NumPy's `where`.

    Args:
        condition: Bool, or a number, true if not 0.
        x: Of any dtypes that promote to a common one.
        y: Of any dtypes that promote to a common one. All three broadcast.

    Returns:
        The common dtype in the broadcast shape.

    Raises:
        PromotionError: If `x` and `y` have no common dtype.
        ShapeError: If the shapes do not broadcast.
    """
    return _where("where", condition, x, y)


@op(onnx="Where", rule="join")
def select(condition: TensorLike, x: TensorLike, y: TensorLike) -> Symbol:
    """An alias of `where`: `x` where `condition` is true and `y` elsewhere.

    Args:
        condition: Bool or a number; x, y: of any dtypes that promote to a common one; all three broadcast.

    Returns:
        And raises as `where` does.

    ONNX Where.
    """
    return _where("select", condition, x, y)


def _where(name: str, condition: TensorLike, x: TensorLike, y: TensorLike) -> Symbol:
    graph = graph_of(name, (condition, x, y))
    chooser = as_condition(name, graph.build.operand(condition, name, "condition"), "condition")
    roles = {"x": x, "y": y}
    symbols, literals = operands._split(graph, name, roles)
    resolution = operands.resolve(graph, Key(name, "join"), roles, symbols, literals)
    left, right = operands.apply(graph, name, roles, symbols, literals, resolution)
    shape = broadcast(name, {"condition": chooser, "x": left, "y": right})
    type_ = tensor_type(resolution.result, shape, resolution.ambiguous)
    return graph.build.emit("Where", (chooser, left, right), type_)


def _expand_beside(x: Symbol, other: Symbol, axis: int, shape: Shape) -> Symbol:
    """Broadcast x with every dim of `other` except `axis`."""
    graph = x.graph
    if shape.is_static:
        target = graph.build.vector([int(d) for d in shape])
    else:
        parts = [graph.build.vector([1])]
        if axis:
            parts.insert(0, runtime_shape(other, 0, axis))
        if axis + 1 < other.rank:
            parts.append(runtime_shape(other, axis + 1))
        target = parts[0]
        if len(parts) > 1:
            target = graph.build.emit("Concat", tuple(parts), tensor_type(DType.int64, Shape([x.rank])), {"axis": 0})
    return graph.build.emit("Expand", (x, target), retype(x, shape=shape))


# Scatters


def _by_index(name: str, reduction: str, doc: str) -> Callable[..., Symbol]:
    """Declare a scatter along one axis. reduction: "" for none."""

    @op(onnx="ScatterElements", rule="join", name=name, doc=doc)
    def scatter(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
        graph = graph_of(name, (x, updates, indices))
        data, new = _same_dtype(graph, name, x, updates)
        index = index_operand(graph, name, indices, "indices")
        roles = {"x": data, "updates": new, "indices": index}
        if not data.rank == new.rank == index.rank or not data.rank:
            raise ShapeError(
                f"{name}: the ranks of x, updates and indices must be equal and not 0, got "
                f"{data.rank}, {new.rank} and {index.rank}",
                operands=roles,
                help=f"to write whole slices, use ops.{name.replace('scatter', 'scatter_nd')}",
            )
        at = axis_of(name, axis, data.rank, roles)
        for position, (own, other) in enumerate(zip(new.shape, index.shape, strict=True)):
            if not same_dim(own, other):
                raise ShapeError(
                    f"{name}: updates and indices differ at axis {position}: {own} and {other}",
                    operands=roles,
                    help="give one index for each update",
                )
            if position != at and ((other - data.shape[position]).lower_bound or 0) > 0:
                raise ShapeError(
                    f"{name}: indices are longer than x at axis {position}: {other} and {data.shape[position]}",
                    operands=roles,
                    help="only the scattered axis may be longer than in x",
                )
        check_bounds(name, index, data, at)
        attributes: dict[str, Any] = {"axis": at}
        return graph.build.emit(
            "ScatterElements", (data, whole(index), new), data.type, attributes | _reduction(name, data, reduction)
        )

    return scatter


def _by_coordinates(name: str, reduction: str, doc: str) -> Callable[..., Symbol]:
    """Declare a scatter at coordinates. reduction: "" for none."""

    @op(onnx="ScatterND", rule="join", name=name, doc=doc)
    def scatter(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
        graph = graph_of(name, (x, updates, indices))
        data, new = _same_dtype(graph, name, x, updates)
        index = index_operand(graph, name, indices, "indices")
        roles = {"x": data, "updates": new, "indices": index}
        depth = coordinate_length(name, roles, data.rank)
        wanted = index.shape[:-1] + data.shape[depth:]
        layout = "updates are [*outer, *rest] for indices [*outer, k] and x [n_1, ..., n_k, *rest]"
        check_shape(name, "updates", roles, wanted, layout)
        for column in range(depth):
            check_bounds(name, index, data, column, column=column)
        return graph.build.emit(
            "ScatterND", (data, whole(index, DType.int64), new), data.type, _reduction(name, data, reduction)
        )

    return scatter


scatter = _by_index(
    "scatter",
    "",
    """`x` with the elements at `indices` along one axis replaced by `updates`.

    Args:
        x: Of any dtype.
        updates: Of a dtype that promotes to that of `x`, of the same rank.
        indices: Integers of the shape of `updates`, with no axis but `axis` longer than in `x`; negative ones count
            from the end. If an element has several updates, it is undefined which one is used.

    Returns:
        The type of `x`.

    Raises:
        DTypeError: For updates that would need another dtype and for indices that are not integers.
        ShapeError: For shapes that do not match and for constant indices out of bounds.

    ONNX ScatterElements.
    """,
)
scatter_nd = _by_coordinates(
    "scatter_nd",
    "",
    """`x` with the slices at coordinates along its first axes replaced by `updates`.

    Args:
        x: [n_1, ..., n_k, *rest] of any dtype.
        updates: [*outer, *rest] of a dtype that promotes to that of `x`. If a slice has several updates, it is
            undefined which one is used.
        indices: Integers [*outer, k], each row a position in n_1 ... n_k; negative numbers count from the end.

    Returns:
        The type of `x`.

    Raises:
        DTypeError: For updates that would need another dtype and for indices that are not integers.
        ShapeError: For shapes that do not match and for constant indices out of bounds.

    ONNX ScatterND.
    """,
)

_REDUCTIONS = {
    "add": ("`x` with `updates` added to {what}", "bools are *or*ed, and "),
    "max": ("The larger of `x` and `updates` at {where}", ""),
    "min": ("The smaller of `x` and `updates` at {where}", ""),
    "mul": ("`x` with {what} multiplied by `updates`", "bools are *and*ed, and "),
}
"""The summary of each reduction, and its meaning for bools."""


def _doc(reduction: str, name: str, onnx: str, what: str, where: str) -> str:
    gives, of_bools = _REDUCTIONS[reduction]
    return f"""{gives.format(what=what, where=where)}. ONNX {onnx}, reduction "{reduction}".

    Operands, result and errors as for `{name}`; {of_bools}all updates of one element or slice are applied.
    """


_INDEX = "scatter", "ScatterElements", "the elements at `indices` along one axis", "`indices` along one axis"
_COORDINATES = (
    "scatter_nd", "ScatterND", "the slices at coordinates along its first axes", "coordinates along the first axes"
)  # fmt: skip
scatter_add, scatter_max, scatter_min, scatter_mul = [
    _by_index(f"scatter_{r}", r, _doc(r, *_INDEX)) for r in _REDUCTIONS
]
scatter_nd_add, scatter_nd_max, scatter_nd_min, scatter_nd_mul = [
    _by_coordinates(f"scatter_nd_{r}", r, _doc(r, *_COORDINATES)) for r in _REDUCTIONS
]


@op(onnx="ScatterND or ScatterElements", rule="join")
def index_add(x: TensorLike, axis: int, index: TensorLike, values: TensorLike) -> Symbol:
    """`x` with the slices of `values` along one axis added at `index`.

    Args:
        x: Of any number dtype, rank >= 1; bools are *or*ed.
        axis: The axis of x and values that `index` has positions in.
        index: Integers [k]; negative ones count from the end. All values of one position are added.
        values: Of a dtype that promotes to that of `x`, and its shape with k at the axis.

    Returns:
        The type of `x`.

    Raises:
        DTypeError: For values that would need another dtype, strings, and an index that is not of integers.
        ShapeError: For shapes that do not match, an invalid axis, and a constant index out of bounds.

    ONNX ScatterND or ScatterElements, PyTorch's `index_add`.
    """
    name = "index_add"
    graph = graph_of(name, (x, index, values))
    data, new = _same_dtype(graph, name, x, values, "values")
    places = index_operand(graph, name, index, "index")
    roles = {"x": data, "index": places, "values": new}
    at = axis_of(name, axis, data.rank, roles)
    if places.rank != 1:
        raise ShapeError(f"{name}: index must have rank 1, got {places.rank}", operands=roles, help="give [k]")
    wanted = data.shape[:at] + places.shape + data.shape[at + 1 :]
    if len(wanted) != new.rank or not all(map(same_dim, wanted, new.shape)):
        raise ShapeError(
            f"{name}: values must have shape {wanted}, got {new.shape}",
            operands=roles,
            help="values have the shape of x, with one slice along the axis for each index",
        )
    check_bounds(name, places, data, at)
    reduction = _reduction(name, data, "add")
    if not at:
        return graph.build.emit(
            "ScatterND", (data, e.unsqueeze(whole(places, DType.int64), 1), new), data.type, reduction
        )
    places = e.unsqueeze(whole(places), *(i for i in range(data.rank) if i != at))
    places = _expand_beside(places, new, at, wanted)
    return graph.build.emit("ScatterElements", (data, places, new), data.type, {"axis": at} | reduction)


@op(onnx="ScatterND", rule="keep")
def segment_sum(values: TensorLike, ids: TensorLike, count: SizeLike) -> Symbol:
    """The sums of the slices of `values` with the same id, one sum for each id from 0 to `count` - 1.

    Args:
        values: [n, *rest] of any number dtype; bools are *or*ed.
        ids: Integers [n], in any order. A slice whose id is below 0, `count` or more is left out.
        count: The number of sums: an int, a dim of the graph or an integer scalar Symbol.

    Returns:
        [count, *rest] of the dtype of `values`; 0 where no slice has the id.

    Raises:
        DTypeError: For ids that are not integers and for strings.
        ShapeError: For shapes that do not match and an invalid count.

    ONNX ScatterND, JAX's `segment_sum`.
    """
    name = "segment_sum"
    graph, (size,) = graph_and_sizes(name, [count], values, ids)
    data = graph.build.operand(values, name, "values")
    index = index_operand(graph, name, ids, "ids")
    roles = {"values": data, "ids": index}
    if not data.rank or index.rank != 1 or not same_dim(data.shape[0], index.shape[0]):
        raise ShapeError(
            f"{name}: ids must have one number for each slice of values, got shapes {index.shape} and {data.shape}",
            operands=roles,
            help="give ids [n] for values [n, ...]",
        )
    reduction = _reduction(name, data, "add")
    places, rows = whole(index, DType.int64), dim_of(size)
    array = constant_array(index)
    is_inside = array is not None and rows.is_static and bool(np.all((array >= 0) & (array < int(rows))))
    end = shape_vector(graph, [size], (data,), op=name)
    if not is_inside:  # ids out of range go to one more row, which is cut off
        places = e.where((places < 0) | (places >= end), end, places)
        size = size + 1 if isinstance(size, Dim) else e.emit("Add", end, graph.build.vector([1]), shape=end.shape)
    sizes = [size, *[dim if dim.is_static else Axis(data, i) for i, dim in enumerate(data.shape)][1:]]
    type_ = tensor_type(data.dtype, _shape([dim_of(size), *data.shape[1:]]))
    zero = casting.cast_array(np.zeros(1, np.bool_), DType.bool, data.dtype)
    sums = graph.build.emit("ConstantOfShape", (shape_vector(graph, sizes, (data,), op=name),), type_, {"value": zero})
    sums = graph.build.emit("ScatterND", (sums, e.unsqueeze(places, 1), data), type_, reduction)
    if is_inside:
        return sums
    start = graph.build.vector([0])
    return e.emit("Slice", sums, start, end, start, shape=_shape([rows, *data.shape[1:]]))


@op(onnx="NonZero + Slice + ScatterND", rule="join")
def masked_scatter(x: TensorLike, mask: TensorLike, updates: TensorLike) -> Symbol:
    """`x` with the elements where `mask` is true replaced by `updates`, in order.

    NumPy's `x[mask] = updates`.

    Args:
        x: Of any dtype, rank >= 1.
        mask: Bool, or a number, true if not 0; it broadcasts to the shape of `x`.
        updates: Of any shape, read row by row, with at least as many elements as the mask has true ones (checked when
            the graph runs), of a dtype that promotes to that of `x`.

    Returns:
        The type of `x`.

    Raises:
        DTypeError: For updates that would need another dtype.
        ShapeError: For a scalar and for a mask that does not broadcast to `x`.
    """
    graph = graph_of("masked_scatter", (x, mask, updates))
    data, new = _same_dtype(graph, "masked_scatter", x, updates)
    refuse_scalar("masked_scatter", data)
    chosen = as_condition("masked_scatter", graph.build.operand(mask, "masked_scatter", "mask"), "mask")
    roles = {"x": data, "mask": chosen}
    if broadcast("masked_scatter", roles) != data.shape:
        raise ShapeError(
            "masked_scatter: the mask does not broadcast to the shape of x",
            operands=roles,
            help="the dims of the mask must be 1 or those of x",
        )
    if chosen.shape != data.shape:
        chosen = graph.build.emit("Expand", (chosen, runtime_shape(data)), tensor_type(DType.bool, data.shape))
    count = Dim.dynamic()
    rows = e.transpose(coordinates(chosen, count), [1, 0])
    flat = graph.build.emit("Reshape", (new, graph.build.vector([-1])), retype(new, shape=_shape((new.shape.size,))))
    length = runtime_shape(rows, 0, 1)
    zero = graph.build.vector([0])
    taken = graph.build.emit("Slice", (flat, zero, length, zero), retype(new, shape=_shape((count,))))
    return graph.build.emit("ScatterND", (data, rows, taken), data.type)


def _reduction(name: str, x: Symbol, reduction: str) -> dict[str, Any]:
    if not reduction:
        return {}
    if x.dtype is DType.string:
        raise DTypeError(f"{name}: this has no meaning for string", operands={"x": x}, help="use numbers or bools")
    if x.dtype is DType.bool:
        # The maximum of bools is their *or*, which onnxruntime computes as "add"; likewise "min" is "mul".
        reduction = {"max": "add", "min": "mul"}.get(reduction, reduction)
    return {"reduction": reduction}


def _same_dtype(
    graph: Graph, name: str, x: TensorLike, updates: TensorLike, role: str = "updates"
) -> tuple[Symbol, Symbol]:
    """Return x, and updates in its dtype, if that is their common dtype in the promotion system."""
    data = graph.build.operand(x, name, "x")
    roles = {"x": data, role: updates}
    symbols, literals = operands._split(graph, name, roles)
    resolution = operands.resolve(graph, Key(name, "join"), roles, symbols, literals)
    if resolution.result is not data.dtype:
        raise DTypeError(
            f"{name}: the result has the dtype of x, {data.dtype}, but x and {role} promote to {resolution.result}",
            operands=roles,
            help=f"cast {role}: .cast(DType.{data.dtype.name}), or x: .cast(DType.{resolution.result.name})",
        )
    _, new = operands.apply(graph, name, roles, symbols, literals, resolution)
    return data, new
