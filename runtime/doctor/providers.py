"""Installed execution providers, whether each starts, and what to install for others."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

from graphcore.ir.graph import Graph
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.doctor.findings import Notebook, Provider
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

CPU = "CPUExecutionProvider"
SECONDS = 5.0
"""The time that a provider may take to start."""

INSTALLS = {
    "CUDAExecutionProvider": "pip install 'graphcore-engine[gpu]', then pip uninstall -y onnxruntime, then "
    "pip install --force-reinstall --no-deps onnxruntime-gpu",
    "OpenVINOExecutionProvider": "pip install 'graphcore-engine[openvino]', then pip uninstall -y onnxruntime "
    "onnxruntime-openvino, then pip install onnxruntime-openvino",
}
"""For the providers that graphs are lowered for beside the CPU's. The packages bring one module: one must go."""

_NOT_TRIED = {"AzureExecutionProvider": "it calls services, and runs no graph here"}
_NOT_ON = {"Darwin": ("CUDAExecutionProvider",)}
_LONGEST = 300
_LOGGED = re.compile(r"\x1b\[[\d;]*m|^.*\[ONNXRuntimeError\] : \d+ : \w+ : |^.*\[[EW]:onnxruntime:[^\]]*\] ?")
"""The prefixes and colours of lines in onnxruntime's log."""
_FRAMES = re.compile(r"^Traceback .*\n(?:[ \t].*\n)*", re.MULTILINE)
"""A traceback up to the exception. Its source lines look like messages, and Python 3.13 prints those of `-c` too."""


class Starting:
    """The starts of all installed providers, begun at once."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        tried = [name for name in names if name != CPU and name not in _NOT_TRIED]
        self._children = {name: _child(name) for name in tried}

    def providers(self, book: Notebook) -> tuple[Provider, ...]:
        """Return whether each started; notes those that did not."""
        found = tuple(map(self._provider, self._names))
        for provider in found:
            if provider.has_started is False:
                text = f"{provider.name} is installed and does not start: {provider.reason}"
                book.add("note", "providers", text, _help(provider.name))
        return found

    def _provider(self, name: str) -> Provider:
        if name == CPU:
            return Provider(name, True)
        if name not in self._children:
            return Provider(name, None, _NOT_TRIED[name])
        child = self._children[name]
        try:
            out, err = child.communicate(_model(), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return Provider(name, False, f"it had not after {SECONDS:g} s")
        if name in out.decode(errors="replace").split():
            return Provider(name, True)
        return Provider(name, False, _reason(err.decode(errors="replace"), child.returncode))


def installs(names: list[str]) -> dict[str, str]:
    """Return what to install for the providers that are not among these."""
    never = _NOT_ON.get(platform.system(), ())
    return {name: how for name, how in INSTALLS.items() if name not in names and name not in never}


def _child(name: str) -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("start_provider.py")
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-P", str(program), name], stdin=pipe, stdout=pipe, stderr=pipe)


def _model() -> bytes:
    graph = Graph("probe", {"x": TensorType(DType.float32, [1])})
    graph.output(y=graph.op("Add", [graph["x"], graph["x"]], {}, [graph["x"].type])[0])
    graph.opsets[""] = 17
    return join(encode(graph, ir=8))


def _reason(said: str, status: int) -> str:
    """Return the line of what a process said that tells most, without what logs put before it."""
    lines = [" ".join(_LOGGED.sub("", line).split()) for line in _FRAMES.sub("", said).splitlines()]
    told = [line for line in lines if line]
    if not told:
        return f"its process ended with status {status} and said nothing"
    missing = next((found for line in told if (found := re.search(r"with error: (.+)", line))), None)
    if missing is not None:  # of a library that it loads
        return missing[1][:_LONGEST]
    best = next((line for line in told if re.search(r"error|fail|cannot|not ", line, re.IGNORECASE)), told[-1])
    return best[:_LONGEST]


def _help(name: str) -> str:
    if name == "CUDAExecutionProvider":
        return "it needs NVIDIA's driver, CUDA and cuDNN: https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html"
    return "graphs run on the other providers"
