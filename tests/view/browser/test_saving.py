"""What the page saves as files: the drawing as SVG and PNG, and weights as .npy."""

from __future__ import annotations

import io
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import DType, Graph, TensorType, ops
from graphcore.view.data import PageOptions, page_data
from graphcore.view.notebook import graph_html
from tests.support.browser import Opened
from tests.view.browser.conftest import Show
from tests.view.browser.graphs import Data, bodies_data, small, small_data, unet_data
from tests.view.browser.test_names import renamed

pytestmark = pytest.mark.browser

SVG = "{http://www.w3.org/2000/svg}"

DIFFERENT = """async () => {
  const read = async (url) => {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [graphcore.viewer.inside.width + 80, graphcore.viewer.inside.height + 80];
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return context.getImageData(0, 0, canvas.width, canvas.height).data;
  };
  const blobs = [];
  graphcore.save = (blob) => blobs.push(blob);
  graphcore.saveSvg();
  await graphcore.savePng();
  const [first, second] = await Promise.all(blobs.map((blob) => read(URL.createObjectURL(blob))));
  let different = 0;
  for (let at = 0; at < first.length; at += 4)
    if ([0, 1, 2].some((channel) => Math.abs(first[at + channel] - second[at + channel]) > 48)) different += 4;
  return different / first.length;
}"""
"""Returns the share of pixels in which the SVG and the PNG differ, both scaled to the size of the drawing."""


def saved(opened: Opened, press: Callable[[], object]) -> tuple[str, bytes]:
    """Return the name and the bytes of the file that is saved."""
    with opened.page.expect_download() as download:
        press()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.parametrize("data", [small_data, unet_data, bodies_data])
@pytest.mark.parametrize("dark", [False, True])
def test_svg_stands_alone_and_looks_as_the_png(show: Show, data: Callable[[], Data], dark: bool) -> None:
    with show(data(), dark=dark) as opened:
        name, content = saved(opened, lambda: opened.page.click("aside button:has-text('Save SVG')"))
        assert name == f"{data()['title']}.svg"
        root = ET.fromstring(content)
        width, height = opened.page.evaluate("[graphcore.viewer.inside.width, graphcore.viewer.inside.height]")
        assert float(root.attrib["width"]) == pytest.approx(width + 80, abs=1)
        assert float(root.attrib["height"]) == pytest.approx(height + 80, abs=1)
        texts = [element.text for element in root.iter(f"{SVG}text")]
        assert {box["title"] for box in opened.boxes()} <= set(texts)
        assert not {"class", "href", "id"} & {key for element in root.iter() for key in element.attrib}
        assert b"var(" not in content
        assert b"url(" not in content
        assert opened.page.evaluate(DIFFERENT) < 0.01


def test_svg_is_xml_when_names_are_hostile(show: Show) -> None:
    with show(renamed("a\0\u202e]]></text><b>&\ud800\uffff")) as opened:
        _, content = saved(opened, lambda: opened.page.keyboard.press("s"))
        texts = {element.text for element in ET.fromstring(content).iter(f"{SVG}text")}
        assert "a‹0000›‹202E›]]></text><b>&\ufffd‹FFFF›" in texts


def test_png_has_the_whole_drawing_in_two_pixels_a_unit(show: Show) -> None:
    with show(unet_data()) as opened:
        opened.page.keyboard.press("Escape")
        name, content = saved(opened, lambda: opened.page.keyboard.press("S"))
        width, height = opened.page.evaluate("[graphcore.viewer.inside.width, graphcore.viewer.inside.height]")
        assert name == "unet.png"
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", content[16:24]) == pytest.approx((2 * (width + 80), 2 * (height + 80)), abs=1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "bfloat16", "int4"])
def test_weight_is_shown_and_saved(show: Show, dtype: str) -> None:
    graph = Graph("weights")
    array = (np.arange(12).reshape(3, 4).T / 4).astype(DType.of(dtype).numpy)
    (y,) = graph.op("Identity", [graph.weight("block/w", array)])
    graph.output(y)
    with show(page_data(graph, PageOptions(targets=[]))) as opened:
        opened.select(graph.nodes[0].outputs[0].name)
        first = ", ".join(map(str, array.ravel()[:8]))
        assert f"{first}, ..." in opened.panel
        assert f"{dtype}[4, 3]" in opened.panel
        name, content = saved(opened, lambda: opened.page.click("aside button:has-text('Save .npy')"))
        assert name == "block_w.npy"
        loaded = np.load(io.BytesIO(content))
        note = f"np.load(path).view(ml_dtypes.{dtype})"
        if note in opened.panel:
            loaded = loaded.view(getattr(ml_dtypes, dtype))
        np.testing.assert_array_equal(loaded, array, strict=True)


def test_weight_that_is_not_in_the_page_says_how_to_get_it(show: Show) -> None:
    with show(page_data(small(), PageOptions(targets=[], weight_bytes=8191))) as opened:
        opened.page.evaluate("graphcore.searchFor('op:MatMul')")
        opened.page.keyboard.press("Enter")
        opened.until("document.querySelector('aside h2').textContent === 'MatMul'")
        assert "-1.0, -0.99902296" in opened.panel
        assert "graphcore view --weight-bytes" in opened.panel
        assert opened.page.locator("aside button:has-text('Save')").count() == 0


def test_frame_of_a_notebook_saves_files(browser: Any, tmp_path: Path) -> None:
    graph = Graph("notebook", {"x": TensorType("float32", [4])})
    array = np.arange(4, dtype=np.float32)
    y = graph["x"] + graph.weight("bias", array)
    for _ in range(90):
        y = ops.exp(y)
    graph.output(y)
    file = tmp_path / "notebook.html"
    file.write_text(graph_html(graph))
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(file.as_uri())
        frame = page.frame_locator("iframe")
        frame.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
        contents = {}
        for label in ("Save SVG", "Save PNG", "Save .npy"):
            if label == "Save .npy":
                frame.locator("input[type=search]").fill("bias")
                frame.locator("input[type=search]").press("Enter")
            with page.expect_download() as download:
                frame.locator(f"aside button:has-text('{label}')").click()
            contents[download.value.suggested_filename] = Path(download.value.path()).read_bytes()
        assert ET.fromstring(contents["notebook.svg"]).tag == f"{SVG}svg"
        assert contents["notebook.png"][:8] == b"\x89PNG\r\n\x1a\n"
        np.testing.assert_array_equal(np.load(io.BytesIO(contents["bias.npy"])), array, strict=True)
    finally:
        context.close()
