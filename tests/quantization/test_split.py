"""Products of two digits of 8 bits with two: their numbers, the bound of their error, and refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ModelError, ShapeError
from graphcore.quantization import Quantized, QuantizedTensor, encode
from graphcore.runtime.lowering import lower
from tests.sampling import drawn
from tests.support.graphs import Array, pretend_bytes, run, run1

pytestmark = pytest.mark.releases

D = DType
F32 = np.float32
LIMIT = 127 * 254 + 127


def random(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def bits(x: Array) -> Array:
    return x.view(np.int32)


def held_as(w: Array, axis: int | None = 0) -> QuantizedTensor:
    return encode(w, "int8_split", axis=axis)


def product_graph(*weights: QuantizedTensor, inner: int, dtype: DType = D.float32) -> Graph:
    graph = Graph("product", {"x": TensorType(dtype, ["m", inner])})
    graph.output(*(ops.qmatmul("int8_split", graph[0], w) for w in weights))
    return graph


def product(x: Array, value: QuantizedTensor) -> Array:
    dims = [[*(f"d{i}" for i in range(x.ndim - 1)), x.shape[-1]]]
    return run1(lambda s: ops.qmatmul("int8_split", s, value), x, dims=dims, check=False)


def bound(x: Array, w: Array, axis: int | None = 0) -> Array:
    """The most that a product of x [m, k] with w [n, k] may be off, as docs/quantization.md has it."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    k = x.shape[1]
    s = (max(x.max(initial=0), 0) - min(x.min(initial=0), 0)) / 255
    t = np.abs(w).max(None if axis is None else 1, initial=0) / LIMIT
    of_x, of_w = np.abs(x).sum(1)[:, None], np.abs(w).sum(1)
    return np.asarray(64 * k * s * t + s / 490 * of_w + 0.51 * t * of_x + 2.0**-21 * (np.abs(x) @ np.abs(w).T))


def formula(x: Array, value: QuantizedTensor) -> Array:
    """The digits of x and the three sums, written again."""
    assert value.scales is not None
    least, greatest = F32(x.min(initial=0)), F32(x.max(initial=0))
    s = F32(greatest - least) / F32(255)
    s = s if s else F32(1)
    zero = np.clip(np.rint(F32(0) - least / s), 0, 255).astype(np.int64)
    first = np.clip(np.rint(x / s) + zero, 0, 255).astype(np.int64) - zero
    rest = x - first.astype(F32) * s
    second = np.clip(np.rint(rest / F32(s * F32(1 / 254))), -128, 127).astype(np.int64)
    w1, w2 = value.data.astype(np.int64)
    t = value.scales
    coarse, fine = s * (t * F32(254)), s * t
    most = (first @ w1.T).astype(F32) * coarse
    return np.asarray(most + ((first @ w2.T).astype(F32) * fine + (second @ w1.T).astype(F32) * fine))


def in_plain_onnxruntime(graph: Graph, x: Array) -> Array:
    proto = graph.to_onnx(target="onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert {node.domain for node in proto.graph.node} == {""}
    return np.asarray(onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0])


# The encoding


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_number_is_within_half_a_step_when_dequantised(axis: int | None) -> None:
    w = random(7, 33)
    value = held_as(w, axis)
    assert value.data.shape == (2, 7, 33)
    assert value.data.dtype == np.int8
    assert value.data.min() >= -127
    assert value.values.dtype == np.int16
    assert np.abs(value.values).max() == LIMIT
    assert value.scales is not None
    steps = value.scales.reshape({None: (), 0: (-1, 1), 1: (1, -1), -1: (1, -1)}[axis])
    assert (np.abs(value.dequantize() - w) <= 0.503 * steps).all()
    assert np.array_equal(value.dequantize(), value.values.astype(F32) * steps)
    assert value.nbytes == 2 * w.size + value.scales.nbytes


def test_digits_are_those_of_the_formula() -> None:
    step = 1.0 / LIMIT
    value = held_as(np.array([[1.0, -1.0, 127 * step, 128 * step, -127 * step, -128 * step, 254 * step]], F32), None)
    assert value.values.tolist() == [[LIMIT, -LIMIT, 127, 128, -127, -128, 254]]
    first, second = value.data.tolist()
    assert first == [[127, -127, 0, 1, 0, -1, 1]]
    assert second == [[127, -127, 127, -126, -127, 126, 0]]


