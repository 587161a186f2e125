"""The scan of direct loads looks once at nodes that are alike: what is not alike is seen all the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.sessions.direct.scan import Scan


def scanned(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> Scan:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, ["n", 4]), value("d", TensorProto.DOUBLE, ["n", 4])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    scan = Scan(legality("cpu", runtime()))
    scan.run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    return scan


def node(op_type: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, **attributes)  # type: ignore[arg-type]


def unread(result: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node whose name is not a text."""
    changed: onnx.NodeProto = onnx.NodeProto.FromString(result.SerializeToString() + b"\x1a\x01\xff")
    return changed


SUMS = [node("Add", ["x", "x"], ["a"]), node("Add", ["a", "x"], ["b"])]
LAST = node("Relu", ["b"], ["y"])

OTHERS: dict[str, onnx.NodeProto] = {
    "a first operand that nothing makes": node("Add", ["nothing", "a"], ["c"]),
    "an operand without a name": node("Add", ["a", ""], ["c"]),
    "one operand": node("Add", ["a"], ["c"]),
    "three operands": node("Add", ["a", "a", "a"], ["c"]),
    "no name of its result": node("Add", ["a", "a"], [""]),
    "a result of the name of another": node("Add", ["a", "a"], ["a"]),
    "a result of the name of an input": node("Add", ["a", "a"], ["x"]),
    "another domain": node("Add", ["a", "a"], ["c"], domain="others"),
    "a name that is not text": unread(node("Add", ["a", "a"], ["c"])),
    "an empty constant": node("Add", ["a", "empty"], ["c"]),
}


def test_nodes_that_are_alike_run_as_they_are() -> None:
    scan = scanned([*SUMS, LAST], {})
    assert scan.reason is None
    assert {name: scan.dtypes[name].name for name in "aby"} == dict.fromkeys("aby", "float32")


def test_results_have_the_dtypes_of_their_operands_when_other_nodes_have_others() -> None:
    scan = scanned([*SUMS, node("Add", ["d", "d"], ["e"]), node("Add", ["e", "d"], ["f"]), LAST], {})
    assert scan.reason is None
    assert (scan.dtypes["e"].name, scan.dtypes["f"].name) == ("float64", "float64")


@pytest.mark.parametrize("what", OTHERS)
def test_model_is_left_to_a_graph_when_a_node_after_many_has(what: str) -> None:
    empty = {"empty": np.ones((0, 4), np.float32)} if what == "an empty constant" else {}
    assert scanned([*SUMS, OTHERS[what], LAST], empty).reason is not None


@pytest.mark.parametrize(("perm", "is_left"), [([1, 0], False), ([1, 1], True), ([0, 1, 2], False)])
def test_attributes_of_a_later_node_are_looked_at(perm: list[int], is_left: bool) -> None:
    nodes = [node("Transpose", ["x"], ["a"], perm=[1, 0]), node("Transpose", ["a"], ["b"], perm=[1, 0])]
    scan = scanned([*nodes, node("Transpose", ["b"], ["c"], perm=perm), LAST], {})
    assert (scan.reason is not None) is is_left


def test_axes_of_an_input_are_counted_when_other_nodes_have_the_same() -> None:
    other = node("Reshape", ["x", "s"], ["a"])
    nodes = [other, node("Transpose", ["a"], ["b"], perm=[1, 0, 2]), node("Transpose", ["b"], ["c"], perm=[1, 0, 2])]
    constants = {"s": np.array([1, -1, 4])}
    assert scanned([*nodes, LAST], constants).reason is None
    assert scanned([*nodes, node("Transpose", ["x"], ["e"], perm=[1, 0, 2]), LAST], constants).reason is not None


@pytest.mark.parametrize("shape", [[1 << 40, 4], [-2, 4]])
def test_model_is_left_to_a_graph_when_a_later_shape_is_none(shape: list[int]) -> None:
    constants = {"s": np.array([-1, 4]), "t": np.array(shape)}
    nodes = [node("Reshape", ["x", "s"], ["a"]), node("Reshape", ["a", "s"], ["b"])]
    assert scanned([*nodes, LAST], constants).reason is None
    assert scanned([*nodes, node("Reshape", ["a", "t"], ["c"]), LAST], constants).reason is not None


def test_constants_are_looked_at_again_when_they_hold_others() -> None:
    split = [node("Reshape", ["x", "s"], ["a"]), node("Tile", ["a", "r"], ["b"]), node("Tile", ["a", "l"], ["c"]), LAST]
    sizes = np.array([1, 2])
    constants = {"s": np.array([-1, 4]), "r": sizes, "l": np.array([1, -2])}
    assert scanned(split, constants).reason is not None
    assert scanned(split, {**constants, "l": sizes}).reason is None
