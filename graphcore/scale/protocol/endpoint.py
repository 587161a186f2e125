"""An endpoint of the protocol for any server: from method, path, headers and body to a response."""

from __future__ import annotations

import json
import math
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from html import escape
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, unquote

from graphcore._version import __version__
from graphcore.arrays.casting import Array
from graphcore.scale.protocol.infer import decode_request, decompress, encode_response, from_text, tensors_of
from graphcore.scale.protocol.tensors import ProtocolError, Response, as_json, event, failure, problem, streamed
from graphcore.support.escaping import suggestion
from graphcore.types.tensor_types import TensorType

Submit: TypeAlias = Callable[[Mapping[str, Array], "float | None"], "Future[list[Array]]"]
Generate: TypeAlias = Callable[[Mapping[str, Any]], "Tokens"]
Respond: TypeAlias = Callable[[str, str, bytes], "Future[Response]"]

MAX_BYTES = 64 << 20
"""The default maximum size of a body, also after decompression."""

VERSION = "1"
_HEADER_LENGTH = "inference-header-content-length"
_PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}
_METHODS = {
    **dict.fromkeys(("", "metrics", "openapi.json", "v2", "v2/health/live", "v2/health/ready"), "GET"),
    "v2/repository/index": "POST",
}
"""The methods of the paths that are not of a model."""
_EXTENSIONS = ["binary_tensor_data", "model_repository"]


