"""Pooling, against loops over windows, and `fold`, against loops over columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.calls import calls
from tests.support.graphs import Array, run1

RNG = np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def places(size: int, kernel: int, stride: int, dilation: int, before: int, after: int, ceil: bool) -> list[int]:
    """Return the starts of windows, counted from the first element of the input."""
    reach = dilation * (kernel - 1)
    starts = []
    start = -before
    while start < size if ceil else start + reach < size + after:
        starts.append(start)
        if start + reach >= size + after - 1:
            break
        start += stride
    return starts


def pooled(
    x: Array,
    kind: str,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    ceil: bool = False,
    count_boundary: bool = True,
) -> Array:
    """Over windows of x: [N, C, H, W], in float64."""
    batch, channels, height, width = x.shape
    rows = places(height, kernel[0], stride[0], dilation[0], padding[0], padding[1], ceil)
    columns = places(width, kernel[1], stride[1], dilation[1], padding[2], padding[3], ceil)
    array = np.zeros((batch, channels, len(rows), len(columns)))
    for (i, top), (j, item) in itertools.product(enumerate(rows), enumerate(columns)):
        down = [top + r * dilation[0] for r in range(kernel[0])]
        across = [item + s * dilation[1] for s in range(kernel[1])]
        results = [x[:, :, r, s] for r in down for s in across if 0 <= r < height and 0 <= s < width]
        counted = len(results)
        if count_boundary:
            counted = sum(r < height + padding[1] for r in down) * sum(s < width + padding[3] for s in across)
        values = np.stack(results).astype(np.float64)
        array[:, :, i, j] = values.max(0) if kind == "max" else values.sum(0) / counted
    return array


CASES = [
    ((2, 2), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((3, 2), (2, 3), (1, 1), (1, 2, 0, 1)),
    ((3, 3), (3, 2), (2, 1), (2, 1, 1, 0)),
    ((1, 4), (2, 2), (1, 2), (0, 0, 1, 2)),
]


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "dilation", "padding"), CASES)
def test_max_pool_gives_the_greatest_of_each_window(
    kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], padding: tuple[int, ...], ceil: bool
) -> None:
    x = normal(2, 3, 8, 9)
    expected = pooled(x, "max", kernel, stride, dilation, padding, ceil)
    native = run1(lambda x: ops.max_pool2d(x, kernel, stride, dilation, padding, ceil, "NCHW"), x)
    np.testing.assert_array_equal(native, expected)
    last = run1(lambda x: ops.max_pool(x, kernel, stride, dilation, padding, ceil_mode=ceil), np.moveaxis(x, 1, -1))
    np.testing.assert_array_equal(last, np.moveaxis(expected, 1, -1))


@pytest.mark.parametrize("count_boundary", [False, True])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "dilation", "padding"), CASES)
def test_avg_pool_gives_the_mean_of_each_window(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
    count_boundary: bool,
) -> None:
    x = normal(2, 3, 8, 9)
    expected = pooled(x, "avg", kernel, stride, dilation, padding, ceil, count_boundary)
    native = run1(lambda x: ops.avg_pool2d(x, kernel, stride, dilation, padding, ceil, count_boundary, "NCHW"), x)
    np.testing.assert_allclose(native, expected, rtol=1e-5, atol=1e-6)
    last = run1(
        lambda x: ops.avg_pool(x, kernel, stride, dilation, padding, count_boundary, ceil_mode=ceil),
        np.moveaxis(x, 1, -1),
    )
    np.testing.assert_allclose(last, np.moveaxis(expected, 1, -1), rtol=1e-5, atol=1e-6)


def test_pools_take_one_number_for_all_axes() -> None:
    x = normal(1, 2, 7, 7)
    expected = pooled(x, "max", (3, 3), (2, 2), (1, 1), (1, 1, 1, 1))
    result = run1(lambda x: ops.max_pool2d(x, 3, 2, padding=1, input_layout="NCHW"), x)
    np.testing.assert_array_equal(result, expected)
    pairs = run1(lambda x: ops.max_pool2d(x, 3, 2, padding=(1, 1), input_layout="NCHW"), x)
    np.testing.assert_array_equal(pairs, expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.float16, np.float64])
def test_max_pool_keeps_the_dtype(dtype: type) -> None:
    x: Array = RNG.integers(0 if dtype is np.uint8 else -100, 100, (1, 2, 5, 6)).astype(dtype)
    result = run1(lambda x: ops.max_pool2d(x, 2, 2, padding=1, input_layout="NCHW"), x)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, pooled(x, "max", (2, 2), (2, 2), (1, 1), (1, 1, 1, 1)))


@pytest.mark.parametrize("channels", [16, 5])
@pytest.mark.parametrize(("kernel", "stride", "dilation", "padding"), CASES)
@pytest.mark.parametrize("ceil", [False, True])
def test_max_pool_gives_nan_for_a_window_that_has_one_when_rectified(
    ceil: bool, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    channels: int,
) -> None:  # fmt: skip
    x = normal(2, channels, 9, 8)
    x[0, 0, 3, 4] = x[1, 2, 8, 7] = np.nan
    x[0, 1, 3, 4:6] = np.inf
    x[0, 2, 3, 4], x[0, 2, 3, 5] = np.inf, -np.inf
    x[1, 1] = 3e38  # of which a sum overflows
    x[1, 3] = -3e38
    expected = pooled(np.maximum(x, 0), "max", kernel, stride, dilation, padding, ceil)
    assert 0 < np.isnan(expected).sum() < expected.size
    result = run1(lambda x: ops.max_pool2d(ops.relu(x), kernel, stride, dilation, padding, ceil, "NCHW"), x)
    np.testing.assert_array_equal(result, expected.astype(np.float32))


def test_max_pool_takes_no_marks_when_rectified() -> None:
    graph = Graph("stem", {"x": TensorType(DType.float32, ["n", 32, "h", "w"])})
    graph.output(y=ops.max_pool2d(ops.relu(graph["x"]), 3, 2, padding=1, input_layout="NCHW"))
    kinds = [node.op_type for node in graph.to_onnx(target="cpu").graph.node]
    assert kinds == ["Relu", "MaxPool", "Conv", "Relu", "Add"]


@pytest.mark.parametrize(("dtype", "result"), [(np.int8, np.float16), (np.uint16, np.float32)])
def test_avg_pool_makes_floats_of_integers(dtype: type, result: type) -> None:
    x: Array = RNG.integers(0, 100, (1, 2, 5, 6)).astype(dtype)
    outputs = run1(lambda x: ops.avg_pool2d(x, 2, input_layout="NCHW"), x)
    assert outputs.dtype == result
    np.testing.assert_allclose(outputs, pooled(x, "avg", (2, 2), (1, 1), (1, 1), (0, 0, 0, 0)), rtol=1e-3)


def test_pools_have_symbolic_sizes() -> None:
    x = Graph("g", {"x": TensorType(DType.float32, ["n", "h", Dim.dynamic(), 3])})["x"]
    assert str(ops.max_pool2d(x, 3, 2, padding=1).shape) == "[n, (h + 1) // 2, ?, 3]"
    rounded = ops.max_pool2d(x, 2, 2, ceil_mode=True).shape
    assert [rounded[1].evaluate({"h": h}) for h in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]


def columns_of(
    image: tuple[int, int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
) -> list[list[tuple[int, int]]]:
    """For every window the places in the image that its elements come from."""
    height, width = image
    rows = places(height, kernel[0], stride[0], dilation[0], padding[0], padding[1], False)
    columns = places(width, kernel[1], stride[1], dilation[1], padding[2], padding[3], False)
    return [
        [(top + r * dilation[0], item + s * dilation[1]) for r in range(kernel[0]) for s in range(kernel[1])]
        for top in rows
        for item in columns
    ]


@pytest.mark.parametrize(("kernel", "stride", "dilation", "padding"), CASES)
def test_fold_adds_up_the_windows(
    kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], padding: tuple[int, ...]
) -> None:
    height, width, channels = 6, 8, 3
    windows = columns_of((height, width), kernel, stride, dilation, padding)
    area = kernel[0] * kernel[1]
    x = normal(2, channels * area, len(windows))
    expected = np.zeros((2, channels, height, width))
    for window, elements in enumerate(windows):
        for element, (row, column) in enumerate(elements):
            if 0 <= row < height and 0 <= column < width:
                expected[:, :, row, column] += x.reshape(2, channels, area, -1)[:, :, element, window]
    result = run1(
        lambda x: ops.fold(x, (height, width), kernel, stride, dilation, padding),
        x,
        dims=[["n", channels * area, len(windows)]],
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_fold_takes_symbolic_sizes() -> None:
    x, image = normal(2, 8, 6), normal(2, 4, 6)
    result = run1(
        lambda x, image: ops.fold(x, (image.shape[1], image.shape[2]), 2, 2),
        x,
        image,
        dims=[["n", "c", Dim("h") * Dim("w")], ["n", Dim("h") * 2, Dim("w") * 2]],
    )
    blocks = x.reshape(2, 2, 2, 2, 2, 3)  # batch, channel, row, column within a window; row, column of windows
    np.testing.assert_array_equal(result, blocks.transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6))


def images(*shape: int | str, dtype: DType = DType.float32) -> Symbol:
    return Graph("g", {"x": TensorType(dtype, shape)})["x"]


def test_pools_say_what_is_wrong() -> None:
    x = images("n", 4, "w", 2)
    with pytest.raises(ShapeError, match=r"max_pool2d: x has rank 3, not 4[\s\S]*its axes must be NHWC"):
        ops.max_pool2d(images("h", "w", 2), 2)
    with pytest.raises(ShapeError, match=r"avg_pool2d: padding=2 must be smaller than the kernel \(2, 2\)"):
        ops.avg_pool2d(x, 2, padding=2)
    with pytest.raises(ShapeError, match="max_pool: the kernel does not fit: it covers 5 elements along the height"):
        ops.max_pool(x, 5)
    with pytest.raises(ShapeError, match="avg_pool: kernel_size=0 is below 1"):
        ops.avg_pool(x, (2, 0))
    with pytest.raises(ShapeError, match=r"max_pool2d: stride=\(1, 2, 3\) has 3 numbers"):
        ops.max_pool2d(x, 2, (1, 2, 3))
    with pytest.raises(DTypeError, match="max_pool2d: kernel_size='2' is not an int"):
        ops.max_pool2d(x, "2")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="max_pool2d: input_layout='CHWN' is not a layout of max_pool2d"):
        ops.max_pool2d(x, 2, input_layout="CHWN")


def test_pools_are_built_in_few_calls() -> None:
    x = images("batch", 32, 32, 8)
    ops.max_pool2d(x, 2, 2)  # what is kept for the next one
    assert calls(lambda: ops.max_pool2d(x, 2, 2)) <= 330  # some for the frames of pytest; 682 where sizes were Dims


def test_pools_refuse_strings() -> None:
    with pytest.raises(DTypeError, match="max_pool2d"):
        ops.max_pool2d(images("n", "h", "w", 1, dtype=DType.string), 2)


def test_fold_says_what_is_wrong() -> None:
    with pytest.raises(ShapeError, match=r"fold: x must have rank 3, got 2"):
        ops.fold(images("n", 12), (4, 4), 2)
    with pytest.raises(ShapeError, match="fold: axis 1 of x must be a multiple of 2 x 2, the kernel, got 10"):
        ops.fold(images("n", 10, 9), (4, 4), 2)
    with pytest.raises(ShapeError, match="fold: x has 8 windows, but an image of 4 x 4 has 3 x 3"):
        ops.fold(images("n", 12, 8), (4, 4), 2)
    with pytest.raises(ShapeError, match="fold: the kernel does not fit: it covers 5 elements along the width"):
        ops.fold(images("n", 20, 8), (6, 4), (2, 5))
    with pytest.raises(ShapeError, match=r"fold: output_size=\[4\] is not a height and a width"):
        ops.fold(images("n", 12, 8), 4, 2)  # type: ignore[arg-type]
