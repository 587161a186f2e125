"""The parts of floats beside NumPy and C: for every value of the narrow ones, at edges and at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.ops.test_special import same
from tests.support.graphs import run, run1

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
D = DType
EDGES = np.array(
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1.7e308, -1.7e308, 2.2e-308, 3, -2.5, 1e-300, 2.5e-310]
)
NARROW = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
_remainder = np.vectorize(
    lambda x, y: math.nan if math.isnan(x + y) or math.isinf(x) or not y else math.remainder(x, y), otypes=[float]
)

# Functions of two float64s.
PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "copysign": np.copysign,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0)),
    "heaviside": np.heaviside,
    "hypot": np.hypot,
    "ieee_remainder": _remainder,
    "logaddexp": lambda x, y: np.logaddexp(x, y, dtype=np.longdouble).astype(np.float64),
    "rhypot": lambda x, y: (1 / np.hypot(x.astype(np.longdouble), y.astype(np.longdouble))).astype(np.float64),
}
UNITS = {"hypot": 1, "rhypot": 2, "logaddexp": 4}
"""Units in the last place of float64; the others are exact."""


def pairs() -> tuple[Array, Array]:
    random = np.random.default_rng(2)
    drawn = random.standard_normal((2, 800)) * 10.0 ** random.uniform(-300, 300, (2, 800))
    close = random.standard_normal((2, 400)) * 10.0 ** random.uniform(-2, 2, (2, 400))
    edges = np.array(list(product(EDGES, EDGES))).T
    x, y = np.concatenate([drawn, close, edges], axis=1)
    return x.copy(), y.copy()


@pytest.mark.parametrize("name", PAIRS)
def test_pair_of_float64_is_near_c(name: str) -> None:
    x, y = pairs()
    with np.errstate(all="ignore"):
        want = PAIRS[name](x, y)
    got = run1(getattr(ops, name), x, y, dims=[["n"], ["n"]])
    unit = np.spacing(np.where(np.isfinite(want), np.abs(want), 1))
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= UNITS.get(name, 0) * unit
    wrong = ~(same(got, want) | near & (name in UNITS))
    assert not wrong.any(), (x[wrong][0], y[wrong][0], got[wrong][0], want[wrong][0])


@pytest.mark.parametrize("name", PAIRS)
def test_pair_of_float32_is_rounded_once(name: str) -> None:
    with np.errstate(all="ignore"):
        x, y = (v.astype(np.float32) for v in pairs())
        want = PAIRS[name](x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    wrong = ~same(run1(getattr(ops, name), x, y, dims=[["n"], ["n"]]), want)
    assert not wrong.any(), (x[wrong][0], y[wrong][0])


@pytest.mark.parametrize("shapes", [((), ()), ((0,), ()), ((2, 1), (3,)), ((2, 0, 1), (4,))], ids=str)
def test_logaddexp_near_0_keeps_the_shape(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (np.full(shape, math.log(0.5)) for shape in shapes)
    got = run1(ops.logaddexp, x, y, dims=[list(shape) for shape in shapes])
    assert got.shape == np.broadcast_shapes(*shapes)
    assert np.allclose(got, 2.3190468e-17, rtol=1e-6, atol=0)  # log(0.5) less its float64


@pytest.mark.parametrize("dtype", [D.float6_e2m3fn, D.float6_e3m2fn, D.float4_e2m1], ids=str)
def test_neighbours_of_small_floats(dtype: DType) -> None:
    x = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    values = np.unique(x.astype(np.float64))
    at = np.searchsorted(values, x.astype(np.float64))
    for way in (-1, 1):
        (result,) = run(ops.nextafter, x, np.full(x.shape, way * values[-1]).astype(dtype.numpy), dims=[["n"], ["n"]])
        assert np.array_equal(result.astype(np.float64), values[np.clip(at + way, 0, len(values) - 1)])
    assert np.array_equal(run(ops.nextafter, x, x, dims=[["n"], ["n"]])[0].view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, *NARROW])
def test_neighbour_is_the_next_value(dtype: Any) -> None:
    if np.dtype(dtype).itemsize > 2:
        with np.errstate(all="ignore"):
            x, y = (v.astype(dtype) for v in pairs())
    else:
        bits = np.arange(1 << 8 * np.dtype(dtype).itemsize).astype(f"uint{8 * np.dtype(dtype).itemsize}")
        x = np.tile(bits.view(dtype), 2)
        y = np.repeat(np.array([9, -9], dtype), len(bits))
    with np.errstate(all="ignore"):
        want = np.where(x == y, y, np.nextafter(x, y)).astype(dtype)
    got = run1(ops.nextafter, x, y, dims=[["n"], ["n"]])
    assert got.dtype == dtype
    assert same(got, want).all()


@pytest.mark.parametrize("dtype", [D.float8_e4m3fnuz, D.float8_e5m2fnuz], ids=str)
def test_neighbour_of_floats_without_a_negative_zero(dtype: DType) -> None:
    values = np.sort(np.delete(np.arange(256, dtype=np.uint8), 128).view(dtype.numpy).astype(np.float64))
    x, up = values[:-1].astype(dtype.numpy), values[1:].astype(dtype.numpy)
    result = run(lambda a, b: [ops.nextafter(a, b), ops.nextafter(b, a)], x, up, dims=[["n"], ["n"]])
    assert np.array_equal(result[0].astype(np.float64), values[1:])
    assert np.array_equal(result[1].astype(np.float64), values[:-1])


def test_neighbour_of_tensor_float32_is_its_own() -> None:
    graph = Graph("tf32", {"x": TensorType("tf32", ["n"]), "y": TensorType("tf32", ["n"])})
    graph.output(ops.nextafter(*graph.inputs))
    x = np.array([1, 1, 0, 0, -2, np.nan, 4], np.float32)
    (got,) = gc.InferenceSession().load(graph)(x, np.array([2, 0, 1, -1, 0, 1, 4], np.float32))
    want = [1 + 2.0**-10, 1 - 2.0**-11, 2.0**-136, -(2.0**-136), -2 + 2.0**-10, np.nan, 4]
    np.testing.assert_array_equal(got, np.array(want, np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, *NARROW])
def test_parts_make_the_number_again(dtype: Any) -> None:
    with np.errstate(all="ignore"):
        x = np.concatenate(pairs()).astype(dtype)
    parts = run(lambda s: [*ops.frexp(s), ops.logb(s), ops.signbit(s), ops.ldexp(*ops.frexp(s))], x, dims=[["n"]])
    mantissa, count, whole, sign, again = parts
    wide = x.astype(np.float64)
    want, steps = np.frexp(wide)
    finite = np.isfinite(wide)
    assert (mantissa.dtype, count.dtype, whole.dtype) == (dtype, np.int32, dtype)
    assert same(mantissa, want.astype(dtype)).all()
    assert np.array_equal(count, np.where(finite, steps, 0))
    assert same(again, x).all()
    assert np.array_equal(sign[~np.isnan(wide)], np.signbit(wide)[~np.isnan(wide)])
    some = finite & (wide != 0)
    assert np.array_equal(whole[some].astype(np.float64), (steps[some] - 1).astype(dtype).astype(np.float64))
    assert (whole[wide == 0].astype(np.float64) == -np.inf).all() or dtype is ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize("count", [np.int8, np.uint16, np.int32, np.int64, np.uint64])
def test_power_of_two_is_rounded_once(count: Any) -> None:
    random = np.random.default_rng(5)
    limits = np.iinfo(count)
    x = np.concatenate([pairs()[0], 5e-324 * random.integers(-99, 99, 50)])
    steps = random.integers(max(-2200, limits.min), min(2200, limits.max), len(x)).astype(count)
    steps[:2] = limits.min, limits.max
    got = run1(ops.ldexp, x, steps, dims=[["n"], ["n"]])
    with np.errstate(all="ignore"):
        want = np.ldexp(x, np.clip(steps.astype(object), -5000, 5000).astype(np.int32))
    assert same(got, want).all()


def test_exponent_is_an_integer_and_goes_with_the_shape() -> None:
    graph = Graph("ldexp", {"x": TensorType("float32", [3]), "y": TensorType("float32", [3])})
    x, y = graph.inputs
    with pytest.raises(DTypeError, match=r"ldexp: exponent must be an integer, got float32[\s\S]*x \* 2\*\*exponent"):
        ops.ldexp(x, y)
    with pytest.raises(ShapeError, match="ldexp: shapes do not broadcast"):
        ops.ldexp(x, np.array([1, 2]))
    assert str(ops.ldexp(x, 3).type) == "float32[3]"


def test_integers_are_of_the_float_that_holds_their_range() -> None:
    x = np.array([3, -4], np.int8)
    got = run1(ops.hypot, x, np.array([4, 3], np.int8), dims=[["n"], ["n"]])
    assert (got.dtype, got.tolist()) == (np.float16, [5, 5])
    assert run1(ops.copysign, np.array([3, 4]), x, dims=[["n"], ["n"]]).dtype == np.float64
    assert run1(ops.signbit, x).tolist() == [False, True]


def test_strings_have_no_signs() -> None:
    for name in ("signbit", "frexp", "logb"):
        with pytest.raises(DTypeError, match=name):
            run(getattr(ops, name), np.array(["a"], object), dtypes=[D.string])


def test_halves_are_rounded_away_from_zero() -> None:
    x = np.array([0.5, -0.5, 2.5, 0.49999999999999994, -3.4, 2.0**52 + 1, np.inf, np.nan, -0.0])
    assert same(run1(ops.round_half_away, x), np.array([1, -1, 3, 0, -3, 2.0**52 + 1, np.inf, np.nan, -0.0])).all()


def test_sinc_is_exactly_0_at_whole_numbers() -> None:
    x = np.array([0, 1, -2, 3e15, 0.5, -1.5, np.nan])
    got = run1(ops.sinc, x)
    assert got[:4].tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(got[4:], np.sinc(x[4:]), rtol=1e-15)


def test_running_extremes_keep_nan_and_run_backwards() -> None:
    x = np.array([[1, 3, 2], [np.nan, 0, -1]])
    result = run(lambda s: [ops.cummax(s), ops.cummin(s, 0), ops.cummin(s, -1, reverse=True)], x, dims=[["n", "m"]])
    np.testing.assert_array_equal(result[0], np.maximum.accumulate(x, 1))
    np.testing.assert_array_equal(result[1], np.minimum.accumulate(x, 0))
    np.testing.assert_array_equal(result[2], np.minimum.accumulate(x[:, ::-1], 1)[:, ::-1])
    for shape in ((0, 3), (2, 0)):
        for got in run(lambda s: [ops.cummax(s), ops.cummin(s, 0)], np.zeros(shape, np.int32), dims=[["n", "m"]]):
            assert got.shape == shape


def test_vector_product_goes_along_any_axis() -> None:
    x, y = np.arange(6).reshape(3, 2), np.array([[1], [0], [-2]])
    got = run1(lambda a, b: ops.cross(a, b, axis=-2), x, y, dims=[[3, "n"], [3, 1]])
    np.testing.assert_array_equal(got, np.cross(x, np.broadcast_to(y, x.shape), axis=0))
    with pytest.raises(ShapeError, match="cross: the vectors must have 3 elements, got 2 and 3"):
        run1(ops.cross, np.zeros(2), np.zeros(3), dims=[[2], [3]])
