"""Models of more than plain tensors: sequences, optionals, maps, strings, and every dtype."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TypeProto, helper

import graphcore as gc
from graphcore import DType, Graph, Model, TensorType, ops
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, Shape, Type

Array = np.ndarray[Any, Any]
D = DType
PLAIN = [
    D.bool, D.int8, D.int16, D.int32, D.int64, D.uint8, D.uint16, D.uint32, D.uint64, D.float16, D.float32, D.float64,
]  # fmt: skip
NARROW = [
    D.bfloat16, D.float8_e4m3fn, D.float8_e5m2, D.float8_e4m3fnuz, D.float8_e5m2fnuz, D.float8_e8m0, D.int4, D.uint4,
    D.int2, D.uint2,
]  # fmt: skip
FLOAT6 = [D.float6_e2m3fn, D.float6_e3m2fn]
X = np.array([1, -2, 3], np.float32)
Y = np.array([[4, 5], [6, 7]], np.float32)


def tensor(dtype: DType = D.float32, shape: Sequence[int | str | None] | None = None) -> TypeProto:
    return helper.make_tensor_type_proto(dtype.onnx, shape)


def seq(of: TypeProto | None = None) -> TypeProto:
    return helper.make_sequence_type_proto(of or tensor())


def optional(of: TypeProto | None = None) -> TypeProto:
    return helper.make_optional_type_proto(of or tensor())


def proto(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto], inputs: dict[str, TypeProto], outputs: dict[str, TypeProto]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [nodes] if isinstance(nodes, onnx.NodeProto) else nodes,
        "values",
        [helper.make_value_info(name, type_) for name, type_ in inputs.items()],
        [helper.make_value_info(name, type_) for name, type_ in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def load(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto], inputs: dict[str, TypeProto], outputs: dict[str, TypeProto]
) -> Model:
    return gc.InferenceSession().load(proto(nodes, inputs, outputs))


def through(type_: TypeProto) -> Model:
    return load(helper.make_node("Identity", ["x"], ["y"]), {"x": type_}, {"y": type_})


def same(got: Any, wanted: Any) -> bool:
    """Equal in kind, dtype, shape and bits."""
    if isinstance(wanted, (list, tuple)):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(same, got, wanted))
    if wanted is None:
        return got is None
    if wanted.dtype == object:
        return bool(got.dtype == object and got.shape == wanted.shape and got.tolist() == wanted.tolist())
    return bool(got.dtype == wanted.dtype and got.shape == wanted.shape and got.tobytes() == wanted.tobytes())


def samples(dtype: DType) -> Array:
    """[2, 3] of values that every dtype holds but for the sign of signed ones."""
    if dtype is D.string:
        return np.array([["a", "", "ü"], ["\U0001f600", "bc", "d"]], object)
    low = -1 if dtype.is_signed or (dtype.is_float and dtype is not D.float8_e8m0) else 1
    return np.array([[1, 1, low], [low, 1, 1]], np.float32).astype(dtype.numpy)


# Sequences


@pytest.mark.parametrize("dtype", [*PLAIN, D.string], ids=str)
def test_sequence_is_a_list_of_arrays(dtype: DType) -> None:
    model = through(seq(tensor(dtype)))
    assert str(model.inputs["x"]) == str(model.outputs["y"]) == f"seq({dtype}[...])"
    array = samples(dtype)
    for item in ([array, array[0], array[:0], np.asarray(array[0, 2], dtype.numpy)], [], [array]):
        assert same(model(item)[0], item)
        assert same(model(x=tuple(item))[0], item)


def test_elements_are_made_right_when_only_their_memory_is_unusual() -> None:
    model = through(seq())
    assert same(model([Y.T, Y.astype(">f4"), Y[::-1], np.float32(3)])[0], [Y.T, Y, Y[::-1], np.float32(3)])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_sequence_operators_run_on_lists(count: int) -> None:
    nodes = [
        helper.make_node("SequenceInsert", ["x", "last"], ["y"]),
        helper.make_node("SequenceLength", ["y"], ["length"]),
        helper.make_node("ConcatFromSequence", ["y"], ["joined"], axis=0),
    ]
    kinds = {"y": seq(), "length": tensor(D.int64, []), "joined": tensor()}
    model = load(nodes, {"x": seq(), "last": tensor()}, kinds)
    elements = [np.full(i + 1, i, np.float32) for i in range(count)]
    y, length, joined = model(elements, X)
    assert same(y, [*elements, X])
    assert same(length, np.array(count + 1))
    assert same(joined, np.concatenate([*elements, X]))


def test_sequences_are_made_of_tensors_and_taken_apart() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["a"], ["cut"], axis=1),
        helper.make_node("SequenceConstruct", ["a", "b"], ["pair"]),
        helper.make_node("SequenceAt", ["pair", "i"], ["taken"]),
    ]
    inputs = {"a": tensor(shape=["n", "m"]), "b": tensor(shape=["k"]), "i": tensor(D.int64, [])}
    model = load(nodes, inputs, {"cut": seq(), "pair": seq(), "taken": tensor()})
    cut, pair, taken = model(Y, X, np.array(-1))
    assert same(cut, [Y[:, :1], Y[:, 1:]])
    assert same(pair, [Y, X])
    assert same(taken, X)


def test_loop_goes_over_a_sequence() -> None:
    body = helper.make_graph(
        [
            helper.make_node("SequenceAt", ["x", "i"], ["item"]),
            helper.make_node("Add", ["item", "item"], ["twice"]),
            helper.make_node("SequenceInsert", ["before", "twice"], ["after"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [
            helper.make_value_info("i", tensor(D.int64, [])),
            helper.make_value_info("go", tensor(D.bool, [])),
            helper.make_value_info("before", seq()),
        ],
        [helper.make_value_info("on", tensor(D.bool, [])), helper.make_value_info("after", seq())],
    )
    nodes = [
        helper.make_node("SequenceLength", ["x"], ["count"]),
        helper.make_node("SequenceEmpty", [], ["none"], dtype=D.float32.onnx),
        helper.make_node("Loop", ["count", "", "none"], ["y"], body=body),
    ]
    model = load(nodes, {"x": seq()}, {"y": seq()})
    assert same(model([X, Y, X[:0]])[0], [X + X, Y + Y, X[:0]])
    assert same(model([])[0], [])


# Optionals


@pytest.mark.parametrize("dtype", [*PLAIN, D.string], ids=str)
def test_optional_is_none_or_an_array(dtype: DType) -> None:
    model = through(optional(tensor(dtype)))
    assert str(model.inputs["x"]) == f"optional({dtype}[...])"
    assert same(model(samples(dtype)), [samples(dtype)])
    assert model(None) == model(x=None) == model() == [None]


@pytest.mark.parametrize("value", [[X, Y], [], None], ids=["two", "empty", "absent"])
def test_optional_sequence_is_none_or_a_list(value: Any) -> None:
    assert same(through(optional(seq()))(value)[0], value)


@pytest.mark.parametrize("value", [X, None], ids=["present", "absent"])
def test_optional_operators_run(value: Any) -> None:
    has = load(helper.make_node("OptionalHasElement", ["x"], ["y"]), {"x": optional()}, {"y": tensor(D.bool, [])})
    assert same(has(value)[0], np.array(value is not None))
    got = load(helper.make_node("OptionalGetElement", ["x"], ["y"]), {"x": optional()}, {"y": tensor()})
    if value is not None:
        assert same(got(value)[0], value)
        return
    with pytest.raises(RunError, match=r"which contains no data(.|\n)*    input x +None"):
        got(value)


def test_optional_may_be_left_out_before_other_inputs() -> None:
    nodes = [helper.make_node("OptionalHasElement", ["x"], ["has"]), helper.make_node("Neg", ["z"], ["y"])]
    model = load(nodes, {"x": optional(), "z": tensor()}, {"has": tensor(D.bool, []), "y": tensor()})
    assert same(model(z=X)[1], -X)
    assert [bool(model(z=X)[0]), bool(model(X, X)[0]), bool(model(None, X)[0])] == [False, True, False]
    with pytest.raises(FeedError, match="values: no array is given for z\n"):
        model(X)


# What is refused before the runtime sees it


@pytest.fixture(scope="module")
def fed() -> Model:
    types: dict[str, Type] = {
        "s": SequenceType(TensorType(D.float32, ["n", 2])),
        "o": OptionalType(TensorType(D.int64, ["n"])),
        "t": SequenceType(TensorType(D.string, Shape.unknown())),
        "q": OptionalType(SequenceType(TensorType(D.bool, ["n * 2"]))),
    }
    graph = Graph("fed", types)
    graph.output(
        *(graph.op("Identity", [symbol], out_types=[symbol.type])[0] for symbol in graph.inputs),
    )
    return gc.InferenceSession().load(graph)


GIVEN: dict[str, Any] = {"s": [Y, Y], "o": np.array([1, 2]), "t": [np.array("a", object)], "q": [np.ones(4, bool)]}


def test_all_kinds_are_taken_at_once(fed: Model) -> None:
    assert same(fed(*GIVEN.values()), [*GIVEN.values()])
    assert same(fed(GIVEN["s"], None, [], None), [GIVEN["s"], None, [], None])
    assert same(fed(s=[], t=GIVEN["t"]), [[], None, GIVEN["t"], None])


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            {"s": Y},
            r"input 's' must be a list, got ndarray\n    takes  seq\(float32\[n, 2\]\)\n    given  float32\[2, 2\]",
        ),
        ({"s": None}, "input 's' must be a list, got NoneType"),
        ({"s": {0: Y}}, "input 's' must be a list, got dict"),
        ({"s": "ab"}, "input 's' must be a list, got str"),
        ({"s": [Y, None]}, "element 1 of input 's' must be an array, got NoneType"),
        ({"s": [Y, Y.astype(np.float64)]}, r"element 1 of input 's' must be float32, got float64\[2, 2\]"),
        ({"s": [Y, X]}, r"element 1 of input 's' must have rank 2, got float32\[3\]"),
        ({"s": [Y, Y[:, :1]]}, r"axis 1 of element 1 of input 's' must be 2, got float32\[2, 1\]"),
        ({"o": [np.array([1, 2])]}, r"input 'o' must have rank 1, got int64\[1, 2\]"),
        ({"o": np.array([1, 2], np.int32)}, r"input 'o' must be int64, got int32\[2\]"),
        ({"t": [np.array([None])]}, "element 0 of input 't' is string, but has the element None of type NoneType"),
        ({"t": None}, "input 't' must be a list, got NoneType"),
        ({"q": np.ones(4, bool)}, "input 'q' must be a list, got ndarray"),
        ({"q": [None]}, "element 0 of input 'q' must be an array, got NoneType"),
        ({"z": Y}, r"there is no input 'z'\n  help: the inputs: s seq\(float32\[n, 2\]\), o optional\(int64\[n\]\), "),
    ],
)
def test_feed_is_refused_when_wrong(fed: Model, named: dict[str, Any], message: str) -> None:
    with pytest.raises(FeedError, match="fed: " + message):
        fed(**(GIVEN | named))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("of", [SequenceType, OptionalType])
def test_lists_of_dtypes_that_the_runtime_has_no_lists_of_are_refused_when_loaded(of: Any, dtype: DType) -> None:
    graph = Graph("narrow", {"s": of(TensorType(dtype, ["n"])), "x": TensorType(D.float32, [])})
    graph.output(graph["x"] + 1)
    kind = "sequences" if of is SequenceType else "optionals"
    with pytest.raises(ModelError, match=rf"load: narrow: s is .*{dtype}\[n\]\), but onnxruntime has no {kind} of"):
        gc.InferenceSession().load(graph)


# Dtypes


@pytest.mark.parametrize("shape", [[2, 3], ["n", "m"], None], ids=["static", "dynamic", "unknown rank"])
@pytest.mark.parametrize("dtype", [*PLAIN, *NARROW, D.float4_e2m1, *FLOAT6, D.string], ids=str)
def test_model_of_any_dtype_gives_what_it_is_fed(dtype: DType, shape: Any) -> None:
    model = load([], {"x": tensor(dtype, shape)}, {"x": tensor(dtype, shape)})
    assert model.inputs["x"] == TensorType(dtype, Shape.unknown() if shape is None else shape)
    got = [model(samples(dtype))[0] for _ in range(3)]
    assert all(same(array, samples(dtype)) for array in got)


@pytest.mark.parametrize("beside", ["string", "sequence", "optional", "list out"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_outputs_come_beside_any_value(dtype: DType, beside: str) -> None:
    text, number = TensorType(D.string, ["k"]), TensorType(D.float32, ["k"])
    kinds: dict[str, Type] = {"string": text, "sequence": SequenceType(number), "optional": OptionalType(number)}
    graph = Graph("beside", {"x": TensorType(dtype, ["n", "m"]), "s": kinds.get(beside, number)})
    other = graph["s"]
    if beside == "list out":
        (other,) = graph.op("SequenceConstruct", [other], out_types=[SequenceType(number)])
    graph.output(first=graph["x"], other=other, again=graph["x"])
    model = gc.InferenceSession().load(graph)
    assert model.outputs == graph.output_types
    array = samples(dtype)
    value = {"string": np.array(["a", "b"], object), "sequence": [X, X], "optional": None, "list out": X}[beside]
    first, got, again = model(array, value)
    assert same([first, again], [array, array])
    assert same(got, [X] if beside == "list out" else value)


def test_every_bfloat16_comes_back_beside_strings() -> None:
    graph = Graph("all", {"x": TensorType(D.bfloat16, ["n"]), "s": TensorType(D.string, [])})
    graph.output(graph["x"], graph["s"])
    bits = np.arange(1 << 16, dtype=np.uint16)
    got, _ = gc.InferenceSession().load(graph)(bits.view(ml_dtypes.bfloat16), np.array("a"))
    assert np.array_equal(got.view(np.uint16), bits)


@pytest.mark.parametrize("where", ["tensor", "again", "sequence", "optional", "weight", "large weight", "constant"])
def test_bools_are_0_and_1_when_their_bytes_are_others(where: str) -> None:
    odd = np.array([0, 1, 2, 255] * (500 if where == "large weight" else 1), np.uint8).view(bool)
    if where in ("weight", "large weight", "constant"):
        graph = Graph("odd", {"i": TensorType(D.int64, ["n"])})
        value = graph.constant(odd) if where == "constant" else graph.weight("w", odd)
        graph.output(ops.gather(value, graph["i"]))
        (got,) = gc.InferenceSession().load(graph)(np.arange(4))
    elif where == "sequence":
        (got,) = through(seq(tensor(D.bool)))([odd])[0]
    elif where == "optional":
        (got,) = through(optional(tensor(D.bool)))(odd)
    else:
        cast = helper.make_node("Cast", ["x"], ["y"], to=D.uint8.onnx)
        model = load(cast, {"x": tensor(D.bool)}, {"y": tensor(D.uint8)})
        if where == "again":
            model(np.zeros(4, bool))
        (got,) = model(odd)
    assert got.view(np.uint8).tolist() == [0, 1, 1, 1]


# Types that graphcore only hands on


def test_maps_come_as_the_runtime_gives_them() -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(D.string.onnx, tensor(shape=[])))
    model = load(node, {"x": tensor(shape=["n", 2])}, {"y": maps})
    assert isinstance(model.outputs["y"], SequenceType)
    assert isinstance(model.outputs["y"].element, OpaqueType)
    assert model(Y) == [[{"a": 4, "b": 5}, {"a": 6, "b": 7}]]


def test_maps_go_in_as_the_runtime_takes_them() -> None:
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["b", "a"])
    model = load(node, {"x": helper.make_map_type_proto(D.string.onnx, tensor(shape=[]))}, {"y": tensor()})
    assert isinstance(model.inputs["x"], OpaqueType)
    assert model({"a": 1.0, "b": 2.0})[0].tolist() == [[2, 1]]
    for wrong in (None, X, [X], 3, {}, {"a": "b"}):
        with pytest.raises(RunError, match="values: onnxruntime failed"):
            model(wrong)


# Around calls


def test_error_of_the_runtime_shows_lists() -> None:
    node = helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)
    model = load(node, {"x": seq()}, {"y": tensor()})
    with pytest.raises(
        RunError, match=r"\n    input x +\[float32\[3\], float32\[2, 2\], float32\[3\], float32\[3\], and 2 more\]"
    ):
        model([X, Y, X, X, X, X])


def test_lists_are_timed_and_profiled() -> None:
    nodes = [helper.make_node("ConcatFromSequence", ["x"], ["all"], axis=0), helper.make_node("Neg", ["all"], ["y"])]
    model = load(nodes, {"x": seq(), "o": optional()}, {"y": tensor()})
    assert model.benchmark([X, X], None, runs=2)["best"] > 0
    assert set(model.profile([X, X], runs=2).by_operator()) == {"ConcatFromSequence", "Neg"}
    graph = Graph("narrow", {"x": TensorType(D.bfloat16, ["n"]), "s": TensorType(D.string, ["n"])})
    graph.output(graph["x"], graph["s"])
    profile = gc.InferenceSession().load(graph).profile(X.astype(ml_dtypes.bfloat16), np.array(["a", "b", "c"]), runs=2)
    assert "BitCast" in profile.by_operator()


def compiled(model: onnx.ModelProto, folder: Path) -> Path:
    """The model in onnxruntime's own format."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return folder / "model.ort"


