"""Models whose names hold control characters: they load and run, so they can be cut, fixed and quantised as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.errors import GraphError
from graphcore.runtime.quantizer import quantize

EVIL = "\x1b\n\0\x07"
X = np.ones((2, 64), np.float32)


def third_party(name: str = EVIL) -> Graph:
    """Return the graph of a model all of whose names end so: relu(x @ w) + b."""
    weights = [
        numpy_helper.from_array(np.eye(64, dtype=np.float32), f"w{name}"),
        numpy_helper.from_array(np.ones(64, np.float32), f"b{name}"),
    ]
    nodes = [
        helper.make_node("MatMul", [f"x{name}", f"w{name}"], [f"h{name}"], name=f"n{name}"),
        helper.make_node("Relu", [f"h{name}"], [f"r{name}"]),
        helper.make_node("Add", [f"r{name}", f"b{name}"], [f"y{name}"]),
    ]
    ends = [[helper.make_tensor_value_info(f"{end}{name}", TensorProto.FLOAT, ["n", 64])] for end in "xy"]
    graph = helper.make_graph(nodes, f"g{name}", ends[0], ends[1], weights)
    return Graph.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def called(graph: Graph) -> Graph:
    outer = Graph("outer", {"q": TensorType("float32", ["n", 64])})
    outer.output(y=graph(outer["q"]))
    return outer


def in_a_function(graph: Graph) -> Graph:
    outer = Graph("outer", {"q": TensorType("float32", ["n", 64])})
    outer.output(y=gc.function(lambda x: graph(x))(outer["q"]))
    return outer


SURGERY: dict[str, Callable[[Graph], Graph]] = {
    "call": called,
    "call in a function": in_a_function,
    "compose": lambda g: gc.compose(g, third_party("\x1b2"), {f"y{EVIL}": "x\x1b2"}),
    "with_dims": lambda g: g.with_dims(n=2),
    "with_outputs": lambda g: g.with_outputs(f"r{EVIL}", f"y{EVIL}"),
    "with_inputs": lambda g: g.with_inputs(f"x{EVIL}"),
    "with_weights": lambda g: g.with_weights({f"b{EVIL}": np.ones(64, np.float32)}),
    "extract": lambda g: g.extract(outputs=[f"r{EVIL}"]),
    "replace": lambda g: g.replace(f"r{EVIL}", lambda x: gc.ops.maximum(x, 0.0)),
    "astype": lambda g: g.astype("float16"),
    "optimize": lambda g: g.optimize(),
    "quantize": lambda g: quantize(g, "int8").graph,
    "rename": lambda g: g.rename({f"x{EVIL}": "x"}),
}


@pytest.mark.parametrize("what", SURGERY)
def test_graph_is_cut_and_fixed_when_its_names_hold_control_characters(what: str) -> None:
    graph = third_party()
    (want,) = gc.InferenceSession().load(graph)(X)
    result = SURGERY[what](graph)
    got = gc.InferenceSession().load(result)(X.astype(result.inputs[0].dtype.numpy))[-1]
    shift = {"compose": 1, "extract": -1}.get(what, 0)
    assert np.allclose(got.astype(np.float32), want + shift, atol=0.05)
    assert str(result).replace("\n", "").isprintable()
    again = Graph.load(result.to_onnx())
    assert [s.name for s in again.inputs] == [s.name for s in result.inputs]


@pytest.mark.parametrize("name", [EVIL, "a\nb", "\x1f", ""])
def test_name_of_a_users_own_is_refused_when_it_holds_control_characters(name: str) -> None:
    graph = third_party()
    type_ = TensorType("float32", [2])
    refused: list[Callable[[], Any]] = [
        lambda: Graph("g", {name: type_}),
        lambda: Graph("g", {"x": type_}).weight(name, X),
        lambda: Graph("g", {"x": type_}).constant(1.0, name=name),
        lambda: _output(name),
        lambda: graph.rename({f"x{EVIL}": name}),
        lambda: setattr(graph.outputs[0], "name", name),
    ]
    for work in refused:
        with pytest.raises(GraphError, match="is not a valid name") as caught:
            work()
        assert "control characters" in caught.value.help


def _output(name: str) -> None:
    graph = Graph("g", {"x": TensorType("float32", [2])})
    graph.output(**{name: graph["x"] + 1})
