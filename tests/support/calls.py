"""Counts of calls: what code does is the same on every machine, and the time that it takes is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from graphcore._version import FOLDER


class TooManyCallsError(BaseException):
    """Code made more calls than it may. Not an `Exception`: code under test must not catch it."""


def calls(work: Callable[[], object], limit: float = float("inf")) -> int:
    """Return the number of calls that `work` makes in this thread, of functions in Python and in C.

    Raises `TooManyCallsError` beyond a limit, so that work that has no end ends.
    """
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1
            if count > limit:
                raise TooManyCallsError(f"more than {limit:,} calls")

    _profile(work, counted)
    return count


def touched(work: Callable[[], object]) -> tuple[int, int]:
    """Return the number of functions of the package that `work` calls in this thread, and of their files."""
    results: list[str] = []

    def noted(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FOLDER):
            results.append(frame.f_code.co_filename)

    _profile(work, noted)
    return len(results), len(set(results))


def _profile(work: Callable[[], object], message: Callable[[FrameType, str, object], None]) -> None:
    before = sys.getprofile()
    sys.setprofile(message)
    try:
        work()
    finally:
        sys.setprofile(before)


def growth(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """Return the factor by which the calls grow when the size doubles: 2 where it grows with the size, 4 where it grows
    with its square. `work(size)` prepares the work, and returns a function that does it."""
    calls(work(size))  # fills caches
    return calls(work(2 * size)) / calls(work(size))
