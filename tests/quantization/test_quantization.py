"""int8 and int4: encoding by their formulas, dequantisation bit for bit, and products beside NumPy's."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphcoreError, GraphError, ModelError, ShapeError
from graphcore.quantization import ENCODINGS, Quantized, QuantizedTensor, encode
from graphcore.runtime.lowering import lower
from graphcore.runtime.ort import release
from tests.sampling import drawn
from tests.support.graphs import Array, pretend_bytes, run, run1

pytestmark = pytest.mark.releases

D = DType
F32 = np.float32
INT8: list[dict[str, Any]] = [
    {},
    {"axis": 0},
    {"axis": -1},
    {"symmetric": False},
    {"axis": 0, "symmetric": False},
]
INT4: list[dict[str, Any]] = [{}, {"symmetric": False}, {"block_size": 16}, {"block_size": 64, "symmetric": False}]
WAYS = [("int8", way) for way in INT8] + [("int4", way) for way in INT4]
LEVELLED = [name for name in ENCODINGS if name != "int8_split"]
"""Encodings of which products have an accuracy level."""
WEIGHTS = [(encoding, way) for encoding, way in WAYS if way.get("axis") != -1]


def random(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def bits(x: Array) -> Array:
    return x.view(np.int32)


def of_dynamic(x: Array, weight: QuantizedTensor) -> Array:
    """DynamicQuantizeLinear, MatMulInteger and their sums times both scales, as ONNX writes them."""
    assert weight.scales is not None
    least, greatest = F32(x.min(initial=0)), F32(x.max(initial=0))
    scale = F32(greatest - least) / F32(255)
    scale = scale if scale else F32(1)
    zero = np.clip(np.rint(F32(0) - least / scale), 0, 255)
    q = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int32) - np.int32(zero)
    zeros = 0 if weight.zero_points is None else weight.zero_points.astype(np.int32).reshape(-1, 1)
    sums = q @ (weight.data.astype(np.int32) - zeros).T
    return np.asarray(sums.astype(F32) * (scale * weight.scales))


def nodes_of(graph: Graph) -> list[str]:
    return [node.op_type for node in lower(graph, "cpu").nodes]


def product_graph(*weights: QuantizedTensor, inner: int, dtype: DType = D.float32, **options: Any) -> Graph:
    graph = Graph("product", {"x": TensorType(dtype, ["m", inner])})
    graph.output(*(ops.qmatmul(w.encoding, graph[0], w, **options) for w in weights))
    return graph


# Encoding


@pytest.mark.parametrize(("encoding", "way"), WAYS)
def test_encoding_is_within_half_a_step_when_dequantised(encoding: str, way: dict[str, Any]) -> None:
    x = random(6, 128)
    result = encode(x, encoding, **way)
    assert result.scales is not None
    steps = np.abs(result.scales)
    if encoding == "int4":
        steps = np.repeat(steps, 128 // steps.shape[1], 1)
    elif result.axis is not None:
        steps = steps.reshape([-1, 1] if result.axis == 0 else [1, -1])
    error = np.abs(result.dequantize() - x)
    limit = steps * 0.5001
    if encoding == "int4" and way.get("symmetric", True):
        limit = steps * 1.0001  # what is opposite to the greatest magnitude is cut to 7
    assert (error <= limit).all()
    assert result.shape == x.shape
    assert result.dequantize().dtype == F32


@settings(max_examples=drawn(60))
@given(st.sampled_from(WAYS), st.integers(0, 1 << 30), st.sampled_from([1e-44, 1e-38, 1.0, 1e30]))
def test_encoding_again_changes_nothing_when_dequantised(
    pair: tuple[str, dict[str, Any]], seed: int, size: float
) -> None:
    encoding, way = pair
    x = (random(2, 64, seed=seed).astype(np.float64) * size).astype(F32)
    once = encode(x, encoding, **way).dequantize()
    again = encode(once, encoding, **way).dequantize()
    assert np.abs(once - again).max() <= 2e-6 * np.abs(once).max() + 1e-44


def test_values_are_those_of_the_formulas_when_small() -> None:
    x = np.array([[-1.0, 0.5, 0.0, 2.54]], F32)
    result = encode(x, "int8")
    assert result.data.tolist() == [[-50, 25, 0, 127]]
    assert result.scales is not None
    assert result.scales.tolist() == float(F32(2.54) / F32(127))
    long = np.zeros((1, 32), F32)
    long[0, :3] = 8, -7, 1
    four = encode(long, "int4")
    assert four.values[0, :4].tolist() == [0, 15, 7, 8]  # the greatest magnitude becomes -8
    assert four.scales is not None
    assert four.scales.tolist() == [[-1.0]]
    between = encode(long, "int4", symmetric=False)
    assert between.scales is not None
    assert between.zero_points is not None
    assert (between.scales.tolist(), between.zero_points.tolist()) == ([[1.0]], [[7]])
    assert between.values[0, :4].tolist() == [15, 0, 8, 7]


@pytest.mark.parametrize("symmetric", [True, False])
def test_search_is_nearer_when_asked_for(symmetric: bool) -> None:
    x = random(16, 256)
    plain, fitted = (encode(x, "int4", symmetric=symmetric, search=search) for search in (False, True))
    losses = [np.square(item.dequantize() - x).sum() for item in (plain, fitted)]
    assert losses[1] < 0.97 * losses[0]


def test_zeros_are_held_exactly_when_all_are() -> None:
    for encoding, way in WAYS:
        result = encode(np.zeros((2, 64), F32), encoding, **way)
        assert result.scales is not None
        assert (result.scales == 1).all()
        assert not result.dequantize().any()


@pytest.mark.parametrize(("encoding", "way"), WAYS)
@pytest.mark.parametrize("shape", [(0, 64), (3, 0)])
def test_nothing_is_encoded_when_an_array_is_empty(encoding: str, way: dict[str, Any], shape: tuple[int, int]) -> None:
    result = encode(np.zeros(shape, F32), encoding, **way)
    assert result.dequantize().shape == shape


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_floats_of_other_dtypes_are_encoded_as_float32(dtype: Any) -> None:
    x = random(4, 64).astype(dtype)
    for encoding in ENCODINGS:
        x_of = np.tile(x, (1, 4))
        assert encode(x_of, encoding).data.tobytes() == encode(x_of.astype(F32), encoding).data.tobytes()


def test_bytes_are_few() -> None:
    x = random(64, 256)
    sizes = {name: encode(x, name).nbytes * 8 / x.size for name in ENCODINGS}
    assert sizes["int8"] == pytest.approx(8, abs=0.01)
    assert sizes["int8_split"] == pytest.approx(16, abs=0.01)
    assert {name: sizes[name] for name in ENCODINGS if not name.startswith("int8")} == {
        "int4": 5.0, "q4_0": 4.5, "q4_k": 4.5, "q5_k": 5.5, "q6_k": 6.5625,
    }  # fmt: skip


# Quantising and dequantising in a graph


@pytest.mark.numbers
@pytest.mark.parametrize(("encoding", "way"), WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_quantize_gives_the_numbers_of_encode_when_the_graph_runs(
    encoding: str, way: dict[str, Any], dtype: Any
) -> None:
    x = random(3, 5, 64).astype(dtype)
    x[0, 0] = 0
    want = encode(x, encoding, **way)

    def parts(symbol: Symbol) -> list[Symbol]:
        y = ops.quantize(symbol, encoding, **way)
        return [s for s in (y.values, y.scale, y.zero_point) if s is not None]

    got = run(parts, x, dims=[["b", "n", 64]])
    wanted = [a for a in (want.values, want.scales, want.zero_points) if a is not None]
    for a, b in zip(got, wanted, strict=True):
        assert np.array_equal(a.astype(F32), b)


@pytest.mark.numbers
@pytest.mark.parametrize(("encoding", "way"), WAYS)
def test_dequantize_gives_the_same_bits_when_known_or_computed(encoding: str, way: dict[str, Any]) -> None:
    x = random(4, 64)
    value = encode(x, encoding, **way)

    def both(symbol: Symbol) -> tuple[Symbol, ...]:
        return (
            ops.dequantize(value),
            ops.dequantize(encoding, ops.quantize(symbol, encoding, **way)),
            ops.dequantize(encoding.upper(), ops.quantize(x, encoding, **way)),
        )

    for item in run(both, x, dims=[["n", 64]]):
        assert np.array_equal(bits(item), bits(value.dequantize()))


def test_dequantize_takes_packed_int4_when_it_comes_as_an_input() -> None:
    value = encode(random(3, 64), "int4", symmetric=False)
    assert value.scales is not None
    assert value.zero_points is not None

    def function(values: Symbol, scale: Symbol, zero: Symbol) -> Symbol:
        return ops.dequantize(Quantized("int4", values, scale, zero, block_size=32))

    got = run1(function, value.data, value.scales, value.zero_points, dims=[["n", 32], ["n", 2], ["n", 2]])
    assert np.array_equal(bits(got), bits(value.dequantize()))
    without = dataclasses.replace(value, zero_points=None)
    pair = lambda v, s: ops.dequantize(Quantized("int4", v, s, block_size=32))  # noqa: E731
    got = run1(pair, value.data, value.scales, dims=[["n", 32], ["n", 2]])
    assert np.array_equal(bits(got), bits(without.dequantize()))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_shares_a_scale_with_no_finite_number_is_none_when_the_graph_runs(odd: float) -> None:
    x = random(2, 64)
    x[0, 5] = odd
    way = lambda s: ops.dequantize(ops.quantize(s, "int8", axis=0))  # noqa: E731
    got = run1(way, x, dims=[["n", 64]])
    assert not np.isfinite(got[0]).any()
    assert np.isfinite(got[1]).all()
    blocks = run1(lambda s: ops.dequantize(ops.quantize(s, "int4")), x, dims=[["n", 64]])
    assert not np.isfinite(blocks[0, :32]).any()
    assert np.isfinite(blocks[0, 32:]).all()


def test_quantize_takes_integers_and_empties_as_floats() -> None:
    whole = np.arange(-4, 4, dtype=np.int8).reshape(1, 8)
    result = run1(lambda s: ops.dequantize(ops.quantize(s)), whole)
    assert np.abs(result - whole).max() <= 4 / 127
    empty = run(lambda s: [(q := ops.quantize(s, axis=0)).values, ops.dequantize(q)], np.zeros((0, 4), F32))
    assert [r.shape for r in empty] == [(0, 4), (0, 4)]


# Products


@pytest.mark.numbers
@pytest.mark.parametrize(("encoding", "way"), WEIGHTS)
@pytest.mark.parametrize("rows", [(), (1,), (5,), (0,), (2, 3), (2, 0, 3)])
def test_product_is_that_of_the_dequantised_weight(encoding: str, way: dict[str, Any], rows: tuple[int, ...]) -> None:
    x, value = random(*rows, 128), encode(random(7, 128, seed=5), encoding, **way)
    dims = [[*(f"d{i}" for i in range(len(rows))), 128]]
    got = run1(lambda s: ops.qmatmul(encoding, s, value), x, dims=dims)
    weight = value.dequantize().astype(np.float64)
    error = np.abs(got - x @ weight.T)
    assert (error <= 1e-6 * (np.abs(x) @ np.abs(weight).T)).all()


@pytest.mark.parametrize("target", ["onnx", "cuda"])
@pytest.mark.parametrize(("encoding", "way"), WEIGHTS)
def test_product_is_valid_standard_onnx_when_asked_for(target: Any, encoding: str, way: dict[str, Any]) -> None:
    value = encode(random(7, 64, seed=5), encoding, **way)
    graph = Graph("product", {"x": TensorType(D.float32, ["m", 64])})
    results = [ops.qmatmul(encoding, graph[0], value)]
    if encoding == "int8":
        results.append(ops.qmatmul(encoding, graph[0], value, dynamic=True))
    graph.output(*results)
    model = graph.to_onnx(target=target)
    onnx.checker.check_model(model, full_check=True)
    assert {o.domain for o in model.opset_import} == {""}
    x = random(3, 64)
    session = gc.InferenceSession().load(model)
    got = session(x)
    assert np.abs(got[0] - x @ value.dequantize().T).max() < 1e-4
    if encoding == "int8":
        assert np.array_equal(bits(got[1]), bits(of_dynamic(x, value)))


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [D.float16, D.bfloat16, D.float64, D.tensor_float32, D.int8, D.int16, D.bool])
def test_product_is_rounded_once_when_x_is_of_another_dtype(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2 if dtype is D.bool else 8, (3, 64)).astype(F32).astype(dtype.numpy)
    weight = QuantizedTensor("int8", (5, 64), rng.integers(-9, 9, (5, 64)).astype(np.int8), np.array(0.5, F32))
    for options in ({}, {"dynamic": True}):
        got = run1(lambda s, o=options: ops.qmatmul("int8", s, weight, **o), x, dims=[["m", 64]], dtypes=[dtype])
        wide = x.astype(F32)
        sums = of_dynamic(wide, weight) if options else (wide.astype(np.float64) @ weight.dequantize().T)
        gives = {D.int8: np.float16, D.bool: np.float16, D.int16: np.float32}.get(dtype, dtype.numpy)
        assert got.dtype == gives
        want = sums if dtype is not D.tensor_float32 else (sums.astype(F32).view(np.uint32) + 0).view(F32)
        if dtype is D.tensor_float32:
            assert np.abs(got - want).max() <= 2.0**-10 * np.abs(want).max()
        else:
            assert np.array_equal(got, want.astype(gives))


@pytest.mark.numbers
def test_product_is_of_float64_when_x_is() -> None:
    x, value = random(3, 64).astype(np.float64) + 1e-9, encode(random(7, 64), "int4")
    got = run1(lambda s: ops.qmatmul("int4", s, value), x, dims=[["m", 64]])
    assert np.abs(got - x @ value.dequantize().astype(np.float64).T).max() < 1e-13


@pytest.mark.numbers
@pytest.mark.parametrize(("encoding", "way"), WEIGHTS)
def test_product_is_the_same_when_the_weight_comes_with_the_run(encoding: str, way: dict[str, Any]) -> None:
    x, w = random(3, 64), random(5, 64, seed=9)
    both = lambda s, t: ops.qmatmul(encoding, s, ops.quantize(t, encoding, **way))  # noqa: E731
    got = run1(both, x, w, dims=[["m", 64], [5, 64]])
    assert np.abs(got - x @ encode(w, encoding, **way).dequantize().T).max() < 1e-5


def test_product_encodes_an_array_when_given_floats() -> None:
    x, w = random(3, 64), random(5, 64, seed=9)
    got = run(lambda s: [ops.qmatmul("int8", s, w), ops.qmatmul("int4", s, w)], x, dims=[["m", 64]])
    for item, element in zip(got, (encode(w, "int8", axis=0), encode(w, "int4", search=True)), strict=True):
        assert np.abs(item - x @ element.dequantize().T).max() < 1e-5


def test_weight_that_its_owner_may_change_is_read_when_the_graph_is_loaded() -> None:
    first, second = (encode(random(5, 64, seed=s), "int8", axis=0) for s in (1, 2))
    assert first.scales is not None
    graph = Graph("owned", {"x": TensorType(D.float32, ["m", 64])})
    value = Quantized("int8", graph.weight("w", first.data), graph.weight("s", first.scales), axis=0)
    graph.output(ops.qmatmul("int8", graph[0], value), ops.qmatmul("int8", graph[0], value, dynamic=True))
    x = random(3, 64)
    assert second.scales is not None
    changed: dict[str, Array] = {"w": second.data, "s": second.scales}
    for tensor, weights in ((first, {}), (second, changed)):
        exact, dynamic = gc.InferenceSession().load(graph, weights=weights)(x)
        assert np.abs(exact - x @ tensor.dequantize().T).max() < 1e-5
        assert np.array_equal(bits(dynamic), bits(of_dynamic(x, tensor)))


@pytest.mark.numbers
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 3e38, -0.0, 1e-40])
def test_product_is_that_of_floats_when_x_is_extreme(odd: float) -> None:
    x = random(4, 64)
    x[1, 5], x[2], x[3] = odd, odd, -0.0
    value = encode(np.abs(random(5, 64)) + 0.1, "int4")
    got = run1(lambda s: ops.qmatmul("int4", s, value), x, dims=[["m", 64]])
    with np.errstate(all="ignore"):
        want = (x.astype(np.float64) @ value.dequantize().astype(np.float64).T).astype(F32)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
    assert np.allclose(got[finite], want[finite], rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("shape", [(0, 64), (5, 0)])
def test_product_is_zero_or_empty_when_the_weight_is_empty(shape: tuple[int, int]) -> None:
    x = random(3, shape[1])
    for options in ({}, {"dynamic": True}, {"accuracy_level": 4}):
        value = encode(np.zeros(shape, F32), "int8", axis=0)
        got = run1(lambda s, h=value, o=options: ops.qmatmul("int8", s, h, **o), x, dims=[["m", shape[1]]])
        assert got.shape == (3, shape[0])
        assert not got.any()


@pytest.mark.numbers
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("rows", [1, 2, 17])
def test_product_is_right_when_the_weight_has_few_rows_and_x_is_of_unknown_length(encoding: str, rows: int) -> None:
    x, value = random(3, 256), encode(random(rows, 256, seed=5), encoding)
    ways: list[dict[str, Any]] = [{}, {"accuracy_level": 4}] if encoding in LEVELLED else [{}]
    if encoding == "int8":
        ways.append({"dynamic": True})
    got = run(lambda s: [ops.qmatmul(encoding, s, value, **w) for w in ways], x, dims=[["?", "?"]], check=False)
    want = x @ value.dequantize().T
    assert np.abs(got[0] - want).max() < (0.01 if encoding == "int8_split" else 1e-4)
    assert all(np.abs(g - want).max() < 2 for g in got)


@pytest.mark.numbers
def test_product_is_right_when_all_of_the_weight_is_of_unknown_length() -> None:
    x, value = random(3, 64), encode(random(5, 64, seed=5), "int8", axis=0)
    assert value.scales is not None

    def products(s: Symbol, values: Symbol, scale: Symbol) -> list[Symbol]:
        result = Quantized("int8", values, scale, axis=0)
        return [ops.qmatmul("int8", s, result), ops.qmatmul("int8", s, result, dynamic=True)]

    got = run(products, x, value.data, value.scales, dims=[["m", "k"], ["n", "k"], ["n"]])
    assert np.abs(got[0] - x @ value.dequantize().T).max() < 1e-5
    assert np.array_equal(bits(got[1]), bits(of_dynamic(x, value)))


# Dynamic products


@pytest.mark.numbers
@pytest.mark.parametrize("way", [w for w in INT8 if w.get("axis") != -1] + [{"axis": 0, "reduce_range": True}])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e-38, 1e-43, 1e37])
def test_dynamic_product_is_onnx_bit_for_bit(way: dict[str, Any], scale: float) -> None:
    value = encode(random(9, 96, seed=4), "int8", **way)
    samples = [random(4, 96), random(2, 3, 96), np.abs(random(1, 96)), -np.abs(random(5, 96)), np.zeros((0, 96), F32)]
    for sample in samples:
        x = (sample.astype(np.float64) * scale).astype(F32)
        dims = [[*(f"d{i}" for i in range(x.ndim - 1)), 96]]
        got = run1(lambda s: ops.qmatmul("int8", s, value, dynamic=True), x, dims=dims, check=False)
        with np.errstate(all="ignore"):
            want = of_dynamic(x, value)
        assert np.array_equal(bits(got), bits(want))


@pytest.mark.numbers
@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 80), st.integers(0, 1 << 30))
def test_dynamic_product_is_onnx_bit_for_bit_when_of_any_size(m: int, n: int, k: int, seed: int) -> None:
    value = encode(random(n, k, seed=seed), "int8", axis=0)
    x = random(m, k, seed=seed + 1)
    got = run1(lambda s: ops.qmatmul("int8", s, value, dynamic=True), x, dims=[["m", k]], check=False)
    assert np.array_equal(bits(got), bits(of_dynamic(x, value)))


@pytest.mark.numbers
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_dynamic_product_is_not_a_number_when_x_has_one_that_is_none(odd: float) -> None:
    value = encode(random(5, 64), "int8", axis=0)
    x = random(3, 64)
    x[1, 3] = odd
    assert np.isnan(run1(lambda s: ops.qmatmul("int8", s, value, dynamic=True), x, dims=[["m", 64]])).all()


@pytest.mark.numbers
@pytest.mark.parametrize("way", [{}, {"axis": 0}, {"axis": 0, "reduce_range": True}])
def test_dynamic_product_is_the_same_when_bytes_saturate(way: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = pretend_bytes(monkeypatch, saturating=True)
    w, x = random(5, 64), random(3, 64)
    value = encode(w, "int8", **way)
    graph = product_graph(value, inner=64, dynamic=True)
    dtypes = [
        s.dtype for s in next(n for n in lower(graph, "cpu", runtime=runtime).nodes if n.domain).inputs if s is not None
    ]
    assert dtypes[1] is (D.int8 if "reduce_range" in way else D.uint8)
    (got,) = gc.InferenceSession().load(graph)(x)
    assert np.array_equal(bits(got), bits(of_dynamic(x, value)))
    if "reduce_range" not in way:
        fed = run1(
            lambda s, t: ops.qmatmul("int8", s, ops.quantize(t, **way), dynamic=True),
            x, w, dims=[["m", 64], [5, 64]], check=False,
        )  # fmt: skip
        assert np.array_equal(bits(fed), bits(of_dynamic(x, value)))


@pytest.mark.parametrize("encoding", ["int8", "int8_split"])
def test_file_is_the_same_when_processors_differ(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = product_graph(encode(random(5, 64), encoding, axis=0), inner=64)
    dynamic = product_graph(encode(random(5, 64), "int8", axis=0), inner=64, dynamic=True)
    for g in (graph, dynamic):
        files, loaded = set(), set()
        for saturating in (False, True):
            runtime = pretend_bytes(monkeypatch, saturating=saturating, runs=False)
            monkeypatch.setattr(release, "saturates", lambda saturating=saturating: saturating)
            files.add(g.to_onnx().SerializeToString(deterministic=True))
            loaded.add(
                str([s.dtype for n in lower(g, "cpu", runtime=runtime).nodes for s in n.inputs if s is not None])
            )
        assert len(files) == 1
        assert len(loaded) == (1 if encoding == "int8" and g is graph else 2)


# Kernels


def test_kernel_takes_the_weight_when_it_is_known() -> None:
    w = random(5, 64)
    assert nodes_of(product_graph(encode(w, "int4"), inner=64)) == ["MatMulNBits"]
    assert nodes_of(product_graph(encode(w, "int4"), inner=64, dtype=D.float16)) == ["Cast", "MatMulNBits", "Cast"]
    assert "MatMulIntegerToFloat" in nodes_of(product_graph(encode(w, "int8"), inner=64, dynamic=True))
    assert nodes_of(product_graph(encode(w, "int8"), inner=64)) == ["MatMul"]
    assert "MatMulNBits" in nodes_of(product_graph(encode(w, "int8"), inner=64, accuracy_level=4))


@pytest.mark.parametrize("options", [{}, {"accuracy_level": 4}])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_weight_is_packed_once_when_several_nodes_share_it(encoding: str, options: dict[str, Any]) -> None:
    value = encode(random(4, 256), encoding)
    lowered = lower(product_graph(value, value, inner=256, **(options if encoding in LEVELLED else {})), "cpu")
    products = [n for n in lowered.nodes if n.op_type in ("MatMulNBits", "MatMulIntegerToFloat")]
    products = products or [n for n in lowered.nodes if n.op_type == "MatMul"]
    half = len(products) // 2
    assert len(products) == (6 if encoding == "int8_split" else 2)
    assert all(a.inputs[1] is b.inputs[1] for a, b in zip(products[:half], products[half:], strict=True))


@pytest.mark.parametrize("target", ["onnx", "cpu"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_file_holds_a_weight_once_when_several_nodes_share_it(encoding: str, target: Any) -> None:
    value = encode(random(128, 256), encoding)
    sizes = [len(product_graph(*[value] * n, inner=256).to_onnx(target=target).SerializeToString()) for n in (1, 3)]
    assert sizes[1] < sizes[0] + 4000 < sizes[0] + value.nbytes


def test_weights_are_told_apart_when_they_share_scales() -> None:
    x, scale = random(3, 32), np.ones((4, 1), F32)
    graph = Graph("apart", {"x": TensorType(D.float32, ["m", 32])})
    numbers = [np.full((4, 32), n, np.uint8).astype(D.uint4.numpy) for n in range(16)]
    one = graph.constant(scale)
    graph.output(
        *(ops.qmatmul("int4", graph[0], Quantized("int4", graph.constant(n), one, block_size=32)) for n in numbers)
    )
    for n, got in enumerate(gc.InferenceSession().load(graph)(x)):
        assert np.allclose(got, x.sum(1, keepdims=True) * (n - 8), atol=1e-4)


@pytest.mark.numbers
@pytest.mark.parametrize("encoding", LEVELLED)
@pytest.mark.parametrize("rows", [1, 5])
def test_level_4_is_near_and_keeps_what_is_not_a_number(encoding: str, rows: int) -> None:
    value = encode(random(64, 512), encoding)
    x = random(rows + 1, 512)
    x[rows, 7] = np.nan
    got = run1(lambda s: ops.qmatmul(encoding, s, value, accuracy_level=4), x, dims=[["m", 512]], check=False)
    want = x @ value.dequantize().T
    assert np.linalg.norm(got[:rows] - want[:rows]) < 0.015 * np.linalg.norm(want[:rows])
    assert np.isnan(got[rows]).all()


def test_level_4_is_exact_when_no_block_divides_a_row() -> None:
    value = encode(random(4, 24), "int8")
    assert nodes_of(product_graph(value, inner=24, accuracy_level=4)) == ["MatMul"]


@pytest.mark.numbers
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_products_of_what_is_dequantised_are_exact_when_they_are_large(encoding: str) -> None:
    """onnxruntime makes of DequantizeLinear and MatMul a product whose x is held in int8, if the weight is constant."""
    value = encode(random(512, 512), encoding)
    x = random(4, 512)
    graph = Graph("large", {"x": TensorType(D.float32, ["m", 512])})
    graph.output(graph[0] @ dequantized(graph, value).T, graph[0] @ owned(graph, value).T)
    want = x.astype(np.float64) @ value.dequantize().T.astype(np.float64)
    for got in gc.InferenceSession().load(graph)(x):
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def dequantized(graph: Graph, value: QuantizedTensor) -> Symbol:
    with graph:
        y: Symbol = ops.dequantize(value)
    return y


def owned(graph: Graph, value: QuantizedTensor) -> Symbol:
    """The tensor dequantised, held in weights of the graph."""
    scale = None if value.scales is None else graph.weight("scale", value.scales)
    result = Quantized(value.encoding, graph.weight("w", value.data), scale, None, value.axis, value.block_size)
    return ops.dequantize(result)


# Elsewhere


@pytest.mark.numbers
def test_products_stay_right_in_bodies_functions_copies_and_passes() -> None:
    value = encode(random(64, 64), "int8", axis=0)

    @gc.function
    def layer(x: Symbol) -> Any:
        return ops.qmatmul("int8", x, value, dynamic=True)

    def function(x: Symbol, again: Symbol) -> Any:
        return ops.cond(again, lambda: layer(layer(x)), lambda: ops.qmatmul("int8", x, value))

    x = random(3, 64)
    graph = Graph("around", {"x": TensorType(D.float32, ["m", 64]), "again": TensorType(D.bool)})
    graph.output(function(*graph.inputs))
    want = {True: of_dynamic(of_dynamic(x, value), value), False: x @ value.dequantize().T}
    for copy in (graph, pickle.loads(pickle.dumps(graph)), graph.optimize()):
        model = gc.InferenceSession().load(copy)
        for again, numbers in want.items():
            (got,) = model(x, np.array(again))
            assert np.allclose(got, numbers, rtol=1e-5, atol=1e-4)


def test_weight_of_the_graph_around_is_packed_in_a_body_too() -> None:
    value = encode(random(5, 64), "int4")
    graph = Graph("around", {"x": TensorType(D.float32, ["m", 64]), "again": TensorType(D.bool)})
    x, again = graph.inputs
    outer = ops.quantize(graph.constant(random(5, 64)), "int4")
    graph.output(ops.cond(again, lambda: ops.qmatmul("int4", x, outer), lambda: ops.qmatmul("int4", x * 2, outer)))
    bodies = [v for v in lower(graph, "cpu").nodes[-1].attributes.values() if isinstance(v, Graph)]
    assert all("MatMulNBits" in [n.op_type for n in body.nodes] for body in bodies)
    for way in (True, False):
        (got,) = gc.InferenceSession().load(graph)(random(3, 64, seed=4), np.array(way))
        assert np.allclose(got, random(3, 64, seed=4) @ value.dequantize().T * (2 - way), atol=1e-4)


def test_exported_model_runs_when_loaded_again(tmp_path: Any) -> None:
    x = random(3, 64)
    graph = product_graph(encode(random(5, 64), "int4"), encode(random(5, 64), "int8"), inner=64)
    graph.export(tmp_path / "q.onnx")
    want = gc.InferenceSession().load(graph)(x)
    for model in (tmp_path / "q.onnx", Graph.load(tmp_path / "q.onnx")):
        got = gc.InferenceSession().load(model)(x)
        assert all(np.array_equal(bits(a), bits(b)) for a, b in zip(got, want, strict=True))


# What is refused


def refusal(call: Any, kind: type[GraphcoreError], *words: str) -> None:
    graph = Graph("refused", {"x": TensorType(D.float32, ["m", 64]), "b": TensorType(D.uint8, ["n", 18])})
    with graph, pytest.raises(kind) as raised:
        call(*graph.inputs)
    assert raised.value.help
    for word in words:
        assert word in str(raised.value)


W = random(5, 64)
HELD = encode(W, "int8", axis=0)
WRONG: list[Any] = [3, [1.0]]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x, b: ops.qmatmul("int5", x, W), DTypeError, ["'int5'", "int8, int4, q4_0, q4_k, q5_k, q6_k"]),
        (lambda x, b: ops.qmatmul(WRONG[0], x, W), DTypeError, ["encoding 3"]),
        (lambda x, b: ops.qmatmul("int4", x, HELD), DTypeError, ["encoded in int8, not in int4"]),
        (lambda x, b: ops.qmatmul("int4", x, W, dynamic=True), DTypeError, ["dynamic needs int8, got int4"]),
        (lambda x, b: ops.qmatmul("int4", x, W, accuracy_level=2), DTypeError, ["accuracy_level 2"]),
        (lambda x, b: ops.qmatmul("int4", x, W, block_size=24), DTypeError, ["24", "power of two"]),
        (lambda x, b: ops.qmatmul("int8", x, W, block_size=32), DTypeError, ["int8 has no blocks"]),
        (lambda x, b: ops.qmatmul("int4", x, W[:, :40]), ShapeError, ["blocks of 32 do not divide 40", "64"]),
        (lambda x, b: ops.qmatmul("int8", x, W[:, :40]), ShapeError, ["inner dimensions differ: 64 and 40"]),
        (lambda x, b: ops.qmatmul("int8", x[0, 0], W), ShapeError, ["x must be [..., k], got a scalar"]),
        (lambda x, b: ops.qmatmul("int8", x, W[0]), ShapeError, ["rank 1"]),
        (lambda x, b: ops.qmatmul("int8", x, encode(W, "int8", axis=1)), ShapeError, ["axis=0"]),
        (lambda x, b: ops.qmatmul("int8", x, W.astype(np.int8)), DTypeError, ["must have a float dtype, got int8"]),
        (lambda x, b: ops.qmatmul("int8", x, x), DTypeError, ["a Symbol of floats", "ops.quantize"]),
        (lambda x, b: ops.qmatmul("int8", x, WRONG[1]), DTypeError, ["a list"]),
        (lambda x, b: ops.qmatmul("int8", x, b), DTypeError, ["need scales"]),
        (lambda x, b: ops.qmatmul("int8", x, np.full((5, 64), np.nan, F32)), ModelError, ["320 of 320", "NaN"]),
        (lambda x, b: ops.quantize(x, "q4_k"), DTypeError, ["needs an array", "x"]),
        (lambda x, b: ops.quantize(x, "int8", axis=2), ShapeError, ["no axis 2"]),
        (lambda x, b: ops.quantize(x, "int4", axis=0), DTypeError, ["omit axis"]),
        (lambda x, b: ops.quantize(x.T, "int4"), ShapeError, ["last dim", "not known"]),
        (lambda x, b: ops.quantize(x[:, :40], "int4"), ShapeError, ["blocks of 32 do not divide 40"]),
        (lambda x, b: ops.quantize(x, "int8", block_size=32), DTypeError, ["omit block_size"]),
        (lambda x, b: ops.dequantize("int8"), DTypeError, ["no quantised value"]),
        (lambda x, b: ops.dequantize(HELD, HELD), DTypeError, ["two quantised values"]),
        (lambda x, b: ops.dequantize("int4", HELD), DTypeError, ["encoded in int8"]),
        (lambda x, b: ops.dequantize("int8", x), DTypeError, ["need scales"]),
        (lambda x, b: ops.dequantize(Quantized("int8", b)), ModelError, ["need scales"]),
        (lambda x, b: ops.dequantize(Quantized("int8", b, x[0, 0])), ModelError, ["uint8 with a zero point"]),
        (lambda x, b: ops.dequantize(Quantized("int8", x, x[0, 0])), ModelError, ["numbers must be int8"]),
        (lambda x, b: ops.dequantize(Quantized("int8", b, x[0], b[0, 0])), ModelError, ["zero points must be []"]),
        (lambda x, b: ops.dequantize(Quantized("int8", b, b[0, 0], b[0, 0])), ModelError, ["scales must be float32"]),
        (lambda x, b: ops.dequantize(Quantized("int8", b, x[0], b[0], axis=1)), ModelError, ["must be [18]"]),
        (lambda x, b: ops.dequantize(Quantized("int8", b, x[0], b[0], axis=2)), ShapeError, ["no axis 2"]),
        (lambda x, b: ops.dequantize(Quantized("int4", b, x, block_size=32)), ModelError, ["divides 36"]),
        (
            lambda x, b: ops.dequantize(Quantized("int4", b[:, :16], x, block_size=8)),
            ModelError,
            ["the block size 8 must be a power of two"],
        ),
        (lambda x, b: ops.dequantize(Quantized("int4", x, x[:, :2], block_size=32)), ModelError, ["two in a byte"]),
        (lambda x, b: ops.dequantize(Quantized("int4", b[:, :16], x, block_size=32)), ModelError, ["[n, 1]"]),
        (lambda x, b: ops.dequantize(Quantized("q4_0", x[:, :36])), ModelError, ["blocks of q4_0 must be uint8"]),
        (lambda x, b: encode(W, "int8", axis=2), ShapeError, ["no axis 2"]),
        (lambda x, b: encode(W, "int8", axis=True), ShapeError, ["no axis True"]),
        (lambda x, b: encode(W, "q6_k"), ShapeError, ["blocks of 256 do not divide 64"]),
        (lambda x, b: encode(W[:, :48], "int4"), ShapeError, ["block_size=16", "64"]),
        (lambda x, b: encode(F32(3), "int4"), ShapeError, ["blocks of 32"]),
        (lambda x, b: encode(W, "q4_0", symmetric=False), DTypeError, ["omit symmetric"]),
        (lambda x, b: encode(W, "int4", reduce_range=True), DTypeError, ["reduce_range"]),
        (lambda x, b: encode(np.array([[3e38, -3e38]], F32), "int8", symmetric=False), ModelError, ["overflows"]),
        (lambda x, b: encode(np.array([1e300]), "int8"), ModelError, ["beyond float32"]),
        (lambda x, b: encode(np.array(["a"]), "int8"), DTypeError, ["must have a float dtype"]),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call: Any, kind: type[GraphcoreError], words: list[str]) -> None:
    refusal(call, kind, *words)


def test_graph_is_asked_for_when_there_is_none() -> None:
    with pytest.raises(GraphError, match="no graph"):
        ops.dequantize(HELD)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"scales": None}, "scales are missing"),
        ({"scales": np.ones(4, F32)}, r"must be float32\[5\], got float32\[4\]"),
        ({"scales": np.ones(5)}, "float64"),
        ({"data": np.zeros((5, 63), np.int8)}, r"int8\[5, 63\]"),
        ({"data": np.zeros((5, 64), np.uint8)}, "must be int8"),
        ({"data": [1]}, "NumPy arrays"),
        ({"zero_points": np.ones(4, np.uint8), "data": np.zeros((5, 64), np.uint8)}, "zero_points"),
        ({"axis": 2}, "no axis 2"),
        ({"encoding": "Q8_0"}, "no encoding 'Q8_0'"),
        ({"encoding": "int4", "block_size": 48}, "at least 16, got 48"),
        ({"encoding": "int4", "block_size": 32}, r"data must be .*, got int8\[5, 64\]"),
        (
            {"encoding": "int4", "block_size": 32, "data": np.zeros((5, 32), np.uint8), "scales": np.ones((5, 2), F32),
             "zero_points": np.full((5, 2), 16, np.uint8)},
            "at most 15, got 16",
        ),
        ({"encoding": "Q4_0"}, r"must be uint8\[5, 36\]"),
    ],
)  # fmt: skip
def test_tensor_is_refused_when_its_parts_do_not_fit(change: dict[str, Any], word: str) -> None:
    bad = dataclasses.replace(HELD, **change)
    graph = Graph("refused", {"x": TensorType(D.float32, ["m", 64])})
    with pytest.raises(GraphcoreError, match=word):
        ops.qmatmul(bad.encoding, graph[0], bad)


def test_values_are_refused_when_they_are_in_blocks() -> None:
    with pytest.raises(ModelError, match="contain numbers and scales together"):
        _ = encode(random(1, 32), "q4_0").values
