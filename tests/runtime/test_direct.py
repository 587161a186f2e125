"""Third-party models that run as they are: the results, types and errors of their Graph, without building one."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphcore import DType, Graph, InferenceSession, TensorType
from graphcore.errors import FeedError, GraphcoreError, ModelError, RunError
from graphcore.ir.graph import Precision
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto import opened
from graphcore.onnx.schemas.schemas import operator, schema_of
from graphcore.runtime.fusions import FUSIONS
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.model import Model
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.sessions.direct import ml_rows
from graphcore.runtime.sessions.direct.known_operators import TRACES
from graphcore.runtime.sessions.direct.operators import MIN_OPSET, ROWS, VARIADIC, arity_of
from graphcore.runtime.sessions.direct.scan import Scan
from tests.sampling import drawn
from tests.support.backend import collected
from tests.support.trained import Trained, trained

__all__ = ["trained"]

ROOT = Path(__file__).resolve().parents[2]
F32, I64 = TensorProto.FLOAT, TensorProto.INT64
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def own_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode small models without onnx, as a new process does. Other files of tests load models by onnx's messages."""
    monkeypatch.setattr(opened, "is_imported", lambda: False)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str | None] | None]],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    kind: int = F32,
) -> onnx.ModelProto:
    """Return a model of these nodes. inputs: their dtypes and shapes by name. kind: the dtype of the outputs."""
    graph = helper.make_graph(
        list(nodes),
        "others",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    assert isinstance(model, onnx.ModelProto)
    return model


def network(**changes: Any) -> onnx.ModelProto:
    """Return a layer of a convolution network, with changes of what `model` is given."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    results: dict[str, Any] = {"inputs": {"x": (F32, ["n", 3, 8, 8])}, "constants": {"w": weights}}
    return model(nodes, **{**results, **changes})


def is_direct(loaded: Model) -> bool:
    return loaded._is_direct


def lowered(source: Any) -> Model:
    """Return the model as it is loaded through a Graph."""
    return InferenceSession().load(Graph.load(source))


def reason(source: onnx.ModelProto) -> str | None:
    """Return why a model is left to a Graph."""
    scan = Scan(legality("cpu", runtime()))
    scan.run(source)
    return scan.reason


def same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Return True if results are the same, bit for bit."""
    return len(first) == len(second) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(first, second, strict=True)
    )


IMAGES = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)

# What is imported

LOADED = """
import json, sys
import numpy as np
import graphcore as gc
(result,) = gc.InferenceSession(intra_op_num_threads=1).load(sys.argv[1])(np.ones((1, 3, 8, 8), np.float32))
print(json.dumps([result.shape, sorted(sys.modules)]))
"""
UNUSED = (
    "onnx", "google.protobuf", "ml_dtypes", "graphcore.ops.families", "graphcore.graph_methods", "graphcore.passes",
    "graphcore.onnx.read", "graphcore.onnx.schemas", "graphcore.quantization", "graphcore.runtime.fusions",
    "graphcore.runtime.lowering.pipeline", "graphcore.runtime.lowering.legalise",
)  # fmt: skip
"""Modules that a new process leaves alone which loads a third-party file and calls it."""


