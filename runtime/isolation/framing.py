"""Frames between a program and its worker: a kind, a length, and content. Descriptors are only sent to the worker."""

from __future__ import annotations

import contextlib
import ctypes
import json
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
from typing import TYPE_CHECKING, Any

from graphcore.errors import ResourceLimitError
from graphcore.runtime.stopping.watcher import Wait, waiting_for
from graphcore.support.lazy import Lazy

if TYPE_CHECKING:
    import numpy as np

    from graphcore.arrays.casting import Array
else:  # commands that run in a worker need no arrays
    np = Lazy("numpy")

_HEAD = struct.Struct("<BI")
RUN_HEAD = struct.Struct("<Id")
"""The head of a run: the number of the block for its results, and its time limit in seconds, 0 for none."""
_AT_ONCE = 1 << 14
_SPIN = 100e-6
"""Seconds of polling for a frame before the thread sleeps."""


class FrameKind(IntEnum):
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


MAX_BYTES: Mapping[FrameKind, int] = {
    FrameKind.SETTINGS: 1 << 24,
    FrameKind.READY: 1 << 16,
    FrameKind.LOAD: 1 << 24,
    FrameKind.LOADED: 1 << 22,
    FrameKind.RUN: 1 << 26,
    FrameKind.RESULTS: 1 << 26,
    FrameKind.NEED: 8,
    FrameKind.BLOCK: 12,
    FrameKind.DROP: 4,
    FrameKind.FAILED: 1 << 20,
}
"""Maximum bytes of a frame by kind."""
_KINDS = {int(kind): kind for kind in FrameKind}


class Malformed(Exception):
    """Invalid bytes: their sender is broken, or was taken over."""


class Channel:
    """One end of two sockets: one for frames, and one for descriptors, which are only sent to the worker."""

    def __init__(self, frames: socket.socket, descriptors: socket.socket) -> None:
        frames.setblocking(False)
        self._frames = frames
        self._handles = descriptors
        self._reads, self._writes = (waiting_for(frames.fileno(), is_read=is_read) for is_read in (True, False))
        self._rest = b""
        self._waited = float("inf")

    def send(self, kind: FrameKind, content: bytes = b"", deadline: float = math.inf) -> None:
        """Send a frame. Raises `OSError` if the other end is closed, and `TimeoutError` if it does not read in time."""
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

    def send_handle(self, handle: int) -> None:
        """Send a descriptor for the next frame. Raises `Malformed` if the worker does not receive descriptors."""
        try:
            socket.send_fds(self._handles, [b"d"], [handle])
        except BlockingIOError:
            raise Malformed("without taking its blocks") from None

    def receive_handle(self) -> int:
        """Return the next descriptor. Raises `EOFError` if the other end is closed."""
        _, handles, _, _ = socket.recv_fds(self._handles, 1, 1)
        if not handles:
            raise EOFError
        return handles[0]

    def receive(self, wanted: Sequence[FrameKind], deadline: float = math.inf) -> tuple[FrameKind, bytes]:
        """Return the kind and the content of the next frame.

        deadline: of `time.monotonic`, for the whole frame. Raises `Malformed` for an unexpected kind or a frame that is
        too long, `TimeoutError`, and `EOFError` if the other end is closed.
        """
        start = time.monotonic()
        data = self._rest or self._poll(start) or self._more(deadline)
        self._waited = time.monotonic() - start
        while len(data) < _HEAD.size:
            data += self._more(deadline)
        number, length = _HEAD.unpack_from(data)
        if number not in wanted:
            raise Malformed(f"a frame of kind {number}")
        kind = _KINDS[number]
        if length > MAX_BYTES[kind]:
            raise Malformed(f"a frame of {length} bytes")
        end = _HEAD.size + length
        if len(data) < end:
            frame = bytearray(data)  # pieces may have one byte each
            while len(frame) < end:
                frame += self._more(deadline)
            data = bytes(frame)
        self._rest = data[end:]
        return kind, data[_HEAD.size : end]

    def _poll(self, start: float) -> bytes:
        """Poll for bytes for a moment; return b"" if the thread should sleep instead.

        Waking a processor takes longer than running a small graph. Does not poll if the last frame was late.
        """
        if self._waited > _SPIN:
            return b""
        until = start + _SPIN
        while (data := self._received()) is None:
            if time.monotonic() > until:
                return b""
        return data

    def _more(self, deadline: float) -> bytes:
        while True:
            _wait(self._reads, deadline)
            if (data := self._received()) is not None:
                return data

    def _received(self) -> bytes | None:
        """Return bytes that have arrived; None if there are none. Raises `EOFError` if the other end is closed."""
        try:
            data = self._frames.recv(_AT_ONCE)
        except BlockingIOError:
            return None
        except ConnectionError:
            raise EOFError from None
        if not data:
            raise EOFError
        return data

    def is_closed(self) -> bool:
        """Return True if the other end is closed, or has sent unrequested bytes."""
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
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        if until_ready(None if remaining == math.inf else remaining):
            return


