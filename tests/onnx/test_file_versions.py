"""Files at an opset, in a version of the file format and for a release, and by default the oldest that will do."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import compose
from onnx.reference import ReferenceEvaluator

import graphcore as gc
from graphcore import Buffer, DType, Graph, Symbol, TensorType, ops
from graphcore.checkpoints import load_tensors
from graphcore.errors import GraphError
from graphcore.models import minilm
from graphcore.onnx import notes
from graphcore.onnx.notes import OPSET
from graphcore.onnx.versions.downgrade import ML_ROWS, ROWS
from graphcore.onnx.versions.table import (
    CHANGES,
    IR_OF_DTYPE,
    IR_OF_OPSET,
    MORE_DTYPES,
    MORE_OPTIONS,
    OLDEST_OPSET,
    OTHER_WORDS,
)
from graphcore.runtime.lowering.file_versions import DEPLOYED
from graphcore.runtime.lowering.targets.releases import ordered, table_of

D = DType
Array = np.ndarray[Any, Any]
OPSETS = range(OLDEST_OPSET, OPSET + 1)
X = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)


def opset_of(model: onnx.ModelProto) -> int:
    (version,) = (int(entry.version) for entry in model.opset_import if not entry.domain)
    return version


def run(model: onnx.ModelProto, **feeds: Array) -> list[Array]:
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    result: list[Array] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    return result


def unary(call: Callable[[Symbol], Any], dtype: DType = D.float32, shape: Any = (2, 3, 4, 6)) -> Graph:
    graph = Graph("one", {"x": TensorType(dtype, shape)})
    result = call(graph["x"])
    graph.output(**{f"y{i}": s for i, s in enumerate(result if isinstance(result, (tuple, list)) else (result,))})
    return graph


# The tables

WINDOWS = {"AveragePool@22", "LpPool@22", "MaxPool@22"}
"""Versions whose text speaks of dtypes alone, and whose shapes with ceil_mode are others."""


def test_every_version_that_brought_more_than_dtypes_has_a_row() -> None:
    changed = [f"{op}@{v}" for op, versions in CHANGES[""].items() for v in versions]
    listed = [*changed, *MORE_OPTIONS.split(), *OTHER_WORDS.split()]
    recent = {key for key in listed if ":" not in key and OLDEST_OPSET < int(key.partition("@")[2]) <= OPSET}
    rows = {f"{op}@{version}" for op, versions in ROWS.items() for version in versions}
    assert rows - WINDOWS == recent
    assert rows & set(MORE_DTYPES.split()) == WINDOWS
    assert [*ML_ROWS] == ["LabelEncoder"]
    assert "ai.onnx.ml:LabelEncoder@4" in MORE_OPTIONS


def test_versions_of_the_format_are_those_that_onnx_pairs_with_opsets() -> None:
    pairs = {opset: onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)]) for opset in IR_OF_OPSET}
    assert pairs == IR_OF_OPSET
    assert max(IR_OF_DTYPE.values()) <= max(IR_OF_OPSET.values())


@pytest.mark.parametrize(
    ("text", "version", "opset", "ir"),
    [
        ("1.20", "1.20.1", 21, 10),
        ("1.20.1", "1.20.1", 21, 10),
        ("1.20.0", "1.20.0", 21, 10),
        ("1.21", "1.21", 21, 10),
        ("1.22", "1.22.0", 22, 10),
        ("1.24", "1.24.4", 25, 13),
        ("1.30.7", "1.30.7", 26, 13),
        ("99.0", "99.0", 26, 13),
    ],
)
def test_release_is_the_measured_one_of_its_name_or_has_the_table_of_the_next_older(
    text: str, version: str, opset: int, ir: int
) -> None:
    result = table_of("cpu").named(text)
    assert result is not None
    assert (result.version, result.opset, result.ir) == (version, opset, ir)


# What is written where nothing is asked for


@pytest.mark.parametrize(
    ("call", "dtype", "opset"),
    [
        (lambda x: ops.softmax(x + 1, axis=-1), D.float32, 17),
        (lambda x: ops.onnx.ReduceMean(x, np.array([1])), D.float32, 17),
        (lambda x: ops.transpose(x, [3, 0, 1, 2]), D.float32, 17),
        (lambda x: ops.onnx.Gelu(x), D.float32, 20),
        (lambda x: ops.where(x > 0, x, -x), D.float32, 17),
        (lambda x: x & 3, D.int32, 18),
        (lambda x: x.cast(D.float8_e4m3fn).cast(D.float32), D.float32, 19),
        (lambda x: ops.rms_norm(x, np.ones(6, np.float32), 1e-5), D.float32, 17),
        (lambda x: ops.silu(x), D.float32, 17),
        (lambda x: ops.cumprod(x, axis=1), D.float32, 26),
    ],
    ids=["softmax", "mean", "transpose", "gelu", "where", "and", "float8", "rms_norm", "silu", "cumprod"],
)
def test_file_has_the_oldest_opset_in_which_its_operators_mean_the_same(call: Any, dtype: DType, opset: int) -> None:
    graph = unary(call, dtype)
    model = graph.to_onnx()
    assert opset_of(model) == opset
    assert model.ir_version == IR_OF_OPSET[opset]
    x = (X * 9).astype(dtype.numpy)
    np.testing.assert_allclose(run(model, x=x)[0], gc.InferenceSession().load(graph)(x)[0], rtol=1e-5, atol=1e-6)


def test_file_that_looks_at_the_bits_of_floats_has_the_operator_for_it() -> None:
    model = unary(lambda x: ops.top_k(x, 2)[0]).to_onnx()
    assert opset_of(model) == 26
    assert "BitCast" in {node.op_type for node in model.graph.node}
    older = unary(lambda x: ops.top_k(x, 2)[0]).to_onnx(opset=DEPLOYED)
    assert np.array_equal(run(older, x=X)[0], run(model, x=X)[0])


def test_file_of_a_sentence_encoder_runs_on_what_is_deployed() -> None:
    weights = load_tensors(os.path.join(minilm.folder(), "model.safetensors"))
    model = minilm.build(weights).to_onnx()
    assert opset_of(model) <= 21
    assert model.ir_version <= 10


def test_dtypes_of_inputs_ask_for_the_version_of_the_format_that_brought_them() -> None:
    graph = Graph("g", {"x": TensorType(D.int2, ["n"])})
    graph.output(y=graph["x"])
    assert graph.to_onnx(target="onnx").ir_version == 13
    with pytest.raises(GraphError, match="int2 needs version 13 of the file format, and the file is of version 10"):
        graph.to_onnx(target="onnx", ir_version=10)


def test_bodies_and_functions_count() -> None:
    @gc.function
    def scaled(x: Symbol) -> Symbol:
        return ops.onnx.Gelu(x)

    graph = Graph("g", {"x": TensorType(D.float32, ["n"]), "c": TensorType(D.bool)})
    x, c = graph.inputs
    graph.output(y=ops.cond(c, lambda: x * 2, lambda: ops.onnx.ReduceMax(x, np.array([0]), keepdims=1) + x))
    model = graph.to_onnx(target="onnx")
    assert opset_of(model) == 17
    feeds = np.array([1, 2, 3], np.float32)
    assert run(model, x=feeds, c=np.array(False))[0].tolist() == [4, 5, 6]
    calling = Graph("calling", {"x": TensorType(D.float32, ["n"])})
    calling.output(y=scaled(calling["x"]))
    model = calling.to_onnx(target="onnx")
    assert (opset_of(model), len(model.functions)) == (20, 1)
    assert [entry.version for entry in model.functions[0].opset_import] == [20]
    older = calling.to_onnx(opset=17)
    np.testing.assert_allclose(run(older, x=feeds)[0], run(model, x=feeds)[0], rtol=1e-6)


# Steps back


def _pads(x: Symbol) -> Symbol:
    return ops.onnx.Pad(x, np.array([1, 2]), None, np.array([-1]))


STEPS: dict[str, tuple[Callable[[Symbol], Any], int, DType]] = {
    "AveragePool": (lambda x: ops.onnx.AveragePool(x, kernel_shape=[2, 2], dilations=[1, 1]), 17, D.float32),
    "AveragePool dilated": (lambda x: ops.onnx.AveragePool(x, kernel_shape=[2, 2], dilations=[2, 2]), 19, D.float32),
    "DFT": (lambda x: ops.onnx.DFT(x[..., :2], axis=np.array(1)), 17, D.float32),
    "DFT default": (lambda x: ops.onnx.DFT(x[..., :2]), 17, D.float32),
    "GridSample": (lambda x: ops.onnx.GridSample(x, ops.tanh(x[:, :, :, :2]), mode="cubic"), 17, D.float32),
    "LpPool": (lambda x: ops.onnx.LpPool(x, kernel_shape=[2, 2]), 17, D.float32),
    "MaxPool to the end": (
        lambda x: ops.onnx.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        17,
        D.float32,
    ),
    "MaxPool without the last window": (
        lambda x: ops.onnx.MaxPool(x, kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1),
        17,
        D.float32,
    ),
    "Pad": (_pads, 17, D.float32),
    "Pad wrapped": (lambda x: ops.onnx.Pad(x, np.array([0, 0, 1, 0, 0, 0, 0, 1]), mode="wrap"), 19, D.float32),
    "ReduceL1": (lambda x: ops.onnx.ReduceL1(x, np.array([1, -1])), 17, D.float32),
    "ReduceMax of all": (lambda x: ops.onnx.ReduceMax(x, keepdims=0), 17, D.float32),
    "Resize": (lambda x: ops.onnx.Resize(x, None, np.array([2, 0.5], np.float32), axes=[2, 3]), 17, D.float32),
    "Resize to sizes": (lambda x: ops.onnx.Resize(x, None, None, np.array([8, 3]), axes=[-2, -1]), 17, D.float32),
    "Resize smoothed": (
        lambda x: ops.onnx.Resize(x, None, np.array([1, 1, 1, 0.5], np.float32), mode="linear", antialias=1),
        18,
        D.float32,
    ),
    "ScatterElements": (
        lambda x: ops.onnx.ScatterElements(x, np.zeros((1, 1, 1, 2), np.int64), x[:1, :1, :1, :2], reduction="add"),
        17,
        D.float32,
    ),
    "ScatterElements max": (
        lambda x: ops.onnx.ScatterElements(x, np.zeros((1, 1, 1, 2), np.int64), x[:1, :1, :1, :2], reduction="max"),
        18,
        D.float32,
    ),
    "ScatterElements min": (
        lambda x: ops.onnx.ScatterElements(x, np.zeros((1, 1, 1, 2), np.int64), x[:1, :1, :1, :2], reduction="min"),
        18,
        D.float32,
    ),
    "ScatterND": (lambda x: ops.onnx.ScatterND(x, np.array([[0], [0]]), x, reduction="mul"), 17, D.float32),
    "ScatterND max": (lambda x: ops.onnx.ScatterND(x, np.array([[0], [0]]), x, reduction="max"), 18, D.float32),
    "ScatterND min": (lambda x: ops.onnx.ScatterND(x, np.array([[0], [0]]), x, reduction="min"), 18, D.float32),
    "Split": (lambda x: ops.onnx.Split(x, axis=1, num_outputs=2, outputs=2), 17, D.float32),
    "Split evenly": (lambda x: ops.onnx.Split(x, axis=3, num_outputs=3, outputs=3), 17, D.float32),
    "QuantizeLinear": (
        lambda x: ops.onnx.QuantizeLinear(x, np.array(0.1, np.float32), output_dtype=onnx.TensorProto.INT8),
        17,
        D.float32,
    ),
    "GroupNormalization": (
        lambda x: ops.onnx.GroupNormalization(x, np.ones(3, np.float32), np.ones(3, np.float32), num_groups=3),
        21,
        D.float32,
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_node_is_written_without_the_versions_that_it_does_not_need(name: str) -> None:
    call, opset, dtype = STEPS[name]
    graph = unary(call, dtype)
    model = graph.to_onnx(target="onnx")
    assert opset_of(model) == opset
    feeds = X.astype(dtype.numpy)
    want = run(graph.to_onnx(target="onnx", opset=OPSET), x=feeds)
    again = gc.InferenceSession().load(Graph.load(model))(feeds)
    for got in (run(model, x=feeds), again):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


POOLS: dict[str, tuple[dict[str, Any], int]] = {
    "alike": ({"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 17),
    "without the last": ({"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1}, 17),
    "one of both axes": ({"kernel_shape": [2, 2], "strides": [2, 3], "pads": [0, 0, 1, 1], "ceil_mode": 1}, 17),
    "beyond the kernel": (
        {"kernel_shape": [2, 1], "strides": [3, 2], "dilations": [3, 1], "pads": [1, 0, 1, 0], "ceil_mode": 1}, 22
    ),
}  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_of_a_named_batch_are_written_for_older_opsets(op: str, name: str) -> None:
    message, opset = POOLS[name]
    message = {**message, "kernel_shape": [*message["kernel_shape"]]}
    if op != "MaxPool":
        message.pop("dilations", None)
    graph = Graph("g", {"x": TensorType(D.float32, ["batch", 2, 7, 8])})
    graph.output(y=getattr(ops.onnx, op)(graph["x"], **message))
    x = np.arange(3 * 2 * 7 * 8, dtype=np.float32).reshape(3, 2, 7, 8) % 23 + 1
    want = pooled(x, {"MaxPool": np.max, "AveragePool": np.mean, "LpPool": np.linalg.norm}[op], **message)
    model = graph.to_onnx(target="onnx")
    if op == "MaxPool":
        assert opset_of(model) == opset
    np.testing.assert_allclose(run(model, x=x)[0], want, rtol=1e-6)


def pooled(
    x: Any, of: Any, kernel_shape: Any, strides: Any, ceil_mode: int, pads: Any = (0,) * 4, dilations: Any = (1, 1)
) -> Any:
    """Return each window's elements of the image put together, of the windows that begin before its end."""
    places = []
    for axis, (size, step, gap) in enumerate(zip(kernel_shape, strides, dilations, strict=True)):
        there, first, last = x.shape[axis + 2], pads[axis], pads[axis + 2]
        count = -(-(there + first + last - (size - 1) * gap - 1) // step) + 1
        starts = [s for s in (i * step - first for i in range(count)) if s < there]
        places.append([[p for p in range(s, s + size * gap, gap) if 0 <= p < there] for s in starts])
    rows, columns = places
    return np.array([[[[of(c[np.ix_(r, k)]) for k in columns] for r in rows] for c in image] for image in x])


def test_split_of_unknown_size_has_sizes_that_are_computed() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n", 2])})
    graph.output(**{f"y{i}": s for i, s in enumerate(ops.onnx.Split(graph["x"], axis=0, num_outputs=3, outputs=3))})
    model = graph.to_onnx(target="onnx")
    assert opset_of(model) == 17
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    assert [part.tolist() for part in run(model, x=x)] == [x[:3].tolist(), x[3:6].tolist(), x[6:].tolist()]


# Every opset


MADE: dict[str, tuple[Callable[[Symbol], Any], DType]] = {
    "arithmetic": (lambda x: (x + 1) * x / 3 - ops.max(x, axis=1, keepdims=True), D.float32),
    "integers": (lambda x: ((x // 3) ^ (x >> 1), x % 5, x & -2, ~x, x | 8), D.int64),
    "unsigned": (lambda x: (x // 3, x > 7, ops.max(x, axis=0), (x >> 3) ^ x), D.uint64),
    "halves": (lambda x: (ops.softmax(x, axis=-1), ops.gelu(x), x // 0.5), D.float16),
    "norms": (
        lambda x: (
            ops.layer_norm(x, np.ones(6, np.float32), np.zeros(6, np.float32), 1e-5),
            ops.rms_norm(x, np.ones(6, np.float32), 1e-5),
            ops.group_norm(x, np.ones(3, np.float32), np.zeros(3, np.float32), 3, 1e-5),
        ),
        D.float32,
    ),
    "activations": (lambda x: (ops.silu(x), ops.gelu(x), ops.onnx.Mish(x), ops.onnx.HardSwish(x)), D.float32),
    "attention": (lambda x: ops.scaled_dot_product_attention(x, x, x), D.float32),
    "order": (lambda x: (ops.sort(x, axis=-1), ops.argmax(x, axis=1), ops.where(x > 0, x, -x)), D.float32),
    "running": (lambda x: (ops.cumsum(x, axis=1), ops.cumprod(x, axis=1)), D.float32),
    "casts": (lambda x: (x.cast(D.int8), x.cast(D.bfloat16).cast(D.float32), x.cast(D.float64)), D.float32),
}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", MADE)
def test_numbers_are_the_same_at_every_opset(name: str, opset: int) -> None:
    call, dtype = MADE[name]
    graph = unary(call, dtype)
    x = np.abs(X * 50).astype(dtype.numpy) if dtype.is_unsigned else (X * 5).astype(dtype.numpy)
    want = gc.InferenceSession().load(graph)(x)
    model = graph.to_onnx(opset=opset)
    assert opset_of(model) == opset
    assert model.ir_version == IR_OF_OPSET[opset]
    for got in (run(model, x=x), gc.InferenceSession().load(Graph.load(model))(x)):
        for one, other in zip(got, want, strict=True):
            if one.dtype.kind in "biu":
                assert np.array_equal(one, other)
            else:
                np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("opset", OPSETS)
def test_operators_that_came_late_are_taken_apart_in_standard_onnx(opset: int) -> None:
    graph = unary(
        lambda x: (
            ops.onnx.Gelu(x),
            ops.onnx.Mish(x),
            ops.onnx.RMSNormalization(x, np.ones(6, np.float32)),
            ops.onnx.Swish(x),
            ops.onnx.GroupNormalization(x, np.ones(3, np.float32), np.ones(3, np.float32), num_groups=3),
            ops.onnx.BitCast(x.cast(D.int32), to=onnx.TensorProto.UINT32),
        )
    )
    model = graph.to_onnx(target="onnx", opset=opset)
    assert opset_of(model) == opset
    want = gc.InferenceSession().load(graph)(X)
    onnx.checker.check_model(model, full_check=True)
    assert ("Swish" in {node.op_type for node in model.graph.node}) == (opset >= 24)
    for one, other in zip(gc.InferenceSession().load(Graph.load(model))(X), want, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    if opset < 24:  # onnxruntime has no kernel of Swish after opset 24
        for one, other in zip(run(model, x=X), want, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("release", ["1.20", "1.22.0", "1.24", "1.32"])
def test_file_for_a_release_is_of_what_that_release_takes(release: str) -> None:
    taken = table_of("cpu").named(release)
    assert taken is not None
    for name, (call, dtype) in MADE.items():
        graph = unary(call, dtype)
        model = graph.to_onnx(runtime=release)
        assert opset_of(model) <= taken.opset, name
        assert model.ir_version <= taken.ir, name
        onnx.checker.check_model(model, full_check=True)


@pytest.mark.releases
@pytest.mark.parametrize("release", ["1.20", "1.22", "1.24", "1.27", None])
def test_file_for_an_older_release_adds_integers_exactly_on_newer_ones(release: str | None) -> None:
    x = np.array([(1 << 63) - 8, 1, -(1 << 62)])
    for dtype, numbers in ((D.int64, x), (D.int32, x >> 32)):
        graph = unary(lambda x: (ops.sum(x, axis=0), ops.sum(x * x, axis=0)), dtype, (3,))
        changed = numbers.astype(dtype.numpy)
        total, squares = run(graph.to_onnx(runtime=release), x=changed)
        assert int(total) == changed.sum(dtype=dtype.numpy)
        assert int(squares) == (changed * changed).sum(dtype=dtype.numpy)


def test_opset_and_version_of_the_format_win_within_what_a_release_takes() -> None:
    graph = unary(lambda x: x + 1)
    model = graph.to_onnx(runtime="1.22", opset=19, ir_version=8)
    assert (opset_of(model), model.ir_version) == (19, 8)


@pytest.mark.parametrize(("opset", "ir"), [(27, 13), (28, 14)])
@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_newest_opsets_are_written(target: Any, opset: int, ir: int) -> None:
    graph = unary(lambda x: (ops.softmax(x), x.cast("int32") << 2, x % 2, x // 2, ops.celu(x), ops.unique(x)[0]))
    model = graph.to_onnx(target=target, opset=opset, runtime="1.32" if target == "cpu" else None)
    assert (opset_of(model), model.ir_version) == (opset, ir)
    session = gc.InferenceSession()
    for got, want in zip(session.load(model)(X), session.load(graph)(X), strict=True):
        np.testing.assert_array_equal(got, want)
    if ordered(onnxruntime.__version__) >= ordered("1.32"):
        for got, want in zip(run(model, x=X), session.load(graph)(X), strict=True):
            np.testing.assert_allclose(got, want, 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", [D.float6_e2m3fn, D.float6_e3m2fn])
def test_floats_of_six_bits_are_stored_as_such_from_opset_28_on(dtype: DType) -> None:
    graph = Graph("six", {"x": TensorType(dtype, [3])})
    values = np.resize(np.array([0.5, 3, -2.5], np.float32), (3, 1000))
    weight = graph.weight("w", values.astype(dtype.numpy))
    graph.output(y=graph["x"].cast("float32") @ weight.cast("float32"), z=graph["x"][::-1])
    model = graph.to_onnx(target="onnx", opset=28)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 14
    assert [i.type.tensor_type.elem_type for i in (*model.graph.input, model.graph.output[1])] == [dtype.onnx] * 2
    assert [i.data_type for i in model.graph.initializer if i.name == "w"] == [dtype.onnx]
    x = np.array([1, 0.25, -4], np.float32)
    y, z = gc.InferenceSession().load(model)(x.astype(dtype.numpy))
    np.testing.assert_array_equal(y, x @ values)
    assert z.dtype == dtype.numpy
    assert z.astype(np.float32).tolist() == [-4, 0.25, 1]
    want, _ = ReferenceEvaluator(model).run(None, {"x": x.astype(dtype.numpy)})
    np.testing.assert_array_equal(y, want)


# What cannot be written


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        ({"opset": 16}, "opset must be 17 to 28, got 16"),
        ({"opset": 29}, "opset must be 17 to 28, got 29"),
        ({"opset": "21"}, "opset must be 17 to 28, got '21'"),
        ({"opset": True}, "opset must be 17 to 28, got True"),
        ({"opset": 27}, "some supported release of onnxruntime takes opset 26 at most, not 27"),
        ({"runtime": "1.31", "opset": 28}, "onnxruntime 1.31.1 takes opset 26 at most, not 28"),
        ({"ir_version": 7}, "ir_version must be 8 to 14, got 7"),
        ({"ir_version": 15}, "ir_version must be 8 to 14, got 15"),
        ({"ir_version": 14}, "some supported release of onnxruntime takes version 13 of the file format at most"),
        ({"runtime": "1.19"}, "unknown release '1.19' of onnxruntime"),
        ({"runtime": "new"}, "unknown release 'new'"),
        ({"runtime": 1.2}, "unknown release 1.2"),
        ({"runtime": "1.20", "opset": 22}, "onnxruntime 1.20.1 takes opset 21 at most, not 22"),
        (
            {"runtime": "1.22", "ir_version": 11},
            "onnxruntime 1.22.0 takes version 10 of the file format at most, not 11",
        ),
    ],
    ids=str,
)
def test_what_no_table_knows_is_an_error(requested: dict[str, Any], text: str) -> None:
    with pytest.raises(GraphError) as raised:
        unary(lambda x: x + 1).to_onnx(**requested)
    assert text in raised.value.summary
    assert raised.value.help


def test_error_names_the_node_its_line_and_the_lowest_opset() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, [2, 3])})
    graph.output(y=ops.onnx.Pad(graph["x"], np.array([0, 1, 0, 1]), mode="wrap"))  # this line
    for target in ("onnx", "cpu"):
        with pytest.raises(GraphError) as raised:
            graph.to_onnx(target=target, opset=18)
        assert "Pad" in raised.value.summary
        assert "opset 19 is the lowest at which it can be written" in raised.value.summary
        assert "this line" in str(raised.value)
        again = pickle.loads(pickle.dumps(raised.value))
        assert str(again) == str(raised.value)


def test_error_of_lowering_names_the_lowest_opset() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, [1, 4, 4])})
    graph.output(y=ops.onnx.Col2Im(graph["x"], np.array([4, 4]), np.array([2, 2]), strides=[2, 2]))  # this line
    with pytest.raises(GraphError) as raised:
        graph.to_onnx(opset=17)
    assert raised.value.summary.startswith("export: Col2Im: ")
    assert raised.value.summary.endswith("at opset 17: opset 18 is the lowest at which it can be written")
    assert "this line" in str(raised.value)


# Notes


def test_merged_files_keep_the_notes_of_both() -> None:
    first = Graph(
        "a", {"x": TensorType(D.tf32, ["n", 4]), "i": TensorType(D.index, ["n"]), "c": Buffer(D.float32, [4])}
    )
    first["c"] += first["x"].cast(D.float32).sum(axis=0)
    first.output(y=first["x"] * 2, j=first["i"] + 1)
    second = Graph(
        "b",
        {
            "u": TensorType(D.float32, ["n", 4]),
            "k": TensorType(D.uint64, ["n"]),
            "x": TensorType(D.float32, [4]),
            "d": Buffer(D.float64, [2], initial=3.0),
        },
        promotion="anvil",
    )
    second["d"] = second["d"] + 1
    second.output(z=second["u"] + second["x"], last=second["k"] * 2)
    models = first.to_onnx(opset=21), second.to_onnx(opset=21)
    merged = compose.merge_models(*models, io_map=[("y", "u"), ("j", "k")], prefix2="p/")
    onnx.checker.check_model(merged, full_check=True)
    graph = Graph.load(merged)
    assert [(s.name, str(s.type)) for s in graph.inputs] == [
        ("x", "tensor_float32[n, 4]"),
        ("i", "index[n]"),
        ("c", "float32[4]"),
        ("p/x", "float32[4]"),
        ("p/d", "float64[2]"),
    ]
    assert [*graph.buffers] == ["c", "p/d"]
    model = gc.InferenceSession().load(merged)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    z, last = model(x, np.array([1, 2], np.uint64), np.ones(4, np.float32))
    assert z.tolist() == (x * 2 + 1).tolist()
    assert last.tolist() == [4, 6]
    assert model.buffers["c"].tolist() == x.sum(axis=0).tolist()
    assert model.buffers["p/d"].tolist() == [4, 4]


def test_notes_of_one_kind_are_brought_together() -> None:
    both = {**notes.entries({notes.PROMOTION: "max", notes.TARGET: "cpu", "author": "a"})}
    both |= notes.entries({notes.PROMOTION: "anvil", notes.TARGET: "onnx", "graphcore.quantized": "int4"})
    both |= notes.entries({notes.DTYPES: '{"x": "index"}', "graphcore.quantized": "int8"})
    both |= notes.entries({notes.DTYPES: '{"y": "tf32"}'}) | {f"{notes.DTYPES}#0": "no mapping"}
    assert notes.read(both) == {
        notes.PROMOTION: "max",
        notes.TARGET: "cpu",
        "author": "a",
        "graphcore.quantized": "int4, int8",
        notes.DTYPES: '{"y": "tf32", "x": "index"}',
    }


@pytest.mark.parametrize(
    "text", ["", "[", "5", "null", '{"output": "b_out"}', '{"name": 3}', '{"name": "b", "output": 3}']
)
def test_note_of_a_value_that_makes_no_sense_is_passed_over(text: str) -> None:
    graph = Graph("g", {"b": Buffer(D.float32, [2])})
    graph["b"] += 1
    graph.output(y=graph["b"] * 2)
    model = graph.to_onnx()
    noted = next(p for p in model.graph.input[0].metadata_props if p.key == notes.VALUE_BUFFER)
    noted.value = text
    assert not Graph.load(model).buffers


@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_files_of_before_keep_their_dtypes_and_buffers(target: Any) -> None:
    graph = Graph("g", {"x": TensorType(D.tf32, [2]), "b": Buffer(D.index, [2])}, promotion="array_api")
    graph["b"] = graph["b"] + 1
    graph.output(y=graph["x"])
    model = graph.to_onnx(target=target)
    for value in (*model.graph.input, *model.graph.output):
        value.ClearField("metadata_props")
    for entry in model.metadata_props:
        entry.key = entry.key.partition("#")[0]
    again = Graph.load(model)
    assert again.promotion is graph.promotion
    assert [s.dtype for s in again.inputs] == [D.tf32, D.index]
    assert [*again.buffers] == ["b"]
