"""The time that one call of an isolated model may take."""

from __future__ import annotations

import time

from graphcore.errors import RunTimeoutError


class Timeout:
    """Seconds of a call, which began when this was made."""

    __slots__ = ("deadline", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() >= self.deadline

    def left(self, name: str) -> float:
        """Return the seconds that are left. name: of the model. Raises `RunTimeoutError` where there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise self.over(name)
        return left

    def over(self, name: str, is_ended: bool = False) -> RunTimeoutError:
        """Return the error of a call whose time is over. is_ended: with its worker, which did not stop by itself."""
        stopped = "; its worker was ended" if is_ended else ""
        return RunTimeoutError(
            f"{name}: a run was stopped after timeout={self.seconds:g} seconds{stopped}",
            help="give it more time, or the session more workers: the wait for a free one counts",
        )
