"""GGUF files, written by the `gguf` package and by hand, against its numbers bit for bit; and hostile files."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.checkpoints import QuantizedTensor
from graphcore.errors import GraphcoreError, ModelError, ResourceLimitError
from graphcore.quantization.tensors import BLOCKS, dequantize
from tests.sampling import drawn

Array = np.ndarray[Any, Any]

COMPUTED = [name for name, block in BLOCKS.items() if block.parts]
NOT_COMPUTED = [name for name, block in BLOCKS.items() if not block.parts]
QUANTISED_BY_THE_PACKAGE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def random(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape, np.float32)


def random_blocks(encoding: str, rows: int, blocks: int) -> Array:
    """Any bytes: scales are infinite and no numbers too."""
    rng = np.random.default_rng(len(encoding))
    return rng.integers(0, 256, (rows, blocks * BLOCKS[encoding].size), np.uint8)


def same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# Blocks


@pytest.mark.parametrize("encoding", COMPUTED)
def test_random_blocks_are_dequantised_to_the_packages_numbers(encoding: str) -> None:
    raw = random_blocks(encoding, 700, 3)
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(raw, GGMLQuantizationType[encoding])
    got = dequantize(raw, encoding, want.shape)
    missing = np.isnan(want)
    assert 0 < missing.sum() < want.size / 8
    assert np.array_equal(np.isnan(got), missing)  # their signs are the processor's to choose
    assert np.array_equal(got.view(np.uint32)[~missing], want.view(np.uint32)[~missing])


@pytest.mark.parametrize("encoding", QUANTISED_BY_THE_PACKAGE)
def test_weights_come_back_as_near_as_their_encoding_is(encoding: str) -> None:
    weights = random(8, 96)
    raw = gguf.quants.quantize(weights, GGMLQuantizationType[encoding])
    steps = np.abs(weights).reshape(-1, 32).max(1, keepdims=True) / {"4": 7, "5": 15, "8": 127}[encoding[1]]
    error = np.abs(dequantize(raw, encoding, weights.shape) - weights).reshape(-1, 32)
    assert (error <= 1.05 * steps).all()


@pytest.mark.parametrize("encoding", BLOCKS)
def test_blocks_have_the_sizes_that_the_package_has(encoding: str) -> None:
    assert (BLOCKS[encoding].elements, BLOCKS[encoding].size) == gguf.GGML_QUANT_SIZES[GGMLQuantizationType[encoding]]


def test_hand_made_block_of_each_kind_of_scale_is_what_its_layout_says() -> None:
    half = np.array([0.5], np.float16).tobytes()
    q8 = np.frombuffer(half + bytes(range(16)) + bytes(range(240, 256)), np.uint8)
    assert dequantize(q8, "Q8_0", (32,)).tolist() == [n / 2 for n in (*range(16), *range(-16, 0))]
    q4 = np.frombuffer(half + bytes([0xF0] * 16), np.uint8)
    assert dequantize(q4, "Q4_0", (32,)).tolist() == [-4.0] * 16 + [3.5] * 16


# Files


def write(path: Path, tensors: dict[str, tuple[Array, GGMLQuantizationType | None]], **values: Any) -> Path:
    writer = gguf.GGUFWriter(path, "test")
    for key, value in values.items():
        if key == "alignment":
            writer.add_custom_alignment(value)
        else:
            writer.add_key_value(key, *value)
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


PLAIN = ["float16", "float32", "float64", "int8", "int16", "int32", "int64"]


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_plain_tensors_are_those_of_the_file(tmp_path: Path, alignment: int) -> None:
    arrays = {name: (100 * random(3, 5, 2)).astype(name) for name in PLAIN}
    path = write(tmp_path / "a.gguf", {name: (array, None) for name, array in arrays.items()}, alignment=alignment)
    loaded = gc.load_tensors(path)
    assert loaded.keys() == arrays.keys()
    assert all(same(loaded[name], array) for name, array in arrays.items())
    assert loaded.metadata["general.alignment"] == alignment


def test_bfloat16_tensors_are_those_of_the_file(tmp_path: Path) -> None:
    array = random(3, 4).astype(DType.bfloat16.numpy)
    path = write(tmp_path / "a.gguf", {"w": (array.view(np.uint8), GGMLQuantizationType.BF16)})
    assert same(gc.load_tensors(path)["w"], array)


@pytest.mark.parametrize("encoding", COMPUTED)
def test_quantised_tensors_are_float32_or_their_blocks(tmp_path: Path, encoding: str) -> None:
    raw, kind = random_blocks(encoding, 3, 2), GGMLQuantizationType[encoding]
    raw[:, :] &= 0x3B  # no scale is infinite, wherever it stands
    path = write(tmp_path / "a.gguf", {"w": (raw, kind), "norm": (random(5), None)})
    want = gguf.quants.dequantize(raw, kind)
    loaded = gc.load_tensors(path)
    assert same(loaded["w"], want)
    assert (loaded.encoding("w"), loaded.shape("w")) == (encoding, want.shape)
    blocks = gc.load_tensors(path, dequantize=False)
    value = blocks["w"]
    assert isinstance(value, QuantizedTensor)
    assert (value.encoding, value.shape) == (encoding, want.shape)
    assert same(value.data, raw)
    assert not value.data.flags.writeable
    assert same(value.dequantize(), want)
    assert isinstance(norm := blocks["norm"], np.ndarray)
    assert same(norm, random(5))


@pytest.mark.parametrize("encoding", NOT_COMPUTED)
def test_blocks_that_are_not_computed_are_given_raw_and_refused_otherwise(tmp_path: Path, encoding: str) -> None:
    raw = random_blocks(encoding, 2, 1)
    path = write(tmp_path / "a.gguf", {"w": (raw, GGMLQuantizationType[encoding])})
    value = gc.load_tensors(path, dequantize=False)["w"]
    assert isinstance(value, QuantizedTensor)
    assert same(value.data, raw)
    with pytest.raises(ModelError, match=f"{encoding} cannot be dequantised"):
        gc.load_tensors(path)["w"]


def test_metadata_of_every_type_is_read(tmp_path: Path) -> None:
    kinds = GGUFValueType
    values: dict[str, tuple[Any, ...]] = {
        "u8": (255, kinds.UINT8), "i8": (-128, kinds.INT8), "u16": (65535, kinds.UINT16), "i16": (-5, kinds.INT16),
        "u32": (2**32 - 1, kinds.UINT32), "i32": (-(2**31), kinds.INT32), "u64": (2**64 - 1, kinds.UINT64),
        "i64": (-(2**63), kinds.INT64), "f32": (0.5, kinds.FLOAT32), "f64": (0.1, kinds.FLOAT64),
        "yes": (True, kinds.BOOL), "text": ("größe", kinds.STRING),
        "words": (["a", "", "ü"], kinds.ARRAY), "ints": ([1, -2], kinds.ARRAY), "floats": ([0.5, 2.0], kinds.ARRAY),
        "bools": ([True, False], kinds.ARRAY), "nested": ([[1, 2], [3]], kinds.ARRAY),
    }  # fmt: skip
    result = gc.load_tensors(write(tmp_path / "a.gguf", {}, **values)).metadata
    assert result["general.architecture"] == "test"
    for key, (value, *_) in values.items():
        stored = result[key]
        if key == "nested":
            stored = [item.tolist() for item in stored]
        assert (stored.tolist() if isinstance(stored, np.ndarray) else stored) == value
    assert type(result["yes"]) is bool
    assert result["bools"].dtype == np.bool_


def test_weights_are_those_of_the_mapped_file_when_graphs_take_them(tmp_path: Path) -> None:
    w, scale = random(1024, 2048), np.arange(4, dtype=np.float16)
    raw = gguf.quants.quantize(random(4, 32), GGMLQuantizationType.Q8_0)
    path = write(tmp_path / "a.gguf", {"w": (w, None), "scale": (scale, None), "q": (raw, GGMLQuantizationType.Q8_0)})
    tracemalloc.start()
    loaded = gc.load_tensors(path)
    graph = Graph("product", {"x": TensorType(DType.float32, ["n", 32])})
    big = graph.weight("w", loaded["w"])
    product = ops.matmul(graph["x"], ops.transpose(graph.weight("q", loaded["q"]), 0, 1)) + big[0, 0]
    graph.output(y=product * graph.weight("scale", loaded["scale"]))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert np.shares_memory(graph.weights["w"].producer.array, loaded["w"])  # type: ignore[union-attr]
    x = random(2, 32)
    (y,) = gc.InferenceSession().load(graph)(x)
    weights = gguf.quants.dequantize(raw, GGMLQuantizationType.Q8_0)
    assert np.allclose(y, (x @ weights.T + w[0, 0]) * scale, rtol=1e-5, atol=1e-5)


def test_dequantised_weights_are_saved_to_safetensors(tmp_path: Path) -> None:
    raw = random_blocks("Q4_K", 2, 1) & 0x3B
    loaded = gc.load_tensors(write(tmp_path / "a.gguf", {"w": (raw, GGMLQuantizationType.Q4_K)}))
    gc.save_tensors(tmp_path / "a.safetensors", loaded)
    assert same(gc.load_tensors(tmp_path / "a.safetensors")["w"], loaded["w"])


# Files that mean harm, made by hand


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def row(name: str | bytes = "w", dims: tuple[int, ...] = (2,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def write_file(
    *rows: bytes, pairs: tuple[bytes, ...] = (), data: bytes = bytes(64), version: int = 3, counts: Any = None
) -> bytes:
    tensors, values = counts or (len(rows), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, values) + b"".join((*pairs, *rows))
    return head + bytes(-len(head) % 32) + data


def refused(path: Path, content: bytes, *words: str, kind: type[GraphcoreError] = ModelError) -> None:
    path.write_bytes(content)
    with pytest.raises(GraphcoreError) as caught:
        dict(gc.load_tensors(path))
    assert type(caught.value) is kind, caught.value
    assert caught.value.help
    assert len(str(caught.value)) < 2000
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("version", [2, 3])
def test_hand_made_file_is_read(tmp_path: Path, version: int) -> None:
    data = np.arange(16, dtype=np.float32).tobytes()
    content = write_file(row(dims=(2, 3)), row("v", (1, 0), 1), row("s", (), 26, 32), data=data, version=version)
    (tmp_path / "a.gguf").write_bytes(content)
    loaded = gc.load_tensors(tmp_path / "a.gguf")
    assert loaded["w"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert loaded["v"].shape == (0, 1)
    assert loaded["s"].shape == ()
    assert not loaded.metadata


def array_of_arrays(depth: int) -> bytes:
    return struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 0, 0)


HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (write_file(version=1), "of version 1"),
        (write_file(version=4), "of version 4"),
        (write_file(version=3 << 24), "big endian"),
        (b"GGUF", "the file ends"),
        (write_file(counts=(HUGE, 0)), f"claims {HUGE} tensors and 0 keys in"),
        (write_file(counts=(0, HUGE)), f"claims 0 tensors and {HUGE} keys in"),
        (write_file(counts=(3, 0), data=bytes(100)), "the tensor '' occurs twice"),
        (write_file(counts=(0, 2)), "the key '' occurs twice"),
        (write_file(row(), counts=(4, 0), data=b"\xff" * 64), "the file ends"),
        (write_file(row(), row()), "the tensor 'w' occurs twice"),
        (write_file(pairs=(pair("a", 0, b"1"), pair("a", 0, b"1"))), "the key 'a' occurs twice"),
        (write_file(row(b"\xff")), "a tensor's name at byte 32 is not valid UTF-8"),
        (write_file(pairs=(pair(b"\xff", 0, b"1"),)), "a key at byte 32 is not valid UTF-8"),
        (write_file(pairs=(pair("a", 8, text(b"\xff")),)), "a string at byte"),
        (write_file(pairs=(pair("a", 8, struct.pack("<Q", 1 << 40)),)), "the file ends"),
        (write_file(pairs=(pair("a", 8, struct.pack("<Q", HUGE)),)), "the file ends"),
        (write_file(pairs=(pair("a", 9, struct.pack("<IQ", 0, HUGE)),)), "the file ends"),
        (write_file(pairs=(pair("a", 9, struct.pack("<IQ", 12, 1 << 61)),)), "the file ends"),
        (write_file(pairs=(pair("a", 9, struct.pack("<IQ", 8, HUGE)),), data=b""), "the file ends"),
        (write_file(pairs=(pair("a", 9, struct.pack("<IQ", 9, HUGE)),), data=b""), "the file ends"),
        (write_file(pairs=(pair("a", 9, struct.pack("<IQ", 13, 0)),)), "has type 13"),
        (write_file(pairs=(pair("a", 13, b""),)), "has type 13"),
        (write_file(pairs=(pair("a", 7, b"\x02"),)), "must be 0 or 1"),
        (write_file(pairs=(pair("a", 9, struct.pack("<IQ", 7, 3) + b"\0\1\2"),)), "must be 0 or 1"),
        (write_file(pairs=(pair("general.alignment", 4, struct.pack("<I", 0)),)), "general.alignment is 0"),
        (write_file(pairs=(pair("general.alignment", 4, struct.pack("<I", 24)),)), "general.alignment is 24"),
        (write_file(pairs=(pair("general.alignment", 8, text("32")),)), "general.alignment is 32"),
        (write_file(row(), pairs=(pair("general.alignment", 4, struct.pack("<I", 1 << 31)),)), "the file has 0"),
        (write_file(row(kind=4)), "has the unknown type 4"),
        (write_file(row(kind=1 << 31)), "has the unknown type"),
        (write_file(row(dims=(1,) * 5)), "has 5 dims"),
        (write_file(row(dims=(17,))), "the file has 64 for tensors"),
        (write_file(row(dims=(1 << 62, 4))), "are too large"),
        (write_file(row(dims=(1 << 62, 0))), "are too large"),
        (write_file(row(dims=(HUGE, HUGE))), "are too large"),
        (write_file(row(dims=(1 << 40,))), "the file has 64 for tensors"),
        (write_file(row(offset=64)), "the file has 64 for tensors"),
        (write_file(row(offset=HUGE - 31)), "the file has 64 for tensors"),
        (write_file(row(offset=1)), "not a multiple of 32"),
        (write_file(row(), row("v")), "which overlaps"),
        (write_file(row(dims=(16,)), row("v", offset=32)), "which overlaps 'w'"),
        (write_file(row(dims=(33,), kind=2)), "Q4_0 has blocks of 32"),
        (write_file(row(dims=(), kind=2)), "Q4_0 has blocks of 32"),
        (write_file(row(dims=(32, 8), kind=12)), "Q4_K has blocks of 256"),
        (write_file(row(dims=(256,), kind=12)), "the file has 64 for tensors"),
        (write_file(row("w" * 10_000, dims=(17,))), "the file has 64"),
    ],
    ids=itertools.count(),
)
def test_file_that_lies_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    tracemalloc.start()
    refused(tmp_path / "a.gguf", content, words)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_metadata_beyond_the_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gguf"
    deep = write_file(pairs=(pair("a", 9, array_of_arrays(100_000)),))
    refused(path, deep, "nested deeper than 16", kind=ResourceLimitError)
    monkeypatch.setattr(gguf_module(), "_MAX_VALUES", 1000)
    many = write_file(pairs=(pair("a", 9, struct.pack("<IQ", 8, 2000) + bytes(16_000)),))
    refused(path, many, "more than 1000 strings", kind=ResourceLimitError)
    monkeypatch.setattr(gguf_module(), "_MAX_TENSORS", 1)
    refused(path, write_file(row(), row("v", offset=32)), "2 tensors and 0 keys; at most 1", kind=ResourceLimitError)
    monkeypatch.setattr(gguf_module(), "MAX_HEADER_BYTES", 1000)
    long = write_file(pairs=(pair("a", 8, text("a" * 2000)),))
    refused(path, long, "more than 1000 bytes", kind=ResourceLimitError)


def gguf_module() -> Any:
    from graphcore.checkpoints import gguf as module

    return module


def test_large_alignment_is_taken_when_nothing_follows_it(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(write_file(pairs=(pair("general.alignment", 4, struct.pack("<I", 1 << 31)),)))
    assert not gc.load_tensors(tmp_path / "a.gguf")


def seed(folder: Path) -> bytes:
    raw = random_blocks("Q4_0", 2, 1)
    values = {"words": (["a", "b"], GGUFValueType.ARRAY), "yes": (True, GGUFValueType.BOOL)}
    tensors = {"q": (raw, GGMLQuantizationType.Q4_0), "w": (random(2, 3), None)}
    return write(folder / "seed.gguf", tensors, **values).read_bytes()


def test_file_cut_short_at_every_byte_is_refused(tmp_path: Path) -> None:
    whole = seed(tmp_path)
    end = len(whole) - 8  # the last tensor takes 24 bytes of its 32
    for size in range(end):
        refused(tmp_path / "cut.gguf", whole[:size])
    (tmp_path / "cut.gguf").write_bytes(whole[:end])
    assert same(gc.load_tensors(tmp_path / "cut.gguf")["w"], random(2, 3))


@given(st.data())
@settings(max_examples=drawn(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_file_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / "seed.gguf").exists():
        seed(tmp_path)
    content = bytearray((tmp_path / "seed.gguf").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.one_of(st.integers(0, 40), st.integers(0, 255)))
    (tmp_path / "mutant.gguf").write_bytes(content)
    try:
        arrays = dict(gc.load_tensors(tmp_path / "mutant.gguf"))
    except (ModelError, ResourceLimitError):
        return
    assert sum(array.nbytes for array in arrays.values()) <= 16 * len(content)  # a byte of Q2_K is three numbers
