"""Open pages of graphs in Chromium, and note whatever they complain of or ask for.

`python -m tests.support.browser` succeeds where there is a browser to open them in.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphcore.runtime.ort.web import WEB_FOLDER
from graphcore.view.notebook import html_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox --headless=new --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


WAIT = 60
"""Seconds until a test gives up."""


def missing() -> str | None:
    """Return why no page can be opened here, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: make test-browser"
    if executable() is None:
        return "no Chromium in the system, nor one of playwright's: make test-browser"
    return None


def executable() -> str | None:
    """Return the path of a browser of the system, or of the one that `playwright install` brought."""
    from playwright.sync_api import sync_playwright  # only where it is installed

    result = next((path for path in map(shutil.which, NAMES) if path is not None), None)
    if result is not None:
        return result
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def web_folder() -> Path | None:
    """Return the folder in which npm installed onnxruntime-web, None without one."""
    folders = (os.environ.get(WEB_FOLDER), Path(__file__).parents[2] / "build" / "onnxruntime-web")
    paths = (Path(folder) for folder in folders if folder)
    return next((path for path in paths if (path / "node_modules" / "onnxruntime-web").is_dir()), None)


@contextmanager
def started() -> Iterator[Browser]:
    """Start the browser, and end it."""
    from playwright.sync_api import sync_playwright  # only where it is installed

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page of a graph that is open, with what it wrote to the console and asked of the network."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._inspector = page.context.new_cdp_session(page)
        self._inspector.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    @property
    def outside(self) -> list[str]:
        """Return the requests that went beyond the file itself and what it makes in memory."""
        return [url for url in self.requests if not url.startswith(("file:", "blob:", "data:"))]

    @property
    def panel(self) -> str:
        return str(self.page.inner_text("aside"))

    @property
    def first_paint(self) -> float:
        """Return the milliseconds from the start of loading until the graph was drawn."""
        return float(self.page.evaluate("performance.getEntriesByName('graphcore:first-paint')[0].startTime"))

    @property
    def processor_time(self) -> float:
        """Return the milliseconds of processor time that the page's own thread has taken since it was opened."""
        metrics = self._inspector.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

    def search(self, query: str) -> str:
        """Search, and return what the page says of the number found."""
        self.page.fill("input[type=search]", query)
        self.until("query => graphcore.search.searched === query", query)
        return str(self.page.inner_text(".searching output"))

    def select(self, node: str) -> None:
        """Go to a node by its name, and wait until its description is there."""
        self.page.evaluate("name => { location.hash = 'node=' + encodeURIComponent(name); }", node)
        self.until(
            "name => graphcore.viewer.graph.nodes[graphcore.nodeOf(graphcore.viewer.selected)]?.name === name", node
        )

    def until(self, condition: str, argument: object = None) -> None:
        """Wait until a JavaScript expression, or a function of `argument`, gives true.

        Not `Page.wait_for_function`: it needs eval, which the page's Content-Security-Policy forbids.
        """
        end = time.monotonic() + WAIT
        while not self.page.evaluate(condition, argument):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} is not true after {WAIT} s")
            self.page.wait_for_timeout(20)

    def settled(self) -> None:
        """Wait until what was asked for is laid out and drawn."""
        self.page.evaluate("graphcore.viewer.arrange().then(() => graphcore.viewer.paint())")

    def boxes(self) -> list[dict[str, Any]]:
        """Return the drawing: boxes with their places in the drawing, and the titles on them."""
        return list(
            self.page.evaluate(
                """() => {
                  const found = [];
                  const visit = (inside, left, top, around) => inside.boxes.forEach((box, index) => {
                    const at = found.push({
                      around, index, open: box.inside !== null, kind: box.item.kind,
                      title: graphcore.viewer.faces.face(box.item).title,
                      x: left + box.x, y: top + box.y, width: box.width, height: box.height,
                    }) - 1;
                    if (box.inside) visit(box.inside, left + box.x, top + box.y, at);
                  });
                  visit(graphcore.viewer.inside, 0, 0, -1);
                  return found;
                }"""
            )
        )

    def routes(self) -> list[dict[str, Any]]:
        """Return the edges that are drawn, as runs [x, from, to] in the drawing, with the box around each."""
        return list(
            self.page.evaluate(
                """() => {
                  const found = [];
                  let boxes = 0;
                  const visit = (inside, left, top, around) => {
                    for (const route of inside.routes) {
                      const runs = [];
                      for (let at = 0; at < route.runs.length; at += 3)
                        runs.push([left + route.runs[at], top + route.runs[at + 1], top + route.runs[at + 2]]);
                      found.push({ around, from: route.from, to: route.to, runs });
                    }
                    for (const box of inside.boxes) {
                      const at = boxes++;
                      if (box.inside) visit(box.inside, left + box.x, top + box.y, at);
                    }
                  };
                  visit(graphcore.viewer.inside, 0, 0, -1);
                  return found;
                }"""
            )
        )


@contextmanager
def opened(
    browser: Browser,
    folder: Path,
    data: Mapping[str, Any],
    *,
    place: str = "",
    dark: bool = False,
    ready: str = "html[data-ready]",
) -> Iterator[Opened]:
    """Write the page of `data`, as `page_data` gives it, open it as a file and wait until it is drawn.

    place: the part of the address after the file. ready: a selector of what is there then. Raises `AssertionError`
    afterwards if the page complained of something or asked the network.
    """
    file = folder / "page.html"
    file.write_text(html_of(data), encoding="ascii")
    context = browser.new_context(
        viewport={"width": 1280, "height": 800},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    try:
        context.set_default_timeout(WAIT * 1000)
        result = Opened(context.new_page())
        result.page.goto(file.as_uri() + place)
        result.page.wait_for_selector(ready, state="attached")
        yield result
        assert not result.complaints, result.complaints
        assert not result.outside, result.outside
    finally:
        context.close()


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve a folder on this machine, and note the paths that are asked for."""
    paths: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            paths.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        server.server_close()


def as_json(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a page's data that can be changed."""
    copy: dict[str, Any] = json.loads(json.dumps(data))
    return copy


if __name__ == "__main__":
    raise SystemExit(missing())
