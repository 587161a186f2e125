"""Tests of the layers of graphs: from scopes, from names, and from the flow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcore import DType, Graph, TensorType, ops
from graphcore.analysis.layers import Layers, layers, path_in, totals
from tests.support.drawn_graphs import exported, mixed, unet

F32 = TensorType(DType.float32, [4])


def shown(result: Layers) -> dict[str, int]:
    return {layer.path: layer.nodes for layer in result.layers}


def test_layers_are_those_that_nodes_were_built_in() -> None:
    assert shown(layers(mixed())) == {"scale": 4, "head": 5}
    names = [item.name for item in layers(unet()).layers]
    assert names == ["down0", "down1", "down2", "up2", "up1", "up0"]


def test_layers_are_in_the_names_of_results_where_no_scope_is_known() -> None:
    result = layers(exported(2))
    assert shown(result) == {
        "encoder/layer.0": 12,
        "encoder/layer.0/attention": 6,
        "encoder/layer.0/mlp": 6,
        "encoder/layer.1": 12,
        "encoder/layer.1/attention": 6,
        "encoder/layer.1/mlp": 6,
    } | {"encoder": 24}
    assert result.path_of(2) == "encoder/layer.0/attention"
    assert result.around(2) == ("encoder", "encoder/layer.0", "encoder/layer.0/attention")
    assert result.path_of(24) == ""  # the Identity at the end


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/a/b/MatMul_output_0", ("a", "b")),
        ("model.layers.0.add", ("model", "layers", "0")),
        ("model/layer.0/Add:0", ("model", "layer.0")),
        ("add", ()),
        ("/add", ()),
        ("", ()),
        ("a//b", ("a",)),
    ],
)
def test_path_is_what_stands_before_the_last_part(name: str, path: tuple[str, ...]) -> None:
    assert path_in(name) == path


def test_node_without_a_name_is_in_what_its_neighbours_share() -> None:
    graph = Graph("g", {"x": F32})
    y = ops.exp(graph["x"])
    y.name = "a/b/first"
    y = ops.tanh(y)
    y = ops.sin(y)
    y.name = "a/c/second"
    y = ops.cos(y)
    y.name = "a/c/third"
    graph.output(ops.abs(y))
    assert [layers(graph).path_of(i) for i in range(5)] == ["a", "a", "a/c", "a/c", ""]


def test_layers_of_one_node_and_of_all_nodes_are_left_out() -> None:
    graph = Graph("g", {"x": F32})
    with graph.layer("whole"):
        with graph.layer("single"):
            y = ops.exp(graph["x"])
        graph.output(ops.sin(y))
    assert layers(graph) == Layers((), (-1, -1))


def test_chain_of_layers_with_nothing_between_is_one() -> None:
    graph = Graph("g", {"x": F32})
    with graph.layer("a"), graph.layer("b"):
        y = ops.sin(ops.exp(graph["x"]))
    graph.output(ops.cos(y))
    (only,) = layers(graph).layers
    assert (only.path, only.name, only.parent, only.nodes) == ("a/b", "a/b", -1, 2)


@pytest.mark.parametrize("count", [301, 2_000, 20_000])
def test_large_graph_without_names_is_cut_into_parts_of_a_size(count: int) -> None:
    graph = Graph("g", {"x": F32})
    y = graph["x"]
    for _ in range(count):
        y = ops.exp(y)
    graph.output(y)
    result = layers(graph)
    inner = [layer for i, layer in enumerate(result.layers) if i in set(result.innermost)]
    outer = [layer for layer in result.layers if layer.parent < 0]
    assert sum(layer.nodes for layer in inner) == count
    assert max(layer.nodes for layer in inner) <= max(30, 1.5 * count**0.5)
    assert len(outer) <= 40


def test_many_small_layers_are_put_into_parts_as_a_whole() -> None:
    graph = Graph("g", {"x": F32})
    y = graph["x"]
    for i in range(400):
        with graph.layer(f"layer{i}"):
            y = ops.sin(ops.exp(y))
    graph.output(y)
    result = layers(graph)
    names = [layer.name for layer in result.layers]
    assert len({name for name in names if name.startswith("layer")}) == 400 == sum(n.startswith("layer") for n in names)
    assert sum(layer.parent < 0 for layer in result.layers) <= 30
    assert all(result.path_of(i).startswith("part ") for i in range(800))


def test_parts_end_where_few_values_are_live() -> None:
    graph = Graph("g", {"x": F32})
    y = graph["x"]
    for _ in range(100):  # a block of four whose inside has two live values
        a, b = ops.exp(y), ops.sin(y)
        y = ops.tanh(a * b)
    graph.output(y)
    result = layers(graph)
    starts = [i for i in range(1, 400) if result.innermost[i] != result.innermost[i - 1]]
    assert starts
    assert all(start % 4 in (0, 3) for start in starts)  # after a product or after its block


def test_totals_add_up_inner_layers() -> None:
    result = layers(exported(2))
    sums = dict(zip(shown(result), totals(result, [1.0] * 25), strict=True))
    assert sums == {path: float(count) for path, count in shown(result).items()}


@given(st.lists(st.text(alphabet="ab/.", max_size=9), min_size=1, max_size=12))
def test_every_node_is_in_a_layer_that_counts_it(names: list[str]) -> None:
    graph = Graph("g", {"x": F32})
    y = graph["x"]
    for i, name in enumerate(names):
        y = ops.exp(y)
        y.name = f"{name}/{i}"
    graph.output(y)
    result = layers(graph)
    counts = [0] * len(result.layers)
    for position in result.innermost:
        while position >= 0:
            counts[position] += 1
            position = result.layers[position].parent
    assert counts == [layer.nodes for layer in result.layers]
    assert all(layer.parent < i for i, layer in enumerate(result.layers))
    assert all(1 < layer.nodes < len(names) for layer in result.layers)
