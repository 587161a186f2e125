"""Resizing of images by interpolation, samples of them at computed places, and pooling of regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import graph_of, promote, promote_one
from graphcore.build.shapes import same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared import regions as regions  # declares the expansion of RoiAlign
from graphcore.ops.shared.attributes import choice
from graphcore.ops.shared.dims import Axis, Size, dims_of, product, shape_vector
from graphcore.ops.shared.spatial import INPUTS, layout_of, of_rank, relaid, whole
from graphcore.promotion.rules import Rule
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, Shape, _shape, tensor_type

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
_ROUNDINGS = {
    "half_down": "round_prefer_floor",
    "half_up": "round_prefer_ceil",
    "floor": "floor",
    "ceil": "ceil",
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
}


@op(onnx="Resize", rule="float")
def resize(x: TensorLike, shape: Sequence[DimLike], interpolation: str = "bilinear") -> Symbol:
    """The tensor at another size, its elements being samples at pixel centres. ONNX Resize.

    x: of any shape. shape: the whole shape of the result, a dim for each axis of x; those equal to x's stay.
    interpolation: "bilinear" (`resize_linear`), "nearest" (`resize_nearest`, keeps the dtype) or "bicubic"
    (`resize_bicubic`). Raises `ShapeError` as these do.
    """
    if interpolation == "bilinear":
        return _resized("resize", "float", x, shape, {"mode": "linear"}, "half_pixel")
    if interpolation == "nearest":
        return _resized("resize", "keep", x, shape, {"mode": "nearest"}, "half_pixel")
    if interpolation == "bicubic":
        attributes = {"mode": "cubic", "antialias": 0, "cubic_coeff_a": -0.75}
        return _resized("resize", "float", x, shape, attributes, "half_pixel")
    raise ShapeError(
        f"resize: there is no interpolation {interpolation!r}", help="one of 'bilinear', 'nearest', 'bicubic'"
    )


@op(onnx="Resize", rule="float")
def resize_linear(
    x: TensorLike,
    size: Sequence[DimLike],
    coordinate_transformation_mode: str = "half_pixel",
    antialias: bool = False,
    *,
    exclude_outside: bool = False,
) -> Symbol:
    """The tensor at another size, interpolated linearly along each axis that changes. ONNX Resize.

    x: floats (integers become floats) of any rank, at most three axes of which change. size: the whole shape of
    the result, a dim for each axis of x; those equal to x's stay. coordinate_transformation_mode: the position of a
    result's pixel in x: "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners" or "asymmetric", as
    ONNX defines them. antialias: widen the filter where the size shrinks. exclude_outside: give positions of the filter
    outside of x no weight, instead of the edge's value; with antialias this is what image libraries do.
    Raises `ShapeError` for a size of another rank, unknown dims, or too many axes that change.
    """
    attributes: dict[str, Any] = {"mode": "linear"}
    if antialias:  # without it no position outside has a weight
        attributes |= {"antialias": 1, "exclude_outside": int(bool(exclude_outside))}
    return _resized("resize_linear", "float", x, size, attributes, coordinate_transformation_mode)


@op(onnx="Resize", rule="keep")
def resize_nearest(
    x: TensorLike,
    size: Sequence[DimLike],
    coordinate_transformation_mode: str = "half_pixel",
    round_mode: str = "half_down",
) -> Symbol:
    """The tensor at another size, every element a copy of the nearest one. ONNX Resize.

    x: of any dtype, which is kept, and any rank. size, coordinate_transformation_mode: as for `resize_linear`.
    round_mode: which element is the nearest to a place between two: "half_down" or "half_up" for the nearer one and,
    half-way, the one before or after; "floor" or "ceil" always. ONNX's names of the first two, "round_prefer_floor" and
    "round_prefer_ceil", are taken too. Raises `ShapeError` for a size of another rank or of unknown dims.
    """
    if round_mode not in _ROUNDINGS:
        raise ShapeError(
            f"resize_nearest: there is no round_mode {round_mode!r}",
            help="one of 'half_down', 'half_up', 'floor', 'ceil'",
        )
    attributes = {"mode": "nearest", "nearest_mode": _ROUNDINGS[round_mode]}
    return _resized("resize_nearest", "keep", x, size, attributes, coordinate_transformation_mode)


@op(onnx="Resize", rule="float")
def resize_bicubic(
    x: TensorLike,
    size: Sequence[DimLike],
    coordinate_transformation_mode: str = "half_pixel",
    antialias: bool = False,
    cubic_coeff_a: float = -0.75,
    *,
    exclude_outside: bool = False,
) -> Symbol:
    """The tensor at another size, interpolated by cubic convolution along each axis that changes. ONNX Resize.

    x: floats (integers become floats) of any rank, at most two axes of which change. size, antialias, exclude_outside,
    coordinate_transformation_mode: as for `resize_linear`. cubic_coeff_a: the free coefficient of the kernel, from
    Keys, "Cubic convolution interpolation for digital image processing" (1981). Raises `ShapeError` as
    `resize_linear` does.
    """
    attributes = {
        "mode": "cubic",
        "antialias": int(bool(antialias)),
        "exclude_outside": int(bool(exclude_outside)),
        "cubic_coeff_a": float(cubic_coeff_a),
    }
    return _resized("resize_bicubic", "float", x, size, attributes, coordinate_transformation_mode)


_MOST_AXES = {"linear": 3, "cubic": 2}


def _resized(
    name: str, rule: Rule, x: TensorLike, size: Sequence[DimLike], attributes: dict[str, Any], coordinates: str
) -> Symbol:
    symbol, _ = promote_one(name, rule, x)
    roles = {"x": symbol}
    if coordinates not in _COORDINATES:
        raise ShapeError(
            f"{name}: there is no coordinate_transformation_mode {coordinates!r}",
            help=f"one of {', '.join(map(repr, _COORDINATES))}",
        )
    target = _shape(dims_of(name, size, help="give a dim for each axis of x: (x.shape[0], x.shape[1], 32, 32)"))
    if len(target) != symbol.rank:
        raise ShapeError(
            f"{name}: a size of {len(target)} dims {target} for a tensor of rank {symbol.rank}",
            operands=roles,
            help="give a dim for each axis of x, also for those that stay: (x.shape[0], x.shape[1], 32, 32)",
        )
    changed = [axis for axis, (to, own) in enumerate(zip(target, symbol.shape, strict=True)) if to is not own]
    for axis in changed:
        if target[axis].is_dynamic or target[axis] == 0 or symbol.shape[axis] == 0:
            raise ShapeError(
                f"{name}: axis {axis} cannot go from {symbol.shape[axis]} to {target[axis]}",
                operands=roles,
                help="its size must be known by a number or a name, and neither is 0",
            )
    if not changed:
        return symbol
    attributes = {**attributes, "coordinate_transformation_mode": coordinates}
    most = _MOST_AXES.get(attributes["mode"], symbol.rank)
    if len(changed) > most:
        raise ShapeError(
            f"{name}: {len(changed)} axes would change, of x {symbol.shape} to {target}",
            operands=roles,
            help=f"at most {most} axes can be interpolated along: resize in two steps",
        )
    if attributes["mode"] == "nearest" or _has_kernel(attributes, symbol.shape, target, changed):
        sizes = _sizes(symbol, target, range(symbol.rank), changed)
        return _emitted(symbol, shape_vector(symbol.graph, sizes, [symbol], op=name), target, attributes)
    return _along(name, symbol, target, changed, attributes)


def _has_kernel(attributes: dict[str, Any], shape: Shape, target: Shape, changed: list[int]) -> bool:
    """Return whether onnxruntime has a kernel that resizes these axes of this shape."""
    if attributes["mode"] == "linear":
        return (len(shape), changed) in ((4, [2, 3]), (4, [1, 2]), (5, [2, 3, 4]))
    # The kernel for channels last does not shrink, and is chosen when a Transpose before Resize is moved after it.
    bounds = [(target[axis] - shape[axis]).lower_bound for axis in changed]
    grows = all(bound is not None and bound >= 0 for bound in bounds)
    return (len(shape), changed) == (4, [2, 3]) and (grows or attributes["antialias"] == 1)


def _along(name: str, symbol: Symbol, target: Shape, changed: list[int], attributes: dict[str, Any]) -> Symbol:
    """Move the axes that change to the end and merge the others: a kernel exists for that shape."""
    graph = symbol.graph
    kept = [axis for axis in range(symbol.rank) if axis not in changed]
    order = [*kept, *changed]
    inputs = _transposed(symbol, order)
    images = inputs.shape[: len(kept)].size
    sizes: list[Size] = [Axis(inputs, axis) for axis in range(len(kept), symbol.rank)]
    dims = [symbol.shape[axis] for axis in changed]
    ends = [target[axis] for axis in changed]
    if len(changed) == 1:
        sizes, dims, ends = [Dim(1), *sizes], [Dim(1), *dims], [Dim(1), *ends]
    front: list[Size] = []
    if images != 1:
        count = product(graph, [Axis(inputs, axis) for axis in range(len(kept))], [symbol], op=name)
        # The shape must change: only then does Reshape keep a Transpose from moving past Resize.
        first = len(kept) == 2 and inputs.shape[1] == 1
        front = [Dim(1), count] if first else [count, Dim(1)]
        own = [Dim(1), images] if first else [images, Dim(1)]
        dims, ends = [*own, *dims], [*own, *ends]
    flat = shape_vector(graph, [*front, *sizes], [symbol], op=name)
    inputs = e.emit("Reshape", inputs, flat, shape=_shape(dims), allowzero=1)
    made = _emitted(
        inputs, shape_vector(graph, [*front, *ends[len(front) :]], [symbol], op=name), _shape(ends), attributes
    )
    back = shape_vector(graph, _sizes(symbol, target, order, changed), [symbol], op=name)
    made = e.emit("Reshape", made, back, shape=_shape([target[axis] for axis in order]), allowzero=1)
    return _transposed(made, [order.index(axis) for axis in range(symbol.rank)])


def _sizes(symbol: Symbol, target: Shape, order: Sequence[int], changed: list[int]) -> list[Size]:
    # Sizes of all axes, not only of those that change: onnxruntime moves Transposes past a Resize as if it had no
    # attribute `axes`.
    return [target[a] if a in changed or target[a].is_static else Axis(symbol, a) for a in order]


def _emitted(inputs: Symbol, sizes: Symbol, shape: Shape, attributes: dict[str, Any]) -> Symbol:
    return inputs.graph.build.emit("Resize", (inputs, None, None, sizes), tensor_type(inputs.dtype, shape), attributes)


def _transposed(symbol: Symbol, order: list[int]) -> Symbol:
    if order == list(range(symbol.rank)):
        return symbol
    return e.emit("Transpose", symbol, shape=_shape([symbol.shape[axis] for axis in order]), perm=order)


# Regions


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
    """Regions of images, each pooled to one size from points sampled in it. ONNX RoiAlign.

    x: [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW". rois: [regions,
    5], each (index of the image, x1, y1, x2, y2); or [regions, 4] without the index, which batch_indices: [regions]
    of integers then gives. Coordinates times spatial_scale are pixels of x. x and rois are promoted together;
    integers become floats. output_height, output_width: bins of a region. sampling_ratio: points sampled in a bin
    along each axis; 0 for as many as a bin has pixels, rounded up. aligned: the centre of pixel 0 is at 0.5, not at 0.
    mode: "AVG" for the mean of the points, interpolated bilinearly, or "MAX" for the greatest of the weighted pixels
    around all points, as ONNX defines. Points more than a pixel outside of the image count as 0.
    Returns [regions, output_height, output_width, channels], or [regions, channels, output_height, output_width].
    From He et al., "Mask R-CNN" (2017). Raises `ShapeError` for wrong ranks and sizes, `DTypeError` for indices that
    are no integers.
    """
    name = "roi_align"
    layout_of(name, "input_layout", input_layout, INPUTS[2])
    graph = graph_of(name, (x, rois, batch_indices))
    regions = graph.build.operand(rois, name, "rois")
    (image, boxes), dtype = promote(name, "float", {"x": x, "rois": regions})
    roles = {"x": image, "rois": regions}
    of_rank(name, "x", image, input_layout, roles)
    columns = 5 if batch_indices is None else 4
    if regions.rank != 2 or not same_dim(regions.shape[1], columns):
        what = "(image, x1, y1, x2, y2)" if columns == 5 else "(x1, y1, x2, y2), as batch_indices are given,"
        raise ShapeError(
            f"{name}: rois has shape {regions.shape}",
            operands=roles,
            help=f"give a row {what} for each region: shape [regions, {columns}]",
        )
    if str(mode).upper() not in ("AVG", "MAX"):
        raise ShapeError(f"{name}: there is no mode {mode!r}", help="one of 'AVG', 'MAX'")
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
    inputs = relaid(image, input_layout, "NCHW")
    made = tensor_type(dtype, _shape([count, inputs.shape[1], Dim(height), Dim(width)]))
    return relaid(graph.build.emit("RoiAlign", (inputs, boxes, indices), made, attributes), "NCHW", input_layout)


def _places(name: str, role: str, given: Symbol, promoted: Symbol) -> Symbol:
    """Return places, real numbers also where they were promoted with complex values. Raises `DTypeError` for others."""
    if given.dtype.is_complex:
        raise DTypeError(
            f"{name}: {role} are places, and complex numbers are none",
            operands={role: given},
            help="give real numbers: ops.real(z)",
        )
    return e.cast(given, promoted.dtype.storage) if promoted.dtype.is_complex else promoted


def _image_indices(name: str, regions: Symbol, batch_indices: TensorLike | None, roles: dict[str, Symbol]) -> Symbol:
    """Return the image of each region as int64, taken from the rois before promotion, so that none is rounded."""
    if batch_indices is None:
        first = regions.graph.build.scalar(0, DType.int64)
        return e.cast(e.emit("Gather", regions, first, shape=regions.shape[:1], axis=1), DType.int64)
    given = regions.graph.build.operand(batch_indices, name, "batch_indices")
    if given.dtype.is_float or not given.dtype.is_number:
        raise DTypeError(
            f"{name}: batch_indices are {given.dtype}",
            operands={**roles, "batch_indices": given},
            help="give integers: cast them to int64",
        )
    if given.rank != 1 or not same_dim(given.shape[0], regions.shape[0]):
        raise ShapeError(
            f"{name}: batch_indices have shape {given.shape} for {regions.shape[0]} regions",
            operands={**roles, "batch_indices": given},
            help=f"give one index a region: shape [{regions.shape[0]}]",
        )
    return e.cast(given, DType.int64)


# Samples at computed places

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
    """Images, or volumes, read at the places in a grid.

    x: [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW", the layout that
    needs no transposes; volumes by "NDHWC" and "NCDHW". grid: [batch, rows, columns, 2], of x and y, or [batch, planes,
    rows, columns, 3] of x, y and z, from -1 to 1 along width, height and depth. They are promoted together, and
    integers become floats; mode="nearest" keeps any dtype of x. mode: "bilinear" between neighbours along all axes,
    "nearest", or "bicubic", of images only. padding_mode: what is read outside: "zeros", "border" (the nearest
    element), "reflection". align_corners: -1 and 1 are the middles of the outermost elements, not their outer edges.
    Returns [batch, rows, columns, channels], or the like, in the layout of x. Raises `ShapeError` for wrong ranks, a
    grid of another batch or number of coordinates, and unknown words. PyTorch's grid_sample; ONNX GridSample.
    """
    name = "grid_sample"
    layout_of(name, "input_layout", input_layout, INPUTS[2] + INPUTS[3])
    choice(name, "mode", mode, tuple(_SAMPLES))
    choice(name, "padding_mode", padding_mode, ("zeros", "border", "reflection"))
    count = len(input_layout) - 2
    graph = graph_of(name, (x, grid))
    given = graph.build.operand(grid, name, "grid")
    if mode == "nearest":
        symbol = graph.build.operand(x, name, "x")
        places, _ = promote_one(name, "float", given, "grid")
    else:
        (symbol, places), _ = promote(name, "float", {"x": x, "grid": given})
    places = _places(name, "grid", given, places)
    roles = {"x": symbol, "grid": places}
    of_rank(name, "x", symbol, input_layout, roles)
    if mode == "bicubic" and count != 2:
        raise ShapeError(f"{name}: mode='bicubic' is of images", operands=roles, help="use 'bilinear' for volumes")
    if places.rank != count + 2 or not same_dim(places.shape[-1], count):
        axes = "[batch, rows, columns, 2]" if count == 2 else "[batch, planes, rows, columns, 3]"
        raise ShapeError(f"{name}: grid has shape {places.shape}", operands=roles, help=f"give {axes}")
    if not same_dim(places.shape[0], symbol.shape[0]):
        raise ShapeError(
            f"{name}: x has a batch of {symbol.shape[0]}, grid of {places.shape[0]}",
            operands=roles,
            help="give a grid for each image",
        )
    native = INPUTS[count][-1]
    inputs = relaid(symbol, input_layout, native)
    shape = _shape([*inputs.shape[:2], *places.shape[1:-1]])
    attributes = {"mode": _SAMPLES[mode], "padding_mode": padding_mode, "align_corners": int(bool(align_corners))}
    if places.dtype is DType.float64 and symbol.dtype.is_float:  # no kernel reads narrower floats at such places
        inputs = e.cast(inputs, DType.float64)
    made = inputs.graph.build.emit("GridSample", (inputs, places), tensor_type(inputs.dtype, shape), attributes)
    return relaid(e.cast(made, symbol.dtype), native, input_layout)
