"""Signed weights of products of bytes are exact on processors where products of unsigned with signed bytes saturate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphcore as gc
from graphcore.runtime.lowering import lower
from graphcore.runtime.ort import release

pytestmark = pytest.mark.releases

RNG = np.random.default_rng(0)
A, B = RNG.integers(0, 256, (9, 64)).astype(np.uint8), RNG.integers(-128, 128, (64, 16)).astype(np.int8)
X, W = RNG.integers(0, 256, (1, 8, 9, 9)).astype(np.uint8), RNG.integers(-128, 128, (16, 8, 3, 3)).astype(np.int8)
STEPS = {
    "s": np.float32(0.02), "z": np.uint8(120), "ws": RNG.random(16).astype(np.float32) / 50,
    "wz": np.zeros(16, np.int8), "ys": np.float32(2), "yz": np.uint8(128),
}  # fmt: skip
QUANTIZED = [*STEPS]
SIGNED, UNSIGNED = (X.astype(int) - 128).astype(np.int8), (W.astype(int) + 128).astype(np.uint8)
CASES: dict[str, tuple[list[str], Any, dict[str, Any]]] = {
    "MatMulInteger": (["x", "w"], A, {"w": B}),
    "MatMulInteger with zero points": (["x", "w", "z", "wz"], A, {"w": B, "z": np.uint8(3), "wz": B[0]}),
    "ConvInteger": (["x", "w"], X, {"w": W}),
    "ConvInteger of signed x": (["x", "w"], SIGNED, {"w": UNSIGNED}),
    "ConvInteger of signed x with zero points": (
        ["x", "w", "z", "wz"],
        SIGNED,
        {"w": UNSIGNED, "z": np.int8(3), "wz": np.uint8(9)},
    ),
    "QLinearMatMul": (["x", "s", "z", "w", *QUANTIZED[2:]], A, {"w": B, **STEPS}),
    "QLinearConv": (["x", "s", "z", "w", *QUANTIZED[2:]], X, {"w": W, **STEPS}),
}


def of_operator(case: str, form: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of a product, whose weights are constants or inputs, and what to feed."""
    names, x, value = CASES[case]
    fed = {"x": x} if form == "constants" else {"x": x, **value}
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(np.asarray(v).dtype), np.asarray(v).shape)
        for k, v in fed.items()
    ]
    results = [numpy_helper.from_array(np.asarray(v), k) for k, v in value.items() if k not in fed]
    element = onnx.TensorProto.UINT8 if case.startswith("Q") else onnx.TensorProto.INT32
    node = helper.make_node(case.split()[0], names, ["y"])
    graph = helper.make_graph([node], "product", inputs, [helper.make_tensor_value_info("y", element, None)], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), fed


