"""Large weights inside of exported files are aligned, so that sessions use them where the file is mapped."""

from __future__ import annotations

import mmap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore.ir.symbol import Constant
from graphcore.onnx.proto.value_protos import split
from graphcore.runtime.ort import memory
from graphcore.runtime.sessions.direct import scan, start


def chain(count: int, name: str = "graph", width: int = 64) -> gc.Graph:
    """Return a graph of products with large and small weights, whose names have different lengths."""
    random = np.random.default_rng(count)
    graph = gc.Graph(name, {"x": gc.TensorType("float32", ["n", width])})
    x = graph["x"]
    for i in range(count):
        x = x @ graph.weight(f"w{'_' * (i % 7)}{i}", random.standard_normal((width, width)).astype(np.float32))
        x = x + graph.weight(f"b{i}", random.standard_normal(i % 5 + 1 if i % 5 == 0 else width).astype(np.float32))
    graph.output(y=x)
    return graph


def offsets(content: bytes) -> list[int]:
    """Return the places of the contents of large weights in a file."""
    start = np.frombuffer(content, np.uint8).ctypes.data
    return [np.frombuffer(each, np.uint8).ctypes.data - start for each in split(memoryview(content))[1].contents]


@pytest.mark.parametrize("count", [1, 2, 7, 40])
@pytest.mark.parametrize("name", ["g", "graph" * 40])
def test_contents_begin_at_multiples_of_64(count: int, name: str, tmp_path: Path) -> None:
    graph = chain(count, name)
    graph.export(tmp_path / "model.onnx")
    content = (tmp_path / "model.onnx").read_bytes()
    assert len(offsets(content)) == count
    assert {place % 64 for place in offsets(content)} == {0}
    model = onnx.ModelProto.FromString(content)
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.name == name
    assert gc.Graph.load(content).name == name
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    plain = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(plain.run(None, {"x": x})[0], gc.InferenceSession().load(content)(x)[0])


@pytest.mark.parametrize("size", range(4065, 4085))
def test_contents_stay_aligned_where_the_length_of_the_graph_takes_another_byte(size: int, tmp_path: Path) -> None:
    graph = gc.Graph("g", {"x": gc.TensorType("float32", [size])})
    graph.output(y=graph["x"] + graph.weight("w", np.ones(size, np.float32)))
    graph.export(tmp_path / "model.onnx")
    assert [place % 64 for place in offsets((tmp_path / "model.onnx").read_bytes())] == [0]


def test_weights_of_an_exported_file_are_its_mapped_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain(3).export(tmp_path / "model.onnx")
    loaded = gc.Graph.load(tmp_path / "model.onnx")
    large = [s.producer.array for s in loaded.symbols if isinstance(s.producer, Constant) and s.rank == 2]
    assert len(large) == 3
    assert all(isinstance(memory._mapping(array), mmap.mmap) for array in large)
    released: list[int] = []
    real = memory.release
    monkeypatch.setattr(memory, "release", lambda arrays: released.append(real(arrays)))
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    first = gc.InferenceSession().load(loaded, prepack="on")
    assert released[0] >= 2 * 8192  # whole pages of weights of 16,384 bytes
    np.testing.assert_array_equal(first(x)[0], gc.InferenceSession().load(chain(3))(x)[0])


def test_mapped_weights_are_released_while_a_session_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mapping:
        def madvise(self, advice: int) -> None:
            assert advice == mmap.MADV_DONTNEED
            is_released.set()

    own, *mapped = (np.zeros(4096) for _ in range(3))
    is_released, mapping = threading.Event(), Mapping()
    last: list[list[Any]] = []
    monkeypatch.setattr(memory, "_mapping", lambda array: None if array is own else mapping)
    monkeypatch.setattr(memory, "release", lambda arrays: last.append([id(array) for array in arrays]))
    monkeypatch.setattr(memory, "_MIN_RELEASED_BYTES", 2 * own.nbytes)
    with memory.released([own, *mapped]):
        assert is_released.wait(60)
        assert not last
    assert last == [[id(array) for array in mapped]]
    monkeypatch.setattr(memory, "_MIN_RELEASED_BYTES", 2 * own.nbytes + 1)
    monkeypatch.setattr(mapping, "madvise", lambda advice: pytest.fail("small weights"), raising=False)
    with memory.released([own, *mapped]):
        assert "graphcore-release" not in {thread.name for thread in threading.enumerate()}
    assert len(last) == 2


@pytest.mark.parametrize("shift", [0, 1])
def test_third_party_weights_that_a_graph_would_copy_are_left_to_onnxruntime(
    shift: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MAX_COPIED_BYTES", 1024)
    monkeypatch.setattr(start, "_MAX_PARSED_BYTES", 1024)
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (place,) = offsets(model.SerializeToString())
    model.producer_name = "p" * (2 - place % 4 + 4 * ((2 - place % 4) < 1) + shift)  # after a tag and a length
    content = model.SerializeToString()
    assert (offsets(content)[0] % 4 == 0) is (shift == 0)
    (tmp_path / "model.onnx").write_bytes(content)
    loaded = gc.InferenceSession().load(tmp_path / "model.onnx", prepack="on")
    assert loaded._is_direct is (shift == 1)
    x = np.ones((2, 64), np.float32)
    np.testing.assert_allclose(loaded(x)[0], x @ weights, rtol=1e-5, atol=1e-5)
