"""What cuts, pads and resizes axes, counts, and fills: operands hold the sizes of results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphcore.errors import ShapeError
from graphcore.operators.shapes.call import UNKNOWN, Call, Size, Value, axis_of, dim_of
from graphcore.operators.shapes.movement import length_of, numbers_of, open_shape
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape

_EVERYTHING = (1 << 31) - 1
"""An end from which on a slice goes to the end of any axis."""

_SHORT = 64
"""The greatest number above or below the line of a scale by which dims are multiplied."""


# Parts of axes, and more than them


def cut(call: Call) -> Shape:
    """Slice."""
    dims = call.dims(0)
    if dims is None:
        return Shape.unknown()
    starts, ends = numbers_of(call, 1, "starts"), numbers_of(call, 2, "ends")
    axes, steps = numbers_of(call, 3, "axes"), numbers_of(call, 4, "steps")
    count = next((len(n) for n in (starts, ends, axes, steps) if n is not None), length_of(call, 1))
    if axes is None and not call.has(3) and count is not None:
        axes = tuple(range(count))
    if axes is None or None in axes:
        return open_shape(len(dims))
    nothing = (None,) * len(axes)
    strides = (1,) * len(axes) if steps is None and not call.has(4) else steps or nothing
    columns = [starts or nothing, ends or nothing, strides]
    if any(len(column) != len(axes) for column in columns):
        raise ShapeError(f"starts, ends and steps are not of {len(axes)} axes", help="give a number for each axis")
    for axis, start, end, step in zip(axes, *columns, strict=True):
        if step == 0:
            raise ShapeError("a step is 0", help="step by another number")
        place = axis_of(int(axis), len(dims))
        dims[place] = _cut_dim(dims[place], start, end, step)
    return _shape(dims)


def _cut_dim(whole: Dim, start: Size, end: Size, step: Size) -> Dim:
    if whole.is_dynamic or start is None or end is None:
        return UNKNOWN
    if isinstance(end, int) and end >= _EVERYTHING and step != 1 and not (isinstance(step, int) and step > 0):
        return UNKNOWN  # backwards to there is nothing to ONNX, and everything to onnxruntime
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
    elif isinstance(end, int):  # so many from the end
        stop = Dim.maximum(whole + end, 0)
    else:
        return UNKNOWN
    length = stop if start == 0 else Dim.maximum(stop - start, 0)
    return length if step == 1 else length.ceildiv(step)


def _cut_length(size: int, start: int, end: int, step: int) -> int:
    """Return how many elements a Slice takes of `size`: backwards it begins at the first one at least."""
    start, end = (n + size if n < 0 else n for n in (start, end))
    least, most = (0, size) if step > 0 else (-1, size - 1)
    first, stop = min(max(start, 0), most), min(max(end, least), most)
    return len(range(first, stop, step)) if size else 0


def _is_natural(size: Size) -> bool:
    """Return whether it is certainly not negative."""
    least = size.lower_bound if isinstance(size, Dim) else size
    return least is not None and least >= 0


def padded(call: Call) -> Shape | None:
    """Pad."""
    dims, pads = call.dims(0), numbers_of(call, 1, "pads")
    if call.since < 2:
        return None
    if dims is None:
        return Shape.unknown()
    axes: Value = call.value(3) if call.has(3) else tuple(range(len(dims)))
    if not isinstance(axes, tuple) or None in axes:
        return open_shape(len(dims))
    axes = _places(axes, len(dims))
    if pads is None:
        return _with(dims, axes, [UNKNOWN] * len(axes))
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"{len(pads)} pads for {len(axes)} axes", help="give two numbers for each axis")
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        size = UNKNOWN if before is None or after is None else dims[axis] + before + after
        dims[axis] = size if (size.lower_bound or 0) >= 0 else UNKNOWN
    return _shape(dims)


def _places(axes: Sequence[Any], rank: int) -> tuple[int, ...]:
    """Return axes counted from 0. Raises `ShapeError` for one that there is not, or that is named twice."""
    places = tuple(axis_of(int(axis), rank) for axis in axes)
    if len({*places}) < len(places):
        raise ShapeError(f"axes are {[*axes]}, which names one twice", help="name each axis once")
    return places


def resized(call: Call) -> Shape | None:
    """Resize to sizes, or by scales."""
    dims = call.dims(0)
    if dims is None or call.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = _places(call.attributes.get("axes", range(len(dims))), len(dims))
    target, scales = call.value(3), None if call.has(3) else call.array(2 if call.since > 10 else 1)
    sizes: Sequence[Dim] = [UNKNOWN] * len(axes)
    if isinstance(target, tuple):
        sizes = [dim_of(size) for size in target]
    elif scales is not None and scales.size == len(axes):
        sizes = [_scaled(dims[axis], scale) for axis, scale in zip(axes, scales.ravel(), strict=True)]
    elif scales is not None and scales.size:
        raise ShapeError(f"{scales.size} scales for {len(axes)} axes", help="give a scale for each axis")
    return _with(dims, axes, sizes)


def _with(dims: list[Dim], axes: Sequence[int], sizes: Sequence[Dim]) -> Shape:
    if len(sizes) != len(axes):
        raise ShapeError(f"{len(sizes)} sizes for {len(axes)} axes", help="give a size for each axis")
    for axis, size in zip(axes, sizes, strict=True):
        dims[axis] = size
    return _shape(dims)


def _scaled(dim: Dim, scale: Any) -> Dim:
    """Return a dim times a float32, rounded down; `?` where float32, in which kernels multiply, may round otherwise."""
    if dim.is_static:
        return Dim(max(math.floor(scale * int(dim)), 0))
    if not 0 < scale <= _SHORT:
        return UNKNOWN
    above, below = float(scale).as_integer_ratio()
    return dim * above // below if above <= _SHORT and below <= _SHORT else UNKNOWN


def cropped(call: Call) -> Shape | None:
    """CenterCropPad."""
    dims, target = call.dims(0), call.value(1)
    if dims is None:
        return Shape.unknown()
    axes = _places(call.attributes.get("axes", range(len(dims))), len(dims))
    return _with(dims, axes, [dim_of(size) for size in target] if isinstance(target, tuple) else [UNKNOWN] * len(axes))


def greatest(call: Call) -> Shape:
    """TopK."""
    dims = call.dims(0)
    if dims is None:
        return Shape.unknown()
    given = call.array(1)
    if given is not None and given.shape != (1,):
        raise ShapeError(f"k is of shape {list(given.shape)}", help="give a vector of one number")
    count = numbers_of(call, 1, "k") if call.has(1) else (call.attributes.get("k"),)
    axis = axis_of(call.attributes.get("axis", -1), len(dims))
    size = UNKNOWN if count is None or len(count) != 1 else dim_of(count[0])
    if size.is_static and dims[axis].is_static and int(size) > int(dims[axis]):
        raise ShapeError(f"axis {axis} has {dims[axis]} elements, and {size} are wanted", help="take fewer")
    return _with(dims, [axis], [size])


# Results made anew


def counted(call: Call) -> Shape:
    """Range."""
    start, limit, delta = (call.value(i) for i in range(3))
    if delta == 1 and isinstance(start, (int, Dim)) and isinstance(limit, (int, Dim)):
        return _shape([Dim.maximum(Dim(0) + limit - start, 0)])
    first, last, step = (call.array(i) for i in range(3))
    if first is None or last is None or step is None or any(a.size != 1 for a in (first, last, step)):
        return open_shape(1)
    low, high, by = (array.reshape(())[()] for array in (first, last, step))
    return _shape([Dim(max(math.ceil(float(high - low) / float(by)), 0)) if by else UNKNOWN])


def filled(call: Call) -> Shape:
    """ConstantOfShape."""
    target = call.value(0)
    if not isinstance(target, tuple):
        length = length_of(call, 0)
        return Shape.unknown() if length is None else open_shape(length)
    return _shape([dim_of(size) for size in target])


def one_hot(call: Call) -> Shape:
    """OneHot."""
    dims, depth, array = call.dims(0), call.value(1), call.array(1)
    if dims is None:
        return Shape.unknown()
    if not dims:
        raise ShapeError("the indices are a scalar", help="give a vector of one")
    axis = axis_of(call.attributes.get("axis", -1), len(dims) + 1)
    size = (
        int(array.reshape(())) if array is not None and array.size == 1 else None if isinstance(depth, tuple) else depth
    )
    return _shape([*dims[:axis], dim_of(size), *dims[axis:]])


def window(call: Call) -> Shape:
    """HannWindow and its like: as many numbers as the operand says."""
    size = call.value(0)
    return _shape([UNKNOWN if isinstance(size, tuple) else dim_of(size)])


def mel_weights(call: Call) -> Shape:
    """MelWeightMatrix: a row for each frequency of a transform, a column for each band."""
    bands, length = call.value(0), call.value(1)
    rows = UNKNOWN if isinstance(length, tuple) else dim_of(length) // 2 + 1
    return _shape([rows, UNKNOWN if isinstance(bands, tuple) else dim_of(bands)])


def matrix(call: Call) -> Shape:
    """FeatureVectorizer, LinearRegressor and SVMRegressor."""
    return open_shape(2)


def classified(call: Call) -> list[Shape]:
    """SVMClassifier: classes, and scores of all of them."""
    return [open_shape(1), open_shape(2)][: call.count]


# Shapes and places


def shape(call: Call) -> Shape:
    """Shape: a number for each axis from one to another."""
    dims, attributes = call.dims(0), call.attributes
    return open_shape(1) if dims is None else Shape([len(dims[attributes.get("start", 0) : attributes.get("end")])])


def scalar(call: Call) -> Shape:
    """Size."""
    return Shape()


def places(call: Call) -> Shape:
    """NonZero: a row for each axis."""
    dims = call.dims(0)
    return _shape([UNKNOWN if dims is None else Dim(len(dims)), UNKNOWN])


def unique(call: Call) -> list[Shape]:
    """Unique: the elements, or the parts along an axis, and vectors that tell of them."""
    dims, axis = call.dims(0), call.attributes.get("axis")
    if axis is None:
        first = open_shape(1)
    elif dims is None:
        first = Shape.unknown()
    else:
        first = _with(dims, [axis_of(axis, len(dims))], [UNKNOWN])
    return [first, *[open_shape(1)] * (call.count - 1)]
