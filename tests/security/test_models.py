"""Hostile and invalid models: each is refused with one error, before it costs time or memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

import graphcore as gc
from graphcore.errors import ModelError, ResourceLimitError
from graphcore.onnx.proto.value_protos import block, integer, text
from tests.support.onnx_models import FLOAT, model, one, refused, tensor, value

BOOL = TensorProto.BOOL


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, "culprit", **attributes)


def attribute(name: str, kind: int, **fields: Any) -> AttributeProto:
    result = AttributeProto(name=name, type=kind)  # type: ignore[arg-type]
    for key, content in fields.items():
        setattr(result, key, content)
    return result


def with_attributes(op_type: str, *attributes: AttributeProto, inputs: Sequence[str] = ("x",)) -> onnx.ModelProto:
    result = node(op_type, inputs, ["y"])
    result.attribute.extend(attributes)
    return model([result], [value("x", FLOAT, [2, 3])], [value("y", FLOAT, None)])


# Graphs


def test_nodes_are_refused_when_they_need_each_other() -> None:
    ring = [node("Neg", ["b"], ["a"]), node("Abs", ["a"], ["b"]), node("Add", ["a", "x"], ["y"])]
    refused(model(ring), "nodes depend on each other", "Neg", "Abs")


def test_node_is_refused_when_it_needs_itself() -> None:
    refused(model([node("Add", ["x", "y"], ["y"])]), "nodes depend on each other", "Add")


def test_nodes_are_refused_when_they_need_each_other_in_a_long_ring() -> None:
    count = 20_000
    ring = [node("Neg", [f"v{(i + 1) % count}"], [f"v{i}"]) for i in range(count)]
    refused(model([*ring, node("Neg", ["v0"], ["y"])]), "nodes depend on each other")


GRAPHS = {
    "two nodes make one": (model([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])]), "'y'"),
    "a node makes it twice": (model([node("Split", ["x"], ["y", "y"], num_outputs=2)]), "'y'"),
    "a node makes an input": (model([node("Neg", ["x"], ["x"]), node("Neg", ["x"], ["y"])]), "'x'"),
    "two inputs": (model([node("Neg", ["x"], ["y"])], [value("x"), value("x")]), "'x'"),
    "two constants": (
        model([node("Neg", ["w"], ["y"])], [], constants=[helper.make_tensor("w", FLOAT, [2], [1, 2])] * 2),
        "'w'",
    ),
    "two outputs": (model([node("Neg", ["x"], ["y"])], outputs=[value("y"), value("y")]), "'y'"),
    "an undefined input": (model([node("Neg", ["gone"], ["y"])]), "'gone'"),
    "an undefined output": (model([node("Neg", ["x"], ["z"])]), "'y'"),
    "an output without a name": (model([node("Neg", ["x"], ["y"])], outputs=[value("")]), "output"),
    "an input without a name": (model([node("Neg", ["x"], ["y"])], [value("x"), value("")]), "input"),
    "a constant without a name": (
        model([node("Neg", ["x"], ["y"])], constants=[helper.make_tensor("", FLOAT, [2], [1, 2])]),
        "name",
    ),
    "an operator without a name": (model([node("", ["x"], ["y"])]), "operator"),
    "no outputs": (model([node("Neg", ["x"], ["y"])], outputs=[]), "output"),
    "unknown operator": (one("Frobnicate"), "Frobnicate 'culprit'"),
    "operator of a later opset": (one("Gelu", opset=19), "Gelu 'culprit'"),
    "operator with a huge name": (one("F" * 100_000), "FFF"),
}


@pytest.mark.parametrize(("proto", "word"), GRAPHS.values(), ids=GRAPHS)
def test_graph_is_refused(proto: onnx.ModelProto, word: str) -> None:
    refused(proto, word, run=True)


@pytest.mark.parametrize("opset", [0, -1, 1, 6, 10**9, 2**63 - 1, -(2**63), None])
def test_opset_is_refused(opset: int | None) -> None:
    proto = model([node("Add", ["x", "x"], ["y"])], opset=20)
    del proto.opset_import[:]
    if opset is not None:
        proto.opset_import.add(domain="", version=opset)
    refused(proto, "opset", "Add 'culprit'")


def test_opset_is_refused_when_it_is_given_twice() -> None:
    proto = model([node("Neg", ["x"], ["y"])])
    proto.opset_import.add(domain="ai.onnx", version=18)
    refused(proto, "opset")


# Attributes

SAID = {
    "axis as text": ("Softmax", attribute("axis", AttributeProto.STRING, s=b"last")),
    "axis as float": ("Softmax", attribute("axis", AttributeProto.FLOAT, f=1.0)),
    "axis out of range": ("Softmax", attribute("axis", AttributeProto.INT, i=2)),
    "axis far out of range": ("Softmax", attribute("axis", AttributeProto.INT, i=-(2**63))),
    "perm as int": ("Transpose", attribute("perm", AttributeProto.INT, i=1)),
    "perm too short": ("Transpose", helper.make_attribute("perm", [0])),
    "perm too long": ("Transpose", helper.make_attribute("perm", [0, 1, 2])),
    "perm out of range": ("Transpose", helper.make_attribute("perm", [0, 2])),
    "perm negative": ("Transpose", helper.make_attribute("perm", [0, -1])),
    "perm twice": ("Transpose", helper.make_attribute("perm", [1, 1])),
    "to unknown": ("Cast", helper.make_attribute("to", 99)),
    "to zero": ("Cast", helper.make_attribute("to", 0)),
    "to negative": ("Cast", helper.make_attribute("to", -1)),
    "to complex": ("Cast", helper.make_attribute("to", TensorProto.COMPLEX64)),
    "to as text": ("Cast", helper.make_attribute("to", "float")),
    "unknown": ("Softmax", helper.make_attribute("axes", 1)),
    "kind unknown": ("Softmax", attribute("axis", AttributeProto.UNDEFINED)),
    "alpha as int": ("LeakyRelu", attribute("alpha", AttributeProto.INT, i=1)),
    "epsilon as text": ("LpNormalization", attribute("p", AttributeProto.STRING, s=b"two")),
    "graph instead of int": ("Softmax", attribute("axis", AttributeProto.GRAPH)),
    "tensor instead of int": ("Softmax", attribute("axis", AttributeProto.TENSOR)),
    "int instead of graph": ("Scan", helper.make_attribute("body", 1)),
    "reference outside of a function": ("Softmax", attribute("axis", AttributeProto.INT, ref_attr_name="axis")),
    "no name": ("Softmax", attribute("", AttributeProto.INT, i=1)),
    "type instead of int": ("Softmax", attribute("axis", AttributeProto.TYPE_PROTO)),
    "text that is none": ("Gelu", attribute("approximate", AttributeProto.STRING, s=b"\xff\xfe")),
    "text unknown": ("Gelu", attribute("approximate", AttributeProto.STRING, s=b"roughly")),
    "graphs": ("Softmax", attribute("axis", AttributeProto.GRAPHS)),
    "tensors": ("Softmax", attribute("axis", AttributeProto.TENSORS)),
}


@pytest.mark.parametrize(("op_type", "message"), SAID.values(), ids=SAID)
def test_attribute_is_refused(op_type: str, message: AttributeProto) -> None:
    refused(with_attributes(op_type, message), f"{op_type} 'culprit'", run=True)


def test_attribute_is_refused_when_it_is_given_twice() -> None:
    refused(with_attributes("Softmax", helper.make_attribute("axis", 1), helper.make_attribute("axis", 0)), "twice")


def test_attributes_are_refused_when_there_are_very_many() -> None:
    many = [helper.make_attribute(f"a{i}", i) for i in range(100_000)]
    refused(with_attributes("Softmax", *many), "Softmax 'culprit'")


def test_attribute_is_refused_when_one_that_must_be_there_is_not() -> None:
    refused(with_attributes("Cast"), "Cast 'culprit'", "'to'")
    refused(model([node("If", ["x"], ["y"])], [value("x", BOOL, [])]), "If 'culprit'", "branch")


CONSTANTS = {
    "none": [],
    "two": [helper.make_attribute("value_int", 1), helper.make_attribute("value_float", 1.0)],
    "unknown": [helper.make_attribute("value_bool", 1)],
    "float as int": [attribute("value_int", AttributeProto.FLOAT, f=1.5)],
    "text as floats": [attribute("value_floats", AttributeProto.STRING, s=b"1")],
    "no tensor": [attribute("value", AttributeProto.INT, i=1)],
    "no sparse tensor": [attribute("sparse_value", AttributeProto.INT, i=1)],
    "short tensor": [helper.make_attribute("value", tensor("w", FLOAT, [2], b"abc"))],
    "reference": [attribute("value_int", AttributeProto.INT, ref_attr_name="axis")],
}


@pytest.mark.parametrize("message", CONSTANTS.values(), ids=CONSTANTS)
def test_constant_is_refused(message: list[AttributeProto]) -> None:
    result = node("Constant", [], ["y"])
    result.attribute.extend(message)
    refused(model([result], []), "load: ")


# Arity

ARITY = {
    "too few operands": node("Add", ["x"], ["y"]),
    "too many operands": node("Add", ["x", "x", "x"], ["y"]),
    "very many operands": node("Neg", ["x"] * 100_000, ["y"]),
    "no operands": node("Concat", [], ["y"], axis=0),
    "empty operand": node("Add", ["x", ""], ["y"]),
    "too many results": node("Add", ["x", "x"], ["y", "z"]),
    "very many results": node("Neg", ["x"], ["y", *(f"z{i}" for i in range(10_000))]),
    "no results": node("Add", ["x", "x"], []),
    "too many of Split": node("Split", ["x"], ["y", "a", "b", "c", "d"], num_outputs=2),
    "unnamed results beyond those of Split": node("Split", ["x"], ["y", "a", "b", "c", ""], num_outputs=4),
    "unnamed results beyond the schema": node("Add", ["x", "x"], ["y", ""]),
    "no results of a Cast": node("Cast", ["x"], [], to=1),
    "fed a value that is not a tensor": node("SequenceLength", ["x"], ["y"]),
    "dtype it does not take": node("Not", ["x"], ["y"]),
}


@pytest.mark.parametrize("proto", ARITY.values(), ids=ARITY)
def test_node_is_refused_when_its_arity_or_types_are_wrong(proto: onnx.NodeProto) -> None:
    refused(model([proto]), f"{proto.op_type} ")
    refused(model([proto]), f"{proto.op_type} ", run=True)


# Types


@pytest.mark.parametrize("depth", [40, 95, 1000, 10_000])
def test_type_is_refused_when_it_is_nested_deep(depth: int) -> None:
    type_ = block(1, integer(1, FLOAT))
    for _ in range(depth):
        type_ = block(4, block(1, type_))
    graph = block(1, text(1, "x") + text(2, "y") + text(4, "SequenceLength"))
    graph += block(11, text(1, "x") + block(2, type_)) + block(12, text(1, "y"))
    refused(integer(1, 10) + block(7, graph) + block(8, integer(2, 20)), "load: ")


@pytest.mark.parametrize("dim", ["(" * 100_000, "a+" * 100_000 + "a", "a*" * 5000 + "a", "a" * 1_000_000, "1/0", "\0"])
def test_dims_with_hostile_names_load_or_are_refused(dim: str) -> None:
    proto = model([node("Neg", ["x"], ["y"])], [value("x", FLOAT, [dim])], [value("y", FLOAT, [dim])])
    with contextlib.suppress(ModelError, ResourceLimitError):
        assert gc.Graph.load(proto).outputs


@pytest.mark.parametrize("note", ["[" * 100_000, "{", "null", "[]", '{"x": 3}', '{"x": "tf33"}', '{"x": "int4"}'])
def test_notes_that_are_none_are_passed_over(note: str) -> None:
    proto = model([node("Neg", ["x"], ["y"])])
    proto.metadata_props.add(key="graphcore.dtypes", value=note)
    proto.metadata_props.add(key="graphcore.promotion", value=note)
    assert gc.Graph.load(proto).inputs[0].dtype is gc.DType.float32
