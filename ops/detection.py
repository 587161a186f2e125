"""Regions of images: non-maximum suppression, features pooled from regions, sampling at positions of a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import expansion, op
from graphcore.build.operands import as_index, cast_operand, graph_of, promote, promote_one
from graphcore.build.shapes import check_integers, check_scalar, check_shape, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.attributes import choice, whole
from graphcore.ops.shared.reshape import INPUTS, change_layout, check_rank, layout_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, _dim, _shape, tensor_type


@op(onnx="NonMaxSuppression", rule="float")
def non_maximum_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_boxes_per_class: int | Symbol,
    iou_threshold: float | Symbol = 0.0,
    score_threshold: float | Symbol | None = None,
    *,
    center_point_box: bool = False,
    out_dim: DimLike | None = None,
) -> Symbol:
    """The boxes selected by non-maximum suppression: of boxes of a class that overlap, the one with the highest score.

    Args:
        boxes: [batch, count, 4], rows of (y1, x1, y2, x2), any two opposite corners; or (x, y, width, height) of the
            centre and the size if center_point_box.
        scores: [batch, classes, count]. Both are floats, or integers that become floats; they are compared in float32.
        max_output_boxes_per_class: The maximum number of boxes of a class in an image.
        iou_threshold: From 0 to 1; boxes overlap if their intersection over union is greater.
        score_threshold: Boxes without a higher score are dropped; None drops none. Each of the three is a number or a
            scalar Symbol, whose range the run checks.
        out_dim: A name for the number of selected boxes, unknown otherwise.

    Returns:
        Int64 [out_dim, 3], rows of (image, class, box) by image, class and descending score.

    Raises:
        ShapeError: For wrong ranks and sizes.
        DTypeError: For thresholds that are not numbers or out of range.

    ONNX NonMaxSuppression.
    """
    name = "non_maximum_suppression"
    (box_values, score_values), _ = promote(name, "float", {"boxes": boxes, "scores": scores})
    roles = {"boxes": box_values, "scores": score_values}
    if box_values.rank != 3 or not same_dim(box_values.shape[2], 4):
        raise ShapeError(
            f"{name}: boxes must be [batch, count, 4], got {box_values.shape}",
            operands=roles,
            help="give 4 numbers per box",
        )
    if score_values.rank != 3:
        raise ShapeError(
            f"{name}: scores must be [batch, classes, count], got {score_values.shape}",
            operands=roles,
            help="give one score for each class and box",
        )
    if not same_dim(box_values.shape[0], score_values.shape[0]) or not same_dim(
        box_values.shape[1], score_values.shape[2]
    ):
        raise ShapeError(
            f"{name}: boxes and scores do not match: {box_values.shape} and {score_values.shape}",
            operands=roles,
            help="boxes are [batch, count, 4] and scores [batch, classes, count]",
        )
    graph = box_values.graph
    inputs = [cast_operand(s, DType.float32) for s in (box_values, score_values)]
    max_boxes = _limit(graph, "max_output_boxes_per_class", max_output_boxes_per_class, DType.int64, roles)
    overlap = _limit(graph, "iou_threshold", iou_threshold, DType.float32, roles)
    limits = [max_boxes, overlap]
    if score_threshold is not None:
        limits.append(_limit(graph, "score_threshold", score_threshold, DType.float32, roles))
    count = Dim.dynamic() if out_dim is None else _dim(out_dim)
    type_ = tensor_type(DType.int64, _shape([count, Dim(3)]))
    attributes = {"center_point_box": int(bool(center_point_box))}
    return as_index(graph.build.emit("NonMaxSuppression", (*inputs, *limits), type_, attributes))


def _limit(graph: Graph, role: str, value: object, dtype: DType, roles: dict[str, Symbol]) -> Symbol:
    """Return a limit as a Symbol of shape [1]. Raises `DTypeError` and `ShapeError` for invalid limits."""
    name = "non_maximum_suppression"
    if isinstance(value, Symbol):
        symbol = graph.build.own(value, name, role)
        operands = {**roles, role: symbol}
        if not (symbol.dtype.is_integer or (symbol.dtype.is_float and dtype is DType.float32)):
            what = "a count" if dtype is DType.int64 else "a number"
            raise DTypeError(f"{name}: {role} must be {what}, got {symbol.dtype}", operands=operands, help="cast it")
        check_scalar(name, role, symbol, operands)
        return e.unsqueeze(graph.build.cast(symbol, dtype), 0)
    is_number = not isinstance(value, (bool, np.bool_))
    if role == "max_output_boxes_per_class":
        if not is_number or not isinstance(value, (int, np.integer)) or value < 0:
            raise DTypeError(f"{name}: {role}={value!r} is not a count", operands=roles, help="give 0 or more")
        return graph.build.vector([int(value)])
    if not is_number or not isinstance(value, (int, float, np.integer, np.floating)):
        raise DTypeError(f"{name}: {role}={value!r} is not a number", operands=roles, help="give a float or a Symbol")
    if role == "iou_threshold" and not 0 <= value <= 1:
        raise DTypeError(f"{name}: {role}={value!r} is not between 0 and 1", operands=roles, help="give 0 to 1")
    return graph.constant([float(value)], dtype)


# Features of regions


@op(onnx="RoiAlign", rule="float")
def roi_align(
    x: TensorLike,
    rois: TensorLike,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = False,
    mode: str = "AVG",
    *,
    batch_indices: TensorLike | None = None,
    input_layout: str = "NHWC",
) -> Symbol:
    """Regions of images, each pooled to a fixed size from points sampled in it.

    Args:
        x: [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW".
        rois: [regions, 5], each (index of the image, x1, y1, x2, y2); or [regions, 4] without the index.
        output_height: Bins of a region.
        output_width: Bins of a region.
        sampling_ratio: Points sampled in a bin along each axis; 0 for as many as a bin has pixels, rounded up.
        aligned: The centre of pixel 0 is at 0.5, not at 0.
        mode: "AVG" for the mean of the points, interpolated bilinearly, or "MAX" for the maximum of the weighted pixels
            around all points, as ONNX defines. Points more than a pixel outside of the image count as 0.
        batch_indices: The index of the image of each region if rois lack it, integers [regions]. Coordinates times
            spatial_scale are pixels of x. x and rois are promoted together; integers become floats.

    Returns:
        [regions, output_height, output_width, channels], or [regions, channels, output_height, output_width]. From He
        et al., "Mask R-CNN" (2017).

    Raises:
        ShapeError: For wrong ranks and sizes.
        DTypeError: For indices that are not integers.

    ONNX RoiAlign.
    """
    name = "roi_align"
    layout_of(name, "input_layout", input_layout, INPUTS[2])
    graph = graph_of(name, (x, rois, batch_indices))
    regions = graph.build.operand(rois, name, "rois")
    (image, boxes), dtype = promote(name, "float", {"x": x, "rois": regions})
    roles = {"x": image, "rois": regions}
    check_rank(name, "x", image, input_layout, roles)
    columns = 5 if batch_indices is None else 4
    if regions.rank != 2 or not same_dim(regions.shape[1], columns):
        what = "(image, x1, y1, x2, y2)" if columns == 5 else "(x1, y1, x2, y2), beside batch_indices,"
        raise ShapeError(
            f"{name}: rois must be [regions, {columns}], got {regions.shape}",
            operands=roles,
            help=f"give a row {what} for each region",
        )
    if str(mode).upper() not in ("AVG", "MAX"):
        raise ShapeError(f"{name}: unknown mode {mode!r}", help="use one of 'AVG', 'MAX'")
    count = regions.shape[0]
    indices = _image_indices(name, regions, batch_indices, roles)
    boxes = _places(name, "rois", regions, boxes)
    if columns == 5:
        boxes = e.emit(
            "Slice",
            boxes,
            *(e.ints(boxes, [v]) for v in (1, 5, 1)),
            shape=_shape([count, Dim(4)]),
        )
    height = whole(name, "output_height", output_height, 1)
    width = whole(name, "output_width", output_width, 1)
    attributes = {
        "mode": str(mode).lower(),
        "output_height": height,
        "output_width": width,
        "sampling_ratio": whole(name, "sampling_ratio", sampling_ratio, 0),
        "spatial_scale": float(spatial_scale),
        "coordinate_transformation_mode": "half_pixel" if aligned else "output_half_pixel",
    }
    inputs = change_layout(image, input_layout, "NCHW")
    type_ = tensor_type(dtype, _shape([count, inputs.shape[1], Dim(height), Dim(width)]))
    return change_layout(
        graph.build.emit("RoiAlign", (inputs, boxes, indices), type_, attributes), "NCHW", input_layout
    )


def _places(name: str, role: str, original: Symbol, promoted: Symbol) -> Symbol:
    """Return positions as real numbers, even if promoted with complex values. Raises `DTypeError` for complex ones."""
    if original.dtype.is_complex:
        raise DTypeError(
            f"{name}: {role} must be real numbers, got {original.dtype}",
            operands={role: original},
            help="give real numbers: ops.real(z)",
        )
    return e.cast(original, promoted.dtype.storage) if promoted.dtype.is_complex else promoted


def _image_indices(name: str, regions: Symbol, batch_indices: TensorLike | None, roles: dict[str, Symbol]) -> Symbol:
    """Return the image of each region as int64, read from the rois before promotion, which might round it."""
    if batch_indices is None:
        first = regions.graph.build.scalar(0, DType.int64)
        return e.cast(e.emit("Gather", regions, first, shape=regions.shape[:1], axis=1), DType.int64)
    indices = regions.graph.build.operand(batch_indices, name, "batch_indices")
    roles = {**roles, "batch_indices": indices}
    check_integers(name, "batch_indices", indices, roles)
    check_shape(name, "batch_indices", roles, regions.shape[:1], "give one index for each region")
    return e.cast(indices, DType.int64)


# Sampling at positions of a grid

_SAMPLES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


@op(onnx="GridSample", rule="float")
def grid_sample(
    x: TensorLike,
    grid: TensorLike,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    input_layout: str = "NHWC",
) -> Symbol:
    """Images, or volumes, sampled at the positions of a grid.

    Args:
        x: [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW", the layout
            that needs no transposes; volumes by "NDHWC" and "NCDHW".
        grid: [batch, rows, columns, 2], of x and y, or [batch, planes, rows, columns, 3] of x, y and z, from -1 to 1
            along width, height and depth. They are promoted together, and integers become floats; mode="nearest" keeps
            any dtype of x.
        mode: "bilinear" between neighbours along all axes, "nearest", or "bicubic", of images only.
        padding_mode: The values outside of the image: "zeros", "border" (the nearest element), "reflection".
        align_corners: -1 and 1 are the centres of the outermost elements, not their outer edges.

    Returns:
        [batch, rows, columns, channels], or the like, in the layout of x.

    Raises:
        ShapeError: For wrong ranks, a grid of another batch or number of coordinates, and unknown modes.

    PyTorch's grid_sample; ONNX GridSample.
    """
    name = "grid_sample"
    layout_of(name, "input_layout", input_layout, INPUTS[2] + INPUTS[3])
    choice(name, "mode", mode, tuple(_SAMPLES))
    choice(name, "padding_mode", padding_mode, ("zeros", "border", "reflection"))
    count = len(input_layout) - 2
    graph = graph_of(name, (x, grid))
    positions = graph.build.operand(grid, name, "grid")
    if mode == "nearest":
        symbol = graph.build.operand(x, name, "x")
        places, _ = promote_one(name, "float", positions, "grid")
    else:
        (symbol, places), _ = promote(name, "float", {"x": x, "grid": positions})
    places = _places(name, "grid", positions, places)
    roles = {"x": symbol, "grid": places}
    check_rank(name, "x", symbol, input_layout, roles)
    if mode == "bicubic" and count != 2:
        raise ShapeError(f"{name}: mode='bicubic' needs images, got volumes", operands=roles, help="use 'bilinear'")
    if places.rank != count + 2 or not same_dim(places.shape[-1], count):
        axes = "[batch, rows, columns, 2]" if count == 2 else "[batch, planes, rows, columns, 3]"
        raise ShapeError(f"{name}: grid must be {axes}, got {places.shape}", operands=roles, help=f"give {axes}")
    if not same_dim(places.shape[0], symbol.shape[0]):
        raise ShapeError(
            f"{name}: x has a batch of {symbol.shape[0]}, but grid of {places.shape[0]}",
            operands=roles,
            help="give a grid for each image",
        )
    native = INPUTS[count][-1]
    inputs = change_layout(symbol, input_layout, native)
    shape = _shape([*inputs.shape[:2], *places.shape[1:-1]])
    attributes = {"mode": _SAMPLES[mode], "padding_mode": padding_mode, "align_corners": int(bool(align_corners))}
    if (
        places.dtype is DType.float64 and symbol.dtype.is_float
    ):  # no kernel samples narrower floats at float64 positions
        inputs = e.cast(inputs, DType.float64)
    result = inputs.graph.build.emit("GridSample", (inputs, places), tensor_type(inputs.dtype, shape), attributes)
    return change_layout(e.cast(result, symbol.dtype), native, input_layout)


# The expansion of RoiAlign

_UNKNOWN = Dim.dynamic()


@dataclass(frozen=True, slots=True)
class _Samples:
    """The points sampled along one axis, each [regions, bins, samples] unless noted."""

    low: Symbol
    """The pixel before a point, int64."""
    high: Symbol
    """The pixel after it, int64."""
    fraction: Symbol
    """The distance from `low`, from 0 to 1."""
    inside: Symbol
    """True for points at most a pixel outside of the image."""
    taken: Symbol | None
    """True for samples of the region itself; None if all are."""
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

    # Broadcast [regions, bins, samples] of each axis to [regions, y bins, x bins, y samples, x samples].
    def down(symbol: Symbol) -> Symbol:
        return e.unsqueeze(symbol, 2, 4)

    def across(symbol: Symbol) -> Symbol:
        return e.unsqueeze(symbol, 1, 3)

    flat = _pixels(x, sizes)
    first = e.emit("Mul", e.unsqueeze(batch_indices, 1, 2, 3, 4), height)

    def weighted(row: Symbol, column: Symbol, row_weight: Symbol, column_weight: Symbol) -> Symbol:
        line = e.emit("Mul", e.emit("Add", first, down(row)), width)
        place = e.emit("Add", line, across(column))
        value = e.emit("Gather", flat, place, dtype=x.dtype, shape=_shape([*place.shape, channels]), axis=0)
        return e.emit("Mul", value, e.unsqueeze(e.emit("Mul", down(row_weight), across(column_weight)), 5))

    one, zero = e.const(x, 1), e.const(x, 0)
    y_rest, x_rest = e.emit("Sub", one, ys.fraction), e.emit("Sub", one, xs.fraction)
    corners = [
        weighted(ys.low, xs.low, y_rest, x_rest),
        weighted(ys.low, xs.high, y_rest, xs.fraction),
        weighted(ys.high, xs.low, ys.fraction, x_rest),
        weighted(ys.high, xs.high, ys.fraction, xs.fraction),
    ]
    inside = e.unsqueeze(e.both(down(ys.inside), across(xs.inside)), 5)
    taken = None
    if ys.taken is not None and xs.taken is not None:
        taken = e.unsqueeze(e.both(down(ys.taken), across(xs.taken)), 5)
    shape = _shape([regions, Dim(output_height), Dim(output_width), channels])
    samples = e.ints(x, [3, 4])
    count = e.emit("Mul", ys.count, xs.count)
    if count.rank:
        count = e.unsqueeze(count, 3)
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
    return e.transpose(pooled, [0, 3, 1, 2])


def _samples(rois: Symbol, column: int, size: Symbol, bins: int, ratio: int, aligned: bool) -> _Samples:
    """Sample one axis. column: of its start in rois; its end is two columns further. size: of the axis, int64."""
    one, zero = e.const(rois, 1), e.const(rois, 0)
    places = [rois.graph.build.scalar(c, DType.int64) for c in (column, column + 2)]
    start, end = (e.unsqueeze(e.emit("Gather", rois, c, shape=rois.shape[:1], axis=1), 1, 2) for c in places)
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
        steps = e.unsqueeze(_range_of(count), 0, 1)
        taken = e.less(steps, count)
    offset = e.emit("Mul", e.emit("Add", steps, e.const(rois, 0.5)), bin_size)
    offset = e.emit("Div", offset, e.emit("Max", count, one))
    bin_start = e.emit("Add", start, e.emit("Mul", _arange(rois, bins, (1, bins, 1)), bin_size))
    point = e.emit("Add", bin_start, offset)
    length = e.cast(size, rois.dtype)
    outside = e.either(e.less(point, e.const(rois, -1)), e.greater(point, length))
    last = e.emit("Sub", length, one)
    clamped = e.emit("Min", e.emit("Max", point, zero), last)
    floor = e.emit("Floor", clamped)
    high = e.emit("Min", e.emit("Add", floor, one), last)
    return _Samples(
        e.cast(floor, DType.int64),
        e.cast(high, DType.int64),
        e.emit("Sub", clamped, floor),
        e.opposite(outside),
        taken,
        count,
    )


def _range_of(counts: Symbol) -> Symbol:
    """Return 0, 1, ... up to the maximum of `counts`, and at least one number, so that a reduction has an element."""
    flat = e.emit("Reshape", counts, e.ints(counts, [-1]), shape=_shape([_UNKNOWN]))
    more = e.emit("Concat", flat, e.unsqueeze(e.const(counts, 1), 0), shape=_shape([_UNKNOWN]), axis=0)
    maximum = e.emit("ReduceMax", more, shape=Shape(), keepdims=0)
    return e.emit("Range", e.const(counts, 0), maximum, e.const(counts, 1), shape=_shape([_UNKNOWN]))


def _pixels(x: Symbol, sizes: Symbol) -> Symbol:
    """Return the images as rows of channels, one per pixel: [batch * height * width, channels]."""
    batch, channels, height, width = x.shape
    rows = e.transpose(x, [0, 2, 3, 1])
    count = e.emit("Mul", e.emit("Mul", _element(sizes, 0), _element(sizes, 2)), _element(sizes, 3))
    parts = [e.unsqueeze(count, 0), e.unsqueeze(_element(sizes, 1), 0)]
    target = e.emit("Concat", *parts, shape=_shape([Dim(2)]), axis=0)
    return e.emit("Reshape", rows, target, shape=_shape([batch * height * width, channels]), allowzero=1)


def _halved(op_type: str, four: list[Symbol]) -> tuple[Symbol, Symbol]:
    return e.emit(op_type, four[0], four[1]), e.emit(op_type, four[2], four[3])


def _element(vector: Symbol, position: int) -> Symbol:
    return e.emit("Gather", vector, vector.graph.build.scalar(position, DType.int64), shape=Shape(), axis=0)


def _arange(like: Symbol, count: int, shape: tuple[int, ...]) -> Symbol:
    return like.graph.build.constant(np.arange(count, dtype=like.dtype.numpy).reshape(shape), like.dtype)
