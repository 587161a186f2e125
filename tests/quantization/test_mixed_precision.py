"""Mixed precision: products of int8 with x in two digits, and graphs whose samples choose weights of one digit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, FeedError, GraphError
from graphcore.quantization import Quantized, QuantizedTensor, encode
from graphcore.runtime.lowering import lower
from tests.sampling import drawn
from tests.support.graphs import Array, pretend_bytes, run1

D = DType
F32 = np.float32


def random(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def bits(x: Array) -> Array:
    return x.view(np.int32)


def held_as(w: Array, symmetric: bool = False, axis: int | None = 0) -> QuantizedTensor:
    return encode(w, "int8", axis=axis, symmetric=symmetric)


def product(x: Array, value: QuantizedTensor) -> Array:
    dims = [[*(f"d{i}" for i in range(x.ndim - 1)), x.shape[-1]]]
    return run1(lambda s: ops.qmatmul("int8", s, value, dynamic=True, digits=2), x, dims=dims, check=False)


def product_graph(*weights: QuantizedTensor, inner: int, digits: int = 2) -> Graph:
    graph = Graph("product", {"x": TensorType(D.float32, ["m", inner])})
    graph.output(*(ops.qmatmul("int8", graph[0], w, dynamic=True, digits=digits) for w in weights))
    return graph


def in_plain_onnxruntime(graph: Graph, x: Array) -> Array:
    proto = graph.to_onnx(target="onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert {node.domain for node in proto.graph.node} == {""}
    return np.asarray(onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0])


def formula(x: Array, value: QuantizedTensor) -> Array:
    """Two digits of x and the two sums, written again."""
    assert value.scales is not None
    least, greatest = F32(x.min(initial=0)), F32(x.max(initial=0))
    s = F32(greatest - least) / F32(255)
    s = s if s else F32(1)
    zero = np.clip(np.rint(F32(0) - least / s), 0, 255).astype(np.int64)
    first = np.clip(np.rint(x / s) + zero, 0, 255).astype(np.int64) - zero
    rest = x - first.astype(F32) * s
    finer = F32(s * F32(1 / 254))
    second = np.clip(np.rint(rest / finer), -128, 127).astype(np.int64)
    w = value.data.astype(np.int64)
    if value.zero_points is not None:
        w = w - value.zero_points.astype(np.int64).reshape(-1, 1)
    coarse = (first @ w.T).astype(F32) * (s * value.scales)
    return np.asarray(coarse + (second @ w.T).astype(F32) * (finer * value.scales))


def bound(x: Array, w: Array, symmetric: bool) -> Array:
    """The most that a product of x [m, k] with w [n, k] may be off, as docs/quantization.md has it."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    s = (max(x.max(initial=0), 0) - min(x.min(initial=0), 0)) / 255
    least, greatest = np.minimum(w.min(1), 0), np.maximum(w.max(1), 0)
    t = np.abs(w).max(1) / 127 if symmetric else (greatest - least) / 255
    of_x, of_w = np.abs(x).sum(1)[:, None], np.abs(w).sum(1)
    rounding = 2.0**-21 * (np.abs(x) @ np.abs(w).T)
    return np.asarray(s / 490 * of_w + 0.51 * t * of_x + 0.002 * x.shape[1] * s * t + rounding)


# Products


XS: dict[str, Any] = {
    "normal": lambda r, m, k: r.standard_normal((m, k)),
    "columns of outliers": lambda r, m, k: r.standard_normal((m, k)) * np.where(r.random(k) < 0.1, 100, 1),
    "tiny beside huge": lambda r, m, k: r.standard_normal((m, k)) * 10.0 ** r.integers(-12, 12, (m, k)),
    "positive": lambda r, m, k: 0.5 + r.random((m, k)),
    "negative": lambda r, m, k: -1 - r.random((m, k)),
    "rows of zeros": lambda r, m, k: r.standard_normal((m, k)) * r.integers(0, 2, (m, 1)),
    "halves of steps": lambda r, m, k: np.where(r.random((m, k)) < 0.5, r.integers(-127, 128, (m, k)) + 0.5, 127.5),
    "like what Gelu gives": lambda r, m, k: np.maximum(r.standard_normal((m, k)), -0.17),
}


