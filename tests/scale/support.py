"""Small models of several dtypes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.runtime.batcher import Batcher


def graphs() -> dict[str, Graph]:
    """Return graphs of one input x and one output y, [batch, 3], by what they are of."""
    results: dict[str, Graph] = {}
    for name, dtype in (
        ("floats", DType.float32),
        ("brains", DType.bfloat16),
        ("integers", DType.int64),
        ("texts", DType.string),
        ("nibbles", DType.int4),
    ):
        graph = Graph(name, {"x": TensorType(dtype, ["batch", 3])})
        x = graph["x"]
        if name == "texts":
            y = ops.concat([x, x], axis=1)[:, 1:4]
        elif name == "nibbles":
            y = x
            y = (x.cast(DType.int8) // np.int8(2)).cast(DType.int4)
        else:
            y = x + x
        graph.output(y=y)
        results[name] = graph
    return results


@functools.cache
def models() -> dict[str, gc.Model]:
    """Return the models of the graphs."""
    return {name: gc.InferenceSession(intra_op_num_threads=1).load(graph) for name, graph in graphs().items()}


def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the futures of the requests that batchers get from now on."""
    requests: list[Any] = []
    submit = Batcher.submit

    def call(batcher: Batcher, /, *arrays: Any, **options: Any) -> Any:
        requests.append(submit(batcher, *arrays, **options))
        return requests[-1]

    monkeypatch.setattr(Batcher, "submit", call)
    return requests
