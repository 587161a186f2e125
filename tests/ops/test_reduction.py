"""Reductions against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from tests.support.graphs import run1

Array = np.ndarray[Any, Any]
AXES = [None, 0, -1, (0, 2), (1,), [2, 1]]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def symbol(dtype: DType, *shape: int | str) -> Symbol:
    return Graph("test", {"x": TensorType(dtype, shape)})["x"]


def plain(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, list) else axis


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "stdev", "max", "min"])
def test_float_reduction_is_numpys_over_any_axes(name: str, axis: Any, keepdims: bool) -> None:
    x = numbers(3, 4, 5)
    want = getattr(x.astype(np.float64), {"stdev": "std"}.get(name, name))(axis=plain(axis), keepdims=keepdims)
    got = run1(lambda s: getattr(ops, name)(s, axis=axis, keepdims=keepdims), x)
    assert got.dtype == np.float32
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "stdev", "max", "min"])
def test_reduction_method_is_the_op_with_the_axis_first(name: str) -> None:
    x = numbers(3, 4)
    np.testing.assert_array_equal(
        run1(lambda s: getattr(s, name)(1), x), run1(lambda s: getattr(ops, name)(s, axis=1), x)
    )


def test_reduction_over_no_axes_gives_the_promoted_tensor() -> None:
    flags = numbers(2, 3) > 0
    for name, dtype in [
        ("sum", np.int64),
        ("prod", np.int64),
        ("mean", np.float64),
        ("max", np.bool_),
        ("any", np.bool_),
    ]:
        got = run1(lambda s, name=name: getattr(ops, name)(s, axis=()), flags)
        np.testing.assert_array_equal(got, flags.astype(dtype))
        assert got.dtype == dtype
    assert (run1(lambda s: ops.var(s, axis=()), numbers(2, 3)) == 0).all()
    x = symbol(DType.float32, "n")
    assert x.sum(()) is x


def test_reduction_of_a_scalar_is_the_scalar() -> None:
    x = np.array(2.5, np.float32)
    for name, want in [("sum", 2.5), ("mean", 2.5), ("max", 2.5), ("logsumexp", 2.5), ("stdev", 0), ("argmin", 0)]:
        assert run1(getattr(ops, name), x) == want


# Sums


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_integer_sum_and_prod_wrap_in_their_own_dtype(dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(info.min, info.max, (7, 6), dtype, endpoint=True)
    np.testing.assert_array_equal(run1(lambda s: ops.sum(s, axis=1), x), x.sum(axis=1, dtype=dtype))
    np.testing.assert_array_equal(run1(lambda s: ops.prod(s, axis=0), x), x.prod(axis=0, dtype=dtype))


def test_sum_of_bools_counts_them() -> None:
    x = numbers(4, 5) > 0
    got = run1(lambda s: ops.sum(s, axis=0), x)
    np.testing.assert_array_equal(got, x.sum(axis=0))
    assert got.dtype == np.int64


def test_sum_of_float16_accumulates_in_float32_when_the_total_needs_it() -> None:
    x = np.ones((4096, 2), np.float16)
    np.testing.assert_array_equal(run1(lambda s: ops.sum(s, axis=0), x), np.full(2, 4096, np.float16))


def test_mean_of_bfloat16_is_rounded_once() -> None:
    x = numbers(4, 500).astype(ml_dtypes.bfloat16)
    got = run1(lambda s: ops.mean(s, axis=1), x)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(got.astype(np.float32), x.astype(np.float64).mean(axis=1), rtol=2**-8)


def test_sum_of_nothing_is_0_and_product_1() -> None:
    x = np.ones((2, 0), np.float32)
    np.testing.assert_array_equal(run1(lambda s: ops.sum(s, axis=1), x), [0, 0])
    np.testing.assert_array_equal(run1(lambda s: ops.prod(s, axis=1), x), [1, 1])


@pytest.mark.parametrize("axis", [None, 0, (0, 1)], ids=str)
def test_count_nonzero_counts_numbers_and_bools(axis: Any) -> None:
    x = np.array([[0, 1.5, np.nan], [0, -0.0, 2]], np.float32)
    np.testing.assert_array_equal(run1(lambda s: ops.count_nonzero(s, axis=axis), x), np.count_nonzero(x, axis=axis))
    np.testing.assert_array_equal(run1(lambda s: ops.count_nonzero(s, axis=axis), x > 1), np.count_nonzero(x > 1, axis))


# Averages


@pytest.mark.parametrize("name", ["mean", "var", "stdev"])
def test_average_of_integers_is_float64(name: str) -> None:
    x = np.random.default_rng(2).integers(-128, 128, (5, 9), dtype=np.int8)
    got = run1(lambda s: getattr(ops, name)(s, axis=1), x)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, getattr(x, {"stdev": "std"}.get(name, name))(axis=1), rtol=1e-12)


@pytest.mark.parametrize("dims", [None, [["n", 4, 6]], [["n", "m", 6]], [[3, 4, 6]]], ids=str)
@pytest.mark.parametrize("correction", [1, 0.5])
def test_var_takes_the_correction_off_the_count(dims: Any, correction: float) -> None:
    x = numbers(3, 4, 6)
    for axis in (None, (0, 2), 1):
        got = run1(lambda s, axis=axis: ops.var(s, axis=axis, correction=correction), x, dims=dims)
        np.testing.assert_allclose(got, x.var(axis=axis, ddof=correction), rtol=1e-5)


def test_var_of_one_element_as_a_sample_is_nan() -> None:
    assert np.isnan(run1(lambda s: ops.var(s, axis=0, correction=1), np.ones((1, 2), np.float32))).all()
    assert np.isnan(
        run1(lambda s: ops.var(s, axis=0, correction=1), np.ones((1, 2), np.float32), dims=[[1, "n"]])
    ).all()


def test_stdev_of_float16_is_rounded_once_when_its_square_would_overflow() -> None:
    x = (numbers(4, 50) * 1000).astype(np.float16)
    got = run1(lambda s: ops.stdev(s, axis=1), x)
    np.testing.assert_array_equal(got, x.astype(np.float64).std(axis=1).astype(np.float16))


def test_var_of_far_numbers_does_not_cancel() -> None:
    x = numbers(3, 100) + np.float32(4096)
    np.testing.assert_allclose(run1(lambda s: ops.var(s, axis=1), x), x.astype(np.float64).var(axis=1), rtol=1e-4)


def test_logsumexp_does_not_overflow() -> None:
    x = np.array([[1000, 1000, -1000], [-np.inf, 0, 1], [-np.inf, -np.inf, -np.inf]], np.float32)
    want = np.array([1000 + np.log(2), np.log1p(np.e), -np.inf])
    np.testing.assert_allclose(run1(lambda s: ops.logsumexp(s, axis=1), x), want, rtol=1e-6)


def test_logsumexp_of_int8_is_float16() -> None:
    got = run1(lambda s: ops.logsumexp(s, axis=-1, keepdims=True), np.array([[1, 2, 3]], np.int8))
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, [[3.4076]], rtol=1e-3)


# Extremes


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int64, np.uint64, np.float16, np.float64])
def test_extremes_keep_every_dtype(dtype: Any) -> None:
    x = (numbers(4, 3, 5, seed=3) * 3).astype(np.int64).astype(dtype)
    for name in ("max", "min"):
        got = run1(lambda s, name=name: getattr(ops, name)(s, axis=(0, 2)), x)
        np.testing.assert_array_equal(got, getattr(x, name)(axis=(0, 2)))
    for name in ("argmax", "argmin"):
        got = run1(lambda s, name=name: getattr(ops, name)(s, axis=1), x)
        np.testing.assert_array_equal(got, getattr(x, name)(axis=1))


def test_nan_wins_every_extreme() -> None:
    x = np.array([[1, np.nan, 3], [1, 2, 3], [np.nan, 5, np.nan]], np.float32)
    for name in ("max", "min", "argmax", "argmin"):
        np.testing.assert_array_equal(run1(lambda s, name=name: getattr(s, name)(1), x), getattr(x, name)(1))


def test_max_of_two_tensors_compares_them() -> None:
    x, y = numbers(3, 4), numbers(4)
    dims = [["n", "m"], ["m"]]
    np.testing.assert_array_equal(run1(lambda a, b: ops.max(a, b), x, y, dims=dims), np.maximum(x, y))
    np.testing.assert_array_equal(run1(lambda a, b: ops.min(a, b), x, y, dims=dims), np.minimum(x, y))
    np.testing.assert_array_equal(run1(lambda a: ops.max(a, 0), x), np.maximum(x, 0))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_in_all_elements_when_no_axis_is_given(name: str) -> None:
    x = numbers(3, 4, 5, seed=4)
    function = getattr(np, name)
    assert run1(lambda s: getattr(ops, name)(s), x) == function(x)
    got = run1(lambda s: getattr(ops, name)(s, keepdims=True), x)
    np.testing.assert_array_equal(got, function(x, keepdims=True))
    got = run1(lambda s: getattr(ops, name)(s, 1, keepdims=True), x)
    np.testing.assert_array_equal(got, function(x, axis=1, keepdims=True))


def test_argmax_takes_the_first_of_equal_ones() -> None:
    x = np.array([[2, 7, 7], [1, 1, 1]], np.int32)
    np.testing.assert_array_equal(run1(lambda s: ops.argmax(s, axis=1), x), [1, 0])
    np.testing.assert_array_equal(run1(lambda s: ops.arg_max(s), x), [1, 0])


# Truth


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_any_and_all_read_numbers_as_truth(axis: Any) -> None:
    x = np.random.default_rng(5).integers(0, 3, (2, 3, 4), dtype=np.int32)
    for values in (x, x > 1, (x - 0.5).astype(np.float16), np.zeros_like(x)):
        np.testing.assert_array_equal(run1(lambda s: ops.any(s, axis=axis), values), np.any(values, axis=plain(axis)))
        np.testing.assert_array_equal(
            run1(lambda s: ops.all(s, axis=axis, keepdims=True), values),
            np.all(values, axis=plain(axis), keepdims=True),
        )


@pytest.mark.parametrize("dims", [None, [["n", 0]]], ids=str)
def test_any_of_nothing_is_false_and_all_true(dims: Any) -> None:
    x = np.ones((2, 0), np.bool_)
    np.testing.assert_array_equal(run1(lambda s: ops.any(s, axis=1), x, dims=dims), [False, False])
    np.testing.assert_array_equal(run1(lambda s: ops.all(s, axis=1), x, dims=dims), [True, True])


def test_any_of_a_long_axis_is_one_node() -> None:
    x = symbol(DType.bool, "n", 8)
    ops.any(x, axis=1)
    assert [node.op_type for node in x.graph.nodes] == ["ReduceMax"]


# What is inferred, what is refused


def test_reduction_keeps_symbolic_dims() -> None:
    x = symbol(DType.int8, "batch", 4, "time")
    assert ops.sum(x, axis=1).shape == ["batch", "time"]
    assert ops.mean(x, axis=(0, -1), keepdims=True).type == TensorType(DType.float64, [1, 4, 1])
    assert ops.argmax(x, axis=0).type == TensorType(DType.int64, [4, "time"])
    assert ops.argmax(x, keepdims=True).shape == [1, 1, 1]
    assert x.graph.nodes[0].op_type == "ReduceSum"


@pytest.mark.parametrize(
    "name",
    [
        "sum",
        "prod",
        "mean",
        "var",
        "stdev",
        "max",
        "min",
        "logsumexp",
        "argmax",
        "argmin",
        "any",
        "all",
        "count_nonzero",
    ],
)
def test_reduction_refuses_what_is_not_an_axis(name: str) -> None:
    x = symbol(DType.float32, "batch", 4)
    with pytest.raises(
        ShapeError, match=rf"{name}: there is no axis 2 of a tensor of rank 2\n.*\n.*must be one of -2 to 1"
    ):
        getattr(ops, name)(x, axis=2)
    if not name.startswith("arg"):
        with pytest.raises(ShapeError, match=f"{name}: axis=.* names an axis twice"):
            getattr(ops, name)(x, axis=(0, -2))
    with pytest.raises(DTypeError, match=f"{name} has no meaning for string"):
        getattr(ops, name)(symbol(DType.string, 3))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extreme_of_nothing_is_refused(name: str) -> None:
    x = symbol(DType.float32, "batch", 0)
    with pytest.raises(ShapeError, match=f"{name}: axis 1 has length 0, and {name} of no elements is undefined"):
        getattr(ops, name)(x, axis=1)
    with pytest.raises(ShapeError, match="axis 1 has length 0"):
        getattr(ops, name)(x)
    assert getattr(ops, name)(x, axis=0).shape == [0]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint16], ids=lambda d: d.__name__)
def test_extreme_of_nothing_is_the_end_of_the_dtype_when_only_the_run_knows(dtype: Any) -> None:
    graph = Graph("test", {"x": TensorType(dtype, ["rows", "columns"])})
    least, greatest = ops.max(graph["x"], axis=1), ops.min(graph["x"], axis=1)
    graph.output(least=least, greatest=greatest, wide=least.cast(DType.int32))
    model = gc.InferenceSession().load(graph)
    info = np.iinfo(dtype)
    least, greatest, wide = model(np.zeros((2, 0), dtype))
    assert [least.tolist(), greatest.tolist(), wide.tolist()] == [[info.min] * 2, [info.max] * 2, [info.min] * 2]
    x = np.array([[info.min, 3, info.max]], dtype)
    assert [y.tolist() for y in model(x)] == [[info.max], [info.min], [info.max]]


def test_max_refuses_axes_of_a_comparison() -> None:
    x = symbol(DType.float32, "batch", 4)
    with pytest.raises(ShapeError, match="max: axis and keepdims cannot be combined with a second tensor"):
        ops.max(x, x, axis=0)
    with pytest.raises(
        DTypeError, match=r"min: the second operand must be a tensor, got tuple(.|\n)*ops.min\(x, axis=\(0, 1\)\)"
    ):
        ops.min(x, (0, 1))  # type: ignore[arg-type]


def test_var_refuses_a_correction_that_is_not_a_number() -> None:
    with pytest.raises(DTypeError, match="var: correction='1' is not a number"):
        ops.var(symbol(DType.float32, 4), correction="1")  # type: ignore[arg-type]
