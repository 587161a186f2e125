"""Models and files: valid ONNX, read back as written, whole or not at all."""

from __future__ import annotations

import json
import math
import os
import stat
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Dim, DType, Graph, OptionalType, SequenceType, TensorType, ops
from graphcore.errors import ExportError, GraphError, ResourceLimitError
from graphcore.ir.graph import TargetName
from graphcore.onnx import notes
from graphcore.onnx.proto import model_proto
from graphcore.runtime import export as export_module

Array = np.ndarray[Any, Any]
D = DType
TARGETS: tuple[TargetName, ...] = ("onnx", "cpu", "cuda")


def small() -> Graph:
    graph = Graph("small", {"x": TensorType(D.float32, ["batch", 4])})
    graph.output(y=graph["x"] * graph.weight("w", np.arange(4, dtype=np.float32)) + 1)
    return graph


def heavy(count: int = 3, rows: int = 1024) -> tuple[Graph, list[Array]]:
    """Some weights of 16 KiB and one too small to be worth a page."""
    graph = Graph("heavy", {"x": TensorType(D.float32, ["batch", 4])})
    arrays = [np.random.default_rng(i).random((rows, 4), np.float32) for i in range(count)]
    y = graph["x"] + graph.weight("bias", np.ones(4, np.float32))
    for i, array in enumerate(arrays):
        y = y + ops.max(graph.weight(f"w{i}", array), axis=0)
    graph.output(y=y)
    return graph, arrays


def session(model: onnx.ModelProto | Path) -> onnxruntime.InferenceSession:
    source = os.fspath(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])


def named(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {t.name: t for t in model.graph.initializer}


# Models


@pytest.mark.parametrize("target", TARGETS)
def test_model_is_valid_and_of_the_oldest_opset_that_has_its_operators(target: TargetName) -> None:
    model = small().to_onnx(target=target)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
    assert (model.graph.name, model.producer_name) == ("small", "graphcore")


@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_mixed_dtypes_are_valid_when_exported(target: TargetName) -> None:
    inputs = {d.name: TensorType(d, ["n"]) for d in (D.bool, D.int8, D.int64, D.float16, D.bfloat16, D.tf32, D.index)}
    graph = Graph("mixed", inputs)
    i8, bf16 = graph["int8"], graph["bfloat16"]
    results = [
        i8 + bf16,
        i8 // 3,
        i8 % bf16,
        graph["tensor_float32"] * i8,
        graph["index"] + 1,
        graph["bool"] & (i8 > 0),
    ]
    graph.output(*results, ops.exp(graph["float16"]), graph["int64"] ** 3, i8 << 1)
    model = graph.to_onnx(target=target)
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.output) == 9


def test_inputs_and_outputs_keep_names_order_and_types() -> None:
    graph = Graph("g", {"b": TensorType(D.int8, [Dim("n") * 2, 3, Dim.dynamic()]), "a": TensorType(D.tf32)})
    graph.output(second=graph["b"] + 1, first=graph["a"] + 1)
    model = graph.to_onnx()
    assert [v.name for v in model.graph.input] == ["b", "a"]
    assert [v.name for v in model.graph.output] == ["second", "first"]
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert (dims[0].dim_param, dims[1].dim_value, dims[2].WhichOneof("value")) == ("2 * n", 3, None)
    assert model.graph.input[1].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert model.graph.input[1].type.tensor_type.HasField("shape")


