"""Numbers that inference in C++ and kernels trust: refused before either sees them."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore.errors import GraphcoreError, ModelError, ResourceLimitError, RunError
from graphcore.onnx.proto import limits
from graphcore.onnx.proto.ranges import CHECKED
from graphcore.onnx.read import checks
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.sessions.direct.scan import Scan
from tests.support.onnx_models import FLOAT, INT64, model, refused, value

_PROPAGATE: dict[str, tuple[dict[str, Any], int]] = {
    "Cast": ({"to": INT64}, 1),
    "Concat": ({"axis": 0}, 2),
    "Add": ({}, 2),
    "Squeeze": ({}, 1),
    "GreaterOrEqual": ({}, 2),
}


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, "culprit", **attributes)


def long_vector(maker: str, length: int, op_type: str) -> onnx.ModelProto:
    """A model of 106 bytes that gives an operator whose data ONNX propagates a vector of this length."""
    attributes, count = _PROPAGATE[op_type]
    inputs = ["n"] if maker == "ConstantOfShape" else ["x", "n"]
    nodes = [node(maker, inputs, ["a"]), node(op_type, ["a"] * count, **attributes)]
    return model(
        nodes,
        [] if maker == "ConstantOfShape" else [value("x", FLOAT, None)],
        [value("y", FLOAT, None)],
        [helper.make_tensor("n", INT64, [1], [length])],
    )


@pytest.mark.parametrize("maker", ["ConstantOfShape", "Reshape"])
@pytest.mark.parametrize("op_type", _PROPAGATE)
def test_vector_is_refused_when_no_machine_holds_it(maker: str, op_type: str) -> None:
    refused(long_vector(maker, 1 << 62, op_type), f"{maker} 'culprit'", kind=ResourceLimitError, run=True)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the data of a process")
def test_load_takes_no_memory_for_the_elements_of_long_vectors() -> None:
    """Data propagation took 140 bytes for each of 10^7 elements: 1.4 GB. The process may take no more than 1 GiB."""
    proto = long_vector("ConstantOfShape", 10**7, "Cast")
    proto.graph.node[1].attribute[0].i = FLOAT
    code = f"""
import resource, graphcore as gc
gc.Graph.load(bytes.fromhex({long_vector("ConstantOfShape", 8, "Cast").SerializeToString().hex()!r}))
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
gc.Graph.load(bytes.fromhex({proto.SerializeToString().hex()!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_types_are_told_when_vectors_are_long() -> None:
    graph = gc.Graph.load(long_vector("ConstantOfShape", 10**7, "Concat"))
    assert graph.outputs[0].shape == (2 * 10**7,)


_FAR = [1 << 31, 1 << 62, -(1 << 40), (1 << 63) - 1, -(1 << 63), 65, -65]


@pytest.mark.parametrize("axis", _FAR)
@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_axis_is_refused_before_inference_when_it_is_far_out(op_type: str, axis: int) -> None:
    proto = model(
        [node(op_type, ["x", "x"], axis=axis)], [value("x", FLOAT, [2, 3])], [value("y", FLOAT, None)], opset=23
    )
    refused(proto, f"{op_type} 'culprit'", "axis", run=True)


@pytest.mark.parametrize("axis", _FAR)
def test_axis_is_refused_before_inference_when_a_call_gives_it_to_a_function(axis: int) -> None:
    inner = node("LayerNormalization", ["a", "a"], ["b"])
    inner.attribute.append(onnx.AttributeProto(name="axis", type=onnx.AttributeProto.INT, ref_attr_name="at"))
    function = helper.make_function("f", "Norm", ["a"], ["b"], [inner], [helper.make_opsetid("", 20)], ["at"])
    proto = model([helper.make_node("Norm", ["x"], ["y"], domain="f", at=axis)], functions=[function], f=1)
    refused(proto, "LayerNormalization", "axis", run=True)


@pytest.mark.parametrize("batch", [-1, -5, 1 << 40, 2, -(1 << 63)])
def test_batch_dims_are_refused(batch: int) -> None:
    inputs = [value("x", FLOAT, [2, 3]), value("i", INT64, [2, 1])]
    proto = model([node("GatherND", ["x", "i"], batch_dims=batch)], inputs, [value("y", FLOAT, None)])
    refused(proto, "GatherND 'culprit'", "batch_dims", run=True)


def sequences(op_type: str, position: onnx.ValueInfoProto | None) -> onnx.ModelProto:
    """A model in which an operator on a sequence of two takes a position: an input, or a constant without elements."""
    inputs = ["s", "x", "p"] if op_type == "SequenceInsert" else ["s", "p"]
    nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), node(op_type, inputs, ["r"])]
    last = "Identity" if op_type == "SequenceAt" else "SequenceLength"
    return model(
        [*nodes, helper.make_node(last, ["r"], ["y"])],
        [value("x"), *([] if position is None else [position])],
        [value("y", FLOAT if op_type == "SequenceAt" else INT64, None)],
        [] if position is not None else [helper.make_tensor("p", INT64, [0], [])],
    )


@pytest.mark.parametrize("op_type", ["SequenceAt", "SequenceErase", "SequenceInsert"])
def test_position_is_refused_when_it_has_no_elements(op_type: str) -> None:
    refused(sequences(op_type, None), f"{op_type} 'culprit'", "position", run=True)


@pytest.mark.parametrize("op_type", ["SequenceAt", "SequenceErase", "SequenceInsert"])
def test_run_raises_when_a_position_turns_out_to_have_no_elements(op_type: str) -> None:
    session = gc.InferenceSession().load(sequences(op_type, value("p", INT64, ["n"])))
    x = np.array([1, 2], np.float32)
    assert len(session(x, np.array([1]))) == 1
    with pytest.raises(RunError, match="Reshape"):
        session(x, np.empty(0, np.int64))


_ML: dict[str, Any] = {"ai.onnx.ml": 3}


def trees(depth: int, **labels: Any) -> onnx.ModelProto:
    """A classifier of one tree that goes on to the left for `depth` nodes."""
    count = 2 * depth + 1
    leaves = [*range(depth, count)]
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "scores"],
        "culprit",
        domain="ai.onnx.ml",
        nodes_treeids=[0] * count,
        nodes_nodeids=[*range(count)],
        nodes_featureids=[0] * count,
        nodes_values=[0.5] * count,
        nodes_modes=["BRANCH_LEQ"] * depth + ["LEAF"] * (depth + 1),
        nodes_truenodeids=[*range(1, depth + 1)] + [0] * (depth + 1),
        nodes_falsenodeids=[*range(depth + 1, count)] + [0] * (depth + 1),
        class_treeids=[0] * len(leaves),
        class_nodeids=leaves,
        class_ids=[0] * len(leaves),
        class_weights=[1.0] * len(leaves),
        **labels,
    )
    outputs = [value("label", TensorProto.STRING, None), value("scores", FLOAT, None)]
    return model([node], [value("x", FLOAT, [2, 3])], outputs, **_ML)


