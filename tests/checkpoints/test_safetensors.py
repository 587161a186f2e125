"""Safetensors files, ours read by the format's own package and its files by us; and hostile files."""

from __future__ import annotations

import json
import os
import re
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, ExportError, GraphcoreError, ModelError, ResourceLimitError, UnsafePathError
from tests.sampling import drawn

Array = np.ndarray[Any, Any]

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"),
    *("float64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0", "complex64"),
]


def random(dtype: str, *shape: int) -> Array:
    """Every bit pattern of a dtype may be among them."""
    numpy = DType.of(dtype).numpy
    high = 2 if dtype == "bool" else 256
    raw = np.random.default_rng(len(dtype)).integers(0, high, (*shape, numpy.itemsize), np.uint8)
    return raw.view(numpy).reshape(shape)


def same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def official(path: Path) -> dict[str, dict[str, Any]]:
    """Read a file by the format's own package."""
    return dict(safetensors.deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]


def file_of(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refused(path: Path, *words: str, kind: type[GraphcoreError] = ModelError) -> None:
    with pytest.raises(GraphcoreError) as caught:
        dict(gc.load_tensors(path))
    assert type(caught.value) is kind, caught.value
    assert caught.value.help
    assert len(str(caught.value)) < 2000
    for word in words:
        assert word in str(caught.value)


# Both ways


@pytest.mark.parametrize("dtype", DTYPES)
def test_saved_tensors_are_those_that_the_formats_own_package_reads(tmp_path: Path, dtype: str) -> None:
    arrays = {
        "matrix": random(dtype, 3, 5),
        "scalar": random(dtype),
        "none": random(dtype, 4, 0),
        "ü/1": random(dtype, 7),
    }
    gc.save_tensors(tmp_path / "a.safetensors", arrays)
    read = official(tmp_path / "a.safetensors")
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert tuple(read[name]["shape"]) == array.shape
        assert bytes(read[name]["data"]) == array.tobytes()
    loaded = gc.load_tensors(tmp_path / "a.safetensors")
    assert all(same(loaded[name], array) for name, array in arrays.items())


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_that_the_formats_own_package_saved_are_read(tmp_path: Path, dtype: str) -> None:
    name = "float8_e8m0fnu" if dtype == "float8_e8m0" else dtype
    array, other = random(dtype, 4, 3), random("float32", 2)
    specs = {
        key: safetensors.TensorSpec(dtype=kind, shape=list(item.shape), data_ptr=item.ctypes.data, data_len=item.nbytes)
        for key, kind, item in (("a", name, array), ("b", "float32", other))
    }
    (tmp_path / "a.safetensors").write_bytes(safetensors.serialize(specs, {"format": "pt"}))
    loaded = gc.load_tensors(tmp_path / "a.safetensors")
    assert same(loaded["a"], array)
    assert same(loaded["b"], other)
    assert loaded.metadata == {"format": "pt"}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda name: name != "__metadata__")


