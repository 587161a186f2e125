"""Nodes that lead to a quantiser are not fused: a last bit before it may be a step of 8 bits after it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Graph, Symbol, TensorType, ops
from graphcore.ir.transform.walk import operators
from graphcore.ops import onnx as onnx_ops
from graphcore.runtime.fusions import fuse

pytestmark = [pytest.mark.releases, pytest.mark.numbers]

Array = np.ndarray[Any, Any]
SHAPE = (2, 6, 16, 16)
X = np.random.default_rng(0).standard_normal((3, *SHAPE[1:])).astype(np.float32) * 3


def attention(x: Symbol) -> Symbol:
    return ops.softmax(x @ x.permute(0, 1, 3, 2) * 0.25) @ x


def rms_norm(x: Symbol) -> Symbol:
    return x / ops.sqrt(ops.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def hard_swish(x: Symbol) -> Symbol:
    return x * ops.clip(x + 3, 0.0, 6.0) / 6


def pooled(x: Symbol) -> Symbol:
    return onnx_ops.AveragePool(x, kernel_shape=[3, 3])


def length(x: Symbol) -> Symbol:
    return onnx_ops.ReduceL2(x, axes=[-1])


FUSED: dict[str, Callable[[Symbol], Symbol]] = {
    "attention": attention, "norm": rms_norm, "hard swish": hard_swish, "pool": pooled, "length": length,
}  # fmt: skip
MADE = {
    "attention": {"Attention"}, "norm": {"RMSNormalization"}, "hard swish": {"HardSigmoid"}, "pool": {"Conv"},
    "length": {"ReduceSum"},
}  # fmt: skip


def named(*results: Symbol) -> dict[str, Symbol]:
    return {f"y{i}": result for i, result in enumerate(results)}


def built(build: Callable[[Symbol], Symbol]) -> Graph:
    graph = Graph("g", {"x": TensorType("float32", ["n", *SHAPE[1:]])})
    with graph:
        graph.output(**named(*onnx_ops.DynamicQuantizeLinear(build(graph["x"]))))
    return graph


def bare(model: bytes, array: Array) -> list[Array]:
    """Return the results of onnxruntime alone."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: array}))


def bits(arrays: Any) -> list[bytes]:
    return [array.tobytes() for array in arrays]


@pytest.mark.parametrize("name", FUSED)
def test_what_leads_to_a_quantiser_has_the_bits_of_what_is_written(name: str) -> None:
    graph = built(FUSED[name])
    plain = graph.to_onnx(target="onnx").SerializeToString()
    assert bits(gc.InferenceSession().load(graph)(X)) == bits(bare(plain, X))
    assert fuse(graph) is graph


@pytest.mark.parametrize("name", FUSED)
def test_all_is_fused_when_precision_is_fast(name: str) -> None:
    graph = built(FUSED[name])
    lowered = gc.InferenceSession(precision="fast").load(graph)._lowered
    assert lowered is not None
    assert not {op_type for op_type, _ in operators(lowered)}.isdisjoint(MADE[name])


def test_what_comes_after_a_quantiser_is_fused() -> None:
    graph = Graph("g", {"x": TensorType("float32", ["n", *SHAPE[1:]])})
    with graph:
        levels, scale, zero = onnx_ops.DynamicQuantizeLinear(attention(graph["x"]))
        graph.output(y=attention(onnx_ops.DequantizeLinear(levels, scale, zero)))
    assert [node.op_type for node in fuse(graph).nodes].count("Attention") == 1


@pytest.mark.parametrize("place", ["body", "function", "captured", "sizes"])
def test_quantiser_is_found_in(place: str) -> None:
    @gc.function
    def quantised(x: Symbol) -> Symbol:
        return onnx_ops.DynamicQuantizeLinear(attention(x))[0].cast("float32")

    graph = Graph("g", {"x": TensorType("float32", ["n", *SHAPE[1:]]), "flag": TensorType("bool", [])})
    with graph:
        x, flag = graph.inputs
        result = attention(x)
        results = {}
        if place == "body":
            result = ops.cond(flag, lambda: onnx_ops.DynamicQuantizeLinear(attention(x))[0], lambda: x.cast("uint8"))
        elif place == "function":
            result = quantised(x)
        elif place == "captured":
            result = ops.cond(flag, lambda: onnx_ops.DynamicQuantizeLinear(result)[0], lambda: x.cast("uint8"))
        else:
            size = ops.shape_of(result)[0].cast("float32")
            results["levels"] = onnx_ops.DynamicQuantizeLinear(x * size)[0]
        graph.output(y=result, **results)
    assert (fuse(graph) is graph) == (place != "sizes")


@pytest.mark.full
def test_quantised_model_of_a_package_is_within_rounding_of_onnxruntime(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("rapidocr_onnxruntime")
    if spec is None or spec.origin is None:
        pytest.skip("rapidocr-onnxruntime is not installed")
    quantization = pytest.importorskip("onnxruntime.quantization")
    source = Path(spec.origin).parent / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"
    path = tmp_path / "quantised.onnx"
    quantization.quantize_dynamic(source, path, weight_type=quantization.QuantType.QUInt8)
    x = np.random.default_rng(0).standard_normal((4, 3, 48, 192)).astype(np.float32)
    (got,) = gc.InferenceSession().load(path)(x)
    (want,) = bare(path.read_bytes(), x)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)  # 0.0049 where what is quantised is fused
