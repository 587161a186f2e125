"""The keyboard: each key of the help does what the help says."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import Opened
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import bodies_data, small_data, unet_data

pytestmark = pytest.mark.browser


def title(opened: Opened) -> str:
    return str(opened.page.inner_text("aside h2"))


def test_help_lists_every_key_when_asked_for(show: Show) -> None:
    with show(small_data()) as opened:
        opened.page.keyboard.press("?")
        keys = opened.page.locator("dialog kbd").all_inner_texts()
        assert {"/", "n", "N", "↑", "↓", "Enter", "e", "c", "0", "b", "l", "d", "Esc", "?"} <= set(keys)
        opened.page.keyboard.press("Escape")
        opened.page.wait_for_selector("dialog", state="detached")


def test_arrows_walk_along_edges_when_pressed(show: Show) -> None:
    with show(small_data()) as opened:
        opened.select(next(node["name"] for node in small_data()["graph"]["nodes"] if node["op"] == "Mul"))
        seen = [title(opened)]
        for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp"):
            opened.page.keyboard.press(key)
            seen.append(title(opened))
        assert seen == ["Mul", "Exp", "Add", "Exp", "Mul", "Cast"]
        assert "Cast" in opened.page.inner_text("[role=status]")


def test_arrow_selects_the_first_node_when_none_is_selected(show: Show) -> None:
    with show(unet_data()) as opened:
        opened.page.keyboard.press("ArrowDown")
        assert title(opened) == "image"
        opened.page.keyboard.press("ArrowDown")
        assert title(opened) == "down0"
        opened.page.keyboard.press("i")
        assert title(opened) == "Conv"
        opened.page.keyboard.press("o")
        assert title(opened) == "down0"


def test_groups_open_and_close_when_their_keys_are_pressed(show: Show) -> None:
    with show(bodies_data()) as opened:
        opened.page.keyboard.press("c")
        opened.until("graphcore.viewer.open.size === 0")
        opened.settled()
        closed = len(opened.boxes())
        opened.page.keyboard.press("e")
        opened.until("graphcore.viewer.open.size > 0")
        opened.settled()
        titles = [box["title"] for box in opened.boxes()]
        assert len(titles) > closed
        assert {"Loop", "If", "then_branch", "else_branch", "Less", "Abs"} <= set(titles)


@pytest.mark.parametrize(("key", "larger"), [("+", True), ("-", False)])
def test_drawing_is_scaled_when_plus_or_minus_is_pressed(show: Show, key: str, larger: bool) -> None:
    with show(unet_data()) as opened:
        before = opened.page.evaluate("graphcore.viewer.camera.scale")
        opened.page.keyboard.press(key)
        after = opened.page.evaluate("graphcore.viewer.camera.scale")
        assert (after > before) is larger
        opened.page.keyboard.press("1")
        assert opened.page.evaluate("graphcore.viewer.camera.scale") == pytest.approx(1)


def test_whole_graph_is_seen_when_zero_is_pressed(show: Show) -> None:
    with show(unet_data()) as opened:
        opened.page.evaluate("graphcore.viewer.closeAll()")
        opened.page.keyboard.press("+")
        opened.page.keyboard.press("0")
        assert opened.page.evaluate(
            "graphcore.viewer.inside.height * graphcore.viewer.camera.scale < graphcore.viewer.canvas.clientHeight"
        )


@pytest.mark.parametrize("op", [None, "Sigmoid"])
def test_text_stays_legible_around_the_selection_when_zero_is_pressed(show: Show, op: str | None) -> None:
    with show(unet_data()) as opened:
        if op is None:
            shown = "graphcore.viewer.inside.boxes[0].item"
        else:
            opened.select(next(node["name"] for node in unet_data()["graph"]["nodes"] if node["op"] == op))
            shown = "graphcore.viewer.selected"
        for _ in range(12):
            opened.page.keyboard.press("-")
        opened.page.keyboard.press("0")
        scale, x, y, width, height = opened.page.evaluate(
            f"""(() => {{
              const {{ camera, canvas }} = graphcore.viewer;
              const {{ box, left, top }} = graphcore.viewer.spotOf({shown});
              const x = camera.x + (left + box.x + box.width / 2) * camera.scale;
              const y = camera.y + (top + box.y + box.height / 2) * camera.scale;
              return [camera.scale, x, y, canvas.clientWidth, canvas.clientHeight];
            }})()"""
        )
        assert scale * 11.5 > 6.8  # pixels of the smaller text
        assert 0 < x < width
        assert 0 < y < height


def test_search_begins_when_slash_is_pressed_and_ends_with_escape(show: Show) -> None:
    with show(small_data()) as opened:
        opened.page.keyboard.press("/")
        opened.page.keyboard.type("op:exp")
        opened.page.keyboard.press("Enter")
        assert title(opened) == "Exp"
        opened.page.keyboard.press("Escape")
        assert opened.page.evaluate("document.activeElement === graphcore.viewer.canvas")
        opened.page.keyboard.press("Escape")
        assert title(opened) == "small"


def test_before_and_after_open_when_b_is_pressed(show: Show) -> None:
    with show(small_data()) as opened:
        opened.select(next(node["name"] for node in small_data()["graph"]["nodes"] if node["op"] == "Exp"))
        opened.page.keyboard.press("b")
        opened.page.wait_for_selector("dialog[data-ready]")


def test_panel_and_map_hide_when_their_keys_are_pressed(show: Show) -> None:
    with show(small_data()) as opened:
        for key, selector in (("p", "aside"), ("m", "canvas.minimap")):
            opened.page.keyboard.press(key)
            assert opened.page.is_hidden(selector)
            opened.page.keyboard.press(key)
            assert opened.page.is_visible(selector)


def test_graph_and_overlay_change_when_g_and_v_are_pressed(show: Show) -> None:
    with show(small_data()) as opened:
        opened.page.keyboard.press("v")
        assert opened.page.is_visible(".legend")
        opened.page.keyboard.press("g")
        opened.until("graphcore.view === 0")
        opened.page.keyboard.press("g")
        opened.until("graphcore.view === -1")


def test_last_graph_is_shown_when_another_is_asked_for_before_it_is_laid_out(show: Show) -> None:
    with show(small_data()) as opened:
        opened.page.keyboard.press("v")
        shown = opened.page.evaluate("Promise.all([graphcore.showView(0), graphcore.showView(-1)])")
        assert shown == [False, True]
        assert opened.page.evaluate("graphcore.painted.overlay.of") == -1
        assert opened.page.evaluate("graphcore.search.search.graph === graphcore.viewer.graph")
        assert opened.page.is_visible(".legend")


def test_every_control_has_a_name_when_it_is_read_aloud(show: Show) -> None:
    with show(small_data()) as opened:
        opened.select(next(node["name"] for node in small_data()["graph"]["nodes"] if node["op"] == "MatMul"))
        unnamed = opened.page.evaluate(
            """() => [...document.querySelectorAll("button, select, input, [role]")].filter(element => {
              const name = element.getAttribute("aria-label") || element.textContent || element.getAttribute("title");
              return !name.trim() && !element.matches("[role=status], .results");
            }).map(element => element.outerHTML)"""
        )
        assert unnamed == []
        assert re.search(r"small: 9 nodes", opened.page.get_attribute("main canvas.graph", "aria-label") or "")
        assert opened.page.get_attribute("html", "lang") == "en"


def test_tab_reaches_search_drawing_and_panel_when_pressed(show: Show) -> None:
    with show(small_data()) as opened:
        reached = set()
        for _ in range(25):
            opened.page.keyboard.press("Tab")
            reached.add(
                opened.page.evaluate("(e => e.closest('header, main, aside')?.tagName ?? '')(document.activeElement)")
            )
        assert {"HEADER", "MAIN", "ASIDE"} <= reached
