"""ONNX's random operators: the right distributions, and the same numbers for the same seed."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import graphcore as gc
from graphcore import DType
from graphcore.errors import GraphcoreError, RunError

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
FLOATS = (DType.float32, DType.float64, DType.float16, DType.bfloat16)
COUNT = 1 << 16


def load(op: str, *inputs: Array, opset: int = 22, dims: list[Any] | None = None, **attributes: Any) -> gc.Model:
    """A model of one random node."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(name, DType.of(x.dtype).onnx, list(x.shape) if dims is None else dims)
        for name, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "random", infos, [onnx.ValueInfoProto(name="y")])
    return gc.InferenceSession().load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))


def drawn(op: str, *inputs: Array, **attributes: Any) -> Array:
    (result,) = load(op, *inputs, **attributes)(*inputs)
    return np.asarray(result)


def distance(values: Array, cumulative: Any) -> float:
    """Kolmogorov and Smirnov's: the greatest difference of the two distributions, times the root of the count."""
    values = np.sort(values.astype(np.float64).ravel())
    expected = cumulative(values)
    steps = np.arange(values.size + 1) / values.size
    apart = np.maximum(np.abs(expected - steps[:-1]), np.abs(expected - steps[1:]))
    return float(apart.max() * math.sqrt(values.size))


def normal_cdf(values: Array) -> Array:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in values])


def correlation(values: Array, lag: int) -> float:
    centred = values.astype(np.float64).ravel() - values.astype(np.float64).mean()
    return float((centred[:-lag] * centred[lag:]).mean() / centred.var())


def forms(op: str, dtype: DType, seed: float | None) -> Array:
    """The numbers that an operator draws, its shape told or taken from an operand."""
    more = {} if seed is None else {"seed": seed}
    if op.endswith("Like"):
        return drawn(op, np.zeros((256, 256), np.int32), dtype=dtype.onnx, **more)
    return drawn(op, shape=[256, 256], dtype=dtype.onnx, **more)


@pytest.mark.parametrize("seed", [None, 0.0, 1.0, -3.5])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["RandomUniform", "RandomUniformLike"])
def test_uniform_numbers_are_spread_evenly(op: str, dtype: DType, seed: float | None) -> None:
    result = forms(op, dtype, seed)
    assert result.dtype == dtype.numpy
    assert result.shape == (256, 256)
    values = result.astype(np.float64)
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 5 * math.sqrt(1 / 12 / COUNT) + 2.0**-9
    assert abs(values.var() - 1 / 12) < 0.002
    step = {DType.float16: 2.0**-11, DType.bfloat16: 2.0**-8}.get(dtype, 0.0)
    assert distance(values, lambda v: v) < 2.7 + step * math.sqrt(COUNT)  # 2.7: one in a million is beyond
    for lag in (1, 2, 256):
        assert abs(correlation(values, lag)) < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("seed", [None, 0.0, 1.0, -3.5])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["RandomNormal", "RandomNormalLike"])
def test_normal_numbers_are_spread_as_the_bell_curve(op: str, dtype: DType, seed: float | None) -> None:
    result = forms(op, dtype, seed)
    assert result.dtype == dtype.numpy
    assert result.shape == (256, 256)
    values = result.astype(np.float64)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 5 / math.sqrt(COUNT)
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / COUNT)
    assert abs((values**3).mean()) < 5 * math.sqrt(15 / COUNT)
    assert abs((values**4).mean() - 3) < 5 * math.sqrt(96 / COUNT)
    assert 3.5 < np.abs(values).max() < 6.8
    step = {DType.float16: 2.0**-11, DType.bfloat16: 2.0**-8}.get(dtype, 0.0)
    assert distance(values, normal_cdf) < 2.7 + step * math.sqrt(COUNT)
    for lag in (1, 2, 256):
        assert abs(correlation(values, lag)) < 5 / math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_numbers_lie_between_their_limits(dtype: DType) -> None:
    graph = drawn("RandomUniform", shape=[COUNT], dtype=dtype.onnx, low=-3.0, high=5.0, seed=2.0).astype(np.float64)
    assert graph.min() >= -3
    assert graph.max() < 5
    assert abs(graph.mean() - 1) < 0.1
    narrow = drawn("RandomUniform", shape=[COUNT], dtype=dtype.onnx, low=1000.0, high=1001.0, seed=2.0)
    assert narrow.astype(np.float64).max() < 1001


def test_normal_numbers_have_the_mean_and_the_scale_that_are_asked_for() -> None:
    graph = drawn("RandomNormal", shape=[COUNT], mean=-2.0, scale=0.5, seed=1.0).astype(np.float64)
    assert abs(graph.mean() + 2) < 5 * 0.5 / math.sqrt(COUNT)
    assert abs(graph.std() - 0.5) < 0.01


@pytest.mark.parametrize("op", ["RandomUniform", "RandomNormal"])
def test_a_seed_gives_the_same_numbers_in_every_session_and_run(op: str) -> None:
    model = load(op, shape=[1000], seed=7.0)
    first = model()[0]
    assert (first == model()[0]).all()
    assert (first == drawn(op, shape=[1000], seed=7.0)).all()
    other = drawn(op, shape=[1000], seed=8.0)
    assert (first != other).mean() > 0.99
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.2
    longer = drawn(op, shape=[40, 50], seed=7.0)
    assert (first == longer.ravel()[:1000]).all()


@pytest.mark.parametrize("op", ["RandomUniform", "RandomNormal"])
def test_without_a_seed_every_run_gives_other_numbers(op: str) -> None:
    model = load(op, shape=[1000])
    first, second = model()[0], model()[0]
    assert (first != second).mean() > 0.99
    assert (first != drawn(op, shape=[1000])).mean() > 0.99


