"""An endpoint of the protocol: a method, a path, headers and a body in, a response out, for any server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from graphcore._version import __version__
from graphcore.arrays.casting import Array
from graphcore.scale.protocol.infer import decode_request, encode_response, from_text, tensors_of, unpacked
from graphcore.scale.protocol.tensors import ProtocolError, Response, as_json, failure, problem
from graphcore.support.escaping import suggestion
from graphcore.types.tensor_types import TensorType

Submit: TypeAlias = Callable[[Mapping[str, Array], "float | None"], "Future[list[Array]]"]
Generate: TypeAlias = Callable[[Mapping[str, Any]], "Tokens"]

MOST_BYTES = 64 << 20
"""Bytes of a body, also unpacked, that are read at most where nothing else is said."""

VERSION = "1"
_HEADER_LENGTH = "inference-header-content-length"
_EXTENSIONS = ["binary_tensor_data", "model_repository"]


class Tokens:
    """Tokens that are being generated: an iterator of them, and what ends it early."""

    def __init__(self, tokens: Iterator[int], cancel: Callable[[], object]) -> None:
        self._tokens = tokens
        self.cancel = cancel

    def __iter__(self) -> Iterator[int]:
        return self._tokens


@dataclass(frozen=True, slots=True)
class Served:
    """A model that is served. submit: takes arrays by name and seconds, gives a future of the outputs. metrics: text
    in Prometheus' format. generate: of a decoder, takes the JSON of a request; such a model has no submit."""

    name: str
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    submit: Submit | None
    metrics: Callable[[], str] = str
    generate: Generate | None = None

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the model as the protocol has it."""
        ends = {"inputs": tensors_of(self.inputs), "outputs": tensors_of(self.outputs)}
        return {"name": self.name, "versions": [VERSION], "platform": "graphcore", **ends}


def _done(response: Response) -> Future[Response]:
    made: Future[Response] = Future()
    made.set_result(response)
    return made


class Endpoint:
    """Serves models: `endpoint.respond("POST", "/v2/models/m/infer", headers, body)` gives a future of a Response."""

    def __init__(self, models: Sequence[Served], *, most_bytes: int = MOST_BYTES) -> None:
        self.models = {model.name: model for model in models}
        self.most_bytes = most_bytes
        self.is_ready = True

    def respond(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Future[Response]:
        """Return a future of the answer, which is never an error: those are answers too.

        path: as it stands in the request, percent-encoded. headers: by names in lower case. Cancelling the future
        cancels a request that waits.
        """
        try:
            return self._routed(method.upper(), path.partition("?")[0].strip("/"), headers, body)
        except Exception as error:
            return _done(failure(error))

    def _routed(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Future[Response]:
        parts = [unquote(part) for part in path.split("/")] if path else []
        match parts:
            case ["metrics"]:
                _require(method, "GET")
                text = merged(model.metrics() for model in self.models.values())
                return _done(Response(200, text.encode(), {"Content-Type": "text/plain; version=0.0.4"}))
            case ["v2"]:
                _require(method, "GET")
                return _done(as_json({"name": "graphcore", "version": __version__, "extensions": _EXTENSIONS}))
            case ["v2", "health", "live"]:
                _require(method, "GET")
                return _done(as_json({"live": True}))
            case ["v2", "health", "ready"]:
                _require(method, "GET")
                return _done(as_json({"ready": self.is_ready}, 200 if self.is_ready else 503))
            case ["v2", "repository", "index"]:
                _require(method, "POST")
                rows = [{"name": name, "version": VERSION, "state": "READY", "reason": ""} for name in self.models]
                return _done(as_json(rows))
            case ["v2", "models", name, "versions", version, *rest]:
                if version != VERSION:
                    raise ProtocolError(f"model {name!r:.80} has no version {version!r:.40}", status=404)
                return self._of_model(method, name, rest, headers, body)
            case ["v2", "models", name, *rest]:
                return self._of_model(method, name, rest, headers, body)
        raise ProtocolError(f"there is nothing at /{path:.100}", status=404, help="models are at /v2/models/NAME")

    def _of_model(
        self, method: str, name: str, rest: list[str], headers: Mapping[str, str], body: bytes
    ) -> Future[Response]:
        model = self.models.get(name)
        if model is None:
            close = suggestion(name, self.models)
            raise ProtocolError(
                f"there is no model {name!r:.80}", status=404, help=f"{close}the models are {', '.join(self.models)}"
            )
        match rest:
            case []:
                _require(method, "GET")
                return _done(as_json(model.metadata()))
            case ["ready"]:
                _require(method, "GET")
                return _done(as_json({"name": name, "ready": self.is_ready}, 200 if self.is_ready else 503))
            case ["infer" | "generate" | "generate_stream"] if not self.is_ready:
                raise ProtocolError("the server is closing", status=503)
            case ["infer"]:
                _require(method, "POST")
                return self._infer(model, headers, body)
            case ["generate" | "generate_stream" as kind]:
                _require(method, "POST")
                return self._generate(model, kind == "generate_stream", headers, body)
        raise ProtocolError(f"model {name!r} has nothing at /{'/'.join(rest):.80}", status=404)

    def _infer(self, model: Served, headers: Mapping[str, str], body: bytes) -> Future[Response]:
        if model.submit is None:
            raise ProtocolError(
                f"model {model.name!r} is a decoder", status=400, help=f"post to /v2/models/{model.name}/generate"
            )
        content = unpacked(headers, body, self.most_bytes)
        requested = decode_request(content, _length(headers), model.inputs, list(model.outputs))
        answer: Future[Response] = Future()
        running = model.submit(requested.arrays, requested.timeout)

        def finish(done: Future[list[Array]]) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                encoded, length = encode_response(model.name, requested, done.result(), model.outputs, VERSION)
            except BaseException as error:
                answer.set_result(failure(error))
                return
            if length is None:
                answer.set_result(Response(200, encoded))
            else:
                kinds = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(length)}
                answer.set_result(Response(200, encoded, kinds))

        def forward(done: Future[Response]) -> None:
            if done.cancelled():
                running.cancel()

        answer.add_done_callback(forward)
        running.add_done_callback(finish)
        return answer

    def _generate(self, model: Served, streams: bool, headers: Mapping[str, str], body: bytes) -> Future[Response]:
        if model.generate is None:
            raise ProtocolError(f"model {model.name!r} is no decoder", help=f"post to /v2/models/{model.name}/infer")
        fix = 'send {"tokens": [...], "max_new_tokens": 64}'
        given = from_text(unpacked(headers, body, self.most_bytes), fix)
        if not isinstance(given, dict):
            raise ProtocolError("the body is no JSON object", help=fix)
        made = model.generate(given)
        head = {"model_name": model.name, "model_version": VERSION}
        if streams:
            kinds = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
            return _done(Response(200, b"", kinds, _events(head, made), made.cancel))

        return _gathered(head, made)


def _events(head: Mapping[str, str], tokens: Tokens) -> Iterator[bytes]:
    """Yield each token as an event of its own, and an error as the last one."""
    try:
        for token in tokens:
            yield b"data: " + json.dumps({**head, "token": token}).encode() + b"\n\n"
    except Exception as error:
        yield b"data: " + problem(error)[1] + b"\n\n"


def _gathered(head: Mapping[str, str], tokens: Tokens) -> Future[Response]:
    """Return a future of all tokens in one answer; cancelling it ends them."""
    answer: Future[Response] = Future()
    answer.add_done_callback(lambda done: tokens.cancel() if done.cancelled() else None)

    def gather() -> None:
        try:
            response = as_json({**head, "tokens": list(tokens)})
        except Exception as error:
            response = failure(error)
        if answer.set_running_or_notify_cancel():
            answer.set_result(response)

    threading.Thread(target=gather, name="graphcore generate", daemon=True).start()
    return answer


def _require(method: str, wanted: str) -> None:
    if method != wanted and not (method == "HEAD" and wanted == "GET"):
        raise ProtocolError(f"{method:.20} is not served here", status=405, help=f"use {wanted}")


def _length(headers: Mapping[str, str]) -> int | None:
    given = headers.get(_HEADER_LENGTH)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise ProtocolError(f"Inference-Header-Content-Length: {given!r:.40} is no number of bytes")
    return int(given)


# Metrics of several models as one text of Prometheus' format, in which the lines of a metric stand together.


def merged(texts: Iterable[str]) -> str:
    """Return the texts as one: each metric's HELP and TYPE once, then the samples of all models."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith("# "):
                _, kind, name, _ = line.split(" ", 3)
                known = heads.setdefault(name, [])
                if not any(each.startswith(f"# {kind} ") for each in known):
                    known.append(line)
            elif line:
                samples.setdefault(name, []).append(line)
    lines = [line for name, head in heads.items() for line in (*head, *samples.get(name, ()))]
    return "".join(f"{line}\n" for line in lines)
