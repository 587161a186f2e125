"""Third-party models with nodes that are lowered alone and put into the file: the results of their Graph."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import Graph, InferenceSession
from graphcore.errors import ModelError
from graphcore.onnx.proto import opened
from graphcore.runtime.lowering.pipeline import lower
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.sessions.direct import patches
from graphcore.runtime.sessions.direct.operators import LOWERED_ALONE
from graphcore.runtime.sessions.direct.start import Opened, plan_direct
from tests.runtime.test_direct import F32, I64, at_opset, is_direct, lowered, model, same, spoilt
from tests.support.backend import collected

Array = np.ndarray[Any, Any]
node = helper.make_node


@pytest.fixture(autouse=True)
def own_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode small models without onnx, as a new process does."""
    monkeypatch.setattr(opened, "is_imported", lambda: False)


def weights(gates: int) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 2 * gates, 3), "r": (1, 2 * gates, 2)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def steps(op_type: str, outputs: Sequence[str], **attributes: Any) -> list[onnx.NodeProto]:
    """Return a recurrent node after a Slice that may leave no steps."""
    return [
        node("Slice", ["x", "zero", "k"], ["s"]),
        node(op_type, ["s", "w", "r"], outputs, hidden_size=2, **attributes),
    ]


CUT: Mapping[str, tuple[int, Sequence[int | str | None]]] = {"x": (F32, ["t", "n", 3]), "k": (I64, [1])}
"""The inputs of `steps`."""


def recurrent(op_type: str, gates: int, outputs: Sequence[str] = ("y",), opset: int = 17) -> onnx.ModelProto:
    constants = {**weights(gates), "zero": np.array([0])}
    return model(steps(op_type, outputs), CUT, [name for name in outputs if name], constants, opset)


def body(nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]) -> onnx.GraphProto:
    first, last = ([helper.make_tensor_value_info(name, F32, None) for name in names] for names in (inputs, outputs))
    return helper.make_graph(list(nodes), "body", first, last)


def scan() -> onnx.ModelProto:
    """Return a Scan whose body reads a value of the model, with the names of values of the model's other nodes."""
    inner = body([node("Add", ["s", "e"], ["a"]), node("Mul", ["a", "v"], ["b"])], ["s", "e"], ["a", "b"])
    nodes = [
        node("Tanh", ["x"], ["v"]),
        node("Scan", ["v", "z"], ["end", "all"], body=inner, num_scan_inputs=1),
        node("Neg", ["all"], ["y"]),
    ]
    return model(nodes, {"x": (F32, [3]), "z": (F32, ["t", 3])}, ["y", "end"])


def loop() -> onnx.ModelProto:
    inner = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Mul", ["s", "f"], ["out"])],
        "body",
        [helper.make_tensor_value_info(n, t, []) for n, t in (("i", I64), ("go", TensorProto.BOOL))]
        + [helper.make_tensor_value_info("s", F32, None)],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("out", F32, None)],
    )
    nodes = [node("Exp", ["x"], ["f"]), node("Loop", ["k", "", "x"], ["y"], body=inner)]
    return model(nodes, {"x": (F32, ["n"]), "k": (I64, [])})


def branches() -> onnx.ModelProto:
    """Return an If with a recurrent node in both bodies, whose values have the same names."""
    bodies = {
        key: helper.make_graph(
            [*steps("GRU", ["", "h"], direction=direction), node("Relu", ["h"], ["o"])],
            key,
            [],
            [helper.make_tensor_value_info("o", F32, None)],
        )
        for key, direction in (("then_branch", "forward"), ("else_branch", "reverse"))
    }
    inputs = {**CUT, "b": (TensorProto.BOOL, [])}
    nodes = [node("If", ["b"], ["i"], **bodies), node("Neg", ["i"], ["y"])]
    return model(nodes, inputs, constants={**weights(3), "zero": np.array([0])}, opset=15)


def spectrum() -> onnx.ModelProto:
    constants = {"step": np.array(8), "window": np.hanning(16).astype(np.float32), "length": np.array(16)}
    nodes = [node("STFT", ["x", "step", "window", "length"], ["s"]), node("ReduceMean", ["s"], ["y"], axes=[1])]
    return model(nodes, {"x": (F32, ["n", 64])}, constants=constants)


def transform() -> onnx.ModelProto:
    """Return a DFT, whose newer version has the axis as an operand, and a mean, whose newer version has its axes so."""
    nodes = [
        node("Unsqueeze", ["x", "last"], ["u"]),
        node("DFT", ["u"], ["d"], axis=1),
        node("ReduceMean", ["d"], ["y"], axes=[1], keepdims=0),
    ]
    return model(nodes, {"x": (F32, ["n", 6])}, constants={"last": np.array([2])})


