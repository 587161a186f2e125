"""Frames between a program and its worker: a kind, a length, and so many bytes. Descriptors go to the worker alone."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from enum import IntEnum

from graphcore.runtime.stopping.readiness import Wait, wait_to_read, wait_to_write

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
        """Return whether the other end is closed, or has sent what it was not asked for."""
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
