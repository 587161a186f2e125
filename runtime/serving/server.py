"""The frame of what serves requests in a thread of its own: its end, its metrics, and the processes it is not in."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from graphcore.errors import ModelError, RunError
from graphcore.runtime.serving.metrics import Metrics

_LAST = 1.0
"""Seconds that a run may take when what serves it was forgotten, or the program has ended."""


class Queue(Protocol):
    """The requests of a server, which its thread knows in place of the server."""

    is_closed: bool

    def close(self, drain: bool) -> None:
        """Refuse further requests; end those that wait, unless they are to be run."""

    def stop(self) -> None:
        """End what runs."""

    def metrics(self) -> Metrics:
        """Return the metrics now."""


class Server:
    """Serves requests of a model in a thread, until it is closed or forgotten."""

    def __init__(self, model: str, what: str, queue: Queue, work: Callable[..., None], *given: Any) -> None:
        """what: as errors call it. queue: the requests. work: runs in the thread, on what is given to it."""
        self._name = model
        self._what = what
        self._queue = queue
        self._thread = threading.Thread(target=work, args=given, name=f"graphcore {what} {model}", daemon=True)
        self._end = weakref.finalize(self, _finish, queue, self._thread, False, _LAST)
        self._thread.start()

    @property
    def metrics(self) -> Metrics:
        """Return what became of the requests so far: `metrics.prometheus()` is text for a monitor."""
        return self._queue.metrics()

    def _close(self, drain: bool, timeout: float | None) -> bool:
        self._end.detach()
        return _finish(self._queue, self._thread, drain, timeout)

    def close(self) -> object:
        """End the thread."""
        return self._close(True, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise ModelError(
            f"{self._name}: a {type(self).__name__} is not copied or pickled: its requests wait in this process",
            help=f"make another one: {type(self).__name__}(model)",
        )

    def _check_process(self) -> None:
        """Raise `RunError` in a process that was forked since."""
        if not self._thread.is_alive() and not self._queue.is_closed:
            raise RunError(
                f"submit: the {self._what} of {self._name} was made in another process, and its thread is not in this"
                " one",
                help=f"make a {type(self).__name__} in each process, after the fork",
            )


def _finish(queue: Queue, thread: threading.Thread, drain: bool, timeout: float | None) -> bool:
    """Close a queue and wait for its thread. timeout: seconds after which what is left is cancelled and stopped.

    Return whether nothing was."""
    queue.close(drain)
    if thread is threading.current_thread():
        return True
    thread.join(timeout)
    if not thread.is_alive():
        return True
    queue.close(False)
    queue.stop()
    thread.join(_LAST)
    return False