def test_new_process_imports_neither_onnx_nor_what_lowers_graphs(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(), path)
    command = [sys.executable, "-c", LOADED, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shape, modules = json.loads(done.stdout)
    assert shape == [1, 4, 6, 6]
    assert not [name for name in modules if any(f"{name}.".startswith(f"{each}.") for each in UNUSED)]
    assert len([name for name in modules if name.startswith("graphcore.")]) <= 160


def test_file_of_a_graph_that_needs_no_lowering_runs_as_it_is_until_it_is_edited(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 4])})
    (x,) = graph.inputs
    graph.output(y=(x * 2.0 + 1.0).reshape(["n", 2, 2]))
    array = np.array([[-0.0, 1.5, 3.0, np.nan]], np.float32)
    written = graph.to_onnx()
    loaded = InferenceSession().load(written)
    assert is_direct(loaded)
    assert same(loaded(array), InferenceSession().load(graph)(array))
    assert same(loaded(array), InferenceSession().load(Graph.load(written))(array))
    assert "graphcore.legal" not in Graph.load(written).metadata
    for options in ({"target": "onnx"}, {"runtime": "1.27"}, {"opset": 24}):
        assert not is_direct(InferenceSession().load(graph.to_onnx(**options))), options
    written.graph.node.insert(0, helper.make_node("Identity", ["x"], ["unused"]))
    assert not is_direct(InferenceSession().load(written))


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16, DType.int8, DType.float64])
def test_file_of_a_graph_of_other_dtypes_gives_the_bits_of_the_graph(dtype: DType) -> None:
    graph = Graph("g", {"x": TensorType(dtype, ["n", 4])})
    (x,) = graph.inputs
    graph.output(y=(x + x) * x - x, z=abs(x) if dtype.is_float else x // 2)
    array = np.arange(-6, 6).reshape(3, 4).astype(dtype.numpy)
    loaded = InferenceSession().load(graph.to_onnx())
    assert same(loaded(array), InferenceSession().load(graph)(array))


def test_signs_of_fusions_are_those_of_their_rows() -> None:
    assert {name: sign for name, (sign, _) in TRACES.items()} == {fusion.name: fusion.sign for fusion in FUSIONS}


@pytest.mark.parametrize("version", range(MIN_OPSET, OPSET + 1))
def test_numbers_of_operands_and_results_are_those_of_the_schemas(version: int) -> None:
    for op_type in (*ROWS, *ml_rows.ROWS):
        domain = "" if op_type in ROWS else "ai.onnx.ml"
        own_version = version if op_type in ROWS else min(version - MIN_OPSET + 1, 5)
        schema, arity = schema_of(op_type, domain, own_version), arity_of(op_type, own_version)
        if schema is None or schema.deprecated:
            assert arity is None, op_type
            continue
        op = operator(schema)
        expected = (op.min_inputs, op.max_inputs, op.min_outputs, op.max_outputs)
        assert arity is not None, op_type
        assert tuple(arity) == tuple(min(n, VARIADIC + 1) for n in expected), op_type


# What is taken


def test_results_are_those_of_the_graph_when_a_model_runs_as_it_is() -> None:
    direct = InferenceSession().load(network())
    assert is_direct(direct)
    assert direct._source is None
    assert same(direct(IMAGES), lowered(network())(IMAGES))


def test_trained_models_give_the_same_bits_when_they_run_as_they_are(trained: Trained) -> None:
    direct = InferenceSession().load(trained.file())
    whole = lowered(trained.file())
    assert direct.inputs == whole.inputs
    assert direct.outputs == whole.outputs
    assert same(direct(trained.feeds()), whole(trained.feeds()))


def test_many_trained_models_without_fusions_run_as_they_are() -> None:
    from tests.support.trained import TRAINED

    taken = []
    for one in TRAINED:
        try:
            file = one.file()
        except pytest.skip.Exception:
            continue
        if not (reason(onnx.load(file)) or "").startswith("the fusion"):
            taken.append(is_direct(InferenceSession().load(file)))
    if not taken:
        pytest.skip("no package with a trained model is installed")
    assert sum(taken) * 2 > len(taken)


@functools.cache
def cases() -> list[Any]:
    """Return ONNX's tests of single operators, made once: some overflow on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = collected().values()
    return [case for case in results if {n.op_type for n in case.model.graph.node} <= ROWS.keys()]


@pytest.mark.releases
@pytest.mark.parametrize("operator", sorted(ROWS))
def test_numbers_of_each_operator_are_those_of_the_graph(operator: str) -> None:
    checked = 0
    for case in cases():
        if {n.op_type for n in case.model.graph.node} != {operator}:
            continue
        source = at_opset(case.model, runtime().opset)
        if source is None or reason(source) is not None:
            continue
        direct, whole = InferenceSession().load(source), lowered(source)
        for inputs, _ in case.data_sets:
            for feed in (dict(zip(whole.inputs, inputs, strict=False)), spoilt(whole, inputs)):
                checked += 1
                try:
                    expected = whole(feed)
                except RunError as error:
                    with pytest.raises(RunError, match=error.summary.split(":")[0]):
                        direct(feed)
                    continue
                assert same(direct(feed), expected), case.name
    if not checked:
        pytest.skip(f"no test of ONNX's has a {operator} that runs as it is")


def at_opset(source: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    """Return a model at an opset that the runtime takes; None where its operators are newer."""
    model = onnx.ModelProto()
    model.CopyFrom(source)
    for entry in model.opset_import:
        if entry.domain == "" and entry.version > opset:
            for node in model.graph.node:
                if onnx.defs.get_schema(node.op_type, entry.version).since_version > opset:
                    return None
            entry.version = opset
    return model


def spoilt(whole: Model, inputs: Sequence[Any]) -> dict[str, Array]:
    """Return feeds with NaN, an infinity and -0.0 among the floats."""
    feed = {}
    for name, value in zip(whole.inputs, inputs, strict=False):
        array = np.array(value)
        if array.dtype.kind == "f" and array.size > 3:
            array.flat[0], array.flat[1], array.flat[2] = np.nan, np.inf, -0.0
        feed[name] = array
    return feed


OLD_FORMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "Clip 6": lambda: chain("Clip", 6, 7, min=-0.5, max=0.5),
    "Squeeze 11": lambda: chain("Squeeze", 11, 11, shape=[2, 1, 6], axes=[1]),
    "Unsqueeze 11": lambda: chain("Unsqueeze", 11, 11, axes=[0, -1]),
    "Slice 9": lambda: chain("Slice", 9, 9, starts=[1], ends=[9], axes=[1]),
    "Split 11": lambda: chain("Split", 11, 11, outputs=("y", "z"), axis=1),
    "Pad 2": lambda: chain("Pad", 9, 9, pads=[0, 1, 1, 0], mode="constant", value=0.5),
    "Softmax 11": lambda: chain("Softmax", 11, 11, shape=[2, 3, 4], axis=1),
    "LogSoftmax 9": lambda: chain("LogSoftmax", 9, 9),
    "ReduceMean 11": lambda: chain("ReduceMean", 11, 11, axes=[1], keepdims=0),
    "ReduceSum 11": lambda: chain("ReduceSum", 11, 11, axes=[0, 1]),
    "Flatten 9": lambda: chain("Flatten", 9, 9, shape=[2, 3, 4], axis=2),
    "Dropout 7": lambda: chain("Dropout", 7, 7, ratio=0.5),
    "Dropout 10": lambda: chain("Dropout", 10, 10, ratio=0.5),
    "AveragePool 19": lambda: chain(
        "AveragePool", 19, 19, shape=[1, 2, 6, 6], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "MaxPool 8": lambda: chain("MaxPool", 8, 8, shape=[1, 2, 6, 6], kernel_shape=[2, 2], strides=[2, 2]),
    "Resize 10": lambda: chain(
        "Resize", 10, 10, shape=[1, 2, 4, 4], constants={"s": np.array([1, 1, 2, 2], np.float32)}, mode="nearest"
    ),
    "Resize 11": lambda: resize(11, "linear", "half_pixel"),
    "Resize 11 asymmetric": lambda: resize(11, "nearest", "asymmetric"),
    "Resize 18": lambda: resize(18, "nearest", "asymmetric", antialias=0),
    "Resize 13": lambda: resize(13, "linear", "pytorch_half_pixel"),
    "Elu 6": lambda: chain("Elu", 7, 7, alpha=0.5),
    "TopK 10": lambda: chain("TopK", 10, 10, constants={"k": np.array([2])}, outputs=("y",), axis=1),
    "Sum 8": lambda: chain("Sum", 8, 8),
    "Compress 9": lambda: chain("Compress", 9, 9, constants={"c": np.array([True, False, True])}, axis=1),
    "CumSum 11": lambda: chain("CumSum", 11, 11, constants={"a": np.array(-1)}, exclusive=1),
    "GatherND 11": lambda: chain("GatherND", 11, 11, constants={"i": np.array([[1, 5], [0, -1]])}),
    "Hardmax 11": lambda: chain("Hardmax", 11, 11, shape=[2, 3, 4], axis=1),
    "LRN 1": lambda: chain("LRN", 7, 7, shape=[1, 5, 3, 3], size=3),
    "LpPool 2": lambda: chain("LpPool", 9, 9, shape=[1, 2, 6, 6], kernel_shape=[3, 3], strides=[2, 2], p=3),
    "Mean 8": lambda: chain("Mean", 8, 8, constants={"w": np.full((6,), 3, np.float32)}),
    "MeanVarianceNormalization 9": lambda: chain("MeanVarianceNormalization", 9, 9, shape=[2, 3, 4, 4]),
    "ScatterElements 11": lambda: chain(
        "ScatterElements", 11, 11, constants={"i": np.array([[5, -2]]), "u": np.ones((1, 2), np.float32)}, axis=1
    ),
    "ScatterND 11": lambda: chain(
        "ScatterND", 11, 11, constants={"i": np.array([[1], [1]]), "u": np.arange(12, dtype=np.float32).reshape(2, 6)}
    ),
}


def chain(
    op_type: str,
    version: int,
    opset: int,
    shape: Sequence[int] = (2, 6),
    constants: Mapping[str, Array] | None = None,
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one node of an older opset, and a Relu after each of its results."""
    results = [f"{name}0" for name in outputs]
    nodes = [helper.make_node(op_type, ["x", *(constants or {})], results, **attributes)]
    if op_type == "TopK":
        nodes[0].output.append("places")
    nodes += [helper.make_node("Relu", [r], [name]) for r, name in zip(results, outputs, strict=True)]
    return model(nodes, {"x": (F32, shape)}, outputs, constants, opset=opset)


def resize(opset: int, mode: str, by: str, **more: Any) -> onnx.ModelProto:
    constants = {"roi": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 1.5], np.float32)}
    attributes = {"mode": mode, "coordinate_transformation_mode": by, **more}
    return chain("Resize", opset, opset, [1, 2, 4, 4], constants, **attributes)


