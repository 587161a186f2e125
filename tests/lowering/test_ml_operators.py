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
    (found,) = run(lambda x: on.ml.Binarizer(x, threshold=threshold), x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, (x.astype(np.float64) > np.float32(threshold)).astype(dtype))


@pytest.mark.numbers
@pytest.mark.parametrize(("old", "dtype"), [(2.0, np.float64), (float("nan"), np.float64), (2, np.int32)])
def test_imputer_replaces_what_is_missing(old: float, dtype: Any) -> None:
    x = np.array([[1, old, 3], [old, 5, 2]], dtype)
    kinds = ("float", "floats") if dtype is np.float64 else ("int64", "int64s")
    said = {f"replaced_value_{kinds[0]}": old, f"imputed_value_{kinds[1]}": [7, 8, 9]}
    (found,) = run(lambda x: on.ml.Imputer(x, **said), x)
    missing = np.isnan(x) if old != old else x == old
    np.testing.assert_array_equal(found, np.where(missing, np.array([7, 8, 9]), x))
    assert found.dtype == dtype


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
@pytest.mark.parametrize("made", VALUES, ids=str)
def test_label_encoder_maps_every_dtype_to_every_other(given_: DType, made: DType) -> None:
    pairs: list[tuple[Any, DType]] = [(KEYS, given_), (VALUES, made)]
    keys, values = (np.array(v[d], object if d is D.string else d.numpy) for v, d in pairs)
    other = np.array(["z"] if made is D.string else [5], values.dtype)
    x = np.array([keys[1], keys[0], keys[1], keys[0]], keys.dtype)
    x[3] = "c" if given_ is D.string else 4
    said = {"keys_tensor": keys, "values_tensor": values, "default_tensor": other}
    (found,) = run(lambda x: on.ml.LabelEncoder(x, **said), x, dtypes=[given_])
    assert found.tolist() == [values[1], values[0], values[1], other[0]]
    assert found.dtype == values.dtype


def test_label_encoder_has_the_defaults_of_the_schema() -> None:
    x = np.array([1, 3], np.int32)
    (found,) = run(lambda x: on.ml.LabelEncoder(x, keys_tensor=np.array([1], np.int32), values_int64s=[7]), x)
    assert found.tolist() == [7, -1]
    (found,) = run(lambda x: on.ml.LabelEncoder(x, keys_tensor=np.array([1], np.int32), values_strings=["p"]), x)
    assert found.tolist() == ["p", "_Unused"]


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
    said = {**TREE, "class_nodeids": [1, 2], "class_treeids": [0, 0], "class_ids": [0, 1], "class_weights": [2.0, 3.0]}
    said |= {"classlabels_int64s": [5, 6], "post_transform": transform}
    label, scores = run(lambda x: on.ml.TreeEnsembleClassifier(x, **said), x)
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
    (found,) = run(lambda x: on.ml.LinearRegressor(x, coefficients=[0.5, 1.0, -1.0], intercepts=[0.25]), x)
    np.testing.assert_array_equal(found, np.array([[1.75], [0.75]], np.float32))
