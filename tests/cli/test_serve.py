"""`graphcore serve`: files on loopback, in one process and in several, until a signal."""

from __future__ import annotations

import http.client
import importlib.util
import json
import math
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphcore import Graph, TensorType, ops
from tests.cli.conftest import Call
from tests.support.waiting import PATIENCE, until

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no signal to one process")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("uvicorn") is None, reason="uvicorn is not installed")


@pytest.fixture
def pair(tmp_path: Path) -> str:
    graph = Graph("pair", {"x": TensorType("float32", ["batch"])})
    graph.output(y=graph["x"] + graph["x"])
    graph.export(tmp_path / "pair.onnx")
    return str(tmp_path / "pair.onnx")


@contextmanager
def _served(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Yield a program that serves, what it prints first, and its address."""
    command = [sys.executable, "-m", "graphcore", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            text = program.stdout.readline()
            while text.startswith("{") and not text.endswith("\n}\n") and (line := program.stdout.readline()):
                text += line
            match = re.search(r"http://(127.0.0.1:\d+)", text)
            if match is None:
                program.kill()
            assert match, program.communicate()
            yield program, text, match[1]
        finally:
            program.kill()


def _ask(address: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    connection.request("GET" if body is None else "POST", path, json.dumps(body))
    answer = connection.getresponse()
    result = answer.status, json.loads(answer.read())
    connection.close()
    return result


def _request(*shape: int) -> dict[str, Any]:
    values = [1.0] * math.prod(shape)
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [*shape], "data": values}]}


@needs_signals
def test_program_serves_files_until_sigterm(pair: str) -> None:
    with _served(pair, "--batch", "4") as (program, line, address):
        assert line == f"serving pair at http://{address}\n"
        assert _ask(address, "/v2/models/pair/ready")[0] == 200
        assert _ask(address, "/v2/models/pair/infer", _request(2))[1]["outputs"][0]["data"] == [2, 2]
        assert _ask(address, "/v2/models/pair/infer", _request(5))[0] == 400
        program.terminate()
        assert program.communicate(timeout=PATIENCE) == ("", "")
        assert program.returncode == 0


@needs_signals
def test_workers_share_the_port_and_one_that_dies_is_replaced(pair: str) -> None:
    with _served(pair, "--workers", "2", "--json") as (program, line, address):
        assert json.loads(line)["workers"] == 2
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        if children.exists():
            before = children.read_text().split()
            subprocess.run(["kill", "-9", before[-1]], check=True)
            until(lambda: before[-1] not in (now := children.read_text().split()) and len(now) == len(before))
        assert [_ask(address, "/v2/models/pair/infer", _request(1))[0] for _ in range(8)] == [200] * 8
        until(lambda: all(_metric(address, "completed_total") == "8" for _ in range(4)))  # whichever worker answers
        program.terminate()
        assert program.communicate(timeout=PATIENCE) == ("", "")
        assert program.returncode == 0


@needs_signals
def test_request_that_runs_is_answered_after_ctrl_c(tmp_path: Path) -> None:
    graph = Graph("slow", {"x": TensorType("float32", ["batch", 128, 128])})
    y = graph["x"]
    for _ in range(200):
        y = ops.matmul(y, y) * 0.001
    graph.output(y=ops.sum(y, axis=[1, 2]))
    graph.export(tmp_path / "slow.onnx")
    with _served(str(tmp_path / "slow.onnx"), "--wait", "0") as (program, _, address):
        results: list[int] = []
        thread = threading.Thread(
            target=lambda: results.append(_ask(address, "/v2/models/slow/infer", _request(4, 128, 128))[0])
        )
        thread.start()
        until(lambda: not thread.is_alive() or _metric(address, "submitted_total") == "1")
        program.send_signal(signal.SIGINT)
        thread.join()
        assert results == [200]
        assert program.wait(PATIENCE) == 0


def _metric(address: str, name: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return next(
        line.split()[1] for line in text.splitlines() if line.startswith(f"graphcore_batcher_requests_{name}{{")
    )


def test_errors_are_text_with_a_fix(call: Call, pair: str, tmp_path: Path) -> None:
    for arguments, text in (
        ([pair, pair], "serve: two models have the same name: pair, pair"),
        ([pair, "--workers", "0"], "serve: --workers 0 must be at least 1"),
        ([pair, "--port", "70000"], "serve: 127.0.0.1:70000: "),
        ([pair, "--port", "0", "--max-connections", "0"], "serve: max_connections must be an integer of at least 1"),
        ([pair, "--port", "0", "--client-timeout", "nan"], "serve: client_seconds must be a number above 0, got nan"),
        ([str(tmp_path), "--port", "0"], f"serve: the folder {tmp_path} has no config.json"),
        ([str(tmp_path / "none.onnx"), "--port", "0"], "none.onnx is not a file or folder: the path does not exist"),
        ([pair, "nothere", "--port", "0"], "or of a folder of Hugging Face; its name is that of the model"),
        ([pair, "--draft", "nothere", "--port", "0"], "serve: nothere is not a file or folder"),
        (
            [pair, "--adapter", f"style={tmp_path}", "--port", "0"],
            "serve: --adapter and --draft are for one folder, but",
        ),
    ):
        status, out, err = call("serve", *arguments)
        assert (status, out) == (1, "")
        assert text in err
        assert "help: " in err


def test_error_of_a_worker_is_that_of_the_command(call: Call, tmp_path: Path) -> None:
    status, _, err = call("serve", str(tmp_path / "none.onnx"), "--port", "0", "--workers", "2")
    assert status == 1
    assert "is not a file" in err


def test_folder_of_a_text_model_is_loaded_by_models_load(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")

    def load(folder: str, **options: Any) -> Any:
        raise ValueError(f"loads {folder} of {options['cache']} tokens")

    monkeypatch.setattr("graphcore.models.load", load, raising=False)
    _, _, err = call("serve", str(tmp_path), "--port", "0", "--context", "77")
    assert f"loads {tmp_path} of 77 tokens" in err