def from_json(content: bytes) -> Any:
    """Parse JSON of a worker. Raises `Malformed` for invalid JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"JSON that cannot be read: {error}") from None


def to_json(value: object) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value).encode()


# Blocks of memory that a program shares with its worker. The program creates all of them, and their sizes are fixed.
#
# A worker receives descriptors of sealed memory files: it can neither truncate one, which would crash its reader, nor
# enlarge one. Blocks have no names in a file system, so that nothing remains when both processes have ended.

MIN_BLOCK_BYTES = 1 << 16
"""Bytes of the smallest block."""

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
    """Memory that is mapped while arrays use it. Python's `mmap` would keep a descriptor open for each."""

    __slots__ = ("__array_interface__", "_address", "_size", "_unmap")

    def __init__(self, handle: int, size: int, is_read_only: bool) -> None:
        protection = mmap.PROT_READ if is_read_only else mmap.PROT_READ | mmap.PROT_WRITE
        map_, self._unmap = _calls()  # stored, because Python clears the module at the end of a program
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


class SharedBlock:
    """Mapped shared memory. array: its bytes. number: its id in frames."""

    __slots__ = ("_is_empty", "array", "number", "size")

    def __init__(self, handle: int, size: int, number: int, is_read_only: bool = False) -> None:
        """handle: the caller closes it. Raises `OSError` if it cannot be mapped."""
        self.size = size
        self.number = number
        self.array: Array = np.asarray(_Mapping(handle, size, is_read_only))
        self._is_empty = True

    def use(self) -> SharedBlock:
        """Mark the block as used before writing to it, and return it."""
        self._is_empty = False
        return self

    def empty(self) -> None:
        """Release its memory to the system, until it is used again."""
        if not self._is_empty and hasattr(mmap, "MADV_REMOVE"):
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(self.array.ctypes.data), ctypes.c_size_t(self.size), mmap.MADV_REMOVE
            )
        self._is_empty = True


def create(size: int) -> tuple[int, int]:
    """Return a descriptor of new shared memory and its size, which is rounded up to a power of two.

    Rounding limits the number of blocks for a worker that repeatedly requests a little more. Raises
    `ResourceLimitError` if there is not enough memory.
    """
    rounded = max(MIN_BLOCK_BYTES, 1 << max(0, size - 1).bit_length())
    return _file(rounded), rounded


def of_bytes(content: bytes | memoryview) -> int:
    """Return a descriptor of shared memory with this content."""
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
        import fcntl  # Windows does not have it

        fcntl.fcntl(handle, _ADD_SEALS, _SEALS)


class Lease:
    """Keeps a block while arrays refer to it, and returns it afterwards."""

    __slots__ = ("__array_interface__", "_block", "_give_back")

    def __init__(self, block: SharedBlock, give_back: Callable[[SharedBlock], object]) -> None:
        self._block = block
        self._give_back = give_back
        self.__array_interface__ = _interface(block.array.ctypes.data, block.size, False)

    def __del__(self) -> None:
        self._give_back(self._block)
