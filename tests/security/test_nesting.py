"""Hostile bodies, functions and operands: refused before they cost time or memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

import graphcore as gc
from graphcore.errors import ResourceLimitError
from graphcore.onnx.proto.value_protos import block, integer, text
from tests.support.calls import growth
from tests.support.onnx_models import FLOAT, INT64, model, refused, value

BOOL = TensorProto.BOOL


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, "culprit", **attributes)


# Nesting


def nested(depth: int) -> onnx.ModelProto:
    """Ifs in Ifs, the innermost giving x."""
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["o0"])], "b0", [], [value("o0")])
    for level in range(1, depth):
        inner = helper.make_node("If", ["c"], [f"o{level}"], then_branch=body, else_branch=helper.make_graph(
            [helper.make_node("Identity", ["x"], [f"e{level}"])], f"e{level}", [], [value(f"e{level}")]
        ))  # fmt: skip
        body = helper.make_graph([inner], f"b{level}", [], [value(f"o{level}")])
    last = helper.make_graph([helper.make_node("Identity", ["x"], ["last"])], "last", [], [value("last")])
    top = node("If", ["c"], ["y"], then_branch=body, else_branch=last)
    return model([top], [value("x"), value("c", BOOL, [])])


def loops(depth: int) -> onnx.ModelProto:
    """Loops in Loops, each carrying x."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["k"], ["k0"]), helper.make_node("Neg", ["v"], ["o0"])],
        "b0",
        [value("i", INT64, []), value("k", BOOL, []), value("v")],
        [value("k0", BOOL, []), value("o0")],
    )
    for level in range(1, depth):
        nodes = [
            helper.make_node("Identity", [f"k_{level}"], [f"k{level}"]),
            helper.make_node("Loop", ["n", "", f"v_{level}"], [f"o{level}"], body=body),
        ]
        body = helper.make_graph(
            nodes,
            f"b{level}",
            [value(f"i_{level}", INT64, []), value(f"k_{level}", BOOL, []), value(f"v_{level}")],
            [value(f"k{level}", BOOL, []), value(f"o{level}")],
        )
    return model([node("Loop", ["n", "", "x"], ["y"], body=body)], [value("x"), value("n", INT64, [])])


@pytest.mark.parametrize("make", [nested, loops])
def test_bodies_load_when_they_are_nested_a_little(make: Any) -> None:
    assert gc.Graph.load(make(5)).outputs


@pytest.mark.parametrize("kind", ["If", "Loop", "Frobnicate"])
@pytest.mark.parametrize("depth", [28, 100, 1000, 10_000])
def test_bodies_are_refused_when_they_are_nested_deep(kind: str, depth: int) -> None:
    """Written by hand: protobuf's own writer gives up before its reader does."""
    graph = block(12, text(1, "y"))
    for _ in range(depth):
        body = text(1, "then_branch" if kind == "If" else "body") + block(6, graph) + integer(20, AttributeProto.GRAPH)
        graph = block(1, text(1, "x") + text(2, "y") + text(4, kind) + block(5, body)) + block(12, text(1, "y"))
        if len(graph) > 1 << 20:
            break
    refused(integer(1, 10) + block(7, graph) + block(8, integer(2, 20)), "load: ")


