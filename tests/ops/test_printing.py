"""print: values that a debug run shows without their names."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, InferenceSession, Symbol, TensorType, ops
from graphcore.errors import GraphError

X = np.array([0.0, 0.5], np.float32)


def graph_of(dtype: DType = DType.float32) -> Graph:
    return Graph("printed", {"x": TensorType(dtype, ["n"])})


def test_debug_shows_what_is_printed_when_nothing_is_watched() -> None:
    graph = graph_of()
    hidden = ops.exp(graph["x"]).print("hidden")
    graph["x"].print("given")
    graph.constant([7], "int8").print("seven")
    graph.output(y=hidden * 2)
    seen = InferenceSession().load(graph).debug(X)
    assert list(seen) == ["hidden", "given", "seven"]
    np.testing.assert_allclose(seen["hidden"], np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(seen["given"], X)
    assert seen["seven"].dtype == np.int8
    assert seen["seven"].tolist() == [7]


def test_print_leaves_the_graph_and_its_file_as_they_are() -> None:
    plain, marked = graph_of(), graph_of()
    plain.output(y=ops.exp(plain["x"]) * 2)
    y = ops.exp(marked["x"])
    assert ops.print(y) is y
    marked.output(y=y * 2)
    assert marked.to_onnx().SerializeToString() == plain.to_onnx().SerializeToString()


def test_print_numbers_a_label_that_is_given_again() -> None:
    graph = graph_of()
    x = graph["x"]
    for _ in range(3):
        x = (x + 1).print("h")
    x.print("h_2").print()
    graph.output(x)
    seen = InferenceSession().load(graph).debug(X)
    assert list(seen) == ["h", "h_1", "h_2", "debug_tensor"]
    np.testing.assert_array_equal(seen["h_1"], X + 2)


def test_print_works_in_functions_copies_and_optimised_graphs() -> None:
    @gc.function
    def twice(x: Symbol) -> Symbol:
        return (x + x).print("doubled") * 3

    graph = graph_of(DType.bfloat16)
    graph.output(y=twice(twice(graph["x"])))
    x = np.array([1, 2], DType.bfloat16.numpy)
    for each in (graph, graph.optimize(), pickle.loads(pickle.dumps(graph))):
        seen = InferenceSession().load(each).debug(x)
        assert list(seen) == ["twice/doubled", "twice_1/doubled"]
        np.testing.assert_array_equal(seen["twice_1/doubled"], x * 12)


def test_print_refuses_a_value_inside_a_body() -> None:
    graph = graph_of()
    x = graph["x"]

    def body() -> Symbol:
        x.print("outside")  # which is not in the body
        return ops.exp(x).print("inside")

    with pytest.raises(
        GraphError, match=r"a run cannot return values from there[\s\S]*print the result of cond or the loop"
    ):
        ops.cond(ops.sum(x) > 0, body, lambda: x)
    assert list(graph.watched) == ["outside"]
    with pytest.raises(GraphError, match="is not a valid name"):
        x.print("")


def test_debug_says_how_to_mark_when_nothing_is(tmp_path: Path) -> None:
    graph = graph_of()
    graph.output(y=ops.exp(graph["x"]).print("hidden"))
    graph.export(tmp_path / "printed.onnx")
    model: Any = InferenceSession().load(tmp_path / "printed.onnx")
    with pytest.raises(GraphError, match=r'nothing of graph .* is marked[\s\S]*x.print\("label"\)'):
        model.debug(X)
