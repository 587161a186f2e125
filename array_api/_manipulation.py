"""Manipulation functions of the standard: shapes, and the order of axes and elements."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from graphcore import ops
from graphcore.array_api._eager import Tensor, function
from graphcore.arrays.eager_array import OutOfBounds
from graphcore.build import primitives as e
from graphcore.build.shapes import axes_of, axis_of
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.operators.shapes.call import broadcast_shapes as joint_shape
from graphcore.types.tensor_types import Shape

__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "matrix_transpose",
    "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip

Axes = int | Sequence[int] | None

# Shapes


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to.

    Raises:
        ShapeError: If they do not broadcast.
    """
    try:
        return tuple(int(dim) for dim in joint_shape([Shape(shape) for shape in shapes or ((),)]))
    except ValueError as clash:
        raise ShapeError(f"broadcast_shapes: {clash}", help="make the sizes equal or 1") from None


@function
def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Broadcast x to a shape.

    Args:
        x: Any dtype.

    Raises:
        ShapeError: If x does not broadcast to it.
    """
    return ops.broadcast_to(x, shape)


@function
def _broadcast(arrays: tuple[Tensor, ...]) -> Tensor:
    symbols: list[Symbol] = list(arrays)
    if len(symbols) == 1:
        return symbols
    try:
        shape = joint_shape([s.shape for s in symbols])
    except ValueError as clash:
        raise ShapeError(
            f"broadcast_arrays: shapes do not broadcast: {clash}",
            operands={f"array {i}": s for i, s in enumerate(symbols)},
            help="make the sizes equal or 1",
        ) from None
    if shape.is_static:
        return [s if s.shape == shape else ops.broadcast_to(s, shape) for s in symbols]
    sizes = [_sizes(s, len(shape)) for s in symbols]
    joint = sizes[0]
    for size in sizes[1:]:
        joint = e.where(e.equal(joint, e.const(joint, 1)), size, joint)
    return [ops.broadcast_to(s, joint, shape) for s in symbols]


def _sizes(x: Symbol, rank: int) -> Symbol:
    """Return the sizes of the axes at run time, with leading ones up to `rank`."""
    sizes = ops.shape_of(x)
    if x.rank == rank:
        return sizes
    return ops.concat([x.graph.build.vector([1] * (rank - x.rank)), sizes])


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Broadcast arrays of any dtypes to their common shape.

    Returns:
        A tuple, as in version 2025.12; earlier versions have a list.

    Raises:
        ShapeError: If there is none.
    """
    return tuple(_broadcast(arrays)) if arrays else ()


@function
def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> Tensor:
    """Return the same elements in row-major order with another shape.

    Args:
        x: Any dtype.
        shape: Ints, of which one can be -1 (inferred).
        copy: The result is a new array in any case.

    Raises:
        ShapeError: If the numbers of elements differ, and for copy=False of an Array.
    """
    return ops.reshape(x, shape)


@function
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """Insert axes of size 1 at positions of the result.

    Raises:
        OutOfBounds: For an invalid position.
    """
    try:
        return ops.unsqueeze(x, axis)
    except ShapeError as error:
        raise OutOfBounds(error.summary, operands={"x": x}, help=error.help) from None


@function
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Remove axes of size 1.

    Raises:
        ShapeError: For an invalid axis, or an axis of another size.
    """
    return ops.squeeze(x, axis)


# The order of axes and elements


@function
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Reorder the axes.

    Args:
        axes: Every axis once.

    Raises:
        ShapeError: Otherwise.
    """
    return ops.permute(x, axes)


