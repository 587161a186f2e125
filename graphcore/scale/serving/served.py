"""Models made ready to be served: a Batcher for each, or a running batch of texts for a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError
from graphcore.models.streams.scheduler import Streams
from graphcore.runtime.batcher import Batcher
from graphcore.runtime.model import Model
from graphcore.scale.carriers import tensors
from graphcore.scale.protocol.endpoint import Served, Tokens
from graphcore.scale.protocol.tensors import ProtocolError
from graphcore.types.tensor_types import TensorType

_OPTIONS = frozenset({"tokens", "max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop", "lookup", "timeout"})
"""Members of a request for tokens: the arguments of `Streams.submit`."""


class Serving:
    """Models that are being served. `close()` runs what waits, and ends their threads."""

    def __init__(
        self,
        models: Mapping[str, Model],
        *,
        max_batch: int = 32,
        max_wait_ms: float = 2.0,
        max_waiting: int = 256,
        timeout: float | None = 30.0,
        slots: int = 8,
    ) -> None:
        """max_batch, max_wait_ms, max_waiting: of the Batchers. timeout: seconds that a request may take which does not
        say so itself. slots: texts that a decoder writes at once. Raises as `Batcher` and `Streams` do.
        """
        if not models:
            raise ModelError("serve: there is no model", help="give one, or several by name")
        self._timeout = timeout
        self._servers: list[Batcher | Streams] = []
        self.models: list[Served] = []
        for name, model in models.items():
            if model._model_buffers:
                self._add_decoder(name, model, slots, max_waiting)
            else:
                self._add(name, model, max_batch, max_wait_ms, max_waiting)

    def _add(self, name: str, model: Model, max_batch: int, max_wait_ms: float, max_waiting: int) -> None:
        inputs, outputs = tensors(name, "input", model.inputs), tensors(name, "output", model.outputs)
        batcher = Batcher(model, max_batch, max_wait_ms, max_waiting=max_waiting, when_full="raise")
        self._servers.append(batcher)

        def submit(arrays: Mapping[str, Array], seconds: float | None) -> Future[list[Array]]:
            limit = self._timeout if seconds is None else seconds
            return batcher.submit(dict(arrays), timeout=limit)

        self.models.append(Served(name, inputs, outputs, submit, lambda: batcher.metrics.prometheus()))

    def _add_decoder(self, name: str, model: Model, slots: int, max_waiting: int) -> None:
        streams = Streams(model, slots, max_waiting=max_waiting)
        self._servers.append(streams)

        def generate(given: Mapping[str, Any]) -> Tokens:
            unknown = sorted(given.keys() - _OPTIONS)
            if unknown:
                raise ProtocolError(f"there is no option {unknown[0]!r:.40}", help=f"use {', '.join(sorted(_OPTIONS))}")
            if "tokens" not in given or "max_new_tokens" not in given:
                raise ProtocolError("tokens or max_new_tokens are missing", help="send both")
            options = {"timeout": self._timeout, **given}
            prompt, most = options.pop("tokens"), options.pop("max_new_tokens")
            try:
                request = streams.submit(prompt, most, **options)
            except (TypeError, ValueError) as error:
                if isinstance(error, (FeedError, ModelError)):
                    raise
                raise ProtocolError(f"the options of the request make no sense: {error}") from None
            return Tokens(iter(request), request.cancel)

        types: dict[str, TensorType] = {}
        self.models.append(Served(name, types, types, None, lambda: streams.metrics.prometheus(), generate))

    @property
    def is_alive(self) -> bool:
        """Return whether each thread that runs requests is there."""
        return all(server._thread.is_alive() for server in self._servers)

    def close(self) -> None:
        """Run what waits, and refuse what comes later."""
        for server in self._servers:
            server.close(drain=True)
