"""The fields of a model beside its operators and values: read with a Graph, and written back."""

from __future__ import annotations

import functools
import importlib.util
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphcore as gc
from graphcore.errors import ModelError
from tests.onnx.test_backend_suite import CHUNKS, POOLS, Runner, shared_runner
from tests.support import pytorch_exports
from tests.support.model_fields import UNKNOWN, decorate, differences, unchanged
from tests.support.trained import PACKAGES


@pytest.fixture(scope="module")
def runner() -> Runner:
    return shared_runner()


def full_model() -> onnx.ModelProto:
    """Return a model with a function, a body, unused inputs and initializers, and every field filled."""
    f32 = TensorProto.FLOAT
    value = functools.partial(helper.make_tensor_value_info, elem_type=f32)
    pair = np.array([1, 2], np.float32)
    body = helper.make_graph([helper.make_node("Neg", ["h"], ["r"], name="/if/Neg")], "b", [], [value("r", shape=[2])])
    other = helper.make_graph([helper.make_node("Abs", ["h"], ["s"], name="/if/Abs")], "c", [], [value("s", shape=[2])])
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"], name="/layer/Mul"),
        helper.make_node("Add", ["m", "m"], ["h"], domain=""),
        helper.make_node("If", ["flag"], ["i"], name="/layer/If", then_branch=body, else_branch=other),
        helper.make_node("Constant", [], ["c"], name="/Constant", value=numpy_helper.from_array(pair)),
        helper.make_node("Twice", ["i"], ["t"], domain="local", name="/layer/Twice", overload="f"),
        helper.make_node("Sub", ["t", "c"], ["y"], name="/layer/Sub"),
    ]
    function = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"], name="inner")],
        [helper.make_opsetid("", 17)],
        overload="f",
    )
    graph = helper.make_graph(
        nodes,
        "full",
        [value("x", shape=["n"]), value("flag", elem_type=TensorProto.BOOL, shape=[]), value("unused", shape=["k", 3])],
        [value("y", shape=[2])],
        [
            numpy_helper.from_array(pair + 2, "w"),
            numpy_helper.from_array(np.zeros(9), "unused weight"),
        ],
        value_info=[value("m", shape=[2]), value("h", shape=[2])],
    )
    graph.quantization_annotation.add(tensor_name="m").quant_parameter_tensor_names.add(key="SCALE", value="w")
    model = helper.make_model(
        graph,
        functions=[function],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
        ir_version=10,
        producer_name="maker",
        producer_version="2.1",
        domain="org.example",
        model_version=5,
    )
    model.configuration.add(name="two", num_devices=2)
    model.graph.node[0].device_configurations.add(configuration_id="two").pipeline_stage = 1
    training = model.training_info.add()
    training.initialization.name = "start"
    decorate(model, iter(range(1000)))
    return model


@pytest.mark.parametrize("source", ["path", "bytes", "proto"])
def test_unchanged_model_full(tmp_path: Path, source: str) -> None:
    model = full_model()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    content: Any = {"path": path, "bytes": path.read_bytes(), "proto": model}[source]
    graph = gc.Graph.load(content)
    graph.export(tmp_path / "again.onnx", target="onnx")
    assert differences(model, onnx.load(tmp_path / "again.onnx")) == []
    assert differences(model, graph.to_onnx(target="onnx", opset=17)) == []
    assert differences(model, graph.to_onnx(target="onnx", opset=18))


@pytest.mark.parametrize("chunk", [*range(CHUNKS), POOLS])
def test_unchanged_model_node_tests(runner: Runner, chunk: int | str) -> None:
    outcomes = {name: runner.outcome(name, "unchanged") for name in runner.part(chunk, CHUNKS)}
    assert {name: outcome for name, outcome in outcomes.items() if outcome not in ("ok", "not loaded")} == {}
    assert "ok" in outcomes.values()


