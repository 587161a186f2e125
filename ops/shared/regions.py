"""The expansion of RoiAlign, for which onnxruntime has no kernel: positions, gathers and weighted sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import expansion
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape

_UNKNOWN = Dim.dynamic()


@dataclass(frozen=True, slots=True)
class _Samples:
    """The points sampled along one axis, each [regions, bins, samples] unless said otherwise."""

    low: Symbol
    """The pixel before a point, int64."""
    high: Symbol
    """The pixel after it, int64."""
    fraction: Symbol
    """The fraction of the way from `low` to `high`."""
    inside: Symbol
    """True where it is not more than a pixel outside of the image."""
    taken: Symbol | None
    """True where it is one of the region's own samples; None where all are."""
    count: Symbol
    """The samples in a bin, [regions, 1, 1], or a scalar."""


@expansion("RoiAlign")
def _roi_align(
    x: Symbol,
    rois: Symbol,
    batch_indices: Symbol,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
) -> Symbol:
    """Compute RoiAlign as ONNX's reference implementation does, without its loops."""
    regions, channels = rois.shape[0], x.shape[1]
    aligned = coordinate_transformation_mode == "half_pixel"
    rois = e.emit("Mul", rois, e.const(rois, spatial_scale))
    if aligned:
        rois = e.emit("Sub", rois, e.const(rois, 0.5))
    sizes = e.emit("Shape", x, dtype=DType.int64, shape=_shape([Dim(4)]))
    height, width = _element(sizes, 2), _element(sizes, 3)
    ys = _samples(rois, 1, height, output_height, sampling_ratio, aligned)
    xs = _samples(rois, 0, width, output_width, sampling_ratio, aligned)

    # [regions, bins, samples] of each axis to where they meet: [regions, y bins, x bins, y samples, x samples].
    def down(symbol: Symbol) -> Symbol:
        return _unsqueezed(symbol, 2, 4)

    def across(symbol: Symbol) -> Symbol:
        return _unsqueezed(symbol, 1, 3)

    flat = _pixels(x, sizes)
    first = e.emit("Mul", _unsqueezed(batch_indices, 1, 2, 3, 4), height)

    def weighted(row: Symbol, column: Symbol, row_weight: Symbol, column_weight: Symbol) -> Symbol:
        line = e.emit("Mul", e.emit("Add", first, down(row)), width)
        place = e.emit("Add", line, across(column))
        value = e.emit("Gather", flat, place, dtype=x.dtype, shape=_shape([*place.shape, channels]), axis=0)
        return e.emit("Mul", value, _unsqueezed(e.emit("Mul", down(row_weight), across(column_weight)), 5))

    one, zero = e.const(x, 1), e.const(x, 0)
    y_rest, x_rest = e.emit("Sub", one, ys.fraction), e.emit("Sub", one, xs.fraction)
    corners = [
        weighted(ys.low, xs.low, y_rest, x_rest),
        weighted(ys.low, xs.high, y_rest, xs.fraction),
        weighted(ys.high, xs.low, ys.fraction, x_rest),
        weighted(ys.high, xs.high, ys.fraction, xs.fraction),
    ]
    inside = _unsqueezed(e.both(down(ys.inside), across(xs.inside)), 5)
    taken = None
    if ys.taken is not None and xs.taken is not None:
        taken = _unsqueezed(e.both(down(ys.taken), across(xs.taken)), 5)
    shape = _shape([regions, Dim(output_height), Dim(output_width), channels])
    samples = e.ints(x, [3, 4])
    count = e.emit("Mul", ys.count, xs.count)
    if count.rank:
        count = _unsqueezed(count, 3)
    if mode == "avg":
        points = e.where(inside, e.emit("Add", *_halved("Add", corners)), zero)
        if taken is not None:
            points = e.where(taken, points, zero)
        total = e.emit("ReduceSum", points, samples, shape=shape, keepdims=0)
        pooled = e.emit("Div", total, e.emit("Max", count, one), shape=shape)
    else:
        points = e.where(inside, e.emit("Max", *_halved("Max", corners)), zero)
        if taken is not None:
            points = e.where(taken, points, e.const(x, float("-inf")))
        pooled = e.emit("ReduceMax", points, samples, shape=shape, keepdims=0)
        if taken is not None:
            pooled = e.where(e.greater(count, zero), pooled, zero)
    return e.emit("Transpose", pooled, shape=_shape([regions, channels, *shape[1:3]]), perm=[0, 3, 1, 2])


