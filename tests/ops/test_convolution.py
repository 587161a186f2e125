"""Convolutions and their transposes, against direct sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from graphcore import Dim, DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.graphs import Array, graph_of, run1

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def convolved(
    x: Array, filter: Array, stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int], groups: int = 1
) -> Array:
    """The sum over channels and kernel, in float64. x: [N, C, ...], filter: [F, C/groups, ...]."""
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pairs])
    kernel = filter.shape[2:]
    sizes = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[2:], kernel, stride, dilation, strict=True)
    ]
    batch, channels = x.shape[:2]
    features = filter.shape[0]
    array = np.zeros((batch, features, *sizes))
    for feature in range(features):
        first = feature // (features // groups) * (channels // groups)
        part = padded[:, first : first + channels // groups]
        for place in np.ndindex(*sizes):
            for tap in np.ndindex(*kernel):
                at = tuple(p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation, strict=True))
                array[(slice(None), feature, *place)] += part[(..., *at)] @ filter[(feature, slice(None), *tap)]
    return array


def transposed(
    x: Array,
    filter: Array,
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    extra: Sequence[int],
    groups: int = 1,
) -> Array:
    """Every element adds the filter to the result, in float64. x: [N, F, H, W], filter: [F, C/groups, R, S]."""
    batch, features, *sizes = x.shape
    per_group, kernel = filter.shape[1], filter.shape[2:]
    whole = [
        (n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip(sizes, stride, dilation, kernel, extra, strict=True)
    ]
    array = np.zeros((batch, per_group * groups, *whole))
    for feature in range(features):
        first = feature // (features // groups) * per_group
        for i, j in np.ndindex(*sizes):
            for r, s in np.ndindex(*kernel):
                row, column = i * stride[0] + r * dilation[0], j * stride[1] + s * dilation[1]
                array[:, first : first + per_group, row, column] += (
                    x[:, feature, i, j, None].astype(np.float64) * filter[feature, :, r, s]
                )
    top, bottom, left, right = padding
    return array[:, :, top : whole[0] - bottom, left : whole[1] - right]


def channels_last(x: Array) -> Array:
    return np.moveaxis(x, 1, -1)


def kernel_first(filter: Array) -> Array:
    """[F, C, ...] to [..., C, F]."""
    return np.moveaxis(np.moveaxis(filter, 1, -1), 0, -1)


CASES = list(itertools.product([(1, 1), (2, 3)], [(1, 1), (2, 1)], [(0, 0, 0, 0), (1, 2, 0, 3)], [1, 2]))


@pytest.mark.parametrize(("stride", "dilation", "padding", "groups"), CASES)
def test_conv2d_gives_the_direct_sums_in_both_layouts(
    stride: tuple[int, int], dilation: tuple[int, int], padding: tuple[int, int, int, int], groups: int
) -> None:
    x, filter = normal(2, 4, 7, 8), normal(6, 4 // groups, 3, 2)
    expected = convolved(x, filter, stride, dilation, padding, groups)
    native = run1(
        lambda x: ops.conv2d(x, filter, stride, dilation, padding, groups, input_layout="NCHW", filter_layout="FCRS"),
        x,
        dims=[["n", 4, "h", "w"]],
    )
    np.testing.assert_allclose(native, expected, rtol=1e-4, atol=1e-4)
    last = run1(
        lambda x: ops.conv2d(x, kernel_first(filter), stride, dilation, padding, groups),
        channels_last(x),
        dims=[["n", "h", "w", 4]],
    )
    np.testing.assert_allclose(last, channels_last(expected), rtol=1e-4, atol=1e-4)


def test_conv2d_adds_the_bias() -> None:
    x, filter, bias = normal(2, 5, 5, 3), normal(3, 3, 3, 4), normal(4)
    result = run1(
        lambda x, w, b: ops.conv2d(x, w, bias=b), x, filter, bias, dims=[["n", "h", "w", 3], [3, 3, 3, 4], [4]]
    )
    plain = convolved(np.moveaxis(x, -1, 1), filter.transpose(3, 2, 0, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    np.testing.assert_allclose(result, channels_last(plain) + bias, rtol=1e-4, atol=1e-4)


def test_conv2d_takes_a_kernel_of_named_size() -> None:
    x, filter = normal(1, 6, 7, 3), normal(3, 2, 3, 4)
    result = run1(
        lambda x, w: ops.conv2d(x, w, stride=2, padding=1),
        x,
        filter,
        dims=[["n", "h", "w", "c"], ["r", "s", "c", "f"]],
    )
    plain = convolved(np.moveaxis(x, -1, 1), filter.transpose(3, 2, 0, 1), (2, 2), (1, 1), (1, 1, 1, 1))
    np.testing.assert_allclose(result, channels_last(plain), rtol=1e-4, atol=1e-4)


def test_conv2d_has_symbolic_sizes() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", "h", "w", 3])})
    y = ops.conv2d(graph["x"], normal(3, 3, 3, 8), stride=(2, 1), dilation=(1, 2), padding=(1, 1, 2, 2))
    assert y.shape == ["n", "(h + 1) // 2", "w", 8]
    unknown = Graph("g", {"x": TensorType(DType.float32, [Dim.dynamic(), Dim.dynamic(), 8, 3])})
    y = ops.conv2d(unknown["x"], normal(3, 3, 3, 8))
    assert str(y.shape) == "[?, ?, 6, 8]"


@pytest.mark.parametrize(("dtype", "step"), [(np.float16, 2.0**-10), (ml_dtypes.bfloat16, 2.0**-7)])
def test_conv2d_rounds_once_where_floats_are_narrow(dtype: type, step: float) -> None:
    x: Array = normal(1, 2, 5, 5).astype(dtype)
    filter: Array = normal(3, 2, 3, 3).astype(dtype)
    result = run1(
        lambda x, w: ops.conv2d(x, w, input_layout="NCHW", filter_layout="FCRS"),
        x,
        filter,
        dims=[["n", 2, "h", "w"], [3, 2, 3, 3]],
    )
    wide = convolved(x.astype(np.float32), filter.astype(np.float32), (1, 1), (1, 1), (0, 0, 0, 0))
    expected: Array = wide.astype(np.float32).astype(dtype)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=step, atol=step)


def test_conv2d_makes_floats_of_integers() -> None:
    x = RNG.integers(-8, 8, (1, 4, 4, 2)).astype(np.int16)
    filter = RNG.integers(-3, 3, (2, 2, 2, 3)).astype(np.int8)
    result = run1(ops.conv2d, x, filter, dims=[["n", "h", "w", 2], [2, 2, 2, 3]])
    assert result.dtype == np.float32
    plain = convolved(np.moveaxis(x, -1, 1), filter.transpose(3, 2, 0, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    np.testing.assert_array_equal(result, channels_last(plain))


def test_conv2d_transposes_a_constant_filter_where_it_stands() -> None:
    filter = normal(3, 3, 2, 4)
    graph = graph_of(lambda x: ops.conv2d(x, filter), normal(1, 5, 5, 2), dims=[["n", "h", "w", 2]])
    assert [node.op_type for node in graph.nodes] == ["Transpose", "Conv", "Transpose"]
    native = graph_of(
        lambda x: ops.conv2d(x, filter.transpose(3, 2, 0, 1), input_layout="NCHW", filter_layout="FCRS"),
        normal(1, 2, 5, 5),
        dims=[["n", 2, "h", "w"]],
    )
    assert [node.op_type for node in native.nodes] == ["Conv"]


def test_conv2d_reads_a_weight_when_it_is_exported() -> None:
    x, filter = normal(1, 5, 5, 2), normal(3, 3, 2, 4)
    array = np.zeros_like(filter)

    def build(x: Symbol) -> Symbol:
        y = ops.conv2d(x, x.graph.weight("w", array))
        array[...] = filter
        return y

    y = run1(build, x, dims=[["n", "h", "w", 2]])
    plain = convolved(np.moveaxis(x, -1, 1), filter.transpose(3, 2, 0, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    np.testing.assert_allclose(y, channels_last(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("stride", "dilation", "padding"), [(1, 1, (0, 0)), (2, 1, (3, 1)), (1, 2, 1)])
def test_conv1d_gives_the_direct_sums(stride: int, dilation: int, padding: int | tuple[int, int]) -> None:
    x, filter = normal(2, 4, 9), normal(6, 2, 3)
    both = padding if isinstance(padding, tuple) else (padding, padding)
    expected = convolved(x, filter, [stride], [dilation], both, 2)
    native = run1(
        lambda x: ops.conv1d(x, filter, stride, dilation, padding, 2, input_layout="NCW", filter_layout="FCS"),
        x,
        dims=[["n", 4, "t"]],
    )
    np.testing.assert_allclose(native, expected, rtol=1e-4, atol=1e-4)
    last = run1(
        lambda x: ops.conv1d(x, kernel_first(filter), stride, dilation, padding, 2),
        channels_last(x),
        dims=[["n", "t", 4]],
    )
    np.testing.assert_allclose(last, channels_last(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("stride", "dilation", "padding"),
    [((1, 1, 1), (1, 1, 1), (0, 0, 0, 0, 0, 0)), ((2, 1, 2), (1, 2, 1), (1, 0, 0, 2, 1, 1))],
)
def test_conv3d_gives_the_direct_sums(
    stride: tuple[int, int, int], dilation: tuple[int, int, int], padding: tuple[int, ...]
) -> None:
    x, filter, bias = normal(2, 3, 4, 5, 6), normal(4, 3, 2, 2, 3), normal(4)
    expected = convolved(x, filter, stride, dilation, padding) + bias[:, None, None, None]
    native = run1(
        lambda x: ops.conv3d(
            x, filter, stride, dilation, padding, bias=bias, input_layout="NCDHW", filter_layout="FCQRS"
        ),
        x,
        dims=[["n", 3, "d", "h", "w"]],
    )
    np.testing.assert_allclose(native, expected, rtol=1e-4, atol=1e-4)
    last = run1(
        lambda x: ops.conv3d(x, kernel_first(filter), stride, dilation, padding, bias=bias),
        channels_last(x),
        dims=[["n", "d", "h", "w", 3]],
    )
    np.testing.assert_allclose(last, channels_last(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("stride", "dilation", "padding", "extra", "groups"),
    [
        ((1, 1), (1, 1), (0, 0, 0, 0), (0, 0), 1),
        ((2, 2), (1, 1), (1, 1, 1, 1), (1, 1), 1),
        ((2, 3), (1, 2), (0, 1, 2, 0), (0, 2), 2),
        ((1, 2), (3, 1), (1, 0, 0, 1), (0, 1), 2),
    ],
)
def test_conv2d_transpose_gives_the_direct_sums(
    stride: tuple[int, int],
    dilation: tuple[int, int],
    padding: tuple[int, int, int, int],
    extra: tuple[int, int],
    groups: int,
) -> None:
    x, filter, bias = normal(2, 4, 3, 5), normal(4, 3, 2, 3), normal(3 * groups)
    expected = transposed(x, filter, stride, dilation, padding, extra, groups) + bias[:, None, None]
    native = run1(
        lambda x: ops.conv2d_transpose(
            x, filter, stride, dilation, padding, extra, bias, "NCHW", "FCRS", groups=groups
        ),
        x,
        dims=[["n", 4, "h", "w"]],
    )
    np.testing.assert_allclose(native, expected, rtol=1e-4, atol=1e-4)
    last = run1(
        lambda x: ops.conv2d_transpose(x, kernel_first(filter), stride, dilation, padding, extra, bias, groups=groups),
        channels_last(x),
        dims=[["n", "h", "w", 4]],
    )
    np.testing.assert_allclose(last, channels_last(expected), rtol=1e-4, atol=1e-4)


def test_conv2d_transpose_is_the_gradient_of_conv2d() -> None:
    x, filter, seed = normal(1, 2, 7, 7), normal(3, 2, 3, 3), normal(1, 3, 3, 3)
    result = run1(
        lambda y, w: ops.conv2d_transpose(
            y, w, 2, padding=(1, 0, 0, 0), output_paddings=(1, 0), input_layout="NCHW", filter_layout="FCRS"
        ),
        seed,
        filter,
        dims=[["n", 3, "h", "w"], [3, 2, 3, 3]],
    )
    # <conv(x), seed> = <x, conv_transpose(seed)> for any x.
    forward = convolved(x, filter, (2, 2), (1, 1), (1, 0, 0, 0))
    assert math.isclose(np.sum(forward * seed), np.sum(x * result), rel_tol=1e-4)


def images(*shape: int | str) -> Symbol:
    return Graph("g", {"x": TensorType(DType.float32, shape)})["x"]


def test_conv2d_says_what_rank_is_wanted() -> None:
    x = images("n", "h", 3)
    with pytest.raises(ShapeError, match=r"conv2d: x has rank 3, not 4[\s\S]*its axes must be NHWC"):
        ops.conv2d(x, normal(3, 3, 3, 8))
    x = images("n", "h", "w", 3)
    with pytest.raises(ShapeError, match=r"conv2d: filter has rank 3, not 4[\s\S]*RSCF"):
        ops.conv2d(x, normal(3, 3, 8))
    with pytest.raises(ShapeError, match=r"conv3d: x has rank 4, not 5"):
        ops.conv3d(x, normal(3, 3, 3, 3, 8))


def test_conv2d_says_which_channels_disagree() -> None:
    x = images("n", "h", "w", 4)
    with pytest.raises(
        ShapeError, match=r"conv2d: x has 4 channels, but filter expects 3\n[\s\S]*the C of filter_layout='RSCF'"
    ):
        ops.conv2d(x, normal(3, 3, 3, 8))
    with pytest.raises(ShapeError, match="x has 4 channels, but filter expects 4 in each of 2 groups"):
        ops.conv2d(x, normal(3, 3, 4, 8), groups=2)
    with pytest.raises(ShapeError, match="filter has 7 channels, which are not divisible by 2 groups"):
        ops.conv2d(x, normal(3, 3, 2, 7), groups=2)
    with pytest.raises(ShapeError, match=r"bias must have shape \[8\], got \[7\]"):
        ops.conv2d(x, normal(3, 3, 4, 8), bias=normal(7))


def test_conv2d_says_when_the_kernel_does_not_fit() -> None:
    x = images("n", 4, "w", 2)
    with pytest.raises(
        ShapeError, match="the kernel does not fit: it covers 7 elements along the height, the padded input has 6"
    ):
        ops.conv2d(x, normal(4, 1, 2, 3), dilation=(2, 1), padding=(1, 1, 0, 0))


def test_conv2d_says_which_argument_is_wrong() -> None:
    x = images("n", "h", "w", 2)
    filter = normal(3, 3, 2, 3)
    with pytest.raises(ShapeError, match="conv2d: stride=0 is below 1"):
        ops.conv2d(x, filter, stride=(1, 0))
    with pytest.raises(ShapeError, match=r"conv2d: stride=\(1, 1, 1\) has 3 numbers[\s\S]*height, width"):
        ops.conv2d(x, filter, stride=(1, 1, 1))
    with pytest.raises(ShapeError, match="conv2d: dilation=0 is below 1"):
        ops.conv2d(x, filter, dilation=0)
    with pytest.raises(ShapeError, match="conv2d: padding=-1 is below 0"):
        ops.conv2d(x, filter, padding=(0, 0, -1, 0))
    with pytest.raises(ShapeError, match=r"padding=\(1, 2, 3\) has 3 numbers[\s\S]*height_before, height_after"):
        ops.conv2d(x, filter, padding=(1, 2, 3))
    with pytest.raises(DTypeError, match=r"conv2d: stride=1\.5 is not an int"):
        ops.conv2d(x, filter, stride=1.5)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="conv2d: groups=True is not an int"):
        ops.conv2d(x, filter, groups=True)
    with pytest.raises(ShapeError, match=r"conv2d: input_layout='HWCN' is not a layout of conv2d[\s\S]*'NHWC', 'NCHW'"):
        ops.conv2d(x, filter, input_layout="HWCN")
    with pytest.raises(ShapeError, match="conv2d: filter_layout='OIHW' is not a layout of conv2d"):
        ops.conv2d(x, filter, filter_layout="OIHW")


def test_conv2d_transpose_says_what_is_wrong() -> None:
    x = images("n", 2, 2, 4)
    with pytest.raises(ShapeError, match="conv2d_transpose: x has 4 channels, but filter expects 5"):
        ops.conv2d_transpose(x, normal(3, 3, 2, 5))
    with pytest.raises(ShapeError, match="an output padding must be smaller than its stride, got 2 for a stride of 2"):
        ops.conv2d_transpose(x, normal(3, 3, 2, 4), 2, output_paddings=2)
    with pytest.raises(ShapeError, match="the size of the result must be positive, got 0 x 4"):
        ops.conv2d_transpose(x, normal(3, 3, 2, 4), padding=(2, 2, 0, 0))
    with pytest.raises(ShapeError, match="x has 4 channels, which are not divisible by 3 groups"):
        ops.conv2d_transpose(x, normal(3, 3, 2, 4), groups=3)
    with pytest.raises(ShapeError, match=r"bias must have shape \[2\], got \[4\]"):
        ops.conv2d_transpose(x, normal(3, 3, 2, 4), bias=normal(4))
