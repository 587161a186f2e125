"""The memory that a model takes, measured in a process of its own.

`python -m graphcore.cli.memory` reads a `Request` as JSON, and prints the bytes.
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
from graphcore.cli.arguments.options import Links
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.runtime.inspection.profiling import onnxruntime_alone
from graphcore.types.tensor_types import TensorType

_PATIENCE = 600  # seconds


@dataclass(frozen=True, slots=True)
class Request:
    """A measurement. feeds: a file that `arrays.write` wrote. alone: by onnxruntime alone."""

    model: str
    feeds: str
    alone: bool
    provider: str
    precision: Any
    threads: int
    links: Links


def peak(request: Request) -> int | None:
    """Return the bytes that a process holds at most while it loads a model and calls it once, less what it held
    before; None where that cannot be measured."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "graphcore.cli.memory"],
            input=json.dumps(asdict(request)),
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
            env=environment,
        )
        return int(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _held() -> dict[str, int] | None:
    """Return the bytes that this process holds, and held at most; None where the system does not tell. The kernel's own
    count of the most goes on from the process that started this one."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            lines = dict(line.split(":", 1) for line in file if line.startswith(("VmRSS", "VmHWM")))
        return {key: int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM")}
    except (OSError, KeyError, ValueError):
        return None


def _measured(request: Request) -> int | None:
    session = runtime.InferenceSession(
        request.provider, precision=request.precision, intra_op_num_threads=request.threads
    )
    small = Graph("small", {"x": TensorType("float32", [1])})
    small.output(y=-small["x"])
    session.load(small.to_onnx())(x=[1.0])  # so that what loading imports is no memory of the model
    feeds = arrays.read_all(request.feeds)
    before = _held()
    if request.alone:
        onnxruntime_alone(request.model, session.providers, request.threads)(feeds)
    else:
        session.load(request.model, **request.links)(**feeds)
    after = _held()
    return None if before is None or after is None else max(0, after["VmHWM"] - before["VmRSS"])


def main() -> int:
    """Measure what stdin asks for. Returns the exit status."""
    try:
        found = _measured(Request(**json.load(sys.stdin)))
    except GraphcoreError:
        return 1
    if found is None:
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
