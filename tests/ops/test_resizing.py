"""Resizing and regions of images, against formulas written out one element at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

from graphcore import Dim, DType, Graph, InferenceSession, Symbol, TensorType, ops
from graphcore.errors import DTypeError, RunError, ShapeError
from tests.support.graphs import Array, graph_of, run1

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


# Resizing


def origin(position: int, size: int, to: int, mode: str) -> float:
    """Return the position of a result's pixel in the input, as ONNX defines the modes."""
    scale = to / size
    if mode == "align_corners":
        return position * (size - 1) / (to - 1) if to > 1 else 0.0
    if mode == "asymmetric":
        return position / scale
    if mode == "pytorch_half_pixel" and to == 1:
        return 0.0
    return (position + 0.5) / scale - 0.5


def hat(t: float) -> float:
    return max(0.0, 1 - abs(t))


def cubic(t: float, a: float = -0.75) -> float:
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def matrix(
    size: int,
    to: int,
    mode: str,
    kernel: Callable[[float], float],
    reach: int,
    antialias: bool = False,
    exclude: bool = False,
) -> Array:
    """The weights of the input's elements for each element of the result: [to, size]."""
    stretch = max(1.0, size / to) if antialias else 1.0
    array = np.zeros((to, size))
    for position in range(to):
        at = origin(position, size, to, mode)
        span = math.ceil(reach * stretch)
        taps = range(math.floor(at) - span, math.floor(at) + span + 2)
        weights = np.array([kernel((tap - at) / stretch) for tap in taps])
        if exclude:
            weights[[not 0 <= tap < size for tap in taps]] = 0
        weights /= weights.sum()
        for tap, weight in zip(taps, weights, strict=True):
            array[position, min(max(tap, 0), size - 1)] += weight
    return array


def interpolated(
    x: Array,
    shape: Sequence[int],
    kernel: Callable[[float], float],
    reach: int,
    mode: str = "half_pixel",
    antialias: bool = False,
    exclude: bool = False,
) -> Array:
    graph = x.astype(np.float64)
    for axis, to in enumerate(shape):
        if to != x.shape[axis]:
            weights = matrix(x.shape[axis], to, mode, kernel, reach, antialias, exclude)
            graph = np.moveaxis(np.tensordot(weights, graph, (1, axis)), 0, axis)
    return graph


def copied(x: Array, shape: Sequence[int], mode: str, round_mode: str) -> Array:
    rounding: dict[str, Callable[[float], int]] = {
        "half_down": lambda v: math.ceil(v - 0.5),
        "half_up": lambda v: math.floor(v + 0.5),
        "floor": math.floor,
        "ceil": math.ceil,
    }
    for axis, to in enumerate(shape):
        size = x.shape[axis]
        if to != size:
            places = [min(max(rounding[round_mode](origin(p, size, to, mode)), 0), size - 1) for p in range(to)]
            x = np.take(x, places, axis)
    return x


MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("height", "width"), [(8, 10), (3, 2), (7, 4), (1, 11)])
def test_resize_linear_interpolates(height: int, width: int, mode: str) -> None:
    x = normal(2, 3, 4, 5)
    result = run1(
        lambda x: ops.resize_linear(x, (x.shape[0], x.shape[1], height, width), mode), x, dims=[["n", "c", "h", 5]]
    )
    np.testing.assert_allclose(result, interpolated(x, (2, 3, height, width), hat, 1, mode), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "to"),
    [
        ((5,), (8,)),
        ((4, 5), (7, 3)),
        ((2, 5), (2, 3)),
        ((3, 4, 5), (6, 3, 9)),
        ((3, 4, 5), (7, 4, 5)),
        ((2, 4, 5, 3), (2, 7, 3, 3)),
        ((2, 4, 5, 3), (2, 4, 8, 3)),
        ((2, 4, 5, 3), (3, 4, 5, 6)),
        ((2, 4, 5, 3), (2, 6, 3, 5)),
        ((2, 4, 5, 3), (4, 6, 3, 3)),
        ((2, 3, 4, 5, 3), (2, 3, 6, 4, 7)),
        ((2, 3, 4, 5, 3), (4, 3, 6, 5, 2)),
        ((2, 3, 4, 5, 3), (2, 5, 4, 5, 3)),
        ((2, 1, 3, 4, 5, 3), (2, 1, 6, 4, 3, 5)),
    ],
)
def test_resize_linear_interpolates_along_any_axes(shape: tuple[int, ...], to: tuple[int, ...]) -> None:
    x = normal(*shape)
    dims = [[n if n == m else f"d{axis}" for axis, (n, m) in enumerate(zip(shape, to, strict=True))]]
    result = run1(lambda x: ops.resize_linear(x, to), x, dims=dims)
    np.testing.assert_allclose(result, interpolated(x, to, hat, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("height", "width"), [(8, 10), (3, 4), (4, 7)])
def test_resize_bicubic_interpolates(height: int, width: int, mode: str) -> None:
    x = normal(2, 3, 4, 5)
    result = run1(
        lambda x: ops.resize_bicubic(x, (x.shape[0], x.shape[1], height, width), mode), x, dims=[["n", "c", "h", "w"]]
    )
    np.testing.assert_allclose(result, interpolated(x, (2, 3, height, width), cubic, 2, mode), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "to"),
    [
        ((5,), (8,)),
        ((4, 5), (7, 3)),
        ((3, 4, 5), (3, 6, 9)),
        ((2, 4, 5, 3), (2, 7, 3, 3)),
        ((2, 4, 5), (3, 4, 7)),
        ((2, 3, 4, 5, 3), (2, 3, 3, 5, 5)),
    ],
)
def test_resize_bicubic_interpolates_along_any_axes(shape: tuple[int, ...], to: tuple[int, ...]) -> None:
    x = normal(*shape)
    dims = [[n if n == m else f"d{axis}" for axis, (n, m) in enumerate(zip(shape, to, strict=True))]]
    result = run1(lambda x: ops.resize_bicubic(x, to), x, dims=dims)
    np.testing.assert_allclose(result, interpolated(x, to, cubic, 2), rtol=1e-4, atol=1e-5)


def test_resize_bicubic_takes_another_coefficient() -> None:
    x = normal(1, 1, 4, 5)
    result = run1(lambda x: ops.resize_bicubic(x, (1, 1, 7, 7), cubic_coeff_a=-0.5), x, dims=[[1, 1, "h", "w"]])
    expected = interpolated(x, (1, 1, 7, 7), lambda t: cubic(t, -0.5), 2)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize(("height", "width"), [(3, 4), (2, 9), (5, 5)])
def test_antialias_widens_the_filter_where_the_size_shrinks(height: int, width: int, exclude: bool) -> None:
    x = normal(2, 2, 7, 8)

    def size(x: Symbol) -> tuple[Dim, Dim, int, int]:
        return x.shape[0], x.shape[1], height, width

    linear = run1(lambda x: ops.resize_linear(x, size(x), antialias=True, exclude_outside=exclude), x)
    expected = interpolated(x, (2, 2, height, width), hat, 1, antialias=True, exclude=exclude)
    np.testing.assert_allclose(linear, expected, rtol=1e-4, atol=1e-5)
    bicubic = run1(lambda x: ops.resize_bicubic(x, size(x), antialias=True, exclude_outside=exclude), x)
    expected = interpolated(x, (2, 2, height, width), cubic, 2, antialias=True, exclude=exclude)
    np.testing.assert_allclose(bicubic, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("round_mode", ["half_down", "half_up", "floor", "ceil"])
@pytest.mark.parametrize("mode", MODES)
def test_resize_nearest_copies_the_nearest(mode: str, round_mode: str) -> None:
    x = normal(2, 3, 4, 6)
    result = run1(
        lambda x: ops.resize_nearest(x, (x.shape[0], 3, 8, 3), mode, round_mode), x, dims=[["n", 3, "h", "w"]]
    )
    np.testing.assert_array_equal(result, copied(x, (2, 3, 8, 3), mode, round_mode))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4, 5, 2, 3)])
