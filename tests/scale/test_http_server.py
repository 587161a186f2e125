"""The client of Triton infers against our own server; bad requests get one clear answer each."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.errors import GraphError
from graphcore.models import llama
from graphcore.scale.protocol import Endpoint, Served
from graphcore.scale.protocol.endpoint import merge_metrics
from graphcore.scale.serving.http_server import HttpServer
from tests.runtime.test_batcher import watched
from tests.scale.support import graphs, models
from tests.support.waiting import until

pytest.importorskip("geventhttpclient", reason="geventhttpclient is not installed: the extra triton")
triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed: the extra triton")


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with HttpServer(models(), max_batch=8, max_waiting=64) as running:
        yield running


@pytest.fixture
def client(server: HttpServer) -> Iterator[Any]:
    result = triton.InferenceServerClient(server.url.removeprefix("http://"))
    yield result
    result.close()


def test_metadata_has_types_and_dims(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("floats")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "model_repository"]
    assert client.get_model_metadata("brains") == {
        "name": "brains",
        "versions": ["1"],
        "platform": "graphcore",
        "inputs": [{"name": "x", "datatype": "BF16", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "BF16", "shape": [-1, 3]}],
    }
    assert [row["name"] for row in client.get_model_repository_index()] == [*models()]


def test_server_loads_graphs_and_files(tmp_path: Path) -> None:
    graph = graphs()["floats"]
    graph.export(tmp_path / "file.onnx")
    model = gc.InferenceSession().load(graph)
    sources: dict[str, Any] = {
        "model": model,
        "graph": graph,
        "path": tmp_path / "file.onnx",
        "text": str(tmp_path / "file.onnx"),
    }
    cases: list[tuple[Any, str]] = [
        (model, model.name),
        (graph, graph.name),
        (tmp_path / "file.onnx", "file"),
        (sources, "path"),
    ]
    for source, name in cases:
        with HttpServer(source) as server:
            client = triton.InferenceServerClient(server.url.removeprefix("http://"))
            assert client.is_model_ready(name)
            client.close()


def test_url_of_an_ipv6_address_has_brackets() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with HttpServer(graphs()["floats"], "::1") as server:
        assert server.url == f"http://[::1]:{server.port}"
        with urllib.request.urlopen(f"{server.url}/v2/health/live") as answer:
            assert json.load(answer) == {"live": True}


def test_what_cannot_be_served_is_an_error() -> None:
    wrong: Any = 3
    with pytest.raises(gc.GraphcoreError, match="int"):
        HttpServer(wrong)
    with pytest.raises(GraphError, match="serve: 'a/b' is not a valid name of a model"):
        HttpServer({"a/b": graphs()["floats"]})


CASES = {
    "floats": np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3),
    "brains": np.linspace(-2, 2, 6).astype(ml_dtypes.bfloat16).reshape(2, 3),
    "integers": np.array([[2**62, -1, 0], [1, 2, 3]], np.int64),
    "texts": np.array([["a", "", "ü"], ["\x00b", "c d", "日本"]], object),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_binary", [True, False])
def test_client_infers_as_the_model_does_for_each_dtype(client: Any, name: str, is_binary: bool) -> None:
    if name == "brains" and not is_binary:
        pytest.skip("the client sends bfloat16 as bytes alone")
    array = CASES[name]
    value = triton.InferInput("x", list(array.shape), client.get_model_metadata(name)["inputs"][0]["datatype"])
    value.set_data_from_numpy(array, binary_data=is_binary)
    results = [triton.InferRequestedOutput("y", binary_data=is_binary)]
    result = client.infer(name, [value], outputs=results, request_id="7")
    (wanted,) = models()[name](array)
    assert result.get_response()["id"] == "7"
    got = result.as_numpy("y")
    if name == "texts":
        assert [t.decode() if isinstance(t, bytes) else t for t in got.flat] == [*wanted.flat]
    else:
        np.testing.assert_array_equal(got.astype(wanted.dtype), wanted)


@pytest.mark.parametrize("packing", [None, "gzip", "deflate"])
def test_client_infers_when_it_asks_for_no_output_and_packs_its_body(client: Any, packing: str | None) -> None:
    array = CASES["floats"]
    value = triton.InferInput("x", [2, 3], "FP32").set_data_from_numpy(array)
    result = client.infer("floats", [value], request_compression_algorithm=packing)
    np.testing.assert_array_equal(result.as_numpy("y"), models()["floats"](array)[0])


def _post(server: HttpServer, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
    connection.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    result = answer.status, json.loads(answer.read())
    connection.close()
    return result


def _request(**other: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3], **other}
    return json.dumps({"inputs": [tensor]}).encode()


BAD: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "other shape": (_request(shape=[1, 4], data=[1, 2, 3, 4]), {}, 400, "must be float32[batch, 3], got shape [1, 4]"),
    "other rank": (_request(shape=[3]), {}, 400, "got shape [3]"),
    "other dtype": (_request(datatype="INT64"), {}, 400, "input 'x' must be FP32, got 'INT64'"),
    "too few elements": (_request(data=[1, 2]), {}, 400, "2 elements of data"),
    "text for numbers": (_request(data=[1, "2", 3]), {}, 400, "'2' is not an element of FP32"),
    "negative size": (_request(shape=[-1, 3]), {}, 400, "shape must be a list of sizes"),
    "other name": (_request(name="z"), {}, 400, "unknown input 'z'"),
    "no tensor": (b"\x89PNG\r\n", {}, 400, "the body is not JSON"),
    "no object": (b"[1, 2]", {}, 400, "a request must be a JSON object"),
    "nothing": (b"", {}, 400, "the body is not JSON"),
    "no inputs": (b"{}", {}, 400, "the request has no list of inputs"),
    "deep": (b"[" * 100_000, {}, 400, "the body is not JSON"),
    "missing": (b'{"inputs": []}', {}, 400, "input 'x' is missing"),
    "header too long": (_request(), {"Inference_Header_Content_Length": "99999"}, 400, "a header of 99999 bytes"),
    "header no number": (_request(), {"Inference_Header_Content_Length": "-1"}, 400, "is not a number of bytes"),
    "left": (_request() + b"abcd", {"Inference_Header_Content_Length": str(len(_request()))}, 400, "4 bytes follow"),
    "bytes cut": (_request(data=None, parameters={"binary_data_size": 12}), {}, 400, "=12, but 0 bytes"),
    "too many rows": (_request(shape=[9, 3], data=[0] * 27), {}, 400, "a request of 9 rows"),
    "not packed": (_request(), {"Content_Encoding": "gzip"}, 400, "the body is not gzip"),
    "unpacks to too much": (gzip.compress(bytes(65 << 20)), {"Content_Encoding": "gzip"}, 413, "decompressed body has"),
    "other packing": (_request(), {"Content_Encoding": "br"}, 415, "is not supported"),
    "shared memory": (_request(parameters={"shared_memory_region": "r"}), {}, 400, "shared memory is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_request_gets_one_clear_answer(server: HttpServer, name: str) -> None:
    body, headers, status, text = BAD[name]
    result, answer = _post(server, "/v2/models/floats/infer", body, **headers)
    assert result == status, answer
    assert text in answer["error"]
    assert _post(server, "/v2/models/floats/infer", _request())[0] == 200


def test_unknown_paths_and_methods_are_answered(server: HttpServer, client: Any) -> None:
    assert _post(server, "/v2/models/flots/infer", b"")[0] == 404
    assert "did you mean" in _post(server, "/v2/models/flots/infer", b"")[1]["error"]
    assert _post(server, "/v2/models/floats/versions/9/infer", b"")[0] == 404
    assert _post(server, "/v2/health/live", b"")[0] == 405
    assert _post(server, "/else", b"")[0] == 404


def test_client_that_goes_away_disturbs_no_other(server: HttpServer) -> None:
    for sent in (b"POST /v2/models/floats/infer HTTP/1.1\r\nContent-Length: 99\r\n\r\n{", b"\x00\xff\r\n\r\n", b""):
        with socket.create_connection((server.host, server.port)) as gone:
            gone.sendall(sent)
    assert _post(server, "/v2/models/floats/infer", _request())[0] == 200


def test_request_times_out_when_it_says_so() -> None:
    graph = Graph("slow", {"x": TensorType("float32", ["batch", 256, 256])})
    y = graph["x"]
    for _ in range(40):
        y = ops.matmul(y, y)
    graph.output(y=y)
    with HttpServer({"slow": gc.InferenceSession().load(graph)}) as server:
        tensor = {"name": "x", "datatype": "FP32", "shape": [8, 256, 256], "parameters": {"binary_data_size": 8 << 18}}
        head = json.dumps({"inputs": [tensor], "parameters": {"timeout": 1000}}).encode()
        status, answer = _post(
            server, "/v2/models/slow/infer", head + bytes(8 << 18), Inference_Header_Content_Length=str(len(head))
        )
    assert (status, "after timeout=0.001 seconds" in answer["error"]) == (504, True), answer


def test_full_queue_is_answered_503_and_the_server_stays_alive() -> None:
    model = watched(graphs()["floats"])
    model.gate.clear()
    with HttpServer({"floats": model}, max_wait_ms=0, max_waiting=1) as server:
        results: list[int] = []
        threads = [
            threading.Thread(target=lambda: results.append(_post(server, "/v2/models/floats/infer", _request())[0]))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        until(lambda: 503 in results)
        model.gate.set()
        for thread in threads:
            thread.join()
        assert set(results) == {200, 503}
        assert _post(server, "/v2/models/floats/infer", _request())[0] == 200


def test_metrics_have_each_model_once(server: HttpServer) -> None:
    connection = http.client.HTTPConnection(server.host, server.port)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    heads = [line for line in lines if line.startswith("# TYPE ")]
    assert len(heads) == len(set(heads))
    assert {f'graphcore_batcher_requests_busy_total{{model="{m.name}"}} 0' for m in models().values()} <= {*lines}


def test_metrics_tell_models_of_one_graph_apart() -> None:
    graph = models()["floats"]
    with HttpServer({"first": graph, "second": graph}) as server:
        assert _post(server, "/v2/models/first/infer", _request())[0] == 200
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
    assert 'graphcore_batcher_requests_submitted_total{model="first"} 1' in lines
    assert 'graphcore_batcher_requests_submitted_total{model="second"} 0' in lines


def test_metrics_are_read_by_the_client_of_prometheus(server: HttpServer) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed: with Ray")
    connection = http.client.HTTPConnection(server.host, server.port)
    connection.request("GET", "/metrics")
    families = list(parser.text_string_to_metric_families(connection.getresponse().read().decode()))
    connection.close()
    assert {each.type for each in families} == {"counter", "gauge", "histogram"}
    labels = {sample.labels["model"] for each in families for sample in each.samples}
    assert labels == {model.name for model in models().values()}


def test_metrics_of_processes_are_summed() -> None:
    text = '# HELP a A.\n# TYPE a gauge\na{model="m 1"} 2\na{model="n"} 1\n# HELP b B.\n# TYPE b gauge\nb 0.5\n'
    lines = merge_metrics([text, text.replace(" 2", " 3"), ""]).splitlines()
    assert lines == [
        "# HELP a A.", "# TYPE a gauge", 'a{model="m 1"} 5', 'a{model="n"} 2', "# HELP b B.", "# TYPE b gauge", "b 1.0",
    ]  # fmt: skip


def test_decoder_streams_its_tokens() -> None:
    config = llama.Config()
    model = gc.InferenceSession().load(llama.build(config, cache=32))
    from graphcore import models as texts

    wanted = texts.generate(model, [1, 2, 3], 6).tolist()
    with HttpServer({"llama": model}) as server:
        body = json.dumps({"tokens": [1, 2, 3], "max_new_tokens": 6}).encode()
        assert _post(server, "/v2/models/llama/generate", body)[1]["tokens"] == wanted
        connection = http.client.HTTPConnection(server.host, server.port)
        connection.request("POST", "/v2/models/llama/generate_stream", body)
        events = connection.getresponse().read().decode().split("\n\n")
        connection.close()
        assert [json.loads(event.removeprefix("data: "))["token"] for event in events if event] == wanted
        late = json.dumps({"tokens": [1], "max_new_tokens": 20, "timeout": 1e-6}).encode()
        assert _post(server, "/v2/models/llama/generate", late)[0] == 504
        bad = json.dumps({"tokens": [1], "max_new_tokens": 999}).encode()
        assert _post(server, "/v2/models/llama/generate", bad)[0] == 400
        assert _post(server, "/v2/models/llama/generate", b'{"tokens": [1]}')[0] == 400
        assert _post(server, "/v2/models/llama/infer", b"{}")[0] == 400


def test_request_is_cancelled_when_its_answer_is() -> None:
    waiting: Future[list[Any]] = Future()
    types = {"x": TensorType("float32", ["batch", 3])}
    endpoint = Endpoint([Served("m", types, types, lambda arrays, seconds: waiting)])
    answer = endpoint.respond("POST", "/v2/models/m/infer", {}, _request())
    assert not answer.done()
    assert answer.cancel()
    assert waiting.cancelled()
