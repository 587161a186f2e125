"""Reductions, sorting, running results and scatters of integers of more than 64 bits, against Python's."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from tests.support.wide import WIDTHS, Array, check, drawn, dtypes, wrap

Along = Callable[[Any, int], Any]


def running_product(array: Array, axis: int, *, exclusive: bool = False) -> Array:
    ones = np.ones_like(array[:1] if not axis else array[:, :1])
    value = np.concatenate([ones, array], axis).take(range(array.shape[axis]), axis) if exclusive else array
    return np.multiply.accumulate(value, axis=axis)


# The op along an axis, and NumPy's.
ALONG: dict[str, tuple[Along, Along]] = {
    "sum": (lambda x, n: ops.sum(x, axis=n), lambda x, n: np.add.reduce(x, axis=n)),
    "prod": (lambda x, n: ops.prod(x, axis=n), lambda x, n: np.multiply.reduce(x, axis=n)),
    "prod kept": (
        lambda x, n: ops.prod(x, axis=n, keepdims=True), lambda x, n: np.multiply.reduce(x, axis=n, keepdims=True),
    ),
    "max": (lambda x, n: ops.max(x, axis=n), lambda x, n: x.max(axis=n)),
    "min kept": (lambda x, n: ops.min(x, axis=n, keepdims=True), lambda x, n: x.min(axis=n, keepdims=True)),
    "argmax": (lambda x, n: ops.argmax(x, axis=n), lambda x, n: x.argmax(axis=n)),
    "argmin kept": (lambda x, n: ops.argmin(x, axis=n, keepdims=True), lambda x, n: x.argmin(axis=n, keepdims=True)),
    "cumsum": (lambda x, n: ops.cumsum(x, axis=n), lambda x, n: np.add.accumulate(x, axis=n)),
    "cumsum back": (
        lambda x, n: ops.cumsum(x, axis=n, reverse=True), lambda x, n: np.flip(np.add.accumulate(np.flip(x, n), n), n),
    ),
    "cumprod": (lambda x, n: ops.cumprod(x, axis=n), running_product),
    "cumprod before": (
        lambda x, n: ops.cumprod(x, axis=n, exclusive=True), lambda x, n: running_product(x, n, exclusive=True),
    ),
    "cumprod back": (
        lambda x, n: ops.cumprod(x, axis=n, reverse=True), lambda x, n: np.flip(running_product(np.flip(x, n), n), n),
    ),
    "sort": (lambda x, n: ops.sort(x, axis=n), lambda x, n: np.sort(x, axis=n)),
    "sort down": (lambda x, n: ops.sort(x, axis=n, descending=True), lambda x, n: np.flip(np.sort(x, axis=n), n)),
    "argsort": (lambda x, n: ops.argsort(x, axis=n), lambda x, n: np.argsort(x, axis=n, kind="stable")),
    "argsort down": (
        lambda x, n: ops.argsort(x, axis=n, descending=True), lambda x, n: np.argsort(-x, axis=n, kind="stable"),
    ),
    "top": (lambda x, n: ops.top_k(x, 2, axis=n)[0], lambda x, n: np.flip(np.sort(x, axis=n), n).take([0, 1], n)),
    "bottom": (
        lambda x, n: ops.bottom_k(x, 2, axis=n)[1], lambda x, n: np.argsort(x, n, kind="stable").take([0, 1], n),
    ),
}  # fmt: skip


def every(x: Symbol) -> tuple[Symbol, ...]:
    return tuple(function(x, axis) for function, _ in ALONG.values() for axis in (0, 1))


@pytest.mark.numbers
@pytest.mark.parametrize("dims", [[4, 3], ["m", "n"]], ids=str)
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_results_along_axes_are_pythons(dtype: DType, dims: list[Any], tmp_path: Path) -> None:
    x = drawn(dtype, [4, 3], 1)
    wanted = [reference(x, axis) for _, reference in ALONG.values() for axis in (0, 1)]
    check(every, [TensorType(dtype, dims)], [x], wanted, folder=tmp_path)


@pytest.mark.numbers
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_results_along_axes_are_pythons_for_any_width(data: st.DataObject) -> None:
    dtype, name = data.draw(dtypes(65, 260)), data.draw(st.sampled_from(sorted(ALONG)))
    function, reference = ALONG[name]
    shape = [data.draw(st.integers(2, 6)) for _ in "ab"]
    x = drawn(dtype, shape, data.draw(st.integers(0, 1000)))
    check(lambda a: function(a, 1), [TensorType(dtype, shape)], [x], [reference(x, 1)])


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.int(70), DType.uint(128)], ids=str)
def test_results_over_all_axes_are_pythons(dtype: DType) -> None:
    x = drawn(dtype, [2, 3, 2], 2)

    def whole(a: Symbol) -> tuple[Symbol, ...]:
        return (
            ops.sum(a), ops.prod(a), ops.max(a), ops.min(a), ops.argmax(a), ops.argmin(a), ops.prod(a, axis=(0, 2)),
            ops.max(a, axis=(0, 2)), ops.min(a, axis=(1, 2), keepdims=True), ops.max(a, axis=()), ops.unique(a).values,
            ops.unique(a).counts, ops.mean(a),
        )  # fmt: skip

    values, counts = np.unique(x, return_counts=True)
    wanted = [
        x.sum(), reduce(lambda p, q: p * q, x.ravel()), x.max(), x.min(), x.argmax(), x.argmin(),
        np.multiply.reduce(x, axis=(0, 2)), x.max(axis=(0, 2)), x.min(axis=(1, 2), keepdims=True), x, values, counts,
        np.mean([float(v) for v in x.ravel()]),
    ]  # fmt: skip
    for dims in ([2, 3, 2], ["a", "b", "c"]):
        check(lambda a: whole(a)[:-1], [TensorType(dtype, dims)], [x], wanted[:-1])
    graph = Graph("mean", {"x": TensorType(dtype, [2, 3, 2])})
    graph.output(ops.mean(graph[0]))
    np.testing.assert_allclose(gc.InferenceSession().load(graph)(x)[0], wanted[-1], rtol=1e-12)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.int(65), DType.uint(70), DType.int(96), DType.uint(128)], ids=str)
def test_results_of_no_elements_are_those_of_narrow_integers(dtype: DType) -> None:
    x = np.zeros((0, 2), object)

    def whole(a: Symbol) -> tuple[Symbol, ...]:
        return (
            ops.sum(a, axis=0), ops.prod(a, axis=0), ops.max(a, axis=0), ops.min(a, axis=0), ops.cumsum(a, axis=0),
            ops.cumprod(a, axis=0), ops.sort(a, axis=0), ops.prod(a, axis=1), ops.max(a, axis=1), ops.argmax(a, axis=1),
        )  # fmt: skip

    none, empty = np.zeros((0, 2), object), np.zeros((0,), object)
    wanted = [[0, 0], [1, 1], [int(dtype.min)] * 2, [int(dtype.max)] * 2, none, none, none, empty, empty, empty]
    check(whole, [TensorType(dtype, ["n", 2])], [x], [np.array(w, object) for w in wanted])


@pytest.mark.numbers
def test_running_products_of_many_are_exact() -> None:
    dtype = DType.int(130)
    x = drawn(dtype, [37, 2], 3) | 1
    check(lambda a: (ops.cumprod(a, axis=0), ops.prod(a, axis=0)), [TensorType(dtype, ["n", 2])], [x],
          [running_product(x, 0), np.multiply.reduce(x, axis=0)])  # fmt: skip


def scattered(x: Array, updates: Array, indices: Array, how: Callable[[Any, Any], Any]) -> Array:
    result = x.copy()
    for place in np.ndindex(indices.shape):
        target = (int(indices[place]), *place[1:])
        result[target] = how(result[target], updates[tuple(place)])
    return result


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_scatters_combine_as_pythons_do(dtype: DType) -> None:
    x, updates = drawn(dtype, [4, 3], 7), drawn(dtype, [3, 3], 8)
    indices = np.array([[0, 3, 0], [0, 1, 2], [2, 1, 2]], np.int64)
    rows = np.array([[0], [3], [0]], np.int64)

    def all_of(a: Symbol, u: Symbol) -> tuple[Symbol, ...]:
        at, lines = a.graph.constant(indices), a.graph.constant(rows)
        return (
            ops.scatter_add(a, u, at, 0), ops.scatter_max(a, u, at, 0), ops.scatter_min(a, u, at, 0),
            ops.scatter_nd_add(a, u, lines), ops.scatter_nd_max(a, u, lines), ops.scatter_nd_min(a, u, lines),
            ops.scatter_max(a, (u > 1).cast(dtype), at, 0), ops.scatter_min(a, (u > 1).cast(dtype), at, 0),
        )  # fmt: skip

    whole = np.repeat(rows, 3, axis=1)
    flags = (updates > 1).astype(int).astype(object)
    wanted = [scattered(x, updates, at, how) for at in (indices, whole) for how in (lambda p, q: p + q, max, min)]
    wanted += [scattered(x, flags, indices, how) for how in (max, min)]
    shapes: list[list[list[Any]]] = [[[4, 3], [3, 3]], [["a", 3], [3, 3]]]
    for dims in shapes:
        check(all_of, [TensorType(dtype, d) for d in dims], [x, updates], wanted)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_scatters_multiply_as_pythons_do(dtype: DType) -> None:
    x, updates = drawn(dtype, [4, 3], 7), drawn(dtype, [3, 3], 8)
    indices = np.array([[0, 3, 0], [0, 1, -4], [-2, 1, 0]], np.int64)
    rows = np.array([[0], [3], [0]], np.int64)

    def both(a: Symbol, u: Symbol) -> tuple[Symbol, ...]:
        at, lines = a.graph.constant(indices), a.graph.constant(rows)
        return ops.scatter_mul(a, u, at, 0), ops.scatter_nd_mul(a, u, lines)

    wanted = [scattered(x, updates, at, lambda p, q: p * q) for at in (indices % 4, np.repeat(rows, 3, axis=1))]
    shapes: list[list[list[Any]]] = [[[4, 3], [3, 3]], [["a", 3], [3, 3]]]
    for dims in shapes:
        check(both, [TensorType(dtype, d) for d in dims], [x, updates], wanted)


def test_scatter_of_no_updates_multiplies_nothing() -> None:
    dtype = DType.int(96)
    types = {"x": TensorType(dtype, [3]), "u": TensorType(dtype, ["n"]), "i": TensorType("int64", ["n"])}
    graph = Graph("test", types)
    graph.output(ops.scatter_mul(graph["x"], graph["u"], graph["i"], 0))
    model = gc.InferenceSession().load(graph)
    x = np.array([-(2**90), 0, 2**80], object)
    none = np.zeros(0, object), np.zeros(0, np.int64)
    assert model.execute(x, *none, wide="object")[0].tolist() == x.tolist()
    twice = np.array([2**40, -3, 5], object), np.array([2, 2, 0])
    assert model.execute(x, *twice, wide="object")[0].tolist() == [wrap(v, dtype) for v in (-5 * 2**90, 0, -3 * 2**120)]


def pooled(x: Array, kernel: tuple[int, int], stride: int, dilation: int, padding: int, least: int) -> Array:
    """Max pooling of [height, width], of windows of padding alone the least number."""
    sizes = [(n + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape, kernel, strict=True)]
    result = np.empty(sizes, object)
    for place in np.ndindex(*sizes):
        taps = [[p * stride + i * dilation - padding for i in range(k)] for p, k in zip(place, kernel, strict=True)]
        inside = [[t for t in axis if 0 <= t < n] for axis, n in zip(taps, x.shape, strict=True)]
        result[place] = max((x[i, j] for i in inside[0] for j in inside[1]), default=least)
    return result


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "padding"),
    [([4, 4], (2, 2), 2, 1, 0), ([3, 4], (2, 3), 1, 1, 1), ([2, 2], (2, 2), 1, 3, 1)],
)
def test_maximum_of_windows_is_that_of_pythons_integers(
    dtype: DType, size: list[int], kernel: tuple[int, int], stride: int, dilation: int, padding: int
) -> None:
    x = drawn(dtype, size, 5)
    x[0, 0] = x[-1, -1]
    want = pooled(x, kernel, stride, dilation, padding, int(dtype.min))
    check(
        lambda a: (ops.max_pool2d(ops.reshape(a, [1, *size, 1]), kernel, stride, dilation, padding),),
        [TensorType(dtype, size)], [x], [want.reshape(1, *want.shape, 1)],
    )  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_nearest_elements_are_resized(dtype: DType) -> None:
    x = drawn(dtype, [2, 3], 6)
    resized = x.repeat(2, axis=0).repeat(2, axis=1)
    check(lambda a: (ops.resize_nearest(a, [4, 6]),), [TensorType(dtype, [2, 3])], [x], [resized])
