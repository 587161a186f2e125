"""Operators of ai.onnx.ml in the dtypes that onnxruntime's kernels do not take, and of two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import graphcore as gc
from graphcore import DType, ops
from tests.support.graphs import run_unchecked as run

pytestmark = pytest.mark.releases

D = DType
on: Any = ops.onnx


x_int = np.array([[1, -2, 3], [2, 0, 5]], np.int32)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("threshold", [0.0, 1.5, -1.5, 2.0, -1e30, 1e30, 1e9])
def test_binarizer_compares_exactly_in_every_dtype(dtype: Any, threshold: float) -> None:
    x = np.array([[1, -2, 3], [2, 0, 5]], dtype)
    (result,) = run(lambda x: on.ml.Binarizer(x, threshold=threshold), x)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, (x.astype(np.float64) > np.float32(threshold)).astype(dtype))


@pytest.mark.numbers
@pytest.mark.parametrize(("old", "dtype"), [(2.0, np.float64), (float("nan"), np.float64), (2, np.int32)])
def test_imputer_replaces_what_is_missing(old: float, dtype: Any) -> None:
    x = np.array([[1, old, 3], [old, 5, 2]], dtype)
    kinds = ("float", "floats") if dtype is np.float64 else ("int64", "int64s")
    results = {f"replaced_value_{kinds[0]}": old, f"imputed_value_{kinds[1]}": [7, 8, 9]}
    (result,) = run(lambda x: on.ml.Imputer(x, **results), x)
    missing = np.isnan(x) if old != old else x == old
    np.testing.assert_array_equal(result, np.where(missing, np.array([7, 8, 9]), x))
    assert result.dtype == dtype


KEYS = {
    D.string: ["a", "b"],
    D.int16: [1, 2],
    D.int32: [1, 2],
    D.int64: [1, 2],
    D.float32: [1.5, 2.0],
    D.float64: [1.5, 2],
}
VALUES = {
    D.string: ["p", "q"],
    D.int16: [7, 8],
    D.int32: [7, 8],
    D.int64: [7, 8],
    D.float32: [0.1, 8],
    D.float64: [0.1, 8],
}


@pytest.mark.numbers
@pytest.mark.parametrize("given_", KEYS, ids=str)
@pytest.mark.parametrize("result", VALUES, ids=str)
def test_label_encoder_maps_every_dtype_to_every_other(given_: DType, result: DType) -> None:
    pairs: list[tuple[Any, DType]] = [(KEYS, given_), (VALUES, result)]
    keys, values = (np.array(v[d], object if d is D.string else d.numpy) for v, d in pairs)
    other = np.array(["z"] if result is D.string else [5], values.dtype)
    x = np.array([keys[1], keys[0], keys[1], keys[0]], keys.dtype)
    x[3] = "c" if given_ is D.string else 4
    results = {"keys_tensor": keys, "values_tensor": values, "default_tensor": other}
    (match,) = run(lambda x: on.ml.LabelEncoder(x, **results), x, dtypes=[given_])
    assert match.tolist() == [values[1], values[0], values[1], other[0]]
    assert match.dtype == values.dtype


def test_label_encoder_has_the_defaults_of_the_schema() -> None:
    x = np.array([1, 3], np.int32)
    (result,) = run(lambda x: on.ml.LabelEncoder(x, keys_tensor=np.array([1], np.int32), values_int64s=[7]), x)
    assert result.tolist() == [7, -1]
    (result,) = run(lambda x: on.ml.LabelEncoder(x, keys_tensor=np.array([1], np.int32), values_strings=["p"]), x)
    assert result.tolist() == ["p", "_Unused"]


TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [1.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "class_treeids": [0, 0, 0, 0],
    "class_nodeids": [1, 1, 2, 2],
    "class_ids": [0, 1, 0, 1],
    "class_weights": [0.75, 0.25, 0.25, 0.75],
}


@pytest.mark.numbers
@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 4]}, {"classlabels_strings": ["no", "yes"]}])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_tree_classifier_of_two_classes_has_the_label_of_the_greatest_score(labels: dict[str, Any], dtype: Any) -> None:
    x = np.array([[1], [2], [0]], dtype)
    label, scores = run(lambda x: on.ml.TreeEnsembleClassifier(x, **TREE, **labels), x)
    (names,) = labels.values()
    assert label.tolist() == [names[0], names[1], names[0]]
    np.testing.assert_array_equal(scores, np.array([[0.75, 0.25], [0.25, 0.75], [0.75, 0.25]], np.float32))
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["l", "s"], domain="ai.onnx.ml", **TREE, **labels)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), ["n", 1])
    graph = helper.make_graph([node], "trees", [info], [onnx.ValueInfoProto(name=n) for n in "ls"])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    evaluated: Any = ReferenceEvaluator(model).run(None, {"x": x})
    assert evaluated[0].tolist() == label.tolist()
    assert gc.InferenceSession().load(model)(x)[0].tolist() == label.tolist()


@pytest.mark.numbers
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_tree_classifier_of_leaves_of_one_class_has_a_score_of_0_for_the_other(transform: str) -> None:
    x = np.array([[1], [2]], np.float32)
    results = {
        **TREE,
        "class_nodeids": [1, 2],
        "class_treeids": [0, 0],
        "class_ids": [0, 1],
        "class_weights": [2.0, 3.0],
    }
    results |= {"classlabels_int64s": [5, 6], "post_transform": transform}
    label, scores = run(lambda x: on.ml.TreeEnsembleClassifier(x, **results), x)
    plain = np.array([[2.0, 0.0], [0.0, 3.0]])
    powers = np.exp(plain)
    zero = np.where(plain == 0, 0, powers)
    wanted = {
        "NONE": plain,
        "SOFTMAX": powers / powers.sum(axis=1, keepdims=True),
        "LOGISTIC": 1 / (1 + np.exp(-plain)),
        "SOFTMAX_ZERO": zero / zero.sum(axis=1, keepdims=True),
    }
    assert label.tolist() == [5, 6]
    np.testing.assert_allclose(scores, wanted[transform], rtol=1e-6)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_regressors_take_what_their_kernels_do_not(dtype: Any) -> None:
    x = np.array([[1, 2, 1], [3, 1, 2]], dtype)
    (result,) = run(lambda x: on.ml.LinearRegressor(x, coefficients=[0.5, 1.0, -1.0], intercepts=[0.25]), x)
    np.testing.assert_array_equal(result, np.array([[1.75], [0.75]], np.float32))


# TreeEnsemble

FOREST: dict[str, Any] = {
    "n_targets": 2,
    "nodes_featureids": [0, 1, 2, 1, 0, 2, 0],
    "nodes_splits": [0.5, 1.0, 2.0, 1.0, 0.5, -1.0, 3.0],
    "nodes_modes": [0, 1, 2, 3, 4, 5, 4],
    "nodes_truenodeids": [1, 0, 2, 3, 4, 6, 8],
    "nodes_trueleafs": [0, 1, 1, 1, 1, 1, 1],
    "nodes_falsenodeids": [2, 1, 3, 5, 5, 7, 9],
    "nodes_falseleafs": [0, 1, 0, 1, 0, 1, 1],
    "leaf_targetids": [0, 1, 0, 1, 0, 1, 0, 1, 1, 1],
    "leaf_weights": [0.5, 0.25, -1.0, 2.0, 0.125, 0.75, -0.5, 1.5, 0.25, -0.25],
    "tree_roots": [0, 4, 6],
}
"""Three trees of every comparison. Of the third, a target has one score or none."""

SETS: dict[str, Any] = {
    "nodes_modes": [0, 6, 2, 6, 6, 5, 6],
    "membership_values": [1.0, 40.0, float("nan"), -1.0, 0.5, float("nan"), float("nan"), 2.0, 3.0, 7.5, float("nan")],
}
"""Sets of whole and of other numbers, and an empty one."""

EMPTY_SET: dict[str, Any] = {"nodes_modes": [6] * 7, "membership_values": [float("nan")] * 7}
TRACKED: dict[str, Any] = {"nodes_missing_value_tracks_true": [1, 0, 1, 1, 1, 0, 1]}
ROOTS_OF_LEAVES: dict[str, Any] = {
    "nodes_falsenodeids": [1, 1, 3, 5, 5, 7, 8],
    "nodes_falseleafs": [1, 1, 0, 1, 0, 1, 1],
}
"""A root with a node and a leaf of the same number, and one with the same leaf twice."""

POINTS = np.array(
    [[a, b, c] for a in (-1, 0.5, 3) for b in (0.5, 1, 40) for c in (-1, 2, 7.5)] + [[np.nan] * 3, [3, np.nan, 2]]
)


def grown(message: dict[str, Any], x: Any) -> Any:
    """Return the scores of a forest, without a transform, in float64."""
    values = iter(message.get("membership_values", ()))
    sets = {at: members(values) for at, mode in enumerate(message["nodes_modes"]) if mode == 6}
    scores = np.zeros((len(x), message["n_targets"]))
    tracks = message.get("nodes_missing_value_tracks_true", [0] * len(message["nodes_modes"]))
    for row, point in zip(scores, x, strict=True):
        results: list[list[float]] = [[] for _ in row]
        for root in message["tree_roots"]:
            at, is_leaf = root, 0
            while not is_leaf:
                a, b = float(point[message["nodes_featureids"][at]]), message["nodes_splits"][at]
                compared = (a <= b, a < b, a >= b, a > b, a == b, a != b, a in sets.get(at, ()))
                holds = compared[message["nodes_modes"][at]] or (np.isnan(a) and tracks[at])
                name = "true" if holds else "false"
                at, is_leaf = message[f"nodes_{name}nodeids"][at], message[f"nodes_{name}leafs"][at]
            results[message["leaf_targetids"][at]].append(message["leaf_weights"][at])
        combined = (lambda v: sum(v) / len(message["tree_roots"]), sum, min, max)[message.get("aggregate_function", 1)]
        row[:] = [combined(each) if each else 0 for each in results]
    return scores


def members(values: Any) -> set[float]:
    """Return the next values up to a NaN."""
    results: set[float] = set()
    while (value := next(values)) == value:
        results.add(value)
    return results


def transformed(scores: Any, transform: int) -> Any:
    powers = np.exp(scores)
    if transform == 1:
        return powers / powers.sum(axis=1, keepdims=True)
    if transform == 2:
        return 1 / (1 + np.exp(-scores))
    if transform == 3:
        with np.errstate(invalid="ignore"):
            zero = np.where(scores == 0, 0, powers)
            return zero / zero.sum(axis=1, keepdims=True)
    return scores


def forest(message: dict[str, Any], dtype: Any) -> gc.Graph:
    dtypes = {**dict.fromkeys(("nodes_splits", "leaf_weights", "membership_values"), dtype), "nodes_modes": np.uint8}
    own = {n: np.array(v, dtypes[n]) if n in dtypes else v for n, v in message.items()}
    graph = gc.Graph("forest", {"x": gc.TensorType(DType.of(np.dtype(dtype)), ["n", 3])})
    graph.output(y=on.ml.TreeEnsemble(graph["x"], **own))
    return graph


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_zero_scales_a_score_near_0_by_the_greatest(dtype: Any) -> None:
    results = {
        "nodes_featureids": [0, 0], "nodes_modes": [0, 0], "nodes_splits": [0.0, 0.0], "tree_roots": [0, 1],
        "nodes_truenodeids": [0, 1], "nodes_falsenodeids": [0, 1], "nodes_trueleafs": [1, 1],
        "nodes_falseleafs": [1, 1], "leaf_targetids": [0, 1], "leaf_weights": [1e-8, 3.0], "n_targets": 2,
        "post_transform": 3,
    }  # fmt: skip
    (result,) = gc.InferenceSession().load(forest(results, dtype))(np.zeros((1, 3), dtype))
    np.testing.assert_allclose(result, [[1e-8 * np.exp(-3.0), 1.0]], rtol=1e-6)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("transform", range(4))
@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("tracked", [{}, TRACKED], ids=["", "tracked"])
@pytest.mark.parametrize(
    "other", [{}, SETS, EMPTY_SET, ROOTS_OF_LEAVES, {"n_targets": 1, "leaf_targetids": [0] * 10}],
    ids=["compared", "sets", "empty", "roots", "one"],
)  # fmt: skip
def test_forests_have_the_scores_of_their_leaves(
    other: dict[str, Any], tracked: dict[str, Any], aggregate: int, transform: int, dtype: Any
) -> None:
    results = {**FOREST, **other, **tracked, "aggregate_function": aggregate, "post_transform": transform}
    x = POINTS.astype(dtype)
    wanted = transformed(grown(results, x), transform)
    graph = forest(results, dtype)
    model = graph.to_onnx(runtime="1.20")
    assert "TreeEnsemble" not in {node.op_type for node in model.graph.node}, "onnxruntime 1.20 has no kernel"
    assert {e.domain: e.version for e in model.opset_import}["ai.onnx.ml"] < 5
    exact = aggregate and not transform
    tolerance = {np.float16: 2e-3, np.float32: 2e-6, np.float64: 1e-14}[dtype]
    for item in (gc.InferenceSession().load(graph)(x)[0], gc.InferenceSession().load(model)(x)[0]):
        assert item.dtype == dtype
        if exact:
            np.testing.assert_array_equal(item, wanted)
        else:
            np.testing.assert_allclose(item, wanted, rtol=tolerance, atol=tolerance)


BROKEN: dict[str, dict[str, Any]] = {
    "mode": {"nodes_modes": [9] * 7},
    "root": {"tree_roots": [7]},
    "leaf": {"nodes_truenodeids": [1, 0, 2, 3, 4, 6, 10]},
    "transform": {"post_transform": 5},
    "target": {"leaf_targetids": [2] * 10},
    "lengths": {"nodes_splits": [0.5]},
    "circle": {"nodes_truenodeids": [0, 0, 2, 3, 4, 6, 8]},
}


@pytest.mark.parametrize("name", BROKEN)
def test_forests_without_what_they_name_are_refused(name: str) -> None:
    with pytest.raises(gc.GraphcoreError, match="TreeEnsemble"):
        forest({**FOREST, **BROKEN[name]}, np.float32).to_onnx(runtime="1.20")
