"""A small server of the Open Inference Protocol: `python -m graphcore.scale.serving.http_server model.onnx`."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from graphcore.errors import GraphcoreError, GraphError, RunError
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.scale.protocol.endpoint import MOST_BYTES, Endpoint
from graphcore.scale.protocol.infer import packed
from graphcore.scale.protocol.tensors import ProtocolError, Response, failure
from graphcore.scale.serving.served import Serving


class HttpServer:
    """Serves models over HTTP until it is closed. `server.url` is where."""

    def __init__(
        self,
        models: Mapping[str, Model],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_bytes: int = MOST_BYTES,
        **options: Any,
    ) -> None:
        """models: by the names that clients use. port: 0 for any that is free. max_bytes: of a body, also unpacked;
        larger ones are answered 413. options: those of `Serving`.

        Raises `RunError` for an address that is taken.
        """
        self._serving = Serving(models, **options)
        try:
            self._listener = Listener((host, port), Handler)
        except (OSError, OverflowError) as error:
            self._serving.close()
            raise RunError(f"serve: {host}:{port}: {error}", help="choose another port, or 0 for any") from None
        self._listener.endpoint = Endpoint(self._serving.models, most_bytes=max_bytes)
        self.host, self.port = host, int(self._listener.server_address[1])
        self._thread = threading.Thread(target=self._listener.serve_forever, name="graphcore http", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Return the address: "127.0.0.1:8000"."""
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        """Answer what was taken in, then end."""
        self._listener.endpoint.is_ready = False
        self._listener.shutdown()
        self._serving.close()
        self._listener.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def name_of(path: str) -> str:
    """Return the name under which a file is served."""
    return os.path.splitext(os.path.basename(path))[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve files until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m graphcore.scale.serving.http_server", description=main.__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="files, each served under its name without .onnx")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="(8000)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="rows of a batch at most (32)")
    parser.add_argument("--wait", type=float, default=2.0, metavar="MS", help="ms that a row waits for others (2)")
    parser.add_argument("--max-bytes", type=int, default=MOST_BYTES, metavar="N", help="of a body at most (64 MiB)")
    parser.add_argument("--provider", default="cpu", help="(cpu)")
    options = parser.parse_args(arguments)
    names = [name_of(path) for path in options.models]
    try:
        if len(set(names)) < len(names):
            raise GraphError(f"serve: two files are called {names!r:.80}", help="give files of several names")
        session = InferenceSession(options.provider)
        models = {name: session.load(path) for name, path in zip(names, options.models, strict=True)}
        limits: dict[str, Any] = {
            "max_batch": options.batch,
            "max_wait_ms": options.wait,
            "max_bytes": options.max_bytes,
        }
        server = HttpServer(models, options.host, options.port, **limits)
    except GraphcoreError as error:
        print(f"{error.summary}: {error.help}", file=sys.stderr)
        return 1
    print(f"serving {', '.join(names)} at http://{server.url}/v2", flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with contextlib.suppress(KeyboardInterrupt):
        ended.wait()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())


# A connection of the small server: bodies of a known length or in chunks, answers, and clients that go away.

_IDLE = 60.0
"""Seconds after which a client that sends nothing is let go."""

_LOOK = 0.1
"""Seconds after which it is looked whether the client of a request that takes long is still there."""

_LINGER = 5.0
"""Seconds for which the rest of a body that was refused is read: a client that still sends would not see the answer."""

_LINE = 1024
_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")


class Listener(ThreadingHTTPServer):
    """Accepts connections, and has a thread for each."""

    daemon_threads = True
    request_queue_size = 256
    endpoint: Endpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a connection that broke: its client knows."""


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of a connection one after another."""

    protocol_version = "HTTP/1.1"
    server_version = "graphcore"
    sys_version = ""
    timeout = _IDLE
    server: Listener
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer a request. The methods that nothing is served for are answered 405."""
        self._answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET  # noqa: N815  names of http.server

    def log_message(self, format: str, *args: Any) -> None:
        """Leave the log to who calls: `/metrics` counts."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request of HTTP."""
        self.close_connection = True
        self.request_version = self.protocol_version  # it may not have been read, and the oldest one has no headers
        self._send(failure(ProtocolError(message or HTTPStatus(code).phrase, status=int(code))))

    def _answer(self) -> None:
        endpoint = self.server.endpoint
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = self._body(headers, endpoint.most_bytes)
        except ProtocolError as error:
            self.close_connection = True
            self._send(failure(error))
            self._linger()
            return
        response = None if body is None else self._awaited(endpoint.respond(self.command, self.path, headers, body))
        if response is None:  # the client has gone
            self.close_connection = True
            return
        self._send(packed(headers, response))

    def _body(self, headers: Mapping[str, str], most: int) -> bytes | None:
        """Return the body of a request; None where the client has gone. Raises `ProtocolError`."""
        lengths = {length.strip() for length in self.headers.get_all("Content-Length", [])}
        coding = headers.get("transfer-encoding")
        if coding is not None:
            if lengths:
                raise ProtocolError("a body with a length and in chunks", help="send one of both")
            if coding.strip().lower() != "chunked":
                raise ProtocolError(f"transfer-encoding {coding!r:.40} is not read", status=501, help="use chunked")
            return self._chunks(most)
        length = lengths.pop() if lengths else "0"
        if lengths or not (length.isascii() and length.isdigit() and len(length) < 16):
            raise ProtocolError(f"Content-Length: {length!r:.40} is no number of bytes")
        if int(length) > most:
            raise ProtocolError(f"a body of more than {most} bytes", status=413)
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else None

    def _chunks(self, most: int) -> bytes | None:
        made = bytearray()
        while True:
            line = self.rfile.readline(_LINE)
            if not line.endswith(b"\n"):
                if len(line) < _LINE:
                    return None
                raise ProtocolError("a chunk whose size is no number")
            size = line.partition(b";")[0].strip()
            if not _SIZE.fullmatch(size):
                raise ProtocolError("a chunk whose size is no number")
            count = int(size, 16)
            if len(made) + count > most:
                raise ProtocolError(f"a body of more than {most} bytes", status=413)
            if not count:
                break
            piece = self.rfile.read(count)
            end = self.rfile.readline(_LINE)
            if len(piece) < count or not end:
                return None
            if end.strip():
                raise ProtocolError("a chunk that is longer than its size")
            made += piece
        for _ in range(100):
            line = self.rfile.readline(_LINE)
            if not line.strip():
                return bytes(made) if line else None
        raise ProtocolError("a body with more than 100 trailers")

    def _awaited(self, waiting: Future[Response]) -> Response | None:
        """Return the answer, or cancel a request whose client has gone and return None."""
        while True:
            try:
                return waiting.result(timeout=_LOOK)
            except TimeoutError:
                if not self._is_there():
                    waiting.cancel()
                    return None

    def _is_there(self) -> bool:
        try:
            self.connection.setblocking(False)
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.connection.settimeout(self.timeout)

    def _send(self, response: Response) -> None:
        try:
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if response.stream is not None:
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                for event in response.stream:
                    self.wfile.write(event)
                    self.wfile.flush()
                return
            self.send_header("Content-Length", str(len(response.body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)
        except OSError:  # the client has gone
            self.close_connection = True
            if response.cancel is not None:
                response.cancel()

    def _linger(self) -> None:
        until = time.monotonic() + _LINGER
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_LINGER)
            while time.monotonic() < until and self.connection.recv(1 << 16):
                continue
