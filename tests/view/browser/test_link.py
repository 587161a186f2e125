"""Links to a node: followed when the page opens and while it is open, kept in the address, and copied."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.view.browser.conftest import Show
from tests.view.browser.graphs import small_data, unet_data

pytestmark = pytest.mark.browser


def name_of(op: str) -> str:
    return str(next(node["name"] for node in small_data()["graph"]["nodes"] if node["op"] == op))


def test_node_is_selected_and_seen_when_the_page_opens_at_its_link(show: Show) -> None:
    with show(small_data(), place=f"#node={quote(name_of('Relu'), safe='')}") as opened:
        opened.until("graphcore.viewer.selected !== null")
        assert opened.panel.startswith("Relu")
        canvas = opened.page.locator("main canvas.graph").bounding_box()
        assert canvas is not None
        x, y = opened.page.evaluate(
            """() => {
              const { camera, selected } = graphcore.viewer;
              const { box, left, top } = graphcore.viewer.spotOf(selected);
              const middle = [left + box.x + box.width / 2, top + box.y + box.height / 2];
              return [camera.x + middle[0] * camera.scale, camera.y + middle[1] * camera.scale];
            }"""
        )
        assert 0.2 * canvas["width"] < x < 0.8 * canvas["width"]
        assert 0.2 * canvas["height"] < y < 0.8 * canvas["height"]
        opened.page.keyboard.press("Escape")
        opened.page.mouse.click(canvas["x"] + x, canvas["y"] + y)
        assert opened.panel.startswith("Relu")


def test_link_names_the_node_and_the_graph_when_one_is_selected(show: Show) -> None:
    with show(small_data()) as opened:
        opened.select(name_of("Exp"))
        assert opened.page.evaluate("location.hash") == f"#node={quote(name_of('Exp'), safe='')}"
        opened.page.select_option("select[aria-label=Graph]", label="lowered for cpu")
        opened.until("graphcore.view === 0 && graphcore.viewer.selected !== null")
        assert opened.page.evaluate("location.hash").endswith("&lowered=0")
        place = opened.page.evaluate("location.hash")
    with show(small_data(), place=place) as again:
        again.until("graphcore.view === 0 && graphcore.viewer.selected !== null")
        assert again.page.evaluate("location.hash") == place


def test_link_is_copied_when_its_button_is_pressed(show: Show) -> None:
    with show(small_data()) as opened:
        opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        opened.select(name_of("Exp"))
        opened.page.click("aside button:has-text('Copy link')")
        opened.until("document.querySelector('[role=status]').textContent !== ''")
        assert "Link copied." in opened.page.inner_text("header")
        assert opened.page.evaluate("navigator.clipboard.readText()") == opened.page.url


@pytest.mark.parametrize(
    "place", ["#node=gone", "#node=", "#node=%ff", "#lowered=9&node=x", "#lowered=-5&node=x", "#other", "#node=a%00b"]
)
def test_page_opens_without_a_complaint_when_its_link_leads_nowhere(show: Show, place: str) -> None:
    with show(unet_data(), place=place) as opened:
        assert opened.page.evaluate("graphcore.viewer.selected") is None
        assert opened.panel.startswith("unet")
