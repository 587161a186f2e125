"""The nodes that stay in a graph because they are used."""

from __future__ import annotations

import pytest

from graphcore import DType, Graph, TensorType
from graphcore.passes.merging import live_nodes, prune


def graph_with_rest() -> Graph:
    """A graph with a value that nothing reads, one that only has a name, and a node that has no results."""
    graph = Graph("rest", {"x": TensorType(DType.float32, [4])})
    (x,) = graph.inputs
    _ = x * 3
    named = x - 1
    named.name = "kept"
    graph.op("Notify", [x + 2], {}, [], domain="custom")
    graph.output(y=x / 2)
    return graph


def test_live_nodes_are_those_of_outputs_names_and_nodes_without_results() -> None:
    graph = graph_with_rest()
    is_live, symbols = live_nodes(graph)
    results = [node.op_type for node, stays in zip(graph.nodes, is_live, strict=True) if stays]
    assert results == ["Sub", "Add", "Notify", "Div"]
    assert symbols >= {s.id for s in graph.outputs}
    assert not any(s.id in symbols for node in graph.nodes if node.op_type == "Mul" for s in node.outputs)


def test_prune_leaves_names_out_of_account_and_keeps_the_order() -> None:
    graph = graph_with_rest()
    prune(graph)
    assert [node.op_type for node in graph.nodes] == ["Add", "Notify", "Div"]


@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16])
@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_node_without_results_stays_when_lowered(dtype: DType, target: str) -> None:
    graph = Graph("effects", {"x": TensorType(dtype, [4])})
    graph.op("Notify", [graph[0]], {}, [], domain="custom")
    graph.output(y=graph[0] + 1)
    result = graph.to_onnx(target=target)  # type: ignore[arg-type]
    assert [node.op_type for node in result.graph.node].count("Notify") == 1
