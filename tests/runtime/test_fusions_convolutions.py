"""Fusions of what stands between convolutions: hard swish in parts, factors and biases of one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import Graph, InferenceSession, Symbol, TensorType, ops
from graphcore.runtime.fusions import fuse
from tests.runtime.test_direct import is_direct, reason

pytestmark = pytest.mark.releases

Array = np.ndarray[Any, Any]
IMAGES = TensorType("float32", ["batch", 16, 6, 5])
RNG = np.random.default_rng(0)
FILTERS = RNG.standard_normal((16, 16, 1, 1)).astype(np.float32)
DEPTHWISE = RNG.standard_normal((16, 1, 3, 3)).astype(np.float32)
BIAS = RNG.standard_normal(16).astype(np.float32)
X = (3 * RNG.standard_normal((2, 16, 6, 5))).astype(np.float32)
F32 = np.float32
NUMBERS = [F32(0.25), np.array([-1.5], np.float32)]


def operators(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def results(graph: Graph) -> Array:
    result = InferenceSession().load(graph)(X)[0]
    assert isinstance(result, np.ndarray)
    return result


def close(result: Array, wanted: Array) -> None:
    """Compare to 1e-6 of the largest element."""
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6 * float(np.abs(wanted).max()))


def graph_of(build: Callable[[Symbol], Symbol], type_: TensorType = IMAGES) -> Graph:
    g = Graph("g", {"x": type_})
    g.output(y=build(g["x"]))
    return g


def clipped(x: Symbol, turned: bool = False) -> Symbol:
    raised = ops.onnx.Add(F32(3), x) if turned else ops.onnx.Add(x, F32(3))
    return ops.onnx.Clip(raised, F32(0), F32(6))


def conv(x: Symbol, bias: bool = True) -> Symbol:
    return ops.onnx.Conv(x, FILTERS, BIAS) if bias else ops.onnx.Conv(x, FILTERS)


def swish(x: Symbol) -> Symbol:
    return ops.onnx.Div(ops.onnx.Mul(x, clipped(x)), F32(6))


SWISHES: dict[str, Callable[[Symbol], Symbol]] = {
    "quotient of the product": swish,
    "numbers of one axis": lambda x: ops.onnx.Div(
        ops.onnx.Mul(x, ops.onnx.Clip(ops.onnx.Add(x, np.array([3], np.float32)), F32(0), F32(6))),
        np.array([6], np.float32),
    ),
    "turned": lambda x: ops.onnx.Mul(F32(1 / 6), ops.onnx.Mul(clipped(x, turned=True), x)),
    "product with a sixth": lambda x: ops.onnx.Mul(ops.onnx.Mul(x, clipped(x)), F32(1 / 6)),
    "quotient of the gate": lambda x: ops.onnx.Mul(x, ops.onnx.Div(clipped(x), F32(6))),
}


@pytest.mark.parametrize("spelling", SWISHES)
def test_hard_swish_of_parts_is_a_hard_sigmoid_and_a_product(spelling: str) -> None:
    graph = graph_of(SWISHES[spelling])
    changed = fuse(graph)
    assert sorted(operators(changed)) == ["HardSigmoid", "Mul"]
    wanted = X.astype(np.float64) * np.clip(X.astype(np.float64) + 3, 0, 6) / 6
    close(results(changed), wanted)
    close(results(graph), wanted)


def test_hard_swish_keeps_what_is_not_finite() -> None:
    graph = graph_of(swish)
    x = np.zeros_like(X)
    x.flat[:3] = np.nan, np.inf, -np.inf
    for item in (graph, fuse(graph)):
        result = InferenceSession().load(item)(x)[0]
        np.testing.assert_array_equal(result.flat[:4], [np.nan, np.inf, np.nan, 0])


def test_hard_sigmoid_of_parts_is_one_operator() -> None:
    graph = fuse(graph_of(lambda x: ops.onnx.Div(clipped(x), F32(6))))
    assert operators(graph) == ["HardSigmoid"]
    close(results(graph), np.clip(X.astype(np.float64) + 3, 0, 6) / 6)


OTHERS: dict[str, Callable[[Symbol], Symbol]] = {
    "another divisor": lambda x: x * clipped(x) / F32(5),
    "another bound": lambda x: x * ops.onnx.Clip(ops.onnx.Add(x, F32(3)), F32(0), F32(5)) / F32(6),
    "one bound": lambda x: x * ops.onnx.Clip(ops.onnx.Add(x, F32(3)), F32(0)) / F32(6),
    "another offset": lambda x: x * ops.onnx.Clip(ops.onnx.Add(x, F32(2)), F32(0), F32(6)) / F32(6),
    "another factor": lambda x: ops.onnx.Div(ops.onnx.Mul(ops.onnx.Neg(x), clipped(x)), F32(6)),
    "divided by it": lambda x: ops.onnx.Div(F32(6), clipped(x)),
    "divided by zero": lambda x: ops.onnx.Div(clipped(x), F32(0)),
    "an offset of each row": lambda x: (
        x * ops.onnx.Clip(ops.onnx.Add(x, np.full(5, 3, np.float32)), F32(0), F32(6)) / F32(6)
    ),
}


@pytest.mark.parametrize("build", OTHERS.values(), ids=[*OTHERS])
def test_what_is_not_a_hard_swish_stays(build: Callable[[Symbol], Symbol]) -> None:
    graph = graph_of(build)
    assert fuse(graph) is graph


def test_hard_swish_of_another_dtype_stays() -> None:
    g = Graph("g", {"x": TensorType("float64", ["n", 6])})
    x = g["x"]
    g.output(ops.onnx.Div(ops.onnx.Mul(x, ops.onnx.Clip(ops.onnx.Add(x, 3.0), 0.0, 6.0)), 6.0))
    assert fuse(g) is g


@pytest.mark.parametrize("number", NUMBERS, ids=["scalar", "vector"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("order", ["times", "plus", "times plus", "plus times", "turned"])
def test_factor_and_bias_after_a_convolution_become_its_own(number: Array, bias: bool, order: str) -> None:
    def build(x: Symbol) -> Symbol:
        y = conv(x, bias)
        for word in ("times", "plus") if order == "turned" else order.split():
            apply = ops.onnx.Mul if word == "times" else ops.onnx.Add
            y = apply(number, y) if order == "turned" else apply(y, number)
        return y

    graph = graph_of(build)
    changed = fuse(graph)
    assert operators(changed) == ["Conv"]
    wanted = np.einsum("oi,nihw->nohw", FILTERS[:, :, 0, 0].astype(np.float64), X.astype(np.float64))
    wanted = wanted + BIAS[:, None, None] if bias else wanted
    for word in ("times", "plus") if order == "turned" else order.split():
        wanted = wanted * float(number.item()) if word == "times" else wanted + float(number.item())
    close(results(changed), wanted)
    close(results(graph), wanted)


def test_attributes_of_a_scaled_convolution_stay() -> None:
    graph = graph_of(
        lambda x: ops.onnx.Conv(x, DEPTHWISE, BIAS, group=16, strides=[2, 1], pads=[1, 1, 1, 1]) * F32(0.5) + F32(1)
    )
    changed = fuse(graph)
    assert operators(changed) == ["Conv"]
    close(results(changed), results(graph))


def _read_twice(x: Symbol) -> Symbol:
    result = conv(x)
    return ops.onnx.Mul(result * F32(2), result)


def _of_inputs(x: Symbol) -> Symbol:
    return ops.onnx.Conv(x, ops.onnx.Abs(x)[:1, :, :1, :1]) * F32(2)


SCALED: dict[str, Callable[[Symbol], Symbol]] = {
    "the result is used again": _read_twice,
    "filters are computed": _of_inputs,
    "zero": lambda x: conv(x) * F32(0),
    "nearly zero": lambda x: conv(x) * F32(1e-30),
    "infinity": lambda x: conv(x) + F32(np.inf),
    "another shape": lambda x: conv(x) * np.ones((1, 1, 1, 1, 1), np.float32) * np.ones(5, np.float32),
}


@pytest.mark.parametrize("build", SCALED.values(), ids=[*SCALED])
def test_convolution_stays_when(build: Callable[[Symbol], Symbol]) -> None:
    graph = graph_of(build)
    assert fuse(graph) is graph


def test_convolution_that_is_an_output_stays() -> None:
    g = Graph("g", {"x": IMAGES})
    result = conv(g["x"])
    g.output(first=result, second=result * F32(2))
    assert fuse(g) is g


def test_convolution_with_a_name_is_not_computed_twice() -> None:
    def build(x: Symbol) -> Symbol:
        result = conv(x)
        result.name = "features"
        return result * F32(2)

    graph = graph_of(build)
    assert fuse(graph) is graph


def learned(x: Symbol) -> Symbol:
    """Return a layer of PP-OCR: a convolution, hard swish and two learned pairs of numbers."""
    y = swish(conv(x) * F32(0.9) + F32(0.5))
    y = ops.onnx.Add(ops.onnx.Mul(F32(0.4), y), np.array([-0.01], np.float32))
    return ops.onnx.Conv(y, DEPTHWISE, BIAS, group=16, pads=[1, 1, 1, 1])


def test_layer_of_learned_numbers_is_convolutions_and_a_gate() -> None:
    graph = graph_of(learned)
    changed = fuse(graph)
    assert operators(changed) == ["Conv", "HardSigmoid", "Mul", "Conv", "Conv"]
    close(results(changed), results(graph))


def test_layer_of_learned_numbers_elsewhere_than_on_the_cpu_keeps_its_product() -> None:
    graph = fuse(graph_of(learned), on_host=False)
    assert operators(graph) == ["Conv", "HardSigmoid", "Mul", "Mul", "Add", "Conv"]


def test_channels_that_are_not_blocks_keep_the_product() -> None:
    filters = FILTERS[:10]
    graph = fuse(graph_of(lambda x: swish(ops.onnx.Conv(x, filters)) * F32(2) + F32(1)))
    assert operators(graph) == ["Conv", "HardSigmoid", "Mul", "Mul", "Add"]


# Third-party models


def layers(*nodes: tuple[str, list[str], str]) -> onnx.ModelProto:
    """Return a model of a convolution and these nodes."""
    constants = {"w": FILTERS, "three": F32(3), "zero": F32(0), "six": F32(6), "row": np.ones(5, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            *(helper.make_node(op_type, inputs, [output]) for op_type, inputs, output in nodes),
        ],
        "others",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16, 6, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert isinstance(model, onnx.ModelProto)
    return model


_SWISH = [("Add", ["c", "three"], "a"), ("Clip", ["a", "zero", "six"], "k")]
FUSED = {
    "hard swish": [*_SWISH, ("Mul", ["c", "k"], "m"), ("Div", ["m", "six"], "y")],
    "hard sigmoid": [*_SWISH, ("Div", ["k", "six"], "y")],
    "factor": [("Mul", ["six", "c"], "y")],
    "bias": [("Add", ["c", "three"], "y")],
    "affine": [
        ("HardSigmoid", ["c"], "h"), ("Mul", ["c", "h"], "s"), ("Mul", ["s", "six"], "m"), ("Add", ["m", "three"], "y"),
    ],
}  # fmt: skip
PLAIN = {
    "a gate": [("Sigmoid", ["c"], "h"), ("Mul", ["c", "h"], "y")],
    "a clip": [("Clip", ["c", "zero", "six"], "k"), ("Div", ["k", "six"], "y")],
    "a row": [("Add", ["c", "row"], "y")],
    "a hard gate": [("HardSigmoid", ["c"], "h"), ("Mul", ["c", "h"], "y")],
}


@pytest.mark.parametrize("kind", FUSED)
def test_model_with_a_fusion_is_loaded_through_a_graph(kind: str) -> None:
    model = layers(*FUSED[kind])
    result = reason(model)
    assert result is not None
    assert result.startswith("the fusion")
    loaded = InferenceSession().load(model)
    assert not is_direct(loaded)
    close(loaded(X)[0], InferenceSession(optimize="off").load(gc.Graph.load(model))(X)[0])


@pytest.mark.parametrize("kind", PLAIN)
def test_model_without_a_fusion_runs_as_it_is(kind: str) -> None:
    model = layers(*PLAIN[kind])
    assert reason(model) is None
    assert is_direct(InferenceSession().load(model))
    graph = gc.Graph.load(model)
    assert fuse(graph) is graph
