"""Memory in pages of 2 MB, of which the processor keeps the places of hundreds of times as much as with those of 4 KB.

What the kernels have put in order when a session starts is memory of onnxruntime's own, in small pages as a rule: Linux
gives large ones to those who ask for them (`madvise`), and onnxruntime does not ask. Weights that are read once in each
call, as those of a decoder are, or of an encoder for a short text, are read more slowly so. Linux can gather the
small pages of a place later (MADV_COLLAPSE, Linux 6.1), whatever lies there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import numpy as np

from graphcore.errors import GraphError

_SETTINGS = "/sys/kernel/mm/transparent_hugepage"
_MAPS = "/proc/self/maps"
_PAGE = 4096
_COLLAPSE = 25
_FAILURES = 32
"""After so many pieces that the system does not gather, because it has no large page left, no more are asked for."""

# The memory of the process' own that it may write to, the heap and what has no name: no stacks and no files.
_OWN = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(?:\[heap\]|\[anon:.*\])?$", re.MULTILINE)

_CALLS_BEFORE, _CALLS_OF_GATHERING = 32, 32
"""Calls of a session before its memory is gathered later, and the calls that this is spread over. Measured: gathering
takes as long as 100 to 200 steps of a decoder save, and up to a third of a start."""

Ranges = list[tuple[int, int]]


def checked(huge_pages: object) -> bool | None:
    """Return the option of a session. Raises `GraphError`."""
    if huge_pages is None or isinstance(huge_pages, bool):
        return huge_pages
    raise GraphError(
        f"InferenceSession: huge_pages={huge_pages!r:.80}", help="give True, False, or None for what pays as a rule"
    )


@contextmanager
def gathered(is_wanted: bool) -> Iterator[None]:
    """Gather in large pages what memory the process has afterwards and had not before, if that is wanted and possible.

    It changes nothing that can be read there, and takes no more memory: pieces of which some page is not in use stay as
    they are. Elsewhere than on Linux, and where the system's administrator forbids large pages, it does nothing.
    """
    with gathered_later(is_wanted) as later:
        yield
    if later is not None:
        later.gather()


@contextmanager
def gathered_later(is_wanted: bool) -> Iterator[Later | None]:
    """Note what memory the process has afterwards and had not before: it may be gathered as `gathered` does it, whole
    or between calls. None where that is not wanted or not possible."""
    size = _size() if is_wanted else 0
    before = _own() if size else []
    later = Later(size) if size else None
    yield later
    if later is not None:
        later.ranges = _without(_own(), before)


class Later:
    """Memory that is gathered in large pages when a session has made some calls: those that make few do not pay."""

    def __init__(self, size: int) -> None:
        """size: bytes of a large page."""
        self.ranges: Ranges = []
        self._size = size
        self._calls = 0
        self._pieces: _Pieces | None = None
        self._share = 0
        self._lock = threading.Lock()

    def gather(self) -> int:
        """Gather all of it; return how many pieces are in one page each then."""
        return _collapse(self.ranges, self._size)

    def after_call(self) -> bool:
        """Gather a share of it, if it is time; return whether that was the last one."""
        if not self._lock.acquire(blocking=False):  # another thread is at it
            return False
        try:
            self._calls += 1
            if self._calls <= _CALLS_BEFORE:
                return False
            if self._pieces is None:
                self._pieces = _Pieces(self.ranges, self._size)
                self._share = -(-len(self._pieces) // _CALLS_OF_GATHERING)
            self._pieces.gather(self._share)
            return not len(self._pieces)
        finally:
            self._lock.release()


_LATER: WeakKeyDictionary[object, Later] = WeakKeyDictionary()


def keep(session: object, later: Later) -> None:
    """Note what memory of a session is gathered later."""
    _LATER[session] = later


def later_of(session: object) -> Later | None:
    """Return what memory of a session is gathered later; None where none is."""
    return _LATER.get(session)


def _size() -> int:
    """Return the bytes of a large page; 0 where there are none to be had."""
    try:
        enabled = _text(os.path.join(_SETTINGS, "enabled"))
        size = int(_text(os.path.join(_SETTINGS, "hpage_pmd_size")))
    except (OSError, ValueError):
        return 0
    return 0 if "[never]" in enabled or size % _PAGE or mmap.PAGESIZE != _PAGE else size


def _own() -> Ranges:
    return [(int(start, 16), int(end, 16)) for start, end in _OWN.findall(_text(_MAPS))]


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _without(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the parts of ranges that are in none of the others; both are sorted."""
    made = []
    for start, end in ranges:
        for other_start, other_end in others:
            if other_end <= start or other_start >= end:
                continue
            if start < other_start:
                made.append((start, other_start))
            start = max(start, other_end)
        if start < end:
            made.append((start, end))
    return made


def _collapse(ranges: Ranges, size: int) -> int:
    """Return how many pieces of `size` bytes of the ranges are in one page then."""
    pieces = _Pieces(ranges, size)
    return pieces.gather(len(pieces))


class _Pieces:
    """Pieces of memory of the size of a large page, which are gathered one after the other."""

    def __init__(self, ranges: Ranges, size: int) -> None:
        libc = ctypes.CDLL(None)
        address, length = ctypes.c_void_p, ctypes.c_size_t
        self._mincore, self._madvise = libc.mincore, libc.madvise
        self._mincore.argtypes, self._madvise.argtypes = (address, length, address), (address, length, ctypes.c_int)
        self._size = size
        self._there = np.zeros(size // _PAGE, np.uint8)
        self._failures = 0
        self._left = [
            first for start, end in ranges for first in range(-(-start // size) * size, end - size + 1, size)
        ][::-1]

    def __len__(self) -> int:
        """Return how many were not looked at."""
        return len(self._left)

    def gather(self, count: int) -> int:
        """Look at so many more; return how many of these are in one page then."""
        done = 0
        for _ in range(min(count, len(self._left))):
            piece = self._left.pop()
            # Some of it may be gone, or not in use: then it would take more memory.
            if self._mincore(piece, self._size, self._there.ctypes.data) or not (self._there & 1).all():
                continue
            if not self._madvise(piece, self._size, _COLLAPSE):
                done += 1
                continue
            self._failures += 1
            if self._failures > _FAILURES:
                self._left.clear()
                break
        return done
