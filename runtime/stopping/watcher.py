"""The thread that stops runs at their deadlines, and runs of the main thread when a signal arrives.

Python runs signal handlers in the main thread, between two bytecodes, and a run of onnxruntime is one bytecode. So the
byte that the interpreter writes by `signal.set_wakeup_fd` goes to a thread, which stops the run; then Python runs the
handlers as usual. The thread forwards each signal to a descriptor that another package has set before.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

_WAKE, _END = 0, 255
"""Bytes that are not signals: wake up, and end the thread."""

_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that stop runs. Others, such as those of children and timers, are too frequent and wait for the end of a
run."""

_REARM_SECONDS = 0.05
"""Seconds after which the descriptor is set again, because other packages may have set theirs. It takes 1 us."""

_NEVER = float("inf")


class ThreadState:
    """The limits of the runs of one thread.

    options: of its runs; None for a thread that nothing stops. due_at: the time from which on the main thread directs
    signals to the watcher again. is_repeatable: whether a run may be stopped and repeated if the handler does not
    raise. limit: the innermost active one. outer: the limits around it, with their options.
    """

    __slots__ = ("due_at", "is_main", "is_repeatable", "limit", "options", "outer", "raised")

    def __init__(self, is_main: bool) -> None:
        self.limit: Any = None
        self.outer: list[tuple[Any, Any]] = []
        self.raised: BaseException | None = None
        self.is_repeatable = True
        self.assign(is_main)

    def assign(self, is_main: bool) -> None:
        """Assign it to the main thread, or to another."""
        self.is_main = is_main
        self.due_at = 0.0 if is_main else _NEVER
        if self.limit is None:
            self.options: Any = None


class ThreadLocal(threading.local):
    """The state of the current thread."""

    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.state = ThreadState(is_main)
        if is_main:
            WATCHER.main = self.state


class _Pipe:
    """A pipe that does not block; on Windows, where only sockets can be waited for, a pair of sockets."""

    def __init__(self) -> None:
        self._sockets: Any = None
        if sys.platform == "win32":
            import socket

            self._sockets = socket.socketpair()
            self.reader, self.writer = (end.fileno() for end in self._sockets)
            for end in self._sockets:
                end.setblocking(False)
            return
        self.reader, self.writer = os.pipe()
        for descriptor in (self.reader, self.writer):
            os.set_blocking(descriptor, False)

    def read(self) -> bytes:
        """Return the bytes that were written; none if there are none."""
        with contextlib.suppress(BlockingIOError):
            received: bytes = self._sockets[0].recv(4096) if self._sockets else os.read(self.reader, 4096)
            return received
        return b""

    def write(self, byte: int) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of bytes, which wake the thread too
            self._sockets[1].send(bytes([byte])) if self._sockets else os.write(self.writer, bytes([byte]))


