"""Relu of float64 before Clip, on which onnxruntime's optimiser fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

pytestmark = pytest.mark.releases

X = np.array([np.nan, -1.0, -0.0, 0.25, 3.0, np.inf, -np.inf])


@pytest.mark.parametrize("dtype", [DType.float64, DType.float32, DType.float16, DType.int32], ids=str)
def test_relu_is_clipped_in_sessions_and_in_files(dtype: DType, tmp_path: Path) -> None:
    x = X if dtype.is_float else np.array([-7, 0, 2, 9])
    x = x.astype(dtype.numpy)
    graph = Graph("clipped", {"x": TensorType(dtype, ["n"])})
    relu = ops.relu(graph["x"])
    graph.output(relu=relu, clipped=ops.clip(relu, 0, 2))
    graph.export(tmp_path / "clipped.onnx")
    bare = onnxruntime.InferenceSession(tmp_path / "clipped.onnx", providers=["CPUExecutionProvider"])
    wanted = np.maximum(x, 0), np.clip(x, 0, 2)
    for item in (gc.InferenceSession().load(graph)(x), bare.run(None, {"x": x})):
        for got, want in zip(item, wanted, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("through_graph", [False, True])
def test_relu_of_others_is_clipped(through_graph: bool) -> None:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["n"]) for name in "xy")
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Clip", ["a", "low", "high"], ["y"])]
    bounds = [numpy_helper.from_array(np.array(bound), name) for name, bound in (("low", 0.5), ("high", 2.0))]
    graph = helper.make_graph(nodes, "others", [x], [y], bounds)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    loaded = gc.InferenceSession().load(Graph.load(model) if through_graph else model)
    np.testing.assert_array_equal(loaded(X)[0], np.clip(X, 0.5, 2))