def packaged() -> list[Path]:
    """Return the models in ONNX's package, and in packages of trained models."""
    folders = [Path(onnx.__file__).parent / "backend/test/data"]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        folders += [Path(folder) for folder in (spec.submodule_search_locations or () if spec is not None else ())]
    return sorted(path for folder in folders for path in folder.rglob("*.onnx"))


@pytest.mark.parametrize("path", packaged(), ids=lambda path: path.parent.name + path.stem)
def test_unchanged_model_packaged(path: Path) -> None:
    assert unchanged(onnx.load(path)) in ("ok", "not loaded")


@pytest.mark.parametrize("name", pytorch_exports.names())
def test_unchanged_model_of_pytorch(name: str) -> None:
    assert unchanged(pytorch_exports.load(name)) == "ok"


@pytest.mark.parametrize("name", [name for name in pytorch_exports.names() if "dynamo" in name])
def test_nodes_name_their_modules_of_pytorch_when_a_model_is_lowered(name: str) -> None:
    def without(model: onnx.ModelProto) -> set[str]:
        nodes = (node for node in model.graph.node if not any(e.key == "namespace" for e in node.metadata_props))
        return {node.op_type for node in nodes}

    model = pytorch_exports.load(name)
    assert without(gc.Graph.load(model).to_onnx()) <= without(model)


