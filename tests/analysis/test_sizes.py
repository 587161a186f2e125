"""Tests of parameters and bytes by weight and by layer."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphcore import DType, Graph, TensorType, ops
from graphcore.analysis.sizes import sizes
from tests.support.drawn_graphs import branching, called, exported, mixed, unet

F32 = TensorType(DType.float32, [4])


def test_sizes_by_weight_and_by_layer() -> None:
    result = sizes(mixed())
    assert [(w.name, w.layer, w.shape, w.elements, w.bytes, w.readers) for w in result.weights if w.is_weight] == [
        ("w", "head", (64, 32), 2048, 8192, 1)
    ]
    assert (result.parameters, result.bytes) == (2048, 8192 + 2 + 8)  # 1 in bfloat16, an axis in int64
    assert [(row.path, row.depth, row.nodes, row.parameters, row.bytes) for row in result.layers] == [
        ("scale", 0, 4, 0, 2),
        ("head", 0, 5, 2048, 8200),
    ]


def test_layers_hold_what_their_inner_layers_hold() -> None:
    result = sizes(exported(3))
    rows = {row.path: row for row in result.layers}
    assert [row.path for row in result.layers][:4] == [
        "encoder",
        "encoder/layer.0",
        "encoder/layer.0/attention",
        "encoder/layer.0/mlp",
    ]
    assert rows["encoder"].parameters == result.parameters == 3 * 4 * 64
    assert rows["encoder/layer.1"].parameters == 4 * 64
    assert (rows["encoder/layer.1/mlp"].depth, rows["encoder/layer.1/mlp"].bytes) == (2, 2 * 256)


def test_weight_that_several_nodes_read_counts_once() -> None:
    graph = Graph("g", {"x": F32})
    w = graph.weight("w", np.ones(4, np.float32))
    with graph.layer("a"):
        y = ops.exp(graph["x"] + w)
    with graph.layer("b"):
        graph.output(ops.exp(y * w))
    graph.weight("unread", np.ones(3, np.float32))
    result = sizes(graph)
    assert [(w.name, w.layer, w.readers) for w in result.weights] == [("w", "a", 2), ("unread", "", 0)]
    assert result.parameters == 7
    assert [(row.path, row.parameters) for row in result.layers] == [("a", 4), ("b", 0)]


def test_bodies_and_functions_are_layers() -> None:
    paths = [row.path for row in sizes(branching()).layers]
    assert "grow/loop_5.body" in paths
    assert "choose/if_9.else_branch/if_6.then_branch" in paths
    function = sizes(called())
    assert [(row.path, row.nodes) for row in function.layers] == [("dense", 2)]
    assert function.parameters == 4 * 64


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (np.ones(5, ml_dtypes.int4), None, 3),
        (np.ones(5, np.int8), DType.int(3), 5),
        (np.ones(5, bool), None, 5),
        (np.ones(5, ml_dtypes.bfloat16), None, 10),
        (np.ones(5, np.float32), DType.tf32, 20),
        (np.array([2**70, 1], object), DType.int(72), 2 * 3 * 4),
        (np.array(["a", "\u00e9"], object), None, 3),
    ],
)
def test_bytes_are_those_of_a_file(array: object, dtype: DType | None, expected: int) -> None:
    graph = Graph("g", {"x": F32})
    graph.weight("w", array, dtype)
    graph.output(ops.exp(graph["x"]))
    assert sizes(graph).bytes == expected


def test_sum_over_weights_is_the_total() -> None:
    result = sizes(unet())
    assert result.parameters == sum(w.parameters for w in result.weights)
    assert result.bytes == sum(row.bytes for row in result.layers if not row.depth)
