"""Normalisations, against their formulas in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.graphs import Array, graph_of, run1

RNG = np.random.default_rng(11)
FLOATS: list[Any] = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
EPSILON: dict[Any, float] = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}
TOLERANCE: dict[Any, float] = {np.float32: 3e-6, np.float64: 1e-12}


def normal(dtype: Any, *shape: int, offset: float = 0) -> Array:
    return (RNG.standard_normal(shape) + offset).astype(dtype)


def wide(*arrays: Array) -> list[Array]:
    return [a.astype(np.float64) for a in arrays]


def standardised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon))


def by_channel(x: Array, vector: Array) -> Array:
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


def grouped(operands: list[Array], groups: int, epsilon: float) -> Array:
    x, gamma, beta = operands
    apart = x.reshape(x.shape[0], groups, -1)
    even = standardised(apart, (2,), epsilon).reshape(x.shape)
    return np.asarray(even * by_channel(x, gamma) + by_channel(x, beta))


def assert_near(got: Array, want: Array, dtype: Any) -> None:
    """Within a few roundings of the dtype it was computed in, and for narrower floats one of their own more."""
    assert got.dtype == dtype
    least = TOLERANCE.get(dtype, 3e-6)
    relative = 0 if dtype in TOLERANCE else EPSILON[dtype] * 0.502
    error = np.abs(got.astype(np.float64) - want)
    assert (error <= np.maximum(np.abs(want), 1) * least + np.abs(want) * relative).all(), error.max()


# Over the last axis


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("epsilon", [1e-5, 0.125])
def test_layer_norm_equals_formula_when_of_any_float(dtype: Any, epsilon: float) -> None:
    x, gamma, beta = normal(dtype, 3, 2, 6), normal(dtype, 6), normal(dtype, 6)
    got = run1(partial(ops.layer_norm, epsilon=epsilon), x, gamma, beta, dims=[["n", "m", "f"], ["f"], ["f"]])
    wx, wg, wb = wide(x, gamma, beta)
    assert_near(got, standardised(wx, (-1,), epsilon) * wg + wb, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
def test_layer_norm_equals_formula_when_there_is_no_beta(dtype: Any) -> None:
    x, gamma = normal(dtype, 4, 8), normal(dtype, 8)
    wx, wg = wide(x, gamma)
    assert_near(run1(ops.layer_norm, x, gamma, dims=[["n", 8], [8]]), standardised(wx, (-1,), 1e-5) * wg, dtype)


def test_layer_norm_gives_float_when_of_integers() -> None:
    x, gamma = RNG.integers(-9, 9, (3, 5)).astype(np.int8), np.arange(5).astype(np.int16)
    wx, wg = wide(x, gamma)
    assert_near(run1(ops.layer_norm, x, gamma, dims=[["n", 5], [5]]), standardised(wx, (-1,), 1e-5) * wg, np.float32)


def test_layer_norm_promotes_when_dtypes_differ() -> None:
    types = {"x": TensorType(DType.bfloat16, ["n", 4]), "gamma": TensorType(DType.float32, [4])}
    graph = Graph("g", types)
    assert str(ops.layer_norm(graph["x"], graph["gamma"]).type) == "float32[n, 4]"


def test_layer_norm_is_accurate_when_far_from_zero() -> None:
    x = normal(np.float64, 3, 64, offset=1e4)
    got = run1(lambda s: ops.layer_norm(s, np.ones(64)), x, dims=[["n", 64]])
    np.testing.assert_allclose(got, standardised(x, (-1,), 1e-5), atol=1e-9)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm_equals_formula_when_of_any_float(dtype: Any, offset: float) -> None:
    x, weight = normal(dtype, 3, 2, 6), normal(dtype, 6)
    got = run1(partial(ops.rms_norm, weight_offset=offset), x, weight, dims=[["n", "m", "f"], ["f"]])
    wx, ww = wide(x, weight)
    want = wx / np.sqrt((wx**2).mean(-1, keepdims=True) + 1e-6) * (ww + offset)
    assert_near(got, want, dtype)


# Over channels


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_norm_equals_formula_when_of_any_float(dtype: Any, groups: int) -> None:
    x, gamma, beta = normal(dtype, 2, 6, 3, 5), normal(dtype, 6), normal(dtype, 6)
    got = run1(
        partial(ops.group_norm, num_groups=groups, epsilon=1e-5),
        x, gamma, beta, dims=[["n", 6, "h", "w"], [6], [6]],
    )  # fmt: skip
    assert_near(got, grouped(wide(x, gamma, beta), groups, 1e-5), dtype)


@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 3), (2, 4, 1, 2, 3)])
def test_group_norm_equals_formula_when_of_any_rank(shape: tuple[int, ...]) -> None:
    x, gamma, beta = normal(np.float32, *shape), normal(np.float32, 4), normal(np.float32, 4)
    dims: list[list[int | str]] = [["n", "c", *(f"d{i}" for i in range(len(shape) - 2))], ["c"], ["c"]]
    got = run1(partial(ops.group_norm, num_groups=2), x, gamma, beta, dims=dims)
    assert_near(got, grouped(wide(x, gamma, beta), 2, 1e-5), np.float32)


def test_group_norm_is_accurate_when_far_from_zero() -> None:
    x = normal(np.float32, 2, 4, 30, offset=100)
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    got = run1(lambda s: ops.group_norm(s, ones, zeros, 2), x, dims=[["n", 4, "d"]])
    np.testing.assert_allclose(got, grouped(wide(x, ones, zeros), 2, 1e-5), atol=5e-5)


def test_group_norm_is_empty_when_there_is_no_batch() -> None:
    x = np.zeros((0, 4, 3), np.float32)
    ones = np.ones(4, np.float32)
    got = run1(lambda s: ops.group_norm(s, ones, ones, 2), x, dims=[["n", 4, "d"]])
    assert got.shape == (0, 4, 3)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
def test_instance_norm_equals_formula_when_of_any_float(dtype: Any) -> None:
    x, gamma, beta = normal(dtype, 2, 3, 4, 5), normal(dtype, 3), normal(dtype, 3)
    got = run1(ops.instance_norm, x, gamma, beta, dims=[["n", 3, "h", "w"], [3], [3]])
    wx, wg, wb = wide(x, gamma, beta)
    assert_near(got, standardised(wx, (2, 3), 1e-5) * by_channel(wx, wg) + by_channel(wx, wb), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4, 5)])
def test_batch_norm_equals_formula_when_of_any_float(dtype: Any, shape: tuple[int, ...]) -> None:
    x = normal(dtype, *shape)
    scale, bias, mean = (normal(dtype, 3) for _ in range(3))
    var = (RNG.random(3) + 0.1).astype(dtype)
    dims: list[list[int | str]] = [["n", "c", *(f"d{i}" for i in range(len(shape) - 2))], ["c"], ["c"], ["c"], ["c"]]
    got = run1(ops.batch_norm, x, scale, bias, mean, var, dims=dims)
    wx, ws, wb, wm, wv = wide(x, scale, bias, mean, var)
    want = (wx - by_channel(wx, wm)) / by_channel(wx, np.sqrt(wv + 1e-5)) * by_channel(wx, ws) + by_channel(wx, wb)
    assert_near(got, want, dtype)


# Over any axis


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_normalize_equals_formula_when_of_any_float(dtype: Any, p: int, axis: int) -> None:
    x = normal(dtype, 4, 5)
    (wx,) = wide(x)
    got = run1(lambda s: ops.lp_normalize(s, p, axis), x)
    assert_near(got, wx / np.linalg.norm(wx, p, axis, keepdims=True), dtype)


def test_lp_normalize_keeps_zeros_when_the_norm_is_zero() -> None:
    np.testing.assert_array_equal(run1(ops.lp_normalize, np.zeros((2, 3), np.float32)), np.zeros((2, 3)))


# Graphs


def test_normalisation_is_one_onnx_operator_when_onnx_has_it() -> None:
    ones = np.ones(4, np.float32)

    def build(x: Symbol) -> Symbol:
        x = ops.layer_norm(x, ones, ones)
        x = ops.rms_norm(x, ones)
        return ops.group_norm(x, ones, ones, 2)

    graph = graph_of(build, np.ones((2, 4, 4), np.float32), dims=[["n", 4, 4]])
    assert [n.op_type for n in graph.nodes] == ["LayerNormalization", "RMSNormalization", "GroupNormalization"]
    assert {n.domain for n in graph.nodes} == {""}


# Mistakes


def graph() -> Graph:
    return Graph(
        "g",
        {
            "x": TensorType(DType.float32, ["n", 6, "w"]),
            "row": TensorType(DType.float32, [6]),
            "other": TensorType(DType.float32, [5]),
            "wide": TensorType(DType.float32, ["w"]),
            "scalar": TensorType(DType.float32, []),
        },
    )


Mistake = tuple[Callable[[Graph], Symbol], str]
MISTAKES: list[Mistake] = [
    (
        lambda g: ops.layer_norm(g["x"], g["row"]),
        r"layer_norm: gamma must have shape \[w\], got \[6\](.|\n)*x has w features \(axis -1\)",
    ),
    (
        lambda g: ops.layer_norm(g["x"], g["wide"], g["other"]),
        r"layer_norm: beta must have shape \[w\], got \[5\](.|\n)*x has w features",
    ),
    (lambda g: ops.layer_norm(g["scalar"], g["row"]), "layer_norm: x must have an axis of features, got a scalar"),
    (lambda g: ops.layer_norm(g["x"], g["wide"], epsilon=-1.0), "epsilon=-1.0 is not finite and at least 0"),
    (
        lambda g: ops.rms_norm(g["x"], g["x"]),
        r"rms_norm: weight must have shape \[w\], got \[n, 6, w\](.|\n)*x has w features",
    ),
    (lambda g: ops.group_norm(g["x"], g["row"], g["row"], 4), "group_norm: 6 channels cannot be split into 4 groups"),
    (lambda g: ops.group_norm(g["x"], g["row"], g["row"], 0), "group_norm: num_groups=0 is below 1"),
    (
        lambda g: ops.group_norm(g["x"], g["row"], g["other"], 3),
        r"group_norm: beta must have shape \[6\], got \[5\](.|\n)*x has 6 channels \(axis 1\)",
    ),
    (lambda g: ops.group_norm(g["row"], g["row"], g["row"], 3), "group_norm: x has rank 1, but needs a batch axis"),
    (
        lambda g: ops.instance_norm(g["x"][0], g["row"], g["row"]),
        "instance_norm: x has rank 2, but needs a batch axis, channels and at least one axis after them",
    ),
    (
        lambda g: ops.batch_norm(g["x"], g["row"], g["row"], g["row"], g["other"]),
        r"batch_norm: var must have shape \[6\], got \[5\](.|\n)*x has 6 channels",
    ),
    (lambda g: ops.lp_normalize(g["x"], 3), "lp_normalize: p must be 1 or 2, got 3"),
    (lambda g: ops.lp_normalize(g["scalar"]), "lp_normalize: there is no axis -1 of a tensor of rank 0"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_normalisation_refuses_when_shapes_do_not_fit(mistake: Callable[[Graph], Symbol], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        mistake(graph())


def test_normalisation_refuses_when_epsilon_is_not_a_number() -> None:
    g = graph()
    with pytest.raises(DTypeError, match="rms_norm: epsilon must be a Python number, got '1e-6'"):
        ops.rms_norm(g["x"], g["wide"], "1e-6")  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"group_norm: num_groups=2\.0 is not an int"):
        ops.group_norm(g["x"], g["row"], g["row"], 2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [-1, 3, 2, 0])
def test_batch_norm_takes_channels_on_any_axis(dtype: Any, axis: int) -> None:
    x = normal(dtype, 3, 4, 5, 6)
    count = x.shape[axis]
    scale, bias, mean = (normal(dtype, count) for _ in range(3))
    var = np.abs(normal(dtype, count)) + np.ones((), dtype)
    s, b, m, v = (a.reshape([-1 if i == axis % 4 else 1 for i in range(4)]) for a in wide(scale, bias, mean, var))
    want = (wide(x)[0] - m) / np.sqrt(v + 1e-5) * s + b
    dims = [[count if i == axis % 4 else f"d{i}" for i in range(4)], *[[count]] * 4]
    result = run1(lambda x, s, b, m, v: ops.batch_norm(x, s, b, m, v, axis=axis), x, scale, bias, mean, var, dims=dims)
    assert result.dtype == dtype
    near = EPSILON.get(dtype, TOLERANCE.get(dtype, 0))
    np.testing.assert_allclose(result.astype(np.float64), want, rtol=near, atol=near * 4)


def test_batch_norm_says_which_axis_has_the_channels() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", "h", "w", 3]), "s": TensorType(DType.float32, [4])})
    x, s = graph.inputs
    three = s[:3]
    assert ops.batch_norm(x, three, three, three, three, axis=-1).type == x.type
    with pytest.raises(ShapeError, match=r"scale must have shape \[3\], got \[4\](.|\n)*x has 3 channels \(axis 3\)"):
        ops.batch_norm(x, s, s, s, s, axis=-1)
    with pytest.raises(ShapeError, match="there is no axis 4 of a tensor of rank 4"):
        ops.batch_norm(x, s, s, s, s, axis=4)
