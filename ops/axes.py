"""Axes: their order, and those of size 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcore.build.declare import op
from graphcore.build.operands import operand
from graphcore.build.shapes import axes_of, axis_of, retype
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.dims import in_pieces
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import _shape


@op(onnx="Squeeze", method=True)
def squeeze(x: TensorLike, axis: int | Sequence[int]) -> Symbol:
    """The tensor without axes of size 1.

    x: any shape and dtype. axis: one or several; each must be of size 1, or unknown. Raises `ShapeError` for others.
    ONNX Squeeze.
    """
    symbol = operand("squeeze", x)
    roles = {"x": symbol}
    axes = axes_of("squeeze", _given("squeeze", axis, roles), symbol.rank, roles)
    for found in axes:
        dim = symbol.shape[found]
        if dim != 1 and not dim.is_dynamic:
            raise ShapeError(
                f"squeeze: axis {found} has size {dim}, not 1",
                operands=roles,
                help="squeeze axes of size 1; if a named dim always is 1, say so with ops.rebind",
            )
    if not axes:
        return symbol
    shape = _shape([d for i, d in enumerate(symbol.shape) if i not in axes])
    return symbol.graph.build.emit(
        "Squeeze", (symbol, symbol.graph.build.vector(sorted(axes))), retype(symbol, shape=shape)
    )


@op(onnx="Unsqueeze", method=True)
def unsqueeze(x: TensorLike, axis: int | Sequence[int]) -> Symbol:
    """The tensor with new axes of size 1.

    x: any shape and dtype. axis: where they are in the result, one or several, negative ones counted from its end.
    Raises `ShapeError` for what is no axis of the result. ONNX Unsqueeze.
    """
    symbol = operand("unsqueeze", x)
    roles = {"x": symbol}
    given = _given("unsqueeze", axis, roles)
    count = len(given) if isinstance(given, tuple) else 1
    axes = axes_of("unsqueeze", given, symbol.rank + count, roles)
    if not axes:
        return symbol
    dims = list(symbol.shape)
    for found in sorted(axes):
        dims.insert(found, Dim(1))
    vector = symbol.graph.build.vector(sorted(axes))
    return symbol.graph.build.emit("Unsqueeze", (symbol, vector), retype(symbol, shape=_shape(dims)))


def _given(name: str, axis: Any, roles: dict[str, Symbol]) -> int | tuple[int, ...]:
    if axis is None:
        raise ShapeError(f"{name}: which axis?", operands=roles, help="name the axis: axis=0, or a tuple of axes")
    return tuple(axis) if isinstance(axis, (list, tuple)) else axis


# Order of axes


@op(onnx="Transpose", method=True)
def transpose(x: TensorLike, *axes: Any) -> Symbol:
    """The axes in another order: `transpose(x)` reverses them, `transpose(x, a, b)` swaps two.

    x: any shape and dtype. axes: nothing, two axes to swap, or one sequence (or three and more ints) with every axis
    in the order of the result. Raises `ShapeError` for what is no axis or no such order. ONNX Transpose.
    """
    symbol = operand("transpose", x)
    if not axes or axes == (None,):
        return _transposed("transpose", symbol, tuple(range(symbol.rank))[::-1])
    if len(axes) == 2:
        return _swapped("transpose", symbol, *axes)
    given = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    return _transposed("transpose", symbol, given)


@op(onnx="Transpose")
def transpose_matrix(matrix: TensorLike) -> Symbol:
    """The matrix with rows and columns exchanged; of several matrices, each.

    matrix: [..., m, n] of any dtype. Returns [..., n, m]. Raises `ShapeError` below rank 2. ONNX Transpose.
    """
    symbol = operand("transpose_matrix", matrix, "matrix")
    if symbol.rank < 2:
        raise ShapeError(
            f"transpose_matrix: a tensor of rank {symbol.rank} is no matrix",
            operands={"matrix": symbol},
            help="give it two axes: ops.unsqueeze(x, 0)",
        )
    return _swapped("transpose_matrix", symbol, -2, -1)


@op(onnx="Transpose")
def permute(x: TensorLike, dims: Sequence[int]) -> Symbol:
    """The axes in another order.

    x: any shape and dtype. dims: every axis once, in the order of the result. Raises `ShapeError` for anything else.
    ONNX Transpose.
    """
    return _transposed("permute", operand("permute", x), dims)


@op(onnx="Transpose", method=True)
def swapaxes(x: TensorLike, axis1: int, axis2: int) -> Symbol:
    """The tensor with two axes exchanged.

    x: any shape and dtype. Raises `ShapeError` for what is no axis. ONNX Transpose.
    """
    return _swapped("swapaxes", operand("swapaxes", x), axis1, axis2)


def _swapped(name: str, x: Symbol, first: object, second: object) -> Symbol:
    order = list(range(x.rank))
    a = axis_of(name, first, x.rank, {"x": x})
    b = axis_of(name, second, x.rank, {"x": x})
    order[a], order[b] = b, a
    return _transposed(name, x, order)


def _transposed(name: str, x: Symbol, axes: Any) -> Symbol:
    roles = {"x": x}
    given = axes_of(name, _given(name, axes, roles), x.rank, roles)
    if len(given) != x.rank:
        raise ShapeError(
            f"{name}: {len(given)} axes are given for a tensor of rank {x.rank}",
            operands=roles,
            help=f"name every axis once: a permutation of {tuple(range(x.rank))}",
        )
    if given == tuple(range(x.rank)):
        return x
    type_ = retype(x, shape=_shape([x.shape[a] for a in given]))
    return x.graph.build.emit("Transpose", (x,), type_, {"perm": list(given)})


setattr(Symbol, "permute", in_pieces(permute))  # noqa: B010 - an assignment would be checked as an override


def _matrix_transposed(self: Symbol) -> Symbol:
    """The matrix with rows and columns exchanged. Raises `ShapeError` for what is not of rank 2."""
    if self.rank != 2:
        raise ShapeError(
            f"T: a tensor of rank {self.rank} is no matrix",
            operands={"x": self},
            help="x.mT transposes the last two axes, x.transpose() reverses all of them",
        )
    return _swapped("T", self, 0, 1)


setattr(Symbol, "T", property(_matrix_transposed))  # noqa: B010
setattr(Symbol, "mT", property(transpose_matrix))  # noqa: B010
