"""The thread that stops runs: at their deadlines, and those of the main thread when a signal arrives.

Python's own signal handlers run in the main thread, between two bytecodes, and a run of onnxruntime is one. So the
byte that `signal.set_wakeup_fd` makes the interpreter write goes to a thread, which asks the run to end; back in
Python the handlers run as ever. What another package has set there is told of each signal too.
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
from typing import Any, Protocol, TypeAlias

_NOTHING, _END = 0, 255
"""Bytes that are no signals: to look again, and to end."""

_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that stop runs. Others come too often, as those of children and timers do, and wait for the end of a run."""

_FRESH = 0.05
"""Seconds after which the descriptor is set again, since others may have set theirs. It takes 1 us."""

_NEVER = float("inf")


class Ends(Protocol):
    """A limit with a deadline, in seconds of `time.monotonic`."""

    deadline: float

    def expire(self) -> None: ...


class ThreadState:
    """The limits of the runs of one thread.

    options: those that its runs are given; None for a thread that nothing stops. due_at: from when on signals are to be
    directed to the watcher again, which is done in the main thread alone. is_repeatable: that a run may be stopped for
    a handler which then does not raise: it is made again. limit: the innermost one in force. outer: the limits around
    it, with their options.
    """

    __slots__ = ("due_at", "is_main", "is_repeatable", "limit", "options", "outer", "raised")

    def __init__(self, is_main: bool) -> None:
        self.limit: Any = None
        self.outer: list[tuple[Any, Any]] = []
        self.raised: BaseException | None = None
        self.is_repeatable = True
        self.own(is_main)

    def own(self, is_main: bool) -> None:
        """Make it the state of the main thread, or of another."""
        self.is_main = is_main
        self.due_at = 0.0 if is_main else _NEVER
        if self.limit is None:
            self.options: Any = None


class Here(threading.local):
    """The state of the thread that asks."""

    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.state = ThreadState(is_main)
        if is_main:
            WATCHER.main = self.state


