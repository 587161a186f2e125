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
from graphcore.scale.protocol.endpoint import MOST_BYTES, Endpoint
from graphcore.scale.recipes import require
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

        Raises `RunError` for an address that is taken, `MissingExtraError` without the extra `serve`.
        """
        require("serve", "graphcore.scale.HttpServer")
        from graphcore.scale.serving.asgi import Listener  # late: imports the extra, which this module does not need

        self._serving = Serving(models, **options)
        self._endpoint = Endpoint(self._serving.models, most_bytes=max_bytes)
        try:
            self._listener = Listener(self._endpoint, host, port)
        except (OSError, OverflowError) as error:
            self._serving.close()
            raise RunError(f"serve: {host}:{port}: {error}", help="choose another port, or 0 for any") from None
        self.host, self.port = host, self._listener.port

    @property
    def url(self) -> str:
        """Return the address: "127.0.0.1:8000"."""
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        """Answer what was taken in, then end."""
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
