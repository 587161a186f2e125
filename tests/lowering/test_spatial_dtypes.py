"""Operators on images in float64 and in integers, for which there are no kernels, against loops over every element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(31)
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
WIDE = [np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64]


def numbers(dtype: Any, *shape: int) -> Array:
    """Normal floats; integers of the whole range, so that sums of products wrap."""
    if np.dtype(dtype).kind == "f":
        return RNG.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def emitted(
    op: str,
    inputs: Sequence[Array | None],
    attributes: dict[str, Any],
    results: Sequence[Array],
    *,
    symbolic: bool,
    fed: int = 1,
) -> list[Array]:
    """Return the results of one ONNX operator: the first `fed` inputs are fed, with named or static dims."""
    types = {}
    for i, array in enumerate(inputs[:fed]):
        assert array is not None
        shape: list[Any] = [f"d{i}_{a}" for a in range(array.ndim)] if symbolic else list(array.shape)
        types[f"x{i}"] = TensorType(DType.of(array.dtype), shape)
    graph = Graph("test", types)
    rest = [None if array is None else graph.constant(array) for array in inputs[fed:]]
    ends: list[list[Any]] = [[f"r{a}" for a in range(r.ndim)] if symbolic else list(r.shape) for r in results]
    out_types = [TensorType(DType.of(r.dtype), end) for r, end in zip(results, ends, strict=True)]
    graph.output(*graph.op(op, [*graph.inputs, *rest], attributes, out_types))
    return list(gc.InferenceSession().load(graph)(*inputs[:fed]))


def check(op: str, inputs: Sequence[Array | None], attributes: dict[str, Any], *expected: Array, fed: int = 1) -> None:
    for symbolic in (False, True):
        results = emitted(op, inputs, attributes, expected, symbolic=symbolic, fed=fed)
        for item, right in zip(results, expected, strict=True):
            assert item.dtype == right.dtype
            if right.dtype == np.float64:
                np.testing.assert_allclose(item, right, rtol=1e-12, atol=1e-12, err_msg=f"{op} {attributes}")
            elif right.dtype.kind in "iub":
                np.testing.assert_array_equal(item, right, err_msg=f"{op} {attributes}")
            else:
                np.testing.assert_allclose(item.astype(np.float64), right.astype(np.float64), rtol=1e-5, atol=1e-5)


def wrapped(total: Array, dtype: Any) -> Array:
    """Python integers or floats in a dtype, modulo its range."""
    if np.dtype(dtype).kind == "f":
        return total.astype(dtype)
    bits = np.dtype(dtype).itemsize * 8
    low: Array = np.vectorize(lambda n: n % (1 << bits), otypes=[object])(total).astype(np.uint64)
    return low.astype(dtype)


def places_of(size: int, kernel: int, s: int, d: int, before: int, after: int, ceil: bool) -> int:
    room = size + before + after - (d * (kernel - 1) + 1)
    count = (-(-room // s) if ceil else room // s) + 1
    return count - 1 if ceil and (count - 1) * s >= size + before else count


def same_pads(size: int, kernel: int, s: int, d: int, upper: bool) -> tuple[int, int]:
    total = max((-(-size // s) - 1) * s + d * (kernel - 1) + 1 - size, 0)
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)


# Convolutions


def convolved(x: Array, w: Array, b: Array | None, s: int, d: int, pads: Sequence[int], groups: int) -> Array:
    """Sums of products in Python numbers. x: [N, C, H, W], w: [F, C/groups, R, S]."""
    exact = object if x.dtype.kind in "iu" else np.float64
    n, _, height, width = x.shape
    features, depth, r, t = w.shape
    top, left, bottom, right = pads
    rows, columns = places_of(height, r, s, d, top, bottom, False), places_of(width, t, s, d, left, right, False)
    array = np.zeros((n, features, rows, columns), exact)
    for i, f, y, z in np.ndindex(array.shape):
        first = f // (features // groups) * depth
        for c, u, v in np.ndindex(depth, r, t):
            row, column = y * s + u * d - top, z * s + v * d - left
            if 0 <= row < height and 0 <= column < width:
                array[i, f, y, z] += x[i, first + c, row, column].astype(exact) * w[f, c, u, v].astype(exact)
        if b is not None:
            array[i, f, y, z] += b[f].astype(exact)
    return wrapped(array, x.dtype)


CONVOLUTIONS = list(itertools.product([1, 2], [1, 2], [(0, 0, 0, 0), (1, 2, 0, 1)], [1, 2], [False, True]))


@pytest.mark.parametrize(("stride", "dilation", "pads", "groups", "biased"), CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint64])
def test_conv_sums_exactly_when_there_is_no_kernel(
    dtype: Any, stride: int, dilation: int, pads: tuple[int, ...], groups: int, biased: bool
) -> None:
    x, w = numbers(dtype, 2, 4, 5, 6), numbers(dtype, 6, 4 // groups, 3, 2)
    b = numbers(dtype, 6) if biased else None
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": list(pads), "group": groups}
    check("Conv", [x, w, b], attributes, convolved(x, w, b, stride, dilation, pads, groups))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_conv_wraps_when_of_integers_with_a_fed_filter(dtype: Any) -> None:
    x, w = numbers(dtype, 1, 2, 4, 4), numbers(dtype, 3, 2, 2, 2)
    check("Conv", [x, w], {}, convolved(x, w, None, 1, 1, (0, 0, 0, 0), 1), fed=2)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_conv_pads_by_itself_when_the_size_shall_stay(stride: int, upper: bool) -> None:
    x, w = numbers(np.float64, 1, 2, 7, 6), numbers(np.float64, 3, 2, 3, 2)
    (top, bottom), (left, right) = (same_pads(n, k, stride, 1, upper) for n, k in ((7, 3), (6, 2)))
    attributes = {"strides": [stride] * 2, "auto_pad": "SAME_UPPER" if upper else "SAME_LOWER"}
    check("Conv", [x, w], attributes, convolved(x, w, None, stride, 1, (top, left, bottom, right), 1))


@pytest.mark.parametrize("rank", [3, 5])
def test_conv_sums_when_of_sequences_and_volumes(rank: int) -> None:
    x = numbers(np.float64, 2, 3, *[4] * (rank - 2))
    w = numbers(np.float64, 2, 3, *[2] * (rank - 2))
    array = np.zeros((2, 2, *[3] * (rank - 2)))
    for place in np.ndindex(*array.shape):
        at = tuple(slice(p, p + 2) for p in place[2:])
        array[place] = (x[(place[0], slice(None), *at)] * w[place[1]]).sum()
    check("Conv", [x, w], {}, array)


def transposed(x: Array, w: Array, s: int, d: int, pads: Sequence[int], extra: int, groups: int) -> Array:
    exact = object if x.dtype.kind in "iu" else np.float64
    n, features, height, width = x.shape
    _, depth, r, t = w.shape
    rows = (height - 1) * s + d * (r - 1) + 1 + extra
    columns = (width - 1) * s + d * (t - 1) + 1 + extra
    array = np.zeros((n, depth * groups, rows, columns), exact)
    for i, f, y, z in np.ndindex(x.shape):
        first = f // (features // groups) * depth
        for c, u, v in np.ndindex(depth, r, t):
            product = x[i, f, y, z].astype(exact) * w[f, c, u, v].astype(exact)
            array[i, first + c, y * s + u * d, z * s + v * d] += product
    top, left, bottom, right = pads
    return wrapped(array[:, :, top : rows - bottom, left : columns - right], x.dtype)


@pytest.mark.parametrize(("stride", "dilation", "pads", "groups", "extra"), [
    (s, d, p, g, e)
    for s, d, p, g, e in itertools.product([1, 2], [1, 2], [(0, 0, 0, 0), (1, 0, 2, 1)], [1, 2], [0, 1])
    if e < s
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint32])
def test_conv_transpose_adds_where_filters_overlap_when_there_is_no_kernel(
    dtype: Any, stride: int, dilation: int, pads: tuple[int, ...], groups: int, extra: int
) -> None:
    x, w = numbers(dtype, 2, 4, 3, 4), numbers(dtype, 4, 3, 3, 2)
    attributes = {
        "strides": [stride] * 2,
        "dilations": [dilation] * 2,
        "pads": list(pads),
        "group": groups,
        "output_padding": [extra] * 2,
    }
    check("ConvTranspose", [x, w], attributes, transposed(x, w, stride, dilation, pads, extra, groups))


@pytest.mark.parametrize("dtype", [np.float64, *WIDE])
def test_col2im_adds_blocks_where_they_overlap(dtype: Any) -> None:
    image, block, stride, dilation, pads = (5, 6), (2, 3), (1, 2), (2, 1), (1, 0, 0, 1)
    counts = [
        (n + pads[a] + pads[a + 2] - dilation[a] * (block[a] - 1) - 1) // stride[a] + 1 for a, n in enumerate(image)
    ]
    x = numbers(dtype, 2, 3 * 6, math.prod(counts))
    exact = object if x.dtype.kind in "iu" else np.float64
    array = np.zeros((2, 3, 5, 6), exact)
    cols = x.reshape(2, 3, *block, *counts).astype(exact)
    for i, c, u, v, y, z in np.ndindex(cols.shape):
        row, column = y * stride[0] + u * dilation[0] - pads[0], z * stride[1] + v * dilation[1] - pads[1]
        if 0 <= row < 5 and 0 <= column < 6:
            array[i, c, row, column] += cols[i, c, u, v, y, z]
    attributes = {"strides": list(stride), "dilations": list(dilation), "pads": list(pads)}
    check("Col2Im", [x, np.array(image), np.array(block)], attributes, wrapped(array, dtype))


# Pools


def window_values(x: Array, kernel: int, s: int, d: int, pads: Sequence[int], ceil: bool) -> Iterator[Any]:
    """For each place of the result: the place, and the (row, column) in the image of each element of its window."""
    height, width = x.shape[2:]
    rows = places_of(height, kernel, s, d, pads[0], pads[2], ceil)
    columns = places_of(width, kernel, s, d, pads[1], pads[3], ceil)
    for y, z in np.ndindex(rows, columns):
        taps = [(y * s + u * d - pads[0], z * s + v * d - pads[1]) for u, v in np.ndindex(kernel, kernel)]
        yield (rows, columns), (y, z), taps


def pooled(
    x: Array, kernel: int, s: int, d: int, pads: Sequence[int], ceil: bool, reduce: Callable[[Array, int], Any]
) -> Array:
    """reduce: (the elements inside of the image, how many would be with padding) -> the pooled one."""
    height, width = x.shape[2:]
    result: Array | None = None
    for shape, place, taps in window_values(x, kernel, s, d, pads, ceil):
        if result is None:
            result = np.zeros((*x.shape[:2], *shape), x.dtype)
        inside = [(r, c) for r, c in taps if 0 <= r < height and 0 <= c < width]
        ends = (height + pads[2], width + pads[3])
        counted = sum(r < ends[0] and c < ends[1] for r, c in taps)
        for i, j in np.ndindex(x.shape[:2]):
            result[(i, j, *place)] = reduce(np.array([x[i, j, r, c] for r, c in inside], x.dtype), counted)
    assert result is not None
    return result


POOLS = [
    (k, s, d, p, ceil)
    for k, s, d, p, ceil in itertools.product([2, 3], [1, 2, 3], [1, 2], [(0, 0, 0, 0), (1, 0, 1, 1)], [False, True])
]


@pytest.mark.parametrize(("kernel", "stride", "dilation", "pads", "ceil"), POOLS)
def test_pools_are_those_of_loops_when_in_float64(
    kernel: int, stride: int, dilation: int, pads: tuple[int, ...], ceil: bool
) -> None:
    x = numbers(np.float64, 2, 2, 7, 6)
    attributes = {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "dilations": [dilation] * 2,
        "pads": list(pads),
        "ceil_mode": int(ceil),
    }

    def expected(reduce: Callable[[Array, int], Any]) -> Array:
        return pooled(x, kernel, stride, dilation, pads, ceil, reduce)

    check("MaxPool", [x], attributes, expected(lambda v, n: v.max()))
    check("AveragePool", [x], attributes, expected(lambda v, n: v.mean()))
    check("AveragePool", [x], {**attributes, "count_include_pad": 1}, expected(lambda v, n: v.sum() / n))
    for p in (1, 2, 3):

        def norm(v: Array, n: int, p: int = p) -> Any:
            return (abs(v) ** p).sum() ** (1 / p)

        check("LpPool", [x], {**attributes, "p": p}, expected(norm))


def test_average_pool_counts_the_padding_of_each_end() -> None:
    x = numbers(np.float64, 1, 2, 4, 5)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (2, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    attributes = {"kernel_shape": [3, 3], "pads": [0, 2, 1, 0], "count_include_pad": 1}
    check("AveragePool", [x], attributes, windows.mean((-2, -1)))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("ceil", [False, True])
def test_max_pool_is_exact_when_of_integers(dtype: Any, ceil: bool) -> None:
    x = numbers(dtype, 2, 2, 7, 6)
    if np.dtype(dtype).itemsize == 8:
        x[0, 0] = np.arange(42, dtype=dtype).reshape(7, 6) + dtype(2**62)  # that float64 cannot tell apart
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": int(ceil)}
    check("MaxPool", [x], attributes, pooled(x, 3, 2, 1, (1, 0, 1, 1), ceil, lambda v, n: v.max()))


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, *WIDE])
def test_max_pool_tells_the_place_when_asked(dtype: Any, storage_order: int) -> None:
    x = numbers(dtype, 2, 3, 5, 6)
    pads = (1, 1, 0, 1)
    best = pooled(x, 3, 2, 1, pads, False, lambda v, n: v.max())
    array = np.zeros(best.shape, np.int64)
    for _, (y, z), taps in window_values(x, 3, 2, 1, pads, False):
        for i, j in np.ndindex(2, 3):
            taken = [(r, c) for r, c in taps if 0 <= r < 5 and 0 <= c < 6 and x[i, j, r, c] == best[i, j, y, z]]
            row, column = taken[0]
            array[i, j, y, z] = (i * 3 + j) * 30 + (column * 5 + row if storage_order else row * 6 + column)
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": list(pads), "storage_order": storage_order}
    check("MaxPool", [x], attributes, best, array)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_max_pools_give_nan_when_a_window_has_one(dtype: Any) -> None:
    x = numbers(np.float32, 1, 2, 6, 6).astype(dtype)
    x[0, 0, 2, 3] = x[0, 1, 5, 5] = np.nan
    x[0, 1, 0, 0] = -np.inf
    attributes = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 0]}
    array = np.zeros((1, 2, 6, 5), dtype)
    for c, y, z in np.ndindex(2, 6, 5):
        array[0, c, y, z] = np.max(x[0, c, max(y - 1, 0) : y + 2, z : z + 2].astype(np.float64))
    assert np.isnan(array.astype(np.float64)).any()
    check("MaxPool", [x], attributes, array)
    check("GlobalMaxPool", [x], {}, np.full((1, 2, 1, 1), np.nan, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_global_pools_take_everything(dtype: Any) -> None:
    x = numbers(dtype, 2, 3, 4, 5)
    check("GlobalMaxPool", [x], {}, x.max((2, 3), keepdims=True))
    check("GlobalAveragePool", [x], {}, x.mean((2, 3), keepdims=True))
    for p in (1, 2, 3):
        check("GlobalLpPool", [x], {"p": p}, (abs(x) ** p).sum((2, 3), keepdims=True) ** dtype(1 / p))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("requested", [None, (1, 2, 7, 6)])
def test_max_unpool_puts_values_back_when_given_their_places(dtype: Any, requested: tuple[int, ...] | None) -> None:
    x = numbers(dtype, 1, 2, 3, 2)
    places = np.stack([RNG.permutation(24)[:6], 24 + RNG.permutation(24)[:6]]).reshape(1, 2, 3, 2).astype(np.int64)
    array = np.zeros(48, dtype)
    for value, place in zip(x.ravel(), places.ravel(), strict=True):
        array[place] = value
    whole = np.zeros(requested or (1, 2, 6, 4), dtype)
    whole[:, :, :6, :4] = array.reshape(1, 2, 6, 4)
    shape = None if requested is None else np.array(requested)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    check("MaxUnpool", [x, places, shape], attributes, whole, fed=2)


def test_max_unpool_leaves_out_the_pads_of_either_side() -> None:
    x = numbers(np.float64, 1, 1, 3, 2)
    places = np.array([0, 2, 4, 7, 10, 14]).reshape(1, 1, 3, 2)
    array = np.zeros(15)
    array[places.ravel()] = x.ravel()
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}
    check("MaxUnpool", [x, places, None], attributes, array.reshape(1, 1, 5, 3), fed=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *INTEGERS])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_go_between_depth_and_space_in_every_dtype(dtype: Any, mode: str) -> None:
    x = numbers(dtype, 2, 12, 2, 3)
    array = np.zeros((2, 3, 4, 6), dtype)
    for n, c, y, z in np.ndindex(array.shape):
        block = y % 2 * 2 + z % 2
        array[n, c, y, z] = x[n, c * 4 + block if mode == "CRD" else block * 3 + c, y // 2, z // 2]
    check("DepthToSpace", [x], {"blocksize": 2, "mode": mode}, array)
    if mode == "DCR":
        check("SpaceToDepth", [array], {"blocksize": 2}, x)
