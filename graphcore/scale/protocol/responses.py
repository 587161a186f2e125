"""Answers of HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from graphcore.scale.protocol.problems import problem

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. stream: events that follow one by one, where there is no body. cancel: ends the stream early."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": JSON})
    stream: Iterator[bytes] | None = None
    cancel: Callable[[], object] | None = None


def as_json(value: object, status: int = 200) -> Response:
    """Return a response of JSON."""
    return Response(status, json.dumps(value).encode())


def failure(error: BaseException) -> Response:
    """Return the answer to a request that failed."""
    status, body = problem(error)
    headers = {"Content-Type": JSON} | ({"Retry-After": "1"} if status == 503 else {})
    return Response(status, body, headers)
