"""Tests of the page as a file: what it holds, what it may do, and how it is written."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from graphcore import Graph
from graphcore.errors import ExportError, GraphError
from graphcore.support.markup import escaped
from graphcore.view import notebook as module
from graphcore.view.data import PageOptions
from tests.support.drawn_graphs import exported, mixed
from tests.view.test_hostile import data_in

ROOT = Path(__file__).parents[2]

PROGRAM = "document.title = 'x < y';"


@pytest.fixture(autouse=True)
def assets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the built page, which these tests are not about."""
    folder = tmp_path_factory.mktemp("assets")
    (folder / "page.js").write_text(PROGRAM, encoding="ascii")
    (folder / "page.css").write_text("main { color: red }", encoding="ascii")
    monkeypatch.setattr(module, "ASSETS", folder)
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that the browser was asked to show."""
    results: list[str] = []
    monkeypatch.setattr(webbrowser, "open", results.append)
    return results


def test_file_has_the_data_and_no_address_to_load_from(tmp_path: Path) -> None:
    path = tmp_path / "graph.html"
    mixed().save_html(path, title="a <title>", targets=())
    page = path.read_text(encoding="ascii")
    assert [node["op"] for node in data_in(page)["graph"]["nodes"]][:2] == ["Cast", "Mul"]
    assert "<title>a &lt;title&gt;</title>" in page
    assert not re.search(r"(?:src|href)=|https?:|url\(|@import", page)
    assert os.listdir(tmp_path) == ["graph.html"]


def test_policy_lets_this_program_run_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "graph.html"
    mixed().save_html(path, targets=())
    page = path.read_text(encoding="ascii")
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digest = base64.b64encode(hashlib.sha256(PROGRAM.encode()).digest()).decode()
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}' blob:"
    assert (rules["base-uri"], rules["form-action"]) == ("'none'", "'none'")
    assert "connect-src" not in rules  # as default-src: no network
    assert page.index("Content-Security-Policy") < page.index("<style")


def test_file_that_cannot_be_written_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="save_html"):
        mixed().save_html(tmp_path / "absent" / "graph.html", targets=())
    with pytest.raises(ExportError, match="null"):
        mixed().save_html(tmp_path / "a\0b.html", targets=())
    with pytest.raises(ExportError, match="it is a folder"):
        mixed().save_html(tmp_path, targets=())
    assert os.listdir(tmp_path) == []


def test_view_opens_the_file_and_returns_its_path(tmp_path: Path, opened: list[str]) -> None:
    path = tmp_path / "a graph.html"
    assert mixed().view(path, targets=()) == str(path)
    assert opened == [path.as_uri()]
    assert path.stat().st_size > 1000


def test_view_without_a_path_writes_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = mixed().view(open=False, targets=())
    assert (Path(path).parent, Path(path).suffix, opened) == (tmp_path, ".html", [])
    assert "graphcore-data" in Path(path).read_text(encoding="ascii")
    with pytest.raises(GraphError):
        mixed().view(open=False, targets=("tpu",))  # type: ignore[arg-type]
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "page.js of the page cannot be read"), ("x = '</script>'", "a tag that would end its element")],
)
def test_page_that_was_not_built_is_told(assets: Path, content: str | None, expected: str, tmp_path: Path) -> None:
    (assets / "page.js").unlink()
    if content is not None:
        (assets / "page.js").write_text(content, encoding="ascii")
    with pytest.raises(GraphError, match=expected) as raised:
        mixed().save_html(tmp_path / "graph.html")
    assert "make page" in str(raised.value)


def test_arguments_reach_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def noted(graph: Graph, shown: PageOptions) -> dict[str, Any]:
        seen.append(shown)
        return {"title": "t"}

    monkeypatch.setattr(module, "page_data", noted)
    results = {"targets": ("cpu",), "precision": "fast", "optimize": "off", "statistics": False}
    mixed().save_html(tmp_path / "a.html", title="t", against=mixed(), values={"x": 1}, **results)  # type: ignore[arg-type]
    mixed().view(tmp_path / "b.html", open=False, title="t", **results)  # type: ignore[arg-type]
    for shown in seen:
        assert {name: getattr(shown, name) for name in results} == results
        assert shown.title == "t"
    assert (seen[0].values, seen[1].values, seen[1].against) == ({"x": 1}, {}, None)


def test_examples_of_the_page_on_views_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "howto" / "draw.md").read_text(encoding="utf-8"), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "draw.md", "exec"), names)
    assert {"small.html", "profiled.html", "quantised.html"} <= {*os.listdir(tmp_path)}
    total, words = capsys.readouterr().out.splitlines()
    assert f"print(flops(graph).total)  # {total}" in blocks[-1]
    assert words.startswith("bfloat16 and int8 meet in bfloat16: bfloat16 > float16 > int64 > int32 > int16 > int8 ")


def test_large_graph_is_named_in_a_notebook_where_the_page_was_not_built(assets: Path) -> None:
    (assets / "page.js").unlink()
    graph = exported(10)
    assert graph._repr_html_().startswith(f"<code>{escaped(repr(graph))}</code><p>view: page.js")
