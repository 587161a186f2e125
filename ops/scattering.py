"""Scatters: elements written at positions."""

from __future__ import annotations

from typing import Any

from graphcore.build import operands
from graphcore.build.declare import op
from graphcore.build.operands import graph_of
from graphcore.build.shapes import axis_of, broadcast, retype, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.indexing.positions import (
    as_condition,
    check_bounds,
    coordinate_length,
    coordinates,
    index_operand,
    refuse_scalar,
    runtime_shape,
    whole,
)
from graphcore.promotion.rules import Key
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

__all__ = [
    "masked_scatter", "scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_nd",
    "scatter_nd_add", "scatter_nd_max", "scatter_nd_min", "scatter_nd_mul",
]  # fmt: skip


@op(onnx="ScatterElements", rule="join")
def scatter(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """`x` with the elements at `indices` along one axis replaced by `updates`. ONNX ScatterElements.

    x: of any dtype. updates: of a dtype that promotes to that of `x`, of the same rank. indices: integers of the shape
    of `updates`, with no axis but `axis` longer than in `x`; negative ones count from the end. Which of several
    updates of one element stays is not defined. Returns the type of `x`. Raises `DTypeError` for updates that would
    need another dtype and for indices that are no integers, `ShapeError` for shapes that do not go together and for
    known indices out of bounds.
    """
    return _scatter("scatter", x, updates, indices, axis, "")


@op(onnx="ScatterElements", rule="join")
def scatter_add(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """`x` with `updates` added to the elements at `indices` along one axis. ONNX ScatterElements, reduction "add".

    Operands, result and errors as for `scatter`; bools are *or*ed, and every one of several updates counts.
    """
    return _scatter("scatter_add", x, updates, indices, axis, "add")


@op(onnx="ScatterElements", rule="join")
def scatter_max(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """The larger of `x` and `updates` at `indices` along one axis. ONNX ScatterElements, reduction "max".

    Operands, result and errors as for `scatter`; every one of several updates counts.
    """
    return _scatter("scatter_max", x, updates, indices, axis, "max")


@op(onnx="ScatterElements", rule="join")
def scatter_min(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """The smaller of `x` and `updates` at `indices` along one axis. ONNX ScatterElements, reduction "min".

    Operands, result and errors as for `scatter`; every one of several updates counts.
    """
    return _scatter("scatter_min", x, updates, indices, axis, "min")


@op(onnx="ScatterElements", rule="join")
def scatter_mul(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """`x` with the elements at `indices` along one axis multiplied by `updates`. ONNX ScatterElements, reduction "mul".

    Operands, result and errors as for `scatter`; bools are *and*ed, and every one of several updates counts.
    """
    return _scatter("scatter_mul", x, updates, indices, axis, "mul")


@op(onnx="ScatterND", rule="join")
def scatter_nd(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """`x` with the slices at coordinates along its first axes replaced by `updates`. ONNX ScatterND.

    x: [n_1, ..., n_k, *rest] of any dtype. indices: integers [*outer, k], each row a position in n_1 ... n_k; negative
    numbers count from the end. updates: [*outer, *rest] of a dtype that promotes to that of `x`. Which of several
    updates of one slice stays is not defined. Returns the type of `x`. Raises `DTypeError` for updates that would need
    another dtype and for indices that are no integers, `ShapeError` for shapes that do not go together and for known
    indices out of bounds.
    """
    return _scatter_nd("scatter_nd", x, updates, indices, "")


@op(onnx="ScatterND", rule="join")
def scatter_nd_add(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """`x` with `updates` added to the slices at coordinates along its first axes. ONNX ScatterND, reduction "add".

    Operands, result and errors as for `scatter_nd`; bools are *or*ed, and every one of several updates counts.
    """
    return _scatter_nd("scatter_nd_add", x, updates, indices, "add")


@op(onnx="ScatterND", rule="join")
def scatter_nd_max(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """The larger of `x` and `updates` at coordinates along the first axes. ONNX ScatterND, reduction "max".

    Operands, result and errors as for `scatter_nd`; every one of several updates counts.
    """
    return _scatter_nd("scatter_nd_max", x, updates, indices, "max")


@op(onnx="ScatterND", rule="join")
def scatter_nd_min(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """The smaller of `x` and `updates` at coordinates along the first axes. ONNX ScatterND, reduction "min".

    Operands, result and errors as for `scatter_nd`; every one of several updates counts.
    """
    return _scatter_nd("scatter_nd_min", x, updates, indices, "min")


@op(onnx="ScatterND", rule="join")
def scatter_nd_mul(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """`x` with the slices at coordinates along its first axes multiplied by `updates`. ONNX ScatterND, reduction "mul".

    Operands, result and errors as for `scatter_nd`; bools are *and*ed, and every one of several updates counts.
    """
    return _scatter_nd("scatter_nd_mul", x, updates, indices, "mul")


@op(onnx="NonZero + Slice + ScatterND", rule="join")
def masked_scatter(x: TensorLike, mask: TensorLike, updates: TensorLike) -> Symbol:
    """`x` with the elements where `mask` is true replaced by `updates`, taken in order. NumPy's `x[mask] = updates`.

    x: of any dtype, rank >= 1. mask: bool, or a number that is true where it is not 0; it broadcasts to the shape of
    `x`. updates: of any shape, read row by row, with at least as many elements as the mask has true ones (checked when
    the graph runs), of a dtype that promotes to that of `x`. Returns the type of `x`. Raises `DTypeError` for updates
    that would need another dtype, `ShapeError` for a scalar and for a mask that does not broadcast to `x`.
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
            help="the mask chooses elements of x: its dims must be 1 or those of x",
        )
    if chosen.shape != data.shape:
        chosen = graph.build.emit("Expand", (chosen, runtime_shape(data)), tensor_type(DType.bool, data.shape))
    count = Dim.dynamic()
    rank = Dim(data.rank)
    found = coordinates(chosen, count)
    rows = graph.build.emit("Transpose", (found,), tensor_type(DType.int64, _shape((count, rank))), {"perm": [1, 0]})
    flat = graph.build.emit("Reshape", (new, graph.build.vector([-1])), retype(new, shape=_shape((new.shape.size,))))
    length = runtime_shape(rows, 0, 1)
    zero = graph.build.vector([0])
    taken = graph.build.emit("Slice", (flat, zero, length, zero), retype(new, shape=_shape((count,))))
    return graph.build.emit("ScatterND", (data, rows, taken), data.type)


def _scatter(name: str, x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int, reduction: str) -> Symbol:
    graph = graph_of(name, (x, updates, indices))
    data, new = _same_dtype(graph, name, x, updates)
    index = index_operand(graph, name, indices, "indices")
    roles = {"x": data, "updates": new, "indices": index}
    if not data.rank == new.rank == index.rank or not data.rank:
        raise ShapeError(
            f"{name}: the ranks of x, updates and indices must be the same and not 0: "
            f"{data.rank}, {new.rank} and {index.rank}",
            operands=roles,
            help=f"to write whole slices use ops.{name.replace('scatter', 'scatter_nd')}",
        )
    at = axis_of(name, axis, data.rank, roles)
    for position, (own, other) in enumerate(zip(new.shape, index.shape, strict=True)):
        if not same_dim(own, other):
            raise ShapeError(
                f"{name}: updates and indices differ at axis {position}: {own} and {other}",
                operands=roles,
                help="there must be one index for each update",
            )
        if position != at and _provably_less(data.shape[position], other):
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


def _scatter_nd(name: str, x: TensorLike, updates: TensorLike, indices: TensorLike, reduction: str) -> Symbol:
    graph = graph_of(name, (x, updates, indices))
    data, new = _same_dtype(graph, name, x, updates)
    index = index_operand(graph, name, indices, "indices")
    roles = {"x": data, "updates": new, "indices": index}
    depth = coordinate_length(name, roles, data.rank)
    wanted = index.shape[:-1] + data.shape[depth:]
    if len(wanted) != new.rank or not all(map(same_dim, wanted, new.shape)):
        raise ShapeError(
            f"{name}: updates must have shape {wanted}, not {new.shape}",
            operands=roles,
            help="updates are [*outer, *rest] for indices [*outer, k] and x [n_1, ..., n_k, *rest]",
        )
    for column in range(depth):
        check_bounds(name, index, data, column, column=column)
    return graph.build.emit(
        "ScatterND", (data, whole(index, DType.int64), new), data.type, _reduction(name, data, reduction)
    )


def _reduction(name: str, x: Symbol, reduction: str) -> dict[str, Any]:
    if not reduction:
        return {}
    if x.dtype is DType.string:
        raise DTypeError(f"{name}: this has no meaning for string", operands={"x": x}, help="use numbers or bools")
    if x.dtype is DType.bool:
        # The larger of two bools is their *or*, which onnxruntime computes under "add"; likewise for "min".
        reduction = {"max": "add", "min": "mul"}.get(reduction, reduction)
    return {"reduction": reduction}


def _same_dtype(graph: Graph, name: str, x: TensorLike, updates: TensorLike) -> tuple[Symbol, Symbol]:
    """Return x, and updates in its dtype, if that is their common dtype in the promotion system."""
    data = graph.build.operand(x, name, "x")
    roles = {"x": data, "updates": updates}
    symbols, literals = operands._split(graph, name, roles)
    resolution = operands.resolve(graph, Key(name, "join"), roles, symbols, literals)
    if resolution.result is not data.dtype:
        raise DTypeError(
            f"{name}: the result has the dtype of x, {data.dtype}, but x and updates meet in {resolution.result}",
            operands=roles,
            help=f"cast updates: .cast(DType.{data.dtype.name}), or x: .cast(DType.{resolution.result.name})",
        )
    _, new = operands.apply(graph, name, roles, symbols, literals, resolution)
    return data, new


def _provably_less(lhs: Dim, rhs: Dim) -> bool:
    """Return whether one dim is less than the other for all sizes of their names."""
    bound = (rhs - lhs).lower_bound
    return bound is not None and bound > 0
