"""The main job in a few seconds: build, export, run, and the error of a mistake."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops

pytestmark = pytest.mark.releases


def build() -> Graph:
    graph = Graph("scale", {"tokens": TensorType(DType.int8, ["batch", 4]), "gain": TensorType(DType.bfloat16, [4])})
    tokens, gain = graph.inputs
    graph.output(prob=ops.softmax(tokens * gain + 1))
    return graph


@pytest.mark.numbers
def test_graph_runs_when_loaded() -> None:
    tokens = np.array([[1, 2, 3, 4], [0, 0, 0, 0]], np.int8)
    gain = np.array([0.5, 1, 2, 4], ml_dtypes.bfloat16)
    (prob,) = gc.InferenceSession().load(build())(tokens, gain)
    scaled = (tokens * gain.astype(np.float32)).astype(ml_dtypes.bfloat16).astype(np.float32) + 1
    powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    want = (powers / powers.sum(axis=-1, keepdims=True)).astype(ml_dtypes.bfloat16)
    assert prob.dtype == ml_dtypes.bfloat16
    assert (np.abs(prob.astype(np.float32) - want.astype(np.float32)) <= 2.0**-9).all()


def test_exported_file_runs_in_plain_onnxruntime(tmp_path: Path) -> None:
    graph = Graph("double", {"x": TensorType(DType.float32, ["n"])})
    graph.output(y=graph["x"] * 2)
    graph.export(tmp_path / "double.onnx")
    (y,) = onnxruntime.InferenceSession(tmp_path / "double.onnx").run(None, {"x": np.ones(3, np.float32)})
    assert (y == 2).all()


def test_mistake_is_reported_when_it_is_made() -> None:
    graph = build()
    with pytest.raises(gc.GraphcoreError, match=r"300 cannot be held in int8"):
        graph["tokens"] + 300