def test_trees_are_refused_when_they_have_one_string_label() -> None:
    refused(trees(1, classlabels_strings=["a"]), "TreeEnsembleClassifier 'culprit'", "one label", run=True)


def test_trees_are_refused_when_their_labels_are_of_two_kinds() -> None:
    proto = trees(1, classlabels_strings=["a", "b"], classlabels_int64s=[1, 2])
    refused(proto, "TreeEnsembleClassifier 'culprit'", "all strings or all integers", run=True)


def test_trees_are_refused_when_a_chain_is_deeper_than_the_runtime_can_go() -> None:
    proto = trees(200_000, classlabels_strings=["a", "b", "c"])
    refused(proto, "nodes deep", kind=ResourceLimitError, run=True)


def test_trees_run_when_they_are_as_deep_as_may_be() -> None:
    label, _ = gc.InferenceSession().load(trees(4000, classlabels_strings=["a", "b", "c"]))(
        np.zeros((2, 3), np.float32)
    )
    assert label.tolist() == ["a", "a"]


def _drawn_trees(seed: int) -> dict[str, list[Any]]:
    """Two trees of eight nodes in any order, whose ways lead anywhere: down as a rule, to nodes that are none too."""
    random = np.random.default_rng(seed)
    ids = [*random.permutation(8).tolist(), *random.permutation(8).tolist()]
    down = random.random() < 0.7
    after = [[int(random.integers(i + 1, 10) if down else random.integers(0, 10)) for i in ids] for _ in range(2)]
    modes = ["LEAF" if random.random() < 0.4 else "BRANCH_LEQ" for _ in ids]
    return {
        "nodes_treeids": [0] * 8 + [1] * 8, "nodes_nodeids": ids, "nodes_truenodeids": after[0],
        "nodes_falsenodeids": after[1], "nodes_modes": modes,
    }  # fmt: skip


