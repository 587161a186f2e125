"""Files for WebGPU run there, in Chromium on SwiftShader, near the numbers that onnxruntime gives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphcore import Graph, TensorType, ops
from graphcore.conformance import runtimes
from graphcore.runtime.ort.web import WEB_FOLDER
from tests.onnx.test_onnxruntime_web import folder
from tests.support.browser import missing
from tools.kernel_probe import web

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

TOLERANCE = 1e-5
"""Of the greatest number of an output."""


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[web.Page]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(WEB_FOLDER, folder())
        with contextlib.closing(web.Page("webgpu", browser.browser_type)) as opened:
            yield opened


def layers() -> Graph:
    graph = Graph("net", {"x": TensorType("float32", ["n", 8])})
    x = ops.gelu(graph["x"]) @ np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
    graph.output(y=ops.softmax(x), top=ops.max(ops.sigmoid(x), axis=1))
    return graph


def embedding() -> Graph:
    graph = Graph("net", {"ids": TensorType("int64", ["n"]), "x": TensorType("float32", [9, 4])})
    graph.output(y=ops.relu(ops.gather(graph["x"], graph["ids"] + 1)))
    return graph


@pytest.mark.parametrize(
    ("graph", "feeds"),
    [
        (layers(), {"x": np.linspace(-3, 3, 40, dtype=np.float32).reshape(5, 8)}),
        (embedding(), {"ids": np.array([7, 0, 3]), "x": np.linspace(-3, 3, 36, dtype=np.float32).reshape(9, 4)}),
    ],
    ids=["layers", "embedding with indices that fall back"],
)
def test_file_for_webgpu_gives_the_numbers_of_onnxruntime(page: web.Page, graph: Graph, feeds: dict[str, Any]) -> None:
    model = graph.to_onnx(target="webgpu")
    page.ask(model=runtimes.text_of(model))
    answer = page.ask(feeds={name: runtimes.described(array) for name, array in feeds.items()})
    native = runtimes.OrtModel(model.SerializeToString())(**feeds)
    for got, want in zip(map(runtimes.array_from, answer["outputs"]), native, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * float(np.abs(want).max()))
