"""Names from third-party models: text on the page, whatever they hold."""

from __future__ import annotations

import pytest

from tests.support.browser import as_json
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import Data, small_data

pytestmark = pytest.mark.browser

HOSTILE = {
    "image": "<img src=x onerror=\"document.title='owned'\">",
    "script": "</script><script>document.title='owned'</script>",
    "comment": "<!--<script>",
    "style": "</style><style>*{display:none}</style>",
    "quotes": "\"' onmouseover=\"document.title='owned'\"",
    "address": "javascript:document.title='owned'",
    "entity": "&lt;b&gt;&#0;",
    "template": "${document.title='owned'} {{constructor.constructor('1')()}}",
    "right to left": "\u202egnp.exe\u2066\u05d0\u05d1\u2069",
    "controls": "a\x00b\x1b[31mc\x07\x7f\x9b\u2028d\u200b",
    "surrogate": "half \ud800 pair",
    "long": "very/" * 2000,
    "prototype": "__proto__",
    "empty": "",
}


def renamed(name: str) -> Data:
    """Return the page of a graph in which every string of the model is `name`."""
    data = as_json(small_data())
    for graph in [data["graph"], *(lowered["graph"] for lowered in data["lowered"])]:
        graph["name"] = name
        for node in graph["nodes"]:
            node |= {
                "name": name,
                "op": name,
                "domain": name,
                "attributes": [[name, name]],
                "operandNames": [name] * len(node["operands"]),
            }
            node["source"] = {"file": name, "line": 1, "text": name}
            if "cast" in node:
                node["cast"] |= {"words": name, "system": name, "result": name}
            for item in node.get("lowered", []):
                item["reason"] = name
        for value in graph["values"]:
            value |= {"name": name, "dtype": name, "shape": [name, name], "text": name}
        for group in graph["groups"]:
            group["name"] = name
    for lowered in data["lowered"]:
        lowered |= {"target": name, "runtime": name, "passes": [{"name": name, "reason": name}]}
    for overlay in data["overlays"]:
        overlay |= {"name": name, "unit": name, "note": name}
        for entries, at in ((overlay.get("numbers", []), [2]), (overlay.get("words", []), [1, 2])):
            for entry in entries:
                for place in at:
                    entry[place] = name
    return data | {"title": name, "promotion": name, "writer": name, "failures": [{"target": name, "reason": name}]}


@pytest.mark.parametrize("kind", HOSTILE)
def test_names_are_text_when_they_are_hostile(show: Show, kind: str) -> None:
    with show(renamed(HOSTILE[kind])) as opened:
        page = opened.page
        result = "document.querySelectorAll('img, script, style, iframe, object, embed, link, a, form, b').length"
        before = page.evaluate(result)
        for index in range(page.evaluate("graphcore.viewer.graph.nodes.length")):
            page.evaluate("index => graphcore.showNode(index)", index)
        page.evaluate("graphcore.select(null)")
        opened.search("a")
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        for _ in range(page.evaluate("graphcore.page.overlays.length") + 1):
            page.keyboard.press("v")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("b")
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        opened.until("graphcore.view === 0 && graphcore.viewer.inside !== null")
        opened.settled()
        assert page.evaluate(result) == before <= 3
        assert page.title() != "owned"
        assert page.evaluate("Object.keys({}).length === 0 && ({}).polluted === undefined")
        assert page.evaluate("document.querySelectorAll('[onerror], [onmouseover], [onclick], [href]').length") == 0


def test_hidden_characters_are_spelled_out_when_a_name_has_them(show: Show) -> None:
    with show(renamed(HOSTILE["right to left"])) as opened:
        assert "‹202E›gnp.exe‹2066›" in opened.panel
        assert not set("\u202e\u2066\u2069") & set(opened.page.inner_text("body"))
    with show(renamed(HOSTILE["controls"])) as opened:
        assert "a‹0000›b‹001B›[31mc‹0007›‹007F›‹009B›‹2028›d‹200B›" in opened.panel


def test_drawing_stays_small_when_a_name_is_long(show: Show) -> None:
    with show(renamed(HOSTILE["long"])) as opened:
        assert max(box["width"] for box in opened.boxes() if not box["open"]) < 600
        assert len(opened.panel) < 100_000
        assert opened.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