@settings(max_examples=drawn(40))
@given(st.integers(0, 1 << 30), st.sampled_from([1e-44, 1e-38, 1.0, 1e30, 3e38]))
def test_encoding_again_changes_nothing_when_dequantised(seed: int, size: float) -> None:
    w = (np.clip(random(3, 40, seed=seed), -1, 1).astype(np.float64) * size).astype(F32)
    once = held_as(w).dequantize()
    again = held_as(once).dequantize()
    assert np.isfinite(once).all()
    assert np.abs(once - again).max() <= 1e-6 * np.abs(once).max() + 1e-44


def test_ops_dequantise_to_the_same_bits() -> None:
    w = random(5, 24)
    for axis in (None, 0, 1):
        value = held_as(w, axis)
        graph = Graph("known", {})
        with graph:
            graph.output(ops.dequantize(value))
        assert np.array_equal(bits(gc.InferenceSession().load(graph)()[0]), bits(value.dequantize()))
        assert value.scales is not None

        def fed(values: Symbol, scale: Symbol, axis: int | None = axis) -> Symbol:
            return ops.dequantize(Quantized("int8_split", values, scale, axis=axis))

        dims = [[2, "n", "k"], [{0: "n", 1: "k"}[axis]] if axis is not None else []]
        assert np.array_equal(bits(run1(fed, value.data, value.scales, dims=dims)), bits(value.dequantize()))


def test_quantize_takes_what_is_known_alone() -> None:
    w = random(4, 8)
    graph = Graph("known", {})
    with graph:
        graph.output(ops.dequantize(ops.quantize(w, "int8_split", axis=0)))
    assert np.array_equal(gc.InferenceSession().load(graph)()[0], held_as(w).dequantize())
    with pytest.raises(DTypeError, match="needs an array"):
        run(lambda s: ops.dequantize(ops.quantize(s, "int8_split")), w)


# The bound

XS: dict[str, Any] = {
    "normal": lambda r, m, k: r.standard_normal((m, k)),
    "an outlier": lambda r, m, k: r.standard_normal((m, k)) * np.where(r.random((m, k)) < 1 / (m * k), 1e4, 1),
    "columns of outliers": lambda r, m, k: r.standard_normal((m, k)) * np.where(r.random(k) < 0.1, 100, 1),
    "tiny beside huge": lambda r, m, k: r.standard_normal((m, k)) * 10.0 ** r.integers(-12, 12, (m, k)),
    "positive": lambda r, m, k: r.random((m, k)),
    "negative": lambda r, m, k: -1 - r.random((m, k)),
    "rows of zeros": lambda r, m, k: r.standard_normal((m, k)) * r.integers(0, 2, (m, 1)),
    "zeros": lambda r, m, k: np.zeros((m, k)),
    "constant rows": lambda r, m, k: np.repeat(r.standard_normal((m, 1)), k, 1),
    "halves of steps": lambda r, m, k: np.where(r.random((m, k)) < 0.5, r.integers(-127, 128, (m, k)) + 0.5, 127.5),
    "two values": lambda r, m, k: np.where(r.random((m, k)) < 0.5, -1.0, 1.0),
    "like what Gelu gives": lambda r, m, k: np.maximum(r.standard_normal((m, k)), -0.17),
}


@pytest.mark.numbers
@settings(max_examples=drawn(150))
@given(
    st.sampled_from([*XS]),
    st.sampled_from([*XS]),
    st.tuples(*[st.integers(1, n) for n in (9, 9, 70)]),
    st.sampled_from([0, -8, 10]),
    st.integers(0, 1 << 30),
)
def test_error_is_within_the_bound(of_x: str, of_w: str, sizes: tuple[int, int, int], power: int, seed: int) -> None:
    m, n, k = sizes
    r = np.random.default_rng(seed)
    x = (XS[of_x](r, m, k) * 10.0**power).astype(F32)
    w = XS[of_w](r, n, k).astype(F32)
    value = held_as(w)
    got = product(x, value)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    assert (np.abs(got - exact) <= bound(x, w)).all()
    assert np.array_equal(bits(got), bits(formula(x, value)))