@pytest.mark.parametrize(
    "operator",
    """Round Tan Sinh Cosh Asinh Acosh Atanh Celu ThresholdedRelu Shrink Hardmax Gelu Mish LpNormalization Mean Det
    Trilu""".split(),
)
def test_an_operator_with_one_kernel_sends_no_model_around_direct_loading(operator: str) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node(operator, ["e"], ["y"])]
    source = model(nodes, {"x": (F32, [None, 4, 4])}, opset=20)
    direct, x = InferenceSession().load(source), np.random.default_rng(4).standard_normal((3, 4, 4))
    assert is_direct(direct)
    assert same(direct(x.astype(np.float32)), lowered(source)(x.astype(np.float32)))


@pytest.mark.parametrize(
    "form", ["Compress 9", "CumSum 11", "GatherND 11", "LpPool 2", "LRN 1", "Mean 8", "Hardmax 11"]
)
def test_older_forms_run_as_they_are(form: str) -> None:
    assert is_direct(InferenceSession().load(OLD_FORMS[form]()))


@pytest.mark.releases
@pytest.mark.parametrize("form", OLD_FORMS)
def test_numbers_of_older_forms_are_those_of_the_graph(form: str) -> None:
    source = OLD_FORMS[form]()
    direct, whole = InferenceSession().load(source), lowered(source)
    shape = [int(d) for d in whole.inputs["x"].shape]  # type: ignore[union-attr]
    array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    array.flat[0], array.flat[1] = np.nan, -0.0
    assert same(direct(array), whole(array))