def of_dequantized(op: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of a product between DequantizeLinear nodes, as quantisers write it."""
    x, w, axis = (X, W, 0) if op == "Conv" else (A, B, 1)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=axis),
        helper.make_node(op, ["a", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    results = [numpy_helper.from_array(np.asarray(v), k) for k, v in {"w": w, **STEPS}.items()]
    info = helper.make_tensor_value_info
    inputs = [info("x", onnx.TensorProto.UINT8, x.shape)]
    graph = helper.make_graph(nodes, "product", inputs, [info("y", onnx.TensorProto.UINT8, None)], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), {"x": x}


def results(model: onnx.ModelProto, fed: dict[str, Any]) -> list[Any]:
    """Return the results of a session and of files written anew for onnxruntime and any runtime, in a plain session."""
    results = [gc.InferenceSession().load(model)(**fed)[0]]
    for target in ("cpu", "onnx"):
        content = gc.Graph.load(model, promotion="max").to_onnx(target=target).SerializeToString()
        plain = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        results += plain.run(None, {k: np.asarray(v) for k, v in fed.items()})
    return results


@pytest.mark.numbers
@pytest.mark.parametrize("form", ["constants", "inputs"])
@pytest.mark.parametrize("case", CASES)
def test_product_is_that_of_the_reference(case: str, form: str) -> None:
    model, fed = of_operator(case, form)
    (want,) = ReferenceEvaluator(model).run(None, fed)
    for got in results(model, fed):
        np.testing.assert_array_equal(got, want)


@pytest.mark.numbers
@pytest.mark.parametrize("op", ["Conv", "MatMul"])
def test_product_of_dequantized_bytes_is_that_of_floats(op: str) -> None:
    model, fed = of_dequantized(op)
    (want,) = ReferenceEvaluator(model).run(None, fed)
    for got in results(model, fed):
        assert np.abs(got.astype(int) - np.asarray(want).astype(int)).max() <= 1  # a sum halfway goes up or down


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("make", [lambda: of_operator("MatMulInteger", "constants"), lambda: of_dequantized("Conv")])
def test_weights_are_unsigned_where_products_saturate(make: Any, saturates: bool) -> None:
    graph = gc.Graph.load(make()[0])
    lowered = lower(graph, "cpu", runtime=replace(release.runtime(), saturates=lambda: saturates))
    dtypes = {s.dtype for node in lowered.nodes for s in node.inputs if s is not None and s.dtype.bits == 8}
    assert (gc.DType.int8 in dtypes) is not saturates


def test_small_weights_stay_signed() -> None:
    model, fed = of_operator("MatMulInteger", "constants")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(B // 2, "w"))
    lowered = gc.Graph.load(model).to_onnx()
    assert {t.data_type for t in lowered.graph.initializer} == {onnx.TensorProto.INT8}
    np.testing.assert_array_equal(results(model, fed)[1], A.astype(np.int32) @ (B // 2))


# Unsigned weights become signed where products do not saturate

MICROSOFT = "com.microsoft"


def unsigned(kind: str, points: str) -> onnx.ModelProto:
    """Return a dynamic product with unsigned weights. points: "none", "one", "columns" or "fed" zero points."""
    weights, steps = RNG.integers(0, 256, (64, 16)).astype(np.uint8), RNG.random(16).astype(np.float32) / 50
    by_column = points == "columns"
    constants = {"w": weights, "s": steps if by_column else steps[0], "wz": weights[0] if by_column else weights[0, 0]}
    zero = [] if points == "none" else ["wz"]
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["a", "as", "az"])]
    if kind == "MatMulInteger":
        nodes += [helper.make_node(kind, ["a", "w", "az", *zero], ["i"]), helper.make_node("Cast", ["i"], ["y"], to=1)]
    elif kind == "MatMulIntegerToFloat":
        nodes += [helper.make_node(kind, ["a", "w", "as", "s", "az", *zero], ["y"], domain=MICROSOFT)]
    else:
        nodes = [helper.make_node(kind, ["x", "w", "s", *zero], ["y"], domain=MICROSOFT)]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 64])]
    if points == "fed":
        inputs.append(helper.make_tensor_value_info("wz", onnx.TensorProto.UINT8, []))
    results = [numpy_helper.from_array(v, k) for k, v in constants.items() if points != "fed" or k != "wz"]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "product", inputs, [output], results)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def weight_dtype(graph: gc.Graph) -> gc.DType:
    (dtype,) = {
        s.dtype for n in graph.nodes for s in n.inputs if s is not None and s.shape.is_ranked and s.shape == (64, 16)
    }
    return dtype


@pytest.mark.numbers
@pytest.mark.parametrize("points", ["none", "one", "columns"])
@pytest.mark.parametrize("kind", ["MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"])
def test_unsigned_weights_become_signed_with_the_same_bits(
    kind: str, points: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = unsigned(kind, points)
    plain = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    loaded = gc.InferenceSession().load(model)
    for rows in (1, 5, 33):
        x = RNG.standard_normal((rows, 64)).astype(np.float32)
        assert loaded(x)[0].tobytes() == plain.run(None, {"x": x})[0].tobytes()
    graph = gc.Graph.load(model)
    for saturates, dtype in ((False, gc.DType.int8), (True, gc.DType.uint8)):
        runtime = replace(release.runtime(), saturates=lambda: saturates)  # noqa: B023 - called in this round
        assert weight_dtype(lower(graph, "cpu", None, runtime=runtime, optimize="all")) is dtype
    assert weight_dtype(graph) is gc.DType.uint8


def test_unsigned_weights_stay_where_a_call_has_their_zero_point() -> None:
    graph = gc.Graph.load(unsigned("MatMulIntegerToFloat", "fed"))
    runtime = replace(release.runtime(), saturates=lambda: False)
    assert weight_dtype(lower(graph, "cpu", None, runtime=runtime, optimize="all")) is gc.DType.uint8


@pytest.mark.parametrize("saturates", [False, True])
def test_file_for_this_processor_has_the_weights_of_its_sessions(
    saturates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "saturates", lambda: saturates)
    graph = gc.Graph("g", {"x": gc.TensorType("float32", ["n", 64])})
    graph.output(y=graph["x"] @ graph.weight("w", RNG.standard_normal((64, 16)).astype(np.float32)))
    quantized, _ = gc.quantize(graph, "int8_dynamic", min_elements=1)
    for runtime, signed in (("installed", not saturates), (None, False)):
        (weight,) = [t for t in quantized.to_onnx(runtime=runtime).graph.initializer if len(t.dims) == 2]
        assert (weight.data_type == onnx.TensorProto.INT8) is signed
