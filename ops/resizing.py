"""Resizing of images by interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import promote_one
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.dims import Axis, Size, dims_of, product, shape_vector
from graphcore.promotion.rules import Rule
from graphcore.types.dims import Dim
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
    """The tensor resampled to another size at pixel centres.

    Args:
        x: Of any shape.
        shape: The whole shape of the result, a dim for each axis of x; axes with the dim of x stay.
        interpolation: "bilinear" (`resize_linear`), "nearest" (`resize_nearest`, keeps the dtype) or "bicubic"
            (`resize_bicubic`).

    Raises:
        ShapeError: As these do.

    ONNX Resize.
    """
    if interpolation == "bilinear":
        return _resize("resize", "float", x, shape, {"mode": "linear"}, "half_pixel")
    if interpolation == "nearest":
        return _resize("resize", "keep", x, shape, {"mode": "nearest"}, "half_pixel")
    if interpolation == "bicubic":
        attributes = {"mode": "cubic", "antialias": 0, "cubic_coeff_a": -0.75}
        return _resize("resize", "float", x, shape, attributes, "half_pixel")
    raise ShapeError(
        f"resize: unknown interpolation {interpolation!r}", help="use one of 'bilinear', 'nearest', 'bicubic'"
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
    """The tensor resampled to another size by linear interpolation along each axis that changes.

    Args:
        x: Floats (integers become floats) of any rank, at most three axes of which change.
        size: The whole shape of the result, a dim for each axis of x; axes with the dim of x stay.
        coordinate_transformation_mode: The position in x of a pixel of the result: "half_pixel",
            "half_pixel_symmetric", "pytorch_half_pixel", "align_corners" or "asymmetric", as ONNX defines them.
        antialias: Widen the filter where the size shrinks.
        exclude_outside: Give positions of the filter outside of x weight 0, instead of the value of the edge; with
            antialias this is what image libraries do.

    Raises:
        ShapeError: For a size of another rank, unknown dims, or too many axes that change.

    ONNX Resize.
    """
    attributes: dict[str, Any] = {"mode": "linear"}
    if antialias:  # without it all positions outside have weight 0
        attributes |= {"antialias": 1, "exclude_outside": int(bool(exclude_outside))}
    return _resize("resize_linear", "float", x, size, attributes, coordinate_transformation_mode)


@op(onnx="Resize", rule="keep")
def resize_nearest(
    x: TensorLike,
    size: Sequence[DimLike],
    coordinate_transformation_mode: str = "half_pixel",
    round_mode: str = "half_down",
) -> Symbol:
    """The tensor resampled to another size by copies of the nearest element.

    Args:
        x: Of any dtype, which is kept, and any rank.
        size: As for `resize_linear`.
        coordinate_transformation_mode: As for `resize_linear`.
        round_mode: Which of two neighbours is used for a position between them: "half_down" or "half_up" for the nearer
            one and, half-way, the one before or after; "floor" or "ceil" for always the one before or after. ONNX's
            names of the first two, "round_prefer_floor" and "round_prefer_ceil", are accepted too.

    Raises:
        ShapeError: For a size of another rank or of unknown dims.

    ONNX Resize.
    """
    if round_mode not in _ROUNDINGS:
        raise ShapeError(
            f"resize_nearest: unknown round_mode {round_mode!r}",
            help="use one of 'half_down', 'half_up', 'floor', 'ceil'",
        )
    attributes = {"mode": "nearest", "nearest_mode": _ROUNDINGS[round_mode]}
    return _resize("resize_nearest", "keep", x, size, attributes, coordinate_transformation_mode)


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
    """The tensor resampled to another size by cubic convolution along each axis that changes.

    Args:
        x: Floats (integers become floats) of any rank, at most two axes of which change.
        size: As for `resize_linear`.
        coordinate_transformation_mode: As for `resize_linear`.
        antialias: As for `resize_linear`.
        cubic_coeff_a: The free coefficient of the kernel, from Keys, "Cubic convolution interpolation for digital image
            processing" (1981).
        exclude_outside: As for `resize_linear`.

    Raises:
        ShapeError: As `resize_linear` does.

    ONNX Resize.
    """
    attributes = {
        "mode": "cubic",
        "antialias": int(bool(antialias)),
        "exclude_outside": int(bool(exclude_outside)),
        "cubic_coeff_a": float(cubic_coeff_a),
    }
    return _resize("resize_bicubic", "float", x, size, attributes, coordinate_transformation_mode)


_MAX_AXES = {"linear": 3, "cubic": 2}


def _resize(
    name: str, rule: Rule, x: TensorLike, size: Sequence[DimLike], attributes: dict[str, Any], coordinates: str
) -> Symbol:
    symbol, _ = promote_one(name, rule, x)
    roles = {"x": symbol}
    if coordinates not in _COORDINATES:
        raise ShapeError(
            f"{name}: unknown coordinate_transformation_mode {coordinates!r}",
            help=f"use one of {', '.join(map(repr, _COORDINATES))}",
        )
    target = _shape(dims_of(name, size, help="give a dim for each axis of x: (x.shape[0], x.shape[1], 32, 32)"))
    if len(target) != symbol.rank:
        raise ShapeError(
            f"{name}: the size {target} has {len(target)} dims, but x has rank {symbol.rank}",
            operands=roles,
            help="give a dim for each axis of x, also for unchanged axes: (x.shape[0], x.shape[1], 32, 32)",
        )
    changed = [axis for axis, (to, own) in enumerate(zip(target, symbol.shape, strict=True)) if to is not own]
    for axis in changed:
        if target[axis].is_dynamic or target[axis] == 0 or symbol.shape[axis] == 0:
            raise ShapeError(
                f"{name}: axis {axis} cannot be resized from {symbol.shape[axis]} to {target[axis]}",
                operands=roles,
                help="give a number or a name as the size; neither size may be 0",
            )
    if not changed:
        return symbol
    attributes = {**attributes, "coordinate_transformation_mode": coordinates}
    limit = _MAX_AXES.get(attributes["mode"], symbol.rank)
    if len(changed) > limit:
        raise ShapeError(
            f"{name}: {len(changed)} axes change from {symbol.shape} to {target}",
            operands=roles,
            help=f"at most {limit} axes can be interpolated: resize in two steps",
        )
    if attributes["mode"] == "nearest" or _has_kernel(attributes, symbol.shape, target, changed):
        sizes = _sizes(symbol, target, range(symbol.rank), changed)
        return _emit(symbol, shape_vector(symbol.graph, sizes, [symbol], op=name), target, attributes)
    return _resize_merged(name, symbol, target, changed, attributes)


def _has_kernel(attributes: dict[str, Any], shape: Shape, target: Shape, changed: list[int]) -> bool:
    """Return True if onnxruntime has a kernel that resizes these axes of this shape."""
    if attributes["mode"] == "linear":
        return (len(shape), changed) in ((4, [2, 3]), (4, [1, 2]), (5, [2, 3, 4]))
    # The channels-last kernel cannot shrink, and is chosen when a Transpose before Resize is moved after it.
    bounds = [(target[axis] - shape[axis]).lower_bound for axis in changed]
    grows = all(bound is not None and bound >= 0 for bound in bounds)
    return (len(shape), changed) == (4, [2, 3]) and (grows or attributes["antialias"] == 1)


def _resize_merged(name: str, symbol: Symbol, target: Shape, changed: list[int], attributes: dict[str, Any]) -> Symbol:
    """Move the axes that change to the end and merge the others, as there is a kernel for that shape."""
    graph = symbol.graph
    unchanged = [axis for axis in range(symbol.rank) if axis not in changed]
    order = [*unchanged, *changed]
    inputs = e.transpose(symbol, order)
    images = inputs.shape[: len(unchanged)].size
    sizes: list[Size] = [Axis(inputs, axis) for axis in range(len(unchanged), symbol.rank)]
    dims = [symbol.shape[axis] for axis in changed]
    ends = [target[axis] for axis in changed]
    if len(changed) == 1:
        sizes, dims, ends = [Dim(1), *sizes], [Dim(1), *dims], [Dim(1), *ends]
    front: list[Size] = []
    if images != 1:
        count = product(graph, [Axis(inputs, axis) for axis in range(len(unchanged))], [symbol], op=name)
        # The shape must change, as only then Reshape keeps a Transpose from moving past Resize.
        first = len(unchanged) == 2 and inputs.shape[1] == 1
        front = [Dim(1), count] if first else [count, Dim(1)]
        leading = [Dim(1), images] if first else [images, Dim(1)]
        dims, ends = [*leading, *dims], [*leading, *ends]
    flat = shape_vector(graph, [*front, *sizes], [symbol], op=name)
    inputs = e.emit("Reshape", inputs, flat, shape=_shape(dims), allowzero=1)
    resized = _emit(
        inputs, shape_vector(graph, [*front, *ends[len(front) :]], [symbol], op=name), _shape(ends), attributes
    )
    back = shape_vector(graph, _sizes(symbol, target, order, changed), [symbol], op=name)
    resized = e.emit("Reshape", resized, back, shape=_shape([target[axis] for axis in order]), allowzero=1)
    return e.transpose(resized, [order.index(axis) for axis in range(symbol.rank)])


def _sizes(symbol: Symbol, target: Shape, order: Sequence[int], changed: list[int]) -> list[Size]:
    # Sizes of all axes, not only of those that change: onnxruntime moves Transposes past a Resize as if it had no
    # attribute `axes`.
    return [target[a] if a in changed or target[a].is_static else Axis(symbol, a) for a in order]


def _emit(inputs: Symbol, sizes: Symbol, shape: Shape, attributes: dict[str, Any]) -> Symbol:
    return inputs.graph.build.emit("Resize", (inputs, None, None, sizes), tensor_type(inputs.dtype, shape), attributes)
