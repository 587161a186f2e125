"""Constants of float64 beside 0 and 1, which onnxruntime's optimiser takes for 0 and 1."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore import Graph, Symbol, TensorType
from graphcore.runtime.lowering.guards.rounded_constants import is_rounded

pytestmark = pytest.mark.releases

SMALL, FACTOR = 1e-300, 1 + 2.0**-40
X = np.array([0.0, 1.0, -3.0, 5e-301])
SUMS: list[tuple[Callable[[Any, Any], Any], float]] = [
    (operator.add, SMALL),
    (operator.sub, SMALL),
    (operator.sub, -1e-46),
]
PRODUCTS: list[tuple[Callable[[Any, Any], Any], float]] = [
    (operator.mul, FACTOR), (operator.truediv, FACTOR), (operator.mul, 1 - 2.0**-50)
]  # fmt: skip
CASES = [*SUMS, *PRODUCTS]


def graph_of(function: Callable[[Any, Any], Any], constant: Any, *, swapped: bool = False) -> Graph:
    graph = Graph("rounded", {"x": TensorType("float64", ["n"])})
    x: Symbol = -graph["x"]
    graph.output(-(function(constant, x) if swapped else function(x, constant)))
    return graph


@pytest.mark.parametrize(("function", "constant"), CASES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_constant_counts_in_sessions_and_in_files(
    function: Callable[[Any, Any], Any], constant: float, shape: tuple[int, ...], tmp_path: Path
) -> None:
    for swapped in (False, True)[: 2 if function in (operator.add, operator.mul) else 1]:
        held = np.full(shape, constant)
        graph = graph_of(function, held, swapped=swapped)
        want = -function(-X, held)
        np.testing.assert_array_equal(gc.InferenceSession().load(graph)(X)[0], want)
        graph.export(tmp_path / "rounded.onnx")
        bare = onnxruntime.InferenceSession(tmp_path / "rounded.onnx", providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(bare.run(None, {"x": X})[0], want)


@pytest.mark.parametrize(("operator_", "constant"), [("Add", SMALL), ("Sub", SMALL), ("Mul", FACTOR), ("Div", FACTOR)])
@pytest.mark.parametrize("as_node", [False, True], ids=["initializer", "Constant"])
def test_constant_counts_in_models_of_others(operator_: str, constant: float, as_node: bool) -> None:
    held = numpy_helper.from_array(np.array(constant), "c")
    nodes = [helper.make_node("Constant", [], ["c"], value=held)] if as_node else []
    nodes += [helper.make_node("Neg", ["x"], ["a"]), helper.make_node(operator_, ["a", "c"], ["b"])]
    nodes += [helper.make_node("Neg", ["b"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["n"]) for name in "xy")
    graph = helper.make_graph(nodes, "others", [x], [y], [] if as_node else [held])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[operator_]
    session = gc.InferenceSession()
    for source in (model.SerializeToString(), Graph.load(model.SerializeToString())):
        np.testing.assert_array_equal(session.load(source)(X)[0], -function(-X, constant))


def test_root_of_a_square_and_a_small_number_is_not_zero() -> None:
    graph = Graph("root", {"x": TensorType("float64", [])})
    graph.output(gc.ops.sqrt(gc.ops.square(graph["x"]) + SMALL))
    assert gc.InferenceSession().load(graph)(np.array(0.0))[0] == 1e-150


def test_constants_that_float32_tells_from_0_and_1_are_left_alone() -> None:
    for number in (0.0, -0.0, 1.0, 1e-40, 1 + 2.0**-20, 2.0, np.inf, np.nan):
        assert not is_rounded(np.array(number)), number
    assert not is_rounded(np.array(1e-46, np.float32))
    assert not is_rounded(np.full(2, 1e-46))
    assert is_rounded(np.array([1e-46]))
