"""ONNX's own tests of single nodes, of graphs that calls of `ops.onnx` make of the models' nodes."""

from __future__ import annotations

import onnx
import pytest

from tests.onnx.test_backend_suite import ONNX, POOLS, Runner, shared_runner
from tests.support.backend import KNOWN

_OTHER_DOMAIN = "The operator is of a domain that ONNX tries out, which ops.onnx leaves out."
NOT_REBUILT = {
    **dict.fromkeys(
        "test_adagrad test_adagrad_multiple test_adam test_adam_multiple test_flexattention "
        "test_flexattention_causal_mask test_flexattention_diff_head_sizes test_flexattention_double "
        "test_flexattention_fp16 test_flexattention_gqa test_flexattention_prob_mod "
        "test_flexattention_relative_positional test_flexattention_scaled test_flexattention_score_mod "
        "test_flexattention_soft_cap test_momentum test_momentum_multiple test_nesterov_momentum".split(),
        _OTHER_DOMAIN,
    ),
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
        assert len(NOT_REBUILT) <= 19