class Watcher:
    """One for the process. Its thread begins with the first run of the main thread, or the first deadline."""

    def __init__(self) -> None:
        self.main: ThreadState | None = None
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()  # a handler may run a model in the midst of `arm`
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None
        self._ends: set[Ends] = set()
        self._wakes = _NEVER
        self._others: tuple[int, int, int] | None = None

    def arm(self, state: ThreadState) -> None:
        """Direct signals here, from the main thread."""
        with self._lock:
            if state.options is None:
                state.options = run_options()
            writer = self._started()
            if writer is not None:
                try:
                    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
                except (ValueError, OSError):  # of a main thread that signals do not go to: the interpreter is embedded
                    state.due_at = _NEVER
                    return
                if before != writer:
                    self._others = _identity(before)
            state.due_at = time.monotonic() + _FRESH

    def add(self, limit: Ends) -> None:
        """Let a limit expire at its deadline."""
        with self._lock:
            self._started()
            self._ends.add(limit)
            self._wake(limit.deadline)

    def remove(self, limit: Ends) -> None:
        """Forget a limit."""
        with self._lock:
            self._ends.discard(limit)

    def settle(self) -> None:
        """Return when what has arrived so far was heeded: it does not stop a later run."""
        with self._lock:
            told = self._heed()
            if told:  # the thread waits for what was read here
                self._tell(_END if _END in told else _NOTHING)

    # The thread

    def _started(self) -> int | None:
        """Return the descriptor to write to, of a thread that runs; None where no thread can be started any more."""
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
        if self._thread is None:
            thread = threading.Thread(target=self._watch, name="graphcore stops runs", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the program is ending
                return None
            self._thread = thread
        return self._pipe[1]

    def _wake(self, at: float) -> None:
        """Make the thread wake at a time, or before."""
        if at < self._wakes:
            self._wakes = at
            self._tell(_NOTHING)

    def _tell(self, byte: int) -> None:
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):  # it is full of others, which wake the thread too
                os.write(self._pipe[1], bytes([byte]))

    def _watch(self) -> None:
        assert self._pipe is not None
        wait = wait_to_read(self._pipe[0])
        while True:
            with self._lock:
                now = time.monotonic()
                seconds = self._wakes - now
            if seconds > 0:
                wait(None if seconds == _NEVER else min(seconds, 3600.0) + 0.001)
            with self._lock:
                if _END in self._heed():
                    self._thread = None
                    return
                self._expire()

    def _expire(self) -> None:
        """End the limits that are due, and find out when the next one is."""
        now = time.monotonic()
        for limit in [limit for limit in self._ends if limit.deadline <= now]:
            self._ends.discard(limit)
            limit.expire()
        self._wakes = min((limit.deadline for limit in self._ends), default=_NEVER)

    def _heed(self) -> bytes:
        """Heed what was written, and return it."""
        if self._pipe is None:
            return b""
        try:
            told = os.read(self._pipe[0], 4096)
        except BlockingIOError:
            return b""
        for number in set(told) - {_NOTHING, _END}:
            self._tell_others(number)
            if number in _SIGNALS:
                self._stop_main(number)
        return told

    def _stop_main(self, number: int) -> None:
        handler, main = signal.getsignal(number), self.main
        if main is None or main.options is None or not callable(handler):
            return
        if main.is_repeatable or _raises(handler):
            main.options.terminate = True

    def _tell_others(self, number: int) -> None:
        """Write a signal where it went before, unless that was closed since."""
        if self._others is not None and _identity(self._others[0]) == self._others:
            with contextlib.suppress(OSError):
                os.write(self._others[0], bytes([number]))

    # Forks

    def before_fork(self) -> None:
        """End the thread: a process of one thread may fork as it likes."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._tell(_END)
            thread.join(1.0)

    def after_fork(self) -> None:
        """Go on in the process that forked."""
        main = self.main
        with self._lock:
            if main is not None and threading.current_thread() is threading.main_thread():
                main.due_at = 0.0
                if not self._ends:
                    return
            if self._pipe is not None:
                self._started()

    def in_child(self, state: ThreadState) -> None:
        """Begin anew in the process that was made, whose thread is the main one."""
        pipe = self._pipe
        if pipe is not None:
            with contextlib.suppress(ValueError, OSError):
                before = signal.set_wakeup_fd(-1)
                if before not in (pipe[1], -1):
                    signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            for end in pipe:
                with contextlib.suppress(OSError):
                    os.close(end)
        self._begin()
        self.main = state
        state.own(True)


def run_options() -> Any:
    """Return new options of a run."""
    # which building models and texts does not need
    import onnxruntime

    return onnxruntime.RunOptions()


def _identity(descriptor: int) -> tuple[int, int, int] | None:
    """Return a descriptor and what it stands for; None where that is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return descriptor, found.st_dev, found.st_ino


def _raises(handler: Any) -> bool:
    """Return True if a handler ends what is running: Python's own, and that of `asyncio.run`, which cancels a task."""
    if handler is signal.default_int_handler:
        return True
    asyncio = sys.modules.get("asyncio")
    runner = getattr(getattr(handler, "func", None), "__self__", None)
    return asyncio is not None and isinstance(runner, asyncio.Runner)


WATCHER = Watcher()
HERE = Here()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=WATCHER.before_fork,
        after_in_parent=WATCHER.after_fork,
        after_in_child=lambda: WATCHER.in_child(HERE.state),
    )


# Waiting until a descriptor can be read or written, on systems with `select.poll` and without.

_LONGEST = 1 << 30
"""Milliseconds of one wait: poll takes 32 bits of them."""

Wait: TypeAlias = Callable[[float | None], bool]
"""Waits for so many seconds at most, None for no end; returns whether the descriptor is ready."""


def wait_to_read(descriptor: int) -> Wait:
    """Return what waits until a descriptor can be read. It may be called as often as it is wanted."""
    return _wait(descriptor, is_read=True)


def wait_to_write(descriptor: int) -> Wait:
    """Return what waits until a descriptor can be written to. It may be called as often as it is wanted."""
    return _wait(descriptor, is_read=False)


def _wait(descriptor: int, is_read: bool) -> Wait:
    if not hasattr(select, "poll"):  # on Windows, and where gevent or eventlet have taken it away
        selector = selectors.DefaultSelector()
        selector.register(descriptor, selectors.EVENT_READ if is_read else selectors.EVENT_WRITE)
        return lambda seconds: bool(selector.select(seconds))
    poll = select.poll()
    poll.register(descriptor, select.POLLIN if is_read else select.POLLOUT)
    return lambda seconds: bool(poll.poll(None if seconds is None else min(math.ceil(seconds * 1000), _LONGEST)))
