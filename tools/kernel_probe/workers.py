"""Processes that answer one question after another, and may die of one."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

TIMEOUT = 60.0
"""Seconds after which a question counts as hanging."""


@dataclass(frozen=True, slots=True)
class Died:
    """The process ended, or did not answer in time. how: the signal, the exit status or the time."""

    how: str


class Worker:
    """A process that calls one function. A worker that died answers no more."""

    def __init__(self, function: Callable[..., Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._pipe.recv()
        except EOFError:
            self.end()
            raise RuntimeError(f"measure: a process does not start: exit status {self._process.exitcode}") from None

    def ask(self, *operands: Any, timeout: float = TIMEOUT) -> Any:
        """Return the result of the function, or `Died`. Raises what it raises."""
        try:
            self._pipe.send(operands)
            if not self._pipe.poll(timeout):
                self._process.kill()
                self.end()
                return Died(f"no answer in {timeout:g} s")
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.end()
            code = self._process.exitcode or 0
            return Died(signal.Signals(-code).name if code < 0 else f"exit status {code}")
        if isinstance(answer, BaseException):
            self.end()
            raise answer
        return answer

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()


def _serve(pipe: Connection[Any, Any], function: Callable[..., Any]) -> None:
    # What dies says so on stderr, at length; the parent reports it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    pipe.send("ready")
    while True:
        try:
            operands = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(function(*operands))
        except Exception as error:  # of kinds that may not be there where it is received
            is_told = type(error) is RuntimeError
            pipe.send(error if is_told else RuntimeError(f"{', '.join(map(str, operands))}: {error!r}"[:400]))
