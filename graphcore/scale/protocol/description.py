"""Descriptions of served models: the document of OpenAPI, and a page with tensors and sample requests.

A model is a `Served` of the endpoint, which imports this module.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from graphcore._version import __version__
from graphcore.scale.protocol.infer import tensors_of
from graphcore.types.tensor_types import TensorType

_TOKENS = {"type": "array", "items": {"type": "integer"}}
_OBJECT = {"type": "object"}


def openapi(models: Iterable[Any]) -> dict[str, Any]:
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


def page(models: Iterable[Any], host: str, has_text: bool = False) -> str:
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


def _sample(model: Any, host: str) -> str:
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
