"""`graphcore run` with complex arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphcore import DType, Graph, TensorType, ops
from graphcore.cli import main


def test_run_reads_shows_and_writes_complex_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph("g", {"z": TensorType(DType.complex64, ["n"])}, promotion="array_api")
    graph.output(y=ops.conj(graph["z"]) * 2, size=abs(graph["z"]))
    model, fed, result = (str(tmp_path / name) for name in ("m.onnx", "z.npy", "y.npz"))
    graph.export(model)
    z = np.array([3 + 4j, -1j], np.complex64)
    np.save(fed, z)
    assert not main(["run", model, "--input", f"z={fed}", "--output", result])
    assert "complex64[2]  [6-8j 0+2j]" in capsys.readouterr().out.replace("-0", "0")
    with np.load(result) as arrays:
        np.testing.assert_array_equal(arrays["y"], z.conj() * 2)
        np.testing.assert_array_equal(arrays["size"], abs(z))
    assert not main(["run", model, "--random", "--dim", "n=3", "--json"])
    shown = json.dumps(json.loads(capsys.readouterr().out))
    assert "complex64" in shown


@pytest.mark.full
def test_bench_runs_onnxruntime_alone_on_complex_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph("g", {"z": TensorType(DType.complex64, ["n"])}, promotion="array_api")
    graph.output(y=ops.exp(graph["z"]))
    model = str(tmp_path / "m.onnx")
    graph.export(model)
    assert not main(["bench", model, "--dim", "n=3", "--seconds", "0.1"])
    assert "does not run it" not in capsys.readouterr().out
