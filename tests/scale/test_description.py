"""The document of OpenAPI and the page of models: against a validator, real answers, and names with markup."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import Future
from html.parser import HTMLParser
from typing import Any

import jsonschema
import pytest

from graphcore import TensorType
from graphcore.scale.protocol import Endpoint, Served
from graphcore.scale.protocol.tensors import NAMES

HOSTILE = "<script>'\"`$(x)&"


def _served(name: str, inputs: dict[str, TensorType]) -> Served:
    """Return a model whose outputs are its inputs."""

    def submit(arrays: Any, seconds: Any) -> Future[list[Any]]:
        future: Future[list[Any]] = Future()
        future.set_result([arrays[name] for name in inputs])
        return future

    return Served(name, inputs, inputs, submit)


@pytest.fixture(scope="module")
def endpoint() -> Endpoint:
    models = [_served(f"of {name}", {"x": TensorType(dtype, ["batch", 2])}) for dtype, name in NAMES.items()]
    models.append(_served(HOSTILE, {HOSTILE: TensorType("float32", [2]), "y": TensorType("int4", ["n", 3, "n"])}))
    models.append(_served("image", {"pixels": TensorType("uint8", [1, 3, 224, 224])}))
    models.append(Served("decoder", {}, {}, None, generate=lambda arguments: pytest.fail("it runs")))
    return Endpoint(models)


def _get(endpoint: Endpoint, path: str) -> Any:
    answer = endpoint.respond("GET", path, {"host": "example.org"}).result()
    assert answer.status == 200
    return answer


def _document(endpoint: Endpoint) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(_get(endpoint, "/openapi.json").body)
    return result


def test_document_is_valid(endpoint: Endpoint) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="openapi-spec-validator is not installed")
    validator.validate(_document(endpoint))


def test_paths_are_those_of_the_endpoint(endpoint: Endpoint) -> None:
    document = _document(endpoint)
    assert document["openapi"].startswith("3.1.")
    for path, methods in document["paths"].items():
        (method,) = methods
        if path.endswith(("/infer", "/generate", "/generate_stream")):
            assert endpoint.respond(method, path, {}, b"x").result().status == 400, path
            continue
        answer = endpoint.respond(method, path, {}).result()
        (kind,) = methods[method]["responses"]["200"]["content"]
        assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (200, kind)
    assert "/v2/models/decoder/generate_stream" in document["paths"]
    assert "/v2/models/decoder/infer" not in document["paths"]


def _samples(endpoint: Endpoint) -> list[str]:
    text = _get(endpoint, "/").body.decode()
    return [html.unescape(sample) for sample in re.findall("<pre>(.*?)</pre>", text, re.DOTALL)]


def test_samples_run_and_fit_the_schemas(endpoint: Endpoint) -> None:
    paths = _document(endpoint)["paths"]
    samples = _samples(endpoint)
    assert len(samples) == len(endpoint.models)
    codes: list[tuple[str, str]] = []
    for sample in samples:
        words = shlex.split(sample)
        if words[0] == "curl":
            assert words[1] == "http://example.org/v2/models/decoder/generate"
            jsonschema.validate(json.loads(words[3]), _schema(paths, "/v2/models/decoder/generate", "requestBody"))
            continue
        assert (words[:2], words[3:5], words[6:]) == (["python3", "-c"], ["|", "curl"], ["-d", "@-"])
        codes.append((words[5].removeprefix("http://example.org"), words[2]))
    program = "import json, sys\nfor code in json.load(sys.stdin): exec(code)"
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps([code for _, code in codes]), capture_output=True, text=True
    )
    for (path, _), body in zip(codes, done.stdout.splitlines(), strict=True):
        jsonschema.validate(json.loads(body), _schema(paths, path, "requestBody"))
        answer = endpoint.respond("POST", path, {}, body.encode()).result()
        assert answer.status == 200, answer.body
        jsonschema.validate(json.loads(answer.body), _schema(paths, path, "responses"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"inputs": []}, _schema(paths, codes[0][0], "requestBody"))


def _schema(paths: dict[str, Any], path: str, what: str) -> Any:
    operation = paths[path]["post"][what]
    return (operation if what == "requestBody" else operation["200"])["content"]["application/json"]["schema"]


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        assert not [name for name, value in attrs if name.startswith("on") or "//" in (value or "")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_shows_names_as_text_and_runs_no_scripts(endpoint: Endpoint) -> None:
    answer = endpoint.respond("GET", "/", {"host": "<script>alert(1)</script>';x"}).result()
    elements = _Elements()
    elements.feed(answer.body.decode())
    assert elements.tags <= {"meta", "title", "style", "h1", "h2", "p", "a", "table", "tr", "th", "td", "pre"}
    assert HOSTILE in elements.text
    assert str(TensorType("int4", ["n", 3, "n"])) in elements.text
    assert "'none'" in answer.headers["Content-Security-Policy"]


def test_request_of_another_method_is_refused_before_an_answer_is_made() -> None:
    calls: list[int] = []

    def metrics() -> str:
        calls.append(1)
        return ""

    endpoint = Endpoint([Served("x", {}, {}, None, metrics)])
    for method, path in (
        ("POST", "/metrics"),
        ("PUT", "/"),
        ("POST", "/v2/health/ready"),
        ("GET", "/v2/repository/index"),
    ):
        assert endpoint.respond(method, path, {}).result().status == 405
    assert not calls
    assert endpoint.respond("HEAD", "/metrics", {}).result().status == 200
    assert calls
