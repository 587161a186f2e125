"""A server of the Open Inference Protocol. `graphcore serve model.onnx` starts one."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Self, TypeAlias, TypeVar

from graphcore.errors import GraphError, RunError
from graphcore.ir.graph import Graph
from graphcore.models.text.decoder import TextDecoder
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.scale.protocol.endpoint import MAX_BYTES, Endpoint
from graphcore.scale.recipes import require, require_counts
from graphcore.scale.serving.served import Serving, is_text

Source: TypeAlias = "Model | TextDecoder | Graph | str | os.PathLike[str]"
S = TypeVar("S")


MAX_CONNECTIONS = 1000
CLIENT_SECONDS = 60.0

CLOSING_SECONDS = 10.0
"""Seconds that clients have to read responses when the server closes."""


class HttpServer:
    """Serves models over HTTP until it is closed.

    Attributes:
        url: The URL of the server: "http://127.0.0.1:8000".
    """

    def __init__(
        self,
        models: Source | Mapping[str, Source],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_bytes: int = MAX_BYTES,
        max_connections: int = MAX_CONNECTIONS,
        client_seconds: float = CLIENT_SECONDS,
        grpc_port: int | None = None,
        listening: socket.socket | None = None,
        **options: Any,
    ) -> None:
        """Start the server.

        Args:
            models: A Model, a Graph or the path of an ONNX file, served by the name of the graph or file; or a model
                that takes text, from `models.load`, for the OpenAI API; or several by name. Graphs and files are loaded
                for the CPU.
            host: The address to listen on.
            port: The port; 0 for any free one.
            max_bytes: The maximum size of a body, also decompressed; larger ones get status 413.
            max_connections: The maximum number of connections. The one that is idle for longest is closed for a new
                one; if all have requests, the new one gets status 503.
            client_seconds: A client that takes between this and twice as many seconds to send a request or to read its
                response is disconnected. Over gRPC a request must arrive in this time.
            grpc_port: The port of the same protocol over gRPC, which needs the extra `grpc`; 0 for any free one. The
                attribute `grpc_port` has its number.
            listening: A bound socket to listen on, in place of `host` and `port`. The server closes it, and shares the
                port of gRPC with other processes.
            options: Options of `Serving`: `max_batch`, `max_wait_ms`, `max_waiting`, `timeout`, `slots`.

        Raises:
            RunError: The address is in use or invalid.
            GraphError: A name cannot be part of a path.
            ModelError: A model cannot be loaded or served.
            MissingExtraError: The extra `serve`, or `grpc`, is not installed.
        """
        require("serve", "graphcore.scale.HttpServer")
        if grpc_port is not None:
            require("grpc", "graphcore.scale.HttpServer: grpc_port")
        from graphcore.scale.serving.asgi import Listener  # needs the extra `serve`

        require_counts("serve", max_bytes=max_bytes, max_connections=max_connections)
        if not isinstance(client_seconds, (int, float)) or not 0 < client_seconds < 1e9:
            raise GraphError(
                f"serve: client_seconds must be a number above 0, got {client_seconds!r:.40}", help="omit it"
            )

        sources: dict[str, Any] = by_name("serve", models)
        session = InferenceSession()
        loaded = {
            name: each if isinstance(each, Model) or is_text(each) else session.load(each)
            for name, each in sources.items()
        }
        self._listening = listening or bind(host, port)
        self.host, self.port = self._listening.getsockname()[:2]
        self.url = url_of(self._listening)
        self._grpc: Any = None
        with ExitStack() as undone:
            undone.callback(self._listening.close)
            self._serving = Serving(loaded, **options)
            undone.callback(self._serving.close)
            self._endpoint = Endpoint(self._serving.models, max_bytes=max_bytes, text=self._serving.text)
            if grpc_port is not None:
                self._grpc = import_module("graphcore.scale.serving.grpc_server").GrpcListener(
                    self._endpoint, self.host, grpc_port, max_connections, client_seconds, listening is not None
                )
                grpc_port = self._grpc.port
            undone.pop_all()
        self.grpc_port = grpc_port
        self._listener = Listener(self._endpoint, self._listening, max_connections, client_seconds, CLOSING_SECONDS)

    def close(self) -> None:
        """Respond to accepted requests, then stop."""
        self._endpoint.is_ready = False
        self._serving.close()
        if self._grpc is not None:
            self._grpc.close(CLOSING_SECONDS)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Raises `RunError` if it is in use or invalid."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
    except (OSError, OverflowError) as error:
        raise RunError(f"serve: {host}:{port}: {error}", help="choose another port, or 0 for any") from None


def url_of(listening: socket.socket) -> str:
    """Return the URL of a server that listens on a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def name_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the model in a file or folder."""
    name = os.path.basename(os.path.abspath(path))
    return name if os.path.isdir(path) else os.path.splitext(name)[0]


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
