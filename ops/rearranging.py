"""Axes in another order, elements moved along axes and between channels and pixels, and padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import operand, promote
from graphcore.build.shapes import axes_of, axis_of, check_integers, check_least_rank, check_scalar, retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shape import reshape_like
from graphcore.ops.shared.attributes import choice, whole
from graphcore.ops.shared.dims import count_of, dims_of, divided, in_pieces, shape_vector, size_of
from graphcore.ops.shared.reshape import INPUTS, change_layout, check_rank, layout_of, reshaped
from graphcore.promotion.rules import holds
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_MODES = ("DCR", "CRD")

# Along axes


@op(onnx="Slice", rule="keep")
def flip(x: TensorLike, axis: int | Sequence[int] | None = None) -> Symbol:
    """The elements in reverse order along axes.

    Args:
        x: Any shape and dtype.
        axis: One or several; None for all.

    Returns:
        The type of `x`.

    Raises:
        ShapeError: For an invalid axis.

    NumPy's flip; ONNX Slice with steps of -1.
    """
    symbol = operand("flip", x)
    axes = axes_of("flip", axis, symbol.rank, {"x": symbol})
    if not axes:
        return symbol
    return symbol[tuple(slice(None, None, -1 if i in axes else None) for i in range(symbol.rank))]


@op(onnx="Slice, Concat, Gather", rule="keep")
def roll(
    x: TensorLike, shift: int | Symbol | Sequence[int | Symbol], axis: int | Sequence[int] | None = None
) -> Symbol:
    """The elements shifted along axes; those that leave the end return at the start.

    Args:
        x: Any shape and dtype.
        shift: The number of positions, of any sign and size: an int or an integer scalar Symbol.
        axis: One, or several with one shift each or one for all, where an axis named twice is shifted twice; None
            shifts the flattened tensor.

    Returns:
        The type of `x`.

    Raises:
        ShapeError: For an invalid axis, another number of shifts and shifts that are not scalars.
        DTypeError: For shifts that are not integers.

    NumPy's roll; ONNX Slice and Concat if size and shift are known, else Gather.
    """
    symbol = operand("roll", x)
    roles = {"x": symbol}
    axes = axis if isinstance(axis, (tuple, list)) else [axis]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift] * len(axes)
    if axis is None and isinstance(shift, (tuple, list)):
        raise ShapeError("roll: several shifts need axes", operands=roles, help="give an axis for each shift")
    if len(shifts) != len(axes):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes", operands=roles, help="give one each")
    checked = [_shift(symbol, distance) for distance in shifts]
    if axis is None:
        return reshape_like(_roll(symbol.reshape(-1), checked[0], 0), symbol)
    for distance, one in zip(checked, axes, strict=True):
        symbol = _roll(symbol, distance, axis_of("roll", one, symbol.rank, roles))
    return symbol


def _shift(x: Symbol, shift: object) -> int | Symbol:
    roles = {"x": x, "shift": shift}
    if isinstance(shift, Symbol):
        distance = x.graph.build.own(shift, "roll", "shift")
        check_scalar("roll", "shift", distance, roles, help="give a scalar for each axis")
        check_integers("roll", "shift", distance, roles)
        return distance.graph.build.cast(distance, DType.int64)
    if isinstance(shift, bool) or not isinstance(shift, (int, np.integer)):
        raise DTypeError(f"roll: shift={shift!r} is not an int", operands={"x": x}, help="give ints or integer Symbols")
    return int(shift)


def _roll(x: Symbol, shift: int | Symbol, axis: int) -> Symbol:
    size = x.shape[axis]
    if size == 0:
        return x
    if isinstance(shift, int) and size.is_static:
        distance = shift % int(size)
        if not distance:
            return x
        before = [slice(None)] * axis
        parts = [x[(*before, slice(-distance, None))], x[(*before, slice(None, -distance))]]
        return e.emit("Concat", *parts, shape=x.shape, axis=axis)
    count = count_of(x, axis)
    places = e.emit("Range", e.const(count, 0), count, e.const(count, 1), shape=_shape([size]))
    distance_symbol = shift if isinstance(shift, Symbol) else e.const(count, shift)
    # Mod of ints has the sign of the divisor; an empty axis has no positions, so nothing is divided by 0.
    source = e.emit("Mod", e.emit("Sub", places, distance_symbol), count, shape=places.shape)
    return e.emit("Gather", x, source, shape=x.shape, axis=axis)


# Between channels and pixels


@op(onnx="DepthToSpace", rule="keep")
def depth_to_space(x: TensorLike, block_size: int, mode: str = "DCR", input_layout: str = "NHWC") -> Symbol:
    """Images with fewer channels and more pixels: the channels of each pixel become a block of pixels.

    Args:
        x: Of any dtype, [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW",
            the layout that needs no transposes.
        block_size: The side of a block, whose square divides the channels.
        mode: How the channels of x are ordered: "DCR" by position in the block first (row, column, channel), "CRD" by
            new channel first (channel, row, column), as in PyTorch's pixel_shuffle.

    Returns:
        Height and width times block_size and channels divided by its square, in the layout of x.

    Raises:
        ShapeError: For a wrong rank, an unknown mode and channels that are not divisible.

    ONNX DepthToSpace.
    """
    name = "depth_to_space"
    inputs, size = _image(name, x, block_size, mode, input_layout)
    batch, channels, height, width = inputs.shape
    area = size * size
    if channels.is_static and int(channels) % area:
        raise ShapeError(
            f"{name}: {channels} channels cannot be split into blocks of {size} x {size}",
            operands={"x": inputs},
            help=f"the channels of {input_layout} must be a multiple of {area}",
        )
    shape = _shape([batch, channels // area, height * size, width * size])
    result = e.emit("DepthToSpace", inputs, shape=shape, blocksize=size, mode=mode)
    return change_layout(result, "NCHW", input_layout)


@op(onnx="SpaceToDepth", rule="keep")
def space_to_depth(x: TensorLike, block_size: int, mode: str = "DCR", input_layout: str = "NHWC") -> Symbol:
    """Images with more channels and fewer pixels, the inverse of `depth_to_space`.

    Args:
        x: Of any dtype, [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW",
            the layout that needs no transposes.
        block_size: The side of a block, which divides height and width.
        mode: How the channels of the result are ordered, as for `depth_to_space`; "CRD" is PyTorch's pixel_unshuffle.

    Returns:
        Height and width divided by block_size and channels times its square, in the layout of x.

    Raises:
        ShapeError: For a wrong rank, an unknown mode and sizes that are not divisible.

    ONNX SpaceToDepth, and Reshape and Transpose for "CRD".
    """
    name = "space_to_depth"
    inputs, size = _image(name, x, block_size, mode, input_layout)
    batch, channels, height, width = inputs.shape
    for axis, length in (("height", height), ("width", width)):
        if length.is_static and int(length) % size:
            raise ShapeError(
                f"{name}: the {axis} {length} cannot be split into blocks of {size}",
                operands={"x": inputs},
                help=f"height and width of {input_layout} must be multiples of {size}: pad with ops.pad",
            )
    shape = _shape([batch, channels * (size * size), height // size, width // size])
    if mode == "DCR":
        return change_layout(e.emit("SpaceToDepth", inputs, shape=shape, blocksize=size), "NCHW", input_layout)
    return change_layout(_channels_first(name, inputs, size), "NCHW", input_layout)


def _channels_first(name: str, x: Symbol, size: int) -> Symbol:
    """Compute SpaceToDepth in mode "CRD", which ONNX has since opset 28: the axes of the block follow the channels."""
    graph = x.graph
    batch, count, *block_counts = size_of(x, 0), size_of(x, 1), divided(x, 2, size), divided(x, 3, size)
    block = Dim(size)
    blocks = reshaped(name, x, [batch, count, block_counts[0], block, block_counts[1], block], {"x": x})
    height, width = (dim // size for dim in x.shape[2:])
    transposed = e.transpose(blocks, [0, 1, 3, 5, 2, 4])
    channels = x.shape[1]
    new_channels: Dim | Symbol = channels * (size * size)
    if not channels.is_static:
        new_channels = e.emit("Mul", shape_vector(graph, [count]), graph.build.vector([size * size]))
    out = _shape([x.shape[0], channels * (size * size), height, width])
    vector = shape_vector(graph, [batch, new_channels, *block_counts])
    return graph.build.emit("Reshape", (transposed, vector), retype(x, shape=out), {"allowzero": 1})


def _image(name: str, x: TensorLike, block_size: int, mode: str, input_layout: str) -> tuple[Symbol, int]:
    """Return x in ONNX's layout, and the side of a block."""
    layout_of(name, "input_layout", input_layout, INPUTS[2])
    choice(name, "mode", mode, _MODES)
    size = whole(name, "block_size", block_size, 1)
    symbol = operand(name, x)
    check_rank(name, "x", symbol, input_layout, {"x": symbol})
    return change_layout(symbol, input_layout, "NCHW"), size


# Around the elements

PadMode: TypeAlias = Literal["constant", "reflect", "edge", "wrap"]


@op(onnx="Pad")
def pad(
    x: TensorLike,
    paddings: int | Sequence[Any],
    mode: PadMode = "constant",
    value: TensorLike = 0,
) -> Symbol:
    """The tensor with elements added before and after it along its axes.

    Args:
        x: Any shape and dtype.
        paddings: Sizes >= 0 as [before 0, after 0, before 1, after 1, ...], as a pair for each axis, or one int for
            all.
        mode: "constant" (`value`, a scalar), "reflect" (mirrored, the outermost element not repeated), "edge" (the
            outermost element), "wrap" (from the other end).

    Raises:
        ShapeError: For negative or too large paddings, and for a number of them that does not match the axes.
        DTypeError: For a value that the dtype of `x` cannot represent.

    ONNX Pad, NumPy's pad.
    """
    symbol = operand("pad", x)
    roles = {"x": symbol}
    if symbol.dtype is DType.string and mode == "constant":
        raise DTypeError(
            "pad: strings cannot be padded with a number",
            operands=roles,
            help="use mode='edge', or concat constants: ops.concat([x, graph.constant(['', ''])])",
        )
    if mode not in get_args(PadMode):
        raise ShapeError(f"pad: unknown mode {mode!r}", operands=roles, help=f"use one of {get_args(PadMode)}")
    before, after = _paddings(symbol, paddings, roles)
    if all(size == 0 for size in (*before, *after)):
        return symbol
    shape = _shape([b + dim + a for b, dim, a in zip(before, symbol.shape, after, strict=True)])
    _check_paddings(symbol, before, after, mode, roles)
    vector = shape_vector(symbol.graph, [*before, *after], (symbol,), op="pad")
    inputs = (symbol, vector, _pad_value(symbol, value)) if mode == "constant" else (symbol, vector)
    return symbol.graph.build.emit("Pad", inputs, retype(symbol, shape=shape), {"mode": mode})


def _paddings(x: Symbol, paddings: Any, roles: dict[str, Symbol]) -> tuple[list[Dim], list[Dim]]:
    if isinstance(paddings, (int, np.integer)):
        paddings = [paddings] * (2 * x.rank)
    if isinstance(paddings, Symbol) or not isinstance(paddings, Iterable):
        raise ShapeError(
            f"pad: paddings must be ints, got {paddings!r:.60}",
            operands=roles,
            help="give an int, or two for each axis",
        )
    flat: list[Any] = []
    for item in paddings.tolist() if isinstance(paddings, np.ndarray) else paddings:
        if isinstance(item, (tuple, list)):
            if len(item) != 2:
                raise ShapeError(
                    f"pad: {item!r} is not a pair", operands=roles, help="give (before, after) for each axis"
                )
            flat += item
        else:
            flat.append(item)
    dims = dims_of("pad", flat, help="paddings are ints >= 0; remove elements with a slice")
    if len(dims) != 2 * x.rank:
        raise ShapeError(
            f"pad: got {len(dims)} paddings for {x.rank} axes",
            operands=roles,
            help="give two for each axis: before and after",
        )
    return dims[0::2], dims[1::2]


def _check_paddings(x: Symbol, before: list[Dim], after: list[Dim], mode: str, roles: dict[str, Symbol]) -> None:
    """Raise `ShapeError` where a reflection or wrap needs more elements than the axis has."""
    if mode == "constant":
        return
    for axis, dim in enumerate(x.shape):
        limit = {"reflect": dim - 1, "edge": dim, "wrap": dim}[mode]
        for size in (before[axis], after[axis]):
            too_much = size != 0 and dim == 0 if mode == "edge" else ((size - limit).lower_bound or 0) > 0
            if too_much:
                raise ShapeError(
                    f"pad: axis {axis} of size {dim} cannot be padded by {size} in mode {mode!r}",
                    operands=roles,
                    help=f"pad by at most {limit}, or use mode='edge'"
                    if mode != "edge"
                    else "an empty axis has no edge",
                )


def _pad_value(x: Symbol, value: TensorLike) -> Symbol:
    if isinstance(value, (bool, int, float)):
        (_, scalar), _ = promote("pad", "join", {"x": x, "value": value})
        if scalar.dtype is x.dtype:
            return scalar
        # Some systems promote to a wider dtype than that of x; the padding is of the dtype of x all the same.
        if holds(value, x.dtype):
            return x.graph.build.scalar(value, x.dtype)
        raise DTypeError(
            f"pad: {value!r} cannot be held in {x.dtype}",
            operands={"x": x},
            help=f"cast x: .cast({scalar.dtype!r})",
        )
    padding = x.graph.build.operand(value, "pad", "value")
    roles = {"x": x, "value": padding}
    check_scalar("pad", "value", padding, roles)
    if padding.dtype is not x.dtype:
        raise DTypeError(
            f"pad: value is {padding.dtype}, but x is {x.dtype}", operands=roles, help=f"cast it: .cast({x.dtype!r})"
        )
    return padding


# Axes of size 1


@op(onnx="Squeeze", method=True)
def squeeze(x: TensorLike, axis: int | Sequence[int]) -> Symbol:
    """The tensor without axes of size 1.

    Args:
        x: Any shape and dtype.
        axis: One or several; each must be of size 1, or of unknown size.

    Raises:
        ShapeError: For other axes.

    ONNX Squeeze.
    """
    symbol = operand("squeeze", x)
    roles = {"x": symbol}
    axes = axes_of("squeeze", _axes_argument("squeeze", axis, roles), symbol.rank, roles)
    for position in axes:
        dim = symbol.shape[position]
        if dim != 1 and not dim.is_dynamic:
            raise ShapeError(
                f"squeeze: axis {position} must have size 1, got {dim}",
                operands=roles,
                help="squeeze only axes of size 1; if a named dim is always 1, declare it with ops.rebind",
            )
    if not axes:
        return symbol
    return e.squeeze(symbol, *sorted(axes))


@op(onnx="Unsqueeze", method=True)
def unsqueeze(x: TensorLike, axis: int | Sequence[int]) -> Symbol:
    """The tensor with new axes of size 1.

    Args:
        x: Any shape and dtype.
        axis: Their positions in the result, one or several, negative ones counted from its end.

    Raises:
        ShapeError: For an invalid axis of the result.

    ONNX Unsqueeze.
    """
    symbol = operand("unsqueeze", x)
    roles = {"x": symbol}
    requested = _axes_argument("unsqueeze", axis, roles)
    count = len(requested) if isinstance(requested, tuple) else 1
    axes = axes_of("unsqueeze", requested, symbol.rank + count, roles)
    return e.unsqueeze(symbol, *sorted(axes)) if axes else symbol


def _axes_argument(name: str, axis: Any, roles: dict[str, Symbol]) -> int | tuple[int, ...]:
    if axis is None:
        raise ShapeError(
            f"{name}: axis must be an int or several, got None",
            operands=roles,
            help="give the axis: axis=0, or a tuple",
        )
    return tuple(axis) if isinstance(axis, (list, tuple)) else axis


# Order of axes


@op(onnx="Transpose", method=True)
def transpose(x: TensorLike, *axes: Any) -> Symbol:
    """The axes in another order: `transpose(x)` reverses them, `transpose(x, a, b)` swaps two.

    Args:
        x: Any shape and dtype.
        axes: Nothing, two axes to swap, or one sequence (or three and more ints) with every axis in the order of the
            result.

    Raises:
        ShapeError: For an invalid axis and an incomplete order.

    ONNX Transpose.
    """
    symbol = operand("transpose", x)
    if not axes or axes == (None,):
        return _transpose("transpose", symbol, tuple(range(symbol.rank))[::-1])
    if len(axes) == 2:
        return _swap("transpose", symbol, *axes)
    order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    return _transpose("transpose", symbol, order)


@op(onnx="Transpose")
def transpose_matrix(matrix: TensorLike) -> Symbol:
    """The matrix with rows and columns exchanged; a stack of matrices is transposed matrix by matrix.

    Args:
        matrix: [..., m, n] of any dtype.

    Returns:
        [..., n, m].

    Raises:
        ShapeError: Below rank 2.

    ONNX Transpose.
    """
    symbol = operand("transpose_matrix", matrix, "matrix")
    check_least_rank("transpose_matrix", "matrix", symbol, 2)
    return _swap("transpose_matrix", symbol, -2, -1)


@op(onnx="Transpose")
def permute(x: TensorLike, dims: Sequence[int]) -> Symbol:
    """The axes in another order.

    Args:
        x: Any shape and dtype.
        dims: Every axis once, in the order of the result.

    Raises:
        ShapeError: For other dims.

    ONNX Transpose.
    """
    return _transpose("permute", operand("permute", x), dims)


@op(onnx="Transpose", method=True)
def swapaxes(x: TensorLike, axis1: int, axis2: int) -> Symbol:
    """The tensor with two axes exchanged.

    Args:
        x: Any shape and dtype.
        axis1: The two axes.
        axis2: The two axes.

    Raises:
        ShapeError: For an invalid axis.

    ONNX Transpose.
    """
    return _swap("swapaxes", operand("swapaxes", x), axis1, axis2)


def _swap(name: str, x: Symbol, first: object, second: object) -> Symbol:
    order = list(range(x.rank))
    a = axis_of(name, first, x.rank, {"x": x})
    b = axis_of(name, second, x.rank, {"x": x})
    order[a], order[b] = b, a
    return _transpose(name, x, order)


def _transpose(name: str, x: Symbol, axes: Any) -> Symbol:
    roles = {"x": x}
    order = axes_of(name, _axes_argument(name, axes, roles), x.rank, roles)
    if len(order) != x.rank:
        raise ShapeError(
            f"{name}: got {len(order)} axes for a tensor of rank {x.rank}",
            operands=roles,
            help=f"give every axis once: a permutation of {tuple(range(x.rank))}",
        )
    return e.transpose(x, order)


setattr(Symbol, "permute", in_pieces(permute))  # noqa: B010 - an assignment would be checked as an override


def _matrix_transposed(self: Symbol) -> Symbol:
    """The matrix with rows and columns exchanged.

    Raises:
        ShapeError: For a rank other than 2.
    """
    if self.rank != 2:
        raise ShapeError(
            f"T: a matrix must have rank 2, got {self.rank}",
            operands={"x": self},
            help="x.mT transposes the last two axes, x.transpose() reverses all of them",
        )
    return _swap("T", self, 0, 1)


setattr(Symbol, "T", property(_matrix_transposed))  # noqa: B010
setattr(Symbol, "mT", property(transpose_matrix))  # noqa: B010
