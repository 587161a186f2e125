"""Medians and quantiles against NumPy's, by every method, over any axes."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from graphcore.ops.quantiles import QuantileMethod
from tests.support.graphs import run1

pytestmark = pytest.mark.numbers

Array = np.ndarray[Any, Any]
D = DType
METHODS: tuple[QuantileMethod, ...] = get_args(QuantileMethod)


@st.composite
def reductions(draw: st.DrawFn) -> tuple[Array, tuple[int, ...] | None, bool]:
    """Draw an array with ties, some of its axes, and whether they are kept."""
    shape = draw(st.lists(st.integers(1, 5), max_size=3))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    x = random.standard_normal(shape).round(1)
    axes = draw(st.none() | st.permutations(range(len(shape))).map(lambda p: tuple(p[: draw(st.integers(1, 3))])))
    return x, axes if axes != () else None, draw(st.booleans())


@settings(max_examples=15, deadline=None)
@given(reductions(), st.sampled_from([0.3, [0.0, 1.0], [[0.25, 0.5, 0.9]], [0.1, 0.2, 0.6, 0.8]]))
def test_quantile_is_that_of_numpy_by_every_method(
    drawn: tuple[Array, tuple[int, ...] | None, bool], q: float | list[float]
) -> None:
    x, axis, keepdims = drawn
    graph = Graph("quantiles", {"x": TensorType(D.float64, [f"d{i}" for i in range(x.ndim)])})
    results = [ops.quantile(graph[0], q, axis, keepdims, method) for method in METHODS]
    graph.output(*results, ops.median(graph[0], axis, keepdims))
    *got, middle = gc.InferenceSession().load(graph)(x)
    for method, result in zip(METHODS, got, strict=True):
        want = np.quantile(x, q, axis=axis, method=method, keepdims=keepdims)
        assert result.shape == want.shape
        assert np.allclose(result, want, rtol=1e-14, atol=1e-15), method
    assert np.array_equal(middle, np.median(x, axis=axis, keepdims=keepdims))


def test_quantiles_of_lengths_and_fractions_that_only_the_run_knows() -> None:
    graph = Graph("quantiles", {"x": TensorType(D.float32, ["n", 2]), "q": TensorType(D.float32, ["k"])})
    graph.output(ops.quantile(graph["x"], graph["q"], axis=0), ops.median(graph["x"]))
    model = gc.InferenceSession().load(graph)
    q = np.array([0.5, 1, -0.5, 1.5, np.nan], np.float32)
    x = np.array([[1, 5], [3, 4], [2, 9]], np.float32)
    quantiles, middle = model(x, q)
    assert np.array_equal(quantiles, np.array([[2, 5], [3, 9], *[[np.nan] * 2] * 3]), equal_nan=True)
    assert middle == 3.5
    quantiles, middle = model(x[:0], q[:2])
    assert np.isnan(quantiles).all()
    assert np.isnan(middle)


@pytest.mark.parametrize(
    ("x", "want"),
    [
        ([1, np.nan, 3], np.nan), ([1, np.inf, np.inf], np.inf), ([-np.inf, np.inf], np.nan),
        ([-np.inf, -np.inf, 1, 2], -np.inf), ([1.7e308, 1.7e308], 1.7e308), ([-0.0, -0.0], -0.0),
    ],
)  # fmt: skip
def test_median_is_that_of_extended_reals(x: list[float], want: float) -> None:
    got = run1(ops.median, np.array(x))
    assert np.array_equal(got, want, equal_nan=True)


def test_infinities_have_quantiles_where_no_distance_is_asked() -> None:
    x = np.array([-np.inf, 0, np.inf, np.inf])
    assert run1(lambda s: ops.quantile(s, [0, 1 / 3, 2 / 3, 1]), x).tolist() == [-np.inf, 0, np.inf, np.inf]


def test_narrow_floats_round_once_and_integers_give_float64() -> None:
    x = np.array([1.0, 1.001, 3, 4], np.float16)
    assert run1(lambda s: ops.quantile(s, 0.4), x) == np.float16(np.quantile(x.astype(np.float64), 0.4))
    big = np.array([2**40, 2**40 + 1])
    assert run1(ops.median, big) == 2**40 + 0.5
    assert run1(ops.median, np.array([True, False, True])) == 1.0


def named(text: str) -> Any:
    """Return text where the types forbid it."""
    return text


def refused(call: Any) -> gc.GraphcoreError:
    graph = Graph("quantiles", {"x": TensorType(D.float32, [3, 0]), "s": TensorType(D.string, [2])})
    with pytest.raises(gc.GraphcoreError) as raised:
        call(graph)
    return raised.value


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda g: ops.quantile(g["x"], 1.5, axis=0), ShapeError, "q must be from 0 to 1, got 1.5"),
        (lambda g: ops.quantile(g["x"], [0.5, np.nan], axis=0), ShapeError, "q must be from 0 to 1"),
        (lambda g: ops.quantile(g["x"], 0.5, method=named("best")), ShapeError, "unknown method 'best'"),
        (
            lambda g: ops.quantile(g["x"], named("half"), axis=0),
            DTypeError,
            "q has unsupported type str",
        ),
        (lambda g: ops.quantile(g["x"], g["s"], axis=0), DTypeError, "q is string"),
        (lambda g: ops.median(g["x"], axis=1), ShapeError, "median of no elements is undefined"),
        (lambda g: ops.median(g["x"], axis=2), ShapeError, "median"),
        (lambda g: ops.median(g["s"]), DTypeError, "median"),
    ],
)
def test_what_has_no_quantile_is_refused(call: Any, error: type[Exception], text: str) -> None:
    raised = refused(call)
    assert isinstance(raised, error)
    assert text in str(raised)
    assert raised.help


def test_magnitude_does_not_overflow_and_knows_infinities() -> None:
    def of(*numbers: float, dtype: Any = np.float64) -> float:
        return float(run1(ops.mag, np.array(numbers, dtype)))

    assert np.isclose(of(3e200, 4e200), 5e200, rtol=1e-15)
    assert np.isclose(of(3e-200, 4e-200), 5e-200, rtol=1e-15)
    assert np.isclose(of(1e-200, 1, 1e150), 1e150, rtol=1e-15)
    assert of(3e4, 4e4, dtype=np.float16) == np.float16(5e4)
    assert of(3e30, 4e30, dtype=np.float32) == np.float32(5e30)
    assert of() == of(0, 0) == 0
    assert of(1, -np.inf) == np.inf
    assert np.isnan(of(1, np.nan))
    assert of(5e-324) == 5e-324

    def rows(x: Symbol) -> list[Symbol]:
        return [ops.mag(x, axis=-1, keepdims=True), ops.mag(x, axis=()), ops.mag(x, axis=(0, 1))]

    x = np.array([[3.0, -4], [0, 5]])
    got = [run1(lambda s, i=i: rows(s)[i], x) for i in range(3)]
    assert [g.tolist() for g in got] == [[[5], [5]], [[3, 4], [0, 5]], pytest.approx(50**0.5)]
