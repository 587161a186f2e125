"""Axes in another order, elements moved along axes and between channels and places, and elements added around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import operand, promote
from graphcore.build.shapes import axes_of, axis_of, retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shape import reshape_like
from graphcore.ops.shared.attributes import choice, whole
from graphcore.ops.shared.dims import Axis, dims_of, in_pieces, shape_vector
from graphcore.ops.shared.reshape import INPUTS, layout_of, of_rank, relaid, reshaped
from graphcore.promotion.rules import holds
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape

_MODES = ("DCR", "CRD")

# Along axes


@op(onnx="Slice", rule="keep")
def flip(x: TensorLike, axis: int | Sequence[int] | None = None) -> Symbol:
    """The elements in reverse order along axes.

    x: any shape and dtype. axis: one or several; None for all. Returns the type of `x`. Raises `ShapeError` for what is
    no axis. NumPy's flip; ONNX Slice with steps of -1.
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
    """The elements moved up along axes, and those that leave the end put in front.

    x: any shape and dtype. shift: by how many places, of any sign and size: an int or an integer scalar Symbol. axis:
    one, several with a shift each or one for all, an axis named twice being moved twice; None moves the flattened
    tensor. Returns the type of `x`. Raises `ShapeError` for what is no axis, another number of shifts and shifts that
    are no scalars, `DTypeError` for shifts that are no integers. NumPy's roll; ONNX Slice and Concat where size and
    shift are known, else Gather.
    """
    symbol = operand("roll", x)
    roles = {"x": symbol}
    given = axis if isinstance(axis, (tuple, list)) else [axis]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift] * len(given)
    if axis is None and isinstance(shift, (tuple, list)):
        raise ShapeError("roll: several shifts need axes", operands=roles, help="name the axes")
    if len(shifts) != len(given):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(given)} axes", operands=roles, help="give one each")
    checked = [_shift(symbol, distance) for distance in shifts]
    if axis is None:
        return reshape_like(_rolled(symbol.reshape(-1), checked[0], 0), symbol)
    for distance, one in zip(checked, given, strict=True):
        symbol = _rolled(symbol, distance, axis_of("roll", one, symbol.rank, roles))
    return symbol


def _shift(x: Symbol, shift: object) -> int | Symbol:
    roles = {"x": x, "shift": shift}
    if isinstance(shift, Symbol):
        found = x.graph.build.own(shift, "roll", "shift")
        if found.rank:
            raise ShapeError(f"roll: shift has shape {found.shape}", operands=roles, help="give a scalar for each axis")
        if not found.dtype.is_integer:
            raise DTypeError(f"roll: a shift by {found.dtype}", operands=roles, help="cast it: .cast(DType.int64)")
        return found.graph.build.cast(found, DType.int64)
    if isinstance(shift, bool) or not isinstance(shift, (int, np.integer)):
        raise DTypeError(f"roll: shift={shift!r} is no int", operands={"x": x}, help="give ints or integer Symbols")
    return int(shift)


def _rolled(x: Symbol, shift: int | Symbol, axis: int) -> Symbol:
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
    count = e.emit("Squeeze", shape_vector(x.graph, [Axis(x, axis)]), dtype=DType.int64, shape=_shape(()))
    places = e.emit("Range", e.const(count, 0), count, e.const(count, 1), shape=_shape([size]))
    distance_symbol = shift if isinstance(shift, Symbol) else e.const(count, shift)
    # The remainder of ints has the sign of the divisor; an empty axis has no places to divide.
    source = e.emit("Mod", e.emit("Sub", places, distance_symbol), count, shape=places.shape)
    return e.emit("Gather", x, source, shape=x.shape, axis=axis)


# Between channels and places