def _vector(rng: np.random.Generator) -> Array:
    return np.asarray(rng.random(6) + 0.5, np.float32)


STEPS: dict[str, tuple[Callable[[np.random.Generator], Sequence[Array]], dict[str, Any]]] = {
    **{name: (lambda rng: [], {}) for name in ("Relu", "Sigmoid", "Tanh", "Neg", "Softmax", "Exp", "Erf")},
    **{name: (lambda rng: [], {}) for name in ("Round", "Celu", "Shrink", "Hardmax", "LpNormalization", "Sinh")},
    "CumSum": (lambda rng: [np.array(1)], {}),
    "GatherND": (lambda rng: [np.array([[0], [-1], [0]])], {}),  # of one row after a ReduceMean
    **{name: (lambda rng: [_vector(rng)], {}) for name in ("Add", "Mul", "Sub", "Div", "Max", "PRelu")},
    **{name: (lambda rng: [rng.standard_normal((6, 6)).astype(np.float32)], {}) for name in ("MatMul", "Gemm")},
    "BatchNormalization": (lambda rng: [_vector(rng) for _ in range(4)], {}),
    "Cast": (lambda rng: [], {"to": F32}),
    "Clip": (lambda rng: [np.array(0.0, np.float32)], {}),
    "Pow": (lambda rng: [np.array(2, np.int64)], {}),
    "ReduceMean": (lambda rng: [], {"axes": [0], "keepdims": 1}),
    "Transpose": (lambda rng: [], {"perm": [0, 1]}),
}
"""Operators on rows of six numbers: what makes their constants, and attributes."""