X = np.random.default_rng(2).standard_normal((4, 2, 3)).astype(np.float32)
SLICES = tuple({"x": X[:, :n], "k": np.array([k])} for n, k in ((2, 3), (2, 0), (1, 4)))

MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], Sequence[Mapping[str, Any]]]] = {
    "a GRU that may have no steps": (lambda: recurrent("GRU", 3), SLICES),
    "an LSTM at opset 11": (lambda: recurrent("LSTM", 4, opset=11), SLICES),
    "an LSTM without its first result": (lambda: recurrent("LSTM", 4, ["", "h", "c"]), SLICES),
    "an LSTM without its second result": (lambda: recurrent("LSTM", 4, ["y", "", "c"]), SLICES),
    "an RNN": (lambda: recurrent("RNN", 1), SLICES),
    "bodies": (branches, [feed | {"b": np.array(b)} for feed in SLICES for b in (True, False)]),
    "a Scan": (scan, [{"x": X[0, 0], "z": X[:, 0]}]),
    "a Loop": (loop, [{"x": X[0, 0], "k": np.array(k)} for k in (0, 1, 3)]),
    "a spectrum": (spectrum, [{"x": np.random.default_rng(3).standard_normal((2, 64)).astype(np.float32)}]),
    "a transform": (transform, [{"x": X.reshape(4, 6)}]),
    "normalized instances": (
        lambda: model(
            [node("Relu", ["x"], ["a"]), node("InstanceNormalization", ["a", "s", "b"], ["y"])],
            {"x": (F32, ["n", 2, None])},
            constants={"s": np.array([1.5, -2], np.float32), "b": np.array([0, 1], np.float32)},
        ),
        [{"x": X}],
    ),
}


@pytest.mark.parametrize("what", MODELS)
@pytest.mark.parametrize("source", ["message", "bytes", "file"])
def test_patched_model_gives_the_bits_of_the_graph(what: str, source: str, tmp_path: Path) -> None:
    build, feeds = MODELS[what]
    proto = build()
    onnx.save(proto, tmp_path / "model.onnx")
    sources = {"message": proto, "bytes": proto.SerializeToString(), "file": tmp_path / "model.onnx"}
    direct, whole = InferenceSession().load(sources[source]), lowered(proto)
    assert is_direct(direct)
    assert direct._source is None
    assert direct.outputs.keys() == whole.outputs.keys()
    for feed in feeds:
        assert same(direct(feed), whole(feed))


def test_patched_models_keep_every_other_byte() -> None:
    proto = branches()
    proto.doc_string, proto.producer_name = "notes", "a writer"
    proto.graph.value_info.append(helper.make_tensor_value_info("i", F32, None))
    content = proto.SerializeToString()
    plan = plan_direct(Opened(content, None), "auto", lowering=(None, "all"))
    assert not isinstance(plan, str)
    assert plan.splice is not None
    patched = onnx.ModelProto.FromString(plan.splice.content(memoryview(content)))
    onnx.shape_inference.infer_shapes(patched, check_type=True, strict_mode=True)
    for place in range(2):
        old, new = (each.graph.node[0].attribute[place].g for each in (proto, patched))
        assert new.node[0] == old.node[0]
        assert new.node[-1] == old.node[-1]
        del old.node[:], new.node[:]
    patched.opset_import[0].version = 15
    assert patched == proto


def test_names_of_patches_are_new() -> None:
    proto = recurrent("GRU", 3)
    proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = "patch0/gru_1"
    proto.graph.node.append(node("Identity", ["patch0/gru_1"], ["patch_0/gru_1"]))
    direct, whole = InferenceSession().load(proto), lowered(proto)
    assert is_direct(direct)
    assert all(same(direct(feed), whole(feed)) for feed in SLICES)


