"""The Open Inference Protocol as an ASGI application, and uvicorn in a thread that serves it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from typing import Any
from urllib.parse import quote

import uvicorn
from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response as Answer
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from graphcore.scale.protocol.endpoint import Endpoint
from graphcore.scale.protocol.infer import packed
from graphcore.scale.protocol.tensors import ProtocolError, Response, failure

CLIENT_SECONDS = 60
"""Time between two looks at the clients: one that is waited for at both, to send or to read, is disconnected."""

CLOSING_SECONDS = 10
"""Time that clients have to read their answers when the server closes."""

MAX_CONNECTIONS = 1000
_MAX_HEAD_BYTES = 1 << 16
_MAX_BYTES_PACKED_AT_ONCE = 1 << 14


def app(endpoint: Endpoint) -> ASGIApp:
    """Return the ASGI application of an endpoint."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        response = await answer(endpoint, Request(scope, receive))
        await response(scope, receive, send)

    return serve


async def answer(endpoint: Endpoint, request: Request) -> Answer:
    """Return the answer to an HTTP request. A request whose client disconnects is cancelled."""
    headers = dict(request.headers.items())
    try:
        body = await _body(request, headers, endpoint.most_bytes)
    except ClientDisconnect:
        return Answer(status_code=499)
    except ProtocolError as error:
        refusal = _answer(failure(error))
        if error.status == 400:  # it is in doubt where the next request begins
            refusal.headers["Connection"] = "close"
        return refusal
    path = request.scope["raw_path"].decode("ascii").removeprefix(quote(request.scope.get("root_path", "")))
    # Bodies are parsed and packed in threads, 40 at most; a health check does not wait for those.
    waiting = await _call(bool(body), endpoint.respond, request.method, path, headers, body)
    response = waiting.result() if waiting.done() else await _awaited(request, waiting)
    if response is None:
        return Answer(status_code=499)
    if response.stream is not None:
        return _Events(response)
    return _answer(await _call(len(response.body) > _MAX_BYTES_PACKED_AT_ONCE, packed, headers, response))


async def _body(request: Request, headers: Mapping[str, str], most: int) -> bytes:
    """Return the body of a request. Raises `ProtocolError` for one of more bytes, of which no more is read."""
    length = headers.get("content-length", "")
    if length and "transfer-encoding" in headers:
        raise ProtocolError("a body with a length and in chunks", help="send one of both")
    body = bytearray()
    if not (length.isascii() and length.isdigit() and int(length) > most):
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                break
        else:
            return bytes(body)
    raise ProtocolError(f"a body of more than {most} bytes", status=413)


async def _call(in_thread: bool, function: Any, *arguments: Any) -> Any:
    return await run_in_threadpool(function, *arguments) if in_thread else function(*arguments)


async def _awaited(request: Request, waiting: Future[Response]) -> Response | None:
    """Return the result of a future. It is cancelled when the client disconnects: None."""
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
    """The events of a response. A client that disconnects ends what makes them."""

    def __init__(self, response: Response) -> None:
        assert response.stream is not None
        assert response.cancel is not None
        super().__init__(_iterated(response.stream), response.status, dict(response.headers))
        self._cancel = response.cancel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._cancel()


async def _iterated(stream: Iterator[bytes]) -> AsyncIterator[bytes]:
    limiter = CapacityLimiter(1)  # its own: streams that wait for a slot hold up no other request
    while event := await to_thread.run_sync(next, stream, None, abandon_on_cancel=True, limiter=limiter):
        yield event


class Listener:
    """Serves an endpoint from a thread until it is closed. Raises `OSError` for an address that is taken."""

    def __init__(self, endpoint: Endpoint, host: str, port: int) -> None:
        self._socket = socket.create_server((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # uvicorn sends head and body in two pieces
        self.port = int(self._socket.getsockname()[1])
        self._waited_for: dict[Any, Any] = {}
        self._server: Any = uvicorn.Server(
            uvicorn.Config(
                app(endpoint), http="h11", ws="none", lifespan="off", log_config=None, proxy_headers=False,
                server_header=False, headers=[("Server", "graphcore")], limit_concurrency=MAX_CONNECTIONS,
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES, timeout_keep_alive=CLIENT_SECONDS,
                timeout_notify=CLIENT_SECONDS, callback_notify=self._disconnect_slow_clients,
                timeout_graceful_shutdown=CLOSING_SECONDS,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="graphcore http", daemon=True)
        self._thread.start()

    async def _serve(self) -> None:
        await self._server.serve([self._socket])
        for each in self._server.server_state.connections:  # of clients that are slower than `CLOSING_SECONDS`
            each.transport.abort()

    async def _disconnect_slow_clients(self) -> None:
        """Disconnect each client that the last look saw in the same request: uvicorn has no such limit of its own."""
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
        """Accept no more connections, and end when those that are open have been answered."""
        self._server.should_exit = True
        self._thread.join()
