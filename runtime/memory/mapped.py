"""Memory of mapped files: pages that were read once, when kernels put weights in their own order, are let go."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterable

import numpy as np

from graphcore.arrays.casting import Array


def release(arrays: Iterable[Array]) -> int:
    """Let the system take back the memory of those arrays that lie in mapped files; return how many bytes.

    What lies there stays as it is: a page that is read again comes from the file. Other arrays are left alone.
    """
    done = 0
    for array in arrays:
        held = _mapping(array)
        if held is None or not hasattr(held, "madvise"):
            continue
        offset = array.__array_interface__["data"][0] - np.frombuffer(held, np.uint8).__array_interface__["data"][0]
        first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        count = (offset + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if count > 0:
            with contextlib.suppress(OSError, ValueError):
                held.madvise(mmap.MADV_DONTNEED, first, count)
                done += count
    return done


def _mapping(array: Array) -> mmap.mmap | None:
    """Return the mapped file that an array is a view of, if it is one that nothing writes to."""
    held: object = array
    while isinstance(held, np.ndarray):
        if held.flags.writeable or held.base is None:
            return None
        held = held.base
    while isinstance(held, memoryview):
        held = held.obj
    return held if isinstance(held, mmap.mmap) else None
