"""A child that reads mutants within limits of time and memory, and is started again when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
MEGABYTES = 2048
SECONDS = 20.0
"""Of processor time, for one mutant."""
PATIENCE = 15 * SECONDS
"""By the clock, for a child that waits and computes nothing."""
BAD = ("raised", "died", "hung", "wrong")
"""How outcomes begin that are findings."""


class Child:
    """A process of `tests.fuzz.child`. deaths: how often it was started again."""

    def __init__(self, seconds: float = SECONDS, megabytes: int = MEGABYTES) -> None:
        self.seconds, self.megabytes, self.deaths = seconds, megabytes, 0
        self._process = self._start()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, kind: str, name: str, content: bytes) -> str:
        """Return the outcome of bytes: "ran", the name of a GraphcoreError, or one of `BAD`."""
        BUILD.mkdir(parents=True, exist_ok=True)
        path = BUILD / f"asked-{os.getpid()}.{kind}"
        path.write_bytes(content)
        try:
            what = self._request(json.dumps([kind, name, str(path)]) + "\n")
        finally:
            path.unlink()
        if what.startswith(("died", "hung")):
            self._end()
            self.deaths += 1
            self._process = self._start()
        return what

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.fuzz.child", str(self.megabytes)]
        environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in self._pipes():
            with contextlib.suppress(BrokenPipeError):  # it died before it read what was asked
                pipe.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _request(self, line: str) -> str:
        to, of = self._pipes()
        began = self._processor()
        try:
            to.write(line)
            to.flush()
        except BrokenPipeError:
            return f"died: {self._process.wait()}"
        started = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(of, selectors.EVENT_READ)
            while not selector.select(min(1.0, self.seconds)):
                late = self._processor() - began > self.seconds
                if late or time.monotonic() - started > PATIENCE:
                    return "hung"
        answer = of.readline().strip()
        return answer or f"died: {self._process.wait()}"

    def _processor(self) -> float:
        """Return the processor time that the child has taken."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
