"""Resize and GridSample in float64 and in integers, which have no kernels, against loops over every element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.lowering.test_spatial_dtypes import INTEGERS, WIDE, Array, check, numbers

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

RNG = np.random.default_rng(5)
TRANSFORMATIONS = [
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
]  # fmt: skip
ROUNDINGS: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda v: math.ceil(v - 0.5),
    "round_prefer_ceil": lambda v: math.floor(v + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def cubic(t: float, a: float = -0.75) -> float:
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def coordinate(i: int, size: int, end: int, scale: float, how: str, crop: tuple[float, float]) -> float:
    grown = scale * size
    if how == "align_corners":
        return 0.0 if grown == 1 else i * (size - 1) / (grown - 1)
    if how == "asymmetric":
        return i / scale
    if how == "tf_crop_and_resize":
        first, last = crop
        if grown == 1:
            return (last - first) * (size - 1) / 2 + first * (size - 1)
        return first * (size - 1) + i * (last - first) * (size - 1) / (grown - 1)
    if how == "pytorch_half_pixel" and grown == 1:
        return -0.5
    half = (i + 0.5) / scale - 0.5
    return half + size / 2 * (1 - end / grown) if how == "half_pixel_symmetric" else half


def resized(
    x: Array, axis: int, end: int, scale: float, how: str, mode: str, *, nearest: str = "round_prefer_floor",
    exclude: bool = False, antialias: bool = False, crop: tuple[float, float] = (0.0, 1.0), outside: float = 0.0,
) -> Array:  # fmt: skip
    """One axis resized, element by element."""
    moved = np.moveaxis(x, axis, 0)
    size = len(moved)
    results = []
    for i in range(end):
        at = coordinate(i, size, end, scale, how, crop)
        if how == "tf_crop_and_resize" and not 0 <= at <= size - 1:
            results.append(np.full_like(moved[0], outside))
            continue
        if mode == "nearest":
            results.append(moved[min(max(ROUNDINGS[nearest](at), 0), size - 1)])
            continue
        shrink = min(scale, 1.0) if antialias else 1.0
        reach = math.ceil((2 if mode == "cubic" else 1) / shrink) + 1
        taps = {}
        for tap in range(math.floor(at) - reach, math.floor(at) + reach + 1):
            t = (tap - at) * shrink
            weight = cubic(t) if mode == "cubic" else max(1 - abs(t), 0.0)
            if not exclude or 0 <= tap < size:
                taps[tap] = weight
        total = sum(taps.values())
        results.append(sum(w / total * moved[min(max(tap, 0), size - 1)] for tap, w in taps.items()))
    return np.moveaxis(np.array(results), 0, axis)


SCALES = [(0.6, 2.3), (1.0, 0.5), (2.0, 1.0), (0.25, 3.0)]


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("how", TRANSFORMATIONS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_is_that_of_loops_when_in_float64(mode: str, how: str, scales: tuple[float, float]) -> None:
    x = numbers(np.float64, 2, 2, 5, 4)
    single = [float(np.float32(s)) for s in scales]
    ends = [math.floor(n * s) for n, s in zip((5, 4), scales, strict=True)]
    crops = ((0.2, 0.7), (0.4, 1.3))
    options: list[dict[str, Any]] = [{}]
    if mode == "nearest":
        options = [{"nearest_mode": rounding} for rounding in ROUNDINGS]
    elif mode == "cubic":
        options = [{}, {"exclude_outside": 1}]
    roi = None
    if how == "tf_crop_and_resize":
        roi = np.array([0, 0, crops[0][0], crops[1][0], 1, 1, crops[0][1], crops[1][1]], np.float64)
    for option in options:
        expected = x
        for axis, (end, scale, crop) in enumerate(zip(ends, single, crops, strict=True), 2):
            expected = resized(
                expected, axis, end, scale, how, mode, nearest=option.get("nearest_mode", ""),
                exclude="exclude_outside" in option, crop=crop, outside=7.5,
            )  # fmt: skip
        attributes = {"mode": mode, "coordinate_transformation_mode": how, "extrapolation_value": 7.5, **option}
        check("Resize", [x, roi, np.array([1, 1, *scales], np.float32)], attributes, expected)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [(0.6, 0.35), (0.5, 1.5)])
def test_resize_smooths_when_antialiased_in_float64(mode: str, scales: tuple[float, float]) -> None:
    x = numbers(np.float64, 1, 2, 9, 7)
    expected = x
    for axis, scale in enumerate(scales, 2):
        single = float(np.float32(scale))
        end = math.floor(x.shape[axis] * scale)
        expected = resized(expected, axis, end, single, "half_pixel", mode, antialias=True)
    attributes = {"mode": mode, "antialias": 1}
    check("Resize", [x, None, np.array([1, 1, *scales], np.float32)], attributes, expected)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("axes", [(2, 3), (3, 2), (1,)])
def test_resize_takes_sizes_of_some_axes(policy: str, axes: tuple[int, ...]) -> None:
    x = numbers(np.float64, 1, 3, 4, 6)
    sizes = (7, 5)[: len(axes)]
    scales = [s / x.shape[a] for s, a in zip(sizes, axes, strict=True)]
    ends = list(sizes)
    if policy != "stretch":
        scales = [min(scales) if policy == "not_larger" else max(scales)] * len(axes)
        ends = [math.floor(s * x.shape[a] + 0.5) for s, a in zip(scales, axes, strict=True)]
    expected = x
    for axis, end, scale in zip(axes, ends, scales, strict=True):
        expected = resized(expected, axis, end, scale, "half_pixel", "linear")
    attributes = {"mode": "linear", "axes": list(axes), "keep_aspect_ratio_policy": policy}
    check("Resize", [x, None, None, np.array(sizes)], attributes, expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_resize_moves_every_bit_when_to_the_nearest(dtype: Any) -> None:
    x = numbers(dtype, 1, 2, 5, 4)
    expected = resized(resized(x, 2, 3, 3 / 5, "asymmetric", "nearest", nearest="floor"), 3, 8, 2.0, "asymmetric",
                       "nearest", nearest="floor")  # fmt: skip
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    check("Resize", [x, None, None, np.array([1, 2, 3, 8])], attributes, expected)


@pytest.mark.parametrize("dtype", WIDE)
def test_resize_computes_integers_in_float64_when_linear(dtype: Any) -> None:
    x = RNG.integers(0, 100, (1, 1, 5, 4)).astype(dtype) * 8
    expected = resized(resized(x.astype(np.float64), 2, 10, 2.0, "half_pixel", "linear"), 3, 8, 2.0, "half_pixel",
                       "linear")  # fmt: skip
    check("Resize", [x, None, None, np.array([1, 1, 10, 8])], {"mode": "linear"}, np.trunc(expected).astype(dtype))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_aligns_corners_of_the_size_before_rounding_when_by_scales(mode: str) -> None:
    x = numbers(np.float32, 1, 1, 5, 6)
    expected = x.astype(np.float64)
    for axis, end in ((2, 3), (3, 4)):
        expected = resized(expected, axis, end, float(np.float32(0.7)), "align_corners", mode)
    attributes = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
    check("Resize", [x, None, np.array([1, 1, 0.7, 0.7], np.float32)], attributes, expected.astype(np.float32))


# GridSample


def reflected(place: float, low: float, high: float) -> float:
    if high == low:
        return low
    while not low <= place <= high:
        place = 2 * low - place if place < low else 2 * high - place
    return place


def sampled(x: Array, grid: Array, mode: str, padding: str, align: int) -> Array:
    """x: [C, *sizes], grid: [*places, axes]."""
    sizes = x.shape[1:]
    array = np.zeros((len(x), *grid.shape[:-1]), x.dtype if mode == "nearest" else np.float64)

    def pixel(at: tuple[int, ...]) -> Any:
        taken = []
        for place, size in zip(at, sizes, strict=True):
            if padding == "border":
                place = min(max(place, 0), size - 1)
            elif padding == "reflection":
                place = int(reflected(place, 0, size - 1) if align else reflected(place, -0.5, size - 0.5))
            elif not 0 <= place < size:
                return np.zeros(len(x), x.dtype)
            taken.append(place)
        where: Any = (..., *taken)
        return x[where]

    for place in np.ndindex(*grid.shape[:-1]):
        options = []
        for size, g in zip(sizes, grid[place][::-1], strict=True):
            at = (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2
            at = float(np.round(at)) if mode == "nearest" else at
            if padding == "border" and mode != "cubic":  # whose neighbours are moved one by one
                at = min(max(at, 0), size - 1)
            elif padding == "reflection":
                at = reflected(at, 0, size - 1) if align else reflected(at, -0.5, size - 0.5)
            first = math.floor(at)
            if mode == "nearest":
                options.append([(first, 1.0)])
            elif mode == "linear":
                options.append([(first, 1 - at + first), (first + 1, at - first)])
            else:
                options.append([(first + i, cubic(first + i - at)) for i in (-1, 0, 1, 2)])
        for taps in itertools.product(*options):
            value = pixel(tuple(t for t, _ in taps))
            weight = math.prod(w for _, w in taps)
            array[(slice(None), *place)] += value if mode == "nearest" else value.astype(np.float64) * weight
    return array


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample_is_that_of_loops_when_in_float64(mode: str, padding: str, align: int) -> None:
    x = numbers(np.float64, 2, 3, 4, 5)
    grid = RNG.uniform(-2.2, 2.2, (2, 3, 6, 2))
    expected = np.stack([sampled(x[i], grid[i], mode, padding, align) for i in range(2)])
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
    check("GridSample", [x, grid], attributes, expected, fed=2)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_grid_sample_takes_volumes_in_float64(mode: str) -> None:
    x = numbers(np.float64, 1, 2, 3, 4, 3)
    grid = RNG.uniform(-1.5, 1.5, (1, 2, 3, 2, 3))
    expected = sampled(x[0], grid[0], mode, "zeros", 0)[None]
    check("GridSample", [x, grid], {"mode": mode}, expected, fed=2)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_grid_sample_moves_every_bit_when_to_the_nearest(dtype: Any) -> None:
    x = numbers(dtype, 1, 2, 4, 5)
    grid = RNG.uniform(-1.5, 1.5, (1, 3, 6, 2)).astype(np.float32)
    expected = sampled(x[0], grid[0].astype(np.float64), "nearest", "border", 0)[None]
    check("GridSample", [x, grid], {"mode": "nearest", "padding_mode": "border"}, expected, fed=2)