@pytest.mark.parametrize(
    ("type_", "described", "value"),
    [
        (tensor(), "float32[...]", Y),
        (tensor(shape=[]), "float32[...]", X[0]),
        (tensor(shape=["n", 2]), "float32[n, 2]", Y),
        (tensor(D.bfloat16, ["n"]), "bfloat16[n]", X.astype(ml_dtypes.bfloat16)),
        (tensor(D.float8_e5m2fnuz, ["n"]), "float8_e5m2fnuz[n]", X.astype(ml_dtypes.float8_e5m2fnuz)),
        (seq(tensor(D.int64)), "seq(int64[...])", [np.arange(3)]),
    ],
)
def test_compiled_model_takes_and_gives_any_value(type_: TypeProto, described: str, value: Any, tmp_path: Path) -> None:
    result = proto(helper.make_node("Identity", ["x"], ["y"]), {"x": type_}, {"y": type_})
    model = gc.InferenceSession().load(compiled(result, tmp_path))
    assert [str(t) for t in (*model.inputs.values(), *model.outputs.values())] == [described, described]
    assert same(model(value)[0], np.asarray(value) if isinstance(value, np.generic) else value)


def test_compiled_model_is_refused_when_its_outputs_cannot_be_read(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["s"], ["t"])]
    kinds = tensor(D.bfloat16), tensor(D.string)
    result = proto(nodes, dict(zip("xs", kinds, strict=True)), dict(zip("yt", kinds, strict=True)))
    with pytest.raises(
        ModelError, match=r"gives no bfloat16, float8 or 4-bit outputs beside strings or lists\n    x  "
    ):
        gc.InferenceSession().load(compiled(result, tmp_path))