def test_two_nodes_without_a_seed_give_other_numbers() -> None:
    nodes = [helper.make_node("RandomNormal", [], [name], shape=[1000]) for name in ("a", "b")]
    infos = [onnx.ValueInfoProto(name=name) for name in ("a", "b")]
    proto = helper.make_model(helper.make_graph(nodes, "two", [], infos), opset_imports=[helper.make_opsetid("", 22)])
    first, second = gc.InferenceSession().load(proto)()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2


@pytest.mark.parametrize("opset", [7, 15, 22, 26])
def test_random_operators_of_any_opset_run(opset: int) -> None:
    result = drawn("RandomUniform", shape=[3, 0, 2], opset=opset, seed=1.0)
    assert result.shape == (3, 0, 2)
    like = drawn("RandomNormalLike", np.zeros((2, 3), np.float32), opset=opset, seed=1.0)
    assert like.dtype == np.float32
    assert like.shape == (2, 3)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float16, ml_dtypes.bfloat16, np.uint8, np.float64])
def test_numbers_are_drawn_for_operands_of_any_dtype_and_size(dtype: Any) -> None:
    model = load("RandomUniformLike", np.zeros((1, 1), dtype), dims=["n", "m"], dtype=1, seed=1.0)
    (result,) = model(np.zeros((50, 60), dtype))
    assert result.dtype == np.float32
    assert result.shape == (50, 60)
    assert 0.45 < result.mean() < 0.55


@pytest.mark.parametrize("target", [None, DType.float64, DType.bool, DType.int8, DType.int64, DType.float16], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bernoulli_gives_ones_as_often_as_is_asked(dtype: DType, target: DType | None) -> None:
    chances = np.repeat([0.0, 0.1, 0.5, 0.9, 1.0], 1 << 14).astype(dtype.numpy)
    more = {} if target is None else {"dtype": target.onnx}
    result = drawn("Bernoulli", chances, seed=3.0, **more)
    assert result.dtype == (target or dtype).numpy
    assert result.shape == chances.shape
    values = result.astype(np.float64).reshape(5, -1)
    assert set(np.unique(values)) <= {0.0, 1.0}
    assert values[0].sum() == 0
    assert values[4].all()
    for row, chance in zip(values, chances.astype(np.float64).reshape(5, -1)[:, 0], strict=True):
        assert abs(row.mean() - chance) < 5 * math.sqrt(0.25 / row.size)


@pytest.mark.parametrize("target", [DType.int32, DType.int64], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_multinomial_draws_classes_by_their_weights(dtype: DType, target: DType) -> None:
    logs = np.log(np.array([[1, 2, 0, 5, 2], [0, 0, 1, 0, 0], [1, 1, 1, 1, 0]], np.float64).clip(1e-30))
    logs[logs < -60] = -np.inf
    count = 1 << 14
    result = drawn("Multinomial", logs.astype(dtype.numpy), sample_size=count, dtype=target.onnx, seed=5.0)
    assert result.dtype == target.numpy
    assert result.shape == (3, count)
    for row, weights in zip(result, np.exp(logs), strict=True):
        chances = weights / weights.sum()
        shares = np.bincount(row, minlength=5) / count
        assert (shares[chances == 0] == 0).all()
        assert np.abs(shares - chances).max() < 5 * math.sqrt(0.25 / count) + (0.01 if dtype.bits == 16 else 0)


def test_multinomial_of_one_class_and_of_a_batch_whose_size_comes_with_the_run() -> None:
    model = load("Multinomial", np.zeros((1, 1), np.float32), dims=["n", 1], sample_size=4, seed=1.0)
    (result,) = model(np.zeros((3, 1), np.float32))
    assert result.tolist() == [[0] * 4] * 3


def test_operands_of_unknown_rank_are_drawn_for() -> None:
    for op, x, shape in (
        ("Bernoulli", np.full((2, 3), 0.5, np.float32), (2, 3)),
        ("RandomNormalLike", np.zeros((2, 3), np.float32), (2, 3)),
        ("Multinomial", np.zeros((2, 3), np.float32), (2, 1)),
    ):
        node = helper.make_node(op, ["x"], ["y"])
        info = helper.make_tensor_value_info("x", 1, None)
        graph = helper.make_graph([node], "unranked", [info], [onnx.ValueInfoProto(name="y")])
        model = gc.InferenceSession().load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]))
        assert model(x)[0].shape == shape


def test_no_samples_are_refused() -> None:
    with pytest.raises(GraphcoreError):
        load("Multinomial", np.zeros((2, 3), np.float32), sample_size=0)


def test_sizes_beyond_those_of_arrays_are_an_error_of_the_run() -> None:
    model = load("RandomUniform", shape=[0, 1 << 62], seed=1.0)
    with pytest.raises(RunError):
        model()


def test_dropout_in_training_drops_as_many_as_is_asked() -> None:
    x = np.ones((256, 256), np.float32)
    names = ["x", "r", "t"]
    node = helper.make_node("Dropout", names, ["y", "m"], seed=4)
    kinds = [(1, [256, 256]), (1, []), (9, [])]
    infos = [helper.make_tensor_value_info(n, k, s) for n, (k, s) in zip(names, kinds, strict=True)]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "m")]
    proto = helper.make_model(
        helper.make_graph([node], "dropout", infos, outputs), opset_imports=[helper.make_opsetid("", 22)]
    )
    y, mask = gc.InferenceSession().load(proto)(x, np.float32(0.75), np.bool_(True))
    assert abs(mask.mean() - 0.25) < 0.02
    assert (y == np.where(mask, 4, 0)).all()
