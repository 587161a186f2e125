"""`deployment`: models on Ray Serve, which speak the Open Inference Protocol over HTTP."""

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
from graphcore.scale.placing import Placed, placed
from graphcore.scale.protocol.endpoint import MOST_BYTES, Endpoint
from graphcore.scale.recipes import graph_of
from graphcore.scale.serving.asgi import answer
from graphcore.scale.serving.http_server import name_of
from graphcore.scale.serving.served import Serving

One: TypeAlias = "Graph | str | os.PathLike[str]"

_LEAVING = 30.0
"""Seconds that a replica which is being replaced has for the requests that it took in."""


class Replica:
    """A process that serves models: each is loaded once, from the file on its node."""

    def __init__(
        self, models: Mapping[str, Placed], session: Mapping[str, Any], prepack: Any, options: Any, most_bytes: int
    ) -> None:
        starts = InferenceSession(**session)
        loaded = {name: starts.load(each.path(), prepack=prepack) for name, each in models.items()}
        self._serving = Serving(loaded, **options)
        self._endpoint = Endpoint(self._serving.models, most_bytes=most_bytes)

    async def __call__(self, request: Request) -> Response:
        """Return the answer to a request of HTTP."""
        return await answer(self._endpoint, request)

    def check_health(self) -> None:
        """Raise `RunError` where a thread that runs requests has ended: Serve then starts another replica."""
        if not self._serving.is_alive:
            raise RunError("serve: a thread that runs requests has ended", help="see the replica's log")

    def __del__(self) -> None:
        """Run what waits: Serve calls this when the replica is to leave."""
        serving = getattr(self, "_serving", None)
        if serving is not None:
            serving.close()


def deployment(
    model: One | Mapping[str, One],
    *,
    max_batch: int = 32,
    max_wait_ms: float = 2.0,
    max_waiting: int = 256,
    timeout: float | None = 30.0,
    autoscaling: Mapping[str, Any] | None = None,
    replicas: int = 1,
    threads: int = 1,
    slots: int = 8,
    max_bytes: int = MOST_BYTES,
    share_weights: bool = False,
    provider: str | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """Return an application of Ray Serve that serves models: `serve.run(gc.scale.deployment(graph))`.

    model: a Graph or the path of an ONNX file, served under the graph's or the file's name; or several by name. Models
    of llama.build and gpt2.build stream tokens at /v2/models/NAME/generate_stream; the others infer at
    /v2/models/NAME/infer as the Open Inference Protocol says, so that `tritonclient.http` works against them.

    max_batch, max_wait_ms: requests are put together along the batch dim, as by a `Batcher`. max_waiting: requests that
    wait in a replica at most; those beyond are answered 503. timeout: seconds that a request may take which does not
    say so itself, answered 504 then. autoscaling: Serve's, such as `{"min_replicas": 1, "max_replicas": 4}`; without it
    there are `replicas`. threads: of a replica's sessions, and the processors that Serve counts for it. slots: texts
    that a decoder writes at once. max_bytes: of a body, also unpacked. share_weights: whether replicas of a node, and
    models with equal weights, use the same memory for them, which are then not put into the order that kernels read
    fastest; it pays for large models. provider: of the sessions.
    limits: of reading a file. options: more of `serve.deployment`.

    Running an application of the same name again replaces the models replica by replica: each answers what it took in.
    Raises `GraphError` for numbers that make no sense and `ModelError` for models that cannot be served, before
    anything starts.
    """
    for name, value in (("replicas", replicas), ("threads", threads), ("max_bytes", max_bytes)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise GraphError(f"deployment: {name}={value!r:.40} is no number from 1 on", help="leave it out")
    graphs = _graphs(model, limits)
    served: dict[str, Any] = {
        "max_batch": max_batch, "max_wait_ms": max_wait_ms, "max_waiting": max_waiting, "timeout": timeout,
        "slots": slots,
    }  # fmt: skip
    session: dict[str, Any] = {
        "providers": provider,
        "config": {"session.intra_op.allow_spinning": False},
        "intra_op_num_threads": threads,
    }
    prepack = "off" if share_weights else "auto"
    there = dict(zip(graphs, placed(*graphs.values()), strict=True))
    # What cannot be loaded or served is told here, and not by a replica that starts again and again.
    starts = InferenceSession(**session)
    Serving({name: starts.load(each.path()) for name, each in there.items()}, **served).close()
    chosen: dict[str, Any] = {
        "name": next(iter(graphs)),
        "ray_actor_options": {"num_cpus": threads},
        # So many that a full replica says so itself; what is beyond waits with Serve, and is answered 503 as well.
        "max_ongoing_requests": max_waiting + 2 * max_batch,
        "max_queued_requests": max_waiting,
        "graceful_shutdown_timeout_s": _LEAVING,
    }
    if autoscaling is None:
        chosen["num_replicas"] = replicas
    else:
        chosen["autoscaling_config"] = {"target_ongoing_requests": max_batch, **autoscaling}
    made = serve.deployment(Replica).options(**{**chosen, **options})
    return made.bind(there, session, prepack, served, max_bytes)


def _graphs(model: One | Mapping[str, One], limits: Limits | None) -> dict[str, Graph]:
    """Return the graphs by the names that clients use. Raises `GraphError` for names that no path has."""
    if isinstance(model, Mapping):
        made = {name: graph_of("deployment", each, limits) for name, each in model.items()}
    else:
        graph = graph_of("deployment", model, limits)
        made = {graph.name if isinstance(model, Graph) else name_of(os.fspath(model)): graph}
    for name in made:
        if not isinstance(name, str) or not name or "/" in name or "?" in name:
            raise GraphError(f"deployment: {name!r:.80} is no name of a model", help="give text without slashes")
    if not made:
        raise GraphError("deployment: there is no model", help="give one, or several by name")
    return made
