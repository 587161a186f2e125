"""Models of `ai.onnx.ml` that run as they are: the results and types of their Graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore.errors import GraphcoreError, ModelError
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.sessions.direct.scan import Scan

ML = "ai.onnx.ml"
F32, F64, I64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
Array = np.ndarray[Any, Any]

TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2],
    "nodes_featureids": [0, 0, 0, 3, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0, -0.25, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
    "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
}
LEAVES: dict[str, Any] = {
    "treeids": [0, 0, 1, 1],
    "nodeids": [1, 2, 1, 2],
    "ids": [0, 1, 2, 0],
    "weights": [0.75, 0.1, 0.3, 0.7],
}
CLASSES: dict[str, Any] = {f"class_{name}": values for name, values in LEAVES.items()}
TARGETS: dict[str, Any] = {f"target_{name}": values for name, values in LEAVES.items()} | {"n_targets": 3}
LINEAR: dict[str, Any] = {"coefficients": [0.5, -1.0, 0.25, 2.0] * 3, "intercepts": [0.1, 0.2, 0.3]}
SVM: dict[str, Any] = {
    "kernel_type": "RBF", "kernel_params": [0.1, 0.0, 3.0], "support_vectors": [0.1, 0.2, 0.3, 0.4, 1.0, 1.0, 0.0, 0.5],
    "coefficients": [0.5, -0.5], "rho": [0.25],
}  # fmt: skip
WORDS: dict[str, Any] = {"classlabels_strings": ["a", "b", "c"]}
NUMBERS: dict[str, Any] = {"classlabels_int64s": [3, 5, 9]}
LABELS: dict[str, Any] = {"classlabels_ints": [3, 5, 9]}


def model(
    nodes: Sequence[onnx.NodeProto],
    outputs: Mapping[str, int | None],
    kind: int = F32,
    version: int = 3,
    shape: Sequence[int | str] | None = ("n", 4),
) -> onnx.ModelProto:
    """Return a model of these nodes on `x`. outputs: their dtypes by name; None for a map."""
    info = {n: onnx.ValueInfoProto(name=n) if k is None else helper.make_tensor_value_info(n, k, None)
            for n, k in outputs.items()}  # fmt: skip
    for name, dtype in outputs.items():
        if dtype is None:
            maps = helper.make_map_type_proto(I64, helper.make_tensor_type_proto(F32, []))
            info[name].type.CopyFrom(helper.make_sequence_type_proto(maps))
    x = helper.make_tensor_value_info("x", kind, shape)
    graph = helper.make_graph(list(nodes), "others", [x], [*info.values()])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, version), helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert isinstance(model, onnx.ModelProto)
    return model


def node(op_type: str, outputs: str = "y", inputs: str = "x", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), domain=ML, **attributes)


def one(op_type: str, kind: int = F32, result: int = F32, **attributes: Any) -> onnx.ModelProto:
    return model([node(op_type, **attributes)], {"y": result}, kind)


def classifier(op_type: str, kind: int = F32, **attributes: Any) -> onnx.ModelProto:
    label = STRING if "classlabels_strings" in attributes else I64
    return model([node(op_type, "y z", **attributes)], {"y": label, "z": F32}, kind)


def zipped(then: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
    nodes = [
        node("LinearClassifier", "l s", **LINEAR, **LABELS, post_transform="SOFTMAX"),
        helper.make_node("Identity", ["l"], ["y"]),
        node("Normalizer", "p", "s", norm="L1"),
        node("ZipMap", "z", "p", **NUMBERS),
    ]
    return model([*nodes, *then], {"y": I64, "z": None})


def picked() -> onnx.ModelProto:
    places = helper.make_node("Constant", [], ["i"], value_ints=[2, 0])
    return model([places, node("ArrayFeatureExtractor", inputs="x i")], {"y": F32})


TAKEN: dict[str, Callable[[], onnx.ModelProto]] = {
    "ArrayFeatureExtractor": picked,
    "Binarizer": lambda: one("Binarizer", threshold=0.5),
    "FeatureVectorizer": lambda: model([node("FeatureVectorizer", inputs="x x", inputdimensions=[4, 4])], {"y": F32}),
    "Imputer": lambda: one("Imputer", imputed_value_floats=[7.0], replaced_value_float=float("nan")),
    "LabelEncoder": lambda: one("LabelEncoder", I64, STRING, keys_int64s=[0, 1], values_strings=["p", "q"]),
    "LabelEncoder of strings": lambda: one(
        "LabelEncoder", STRING, I64, keys_strings=["a", "bé"], values_int64s=[5, 6], default_int64=-7
    ),
    "LinearClassifier": lambda: classifier("LinearClassifier", **LINEAR, **LABELS, post_transform="LOGISTIC"),
    "LinearClassifier of words": lambda: classifier("LinearClassifier", **LINEAR, **WORDS),
    "LinearClassifier of float64": lambda: classifier("LinearClassifier", F64, **LINEAR, **LABELS),
    "LinearRegressor": lambda: one("LinearRegressor", targets=3, **LINEAR),
    "Normalizer": lambda: one("Normalizer", norm="L2"),
    "OneHotEncoder": lambda: one("OneHotEncoder", I64, cats_int64s=[0, 1]),
    "OneHotEncoder of strings": lambda: one("OneHotEncoder", STRING, cats_strings=["a", "b"]),
    "Scaler": lambda: one("Scaler", offset=[0.5] * 4, scale=[2.0] * 4),
    "Scaler of float64": lambda: one("Scaler", F64, offset=[0.5] * 4, scale=[2.0] * 4),
    "SVMClassifier": lambda: classifier(
        "SVMClassifier", **{**SVM, "vectors_per_class": [1, 1]}, classlabels_ints=[4, 2]
    ),
    "SVMRegressor": lambda: one("SVMRegressor", n_supports=2, **SVM),
    "TreeEnsembleClassifier": lambda: classifier("TreeEnsembleClassifier", **TREE, **CLASSES, **NUMBERS),
    "TreeEnsembleClassifier of words": lambda: classifier("TreeEnsembleClassifier", **TREE, **CLASSES, **WORDS),
    "TreeEnsembleRegressor": lambda: one("TreeEnsembleRegressor", **TREE, **TARGETS),
    "TreeEnsembleRegressor of float64": lambda: one("TreeEnsembleRegressor", F64, **TREE, **TARGETS),
    "ZipMap": zipped,
}  # fmt: skip


def feed(source: onnx.ModelProto) -> Array:
    rng = np.random.default_rng(0)
    kind = source.graph.input[0].type.tensor_type.elem_type
    if kind == STRING:
        return rng.choice(np.array(["a", "b", "bé", "none"], object), (5, 4))
    if kind == I64:
        return rng.integers(0, 2, (5, 4))
    array = rng.standard_normal((5, 4)).astype(helper.tensor_dtype_to_np_dtype(kind))
    array[2, 1], array[3, 0] = np.inf, -0.0
    if source.graph.node[0].op_type != "Binarizer":  # whose kernel refuses it
        array[1, 2] = np.nan
    return array


def reason(source: onnx.ModelProto) -> str | None:
    scan = Scan(legality("cpu", runtime()))
    scan.run(source)
    return scan.reason


def bits(value: Any) -> Any:
    if isinstance(value, list):
        return [bits(v) for v in value]
    if isinstance(value, dict):
        return {key: np.float32(v).tobytes() for key, v in value.items()}
    return value.dtype, value.shape, value.tolist() if value.dtype == object else value.tobytes()


@pytest.mark.releases
@pytest.mark.parametrize("what", TAKEN)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_results_and_types_are_those_of_the_graph(what: str, version: int) -> None:
    source = TAKEN[what]()
    source.opset_import[1].version = version
    if "LabelEncoder" in what and version == 1:
        pytest.skip("version 1 has another form, which a Graph puts in place")
    direct, whole = gc.InferenceSession().load(source), gc.InferenceSession().load(gc.Graph.load(source))
    assert direct._is_direct
    assert (direct.inputs, direct.outputs) == (whole.inputs, whole.outputs)
    assert bits([*direct(feed(source))]) == bits([*whole(feed(source))])


LEFT: dict[str, Callable[[], onnx.ModelProto]] = {
    "trees of two classes, each with weights": lambda: classifier(
        "TreeEnsembleClassifier", **TREE, **{**CLASSES, "class_ids": [0, 1, 1, 0]}, classlabels_int64s=[3, 4]
    ),
    "a Binarizer of integers": lambda: one("Binarizer", I64, I64),
    "regressors of float64": lambda: one("LinearRegressor", F64, targets=3, **LINEAR),
    "a map that is an operand": lambda: zipped([helper.make_node("Identity", ["z"], ["w"])]),
    "an operator of ai.onnx.ml in ONNX's domain": lambda: model([helper.make_node("Scaler", ["x"], ["y"])], {"y": F32}),
    "an operator of ONNX in ai.onnx.ml": lambda: one("Relu"),
    "an attribute of another kind": lambda: one("Scaler", offset=["a"], scale=[1.0]),
    "trees with a circle": lambda: one(
        "TreeEnsembleRegressor", **{**TREE, "nodes_truenodeids": [0, 0, 0, 1, 0, 0]}, **TARGETS
    ),
    "a cast to strings": lambda: model([helper.make_node("Cast", ["x"], ["y"], to=STRING)], {"y": STRING}),
}


@pytest.mark.parametrize("what", LEFT)
def test_a_model_is_left_to_a_graph_when_it_has(what: str) -> None:
    assert reason(LEFT[what]()) is not None
    try:
        loaded = gc.InferenceSession().load(LEFT[what]())
    except GraphcoreError:
        return
    assert not loaded._is_direct


def test_trees_with_a_circle_are_refused_before_a_kernel_follows_them() -> None:
    circle: dict[str, Any] = {**TREE, "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"] * 2}
    later: dict[str, Any] = {"nodes_truenodeids": [1, 2, 0, 1, 0, 0], "nodes_falsenodeids": [2, 0, 0, 2, 0, 0]}
    source = one("TreeEnsembleRegressor", **{**circle, **later}, **TARGETS)
    for read in (gc.Graph.load, gc.InferenceSession().load):
        with pytest.raises(ModelError, match="its trees have a cycle"):
            read(source)


def test_trees_are_refused_whose_nodes_have_numbers_that_kernels_read_as_others() -> None:
    for number in (-(1 << 63), 1 << 32, -1):
        source = one("TreeEnsembleRegressor", **{**TREE, "nodes_truenodeids": [number, 0, 0, 1, 0, 0]}, **TARGETS)
        for read in (gc.Graph.load, gc.InferenceSession().load):
            with pytest.raises(ModelError, match="node ids of its trees must be in"):
                read(source)


def test_trees_whose_nodes_are_in_any_order_are_not_circle() -> None:
    upward: dict[str, Any] = {
        "nodes_nodeids": [2, 1, 0] * 2,
        "nodes_truenodeids": [1, 0, 0] * 2,
        "nodes_falsenodeids": [0] * 6,
    }
    leaves: dict[str, Any] = {**TARGETS, "target_nodeids": [1, 0, 1, 0]}
    source = one("TreeEnsembleRegressor", **{**TREE, **upward}, **leaves)
    direct = gc.InferenceSession().load(source)
    assert direct._is_direct
    expected = gc.InferenceSession().load(one("TreeEnsembleRegressor", **TREE, **TARGETS))
    assert bits([*direct(feed(source))]) == bits([*expected(feed(source))])


def test_text_that_is_none_is_left_to_the_errors_of_a_graph() -> None:
    words = onnx.TensorProto(name="w", data_type=STRING, dims=[1], string_data=[b"\xff\xfe"])
    join = helper.make_node("Concat", ["x", "w"], ["y"], axis=0)
    source = model([join], {"y": STRING}, STRING, shape=["n"])
    source.graph.initializer.append(words)
    assert reason(source) == "the constant 'w'"


def test_name_of_an_attribute_that_is_not_a_text_is_refused() -> None:
    for name, attribute in (("TreeEnsembleClassifier of words", b"class_ids"), ("LabelEncoder", b"values_strings")):
        content = TAKEN[name]().SerializeToString()
        assert content.count(attribute) == 1
        for load in (gc.InferenceSession().load, gc.Graph.load):
            with pytest.raises(ModelError):
                load(content.replace(attribute, b"\xef" + attribute[1:]))


def test_name_of_a_graph_that_is_not_a_text_is_refused() -> None:
    content = TAKEN["Scaler"]().SerializeToString()
    assert content.count(b"others") == 1
    for load in (gc.InferenceSession().load, gc.Graph.load):
        with pytest.raises(ModelError, match="not valid UTF-8"):
            load(content.replace(b"others", b"\xefthers"))


def test_metadata_that_are_not_text_are_refused() -> None:
    for key, text in ((b"graphcore.pr\xefmotion", b"max"), (b"author", b"\xff")):
        content = TAKEN["Scaler"]().SerializeToString()
        entry = b"\x0a%c%b\x12%c%b" % (len(key), key, len(text), text)
        for load in (gc.InferenceSession().load, gc.Graph.load):
            with pytest.raises(ModelError, match="not valid UTF-8"):
                load(content + b"\x72%c%b" % (len(entry), entry))  # field 14 of a model


def test_weights_are_packed_where_several_rows_go_through_them_before_anything_else() -> None:
    weights = helper.make_tensor("w", F32, [4, 3], [0.5] * 12)
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=F32),
        helper.make_node("MatMul", ["c", "w"], ["m"]),
        helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0),
    ]
    packs = []
    for rows in ("n", 5, 1):
        source = model(nodes, {"y": F32}, shape=[rows, 4])
        source.graph.initializer.append(weights)
        scan = Scan(legality("cpu", runtime()))
        assert scan.run(source)
        packs.append(scan.is_packed())
    assert packs == [True, True, None]


# Rows that there are none of


@pytest.mark.parametrize("name", TAKEN)
def test_results_have_no_rows_when_the_operands_have_none(name: str) -> None:
    """Kernels compute none, and that of FeatureVectorizer ends the process."""
    proto = TAKEN[name]()
    for source in (proto, gc.Graph.load(proto)):
        loaded = gc.InferenceSession().load(source)
        (type_,) = loaded.inputs.values()
        assert isinstance(type_, gc.TensorType)
        x = np.zeros((0, 4), object if type_.dtype is gc.DType.string else type_.dtype.numpy)
        assert all(not len(result) for result in loaded(x))


_SHAPES: dict[int, tuple[int, ...]] = {1: (3,), 2: (2, 3), 3: (2, 3, 2)}


@pytest.mark.parametrize("expected", ["nothing", "rank", "shape"])
@pytest.mark.parametrize("rank", _SHAPES)
@pytest.mark.parametrize("kind", [F32, F64, I64, TensorProto.INT32])
def test_vectors_are_those_of_the_kernel(kind: int, rank: int, expected: str) -> None:
    shape = _SHAPES[rank]
    declared = {"nothing": None, "rank": [f"d{i}" for i in range(rank)], "shape": list(shape)}[expected]
    for counts in ([3, 2], [0, 5], [4, 4]):
        culprit = node("FeatureVectorizer", inputs="x x", inputdimensions=counts)
        proto = model([culprit], {"y": F32}, kind, shape=declared)
        x = (np.random.default_rng(rank).normal(size=shape) * 100).astype(helper.tensor_dtype_to_np_dtype(kind))
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        (want,) = session.run(None, {"x": x})
        for source in (proto, gc.Graph.load(proto)):
            (got,) = gc.InferenceSession().load(source)(x)
            assert got.dtype == want.dtype
            assert np.array_equal(got, want)
            if rank == 2:
                assert expected == "shape" or gc.InferenceSession().load(source)(x[:0])[0].shape == (0, sum(counts))


@pytest.mark.parametrize("kind", [F32, F64])
def test_output_of_trees_is_refused_when_it_is_declared_in_another_dtype(kind: int) -> None:
    """onnxruntime refuses such a file, which loaded and was exported again."""
    source = model([node("TreeEnsembleRegressor", **TREE, **TARGETS)], {"y": F64}, kind)
    for read in (gc.Graph.load, gc.InferenceSession().load):
        with pytest.raises(ModelError, match="'y' is declared as float64, but TreeEnsembleRegressor returns float32"):
            read(source)
