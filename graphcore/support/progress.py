"""A line on stderr that shows how far a long piece of work is."""

from __future__ import annotations

import sys
import time

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


__all__ = ["Progress"]
