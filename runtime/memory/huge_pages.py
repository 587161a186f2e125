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
from collections.abc import Iterator
from contextlib import contextmanager

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
    size = _size() if is_wanted else 0
    before = _own() if size else []
    yield
    if size:
        _collapse(_without(_own(), before), size)


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
    libc = ctypes.CDLL(None)
    address, length = ctypes.c_void_p, ctypes.c_size_t
    mincore, madvise = libc.mincore, libc.madvise
    mincore.argtypes, madvise.argtypes = (address, length, address), (address, length, ctypes.c_int)
    done = failures = 0
    for start, end in ranges:
        first, count = -(-start // size) * size, end // size - -(-start // size)
        if count <= 0:
            continue
        there = np.zeros((count, size // _PAGE), np.uint8)
        if mincore(first, count * size, there.ctypes.data):  # something of it is no longer there
            continue
        for piece in np.flatnonzero((there & 1).all(1)):
            if not madvise(first + int(piece) * size, size, _COLLAPSE):
                done += 1
                continue
            failures += 1
            if failures > _FAILURES:
                return done
    return done


__all__ = ["checked", "gathered"]
