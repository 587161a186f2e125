"""Shape rules of operators whose operands have the sizes of results: slices, pads, resizes, ranges and fills."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphcore.errors import ShapeError
from graphcore.operators.shapes.call import UNKNOWN, OperatorCall, Size, Value, axis_of, dim_of
from graphcore.operators.shapes.movement import length_of, numbers_of, open_shape
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

_EVERYTHING = (1 << 31) - 1
"""Ends from this number on mean the end of the axis."""

_MAX_RATIO_TERM = 64
"""The maximum numerator and denominator of a scale that symbolic dims are multiplied by."""


# Parts and extensions of axes


def cut(call: OperatorCall) -> Shape:
    """Slice."""
    dims = call.ranked(0)
    starts, ends = numbers_of(call, 1, "starts"), numbers_of(call, 2, "ends")
    axes, steps = numbers_of(call, 3, "axes"), numbers_of(call, 4, "steps")
    count = next((len(n) for n in (starts, ends, axes, steps) if n is not None), length_of(call, 1))
    if axes is None and not call.has(3) and count is not None:
        axes = tuple(range(count))
    if axes is None or None in axes:
        return open_shape(len(dims))
    unknown = (None,) * len(axes)
    strides = (1,) * len(axes) if steps is None and not call.has(4) else steps or unknown
    columns = [starts or unknown, ends or unknown, strides]
    if any(len(column) != len(axes) for column in columns):
        raise ShapeError(
            f"starts, ends and steps must have one number for each of {len(axes)} axes", help="use one number per axis"
        )
    for axis, start, end, step in zip(axes, *columns, strict=True):
        if step == 0:
            raise ShapeError("a step is 0", help="use a step other than 0")
        position = axis_of(int(axis), len(dims))
        dims[position] = _cut_dim(dims[position], start, end, step)
    return _shape(dims)


def _cut_dim(whole: Dim, start: Size, end: Size, step: Size) -> Dim:
    if whole.is_dynamic or start is None or end is None:
        return UNKNOWN
    if isinstance(end, int) and end >= _EVERYTHING and step != 1 and not (isinstance(step, int) and step > 0):
        return UNKNOWN  # for negative steps, ONNX and onnxruntime disagree on this end
    if whole.is_static and isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        return Dim(_cut_length(int(whole), start, end, step))
    if isinstance(step, int) and step < 0 and isinstance(start, int) and (start >= _EVERYTHING or start == -1):
        return whole.ceildiv(-step) if isinstance(end, int) and end <= -_EVERYTHING else UNKNOWN
    if not isinstance(step, int) or step < 1 or not _is_natural(start):
        return UNKNOWN
    if isinstance(end, int) and end >= _EVERYTHING:
        stop = whole
    elif _is_natural(end):
        stop = Dim.minimum(whole, end)
    elif isinstance(end, int):  # counted from the end
        stop = Dim.maximum(whole + end, 0)
    else:
        return UNKNOWN
    length = stop if start == 0 else Dim.maximum(stop - start, 0)
    return length if step == 1 else length.ceildiv(step)


def _cut_length(size: int, start: int, end: int, step: int) -> int:
    """Return the number of elements that a Slice selects from `size`; with negative steps, starts are clamped to 0."""
    start, end = (n + size if n < 0 else n for n in (start, end))
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)
    first, stop = min(max(start, 0), highest), min(max(end, lowest), highest)
    return len(range(first, stop, step)) if size else 0


def _is_natural(size: Size) -> bool:
    """Return True if a size is provably not negative."""
    least = size.lower_bound if isinstance(size, Dim) else size
    return least is not None and least >= 0


def padded(call: OperatorCall) -> Shape | None:
    """Pad."""
    if call.since < 2:
        return None
    dims, pads = call.ranked(0), numbers_of(call, 1, "pads")
    axes: Value = call.value(3) if call.has(3) else tuple(range(len(dims)))
    if not isinstance(axes, tuple) or None in axes:
        return open_shape(len(dims))
    axes = _normalized_axes(axes, len(dims))
    if pads is None:
        return _with(dims, axes, [UNKNOWN] * len(axes))
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"got {len(pads)} pads for {len(axes)} axes", help="use two numbers per axis")
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        size = UNKNOWN if before is None or after is None else dims[axis] + before + after
        dims[axis] = size if (size.lower_bound or 0) >= 0 else UNKNOWN
    return _shape(dims)


def _normalized_axes(axes: Sequence[Any], rank: int) -> tuple[int, ...]:
    """Return axes counted from 0. Raises `ShapeError` for axes that do not exist and for duplicates."""
    result = tuple(axis_of(int(axis), rank) for axis in axes)
    if len({*result}) < len(result):
        raise ShapeError(f"axes {[*axes]} has a duplicate", help="name each axis once")
    return result


def resized(call: OperatorCall) -> Shape | None:
    """Resize to sizes, or by scales."""
    dims = call.dims(0)
    if dims is None or call.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = _normalized_axes(call.attributes.get("axes", range(len(dims))), len(dims))
    target, scales = call.value(3), None if call.has(3) else call.array(2 if call.since > 10 else 1)
    sizes: Sequence[Dim] = [UNKNOWN] * len(axes)
    if isinstance(target, tuple):
        sizes = [dim_of(size) for size in target]
    elif scales is not None and scales.size == len(axes):
        sizes = [_scaled(dims[axis], scale) for axis, scale in zip(axes, scales.ravel(), strict=True)]
    elif scales is not None and scales.size:
        raise ShapeError(f"got {scales.size} scales for {len(axes)} axes", help="use one scale per axis")
    return _with(dims, axes, sizes)


def _with(dims: list[Dim], axes: Sequence[int], sizes: Sequence[Dim]) -> Shape:
    if len(sizes) != len(axes):
        raise ShapeError(f"got {len(sizes)} sizes for {len(axes)} axes", help="use one size per axis")
    for axis, size in zip(axes, sizes, strict=True):
        dims[axis] = size
    return _shape(dims)


def _scaled(dim: Dim, scale: Any) -> Dim:
    """Return a dim times a float32, rounded down; `?` if the float32 product of a kernel may round differently."""
    if dim.is_static:
        return Dim(max(math.floor(scale * int(dim)), 0))
    if not 0 < scale <= _MAX_RATIO_TERM:
        return UNKNOWN
    above, below = float(scale).as_integer_ratio()
    return dim * above // below if above <= _MAX_RATIO_TERM and below <= _MAX_RATIO_TERM else UNKNOWN


def cropped(call: OperatorCall) -> Shape:
    """CenterCropPad."""
    dims, target = call.ranked(0), call.value(1)
    axes = _normalized_axes(call.attributes.get("axes", range(len(dims))), len(dims))
    return _with(dims, axes, [dim_of(size) for size in target] if isinstance(target, tuple) else [UNKNOWN] * len(axes))


def greatest(call: OperatorCall) -> Shape:
    """TopK."""
    dims = call.ranked(0)
    k = call.array(1)
    if k is not None and k.shape != (1,):
        raise ShapeError(f"k has shape {list(k.shape)} instead of [1]", help="use a vector of one number")
    count = numbers_of(call, 1, "k") if call.has(1) else (call.attributes.get("k"),)
    axis = axis_of(call.attributes.get("axis", -1), len(dims))
    size = UNKNOWN if count is None or len(count) != 1 else dim_of(count[0])
    if size.is_static and dims[axis].is_static and int(size) > int(dims[axis]):
        raise ShapeError(f"k is {size}, but axis {axis} has only {dims[axis]} elements", help="use a smaller k")
    return _with(dims, [axis], [size])


# Generated results


def counted(call: OperatorCall) -> Shape:
    """Range."""
    start, limit, delta = (call.value(i) for i in range(3))
    if delta == 1 and isinstance(start, (int, Dim)) and isinstance(limit, (int, Dim)):
        return _shape([Dim.maximum(Dim(0) + limit - start, 0)])
    first, last, step = (call.array(i) for i in range(3))
    if first is None or last is None or step is None or any(a.size != 1 for a in (first, last, step)):
        return open_shape(1)
    low, high, by = (array.reshape(())[()] for array in (first, last, step))
    return _shape([Dim(max(math.ceil(float(high - low) / float(by)), 0)) if by else UNKNOWN])


def filled(call: OperatorCall) -> Shape:
    """ConstantOfShape."""
    target = call.value(0)
    if not isinstance(target, tuple):
        length = length_of(call, 0)
        return Shape.unknown() if length is None else open_shape(length)
    return _shape([dim_of(size) for size in target])


def one_hot(call: OperatorCall) -> Shape:
    """OneHot."""
    dims, depth, array = call.ranked(0), call.value(1), call.array(1)
    if not dims:
        raise ShapeError("the indices are a scalar", help="use a vector of one element")
    axis = axis_of(call.attributes.get("axis", -1), len(dims) + 1)
    size = (
        int(array.reshape(())) if array is not None and array.size == 1 else None if isinstance(depth, tuple) else depth
    )
    return _shape([*dims[:axis], dim_of(size), *dims[axis:]])


def window(call: OperatorCall) -> Shape:
    """HannWindow and similar operators: the length is the value of the operand."""
    size = call.value(0)
    return _shape([UNKNOWN if isinstance(size, tuple) else dim_of(size)])


def mel_weights(call: OperatorCall) -> Shape:
    """MelWeightMatrix: one row per frequency of a transform, one column per band."""
    bands, length = call.value(0), call.value(1)
    rows = UNKNOWN if isinstance(length, tuple) else dim_of(length) // 2 + 1
    return _shape([rows, UNKNOWN if isinstance(bands, tuple) else dim_of(bands)])


def matrix(call: OperatorCall) -> Shape:
    """LinearRegressor and SVMRegressor."""
    return open_shape(2)


def side_by_side(call: OperatorCall) -> Shape:
    """FeatureVectorizer: the features of all operands, which have equally many rows; a vector is a row."""
    operands = [call.dims(i) for i in range(len(call.shapes))]
    rows = [dims[0] if len(dims) > 1 else Dim(1) for dims in operands if dims]
    first = next((row for row in rows if row.is_static), rows[0] if rows else UNKNOWN)
    if any(row.is_static and row != first for row in rows):
        raise ShapeError("the operands have different numbers of rows", help="use equally many rows")
    return _shape([first, Dim(sum(call.attributes.get("inputdimensions", ())))])


def classified(call: OperatorCall) -> list[Shape]:
    """SVMClassifier: classes, and scores of all of them."""
    return [open_shape(1), open_shape(2)][: call.count]


# Shapes and positions


def shape(call: OperatorCall) -> Shape:
    """Shape: one number for each axis from `start` to `end`."""
    dims, attributes = call.dims(0), call.attributes
    return open_shape(1) if dims is None else Shape([len(dims[attributes.get("start", 0) : attributes.get("end")])])


def scalar(call: OperatorCall) -> Shape:
    """Size."""
    return Shape()


def places(call: OperatorCall) -> Shape:
    """NonZero: one row per axis."""
    dims = call.dims(0)
    return _shape([UNKNOWN if dims is None else Dim(len(dims)), UNKNOWN])


def unique(call: OperatorCall) -> list[Shape]:
    """Unique: the elements, or slices along an axis, and vectors of positions and counts."""
    dims, axis = call.dims(0), call.attributes.get("axis")
    if axis is None:
        first = open_shape(1)
    elif dims is None:
        first = Shape.unknown()
    else:
        first = _with(dims, [axis_of(axis, len(dims))], [UNKNOWN])
    return [first, *[open_shape(1)] * (call.count - 1)]
