"""Hostile files: paths out of the model's folder, invalid files, tensors that do not match their declarations."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphcore import Graph
from graphcore.errors import UnsafePathError
from tests.support.onnx_models import FLOAT, Source, model, refused, tensor, value

SECRET = np.arange(2, dtype=np.float32).tobytes()


def external(location: str | None, **entries: str) -> onnx.ModelProto:
    """y = x + w, where w lies in another file."""
    weight = tensor("w", FLOAT, [2])
    weight.data_location = TensorProto.EXTERNAL
    for key, text in {**({} if location is None else {"location": location}), **entries}.items():
        weight.external_data.add(key=key, value=text)
    return model([helper.make_node("Add", ["x", "w"], ["y"])], constants=[weight])


def saved(folder: Path, proto: onnx.ModelProto) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The model's folder, with a secret beside it that has just the right size."""
    (tmp_path / "secret").write_bytes(SECRET)
    folder = tmp_path / "home"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "plain").write_bytes(SECRET)
    (folder / "plain").write_bytes(SECRET)
    return folder


@pytest.mark.parametrize("location", ["plain", "inner/plain"])
def test_external_data_is_read_when_it_lies_in_the_folder(home: Path, location: str) -> None:
    graph = Graph.load(saved(home, external(location)))
    assert graph.weights["w"].producer.array.tobytes() == SECRET  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "inner/../../secret",
        "inner/..",
        "..",
        ".",
        "./plain",
        "inner//plain",
        "inner/",
        "/dev/zero",
        "/etc/passwd",
        "//host/share",
        "..\\secret",
        "inner\\plain",
        "C:\\secret",
        "C:secret",
        "c:/secret",
        "\\\\host\\share",
        "plain:stream",
        "file:///etc/passwd",
        "plain\0",
        "\0",
        "",
    ],
)
def test_path_is_refused_when_it_is_not_plainly_inside(home: Path, location: str) -> None:
    refused(saved(home, external(location)), "tensor 'w'", repr(location), kind=UnsafePathError)


def test_path_is_refused_when_there_is_none(home: Path) -> None:
    refused(saved(home, external(None)), "tensor 'w'", kind=UnsafePathError)


def test_absolute_path_is_refused_when_it_is_inside(home: Path) -> None:
    refused(saved(home, external(str(home / "plain"))), "not a plain path", kind=UnsafePathError)


def _link(home: Path) -> None:
    (home / "evil").symlink_to(home.parent / "secret")


def _link_inside(home: Path) -> None:
    (home / "evil").symlink_to(home / "plain")


def _dangling(home: Path) -> None:
    (home / "evil").symlink_to(home / "nowhere")


def _loop(home: Path) -> None:
    (home / "evil").symlink_to(home / "evil")


def _zero(home: Path) -> None:
    (home / "evil").symlink_to("/dev/zero")


def _hard(home: Path) -> None:
    os.link(home.parent / "secret", home / "evil")


def _fifo(home: Path) -> None:
    os.mkfifo(home / "evil")


def _folder(home: Path) -> None:
    (home / "evil").mkdir()


def _socket(home: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as result:
        here = os.getcwd()
        os.chdir(home)  # the path of a socket is short
        try:
            result.bind("evil")
        finally:
            os.chdir(here)


@pytest.mark.parametrize(
    "make", [_link, _link_inside, _dangling, _loop, _zero, _hard, _fifo, _folder, _socket], ids=lambda f: f.__name__
)
def test_file_is_refused_when_it_is_not_a_plain_file_of_its_own(home: Path, make: Any) -> None:
    make(home)
    refused(saved(home, external("evil")), "tensor 'w'", "'evil'", kind=UnsafePathError)


def test_folder_is_refused_when_it_is_a_link(home: Path) -> None:
    (home / "evil").symlink_to(home.parent)
    refused(saved(home, external("evil/secret")), "symbolic link", kind=UnsafePathError)


def test_folder_is_refused_when_a_link_leads_back_inside(home: Path) -> None:
    (home / "evil").symlink_to(home / "inner")
    refused(saved(home, external("evil/plain")), "symbolic link", kind=UnsafePathError)


def test_folder_is_refused_when_it_is_a_file(home: Path) -> None:
    refused(saved(home, external("plain/plain")), "tensor 'w'", "'plain/plain'")


@pytest.mark.parametrize("location", ["nowhere", "inner/nowhere", "no/where", "a" * 5000, "/".join("a" * 5000)])
def test_missing_file_is_named(home: Path, location: str) -> None:
    refused(saved(home, external(location)), "tensor 'w'", "cannot be opened", "help: put the file beside")


def test_model_may_itself_be_a_link_and_its_folder_is_where_the_link_lies(home: Path) -> None:
    path = saved(home, external("plain"))
    other = home / "other.onnx"
    other.symlink_to(path)
    assert Graph.load(other).weights.keys() == {"w"}


@pytest.mark.parametrize("value", ["bytes", "proto"])
def test_external_data_is_refused_when_the_model_has_no_folder(value: str) -> None:
    proto = external("plain")
    refused(proto if value == "proto" else proto.SerializeToString(), "tensor 'w'", "has no folder")


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        ({"offset": "4"}, "which has 8 bytes"),
        ({"offset": "8"}, "which has 8 bytes"),
        ({"offset": "-4"}, "-4"),
        ({"offset": "-8", "length": "8"}, "-8"),
        ({"length": "-8"}, "-8"),
        ({"length": "12"}, "which has 8 bytes"),
        ({"length": "4"}, "holds 4 bytes"),
        ({"offset": "9223372036854775807", "length": "8"}, "which has 8 bytes"),
        ({"offset": "18446744073709551612", "length": "8"}, "which has 8 bytes"),
        ({"offset": "1" + "0" * 100}, "which has 8 bytes"),
        ({"offset": "9" * 5000}, "must be numbers"),
        ({"offset": "4", "length": "18446744073709551612"}, "which has 8 bytes"),
        ({"offset": "zero"}, "must be numbers"),
        ({"offset": "0x10"}, "must be numbers"),
        ({"offset": "1e3"}, "must be numbers"),
        ({"length": "eight"}, "must be numbers"),
        ({"offset": "nan"}, "must be numbers"),
        ({"length": " "}, "must be numbers"),
    ],
)
def test_place_in_a_file_is_refused_when_it_is_not_within(home: Path, entries: dict[str, str], word: str) -> None:
    refused(saved(home, external("plain", **entries)), "tensor 'w'", word)


