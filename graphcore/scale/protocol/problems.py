"""Errors as answers: the status of HTTP and the one line that each has."""

from __future__ import annotations

import json

from graphcore.errors import BusyError, FeedError, GraphcoreError, RunCancelledError, RunTimeoutError


class ProtocolError(GraphcoreError, ValueError):
    """A request that is none of the protocol. `status` is HTTP's."""

    def __init__(self, summary: str, *, status: int = 400, help: str = "") -> None:
        super().__init__(summary, help=help)
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.summary, self.status, self.help)


def _again(summary: str, status: int, help: str) -> ProtocolError:
    return ProtocolError(summary, status=status, help=help)


_STATUSES: tuple[tuple[type[BaseException], int], ...] = (
    (FeedError, 400),
    (BusyError, 503),
    (RunTimeoutError, 504),
    (RunCancelledError, 503),
)


def problem(error: BaseException) -> tuple[int, bytes]:
    """Return the status and the body that answer a request which failed: `{"error": ...}`.

    The text of an error that is none of the library stays inside: it may name files and addresses.
    """
    if isinstance(error, ProtocolError):
        status = error.status
    else:
        status = next((number for kind, number in _STATUSES if isinstance(error, kind)), 500)
    if not isinstance(error, GraphcoreError):
        return 500, json.dumps({"error": f"the server failed: {type(error).__name__}"}).encode()
    text = error.summary + (f"; {error.help}" if error.help else "")
    return status, json.dumps({"error": text}).encode()
