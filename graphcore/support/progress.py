"""Show how far a long piece of work is: as a line on stderr, or to a function."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

ProgressOption: TypeAlias = bool | Callable[[int, int | None], None]
"""The argument `progress` of the library: False for none, True for a line on stderr, or a function that is told how
many are done, and how many there will be (None where that is not known)."""

_SHOWN_EVERY = 0.1  # seconds
_WIDTH = 24


class Progress:
    """One line, written over and over: `[======      ] 5/20 items, 3.1 a second`."""

    def __init__(self, most: int | None, what: str) -> None:
        """most: how many there will be, where that is known. what: how they are called."""
        self._most = most
        self._what = what
        self._started = self._shown = time.perf_counter()
        self._text = ""

    def show(self, done: int) -> None:
        """Show how many are done; the line is written ten times a second at most."""
        now = time.perf_counter()
        rate = f"{self._what}, {done / max(now - self._started, 1e-9):.1f} a second"
        if self._most is None:
            self._text = f"\r{done} {rate}"
        else:
            bar = "=" * (_WIDTH * min(done, self._most) // max(1, self._most))
            self._text = f"\r[{bar:<{_WIDTH}}] {done}/{self._most} {rate}"
        if now - self._shown > _SHOWN_EVERY:
            self._shown = now
            sys.stderr.write(self._text)
            sys.stderr.flush()

    def close(self) -> None:
        """Write the line a last time, and end it."""
        if self._text:
            sys.stderr.write(f"{self._text}\n")
            sys.stderr.flush()


class Shown(Protocol):
    """Receives how many are done."""

    def show(self, done: int) -> None: ...
    def close(self) -> None: ...


class _Told:
    """Calls a function of the user's."""

    def __init__(self, tell: Callable[[int, int | None], None], most: int | None) -> None:
        self._tell = tell
        self._most = most

    def show(self, done: int) -> None:
        self._tell(done, self._most)

    def close(self) -> None:
        return None


def shown_by(progress: ProgressOption, most: int | None, what: str) -> Shown | None:
    """Return what an argument `progress` asks for; None where it asks for nothing. most, what: see `Progress`."""
    if callable(progress):
        return _Told(progress, most)
    return Progress(most, what) if progress else None


@contextlib.contextmanager
def steps(progress: ProgressOption, most: int, what: str) -> Iterator[Callable[[], None]]:
    """Yield what is called after each step. progress: the argument of that name. most, what: see `Progress`."""
    shown = shown_by(progress, most, what)
    done = 0

    def step() -> None:
        nonlocal done
        done = min(done + 1, most)
        if shown is not None:
            shown.show(done)

    try:
        yield step
    finally:
        if shown is not None:
            shown.close()