def large_model() -> onnx.ModelProto:
    """Return a model with weights inside of it, in a Constant and in a body, of more than 1024 bytes."""
    array = np.arange(2000, dtype=np.float32)
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[2000])
    constant = helper.make_node("Constant", [], ["d"], value=numpy_helper.from_array(array + 2, "inner"))
    body = helper.make_graph([constant], "b", [], [value("d")])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(array + 1, "c")),
        helper.make_node("If", ["flag"], ["i"], then_branch=body, else_branch=body),
        helper.make_node("Sum", ["x", "w", "c", "i", "small"], ["y"]),
    ]
    inputs = [value("x"), helper.make_tensor_value_info("flag", TensorProto.BOOL, [])]
    weights = [numpy_helper.from_array(array, "w"), helper.make_tensor("small", TensorProto.FLOAT, [1], [1.0])]
    graph = helper.make_graph(nodes, "large", inputs, [value("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    decorate(model, iter(range(1000)))
    return model


@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize("to_external", [None, True])
def test_unchanged_model_external_data(tmp_path: Path, is_external: bool, to_external: bool | None) -> None:
    model = large_model()
    expected = onnx.ModelProto.FromString(model.SerializeToString())
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=is_external, size_threshold=0, convert_attribute=is_external
    )
    graph = gc.Graph.load(tmp_path / "m.onnx")
    (tmp_path / "new").mkdir()
    graph.export(tmp_path / "new/m.onnx", target="onnx", external_data=to_external)
    assert (tmp_path / "new/m.onnx.data").exists() is bool(to_external)
    written = onnx.load(tmp_path / "new/m.onnx")
    for tensor in written.graph.initializer:
        tensor.ClearField("data_location")  # onnx.load leaves DEFAULT in it
    assert differences(expected, written) == []


def test_unchanged_model_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(large_model(), path)
    graph = gc.Graph.load(path)
    graph.export(path, target="onnx")  # replaces the file, and the mapped one stays
    graph.export(tmp_path / "again.onnx", target="onnx")
    graph = gc.Graph.load(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"export: .*m.onnx was changed since it was loaded.*\n.*load it again"):
        graph.to_onnx(target="onnx")


@pytest.mark.parametrize("edit", ["name", "value", "body", "insert", "node"])
def test_changed_model_is_written_anew(edit: str) -> None:
    graph = gc.Graph.load(full_model())
    if edit == "name":
        graph.name = "other"
    elif edit == "value":
        graph["m"].name = "other"
    elif edit == "body":
        body = next(n.attributes["then_branch"] for n in graph.nodes if n.op_type == "If")
        body.outputs[0].name = "other"
    elif edit == "insert":
        graph["m"].insert_transformation(lambda m: m * 2)
    else:
        graph["unused"].reshape(-1)
    written = graph.to_onnx(target="onnx")
    assert not written.functions  # the function is expanded


def by_output(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {node.output[0]: node for node in model.graph.node}


def assert_same_nodes(before: onnx.ModelProto, after: onnx.ModelProto, *names: str) -> None:
    """Compare the fields that do not say what nodes compute, by the names of their results."""
    for name in names:
        old, new = (onnx.NodeProto.FromString(by_output(m)[name].SerializeToString()) for m in (before, after))
        for node in (old, new):
            node.ClearField("input")
            node.ClearField("attribute")
        assert differences(old, new) == []


EDITS: dict[str, Callable[[gc.Graph], gc.Graph]] = {
    "optimize": lambda graph: graph.optimize(),
    "with_dims": lambda graph: graph.with_dims(n=2),
    "replace": lambda graph: graph.replace("y", lambda y: y * 1),
    "with_weights": lambda graph: graph.with_weights({"w": np.ones(2, np.float32)}),
    "quantize": lambda graph: gc.quantize(graph, "int8").graph,
    "astype": lambda graph: graph.astype("float64"),
    "extract": lambda graph: graph.extract(outputs=["h", "i"]),
    "pickle": lambda graph: pickle.loads(pickle.dumps(graph)),
}


@pytest.mark.parametrize("target", ["onnx", "cpu"])
@pytest.mark.parametrize("edit", [*EDITS])
def test_fields_of_nodes_kept(edit: str, target: Any) -> None:
    model = full_model()
    written = EDITS[edit](gc.Graph.load(model, promotion="max")).to_onnx(target=target)
    assert_same_nodes(model, written, "m", "h", "i")
    bodies = [a.g.node[0] for a in by_output(written)["i"].attribute]
    assert {node.name for node in bodies} >= {"/if/Neg", "/if/Abs"} or edit == "astype"


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit not in ("astype", "extract", "with_dims")])
def test_fields_of_model_and_values_kept(edit: str) -> None:
    model = full_model()
    written = EDITS[edit](gc.Graph.load(model, promotion="max")).to_onnx(target="onnx")
    names = {value.name for value in written.graph.value_info}
    assert names >= {"m", "h"}
    properties = {p.key.partition("#")[0]: p.value for p in written.metadata_props}
    assert properties["graphcore.writer"] == gc.__version__
    assert {p.key: p.value for p in model.metadata_props}.items() <= properties.items()
    expected = {info.name: info for info in (*model.graph.value_info, *model.graph.initializer)}
    for info in (*written.graph.value_info, *written.graph.initializer):
        if info.name not in expected:
            continue
        if isinstance(info, onnx.ValueInfoProto):
            info.type.CopyFrom(expected[info.name].type)  # denotations of intermediate values are not kept
        else:
            info.raw_data = expected[info.name].raw_data
        assert differences(expected[info.name], info) == []
    for proto in (model, written):  # what is compared elsewhere, or is new
        for field in ("ir_version", "opset_import", "functions", "metadata_props"):
            proto.ClearField(field)
        for field in ("node", "value_info", "initializer"):
            proto.graph.ClearField(field)
    assert differences(model, written) == []


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit != "extract"])
def test_fields_of_attributes_kept(edit: str) -> None:
    model = full_model()
    graph = model.graph
    graph.node.append(helper.make_node("Concat", ["h", "h"], ["u"], axis=0))
    graph.output.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, [4]))
    graph.node[-1].attribute[0].doc_string = "graphcore. is in this text"
    graph.node[-1].attribute[0].MergeFromString(UNKNOWN)
    written = EDITS[edit](gc.Graph.load(model, promotion="max")).to_onnx(target="onnx")
    for operator in ("If", "Concat"):
        nodes = [next(n for n in m.graph.node if n.op_type == operator) for m in (model, written)]
        before, after = ({a.name: a for a in node.attribute} for node in nodes)
        for key, attribute in before.items():
            for proto in (attribute, after[key]):
                proto.ClearField("g")
            assert differences(attribute, after[key]) == []


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit not in ("astype", "extract")])
def test_fields_of_constant_nodes_kept(edit: str) -> None:
    model = full_model()
    written = EDITS[edit](gc.Graph.load(model, promotion="max")).to_onnx(target="onnx")
    node = by_output(model)["c"]
    tensor = next(t for t in written.graph.initializer if t.doc_string == node.doc_string)
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), [1, 2])
    properties = {p.key: p.value for p in tensor.metadata_props}
    assert properties == {"key": node.metadata_props[0].value, "graphcore.from": "/Constant"}