@function
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Transpose matrices.

    Args:
        x: [..., m, n].

    Raises:
        ShapeError: Below rank 2.
    """
    return ops.transpose_matrix(x)


@function
def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Move axes to other positions; the others stay in order.

    Raises:
        ShapeError: For invalid axes.
    """
    rank = x.ndim
    roles = {"x": x}
    moved = axes_of("moveaxis", source, rank, roles, name="source")
    places = axes_of("moveaxis", destination, rank, roles, name="destination")
    if len(moved) != len(places):
        raise ShapeError(
            f"moveaxis: source has {len(moved)} axes, and destination {len(places)}",
            operands=roles,
            help="give a destination for each axis of source",
        )
    order = [axis for axis in range(rank) if axis not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return ops.permute(x, order)


@function
def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """Reverse the elements along axes, by default all.

    Raises:
        ShapeError: For an invalid axis.
    """
    return ops.flip(x, axis)


@function
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> Tensor:
    """Shift the elements by `shift` along axes; elements at the end move to the front.

    Args:
        x: Any shape and dtype.
        axis: One, several with a shift for each or for all, or None for the flattened array.

    Raises:
        ShapeError: For an invalid axis and for a wrong number of shifts.
    """
    return ops.roll(x, shift, axis)


# Joining, splitting and repeating


@function
def concat(arrays: tuple[Tensor, ...] | list[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Concatenate arrays along an axis, or flattened arrays for None.

    Args:
        arrays: Of the same rank, with equal sizes except along the axis, and of dtypes that promote to a common one.

    Raises:
        ShapeError, PromotionError: Otherwise.
    """
    if axis is None:
        return ops.concat([ops.reshape(x, -1) for x in arrays])
    return ops.concat(arrays, axis)


@function
def stack(arrays: tuple[Tensor, ...] | list[Tensor], /, *, axis: int = 0) -> Tensor:
    """Stack arrays along a new axis.

    Args:
        arrays: Of the same shape, and of dtypes that promote to a common one.

    Raises:
        ShapeError, PromotionError: Otherwise.
    """
    return ops.stack(arrays, axis)


@function(static=True)
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the slices of x along an axis of known size.

    Raises:
        ShapeError: Otherwise.
    """
    at = axis_of("unstack", axis, x.ndim, {"x": x})
    if not x.shape[at].is_static:
        raise ShapeError(f"unstack: the size of axis {at} is unknown", operands={"x": x}, help="make the dim static")
    return tuple(x[(slice(None),) * at + (i,)] for i in range(int(x.shape[at])))


@function
def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along an axis, or those of the flattened array for None.

    Args:
        repeats: The number of times: an int, or integers of shape [n] for an axis of size n, or [1].

    Raises:
        ShapeError: For negative numbers and for another shape.
    """
    if axis is None:
        x, axis = ops.reshape(x, -1), 0
    if isinstance(repeats, Symbol) and not repeats.rank:
        repeats = ops.reshape(repeats, (1,))
    if isinstance(repeats, Symbol) and repeats.shape[0] == 1:
        at = axis_of("repeat", axis, x.ndim, {"x": x})
        repeats = ops.broadcast_to(repeats, ops.shape_of(x)[at : at + 1], [x.shape[at]])
    return ops.repeat_interleave(x, repeats, axis)


@function
def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Repeat x along each axis, with additional leading axes if needed.

    Args:
        repetitions: The number of times along each of the last axes.

    Raises:
        ShapeError: For negative numbers.
    """
    counts = tuple(repetitions) if isinstance(repetitions, (tuple, list)) else (repetitions,)
    counts = (1,) * (x.ndim - len(counts)) + counts
    if len(counts) > x.ndim:
        x = ops.unsqueeze(x, tuple(range(len(counts) - x.ndim)))
    return ops.tile(x, counts) if counts else x


def check_axis(op: str, axis: Any, x: Symbol) -> int:
    """Return `axis` counted from 0; None is the only axis of a vector. Raises `ShapeError`."""
    if axis is None:
        if x.rank != 1:
            raise ShapeError(
                f"{op}: axis=None needs a vector, got rank {x.rank}", operands={"x": x}, help="give an axis: axis=0"
            )
        return 0
    return axis_of(op, axis, x.rank, {"x": x})
