"""Named dims with a bound: `Dim("batch", min=1)`."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Dim, Graph, TensorType, ops
from graphcore.errors import FeedError

F32 = np.float32


def graph_of(dim: Any = None) -> Graph:
    graph = Graph("g", {"x": TensorType("float32", [Dim("batch", min=1) if dim is None else dim, 3])})
    with graph:
        y = ops.reshape(graph["x"] * 2, ["batch", 3, 1])
    graph.output(made=y)
    return graph


def test_bound_is_part_of_the_dim() -> None:
    dim = Dim("batch", min=1)
    assert dim is Dim("batch", min=1)
    assert dim is Dim("batch>=1")
    assert str(dim) == "batch>=1"
    assert (dim.name, dim.min, dim.lower_bound) == ("batch", 1, 1)
    assert (Dim("batch").min, Dim(3).min, Dim.dynamic().min) == (0, 0, 0)
    assert dim != Dim("batch")
    assert Dim("batch", min=0) is Dim("batch>=0") is Dim("batch")
    assert Dim(dim, min=4).min == 4
    assert Dim(dim, min=0) is dim


def test_bound_decides_what_sizes_decide() -> None:
    dim = Dim("batch", min=2)
    assert dim >= 2
    assert Dim.maximum(dim - 1, 0) is dim - 1
    assert (dim * 2 + 1).lower_bound == 5
    assert dim.parameters == {"batch"}
    assert dim.evaluate({"batch": 7}) == 7
    assert dim.substitute({"batch": 4}) == 4


@pytest.mark.parametrize("dim", [Dim("a", min=1), Dim("a", min=3) * 2 + 1, Dim("a", min=1) // 2 + Dim("b")])
def test_bound_survives_text_pickling_and_copies(dim: Dim) -> None:
    assert Dim(str(dim)) is dim
    assert pickle.loads(pickle.dumps(dim)) is dim
    assert copy.deepcopy(dim) is dim
    assert eval(repr(dim)) is dim


@pytest.mark.parametrize("value", [4, "2 * a", Dim.dynamic()])
def test_bound_is_refused_when_the_dim_is_not_a_name(value: Any) -> None:
    with pytest.raises(ValueError, match="only a plain name can"):
        Dim(value, min=1)


@pytest.mark.parametrize("least", [-1, True, 1.5, "1", 10**15])
def test_bound_is_refused_when_it_is_not_a_size(least: Any) -> None:
    with pytest.raises(ValueError, match="min must be a number from 0 to"):
        Dim("a", min=least)


@pytest.mark.parametrize("text", ["a>=", "a>=-1", "a >= 1", "1>=1", "a>=1b", "a>=" + "9" * 40])
def test_text_of_no_bound_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid dim"):
        Dim(text)


def test_feed_below_the_bound_is_an_error_in_words() -> None:
    model = gc.InferenceSession().load(graph_of())
    assert model(np.ones((1, 3), F32))[0].shape == (1, 3, 1)
    with pytest.raises(FeedError) as raised:
        model(np.ones((0, 3), F32))
    assert raised.value.summary == ("g: axis 0 of input 'x' must be batch, which is 1 or more, got float32[0, 3]")
    assert gc.InferenceSession().load(graph_of("batch"))(np.ones((0, 3), F32))[0].shape == (0, 3, 1)


def test_dim_is_called_by_its_name_within_the_graph() -> None:
    graph = graph_of()
    assert str(graph["x"].type) == "float32[batch, 3]"
    assert str(graph.outputs[0].type) == "float32[batch, 3, 1]"
    assert "input   x: float32[batch>=1, 3]" in str(graph)
    assert str(gc.InferenceSession().load(graph).inputs["x"]) == "float32[batch>=1, 3]"


def test_greatest_bound_counts_when_inputs_state_several() -> None:
    types = {n: TensorType("float32", [Dim("n", min=least)]) for n, least in (("x", 1), ("y", 3))}
    graph = Graph("g", types)
    graph.output(made=graph["x"] + graph["y"])
    assert str(graph).count("float32[n>=3]") == 2


def refusing(graph: Graph | Path) -> None:
    model = gc.InferenceSession().load(graph)
    with pytest.raises(FeedError, match="which is 1 or more"):
        model(np.ones((0, 3), F32))


def test_bound_survives_export_pickling_and_optimising(tmp_path: Path) -> None:
    graph = graph_of()
    graph.export(tmp_path / "model.onnx")
    read = Graph.load(tmp_path / "model.onnx")
    assert "batch>=1" in str(read)
    refusing(tmp_path / "model.onnx")
    refusing(pickle.loads(pickle.dumps(graph)))
    refusing(graph.optimize())
    read.export(tmp_path / "again.onnx")
    refusing(tmp_path / "again.onnx")


def test_bound_survives_a_start_from_the_cache(tmp_path: Path) -> None:
    for _ in range(2):
        model = gc.InferenceSession().load(graph_of(), cache_dir=tmp_path)
        with pytest.raises(FeedError, match="which is 1 or more"):
            model(np.ones((0, 3), F32))


@pytest.mark.parametrize("note", ["", "[]", "{", '{"batch": "1"}', '{"2 * a": 1}', '{"batch": -1}', '{"batch": 1e99}'])
def test_note_of_a_file_that_makes_no_sense_bounds_nothing(note: str, tmp_path: Path) -> None:
    graph = graph_of("batch")
    graph.metadata["graphcore.dims"] = note
    graph.export(tmp_path / "model.onnx")
    assert "input   x: float32[batch, 3]" in str(Graph.load(tmp_path / "model.onnx"))


def test_bind_checks_the_bound() -> None:
    model = gc.InferenceSession().load(graph_of())
    assert model.bind(batch=2)()[0].shape == (2, 3, 1)
    with pytest.raises(FeedError, match="which is 1 or more"):
        model.bind(batch=0)


def test_fused_attention_needs_no_test_for_nothing_when_dims_have_bounds() -> None:
    def lowered(least: int) -> set[str]:
        sizes: list[Dim | int] = [Dim("batch", min=least), 4, Dim("length", min=least), 8]
        graph = Graph("g", {n: TensorType("float32", sizes) for n in "qkv"})
        with graph:
            scores = ops.softmax(graph["q"] @ ops.transpose(graph["k"], (0, 1, 3, 2)) * 0.5)
            result = scores @ graph["v"]
        graph.output(made=result)
        model = gc.InferenceSession().load(graph)
        assert model._lowered is not None
        return {node.op_type for node in model._lowered.nodes}

    if "If" in lowered(0):
        assert "If" not in lowered(1)
        assert "Attention" in lowered(1)
    else:
        pytest.skip("this release's attention takes tensors without elements, and no test is made")