def test_sequence_and_optional_types_are_written() -> None:
    element = TensorType(D.float32, ["n"])
    graph = Graph("g", {"s": SequenceType(element), "o": OptionalType(element)})
    (joined,) = graph.op("ConcatFromSequence", [graph["s"]], {"axis": 0}, [TensorType(D.float32, [Dim.dynamic()])])
    (there,) = graph.op("OptionalHasElement", [graph["o"]], None, [TensorType(D.bool)])
    graph.output(joined, there)
    model = graph.to_onnx(target="onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert model.graph.input[1].type.optional_type.elem_type.tensor_type.elem_type == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("target", TARGETS[:2])
@pytest.mark.parametrize("dtype", [D.bfloat16, D.int4, D.float8_e5m2, D.float6_e2m3fn, D.float32], ids=str)
def test_optionals_of_newer_dtypes_are_valid_before_opset_28(dtype: DType, target: TargetName) -> None:
    kind = TensorType(dtype, ["n"])
    graph = Graph("g", {"x": kind, "c": TensorType(D.bool, [])})
    present, (absent,) = (
        graph.op("Optional", [graph["x"]], None, [OptionalType(kind)])[0],
        graph.op("Optional", [], {"type": kind}, [OptionalType(kind)]),
    )
    with graph:
        chosen = ops.cond(graph["c"], lambda: present, lambda: absent)
        (there,) = graph.op("OptionalHasElement", [chosen], None, [TensorType(D.bool, [])])
        graph.output(there, *graph.op("OptionalGetElement", [present], None, [kind]))
    model = graph.to_onnx(target=target)
    onnx.checker.check_model(model, full_check=True)
    x = np.array([1, 0, 1]).astype(dtype.numpy)
    for source in (graph, model, Graph.load(model)):
        loaded = gc.InferenceSession().load(source)
        for condition in (True, False):
            has, element = loaded(x, np.array(condition))
            assert bool(has) is condition
            assert element.dtype == x.dtype
            assert element.tobytes() == x.tobytes()


def test_optional_of_a_newer_dtype_cannot_leave_a_file() -> None:
    kind = TensorType(D.bfloat16, ["n"])
    graph = Graph("g", {"x": kind})
    graph.output(y=graph.op("Optional", [graph["x"]], None, [OptionalType(kind)])[0])
    for target in TARGETS:
        with pytest.raises(
            GraphError, match=r"export: y is optional\(bfloat16\[n\]\), and ONNX has no optionals of its"
        ):
            graph.to_onnx(target=target)


def test_layers_and_dtypes_are_in_the_metadata() -> None:
    graph = Graph("g", {"x": TensorType(D.tf32, ["n"]), "i": TensorType(D.index, ["n"])})
    with graph.layer("outer"), graph.layer("inner"):
        y = ops.exp(graph["x"])
    graph.output(y=y, z=graph["i"])
    for target in TARGETS:
        model = graph.to_onnx(target=target)
        layers = {p.value for node in model.graph.node for p in node.metadata_props if p.key == "graphcore.layer"}
        assert layers == {"outer/inner"}
        result = notes.read({p.key: p.value for p in model.metadata_props})
        assert json.loads(result["graphcore.dtypes"]) == {
            "x": "tensor_float32", "i": "index", "y": "tensor_float32", "z": "index",
        }  # fmt: skip
        assert any(n.name.startswith("outer/inner/") for n in model.graph.node) or target == "onnx"


def test_attributes_are_written_as_their_kind() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n"])})
    attributes = {
        "i": 3, "neg": -(2**63), "f": 0.5, "s": "text", "b": b"\x00\xff", "yes": True, "np": np.int64(7),
        "ints": [1, -2], "floats": [1, 0.5], "strings": ["a", "ü"], "to": D.bfloat16, "none": [],
        "t": np.array([[1, 2]], np.int16),
    }  # fmt: skip
    graph.output(*graph.op("Mystery", [graph["x"], None, graph["x"]], attributes, [TensorType(D.int8, [])], domain="d"))
    model = graph.to_onnx(target="onnx")
    (node,) = model.graph.node
    read = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert np.array_equal(onnx.numpy_helper.to_array(read.pop("t")), [[1, 2]])
    assert read == {
        "i": 3, "neg": -(2**63), "f": 0.5, "s": b"text", "b": b"\x00\xff", "yes": 1, "np": 7, "ints": [1, -2],
        "floats": [1.0, 0.5], "strings": [b"a", "ü".encode()], "to": onnx.TensorProto.BFLOAT16, "none": [],
    }  # fmt: skip
    assert list(node.input) == ["x", "", "x"]
    assert node.domain == "d"
    assert ("d", 1) in [(o.domain, o.version) for o in model.opset_import]


def test_machine_learning_domain_has_its_own_version() -> None:
    graph = Graph("g", {"x": TensorType(D.int64, ["n"])})
    attributes = {"keys_int64s": [1, 2], "values_floats": [0.5, 1.5], "default_float": -1.0}
    (result,) = graph.op("LabelEncoder", [graph["x"]], attributes, domain="ai.onnx.ml")
    assert result.type is TensorType(D.float32, ["n"])
    graph.output(y=result)
    model = graph.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    (y,) = session(model).run(None, {"x": np.array([2, 1, 9])})
    assert y.tolist() == [1.5, 0.5, -1.0]


@pytest.mark.parametrize("value", [None, {}, [1, "a"], Ellipsis, 1j], ids=repr)
def test_attribute_is_refused_when_onnx_has_no_such_kind(value: Any) -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n"])})
    graph.output(*graph.op("Mystery", [graph["x"]], {"a": value}, [TensorType(D.float32, [])], domain="d"))
    with pytest.raises(GraphError, match=r"attribute 'a': .* has a type that ONNX attributes cannot have"):
        graph.to_onnx(target="onnx")


ARRAYS: list[tuple[DType, Array]] = [
    (D.bool, np.array([True, False, True])),
    (D.int4, np.array([-8, -1, 0, 7, 3], ml_dtypes.int4)),
    (D.uint4, np.array([[0, 15], [7, 8]], ml_dtypes.uint4)),
    (D.int8, np.array([-128, 127], np.int8)),
    (D.uint64, np.array([2**64 - 1, 0], np.uint64)),
    (D.float8_e4m3fn, np.array([448, -0.0, 0.5], ml_dtypes.float8_e4m3fn)),
    (D.float8_e5m2, np.array([57344, np.inf, 1], ml_dtypes.float8_e5m2)),
    (D.float16, np.array([65504, 1e-7], np.float16)),
    (D.bfloat16, np.array([3.0e38, 1], ml_dtypes.bfloat16)),
    (D.float64, np.array([1e300, np.nan])),
    (D.string, np.array(["a", "größe", ""], object)),
    (D.float32, np.zeros((0, 3), np.float32)),
    (D.float32, np.array(2.5, np.float32)),
]


@pytest.mark.parametrize(("dtype", "array"), ARRAYS, ids=lambda v: str(v) if isinstance(v, DType) else "")
def test_initializer_reads_back_as_written(dtype: DType, array: Array) -> None:
    graph = Graph("g")
    graph.output(y=graph.op("Identity", [graph.weight("w", array)])[0])
    model = graph.to_onnx(target="onnx")
    onnx.checker.check_model(model)
    stored = named(model)["w"]
    assert stored.data_type == dtype.onnx
    back = onnx.numpy_helper.to_array(stored)
    assert back.shape == array.shape
    if dtype is D.string:
        assert [b.decode() if isinstance(b, bytes) else b for b in back.tolist()] == array.tolist()
    else:
        assert back.dtype == array.dtype
        assert back.tobytes() == array.tobytes()


def test_text_of_numpy_reads_back_as_written() -> None:
    graph = Graph("g")
    graph.output(graph.constant(np.array(["ab", "c"])), graph.constant("d"))
    model = graph.to_onnx(target="onnx")
    results = sorted(b for t in model.graph.initializer for b in t.string_data)
    assert results == [b"ab", b"c", b"d"]


def test_unused_constants_are_left_out() -> None:
    graph = small()
    graph.weight("unused", np.zeros(100))
    assert "unused" not in named(graph.to_onnx())


def test_odd_names_run_when_they_clash_with_those_made() -> None:
    graph = Graph("g", {"add_2": TensorType(D.float32, ["n"]), "constant_1": TensorType(D.float32, ["n"])})
    graph.output(graph[0] + 1, graph[1] + graph[0])
    model = graph.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    ones = np.ones(2, np.float32)
    assert [r.tolist() for r in session(model).run(None, {"add_2": ones, "constant_1": ones})] == [[2, 2], [2, 2]]


def test_unfinished_graph_is_not_exported(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n"])})
    with pytest.raises(GraphError, match="graph 'g' has no outputs"):
        graph.export(tmp_path / "g.onnx")
    assert not list(tmp_path.iterdir())


def test_model_is_refused_when_protobuf_could_not_hold_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph, _ = heavy()
    monkeypatch.setattr(model_proto, "LIMIT", 10_000)
    with pytest.raises(
        ResourceLimitError, match=r"the model has \d+ bytes, the limit of a protobuf message is 10000"
    ) as raised:
        graph.to_onnx()
    assert raised.value.help == "use graph.export(path, external_data=True)"
    with pytest.raises(ResourceLimitError, match="the limit of a protobuf message"):
        graph.export(tmp_path / "m.onnx", external_data=False)
    assert not list(tmp_path.iterdir())
    graph.export(tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx").stat().st_size < 10_000


# Files


def test_file_runs_in_plain_onnxruntime(tmp_path: Path) -> None:
    small().export(tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    (y,) = session(tmp_path / "m.onnx").run(None, {"x": np.ones((1, 4), np.float32)})
    assert y.tolist() == [[1, 2, 3, 4]]


def test_file_equals_the_model(tmp_path: Path) -> None:
    graph = small()
    graph.export(str(tmp_path / "m.onnx"), target="onnx")
    assert onnx.load(tmp_path / "m.onnx") == graph.to_onnx(target="onnx")
    graph.export(tmp_path / "again.onnx", target="onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()


def test_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small().export("m.onnx")
    assert (tmp_path / "m.onnx").exists()


def test_external_data_lies_in_pages_of_its_own(tmp_path: Path) -> None:
    graph, arrays = heavy(rows=1000)  # 16,000 bytes, which end within a page
    graph.export(tmp_path / "m.onnx", external_data=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    content = (tmp_path / "m.onnx.data").read_bytes()
    stored = named(model)
    for i, array in enumerate(arrays):
        entries = {e.key: e.value for e in stored[f"w{i}"].external_data}
        assert entries["location"] == "m.onnx.data"
        assert int(entries["offset"]) % 4096 == 0
        assert int(entries["length"]) == array.nbytes
        at = int(entries["offset"])
        assert content[at : at + array.nbytes] == array.tobytes()
    assert not stored["bias"].external_data
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)


def test_external_data_runs_in_plain_onnxruntime(tmp_path: Path) -> None:
    graph, arrays = heavy()
    graph.export(tmp_path / "m.onnx", external_data=True)
    (y,) = session(tmp_path / "m.onnx").run(None, {"x": np.zeros((2, 4), np.float32)})
    want = np.ones(4, np.float32)
    for array in arrays:
        want = want + array.max(axis=0)
    assert (y == want).all()


def test_external_data_is_used_above_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = heavy()
    graph.export(tmp_path / "inside.onnx")
    assert not (tmp_path / "inside.onnx.data").exists()
    monkeypatch.setattr(export_module, "EXTERNAL_ABOVE", 40_000)
    graph.export(tmp_path / "outside.onnx")
    assert (tmp_path / "outside.onnx.data").exists()
    graph.export(tmp_path / "told.onnx", external_data=False)
    assert not (tmp_path / "told.onnx.data").exists()


def test_narrow_weights_lie_outside_as_they_are(tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType(D.int4, [4097])})
    nibbles = np.arange(4097).astype(np.int8).astype(ml_dtypes.int4)
    brain = np.arange(4097).astype(np.float32).astype(ml_dtypes.bfloat16)
    (y,) = graph.op("Identity", [graph.weight("n", nibbles)])
    (z,) = graph.op("Identity", [graph.weight("b", brain)])
    graph.output(y, z)
    graph.export(tmp_path / "m.onnx", target="onnx", external_data=True)
    stored = named(onnx.load(tmp_path / "m.onnx"))
    assert onnx.numpy_helper.to_array(stored["n"]).tobytes() == nibbles.tobytes()
    assert onnx.numpy_helper.to_array(stored["b"]).tobytes() == brain.tobytes()


def test_weights_count_as_they_are_when_exported() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, [2])})
    weight = np.zeros(2, np.float32)
    graph.output(graph["x"] + graph.weight("w", weight))
    weight[:] = 5
    assert onnx.numpy_helper.to_array(named(graph.to_onnx())["w"]).tolist() == [5, 5]


@pytest.mark.parametrize("external", [False, True])
def test_weights_are_written_from_their_own_memory(tmp_path: Path, external: bool) -> None:
    graph, arrays = heavy(3, 1 << 19)
    size = sum(a.nbytes for a in arrays)
    graph.export(tmp_path / "warm.onnx", external_data=external)
    tracemalloc.start()
    try:
        graph.export(tmp_path / "m.onnx", external_data=external)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 20_000_000
    assert peak < size / 20
    assert sum(p.stat().st_size for p in tmp_path.glob("m.onnx*")) > size


# Whole or not at all


@pytest.mark.parametrize("external", [False, True])
def test_nothing_is_left_when_the_folder_does_not_exist(tmp_path: Path, external: bool) -> None:
    with pytest.raises(ExportError, match="cannot be written: No such file or directory") as raised:
        small().export(tmp_path / "none" / "m.onnx", external_data=external)
    assert raised.value.help == "choose a folder that exists and can be written to"
    assert isinstance(raised.value, OSError)
    assert not list(tmp_path.iterdir())


def test_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(ExportError, match="cannot be written: it is a folder"):
        small().export(tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


class FullDisk:
    """A stream that takes a few bytes and then has no room."""

    def __init__(self, handle: int, mode: str) -> None:
        self.stream = open(handle, mode)  # noqa: SIM115 - it is closed by __exit__

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stream.close()

    def write(self, chunk: bytes) -> int:
        if self.stream.tell() > 100:
            raise OSError(28, "No space left on device")
        return self.stream.write(bytes(chunk)[:200])


@pytest.mark.parametrize("external", [False, True])
def test_old_file_is_kept_when_a_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external: bool) -> None:
    graph, _ = heavy()
    graph.export(tmp_path / "m.onnx", external_data=external)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    larger, _ = heavy(5)
    monkeypatch.setattr(os, "fdopen", FullDisk)
    with pytest.raises(ExportError, match=r"m\.onnx cannot be written: No space left on device"):
        larger.export(tmp_path / "m.onnx", external_data=external)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_nothing_is_left_when_the_first_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = heavy()
    monkeypatch.setattr(os, "fdopen", FullDisk)
    with pytest.raises(ExportError):
        graph.export(tmp_path / "m.onnx", external_data=True)
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: str, mode: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "chmod", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small().export(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_mode_of_the_old_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    before = os.umask(0o027)
    try:
        small().export(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        small().export(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.onnx").symlink_to(tmp_path / "real" / "m.onnx")
    small().export(tmp_path / "link.onnx")
    assert (tmp_path / "link.onnx").is_symlink()
    assert (tmp_path / "real" / "m.onnx").is_file()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (1e39, r"1e\+39 is beyond float32"),
        ([0.5, -1e300], r"-1e\+300 is beyond float32"),
        (2.0**128 - 2.0**103, r"3.4028235677973366e\+38 is beyond float32"),
        (1 << 63, "an int of 64 bits is beyond int64"),
        ([1, -(1 << 63) - 1], "an int of 64 bits is beyond int64"),
        (10**5000, "an int of 16610 bits is beyond int64"),
    ],
    ids=lambda value: str(value)[:20] if not isinstance(value, int) else f"{value.bit_length()} bits",
)
def test_number_that_no_attribute_holds_is_refused(value: object, why: str, tmp_path: Path) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2])})
    graph.output(*graph.op("Elu", [graph["x"]], {"alpha": value}, [TensorType(DType.float32, [2])]))
    for write in (graph.to_onnx, lambda: graph.export(tmp_path / "g.onnx"), lambda: gc.InferenceSession().load(graph)):
        with pytest.raises(GraphError, match=f"attribute 'alpha': {why}, the type of the attribute"):
            write()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [2.0**128 - 2.0**104, float(np.finfo(np.float32).max), math.inf, -math.inf, 1e-300])
