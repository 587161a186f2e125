"""Models ready to serve: each with a Batcher, or for a decoder with a running batch of texts."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError
from graphcore.models.streams.scheduler import Streams
from graphcore.runtime.batcher import Batcher
from graphcore.runtime.model import Model
from graphcore.scale.protocol.endpoint import Respond, Served
from graphcore.scale.protocol.tensors import ProtocolError
from graphcore.scale.serving.openai import OpenAI
from graphcore.scale.storage import require_tensors

_OPTIONS = frozenset({"tokens", "max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop", "lookup", "timeout"})
"""Options of a request for tokens: the arguments of `Streams.submit`."""


def is_text(model: object) -> bool:
    """Return True for models that take text: a `TextDecoder` or `TextEncoder`."""
    return hasattr(model, "tokenizer")


class Serving:
    """Models that are served. `close()` runs waiting requests and ends the threads.

    models: of the Open Inference Protocol. text: responds to requests of the OpenAI API for models that take text,
    which their owner closes; None if there are none.
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        *,
        max_batch: int = 32,
        max_wait_ms: float = 2.0,
        max_waiting: int = 256,
        timeout: float | None = 30.0,
        slots: int = 8,
    ) -> None:
        """Start the threads. Raises as `Batcher` and `Streams` do.

        max_batch, max_wait_ms, max_waiting: of `Batcher`. timeout: the default maximum number of seconds of a request.
        slots: the number of texts that a decoder generates at once.
        """
        if not models:
            raise ModelError("serve: no model is given", help="give one, or several by name")
        self._timeout = timeout
        self._servers: list[Batcher | Streams] = []
        self.models: list[Served] = []
        texts = {name: model for name, model in models.items() if is_text(model)}
        self.text: Respond | None = OpenAI(texts, timeout=timeout).respond if texts else None
        for name, model in models.items():
            if name in texts:
                if hasattr(model, "streams"):
                    self._add_decoder(name, model.streams)
            elif model._model_buffers:
                self._servers.append(Streams(model, slots, max_waiting=max_waiting))
                self._add_decoder(name, self._servers[-1])
            else:
                self._add(name, model, max_batch, max_wait_ms, max_waiting)

    def _add(self, name: str, model: Model, max_batch: int, max_wait_ms: float, max_waiting: int) -> None:
        inputs, outputs = require_tensors(name, "input", model.inputs), require_tensors(name, "output", model.outputs)
        batcher = Batcher(model, max_batch, max_wait_ms, max_waiting=max_waiting, when_full="raise")
        self._servers.append(batcher)

        def submit(arrays: Mapping[str, Array], seconds: float | None) -> Future[list[Array]]:
            return batcher.submit(dict(arrays), timeout=self._timeout if seconds is None else seconds)

        optional = require_tensors(name, "input", model.inputs.optional)
        served = Served(name, inputs, outputs, submit, lambda: batcher.metrics.prometheus(name), optional=optional)
        self.models.append(served)

    def _add_decoder(self, name: str, streams: Any) -> None:
        def generate(arguments: Mapping[str, Any]) -> Any:
            unknown = sorted(arguments.keys() - _OPTIONS)
            if unknown:
                raise ProtocolError(f"unknown option {unknown[0]!r:.40}", help=f"use {', '.join(sorted(_OPTIONS))}")
            if "tokens" not in arguments or "max_new_tokens" not in arguments:
                raise ProtocolError("tokens or max_new_tokens is missing", help="send both")
            options = {"timeout": self._timeout, **arguments}
            prompt, max_new_tokens = options.pop("tokens"), options.pop("max_new_tokens")
            try:
                return streams.submit(prompt, max_new_tokens, **options)
            except (TypeError, ValueError) as error:
                if isinstance(error, (FeedError, ModelError)):
                    raise
                raise ProtocolError(f"invalid options: {error}") from None

        self.models.append(Served(name, {}, {}, None, lambda: streams.metrics.prometheus(name), generate))

    @property
    def is_alive(self) -> bool:
        """True if all threads that run requests are alive."""
        return all(server._thread.is_alive() for server in self._servers)

    def close(self) -> None:
        """Run waiting requests, and refuse new ones."""
        for server in self._servers:
            server.close(drain=True)