def test_fields_of_sparse_initializers_kept() -> None:
    model = full_model()
    sparse = model.graph.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(model.graph.initializer.pop(0))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0, 1]), "indices"))
    written = gc.Graph.load(model, promotion="max").optimize().to_onnx(target="onnx")
    (tensor,) = (t for t in written.graph.initializer if t.name == "w")
    tensor.raw_data = sparse.values.raw_data
    assert differences(sparse.values, tensor) == []


def model_with_bodies() -> onnx.ModelProto:
    """Return a model with nested bodies that have inputs, initializers, declared values and annotations."""
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    flag = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.BOOL, shape=[])
    node, pair = helper.make_node, np.array([1, 2], np.float32)
    weight = numpy_helper.from_array(pair, "q")
    inner = helper.make_graph(
        [node("Mul", ["s", "q"], ["o"], name="/in/Mul")], "1", [], [value("o", shape=[2])], [weight]
    )
    other = helper.make_graph([node("Sub", ["s", "v"], ["o"], name="/in/Sub")], "2", [], [value("o", shape=[2])])
    nodes = [
        node("Add", ["v", "k"], ["s"], name="/loop/Add"),
        node("If", ["go"], ["t"], name="/loop/If", then_branch=inner, else_branch=other),
        node("Split", ["t"], ["t0", "t1"], name="/loop/Split"),
        node("Concat", ["t1", "t0"], ["next"], name="/loop/Concat", axis=0),
        node("Identity", ["go"], ["go on"], name="/loop/Identity"),
        node("Neg", ["t0"], ["row"], name="/loop/Neg"),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("count", elem_type=TensorProto.INT64, shape=[]), flag("go"), value("v", shape=[2])],
        [flag("go on"), value("next", shape=[2]), value("row", shape=[1])],
        [numpy_helper.from_array(pair, "k")],
        value_info=[value("s", shape=[2]), value("t0", shape=[1]), value("t1", shape=[1])],
    )
    body.quantization_annotation.add(tensor_name="s").quant_parameter_tensor_names.add(key="SCALE", value="k")
    then = helper.make_graph([node("Neg", ["h"], ["r"], name="/if/Neg")], "3", [], [value("r", shape=[2])])
    branch = helper.make_graph([node("Abs", ["h"], ["r"], name="/if/Abs")], "4", [], [value("r", shape=[2])])
    graph = helper.make_graph(
        [
            node("Mul", ["x", "w"], ["h"], name="/Mul"),
            node("Loop", ["times", "flag", "h"], ["l", "rows"], name="/Loop", body=body),
            node("If", ["flag"], ["i"], name="/If", then_branch=then, else_branch=branch),
            node("Add", ["l", "i"], ["y"], name="/Add"),
        ],
        "bodies",
        [
            value("x", shape=[2]),
            flag("flag"),
            value("times", elem_type=TensorProto.INT64, shape=[]),
            value("z", shape="n"),
        ],
        [value("y", shape=[2]), value("rows", shape=[None, 1])],
        [numpy_helper.from_array(pair, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    decorate(model, iter(range(1000)))
    return model


def declare_types(graph: onnx.GraphProto) -> None:
    """Declare the types of intermediate values without denotations, which are not kept."""
    for value in graph.value_info:
        value.CopyFrom(
            onnx.ValueInfoProto(
                name=value.name,
                doc_string=value.doc_string,
                metadata_props=value.metadata_props,
                type=helper.make_tensor_type_proto(1, [dim.dim_value for dim in value.type.tensor_type.shape.dim]),
            )
        )


@pytest.mark.parametrize("target", ["onnx", "cpu"])
@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit != "astype"])
def test_fields_of_bodies_kept(edit: str, target: Any) -> None:
    model = model_with_bodies()
    if edit == "extract":
        model.graph.output.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [2]))
    written = EDITS[edit](gc.Graph.load(model, promotion="max")).to_onnx(target=target)
    onnx.checker.check_model(written, full_check=True)
    for operator in ("Loop", "If"):
        nodes = [next((n for n in m.graph.node if n.op_type == operator), None) for m in (model, written)]
        if nodes[1] is None:
            assert (edit, operator) == ("extract", "Loop")
            continue
        for before, after in zip(*(node.attribute for node in nodes if node is not None), strict=True):
            declare_types(before.g)
            declare_types(after.g)
            assert differences(before, after) == []


