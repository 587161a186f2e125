"""Light and dark: by the system, by a switch, and readable in both."""

from __future__ import annotations

import re

import pytest

from tests.support.browser import Opened
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import small_data

pytestmark = pytest.mark.browser

AA = 4.5
"""The contrast that WCAG 2.2 asks of text at level AA (1.4.3)."""

FAMILIES = "matrix activation norm shape math reduce cast control quantize end".split()
WORDS = [f"word-{index}" for index in range(8)]


CORNER = """() => {
  graphcore.viewer.paint();
  const copy = document.createElement("canvas").getContext("2d");
  copy.drawImage(graphcore.viewer.canvas, 0, 0);
  return [...copy.getImageData(2, 2, 1, 1).data];
}"""
"""Returns a pixel of the drawing where nothing is."""


def brightness(colour: str) -> float:
    """Return the relative luminance of #rrggbb, as WCAG 2.2 defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((brightness(one), brightness(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def colours(opened: Opened, names: list[str]) -> dict[str, str]:
    read = "names => names.map(name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim())"
    results = [
        colour if len(colour) == 7 else re.sub("(.)", r"\1\1", colour[1:])
        for colour in opened.page.evaluate(read, names)
    ]
    return dict(zip(names, results, strict=True))


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast(show: Show, dark: bool) -> None:
    fills = (
        [f"op-{family}" for family in FAMILIES]
        + WORDS
        + ["heat-low", "heat-high", "added", "removed", "changed", "found-soft", "pile", "accent-soft"]
    )
    grounds = ["paper", "sheet", "scope"]
    with show(small_data(), dark=dark) as opened:
        colour = colours(opened, [*fills, *grounds, "ink", "quiet", "accent", "warn"])
    pairs = [("ink", fill) for fill in fills + grounds]
    pairs += [(text, ground) for text in ("quiet", "accent", "warn") for ground in ("paper", "sheet")]
    low = {pair: contrast(colour[pair[0]], colour[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < AA} == {}


@pytest.mark.parametrize("dark", [False, True])
def test_page_follows_the_system_until_the_switch_is_pressed(show: Show, dark: bool) -> None:
    with show(small_data(), dark=dark) as opened:
        before = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert opened.page.get_attribute("html", "data-theme") == ("dark" if dark else "light")
        drawn = opened.page.evaluate(CORNER)
        opened.page.keyboard.press("d")
        assert opened.page.get_attribute("html", "data-theme") == ("light" if dark else "dark")
        assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        now = opened.page.evaluate(CORNER)
        assert (sum(now[:3]) > sum(drawn[:3])) is dark


def test_choice_is_kept_when_the_page_is_opened_again(show: Show) -> None:
    with show(small_data()) as opened:
        opened.page.keyboard.press("d")
        opened.page.reload()
        opened.page.wait_for_selector("html[data-ready]", state="attached")
        assert opened.page.get_attribute("html", "data-theme") == "dark"
