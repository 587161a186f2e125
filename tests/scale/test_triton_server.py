"""A server of Triton reads the repository: that of the package nvidia-pytriton, which has no backend for ONNX."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from graphcore import Graph, TensorType
from graphcore.runtime.export import Options
from graphcore.scale.deploy.triton import Settings
from graphcore.scale.deploy.writing import triton_repository
from tests.scale.support import graphs
from tests.scale.test_deploy import _counter, _encoder, _head, _scaled_by


def _server() -> Path:
    """Return the path of the server's program. Skips the test where it is not installed."""
    result = importlib.util.find_spec("pytriton")
    if result is None or not result.submodule_search_locations:
        pytest.skip("nvidia-pytriton is not installed")
    return Path(next(iter(result.submodule_search_locations)), "tritonserver", "bin", "tritonserver")


def _server_output(repository: Path, backends: Path) -> str:
    """Return the output of the server until it has looked at all models; it must not complete a configuration
    itself."""
    program = _server()
    libraries = program.parents[3] / "nvidia_pytriton.libs"
    arguments = [
        f"--model-repository={repository}", f"--backend-directory={backends}", "--disable-auto-complete-config",
        "--allow-http=false", "--allow-grpc=false", "--allow-metrics=false", "--exit-on-error=true",
    ]  # fmt: skip
    started = subprocess.Popen(
        [os.fspath(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LD_LIBRARY_PATH": os.fspath(libraries)},
    )
    limit = threading.Timer(60, started.kill)
    limit.start()
    try:
        message, _ = started.communicate()
    finally:
        limit.cancel()
    return message.decode(errors="replace")


def test_server_takes_each_configuration_and_lacks_the_backend_alone(tmp_path: Path) -> None:
    several = {name: graph for name, graph in graphs().items() if name != "nibbles"}
    fixed = Graph("fixed", {"x": TensorType("float32", [2, "n"])})
    fixed.output(y=fixed["x"] * np.float32(2))
    several |= {"fixed": fixed, "counter": _counter([1.0, 2.0, 3.0]), "scaled": _scaled_by()}
    triton_repository(tmp_path / "r", several, Settings(), Options())
    triton_repository(tmp_path / "r", {"encoder": _encoder(), "head": _head()}, Settings(), Options(), pipeline="both")
    (tmp_path / "r" / "wrong").mkdir()
    (tmp_path / "r" / "wrong" / "config.pbtxt").write_text('name: "wrong" platform: "onnxruntime_onnx" max_batch: 3')
    message = _server_output(tmp_path / "r", tmp_path / "none")
    reason = r"failed to load '(\w+)' version 1: Invalid argument: unable to find backend library"
    assert {*re.findall(reason, message)} == {*several, "encoder", "head"}, message
    assert re.search(r"ensemble 'both' depends on '\w+' which has no loaded version", message), message
    refused = [line for line in message.splitlines() if "Poll failed" in line or "failed to parse" in line.lower()]
    assert refused, message
    assert all("wrong" in line or "max_batch" in line for line in refused), refused
