"""Progress of long operations, as a line on stderr or by a callback."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from graphcore.support import notebook

ProgressOption: TypeAlias = bool | Callable[[int, int | None], None]
"""The type of arguments `progress`: False for none, True for a line on stderr, or a function of the number of completed
items and their total (None if it is unknown)."""

_INTERVAL = 0.1  # seconds
_WIDTH = 24


class Progress:
    """A progress line, updated in place: `[======      ] 5/20 items, 3.1 a second`.

    It is written to stderr; in a notebook it is a bar below the cell. With a callback nothing is shown.
    """

    def __init__(self, total: int | None, what: str, callback: Callable[[int, int | None], None] | None = None) -> None:
        """total: the number of items, None if unknown. what: the plural noun for the items."""
        self._total = total
        self._what = what
        self._callback = callback
        self._started = self._displayed = time.perf_counter()
        self._text = ""
        self._done = 0
        self._display = None if callback is not None else notebook.display()

    def show(self, done: int) -> None:
        """Show the number of completed items, at most ten times a second; call the callback every time."""
        if self._callback is not None:
            self._callback(done, self._total)
            return
        now = time.perf_counter()
        rate = f"{self._what}, {done / max(now - self._started, 1e-9):.1f} a second"
        self._done = done
        if self._total is None or self._display is not None:
            self._text = f"{done}{'' if self._total is None else f'/{self._total}'} {rate}"
        else:
            bar = "=" * (_WIDTH * min(done, self._total) // max(1, self._total))
            self._text = f"[{bar:<{_WIDTH}}] {done}/{self._total} {rate}"
        if now - self._displayed > _INTERVAL:
            self._displayed = now
            self._write("")

    def close(self) -> None:
        """Write the line a last time, with a line break."""
        if self._text:
            self._write("\n")

    def _write(self, end: str) -> None:
        if self._display is not None:
            notebook.update(self._display, self._done, self._total, self._text)
            return
        sys.stderr.write(f"\r{self._text}{end}")
        sys.stderr.flush()


def display_for(progress: ProgressOption, total: int | None, what: str) -> Progress | None:
    """Return the display for an argument `progress`, None for False. total, what: see `Progress`."""
    if callable(progress):
        return Progress(total, what, progress)
    return Progress(total, what) if progress else None


@contextlib.contextmanager
def steps(progress: ProgressOption, total: int, what: str) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each step. total, what: see `Progress`."""
    display = display_for(progress, total, what)
    done = 0

    def step() -> None:
        nonlocal done
        done = min(done + 1, total)
        if display is not None:
            display.show(done)

    try:
        yield step
    finally:
        if display is not None:
            display.close()
