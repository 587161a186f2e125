"""Frames between a program and its worker: a kind, a length, and so many bytes. Descriptors go to the worker alone."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import ResourceLimitError
from graphcore.runtime.stopping.watcher import Wait, wait_to_read, wait_to_write

_HEAD = struct.Struct("<BI")
RUN_HEAD = struct.Struct("<Id")
"""The head of a run: the number of the block for its results, and the seconds that it may take, 0 for no end."""
_AT_ONCE = 1 << 14
_SPIN = 100e-6
"""Seconds that are waited for a frame without going to sleep."""


class Kind(IntEnum):
    """The kind of a frame."""

    SETTINGS = 1
    READY = 2
    LOAD = 3
    LOADED = 4
    RUN = 5
    RESULTS = 6
    NEED = 7
    BLOCK = 8
    DROP = 9
    FAILED = 10


LONGEST: Mapping[Kind, int] = {
    Kind.SETTINGS: 1 << 24,
    Kind.READY: 1 << 16,
    Kind.LOAD: 1 << 24,
    Kind.LOADED: 1 << 22,
    Kind.RUN: 1 << 26,
    Kind.RESULTS: 1 << 26,
    Kind.NEED: 8,
    Kind.BLOCK: 12,
    Kind.DROP: 4,
    Kind.FAILED: 1 << 20,
}
"""The bytes that a frame of a kind has at most."""
_KINDS = {int(kind): kind for kind in Kind}


class Malformed(Exception):
    """Bytes that mean nothing: who sent them is broken, or not what it was."""


class Channel:
    """One end of a pair of sockets: one for frames, and one for descriptors, which go to the worker alone."""

    def __init__(self, frames: socket.socket, descriptors: socket.socket) -> None:
        frames.setblocking(False)
        self._frames = frames
        self._handles = descriptors
        self._reads, self._writes = wait_to_read(frames.fileno()), wait_to_write(frames.fileno())
        self._rest = b""
        self._waited = float("inf")

    def send(self, kind: Kind, content: bytes = b"", deadline: float = math.inf) -> None:
        """Send a frame. Raises `OSError` where nobody reads, and `TimeoutError` where nobody does until a time."""
        frame = _HEAD.pack(kind, len(content)) + content
        try:
            sent = self._frames.send(frame)
        except BlockingIOError:
            sent = 0
        if sent == len(frame):
            return
        rest = memoryview(frame)[sent:]
        while rest:
            _wait(self._writes, deadline)
            with contextlib.suppress(BlockingIOError):
                rest = rest[self._frames.send(rest) :]

    def hand(self, handle: int) -> None:
        """Send a descriptor, which the frame that is sent next is about. Raises `Malformed` where nobody takes them."""
        try:
            socket.send_fds(self._handles, [b"d"], [handle])
        except BlockingIOError:
            raise Malformed("without taking its blocks") from None

    def handed(self) -> int:
        """Return the next descriptor that was sent. Raises `EOFError` where the other end is closed."""
        _, handles, _, _ = socket.recv_fds(self._handles, 1, 1)
        if not handles:
            raise EOFError
        return handles[0]

    def receive(self, wanted: Sequence[Kind], deadline: float = math.inf) -> tuple[Kind, bytes]:
        """Return the next frame: its kind and what it holds.

        deadline: of `time.monotonic`, for all of it. Raises `Malformed` for a kind that is not wanted or is too long,
        `TimeoutError`, and `EOFError` where the other end is closed.
        """
        start = time.monotonic()
        data = self._rest or self._soon(start) or self._more(deadline)
        self._waited = time.monotonic() - start
        while len(data) < _HEAD.size:
            data += self._more(deadline)
        number, length = _HEAD.unpack_from(data)
        if number not in wanted:
            raise Malformed(f"a frame of kind {number}")
        kind = _KINDS[number]
        if length > LONGEST[kind]:
            raise Malformed(f"a frame of {length} bytes")
        end = _HEAD.size + length
        if len(data) < end:
            whole = bytearray(data)  # pieces may be of one byte each
            while len(whole) < end:
                whole += self._more(deadline)
            data = bytes(whole)
        self._rest = data[end:]
        return kind, data[_HEAD.size : end]

    def _soon(self, start: float) -> bytes:
        """Return what comes while this thread looks for it again and again; nothing where it is to wait.

        A processor that sleeps takes longer to wake than a small graph to run. Where the last frame came late, or none
        comes within a moment, the processor is left to others.
        """
        if self._waited > _SPIN:
            return b""
        until = start + _SPIN
        receive = self._frames.recv
        while True:
            try:
                data = receive(_AT_ONCE)
            except BlockingIOError:
                if time.monotonic() > until:
                    return b""
                continue
            except ConnectionError:
                raise EOFError from None
            if not data:
                raise EOFError
            return data

    def _more(self, deadline: float) -> bytes:
        while True:
            _wait(self._reads, deadline)
            try:
                data = self._frames.recv(_AT_ONCE)
            except BlockingIOError:
                continue
            except ConnectionError:
                raise EOFError from None
            if not data:
                raise EOFError
            return data

    def is_closed(self) -> bool:
        """Return True if the other end is closed, or has sent what it was not asked for."""
        try:
            self._frames.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return bool(self._rest)
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Close the sockets."""
        self._frames.close()
        self._handles.close()


def _wait(until_ready: Wait, deadline: float) -> None:
    """Wait until a socket is ready. Raises `TimeoutError` at a time of `time.monotonic`."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if until_ready(None if left == math.inf else left):
            return


# Blocks of memory that a program shares with its worker. The program makes them all, and their sizes stay.
#
# A worker is handed descriptors of sealed memory files: it can neither cut one short, which would end who reads it,
# nor make more memory of it. Nothing of a block has a name in a file system, so that nothing is left when both are
# gone.

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
