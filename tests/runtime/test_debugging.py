"""Model.debug: values from inside a model, by name."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, InferenceSession, TensorType, ops
from graphcore.errors import FeedError, GraphError, ModelError


def encoder() -> Graph:
    graph = Graph("encoder", {"x": TensorType(DType.float32, ["n", 2])})
    x = graph["x"]
    for _ in range(2):
        with graph.layer("block"):
            scaled = x * 2.0
            with graph.layer("inner"):
                x = ops.exp(scaled)
    x.name = "last"
    graph.output(y=x + 1)
    return graph


X = np.array([[0.0, 0.5]], np.float32)


def test_debug_returns_what_a_layer_makes_when_a_pattern_names_it() -> None:
    model = InferenceSession().load(encoder())
    seen = model.debug(X, watch="block/*")
    first = np.exp(X * 2)
    names = list(seen)
    assert [n.rsplit("_", 1)[0] for n in names] == ["block/mul", "block/inner/exp"]
    np.testing.assert_array_equal(seen[names[0]], X * 2)
    np.testing.assert_allclose(seen[names[1]], first, rtol=1e-6)
    np.testing.assert_array_equal(model(X)[0], model(x=X)[0])


@pytest.mark.parametrize("watch", ["last", "block_1/inner/last", "block_1/inner/*", ["last"], ["l*t", "last"]])
def test_debug_finds_a_value_by_its_name_and_by_its_layer(watch: str | list[str]) -> None:
    seen = InferenceSession().load(encoder()).debug(x=X, watch=watch)
    assert list(seen) == ["last"]
    np.testing.assert_allclose(seen["last"], np.exp(np.exp(X * 2) * 2), rtol=1e-5)


def test_debug_keeps_its_session_and_the_dtypes_that_were_built() -> None:
    graph = Graph("narrow", {"x": TensorType(DType.bfloat16, ["n"])})
    squared = graph["x"] * graph["x"]
    squared.name = "squared"
    graph.output(squared.cast(DType.float32))
    model = InferenceSession().load(graph)
    x = np.array([1.5, 3.0], ml_dtypes.bfloat16)
    first, again = model.debug(x, watch="squared"), model.debug(x, watch=["squared"])
    assert first["squared"].dtype == ml_dtypes.bfloat16
    assert first["squared"].tolist() == again["squared"].tolist() == [2.25, 9.0]
    assert len(model._watching) == 1


def test_debug_looks_into_third_party_models(tmp_path: Path) -> None:
    path = tmp_path / "encoder.onnx"
    encoder().export(path)
    seen = InferenceSession().load(path).debug(X, watch="last")
    np.testing.assert_allclose(seen["last"], np.exp(np.exp(X * 2) * 2), rtol=1e-5)


def test_debug_says_what_there_is_when_nothing_is_called_so() -> None:
    model = InferenceSession().load(encoder())
    with pytest.raises(GraphError, match=r"has no tensor called 'lost'(.|\n)*for example 'last'"):
        model.debug(X, watch="lost")
    with pytest.raises(FeedError, match="x"):
        model.debug(watch="last")
    empty = Graph("empty", {"x": TensorType(DType.float32, [])})
    empty.output(empty["x"])
    with pytest.raises(GraphError, match="the graph has no nodes"):
        InferenceSession().load(empty).debug(np.float32(1), watch="*")


def test_debug_refuses_a_compiled_model(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "encoder.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(encoder().to_onnx().SerializeToString(), options)
    with pytest.raises(ModelError, match="no graph to look into"):
        gc.InferenceSession().load(tmp_path / "encoder.ort").debug(X, watch="*")
