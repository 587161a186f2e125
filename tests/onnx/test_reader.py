"""Models of other tools as Graphs: the Graph has everything in the file, and runs to the same numbers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import ModelError, PromotionError, ResourceLimitError
from graphcore.onnx import notes
from graphcore.onnx.schemas.schemas import element
from graphcore.runtime.lowering import lower

Array = np.ndarray[Any, Any]
D = DType
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def info(name: str, kind: int = FLOAT, shape: Sequence[Any] | None = ("n",)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    opset: int = 21,
    **more: Any,
) -> onnx.ModelProto:
    functions = more.pop("functions", [])
    domains = more.pop("domains", {})
    model = helper.make_model(
        helper.make_graph(nodes, "test", inputs, outputs, **more),
        opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in domains.items())],
        functions=functions,
    )
    model.ir_version = 10
    return model


def alone(proto: onnx.ModelProto, feed: dict[str, Array]) -> list[Any]:
    """Return onnxruntime's own results of the model."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[Any] = session.run(None, feed)
    return results


def run(source: Any, *arrays: Array, **options: Any) -> list[Any]:
    return list(gc.InferenceSession().load(Graph.load(source, **options))(*arrays))


X = np.arange(6, dtype=np.float32)


# What is native stays as it was


def perceptron() -> onnx.ModelProto:
    w = numpy_helper.from_array(np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32), "w")
    b = numpy_helper.from_array(np.ones(4, np.float32), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    return model(nodes, [info("x", shape=("n", 6))], [info("y", shape=("n", 4))], initializer=[w, b])


def test_float32_model_keeps_its_nodes_when_loaded_and_lowered() -> None:
    graph = Graph.load(perceptron())
    back = graph.to_onnx()
    assert [n.op_type for n in back.graph.node] == ["MatMul", "Add", "Relu", "Softmax"]
    assert [list(n.output) for n in back.graph.node] == [["m"], ["s"], ["r"], ["y"]]
    assert {i.name for i in back.graph.initializer} == {"w", "b"}
    x = np.ones((3, 6), np.float32)
    assert np.array_equal(run(perceptron(), x)[0], alone(perceptron(), {"x": x})[0])


def test_types_are_known_for_every_value_when_loaded() -> None:
    graph = Graph.load(perceptron())
    assert str(graph["m"].type) == "float32[n, 4]"
    assert graph.output_types == {"y": TensorType(D.float32, ["n", 4])}
    assert list(graph.weights) == ["w", "b"]
    graph = Graph.load(
        model(
            [
                helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
                helper.make_node("Concat", ["s", "rest"], ["to"], axis=0),
                helper.make_node("Reshape", ["x", "to"], ["y"]),
            ],
            [info("x", shape=("n", 2, 3))],
            [info("y", shape=None)],
            initializer=[numpy_helper.from_array(np.array([6]), "rest")],
        )
    )
    assert str(graph.outputs[0].type) == "float32[n, 6]"


def test_weights_may_be_given_anew_when_a_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(perceptron(), path)
    w = np.zeros((6, 4), np.float32)
    (y,) = gc.InferenceSession().load(path, weights={"w": w})(np.ones((2, 6), np.float32))
    assert np.array_equal(y, np.full((2, 4), 0.25, np.float32))


def test_weights_stay_in_the_mapped_file_when_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    graph = Graph("large", {"x": TensorType(D.float32, ["n", 512])})
    values = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    graph.output(graph["x"] @ graph.weight("w", values))
    for external in (False, True):
        graph.export(path, external_data=external)
        read = Graph.load(path).weights["w"].producer.array  # type: ignore[union-attr]
        assert np.array_equal(read, values)
        assert not external or not read.flags.owndata
        x = np.ones((2, 512), np.float32)
        assert np.allclose(gc.InferenceSession().load(path)(x)[0], x @ values, atol=1e-3)


# Our own files


def mixed() -> Graph:
    graph = Graph("mixed", {"i": TensorType(D.int8, ["n"]), "b": TensorType(D.bfloat16, ["n"])})
    with graph.layer("outer"), graph.layer("inner"):
        y = graph["i"] * graph["b"] + 1
    graph.output(y=y, z=graph["i"] // 3)
    return graph


@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_graph_comes_back_when_it_was_exported(target: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    mixed().export(path, target=target)
    back = Graph.load(path)
    assert [s.name for s in back.inputs] == ["i", "b"]
    assert back.output_types == mixed().output_types
    i, b = np.arange(-3, 4, dtype=np.int8), np.linspace(0, 3, 7).astype(ml_dtypes.bfloat16)
    for got, want in zip(run(path, i, b), gc.InferenceSession().load(mixed())(i, b), strict=True):
        assert got.dtype == want.dtype
        assert np.array_equal(got, want)
    if target == "onnx":
        assert [n.layer for n in back.nodes[:3]] == ["outer/inner/"] * 3


def test_semantic_dtypes_come_back_when_they_were_exported(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    graph = Graph("semantic", {"x": TensorType(D.tf32, ["n"]), "i": TensorType(D.index, ["n"])})
    graph.output(y=graph["x"] * 3, j=graph["i"] + graph.weight("w", np.array([5], np.uint64), D.index))
    graph.export(path)
    back = Graph.load(path)
    assert [s.dtype for s in back.inputs] == [D.tf32, D.index]
    assert [t.dtype for t in back.output_types.values()] == [D.tf32, D.index]  # type: ignore[union-attr]
    assert back.weights["w"].dtype is D.index
    x, i = np.array([1.0001, 2], np.float32), np.array([2**63, 1], np.uint64)
    for got, want in zip(run(path, x, i), gc.InferenceSession().load(graph)(x, i), strict=True):
        assert np.array_equal(got, want)


def test_promotion_system_comes_back_when_it_was_exported() -> None:
    graph = Graph("published", {"x": TensorType(D.float32, [])}, promotion="max_published")
    graph.output(graph["x"] + 1)
    assert Graph.load(graph.to_onnx()).promotion.name == "max_published"
    assert Graph.load(graph.to_onnx(), promotion="max").promotion.name == "max"


def test_loaded_graph_goes_on_being_built_when_it_is_copied() -> None:
    graph = Graph.load(perceptron()).copy()
    graph.output(ops.argmax(graph["y"], axis=-1))
    assert gc.InferenceSession().load(graph)(np.eye(6, dtype=np.float32))[0].shape == (6,)


# Bodies


def branches() -> onnx.ModelProto:
    then = helper.make_graph([helper.make_node("Add", ["x", "two"], ["t"])], "then", [], [info("t")])
    other = helper.make_graph([helper.make_node("Mul", ["x", "inner"], ["e"])], "else", [], [info("e")],
                              initializer=[numpy_helper.from_array(np.array(5, np.float32), "inner")])  # fmt: skip
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    return model(nodes, [info("c", BOOL, ()), info("x")], [info("y")], initializer=[two])


@pytest.mark.parametrize("chosen", [True, False])
def test_branches_see_the_graph_around_them_when_loaded(chosen: bool) -> None:
    (got,) = run(branches(), np.array(chosen), X)
    assert np.array_equal(got, X + 2 if chosen else X * 5)


def loop() -> onnx.ModelProto:
    """Double until the sum is over 50; the state grows by concatenation, and every sum is a scan output."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["v", "v"], ["v2"], axis=0),
            helper.make_node("ReduceSum", ["v2"], ["s"], keepdims=0),
            helper.make_node("Less", ["s", "limit"], ["more"]),
            helper.make_node("Identity", ["s"], ["scanned"]),
        ],
        "body",
        [info("i", INT64, ()), info("cond", BOOL, ()), info("v", shape=None)],
        [info("more", BOOL, ()), info("v2", shape=None), info("scanned", shape=())],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y", "sums"], body=body)]
    limit = numpy_helper.from_array(np.array(50, np.float32), "limit")
    return model(nodes, [info("n", INT64, ()), info("x", shape=(3,))], [info("y"), info("sums")], initializer=[limit])


def test_loop_carries_what_changes_its_shape_when_loaded() -> None:
    n, x = np.array(9), np.ones(3, np.float32)
    got, sums = run(loop(), n, x)
    want, expected = alone(loop(), {"n": n, "x": x})
    assert np.array_equal(got, want)
    assert np.array_equal(sums, expected)
    assert str(Graph.load(loop()).outputs[0].type) == "float32[?]"


def test_bodies_are_lowered_when_their_dtype_has_no_kernel() -> None:
    then = helper.make_graph([helper.make_node("Add", ["x", "x"], ["t"])], "then", [], [info("t", D.bfloat16.onnx)])
    other = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["e"])], "else", [], [info("e", D.bfloat16.onnx)])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    proto = model(nodes, [info("c", BOOL, ()), info("x", D.bfloat16.onnx)], [info("y", D.bfloat16.onnx)])
    x = np.array([1.5, 3.1415], ml_dtypes.bfloat16)
    assert np.array_equal(run(proto, np.array(True), x)[0], x + x)
    assert np.array_equal(run(proto, np.array(False), x)[0], x * x)


def test_graph_with_bodies_pickles_and_prints() -> None:
    import pickle

    graph = pickle.loads(pickle.dumps(Graph.load(branches())))
    assert "If(" in str(graph)
    assert np.array_equal(gc.InferenceSession().load(graph)(np.array(True), X)[0], X + 2)
    copied = Graph.load(branches()).copy()
    copied.output(copied["y"])
    assert np.array_equal(gc.InferenceSession().load(copied)(np.array(False), X)[0], X * 5)


def test_nested_bodies_see_every_graph_around_them_when_loaded() -> None:
    inner = helper.make_graph([helper.make_node("Mul", ["a", "x"], ["r"])], "inner", [], [info("r")])
    plain = helper.make_graph([helper.make_node("Identity", ["x"], ["p"])], "plain", [], [info("p")])
    then = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["a"]),
            helper.make_node("If", ["d"], ["t"], then_branch=inner, else_branch=plain),
        ],
        "then", [], [info("t")],
    )  # fmt: skip
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=plain)]
    proto = model(nodes, [info("c", BOOL, ()), info("d", BOOL, ()), info("x")], [info("y")])
    for c, d in itertools.product([True, False], repeat=2):
        (got,) = run(proto, np.array(c), np.array(d), X)
        assert np.array_equal(got, 2 * X * X if c and d else X)


# Functions


def scaled() -> onnx.FunctionProto:
    constant = helper.make_node("Constant", [], ["k"])
    constant.attribute.append(
        onnx.AttributeProto(name="value_float", ref_attr_name="by", type=onnx.AttributeProto.FLOAT)
    )
    result = helper.make_function(
        "local", "Scaled", ["v"], ["w"], [constant, helper.make_node("Mul", ["v", "k"], ["w"])],
        [helper.make_opsetid("", 21)], attribute_protos=[helper.make_attribute("by", 3.0)],
    )  # fmt: skip
    return result


def test_functions_are_expanded_with_their_attributes_when_loaded() -> None:
    nodes = [
        helper.make_node("Scaled", ["x"], ["a"], domain="local"),
        helper.make_node("Scaled", ["a"], ["y"], domain="local", by=0.5),
    ]
    proto = model(nodes, [info("x")], [info("y")], functions=[scaled()], domains={"local": 1})
    graph = Graph.load(proto)
    assert [n.op_type for n in graph.nodes] == ["Mul", "Mul"]
    assert [n.layer for n in graph.nodes] == ["Scaled/", "Scaled/"]
    assert np.array_equal(run(proto, X)[0], X * 1.5)


def test_functions_have_operators_of_onnx_under_either_name_of_its_domain() -> None:
    steps = [helper.make_node("Neg", ["v"], ["w"], domain="ai.onnx")]
    function = helper.make_function("local", "Minus", ["v"], ["w"], steps, [helper.make_opsetid("", 21)])
    call = helper.make_node("Minus", ["x"], ["y"], domain="local")
    proto = model([call], [info("x")], [info("y")], functions=[function], domains={"local": 1})
    assert [(n.op_type, n.domain) for n in Graph.load(proto).nodes] == [("Neg", "")]
    assert np.array_equal(run(proto, X)[0], -X)


def test_functions_that_call_themselves_or_expand_without_end_are_refused() -> None:
    def calling(name: str, callee: str, times: int = 1) -> onnx.FunctionProto:
        steps = [helper.make_node(callee, [f"v{i}"], [f"v{i + 1}"], domain="local") for i in range(times)]
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
        return helper.make_function("local", name, ["v0"], [f"v{times}"], steps, imports)

    nodes = [helper.make_node("F0", ["x"], ["y"], domain="local")]
    ring = [calling("F0", "F1"), calling("F1", "F0")]
    with pytest.raises(ModelError, match="functions call themselves: F"):
        Graph.load(model(nodes, [info("x")], [info("y")], functions=ring, domains={"local": 1}))
    laughs = [calling(f"F{i}", f"F{i + 1}", 10) for i in range(12)]
    laughs.append(helper.make_function("local", "F12", ["v"], ["w"], [helper.make_node("Neg", ["v"], ["w"])],
                                       [helper.make_opsetid("", 21)]))  # fmt: skip
    with pytest.raises(ResourceLimitError, match="nodes once its functions are expanded"):
        Graph.load(model(nodes, [info("x")], [info("y")], functions=laughs, domains={"local": 1}))


# Kinds of constants


def test_sparse_initializers_are_dense_when_loaded() -> None:
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "s")
    for indices in (np.array([1, 3]), np.array([[0, 1], [1, 1]])):
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), [2, 2])
        proto = model(
            [helper.make_node("Add", ["x", "s"], ["y"])], [info("x", shape=(2, 2))], [info("y", shape=(2, 2))],
            sparse_initializer=[sparse],
        )  # fmt: skip
        assert run(proto, np.zeros((2, 2), np.float32))[0].tolist() == [[0, 5], [0, 7]]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", [d for d in vars(DType).values() if isinstance(d, DType) and d.storage is d], ids=str)
def test_constants_of_every_dtype_come_back_when_written(dtype: DType, raw: bool) -> None:
    if dtype is D.string:
        values = np.array(["a", "ü", ""], object)
    else:
        values = np.array([0, 1, 1, 0, 1], np.float32).astype(dtype.numpy)
    if raw or dtype in (D.int2, D.uint2, D.float4_e2m1, D.float8_e8m0):
        graph = Graph("constant", {"x": TensorType(D.float32, ["n"])})
        graph.output(*graph.op("Size", [graph["x"]], out_types=[TensorType(D.int64, [])]))
        graph.weight("w", values) if dtype is not D.string else graph.constant(values, name="w")
        proto = graph.to_onnx(target="onnx")
        if not proto.graph.initializer:  # nothing uses it
            from graphcore.onnx.proto.value_protos import tensor

            proto.graph.initializer.append(onnx.TensorProto.FromString(b"".join(tensor(values, dtype, "w"))))
    else:
        tensor_proto = helper.make_tensor("w", dtype.onnx, values.shape, values.tolist())
        proto = model([helper.make_node("Size", ["x"], ["y"])], [info("x")], [info("y", INT64, ())],
                      initializer=[tensor_proto])  # fmt: skip
    read = Graph.load(proto).weights["w"]
    assert read.dtype is dtype
    assert str(read.producer.array.tolist()) == str(values.tolist())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("key", "value", "dtype"),
    [("value_int", 3, D.int64), ("value_ints", [3, 4], D.int64), ("value_float", 0.5, D.float32),
     ("value_floats", [0.5], D.float32), ("value_string", "s", D.string), ("value_strings", ["s", "t"], D.string)],
)  # fmt: skip
def test_constant_nodes_of_every_kind_are_read(key: str, value: Any, dtype: DType) -> None:
    nodes = [helper.make_node("Constant", [], ["y"], **{key: value})]
    proto = model(nodes, [], [info("y", dtype.onnx, np.shape(value))])
    assert run(proto)[0].tolist() == value


# Order, names, domains


def test_nodes_are_brought_in_order_when_they_are_not() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Abs", ["x"], ["a"])]
    assert np.array_equal(run(model(nodes, [info("x")], [info("y")]), -X)[0], -X)
    ring = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    with pytest.raises(ModelError, match="nodes depend on each other: "):
        Graph.load(model(ring, [info("x")], [info("b")]))


def test_operators_of_other_domains_pass_through_untouched() -> None:
    nodes = [
        helper.make_node("FusedMatMul", ["x", "x"], ["m"], domain="com.microsoft", transB=1, alpha=0.5),
        helper.make_node("Neg", ["m"], ["y"]),
    ]
    proto = model(nodes, [info("x", shape=("n", 3))], [info("y", shape=("n", "n"))], domains={"com.microsoft": 1})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.allclose(run(proto, x)[0], -0.5 * x @ x.T)
    node = Graph.load(proto).to_onnx().graph.node[0]
    assert (node.domain, node.op_type) == ("com.microsoft", "FusedMatMul")
    assert {a.name: helper.get_attribute_value(a) for a in node.attribute} == {"transB": 1, "alpha": 0.5}


def test_inputs_with_an_initializer_are_weights_when_loaded() -> None:
    w = numpy_helper.from_array(np.array(3, np.float32), "w")
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], [info("x"), info("w", shape=())], [info("y")],
                  initializer=[w])  # fmt: skip
    graph = Graph.load(proto)
    assert [s.name for s in graph.inputs] == ["x"]
    assert list(graph.weights) == ["w"]


def test_metadata_of_a_model_is_kept_when_it_is_written_again() -> None:
    proto = perceptron()
    proto.metadata_props.append(onnx.StringStringEntryProto(key="author", value="somebody"))
    remaining = notes.read({p.key: p.value for p in Graph.load(proto).to_onnx().metadata_props})
    assert remaining["author"] == "somebody"
    assert json.loads(remaining.get("graphcore.dtypes", "{}")) == {}


# Dtypes that do not go together


def mixing() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "i"], ["s"]), helper.make_node("Mul", ["s", "x"], ["y"])]
    return model(nodes, [info("x"), info("i", INT64)], [info("y")])


def test_operands_of_two_dtypes_are_refused_when_loaded() -> None:
    with pytest.raises(ModelError) as caught:
        Graph.load(mixing())
    assert "load: Add 's' mixes float32 and int64" in str(caught.value)
    assert "implicit_casts=True" in str(caught.value)
    assert "float32[n]" in str(caught.value)


def test_operands_of_two_dtypes_are_fixed_when_asked() -> None:
    graph = Graph.load(mixing(), implicit_casts=True)
    assert [n.op_type for n in graph.nodes] == ["Cast", "Add", "Mul"]
    assert graph.output_types == {"y": TensorType(D.float32, ["n"])}
    assert np.array_equal(run(mixing(), X, np.arange(6), implicit_casts=True)[0], 2 * X * X)


def test_dtype_that_promotion_gives_flows_on_when_a_model_is_fixed() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Neg", ["s"], ["y"])]
    proto = model(nodes, [info("a", D.int8.onnx), info("b", D.int16.onnx)], [info("y", D.int8.onnx)])
    assert Graph.load(proto, implicit_casts=True).output_types == {"y": TensorType(D.int16, ["n"])}


def test_dtypes_without_a_common_one_are_refused_when_a_model_is_fixed() -> None:
    nodes = [helper.make_node("Where", ["c", "a", "b"], ["y"])]
    proto = model(nodes, [info("c", BOOL), info("a", D.float8_e5m2.onnx), info("b")], [info("y")])
    with pytest.raises(PromotionError, match="float8_e5m2 and float32"):
        Graph.load(proto, implicit_casts=True)


def test_dtypes_that_an_operator_does_not_take_are_refused() -> None:
    with pytest.raises(ModelError, match="A is bool, which Add of opset 14 does not take"):
        Graph.load(model([helper.make_node("Add", ["x", "x"], ["y"])], [info("x", BOOL)], [info("y", BOOL)]))
    assert element(TensorType(D.float8_e5m2, [])) == "tensor(float8e5m2)"


# Nodes of others keep the float32 kernels they were written for


def pooled(dtype: DType = D.float32) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("ReduceMax", ["s", "axes"], ["y"], keepdims=0),
    ]
    x = info("x", dtype.onnx, ("n", 1, 4, 4))
    axes = numpy_helper.from_array(np.array([1, 2, 3]), "axes")
    return model(nodes, [x], [info("y", dtype.onnx)], opset=22, initializer=[axes])


def test_float32_nodes_that_others_wrote_keep_their_kernels() -> None:
    graph = Graph.load(pooled())
    assert lower(graph, "cpu") is graph
    x = np.random.default_rng(0).standard_normal((2, 1, 4, 4)).astype(np.float32)
    assert np.array_equal(run(pooled(), x)[0], alone(pooled(), {"x": x})[0])


def test_nodes_that_others_wrote_are_fixed_where_the_dtype_is_another() -> None:
    x = np.full((1, 1, 4, 4), np.nan, np.float64)
    assert np.isnan(run(pooled(D.float64), x)[0]).all()
    assert lower(Graph.load(pooled(D.bfloat16)), "cpu").nodes[0].op_type == "Cast"


def test_ops_built_on_a_model_of_others_give_what_ops_give() -> None:
    graph = Graph.load(pooled()).copy()
    graph.output(ops.sigmoid(graph["p"] * 0 - 30), ops.max(graph["x"], axis=(1, 2, 3)))
    x = np.ones((2, 1, 4, 4), np.float32)
    x[0, 0, 1, 1] = np.nan
    low, greatest = gc.InferenceSession().load(graph)(x)
    assert (low[1] > 0).all()
    assert np.isnan(greatest[0])


def test_own_files_mean_what_was_built_when_no_target_was_lowered_for() -> None:
    graph = Graph("own", {"x": TensorType(D.float32, ["n"])})
    graph.output(ops.max(graph["x"], axis=0))
    x = np.array([1, np.nan], np.float32)
    for target in ("onnx", "cpu"):
        proto = graph.to_onnx(target=target)
        assert np.isnan(run(proto, x)[0])
    lowered = Graph.load(graph.to_onnx(target="cpu"))
    assert {n.op_type for n in lower(lowered, "cpu").nodes} == {n.op_type for n in lowered.nodes}