def test_equal_nodes_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a{i}" for i in range(9)]
    nodes = [node("Neg", ["x"], ["a0"])]
    pairs = itertools.pairwise(names)
    nodes += [node("InstanceNormalization", [x, "s", "b"], [y], epsilon=1e-3) for x, y in pairs]
    constants = {"s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
    proto = model(nodes, {"x": (F32, ["n", 2, 3])}, ["a8"], constants)
    counts: list[Graph] = []

    def counted(graph: Graph, *args: Any, **options: Any) -> Graph:
        counts.append(graph)
        return lower(graph, *args, **options)

    monkeypatch.setattr(patches, "lower", counted)
    direct = InferenceSession().load(proto)
    assert is_direct(direct)
    assert len(counts) <= 1  # none if an earlier model had such a node
    assert same(direct(X), lowered(proto)(X))


def _with_function() -> onnx.ModelProto:
    proto = recurrent("GRU", 3)
    function = helper.make_function("own", "Same", ["x"], ["y"], [node("Identity", ["x"], ["y"])], proto.opset_import)
    proto.functions.append(function)
    return proto


def _with_casts() -> onnx.ModelProto:
    """Return a Loop beside Casts, which optimisers join with those of a lowered node."""
    nodes = [
        node("Cast", ["x"], ["a"], to=F32), *steps("GRU", ["g"]), node("Softmax", ["g"], ["p"], axis=-1),
    ]  # fmt: skip
    nodes[1].input[0] = "a"
    constants = {**weights(3), "zero": np.array([0])}
    return model(nodes, {"x": (I64, ["t", "n", 3]), "k": (I64, [1])}, ["p"], constants, opset=11)


LEFT: dict[str, Callable[[], onnx.ModelProto]] = {
    "functions": _with_function,
    "a Softmax that changes on the way to the opset": _with_casts,
    "more different nodes than pay": lambda: model(
        [node("InstanceNormalization", ["x", "s", "b"], [f"y{i}"], epsilon=0.1 * (i + 1)) for i in range(8)],
        {"x": (F32, ["n", 2, 3])},
        [f"y{i}" for i in range(8)],
        {"s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)},
    ),
    "a recurrent node of another domain": lambda: model(
        [node("GRU", ["x", "w", "r"], ["y"], domain="other")], {"x": (F32, ["t", "n", 3])}, constants=weights(3)
    ),
}


@pytest.mark.parametrize("what", LEFT)
def test_model_is_left_to_a_graph_when_it_has(what: str) -> None:
    assert isinstance(plan_direct(Opened(LEFT[what]().SerializeToString(), None), "auto", lowering=(None, "all")), str)


def test_external_data_are_read_by_the_graph(tmp_path: Path) -> None:
    proto = recurrent("GRU", 3)
    path = tmp_path / "model.onnx"
    onnx.save(recurrent("GRU", 3), path, save_as_external_data=True, size_threshold=0, location="data")
    loaded = InferenceSession().load(path)
    assert not is_direct(loaded)
    assert all(same(loaded(feed), lowered(proto)(feed)) for feed in SLICES)


def test_graph_in_two_parts_is_read_whole() -> None:
    """Protobuf joins two messages of one field, so that the second part has the later nodes."""
    proto = recurrent("GRU", 3)
    first, second = onnx.ModelProto(), onnx.ModelProto()
    first.CopyFrom(proto)
    del first.graph.node[1:]
    second.graph.node.append(proto.graph.node[1])
    content = first.SerializeToString() + second.SerializeToString()
    loaded = InferenceSession().load(content)
    assert all(same(loaded(feed), lowered(proto)(feed)) for feed in SLICES)


@pytest.mark.parametrize("limits", [gc.Limits(nodes=50), gc.Limits(strict=["*"])], ids=["nodes", "strict"])
def test_limits_hold_for_patched_models(limits: gc.Limits) -> None:
    proto = recurrent("GRU", 3)
    loaded = InferenceSession().load(proto, limits=limits)
    assert all(same(loaded(feed), lowered(proto)(feed)) for feed in SLICES)


def test_options_of_the_session_count_for_lowered_nodes() -> None:
    proto = spectrum()
    feed = MODELS["a spectrum"][1][0]
    sessions = InferenceSession(optimize="off"), InferenceSession(precision="exact"), InferenceSession(precision="fast")
    for session in sessions:
        assert same(session.load(proto)(feed), session.load(Graph.load(proto))(feed)), session


def test_patched_model_is_looked_into_as_its_graph() -> None:
    loaded = InferenceSession().load(recurrent("GRU", 3))
    assert is_direct(loaded)
    result = loaded.debug(SLICES[0], watch="s")
    assert same([result["s"]], [SLICES[0]["x"][:3]])
    assert "GRU" in {placed.operator for placed in loaded.placement().operators}


def test_patched_model_is_not_started_again_from_a_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(recurrent("GRU", 3), path)
    loaded = InferenceSession().load(path)
    expected = loaded(SLICES[0])
    path.write_bytes(b"")
    assert same(loaded(SLICES[0]), expected)
    with pytest.raises(ModelError, match="was changed since it was loaded"):
        loaded._start({})


@pytest.mark.releases
@pytest.mark.parametrize("operator", sorted(LOWERED_ALONE))
def test_node_tests_give_the_bits_of_the_graph(operator: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in collected().values() if operator in {n.op_type for n in c.model.graph.node}]
    checked = 0
    for case in cases:
        source = at_opset(case.model, runtime().opset)
        if source is None or isinstance(plan_direct(Opened(source, None), "auto", lowering=(None, "all")), str):
            continue
        direct, whole = InferenceSession().load(source), lowered(source)
        for inputs, _ in case.data_sets:
            for feed in (dict(zip(whole.inputs, inputs, strict=False)), spoilt(whole, inputs)):
                try:
                    expected = whole(feed)
                except gc.errors.RunError:
                    continue
                checked += 1
                assert same(direct(feed), expected), case.name
    if not checked:
        pytest.skip(f"no test of ONNX's has a {operator} that is lowered alone")
