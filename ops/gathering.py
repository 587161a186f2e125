"""Gathers: elements by their positions, positions of elements, and a choice between two tensors."""

from __future__ import annotations

import numpy as np

from graphcore.build import operands
from graphcore.build.declare import op
from graphcore.build.operands import graph_of
from graphcore.build.shapes import axis_of, broadcast, broadcast_shapes, retype, same_dim
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.indexing.positions import (
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

__all__ = ["gather", "gather_nd", "nonzero", "select", "take_along_axis", "where"]

# Taking


@op(onnx="Gather", rule="keep")
def gather(x: TensorLike, indices: TensorLike, axis: int = 0) -> Symbol:
    """The slices of `x` at `indices` along one axis. ONNX Gather, NumPy's `take`.

    x: [..., n, ...] of any dtype, n at `axis`. indices: integers of any shape; negative ones count from the end of the
    axis. Returns the dtype of `x` and its shape with n replaced by the shape of `indices`. Raises `DTypeError` for
    indices that are no integers, `ShapeError` for an axis that is none and for known indices out of bounds.
    """
    graph = graph_of("gather", (x, indices))
    data = graph.build.operand(x, "gather", "x")
    at = axis_of("gather", axis, data.rank, {"x": data})
    index = index_operand(graph, "gather", indices, "indices")
    check_bounds("gather", index, data, at)
    return take(data, whole(index), at)


@op(onnx="GatherND", rule="keep")
def gather_nd(x: TensorLike, indices: TensorLike, batch_dims: int = 0) -> Symbol:
    """The slices of `x` at coordinates along its first axes. ONNX GatherND.

    x: [*batch, n_1, ..., n_k, *rest] of any dtype. indices: integers of shape [*batch, *outer, k], each row a position
    in n_1 ... n_k; negative numbers count from the end. batch_dims: the length of `batch`. Returns
    [*batch, *outer, *rest] of the dtype of `x`. Raises `DTypeError` for indices that are no integers, `ShapeError`
    for k unknown or too large, for batch dims that differ and for known indices out of bounds.
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
            help="it counts leading axes that x and indices share, fewer than the rank of either",
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
    """One element of `x` for each element of `indices`, along one axis. ONNX GatherElements, NumPy's `take_along_axis`.

    x: of any dtype and shape. indices: integers of the same rank, of any size along `axis`; the other dims broadcast
    with those of `x`. Negative indices count from the end. Returns the dtype of `x` in the shape of `indices` as
    broadcast. Raises `DTypeError` for indices that are no integers, `ShapeError` for ranks or dims that do not go
    together and for known indices out of bounds.
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
        met = broadcast_shapes(hidden)
    except ValueError as clash:
        raise ShapeError(
            f"take_along_axis: dims beside axis {at} do not broadcast: {clash}",
            operands=roles,
            help="make them equal or 1; only the sizes along the axis may differ",
        ) from None
    index = whole(index)
    made = []
    for symbol, other in ((data, index), (index, data)):
        wanted = _shape((*met[:at], symbol.shape[at], *met[at + 1 :]))
        made.append(symbol if symbol.shape == wanted else _expand_beside(symbol, other, at, wanted))
    return graph.build.emit("GatherElements", tuple(made), retype(data, shape=made[1].shape), {"axis": at})


@op(onnx="NonZero", rule="keep")
def nonzero(x: TensorLike, out_dim: DimLike | None = None) -> Symbol:
    """The coordinates of the elements that are not zero, one row each. ONNX NonZero, transposed.

    x: of any number or bool dtype, rank >= 1; NaN is not zero. out_dim: a name for the number of rows, unknown
    otherwise. Returns int64 [out_dim, rank of x], rows in the order of the elements. Raises `ShapeError` for a scalar
    and `DTypeError` for strings.
    """
    data = operands.operand("nonzero", x)
    refuse_scalar("nonzero", data)
    rows = _known_or(out_dim)
    found = coordinates(as_condition("nonzero", data, "x"), rows)
    return found.graph.build.emit(
        "Transpose", (found,), tensor_type(DType.int64, _shape((rows, Dim(data.rank)))), {"perm": [1, 0]}
    )


# Choosing


@op(onnx="Where", rule="join")
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Symbol:
    """The elements of `x` where `condition` is true and those of `y` elsewhere. ONNX Where, NumPy's `where`.

    condition: bool, or a number that is true where it is not 0. x, y: of any dtypes that promote to a common one. All
    three broadcast. Returns the common dtype in the broadcast shape. Raises `PromotionError` where `x` and `y` have
    no common dtype, `ShapeError` where the shapes do not broadcast.
    """
    return _where("where", condition, x, y)


@op(onnx="Where", rule="join")
def select(condition: TensorLike, x: TensorLike, y: TensorLike) -> Symbol:
    """`where` under its other name: `x` where `condition` is true and `y` elsewhere. ONNX Where.

    condition: bool or a number; x, y: of any dtypes that promote to a common one; all three broadcast. Returns and
    raises as `where`.
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
    """Broadcast x with every dim of `other` but the one at `axis`."""
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


def _known_or(dim: DimLike | None) -> Dim:
    return Dim.dynamic() if dim is None else _dim(dim)