@pytest.mark.numbers
@pytest.mark.parametrize("of_x", XS)
@pytest.mark.parametrize("axis", [None, 0])
def test_error_is_within_the_bound_when_many_are_summed(of_x: str, axis: int | None) -> None:
    r = np.random.default_rng(1)
    x, w = XS[of_x](r, 17, 1536).astype(F32), random(40, 1536)
    value = held_as(w, axis)
    got = product(x, value)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    assert (np.abs(got - exact) <= bound(x, w, axis)).all()
    assert np.array_equal(bits(got), bits(in_plain_onnxruntime(product_graph(value, inner=1536), x)))


@pytest.mark.numbers
def test_error_is_small_when_numbers_are_normal() -> None:
    x, w = random(64, 384), random(96, 384, seed=4)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    assert np.linalg.norm(product(x, held_as(w)) - exact) < 2e-4 * np.linalg.norm(exact)


@pytest.mark.numbers
def test_rows_of_zeros_give_zeros() -> None:
    x = random(6, 64)
    x[[1, 4]] = 0
    got = product(x, held_as(random(8, 64)))
    assert not got[[1, 4]].any()
    assert got[0].all()


@pytest.mark.numbers
@pytest.mark.parametrize("scale", [1e-45, 1e-43, 1e-38, 1e-30, 1e36])
def test_product_is_near_when_numbers_are_near_the_ends(scale: float) -> None:
    x, w = (random(4, 64).astype(np.float64) * scale).astype(F32), random(5, 64, seed=4)
    got = product(x, held_as(w))
    exact = x.astype(np.float64) @ w.T
    assert (np.abs(got - exact) <= bound(x, w) + (2e-37 if scale < 1e-30 else 0)).all()


@pytest.mark.numbers
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_product_is_not_a_number_when_x_has_one_that_is_none(odd: float, rank: int) -> None:
    x = random(*(3, 4, 64)[3 - rank :])
    x[..., 3] = odd
    value = held_as(random(5, 64))
    assert np.isnan(product(x, value)).all()
    if rank == 2:
        assert np.isnan(in_plain_onnxruntime(product_graph(value, inner=64), x)).all()


@pytest.mark.numbers
def test_product_is_not_a_number_when_the_range_of_x_is_beyond_float32() -> None:
    x = random(3, 64)
    x[0, 0], x[1, 1] = 3e38, -3e38
    assert np.isnan(product(x, held_as(random(5, 64)))).all()


def test_product_is_of_floats_when_rows_are_too_long_for_the_sums() -> None:
    x, w = np.full((1, 66_400), 255, F32), np.full((2, 66_400), 1, F32)
    value = held_as(w)
    for got in (product(x, value), in_plain_onnxruntime(product_graph(value, inner=66_400), x)):
        np.testing.assert_allclose(got, 255 * 66_400, rtol=1e-5)


# What runs


@pytest.mark.parametrize("shape", [(0, 64), (2, 0, 64), (0, 3, 64), (1, 64), (64,), (2, 3, 64), (2, 1, 3, 64)])
def test_x_may_have_any_rank(shape: tuple[int, ...]) -> None:
    x, value = random(*shape), held_as(random(5, 64))
    got = product(x, value)
    assert got.shape == (*shape[:-1], 5)
    assert np.array_equal(bits(got), bits(run1(lambda s: ops.qmatmul("int8_split", s, value), x, dims=[[*shape]])))
    want = formula(x.reshape(-1, 64), value).reshape(got.shape)
    assert np.array_equal(bits(got), bits(want))


@pytest.mark.parametrize("shape", [(0, 64), (5, 0)])
def test_product_is_zero_or_empty_when_the_weight_is_empty(shape: tuple[int, int]) -> None:
    got = product(random(3, shape[1]), held_as(np.zeros(shape, F32)))
    assert got.shape == (3, shape[0])
    assert not got.any()


