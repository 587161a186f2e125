"""Types of what operators of other domains give: by rules, by the runtime, by the model; and files that have them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.errors import ExportError, GraphError, ModelError
from graphcore.onnx.proto.opened import Opened
from graphcore.onnx.read.reader import read as read_opened
from graphcore.onnx.schemas.other_domains import BLOCKED, RULES
from graphcore.onnx.schemas.runtime_operators import installed
from graphcore.onnx.schemas.schemas import MICROSOFT, recorded
from graphcore.ops.microsoft._declare import ROWS

Array: TypeAlias = "np.ndarray[Any, Any]"

U8, S, P = TensorProto.UINT8, np.float32(0.02), np.uint8(3)


def model_of(
    op_type: str,
    arrays: Sequence[Array | None],
    dims: Sequence[Sequence[int | str] | None] | None = None,
    results: int = 1,
    domain: str = MICROSOFT,
    of_onnx: int = 17,
    **attributes: Any,
) -> onnx.ModelProto:
    """Return the model of one node. dims: of its inputs; scalars are constants."""
    inputs, constants, names = [], [], []
    for i, array in enumerate(arrays):
        if array is None:
            names.append("")
            continue
        names.append(f"x{i}")
        if array.ndim == 0:
            constants.append(onnx.numpy_helper.from_array(array, f"x{i}"))
            continue
        kind = TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)
        shape = array.shape if dims is None or dims[i] is None else dims[i]
        inputs.append(helper.make_tensor_value_info(f"x{i}", kind, shape))
    outputs = [f"y{i}" for i in range(results)]
    node = helper.make_node(op_type, names, outputs, domain=domain, **attributes)
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name=n) for n in outputs], constants)
    imports = [helper.make_opsetid("", of_onnx)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def bare(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def feeds_of(arrays: Sequence[Array | None]) -> dict[str, Array]:
    return {f"x{i}": a for i, a in enumerate(arrays) if a is not None and a.ndim}


def noise(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def codes(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(0, 255, shape).astype(np.uint8)


def zeros(dtype: Any) -> Array:
    return np.zeros((), dtype)


ONE, POINT = np.array(S), np.array(P)
TEXT = np.array([["one two", "three"], ["four", "five six seven"]], dtype=object)

# By operator: operands, the dims that the file says of them, and attributes.
CASES: dict[str, tuple[list[Array | None], list[list[int | str] | None] | None, dict[str, Any]]] = {
    "CDist": ([noise(3, 4), noise(5, 4)], [["m", 4], [5, 4]], {"metric": "euclidean"}),
    "QGemm": ([codes(3, 4), ONE, POINT, codes(4, 5), ONE, POINT, None, ONE, POINT], [["m", 4], *[None] * 8], {}),
    "QGemm ": ([codes(3, 4), ONE, POINT, codes(4, 5), ONE, POINT], None, {}),
    "QLinearAdd": ([codes(3, 1), ONE, POINT, codes(4), ONE, POINT, ONE, POINT], [["m", 1], *[None] * 7], {}),
    "QLinearAveragePool": (
        [codes(1, 2, 6, 6), ONE, POINT, ONE, POINT], [["n", 2, 6, 6], *[None] * 4],
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    "QLinearConcat": ([ONE, POINT, codes(2, 3), ONE, POINT, codes(2, 4), ONE, POINT], None, {"axis": 1}),
    "QLinearConv": (
        [codes(1, 2, 6, 6), ONE, POINT, codes(3, 2, 3, 3), ONE, POINT, ONE, POINT], [["n", 2, 6, 6], *[None] * 7],
        {"pads": [1, 1, 1, 1]},
    ),
    "QLinearConv ": (  # the last axis has the channels, which no rule is for: the runtime is asked
        [codes(1, 6, 6, 2), ONE, POINT, codes(3, 2, 3, 3), ONE, POINT, ONE, POINT], None, {"channels_last": 1},
    ),
    "QLinearGlobalAveragePool": ([codes(1, 2, 6, 6), ONE, POINT, ONE, POINT], [["n", 2, "h", "w"], *[None] * 4], {}),
    "QLinearGlobalAveragePool ": ([codes(1, 6, 6, 2), ONE, POINT, ONE, POINT], None, {"channels_last": 1}),
    "QLinearLeakyRelu": ([codes(2, 3), ONE, POINT, ONE, POINT], None, {"alpha": 0.1}),
    "QLinearMul": ([codes(3, 1), ONE, POINT, codes(4), ONE, POINT, ONE, POINT], None, {}),
    "QLinearSigmoid": ([codes(2, 3), ONE, POINT, ONE, POINT], None, {}),
    "QLinearSoftmax": ([codes(2, 3), ONE, POINT, ONE, POINT], [["n", 3], *[None] * 4], {"axis": -1, "opset": 13}),
    "QLinearWhere": ([noise(2, 3) > 0, codes(2, 3), ONE, POINT, codes(1, 3), ONE, POINT, ONE, POINT], None, {}),
    "Tokenizer": ([TEXT], [["n", "k"]], {"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": [" "]}),
    # Those that follow have no rule: the runtime infers them.
    "GatherND": ([noise(2, 3), np.array([[0, 1], [1, 2]], np.int64)], None, {}),
    "MurmurHash3": ([np.arange(6, dtype=np.int32).reshape(2, 3)], [["n", 3]], {"positive": 1, "seed": 7}),
    "Unique": ([np.array([3, 1, 3, 2], np.float32)], [["n"]], {}),
}  # fmt: skip


def _shape_fits(message: Any, got: Array) -> bool:
    return (
        message.is_ranked
        and len(message) == got.ndim
        and all(d == n for d, n in zip(message, got.shape, strict=True) if d.is_static)
    )


@pytest.mark.parametrize("name", CASES)
def test_operator_of_onnxruntime_is_typed_and_runs_as_there(name: str, tmp_path: Path) -> None:
    arrays, dims, attributes = CASES[name]
    results = 3 if name == "Unique" else 1
    model = model_of(name.strip(), arrays, dims, results, **attributes)
    feeds = feeds_of(arrays)
    wanted = bare(model, feeds)
    graph = Graph.load(model)
    for symbol, array in zip(graph.outputs, wanted, strict=True):
        assert _shape_fits(symbol.type.shape, array), symbol
        assert symbol.dtype.storage.numpy == array.dtype
    for loaded in (gc.InferenceSession().load(graph), _through_file(graph, tmp_path)):
        result = loaded(**feeds)
        got = result if isinstance(result, list) else [result]
        for one, other in zip(got, wanted, strict=True):
            assert one.dtype == other.dtype
            if one.dtype == object:
                assert one.tolist() == other.tolist()
            elif one.dtype == np.uint8:  # docs/custom_ops.md: kernels may be a step off
                assert np.abs(one.astype(int) - other.astype(int)).max() <= 1
            else:
                np.testing.assert_allclose(one, other, rtol=1e-6)


def _through_file(graph: Graph, folder: Path) -> gc.Model:
    graph.export(folder / "again.onnx")
    return gc.InferenceSession().load(folder / "again.onnx")


@pytest.mark.parametrize(
    ("axis", "shape"), [(1, "[n, 1, 3]"), (-1, "[n, 3, 1]"), (None, "[?, ?, ?]"), (7, "[?, ?, ?]")]
)
def test_axis_of_expand_dims_is_where_a_constant_says(axis: int | None, shape: str) -> None:
    # Not run: onnxruntime 1.27.0 ends the process on it.
    value = np.array([0], np.int32) if axis is None else np.array(axis, np.int32)
    graph = Graph.load(model_of("ExpandDims", [noise(2, 3), value], [["n", 3], None]))
    assert str(graph.outputs[0].type) == f"float32{shape}"


def test_every_rule_names_an_operator_that_onnxruntime_has() -> None:
    runtime = installed()
    assert runtime is not None
    unknown = [key for key in RULES if runtime.operator(*key, 1) is None]
    assert [key for key in unknown if key[1] not in recorded()] == []  # those of `recorded` may be newer


def test_rules_stand_for_operators_that_are_not_declared_or_for_forms_that_are_not() -> None:
    twice = {name for domain, name in RULES if domain == MICROSOFT and name in ROWS}
    assert twice == {"MoE", "QLinearAdd", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QMoE"}


def test_rules_give_what_onnxruntime_infers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (arrays, dims, attributes) in CASES.items():
        if (MICROSOFT, name) not in RULES:
            continue
        model = model_of(name, arrays, dims, **attributes)
        by_rule = read_opened(Opened(model, None), runtime=lambda: None).outputs[0].type
        with monkeypatch.context() as patch:
            patch.delitem(RULES, (MICROSOFT, name))
            requested = Graph.load(model).outputs[0].type
        if name == "CDist":  # onnxruntime does not infer it
            assert str(requested) == "float32[...]"
        else:
            assert by_rule == requested, name


def test_dynamic_quantize_lstm_is_typed_without_value_info(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", 2, 3])
    rng = np.random.default_rng(0)
    hidden = 4
    constants: dict[str, Array] = {
        "w": rng.integers(-9, 9, (1, 3, 4 * hidden)).astype(np.int8),
        "r": rng.integers(-9, 9, (1, hidden, 4 * hidden)).astype(np.int8),
        "ws": np.array([0.02], np.float32), "wz": np.zeros(1, np.int8),
        "rs": np.array([0.02], np.float32), "rz": np.zeros(1, np.int8),
    }  # fmt: skip
    names = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    lstm = helper.make_node("DynamicQuantizeLSTM", names, ["s", "h"], domain=MICROSOFT, hidden_size=hidden)
    squeeze = helper.make_node("Squeeze", ["s", "one"], ["y"])
    results = [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()]
    results.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    graph = helper.make_graph(
        [lstm, squeeze], "lstm", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], results
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    read = read_opened(Opened(model, None), runtime=lambda: None)
    assert str(read.outputs[0].type) == "float32[t, 2, 4]"
    read.export(tmp_path / "again.onnx")
    assert {v.name for v in onnx.load(tmp_path / "again.onnx").graph.value_info} == {"s", "h"}
    feed = {"x": noise(5, 2, 3)}
    got = gc.InferenceSession().load(tmp_path / "again.onnx")(**feed)
    np.testing.assert_allclose(got if isinstance(got, np.ndarray) else got[0], bare(model, feed)[0], rtol=1e-6)


def test_blocked_operators_of_an_optimised_file_are_typed_and_run(tmp_path: Path) -> None:
    x = noise(1, 16, 8, 8)
    w = onnx.numpy_helper.from_array(noise(32, 16, 3, 3), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", x.shape), ("y", [1, 32, 1, 1]))]
    graph = helper.make_graph(nodes, "blocked", info[:1], info[1:], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    read = Graph.load(tmp_path / "optimised.onnx")
    if not any(node.domain == BLOCKED for node in read.nodes):
        pytest.skip("onnxruntime blocks no convolutions on this processor")
    assert str(read.outputs[0].type) == "float32[1, 32, 1, 1]"
    assert all(s.type.shape.is_ranked for node in read.nodes for s in node.outputs)
    (got,) = gc.InferenceSession().load(read)(x)
    np.testing.assert_allclose(got, bare(model, {"x": x})[0], rtol=1e-5, atol=1e-5)


# Operators of onnxruntime in ONNX's own domain


@pytest.mark.parametrize("opset", [9, 12, 16])
def test_layer_normalization_that_is_older_than_onnxs_is_read(opset: int) -> None:
    arrays = [noise(2, 3, 8), noise(8), noise(1, 8)[0]]
    model = model_of("LayerNormalization", arrays, [["n", 3, 8], None, None], 1, "", opset, axis=-1, epsilon=1e-4)
    graph = Graph.load(model)
    assert [node.op_type for node in graph.nodes] == ["LayerNormalization"]
    assert str(graph.outputs[0].type) == "float32[n, 3, 8]"
    (got,) = gc.InferenceSession().load(graph)(*arrays)
    np.testing.assert_allclose(got, bare(model, feeds_of(arrays))[0], rtol=1e-5, atol=1e-6)


def test_simplified_layer_normalization_is_read_as_rms_normalization() -> None:
    arrays = [noise(2, 3, 8), noise(8)]
    model = model_of("SimplifiedLayerNormalization", arrays, [["n", 3, 8], None], 1, "", 16, axis=-1, epsilon=1e-4)
    graph = Graph.load(model)
    assert [node.op_type for node in graph.nodes] == ["RMSNormalization"]
    (got,) = gc.InferenceSession().load(graph)(*arrays)
    np.testing.assert_allclose(got, bare(model, feeds_of(arrays))[0], rtol=1e-5, atol=1e-6)
    both = model_of("SimplifiedLayerNormalization", arrays, None, 2, "", 16)
    with pytest.raises(ModelError, match="result 1 is used, but ONNX's RMSNormalization does not have it"):
        Graph.load(both)


def test_stft_without_onesided_has_half_of_the_frequencies() -> None:
    signal = noise(1, 64)
    arrays = [signal, np.array(4), noise(16)]
    model = model_of("STFT", arrays, None, 1, "", 17)
    graph = Graph.load(model)
    (got,) = gc.InferenceSession().load(graph)(signal, arrays[2])
    assert got.shape == (1, 13, 9, 2)
    assert _shape_fits(graph.outputs[0].type.shape, got)


# What files say


def _custom(name: str = "Unheard") -> Graph:
    graph = Graph("g", {"x": TensorType("float32", ["n", 3])})
    (y,) = graph.op(name, [graph["x"]], {}, [TensorType("float32", [3, "n"])], domain="tests.others")
    graph.output(z=y + 1.0)
    return graph


def test_exported_file_says_the_types_of_what_other_domains_give_and_is_read_again(tmp_path: Path) -> None:
    graph = _custom()
    graph.export(tmp_path / "g.onnx", target="onnx")
    (info,) = onnx.load(tmp_path / "g.onnx").graph.value_info
    assert [d.dim_value or d.dim_param for d in info.type.tensor_type.shape.dim] == [3, "n"]
    again = Graph.load(tmp_path / "g.onnx")
    assert str(again.outputs[0].type) == "float32[3, n]"
    again.export(tmp_path / "h.onnx", target="onnx")
    assert len(onnx.load(tmp_path / "h.onnx").graph.value_info) == 1


def test_file_of_onnxs_operators_alone_says_no_types_of_values(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType("float32", ["n", 3])})
    graph.output(y=(graph["x"] * 2.0 + 1.0))
    graph.export(tmp_path / "g.onnx")
    assert not onnx.load(tmp_path / "g.onnx").graph.value_info


def test_bodies_say_the_types_of_what_other_domains_give(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType("float32", [3]), "c": TensorType("bool", [])})

    def then() -> Any:
        (y,) = graph.op("Unheard", [graph["x"]], {}, [TensorType("float32", [3])], domain="tests.others")
        return y * 2.0

    graph.output(y=ops.cond(graph["c"], then, lambda: graph["x"]))
    graph.export(tmp_path / "g.onnx", target="onnx")
    again = Graph.load(tmp_path / "g.onnx")
    assert str(again.outputs[0].type) == "float32[3]"


def test_operator_that_nothing_knows_is_named_with_what_to_do() -> None:
    model = model_of("Unheard", [noise(2, 3)], domain="tests.others")
    model.graph.node.append(helper.make_node("Add", ["y0", "y0"], ["z"]))
    model.graph.output[0].name = "z"
    with pytest.raises(ModelError, match=r"nor the runtime has the result type of tests\.others::Unheard") as caught:
        Graph.load(model)
    assert "custom_op_libraries" in str(caught.value)
    assert "value_info" in str(caught.value)


def test_graph_op_finds_the_types_of_onnxruntimes_own_operators() -> None:
    graph = Graph("g", {"x": TensorType("string", ["n"]), "y": TensorType("float32", ["n"])})
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": [" "]}
    (tokens,) = graph.op("Tokenizer", [graph["x"]], attributes, domain=MICROSOFT)
    assert str(tokens.type) == "string[n, ?]"
    with pytest.raises(GraphError, match="are unknown"):
        graph.op("NoSuchOperator", [graph["y"]], domain=MICROSOFT)


# The check of what is written


@pytest.mark.parametrize("target", ["cpu", "onnx"])
def test_export_refuses_operands_of_two_dtypes_that_are_one_and_names_the_line(target: Any, tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType("float32", [2]), "i": TensorType("int64", [2])})
    (y,) = graph.op("Add", list(graph.inputs), {}, [TensorType("float32", [2])])
    graph.output(y=y)
    with pytest.raises(
        ExportError, match=r"export: Add 'y', made at test_other_domains\.py:\d+: A is float32"
    ) as caught:
        graph.export(tmp_path / "g.onnx", target=target)
    assert "B int64, which must have one dtype" in str(caught.value)
    assert not (tmp_path / "g.onnx").exists()


def test_export_refuses_dtypes_that_the_runtimes_operator_does_not_have(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType("float32", [2])})
    (y,) = graph.op("Tokenizer", [graph["x"]], {"mark": 0}, [TensorType("string", [2, "k"])], domain=MICROSOFT)
    graph.output(y=y)
    with pytest.raises(
        ExportError, match=r"com\.microsoft::Tokenizer 'y', made at .*: X is float32, expected one of string"
    ):
        graph.export(tmp_path / "g.onnx")


def test_mask_index_of_a_float16_bert_stays_int32_and_its_files_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = {"we": (20, 8), "pe": (10, 8), "te": (2, 8), "g": (8,), "b": (8,), "aw": (8, 24), "ab": (24,)}
    results = [onnx.numpy_helper.from_array((rng.normal(size=s) * 0.3).astype(np.float16), n) for n, s in sizes.items()]
    embedded = ["ids", "seg", "we", "pe", "te", "g", "b", "mask"]
    nodes = [
        helper.make_node("EmbedLayerNormalization", embedded, ["e", "index"], domain=MICROSOFT, epsilon=1e-12),
        helper.make_node("Attention", ["e", "aw", "ab", "index"], ["y"], domain=MICROSOFT, num_heads=2),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT32, ["n", "l"]) for n in ("ids", "seg", "mask")]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["n", "l", 8])
    graph = helper.make_graph(nodes, "bert", inputs, [y], results)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    feed = {
        "ids": rng.integers(0, 20, (2, 4)).astype(np.int32),
        "seg": rng.integers(0, 2, (2, 4)).astype(np.int32),
        "mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.int32),
    }
    wanted = bare(model, feed)[0]
    read = Graph.load(model)
    assert [str(s.dtype) for s in read.nodes[0].outputs] == ["float16", "int32"]
    for target in ("cpu", "onnx"):
        path = tmp_path / f"{target}.onnx"
        read.export(path, target=target)
        (got,) = bare(onnx.load(path), feed)
        np.testing.assert_allclose(got.astype(np.float32), wanted.astype(np.float32), atol=4e-3)
        assert str(Graph.load(path).outputs[0].type) == "float16[n, l, 8]"


# Real text pipelines


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2)])
def test_text_pipeline_of_scikit_learn_gives_onnxruntimes_numbers(ngrams: tuple[int, int]) -> None:
    pytest.importorskip("sklearn")
    skl2onnx = pytest.importorskip("skl2onnx")
    text = importlib.import_module("sklearn.feature_extraction.text")
    linear = importlib.import_module("sklearn.linear_model")
    pipelines = importlib.import_module("sklearn.pipeline")
    kinds = importlib.import_module("skl2onnx.common.data_types")

    texts = ["a good film", "a bad film indeed", "good acting and plot", "awful bad thing"]
    pipeline = pipelines.make_pipeline(text.TfidfVectorizer(ngram_range=ngrams), linear.LogisticRegression()).fit(
        texts, [1, 0, 1, 0]
    )
    types = [("text", kinds.StringTensorType([None, 1]))]
    model = skl2onnx.to_onnx(pipeline, initial_types=types, options={"zipmap": False})
    for node in model.graph.node:  # the locale that it has by default is not installed everywhere
        if node.op_type == "StringNormalizer" and all(a.name != "locale" for a in node.attribute):
            node.attribute.append(helper.make_attribute("locale", "C"))
    feed = {"text": np.array([["good plot"], ["bad film"]], dtype=object)}
    got = gc.InferenceSession().load(model)(**feed)
    for one, other in zip(got, bare(model, feed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
