"""The Open Inference Protocol and HTTP/1.1 as bytes: datatypes, mixed data, packing, chunks, pipelines and limits."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.models import llama
from graphcore.models.streams.scheduler import Request
from graphcore.runtime.buffers.runners import Slots
from graphcore.scale.protocol import Endpoint, Served, infer, packed
from graphcore.scale.protocol.tensors import Response
from graphcore.scale.serving import http_server
from graphcore.scale.serving.http_server import HttpServer
from tests.runtime.test_batcher import until_taken, watched
from tests.scale.support import submitted
from tests.support.waiting import PATIENCE, until

pytest.importorskip("graphcore.scale.serving.asgi", reason="uvicorn is not installed: the extra serve")

DATATYPES = {
    "BOOL": DType.bool, "UINT8": DType.uint8, "UINT16": DType.uint16, "UINT32": DType.uint32, "UINT64": DType.uint64,
    "INT8": DType.int8, "INT16": DType.int16, "INT32": DType.int32, "INT64": DType.int64, "FP16": DType.float16,
    "FP32": DType.float32, "FP64": DType.float64, "BF16": DType.bfloat16, "BYTES": DType.string,
}  # fmt: skip
MAX_BYTES = 1 << 20


def _pair() -> Graph:
    graph = Graph("pair", {"a": TensorType("float32", ["batch", "n"]), "b": TensorType("int64", ["batch"])})
    graph.output(sum=graph["a"] + graph["b"].cast("float32").unsqueeze(1), same=graph["b"], one=ops.sum(graph["a"], 1))
    return graph


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    session = gc.InferenceSession(intra_op_num_threads=1)
    loaded = {"a pair": session.load(_pair())}
    for name, dtype in DATATYPES.items():
        graph = Graph("same", {"x": TensorType(dtype, ["batch", "n"])})
        graph.output(y=graph["x"].unsqueeze(2).squeeze(2))
        loaded[name] = session.load(graph)
    with HttpServer(loaded, max_batch=8, max_bytes=MAX_BYTES) as running:
        yield running


def _ask(server: HttpServer, path: str, body: Any, method: str = "POST", **headers: str) -> Any:
    """Return the status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
    results = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, results, encode_chunked="Transfer-Encoding" in results)
    answer = connection.getresponse()
    result = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return result


def _infer(server: HttpServer, name: str, request: Any, binary: bytes = b"", **headers: str) -> tuple[Any, bytes]:
    """Return the JSON of an answer, and the bytes after it."""
    head = json.dumps(request).encode()
    if binary:
        headers["Inference_Header_Content_Length"] = str(len(head))
    status, result, body = _ask(server, f"/v2/models/{name}/infer", head + binary, **headers)
    assert status == 200, body
    length = int(result.get("inference-header-content-length", len(body)))
    return json.loads(body[:length]), body[length:]


def _raw(server: HttpServer, sent: bytes, answers: int = 1) -> list[tuple[int, bytes]]:
    """Send bytes over one connection, and return the status and body of so many answers."""
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as connection:
        connection.sendall(sent)
        read = connection.makefile("rb")
        results = []
        for _ in range(answers):
            status = int(read.readline().split()[1])
            length = 0
            while (line := read.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            results.append((status, read.read(length)))
        return results


VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False, True, True],
    "FP16": [0.5, -65504.0, 6e-8, 0.0],
    "FP32": [0.5, -3.4028234663852886e38, 1e-45, 0.0],
    "FP64": [0.1, -1.7976931348623157e308, 5e-324, 0.0],
    "BF16": [0.5, -3.3895313892515355e38, 1.0, 0.0],
    "BYTES": ["", "ü", "a\x00b", "日本"],
}


def _values(name: str) -> list[Any]:
    dtype = DATATYPES[name]
    return VALUES.get(name) or [int(dtype.min), int(dtype.max), 0, 1]


def _bytes(name: str, values: list[Any]) -> bytes:
    if name == "BYTES":
        return b"".join(struct.pack("<I", len(each.encode())) + each.encode() for each in values)
    return bytes(_array(name, values).tobytes())