def test_external_data_is_refused_inside_attributes_too(home: Path) -> None:
    weight = external("../secret").graph.initializer[0]
    node = helper.make_node("Constant", [], ["y"], value=weight)
    refused(saved(home, model([node])), "'../secret'", kind=UnsafePathError)


def test_external_data_is_refused_inside_bodies_too(home: Path) -> None:
    weight = external("../secret").graph.initializer[0]
    body = helper.make_graph([helper.make_node("Identity", ["w"], ["o"])], "b", [], [value("o")], [weight])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    proto = model([node], [value("c", TensorProto.BOOL, ())])
    refused(saved(home, proto), "'../secret'", kind=UnsafePathError)


# The model's own path


def _gone(folder: Path) -> Path:
    return folder / "gone.onnx"


def _is_folder(folder: Path) -> Path:
    return folder


def _is_fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def _below_a_file(folder: Path) -> Path:
    (folder / "file").write_bytes(b"")
    return folder / "file" / "model.onnx"


def _is_device(folder: Path) -> Path:
    return Path("/dev/zero")


def _is_long(folder: Path) -> Path:
    return folder / ("a" * 5000)


@pytest.mark.parametrize("run", [False, True], ids=["graph", "session"])
@pytest.mark.parametrize("make", [_gone, _is_folder, _is_fifo, _below_a_file, _is_device, _is_long])
def test_path_of_no_file_is_refused(tmp_path: Path, make: Any, run: bool) -> None:
    refused(make(tmp_path), "load: ", "help: give the path of an .onnx file", run=run)


@pytest.mark.parametrize("run", [False, True], ids=["graph", "session"])
def test_path_with_a_nul_is_refused(run: bool) -> None:
    refused("model\0.onnx", "load: ", run=run)


def test_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, external("plain"))
    path.chmod(0)

    def denied(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)  # which root would not be
    refused(path, "Permission denied")


def _npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.ones(3))
    return stream.getvalue()


NOT_MODELS = {
    "empty": b"",
    "zero": b"\0" * 100,
    "ones": b"\xff" * 100,
    "text": b"The quick brown fox jumps over the lazy dog.\n" * 10,
    "json": b'{"irVersion": "8", "graph": {}}',
    "npz": _npz(),
    "pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s.",
    "tensor": helper.make_tensor("t", FLOAT, [1], [1.0]).SerializeToString(),
    "huge field": b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    "endless varint": b"\x08" + b"\xff" * 50,
    "groups": b"\x0b" * 100_000,
    "nested graphs": b"\x3a\x02" * 10_000,
}


@pytest.mark.parametrize("run", [False, True], ids=["graph", "session"])
@pytest.mark.parametrize("content", NOT_MODELS.values(), ids=NOT_MODELS)
@pytest.mark.parametrize("value", ["bytes", "path"])
def test_what_is_not_a_model_is_refused(tmp_path: Path, content: bytes, value: str, run: bool) -> None:
    source: Source = content
    if value == "path":
        source = tmp_path / "model.onnx"
        source.write_bytes(content)
    refused(source, "load: ", run=run)


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_are_refused(seed: int) -> None:
    refused(np.random.default_rng(seed).bytes(1 + 37 * seed))


def test_truncated_file_is_refused_or_is_a_model_of_its_own(tmp_path: Path) -> None:
    weight = helper.make_tensor("w", FLOAT, [2, 3000], np.ones(6000))
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    whole = model([node], [value("x")], [value("y", FLOAT, [3000])], [weight]).SerializeToString()
    assert Graph.load(whole).outputs
    path = tmp_path / "model.onnx"
    for part in range(50):
        cut = whole[: len(whole) * part // 50]
        path.write_bytes(cut)
        refused(cut)
        refused(path)


@pytest.mark.parametrize("source", [None, 3, [], object(), {"graph": 1}, onnx.GraphProto()])
def test_what_is_not_a_source_is_refused(source: Any) -> None:
    refused(source, "the model must be a path, bytes or a ModelProto")


@pytest.mark.parametrize("key", ["compression", "Offset", "location"])
def test_external_data_is_refused_when_a_key_is_unknown_or_there_twice(home: Path, key: str) -> None:
    """What such a key may say of the bytes would not be done: onnxruntime refuses the same."""
    proto = external("plain")
    proto.graph.initializer[0].external_data.add(key=key, value="plain")
    words = "a key twice" if key == "location" else f"the unknown key '{key}'"
    refused(saved(home, proto), "tensor 'w'", words, run=True)


@pytest.mark.parametrize("key", ["checksum", "basepath", "prepacked_0"])
def test_external_data_is_read_when_a_key_says_nothing_of_its_bytes(home: Path, key: str) -> None:
    proto = external("plain")
    proto.graph.initializer[0].external_data.add(key=key, value="x")
    assert Graph.load(saved(home, proto)).weights
