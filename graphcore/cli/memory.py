"""The memory of a model, measured in a separate process.

`python -m graphcore.cli.memory` reads a `MemoryRequest` as JSON, and prints the bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from graphcore import runtime
from graphcore.cli import arrays
from graphcore.cli.arguments.options import LinkArguments
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.runtime.inspection.profiling import onnxruntime_alone
from graphcore.types.tensor_types import TensorType

_TIMEOUT = 600  # seconds


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """A measurement. feeds: a file that `arrays.write` wrote. alone: run by onnxruntime alone."""

    model: str
    feeds: str
    alone: bool
    provider: str
    precision: Any
    threads: int
    links: LinkArguments


def peak(request: MemoryRequest) -> int | None:
    """Return the peak memory in bytes of loading a model and calling it once; None if it cannot be measured."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        process = subprocess.run(
            [sys.executable, "-m", "graphcore.cli.memory"],
            input=json.dumps(asdict(request)),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT,
            env=environment,
        )
        return int(process.stdout) if process.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _memory_usage() -> dict[str, int] | None:
    """Return the current and the peak memory of this process in bytes; None if the system does not report them.

    The peak of `getrusage` would include the parent process.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file if line.startswith(("VmRSS", "VmHWM")))
        return {key: int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM")}
    except (OSError, KeyError, ValueError):
        return None


def _measure(request: MemoryRequest) -> int | None:
    session = runtime.InferenceSession(
        request.provider, precision=request.precision, intra_op_num_threads=request.threads
    )
    small = Graph("small", {"x": TensorType("float32", [1])})
    small.output(y=-small["x"])
    session.load(small.to_onnx())(x=[1.0])  # imports must not count as memory of the model
    feeds = arrays.read_all(request.feeds)
    before = _memory_usage()
    if request.alone:
        onnxruntime_alone(request.model, session.providers, request.threads)(feeds)
    else:
        session.load(request.model, **request.links)(**feeds)
    after = _memory_usage()
    return None if before is None or after is None else max(0, after["VmHWM"] - before["VmRSS"])


def main() -> int:
    """Measure the request on stdin. Returns the exit status."""
    try:
        peak_bytes = _measure(MemoryRequest(**json.load(sys.stdin)))
    except GraphcoreError:
        return 1
    if peak_bytes is None:
        return 1
    print(peak_bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