def _array(name: str, values: list[Any]) -> Any:
    dtype = DATATYPES[name]
    return np.array(values, np.float64 if dtype.is_float else dtype.numpy).astype(dtype.numpy)


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("gives", [False, True])
@pytest.mark.parametrize("name", DATATYPES)
def test_datatype_travels_as_json_and_as_bytes(server: HttpServer, name: str, gives: bool, asks: bool) -> None:
    values = _values(name)
    data = _bytes(name, values)
    tensor: dict[str, Any] = {"name": "x", "datatype": name, "shape": [2, 2]}
    tensor |= {"parameters": {"binary_data_size": len(data)}} if gives else {"data": [values[:2], values[2:]]}
    request = {"id": "é7", "inputs": [tensor], "parameters": {"binary_data_output": asks, "other": [1]}}
    answer, after = _infer(server, name, request, data if gives else b"")
    (output,) = answer["outputs"]
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("é7", name, "1")
    assert (output["name"], output["datatype"], output["shape"]) == ("y", name, [2, 2])
    if asks:
        assert output["parameters"] == {"binary_data_size": len(data)}
        assert after == data
        return
    assert after == b""
    if name == "BYTES":
        assert output["data"] == values
    else:
        np.testing.assert_array_equal(_array(name, output["data"]), _array(name, values))


def test_json_and_bytes_are_mixed_in_request_and_answer(server: HttpServer) -> None:
    a = np.arange(6, dtype=np.float32)
    request = {
        "inputs": [
            {"name": "b", "datatype": "INT64", "shape": [2], "data": [10, 20]},
            {"name": "a", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": 24}},
        ],
        "outputs": [{"name": "one", "parameters": {"binary_data": False}}, {"name": "sum"}],
        "parameters": {"binary_data_output": True},
    }
    answer, after = _infer(server, "a%20pair", request, a.tobytes())
    one, total = answer["outputs"]
    assert (one["name"], one["data"], total["name"], "data" in total) == ("one", [3, 12], "sum", False)
    assert np.frombuffer(after, np.float32).tolist() == [10, 11, 12, 23, 24, 25]
    both = [
        {"name": "b", "datatype": "INT64", "shape": [2], "parameters": {"binary_data_size": 16}},
        {"name": "a", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": 24}},
    ]
    answer, _ = _infer(server, "a%20pair/versions/1", {"inputs": both}, np.array([1, 2]).tobytes() + a.tobytes())
    assert [each["name"] for each in answer["outputs"]] == ["sum", "same", "one"]
    assert answer["outputs"][1]["data"] == [1, 2]


def test_numbers_that_are_none_travel_as_json(server: HttpServer) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [float("nan"), float("inf"), -float("inf")]}
    answer, _ = _infer(server, "FP32", {"inputs": [tensor]})
    np.testing.assert_array_equal(answer["outputs"][0]["data"], [np.nan, np.inf, -np.inf])


def test_empty_tensor_is_answered_with_an_empty_one(server: HttpServer) -> None:
    for name in ("FP32", "BYTES"):
        answer, _ = _infer(server, name, {"inputs": [{"name": "x", "datatype": name, "shape": [2, 0], "data": []}]})
        assert (answer["outputs"][0]["shape"], answer["outputs"][0]["data"]) == ([2, 0], [])


def _tensor(**other: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2], **other}


