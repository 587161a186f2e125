"""The choice of a promotion system: names, options, metadata of models, and dtypes that are only a default."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType as D
from graphcore import Graph, PromotionSystem, Symbol, TensorType, ops
from graphcore.errors import DTypeError, GraphError, PromotionError
from graphcore.promotion import NAMES, LatticeSystem, explain, system

OPTIONS = [
    *((name, {}) for name in NAMES),
    ("array_api", {"profile": "seed"}),
    ("allo_hls", {"revision": "latest"}),
    ("allo_hls", {"fast_math": True, "revision": "latest"}),
    ("allo_cpp", {"revision": "latest"}),
    ("jax", {"x64": False}),
    ("jax", {"dtype_promotion": "strict", "x64": False}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_system_is_one_object_when_asked_for_twice(name: str, options: dict[str, object]) -> None:
    assert system(name, **options) is system(name, **options)
    assert system(name, **options).name == name
    assert dict(system(name, **options).options) == options


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_system_survives_pickling_copying_and_a_file(name: str, options: dict[str, object]) -> None:
    chosen = system(name, **options)
    graph = Graph("kept", {"x": TensorType(D.float32, ["n"])}, promotion=chosen)
    graph.output(graph["x"])
    assert pickle.loads(pickle.dumps(chosen)) is chosen
    assert pickle.loads(pickle.dumps(graph)).promotion is chosen
    assert copy.deepcopy(graph).promotion is chosen
    assert graph.copy().promotion is chosen
    assert Graph.load(graph.to_onnx(target="onnx")).promotion is chosen
    assert Graph.load(graph.to_onnx(target="cpu")).promotion is chosen
    assert Graph.load(graph.to_onnx(), promotion="max").promotion is system("max")


@pytest.mark.parametrize("name", NAMES)
def test_system_names_its_graph_when_lowering_makes_another(name: str) -> None:
    graph = Graph("half", {"x": TensorType(D.float32, ["n"])}, promotion=name)
    graph.output(ops.is_finite(graph["x"]))
    assert Graph.load(graph.to_onnx()).promotion is system(name)


@pytest.mark.parametrize("note", ["", "none", "max {", 'array_api {"profile": "1999"}', 'max {"a": 1}', "anvil []"])
def test_model_with_a_note_that_says_nothing_is_read_with_the_default_system(note: str) -> None:
    graph = Graph("noted", {"x": TensorType(D.float32, ["n"])})
    graph.output(graph["x"])
    model = graph.to_onnx()
    next(p for p in model.metadata_props if p.key.startswith("graphcore.promotion")).value = note
    assert Graph.load(model).promotion is system("max")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("tensorflow", {}, "no promotion system is called 'tensorflow'"),
        ("MAX", {}, "no promotion system is called 'MAX'"),
        ("max", {"revision": "latest"}, "max: unknown option revision='latest'"),
        ("anvil", {"profile": "seed"}, "anvil: unknown option"),
        ("array_api", {"profile": "2031.12"}, "no profile '2031.12'"),
        ("array_api", {"profile": ["seed"]}, "array_api: unknown option"),
        ("allo_cpp", {"revision": "old"}, "no revision 'old'"),
        ("jax", {"dtype_promotion": "loose"}, "dtype_promotion='loose'"),
        ("jax", {"x64": "off"}, "x64='off'"),
        ("allo_cpp", {"fast_math": True}, "allo_cpp: unknown option"),
        ("allo_hls", {"fast_math": "yes"}, "fast_math must be True or False, got 'yes'"),
    ],
)
def test_system_raises_when_there_is_no_such_name_or_option(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(PromotionError, match=words):
        system(name, **options)
    if not options:
        with pytest.raises(PromotionError, match=words):
            Graph("g", promotion=name)
        with pytest.raises(PromotionError, match=words):
            gc.implicit_cast_type("int8", "int8", name)
        with pytest.raises(PromotionError, match=words):
            gc.jit(lambda x: x, promotion=name)


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("max")])
@pytest.mark.parametrize("dtype", [D.tensor_float32, D.string, D.address])
def test_system_refuses_dtypes_that_it_does_not_know(name: str, dtype: D) -> None:
    graph = Graph("g", {"x": TensorType(dtype, ["n"]), "y": TensorType(D.float32, ["n"])}, promotion=name)
    x, y = graph.inputs
    builds: list[Callable[[], Symbol]] = [
        lambda: x + y, lambda: y * x, lambda: x < y, lambda: ops.concat([x, y]),
    ]  # fmt: skip
    for build in builds:
        with pytest.raises((PromotionError, DTypeError)) as raised:
            build()
        assert str(dtype) in str(raised.value)
    with pytest.raises((PromotionError, DTypeError)):
        gc.implicit_cast_type(dtype, "float32", name)


def test_symbols_of_two_systems_do_not_mix_and_the_error_names_both() -> None:
    x = Graph("left", {"x": TensorType(D.int8, ["n"])}, promotion="anvil")["x"]
    y = Graph("right", {"y": TensorType(D.int8, ["n"])}, promotion=system("array_api", profile="seed"))["y"]
    with pytest.raises(GraphError, match=r"'right' \(array_api\(profile='seed'\)\), not to 'left' \(anvil\)"):
        _ = x + y
    with pytest.raises(GraphError, match="never mix"):
        gc.implicit_cast(x, y)


def test_graph_takes_a_system_of_ones_own() -> None:
    class Widest(PromotionSystem):
        name = "widest"
        dtypes = frozenset({D.int8, D.int16, D.int32})

        def common(self, lhs: D, rhs: D) -> D:
            return lhs if lhs.bits > rhs.bits else rhs

    own = Widest()
    graph = Graph("g", {"x": TensorType(D.int8, ["n"]), "y": TensorType(D.int32, ["n"])}, promotion=own)
    assert (graph["x"] + graph["y"]).dtype is D.int32
    lattice = LatticeSystem("pair", {D.int8: [D.int16], D.uint8: [D.int16]})
    assert gc.implicit_cast_type(D.int8, D.uint8, lattice) is D.int16


# Ambiguous types


def test_ambiguous_type_prints_a_question_mark_and_is_its_own_object() -> None:
    guessed, expected = TensorType(D.int32, ["n", 2], ambiguous=True), TensorType(D.int32, ["n", 2])
    assert str(guessed) == "int32?[n, 2]"
    assert repr(guessed) == "TensorType(DType.int32, ['n', 2], ambiguous=True)"
    assert guessed is not expected
    assert guessed is TensorType(D.int32, ["n", 2], ambiguous=True)
    assert pickle.loads(pickle.dumps(guessed)) is guessed
    assert guessed.cast(D.int32) is expected


def test_ambiguous_output_is_of_its_dtype_when_the_graph_is_done() -> None:
    graph = Graph("g", {"x": TensorType(D.int32, [2], ambiguous=True)}, promotion="anvil")
    (x,) = graph.inputs
    y = x + 1
    graph.output(y=y)
    assert str(y.type) == "int32?[2]"
    assert graph.output_types == {"y": TensorType(D.int32, [2])}
    model = gc.InferenceSession().load(graph)
    assert str(model.outputs["y"]) == "int32[2]"
    np.testing.assert_array_equal(model(np.array([1, 2], np.int32))[0], [2, 3])


@pytest.mark.parametrize("name", [n for n in NAMES if not system(n).knows_ambiguous])
def test_constant_is_never_ambiguous_in_systems_that_know_no_such(name: str) -> None:
    with pytest.raises(GraphError, match="has no ambiguous dtypes"):
        Graph("g", promotion=name).constant(1, ambiguous=True)


def test_explain_takes_the_dtypes_of_symbols_and_tensors() -> None:
    x, i = Graph("g", {"x": TensorType("float16", [2]), "i": TensorType("int32", [2])}).inputs
    assert explain(x, i) == explain("float16", "int32")
    assert explain(gc.tensor([1], "int8"), "uint8") == explain("int8", "uint8")
    literal = gc.tensor(1, "int32", promotion="anvil", ambiguous=True)
    assert explain(literal, "int8", "anvil") == explain("int32?", "int8", "anvil")