@settings(max_examples=drawn(40), deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8), st.sampled_from([13, 15, 17]), st.integers(0))
def test_random_networks_give_the_bits_of_the_graph(steps: list[str], opset: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {}
    for i, op_type in enumerate(steps):
        result, attributes = STEPS[op_type]
        own = {f"w{i}_{j}": array for j, array in enumerate(result(rng))}
        constants.update(own)
        operand = f"v{i - 1}" if i else "x"
        nodes.append(helper.make_node(op_type, [operand, *own], [f"v{i}"], **attributes))
    source = model(nodes, {"x": (F32, ["n", 6])}, [f"v{len(steps) - 1}"], constants, opset=opset)
    array = rng.standard_normal((3, 6)).astype(np.float32)
    assert same(InferenceSession().load(source)(array), lowered(source)(array))


# What is left to a Graph

LEFT: dict[str, Callable[[], onnx.ModelProto]] = {
    "a cast that rounds, cast again": lambda: model(
        [helper.make_node("Cast", ["x"], ["i"], to=F32), helper.make_node("Cast", ["i"], ["y"], to=I64)],
        {"x": (TensorProto.DOUBLE, [2])}, kind=I64,
    ),
    "division of integers by what is fed": lambda: model(
        [helper.make_node("Div", ["x", "z"], ["y"])], {"x": (I64, [2]), "z": (I64, [2])}, kind=I64
    ),
    "division of integers by zero": lambda: model(
        [helper.make_node("Div", ["x", "c"], ["y"])], {"x": (I64, [2])}, constants={"c": np.array([0])}, kind=I64
    ),
    "division of integers by -1": lambda: model(
        [helper.make_node("Div", ["x", "c"], ["y"])], {"x": (I64, [2])}, constants={"c": np.array([-1])}, kind=I64
    ),
    "batch dims that its operands may not have": lambda: model(
        [helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=-5)], {"x": (F32, None), "i": (I64, None)}
    ),
    "products of what is fed": lambda: model(
        [helper.make_node("MatMul", ["x", "z"], ["y"])], {"x": (F32, [2, 3]), "z": (F32, [3, 2])}
    ),
    "bfloat16": lambda: model([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.BFLOAT16, [2])}, kind=16),
    "a cast of strings": lambda: model(
        [helper.make_node("Cast", ["x"], ["y"], to=F32)], {"x": (TensorProto.STRING, [2])}
    ),
    "operators of other domains": lambda: model(
        [helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], {"x": (F32, [2])}
    ),
    "operators without a row": lambda: model([helper.make_node("EyeLike", ["x"], ["y"])], {"x": (F32, [2, 2])}),
    "an input that is an output": lambda: model(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, [2])}, ["y", "x"]
    ),
    "a dim of no elements": lambda: model([helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, [0, 2])}),
    "a pool of the kernel that rounds otherwise": lambda: chain(
        "AveragePool", 11, 11, shape=[1, 1, 4, 4], kernel_shape=[2, 2]
    ),
    "a large axis": lambda: model([helper.make_node("Softmax", ["x"], ["y"], axis=1 << 40)], {"x": (F32, [2, 2])}),
    "a large size": lambda: model(
        [helper.make_node("Expand", ["x", "s"], ["y"])], {"x": (F32, [1])}, constants={"s": np.array([1 << 62])}
    ),
    "a part of a Split without a name": lambda: model(
        [helper.make_node("Split", ["x"], ["y", ""], axis=1, num_outputs=2)], {"x": (F32, ["n", 4])}, opset=20
    ),
    "attention": lambda: model(
        [
            helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Softmax", ["s"], ["p"]),
            helper.make_node("MatMul", ["p", "w"], ["y"]),
        ],
        {"x": (F32, ["n", 4])}, constants={"w": np.ones((4, 4), np.float32)},
    ),
    "a factor of one element behind a convolution": lambda: model(
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Mul", ["c", "k"], ["y"])],
        {"x": (F32, ["n", 1, 4, 4])},
        constants={"w": np.ones((1, 1, 3, 3), np.float32), "k": np.full(1, 2, np.float32)},
    ),
    "a norm": lambda: model(
        [
            helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1]), helper.make_node("Add", ["m", "e"], ["v"]),
            helper.make_node("Sqrt", ["v"], ["y"]),
        ],
        {"x": (F32, ["n", 4])}, constants={"e": np.array(1e-5, np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_a_model_is_left_to_a_graph_when_it_has(what: str) -> None:
    assert reason(LEFT[what]()) is not None
    try:
        loaded = InferenceSession().load(LEFT[what]())
    except GraphcoreError:
        return
    assert not is_direct(loaded)


@pytest.mark.parametrize("has_sizes", [False, True])
@pytest.mark.parametrize("names", [["y", ""], ["", "y"]])
def test_parts_are_right_when_others_have_no_name(names: list[str], has_sizes: bool) -> None:
    """onnxruntime's kernel writes to the part that is not there, and ends the process."""
    split = helper.make_node("Split", ["x"], names, axis=1, num_outputs=2)
    if has_sizes:
        split = helper.make_node("Split", ["x", "sizes"], names, axis=1)
    constants = {"sizes": np.array([2, 2])} if has_sizes else {}
    loaded = InferenceSession().load(model([split], {"x": (F32, ["n", 4])}, opset=20, constants=constants))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    at = 2 * names.index("y")
    assert np.array_equal(loaded(x)[0], x[:, at : at + 2])


GRU = {"w": np.ones((1, 6, 3), np.float32), "r": np.ones((1, 6, 2), np.float32)}
GRU_INPUTS: dict[str, tuple[int, Sequence[int | str | None] | None]] = {
    "x": (F32, [None, None, 5]), "k": (I64, [1]), "h": (F32, [None, 2]),
}  # fmt: skip


def cut(steps: str, states: str = "h") -> list[onnx.NodeProto]:
    """Return a GRU on so many sequences as only the run knows, and on those states."""
    return [
        helper.make_node("Slice", ["x", "from", "k", steps], ["s"]),
        helper.make_node("Slice", ["s", "from", "three", "last"], ["c"]),
        helper.make_node("Unsqueeze", [states, "zero"], ["h0"]),
        helper.make_node("GRU", ["c", "w", "r", "", "", "h0"], ["y"], hidden_size=2),
    ]


CUTS = {**GRU, **{n: np.array([v]) for n, v in {"from": 0, "zero": 0, "one": 1, "last": 2, "three": 3}.items()}}


def test_sequences_that_may_be_none_are_counted_by_states_that_are_some() -> None:
    source = model(cut("one"), GRU_INPUTS, constants=CUTS)
    assert (reason(source) or "").endswith("whose axis 0 may be empty")  # the steps are not counted
    big = {n: np.repeat(a, 4, 1)[:, :8] for n, a in GRU.items()}
    nodes = [
        helper.make_node("Slice", ["numbers", "from", "k"], ["chosen"]),
        helper.make_node("Gather", ["x", "chosen"], ["c"], axis=1),
        helper.make_node("Unsqueeze", ["h", "zero"], ["h0"]),
        helper.make_node("LSTM", ["c", "w", "r", "", "", "h0"], ["y"], hidden_size=2),
    ]
    inputs = {**GRU_INPUTS, "x": (F32, ["steps", None, 3])}
    source = model(nodes, inputs, constants={**CUTS, **big, "numbers": np.arange(3)})
    direct, whole = InferenceSession().load(source), lowered(source)
    assert is_direct(direct)
    x = np.random.default_rng(0).standard_normal((4, 3, 3)).astype(np.float32)
    for sequences, states in ((3, 3), (2, 2), (0, 2), (3, 1)):
        feed = {"x": x, "k": np.array([sequences]), "h": np.ones((states, 2), np.float32)}
        if sequences == states:
            assert same(direct(feed), whole(feed))
            continue
        with pytest.raises(RunError) as failed:
            direct(feed)
        with pytest.raises(RunError) as expected:
            whole(feed)
        assert failed.value.summary == expected.value.summary


def test_recurrent_nodes_of_what_is_fed_run_as_they_are_and_no_elements_through_the_graph() -> None:
    nodes = [helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=2)]
    source = model(nodes, {"x": (F32, [None, None, 3])}, constants=GRU)
    direct, whole = InferenceSession().load(source), lowered(source)
    assert is_direct(direct)
    for steps, sequences in ((2, 3), (0, 3), (2, 0), (0, 0)):
        array = np.ones((steps, sequences, 3), np.float32)
        assert same(direct(array), whole(array))


def test_a_recurrent_node_is_left_to_a_graph_where_its_states_may_be_none() -> None:
    nodes = [helper.make_node("Slice", ["h", "from", "k"], ["g"]), *cut("one", "g")]
    nodes[-1].op_type = "LSTM"
    big = {n: np.repeat(a, 4, 1)[:, :8] for n, a in GRU.items()}
    assert reason(model(nodes, GRU_INPUTS, constants={**CUTS, **big})) == "'c', whose axis 0 may be empty"


def chosen(size: onnx.NodeProto) -> onnx.ModelProto:
    """Return a model whose If asks whether a size is above 0, and else makes an LSTM of no sequences."""
    big = {n: np.repeat(a, 4, 1)[:, :8] for n, a in GRU.items()}
    recurrent = helper.make_node("LSTM", ["c", "w", "r"], ["o"], hidden_size=2)
    bodies = {
        "then_branch": helper.make_graph(
            [helper.make_node("Identity", ["h"], ["t"])], "t", [], [onnx.ValueInfoProto(name="t")]
        ),
        "else_branch": helper.make_graph([*cut("one")[:2], recurrent], "e", [], [onnx.ValueInfoProto(name="o")]),
    }
    nodes = [size, helper.make_node("Cast", ["n"], ["b"], to=TensorProto.BOOL), helper.make_node("If", ["b"], ["y"])]
    nodes[-1].attribute.extend(helper.make_attribute(name, body) for name, body in bodies.items())
    return model(nodes, GRU_INPUTS, constants={**CUTS, **big})


def test_bodies_that_never_run_need_no_elements() -> None:
    assert reason(chosen(helper.make_node("Size", ["h"], ["n"]))) == "'c', whose axis 0 may be empty"
    source = chosen(helper.make_node("Shape", ["h"], ["n"], start=0, end=1))
    direct, whole = InferenceSession().load(source), lowered(source)
    assert is_direct(direct)
    feed = {"x": np.ones((2, 2, 5), np.float32), "k": np.array([0]), "h": np.ones((3, 2), np.float32)}
    assert same(direct(feed), whole(feed))


def test_casts_to_integers_give_what_the_graph_gives() -> None:
    source = model([helper.make_node("Cast", ["x"], ["y"], to=I64)], {"x": (F32, ["n"])}, kind=I64)
    array = np.array([1.5, -2.5, np.nan, np.inf, -np.inf, 1e30, -0.0], np.float32)
    direct = InferenceSession().load(source)
    assert is_direct(direct)
    assert same(direct(array), lowered(source)(array))


def test_float16_runs_as_it_is_unless_a_precision_is_given() -> None:
    halves = np.float16
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(halves)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]),
        helper.make_node("Cast", ["c"], ["f"], to=F32),
        helper.make_node("Sigmoid", ["f"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT16),
    ]
    half = TensorProto.FLOAT16
    source = model(nodes, {"x": (half, ["n", 3, 8, 8])}, constants={"w": weights}, kind=half)
    direct = InferenceSession().load(source)
    assert is_direct(direct)
    assert same(direct(IMAGES.astype(halves)), lowered(source)(IMAGES.astype(halves)))
    values: tuple[Precision, ...] = ("exact", "fast")
    for precision in values:
        session = InferenceSession(precision=precision)
        assert not is_direct(session.load(source))