BAD: dict[str, tuple[str, Any, str]] = {
    "unknown output": ("FP32", {"inputs": [_tensor()], "outputs": [{"name": "z"}]}, "unknown output 'z'"),
    "outputs of no list": ("FP32", {"inputs": [_tensor()], "outputs": {"name": "y"}}, "outputs must be a list"),
    "id of no text": ("FP32", {"inputs": [_tensor()], "id": 7}, "id must be a string, got 7"),
    "parameters of no object": ("FP32", {"inputs": [_tensor()], "parameters": [1]}, "parameters must be a JSON object"),
    "input twice": ("FP32", {"inputs": [_tensor(), _tensor()]}, "input 'x' is given twice"),
    "input of no object": ("FP32", {"inputs": ["x"]}, "an input must be a JSON object"),
    "negative size": ("FP32", {"inputs": [_tensor(shape=[-1, 2])]}, "shape must be a list of sizes"),
    "size of no integer": ("FP32", {"inputs": [_tensor(shape=[1.0, 2])]}, "shape must be a list of sizes"),
    "overlong shape": ("FP32", {"inputs": [_tensor(shape=[1] * 1000)]}, "shape must be a list of sizes"),
    "size beyond all": ("FP32", {"inputs": [_tensor(shape=[1 << 80, 2])]}, "shape must be a list of sizes"),
    "sizes that overflow": ("FP32", {"inputs": [_tensor(shape=[1 << 40, 1 << 40])]}, "its shape [1099511627776"),
    "data of an object": ("FP32", {"inputs": [_tensor(data={"a": 1})]}, "data must be a list"),
    "data of null": ("FP32", {"inputs": [_tensor(data=[None, 1])]}, "None is not an element of FP32"),
    "bool among numbers": ("INT8", {"inputs": [_tensor(datatype="INT8", data=[True, 1])]}, "True is not an element"),
    "fraction among integers": ("INT8", {"inputs": [_tensor(datatype="INT8", data=[1.5, 1])]}, "1.5 is not an element"),
    "integer out of range": ("INT8", {"inputs": [_tensor(datatype="INT8", data=[128, 1])]}, "out of range for INT8"),
    "integer below zero": ("UINT8", {"inputs": [_tensor(datatype="UINT8", data=[-1, 1])]}, "out of range for UINT8"),
    "half out of range": ("FP16", {"inputs": [_tensor(datatype="FP16", data=[1e5, 1])]}, "out of range for FP16"),
    "float out of range": ("FP32", {"inputs": [_tensor(data=[1e39, 1])]}, "out of range for FP32"),
    "integer above FP64": ("FP64", {"inputs": [_tensor(datatype="FP64", data=[10**400, 1])]}, "out of range for FP64"),
    "two as a bool": ("BOOL", {"inputs": [_tensor(datatype="BOOL", data=[2, 1])]}, "2 is not an element of BOOL"),
    "timeout beyond all": ("FP32", {"inputs": [_tensor()], "parameters": {"timeout": 10**400}}, "at least 0 micro"),
    "half a pair": ("BYTES", {"inputs": [_tensor(datatype="BYTES", data=["\ud800", ""])]}, "unpaired surrogate"),
    "timeout of text": ("FP32", {"inputs": [_tensor()], "parameters": {"timeout": "1"}}, "at least 0 microseconds"),
    "size of text": ("FP32", {"inputs": [_tensor(parameters={"binary_data_size": "8"})]}, "binary_data_size='8'"),
    "no rows": ("FP32", {"inputs": [_tensor(shape=[0, 2], data=[])]}, "a request of 0 rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_request_is_one_line_of_json(server: HttpServer, name: str) -> None:
    model, request, text = BAD[name]
    status, headers, body = _ask(server, f"/v2/models/{model}/infer", json.dumps(request))
    assert (status, headers["content-type"]) == (400, "application/json")
    assert text in json.loads(body)["error"]
    assert "\n" not in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack("<I", 99) + b"a", "string 0 of 99 bytes is cut off"),
        (b"\x01\x00", "the length of string 0 is cut off"),
        (struct.pack("<I", 1) + b"\xff", "a string is not UTF-8"),
        (struct.pack("<I", 0) * 3, "more strings than its shape has elements"),
        (struct.pack("<I", 0), "1 strings, but its shape has 2 elements"),
    ],
)
def test_strings_that_are_cut_off_are_refused(server: HttpServer, data: bytes, text: str) -> None:
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1, 2], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [tensor]}).encode()
    status, _, body = _ask(
        server, "/v2/models/BYTES/infer", head + data, Inference_Header_Content_Length=str(len(head))
    )
    assert (status, text in json.loads(body)["error"]) == (400, True), body


