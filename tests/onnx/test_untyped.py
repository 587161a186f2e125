"""Models whose values lack types or makers: they are read, or refused in words."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import graphcore as gc
from graphcore import Graph
from graphcore.errors import GraphcoreError, ModelError
from tests.onnx.test_reader import info, model, run
from tests.support.trained import PACKAGES, models


def node(op_type: str, *inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], **attributes)


def test_operator_is_named_when_what_it_gives_is_used_farther_on() -> None:
    nodes = [
        helper.make_node("Reorder", ["x"], ["token"], domain="test.untyped"),
        node("Identity", "x", output="kept"),
        helper.make_node("Other", ["token"], ["other"], domain="test.untyped"),
        node("Add", "kept", "other", output="sum"),
        node("Neg", "sum"),
    ]
    with pytest.raises(ModelError, match=r"Add 'sum': the type of an operand is unknown.*test\.untyped::Other"):
        Graph.load(model(nodes, [info("x")], [info("y")], domains={"test.untyped": 1}))


@pytest.mark.parametrize("body", [False, True], ids=["graph", "body"])
def test_operand_is_named_when_its_type_is_not_known(body: bool) -> None:
    untyped = onnx.ValueInfoProto(name="reorder_token_21")
    nodes = [node("Add", "x", "reorder_token_21", output="sum"), node("Neg", "sum")]
    if body:
        inner = helper.make_graph([node("Neg", "reorder_token_21", output="o")], "b", [], [info("o")])
        nodes = [node("If", "c", then_branch=inner, else_branch=inner)]
    proto = model(nodes, [info("x"), info("c", onnx.TensorProto.BOOL, ()), untyped], [info("y")])
    with pytest.raises(ModelError, match="the type of its operand 'reorder_token_21' is unknown") as caught:
        Graph.load(proto)
    assert "value_info" in caught.value.help


def clipping(outputs: Sequence[str] = ("r",)) -> onnx.FunctionProto:
    return helper.make_function(
        "test", "Clipped", ["v", "low", "high"], ["r"],
        [helper.make_node("Clip", ["v", "low", "high"], ["r"])], [helper.make_opsetid("", 21)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"), [(["x"], [-2, 5]), (["x", "zero"], [0, 5]), (["x", "", "zero"], [-2, 0])]
)
def test_operand_of_a_function_is_absent_inside_when_a_call_leaves_it_out(
    value: list[str], expected: list[float]
) -> None:
    call = helper.make_node("Clipped", value, ["y"], domain="test")
    zero = helper.make_tensor("zero", onnx.TensorProto.FLOAT, [], [0.0])
    proto = model([call], [info("x")], [info("y")], domains={"test": 1}, functions=[clipping()], initializer=[zero])
    assert run(proto, np.array([-2, 5], np.float32))[0].tolist() == expected


# Dims below 0, on which ONNX's inference of Slice ends the process


def sliced(*before: onnx.NodeProto, shape: Sequence[int], opset: int = 17, **constants: Any) -> onnx.ModelProto:
    results = {
        "first": np.array([0], np.int64),
        "last": np.array([-1], np.int64),
        "axis": np.array([-1], np.int64),
        **constants,
    }
    nodes = [*before, node("Slice", "m", "first", "last", "axis")]
    return model(
        nodes, [info("x", shape=shape)], [info("y", shape=None)], opset=opset,
        initializer=[onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in results.items()],
    )  # fmt: skip


IMAGE = (1, 1, 2, 2)
NEGATIVE = {
    "Conv": sliced(node("Conv", "x", "w", output="m"), shape=IMAGE, w=np.ones((1, 1, 5, 5), np.float32)),
    "MaxPool": sliced(node("MaxPool", "x", output="m", kernel_shape=[5, 5]), shape=IMAGE),
    "LpPool": sliced(node("LpPool", "x", output="m", kernel_shape=[5, 5]), shape=IMAGE),
    "Pad": sliced(node("Pad", "x", "p", output="m"), shape=(2, 2), p=np.array([-2] * 4, np.int64)),
    "STFT": sliced(
        node("STFT", "x", "h", "w", output="m"), shape=(1, 80, 1), axis=np.array([1], np.int64), h=np.int64(160),
        w=np.ones(400, np.float32),
    ),
    "Resize": sliced(node("Resize", "x", "", "p", output="m"), shape=(3,), p=np.array([-2], np.float32)),
    "TopK": sliced(helper.make_node("TopK", ["x", "p"], ["m", "i"]), shape=(3,), p=np.array([-2], np.int64)),
    "CenterCropPad": sliced(
        node("CenterCropPad", "x", "p", output="m"), shape=(3,), opset=18, p=np.array([-3], np.int64)
    ),
    "input": sliced(node("Identity", "x", output="m"), shape=(-3,)),
}  # fmt: skip


def within(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model's nodes in both branches of an If."""
    body = helper.make_graph(proto.graph.node, "b", [], [info("y", shape=None)], proto.graph.initializer)
    inputs = [*proto.graph.input, info("c", onnx.TensorProto.BOOL, ())]
    choice = helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body)
    return model([choice], inputs, [info("z", shape=None)], opset=proto.opset_import[0].version)