def test_a_model_is_left_to_a_graph_when_options_ask_for_one() -> None:
    assert not is_direct(InferenceSession(optimize="exact").load(network()))
    weights = {"w": np.ones((4, 3, 3, 3), np.float32)}
    assert not is_direct(InferenceSession().load(network(), weights))
    assert is_direct(InferenceSession(optimize="off").load(network()))


def test_models_that_graphcore_wrote_keep_their_meaning() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 4])})
    (x,) = graph.inputs
    graph.output(y=(x + 0.0).cast("bfloat16").cast("float32"))
    array = np.array([[-0.0, 1.00390625, 3.0, np.nan]], np.float32)
    expected = InferenceSession().load(graph)(array)
    for target in ("onnx", "cpu"):
        written = graph.to_onnx(target=target)
        assert same(InferenceSession().load(written)(array), expected), target


# What is like it was


def test_outputs_have_the_dims_that_the_graph_tells() -> None:
    nodes = [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)]
    direct = InferenceSession().load(model(nodes, {"x": (F32, ["n", 4])}))
    assert is_direct(direct)
    assert str(direct.outputs["y"]) == "float32[2 * n, 4]"


def test_arrays_of_no_elements_run_as_the_graph_runs_them() -> None:
    direct = InferenceSession().load(network())
    none = np.zeros((0, 3, 8, 8), np.float32)
    assert is_direct(direct)
    assert [a.shape for a in direct(none)] == [(0, 4, 6, 6)]
    assert [a.shape for a in direct.execute(none, micro_batch=2)] == [(0, 4, 6, 6)]
    assert same(direct(IMAGES), lowered(network())(IMAGES))


