"""Paddings in words of convolutions, their transposes and pools, and those of 1 and 3 axes, against loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Node
from tests.ops.test_convolution import convolved
from tests.support.graphs import Array, run1

pytestmark = pytest.mark.releases

RNG = np.random.default_rng(5)
LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
FILTERS = {1: "FCS", 2: "FCRS", 3: "FCQRS"}
SIZES = (7, 6, 5)
NAMES = ("d", "h", "w")


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def images(rank: int, *, named: bool) -> Symbol:
    sizes: Sequence[Any] = NAMES if named else SIZES
    return Graph("images", {"x": TensorType(DType.float32, ["n", 2, *sizes[:rank]])})["x"]


def same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """TensorFlow's padding: before and after."""
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def places(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> list[list[int]]:
    """The elements of each window along an axis, in an axis of `size` that begins at 0."""
    starts = range(-before, size + after - (kernel - 1) * dilation, stride)
    return [[start + i * dilation for i in range(kernel)] for start in starts]


def pooled(x: Array, kind: str, kernel: int, stride: int, pads: list[tuple[int, int]], *, counts: bool) -> Array:
    sizes = x.shape[2:]
    axes = [places(size, kernel, stride, *pad) for size, pad in zip(sizes, pads, strict=True)]
    array = np.zeros((*x.shape[:2], *map(len, axes)))
    for at in np.ndindex(*map(len, axes)):
        windows = [axis[i] for axis, i in zip(axes, at, strict=True)]
        inside = [[i for i in window if 0 <= i < size] for window, size in zip(windows, sizes, strict=True)]
        graph = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *inside)].reshape(*x.shape[:2], -1).astype(np.float64)
        number = kernel ** len(sizes) if counts else graph.shape[-1]
        array[(..., *at)] = graph.max(-1) if kind == "max" else graph.sum(-1) / number
    return array


def sized(rank: int, channels: int) -> list[list[Any]]:
    return [["n", channels, *SIZES[:rank]], ["n", channels, *NAMES[:rank]]]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_convolution_of_same_padding_has_a_window_every_stride(rank: int, stride: int) -> None:
    x, filter = normal(2, 2, *SIZES[:rank]), normal(3, 2, *(2, 3, 4)[:rank])
    pads = [same(size, k, stride, 1) for size, k in zip(SIZES, filter.shape[2:], strict=False)]
    want = convolved(x, filter, [stride] * rank, [1] * rank, [n for pad in pads for n in pad])
    call: Any = getattr(ops, f"conv{rank}d")
    for dims in sized(rank, 2):
        result = run1(
            lambda x: call(x, filter, stride, padding="same", input_layout=LAYOUTS[rank], filter_layout=FILTERS[rank]),
            x,
            dims=[dims],
        )
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)
    last = np.moveaxis(x, 1, -1)
    kernel = np.moveaxis(np.moveaxis(filter, 1, -1), 0, -1)
    result = run1(lambda x: call(x, kernel, stride, padding="same"), last, dims=[["n", *NAMES[:rank], 2]])
    np.testing.assert_allclose(result, np.moveaxis(want, 1, -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8])
def test_padding_that_only_the_run_knows_is_taken_when_of_any_dtype(dtype: Any) -> None:
    x, filter = (RNG.integers(0, 3, shape).astype(dtype) for shape in ((1, 2, 7, 6), (2, 2, 3, 2)))
    pads = [same(7, 3, 2, 1), same(6, 2, 2, 1)]
    want = convolved(x, filter.astype(np.float64), (2, 2), (1, 1), [n for pad in pads for n in pad])
    result = run1(
        lambda x, f: ops.conv2d(x, f, 2, padding="same", input_layout="NCHW", filter_layout="FCRS"),
        x,
        filter,
        dims=[["n", 2, "h", "w"], [2, 2, 3, 2]],
    )
    np.testing.assert_array_equal(result.astype(np.float64), want)
    greatest = run1(
        lambda x: ops.max_pool2d(x, 3, 2, padding="same", input_layout="NCHW"), x, dims=[["n", 2, "h", "w"]]
    )
    both = [same(7, 3, 2, 1), same(6, 3, 2, 1)]
    np.testing.assert_array_equal(greatest.astype(np.float64), pooled(x, "max", 3, 2, both, counts=False))