@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.float64])
def test_product_is_rounded_once_when_x_is_of_another_dtype(dtype: DType) -> None:
    x, value = random(4, 64).astype(dtype.numpy), held_as(random(5, 64))
    got = product(x, value)
    assert got.dtype == dtype.numpy
    assert np.array_equal(got, formula(x.astype(F32), value).astype(dtype.numpy))


@pytest.mark.numbers
@pytest.mark.parametrize("saturating", [False, True])
def test_bits_are_the_same_when_the_weight_comes_with_the_run(
    saturating: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = pretend_bytes(monkeypatch, saturating=saturating)
    x, value = random(4, 64), held_as(random(5, 64))
    assert value.scales is not None

    def fed(s: Symbol, values: Symbol, scale: Symbol) -> Symbol:
        return ops.qmatmul("int8_split", s, Quantized("int8_split", values, scale, axis=0))

    want = bits(formula(x, value))
    dims = [["m", "k"], [2, "n", "k"], ["n"]]
    assert np.array_equal(bits(run1(fed, x, value.data, value.scales, dims=dims, check=False)), want)
    assert np.array_equal(bits(product(x, value)), want)
    graph = product_graph(value, inner=64)
    kernels = [n for n in lower(graph, "cpu", runtime=runtime).nodes if n.op_type == "MatMulIntegerToFloat"]
    dtypes = {n.inputs[1].dtype for n in kernels if n.inputs[1] is not None}
    assert dtypes == {D.uint8 if saturating else D.int8}


def test_x_is_taken_apart_once_when_several_products_read_it() -> None:
    graph = product_graph(*(held_as(random(5, 64, seed=i)) for i in range(3)), inner=64)
    operators = [n.op_type for n in lower(graph, "cpu").nodes]
    for operator in ("DynamicQuantizeLinear", "DequantizeLinear", "QuantizeLinear", "Sub", "MatMul"):
        assert operators.count(operator) == 1
    assert operators.count("MatMulIntegerToFloat") == 9


@pytest.mark.parametrize("target", ["cuda", "openvino"])
def test_product_is_of_floats_where_integers_would_be_left_to_the_cpu(target: Any) -> None:
    assert [n.op_type for n in lower(product_graph(held_as(random(5, 64)), inner=64), target).nodes] == ["MatMul"]


def test_nan_is_looked_for_with_one_row_of_zeros_when_operands_have_as_many_rows() -> None:
    graph = Graph("two", {"x": TensorType(D.float32, ["m", 64]), "y": TensorType(D.float32, ["m", 64])})
    fixed = Graph("fixed", {"x": TensorType(D.float32, [3, 64]), "y": TensorType(D.float32, [3, 64])})
    apart = Graph("apart", {"x": TensorType(D.float32, ["m", 64]), "y": TensorType(D.float32, ["n", 64])})
    unknown = Graph("unknown", {"x": TensorType(D.float32, ["?", 64]), "y": TensorType(D.float32, ["?", 64])})
    value = encode(random(5, 64), "int8", axis=0)
    x, y = random(3, 64), random(3, 64, seed=4)
    y[2, 7] = np.nan
    for g, rows in ((graph, 1), (fixed, 0), (apart, 2), (unknown, 2)):
        g.output(*(ops.qmatmul("int8", s, value, dynamic=True) for s in g.inputs))
        assert [n.op_type for n in lower(g, "cpu").nodes].count("Expand") == rows
        got, none = gc.InferenceSession().load(g)(x, y if rows < 2 else y[1:])
        assert np.isfinite(got).all()
        assert np.isnan(none).all()


def test_bias_is_added_in_the_kernel_and_rounded_with_the_first_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = pretend_bytes(monkeypatch, saturating=False)
    w, b, x = random(64, 32), random(32, seed=9), random(5, 64)
    graph = Graph("biased", {"x": TensorType(D.float32, ["m", 64])})
    graph.output(ops.qmatmul("int8_split", graph[0], held_as(w.T.copy())) + b)
    kernels = [n for n in lower(graph, "cpu", runtime=runtime).nodes if n.op_type == "MatMulIntegerToFloat"]
    assert [len(n.inputs) for n in kernels] == [7, 5, 5]
    (got,) = gc.InferenceSession().load(graph)(x)
    most = bound(x, w.T) + 2.0**-22 * np.abs(b)
    assert (np.abs(got - (x.astype(np.float64) @ w + b)) <= most).all()


# Whole graphs


def test_graph_is_quantised_with_a_report() -> None:
    graph = Graph("net", {"x": TensorType(D.float32, ["batch", 64])})
    w, v = random(64, 48), random(48, 8, seed=5)
    h = ops.relu(graph[0] @ graph.weight("w", w) + random(48, seed=6))
    graph.output(h @ graph.weight("v", v))
    result, report = gc.quantize(graph, "int8_split", min_elements=0)
    assert [row.scheme for row in report] == ["int8_split"] * 2
    assert report.before / report.after > 1.8
    assert max(row.error for row in report) < 3e-5
    x = random(9, 64, seed=8)
    (exact,), (got,) = (gc.InferenceSession().load(g)(x) for g in (graph, result))
    assert np.linalg.norm(got - exact) < 3e-4 * np.linalg.norm(exact)
    assert np.linalg.norm(in_plain_onnxruntime(result, x) - exact) < 3e-4 * np.linalg.norm(exact)
    with pytest.raises(GraphError, match="already quantised"):
        gc.quantize(result, "int8_split", min_elements=0)


# Bad input


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda s, w: encode(w, "int8_split", symmetric=False), DTypeError, "no zero points"),
        (lambda s, w: encode(w, "int8_split", block_size=32), DTypeError, "no blocks"),
        (lambda s, w: encode(w, "int8_split", reduce_range=True), DTypeError, "reduce_range"),
        (lambda s, w: encode(w * np.nan, "int8_split"), ModelError, "NaN"),
        (lambda s, w: ops.qmatmul("int8_split", s, w, accuracy_level=4), DTypeError, "no accuracy_level"),
        (lambda s, w: ops.qmatmul("int8_split", s, w, symmetric=False), DTypeError, "no zero points"),
        (lambda s, w: ops.qmatmul("int8_split", s, encode(w, "int8")), DTypeError, "encoded in int8"),
        (lambda s, w: ops.qmatmul("int8_split", s, held_as(w, 1)), ShapeError, "scales along k"),
        (lambda s, w: ops.qmatmul("int8_split", s, held_as(w[:, :8])), ShapeError, "inner dimensions"),
        (lambda s, w: ops.qmatmul("int8_split", s, ops.constant(w.astype(np.int8))), DTypeError, "need scales"),
    ],
)
def test_bad_input_is_refused(call: Any, kind: type[GraphcoreError], words: str) -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["m", 64])})
    with graph, pytest.raises(kind, match=words):
        call(graph[0], random(5, 64))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"data": np.zeros((3, 5, 64), np.int8)}, "data"),
        ({"data": np.zeros((5, 64), np.int8)}, "data"),
        ({"data": np.zeros((2, 5, 64), np.uint8)}, "data"),
        ({"scales": None}, "scales"),
        ({"scales": np.ones(64, F32)}, "scales"),
        ({"zero_points": np.zeros(5, np.uint8)}, "zero points"),
        ({"axis": 2}, "axis"),
    ],
)
def test_tensor_is_refused_when_its_parts_do_not_fit(change: dict[str, Any], word: str) -> None:
    graph = dataclasses.replace(held_as(random(5, 64)), **change)
    with pytest.raises(ModelError, match=word):
        graph.dequantize()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accuracy_level": 4}, "accuracy_level"),
        ({"block_size": 32}, "scheme .int8_split. does not take block_size"),
        ({"symmetric": True}, "symmetric"),
        ({"reduce_range": True}, "reduce_range"),
    ],
)
def test_choices_that_the_scheme_has_not_are_refused(options: dict[str, Any], words: str) -> None:
    graph = Graph("net", {"x": TensorType(D.float32, ["batch", 64])})
    graph.output(graph[0] @ random(64, 48))
    with pytest.raises(GraphError, match=words):
        gc.quantize(graph, "int8_split", **options)
