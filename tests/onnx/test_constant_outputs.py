"""Constants that are outputs: of graphs, of their files read again, and of models that others wrote."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType

ARRAY = np.arange(3, dtype=np.float32)
FEED = {"x": np.ones(2, np.float32)}


def value(name: str, *dims: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)


def third_party(
    nodes: list[onnx.NodeProto],
    outputs: list[onnx.ValueInfoProto],
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]],
    inputs: list[onnx.ValueInfoProto] | None = None,
) -> bytes:
    """Return a model with y = -x beside other outputs."""
    nodes = [helper.make_node("Neg", ["x"], ["y"]), *nodes]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", "n"), *(inputs or [])],
        [*outputs, value("y", "n")],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def branch(name: str) -> onnx.GraphProto:
    return helper.make_graph([], name, [], [value(f"k{name}", 3)], [numpy_helper.from_array(ARRAY, f"k{name}")])


THIRD_PARTY: dict[str, Callable[[], bytes]] = {
    "initialiser": lambda: third_party([], [value("o", 3)], {"o": ARRAY}),
    "large": lambda: third_party([], [value("o", 600)], {"o": np.arange(600, dtype=np.float32)}),
    "used": lambda: third_party(
        [helper.make_node("Add", ["o", "o"], ["z"])], [value("o", 3), value("z", 3)], {"o": ARRAY}
    ),
    "twice": lambda: third_party(
        [helper.make_node("Identity", ["o"], ["p"])], [value("o", 3), value("p", 3)], {"o": ARRAY}
    ),
    "input as well": lambda: third_party([], [value("o", 3)], {"o": ARRAY}, [value("o", 3)]),
    "node": lambda: third_party(
        [helper.make_node("Constant", [], ["o"], value=numpy_helper.from_array(ARRAY))], [value("o", 3)], {}
    ),
    "bodies": lambda: third_party(
        [helper.make_node("If", ["t"], ["o"], then_branch=branch("a"), else_branch=branch("b"))],
        [value("o", 3)],
        {"t": np.array(True)},
    ),
}


def same(result: object, wanted: list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]) -> None:
    assert isinstance(result, list)
    assert [list(one) for one in result] == [list(one) for one in wanted]


def run_alone(model: bytes, feed: dict[str, object]) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    return list(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed))


@pytest.mark.parametrize("kind", THIRD_PARTY)
def test_constants_that_are_outputs_of_third_party_models_run_and_are_written(kind: str) -> None:
    model = THIRD_PARTY[kind]()
    wanted = run_alone(model, dict(FEED))
    same(gc.InferenceSession().load(model)(**FEED), wanted)
    graph = Graph.load(model)
    same(gc.InferenceSession().load(graph)(**FEED), wanted)
    for target in ("onnx", "cpu"):
        for level in ("off", "all"):
            written = graph.to_onnx(target=target, optimize=level).SerializeToString()
            same(run_alone(written, dict(FEED)), wanted)
            again = Graph.load(written)
            same(run_alone(again.to_onnx(target=target).SerializeToString(), dict(FEED)), wanted)


@pytest.mark.parametrize("how", ["constant", "weight of the name", "weight alone", "two outputs"])
def test_constants_that_are_outputs_of_graphs_are_read_and_written_again(how: str) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    if how == "constant":
        graph.output(o=graph.constant(ARRAY), y=-graph["x"])
    elif how == "weight of the name":
        graph.output(o=graph.weight("o", ARRAY), y=-graph["x"])
    elif how == "weight alone":
        graph.output(graph.weight("o", ARRAY), -graph["x"])
    else:
        weight = graph.weight("o", ARRAY)
        graph.output(o=weight, p=weight, y=-graph["x"])
    wanted = gc.InferenceSession().load(graph)(**FEED)
    assert isinstance(wanted, list)
    for target in ("onnx", "cpu", "onnx"):
        written = graph.to_onnx(target=target)
        onnx.checker.check_model(written)
        same(run_alone(written.SerializeToString(), dict(FEED)), wanted)
        graph = Graph.load(written.SerializeToString())
        same(gc.InferenceSession().load(graph)(**FEED), wanted)


def test_output_is_refused_when_it_has_the_name_of_an_input() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n"])})
    with pytest.raises(gc.GraphcoreError, match="the name 'x' is taken"):
        graph.output(x=graph.weight("w", ARRAY))
