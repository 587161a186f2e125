"""Files that are not ONNX models: the error says what they are, how large, and what to do."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph, TensorType
from graphcore.errors import ModelError
from tests.support.calls import calls


def archive() -> bytes:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as file:
        file.writestr("data.pkl", "x")
    return result.getvalue()


def checkpoint(folder: Path) -> bytes:
    gc.save_tensors(folder / "w.safetensors", {"w": np.zeros(3, np.float32)})
    return (folder / "w.safetensors").read_bytes()


KINDS: dict[str, tuple[bytes, str]] = {
    "zeros": (b"\0" * 4096, "its 4,096 bytes are zeros"),
    "git-lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "a git-lfs pointer(.|\n)*git lfs pull",
    ),
    "HTML": (b"\n <!DOCTYPE html><html><title>404</title>", "an HTML or XML page"),
    "JSON": (b'{"error": "gated"}', "JSON text"),
    "GGUF": (b"GGUF\3\0\0\0", "a GGUF checkpoint"),
    "Lite": (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
    "HDF5": (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    "zip": (archive(), "a zip archive(.|\n)*torch.onnx.export"),
    "pickle": (pickle.dumps({"a": 1}), "a pickle(.|\n)*never read"),
    "gzip": (gzip.compress(b"model"), "a gzip file(.|\n)*unpack it"),
    "tar": (bytes(257) + b"ustar\0" + bytes(200), "a tar archive"),
    "program": (b"\x7fELF\2\1", "a program or a shared library"),
}


@pytest.mark.parametrize("load", [Graph.load, gc.InferenceSession().load], ids=["graph", "session"])
@pytest.mark.parametrize("kind", KINDS)
def test_file_of_another_kind_is_named(load: Callable[[Any], object], kind: str, tmp_path: Path) -> None:
    content, words = KINDS[kind]
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"m\.onnx is not an ONNX model(.|\n)*{words}"):
        load(path)


def test_large_file_of_zeros_is_refused_in_few_calls_and_little_memory(tmp_path: Path) -> None:
    counts = []
    for size in (4096, 4096, 1 << 30):  # the first call fills caches
        path = tmp_path / f"{size}.onnx"
        with path.open("wb") as file:
            file.truncate(size)

        def load(path: Path = path, size: int = size) -> None:
            with pytest.raises(ModelError, match=f"its {size:,} bytes are zeros"):
                Graph.load(path)

        counts.append(calls(load))
    tracemalloc.start()
    load()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counts[2] < 10 * counts[1]
    assert peak < 16 << 20


def test_safetensors_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"a safetensors checkpoint(.|\n)*load_tensors"):
        Graph.load(checkpoint(tmp_path))


def test_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    with pytest.raises(ModelError, match=r"m\.onnx is empty"):
        Graph.load(tmp_path / "m.onnx")


def model() -> bytes:
    graph = Graph("g", {"x": TensorType("float32", ["n"])})
    graph.output(y=graph["x"] + 1)
    whole: bytes = graph.to_onnx().SerializeToString()
    return whole


def test_bytes_after_the_end_are_told_by_their_place() -> None:
    whole = model()
    with pytest.raises(
        ModelError, match=f"of {len(whole) + 1} bytes is not an ONNX model: byte {len(whole)} does not start a field"
    ):
        Graph.load(whole + b"\7")


def test_model_that_is_cut_is_refused_wherever_it_is_cut() -> None:
    whole = model()
    message = "copy or download it again|no graph|opset|no outputs|no model"
    for size in range(20, len(whole) - 1):
        try:
            Graph.load(whole[:size])
        except ModelError as error:
            text = str(error)
        else:
            text = "a field that need not be there is gone: copy or download it again"
        assert re.search(message, text), f"{size}: {text}"