def test_feeds_are_checked_as_before() -> None:
    direct = InferenceSession().load(network())
    with pytest.raises(FeedError, match="rank 4"):
        direct(IMAGES[0])
    with pytest.raises(FeedError, match="float32"):
        direct(IMAGES.astype(np.float64))


def test_a_run_that_fails_says_where() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    source = model(nodes, {"x": (F32, ["n"]), "s": (I64, [1])})
    direct = InferenceSession().load(source)
    assert is_direct(direct)
    feed = np.ones(3, np.float32), np.array([2])
    with pytest.raises(RunError) as failed:
        direct(*feed)
    with pytest.raises(RunError) as expected:
        lowered(source)(*feed)
    assert failed.value.summary == expected.value.summary


def test_values_inside_can_be_watched_and_placed() -> None:
    direct = InferenceSession().load(network())
    result = direct.debug(IMAGES, watch="c")
    assert same([np.maximum(result["c"], 0)], direct(IMAGES))
    assert [placed.operator for placed in direct.placement().operators] == ["Conv", "Relu"]
    assert "Conv" in str(direct.profile(IMAGES, runs=1))
    assert direct.bind(n=2)(IMAGES)[0].shape == (2, 4, 6, 6)


def test_a_file_that_is_gone_can_be_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(network(), path)
    direct = InferenceSession().load(path)
    assert is_direct(direct)
    path.unlink()
    assert "c" in direct.debug(IMAGES, watch="c")


