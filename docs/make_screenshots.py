"""Make the pictures of docs/howto/draw.md: `PYTHONPATH=. python docs/make_screenshots.py`, after `make browser`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

from graphcore.view.data import PageOptions, page_data
from tests.support.browser import Opened, missing, opened, started
from tests.view.browser.graphs import Data, large_data, small_data, stacked, unet_data

IMAGES = Path(__file__).parent / "images"
LIMIT = 200_000
"""Bytes of a picture."""


def first(data: Data, op: str) -> str:
    return str(next(node["name"] for node in data["graph"]["nodes"] if node["op"] == op))


def cast(shown: Opened) -> None:
    """Select the cast that promotion inserted."""
    shown.select(first(small_data(), "Cast"))


def unet(shown: Opened) -> None:
    """Close the groups, but for the lowest ones, so that the skips are seen."""
    shown.page.evaluate(
        """(async () => {
          const { viewer } = graphcore;
          viewer.open.clear();
          for (const scope of viewer.tree.scopes) if (scope.name === "middle") viewer.open.add(scope);
          await viewer.arrange();
          viewer.fit();
        })()"""
    )


def search(shown: Opened) -> None:
    """Search 20,000 nodes, go to a result, and show the list again."""
    shown.search("op:softmax dim:8")
    for _ in range(3):
        shown.page.keyboard.press("ArrowDown")
    shown.until("document.querySelector('aside h2').textContent === 'Softmax'")


def lowering(shown: Opened) -> None:
    """Show an operator of bfloat16 before and after lowering."""
    shown.select(first(small_data(), "Exp"))
    shown.page.keyboard.press("b")
    shown.page.wait_for_selector("dialog[data-ready]")


def weights(shown: Opened) -> None:
    """Select a product, and scroll to its weight."""
    shown.select(first(small_data(), "MatMul"))
    shown.page.locator("aside .card", has_text="weight w").scroll_into_view_if_needed()


def layers(shown: Opened) -> None:
    """Close the groups of numbered layers."""
    shown.page.evaluate("graphcore.viewer.closeAll()")


PICTURES: dict[str, tuple[Callable[[], Data], Callable[[Opened], None], bool, int]] = {
    "cast": (small_data, cast, False, 760),
    "unet": (unet_data, unet, False, 900),
    "large": (lambda: large_data(layers=True), search, True, 760),
    "lowering": (small_data, lowering, False, 760),
    "weights": (small_data, weights, False, 640),
    "layers": (lambda: page_data(stacked(8), PageOptions(targets=[])), layers, False, 640),
}
"""Of each picture: the data, what is done to the page, whether it is dark, and its height."""


def save(page: Page, name: str) -> None:
    page.wait_for_timeout(300)
    path = IMAGES / f"view-{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.relative_to(IMAGES.parent.parent)}: {size} bytes")
    if size > LIMIT:
        raise SystemExit(f"{path.name} is larger than {LIMIT} bytes")


def main() -> int:
    """Make all pictures, or those that the arguments name."""
    why = missing()
    if why is not None:
        print(why, file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with started() as browser, tempfile.TemporaryDirectory() as folder:
        for name, (data, prepare, dark, height) in PICTURES.items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            with opened(browser, Path(folder), data(), dark=dark) as shown:
                shown.page.set_viewport_size({"width": 1200, "height": height})
                shown.page.evaluate("graphcore.viewer.fit(true)")
                prepare(shown)
                save(shown.page, name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
