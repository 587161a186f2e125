"""Arrays of zeros that take memory where they are written to, page by page.

NumPy asks for large pages for arrays of 4 MB and more, so that the system gives 2 MB for the first byte that is written
there. A cache of keys and values has the tokens of each head side by side, with room for many more after them: of
such memory all would be in use once each head has a token.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array

_LEAST = 1 << 22
"""Bytes of an array from which on NumPy asks for large pages."""


def zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros. Raises `MemoryError` and `ValueError` as NumPy does."""
    size = math.prod(shape)
    if size * dtype.itemsize < _LEAST or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, dtype)
    try:
        pages = mmap.mmap(-1, size * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    except (OSError, OverflowError, ValueError):  # too large, or a system without large pages
        return np.zeros(shape, dtype)
    return np.frombuffer(pages, dtype).reshape(shape)
