"""GGUF's blocks: written as the `gguf` package does or by a search, and unpacked in graphs bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import onnx
import pytest
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import DTypeError, ModelError, ShapeError
from graphcore.quantization import ENCODINGS, QuantizedTensor, encode
from graphcore.runtime.lowering import lower
from tests.sampling import drawn
from tests.support.graphs import Array, run, run1

D = DType
F32 = np.float32
BLOCKS = [name for name, row in ENCODINGS.items() if row.gguf]
K_QUANTS = BLOCKS[1:]


def random(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def bits(x: Array) -> Array:
    return x.view(np.int32)


def peer(data: Array, encoding: str) -> Array:
    """Dequantise blocks by the gguf package."""
    with np.errstate(all="ignore"):
        return np.asarray(gguf.quants.dequantize(data, GGMLQuantizationType[encoding.upper()]))


def any_bytes(encoding: str, rows: int, blocks: int, seed: int = 5) -> Array:
    """Blocks of any bytes: scales are infinite and no numbers too."""
    size = ENCODINGS[encoding].block_bytes
    assert size is not None
    return np.random.default_rng(seed).integers(0, 256, (rows, blocks * size), np.uint8)


def assert_same(got: Array, want: Array) -> None:
    missing = np.isnan(want)
    assert np.array_equal(np.isnan(got), missing)  # their signs are the processor's to choose
    assert np.array_equal(bits(got)[~missing], bits(want)[~missing])


# Writing


@settings(max_examples=drawn(100))
@given(
    arrays.arrays(
        F32, (3, 64), elements=st.floats(-1e5, 1e5, width=32, allow_subnormal=True), fill=st.sampled_from([0.0, 1.0])
    )
)
def test_q4_0_is_the_packages_bit_for_bit(x: Array) -> None:
    with np.errstate(all="ignore"):
        want = gguf.quants.quantize(x, GGMLQuantizationType.Q4_0)
    assert np.array_equal(encode(x, "q4_0").data, want)


@pytest.mark.parametrize("encoding", BLOCKS)
def test_blocks_are_read_by_the_package_as_they_are_meant(encoding: str) -> None:
    value = encode(random(6, 512), encoding)
    assert np.array_equal(bits(value.dequantize()), bits(peer(value.data, encoding)))
    assert value.encoding == encoding.upper()


def free_loss(x: Array, most: int, centred: bool) -> float:
    """The root of the squares that groups lose under steps and minima of any float, the best of many."""
    lost = np.full(len(x), np.inf)
    far = np.take_along_axis(x, np.abs(x).argmax(-1)[:, None], -1).astype(np.float64)
    low, high = np.minimum(x.min(-1), 0)[:, None].astype(np.float64), np.maximum(x.max(-1), 0)[:, None]
    for part in np.linspace(0.7, 1.15, 46):
        for cut in (0.0,) if centred else np.linspace(0, 0.2, 9):
            if centred:
                least, step = -(most + 1) // 2, far / (-(most + 1) // 2) * part
                q = np.clip(np.rint(x / step), least, least + most)
                loss = np.square(q * step - x)
            else:
                start = low * (1 - cut)
                step = (high - start) / most * part
                loss = np.square(np.clip(np.rint((x - start) / step), 0, most) * step + start - x)
            lost = np.minimum(lost, loss.sum(-1))
    return float(np.sqrt(lost.sum() / np.square(x.astype(np.float64)).sum()))


@pytest.mark.parametrize("draw", ["standard_normal", "laplace", "uniform"])
@pytest.mark.parametrize("encoding", K_QUANTS)
def test_k_quants_are_as_near_as_the_format_is(encoding: str, draw: str) -> None:
    x = getattr(np.random.default_rng(2), draw)(size=(8, 512)).astype(F32)
    error = encode(x, encoding).dequantize() - x
    lost = float(np.sqrt(np.square(error).sum() / np.square(x).sum()))
    group, most = (16, 63) if encoding == "q6_k" else (32, 2 ** ENCODINGS[encoding].bits - 1)
    assert lost <= 1.05 * free_loss(x.reshape(-1, group), most, encoding == "q6_k")


@pytest.mark.parametrize("encoding", BLOCKS)
def test_constants_and_zeros_come_back_when_encoded(encoding: str) -> None:
    for value in (0.0, 1.0, -2.0):
        x = np.full((2, 256), value, F32)
        assert np.allclose(encode(x, encoding).dequantize(), x, rtol=2e-3)
    assert encode(np.zeros((0, 256), F32), encoding).dequantize().shape == (0, 256)
    assert encode(np.zeros((2, 0), F32), encoding).dequantize().shape == (2, 0)


@settings(max_examples=drawn(40))
@given(st.sampled_from(K_QUANTS), st.sampled_from([1e-30, 1e-6, 1e-3, 1.0, 1e3]), st.integers(0, 1 << 30))
def test_k_quants_lose_little_when_numbers_are_of_any_size(encoding: str, size: float, seed: int) -> None:
    x = (random(1, 256, seed=seed).astype(np.float64) * size).astype(F32)
    error = np.abs(encode(x, encoding).dequantize() - x).max()
    half = 2.0**-24 * 64 * 64  # what float16 holds of a scale
    assert error <= 0.2 * np.abs(x).max() + half


@pytest.mark.parametrize("encoding", BLOCKS)
def test_scale_is_refused_when_float16_does_not_hold_it(encoding: str) -> None:
    with pytest.raises(ModelError, match="overflows float16") as raised:
        encode(np.linspace(-1e9, 1e9, 256, dtype=F32).reshape(1, 256), encoding)
    assert "scale them down" in raised.value.help


# Taking apart in a graph


@pytest.mark.parametrize("encoding", BLOCKS)
@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (0,)])
def test_blocks_of_any_bytes_are_the_packages_floats_when_a_graph_takes_them(
    encoding: str, leading: tuple[int, ...]
) -> None:
    rows = int(np.prod(leading, dtype=int))
    data = any_bytes(encoding, max(rows, 1), 2)[:rows]
    data = data.reshape(*leading, data.shape[1])
    dims = [[*(f"d{i}" for i in range(len(leading))), data.shape[-1]]]
    size = 2 * (ENCODINGS[encoding].block or 0)
    for both in (lambda s: ops.dequantize(encoding, s), lambda s: ops.dequantize(encoding.upper(), s)):
        got = run1(both, data, dims=dims)
        want = (
            peer(data.reshape(rows, data.shape[-1]), encoding).reshape(*leading, size)
            if rows
            else np.zeros((0, size), F32)
        )
        assert_same(got, want)


@pytest.mark.parametrize("encoding", BLOCKS)
def test_blocks_are_the_packages_floats_when_known_to_standard_onnx(encoding: str) -> None:
    value = encode(random(3, 512), encoding)
    graph = Graph("known", {"b": TensorType(D.uint8, ["n", value.data.shape[1]])})
    with graph:
        y = ops.quantize(random(3, 512), encoding)
        graph.output(*(ops.dequantize(encoding, v) for v in (value, value.data, y, graph[0])))
    model = graph.to_onnx(target="onnx")
    onnx.checker.check_model(model, full_check=True)
    for got in gc.InferenceSession().load(model)(value.data):
        assert_same(got, peer(value.data, encoding))


# Products


def near(got: Array, x: Array, weight: Array) -> bool:
    return bool((np.abs(got - x @ weight.T.astype(np.float64)) <= 2e-6 * (np.abs(x) @ np.abs(weight).T)).all())


@pytest.mark.parametrize("encoding", BLOCKS)
@pytest.mark.parametrize("rows", [(), (1,), (5,), (0,), (2, 3)])
def test_product_is_that_of_the_dequantised_weight(encoding: str, rows: tuple[int, ...]) -> None:
    x, value = random(*rows, 512), encode(random(7, 512, seed=5), encoding)
    dims = [[*(f"d{i}" for i in range(len(rows))), 512], list(value.data.shape)]

    def products(s: Symbol, blocks: Symbol) -> list[Symbol]:
        of_floats = ops.qmatmul(encoding, s, random(7, 512, seed=5))
        return [ops.qmatmul(encoding, s, value), ops.qmatmul(encoding, s, value.data), of_floats,
                ops.qmatmul(encoding, s, blocks)]  # fmt: skip

    for got in run(products, x, value.data, dims=dims):
        assert got.shape == (*rows, 7)
        assert near(got, x, value.dequantize())


@pytest.mark.parametrize("encoding", BLOCKS)
def test_product_is_rounded_once_when_x_is_narrow(encoding: str) -> None:
    value = encode(random(7, 256, seed=5), encoding)
    weight = value.dequantize().astype(np.float64)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = random(3, 256).astype(dtype)
        got = run1(lambda s: ops.qmatmul(encoding, s, value), x, dims=[["m", 256]])
        want = x.astype(np.float64) @ weight.T
        step = 2.0 ** (-11 if dtype is np.float16 else -8)
        assert got.dtype == dtype
        assert (np.abs(got.astype(np.float64) - want) <= 1.01 * step * np.abs(want) + 1e-4).all()


@pytest.mark.parametrize("encoding", BLOCKS)
def test_product_takes_a_weight_when_all_of_it_is_above_or_below_zero(encoding: str) -> None:
    x = random(3, 256)
    for sign in (1, -1):
        value = encode(sign * (np.abs(random(4, 256)) + 5), encoding)
        assert near(run1(lambda s, h=value: ops.qmatmul(encoding, s, h), x, dims=[["m", 256]]), x, value.dequantize())


@pytest.mark.parametrize("encoding", BLOCKS)
def test_product_is_that_of_floats_when_scales_are_not_numbers(encoding: str) -> None:
    data, x = any_bytes(encoding, 40, 2), random(3, 2 * (ENCODINGS[encoding].block or 0))
    weight = peer(data, encoding)
    assert np.isnan(weight).any()
    got = run1(lambda s: ops.qmatmul(encoding, s, data), x, dims=[["m", x.shape[1]]])
    with np.errstate(all="ignore"):
        want = (x[:, None].astype(np.float64) * weight).sum(-1)
        size = np.abs(x[:, None].astype(np.float64) * weight).sum(-1)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    assert (np.abs(got - want)[finite] <= 2e-6 * size[finite]).all()


@pytest.mark.parametrize("encoding", BLOCKS)
@pytest.mark.parametrize("odd", [np.nan, np.inf, 3e38, -0.0])
def test_product_is_not_a_wrong_number_when_x_is_extreme(encoding: str, odd: float) -> None:
    value = encode(random(5, 256), encoding)
    x = random(3, 256)
    x[1, 9] = odd
    got = run1(lambda s: ops.qmatmul(encoding, s, value), x, dims=[["m", 256]])
    with np.errstate(all="ignore"):
        want = (x.astype(np.float64) @ value.dequantize().T.astype(np.float64)).astype(F32)
    expected = np.isfinite(want)
    assert np.allclose(got[expected], want[expected], rtol=1e-4, atol=1e-4)
    assert not np.isfinite(got[~expected]).any()


def test_four_bits_are_packed_for_the_kernel_and_others_are_floats() -> None:
    results = {}
    for encoding in BLOCKS:
        graph = Graph("product", {"x": TensorType(D.float32, ["m", 256])})
        graph.output(ops.qmatmul(encoding, graph[0], encode(random(5, 256), encoding)))
        results[encoding] = [n.op_type for n in lower(graph, "cpu").nodes]
    assert results == {
        "q4_0": ["MatMulNBits"],
        "q4_k": ["MatMulNBits", "Reshape", "ReduceSum", "MatMul", "Add"],
        "q5_k": ["MatMul"],
        "q6_k": ["MatMul"],
    }


def test_weights_of_a_file_are_multiplied_as_they_lie_there(tmp_path: Path) -> None:
    results = {e: encode(random(7, 256, seed=5), e) for e in BLOCKS}
    writer = gguf.GGUFWriter(str(tmp_path / "w.gguf"), "test")
    for encoding, tensor in results.items():
        writer.add_tensor(encoding, tensor.data, raw_dtype=GGMLQuantizationType[tensor.encoding])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors: Any = gc.load_tensors(tmp_path / "w.gguf", dequantize=False)
    graph = Graph("file", {"x": TensorType(D.float32, ["m", 256])})
    graph.output(*(ops.qmatmul(e, graph[0], tensors[e]) for e in BLOCKS))
    x = random(3, 256)
    for got, tensor in zip(gc.InferenceSession().load(graph)(x), results.values(), strict=True):
        assert near(got, x, tensor.dequantize())


# What is refused


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x, b: ops.dequantize("q4_0", b[:, :17]), ShapeError, ["17 bytes", "q4_0 has 18"]),
        (lambda x, b: ops.qmatmul("q4_k", x, b), ShapeError, ["18 bytes", "q4_k has 144"]),
        (lambda x, b: ops.qmatmul("q4_0", x, b), ShapeError, ["inner dimensions differ: 64 and 32"]),
        (lambda x, b: ops.dequantize("q4_0", x), DTypeError, ["float32", "uint8"]),
        (lambda x, b: ops.dequantize("q2_k", b), DTypeError, ["'q2_k'", "q4_k"]),
        (lambda x, b: ops.dequantize("q4_0", b.T), ShapeError, ["last dim", "not known"]),
        (lambda x, b: ops.qmatmul("q4_0", x, np.zeros((3, 36), np.int8)), DTypeError, ["a float dtype, got int8"]),
        (lambda x, b: ops.qmatmul("q4_0", x, np.zeros((3, 35), np.uint8)), ShapeError, ["35 bytes"]),
        (lambda x, b: ops.qmatmul("q4_0", x, np.zeros(36, np.uint8)), ShapeError, ["rank 1"]),
        (lambda x, b: ops.qmatmul("q4_0", x, np.zeros((3, 40), F32)), ShapeError, ["blocks of 32 do not divide 40"]),
    ],
)
def test_bad_input_is_refused(call: Any, kind: Any, words: list[str]) -> None:
    graph = Graph("refused", {"x": TensorType(D.float32, ["m", 64]), "b": TensorType(D.uint8, ["n", 18])})
    with graph, pytest.raises(kind) as raised:
        call(*graph.inputs)
    assert raised.value.help
    for word in words:
        assert word in str(raised.value)


def test_tensor_is_refused_when_its_blocks_do_not_fit() -> None:
    value = encode(random(3, 64), "q4_0")
    graph = Graph("refused", {"x": TensorType(D.float32, ["m", 64])})
    for shape, data in (((3, 48), value.data), ((3, 64), value.data[:, :18]), ((3, 64), value.data.view(np.int8))):
        with pytest.raises(ModelError, match="quantized tensor"):
            ops.qmatmul("q4_0", graph[0], QuantizedTensor("Q4_0", shape, data))
