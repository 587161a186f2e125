"""Activation functions and clipping, against their formulas in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from tests.support.graphs import Array, graph_of, run1

RNG = np.random.default_rng(3)
FLOATS: list[Any] = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
EPSILON: dict[Any, float] = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}


def erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def sigmoid(x: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def normal_below(x: Array) -> Array:
    return np.asarray((1 + erf(x / math.sqrt(2))) / 2)


def tanh_gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def softmax(x: Array, axis: int) -> Array:
    parts = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(parts / parts.sum(axis, keepdims=True))


Pair = tuple[Callable[[Symbol], Symbol], Callable[[Array], Array]]

ELEMENTWISE: dict[str, Pair] = {
    "sigmoid": (ops.sigmoid, sigmoid),
    "silu": (ops.silu, lambda x: x * sigmoid(x)),
    "gelu": (ops.gelu, lambda x: x * normal_below(x)),
    "gelu tanh": (lambda x: ops.gelu(x, approximate="tanh"), tanh_gelu),
    "gelu quick": (lambda x: ops.gelu(x, approximate="quick"), lambda x: x * sigmoid(1.702 * x)),
    "softplus": (ops.softplus, lambda x: np.logaddexp(0, x)),
    "softsign": (ops.softsign, lambda x: x / (1 + abs(x))),
    "hardswish": (ops.hardswish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "hardsigmoid": (ops.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hardsigmoid of ONNX": (lambda x: ops.hardsigmoid(x, 0.2, 0.4), lambda x: np.clip(0.2 * x + 0.4, 0, 1)),
    "mish": (ops.mish, lambda x: x * np.tanh(np.logaddexp(0, x))),
    "elu": (lambda x: ops.elu(x, 0.7), lambda x: np.where(x < 0, 0.7 * np.expm1(x), x)),
    "selu": (
        ops.selu,
        lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x),
    ),
    "celu": (lambda x: ops.celu(x, 1.3), lambda x: np.maximum(x, 0) + np.minimum(1.3 * np.expm1(x / 1.3), 0)),
    "leaky_relu": (lambda x: ops.leaky_relu(x, 0.1), lambda x: np.where(x < 0, 0.1 * x, x)),
    "thresholded_relu": (lambda x: ops.thresholded_relu(x, 0.5), lambda x: np.where(x > 0.5, x, 0)),
    "relu": (ops.relu, lambda x: np.maximum(x, 0)),
    "hardtanh": (ops.hardtanh, lambda x: np.clip(x, -1, 1)),
    "swiglu": (lambda x: ops.swiglu(x, x), lambda x: x * sigmoid(x) * x),
    "glu": (ops.glu, lambda x: x[..., :4] * sigmoid(x[..., 4:])),
    "softmax": (ops.softmax, lambda x: softmax(x, -1)),
    "logsoftmax": (lambda x: ops.logsoftmax(x, axis=0), lambda x: np.log(softmax(x, 0))),
}


def spread(dtype: Any) -> Array:
    x = np.concatenate([np.linspace(-17.5, 17.5, 60), RNG.standard_normal(36) * 2])
    return x.reshape(12, 8).astype(dtype)


def assert_near(got: Array, want: Array, dtype: Any) -> None:
    """As section 4.6 of the design has it: 4 ulps or 1e-6; 1e-12 for float64; half an ulp more for narrower floats."""
    assert got.dtype == dtype
    wide = got.astype(np.float64)
    error = {np.float64: 1e-12, np.float32: 5e-7}.get(dtype)
    if error is None:
        error = EPSILON[dtype] * 0.505
    least = 1e-12 if dtype is np.float64 else 1.1e-6
    assert (np.abs(wide - want) <= np.maximum(np.abs(want) * error, least)).all(), np.abs(wide - want).max()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_activation_equals_formula_when_of_any_float(name: str, dtype: Any) -> None:
    function, formula = ELEMENTWISE[name]
    x = spread(dtype)
    assert_near(run1(function, x, dims=[["n", 8]]), formula(x.astype(np.float64)), dtype)


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if n != "relu"])
def test_activation_gives_float_when_of_integers(name: str) -> None:
    function, formula = ELEMENTWISE[name]
    x = RNG.integers(-6, 7, (3, 8)).astype(np.int16)
    assert_near(run1(function, x, dims=[["n", 8]]), formula(x.astype(np.float64)), np.float32)


@pytest.mark.parametrize(
    ("value", "wanted"), [(np.int8, DType.float16), (np.bool_, DType.float16), (np.int32, DType.float64)]
)
def test_softmax_dtype_is_smallest_float_when_of_integers(value: Any, wanted: DType) -> None:
    graph = Graph("g", {"x": TensorType(DType.of(np.dtype(value)), ["n"])})
    assert ops.softmax(graph["x"]).dtype is wanted


def test_sigmoid_keeps_relative_accuracy_when_far_below_zero() -> None:
    x = np.array([-18.0, -20, -40, -80], np.float32)
    np.testing.assert_allclose(run1(ops.sigmoid, x), np.exp(x.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize("name", ["sigmoid", "softplus", "elu", "selu", "celu", "leaky_relu", "relu", "hardtanh"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activation_equals_formula_when_infinite_or_nan(name: str, dtype: Any) -> None:
    function, formula = ELEMENTWISE[name]
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 800, -800], dtype)
    with np.errstate(all="ignore"):
        wanted = formula(x.astype(np.float64))
    np.testing.assert_allclose(run1(function, x), wanted, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_sums_to_one_when_over_any_axis(axis: int) -> None:
    x = (RNG.standard_normal((3, 5, 4)) * 30).astype(np.float32)
    got = run1(lambda s: ops.softmax(s, axis), x)
    np.testing.assert_allclose(got, softmax(x.astype(np.float64), axis), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(got.sum(axis), 1, rtol=1e-6)


def test_softmax_gives_no_weight_when_minus_infinity() -> None:
    x = np.array([[0, -np.inf, 0]], np.float32)
    np.testing.assert_array_equal(run1(ops.softmax, x), [[0.5, 0, 0.5]])


def test_softmax_is_empty_when_there_are_no_rows() -> None:
    assert run1(ops.softmax, np.zeros((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_relu_keeps_integers_when_signed(dtype: Any) -> None:
    x = np.array([np.iinfo(dtype).min, -1, 0, 1, np.iinfo(dtype).max], dtype)
    np.testing.assert_array_equal(run1(ops.relu, x), np.maximum(x, 0))


@pytest.mark.parametrize("dtype", [DType.uint8, DType.uint64, DType.bool])
def test_relu_is_the_operand_when_it_cannot_be_negative(dtype: DType) -> None:
    graph = Graph("g", {"x": TensorType(dtype, ["n"])})
    assert ops.relu(graph["x"]) is graph["x"]


def test_relu_refuses_strings() -> None:
    graph = Graph("g", {"x": TensorType(DType.string, ["n"])})
    with pytest.raises(DTypeError, match="relu has no meaning for string"):
        ops.relu(graph["x"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3, 1), (4,), (2, 3, 4)])
def test_prelu_equals_formula_when_slope_broadcasts(shape: tuple[int, ...], dtype: Any) -> None:
    x = RNG.standard_normal((2, 3, 4)).astype(dtype)
    slope = np.asarray(RNG.standard_normal(shape)).astype(dtype)
    dims: list[list[int | str]] = [["n", 3, 4], ["n", 3, 4] if len(shape) == 3 else list(shape)]
    got = run1(ops.prelu, x, slope, dims=dims)
    np.testing.assert_allclose(got, np.where(x < 0, slope * x, x), rtol=1e-6)


def test_prelu_refuses_when_slope_is_larger_than_operand() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [1, 4]), "slope": TensorType(DType.float32, [3, 4])})
    with pytest.raises(ShapeError, match=r"prelu: slope of shape \[3, 4\] does not broadcast to x"):
        ops.prelu(graph["x"], graph["slope"])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
def test_glu_halves_the_axis_when_symbolic(axis: int, dtype: Any) -> None:
    x = RNG.standard_normal((4, 6)).astype(dtype)
    values, gates = np.split(x.astype(np.float64), 2, axis)
    assert_near(run1(lambda s: ops.glu(s, axis), x), values * sigmoid(gates), dtype)


def test_glu_refuses_when_axis_is_odd() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 5])})
    with pytest.raises(ShapeError, match="glu: axis 1 must have an even size, got 5"):
        ops.glu(graph["x"])


def test_swiglu_promotes_when_dtypes_differ() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, ["n", 4]), "y": TensorType(DType.bfloat16, [4])})
    y = ops.swiglu(graph["x"], graph["y"])
    assert str(y.type) == "bfloat16[n, 4]"


CLIPS: list[tuple[Any, Any]] = [(-2, 3), (None, 1), (0, None), (2, -2)]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("low", "high"), CLIPS)
def test_clip_equals_numpy_when_bounds_are_numbers(low: Any, high: Any, dtype: Any) -> None:
    x = np.arange(-5, 6).astype(dtype)
    np.testing.assert_array_equal(run1(lambda s: ops.clip(s, low, high), x), np.clip(x, low, high))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, ml_dtypes.bfloat16])
def test_clip_equals_numpy_when_operand_is_unsigned_or_narrow(dtype: Any) -> None:
    x = np.arange(11).astype(dtype)
    np.testing.assert_array_equal(run1(lambda s: ops.clip(s, 2, max=5), x), np.clip(np.arange(11), 2, 5).astype(dtype))


def test_clip_is_and_and_or_when_operand_is_bool() -> None:
    x = np.array([False, True])
    np.testing.assert_array_equal(run1(lambda s: ops.clip(s, True), x), [True, True])
    np.testing.assert_array_equal(run1(lambda s: ops.clip(s, max=False), x), [False, False])


def test_clip_equals_numpy_when_bounds_are_tensors() -> None:
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    low, high = np.array(-0.2, np.float32), RNG.random(4).astype(np.float32)
    got = run1(lambda s, a, b: ops.clip(s, min=a, max=b), x, low, high, dims=[["n", 4], [], [4]])
    np.testing.assert_array_equal(got, np.clip(x, low, high))


def test_clip_casts_bound_when_operand_is_wider() -> None:
    x = np.arange(-500, 500, 100).astype(np.int32)
    low = np.array(-128, np.int8)
    np.testing.assert_array_equal(run1(ops.clip, x, low), np.maximum(x, -128))


def test_clip_is_the_operand_when_there_are_no_bounds() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, ["n"])})
    assert ops.clip(graph["x"]) is graph["x"]


def test_clip_propagates_nan() -> None:
    x = np.array([np.nan, 3], np.float32)
    np.testing.assert_array_equal(run1(lambda s: ops.clip(s, -1.0, 1.0), x), [np.nan, 1])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(0.0, None), (None, 1.0), (-1.0, 1.0)])
def test_clip_keeps_infinity_when_there_is_no_bound(low: float | None, high: float | None, dtype: Any) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 2], dtype)
    got = run1(lambda s: ops.clip(s, low, high), x)
    np.testing.assert_array_equal(got.astype(np.float64), np.clip(x.astype(np.float64), low, high))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_clip_ignores_nan_as_a_scalar_bound_and_propagates_it_as_others(dtype: Any) -> None:
    x, nan = np.array([1, -2, np.inf], dtype), np.array(np.nan, dtype)
    for got in (
        run1(lambda s: ops.clip(s, math.nan, 0.5), x),
        run1(lambda s, low: ops.clip(s, low, 0.5), x, nan),
        run1(lambda s: ops.clip(s.graph.constant(x), math.nan, 0.5) + s, np.zeros(3, dtype), dims=[[3]]),
    ):
        np.testing.assert_array_equal(got.astype(np.float64), [0.5, -2, 0.5])
    got = run1(lambda s, low: ops.clip(s, low, 0.5), x, np.full(3, nan, dtype), dims=[[3], [3]])
    assert np.isnan(got.astype(np.float64)).all()


@pytest.mark.parametrize("bound", [300, -129, 2.5, float("inf")])
def test_clip_refuses_when_bound_does_not_fit(bound: float) -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, ["n"])})
    with pytest.raises(DTypeError, match=r"clip: .* cannot be held in int8"):
        ops.clip(graph["x"], bound)


def test_clip_refuses_when_bound_would_promote() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, ["n"]), "b": TensorType(DType.float32, [])})
    with pytest.raises(
        DTypeError, match=r"clip: max would promote x to float32, but bounds must not change the dtype of x"
    ):
        ops.clip(graph["x"], max=graph["b"])


def test_clip_refuses_when_shapes_do_not_broadcast() -> None:
    graph = Graph("g", {"x": TensorType(DType.int8, [3]), "b": TensorType(DType.int8, [4])})
    with pytest.raises(ShapeError, match="clip: shapes do not broadcast: 3 and 4"):
        ops.clip(graph["x"], graph["b"])


@pytest.mark.parametrize(("function", "message"), [
    (lambda x: ops.softmax(x, 2), "softmax: there is no axis 2 of a tensor of rank 2"),
    (lambda x: ops.logsoftmax(x, axis=-3), "logsoftmax: there is no axis -3"),
    (lambda x: ops.celu(x, 0.0), "celu: alpha=0 divides by zero"),
    (lambda x: ops.elu(x, math.nan), "elu: alpha=nan is not finite"),
    (lambda x: ops.elu(x, 10**400), "elu: alpha=10+ is not finite"),
])  # fmt: skip
def test_activation_refuses_when_argument_is_wrong(function: Callable[[Symbol], Symbol], message: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 4])})
    with pytest.raises(ShapeError, match=message):
        function(graph["x"])


def test_gelu_refuses_a_form_that_is_not_known_and_asks_for_one_that_is_close() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 4])})
    with pytest.raises(GraphError, match="gelu: approximate='fast' is not known\n  help: use one of 'none', 'tanh'"):
        ops.gelu(graph["x"], "fast")
    with pytest.raises(GraphError, match=r"approximate='tanhh' is not known\n  help: did you mean tanh\? use one of"):
        ops.gelu(graph["x"], "tanhh")


def test_activation_refuses_when_parameter_is_a_symbol() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 4])})
    with pytest.raises(DTypeError, match="leaky_relu: alpha must be a Python number"):
        ops.leaky_relu(graph["x"], graph["x"])  # type: ignore[arg-type]


def test_activation_is_one_onnx_operator_when_onnx_has_it() -> None:
    graph = graph_of(lambda x: ops.gelu(ops.silu(ops.softmax(x))), np.zeros((2, 2), np.float16))
    assert [n.op_type for n in graph.nodes] == ["Softmax", "Swish", "Gelu"]
    assert {n.domain for n in graph.nodes} == {""}


def test_number_beyond_float32_is_computed_with_in_float64() -> None:
    x = np.array([-2.0, 0.0, 3.0])
    assert np.allclose(run1(lambda x: ops.elu(x, 1e39), x), np.where(x < 0, 1e39 * np.expm1(x), x), rtol=1e-12)


@pytest.mark.releases
@pytest.mark.parametrize("name", ["softmax", "logsoftmax"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("at", range(4))
def test_row_with_a_nan_is_all_nan_wherever_it_stands(name: str, dtype: Any, at: int) -> None:
    x = np.arange(8, dtype=dtype).reshape(2, 4)
    x[0, at] = np.nan
    for axis, rows in ((1, x), (0, x.T)):
        result = run1(lambda x, axis=axis: getattr(ops, name)(x, axis), np.ascontiguousarray(rows))
        assert np.array_equal(np.isnan(result if axis else result.T), [[True] * 4, [False] * 4])
