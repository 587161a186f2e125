"""A limit of processor time for programs that are tried in this process: lowering that never ends is a finding too."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 180.0
"""Of processor time of this process, for one program."""


@contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TimeoutError where the body takes longer, of the main thread alone, as Python handles signals."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


__all__ = ["limited"]
