"""Operators of networks in the dtypes for which there are no kernels, against loops and NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph, TensorType
from tests.lowering.test_spatial_dtypes import INTEGERS, WIDE, Array, check, numbers, wrapped

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

RNG = np.random.default_rng(12)


def exact(x: Array) -> Array:
    return x.astype(object)


@pytest.mark.parametrize("op", ["Mean", "Sum"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_operands_of_any_number_are_added_in_float64(op: str, count: int) -> None:
    xs = [numbers(np.float64, *shape) for shape in ((2, 3), (3,), (2, 1), (2, 3))[:count]]
    total = sum(xs[1:], xs[0])
    check(op, xs, {}, total / count if op == "Mean" else total)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_hardmax_marks_the_first_of_the_greatest_in_float64(axis: int) -> None:
    x = RNG.integers(0, 3, (3, 4, 5)).astype(np.float64)
    array = np.zeros_like(x)
    np.put_along_axis(array, np.expand_dims(x.argmax(axis), axis), 1.0, axis)
    check("Hardmax", [x], {"axis": axis}, array)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_lrn_divides_by_the_channels_around_in_float64(size: int) -> None:
    x = numbers(np.float64, 2, 6, 3, 2)
    array = np.zeros_like(x)
    for n, c, y, z in np.ndindex(x.shape):
        first, last = max(0, c - (size - 1) // 2), min(5, c + math.ceil((size - 1) / 2))
        squares = sum(x[n, i, y, z] ** 2 for i in range(first, last + 1))
        array[n, c, y, z] = x[n, c, y, z] / (1.5 + 0.25 / size * squares) ** 0.5
    check("LRN", [x], {"size": size, "alpha": 0.25, "beta": 0.5, "bias": 1.5}, array)


@pytest.mark.parametrize("axes", [None, [0, 1, 3], [1]])
def test_mean_variance_normalization_gives_mean_0_and_variance_1_in_float64(axes: list[int] | None) -> None:
    x = numbers(np.float64, 2, 3, 4, 5) * 3 + 1
    along = tuple(axes or (0, 2, 3))
    result = (x - x.mean(along, keepdims=True)) / (x.std(along, keepdims=True) + 1e-9)
    check("MeanVarianceNormalization", [x], {} if axes is None else {"axes": axes}, result)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_det_is_that_of_numpy_in_float64(size: int) -> None:
    x = numbers(np.float64, 2, 3, size, size)
    x[0, 0, 0] = 0.0  # of no inverse
    x[0, 1] = np.eye(size)[::-1]  # pivots out of order
    types = {"x": TensorType(gc.DType.float64, ["a", "b", size, size])}
    graph = Graph("test", types)
    graph.output(*graph.op("Det", [graph["x"]], {}, [TensorType(gc.DType.float64, ["a", "b"])]))
    (result,) = gc.InferenceSession().load(graph)(x)
    np.testing.assert_allclose(result, np.linalg.det(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32, np.float64, *INTEGERS])
@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint8, np.float32])
def test_one_hot_takes_every_pair_of_dtypes(dtype: Any, index: Any) -> None:
    places = np.array([[0, 3, 1], [2, 4, 7]], index)  # 7 is outside
    values = np.array([0, 1], dtype) if dtype is np.bool_ else np.array([3, 100], dtype)
    array = np.full((2, 3, 5), values[0])
    for i, j in np.ndindex(2, 3):
        if places[i, j] < 5:
            array[i, j, int(places[i, j])] = values[1]
    check("OneHot", [places, np.array(5), values], {}, array)
    check("OneHot", [places, np.array(5), values], {"axis": 0}, np.moveaxis(array, -1, 0))


@pytest.mark.parametrize("dtype", [np.float64, *INTEGERS])
def test_nonzero_finds_what_is_not_zero(dtype: Any) -> None:
    x = (RNG.integers(0, 3, (4, 5)) - (0 if np.dtype(dtype).kind == "u" else 1)).astype(dtype)
    if dtype is np.float64:
        x[0, 0], x[1, 1], x[2, 2] = np.nan, -0.0, 5e-324
    check("NonZero", [x], {}, np.stack(np.nonzero(x)).astype(np.int64))


@pytest.mark.parametrize("dtype", [d for d in WIDE if np.dtype(d).itemsize >= 4])
def test_gemm_and_prelu_wrap_when_of_wide_integers(dtype: Any) -> None:
    a, b, c = numbers(dtype, 4, 3), numbers(dtype, 5, 4), numbers(dtype, 5)
    result = exact(a.T) @ exact(b.T) * 3 + exact(c) * 2
    check("Gemm", [a, b, c], {"transA": 1, "transB": 1, "alpha": 3.0, "beta": 2.0}, wrapped(result, dtype))
    x, slope = numbers(dtype, 3, 4), numbers(dtype, 4)
    check("PRelu", [x, slope], {}, wrapped(np.where(x < 0, exact(x) * exact(slope), exact(x)), dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_relu_is_exact_when_of_integers(dtype: Any) -> None:
    x = numbers(dtype, 5, 6)
    check("Relu", [x], {}, np.maximum(x, 0))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_norms_of_integers_wrap_or_truncate(dtype: Any, keepdims: int) -> None:
    x = numbers(dtype, 3, 4)
    axes, attributes = np.array([1]), {"keepdims": keepdims}
    keeps: Any = bool(keepdims)  # the overloads of NumPy 2.5 take a literal, not bool
    check("ReduceL1", [x, axes], attributes, wrapped(abs(exact(x)).sum(1, keepdims=keeps), dtype))
    check("ReduceSumSquare", [x, axes], attributes, wrapped((exact(x) ** 2).sum(1, keepdims=keeps), dtype))
    small = RNG.integers(1, 1000, (3, 4)).astype(dtype)
    wide = small.astype(np.float64)
    check("ReduceMean", [small, axes], attributes, np.trunc(wide.mean(1, keepdims=keeps)).astype(dtype))
    norm = np.sqrt((wide**2).sum(1, keepdims=keeps))
    check("ReduceL2", [small, axes], attributes, np.trunc(norm).astype(dtype))
    log = np.log(wide.sum(1, keepdims=keeps))
    check("ReduceLogSum", [small, axes], attributes, np.trunc(log).astype(dtype))


@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS])
def test_unique_sorts_every_integer(dtype: Any) -> None:
    x = np.array([1, 0, 1, 1, 0], dtype)
    if dtype is np.uint64:
        x = np.array([2**63 + 1, 1, 2**64 - 1, 2**63, 1], dtype)
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    check("Unique", [x], {"sorted": 1}, values, first, inverse, counts)