def test_names_in_bodies_differ_from_outer_names() -> None:
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[2])
    nodes = [helper.make_node("Neg", ["h"], ["neg_3"]), helper.make_node("Exp", ["neg_3"], ["body0/r"])]
    branches = dict.fromkeys(("then_branch", "else_branch"), helper.make_graph(nodes, "b", [], [value("body0/r")]))
    graph = helper.make_graph(
        [
            helper.make_node("Abs", ["x"], ["h"]),
            helper.make_node("If", ["flag"], ["i"], **branches),
            helper.make_node("Neg", ["i"], ["y"]),
        ],
        "clash",
        [value("x"), helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [value("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    edited = gc.Graph.load(model, promotion="max").rename({"i": "body0/r"}).replace("y", lambda y: y * 2)
    written = edited.to_onnx(target="onnx")
    onnx.checker.check_model(written, full_check=True)
    body = next(node.attribute[0].g for node in written.graph.node if node.op_type == "If")
    outer = {name for node in written.graph.node for name in node.output}
    assert outer.isdisjoint(name for node in body.node for name in node.output)
    feeds = {"x": np.array([1, -2], np.float32), "flag": np.array(True)}
    (result,) = gc.InferenceSession().load(written)(**feeds)
    np.testing.assert_allclose(result, -2 * np.exp(np.array([-1, -2], np.float32)), rtol=1e-6)


@pytest.mark.parametrize("condition", [True, False])
def test_names_in_bodies_that_are_inlined(condition: bool) -> None:
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[2])
    nodes = [helper.make_node("Neg", ["x"], ["v"], name="/Neg"), helper.make_node("Exp", ["v"], ["r"], name="/Exp")]
    branches = dict.fromkeys(("then_branch", "else_branch"), helper.make_graph(nodes, "b", [], [value("r")]))
    graph = helper.make_graph(
        [
            helper.make_node("If", ["flag"], ["i"], **branches),
            helper.make_node("If", ["flag"], ["j"], **branches),
            helper.make_node("Sub", ["i", "j"], ["v"]),
            helper.make_node("Add", ["v", "i"], ["y"]),
        ],
        "inlined",
        [value("x")],
        [value("y")],
        [numpy_helper.from_array(np.array(condition), "flag")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    optimized = gc.Graph.load(model, promotion="max").optimize()
    optimized.verify()
    written = optimized.to_onnx(target="onnx")
    assert [(n.op_type, n.name) for n in written.graph.node][:2] == [("Neg", "/Neg"), ("Exp", "/Exp")]
    (result,) = gc.InferenceSession().load(written)(x=np.array([1, -2], np.float32))
    np.testing.assert_allclose(result, np.exp(np.array([-1, 2], np.float32)), rtol=1e-6)


def test_fields_of_renamed_values() -> None:
    model = full_model()
    graph = gc.Graph.load(model).rename({"x": "first"})
    graph["m"].name = "other"
    written = graph.to_onnx(target="onnx")
    assert written.graph.input[0].doc_string == model.graph.input[0].doc_string
    assert {value.name for value in written.graph.value_info} >= {"other"}


def test_fields_of_own_models() -> None:
    graph = gc.Graph("own", {"x": gc.TensorType("float32", [2])})
    graph.output(y=-graph["x"])
    model = graph.to_onnx(target="onnx")
    model.graph.node[0].doc_string = "why"
    written = gc.Graph.load(model, promotion="max").to_onnx(target="onnx")
    assert differences(model, written) == []


def test_fields_of_invalid_text(tmp_path: Path) -> None:
    model = full_model()
    content = model.SerializeToString().replace(b"doc_string", b"doc\xff\xfetring")
    written = gc.Graph.load(content, promotion="max").to_onnx(target="onnx").SerializeToString()
    assert b"doc\xff\xfetring" in written


def test_fields_of_nodes_renamed_value() -> None:
    model = full_model()
    written = gc.Graph.load(model).rename({"m": "other"}).to_onnx(target="onnx")
    node = by_output(written)["other"]
    assert (node.name, node.doc_string) == ("/layer/Mul", model.graph.node[0].doc_string)


def pytorch_model() -> onnx.ModelProto:
    """Return a model whose nodes a target decomposes, with the metadata that PyTorch writes."""
    nodes = [
        helper.make_node("Mod", ["x", "x"], ["m"], name="node_mod"),
        helper.make_node("Relu", ["m"], ["y"], name="node_relu"),
    ]
    for node in nodes:
        node.doc_string = "a doc"
        node.metadata_props.add(key="namespace", value=": Net/layer: Linear/mod: aten.fmod")
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="File ...")
    x, y = ([helper.make_tensor_value_info(name, TensorProto.INT16, [4])] for name in "xy")
    graph = helper.make_graph(nodes, "main_graph", x, y)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10, producer_name="pytorch")


def test_fields_of_nodes_derived() -> None:
    model = pytorch_model()
    written = gc.Graph.load(model).to_onnx(target="cpu")
    nodes = {node.name: node for node in written.graph.node}
    derived = [node for node in written.graph.node if any(p.key == "graphcore.from" for p in node.metadata_props)]
    assert "node_mod" in nodes or "node_relu" in nodes
    assert derived
    for node in derived:
        properties = {p.key: p.value for p in node.metadata_props}
        assert properties["namespace"] == ": Net/layer: Linear/mod: aten.fmod"
        assert properties["graphcore.from"] in ("node_mod", "node_relu")
        assert "pkg.torch.onnx.stack_trace" not in properties
        assert not node.doc_string


def sources_of(model: onnx.ModelProto) -> dict[str, str]:
    """Return the sources of nodes by operator, and of initializers by the values that they have as a list."""
    nodes = {node.op_type: node.metadata_props for node in model.graph.node}
    tensors = {str(numpy_helper.to_array(t).tolist()): t.metadata_props for t in model.graph.initializer}
    properties = {key: {p.key: p.value for p in own} for key, own in (nodes | tensors).items()}
    return {key: own["graphcore.from"] for key, own in properties.items() if "graphcore.from" in own}


def merged_model() -> onnx.ModelProto:
    """Return a model in which passes make nodes and constants of several nodes."""
    float_value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    node = helper.make_node
    weights = {
        "two": np.array(2, np.float32),
        "axis": np.array(1),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "f": np.ones((4, 3, 3, 3), np.float32),
        "r": np.array([4, 64]),
        "s": np.array([2, 128]),
    }
    nodes = [
        node("Pad", ["x", "pads"], ["p"], name="/Pad"),
        node("Conv", ["p", "f"], ["c"], name="/Conv", doc_string="why"),
        node("Reshape", ["c", "r"], ["c1"], name="/Reshape"),
        node("Reshape", ["c1", "s"], ["c2"]),
        node("Constant", [], ["k"], name="/Constant", value=numpy_helper.from_array(np.array(1.5, np.float32))),
        node("Mul", ["k", "two"], ["k2"], name="/Mul"),
        node("Add", ["k2", "two"], ["k3"], name="/Add"),
        node("Shape", ["x"], ["n"], name="/Shape"),
        node("Gather", ["n", "axis"], ["n1"], name="/Gather"),
        node("Cast", ["n1"], ["n2"], name="/Cast", to=1),
        node("Sub", ["c2", "k3"], ["d"], name="/Sub"),
        node("Div", ["d", "n2"], ["y"], name="/Div"),
    ]
    graph = helper.make_graph(
        nodes,
        "merged",
        [float_value("x", shape=[1, 3, 8, 8])],
        [float_value("y", shape=[2, 128])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_sources_of_what_passes_merge() -> None:
    graph = gc.Graph.load(merged_model()).optimize()
    written = graph.to_onnx(target="onnx")
    assert sources_of(written) == {
        "Conv": "/Pad, /Conv",
        "Reshape": "/Reshape, c2",
        "5.0": "/Constant, /Mul, /Add",
        "3.0": "/Shape, /Gather, /Cast",
    }
    convolution = by_output(written)["c"]
    assert (convolution.name, convolution.doc_string) == ("/Conv", "why")
    again = pickle.loads(pickle.dumps(graph))
    assert sources_of(again.to_onnx(target="onnx")) == sources_of(written)
    again = gc.Graph.load(written, promotion="max").replace("y", lambda y: y * 2).optimize()
    assert sources_of(again.to_onnx(target="onnx")) == sources_of(written)


def test_sources_of_a_fusion() -> None:
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[4, 64])
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="/Relu"),
        helper.make_node("Mul", ["a", "a"], ["b"], name="/Mul"),
        helper.make_node("ReduceMean", ["b"], ["c"], name="/ReduceMean", axes=[-1]),
        helper.make_node("Add", ["c", "epsilon"], ["d"], name="/Add"),
        helper.make_node("Sqrt", ["d"], ["e"], name="/Sqrt"),
        helper.make_node("Div", ["a", "e"], ["y"], name="/Div"),
    ]
    nodes[-1].metadata_props.add(key="namespace", value="norm")
    epsilon = numpy_helper.from_array(np.array(1e-5, np.float32), "epsilon")
    graph = helper.make_graph(nodes, "norm", [value("x")], [value("y")], [epsilon])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    written = gc.Graph.load(model).to_onnx(target="cpu", runtime="1.32.0")
    assert sources_of(written) == {"RMSNormalization": "/Mul, /ReduceMean, /Add, /Sqrt, /Div"}
    properties = {p.key: p.value for p in written.graph.node[-1].metadata_props}
    assert properties["namespace"] == "norm"


def test_sources_of_a_fused_bias() -> None:
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="/MatMul"),
        helper.make_node("Add", ["p", "b"], ["y"], name="/Add"),
    ]
    weights = {"w": np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32), "b": np.ones(32, np.float32)}
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "bias", [value("x", shape=[4, 64])], [value("y", shape=[4, 32])], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    written = gc.quantize(gc.Graph.load(model), "int4").graph.to_onnx(target="cpu")
    assert sources_of(written)["MatMulNBits"] == "/MatMul, /Add"


def test_fields_of_nodes_ignored_to_run() -> None:
    graph = gc.Graph.load(full_model())
    model = gc.InferenceSession().load(graph)
    (result,) = model(x=np.ones(2, np.float32), flag=np.array(True), unused=np.ones((1, 3), np.float32))
    np.testing.assert_array_equal(result, [-13, -18])