class Watcher:
    """Watches signals and deadlines of the process. Its thread starts with the first run or the first deadline."""

    def __init__(self) -> None:
        self.main: ThreadState | None = None
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()  # a handler may run a model during `arm`
        self._thread: threading.Thread | None = None
        self._pipe: _Pipe | None = None
        self._limits: set[Any] = set()  # of `Limit`, which imports this module
        self._wake_at = _NEVER
        self._previous: tuple[int, int, int] | None = None

    def arm(self, state: ThreadState) -> None:
        """Direct signals to the watcher; called in the main thread."""
        with self._lock:
            if state.options is None:
                state.options = run_options()
            writer = self._started()
            if writer is not None:
                try:
                    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
                except (ValueError, OSError):  # an embedded interpreter, whose main thread gets no signals
                    state.due_at = _NEVER
                    return
                if before != writer:
                    self._previous = _descriptor_id(before)
            state.due_at = time.monotonic() + _REARM_SECONDS

    def add(self, limit: Any) -> None:
        """Let a limit expire at its deadline."""
        with self._lock:
            self._started()
            self._limits.add(limit)
            self._wake(limit.deadline)

    def remove(self, limit: Any) -> None:
        """Forget a limit."""
        with self._lock:
            self._limits.discard(limit)

    def settle(self) -> None:
        """Handle all signals that have arrived, so that they do not stop a later run."""
        with self._lock:
            received = self._read_signals()
            if received:  # wake the thread, whose bytes were read here
                self._write(_END if _END in received else _WAKE)

    # The thread

    def _started(self) -> int | None:
        """Start the thread and return the descriptor to write to; None if no thread can be started any more."""
        if self._pipe is None:
            self._pipe = _Pipe()
        if self._thread is None:
            thread = threading.Thread(target=self._watch, name="graphcore stops runs", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the program is ending
                return None
            self._thread = thread
        return self._pipe.writer

    def _wake(self, at: float) -> None:
        """Wake the thread at a time, or earlier."""
        if at < self._wake_at:
            self._wake_at = at
            self._write(_WAKE)

    def _write(self, byte: int) -> None:
        if self._pipe is not None:
            self._pipe.write(byte)

    def _watch(self) -> None:
        assert self._pipe is not None
        wait = waiting_for(self._pipe.reader, is_read=True)
        while True:
            with self._lock:
                now = time.monotonic()
                seconds = self._wake_at - now
            if seconds > 0:
                wait(None if seconds == _NEVER else min(seconds, 3600.0) + 0.001)
            with self._lock:
                if _END in self._read_signals():
                    self._thread = None
                    return
                self._expire()

    def _expire(self) -> None:
        """End the limits that are due, and compute the time of the next one."""
        now = time.monotonic()
        for limit in [limit for limit in self._limits if limit.deadline <= now]:
            self._limits.discard(limit)
            limit.expire()
        self._wake_at = min((limit.deadline for limit in self._limits), default=_NEVER)

    def _read_signals(self) -> bytes:
        """Handle the bytes that were written, and return them."""
        if self._pipe is None:
            return b""
        received = self._pipe.read()
        for number in set(received) - {_WAKE, _END}:
            self._forward(number)
            if number in _SIGNALS:
                self._stop_main(number)
        return received

    def _stop_main(self, number: int) -> None:
        handler, main = signal.getsignal(number), self.main
        if main is None or main.options is None or not callable(handler):
            return
        if main.is_repeatable or _raises(handler):
            main.options.terminate = True

    def _forward(self, number: int) -> None:
        """Forward a signal to the previous descriptor, unless it was closed."""
        if self._previous is not None and _descriptor_id(self._previous[0]) == self._previous:
            with contextlib.suppress(OSError):
                os.write(self._previous[0], bytes([number]))

    # Forks

    def before_fork(self) -> None:
        """End the thread: forking is safe with a single thread."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._write(_END)
            thread.join(1.0)

    def after_fork(self) -> None:
        """Restart in the parent process."""
        main = self.main
        with self._lock:
            if main is not None and threading.current_thread() is threading.main_thread():
                main.due_at = 0.0
                if not self._limits:
                    return
            if self._pipe is not None:
                self._started()

    def in_child(self, state: ThreadState) -> None:
        """Start anew in the child process, whose only thread is the main one."""
        pipe = self._pipe
        if pipe is not None:
            with contextlib.suppress(ValueError, OSError):
                before = signal.set_wakeup_fd(-1)
                if before not in (pipe.writer, -1):
                    signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            for end in (pipe.reader, pipe.writer):  # nothing forks on Windows
                with contextlib.suppress(OSError):
                    os.close(end)
        self._begin()
        self.main = state
        state.assign(True)


def run_options() -> Any:
    """Return new options of a run."""
    # building graphs does not need it
    import onnxruntime

    return onnxruntime.RunOptions()


def _descriptor_id(descriptor: int) -> tuple[int, int, int] | None:
    """Return a descriptor with its device and inode; None if it is closed."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return descriptor, status.st_dev, status.st_ino


def _raises(handler: Any) -> bool:
    """Return True if a handler raises, as Python's own does, or cancels a task, as that of `asyncio.run` does."""
    if handler is signal.default_int_handler:
        return True
    asyncio = sys.modules.get("asyncio")
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return asyncio is not None and isinstance(runner, asyncio.Runner)


WATCHER = Watcher()
THREAD = ThreadLocal()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=WATCHER.before_fork,
        after_in_parent=WATCHER.after_fork,
        after_in_child=lambda: WATCHER.in_child(THREAD.state),
    )


# Wait until a descriptor can be read or written, with or without `select.poll`.

_MAX_WAIT_MS = 1 << 30
"""Maximum milliseconds of a wait: poll takes 32 bits."""

Wait: TypeAlias = Callable[[float | None], bool]
"""Waits for that many seconds at most, None for no limit; returns True if the descriptor is ready."""


def waiting_for(descriptor: int, *, is_read: bool) -> Wait:
    """Return a function that waits until a descriptor can be read, or written. It can be called repeatedly."""
    if not hasattr(select, "poll"):  # on Windows, and if gevent or eventlet have removed it
        selector = selectors.DefaultSelector()
        selector.register(descriptor, selectors.EVENT_READ if is_read else selectors.EVENT_WRITE)
        return lambda seconds: bool(selector.select(seconds))
    poll = select.poll()
    poll.register(descriptor, select.POLLIN if is_read else select.POLLOUT)
    return lambda seconds: bool(poll.poll(None if seconds is None else min(math.ceil(seconds * 1000), _MAX_WAIT_MS)))
