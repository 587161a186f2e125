"""External data behind symbolic links: the layout of a hub's cache, and layouts that are made to do harm."""

from __future__ import annotations

import gc as collector
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph
from graphcore.cli import main
from graphcore.errors import GraphcoreError, GraphError, UnsafePathError
from tests.security.test_files import SECRET, external


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A cache of one repository, whose snapshot has links alone, and a secret beside it."""
    (tmp_path / "secret").write_bytes(SECRET)
    repository = tmp_path / "models--a--b"
    (repository / "blobs").mkdir(parents=True)
    snapshot = repository / "snapshots" / "0123abcd"
    (snapshot / "onnx").mkdir(parents=True)
    (repository / "blobs" / "m").write_bytes(external("model.onnx_data").SerializeToString())
    (repository / "blobs" / "d").write_bytes(SECRET)
    for folder, up in ((snapshot, "../.."), (snapshot / "onnx", "../../..")):
        (folder / "model.onnx").symlink_to(f"{up}/blobs/m")
        (folder / "model.onnx_data").symlink_to(f"{up}/blobs/d")
    return snapshot


def weight(graph: Graph) -> bytes:
    return graph.weights["w"].producer.array.tobytes()  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["model.onnx", "onnx/model.onnx"])
def test_model_of_a_hub_cache_is_read_when_links_are_followed(hub: Path, path: str) -> None:
    assert weight(Graph.load(hub / path, external_data="links")) == SECRET


def test_session_follows_links_when_asked_to_and_its_cache_too(hub: Path, tmp_path: Path) -> None:
    x = np.ones(2, np.float32)
    for _ in range(2):
        session = gc.InferenceSession()
        model = session.load(hub / "model.onnx", external_data="links", cache_dir=tmp_path / "kept")
        assert model(x)[0].tolist() == [1, 2]
    with pytest.raises(UnsafePathError):
        gc.InferenceSession().load(hub / "model.onnx", cache_dir=tmp_path / "kept")


def test_link_is_refused_by_default_with_the_option_in_the_help(hub: Path) -> None:
    with pytest.raises(UnsafePathError, match=r'a symbolic link is on the way[\s\S]*external_data="links"'):
        Graph.load(hub / "model.onnx")


def test_checkpoint_of_a_hub_cache_is_read_when_links_are_followed(hub: Path) -> None:
    blobs = hub.parent.parent / "blobs"
    gc.save_tensors(blobs / "s", {"w": np.arange(3.0)})
    (blobs / "i").write_text(json.dumps({"weight_map": {"w": "part.safetensors"}}))
    (hub / "part.safetensors").symlink_to("../../blobs/s")
    (hub / "model.safetensors.index.json").symlink_to("../../blobs/i")
    with pytest.raises(UnsafePathError):
        gc.load_tensors(hub / "model.safetensors.index.json")
    loaded = gc.load_tensors(hub / "model.safetensors.index.json", external_data="links")
    assert loaded["w"].tolist() == [0, 1, 2]


# Links that stay in the root


def _relative(hub: Path) -> None:
    (hub / "link").symlink_to("../../blobs/d")


def _absolute(hub: Path) -> None:
    (hub / "link").symlink_to(hub.parent.parent / "blobs" / "d")


def _chain(hub: Path) -> None:
    (hub / "c").symlink_to("../../blobs/d")
    (hub / "b").symlink_to(hub / "c")
    (hub / "link").symlink_to("./b")


def _through_a_folder(hub: Path) -> None:
    (hub / "folder").symlink_to("../../blobs")
    (hub / "link").symlink_to("folder/../blobs/.//d")


def _to_the_root_and_back(hub: Path) -> None:
    (hub / "top").symlink_to(hub.parent.parent)
    (hub / "link").symlink_to("top/blobs/d")


def _plain(hub: Path) -> None:
    (hub / "link").write_bytes(SECRET)


def replaced(hub: Path) -> Path:
    """The model with its data in `link`."""
    (hub / "model.onnx").unlink()
    (hub / "model.onnx").write_bytes(external("link").SerializeToString())
    return hub / "model.onnx"


@pytest.mark.parametrize(
    "make", [_relative, _absolute, _chain, _through_a_folder, _to_the_root_and_back, _plain], ids=lambda f: f.__name__
)
def test_link_is_followed_when_it_stays_in_the_root(hub: Path, make: Callable[[Path], None]) -> None:
    make(hub)
    assert weight(Graph.load(replaced(hub), external_data="links")) == SECRET


def test_absolute_link_is_followed_when_the_root_is_reached_by_a_link(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").symlink_to(tmp_path / "models--a--b")
    other = tmp_path / "cache" / "snapshots" / "0123abcd"
    (hub / "link").symlink_to(tmp_path / "cache" / "blobs" / "d")
    replaced(hub)
    assert weight(Graph.load(other / "model.onnx", external_data="links")) == SECRET


# Links that lead elsewhere


def _passwd(hub: Path) -> None:
    (hub / "link").symlink_to("/etc/passwd")


def _out(hub: Path) -> None:
    (hub / "link").symlink_to("../../../secret")


def _out_and_in(hub: Path) -> None:
    (hub / "link").symlink_to("../../../models--a--b/blobs/d")


def _chain_out(hub: Path) -> None:
    (hub / "b").symlink_to("../../../secret")
    (hub / "link").symlink_to("b")


def _folder_out(hub: Path) -> None:
    (hub / "folder").symlink_to("../../..")
    (hub / "link").symlink_to("folder/secret")


def _absolute_out(hub: Path) -> None:
    (hub / "link").symlink_to(f"{hub.parent.parent}/../secret")


def _of_a_like_name(hub: Path) -> None:
    other = Path(f"{hub.parent.parent}-more")
    other.mkdir()
    (other / "d").write_bytes(SECRET)
    (hub / "link").symlink_to(other / "d")


def _beyond_the_top(hub: Path) -> None:
    (hub / "link").symlink_to("../" * 100 + "etc/passwd")


@pytest.mark.parametrize(
    "make",
    [_passwd, _out, _out_and_in, _chain_out, _folder_out, _absolute_out, _of_a_like_name, _beyond_the_top],
    ids=lambda f: f.__name__,
)
def test_link_is_refused_when_it_leads_out_of_the_root(hub: Path, make: Callable[[Path], None]) -> None:
    make(hub)
    with pytest.raises(UnsafePathError) as caught:
        Graph.load(replaced(hub), external_data="links")
    text = str(caught.value)
    assert "tensor 'w' lies in 'link'" in text
    assert "leads to" in text
    assert f"out of {str(hub.parent.parent)!r}" in text
    assert "external_data_root=" in text


def _loop(hub: Path) -> None:
    (hub / "link").symlink_to("link")


def _two_loops(hub: Path) -> None:
    (hub / "other").symlink_to("link")
    (hub / "link").symlink_to(hub / "other")


def _dangling(hub: Path) -> None:
    (hub / "link").symlink_to("../../blobs/none")


def _to_a_folder(hub: Path) -> None:
    (hub / "link").symlink_to("../../blobs")


def _to_the_root(hub: Path) -> None:
    (hub / "link").symlink_to(hub.parent.parent)


def _to_a_fifo(hub: Path) -> None:
    os.mkfifo(hub / "fifo")
    (hub / "link").symlink_to("fifo")


def _hard(hub: Path) -> None:
    os.link(hub.parent.parent.parent / "secret", hub / "hard")
    (hub / "link").symlink_to("hard")


def _through_a_file(hub: Path) -> None:
    (hub / "link").symlink_to("../../blobs/d/d")


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (_loop, "more than 40 links"),
        (_two_loops, "more than 40 links"),
        (_dangling, "cannot be opened"),
        (_to_a_folder, "not a regular file"),
        (_to_the_root, "not a regular file"),
        (_to_a_fifo, "not a regular file"),
        (_hard, "hard link"),
        (_through_a_file, "cannot be opened"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_link_is_refused_when_it_leads_to_no_file_of_its_own(
    hub: Path, make: Callable[[Path], None], word: str
) -> None:
    make(hub)
    with pytest.raises(GraphcoreError, match=word):
        Graph.load(replaced(hub), external_data="links")


@pytest.mark.parametrize("location", ["../0123abcd/link", "/etc/passwd", "./link", "onnx/../link"])
def test_location_is_still_a_plain_path_when_links_are_followed(hub: Path, location: str) -> None:
    _relative(hub)
    (hub / "other.onnx").write_bytes(external(location).SerializeToString())
    with pytest.raises(UnsafePathError, match="not a plain path"):
        Graph.load(hub / "other.onnx", external_data="links")


def test_no_more_than_the_root_is_opened_when_a_link_is_swapped_meanwhile(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder `inner` becomes a link to the outside between the look at it and its opening."""
    (hub / "inner").mkdir()
    (hub / "inner" / "secret").write_bytes(bytes(8))
    (hub / "link").symlink_to("inner/secret")
    path = replaced(hub)
    look: Any = os.stat

    def swapping(name: Any, *args: Any, **named: Any) -> Any:
        result = look(name, *args, **named)
        if name == "inner" and not (hub / "gone").exists():
            (hub / "inner").rename(hub / "gone")
            (hub / "inner").symlink_to(hub.parent.parent.parent)
        return result

    monkeypatch.setattr(os, "stat", swapping)
    with pytest.raises(GraphcoreError):
        Graph.load(path, external_data="links")
    assert (hub / "gone").exists()


