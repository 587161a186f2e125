"""`ops.random_uniform` and its like: the generator's draws, their distributions, determined by the seed alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ShapeError
from graphcore.types.tensor_types import Type
from tests.lowering.test_random import correlation, distance, normal_cdf
from tests.support import counter, reference

Array = np.ndarray[Any, Any]
D = DType
FLOATS = (D.float64, D.float32, D.tensor_float32, D.float16, D.bfloat16, D.float8_e4m3fn, D.float8_e5m2)
INTEGERS = (D.int4, D.uint4, D.int8, D.uint8, D.int16, D.uint16, D.int32, D.uint32, D.int64, D.uint64, D.index)
COUNT = 1 << 14
free: Any = ops
"""The ops without their types, for what they must refuse."""


def loaded(build: Callable[..., Any], types: dict[str, Type] | None = None) -> gc.Model:
    graph = Graph("drawn", types or {})
    with graph:
        result = build(*graph.inputs)
    graph.output(*result) if isinstance(result, tuple) else graph.output(result)
    return gc.InferenceSession().load(graph)


def drawn(build: Callable[[], Symbol]) -> Array:
    (result,) = loaded(build)()
    return np.asarray(result)


def chi_square(counts: Array, expected: Any) -> float:
    """Return the excess of the sum of squares over its expectation, in standard deviations."""
    free = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - free) / math.sqrt(2 * free))


# What is drawn, bit for bit


@pytest.mark.parametrize("seed", [0, -1, 1 << 40, (1 << 64) - 1])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_numbers_are_those_of_the_generator(dtype: DType, seed: int) -> None:
    result = drawn(lambda: ops.random_uniform([40, 50], seed=seed, dtype=dtype))
    assert result.dtype == dtype.numpy
    assert result.shape == (40, 50)
    assert (result.astype(np.float64).ravel() == counter.uniform(seed, 2000, dtype)).all()


@pytest.mark.parametrize("limits", [(-3.0, 5.0), (-2.0, -1.0), (0.0, 0.1)])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_numbers_lie_between_their_limits(dtype: DType, limits: tuple[float, float]) -> None:
    low, high = (float(reference.rounded(np.array(v, np.longdouble), dtype)) for v in limits)
    graph = drawn(lambda: ops.random_uniform(COUNT, *limits, seed=9, dtype=dtype)).astype(np.float64)
    assert graph.min() >= low
    assert graph.max() < high
    want = counter.between(9, COUNT, low, high, dtype).astype(np.float64)
    assert (graph[want < high] == want[want < high]).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal_numbers_are_near_those_of_the_generator(dtype: DType) -> None:
    graph = drawn(lambda: ops.random_normal(COUNT, seed=5, dtype=dtype)).astype(np.float64)
    want = counter.normal(5, COUNT, dtype)
    if dtype is D.float64:
        assert np.abs(graph - want).max() < 1e-11
        return
    step = {D.float32: 2.0**-22, D.tensor_float32: 2.0**-10, D.float16: 2.0**-10, D.bfloat16: 2.0**-7}
    off = np.abs(graph - want) / np.maximum(np.abs(want), 0.25)
    assert off.max() < step.get(dtype, 0.26) + 1e-6


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_are_those_of_the_generator_when_of_the_whole_range(dtype: DType) -> None:
    low, high = int(dtype.min), int(dtype.max) + 1
    results = drawn(lambda: ops.random_int([700], low, high, seed=11, dtype=dtype))
    assert results.dtype == dtype.numpy
    assert [int(n) for n in results] == list(counter.integers(11, 700, low, high))


@settings(max_examples=15, deadline=None)
@given(st.integers(-(2**63), 2**64 - 1), st.integers(-(2**63), 2**63 - 2), st.data())
def test_integers_lie_between_any_limits(seed: int, low: int, data: st.DataObject) -> None:
    high = data.draw(st.integers(low + 1, 2**63))
    results = drawn(lambda: ops.random_int([50], low, high, seed=seed))
    assert [int(n) for n in results] == list(counter.integers(seed, 50, low, high))


@pytest.mark.parametrize("seed", [0, 1, -5, 1 << 62, -(1 << 63)])
def test_a_seed_that_comes_with_the_run_draws_as_one_that_is_known(seed: int) -> None:
    types: dict[str, Type] = {"seed": TensorType(D.int64, []), "x": TensorType(D.float32, ["n"])}

    def build(seed: Symbol | int) -> tuple[Symbol, ...]:
        return (
            ops.random_uniform(["n", 3], seed=seed),
            ops.random_normal([7], seed=seed, dtype=D.float64),
            ops.random_int([7], -9, 1 << 40, seed=seed),
        )

    model = loaded(lambda s, x: build(s), types)
    x = np.zeros(4, np.float32)
    expected = loaded(lambda s, x: build(seed), types)(np.array(0), x)
    for a, b in zip(model(np.array(seed), x), expected, strict=True):
        assert (a == b).all()
    other = model(np.array(seed ^ 1), x)
    assert all((a != b).mean() > 0.9 for a, b in zip(other, expected, strict=True))


def test_two_sessions_draw_the_same() -> None:
    def build() -> tuple[Symbol, ...]:
        return ops.random_normal([99], seed=1), ops.permutation(99, seed=1), ops.bernoulli(0.5, [99], seed=1)

    first, again = loaded(build)(), loaded(build)()
    assert all((a == b).all() for a, b in zip(first, again, strict=True))


def test_what_is_drawn_lives_in_standard_onnx() -> None:
    import onnx

    graph = Graph("standard", {"s": TensorType(D.int64, [])})
    with graph:
        graph.output(ops.random_normal([3, 4], seed=graph[0], dtype=D.bfloat16), ops.random_int([4], 0, 6, seed=2))
    model = graph.to_onnx(target="onnx")
    onnx.checker.check_model(model, full_check=True)
    assert all(node.domain == "" for node in model.graph.node)


def test_draws_in_a_loop_differ_by_the_turn() -> None:
    def build() -> Symbol:
        def turn(i: Symbol, total: Symbol) -> tuple[Symbol, Symbol]:
            return total, ops.random_int([5], 0, 1 << 30, seed=i + 100)

        _, result = ops.for_loop(3, turn, 0, collect=True)
        return result

    result = drawn(build)
    want = [counter.integers(100 + i, 5, 0, 1 << 30).tolist() for i in range(3)]
    assert result.tolist() == want


# How it is spread


@pytest.mark.parametrize("seed", [2, 3, 1 << 50])
def test_uniform_and_normal_numbers_are_spread_as_they_should_be(seed: int) -> None:
    flat, bell = loaded(lambda: (ops.random_uniform(COUNT, seed=seed), ops.random_normal(COUNT, seed=seed)))()
    assert distance(flat, lambda v: v) < 2.7  # one in a million is beyond
    assert distance(bell, normal_cdf) < 2.7
    assert abs(bell.mean()) < 4 / math.sqrt(COUNT)
    assert abs(bell.astype(np.float64).var() - 1) < 4 * math.sqrt(2 / COUNT)
    for values in (flat, bell):
        for lag in (1, 2, 128):
            assert abs(correlation(values, lag)) < 4 / math.sqrt(COUNT)


def test_over_many_seeds_the_spread_is_as_far_off_as_chance_has_it() -> None:
    farthest = np.array([distance(counter.uniform(seed, 1 << 12, D.float32), lambda v: v) for seed in range(200)])
    assert abs((farthest > 0.83).mean() - 0.5) < 4 * math.sqrt(0.25 / 200)
    assert (farthest > 1.36).mean() < 0.05 + 4 * math.sqrt(0.0475 / 200)
    assert (farthest > 2.5).sum() == 0


def test_seeds_side_by_side_draw_apart() -> None:
    rows = np.stack(loaded(lambda: tuple(ops.random_uniform(4096, seed=s) for s in range(8)))())
    off = np.corrcoef(rows) - np.eye(8)
    assert np.abs(off).max() < 4.5 / math.sqrt(4096)
    pairs = np.bincount((rows[:4] * 8).astype(int).ravel() * 8 + (rows[4:] * 8).astype(int).ravel(), minlength=64)
    assert abs(chi_square(pairs, 4 * 4096 / 64)) < 4


@pytest.mark.parametrize("dtype", [D.int8, D.uint64, D.int64], ids=str)
@pytest.mark.parametrize("count", [2, 6, 100])
def test_integers_are_drawn_equally_often(dtype: DType, count: int) -> None:
    result = drawn(lambda: ops.random_int(COUNT, 0, count, seed=3, dtype=dtype))
    assert abs(chi_square(np.bincount(result.astype(int), minlength=count), COUNT / count)) < 4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bernoulli_is_true_as_often_as_is_asked(dtype: DType) -> None:
    chances = np.repeat([0.0, 0.25, 0.5, 1.0], COUNT).astype(dtype.numpy)
    model = loaded(lambda p: ops.bernoulli(p, seed=4), {"p": TensorType(dtype, ["n"])})
    (result,) = model(chances)
    assert result.dtype == np.bool_
    shares = result.reshape(4, -1).mean(axis=1)
    assert shares[0] == 0
    assert shares[3] == 1
    assert np.abs(shares - [0, 0.25, 0.5, 1]).max() < 4 * math.sqrt(0.25 / COUNT)
    whole = drawn(lambda: ops.bernoulli(0.25, [COUNT], seed=4, dtype=D.int8))
    assert set(whole.tolist()) == {0, 1}
    assert (whole == (counter.uniform(4, COUNT, D.float64) < 0.25)).all()


def test_categorical_draws_classes_by_their_weights() -> None:
    weights = np.array([[1, 2, 0, 5, 2], [0, 0, 1, 0, 0]], np.float64)
    logits = np.log(weights.clip(1e-30)).astype(np.float32)
    logits[weights == 0] = -np.inf
    types: dict[str, Type] = {"x": TensorType(D.float32, ["n", "k"])}
    result, one = loaded(lambda x: (ops.categorical(x, COUNT, seed=6), ops.categorical(x, seed=6)), types)(logits)
    assert result.shape == (2, COUNT)
    assert one.shape == (2,)
    counts = np.bincount(result[0], minlength=5)
    assert counts[2] == 0
    assert abs(chi_square(counts[[0, 1, 3, 4]], COUNT * weights[0, [0, 1, 3, 4]] / 10)) < 4
    assert set(result[1].tolist()) == {2}
    turned = loaded(lambda x: ops.categorical(x, seed=6), {"x": TensorType(D.float32, [3, 2, 5])})
    assert turned(np.broadcast_to(logits, (3, 2, 5)).copy())[0].shape == (3, 2)
    alone = loaded(lambda x: ops.categorical(x, seed=6), {"x": TensorType(D.float32, [1])})
    assert alone(np.ones(1, np.float32))[0].tolist() == 0


@pytest.mark.full
def test_a_permutation_has_every_number_once_and_each_place_alike() -> None:
    rows = np.stack(loaded(lambda: tuple(ops.permutation(6, seed=s) for s in range(300)))())
    assert (np.sort(rows, axis=1) == np.arange(6)).all()
    table = np.stack([np.bincount(rows[:, place], minlength=6) for place in range(6)])
    assert abs(chi_square(table.ravel(), 50)) < 4


def test_shuffle_keeps_what_is_at_one_place_together() -> None:
    x = np.arange(12, dtype=np.int16).reshape(3, 4)
    types: dict[str, Type] = {"x": TensorType(D.int16, ["?", 4])}
    rows, columns, order = loaded(
        lambda x: (ops.shuffle(x, seed=8), ops.shuffle(x, 1, seed=8), ops.permutation(4, seed=8)), types
    )(x)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, x.tolist()))
    assert (columns == x[:, order]).all()


@pytest.mark.parametrize("dtype", [D.float32, D.bfloat16, D.float64, D.int8], ids=str)
def test_dropout_drops_the_share_and_scales_the_rest(dtype: DType) -> None:
    types: dict[str, Type] = {"x": TensorType(dtype, ["n", "?"])}
    model = loaded(lambda x: tuple(ops.dropout(x, rate, seed=2) for rate in (0.25, 0.0, 1.0)), types)
    x = np.full((64, 256), 3, dtype.numpy)
    some, none, every = model(x)
    stays = counter.uniform(2, COUNT, D.float64).reshape(64, 256) < 0.75
    assert (some.astype(np.float64) == np.where(stays, 4, 0)).all()
    assert (none.astype(np.float64) == 3).all()
    assert not every.astype(np.float64).any()


# Shapes and errors


def test_nothing_scalars_and_empty_tensors_are_drawn() -> None:
    types: dict[str, Type] = {"x": TensorType(D.float32, ["n", "m"])}
    scalar, none, like = loaded(
        lambda x: (ops.random_normal([], seed=1), ops.random_int([0, 3], 0, 2, seed=1), ops.dropout(x, 0.5, seed=1)),
        types,
    )(np.zeros((0, 3), np.float32))
    assert scalar.shape == ()
    assert none.shape == (0, 3)
    assert like.shape == (0, 3)


@pytest.mark.parametrize(
    ("build", "kind", "text"),
    [
        (lambda: free.random_uniform([3], seed=1.5), DTypeError, "the seed must be an integer"),
        (lambda: ops.random_uniform([3], seed=True), DTypeError, "the seed must be an integer"),
        (lambda: ops.random_uniform([3], seed=1 << 64), DTypeError, "more than 64 bits"),
        (lambda: ops.random_uniform([3], 1.0, 1.0, seed=1), ShapeError, "low must be below high in"),
        (
            lambda: ops.random_uniform([3], 1.0, 1.001, seed=1, dtype=D.bfloat16),
            ShapeError,
            "low must be below high in bfloat16",
        ),
        (lambda: ops.random_uniform([3], -3e38, 3e38, seed=1), ShapeError, "from -3e+38 to 3e+38 overflows float32"),
        (
            lambda: ops.random_uniform([3], 0, 1e6, seed=1, dtype=D.float16),
            DTypeError,
            "high=1000000.0 cannot be held in float16",
        ),
        (lambda: ops.random_uniform([3], seed=1, dtype=D.int8), DTypeError, "int8 is not a float"),
        (lambda: ops.random_uniform(["q"], seed=1), ShapeError, "no Symbol has a dim 'q'"),
        (lambda: ops.random_uniform(["?"], seed=1), ShapeError, "unknown dim"),
        (lambda: ops.random_normal([3], 0.0, -1.0, seed=1), ShapeError, "std=-1.0 is not finite and at least 0"),
        (lambda: ops.random_normal([3], math.nan, seed=1), ShapeError, "mean=nan is not finite"),
        (lambda: ops.random_int([3], 0, 300, seed=1, dtype=D.uint8), DTypeError, "uint8 does not hold 0 to 299"),
        (lambda: ops.random_int([3], 4, 4, seed=1), ShapeError, "low must be below high, got 4 and 4"),
        (lambda: free.random_int([3], 0.0, 4, seed=1), DTypeError, "low must be an int, got 0.0"),
        (lambda: ops.random_int([3], 0, 4, seed=1, dtype=D.float32), DTypeError, "float32 is not an integer"),
        (lambda: ops.bernoulli(0.5, seed=1), ShapeError, "a Python number as p needs a shape"),
        (lambda: ops.bernoulli(np.ones(3), [3], seed=1), ShapeError, "the shape is that of p, got both"),
        (lambda: ops.categorical(np.float32(1), seed=1), ShapeError, "logits must have one or more classes"),
        (lambda: ops.categorical(np.ones((2, 0)), seed=1), ShapeError, "logits must have one or more classes"),
        (lambda: ops.categorical(np.ones(2), 0, seed=1), ShapeError, "samples must be an int >= 1, got 0"),
        (lambda: free.permutation([2, 3], seed=1), ShapeError, "n must be one dim"),
        (lambda: ops.shuffle(np.float32(1), seed=1), ShapeError, "there is no axis 0"),
        (lambda: ops.dropout(np.ones(3), 1.5, seed=1), ShapeError, "rate must be at most 1, got 1.5"),
    ],
)
def test_what_cannot_be_drawn_is_refused(build: Callable[[], Symbol], kind: type[GraphcoreError], text: str) -> None:
    with Graph("refused"), pytest.raises(kind) as raised:
        build()
    assert text in raised.value.summary
    assert raised.value.help


def test_a_seed_must_be_a_scalar_of_the_same_graph() -> None:
    graph = Graph("seeds", {"s": TensorType(D.int64, [2]), "f": TensorType(D.float32, [])})
    with graph:
        with pytest.raises(ShapeError, match=r"seed must be a scalar, got shape \[2\]"):
            ops.random_uniform([3], seed=graph[0])
        with pytest.raises(DTypeError, match="the seed must be an integer"):
            ops.random_uniform([3], seed=graph[1])
    other = Graph("other", {"s": TensorType(D.int64, [])})
    with pytest.raises(GraphError, match="belongs to graph"):
        ops.dropout(graph[1], 0.5, seed=other[0])


@pytest.mark.parametrize("system", ["kernel_float", "anvil", "array_api", "allo_hls", "numpy", "jax", "torch"])
def test_other_promotion_systems_draw_the_same(system: str) -> None:
    graph = Graph("drawn", {"x": TensorType(D.float32, [4])}, promotion=system)
    with graph:
        results = [
            ops.random_uniform([9], seed=1),
            ops.random_int([9], 0, 5, seed=1),
            ops.categorical(graph[0], 9, seed=1),
            ops.permutation(9, seed=1),
            ops.dropout(graph[0], 0.5, seed=1),
        ]
    graph.output(*results)
    got = gc.InferenceSession().load(graph)(np.zeros(4, np.float32))
    assert (got[0] == counter.uniform(1, 9, D.float32)).all()
    assert got[1].tolist() == list(counter.integers(1, 9, 0, 5))
    assert got[2].tolist() == [math.floor(4 * u) for u in counter.uniform(1, 9, D.float64)]
    assert sorted(got[3].tolist()) == list(range(9))
