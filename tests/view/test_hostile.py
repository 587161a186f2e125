"""Names of models are text everywhere: in the data, in the page, in drawings and in tables."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcore import DType, Graph, TensorType, ops
from graphcore.support.markup import code, escaped, table
from graphcore.view import notebook as module
from graphcore.view.data import PageOptions, page_data
from graphcore.view.notebook import graph_html, graph_svg, page_html, symbol_html
from tests.support.page_schema import dangling, faults

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "\"'><img src=x onerror=alert(1)>",
    "\u202egnp.exe",
    "a\u2028b\u2029c",
    "\x7f\x85",
    "\ud800",
    "</style></title></svg></iframe>",
    "${alert(1)}`\\u003cscript\\u003e",
    "{policy}{0}%s",
    "constructor",
    "__proto__",
    "/" * 5000,
    "long" * 250_000,
]


def hostile_graph(name: str) -> Graph:
    graph = Graph(name, {name: TensorType(DType.float32, ["n", 4])})
    with graph.layer(name):
        y = graph[name] + graph.weight(f"{name}w", np.ones(4, np.float32))
        y.name = f"{name}y"
    text = graph.constant([name.encode("utf-8", "replace").decode()])  # a tensor holds no half of a character
    (z,) = graph.op("Custom", [y, text], {"text": name}, [TensorType(DType.float32, ["n", 4])], domain=name)
    graph.output(ops.exp(z))
    return graph


@pytest.fixture(autouse=True)
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the built page, which these tests are not about."""
    (tmp_path / "page.js").write_text("void 0;", encoding="ascii")
    (tmp_path / "page.css").write_text("main { color: red }", encoding="ascii")
    monkeypatch.setattr(module, "ASSETS", tmp_path)


class Elements(HTMLParser):
    """The elements of a page, and the text in each."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text: dict[str, str] = {}
        self.data = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.within = "data" if ("id", "graphcore-data") in attrs else tag

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.text[self.within] = self.text.get(self.within, "") + data


def data_in(page: str) -> Any:
    (result,) = re.findall(r'<script type="application/json" id="graphcore-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(result)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:24])
def test_page_holds_names_as_text(name: str) -> None:
    graph = hostile_graph(name)
    shown = PageOptions(targets=("onnx",))
    data = page_data(graph, shown)
    assert not faults(data)
    assert not dangling(data)
    page = page_html(graph, shown)
    assert page.isascii()
    assert data_in(page) == json.loads(json.dumps(data))
    read = Elements()
    read.feed(page)
    expected = [
        "html",
        "head",
        "meta",
        "meta",
        "meta",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "noscript",
        "script",
        "script",
    ]
    assert read.tags == expected
    assert read.text["style"].strip() == "main { color: red }"
    if len(name) < 400:
        assert {v["name"] for v in data["graph"]["values"]} >= {name, f"{name}w", f"{name}y"}
    assert len(page) < 200_000


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:24])
def test_drawings_are_well_formed_and_hold_names_as_text(name: str) -> None:
    graph = hostile_graph(name)
    for drawn in (graph_svg(graph), symbol_html(graph.outputs[0])):
        assert drawn is not None
        root = ET.fromstring(f"<div>{drawn}</div>")
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags <= {"div", "code", "svg", "defs", "marker", "g", "title", "rect", "text", "path"}
        assert not any(key.lower().startswith("on") for element in root.iter() for key in element.attrib)
        assert len(drawn) < 2_100_000


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:24])
def test_text_is_escaped_and_shows_what_is_unseen(name: str) -> None:
    result = escaped(name)
    assert not set(result) & set("<>\"'\u202e\u2028\x7f\ud800")
    assert html.unescape(result) == re.sub(
        "[\u202e\u2028\u2029\x7f\x85\ud800]", lambda result: f"\\u{ord(result[0]):04x}", name
    )
    ET.fromstring(table(("a", name), [(name, "")], name))
    ET.fromstring(code(name))


def test_large_graph_is_a_page_in_a_frame_without_rights() -> None:
    graph = Graph("</iframe>", {"x": TensorType(DType.float32, [4])})
    y = graph["x"]
    for _ in range(100):
        y = ops.exp(y)
    y.name = '"><script>alert(1)</script>'
    graph.output(y)
    frame = graph_html(graph)
    read = Elements()
    read.feed(frame)
    assert read.tags == ["iframe"]
    assert 'sandbox="allow-scripts allow-downloads"' in frame  # no allow-same-origin: no access to the notebook
    source = html.unescape(re.search('srcdoc="([^"]*)"', frame)[1])  # type: ignore[index]
    assert len(data_in(source)["graph"]["nodes"]) == 100
