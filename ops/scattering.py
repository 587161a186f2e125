"""Scatters: elements written at positions."""

from __future__ import annotations

from collections.abc import Callable
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


def _by_index(name: str, reduction: str, doc: str) -> Callable[..., Symbol]:
    """Declare the scatter along one axis with a reduction, "" for none."""

    @op(onnx="ScatterElements", rule="join", name=name, doc=doc)
    def scatter(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
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

    return scatter


def _by_coordinates(name: str, reduction: str, doc: str) -> Callable[..., Symbol]:
    """Declare the scatter at coordinates with a reduction, "" for none."""

    @op(onnx="ScatterND", rule="join", name=name, doc=doc)
    def scatter(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
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

    return scatter


scatter = _by_index(
    "scatter",
    "",
    """`x` with the elements at `indices` along one axis replaced by `updates`. ONNX ScatterElements.

    x: of any dtype. updates: of a dtype that promotes to that of `x`, of the same rank. indices: integers of the shape
    of `updates`, with no axis but `axis` longer than in `x`; negative ones count from the end. Which of several
    updates of one element stays is not defined. Returns the type of `x`. Raises `DTypeError` for updates that would
    need another dtype and for indices that are no integers, `ShapeError` for shapes that do not go together and for
    known indices out of bounds.
    """,
)
scatter_nd = _by_coordinates(
    "scatter_nd",
    "",
    """`x` with the slices at coordinates along its first axes replaced by `updates`. ONNX ScatterND.

    x: [n_1, ..., n_k, *rest] of any dtype. indices: integers [*outer, k], each row a position in n_1 ... n_k; negative
    numbers count from the end. updates: [*outer, *rest] of a dtype that promotes to that of `x`. Which of several
    updates of one slice stays is not defined. Returns the type of `x`. Raises `DTypeError` for updates that would need
    another dtype and for indices that are no integers, `ShapeError` for shapes that do not go together and for known
    indices out of bounds.
    """,
)

_REDUCTIONS = {
    "add": ("`x` with `updates` added to {what}", "bools are *or*ed, and "),
    "max": ("The larger of `x` and `updates` at {where}", ""),
    "min": ("The smaller of `x` and `updates` at {where}", ""),
    "mul": ("`x` with {what} multiplied by `updates`", "bools are *and*ed, and "),
}
"""What each reduction gives, and what it means for bools."""


def _doc(reduction: str, name: str, onnx: str, what: str, where: str) -> str:
    gives, of_bools = _REDUCTIONS[reduction]
    return f"""{gives.format(what=what, where=where)}. ONNX {onnx}, reduction "{reduction}".

    Operands, result and errors as for `{name}`; {of_bools}every one of several updates counts.
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