@pytest.mark.parametrize(("requested", "unpack"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_answer_is_packed_when_the_client_asks(server: HttpServer, requested: str, unpack: Any) -> None:
    data = np.zeros((2, 4096), np.float32)
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 4096], "parameters": {"binary_data_size": data.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if requested == "gzip" else 15)
    status, headers, body = _ask(
        server, "/v2/models/FP32/infer", packer.compress(head + data.tobytes()) + packer.flush(),
        Inference_Header_Content_Length=str(len(head)), Content_Encoding=requested,
        Accept_Encoding=f"br, {requested};q=0.5",
    )  # fmt: skip
    assert (status, headers["content-encoding"]) == (200, requested)
    assert len(body) < 1000
    assert unpack(body)[int(headers["inference-header-content-length"]) :] == data.tobytes()


@pytest.mark.parametrize("requested", ["", "identity", "br", "gzip;q=0", "gzip; q=0.000", "deflateX", ";;,"])
def test_answer_is_not_packed_when_the_client_does_not_ask(requested: str) -> None:
    assert packed({"accept-encoding": requested}, Response(200, bytes(5000))).body == bytes(5000)
    assert packed({"accept-encoding": "gzip"}, Response(200, b"ok")).body == b"ok"


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_client_of_triton_reads_packed_answers(server: HttpServer, packing: str) -> None:
    pytest.importorskip("geventhttpclient", reason="geventhttpclient is not installed: the extra triton")
    triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed: the extra triton")
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    array = np.arange(4096, dtype=np.float16).reshape(2, -1) / np.float16(64)
    value = triton.InferInput("x", [2, 2048], "FP16").set_data_from_numpy(array)
    results = {"request_compression_algorithm": packing, "response_compression_algorithm": packing}
    result = client.infer("FP16", [value], model_version="1", priority=1, parameters={"own": "text"}, **results)
    np.testing.assert_array_equal(result.as_numpy("y"), array)
    assert client.is_model_ready("a pair")
    client.close()


def _good(**headers: str) -> bytes:
    body = json.dumps({"inputs": [_tensor()]}).encode()
    lines = ["POST /v2/models/FP32/infer HTTP/1.1", "Host: a", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_requests_of_a_pipeline_are_answered_in_their_order(server: HttpServer) -> None:
    bad = _good().replace(b"FP32/infer", b"NONE/infer")
    results = _raw(server, _good() + bad + b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n" + _good(), 4)
    assert [status for status, _ in results] == [200, 404, 200, 200]
    assert json.loads(results[3][1])["outputs"][0]["data"] == [1, 2]


def test_body_in_chunks_is_read(server: HttpServer) -> None:
    body = json.dumps({"inputs": [_tensor()]}).encode()
    pieces = iter([body[:5], body[5:40], body[40:]])
    status, _, answer = _ask(server, "/v2/models/FP32/infer", pieces, Transfer_Encoding="chunked")
    assert (status, json.loads(answer)["outputs"][0]["data"]) == (200, [1, 2])
    head = b"POST /v2/models/FP32/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    last = b"%x;ext=1\r\n%s\r\n0\r\nTrailer: a\r\n\r\n" % (len(body), body)
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as connection:
        connection.sendall(head + last + _good())
        result = _rest(connection)  # proxies differ in where chunks end: no request after them is answered
    assert result.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nconnection: close\r\n" in result.lower()


HOST = b" HTTP/1.1\r\nHost: a\r\n"
CHUNKS = b"POST /v2/models/FP32/infer" + HOST + b"Transfer-Encoding: chunked\r\n"
REFUSED = {
    "length and chunks": (CHUNKS + b"Content-Length: 3\r\n\r\n0\r\n\r\n", 400, "both Content-Length and Transfer-Enc"),
    "chunks beyond the limit": (
        CHUNKS + b"\r\n%x\r\n" % (2 * MAX_BYTES) + bytes(2 * MAX_BYTES), 413, "more than 1048576 bytes"
    ),
    "length beyond the limit": (b"POST /" + HOST + b"Content-Length: 99999999\r\n\r\n", 413, "more than 1048576 bytes"),
    "method": (b"DELETE /v2/models/FP32" + HOST + b"\r\n", 405, "method DELETE is not allowed"),
    "no method": (b"BREW /v2" + HOST + b"\r\n", 405, "method BREW is not allowed"),
    "path": (b"GET http://a/v2" + HOST + b"\r\n", 404, "unknown path /http:"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_request_that_is_refused_has_one_answer_of_json(server: HttpServer, name: str) -> None:
    sent, status, text = REFUSED[name]
    ((result, body),) = _raw(server, sent)
    assert (result, text in json.loads(body)["error"]) == (status, True), body
    assert _raw(server, _good())[0][0] == 200


WRONG = {
    "size of a chunk": CHUNKS + b"\r\n-1\r\n",
    "chunk that is longer": CHUNKS + b"\r\n1\r\nabc\r\n0\r\n\r\n",
    "line without end": CHUNKS + b"\r\n" + b"1" * 70000,
    "other coding": CHUNKS.replace(b"chunked", b"gzip") + b"\r\n",
    "two lengths": _good(Content_Length="3"),
    "length below zero": b"POST /" + HOST + b"Content-Length: -1\r\n\r\n",
    "space before a colon": b"POST /" + HOST + b"Foo : bar\r\nContent-Length: 55\r\n\r\n" + _good(),
    "line that is continued": b"POST /" + HOST + b"Foo\r\n : bar\r\nContent-Length: 55\r\n\r\n" + _good(),
    "no host": b"GET /v2 HTTP/1.1\r\n\r\n",
    "no HTTP": b"hello there you\r\n\r\n",
    "path without end": b"GET /" + b"a" * 70000,
    "header without end": b"GET /v2" + HOST + b"A: " + b"a" * 70000,
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_http_has_one_answer_and_ends_the_connection(server: HttpServer, name: str) -> None:
    with socket.create_connection((server.host, server.port), timeout=PATIENCE) as connection:
        connection.sendall(WRONG[name])
        assert _rest(connection).startswith(b"HTTP/1.1 400 ")
    assert _raw(server, _good())[0][0] == 200


def _rest(connection: socket.socket) -> bytes:
    """Return the bytes that a server sends until it closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    assert b"".join(parts).count(b"HTTP/1.1 ") <= 1
    return b"".join(parts)


def test_body_beyond_the_limit_is_answered_while_the_client_still_sends(server: HttpServer) -> None:
    status, _, body = _ask(server, "/v2/models/FP32/infer", bytes(30 << 20))
    assert (status, json.loads(body)["error"]) == (413, f"the body has more than {MAX_BYTES} bytes")


@pytest.mark.parametrize("what", ["infer", "generate"])
def test_body_of_too_many_values_is_refused_unparsed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("it is parsed, or runs")

    types = {"x": TensorType("float32", ["batch"])}
    generate = never if what == "generate" else None
    endpoint = Endpoint([Served("m", types, types, None if generate else never, str, generate)])
    monkeypatch.setattr(infer, "json", SimpleNamespace(loads=never))
    packed = gzip.compress(b'{"tokens": [' + b"1," * (4 << 20) + b"1]}")
    answer = endpoint.respond("POST", f"/v2/models/m/{what}", {"content-encoding": "gzip"}, packed).result()
    assert (answer.status, b"more than 4194304 values" in answer.body) == (413, True)


@pytest.fixture
def blocked() -> Any:
    """Return a model whose runs wait until its gate is set, of an input x, float32[batch]."""
    graph = Graph("held", {"x": TensorType("float32", ["batch"])})
    graph.output(y=graph["x"] + graph["x"])
    model = watched(graph)
    model.gate.clear()
    return model


def _of_held(rows: int) -> bytes:
    """Return a request for the held model."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows], "data": [1] * rows}
    body = json.dumps({"inputs": [tensor]}).encode()
    return b"POST /v2/models/held/infer" + HOST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def test_request_whose_client_has_gone_is_not_run(blocked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = submitted(monkeypatch)
    with HttpServer({"held": blocked}, max_batch=8, max_wait_ms=0, timeout=None) as server:
        for _ in range(6):
            with socket.create_connection((server.host, server.port)) as gone:
                gone.sendall(_of_held(8))
                until_taken(blocked)  # the first one runs, and the others wait
        until(lambda: sum(each.cancelled() for each in requests) == 5)
        blocked.gate.set()
        until(lambda: _counts(server) == {"submitted": 6, "completed": 1, "cancelled": 5})
    assert blocked.rows == [8]


def test_client_that_neither_sends_nor_reads_is_disconnected(blocked: Any) -> None:
    wide = Graph("wide", {"x": TensorType("float32", ["batch", 1])})
    wide.output(y=wide["x"] + np.zeros((1, 1 << 20), np.float32))
    with HttpServer({"held": blocked, "wide": gc.InferenceSession().load(wide)}, max_bytes=MAX_BYTES) as server:
        until(lambda: server._listener._server.last_notified)  # its first look is over
        (loop,) = {each.get_loop() for each in server._listener._server.servers}

        def look() -> None:
            asyncio.run_coroutine_threadsafe(server._listener._disconnect_slow_clients(), loop).result(PATIENCE)

        tensor = {"name": "x", "datatype": "FP32", "shape": [8, 1], "data": [0] * 8}
        body = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        large = b"POST /v2/models/wide/infer" + HOST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        slow = {
            "silent": b"",
            "half of a head": b"GET /v2/health/live HTT",
            "half of a body": _good()[:-1],
            "half of a body that is refused": b"POST /" + HOST + b"Content-Length: 99999999\r\n\r\n{",
            "answered": b"GET /v2/health/live" + HOST + b"\r\n",
            "answered at length": large,
            "answered at length, the last": large.replace(b"Host", b"Connection: close\r\nHost"),
        }
        with contextlib.ExitStack() as stack:
            clients = []
            for sent in (*slow.values(), _of_held(1)):
                clients.append(stack.enter_context(socket.create_connection((server.host, server.port), PATIENCE)))
                clients[-1].sendall(sent)
            until_taken(blocked)
            connections = server._listener._server.server_state.connections
            until(lambda: len(connections) == len(clients))
            until(lambda: sum(each.flow.write_paused for each in connections) == 2)
            sockets = [each.transport.get_extra_info("socket") for each in connections]
            assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)
            look()
            assert len(connections) == len(clients)
            look()
            until(lambda: len(connections) == 1)
            blocked.gate.set()
            assert clients[-1].recv(12) == b"HTTP/1.1 200"
            for client in clients[:-1]:
                assert len(_rest(client)) < 32 << 20


def test_connections_beyond_the_limit_are_answered_503_and_those_that_end_do_not_count(blocked: Any) -> None:
    blocked.gate.set()
    with HttpServer({"held": blocked}, max_connections=20) as server:
        for number in range(200):
            with socket.create_connection((server.host, server.port)) as gone:
                gone.sendall(b"POST"[: number % 5])
        until(lambda: _raw(server, _of_held(1))[0][0] == 200)
        blocked.gate.clear()
        connections = [socket.create_connection((server.host, server.port)) for _ in range(20)]
        for each in connections:
            each.sendall(_of_held(1))
        until(lambda: len(server._listener._server.server_state.tasks) == 20)
        assert _ask(server, "/v2/health/live", None, "GET")[0] == 503
        blocked.gate.set()
        for each in connections:
            each.close()
        until(lambda: _raw(server, _of_held(1))[0][0] == 200)


def test_server_that_closes_answers_what_it_took_in_and_waits_for_no_slow_client(
    blocked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CLOSING_SECONDS", 0.2)
    server = HttpServer({"held": blocked})
    with (
        socket.create_connection((server.host, server.port), timeout=PATIENCE) as client,
        socket.create_connection((server.host, server.port), timeout=PATIENCE) as late,
        socket.create_connection((server.host, server.port), timeout=PATIENCE) as slow,
    ):
        client.sendall(_of_held(1))
        slow.sendall(_of_held(1)[:-1])
        until_taken(blocked)
        closing = threading.Thread(target=server.close)
        closing.start()
        until(lambda: _ask(server, "/v2/health/ready", None, "GET")[0] == 503)
        late.sendall(_of_held(1))
        assert late.recv(12) == b"HTTP/1.1 503"
        blocked.gate.set()
        closing.join()
        assert client.recv(12) == b"HTTP/1.1 200"
        assert not _rest(slow).startswith(b"HTTP/1.1 200")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port))
    server.close()
    assert blocked.rows == [1]


def test_health_is_answered_while_bodies_wait_to_be_parsed(blocked: Any) -> None:
    blocked.gate.set()
    with HttpServer({"held": blocked}, max_batch=64) as server, contextlib.ExitStack() as stack:
        address = server.host, server.port
        clients = [stack.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(60)]
        with infer._parsing, infer._parsing:
            for client in clients:
                client.sendall(_of_held(1))
            assert _ask(server, "/v2/health/live", None, "GET")[0] == 200
            clients[0].close()
            assert _counts(server) == {}
        assert {client.recv(12) for client in clients[1:]} == {b"HTTP/1.1 200"}


def _counts(server: HttpServer) -> dict[str, float]:
    """Return the numbers of requests that came to an end, by how, those that are none left out."""
    lines = _ask(server, "/metrics", None, "GET")[2].decode().splitlines()
    results: dict[str, float] = {}
    for line in lines:
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if name.startswith("graphcore_batcher_requests_") and name.endswith("_total") and float(value):
            results[name.removeprefix("graphcore_batcher_requests_").removesuffix("_total")] = float(value)
    return results


def test_slot_of_a_stream_comes_back_when_its_client_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, allowed, cancelled, own_run, own_cancel = 0, 50, 0, Slots.run, Request.cancel

    def run(slots: Slots, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        """Make 50 calls after each client that left, so that no request comes to its end before it is cancelled."""
        nonlocal calls
        calls += 1
        until(lambda: calls <= allowed)
        return own_run(slots, start, stop, *arrays)

    def cancel(request: Request) -> bool:
        nonlocal cancelled
        is_first = own_cancel(request)
        cancelled += is_first
        return is_first

    model = gc.InferenceSession(intra_op_num_threads=1).load(llama.build(llama.Config(), cache=512))
    monkeypatch.setattr(Slots, "run", run)
    monkeypatch.setattr(Request, "cancel", cancel)
    long = json.dumps({"tokens": [1, 2, 3], "max_new_tokens": 500}).encode()
    sent = b"POST /v2/models/llama/generate_stream" + HOST + b"Content-Length: %d\r\n\r\n%s" % (len(long), long)
    with HttpServer({"llama": model}, slots=2) as server:
        for _ in range(8):
            with socket.create_connection((server.host, server.port), timeout=PATIENCE) as gone:
                gone.sendall(sent)
                answer = b""
                while b"data: " not in answer:
                    part = gone.recv(65536)
                    assert part, answer
                    answer += part
            allowed = calls + 50
        allowed = 10_000
        status, _, body = _ask(server, "/v2/models/llama/generate", b'{"tokens": [1, 2, 3], "max_new_tokens": 3}')
        assert (status, len(json.loads(body)["tokens"])) == (200, 3)
        until(lambda: cancelled == 8)
        text = _ask(server, "/metrics", None, "GET")[2].decode()
    (line,) = [line for line in text.splitlines() if "cancelled_total{" in line]
    assert float(line.rpartition(" ")[2]) == 8, text


def test_stream_whose_client_leaves_before_it_has_a_slot_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, own_run, cancelled, own_cancel = threading.Event(), Slots.run, 0, Request.cancel

    def run(slots: Slots, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        assert gate.wait(PATIENCE)
        return own_run(slots, start, stop, *arrays)

    def cancel(request: Request) -> bool:
        nonlocal cancelled
        is_first = own_cancel(request)
        cancelled += is_first
        return is_first

    model = gc.InferenceSession(intra_op_num_threads=1).load(llama.build(llama.Config(), cache=32))
    monkeypatch.setattr(Slots, "run", run)
    monkeypatch.setattr(Request, "cancel", cancel)
    body = json.dumps({"tokens": [1, 2, 3], "max_new_tokens": 6}).encode()
    sent = b"POST /v2/models/llama/generate_stream" + HOST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with HttpServer({"llama": model}, slots=1) as server:
        try:
            for count in range(1, 5):
                with socket.create_connection((server.host, server.port), timeout=PATIENCE) as gone:
                    gone.sendall(sent)
                    assert gone.recv(12) == b"HTTP/1.1 200"
                until(lambda: cancelled == count)  # noqa: B023  called here
        finally:
            gate.set()
        assert _ask(server, "/v2/models/llama/generate", body)[0] == 200


def test_many_connections_that_end_leave_no_thread(server: HttpServer) -> None:
    before = threading.active_count()
    for _ in range(30):
        with socket.create_connection((server.host, server.port)) as gone:
            gone.sendall(b"POST /v2/models/FP32/infer HTTP/1.1\r\nContent-Length: 99\r\n\r\n{")
    until(lambda: threading.active_count() <= before)


def test_bfloat16_is_rounded_where_json_has_more_digits(server: HttpServer) -> None:
    tensor = {"name": "x", "datatype": "BF16", "shape": [1, 1], "data": [1.00390625]}
    answer, _ = _infer(server, "BF16", {"inputs": [tensor]})
    assert answer["outputs"][0]["data"] == [float(ml_dtypes.bfloat16(1.00390625))]