def widening(depth: int) -> onnx.ModelProto:
    """Loops in Loops whose values grow, so that each has to be read again until its types settle."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["k"], ["k0"]), helper.make_node("Concat", ["v", "v"], ["o0"], axis=0)],
        "b0",
        [value("i", INT64, []), value("k", BOOL, []), value("v")],
        [value("k0", BOOL, []), value("o0", FLOAT, None)],
    )
    for level in range(1, depth):
        nodes = [
            helper.make_node("Identity", [f"k_{level}"], [f"k{level}"]),
            helper.make_node("Loop", ["n", "", f"v_{level}"], [f"o{level}"], body=body),
        ]
        inputs = [value(f"i_{level}", INT64, []), value(f"k_{level}", BOOL, []), value(f"v_{level}")]
        body = helper.make_graph(
            nodes, f"b{level}", inputs, [value(f"k{level}", BOOL, []), value(f"o{level}", FLOAT, None)]
        )
    top = node("Loop", ["n", "", "x"], ["y"], body=body)
    return model([top], [value("x"), value("n", INT64, [])], [value("y", FLOAT, None)])


def test_loops_load_when_their_values_grow_a_little_deep() -> None:
    assert str(gc.Graph.load(widening(4)).outputs[0].type) == "float32[?]"


def test_loops_are_not_read_again_and_again_when_their_values_grow_very_deep() -> None:
    assert growth(lambda depth: partial(gc.Graph.load, widening(depth)), 13) < 8  # and not 2^13
    assert gc.Graph.load(widening(26)).outputs


def function(name: str, nodes: Sequence[onnx.NodeProto], **more: Any) -> onnx.FunctionProto:
    return helper.make_function("f", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 20)], **more)


def call(name: str, operand: str = "a", result: str = "b") -> onnx.NodeProto:
    return helper.make_node(name, [operand], [result], domain="f")


def chain(length: int) -> list[onnx.FunctionProto]:
    last = function("F0", [helper.make_node("Neg", ["a"], ["b"])])
    return [last, *(function(f"F{i}", [call(f"F{i - 1}")]) for i in range(1, length))]


def test_functions_load_when_they_call_a_few_others() -> None:
    loaded = gc.Graph.load(model([call("F9", "x", "y")], functions=chain(10), f=1))
    assert [n.op_type for n in loaded.nodes] == ["Neg"]


@pytest.mark.parametrize("length", [100, 10_000])
def test_functions_are_refused_when_they_call_each_other_deep(length: int) -> None:
    proto = model([call(f"F{length - 1}", "x", "y")], functions=chain(length), f=1)
    refused(proto, "functions", kind=ResourceLimitError)
    refused(proto, "functions", kind=ResourceLimitError, run=True)


@pytest.mark.parametrize("length", [1, 2, 3, 1000])
def test_functions_are_refused_when_they_call_themselves(length: int) -> None:
    ring = [function(f"F{i}", [call(f"F{(i + 1) % length}")]) for i in range(length)]
    refused(model([call("F0", "x", "y")], functions=ring, f=1), "call themselves", "F0")


def test_functions_are_refused_when_they_call_themselves_from_a_body() -> None:
    body = helper.make_graph([call("F0", "a", "o")], "b", [], [value("o")])
    ring = function("F0", [
        helper.make_node("Constant", [], ["c"], value=helper.make_tensor("", BOOL, [], [True])),
        helper.make_node("If", ["c"], ["b"], then_branch=body, else_branch=body),
    ])  # fmt: skip
    refused(model([call("F0", "x", "y")], functions=[ring], f=1), "call themselves", "F0")


def test_unused_functions_are_refused_when_they_call_themselves() -> None:
    proto = model([node("Neg", ["x"], ["y"])], functions=[function("F0", [call("F0")])], f=1)
    refused(proto, "call themselves")


def doubling(levels: int) -> list[onnx.FunctionProto]:
    results = [function("F0", [helper.make_node("Neg", ["a"], ["b"])])]
    for i in range(1, levels):
        twice = [call(f"F{i - 1}", "a", "m"), call(f"F{i - 1}", "m", "b")]
        results.append(function(f"F{i}", twice))
    return results


@pytest.mark.parametrize("levels", [25, 39, 300, 2000])
def test_functions_are_refused_when_they_double_and_double(levels: int) -> None:
    proto = model([call(f"F{levels - 1}", "x", "y")], functions=doubling(levels), f=1)
    refused(proto, "functions", kind=ResourceLimitError)
    refused(proto, "functions", kind=ResourceLimitError, run=True)


def test_functions_are_refused_when_they_double_inside_bodies() -> None:
    results = [function("F0", [helper.make_node("Neg", ["a"], ["b"])])]
    for i in range(1, 30):
        body = helper.make_graph(
            [call(f"F{i - 1}", "a", "m"), call(f"F{i - 1}", "m", "o")], "b", [], [value("o", FLOAT, None)]
        )
        results.append(function(f"F{i}", [
            helper.make_node("Constant", [], ["c"], value=helper.make_tensor("", BOOL, [], [True])),
            helper.make_node("If", ["c"], ["b"], then_branch=body, else_branch=body),
        ]))  # fmt: skip
    refused(model([call("F29", "x", "y")], functions=results, f=1), "functions", kind=ResourceLimitError)


def test_function_is_refused_when_it_makes_no_result() -> None:
    result = function("F", [helper.make_node("Neg", ["a"], ["other"])])
    refused(model([call("F", "x", "y")], functions=[result], f=1), "'b'")


def test_function_is_refused_when_it_uses_a_value_of_the_model() -> None:
    result = function("F", [helper.make_node("Add", ["a", "w"], ["b"])])
    weight = helper.make_tensor("w", FLOAT, [2], [1, 2])
    refused(model([call("F", "x", "y")], constants=[weight], functions=[result], f=1), "'w'")


@pytest.mark.parametrize("operands", [["x", "x"], ["x"] * 100])
def test_function_is_refused_when_it_is_given_too_much(operands: list[str]) -> None:
    result = function("F", [helper.make_node("Neg", ["a"], ["b"])])
    proto = model([helper.make_node("F", operands, ["y"], "culprit", domain="f")], functions=[result], f=1)
    refused(proto, "F 'culprit'", f"{len(operands)}")


def test_function_is_refused_when_more_results_are_wanted_than_it_has() -> None:
    result = function("F", [helper.make_node("Neg", ["a"], ["b"])])
    proto = model([helper.make_node("F", ["x"], ["z", "y"], "culprit", domain="f")], functions=[result], f=1)
    refused(proto, "F 'culprit'", "2")


def test_functions_are_refused_when_two_have_one_name() -> None:
    result = function("F", [helper.make_node("Neg", ["a"], ["b"])])
    refused(model([call("F", "x", "y")], functions=[result, result], f=1), "'F'")


# Bodies


def body(inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str]) -> onnx.GraphProto:
    """A body that gives a bool and then floats."""
    nodes = [helper.make_node("Constant", [], [name], value=helper.make_tensor("", FLOAT, [2], [1, 2]))
             for name in outputs[1:]]  # fmt: skip
    if outputs:
        nodes.append(helper.make_node("Constant", [], [outputs[0]], value=helper.make_tensor("", BOOL, [], [True])))
    return helper.make_graph(nodes, "body", inputs, [value(n, FLOAT, None) for n in outputs])


def floats(*names: str) -> onnx.GraphProto:
    nodes = [helper.make_node("Constant", [], [n], value=helper.make_tensor("", FLOAT, [2], [1, 2])) for n in names]
    return helper.make_graph(nodes, "floats", [], [value(n) for n in names])


COUNTER, GO, STORED = value("i", INT64, []), value("k", BOOL, []), value("v")

BODIES = {
    "If: branches that give nothing": node("If", ["c"], ["y"], then_branch=floats(), else_branch=floats()),
    "If: branches that differ": node("If", ["c"], ["y"], then_branch=floats("a"), else_branch=floats("a", "b")),
    "If: too few": node("If", ["c"], ["y", "z"], then_branch=floats("a"), else_branch=floats("a")),
    "If: too many": node("If", ["c"], ["y"], then_branch=floats("a", "b"), else_branch=floats("a", "b")),
    "If: one branch": node("If", ["c"], ["y"], then_branch=floats("a")),
    "If: of two dtypes": node("If", ["c"], ["y"], then_branch=floats("a"), else_branch=body([], ["a"])),
    "If: with inputs": node("If", ["c"], ["y"], then_branch=body([STORED], ["k"]), else_branch=body([], ["a"])),
    "If: no condition": node("If", ["x"], ["y"], then_branch=floats("a"), else_branch=floats("a")),
    "If: no body": node("If", ["c"], ["y"]),
    "Loop: too few inputs": node("Loop", ["n", "", "x"], ["y"], body=body([COUNTER, GO], ["go", "o"])),
    "Loop: too many inputs": node("Loop", ["n", ""], ["y"], body=body([COUNTER, GO, STORED], ["go", "o"])),
    "Loop: no inputs": node("Loop", ["n", "", "x"], ["y"], body=body([], ["go", "o"])),
    "Loop: no outputs": node("Loop", ["n", "", "x"], ["y"], body=body([COUNTER, GO, STORED], [])),
    "Loop: too few outputs": node("Loop", ["n", "", "x"], ["y"], body=body([COUNTER, GO, STORED], ["go"])),
    "Loop: too many results": node(
        "Loop", ["n", "", "x"], ["y", "z", "u"], body=body([COUNTER, GO, STORED], ["go", "o"])
    ),
    "Loop: condition is not a bool": node(
        "Loop", ["n", "", "x"], ["y"], body=helper.make_graph(
            [helper.make_node("Neg", ["v"], ["o"])], "b", [COUNTER, GO, STORED], [value("o"), value("v")])
    ),
    "Loop: carries another dtype": node("Loop", ["n", "", "x"], ["y"], body=helper.make_graph(
        [helper.make_node("Identity", ["k"], ["go"])], "b", [COUNTER, GO, STORED], [value("go", BOOL, []), GO])
    ),
    "Loop: no body": node("Loop", ["n", "", "x"], ["y"]),
    "Scan: counts nothing": node("Scan", ["x"], ["y"], body=body([STORED], ["o"]), num_scan_inputs=0),
    "Scan: counts too many": node("Scan", ["x"], ["y"], body=body([STORED], ["o"]), num_scan_inputs=2),
    "Scan: counts negative": node("Scan", ["x"], ["y"], body=body([STORED], ["o"]), num_scan_inputs=-1),
    "Scan: counts huge": node("Scan", ["x"], ["y"], body=body([STORED], ["o"]), num_scan_inputs=2**62),
    "Scan: too few inputs": node("Scan", ["x"], ["y"], body=body([], ["o"]), num_scan_inputs=1),
    "Scan: no such axis": node(
        "Scan", ["x"], ["y"], body=body([STORED], ["o"]), num_scan_inputs=1, scan_input_axes=[5]
    ),
    "Scan: too many axes": node(
        "Scan", ["x"], ["y"], body=body([STORED], ["o"]), num_scan_inputs=1, scan_input_axes=[0, 0, 0]
    ),
    "Scan: no such output axis": node(
        "Scan", ["x"], ["y"], body=body([STORED], ["o"]), num_scan_inputs=1, scan_output_axes=[9]
    ),
    "Scan: too many results": node("Scan", ["x"], ["y", "z"], body=body([STORED], ["o"]), num_scan_inputs=1),
    "SequenceMap: no sequence": node("SequenceMap", ["x"], ["y"], body=body([STORED], ["o"])),
}  # fmt: skip


@pytest.mark.parametrize("proto", BODIES.values(), ids=BODIES)
def test_body_is_refused(proto: onnx.NodeProto) -> None:
    inputs = [value("x"), value("c", BOOL, []), value("n", INT64, [])]
    refused(model([proto], inputs, [value("y", FLOAT, None)]), "load: ", run=True)


def test_body_may_use_a_name_of_the_graph_around_for_another_value() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "b", [], [value("y")])
    proto = node("If", ["c"], ["z"], then_branch=inner, else_branch=floats("a"))
    nodes = [proto, helper.make_node("Neg", ["z"], ["y"])]
    loaded = gc.InferenceSession().load(model(nodes, [value("x"), value("c", BOOL, [])]))
    (result,) = loaded(np.array([1, 2], np.float32), np.bool_(True))
    np.testing.assert_array_equal(result, [1, 2])


def counted(trips: int, goes_on: str) -> onnx.ModelProto:
    """A Loop that only its count ends, unless it goes on by something else than the condition that it is given."""
    inner = helper.make_graph(
        [
            helper.make_node("Less", ["i", "i"], ["less"]),
            helper.make_node("Identity", [goes_on], ["go"]),
            helper.make_node("Neg", ["v"], ["o"]),
        ],
        "b",
        [COUNTER, GO, STORED],
        [value("go", BOOL, []), value("o")],
    )
    count = helper.make_tensor("n", INT64, [], [trips])
    return model([node("Loop", ["n", "", "x"], ["y"], body=inner)], constants=[count])


def test_loop_is_refused_when_it_runs_beyond_all_measure() -> None:
    refused(counted(2**60, "k"), "Loop 'culprit' runs", kind=ResourceLimitError)


def test_loop_of_any_count_runs_when_its_condition_ends_it() -> None:
    (result,) = gc.InferenceSession().load(counted(2**63 - 1, "less"))(np.ones(2, np.float32))
    np.testing.assert_array_equal(result, [-1, -1])


@pytest.mark.parametrize("op_type", ["EyeLike", "GatherND", "RegexFullMatch", "ai.onnx.ml.LabelEncoder"])
def test_operand_of_no_type_ends_with_an_error(op_type: str) -> None:
    """ONNX's inference ends the process where these are made of unknown values."""
    domain, _, name = op_type.rpartition(".")
    results: dict[str, Any] = {}
    if name in ("EyeLike", "RegexFullMatch"):
        results = {"dtype": FLOAT} if name == "EyeLike" else {"pattern": "a"}
    operands = ["u", "u"] if name == "GatherND" else ["u"]
    nodes = [
        helper.make_node("Custom", ["x"], ["u"], domain="acme"),
        helper.make_node(name, operands, ["y"], "culprit", domain=domain, **results),
    ]
    proto = model(nodes, outputs=[value("y", FLOAT, None)], acme=1)
    proto.opset_import.add(domain="ai.onnx.ml", version=4)
    refused(proto, "load: ", run=True)
    del proto.graph.node[0]
    refused(proto, "'u'", run=True)


