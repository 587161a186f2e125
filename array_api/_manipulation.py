"""The standard's functions that move elements without computing with them."""

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
    """The shape that arrays of these shapes broadcast to. Raises `ShapeError` where they do not."""
    try:
        return tuple(int(dim) for dim in joint_shape([Shape(shape) for shape in shapes or ((),)]))
    except ValueError as clash:
        raise ShapeError(f"broadcast_shapes: {clash}", help="make the sizes equal or 1") from None


@function
def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """x repeated along axes of size 1, and along new ones in front, until it has the shape.

    x: any dtype. Raises `ShapeError` where x does not broadcast to it.
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
    met = sizes[0]
    for size in sizes[1:]:
        met = e.where(e.equal(met, e.const(met, 1)), size, met)
    return [ops.broadcast_to(s, met, shape) for s in symbols]


def _sizes(x: Symbol, rank: int) -> Symbol:
    """The sizes of the axes at run time, with ones in front up to `rank`."""
    own = ops.shape_of(x)
    if x.rank == rank:
        return own
    return ops.concat([x.graph.build.vector([1] * (rank - x.rank)), own])


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The arrays broadcast to their common shape, of any dtypes. Raises `ShapeError` where they have none.

    Returns a tuple, as in edition 2025.12, where earlier ones have a list.
    """
    return tuple(_broadcast(arrays)) if arrays else ()


@function
def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> Tensor:
    """The same elements in row-major order under another shape.

    x: any dtype. shape: ints, of which one may be -1 (inferred). copy: what is reshaped here is a new array in any
    case. Raises `ShapeError` where the element counts differ, and for copy=False of an Array.
    """
    return ops.reshape(x, shape)


@function
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """x with new axes of size 1 at the places given, counted in the result. Raises `OutOfBounds` for no such place."""
    try:
        return ops.unsqueeze(x, axis)
    except ShapeError as error:
        raise OutOfBounds(error.summary, operands={"x": x}, help=error.help) from None


@function
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """x without axes of size 1. Raises `ShapeError` for an axis that is none or of another size."""
    return ops.squeeze(x, axis)


# The order of axes and elements


@function
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order; axes: every one once. Raises `ShapeError` for anything else."""
    return ops.permute(x, axes)


@function
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The matrices with rows and columns exchanged. x: [..., m, n]. Raises `ShapeError` below rank 2."""
    return ops.transpose_matrix(x)


@function
def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """x with some axes at other places and the rest in their order. Raises `ShapeError` for no axes or unequal many."""
    rank = x.ndim
    roles = {"x": x}
    moved = axes_of("moveaxis", source, rank, roles, name="source")
    places = axes_of("moveaxis", destination, rank, roles, name="destination")
    if len(moved) != len(places):
        raise ShapeError("moveaxis: source and destination name different numbers of axes", operands=roles)
    order = [axis for axis in range(rank) if axis not in moved]
    for place, axis in sorted(zip(places, moved, strict=True)):
        order.insert(place, axis)
    return ops.permute(x, order)


@function
def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """The elements in reverse along axes, by default all. Raises `ShapeError` for what is no axis."""
    return ops.flip(x, axis)


@function
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> Tensor:
    """The elements moved up by `shift` along axes, and those at the end to the front.

    x: any shape and dtype. axis: one, several with a shift each or one for all, or None for the flattened array. Raises
    `ShapeError` for what is no axis and for another number of shifts.
    """
    return ops.roll(x, shift, axis)


# More and fewer arrays


@function
def concat(arrays: tuple[Tensor, ...] | list[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The arrays one after another along an axis, or flattened ones for None.

    arrays: of one rank, with equal sizes but along the axis, of dtypes that meet. Raises `ShapeError` and
    `PromotionError` for others.
    """
    if axis is None:
        return ops.concat([ops.reshape(x, -1) for x in arrays])
    return ops.concat(arrays, axis)


@function
def stack(arrays: tuple[Tensor, ...] | list[Tensor], /, *, axis: int = 0) -> Tensor:
    """The arrays one after another along a new axis.

    arrays: of one shape, of dtypes that meet. Raises `ShapeError` and `PromotionError` for others.
    """
    return ops.stack(arrays, axis)


@function(static=True)
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, whose size must be known. Raises `ShapeError` for what is no such axis."""
    at = axis_of("unstack", axis, x.ndim, {"x": x})
    if not x.shape[at].is_static:
        raise ShapeError(f"unstack: the size of axis {at} is not known", operands={"x": x}, help="make the dim static")
    return tuple(x[(slice(None),) * at + (i,)] for i in range(int(x.shape[at])))


@function
def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Every element repeated in place along an axis, or of the flattened array for None.

    repeats: how many times: an int, or integers of shape [n] for an axis of size n, or [1]. Raises `ShapeError` for
    negative ones and for another number of them.
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
    """x laid out several times along each axis; axes of size 1 are added in front where there are too few.

    repetitions: how many times along each of the last axes. Raises `ShapeError` for negative ones.
    """
    counts = tuple(repetitions) if isinstance(repetitions, (tuple, list)) else (repetitions,)
    counts = (1,) * (x.ndim - len(counts)) + counts
    if len(counts) > x.ndim:
        x = ops.unsqueeze(x, tuple(range(len(counts) - x.ndim)))
    return ops.tile(x, counts) if counts else x


def checked_axis(op: str, axis: Any, x: Symbol) -> int:
    """`axis` counted from 0; None for the only axis of a vector. Raises `ShapeError`."""
    if axis is None:
        if x.rank != 1:
            raise ShapeError(f"{op}: which axis of {x.rank}?", operands={"x": x}, help="name the axis: axis=0")
        return 0
    return axis_of(op, axis, x.rank, {"x": x})
