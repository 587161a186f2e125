"""Commands run in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphcore.cli import main
from tests.support.trained import TRAINED, Trained
from tests.support.trained import trained as trained  # a fixture

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command in a folder of its own: status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> tuple[int, str, str]:
        status = main(argv)
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def document(call: Call) -> Callable[..., Any]:
    """Run the command with --json, and return what it prints; the status is 0 unless `status` says another."""

    def run(*argv: str, status: int = 0) -> Any:
        got, out, err = call(*argv, "--json")
        assert got == status, err
        return json.loads(out)

    return run


@pytest.fixture(scope="session")
def magika() -> Trained:
    """A classifier of files: 95 nodes, an int32 input, weights of float32."""
    return _named("magika")


@pytest.fixture(scope="session")
def silero() -> Trained:
    """A detector of speech: an LSTM, three inputs, named dims."""
    return _named("silero-vad")


def _named(label: str) -> Trained:
    result = next(each for each in TRAINED if each.label == label)
    result.file()
    return result