@settings(max_examples=drawn(120))
@given(
    st.sampled_from([*XS]),
    st.sampled_from([*XS]),
    st.tuples(*[st.integers(1, n) for n in (9, 9, 70)]),
    st.booleans(),
    st.integers(0, 1 << 30),
)
def test_error_is_within_the_bound(
    of_x: str, of_w: str, sizes: tuple[int, int, int], symmetric: bool, seed: int
) -> None:
    m, n, k = sizes
    r = np.random.default_rng(seed)
    x, w = XS[of_x](r, m, k).astype(F32), XS[of_w](r, n, k).astype(F32)
    value = held_as(w, symmetric)
    got = product(x, value)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    assert (np.abs(got - exact) <= bound(x, w, symmetric)).all()
    assert np.array_equal(bits(got), bits(formula(x, value)))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("of_x", XS)
def test_standard_onnx_gives_the_same_bits_when_many_are_summed(of_x: str, symmetric: bool) -> None:
    x, w = XS[of_x](np.random.default_rng(1), 17, 1536).astype(F32), random(40, 1536)
    value = held_as(w, symmetric)
    got = product(x, value)
    assert (np.abs(got - x.astype(np.float64) @ w.astype(np.float64).T) <= bound(x, w, symmetric)).all()
    assert np.array_equal(bits(got), bits(in_plain_onnxruntime(product_graph(value, inner=1536), x)))


@pytest.mark.parametrize("shape", [(0, 64), (2, 0, 64), (64,), (2, 3, 64)])
@pytest.mark.parametrize("axis", [None, 0])
def test_x_may_have_any_rank(shape: tuple[int, ...], axis: int | None) -> None:
    x, value = random(*shape), held_as(random(5, 64), axis=axis)
    got = product(x, value)
    assert got.shape == (*shape[:-1], 5)
    assert np.array_equal(bits(got), bits(formula(x.reshape(-1, 64), value).reshape(got.shape)))


@pytest.mark.parametrize("shape", [(0, 64), (5, 0)])
def test_product_is_zero_or_empty_when_the_weight_is_empty(shape: tuple[int, int]) -> None:
    got = product(random(3, shape[1]), held_as(np.zeros(shape, F32)))
    assert got.shape == (3, shape[0])
    assert not got.any()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_product_is_not_a_number_when_x_has_one_that_is_none(odd: float) -> None:
    x, value = random(4, 64), held_as(random(5, 64))
    x[1, 3] = odd
    assert np.isnan(product(x, value)).all()
    assert np.isnan(in_plain_onnxruntime(product_graph(value, inner=64), x)).all()