@pytest.mark.parametrize(
    "equation", ["i\xb7j->ji", "ij->j->i", "i-j", "ij->", "i.j->ij", "..->i", "i1->i", "(i)", "->->", ",,,,"]
)
def test_einsum_of_no_equation_ends(equation: str) -> None:
    """ONNX's inference goes round for ever in some of these."""
    proto = model(
        [node("Einsum", ["x"], ["y"], equation=equation)], [value("x", FLOAT, [2, 2])], [value("y", FLOAT, None)]
    )
    if equation == "ij->":
        (result,) = gc.InferenceSession().load(proto)(np.ones((2, 2), np.float32))
        assert result == 4
    else:
        refused(proto, "Einsum", run=True)


def test_resize_is_refused_when_it_has_scales_for_more_axes_than_there_can_be() -> None:
    inputs = [value("x", FLOAT, [1, 1, 4, 4]), value("s", FLOAT, [2**31 - 1])]
    refused(model([node("Resize", ["x", "", "s"], ["y"], mode="cubic")], inputs), "Resize 'culprit'", "axes", run=True)


def test_gather_of_a_scalar_is_refused() -> None:
    inputs = [value("x"), value("i", INT64, [])]
    refused(model([node("GatherND", ["x", "i"], ["y"])], inputs), "GatherND 'culprit'", "at least one axis")