def test_resize_nearest_takes_any_rank(shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    to = [n * 2 for n in shape]
    result = run1(lambda x: ops.resize_nearest(x, [d * 2 for d in x.shape]), x)
    np.testing.assert_array_equal(result, copied(x, to, "half_pixel", "half_down"))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int16, np.int32, np.float16, ml_dtypes.bfloat16])
def test_resize_nearest_keeps_the_dtype(dtype: type) -> None:
    x: Array = RNG.integers(0, 100, (1, 2, 3, 4)).astype(dtype)
    result = run1(lambda x: ops.resize_nearest(x, (1, 2, 6, 2)), x, dims=[[1, 2, "h", "w"]])
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, copied(x, (1, 2, 6, 2), "half_pixel", "half_down"))


def test_resize_chooses_the_interpolation() -> None:
    x = normal(1, 2, 4, 4)
    shape = (1, 2, 6, 7)
    dims = [[1, 2, "h", "w"]]
    result = run1(lambda x: ops.resize(x, shape), x, dims=dims)
    np.testing.assert_allclose(result, interpolated(x, shape, hat, 1), rtol=1e-4, atol=1e-5)
    result = run1(lambda x: ops.resize(x, shape, "bicubic"), x, dims=dims)
    np.testing.assert_allclose(result, interpolated(x, shape, cubic, 2), rtol=1e-4, atol=1e-5)
    result = run1(lambda x: ops.resize(x, shape, "nearest"), x, dims=dims)
    np.testing.assert_array_equal(result, copied(x, shape, "half_pixel", "half_down"))


def test_resize_takes_sizes_made_of_names() -> None:
    x, other = normal(2, 3, 4, 5), normal(7)
    result = run1(
        lambda x, other: ops.resize(x, ("n", 3, x.shape[2] * 2 + 1, "k")), x, other, dims=[["n", 3, "h", "w"], ["k"]]
    )
    np.testing.assert_allclose(result, interpolated(x, (2, 3, 9, 7), hat, 1), rtol=1e-4, atol=1e-5)


def test_resize_leaves_axes_of_the_same_size_alone() -> None:
    x = Graph("g", {"x": TensorType(DType.float32, [Dim.dynamic(), "c", "h", 8])})["x"]
    assert ops.resize(x, x.shape) is x
    y = ops.resize(x, (x.shape[0], "c", "h", 16))
    assert str(y.shape) == "[?, c, h, 16]"


