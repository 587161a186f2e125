"""`deployment`: models on Ray Serve, with the Open Inference Protocol over HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from graphcore.arrays.resource_limits import Limits
from graphcore.errors import GraphError, RunError
from graphcore.ir.graph import Graph
from graphcore.runtime.session import InferenceSession
from graphcore.scale.placing import PlacedModel, place_models
from graphcore.scale.protocol.endpoint import MAX_BYTES, Endpoint
from graphcore.scale.recipes import graph_of, require_counts
from graphcore.scale.serving.asgi import answer
from graphcore.scale.serving.http_server import by_name
from graphcore.scale.serving.served import Serving

ModelSource: TypeAlias = "Graph | str | os.PathLike[str]"

_SHUTDOWN_SECONDS = 30.0
"""Seconds that a replica has for its accepted requests when it shuts down."""


class Replica:
    """A process that serves models, each loaded once from its file on the node."""

    def __init__(
        self, models: Mapping[str, PlacedModel], session: Mapping[str, Any], prepack: Any, options: Any, max_bytes: int
    ) -> None:
        inference_session = InferenceSession(**session)
        loaded = {name: inference_session.load(each.path(), prepack=prepack) for name, each in models.items()}
        self._serving = Serving(loaded, **options)
        self._endpoint = Endpoint(self._serving.models, max_bytes=max_bytes)

    async def __call__(self, request: Request) -> Response:
        """Respond to an HTTP request."""
        return await answer(self._endpoint, request)

    def check_health(self) -> None:
        """Raise `RunError` if a thread that runs requests has ended: Serve then starts another replica."""
        if not self._serving.is_alive:
            raise RunError("serve: a thread that runs requests has ended", help="see the replica's log")

    def __del__(self) -> None:
        """Run waiting requests: Serve calls this when the replica shuts down."""
        serving = getattr(self, "_serving", None)
        if serving is not None:
            serving.close()


def deployment(
    model: ModelSource | Mapping[str, ModelSource],
    *,
    max_batch: int = 32,
    max_wait_ms: float = 2.0,
    max_waiting: int = 256,
    timeout: float | None = 30.0,
    autoscaling: Mapping[str, Any] | None = None,
    replicas: int = 1,
    threads: int = 1,
    slots: int = 8,
    max_bytes: int = MAX_BYTES,
    share_weights: bool = False,
    provider: str | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """Return an application of Ray Serve that serves models: `serve.run(gc.scale.deployment(graph))`.

    Decoders of llama.build and gpt2.build stream tokens at /v2/models/NAME/generate_stream. Other models infer at
    /v2/models/NAME/infer by the Open Inference Protocol, for example with `tritonclient.http`. Running an application
    of the same name again replaces the replicas one by one; each finishes its accepted requests.

    Args:
        model: A Graph or the path of an ONNX file, served by the name of the graph or file; or several by name.
        max_batch: The maximum number of rows of a batch, as of `Batcher`.
        max_wait_ms: The number of milliseconds that a request waits for others, as of `Batcher`.
        max_waiting: The maximum number of waiting requests of a replica; more get status 503.
        timeout: The default maximum number of seconds of a request, which then gets status 504.
        autoscaling: The autoscaling of Serve, such as `{"min_replicas": 1, "max_replicas": 4}`.
        replicas: The number of replicas without autoscaling.
        threads: The number of threads of sessions, and of processors that Serve reserves for a replica.
        slots: The number of texts that a decoder generates at once.
        max_bytes: The maximum size of a body, also decompressed.
        share_weights: Replicas of a node, and models with equal weights, share the memory of weights, which are then
            not in the layout that kernels read fastest. Useful for large models.
        provider: The execution provider of the sessions.
        limits: The limits of reading a file.
        options: Other options of `serve.deployment`.

    Raises:
        GraphError: An argument is invalid.
        ModelError: A model cannot be served.
    """
    require_counts("deployment", replicas=replicas, threads=threads, max_bytes=max_bytes)
    graphs = {name: graph_of("deployment", each, limits) for name, each in by_name("deployment", model).items()}
    if not graphs:
        raise GraphError("deployment: no model is given", help="give one, or several by name")
    serving_options: dict[str, Any] = {
        "max_batch": max_batch, "max_wait_ms": max_wait_ms, "max_waiting": max_waiting, "timeout": timeout,
        "slots": slots,
    }  # fmt: skip
    session: dict[str, Any] = {
        "providers": provider,
        "config": {"session.intra_op.allow_spinning": False},
        "intra_op_num_threads": threads,
    }
    prepack = "off" if share_weights else "auto"
    placed_models = dict(zip(graphs, place_models(*graphs.values()), strict=True))
    # Fail here for models that cannot be loaded or served, since Serve would restart a failing replica forever.
    inference_session = InferenceSession(**session)
    Serving(
        {name: inference_session.load(each.path()) for name, each in placed_models.items()}, **serving_options
    ).close()
    deployment_options: dict[str, Any] = {
        "name": next(iter(graphs)),
        "ray_actor_options": {"num_cpus": threads},
        # High enough that a full replica rejects requests itself; more wait in Serve, which rejects with 503 too.
        "max_ongoing_requests": max_waiting + 2 * max_batch,
        "max_queued_requests": max_waiting,
        "graceful_shutdown_timeout_s": _SHUTDOWN_SECONDS,
    }
    if autoscaling is None:
        deployment_options["num_replicas"] = replicas
    else:
        deployment_options["autoscaling_config"] = {"target_ongoing_requests": max_batch, **autoscaling}
    application = serve.deployment(Replica).options(**{**deployment_options, **options})
    return application.bind(placed_models, session, prepack, serving_options, max_bytes)
