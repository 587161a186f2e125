"""ONNX's own tests of single nodes, of files that `Graph.load` and `Graph.export(target="onnx")` make of the models."""

from __future__ import annotations

import onnx
import pytest

from tests.onnx.test_backend_suite import ONNX, POOLS, Runner, shared_runner
from tests.support.backend import KNOWN, NEAR, RANDOM

pytestmark = pytest.mark.releases

CHUNKS = 40


@pytest.fixture(scope="module")
def runner() -> Runner:
    return shared_runner()


@pytest.mark.numbers
@pytest.mark.parametrize("chunk", [*range(CHUNKS), POOLS])
def test_exported_files_give_what_the_models_give(runner: Runner, chunk: int | str) -> None:
    outcomes = {name: runner.outcome(name, "exported") for name in runner.part(chunk, CHUNKS)}
    assert "crash" not in outcomes.values(), outcomes
    if onnx.__version__.startswith(ONNX):
        assert not {name: item for name, item in outcomes.items() if item != "ok" and name not in KNOWN}


@pytest.mark.parametrize("chunk", [*range(CHUNKS), POOLS])
def test_onnxruntime_itself_runs_exported_files_where_it_runs_the_models(runner: Runner, chunk: int | str) -> None:
    names = [name for name in runner.part(chunk, CHUNKS) if name not in RANDOM]
    taken = [name for name in names if runner.outcome(name, "bare") in ("ok", "near")]
    outcomes = {name: runner.outcome(name, "exported-bare") for name in taken}
    failed = {name: item for name, item in outcomes.items() if item not in ("ok", "near")}
    if not onnx.__version__.startswith(ONNX):
        assert "crash" not in failed.values(), failed
        return
    assert not {name: item for name, item in failed.items() if name not in NEAR}
    assert len(taken) >= len(names) * 3 // 4