@pytest.mark.parametrize("saturating", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_bits_are_the_same_however_bytes_are_multiplied(
    symmetric: bool, saturating: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = pretend_bytes(monkeypatch, saturating=saturating)
    x, value = random(4, 64), held_as(random(5, 64), symmetric)
    parts = [part for part in (value.data, value.scales, value.zero_points) if part is not None]

    def fed(s: Symbol, values: Symbol, scale: Symbol, zero: Symbol | None = None) -> Symbol:
        return ops.qmatmul("int8", s, Quantized("int8", values, scale, zero, axis=0), dynamic=True, digits=2)

    want = bits(formula(x, value))
    dims = [["m", "k"], ["n", "k"], ["n"], ["n"]][: 1 + len(parts)]
    assert np.array_equal(bits(run1(fed, x, *parts, dims=dims, check=False)), want)
    for count in (1, 2):
        graph = product_graph(value, inner=64, digits=count)
        kernels = [n for n in lower(graph, "cpu", runtime=runtime).nodes if n.op_type == "MatMulIntegerToFloat"]
        assert len(kernels) == count
        assert {n.inputs[1].dtype for n in kernels if n.inputs[1] is not None} == {D.uint8 if saturating else D.int8}
    assert np.array_equal(bits(product(x, value)), want)


def test_x_is_taken_apart_once_when_products_of_one_digit_and_of_two_read_it() -> None:
    graph = Graph("both", {"x": TensorType(D.float32, ["m", 64])})
    w = random(5, 64)
    value = held_as(w)
    products = [ops.qmatmul("int8", graph[0], value, dynamic=True, digits=n) for n in (1, 2)]
    graph.output(*products, ops.qmatmul("int8_split", graph[0], encode(w, "int8_split", axis=0)))
    nodes = lower(graph, "cpu").nodes
    for operator in ("DynamicQuantizeLinear", "DequantizeLinear", "QuantizeLinear", "MatMul"):
        assert [n.op_type for n in nodes].count(operator) == 1
    kernels = [n for n in nodes if n.op_type == "MatMulIntegerToFloat"]
    assert len(kernels) == 1 + 2 + 3
    assert len({id(n.inputs[1]) for n in kernels}) == 3  # of int8 one weight, of int8_split two


def test_bias_is_added_in_the_kernel() -> None:
    w, b, x = random(32, 64), random(32, seed=9), random(5, 64)
    graph = Graph("biased", {"x": TensorType(D.float32, ["m", 64])})
    graph.output(ops.qmatmul("int8", graph[0], held_as(w), dynamic=True, digits=2) + b)
    nodes = lower(graph, "cpu").nodes
    assert [len(n.inputs) for n in nodes if n.op_type == "MatMulIntegerToFloat"] == [7, 6]
    (got,) = gc.InferenceSession().load(graph)(x)
    most = bound(x, w, False) + 2.0**-22 * np.abs(b)
    assert (np.abs(got - (x.astype(np.float64) @ w.T + b)) <= most).all()


@pytest.mark.parametrize(
    "given_",
    [{"digits": 2}, {"digits": 3, "dynamic": True}, {"digits": 0, "dynamic": True}, {"digits": True, "dynamic": True}],
)
def test_digits_that_there_are_not_are_refused(given_: dict[str, Any]) -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["m", 64])})
    with graph, pytest.raises(DTypeError, match=r"digits=.* is not possible"):
        ops.qmatmul("int8", graph[0], held_as(random(5, 64)), **given_)
    with graph, pytest.raises(DTypeError, match="int8_split always has 2"):
        ops.qmatmul("int8_split", graph[0], random(5, 64), digits=2)


# Whole graphs


def network() -> Graph:
    """Three layers: what the second one computes hardly counts in the result."""
    graph = Graph("net", {"x": TensorType(D.float32, ["batch", 64])})
    a, b, c = (graph.weight(name, random(*shape, seed=i)) for i, (name, shape) in enumerate(SHAPES.items()))
    h = ops.relu(graph["x"] @ a)
    graph.output(y=h @ c + ops.tanh(h @ b) * F32(1e-3))
    return graph


SHAPES = {"first": (64, 48), "small": (48, 40), "last": (48, 40)}


def off(result: Graph, exact: Graph, x: Array) -> float:
    session = gc.InferenceSession()
    (got,), (want,) = session.load(result)(x), session.load(exact)(x)
    return float(np.square(got.astype(np.float64) - want).sum() / np.square(want.astype(np.float64)).sum() / 2)


def schemes(result: Graph, x: Array, tolerance: float) -> dict[str, str]:
    _, report = gc.quantize(result, "int8_split", min_elements=0, samples=[{"x": x}], tolerance=tolerance)
    return {row.weight: row.scheme.removeprefix("int8_") for row in report.quantized}


def test_weights_have_one_digit_where_samples_say_that_it_is_enough() -> None:
    x, graph = random(16, 64), network()
    assert schemes(graph, x, 0) == {"first": "split", "small": "split", "last": "split"}
    assert schemes(graph, x, 1e-8) == {"first": "split", "small": "dynamic16", "last": "split"}
    assert schemes(graph, x, 1e-3) == {"first": "dynamic16", "small": "dynamic16", "last": "dynamic16"}


@pytest.mark.parametrize("tolerance", [1e-8, 1e-6, 1e-5, 3e-5])
def test_outputs_are_within_the_tolerance(tolerance: float) -> None:
    x, graph = random(16, 64), network()
    result, _ = gc.quantize(graph, "int8_split", min_elements=0, samples=[(x[:9],), (x[9:],)], tolerance=tolerance)
    assert off(result, graph, x) <= 1.01 * tolerance
    assert off(result, graph, random(16, 64, seed=8)) <= 3 * tolerance