@pytest.mark.full
def test_no_handles_are_left_open(hub: Path) -> None:
    def count() -> int:
        collector.collect()
        return len(os.listdir("/proc/self/fd"))

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc")
    _folder_out(hub)
    path = replaced(hub)
    before = count()
    for _ in range(5):
        with pytest.raises(UnsafePathError):
            Graph.load(path, external_data="links")
    assert count() <= before


def test_commands_follow_links_when_asked_to(
    hub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(hub)
    assert main(["run", "model.onnx", "--random"]) == 1
    assert "UnsafePathError" in capsys.readouterr().err
    assert main(["run", "model.onnx", "--random", "--external-links"]) == 0
    assert main(["convert", "model.onnx", "out.onnx", "--external-root", "../.."]) == 0
    assert weight(Graph.load("out.onnx")) == SECRET
    assert main(["run", "model.onnx", "--random", "--external-root", "."]) == 1


# The root


def test_links_stay_in_the_models_folder_when_it_is_not_a_snapshot(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret").write_bytes(SECRET)
    (home / "data").write_bytes(SECRET)
    path = home / "model.onnx"
    path.write_bytes(external("link").SerializeToString())
    (home / "link").symlink_to("data")
    assert weight(Graph.load(path, external_data="links")) == SECRET
    (home / "link").unlink()
    (home / "link").symlink_to("../secret")
    with pytest.raises(UnsafePathError, match="out of"):
        Graph.load(path, external_data="links")
    assert weight(Graph.load(path, external_data="links", external_data_root=tmp_path)) == SECRET


def test_repository_is_not_a_root_when_its_blobs_are_missing_or_a_link(hub: Path) -> None:
    blobs = hub.parent.parent / "blobs"
    moved = blobs.rename(hub.parent.parent.parent / "blobs")
    model = hub / "onnx" / "other.onnx"
    model.write_bytes(external("model.onnx_data").SerializeToString())
    blobs.symlink_to(moved)
    with pytest.raises(UnsafePathError, match="out of"):
        Graph.load(model, external_data="links")


def test_root_is_narrower_than_the_repository_when_given(hub: Path) -> None:
    with pytest.raises(UnsafePathError, match=r"leads to '\.\./\.\./blobs/d'"):
        Graph.load(hub / "model.onnx", external_data="links", external_data_root=hub)


def test_root_is_refused_when_it_does_not_hold_the_model(hub: Path) -> None:
    with pytest.raises(UnsafePathError, match="does not contain"):
        Graph.load(hub / "model.onnx", external_data="links", external_data_root=hub.parent.parent / "blobs")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"external_data": "symlinks"}, "'symlinks'"),
        ({"external_data": True}, "True"),
        ({"external_data_root": "."}, "has no effect without external_data"),
        ({"external_data": "links", "external_data_root": "/no/where"}, "is not a folder"),
        ({"external_data": "links", "external_data_root": 7}, "is not a folder"),
    ],
)
@pytest.mark.parametrize("load", [Graph.load, gc.InferenceSession().load, gc.load_tensors])
def test_option_is_refused_when_it_has_no_meaning(
    hub: Path, load: Callable[..., Any], arguments: dict[str, Any], word: str
) -> None:
    with pytest.raises(GraphError, match=word) as caught:
        load(hub / "model.onnx", **arguments)
    assert isinstance(caught.value, GraphcoreError)
    assert caught.value.help
