"""ONNX's own tests of single nodes, of graphs that calls of `ops.onnx` make of the models' nodes."""

from __future__ import annotations

import onnx
import pytest

from tests.onnx.test_backend_suite import ONNX, POOLS, Runner, shared_runner
from tests.support.backend import KNOWN

NOT_REBUILT = {
    "test_scan_sum": "The Scan of opset 8, over a batch and with an operand of lengths that is left out, is no more.",
}
"""The operators that are read from a model and cannot be called, and why."""

CHUNKS = 40


@pytest.fixture(scope="module")
def runner() -> Runner:
    return shared_runner()


@pytest.mark.parametrize("chunk", [*range(CHUNKS), POOLS])
def test_rebuilt_graphs_give_what_the_models_give(runner: Runner, chunk: int | str) -> None:
    outcomes = {name: runner.outcome(name, "rebuilt") for name in runner.part(chunk, CHUNKS)}
    assert "crash" not in outcomes.values(), outcomes
    if not onnx.__version__.startswith(ONNX):
        return
    failed = {name: item for name, item in outcomes.items() if item != "ok" and name not in {*KNOWN, *NOT_REBUILT}}
    assert not failed
    assert not [name for name, item in outcomes.items() if item == "ok" and name in NOT_REBUILT]


def test_few_cannot_be_rebuilt(runner: Runner) -> None:
    if onnx.__version__.startswith(ONNX):
        assert set(NOT_REBUILT) <= set(runner.names)
        assert len(NOT_REBUILT) == 1
