"""The kernels of onnxruntime-web: of its wasm in Node.js, and of WebGPU in a headless Chromium.

A model of one node runs in onnxruntime of the same release too, and the bits of both are compared. Values that
JavaScript has no arrays of enter as initializers, and leave as values of a wider dtype, which are the same.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper

from graphcore.conformance import runtimes
from graphcore.runtime.ort.transport_dtypes import from_ort, to_ort
from graphcore.runtime.ort.web import WEB_FOLDER
from graphcore.types.dtypes import DType
from tools.kernel_probe.case import Question, tensor

if TYPE_CHECKING:
    from playwright.sync_api import BrowserType

WASM = "wasm"
BUILDS = {"webgpu": "ort.webgpu.bundle.min.mjs", "jsep": "ort.bundle.min.mjs"}
"""The builds with WebGPU: `onnxruntime-web/webgpu`, and the default one, whose kernels of WebGPU are in JavaScript."""

PROVIDERS = (WASM, *BUILDS, *(f"{name}-host" for name in BUILDS))
"""The wasm of onnxruntime-web, WebGPU in both builds, and the kernels for the CPU in both."""

_WIDER = {
    **dict.fromkeys(("int4", "uint4"), DType.int32),
    **dict.fromkeys(("bfloat16", "float8e4m3fn", "float8e5m2"), DType.float32),
}
"""The dtype that a result is cast to in the model, by the name that onnxruntime gives its own."""

_FLAGS = "--no-sandbox --enable-unsafe-webgpu --use-webgpu-adapter=swiftshader --enable-features=Vulkan".split()

_PAGE = """<!doctype html><title>probe</title><script type="module">
import * as ort from "/ort/BUNDLE";
import { answering } from "/web.mjs";
ort.env.logLevel = "fatal";
ort.env.wasm.numThreads = 1;
globalThis.ask = answering(ort, [PROVIDER]);
</script>"""


class Page:
    """onnxruntime-web with WebGPU in a page of Chromium, on SwiftShader."""

    def __init__(self, provider: str, chromium: BrowserType | None = None) -> None:
        """chromium: of the Playwright that runs in this process, which can have only one; None to start it."""
        from playwright.sync_api import sync_playwright  # only where it is installed

        from tests.support.browser import executable

        ort = Path(os.environ[WEB_FOLDER], "node_modules", "onnxruntime-web", "dist")
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Files, ort, provider))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._playwright = None
        if chromium is None:
            self._playwright = sync_playwright().start()
            chromium = self._playwright.chromium
        self._browser = chromium.launch(executable_path=executable(), args=_FLAGS)
        self._page = self._browser.new_page()
        self._page.goto(f"http://127.0.0.1:{self._server.server_port}/")
        self._page.wait_for_function("globalThis.ask")

    def ask(self, **request: Any) -> Any:
        answer = self._page.evaluate("request => ask(JSON.parse(request))", json.dumps(request))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        self._browser.close()
        if self._playwright is not None:
            self._playwright.stop()
        self._server.shutdown()
        self._server.server_close()


class _Files(http.server.BaseHTTPRequestHandler):
    """Serves the page, web.mjs and the files of onnxruntime-web."""

    def __init__(self, ort: Path, provider: str, *args: Any) -> None:
        self._ort = ort
        self._page = _PAGE.replace("BUNDLE", BUILDS[provider.removesuffix("-host")])
        self._page = self._page.replace("PROVIDER", '"wasm"' if provider.endswith("-host") else '"webgpu"')
        super().__init__(*args)

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        file = Path(runtimes.__file__).with_name(name) if name == "web.mjs" else self._ort / name
        if name and not file.is_file():
            self.send_error(404)  # the icon that browsers look for
            return
        content = file.read_bytes() if name else self._page.encode()
        self.send_response(200)
        kinds = {".mjs": "text/javascript", ".wasm": "application/wasm"}
        self.send_header("Content-Type", kinds.get(file.suffix, "text/html"))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@functools.cache
def runtime(provider: str) -> Any:
    """Return the runtime of this process: one for each provider."""
    return runtimes.WebRuntime() if provider == WASM else Page(provider)


def load(model: onnx.ModelProto, provider: str) -> None:
    """Load a model without optimisations. For WebGPU raises `RuntimeError` unless it runs every node."""
    session = {"disable_cpu_ep_fallback": "1"} if provider in BUILDS else {}
    options = {"graphOptimizationLevel": "disabled", "extra": {"session": session}}
    runtime(provider).ask(model=runtimes.text_of(model), options=options)


def prepared(requested: Question, native: onnxruntime.InferenceSession) -> tuple[Question, list[int]]:
    """Return the model for onnxruntime-web, and the positions of the results that are tensors, which it returns."""
    model = onnx.ModelProto()
    model.CopyFrom(requested.model)
    fed = {name: item for name, item in requested.feeds.items() if item[1].name in runtimes.WEB_DTYPES}
    for name, (array, dtype) in requested.feeds.items():
        if name not in fed:
            model.graph.initializer.append(tensor(name, array, dtype))
    del model.graph.input[:]
    model.graph.input.extend(i for i in requested.model.graph.input if i.name in fed)
    del model.graph.output[:]
    places = []
    for place, output in enumerate(native.get_outputs()):
        kind = output.type.removeprefix("tensor(").removesuffix(")")
        if "(" in kind:
            continue
        places.append(place)
        name = output.name
        if kind in _WIDER:
            name = f"{name}_wider"
            model.graph.node.append(helper.make_node("Cast", [output.name], [name], to=_WIDER[kind].onnx))
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    return Question(model, fed), places


def run(requested: Question, provider: str) -> list[Any]:
    """Return the results of the model that was loaded last."""
    feeds = {name: runtimes.described(array) for name, (array, _) in requested.feeds.items()}
    return [runtimes.array_from(each) for each in runtime(provider).ask(feeds=feeds)["outputs"]]


def native_results(requested: Question, session: onnxruntime.InferenceSession) -> list[Any]:
    """Return the results of onnxruntime itself."""
    if any(dtype is DType.string for _, dtype in requested.feeds.values()):
        return list(session.run(None, {name: array for name, (array, _) in requested.feeds.items()}))
    values = session.run_with_ort_values(None, {name: to_ort(*item) for name, item in requested.feeds.items()})
    return [from_ort(v, DType.of(v.element_type())) if v.is_tensor() else None for v in values]


def difference(got: Any, want: Any) -> str:
    """Return a description of the difference between the bits of a result and of onnxruntime's; "" if there is none."""
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        want = want.astype(np.float32)
    elif want.dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        want = want.astype(np.int32)
    if got.shape != want.shape:
        return f"shape {got.shape} for {want.shape}"
    if want.dtype.kind in "OUST":
        return "" if (got.astype(object) == want.astype(object)).all() else "other strings"
    got = got.view(want.dtype) if got.dtype != want.dtype and got.itemsize == want.itemsize else got
    if got.tobytes() == want.tobytes():
        return ""
    if want.dtype.kind in "iub":
        return f"{np.ravel(got)[:6].tolist()} where onnxruntime has {np.ravel(want)[:6].tolist()}"
    x, y = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        if (np.isnan(x) == np.isnan(y)).all() and (x[~np.isnan(x)] == y[~np.isnan(y)]).all():
            return "" if (np.isnan(x) | (np.signbit(x) == np.signbit(y))).all() else "signs of zeros"
        scale = max(float(np.nanmax(np.abs(y), initial=0, where=np.isfinite(y))), 1e-300)
        return f"off by {float(np.nanmax(np.abs(x - y))) / scale:.1e} of the greatest"
