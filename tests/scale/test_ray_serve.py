"""Triton's client against a deployment of Ray Serve: every dtype, overload, updates, and streams."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.errors import GraphError, ModelError
from tests.scale.clusters import end, processes
from tests.scale.support import graphs, models
from tests.support.waiting import PATIENCE, until

serve = pytest.importorskip("ray.serve", reason="ray[serve] is not installed: the extra ray")
triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed: the extra triton")

from graphcore.models import llama  # noqa: E402  after the skips
from graphcore.scale import deployment  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # of Ray and what it imports

NAMES = ("floats", "brains", "integers", "texts")


def _free_port() -> int:
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return int(result.getsockname()[1])


@pytest.fixture(scope="module")
def port(ray_cluster: str) -> Iterator[int]:
    result = _free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": result})
    several = {name: graphs()[name] for name in NAMES}
    several["llama"] = llama.build(llama.Config(), cache=32)
    serve.run(deployment(several, max_batch=8, max_waiting=32), name="several", route_prefix="/")
    yield result
    end(serve.shutdown, ray_cluster)


def _post(port: int, path: str, body: Any, method: str = "POST") -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path, body)
    answer = connection.getresponse()
    result = answer.status, answer.read()
    connection.close()
    try:
        return result[0], json.loads(result[1])
    except ValueError:
        return result[0], {"error": result[1].decode(errors="replace")}


def _floats(*values: float) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "data": values}
    return json.dumps({"inputs": [tensor]}).encode()


CASES = {
    "floats": np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3),
    "brains": np.linspace(-2, 2, 6).astype(ml_dtypes.bfloat16).reshape(2, 3),
    "integers": np.array([[2**62, -1, 0], [1, 2, 3]], np.int64),
    "texts": np.array([["a", "", "ü"], ["b", "c d", "日本"]], object),
}


@pytest.mark.parametrize("name", NAMES)
def test_client_of_triton_infers_as_the_model_does(port: int, name: str) -> None:
    client = triton.InferenceServerClient(f"127.0.0.1:{port}")
    assert client.is_server_ready()
    assert client.is_model_ready(name)
    array = CASES[name]
    value = triton.InferInput("x", list(array.shape), client.get_model_metadata(name)["inputs"][0]["datatype"])
    result = client.infer(name, [value.set_data_from_numpy(array)]).as_numpy("y")
    (wanted,) = models()[name](array)
    if name == "texts":
        assert [text.decode() for text in result.flat] == [*wanted.flat]
    else:
        np.testing.assert_array_equal(result.astype(wanted.dtype), wanted)
    client.close()


def test_bad_requests_get_one_answer_each_and_disturb_no_other(port: int) -> None:
    assert _post(port, "/v2/models/floats/infer", b"\x89PNG")[0] == 400
    status, answer = _post(port, "/v2/models/floats/infer", _floats(1, 2, 3, 4))
    assert (status, "got shape [1, 4]" in answer["error"]) == (400, True)
    assert _post(port, "/v2/models/none/infer", b"")[0] == 404
    with socket.create_connection(("127.0.0.1", port)) as gone:
        gone.sendall(b"POST /v2/models/floats/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{")
    assert _post(port, "/v2/models/floats/infer", _floats(1, 2, 3))[1]["outputs"][0]["data"] == [2, 4, 6]


def test_metrics_and_tokens_are_served(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    assert 'graphcore_batcher_requests_completed_total{model="floats"}' in text
    model = gc.InferenceSession().load(llama.build(llama.Config(), cache=32))
    wanted = gc.models.generate(model, [1, 2, 3], 6).tolist()
    body = json.dumps({"tokens": [1, 2, 3], "max_new_tokens": 6}).encode()
    assert _post(port, "/v2/models/llama/generate", body)[1]["tokens"] == wanted
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v2/models/llama/generate_stream", body)
    events = connection.getresponse().read().decode().split("\n\n")
    connection.close()
    assert [json.loads(event.removeprefix("data: "))["token"] for event in events if event] == wanted


def test_body_beyond_the_limit_is_refused_and_answers_are_packed(port: int) -> None:
    graph = Graph("wide", {"x": TensorType("float32", ["batch", "n"])})
    graph.output(y=graph["x"] + graph["x"])
    app = deployment({"a model": graph}, max_bytes=1 << 20)
    serve.run(app, name="limited", route_prefix="/limited")
    path = "/limited/v2/models/a%20model/infer"
    for body in (bytes(2 << 20), iter([bytes(1 << 20)] * 3)):  # which says its length, and in chunks
        status, answer = _post(port, path, body)
        assert (status, answer["error"]) == (413, "the body has more than 1048576 bytes")
    client = triton.InferenceServerClient(f"127.0.0.1:{port}/limited")
    array = np.zeros((2, 5000), np.float32)
    value = triton.InferInput("x", [2, 5000], "FP32").set_data_from_numpy(array)
    packing = {"request_compression_algorithm": "deflate", "response_compression_algorithm": "gzip"}
    np.testing.assert_array_equal(client.infer("a model", [value], **packing).as_numpy("y"), array)
    client.close()
    serve.delete("limited")


def test_replica_that_is_killed_is_replaced(port: int, ray_cluster: str) -> None:
    app = deployment(_scaled(2), autoscaling={"min_replicas": 1, "max_replicas": 2})
    serve.run(app, name="limited", route_prefix="/limited")
    path = "/limited/v2/models/scaled/infer"
    assert _post(port, path, _floats(1, 2, 3))[0] == 200
    (replica,) = processes(ray_cluster, "ray::ServeReplica:limited")
    os.kill(replica, signal.SIGKILL)
    until(lambda: replica not in processes(ray_cluster, "ray::ServeReplica:limited"))
    until(lambda: _post(port, path, _floats(1, 2, 3))[0] == 200)
    assert _post(port, path, _floats(1, 2, 3))[1]["outputs"][0]["data"] == [2, 4, 6]  # of another replica
    serve.delete("limited")


def test_slots_come_back_when_clients_of_streams_leave(port: int) -> None:
    decoder = llama.build(llama.Config(), cache=512)
    serve.run(deployment({"llama": decoder}, slots=2), name="streams", route_prefix="/streams")
    long = json.dumps({"tokens": [1, 2, 3], "max_new_tokens": 500}).encode()
    head = b"POST /streams/v2/models/llama/generate_stream HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    for _ in range(6):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as gone:
            gone.sendall(head % len(long) + long)
            message = b""
            while b"data: " not in message:
                part = gone.recv(65536)
                assert part, message
                message += part
    short = json.dumps({"tokens": [1, 2, 3], "max_new_tokens": 3}).encode()
    status, answer = _post(port, "/streams/v2/models/llama/generate", short)
    assert (status, len(answer["tokens"])) == (200, 3)

    def is_cancelled() -> bool:
        text = _post(port, "/streams/metrics", b"", "GET")[1]["error"]
        results = [line for line in text.splitlines() if "cancelled_total{" in line]
        return bool(results) and float(results[0].rpartition(" ")[2]) >= 4

    until(is_cancelled)
    serve.delete("streams")


def test_models_of_a_replica_share_equal_weights(port: int, ray_cluster: str) -> None:
    body = np.random.default_rng(0).standard_normal((4096, 2048), np.float32)
    several = {}
    for number in range(3):
        graph = Graph(f"m{number}", {"x": TensorType("float32", ["batch", 4096])})
        graph.output(y=graph["x"] @ graph.weight("body", body) * np.float32(number + 1))
        several[graph.name] = graph
    added = {}
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4096], "data": [1] * 4096}
    request = json.dumps({"inputs": [tensor]}).encode()
    for count in (1, 3):
        before = {*processes(ray_cluster, "ray::ServeReplica:shared")}
        chosen = {name: several[name] for name in [*several][:count]}
        serve.run(deployment(chosen, share_weights=True), name="shared", route_prefix="/shared")
        for name in chosen:
            assert _post(port, f"/shared/v2/models/{name}/infer", request)[0] == 200
        (replica,) = {*processes(ray_cluster, "ray::ServeReplica:shared")} - before
        added[count] = _mapped_bytes(replica)
        serve.delete("shared")
    assert added[1] >= body.nbytes
    assert added[3] - added[1] < 0.1 * body.nbytes


def _mapped_bytes(process: int) -> int:
    """Return the bytes of the files of weights that a process has mapped, each once."""
    text = Path(f"/proc/{process}/maps").read_text()
    return sum(os.path.getsize(path) for path in {*re.findall(r" (/.*/weights/.*)$", text, re.MULTILINE)})


def _scaled(by: float) -> Graph:
    graph = Graph("scaled", {"x": TensorType("float32", ["batch", 3])})
    graph.output(y=graph["x"] * np.float32(by))
    return graph


def test_update_loses_no_request(port: int) -> None:
    app = {"name": "updated", "route_prefix": "/updated"}
    serve.run(deployment(_scaled(2)), **app)
    results: list[tuple[int, Any]] = []
    is_over = threading.Event()

    def call() -> None:
        while not is_over.is_set():
            status, answer = _post(port, "/updated/v2/models/scaled/infer", _floats(1, 1, 1))
            results.append((status, answer["outputs"][0]["data"] if status == 200 else answer))
            time.sleep(0.02)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    until(lambda: results)
    serve.run(deployment(_scaled(3)), **app)
    until(lambda: (200, [3, 3, 3]) in results or any(status != 200 for status, _ in results))
    is_over.set()
    for caller in callers:
        caller.join()
    serve.delete("updated")
    assert {status for status, _ in results} == {200}, [each for each in results if each[0] != 200][:3]
    assert {tuple(data) for _, data in results} == {(2, 2, 2), (3, 3, 3)}


def test_overload_is_answered_503_and_the_replica_stays_alive(port: int) -> None:
    graph = Graph("slow", {"x": TensorType("float32", ["batch", 128, 128])})
    y = graph["x"]
    for _ in range(50):
        y = ops.matmul(y, y) * np.float32(0.01)
    graph.output(y=ops.sum(y, axis=(1, 2)))
    serve.run(deployment(graph, max_batch=2, max_waiting=2, timeout=PATIENCE), name="slow", route_prefix="/slow")
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 128, 128], "data": [0] * 128 * 128}
    body = json.dumps({"inputs": [tensor]}).encode()
    results: list[int] = []

    def call() -> None:
        until(lambda: results.append(_post(port, "/slow/v2/models/slow/infer", body)[0]) or 503 in results)  # type: ignore[func-returns-value]

    callers = [threading.Thread(target=call) for _ in range(24)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert set(results) == {200, 503}
    assert _post(port, "/slow/v2/models/slow/infer", body)[0] == 200
    serve.delete("slow")


def test_what_cannot_be_served_is_told_before_anything_starts(port: int) -> None:
    with pytest.raises(GraphError, match="threads must be an integer of at least 1, got 0"):
        deployment(_scaled(2), threads=0)
    with pytest.raises(GraphError, match="is not a valid name of a model"):
        deployment({"a/b": _scaled(2)})
    fixed = Graph("whole", {"x": TensorType("float32", ["batch", 3])})
    fixed.output(y=ops.sum(fixed["x"], axis=0))
    with pytest.raises(ModelError):
        deployment(fixed)
