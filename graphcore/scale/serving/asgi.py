"""The Open Inference Protocol as an ASGI application, served by uvicorn in a thread."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from typing import Any
from urllib.parse import quote

import h11
import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response as Answer
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from graphcore.scale.protocol.endpoint import Endpoint
from graphcore.scale.protocol.infer import packed
from graphcore.scale.protocol.tensors import ProtocolError, Response, failure

_MAX_HEAD_BYTES = 1 << 16
_MAX_BYTES_PACKED_AT_ONCE = 1 << 14


def app(endpoint: Endpoint) -> ASGIApp:
    """Return the ASGI application of an endpoint."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await answer(endpoint, request)
        if "transfer-encoding" in request.headers and response.status_code != 413:  # 413: the client may still send
            response.headers["Connection"] = "close"  # see `_Connection`
        await response(scope, receive, send)

    return serve


async def answer(endpoint: Endpoint, request: Request) -> Answer:
    """Respond to an HTTP request. If the client disconnects, the request is cancelled."""
    headers = dict(request.headers.items())
    try:
        body = await _body(request, headers, endpoint.max_bytes)
    except ClientDisconnect:
        return Answer(status_code=499)
    except ProtocolError as error:
        refusal = _answer(failure(error))
        if error.status == 400:  # the start of the next request is uncertain
            refusal.headers["Connection"] = "close"
        return refusal
    path = request.scope["raw_path"].decode("ascii").removeprefix(quote(request.scope.get("root_path", "")))
    # At most 40 threads parse and compress bodies; a health check does not wait for them.
    waiting = await _call(bool(body), endpoint.respond, request.method, path, headers, body)
    response = waiting.result() if waiting.done() else await _await_future(request, waiting)
    if response is None:
        return Answer(status_code=499)
    if response.stream is not None:
        return _Events(response)
    return _answer(await _call(len(response.body) > _MAX_BYTES_PACKED_AT_ONCE, packed, headers, response))


async def _body(request: Request, headers: Mapping[str, str], max_bytes: int) -> bytes:
    """Read the body of a request. Raises `ProtocolError` after more than `max_bytes`."""
    length = headers.get("content-length", "")
    if length and "transfer-encoding" in headers:
        raise ProtocolError("the body has both Content-Length and Transfer-Encoding", help="send one of them")
    body = bytearray()
    if not (length.isascii() and length.isdigit() and int(length) > max_bytes):
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                break
        else:
            return bytes(body)
    raise ProtocolError(f"the body has more than {max_bytes} bytes", status=413)


async def _call(in_thread: bool, function: Any, *arguments: Any) -> Any:
    return await run_in_threadpool(function, *arguments) if in_thread else function(*arguments)


async def _await_future(request: Request, waiting: Future[Response]) -> Response | None:
    """Return the result of a future; None if the client disconnects, which cancels it."""
    future = asyncio.wrap_future(waiting)

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue
        future.cancel()

    watching = asyncio.create_task(watch())
    try:
        await asyncio.wait([future])
    finally:
        watching.cancel()
        future.cancel()
    return None if future.cancelled() else future.result()


def _answer(response: Response) -> Answer:
    return Answer(response.body, response.status, dict(response.headers))


class _Events(StreamingResponse):
    """The events of a response. If the client disconnects, they are cancelled."""

    def __init__(self, response: Response) -> None:
        assert response.stream is not None
        assert response.cancel is not None
        super().__init__(_iterate(response.stream), response.status, dict(response.headers))
        self._cancel = response.cancel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._cancel()


async def _iterate(stream: Iterator[bytes]) -> AsyncIterator[bytes]:
    limiter = CapacityLimiter(1)  # a separate limiter: waiting streams must not block other requests
    while event := await to_thread.run_sync(next, stream, None, abandon_on_cancel=True, limiter=limiter):
        yield event


_UNSAFE_LINE = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""A line that ends without a carriage return, or continues the line before: proxies differ in how they read these."""


class _Connection(h11.Connection):
    """Refuses what a proxy might read differently, which could hide a request from it.

    A body in chunks is the last of its connection: h11 accepts more ends of chunks and trailers than some proxies.
    """

    _is_last = False

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE and (head := self.trailing_data[0].partition(b"\r\n\r\n")[0]):
            if self._is_last or _UNSAFE_LINE.search(head):
                raise h11.RemoteProtocolError("the head has unsafe lines, or follows a body in chunks")
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._is_last = any(name == b"transfer-encoding" for name, _ in event.headers)
            if event.http_version != b"1.1" and (self._is_last or event.http_version != b"1.0"):
                raise h11.RemoteProtocolError("the version is unknown, or has no chunks")
        return event


class _Protocol(H11Protocol):
    """Closes the connections that are idle for longest when there are more than the limit."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = _Connection(h11.SERVER, _MAX_HEAD_BYTES)
        self.idle_since = self.loop.time()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        excess = 0 if self.limit_concurrency is None else len(self.connections) - self.limit_concurrency + 1
        if excess > 0:
            others: set[Any] = self.connections - {self}
            idle = sorted(filter(_is_idle, others), key=lambda each: each.idle_since)
            for each in idle[:excess]:
                each.transport.abort()
                self.connections.discard(each)  # it is lost later, and must not count for the requests until then

    def on_response_complete(self) -> None:
        self.idle_since = self.loop.time()
        super().on_response_complete()


def _is_idle(protocol: Any) -> bool:
    is_waiting: bool = protocol.cycle is None or protocol.cycle.response_complete
    return is_waiting and not protocol.flow.write_paused and not protocol.transport.is_closing()


class Listener:
    """Serves an endpoint in a thread until it is closed, by a listening socket.

    max_connections: the maximum number of connections. client_seconds: the seconds between two checks of clients: one
    that is slow to send or read at both is disconnected. closing_seconds: those that clients have to read responses
    when the server closes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        listening: socket.socket,
        max_connections: int,
        client_seconds: Any,
        closing_seconds: Any,
    ) -> None:
        self._socket = listening
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # uvicorn sends head and body in two pieces
        self._waited_for: dict[Any, Any] = {}
        self._server: Any = uvicorn.Server(
            uvicorn.Config(
                app(endpoint), http=_Protocol, ws="none", lifespan="off", log_config=None, proxy_headers=False,
                server_header=False, headers=[("Server", "graphcore")], limit_concurrency=max_connections + 1,
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES, timeout_keep_alive=client_seconds,
                timeout_notify=client_seconds, callback_notify=self._disconnect_slow_clients,
                timeout_graceful_shutdown=closing_seconds,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="graphcore http", daemon=True)
        self._thread.start()

    async def _serve(self) -> None:
        await self._server.serve([self._socket])
        for each in self._server.server_state.connections:  # clients that are slower than that
            each.transport.abort()

    async def _disconnect_slow_clients(self) -> None:
        """Disconnect clients that were in the same request at the last check: uvicorn has no such limit."""
        waited_for = {
            each: each.cycle
            for each in self._server.server_state.connections
            if each.cycle is None or each.cycle.more_body or each.cycle.response_complete or each.flow.write_paused
        }
        for each, cycle in waited_for.items():
            if self._waited_for.get(each, self) is cycle:
                each.transport.abort()
        self._waited_for = waited_for

    def close(self) -> None:
        """Stop accepting connections, and wait for the responses of open ones."""
        self._server.should_exit = True
        self._thread.join()