def _samples(rois: Symbol, column: int, size: Symbol, bins: int, ratio: int, aligned: bool) -> _Samples:
    """Sample one axis. column: of its start in rois; its end is two columns on. size: of the axis, int64."""
    one, zero = e.const(rois, 1), e.const(rois, 0)
    start, end = (_unsqueezed(_column(rois, c), 1, 2) for c in (column, column + 2))
    extent = e.emit("Sub", end, start)
    if not aligned:
        extent = e.emit("Max", extent, one)
    bin_size = e.emit("Div", extent, e.const(rois, bins))
    taken = None
    if ratio:
        count = e.const(rois, ratio)
        steps = _arange(rois, ratio, (1, 1, ratio))
    else:
        count = e.emit("Max", e.emit("Ceil", bin_size), zero)
        steps = _unsqueezed(_range_of(count), 0, 1)
        taken = e.less(steps, count)
    offset = e.emit("Mul", e.emit("Add", steps, e.const(rois, 0.5)), bin_size)
    offset = e.emit("Div", offset, e.emit("Max", count, one))
    bin_start = e.emit("Add", start, e.emit("Mul", _arange(rois, bins, (1, bins, 1)), bin_size))
    point = e.emit("Add", bin_start, offset)
    length = e.cast(size, rois.dtype)
    outside = e.either(e.less(point, e.const(rois, -1)), e.greater(point, length))
    last = e.emit("Sub", length, one)
    held = e.emit("Min", e.emit("Max", point, zero), last)
    floor = e.emit("Floor", held)
    high = e.emit("Min", e.emit("Add", floor, one), last)
    return _Samples(
        e.cast(floor, DType.int64),
        e.cast(high, DType.int64),
        e.emit("Sub", held, floor),
        e.opposite(outside),
        taken,
        count,
    )


def _range_of(counts: Symbol) -> Symbol:
    """Return 0, 1, ... up to the greatest of `counts`, and at least one number, so that a reduction has an element."""
    flat = e.emit("Reshape", counts, e.ints(counts, [-1]), shape=_shape([_UNKNOWN]))
    more = e.emit("Concat", flat, _unsqueezed(e.const(counts, 1), 0), shape=_shape([_UNKNOWN]), axis=0)
    most = e.emit("ReduceMax", more, shape=Shape(), keepdims=0)
    return e.emit("Range", e.const(counts, 0), most, e.const(counts, 1), shape=_shape([_UNKNOWN]))


def _pixels(x: Symbol, sizes: Symbol) -> Symbol:
    """Return the images as rows of channels, one per pixel: [batch * height * width, channels]."""
    batch, channels, height, width = x.shape
    rows = e.emit("Transpose", x, shape=_shape([batch, height, width, channels]), perm=[0, 2, 3, 1])
    count = e.emit("Mul", e.emit("Mul", _element(sizes, 0), _element(sizes, 2)), _element(sizes, 3))
    parts = [_unsqueezed(count, 0), _unsqueezed(_element(sizes, 1), 0)]
    target = e.emit("Concat", *parts, shape=_shape([Dim(2)]), axis=0)
    return e.emit("Reshape", rows, target, shape=_shape([batch * height * width, channels]), allowzero=1)


def _halved(op_type: str, four: list[Symbol]) -> tuple[Symbol, Symbol]:
    return e.emit(op_type, four[0], four[1]), e.emit(op_type, four[2], four[3])


def _element(vector: Symbol, position: int) -> Symbol:
    return e.emit("Gather", vector, vector.graph.build.scalar(position, DType.int64), shape=Shape(), axis=0)


def _column(matrix: Symbol, position: int) -> Symbol:
    index = matrix.graph.build.scalar(position, DType.int64)
    return e.emit("Gather", matrix, index, shape=matrix.shape[:1], axis=1)


def _arange(like: Symbol, count: int, shape: tuple[int, ...]) -> Symbol:
    return like.graph.build.constant(np.arange(count, dtype=like.dtype.numpy).reshape(shape), like.dtype)


def _unsqueezed(symbol: Symbol, *axes: int) -> Symbol:
    """Insert axes of size 1 at these positions of the result."""
    dims = list(symbol.shape)
    for axis in axes:
        dims.insert(axis, Dim(1))
    return e.emit("Unsqueeze", symbol, e.ints(symbol, axes), shape=_shape(dims))
