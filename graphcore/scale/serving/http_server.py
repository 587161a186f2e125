"""A small server of the Open Inference Protocol: `python -m graphcore.scale.serving.http_server model.onnx`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from graphcore.errors import GraphcoreError, GraphError, RunError
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.scale.protocol.endpoint import MAX_BYTES, Endpoint
from graphcore.scale.recipes import require
from graphcore.scale.serving.served import Serving


class HttpServer:
    """Serves models over HTTP until it is closed, at `server.url`."""

    def __init__(
        self,
        models: Mapping[str, Model],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_bytes: int = MAX_BYTES,
        **options: Any,
    ) -> None:
        """Start the server.

        Args:
            models: Models by name.
            host: The address to listen on.
            port: The port; 0 for any free one.
            max_bytes: The maximum size of a body, also decompressed; larger ones get status 413.
            options: Options of `Serving`: `max_batch`, `max_wait_ms`, `max_waiting`, `timeout`, `slots`.

        Raises:
            RunError: The address is in use or invalid.
            MissingExtraError: The extra `serve` is not installed.
        """
        require("serve", "graphcore.scale.HttpServer")
        from graphcore.scale.serving.asgi import Listener  # needs the extra `serve`

        self._serving = Serving(models, **options)
        self._endpoint = Endpoint(self._serving.models, max_bytes=max_bytes)
        try:
            self._listener = Listener(self._endpoint, host, port)
        except (OSError, OverflowError) as error:
            self._serving.close()
            raise RunError(f"serve: {host}:{port}: {error}", help="choose another port, or 0 for any") from None
        self.host, self.port = host, self._listener.port

    @property
    def url(self) -> str:
        """The host and port: "127.0.0.1:8000"."""
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        """Respond to accepted requests, then stop."""
        self._endpoint.is_ready = False
        self._serving.close()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def name_of(path: str) -> str:
    """Return the name of the model in a file."""
    return os.path.splitext(os.path.basename(path))[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve ONNX files over HTTP until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m graphcore.scale.serving.http_server", description=main.__doc__)
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="ONNX files; the name of a model is that of its file without .onnx"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="the port (8000)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="maximum number of rows of a batch (32)")
    parser.add_argument(
        "--wait", type=float, default=2.0, metavar="MS", help="milliseconds that a request waits for others (2)"
    )
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES, metavar="N", help="maximum size of a body (64 MiB)")
    parser.add_argument("--provider", default="cpu", help="the execution provider (cpu)")
    options = parser.parse_args(arguments)
    names = [name_of(path) for path in options.models]
    try:
        if len(set(names)) < len(names):
            raise GraphError(
                f"serve: two files have the same name: {names!r:.80}", help="give files with different names"
            )
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