def _longest(message: dict[str, list[Any]]) -> float:
    """Return the nodes on the longest way through trees; infinity where one leads back."""
    names = "treeids nodeids truenodeids falsenodeids modes".split()
    columns = zip(*(message[f"nodes_{of}"] for of in names), strict=True)
    ways = {(t, i): [] if mode == "LEAF" else [(t, a), (t, b)] for t, i, a, b, mode in columns}

    def length(at: tuple[int, int], above: frozenset[tuple[int, int]]) -> float:
        if at in above:
            return math.inf
        return 1 + max((length(n, above | {at}) for n in ways[at] if n in ways), default=0)

    return max(length(at, frozenset()) for at in ways)


def test_trees_are_refused_for_circles_and_long_ways_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_DEPTH", 3)
    met = set()
    for seed in range(150):
        message = _drawn_trees(seed)
        attributes = [helper.make_attribute(name, values) for name, values in message.items()]
        longest = _longest(message)
        try:
            checks.check_trees(attributes, "trees")
            result = "sound"
        except GraphcoreError as error:
            result = "circle" if "its trees have a cycle" in str(error) else "deep"
        assert result in {"sound" if longest <= 3 else "deep", "circle" if longest == math.inf else ""}
        met.add(result)
    assert met == {"sound", "circle", "deep"}


