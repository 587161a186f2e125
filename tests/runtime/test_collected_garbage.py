"""The garbage collector runs while a program builds, lowers and loads graphs: what they left is freed."""

from __future__ import annotations

import gc as collector
import weakref

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops


def test_graphs_that_are_gone_are_freed_while_others_are_loaded() -> None:
    results = []
    before = collector.get_stats()[0]["collections"]
    for _ in range(60):
        graph = Graph("one", {"x": TensorType(DType.float32, ["n"])})
        y = graph["x"]
        for _ in range(40):
            y = ops.relu(y + 1.0)
        graph.output(y)
        gc.InferenceSession(intra_op_num_threads=1).load(graph)(np.ones(3, np.float32))
        results.append(weakref.ref(y))
    assert collector.get_stats()[0]["collections"] > before
    assert any(reference() is None for reference in results)