def test_a_file_that_was_written_to_is_not_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(network(), path)
    direct = InferenceSession().load(path)
    content = path.read_bytes()
    with open(path, "r+b") as file:
        file.write(content + b"\0")
    with pytest.raises(ModelError, match="changed since it was loaded"):
        direct.debug(IMAGES, watch="c")


def test_a_run_that_fails_is_told_where_the_file_was_written_to(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    onnx.save(model(nodes, {"x": (F32, ["n"]), "s": (I64, [1])}), path)
    direct = InferenceSession().load(path)
    with open(path, "ab") as file:
        file.write(b"\0")
    with pytest.raises(RunError, match="onnxruntime failed"):
        direct(np.ones(3, np.float32), np.array([2]))


DAMAGED: dict[str, Callable[[], bytes]] = {
    "cut short": lambda: network().SerializeToString()[:-40],
    "of nothing": lambda: b"",
    "of noise": lambda: bytes(range(256)) * 8,
    "without outputs": lambda: network(outputs=()).SerializeToString(),
    "with an unknown name": lambda: model(
        [helper.make_node("Relu", ["nobody"], ["y"])], {"x": (F32, [2])}
    ).SerializeToString(),
    "with a name twice": lambda: model(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])], {"x": (F32, [2])}
    ).SerializeToString(),
    "with nodes in a circle": lambda: model(
        [helper.make_node("Add", ["x", "y"], ["z"]), helper.make_node("Relu", ["z"], ["y"])], {"x": (F32, [2])}
    ).SerializeToString(),
    "with text that is none": lambda: network().SerializeToString().replace(b"conv", b"\xff\xfe\xfd\xfc"),
    "with a wrong type": lambda: model(
        [helper.make_node("Not", ["x"], ["y"])], {"x": (F32, [2])}, kind=TensorProto.BOOL
    ).SerializeToString(),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_model_is_refused_as_the_graph_refuses_it(how: str) -> None:
    content = DAMAGED[how]()
    with pytest.raises(ModelError) as expected:
        Graph.load(content)
    with pytest.raises(ModelError) as result:
        InferenceSession().load(content)
    assert result.value.summary == expected.value.summary
