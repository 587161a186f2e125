"""Ops that move, order and combine values, in all 20 dtypes with a named dim, bit for bit against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.promotion.max import DTYPES
from tests.ops.test_sweep import assert_same
from tests.support import reference

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
D = DType
DTYPES_20 = [*DTYPES, D.int4, D.uint4, D.float8_e4m3fn, D.float8_e5m2]


def exact(x: Array, dtype: DType) -> Array:
    """Numbers that sums and products of do not overflow: extended floats or Python integers."""
    return reference.exact(x) if dtype.is_float else x.astype(object)


def back(numbers: Array, dtype: DType) -> Array:
    numbers = np.asarray(numbers)
    return reference.rounded(numbers, dtype) if dtype.is_float else reference.wrapped(numbers, dtype)


def ordered(x: Array, dtype: DType) -> Array:
    """The positions that sort rows, stable, NaN last."""
    keys = np.where(np.isnan(reference.exact(x)), np.inf, reference.exact(x)) if dtype.is_float else x
    return np.argsort(keys, axis=1, kind="stable")


def zeros(x: Array) -> Array:
    return np.zeros((1, 4), x.dtype)


# What the op is called on `x` of shape [n, 4], and what NumPy gives for x of shape [5, 4].
MOVES: dict[str, tuple[Callable[[Symbol], Symbol], Callable[[Array, DType], Any]]] = {
    "reshape": (lambda x: x.reshape(-1), lambda x, d: x.reshape(-1)),
    "transpose": (lambda x: ops.transpose(x), lambda x, d: x.T),
    "concat": (lambda x: ops.concat([x, x], 0), lambda x, d: np.concatenate([x, x])),
    "stack": (lambda x: ops.stack([x, x]), lambda x, d: np.stack([x, x])),
    "split": (lambda x: ops.split(x, [1, 3], 1)[1], lambda x, d: x[:, 1:]),
    "tile": (lambda x: ops.tile(x, (2, 1)), lambda x, d: np.tile(x, (2, 1))),
    "repeat_interleave": (lambda x: ops.repeat_interleave(x, 2, 0), lambda x, d: np.repeat(x, 2, 0)),
    "pad": (lambda x: ops.pad(x, [1, 1, 0, 0]), lambda x, d: np.concatenate([zeros(x), x, zeros(x)])),
    "broadcast_to": (lambda x: ops.broadcast_to(x, (2, *x.shape)), lambda x, d: np.stack([x, x])),
    "slice": (lambda x: x[1:, ::2], lambda x, d: x[1:, ::2]),
    "reverse": (lambda x: x[::-1], lambda x, d: x[::-1]),
    "pick": (lambda x: x[:, np.array([0, 2])], lambda x, d: x[:, [0, 2]]),
    "gather": (lambda x: ops.gather(x, np.array([1, 0]), axis=1), lambda x, d: x[:, [1, 0]]),
    "where": (lambda x: ops.where(x == x, x, x), lambda x, d: x),
    "nonzero": (lambda x: ops.nonzero(x), lambda x, d: np.argwhere(reference.exact(x) != 0)),
    "any": (lambda x: ops.any(x), lambda x, d: np.any(reference.exact(x) != 0)),
    "all": (lambda x: ops.all(x, axis=0), lambda x, d: np.all(reference.exact(x) != 0, axis=0)),
    "count_nonzero": (lambda x: ops.count_nonzero(x), lambda x, d: np.count_nonzero(reference.exact(x))),
    "sort": (lambda x: ops.sort(x), lambda x, d: np.take_along_axis(x, ordered(x, d), 1)),
    "argsort": (lambda x: ops.argsort(x), ordered),
}

# Those whose sums and products are exact: whole numbers where the dtype is a float.
SUMS: dict[str, tuple[Callable[[Symbol], Symbol], Callable[[Array, DType], Any]]] = {
    "cumsum": (lambda x: ops.cumsum(x), lambda x, d: back(np.cumsum(exact(x, d), axis=-1), d)),
    "cumprod": (lambda x: ops.cumprod(x), lambda x, d: back(np.cumprod(exact(x, d), axis=-1), d)),
    "prod": (lambda x: ops.prod(x, axis=1), lambda x, d: back(np.prod(exact(x, d), axis=1), d)),
    "matmul": (lambda x: x @ x.T, lambda x, d: reference.product(x, x.T, d)),
    "einsum": (lambda x: ops.einsum("ij,kj->ik", x, x), lambda x, d: reference.product(x, x.T, d)),
    "outer": (lambda x: ops.outer(x[0], x[1]), lambda x, d: back(np.outer(exact(x[0], d), exact(x[1], d)), d)),
}


@pytest.mark.parametrize("dtype", DTYPES_20, ids=str)
def test_values_are_moved_and_ordered_exactly_when_of_any_dtype(dtype: DType) -> None:
    check(dtype, MOVES, reference.samples(dtype, 20, 3).reshape(5, 4))


@pytest.mark.parametrize("dtype", [d for d in DTYPES_20 if d is not D.bool], ids=str)
def test_values_are_combined_exactly_when_of_any_dtype(dtype: DType) -> None:
    x = reference.samples(dtype, 20, 3)
    if dtype.is_float:
        x = np.random.default_rng(1).integers(-3, 4, 20).astype(np.float32).astype(dtype.numpy)
    check(dtype, SUMS, x.reshape(5, 4))


def check(dtype: DType, cases: dict[str, Any], x: Array) -> None:
    graph = Graph("every", {"x": TensorType(dtype, ["n", 4])})
    graph.output(**{f"out_{name}": call(graph["x"]) for name, (call, _) in cases.items()})
    results = gc.InferenceSession().load(graph)(x)
    for (name, (_, want)), got in zip(cases.items(), results, strict=True):
        with np.errstate(all="ignore"):
            assert_same(name, got, np.asarray(want(x, dtype)))