def test_check_of_trees_takes_few_bytes_a_node() -> None:
    """Tuples and dicts of each node took 600 bytes, and a loop of Python most of the time of a load."""
    count = 4 * (1 << 12) - 4
    ids = np.tile(np.arange(count // 4), 4)
    is_leaf = ids >= count // 8
    results: dict[str, list[Any]] = {
        "nodes_treeids": np.repeat(np.arange(4), count // 4).tolist(),
        "nodes_nodeids": ids.tolist(),
        "nodes_truenodeids": np.where(is_leaf, 0, 2 * ids + 1).tolist(),
        "nodes_falsenodeids": np.where(is_leaf, 0, 2 * ids + 2).tolist(),
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
    }
    attributes = [helper.make_attribute(name, values) for name, values in results.items()]
    tracemalloc.start()
    try:
        checks.check_trees(attributes, "trees")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300 * count


@pytest.mark.parametrize("step", [0, 0.0])
def test_range_is_refused_when_its_steps_are_0(step: float) -> None:
    dtype = INT64 if isinstance(step, int) else FLOAT
    constants = [helper.make_tensor(name, dtype, [], [n]) for name, n in (("a", 0), ("b", 5), ("c", step))]
    proto = model([node("Range", ["a", "b", "c"])], [], [value("y", dtype, None)], constants)
    refused(proto, "Range 'culprit'", "the step must not be 0", run=True)


@pytest.mark.parametrize("index", [2, -3, 1 << 40])
@pytest.mark.parametrize("op_type", ["Gather", "GatherElements"])
def test_index_is_refused_when_it_lies_beyond_a_known_end(op_type: str, index: int) -> None:
    constants = [helper.make_tensor("i", INT64, [1], [index])]
    proto = model([node(op_type, ["x", "i"])], outputs=[value("y", FLOAT, None)], constants=constants)
    refused(proto, f"{op_type} 'culprit'", str(index), run=True)


@pytest.mark.parametrize(
    ("op_type", "position", "message"),
    [
        ("Reshape", 1, -2),
        ("Tile", 1, -1),
        ("TopK", 1, -1),
        ("Squeeze", 1, 1 << 40),
        ("ReduceSum", 1, -(1 << 62)),
        ("Split", 1, -2),
    ],
)
def test_constant_operand_is_refused_when_it_is_not_a_number_of_the_operator(
    op_type: str, position: int, message: int
) -> None:
    constants = [helper.make_tensor("n", INT64, [1], [message])]
    outputs = [value("y", FLOAT, None)]
    results = ["y", "z"] if op_type == "TopK" else ["y"]
    proto = model([node(op_type, ["x", "n"], results)], [value("x", FLOAT, None)], outputs, constants)
    refused(proto, f"{op_type} 'culprit'", kind=ModelError, run=True)


# Constant operands, before ONNX's inference sees them


_WRONG: dict[str, tuple[int, list[int], int]] = {
    "ConstantOfShape": (0, [1 << 62], 1),
    "Expand": (1, [1 << 62, 2], 1),
    "Pad": (1, [-(1 << 62), 0], 1),
    "ReduceSum": (1, [1 << 62], 1),
    "Reshape": (1, [-2, 1 << 62], 1),
    "Split": (1, [-(1 << 40), 1], 2),
    "Squeeze": (1, [-(1 << 62)], 1),
    "Tile": (1, [1 << 62, 1 << 62], 1),
    "TopK": (1, [-1], 2),
    "Unsqueeze": (1, [1 << 40], 1),
}
"""By operator: the position of an operand, numbers that it cannot have, and the count of results."""


def _declared(op_type: str, way: str) -> onnx.ModelProto:
    """A model that tells an operator numbers it cannot have, in one of the ways of ONNX."""
    position, numbers, results = _WRONG[op_type]
    names = ["x", "n"] if position else ["n"]
    outputs = ["y", "z"][:results]
    tensor = helper.make_tensor("n", INT64, [len(numbers)], numbers)
    culprit = node(op_type, names, outputs)
    ends = [value("x", FLOAT, [2, 3])], [value("y", FLOAT, None)]
    if way == "initializer":
        return model([culprit], *ends, [tensor])
    if way == "Constant":
        return model([helper.make_node("Constant", [], ["n"], value_ints=numbers), culprit], *ends)
    if way == "propagated":
        each = [helper.make_tensor(f"n{i}", INT64, [1], [number]) for i, number in enumerate(numbers)]
        joined = helper.make_node("Concat", [tensor.name for tensor in each], ["n"], axis=0)
        return model([joined, culprit], *ends, each)
    if way == "body":
        bodies = []
        for branch in ("then", "else"):
            inner = node(op_type, names, [f"{branch}{name}" for name in outputs])
            bodies.append(helper.make_graph([inner], branch, [], [value(f"{branch}y", FLOAT, None)], [tensor]))
        choice = helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
        return model([choice], ends[0] + [value("c", TensorProto.BOOL, [])], ends[1])
    function = helper.make_function("f", "Own", ["x", "n"], outputs, [culprit], [helper.make_opsetid("", 20)])
    return model([helper.make_node("Own", ["x", "n"], outputs, domain="f")], *ends, [tensor], functions=[function], f=1)


@pytest.mark.parametrize("way", ["initializer", "Constant", "propagated", "body", "function"])
@pytest.mark.parametrize("op_type", _WRONG)
def test_constant_operand_is_refused_before_inference(op_type: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = _declared(op_type, way)
    stopped = []
    check = limits.check_constants

    def checked(op_type: str, arrays: Sequence[Any], place: object) -> None:
        try:
            check(op_type, arrays, place)
        except GraphcoreError:
            stopped.append(op_type)
            raise

    monkeypatch.setattr(limits, "check_constants", checked)
    if way == "propagated":  # which no kernel may ever see
        with contextlib.suppress(GraphcoreError):
            gc.Graph.load(proto)
        assert not stopped
    else:
        refused(proto, f"{op_type} 'culprit'", kind=ResourceLimitError if _is_size(op_type) else ModelError)
        refused(proto, op_type, kind=ResourceLimitError if _is_size(op_type) else ModelError, run=True)
        assert set(stopped) == {op_type}


def _is_size(op_type: str) -> bool:
    """Return True if the numbers are too large, and could be those of an operator."""
    _, numbers, _ = _WRONG[op_type]
    return min(numbers) > 0 and op_type not in ("ReduceSum", "Unsqueeze")


def test_data_in_other_files_is_not_opened_by_checks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = _declared("Reshape", "initializer")
    (tensor,) = proto.graph.initializer
    tensor.ClearField("int64_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    (tmp_path / "secret").write_bytes(bytes(16))
    monkeypatch.chdir(tmp_path)
    refused(proto, "'n'")


def test_every_operand_that_is_checked_is_one_of_the_operator() -> None:
    for op_type, places in CHECKED.items():
        schema = onnx.defs.get_schema(op_type)
        assert max(places) < len(schema.inputs), op_type


@pytest.mark.parametrize("op_type", ["Concat", "Max", "Mean", "Min", "Sum"])
def test_operand_is_refused_when_it_is_left_out_before_others(op_type: str) -> None:
    """Kernels read operands that are not there."""
    attributes: dict[str, Any] = {"axis": 0} if op_type == "Concat" else {}
    proto = model([node(op_type, ["x", "", "x"], **attributes)], outputs=[value("y", FLOAT, None)])
    refused(proto, f"{op_type} 'culprit' lacks the required operand", run=True)
    refused(proto, f"{op_type} 'culprit' lacks the required operand")


@pytest.mark.parametrize("op_type", ["Expand", "Reshape", "Tile", "ConstantOfShape", "Unsqueeze"])
def test_inference_ends_before_an_operand_of_more_numbers_than_there_are_axes(op_type: str) -> None:
    """It would make a dim for each of them: 2^32 took two minutes, in a file of 136 bytes."""
    inputs = [value("s", INT64, [1 << 17])]
    names = ["s"] if op_type == "ConstantOfShape" else ["x", "s"]
    argument = inputs if op_type == "ConstantOfShape" else [value("x", FLOAT, [1, 3, 1]), *inputs]
    proto = model([node(op_type, names)], argument, [value("y", FLOAT, None)])
    assert not Scan(legality("cpu", runtime())).run(proto)
    refused(proto, "has more numbers than a tensor can have axes", run=True)


def _resize(dims: list[int], **more: list[int | str]) -> onnx.ModelProto:
    names = ["x", *(name if name in more else "" for name in ("roi", "scales", "sizes"))]
    results = [value("x", FLOAT, dims), *(value(n, INT64 if n == "sizes" else FLOAT, d) for n, d in more.items())]
    culprit = node("Resize", names, mode="cubic", coordinate_transformation_mode="tf_crop_and_resize")
    return model([culprit], results, [value("y", FLOAT, None)])


def _pad(length: int, axes: int) -> onnx.ModelProto:
    results = [value("x", FLOAT, [2, 3, 4]), value("pads", INT64, [length]), value("axes", INT64, [axes])]
    return model([node("Pad", ["x", "pads", "", "axes"])], results, [value("y", FLOAT, None)])


def _attention(*shapes: list[int]) -> onnx.ModelProto:
    results = [value(name, FLOAT, dims) for name, dims in zip("qkv", shapes, strict=True)]
    heads: dict[str, Any] = {"q_num_heads": 3, "kv_num_heads": 3} if len(shapes[0]) < 4 else {}
    return model([node("Attention", ["q", "k", "v"], **heads)], results, [value("y", FLOAT, None)], opset=23)


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (_resize([1, 1, 4], roi=[6], scales=[4]), "input 2 has shape [4], but applies to 3 axes"),
        (_resize([1, 1, 4], roi=[6], sizes=[2]), "input 3 has shape [2], but applies to 3 axes"),
        (_resize([1, 1, 4], roi=[5], sizes=[3]), "input 1 has shape [5], but applies to 3 axes"),
        (_resize([1, 1, 4], roi=[6], scales=[3, 1]), "input 2 has shape [3, 1], but applies to 3 axes"),
        (_pad(5, 3), "input 1 has shape [5], but applies to 3 axes"),
        (_pad(6, 2), "input 1 has shape [6], but applies to 2 axes"),
        (_attention([2, 9, 4, 8], [2, 3, 6, 8], [2, 3, 6]), "input 2 has 3 axes, but must have 4"),
        (_attention([2, 4, 24], [2, 6, 24, 5], [2, 6, 30]), "input 1 has 4 axes, but must have 3"),
        (_attention([2, 3, 4, 8], [2, 0, 6, 8], [2, 3, 6, 8]), "keys and values have no heads"),
        (
            _attention([1, 3, 4, 8], [1, 3, 6, 8], [0, 3, 6, 8]),
            "queries, keys and values have different batch sizes: 0, 1",
        ),
        (_attention([4, 24], [6, 24], [6, 24]), "input 0 has 2 axes, but must have 3 or 4"),
    ],
)
def test_operands_are_refused_when_their_axes_are_not_those_of_the_first(proto: onnx.ModelProto, words: str) -> None:
    refused(proto, "'culprit'", words)


def test_resize_takes_scales_whose_number_no_type_tells() -> None:
    proto = _resize([1, 1, 4], roi=["r"], scales=["s"])
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    scales = np.array([1, 1, 2], np.float32)
    (got,) = gc.InferenceSession().load(gc.Graph.load(proto))(
        np.arange(4.0).reshape(1, 1, 4), np.array([0, 0, 0, 1, 1, 1], np.float32), scales
    )
    assert got.shape == (1, 1, 8)
    assert (got[0, 0, 0], got[0, 0, -1]) == (0, 3)


def test_convolution_of_integers_makes_no_constant_as_long_as_its_padding() -> None:
    """It made one of 16 GiB, out of a file of 250 bytes."""
    constants = [
        helper.make_tensor("w", TensorProto.UINT8, [2, 1, 2, 2], [1] * 8),
        helper.make_tensor("wz", TensorProto.UINT8, [2], [1, 2]),
        helper.make_tensor("xz", TensorProto.UINT8, [], [1]),
    ]
    for padding in ((1 << 21) + 3, (1 << 31) - 1):
        culprit = node("ConvInteger", ["x", "w", "xz", "wz"], pads=[0, 0, padding, 0])
        proto = model(
            [culprit], [value("x", TensorProto.UINT8, [1, 1, 3, 3])], [value("y", TensorProto.INT32, None)], constants
        )
        tracemalloc.start()
        try:
            gc.Graph.load(proto).to_onnx()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1 << 24