def test_dilated_kernel_of_known_sizes_takes_same_padding() -> None:
    x, filter = normal(1, 2, 7, 6), normal(3, 2, 3, 2)
    pads = [same(7, 3, 2, 2), same(6, 2, 2, 3)]
    want = convolved(x, filter, (2, 2), (2, 3), [n for pad in pads for n in pad])
    result = run1(
        lambda x: ops.conv2d(x, filter, 2, (2, 3), "same", input_layout="NCHW", filter_layout="FCRS"),
        x,
        dims=[["n", 2, 7, 6]],
    )
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("kind", "counts"), [("max", False), ("avg", False), ("avg", True)])
@pytest.mark.parametrize("padding", ["same", "valid", 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_pools_of_any_rank_have_the_windows_of_their_padding(
    rank: int, kind: str, counts: bool, padding: Any, stride: int
) -> None:
    x = normal(2, 2, *SIZES[:rank])
    number = {"valid": (0, 0), 1: (1, 1)}
    pads = [same(size, 3, stride, 1) if padding == "same" else number[padding] for size in SIZES[:rank]]
    want = pooled(x, kind, 3, stride, pads, counts=counts)
    call: Any = getattr(ops, f"{kind}_pool{rank}d")
    more = {} if kind == "max" else {"count_boundary": counts}
    for dims in sized(rank, 2):
        result = run1(lambda x: call(x, 3, stride, padding=padding, input_layout=LAYOUTS[rank], **more), x, dims=[dims])
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5)
    last = np.moveaxis(x, 1, -1)
    result = run1(lambda x: call(x, 3, stride, padding=padding, **more), last, dims=[["n", *NAMES[:rank], 2]])
    np.testing.assert_allclose(result, np.moveaxis(want, 1, -1), rtol=1e-5, atol=1e-5)


def spread(x: Array, filter: Array, stride: int, dilation: int) -> Array:
    """A transposed convolution without padding. x: [N, F, ...], filter: [F, C, ...]."""
    kernel, sizes = filter.shape[2:], x.shape[2:]
    whole = [(n - 1) * stride + (k - 1) * dilation + 1 for n, k in zip(sizes, kernel, strict=True)]
    array = np.zeros((x.shape[0], filter.shape[1], *whole))
    for at, tap in itertools.product(np.ndindex(*sizes), np.ndindex(*kernel)):
        place = tuple(a * stride + t * dilation for a, t in zip(at, tap, strict=True))
        array[(..., *place)] += x[(..., *at)].astype(np.float64) @ filter[(..., *tap)]
    return array


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_transposes_of_any_rank_add_up_the_filter(rank: int, stride: int, dilation: int) -> None:
    x, filter = normal(2, 3, *(3, 4, 2)[:rank]), normal(3, 2, *(3, 2, 1)[:rank])
    whole = spread(x, filter, stride, dilation)
    call: Any = getattr(ops, f"conv{rank}d_transpose")
    options = {"input_layout": LAYOUTS[rank], "filter_layout": FILTERS[rank]}
    for dims in (["n", 3, *x.shape[2:]], ["n", 3, *NAMES[:rank]]):
        for padding in ("valid", 0, (0,) * 2 * rank):
            result = run1(lambda x: call(x, filter, stride, dilation, padding, **options), x, dims=[dims])  # noqa: B023
            np.testing.assert_allclose(result, whole, rtol=1e-4, atol=1e-4)
        result = run1(lambda x: call(x, filter, stride, dilation, "same", **options), x, dims=[dims])
        np.testing.assert_allclose(result, cut(whole, x.shape[2:], stride), rtol=1e-4, atol=1e-4)


def cut(whole: Array, sizes: Sequence[int], stride: int) -> Array:
    """`size * stride` elements out of the middle, an odd one more cut at the end; zeros where there are too few."""
    for axis, size in enumerate(sizes, 2):
        surplus = whole.shape[axis] - size * stride
        if surplus >= 0:
            whole = np.take(whole, range(surplus // 2, surplus // 2 + size * stride), axis)
        else:
            whole = np.concatenate([whole, np.zeros((*whole.shape[:axis], -surplus, *whole.shape[axis + 1 :]))], axis)
    return whole


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_sizes_of_same_padding_are_expressions_of_named_dims(rank: int) -> None:
    x = images(rank, named=True)
    filter = normal(3, 2, *[3] * rank)
    options = {"padding": "same", "input_layout": LAYOUTS[rank]}
    want = [(dim + 1) // 2 for dim in x.shape[2:]]
    result = getattr(ops, f"conv{rank}d")(x, filter, 2, filter_layout=FILTERS[rank], **options)
    assert result.shape == ["n", 3, *want]
    assert getattr(ops, f"max_pool{rank}d")(x, 3, 2, **options).shape == ["n", 2, *want]
    assert getattr(ops, f"avg_pool{rank}d")(x, 3, **options).shape == x.shape
    wide = getattr(ops, f"conv{rank}d_transpose")(
        x, normal(2, 3, *[3] * rank), 2, filter_layout=FILTERS[rank], **options
    )
    assert wide.shape == ["n", 3, *(dim * 2 for dim in x.shape[2:])]


def attributes_of(symbol: Symbol) -> Any:
    assert isinstance(symbol.producer, Node)
    return symbol.producer.attributes


def test_same_padding_is_in_numbers_where_it_is_known() -> None:
    for stride, named in ((1, True), (2, False)):
        expected = attributes_of(ops.max_pool2d(images(2, named=named), 3, stride, padding="same", input_layout="NCHW"))
        assert "pads" in expected
        assert "auto_pad" not in expected
    remaining = attributes_of(ops.max_pool2d(images(2, named=True), 3, 2, padding="same", input_layout="NCHW"))
    assert remaining["auto_pad"] == "SAME_UPPER"
    assert "pads" not in remaining


def test_padding_says_what_is_wrong() -> None:
    x, filter = images(2, named=True), normal(3, 2, 3, 3)
    with pytest.raises(ShapeError, match=r"conv2d: unknown padding 'full'[\s\S]*'same', 'valid' or numbers"):
        ops.conv2d(x, filter, padding="full", input_layout="NCHW", filter_layout="FCRS")
    with pytest.raises(ShapeError, match="conv2d_transpose: unknown padding 'full'"):
        ops.conv2d_transpose(x, filter.swapaxes(0, 1), padding="full", input_layout="NCHW", filter_layout="FCRS")
    with pytest.raises(ShapeError, match=r"of a dilated kernel needs static sizes[\s\S]*a stride of 1"):
        ops.max_pool2d(x, 3, 2, 2, padding="same", input_layout="NCHW")
    with pytest.raises(ShapeError, match=r"max_pool1d: x has rank 4, not 3[\s\S]*its axes must be NWC"):
        ops.max_pool1d(x, 3)
    with pytest.raises(ShapeError, match=r"avg_pool3d: x has rank 4, not 5[\s\S]*its axes must be NDHWC"):
        ops.avg_pool3d(x, 3)
    with pytest.raises(ShapeError, match="conv1d_transpose: x has rank 4, not 3"):
        ops.conv1d_transpose(x, normal(3, 2, 2))