@pytest.mark.parametrize(("height", "width"), [(7, 8), (7, 3), (2, 2)])
@pytest.mark.parametrize(("batch", "channels"), [(1, 1), (2, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("op", [ops.resize_linear, ops.resize_bicubic, ops.resize_nearest])
def test_resize_stands_between_transposes(
    op: Callable[..., Symbol], batch: int, channels: int, height: int, width: int
) -> None:
    x, shape = normal(batch, 4, 5, channels), (batch, height, width, channels)

    def build(x: Symbol) -> Symbol:
        first = ops.transpose(x, (0, 3, 1, 2))
        result = op(first, (first.shape[0], first.shape[1], height, width))
        return ops.transpose(result, (0, 2, 3, 1))

    for dims in (None, [["n", 4, 5, channels]], [[batch, 4, 5, channels]]):
        result = run1(build, x, dims=dims)
        if op is ops.resize_nearest:
            np.testing.assert_array_equal(result, copied(x, shape, "half_pixel", "half_down"))
        else:
            kernel, reach = (hat, 1) if op is ops.resize_linear else (cubic, 2)
            np.testing.assert_allclose(result, interpolated(x, shape, kernel, reach), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", [ops.resize_linear, ops.resize_bicubic])
def test_resize_takes_unknown_dims(op: Callable[..., Symbol]) -> None:
    x, unknown = normal(2, 3, 4, 5), Dim.dynamic()
    dims = [[unknown, unknown, unknown, 5]]
    result = run1(lambda x: op(x, (x.shape[0], x.shape[1], 3, 7)), x, dims=dims)
    kernel, reach = (hat, 1) if op is ops.resize_linear else (cubic, 2)
    np.testing.assert_allclose(result, interpolated(x, (2, 3, 3, 7), kernel, reach), rtol=1e-4, atol=1e-5)


def test_resize_linear_makes_floats_of_integers() -> None:
    x = RNG.integers(0, 9, (1, 1, 3, 3)).astype(np.int16)
    result = run1(lambda x: ops.resize_linear(x, (1, 1, 5, 6)), x, dims=[[1, 1, "h", "w"]])
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, interpolated(x, (1, 1, 5, 6), hat, 1), rtol=1e-5, atol=1e-5)


def image(*shape: int | str | Dim) -> Symbol:
    return Graph("g", {"x": TensorType(DType.float32, shape)})["x"]


def test_resize_says_what_is_wrong() -> None:
    x = image("n", 3, "h", "w")
    with pytest.raises(ShapeError, match=r"resize: the size \[8, 8\] has 2 dims, but x has rank 4"):
        ops.resize(x, (8, 8))
    with pytest.raises(ShapeError, match=r"resize: unknown interpolation 'cubic'[\s\S]*'bicubic'"):
        ops.resize(x, ("n", 3, 8, 8), "cubic")
    with pytest.raises(ShapeError, match=r"resize_linear: axis 2 cannot be resized from h to 0"):
        ops.resize_linear(x, ("n", 3, 0, 8))
    with pytest.raises(ShapeError, match=r"resize_linear: axis 3 cannot be resized from w to \?"):
        ops.resize_linear(x, ("n", 3, "h", Dim.dynamic()))
    with pytest.raises(ShapeError, match="resize_linear: unknown coordinate_transformation_mode 'corner'"):
        ops.resize_linear(x, ("n", 3, 8, 8), "corner")
    with pytest.raises(ShapeError, match=r"resize_nearest: unknown round_mode 'up'[\s\S]*'half_up'"):
        ops.resize_nearest(x, ("n", 3, 8, 8), round_mode="up")
    with pytest.raises(ShapeError, match=r"resize_bicubic: 3 axes change from \[n, 3, h, w\] to \[n, 4, 8, 8\]"):
        ops.resize_bicubic(x, ("n", 4, 8, 8))
    with pytest.raises(ShapeError, match=r"resize_linear: 4 axes change from"):
        ops.resize_linear(image(1, 1, 1, 4), (2, 2, 2, 8))
    with pytest.raises(ShapeError, match=r"resize: no Symbol has a dim 'k'"):
        ops.resize(x, ("n", 3, 8, "k"))
    with pytest.raises(ShapeError, match="resize: a shape must be static here, got a Symbol"):
        ops.resize(x, x)  # type: ignore[arg-type]


# Regions


def region_points(start: float, end: float, bins: int, ratio: int, aligned: bool) -> list[list[float]]:
    """The points sampled along one axis in each bin."""
    extent = end - start if aligned else max(end - start, 1.0)
    size = extent / bins
    count = ratio or math.ceil(size)
    return [[start + b * size + (i + 0.5) * size / count for i in range(count)] for b in range(bins)]


def neighbours(point: float, size: int) -> list[tuple[int, float]]:
    """The two pixels around a point and their weights; nothing outside of the image."""
    if not -1 <= point <= size:
        return [(0, 0.0), (0, 0.0)]
    value = min(max(point, 0.0), size - 1.0)
    low = math.floor(value)
    return [(low, 1 - (value - low)), (min(low + 1, size - 1), value - low)]


def regions(
    x: Array,
    rois: Array,
    height: int,
    width: int,
    scale: float = 1.0,
    ratio: int = 0,
    aligned: bool = False,
    kind: str = "AVG",
) -> Array:
    """x: [N, H, W, C], rois: [M, 5]."""
    array = np.zeros((len(rois), height, width, x.shape[-1]))
    for m, (index, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (float(np.float32(c) * np.float32(scale)) - 0.5 * aligned for c in corners)
        rows = region_points(y1, y2, height, ratio, aligned)
        columns = region_points(x1, x2, width, ratio, aligned)
        for i, j in np.ndindex(height, width):
            points = []
            for y, x_ in itertools.product(rows[i], columns[j]):
                around = itertools.product(neighbours(y, x.shape[1]), neighbours(x_, x.shape[2]))
                points.append([x[int(index), r, c].astype(np.float64) * u * v for (r, u), (c, v) in around])
            if points:
                array[m, i, j] = (
                    np.max(points, axis=(0, 1)) if kind == "MAX" else np.sum(points, axis=(0, 1)) / len(points)
                )
    return array


ROIS = np.array(
    [
        [0, 0.3, 0.7, 3.1, 5.2],
        [1, 1.0, 1.0, 6.0, 6.0],
        [0, -3.0, -2.5, 2.0, 9.5],  # reaches outside of the image
        [1, 4.2, 2.2, 4.4, 2.5],  # smaller than a pixel
        [1, 20.0, 20.0, 25.0, 28.0],  # beside the image
    ],
    np.float32,
)


@pytest.mark.parametrize("mode", ["AVG", "MAX"])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 1, 2, 3])
@pytest.mark.parametrize(("height", "width", "scale"), [(2, 3, 1.0), (3, 1, 0.5)])
def test_roi_align_pools_the_points_of_each_bin(
    height: int, width: int, scale: float, ratio: int, aligned: bool, mode: str
) -> None:
    x = normal(2, 7, 6, 3)
    result = run1(
        lambda x, rois: ops.roi_align(x, rois, height, width, scale, ratio, aligned, mode),
        x,
        ROIS,
        dims=[["n", "h", "w", "c"], ["m", 5]],
    )
    expected = regions(x, ROIS, height, width, scale, ratio, aligned, mode)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["AVG", "MAX"])
def test_roi_align_gives_zero_for_a_region_turned_inside_out(mode: str) -> None:
    x = normal(1, 5, 5, 2)
    rois = np.array([[0, 4, 4, 1, 1], [0, 1, 1, 4, 4]], np.float32)
    result = run1(
        lambda x, rois: ops.roi_align(x, rois, 2, 2, aligned=True, mode=mode), x, rois, dims=[[1, 5, 5, 2], ["m", 5]]
    )
    np.testing.assert_allclose(result, regions(x, rois, 2, 2, aligned=True, kind=mode), rtol=1e-4, atol=1e-5)
    assert not result[0].any()


def test_roi_align_does_not_look_outside_of_its_region() -> None:
    x = normal(1, 6, 6, 1)
    x[0, 5] = np.inf
    rois = np.array([[0, 1, 1, 3, 3], [0, 9, 9, 12, 12]], np.float32)
    result = run1(lambda x: ops.roi_align(x, rois, 2, 2, sampling_ratio=2), x, dims=[[1, "h", "w", 1]])
    assert np.isfinite(result).all()


def test_roi_align_takes_channels_first_and_separate_indices() -> None:
    x = normal(2, 3, 7, 6)
    indices = ROIS[:, 0].astype(np.int32)
    result = run1(
        lambda x, rois, indices: ops.roi_align(
            x, rois, 2, 2, sampling_ratio=2, batch_indices=indices, input_layout="NCHW"
        ),
        x,
        np.ascontiguousarray(ROIS[:, 1:]),
        indices,
        dims=[["n", 3, "h", "w"], ["m", 4], ["m"]],
    )
    expected = regions(np.moveaxis(x, 1, -1), ROIS, 2, 2, ratio=2)
    np.testing.assert_allclose(result, np.moveaxis(expected, -1, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align_takes_no_regions(ratio: int) -> None:
    result = run1(
        lambda x, rois: ops.roi_align(x, rois, 2, 2, sampling_ratio=ratio),
        normal(1, 5, 5, 3),
        np.zeros((0, 5), np.float32),
        dims=[["n", "h", "w", 3], ["m", 5]],
    )
    assert result.shape == (0, 2, 2, 3)


def test_roi_align_computes_float64_and_rounds_float16_once() -> None:
    x = normal(1, 5, 5, 2)
    rois = np.array([[0, 0.5, 0.25, 3.5, 4.75]])
    wide = run1(
        lambda x, rois: ops.roi_align(x, rois, 2, 2, sampling_ratio=2),
        x.astype(np.float64),
        rois,
        dims=[["n", "h", "w", 2], ["m", 5]],
    )
    np.testing.assert_allclose(wide, regions(x.astype(np.float64), rois, 2, 2, ratio=2), rtol=1e-12, atol=1e-12)
    half = x.astype(np.float16)
    narrow = run1(
        lambda x, rois: ops.roi_align(x, rois, 2, 2, sampling_ratio=2),
        half,
        rois.astype(np.float16),
        dims=[["n", "h", "w", 2], ["m", 5]],
    )
    expected = regions(half, rois, 2, 2, ratio=2).astype(np.float32).astype(np.float16)
    np.testing.assert_allclose(narrow, expected, rtol=2**-10, atol=2**-13)


def test_roi_align_is_one_operator_until_it_is_lowered() -> None:
    graph = graph_of(
        lambda x, rois, indices: ops.roi_align(x, rois, 2, 2, batch_indices=indices, input_layout="NCHW"),
        normal(1, 2, 5, 5),
        np.zeros((3, 4), np.float32),
        np.zeros(3, np.int64),
        dims=[["n", 2, "h", "w"], ["m", 4], ["m"]],
    )
    assert [node.op_type for node in graph.nodes] == ["RoiAlign"]
    assert [node.op_type for node in graph.to_onnx(target="onnx").graph.node] == ["RoiAlign"]


def test_roi_align_says_what_is_wrong() -> None:
    x = image("n", "h", "w", 3)
    rois = np.zeros((2, 5), np.float32)
    with pytest.raises(ShapeError, match=r"roi_align: x has rank 3, not 4[\s\S]*NHWC"):
        ops.roi_align(image("h", "w", 3), rois, 2, 2)
    with pytest.raises(
        ShapeError, match=r"roi_align: rois must be \[regions, 5\], got \[2, 4\][\s\S]*\(image, x1, y1, x2, y2\)"
    ):
        ops.roi_align(x, rois[:, :4], 2, 2)
    with pytest.raises(ShapeError, match=r"roi_align: rois must be \[regions, 4\], got \[2, 5\]"):
        ops.roi_align(x, rois, 2, 2, batch_indices=np.zeros(2, np.int64))
    with pytest.raises(ShapeError, match=r"roi_align: batch_indices must have shape \[2\], got \[3\]"):
        ops.roi_align(x, rois[:, :4], 2, 2, batch_indices=np.zeros(3, np.int64))
    with pytest.raises(DTypeError, match="roi_align: batch_indices must have an integer dtype, got float32"):
        ops.roi_align(x, rois[:, :4], 2, 2, batch_indices=np.zeros(2, np.float32))
    with pytest.raises(ShapeError, match=r"roi_align: unknown mode 'SUM'"):
        ops.roi_align(x, rois, 2, 2, mode="SUM")
    with pytest.raises(ShapeError, match="roi_align: output_height=0 is below 1"):
        ops.roi_align(x, rois, 0, 2)
    with pytest.raises(ShapeError, match="roi_align: sampling_ratio=-1 is below 0"):
        ops.roi_align(x, rois, 2, 2, sampling_ratio=-1)


def test_scales_that_are_too_few_when_they_are_fed_are_an_error() -> None:
    model = InferenceSession().load(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 9]>
            upsample (uint64[a, b, c, d] x, float[n] scales) => (uint64[e, f, g, h] y) { y = Upsample(x, scales) }"""
        )
    )
    x = np.ones((1, 1, 2, 2), np.uint64)
    assert model(x, np.array([1, 1, 2, 2], np.float32))[0].shape == (1, 1, 4, 4)
    for item in (x, np.zeros((0, 0, 0, 2), np.uint64)):
        with pytest.raises(RunError):
            model(item, np.zeros(0, np.float32))