def test_number_that_an_attribute_holds_is_rounded_as_float32(value: float) -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2])})
    graph.output(*graph.op("Elu", [graph["x"]], {"alpha": value}, [TensorType(DType.float32, [2])]))
    (node,) = graph.to_onnx().graph.node
    assert node.attribute[0].f == np.float32(value)


@pytest.mark.parametrize("external", [True, False])
def test_progress_is_told_the_bytes_that_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, external: bool
) -> None:
    monkeypatch.setattr(export_module, "_PIECE", 1 << 20)
    graph, _ = heavy()
    results: list[tuple[int, int | None]] = []
    graph.export(tmp_path / "m.onnx", external_data=external, progress=lambda done, most: results.append((done, most)))
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert results[-1] == (written, written)
    assert [done for done, _ in results] == sorted(done for done, _ in results)
    assert len(results) > 5
    graph.export(tmp_path / "n.onnx", external_data=external)
    assert (tmp_path / "m.onnx").read_bytes().replace(b"m.onnx", b"n.onnx") == (tmp_path / "n.onnx").read_bytes()
    assert capsys.readouterr().err == ""
    graph.export(tmp_path / "o.onnx", progress=True)
    assert f"{written} bytes, " in capsys.readouterr().err or external


def test_export_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    graph, _ = heavy()

    def interrupt(done: int, most: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        graph.export(tmp_path / "m.onnx", external_data=True, progress=interrupt)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("optimize", ["off", "exact", "all"])
def test_names_of_a_body_are_unlike_each_other_where_an_output_keeps_its_number(optimize: Any) -> None:
    graph = Graph("g", {"a": TensorType("float16", []), "b": TensorType("int32", ["n"])})
    a, b = graph.inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gc.LossyCastWarning)
        graph.output(z=ops.for_loop(2, lambda i, s: b - a, b - a))
    (result,) = gc.InferenceSession(optimize=optimize).load(graph)(np.float16(1), np.array([3, 4], np.int32))
    assert result.tolist() == [2, 3]
