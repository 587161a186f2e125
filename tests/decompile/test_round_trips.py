"""Models become source, which becomes the same models: ONNX's node tests, packaged models, PyTorch's exports."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.onnx.test_backend_suite import CHUNKS, POOLS, Runner, shared_runner
from tests.onnx.test_model_fields import packaged
from tests.support import pytorch_exports
from tests.support.model_fields import decompiled


@pytest.fixture(scope="module")
def runner() -> Runner:
    return shared_runner()


@pytest.mark.parametrize("chunk", [*range(CHUNKS), POOLS])
def test_node_tests(runner: Runner, chunk: int | str) -> None:
    outcomes = {name: runner.outcome(name, "decompiled") for name in runner.part(chunk, CHUNKS)}
    assert {name: outcome for name, outcome in outcomes.items() if outcome not in ("ok", "not loaded")} == {}
    assert "ok" in outcomes.values()


@pytest.mark.parametrize("path", packaged(), ids=lambda path: path.parent.name + path.stem)
def test_packaged_models(path: Path) -> None:
    assert decompiled(onnx.load(path)) in ("ok", "not loaded")


@pytest.mark.parametrize("name", pytorch_exports.names())
def test_models_of_pytorch(name: str) -> None:
    assert decompiled(pytorch_exports.load(name)) == "ok"
