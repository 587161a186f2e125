"""Make what fails smaller: a program by its steps, and a mutant by what it changed."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.fuzz.programs import Program


def least(program: Program, fails: Callable[[Program], bool], seconds: float = 60.0) -> Program:
    """Return a program that fails and of which nothing can be left out, or what the time allows."""
    end = time.monotonic() + seconds
    result = True
    while result:
        result = False
        for smaller in program.smaller():
            if time.monotonic() > end:
                return program
            if fails(smaller):
                program, result = smaller, True
                break
    return program


def nearest(seed: bytes, mutant: bytes, fails: Callable[[bytes], bool], seconds: float = 60.0) -> bytes:
    """Return bytes between a seed and a mutant of it that still fail: as many as can be are the seed's.

    What differs is put back in halves, in quarters, and piece by piece: single bytes where both are as long, else runs.
    """
    end = time.monotonic() + seconds
    pieces = _pieces(seed, mutant)
    size = max(1, len(pieces) // 2)
    while size and pieces:
        at = 0
        while at < len(pieces):
            if time.monotonic() > end:
                return _joined(seed, pieces)
            fewer = pieces[:at] + pieces[at + size :]
            if fails(_joined(seed, fewer)):
                pieces = fewer
            else:
                at += size
        size //= 2
    return _joined(seed, pieces)


Piece = tuple[int, int, bytes]
"""Of a seed, from and to, and what stands there in the mutant."""


def _pieces(seed: bytes, mutant: bytes) -> list[Piece]:
    if len(seed) == len(mutant):
        return [(i, i + 1, mutant[i : i + 1]) for i in range(len(seed)) if seed[i] != mutant[i]]
    from difflib import SequenceMatcher  # late: only a finding needs it

    matcher = SequenceMatcher(None, seed, mutant, autojunk=False)
    return [(a, b, mutant[c:d]) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]


def _joined(seed: bytes, pieces: list[Piece]) -> bytes:
    result, last = b"", 0
    for start, stop, content in pieces:
        result += seed[last:start] + content
        last = stop
    return result + seed[last:]
