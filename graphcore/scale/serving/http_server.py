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
from typing import Any, Self, TypeAlias, TypeVar

from graphcore.errors import GraphcoreError, GraphError, RunError
from graphcore.ir.graph import Graph
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.scale.protocol.endpoint import MAX_BYTES, Endpoint
from graphcore.scale.recipes import require
from graphcore.scale.serving.served import Serving

Source: TypeAlias = "Model | Graph | str | os.PathLike[str]"
S = TypeVar("S")


class HttpServer:
    """Serves models over HTTP until it is closed, at `server.url`."""

    def __init__(
        self,
        models: Source | Mapping[str, Source],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_bytes: int = MAX_BYTES,
        **options: Any,
    ) -> None:
        """Start the server.

        Args:
            models: A Model, a Graph or the path of an ONNX file, served by the name of the graph or file; or several by
                name. Graphs and files are loaded for the CPU.
            host: The address to listen on.
            port: The port; 0 for any free one.
            max_bytes: The maximum size of a body, also decompressed; larger ones get status 413.
            options: Options of `Serving`: `max_batch`, `max_wait_ms`, `max_waiting`, `timeout`, `slots`.

        Raises:
            RunError: The address is in use or invalid.
            GraphError: A name cannot be part of a path.
            ModelError: A model cannot be loaded or served.
            MissingExtraError: The extra `serve` is not installed.
        """
        require("serve", "graphcore.scale.HttpServer")
        from graphcore.scale.serving.asgi import Listener  # needs the extra `serve`

        sources: dict[str, Any] = by_name("serve", models)
        session = InferenceSession()
        loaded = {name: each if isinstance(each, Model) else session.load(each) for name, each in sources.items()}
        self._serving = Serving(loaded, **options)
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


def name_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the model in a file."""
    return os.path.splitext(os.path.basename(path))[0]


def by_name(what: str, models: S | Mapping[str, S]) -> dict[str, S]:
    """Return models by name, a single one by the name of its graph or file. Raises `GraphError` for invalid names.

    what: the caller, for errors.
    """
    if isinstance(models, Mapping):
        named = dict(models)
    else:
        named = {
            name_of(models) if isinstance(models, (str, os.PathLike)) else getattr(models, "name", "model"): models
        }
    for name in named:
        if not isinstance(name, str) or not name or "/" in name or "?" in name:
            raise GraphError(
                f"{what}: {name!r:.80} is not a valid name of a model", help="give a string without slashes"
            )
    return named


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
