"""`graphcore view`, and the page of `graphcore diff --html`."""

from __future__ import annotations

import json
import re
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphcore.view import notebook
from tests.cli.conftest import Call
from tests.support.trained import Trained

Document = Callable[..., Any]


@pytest.fixture(autouse=True)
def assets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the page's program is not built, the data is written beside an empty one."""
    if not (notebook.ASSETS / "page.js").exists():
        folder = tmp_path_factory.mktemp("assets")
        for name in ("page.js", "page.css"):
            (folder / name).write_text("")
        monkeypatch.setattr(notebook, "ASSETS", folder)


def data(path: str) -> Any:
    match = re.search(r'<script type="application/json" id="graphcore-data">(.*?)</script>', Path(path).read_text())
    assert match is not None
    return json.loads(match[1])


def test_view_writes_the_page_and_opens_nothing_when_told_where(
    document: Document, magika: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail(f"{url} was opened"))
    result = document("view", magika.file(), "-o", "page.html")
    assert result["bytes"] == Path("page.html").stat().st_size
    page = data("page.html")
    assert page["title"] == "model.onnx"
    assert len(page["graph"]["nodes"]) == len(magika.graph().nodes)


def test_view_opens_the_browser_when_no_file_is_named(
    document: Document, magika: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    path = Path(document("view", magika.file())["path"])
    try:
        assert opened == [path.as_uri()]
        assert data(str(path))["graph"]
    finally:
        path.unlink()


def test_view_shows_times_targets_and_differences_when_asked(call: Call, magika: Trained) -> None:
    call("view", magika.file(), "-o", "plain.html")
    call("astype", magika.file(), "half.onnx", "float16")
    options = ("--target", "cpu", "--target", "cuda", "--against", "half.onnx", "--profile", "--dim", "bytes.0=2")
    status, out, err = call("view", magika.file(), "-o", "p.html", *options)
    assert (status, err) == (0, "")
    assert out.startswith("p.html: ")
    page = data("p.html")
    assert {each["target"] for each in page["lowered"]} == {"cpu", "cuda"}
    assert len(page["overlays"]) > len(data("plain.html")["overlays"])


@pytest.mark.parametrize(("options", "embeds"), [((), True), (("--weight-bytes", "0"), False)])
def test_view_embeds_weights_up_to_a_size(call: Call, magika: Trained, options: tuple[str, ...], embeds: bool) -> None:
    call("view", magika.file(), "-o", "w.html", *options)
    assert any(value.get("npy") for value in data("w.html")["graph"]["values"]) is embeds


def test_diff_writes_a_page(call: Call, document: Document, magika: Trained) -> None:
    call("astype", magika.file(), "half.onnx", "float16")
    result = document("diff", magika.file(), "half.onnx", "--html", "d.html", status=1)
    assert result["html"] == "d.html"
    assert data("d.html")["overlays"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["gone.onnx", "-o", "p.html"], "gone.onnx is not a file"),
        (["{}", "-o", "no/p.html"], "no/p.html cannot be written"),
        (["{}", "-o", "p.html", "--against", "gone.onnx"], "gone.onnx is not a file"),
        (["{}", "-o", "p.html", "--profile", "--dim", "x=3"], "called 'x'"),
    ],
)
def test_view_says_what_is_wrong(call: Call, magika: Trained, argv: list[str], words: str) -> None:
    status, out, err = call("view", *(each.format(magika.file()) for each in argv))
    assert (status, out) == (1, "")
    assert words in err
    assert not Path("p.html").exists()