@pytest.mark.parametrize(
    "proto",
    [
        node("ConstantOfShape", ["n"], ["y"]),
        node("Expand", ["x", "n"], ["y"]),
        node("Tile", ["x", "n"], ["y"]),
        node("Pad", ["x", "pads"], ["y"]),
        node("OneHot", ["i", "depth", "x"], ["y"]),
        node("Range", ["zero", "depth", "one"], ["y"]),
        node("Resize", ["x", "", "", "n"], ["y"]),
    ],
    ids=lambda n: n.op_type,
)
def test_node_is_refused_when_it_makes_more_than_any_machine_holds(proto: onnx.NodeProto) -> None:
    huge = 10**13
    constants = [
        helper.make_tensor("n", INT64, [1], [huge]),
        helper.make_tensor("pads", INT64, [2], [0, huge]),
        helper.make_tensor("i", INT64, [1], [0]),
        *(helper.make_tensor(n, INT64, [], [v]) for n, v in (("zero", 0), ("one", 1), ("depth", huge))),
    ]
    refused(
        model(
            [proto], [value("x", FLOAT, [1 if proto.op_type == "Expand" else 2])], [value("y", FLOAT, None)], constants
        ),
        f"{proto.op_type} 'culprit'",
        kind=ResourceLimitError,
        run=True,
    )