def test_graph_with_samples_is_like_others() -> None:
    x, graph = random(16, 64), network()
    before = str(graph)
    result, report = gc.quantize(graph, "int8_split", min_elements=0, samples=[(x,)], tolerance=1e-8)
    assert str(graph) == before
    assert report.scheme == "int8_split"
    assert report.before / report.after > 2.1
    np.testing.assert_allclose(in_plain_onnxruntime(result, x), gc.InferenceSession().load(result)(x)[0], atol=1e-5)
    with pytest.raises(GraphError, match="already quantised"):
        gc.quantize(result, "int8_split", min_elements=0)


def test_table_that_is_a_head_too_can_have_one_digit() -> None:
    graph = Graph("tied", {"ids": TensorType(D.int64, ["n"])})
    table = graph.weight("table", random(64, 32))
    graph.output(y=ops.gather(table, graph["ids"]) @ table.transpose(0, 1))
    ids = np.arange(9)
    result, report = gc.quantize(graph, "int8_split", embeddings=True, samples=[(ids,)], tolerance=2e-5)
    assert [row.scheme for row in report] == ["int8", "int8_dynamic16"]
    (got,), (want,) = (gc.InferenceSession().load(g)(ids) for g in (result, graph))
    assert np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)


def test_weights_of_bodies_and_functions_are_tried_too() -> None:
    w, x = random(64, 64) / F32(8), random(5, 64)

    @gc.function
    def block(h: Symbol) -> Symbol:
        return ops.relu(h @ Graph.current().weight("w", w))

    graph = Graph("deep", {"x": TensorType(D.float32, ["rows", 64])})
    outer = graph.weight("outer", w)
    graph.output(y=ops.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, h @ outer), (0, block(graph[0])))[1])
    _, report = gc.quantize(graph, "int8_split", samples=[(x,)], tolerance=1e-4)
    assert [row.scheme for row in report] == ["int8_dynamic16"] * 2
    _, report = gc.quantize(graph, "int8_split", samples=[(x,)], tolerance=0.0)
    assert [row.scheme for row in report] == ["int8_split"] * 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "other scheme": ({"scheme": "int8"}, "scheme 'int8' does not take samples.*leave them out"),
    "no samples": ({"samples": []}, "samples must be a list of .* got \\[\\]"),
    "an array": ({"samples": np.ones((2, 64), F32)}, "samples must be a list of .* got ndarray"),
    "one mapping": (
        {"samples": {"x": np.ones((2, 64), F32)}},
        "samples must be .* got dict.*give the inputs of one run",
    ),
    "text": ({"samples": "x"}, "samples must be a list of .* got str"),
    "negative": ({"tolerance": -1e-4}, "tolerance must be a number from 0 to below 1, got -0.0001"),
    "all": ({"tolerance": 1}, "tolerance must be a number from 0 to below 1, got 1"),
    "no number": ({"tolerance": "1e-4"}, "tolerance must be a number from 0 to below 1, got '1e-4'"),
    "NaN": ({"tolerance": float("nan")}, "tolerance must be a number from 0 to below 1, got nan"),
    "bad numbers": ({"samples": [(np.full((2, 64), np.nan, F32),)]}, "outputs .* for the samples have NaN or infinity"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_samples_are_refused(case: str) -> None:
    options, words = REFUSED[case]
    options = {"scheme": "int8_split", "samples": [(random(2, 64),)], **options}
    with pytest.raises(GraphError, match=f"(?s)quantize: .*{words}"):
        gc.quantize(network(), min_elements=0, **options)


def test_samples_that_do_not_fit_the_inputs_are_refused() -> None:
    with pytest.raises(FeedError):
        gc.quantize(network(), "int8_split", min_elements=0, samples=[(random(2, 63),)])
    graph = Graph("whole", {"x": TensorType(D.float32, ["n", 64])})
    graph.output(ops.argmax(graph[0] @ random(64, 48), axis=1))
    with pytest.raises(GraphError, match="no output of floats"):
        gc.quantize(graph, "int8_split", samples=[(random(2, 64),)])