class Tokens(Protocol):
    """Tokens that are being generated."""

    def __iter__(self) -> Iterator[int]: ...

    def cancel(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Served:
    """A model that is served.

    Attributes:
        name: The name in paths.
        inputs: The types of the inputs.
        outputs: The types of the outputs.
        submit: A function from arrays by name and a timeout in seconds to a future of the outputs; None for a decoder.
        metrics: A function that returns metrics in Prometheus' format.
        generate: For a decoder, a function from the JSON of a request to tokens.
        optional: The types of the inputs that a request may omit.
    """

    name: str
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    submit: Submit | None
    metrics: Callable[[], str] = str
    generate: Generate | None = None
    optional: Mapping[str, TensorType] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the model in the protocol's format."""
        ends = {"inputs": tensors_of(self.inputs), "outputs": tensors_of(self.outputs)}
        return {"name": self.name, "versions": [VERSION], "platform": "graphcore", **ends}


def answered(
    route: Callable[[], Response | Future[Response]], failed: Callable[[BaseException], Response] = failure
) -> Future[Response]:
    """Return a future of the response of `route`, or of the response for its error."""
    try:
        answer = route()
    except Exception as error:
        answer = failed(error)
    if isinstance(answer, Future):
        return answer
    future: Future[Response] = Future()
    future.set_result(answer)
    return future


class Endpoint:
    """Serves models. `endpoint.respond("POST", "/v2/models/m/infer", headers, body)` returns a future of a Response."""

    def __init__(self, models: Sequence[Served], *, max_bytes: int = MAX_BYTES, text: Respond | None = None) -> None:
        """Keep the models. text: responds to the paths of the OpenAI API, below /v1."""
        self.models = {model.name: model for model in models}
        self.max_bytes = max_bytes
        self.is_ready = True
        self._text = text
        self.other_metrics: Callable[[], Iterable[str]] = list  # of other processes that serve the same models

    def metrics(self) -> str:
        """Return the metrics of all models in Prometheus' format."""
        return merge_metrics(model.metrics() for model in self.models.values())

    def respond(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Future[Response]:
        """Return a future of the response. Errors are responses too.

        path: percent-encoded, as in the request. headers: by names in lower case. Cancelling the future cancels a
        waiting request.
        """
        return answered(lambda: self._route(method.upper(), path.partition("?")[0].strip("/"), headers, body))

    def _route(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response | Future[Response]:
        parts = [unquote(part) for part in path.split("/")] if path else []
        if "/".join(parts) in _METHODS:
            _require(method, _METHODS["/".join(parts)])
        match parts:
            case ["v1", *_] if self._text is not None:
                self._require_ready()
                return self._text(method, path, decompress(headers, body, self.max_bytes))
            case ["v2", "models", name, "versions", version, *rest]:
                if version != VERSION:
                    raise ProtocolError(f"model {name!r:.80} has no version {version!r:.40}", status=404)
                return self._route_model(method, name, rest, headers, body)
            case ["v2", "models", name, *rest]:
                return self._route_model(method, name, rest, headers, body)
            case ["metrics"]:
                text = merge_metrics([self.metrics(), *self.other_metrics()])
                answer = Response(200, text.encode(), {"Content-Type": "text/plain; version=0.0.4"})
            case ["openapi.json"]:
                answer = as_json(openapi(self.models.values()))
            case []:
                text = page(self.models.values(), headers.get("host", "127.0.0.1"), self._text is not None)
                answer = Response(200, text.encode(), _PAGE_HEADERS)
            case ["v2"]:
                answer = as_json({"name": "graphcore", "version": __version__, "extensions": _EXTENSIONS})
            case ["v2", "health", "live"]:
                answer = as_json({"live": True})
            case ["v2", "health", "ready"]:
                answer = self._readiness({})
            case ["v2", "repository", "index"]:
                rows = [{"name": name, "version": VERSION, "state": "READY", "reason": ""} for name in self.models]
                answer = as_json(rows)
            case _:
                raise ProtocolError(f"unknown path /{path:.100}", status=404, help="models are at /v2/models/NAME")
        return answer

    def _route_model(
        self, method: str, name: str, rest: list[str], headers: Mapping[str, str], body: bytes
    ) -> Response | Future[Response]:
        model = self.models.get(name)
        if model is None:
            close = suggestion(name, self.models)
            raise ProtocolError(
                f"unknown model {name!r:.80}", status=404, help=f"{close}the models are {', '.join(self.models)}"
            )
        match rest:
            case [] | ["ready"]:
                _require(method, "GET")
                return self._readiness({"name": name}) if rest else as_json(model.metadata())
            case ["infer" | "generate" | "generate_stream" as kind]:
                self._require_ready()
                _require(method, "POST")
                if kind == "infer":
                    return self._infer(model, headers, body)
                return self._generate(model, kind == "generate_stream", headers, body)
        raise ProtocolError(f"model {name!r} has no path /{'/'.join(rest):.80}", status=404)

    def _readiness(self, names: Mapping[str, str]) -> Response:
        return as_json({**names, "ready": self.is_ready}, 200 if self.is_ready else 503)

    def _require_ready(self) -> None:
        if not self.is_ready:
            raise ProtocolError("the server is closing", status=503)

    def _infer(self, model: Served, headers: Mapping[str, str], body: bytes) -> Future[Response]:
        if model.submit is None:
            raise ProtocolError(
                f"model {model.name!r} is a decoder and only generates tokens",
                status=400,
                help=f"post to /v2/models/{model.name}/generate",
            )
        content = decompress(headers, body, self.max_bytes)
        requested = decode_request(content, _length(headers), model.inputs, list(model.outputs), model.optional)
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
            kinds = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(length)}
            answer.set_result(Response(200, encoded) if length is None else Response(200, encoded, kinds))

        answer.add_done_callback(lambda done: running.cancel() if done.cancelled() else None)
        running.add_done_callback(finish)
        return answer

    def _generate(
        self, model: Served, streams: bool, headers: Mapping[str, str], body: bytes
    ) -> Response | Future[Response]:
        if model.generate is None:
            raise ProtocolError(f"model {model.name!r} is not a decoder", help=f"post to /v2/models/{model.name}/infer")
        fix = 'send {"tokens": [...], "max_new_tokens": 64}'
        request = from_text(decompress(headers, body, self.max_bytes), fix)
        if not isinstance(request, dict):
            raise ProtocolError("the body must be a JSON object", help=fix)
        tokens = model.generate(request)
        head = {"model_name": model.name, "model_version": VERSION}
        if streams:
            return streamed(_events(head, tokens), tokens.cancel)
        return later(lambda: as_json({**head, "tokens": list(tokens)}), tokens.cancel)


def _events(head: Mapping[str, str], tokens: Tokens) -> Iterator[bytes]:
    """Yield an event for each token, and for an error as the last one."""
    try:
        for token in tokens:
            yield event(json.dumps({**head, "token": token}).encode())
    except Exception as error:
        yield event(problem(error)[1])


def later(
    make: Callable[[], Response],
    cancel: Callable[[], object] = lambda: None,
    failed: Callable[[BaseException], Response] = failure,
) -> Future[Response]:
    """Return a future of the result of `make` in a thread. Cancelling it calls `cancel`."""
    answer: Future[Response] = Future()
    answer.add_done_callback(lambda done: cancel() if done.cancelled() else None)

    def run() -> None:
        try:
            response = make()
        except Exception as error:
            response = failed(error)
        if answer.set_running_or_notify_cancel():
            answer.set_result(response)

    threading.Thread(target=run, name="graphcore generate", daemon=True).start()
    return answer


def _require(method: str, allowed: str) -> None:
    if method != allowed and not (method == "HEAD" and allowed == "GET"):
        raise ProtocolError(f"method {method:.20} is not allowed", status=405, help=f"use {allowed}")


def _length(headers: Mapping[str, str]) -> int | None:
    value = headers.get(_HEADER_LENGTH)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise ProtocolError(f"Inference-Header-Content-Length: {value!r:.40} is not a number of bytes")
    return int(value)


# Metrics of several models in one text. Prometheus' format needs the lines of a metric together.


def merge_metrics(texts: Iterable[str]) -> str:
    """Merge texts: HELP and TYPE of each metric once, then the samples of all models, summed over equal labels."""
    groups: dict[str, dict[str, float | None]] = {}  # by metric: its lines, the value of a sample apart
    for text in texts:
        group: dict[str, float | None] = {}
        for line in text.splitlines():
            if line.startswith("# "):
                group = groups.setdefault(line.split(" ", 3)[2], {})
                group[line] = None
            elif line:
                label, _, value = line.rpartition(" ")
                group[label] = (group.get(label) or 0) + (int(value) if value.isdigit() else float(value))
    lines = [
        label if value is None else f"{label} {value!r}" for group in groups.values() for label, value in group.items()
    ]
    return "".join(f"{line}\n" for line in lines)


# Descriptions of served models: the document of OpenAPI, and a page with tensors and sample requests.

_TOKENS = {"type": "array", "items": {"type": "integer"}}
_OBJECT = {"type": "object"}


def openapi(models: Iterable[Served]) -> dict[str, Any]:
    """Return the document of OpenAPI 3.1."""
    paths = {
        "/v2": {"get": _operation("The server", _OBJECT)},
        "/v2/health/live": {"get": _operation("Whether the server runs", _OBJECT)},
        "/v2/health/ready": {"get": _operation("Whether the server takes requests", _OBJECT)},
        "/v2/repository/index": {"post": _operation("The models", {"type": "array", "items": _OBJECT})},
        "/metrics": {"get": _operation("Metrics in Prometheus' format", {"type": "string"}, kind="text/plain")},
    }
    for model in models:
        path = f"/v2/models/{quote(model.name, safe='')}"
        paths[path] = {"get": _operation(f"Types of {model.name}", _OBJECT)}
        paths[f"{path}/ready"] = {"get": _operation(f"Whether {model.name} takes requests", _OBJECT)}
        if model.generate is None:
            body = _tensors("inputs", {**model.inputs, **model.optional}, len(model.inputs))
            answer = _tensors("outputs", model.outputs, 1)
            paths[f"{path}/infer"] = {"post": _operation(f"Run {model.name}", answer, body)}
            continue
        needed = {"tokens": _TOKENS, "max_new_tokens": {"type": "integer"}}
        body = {"type": "object", "required": [*needed], "properties": needed}
        answer = {"type": "object", "properties": {"tokens": _TOKENS}}
        paths[f"{path}/generate"] = {"post": _operation(f"Generate tokens by {model.name}", answer, body)}
        operation = _operation(f"Stream tokens of {model.name}", {"type": "string"}, body, "text/event-stream")
        paths[f"{path}/generate_stream"] = {"post": operation}
    return {"openapi": "3.1.0", "info": {"title": "graphcore", "version": __version__}, "paths": paths}


def _operation(summary: str, answer: Any, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    responses = {
        "200": {"description": "OK", "content": {kind: {"schema": answer}}},
        "default": {"description": "An error", "content": {"application/json": {"schema": error}}},
    }
    content = {"required": True, "content": {"application/json": {"schema": body}}}
    return {"summary": summary, **({} if body is None else {"requestBody": content}), "responses": responses}


def _tensors(what: str, types: Mapping[str, TensorType], count: int) -> dict[str, Any]:
    """Return the schema of an object with a list of tensors, at least `count`."""
    kinds = [
        {
            "type": "object",
            "required": ["name", "datatype", "shape"],
            "properties": {
                "name": {"const": each["name"]},
                "datatype": {"const": each["datatype"]},
                "shape": {"type": "array", "items": {"type": "integer"}, "description": str(types[each["name"]])},
                "data": {"type": "array"},
            },
        }
        for each in tensors_of(types)
    ]
    tensors = {"type": "array", "minItems": count, **({"items": {"anyOf": kinds}} if kinds else {})}
    return {"type": "object", "required": [what], "properties": {what: tensors}}


def page(models: Iterable[Served], host: str, has_text: bool = False) -> str:
    """Return a page in HTML, without scripts, links to other hosts or images. host: that of sample requests."""
    rows = ["<p><a href=v1/models>Models of the OpenAI API</a></p>"] if has_text else []
    for model in models:
        rows.append(f"<h2>{escape(model.name)}</h2><table><tr><th><th>name<th>type</tr>")
        for what, types in (("input", model.inputs), ("optional", model.optional), ("output", model.outputs)):
            rows += [f"<tr><td>{what}<td>{escape(name)}<td>{escape(str(each))}</tr>" for name, each in types.items()]
        rows.append(f"</table><pre>{escape(_sample(model, host))}</pre>")
    return (
        "<!DOCTYPE html><meta charset=utf-8><title>graphcore</title><style>body{font:16px sans-serif;margin:2em}"
        "td,th{padding:0 1em 0 0;text-align:left}pre{background:#eee;padding:1em;overflow-x:auto}</style>"
        "<h1>Models</h1><p><a href=openapi.json>OpenAPI</a> · <a href=metrics>metrics</a></p>" + "".join(rows) + "\n"
    )


def _sample(model: Served, host: str) -> str:
    """Return a request for a shell."""
    url = shlex.quote(f"http://{host}/v2/models/{quote(model.name, safe='')}/")
    if model.generate is not None:
        return f"""curl {url}generate -d '{{"tokens": [1, 2, 3], "max_new_tokens": 8}}'"""
    tensors = []
    for each in tensors_of(model.inputs):
        shape = [max(size, 1) if size < 0 else size for size in each["shape"]]
        value = {"BYTES": '""', "BOOL": "False"}.get(each["datatype"], "0")
        fields = f'"name": {json.dumps(each["name"])}, "datatype": "{each["datatype"]}", "shape": {shape}'
        tensors.append(f'{{{fields}, "data": [{value}] * {math.prod(shape)}}}')
    code = f'import json; print(json.dumps({{"inputs": [{", ".join(tensors)}]}}))'
    return f"python3 -c {shlex.quote(code)} |\n  curl {url}infer -d @-"