@given(
    st.dictionaries(NAMES, st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4)), max_size=6),
    st.dictionaries(NAMES, NAMES, max_size=3),
)
@settings(max_examples=drawn(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tensors_come_back_as_they_were_saved(
    tmp_path: Path, kinds: dict[str, tuple[str, list[int]]], metadata: dict[str, str]
) -> None:
    arrays = {name: random(dtype, *shape) for name, (dtype, shape) in kinds.items()}
    gc.save_tensors(tmp_path / "a.safetensors", arrays, metadata)
    loaded = gc.load_tensors(tmp_path / "a.safetensors")
    assert loaded.keys() == arrays.keys()
    assert loaded.metadata == metadata
    assert all(same(loaded[name], array) and loaded[name].flags.aligned for name, array in arrays.items())
    assert official(tmp_path / "a.safetensors").keys() == arrays.keys()


def test_arrays_of_any_layout_are_saved_as_what_they_hold(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    odd = np.array([0, 1, 2], np.uint8).view(np.bool_)
    arrays = {"t": base.T, "s": base[::2, ::-1], "big": base.astype(">f4"), "odd": odd}
    gc.save_tensors(tmp_path / "a.safetensors", arrays)
    loaded = gc.load_tensors(tmp_path / "a.safetensors")
    assert all(np.array_equal(loaded[name], array) for name, array in arrays.items() if name != "odd")
    assert loaded["odd"].view(np.uint8).tolist() == [0, 1, 1]


def test_mapping_tells_what_is_in_the_file_without_reading_it(tmp_path: Path) -> None:
    gc.save_tensors(tmp_path / "a.safetensors", {"w": random("bfloat16", 2, 3)}, {"license": "none"})
    loaded = gc.load_tensors(tmp_path / "a.safetensors")
    assert (loaded.shape("w"), loaded.encoding("w")) == ((2, 3), "BF16")
    assert "w" in loaded
    assert "v" not in loaded
    assert loaded.get("v") is None
    with pytest.raises(KeyError, match="v"):
        loaded["v"]
    assert repr(loaded) == f"Tensors({os.fspath(tmp_path / 'a.safetensors')!r}, 1 tensors)"


# Memory


def test_weights_are_those_of_the_mapped_file_when_graphs_take_them(tmp_path: Path) -> None:
    arrays = {"w": random("int8", 2048, 4096), "b": np.arange(4, dtype=np.float32)}
    gc.save_tensors(tmp_path / "a.safetensors", arrays)
    tracemalloc.start()
    loaded = gc.load_tensors(tmp_path / "a.safetensors")
    graph = Graph("scale", {"x": TensorType(DType.float32, ["n", 4])})
    weight = graph.weight("w", loaded["w"])
    graph.output(y=graph["x"] * graph.weight("b", loaded["b"]) + ops.cast(weight[0, 0], DType.float32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    for name, symbol in graph.weights.items():
        value = symbol.producer.array  # type: ignore[union-attr]
        assert np.shares_memory(value, loaded[name])
        assert not value.flags.writeable
    (y,) = gc.InferenceSession().load(graph)(np.ones((2, 4), np.float32))
    assert np.array_equal(y, np.ones((2, 4)) * arrays["b"] + np.float32(arrays["w"][0, 0]))


def test_tensors_at_odd_addresses_are_given_aligned(tmp_path: Path) -> None:
    header = {"a": entry("U8", [1], [0, 1]), "b": entry("F32", [2], [1, 9])}
    loaded = gc.load_tensors(file_of(tmp_path / "a.safetensors", header, bytes(9)))
    assert loaded["b"].flags.aligned
    assert loaded["b"].tolist() == [0, 0]


def test_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "howto" / "checkpoints.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["weights"].metadata == {"epoch": "7"}
    assert names["weights"].encoding("w") == "F16"


# Writing


def test_file_is_replaced_whole_when_it_is_saved_again(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    gc.save_tensors(path, {"w": np.zeros(3)})
    path.chmod(0o640)
    before = gc.load_tensors(path)
    gc.save_tensors(path, {name: array + 1 for name, array in before.items()})
    assert gc.load_tensors(path)["w"].tolist() == [1, 1, 1]
    assert before["w"].tolist() == [0, 0, 0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_nothing_is_left_when_saving_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    gc.save_tensors(path, {"w": np.zeros(3)})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExportError, match="No space left"):
        gc.save_tensors(path, {"w": np.ones(3)})
    assert gc.load_tensors(path)["w"].tolist() == [0, 0, 0]
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_mapping_that_changes_while_it_is_saved_is_refused(tmp_path: Path) -> None:
    class Growing(dict[str, Array]):
        def __getitem__(self, name: str) -> Array:
            return np.zeros(4)

    with pytest.raises(ExportError, match="now another array"):
        gc.save_tensors(tmp_path / "a.safetensors", Growing(w=np.zeros(3)))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("tensors", "metadata", "kind", "match"),
    [
        ({"w": [1, 2]}, None, DTypeError, "'w' must be an array, got list"),
        ({"w": np.float32(1)}, None, DTypeError, "must be an array"),
        ({"w": np.zeros(2, ml_dtypes.int4)}, None, DTypeError, "int4, which safetensors files cannot store"),
        ({"w": np.zeros(2, ml_dtypes.float4_e2m1fn)}, None, DTypeError, "float4_e2m1"),
        ({"w": np.zeros(4, ml_dtypes.float6_e2m3fn)}, None, DTypeError, "float6_e2m3fn, which safetensors"),
        ({"w": np.array(["a"], object)}, None, DTypeError, "string"),
        ({"w": np.zeros(2, np.complex128)}, None, DTypeError, "complex128"),
        ({"__metadata__": np.zeros(2)}, None, ExportError, "a tensor cannot be called"),
        ({"\ud800": np.zeros(2)}, None, ExportError, "a tensor cannot be called"),
        ({1: np.zeros(2)}, None, ExportError, "a tensor cannot be called"),
        ({}, {"epoch": 3}, ExportError, "metadata"),
        ({}, {"epoch": "\udcff"}, ExportError, "metadata"),
    ],
)
def test_what_the_format_does_not_hold_is_refused(
    tmp_path: Path, tensors: Any, metadata: Any, kind: type[GraphcoreError], match: str
) -> None:
    with pytest.raises(kind, match=match):
        gc.save_tensors(tmp_path / "a.safetensors", tensors, metadata)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a.gguf", "model.safetensors.index.json", "none/a.safetensors", "."])
def test_path_that_takes_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportError):
        gc.save_tensors(tmp_path / name, {"w": np.zeros(3)})
    assert os.listdir(tmp_path) == []


def test_header_larger_than_is_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcore.checkpoints.safetensors.MAX_HEADER_BYTES", 1000)
    with pytest.raises(ResourceLimitError, match="the header has 10"):
        gc.save_tensors(tmp_path / "a.safetensors", {}, {"text": "a" * 1000})
    assert os.listdir(tmp_path) == []


# Several files


def sharded(folder: Path, places: dict[str, Any], **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for shard in range(2):
        gc.save_tensors(folder / f"model-{shard}.safetensors", {f"w{shard}": np.full(2, shard, np.int16)})
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": places, **more}))
    return path


def test_tensors_of_several_files_are_read_through_their_index(tmp_path: Path) -> None:
    path = sharded(tmp_path, {"w0": "model-0.safetensors", "w1": "model-1.safetensors"})
    loaded = gc.load_tensors(path)
    assert {name: array.tolist() for name, array in loaded.items()} == {"w0": [0, 0], "w1": [1, 1]}
    assert loaded.metadata == {"total_size": 8}


@pytest.mark.parametrize(
    "location",
    ["../secret.safetensors", "/etc/passwd", "", "a//b", "..", "c:x", "link.safetensors", "hard.safetensors"],
)
def test_shard_outside_of_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    home = tmp_path / "home"
    path = sharded(home, {"w": location})
    gc.save_tensors(tmp_path / "secret.safetensors", {"w": np.zeros(2)})
    (home / "link.safetensors").symlink_to(tmp_path / "secret.safetensors")
    (home / "hard.safetensors").hardlink_to(tmp_path / "secret.safetensors")
    refused(path, kind=UnsafePathError)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ({"w0": "none.safetensors"}, "cannot be opened"),
        ({"w0": "model-1.safetensors"}, "is not in 'model-1.safetensors'"),
        ({"w0": 3}, "not a file name"),
        ({"w0": "\ud800"}, "not a file name"),
        ({"w0": "model.safetensors.index.json"}, "the header claims"),
        (["w0"], "no weight_map"),
    ],
)
def test_index_that_lies_is_refused(tmp_path: Path, places: Any, words: str) -> None:
    refused(sharded(tmp_path, places), words)


# Files that mean harm


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ([], "not a JSON object"),
        (b"{oops", "the header is malformed"),
        (b'{"a": NaN}', "NaN is not allowed in JSON"),
        (b"{}\xff", "the header is malformed"),
        ("{}".encode("utf-16"), "not a JSON object"),
        (b' {"x": {}}', "not a JSON object"),
        (b'{"x":' * 100_000, "nested too deeply"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"x": ' + b"9" * 10_000 + b"}", "the header is malformed"),
        (b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "dtype": "I32"}}', "'dtype' occurs twice"),
        (b'{"x": {}, "x": {}}', "'x' occurs twice"),
        ({"\ud800": entry()}, "is not valid text"),
        ({"x": entry(), "__metadata__": {"epoch": 3}}, "must be an object of strings"),
        ({"__metadata__": 3}, "must be an object of strings"),
        ({"x": 3}, "must have dtype, shape and data_offsets"),
        ({"x": {"shape": [2]}}, "must have dtype, shape and data_offsets"),
        ({"x": entry("F31")}, "'F31', which the format does not have"),
        ({"x": entry(["F32"])}, "which the format does not have"),  # type: ignore[arg-type]
        ({"x": entry(shape=[3])}, "lies in the bytes 0 to 8"),
        ({"x": entry(shape=[-2])}, "[-2] is not a shape"),
        ({"x": entry(shape=[-1, -2])}, "is not a shape"),
        ({"x": entry(shape=[2.0])}, "is not a shape"),
        ({"x": entry(shape=[True, 2])}, "is not a shape"),
        ({"x": entry(shape=2)}, "is not a shape"),
        ({"x": entry(shape=[1 << 62, 4])}, "are too large"),
        ({"x": entry(shape=[0, 1 << 62], offsets=[0, 0])}, "are too large"),
        ({"x": entry(shape=[1] * 65 + [2])}, "66 dims"),
        ({"x": entry(offsets=[0, 9])}, "lies in the bytes 0 to 9"),
        ({"x": entry(offsets=[8, 0])}, "lies in the bytes 8 to 0"),
        ({"x": entry(offsets=[-8, 0])}, "lies in the bytes -8 to 0"),
        ({"x": entry(offsets=[0])}, "data_offsets cannot be"),
        ({"x": entry(offsets=[0.0, 8.0])}, "data_offsets cannot be"),
        ({"x": entry(offsets=[4, 12])}, "but the previous one ends at 0"),
        ({"x": entry(), "y": entry()}, "which overlaps another one"),
        ({"x": entry(), "y": entry(offsets=[4, 12])}, "which overlaps another one"),
        ({"x": entry(), "y": entry(offsets=[8, 16])}, "the tensors take 16 bytes, but the file has 8"),
        ({"x": entry(shape=[1], offsets=[0, 4])}, "the tensors take 4 bytes, but the file has 8"),
        ({"x": entry("F4", [16])}, "'x' has dtype F4, which is not supported"),
        ({"x" * 10_000: entry(offsets=[0, 9])}, "lies in the bytes"),
    ],
)
def test_header_that_lies_is_refused(tmp_path: Path, header: Any, words: str) -> None:
    refused(file_of(tmp_path / "a.safetensors", header, bytes(8)), words)


@pytest.mark.parametrize("size", [0, 1, 7, 8])
def test_file_without_a_header_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0"[:size])
    refused(tmp_path / "a.safetensors", "the header claims")


@pytest.mark.parametrize("size", [100, 1 << 31, 1 << 63, (1 << 64) - 1])
def test_header_longer_than_the_file_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.safetensors").write_bytes(size.to_bytes(8, "little") + b"{}")
    refused(tmp_path / "a.safetensors", f"the header claims {size} bytes")


def test_header_beyond_the_limits_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with path.open("wb") as stream:
        stream.write((200 << 20).to_bytes(8, "little") + b"{")
        stream.truncate(201 << 20)  # a hole: it takes no room on the disk
    tracemalloc.start()
    refused(path, "bytes, the limit is 100000000", kind=ResourceLimitError)
    file_of(path, b'{"x": [' + b"[]," * (3 << 20) + b"[]]}")
    refused(path, "more than 2097152 values", kind=ResourceLimitError)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("none"), lambda path: None])
