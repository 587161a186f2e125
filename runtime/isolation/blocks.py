"""Blocks of memory that a program shares with its worker. The program makes them all, and their sizes stay.

A worker is handed descriptors of sealed memory files: it can neither cut one short, which would end who reads it, nor
make more memory of it. Nothing of a block has a name in a file system, so that nothing is left when both are gone.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import ResourceLimitError

LEAST = 1 << 16
"""The bytes of the smallest block."""

_ADD_SEALS = 1033
_SEALS = 0x0001 | 0x0002 | 0x0004  # no more seals, no shrinking, no growing


_FAILED = ctypes.c_void_p(-1).value


@cache
def _calls() -> tuple[Any, Any]:
    """Return the system's `mmap` and `munmap`."""
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, size, *(number,) * 3, ctypes.c_long)
    libc.munmap.restype, libc.munmap.argtypes = number, (ctypes.c_void_p, size)
    return libc.mmap, libc.munmap


class _Mapping:
    """Mapped memory, for as long as an array is in it. Python's `mmap` would keep a descriptor open for each."""

    __slots__ = ("__array_interface__", "_address", "_size", "_unmap")

    def __init__(self, handle: int, size: int, is_read_only: bool) -> None:
        protection = mmap.PROT_READ if is_read_only else mmap.PROT_READ | mmap.PROT_WRITE
        map_, self._unmap = _calls()  # kept, since the module is emptied at the end of a program
        address = map_(None, size, protection, mmap.MAP_SHARED, handle, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._address = address
        self._size = size
        self.__array_interface__ = _interface(address, size, is_read_only)

    def __del__(self) -> None:
        address = getattr(self, "_address", None)
        if address is not None:
            self._unmap(address, self._size)


def _interface(address: int, size: int, is_read_only: bool) -> dict[str, Any]:
    return {"data": (address, is_read_only), "shape": (size,), "typestr": "|u1", "version": 3}


class Block:
    """Shared memory, mapped. array: its bytes. number: what both sides call it."""

    __slots__ = ("_is_empty", "array", "number", "size")

    def __init__(self, handle: int, size: int, number: int, is_read_only: bool = False) -> None:
        """handle: is not kept, and is the caller's to close. Raises `OSError` where there is no memory to map it."""
        self.size = size
        self.number = number
        self.array: Array = np.asarray(_Mapping(handle, size, is_read_only))
        self._is_empty = True

    def use(self) -> Block:
        """Return the block, which is about to be written to."""
        self._is_empty = False
        return self

    def empty(self) -> None:
        """Give the memory of what it holds back to the system, until it is used again."""
        if not self._is_empty and hasattr(mmap, "MADV_REMOVE"):
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(self.array.ctypes.data), ctypes.c_size_t(self.size), mmap.MADV_REMOVE
            )
        self._is_empty = True


def create(size: int) -> tuple[int, int]:
    """Return a descriptor of new shared memory and its size, which is rounded up to a power of two from `LEAST` on.

    So a worker that asks again and again for a little more gets few blocks. Raises `ResourceLimitError` where there is
    not so much.
    """
    rounded = max(LEAST, 1 << max(0, size - 1).bit_length())
    return _file(rounded), rounded


def of_bytes(content: bytes | memoryview) -> int:
    """Return a descriptor of shared memory that holds the content."""
    handle = _file(len(content), is_sealed=False)
    view, done = memoryview(content), 0
    while done < len(view):
        done += os.write(handle, view[done : done + (1 << 30)])
    _seal(handle)
    return handle


def _file(size: int, is_sealed: bool = True) -> int:
    try:
        if hasattr(os, "memfd_create"):
            handle = os.memfd_create("graphcore", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        else:
            with tempfile.TemporaryFile() as file:
                handle = os.dup(file.fileno())
        if is_sealed:
            os.ftruncate(handle, size)
            _seal(handle)
    except OSError as error:
        raise ResourceLimitError(
            f"there is no shared memory of {size} bytes: {error.strerror}", help="feed smaller arrays, or fewer at once"
        ) from None
    return handle


def _seal(handle: int) -> None:
    if hasattr(os, "memfd_create"):
        import fcntl  # which Windows has not

        fcntl.fcntl(handle, _ADD_SEALS, _SEALS)


class Lease:
    """Arrays in a block for as long as somebody holds one: then the block is given back."""

    __slots__ = ("__array_interface__", "_block", "_give_back")

    def __init__(self, block: Block, give_back: Callable[[Block], object]) -> None:
        self._block = block
        self._give_back = give_back
        self.__array_interface__ = _interface(block.array.ctypes.data, block.size, False)

    def __del__(self) -> None:
        self._give_back(self._block)