@pytest.mark.parametrize("place", [lambda proto: proto, within], ids=["graph", "body"])
@pytest.mark.parametrize("proto", NEGATIVE.values(), ids=NEGATIVE)
def test_slice_of_a_dim_below_0_is_read_with_a_dim_that_is_not_known(proto: onnx.ModelProto, place: Any) -> None:
    try:
        graph = Graph.load(place(proto))
    except GraphcoreError:
        return
    assert graph.outputs[0].type.rank == len(proto.graph.input[0].type.tensor_type.shape.dim) + (
        proto is NEGATIVE["STFT"]
    )


def test_dims_of_a_slice_of_a_shape_are_known() -> None:
    nodes = [
        node("Shape", "x", output="s"),
        node("Slice", "s", "first", "last", output="front"),
        node("Expand", "one", "front"),
    ]
    results = {"first": np.array([0], np.int64), "last": np.array([2], np.int64), "one": np.float32(1)}
    constants = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in results.items()]
    graph = Graph.load(model(nodes, [info("x", shape=("a", "b", 3))], [info("y", shape=None)], initializer=constants))
    assert str(graph.outputs[0].type) == "float32[a, b]"


# Models of packages, damaged


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for inner in graph.node:
        for attribute in inner.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def damaged(proto: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy in which names, types, nodes, attributes or constants were changed or left out."""
    rng = random.Random(seed)
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    graph = rng.choice([g for g in graphs(model.graph) if g.node])
    names = [name for n in graph.node for name in (*n.input, *n.output)] + ["unheard", ""]
    kinds = [n.op_type for n in graph.node] + ["LSTM", "QLinearConv", "Loop", "Reshape", "ReorderOutput"]
    for _ in range(rng.choice((1, 1, 2, 3))):
        one = rng.choice(graph.node)
        action = rng.randrange(11)
        if action == 0:
            del graph.value_info[:]
        elif action == 1 and one.input:
            one.input[rng.randrange(len(one.input))] = rng.choice(names)
        elif action == 2 and one.output:
            one.output[rng.randrange(len(one.output))] = rng.choice(names)
        elif action == 3:
            one.domain = rng.choice(["com.microsoft", "com.acme", "ai.onnx.ml", "com.microsoft.nchwc", ""])
        elif action == 4:
            one.op_type = rng.choice(kinds)
        elif action == 5 and one.attribute:
            del one.attribute[rng.randrange(len(one.attribute))]
        elif action == 6 and len(graph.node) > 1:
            graph.node.remove(one)
        elif action == 7 and graph.input:
            rng.choice(graph.input).ClearField("type")
        elif action == 8:
            rng.choice(graph.output).name = rng.choice(names)
        elif action == 9 and graph.initializer:
            del graph.initializer[rng.randrange(len(graph.initializer))]
        elif action == 10 and graph.initializer:
            rng.choice(graph.initializer).dims[:] = [rng.choice([0, 1, 2, -1]) for _ in range(rng.randrange(4))]
    return model


@pytest.mark.parametrize("package", PACKAGES)
def test_damaged_model_of_a_package_is_read_or_refused_in_words(package: str) -> None:
    protos = [onnx.load(path) for path in models(package, 4 << 20)[:4]]
    refusals = [refusal(damaged(protos[seed % len(protos)], seed)) for seed in range(30)]
    assert not [error for error in refusals if error and (LEAKED.search(error.summary) or not error.help)]


LEAKED = re.compile(r": '[^']*'$|Error:|object has no|index out of|NoneType")
"""What the texts of Python's own exceptions look like."""


def refusal(proto: onnx.ModelProto) -> GraphcoreError | None:
    try:
        gc.Graph.load(proto)
    except GraphcoreError as error:
        return error
    return None