def test_what_is_not_a_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a.safetensors")
    refused(tmp_path / "a.safetensors", ".gguf file")


def small(tmp_path: Path) -> bytes:
    path = tmp_path / "seed.safetensors"
    arrays = {"w": random("float32", 2, 3), "b": random("bool", 5), "h": random("bfloat16", 3)}
    gc.save_tensors(path, arrays, {"format": "np"})
    return path.read_bytes()


def test_file_cut_short_at_every_byte_is_refused(tmp_path: Path) -> None:
    seed = small(tmp_path)
    for size in range(len(seed)):
        (tmp_path / "cut").write_bytes(seed[:size])
        refused(tmp_path / "cut")


@given(st.data())
@settings(max_examples=drawn(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_file_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(small(tmp_path))
    for _ in range(data.draw(st.integers(1, 4))):
        # The header has most of what can go wrong.
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.one_of(st.sampled_from(b'0123456789-[]{},":e.FIU\\'), st.integers(0, 255)))
    (tmp_path / "mutant").write_bytes(content)
    try:
        loaded = gc.load_tensors(tmp_path / "mutant")
        arrays = dict(loaded)
    except (ModelError, ResourceLimitError):
        return
    assert sum(array.nbytes for array in arrays.values()) <= len(content)
    assert all(array.max() <= 1 for array in arrays.values() if array.dtype == bool)