@op(onnx="DepthToSpace", rule="keep")
def depth_to_space(x: TensorLike, block_size: int, mode: str = "DCR", input_layout: str = "NHWC") -> Symbol:
    """Images with fewer channels and more places: each place's channels become a block of places.

    x: of any dtype, [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW", the
    layout that needs no transposes. block_size: the side of a block, whose square divides the channels. mode: how the
    channels of x count: "DCR" by the place in the block first (row, column, channel), "CRD" by the new channel first
    (channel, row, column), as PyTorch's pixel_shuffle does. Returns height and width times block_size and channels
    divided by its square, in the layout of x. Raises `ShapeError` for a wrong rank, an unknown mode and channels that
    do not divide. ONNX DepthToSpace.
    """
    name = "depth_to_space"
    inputs, size = _image(name, x, block_size, mode, input_layout)
    batch, channels, height, width = inputs.shape
    area = size * size
    if channels.is_static and int(channels) % area:
        raise ShapeError(
            f"{name}: {channels} channels do not split into blocks of {size} x {size}",
            operands={"x": inputs},
            help=f"the channels of {input_layout} must be a multiple of {area}",
        )
    shape = _shape([batch, channels // area, height * size, width * size])
    made = inputs.graph.build.emit(
        "DepthToSpace", (inputs,), retype(inputs, shape=shape), {"blocksize": size, "mode": mode}
    )
    return relaid(made, "NCHW", input_layout)


@op(onnx="SpaceToDepth", rule="keep")
def space_to_depth(x: TensorLike, block_size: int, mode: str = "DCR", input_layout: str = "NHWC") -> Symbol:
    """Images with more channels and fewer places, the reverse of `depth_to_space`.

    x: of any dtype, [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW", the
    layout that needs no transposes. block_size: the side of a block, which divides height and width. mode: how the
    channels of the result count, as for `depth_to_space`; "CRD" is PyTorch's pixel_unshuffle. Returns height and width
    divided by block_size and channels times its square, in the layout of x. Raises `ShapeError` for a wrong rank, an
    unknown mode and sizes that do not divide. ONNX SpaceToDepth, and Reshape and Transpose for "CRD".
    """
    name = "space_to_depth"
    inputs, size = _image(name, x, block_size, mode, input_layout)
    batch, channels, height, width = inputs.shape
    for axis, length in (("height", height), ("width", width)):
        if length.is_static and int(length) % size:
            raise ShapeError(
                f"{name}: the {axis} {length} does not split into blocks of {size}",
                operands={"x": inputs},
                help=f"height and width of {input_layout} must be multiples of {size}: ops.pad adds elements",
            )
    shape = _shape([batch, channels * (size * size), height // size, width // size])
    if mode == "DCR":
        made = inputs.graph.build.emit("SpaceToDepth", (inputs,), retype(inputs, shape=shape), {"blocksize": size})
        return relaid(made, "NCHW", input_layout)
    return relaid(_channels_first(name, inputs, size), "NCHW", input_layout)


def _channels_first(name: str, x: Symbol, size: int) -> Symbol:
    """Compute SpaceToDepth by mode "CRD", which ONNX has from opset 28 on: the block's axes follow the channels."""
    graph = x.graph
    own = [dim if dim.is_static else Axis(x, axis) for axis, dim in enumerate(x.shape)]
    fewer: list[Dim | Symbol] = []
    for dim, place in zip(x.shape[2:], own[2:], strict=True):
        if dim.is_static:
            fewer.append(dim // size)
        else:
            fewer.append(e.emit("Div", shape_vector(graph, [place]), graph.build.vector([size])))
    block = Dim(size)
    apart = reshaped(name, x, [own[0], own[1], fewer[0], block, fewer[1], block], {"x": x})
    height, width = (dim // size for dim in x.shape[2:])
    turned = e.emit(
        "Transpose",
        apart,
        shape=_shape([x.shape[0], x.shape[1], block, block, height, width]),
        perm=[0, 1, 3, 5, 2, 4],
    )
    channels = x.shape[1]
    many: Dim | Symbol = channels * (size * size)
    if not channels.is_static:
        many = e.emit("Mul", shape_vector(graph, [own[1]]), graph.build.vector([size * size]))
    out = _shape([x.shape[0], channels * (size * size), height, width])
    vector = shape_vector(graph, [own[0], many, *fewer])
    return graph.build.emit("Reshape", (turned, vector), retype(x, shape=out), {"allowzero": 1})


def _image(name: str, x: TensorLike, block_size: int, mode: str, input_layout: str) -> tuple[Symbol, int]:
    """Return x in ONNX's layout, and the side of a block."""
    layout_of(name, "input_layout", input_layout, INPUTS[2])
    choice(name, "mode", mode, _MODES)
    size = whole(name, "block_size", block_size, 1)
    symbol = operand(name, x)
    of_rank(name, "x", symbol, input_layout, {"x": symbol})
    return relaid(symbol, input_layout, "NCHW"), size


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

    x: any shape and dtype. paddings: sizes >= 0 as [before 0, after 0, before 1, after 1, ...], as a pair for each
    axis, or one int for all. mode: "constant" (`value`, a scalar), "reflect" (mirrored, the outermost element not
    repeated), "edge" (the outermost element), "wrap" (from the other end). Raises `ShapeError` for negative or too
    large paddings, and for another number of them than the axes need; `DTypeError` for a value that the dtype of `x`
    cannot hold. ONNX Pad, NumPy's pad.
    """
    symbol = operand("pad", x)
    roles = {"x": symbol}
    if symbol.dtype is DType.string and mode == "constant":
        raise DTypeError(
            "pad: there is no number to put beside strings",
            operands=roles,
            help="use mode='edge', or concat constants: ops.concat([x, graph.constant(['', ''])])",
        )
    if mode not in get_args(PadMode):
        raise ShapeError(f"pad: there is no mode {mode!r}", operands=roles, help=f"use one of {get_args(PadMode)}")
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
        raise ShapeError(f"pad: {paddings!r:.60} are no paddings", operands=roles, help="give ints")
    flat: list[Any] = []
    for item in paddings.tolist() if isinstance(paddings, np.ndarray) else paddings:
        if isinstance(item, (tuple, list)):
            if len(item) != 2:
                raise ShapeError(f"pad: {item!r} is no pair", operands=roles, help="give (before, after) for each axis")
            flat += item
        else:
            flat.append(item)
    dims = dims_of("pad", flat, help="paddings are ints of 0 or more; a slice takes elements away")
    if len(dims) != 2 * x.rank:
        raise ShapeError(
            f"pad: {len(dims)} paddings are given for {x.rank} axes",
            operands=roles,
            help="give two for each axis: before and after",
        )
    return dims[0::2], dims[1::2]


def _check_paddings(x: Symbol, before: list[Dim], after: list[Dim], mode: str, roles: dict[str, Symbol]) -> None:
    """Raise `ShapeError` where a reflection or wrap needs more elements than the axis has."""
    if mode == "constant":
        return
    for axis, dim in enumerate(x.shape):
        most = {"reflect": dim - 1, "edge": dim, "wrap": dim}[mode]
        for size in (before[axis], after[axis]):
            too_much = size != 0 and dim == 0 if mode == "edge" else _exceeds(size, most)
            if too_much:
                raise ShapeError(
                    f"pad: axis {axis} of size {dim} cannot be padded by {size} in mode {mode!r}",
                    operands=roles,
                    help=f"pad by {most} at most, or use mode='edge'"
                    if mode != "edge"
                    else "an empty axis has no edge",
                )


def _exceeds(size: Dim, most: Dim) -> bool:
    bound = (size - most).lower_bound
    return bound is not None and bound >= 1


def _pad_value(x: Symbol, value: TensorLike) -> Symbol:
    if isinstance(value, (bool, int, float)):
        (_, scalar), _ = promote("pad", "join", {"x": x, "value": value})
        if scalar.dtype is x.dtype:
            return scalar
        # In some systems a number makes a wider dtype of some; the padding is of x's all the same.
        if holds(value, x.dtype):
            return x.graph.build.scalar(value, x.dtype)
        raise DTypeError(
            f"pad: {value!r} cannot be held in {x.dtype}", operands={"x": x}, help=f"cast x: .cast({scalar.dtype!r})"
        )
    found = x.graph.build.operand(value, "pad", "value")
    roles = {"x": x, "value": found}
    if found.rank:
        raise ShapeError(f"pad: value has shape {found.shape}", operands=roles, help="give a scalar")
    if found.dtype is not x.dtype:
        raise DTypeError(
            f"pad: value is of {found.dtype} and x of {x.dtype}", operands=roles, help=f"cast it: .cast({x.dtype!r})"
        )
    return found


# Axes: those of size 1, and their order.


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
