"""Samples of images at computed places, against ONNX's reference implementation and by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import GraphError, PromotionError, ShapeError
from tests.support.graphs import Array, run1

pytestmark = pytest.mark.releases

RNG = np.random.default_rng(9)
WORDS = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


def reference(x: Array, grid: Array, mode: str, padding: str, align: bool) -> Array:
    """GridSample of onnx's own NumPy implementation. x: [N, C, ...]."""
    node = onnx.helper.make_node(
        "GridSample", ["x", "grid"], ["y"], mode=WORDS[mode], padding_mode=padding, align_corners=int(align)
    )
    kinds = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("x", "grid", "y")]
    graph = onnx.helper.make_graph([node], "g", kinds[:2], kinds[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])
    results: Any = ReferenceEvaluator(model).run(None, {"x": x, "grid": grid})
    return np.asarray(results[0])


def cubic(t: float) -> float:
    """The weight of a neighbour at a distance, with the factor -3/4."""
    if t <= 1:
        return 1.25 * t**3 - 2.25 * t**2 + 1
    return -0.75 * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def cubic_to_the_border(x: Array, grid: Array, align: bool) -> Array:
    """As PyTorch defines it: every neighbour outside is the element at the border. x: [N, C, H, W]."""
    height, width = x.shape[2:]
    array = np.zeros((*x.shape[:2], *grid.shape[1:3]))
    for n, row, column in np.ndindex(*grid.shape[:3]):
        at = [
            (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2
            for g, size in zip(grid[n, row, column].astype(np.float64), (width, height), strict=True)
        ]
        remaining, top = (int(np.floor(place)) for place in at)
        for i, j in itertools.product(range(-1, 3), repeat=2):
            weight = cubic(abs(at[0] - remaining - i)) * cubic(abs(at[1] - top - j))
            element = x[n, :, min(max(top + j, 0), height - 1), min(max(remaining + i, 0), width - 1)]
            array[n, :, row, column] += weight * element
    return array


CASES = list(itertools.product(WORDS, ["zeros", "border", "reflection"], [False, True]))


@pytest.mark.parametrize(("mode", "padding", "align"), CASES)
def test_images_are_read_at_the_places(mode: str, padding: str, align: bool) -> None:
    x = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    grid = RNG.uniform(-1.4, 1.4, (2, 3, 2, 2)).astype(np.float32)
    want = reference(x, grid, mode, padding, align)
    if (mode, padding) == ("bicubic", "border"):  # onnx's moves places, not neighbours
        want = cubic_to_the_border(x, grid, align)
    for dims in ([["n", 3, "h", "w"], ["n", "r", "c", 2]], [list(x.shape), list(grid.shape)]):
        result = run1(lambda x, g: ops.grid_sample(x, g, mode, padding, align, "NCHW"), x, grid, dims=dims)
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)
    double = run1(
        lambda x, g: ops.grid_sample(x, g, mode, padding, align, "NCHW"),
        x.astype(np.float64),
        grid.astype(np.float64),
        dims=[["n", 3, "h", "w"], ["n", "r", "c", 2]],
    )
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, want, rtol=1e-4, atol=1e-5)
    last = run1(
        lambda x, g: ops.grid_sample(x, g, mode, padding, align),
        np.moveaxis(x, 1, -1),
        grid,
        dims=[["n", "h", "w", 3], ["n", "r", "c", 2]],
    )
    np.testing.assert_allclose(last, np.moveaxis(want, 1, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes_are_read_at_the_places(mode: str) -> None:
    x = RNG.standard_normal((1, 2, 3, 4, 5)).astype(np.float32)
    grid = RNG.uniform(-1, 1, (1, 2, 2, 2, 3)).astype(np.float32)
    want = reference(x, grid, mode, "zeros", False)
    result = run1(
        lambda x, g: ops.grid_sample(x, g, mode, input_layout="NCDHW"), x, grid, dims=[list(x.shape), list(grid.shape)]
    )
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("places", [np.float32, np.float64, np.float16])
def test_nearest_keeps_the_dtype(dtype: Any, places: Any) -> None:
    x = RNG.integers(0, 9, (1, 2, 3, 1)).astype(dtype)
    grid = np.array([[[[-1, -1], [1, 1], [0, -1], [3, 0]]]], places)
    result = run1(
        lambda x, g: ops.grid_sample(x, g, "nearest", align_corners=True),
        x,
        grid,
        dims=[["n", "h", "w", 1], ["n", "r", "c", 2]],
    )
    assert result.dtype == dtype
    want = np.array([x[0, 0, 0, 0], x[0, 1, 2, 0], x[0, 0, 1, 0], 0], dtype)
    np.testing.assert_array_equal(result.ravel(), want)


def test_nothing_is_read_at_no_places() -> None:
    x, grid = np.ones((2, 3, 4, 1), np.float32), np.zeros((2, 0, 3, 2), np.float32)
    result = run1(ops.grid_sample, x, grid, dims=[["n", "h", "w", 1], ["n", "r", "c", 2]])
    assert result.shape == (2, 0, 3, 1)


def test_result_has_the_sizes_of_the_grid() -> None:
    graph = Graph(
        "g", {"x": TensorType(DType.float16, ["n", "h", "w", 3]), "g": TensorType(DType.int8, ["n", 7, "c", 2])}
    )
    y = ops.grid_sample(graph["x"], graph["g"])
    assert y.type == TensorType(DType.float16, ["n", 7, "c", 3])


@pytest.mark.parametrize(
    ("x", "grid", "options", "words"),
    [
        (["n", 4, 3], ["n", 2, 2, 2], {}, r"x has rank 3, not 4[\s\S]*its axes must be NHWC"),
        (["n", 4, 4, 3], ["n", 2, 2, 3], {}, r"grid must be \[batch, rows, columns, 2\], got \[n, 2, 2, 3\]"),
        (["n", 4, 4, 3], ["n", 2, 2], {}, r"\[batch, rows, columns, 2\]"),
        (["n", 4, 4, 3], ["m", 2, 2, 2], {}, "x has a batch of n, but grid of m"),
        (["n", 4, 4, 3], ["n", 2, 2, 2], {"mode": "linear"}, "mode='linear' is not known"),
        (["n", 4, 4, 3], ["n", 2, 2, 2], {"padding_mode": "wrap"}, "padding_mode='wrap' is not known"),
        (["n", 4, 4, 3], ["n", 2, 2, 2], {"input_layout": "NWC"}, "input_layout='NWC' is not a layout"),
        (["n", 4, 4, 4, 3], ["n", 2, 2, 2, 3], {"mode": "bicubic", "input_layout": "NDHWC"}, "needs images"),
    ],
)
def test_grid_sample_says_what_is_wrong(x: list[Any], grid: list[Any], options: dict[str, Any], words: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, x), "g": TensorType(DType.float32, grid)})
    with pytest.raises((GraphError, ShapeError), match=words):
        ops.grid_sample(graph["x"], graph["g"], **options)


def test_grid_sample_refuses_strings() -> None:
    graph = Graph("g", {"x": TensorType(DType.string, [1, 2, 2, 1]), "g": TensorType(DType.float32, [1, 2, 2, 2])})
    with pytest.raises(PromotionError, match="grid_sample: string and float32"):
        ops.grid_sample(graph["x"], graph["g"])
