"""Operators newer than the opset that graphs have, and of other domains, against ONNX's evaluator or NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

import graphcore as gc
from graphcore import Graph
from graphcore.errors import ModelError
from graphcore.onnx.versions import function_body
from tests.support.onnx_models import F16, F32, F64, I64, Array, Case, check, evaluated, model_of, noise


def _shifted(x: Array, count: Array, remaining: bool) -> Array:
    """By whole numbers of any size, wrapped."""
    bits = x.dtype.itemsize * 8

    def one(value: int, by: int) -> int:
        if by < 0 or by >= bits:
            return -1 if value < 0 and not remaining else 0
        return value << by if remaining else value >> by

    results = [one(int(v), int(c)) & ((1 << bits) - 1) for v, c in zip(x, count, strict=True)]
    return np.array(results, f"u{bits // 8}").view(x.dtype)


def _depth_first(x: Array, block: int) -> Array:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block)
    return parts.transpose(0, 1, 3, 5, 2, 4).reshape(n, c * block * block, h // block, w // block)


X = noise(2, 3, 4)
COUNTS = np.array([0, 1, 7, 8, 15, 31, 63, 3], I64)
QUERIES = [noise(1, 3, 8), noise(1, 4, 8)[:, :3], noise(1, 5, 8)[:, :3]]
STEP = {"q_num_heads": 2, "kv_num_heads": 2}


def _counted(start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(float(start), float(limit), float(delta)).astype(start.dtype)


NEWER = [
    *(
        Case(
            "BitShift",
            28,
            [np.array([-128, 127, -1, 5, 0, -7, 64, -64]).astype(dtype), COUNTS.astype(dtype)],
            {"direction": direction},
            1,
            (lambda x, c: _shifted(x, c, True)) if direction == "LEFT" else (lambda x, c: _shifted(x, c, False)),
        )
        for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32)
        for direction in ("LEFT", "RIGHT")
    ),
    Case(
        "Mod",
        28,
        [np.array([5.5, -5.5, 0.0, -0.0, 3, -3], F32), np.array([2, 2, -2, 2, np.inf, np.inf], F32)],
        {},
        1,
        np.mod,
    ),
    Case("Mod", 28, [np.array([5.5, -5.5], F16), np.array([-2, 2], F16)], {"fmod": 1}, 1, np.fmod),
    Case("Mod", 28, [np.array([5, -5], I64), np.array([-3, 3], I64)], {}, 1, np.mod),
    Case("Range", 27, [np.array(v, F16) for v in (1, 6, 1.5)], {}, 1, _counted),
    Case("Range", 28, [np.array(v, F32) for v in (1, 6, 1.5)], {"stash_type": 1}, 1, _counted),
    Case("Range", 28, [np.array(v, I64) for v in (6, 1, -2)], {}, 1, _counted),
    Case("SpaceToDepth", 28, [noise(1, 2, 4, 6)], {"blocksize": 2, "mode": "CRD"}, 1, lambda x: _depth_first(x, 2)),
    Case("SwiGLU", 28, [X, X[::-1].copy()], {"alpha": 0.5}, 1, lambda a, b: a / (1 + np.exp(-0.5 * a)) * b),
    Case("SwiGLU", 28, [X, X[::-1].copy()], {}, 1, lambda a, b: a / (1 + np.exp(-a)) * b),
    Case(
        "Celu", 28, [X.astype(F64)], {"alpha": 2.0}, 1, lambda x: np.maximum(x, 0) + np.minimum(0, 2 * np.expm1(x / 2))
    ),
]

EVALUATED = [
    Case("CausalConvWithState", 27, [noise(1, 2, 5), noise(2, 1, 3)], {}, 2),
    Case(
        "CausalConvWithState", 28, [noise(1, 2, 5), noise(2, 1, 3), noise(2), noise(1, 2, 2)], {"activation": "silu"}, 2
    ),
    Case("LinearAttention", 27, QUERIES, {**STEP, "update_rule": "linear"}, 2),
    Case(
        "LinearAttention", 27, [*QUERIES, noise(1, 2, 4, 4), -abs(noise(1, 3, 8))], {**STEP, "update_rule": "gated"}, 2
    ),
    Case(
        "LinearAttention",
        28,
        [*QUERIES, None, -abs(noise(1, 3, 8)), abs(noise(1, 3, 2))],
        {**STEP, "update_rule": "gated_delta", "scale": 0.5},
        2,
    ),
]


@pytest.mark.parametrize("case", NEWER, ids=lambda c: c.label)
def test_newer_operators_compute_what_they_say(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", EVALUATED, ids=lambda c: c.label)
def test_newer_functions_compute_what_the_evaluator_does(case: Case) -> None:
    check(evaluated(case))


def test_convolution_with_state_is_refused_without_channels() -> None:  # its function body divides by their number
    case = Case("CausalConvWithState", 28, [noise(1, 0, 5), noise(0, 1, 3)], {}, 2)
    with pytest.raises(ModelError, match="the operand has no channels"):
        Graph.load(model_of(case, ranked=True))


TREES = {
    "nodes_falsenodeids": [2, 0, 0],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_nodeids": [0, 1, 2],
    "nodes_treeids": [0, 0, 0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
}
REGRESSION = {
    "n_targets": 1,
    "target_ids": [0, 0],
    "target_nodeids": [1, 2],
    "target_treeids": [0, 0],
    "target_weights": [10.0, 20.0],
}
CLASSES = {
    "class_ids": [0, 1],
    "class_nodeids": [1, 2],
    "class_treeids": [0, 0],
    "class_weights": [1.0, 1.0],
    "classlabels_int64s": [3, 7],
}
LEAVES = [np.array([[0.0], [1.0]], F32)]
ML = "ai.onnx.ml"

OTHER_DOMAINS = [
    Case(
        "LabelEncoder",
        1,
        [np.array(["b", "a", "?"], object)],
        {"classes_strings": ["a", "b"], "default_int64": 9},
        domain=ML,
    ),
    Case(
        "LabelEncoder",
        1,
        [np.array([1, 0, 5], I64)],
        {"classes_strings": ["a", "b"], "default_string": "no"},
        domain=ML,
    ),
    Case(
        "LabelEncoder", 2, [np.array([1, 0, 5], I64)], {"keys_int64s": [1, 0], "values_floats": [1.5, 2.5]}, domain=ML
    ),
    Case("TreeEnsembleRegressor", 1, LEAVES, {**TREES, **REGRESSION}, domain=ML),
    Case("TreeEnsembleRegressor", 3, LEAVES, {**TREES, **REGRESSION}, domain=ML),
    # Of two classes onnxruntime's label is 1 or 0, and its scores differ where a leaf has a weight for one alone.
    evaluated(Case("TreeEnsembleClassifier", 1, LEAVES, {**TREES, **CLASSES}, 2, domain=ML)),
]


@pytest.mark.parametrize("case", OTHER_DOMAINS, ids=lambda c: c.label)
def test_other_domains_compute_the_same(case: Case) -> None:
    check(case)


RATE, COUNT = np.array(0.1, F32), np.array(3, I64)
WEIGHTS = [noise(3), noise(2, 2), noise(4)[:3], noise(2, 3)[:, :2], abs(noise(5)[:3]), abs(noise(2, 4)[:, :2])]
MORE = [abs(noise(6)[:3]), abs(noise(2, 5)[:, :2])]
TRAINING = "ai.onnx.preview.training"

OPTIMIZERS = [
    Case(
        "Adagrad",
        1,
        [RATE, COUNT, *WEIGHTS],
        {"norm_coefficient": 0.1, "epsilon": 1e-3, "decay_factor": 0.2},
        4,
        domain=TRAINING,
    ),
    Case(
        "Adam",
        1,
        [RATE, COUNT, *WEIGHTS, *MORE],
        {"norm_coefficient": 0.1, "norm_coefficient_post": 0.2, "epsilon": 1e-3},
        6,
        domain=TRAINING,
    ),
    Case(
        "Adam",
        1,
        [RATE, np.array(0, I64), *WEIGHTS, *MORE],
        {"epsilon": 1e-2, "alpha": 0.95, "beta": 0.85},
        6,
        domain=TRAINING,
    ),
    Case(
        "Momentum",
        1,
        [RATE, np.array(0, I64), *WEIGHTS],
        {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.5, "mode": "standard"},
        4,
        domain=TRAINING,
    ),
    Case(
        "Momentum",
        1,
        [RATE, COUNT, *WEIGHTS],
        {"norm_coefficient": 0.0, "alpha": 0.9, "beta": 0.5, "mode": "nesterov"},
        4,
        domain=TRAINING,
    ),
]


@pytest.mark.parametrize("case", OPTIMIZERS, ids=lambda c: c.label)
def test_optimizers_compute_what_the_evaluator_does(case: Case) -> None:
    check(evaluated(case))


def test_optimizers_take_a_rate_of_another_dtype() -> None:
    inputs = [np.array(0.1, F64), COUNT, *WEIGHTS[:1], *WEIGHTS[2:3], *WEIGHTS[4:5]]
    check(replace(evaluated(Case("Adagrad", 1, inputs, {}, 2, domain=TRAINING)), tolerance=1e-5))


def _flexible(*, mask: bool) -> onnx.ModelProto:
    value = helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, None)
    result = helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None)
    half = helper.make_tensor("half", onnx.TensorProto.FLOAT, [], [0.5])
    nodes = [helper.make_node("Constant", [], ["half"], value=half), helper.make_node("Mul", ["s", "half"], ["r"])]
    body = helper.make_graph(nodes, "halved", [value], [result])
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", score_mod=body)
    if not mask:
        node.attribute.pop()
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2, 3, 4]) for name in "qkv"]
    graph = helper.make_graph([node], "test", infos, [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])
    imports = [helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=12)


@pytest.mark.parametrize("mask", [False, True])
def test_flexible_attention_is_expanded(mask: bool) -> None:
    feeds = {name: noise(1, 2, 3, 4) + i for i, name in enumerate("qkv")}
    (y,) = gc.InferenceSession().load(_flexible(mask=mask)).execute(**feeds)
    scores = feeds["q"].astype(F64) @ feeds["k"].swapaxes(-1, -2) / 2 * (0.5 if mask else 1)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(y, powers / powers.sum(-1, keepdims=True) @ feeds["v"], rtol=1e-5, atol=1e-5)


def test_function_body_has_attributes_in_place() -> None:
    graph = Graph("test", [gc.TensorType(gc.DType.float32, ["n"])] * 2)
    body = function_body("SwiGLU", "", 28, graph.inputs, {}, 1)
    assert body is not None
    assert [node.op_type for node in body.nodes] == ["Swish", "Mul"]
    (alpha,) = body.nodes[0].attribute
    assert (alpha.name, alpha.f, alpha.ref_attr_name) == ("alpha", 1.0, "")
    assert (body.inputs, body.outputs, body.version) == (("A", "B"), ("Y",), 28)


def test_function_body_depends_on_the_context() -> None:
    graph = Graph("test", [gc.TensorType(gc.DType.float32, ["n", 4])] * 2)
    body = function_body("LayerNormalization", "", 17, graph.inputs, {"axis": -1}, 1)
    assert body is not None
    assert body.version == 17
    assert {"Shape", "ReduceMean"} <= {node.op_type for node in body.nodes}


def test_function_body_is_none_where_there_is_none() -> None:
    graph = Graph("test", [gc.TensorType(gc.DType.float32, ["n"])])
    assert function_body("Relu", "", 13, graph.inputs, {}, 1) is None
