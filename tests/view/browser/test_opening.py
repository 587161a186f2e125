"""Opening a page: it draws itself, complains of nothing, and asks no network."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest

from graphcore.view.notebook import html_of
from tests.support.browser import as_json
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import Data, bodies_data, large_data, small_data, unet_data

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("data", [small_data, unet_data, bodies_data])
def test_graph_is_drawn_when_its_page_opens(show: Show, data: Callable[[], Data]) -> None:
    result = data()
    with show(result) as opened:
        boxes = opened.boxes()
        assert {box["title"] for box in boxes if box["kind"] == "node"} <= {
            node["op"] for node in result["graph"]["nodes"]
        }
        assert sum(box["kind"] == "node" or box["open"] for box in boxes) >= len(result["graph"]["nodes"])
        assert opened.page.title() == result["title"]
        assert f"{len(result['graph']['nodes'])} nodes" in opened.panel
        assert opened.requests[0].startswith("file:")


def test_canvas_is_not_blank_when_the_page_has_opened(show: Show) -> None:
    with show(small_data()) as opened:
        colours = opened.page.evaluate(
            """() => {
              const canvas = document.querySelector("main canvas");
              const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
              const found = new Set();
              for (let at = 0; at < pixels.length; at += 4) found.add(pixels.slice(at, at + 3).join());
              return found.size;
            }"""
        )
        assert colours > 20


def test_page_cannot_reach_the_network_when_its_program_tries(show: Show) -> None:
    with show(small_data()) as opened:
        answer = opened.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.name)")
        assert answer == "TypeError"
        assert any("Content Security Policy" in complaint for complaint in opened.complaints)
        opened.complaints.clear()
        assert opened.outside == []


def test_graph_is_drawn_when_its_page_stands_in_a_frame_that_may_only_run_scripts(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "frame.html"
    inner = escape(html_of(small_data()))
    file.write_text(f'<iframe sandbox="allow-scripts" width="900" height="600" srcdoc="{inner}"></iframe>')
    context = browser.new_context()
    try:
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(file.as_uri())
        frame = page.frame_locator("iframe")
        frame.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
        frame.locator("input[type=search]").fill("op:relu")
        frame.locator("input[type=search]").press("Enter")
        frame.locator("aside h2:has-text('Relu')").wait_for(timeout=60_000)
        frame.locator("main canvas.graph").press("d")
        assert complaints == []
    finally:
        context.close()


def test_page_says_why_when_its_data_has_another_format(show: Show) -> None:
    data = as_json(small_data()) | {"format": 2}
    with show(data, ready=".problem") as opened:
        assert "format 2" in opened.page.inner_text("[role=alert]")
        assert all("format 2" in complaint for complaint in opened.complaints)
        opened.complaints.clear()


@pytest.mark.parametrize("layers", [True, False])
def test_first_paint_draws_few_boxes_when_there_are_20_000_nodes(show: Show, layers: bool) -> None:
    data = large_data(layers=layers)
    assert len(data["graph"]["nodes"]) == 20_000
    with show(data) as opened:
        assert 3 < len(opened.boxes()) < 300


def test_drawing_has_most_of_the_height_of_a_phone(show: Show) -> None:
    with show(small_data()) as opened:
        opened.page.set_viewport_size({"width": 390, "height": 844})
        header, main, panel = (opened.page.locator(part).bounding_box() for part in ("header", "main", "aside"))
        assert header is not None
        assert main is not None
        assert panel is not None
        assert header["height"] + panel["height"] <= 0.35 * 844
        assert main["height"] == pytest.approx(844 - header["height"] - panel["height"])
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert opened.search("op:relu") == "1 found"
        opened.page.click(".results [role=option]")
        opened.page.click("header button:has-text('Light / dark')")  # scrolled into view
        opened.page.click(".zoom button:has-text('Panel')")
        drawing = opened.page.locator("main").bounding_box()
        assert drawing is not None
        assert drawing["height"] == pytest.approx(844 - header["height"])
