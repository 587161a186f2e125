"""Attacks on a server at loopback: hidden requests, slow clients, floods, bombs, half-closed sockets, many requests."""

from __future__ import annotations

import contextlib
import gc as collector
import gzip
import json
import socket
import tracemalloc
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from graphcore import Graph, InferenceSession, TensorType
from graphcore.scale.protocol.endpoint import Endpoint, Served
from graphcore.scale.serving.http_server import HttpServer
from tests.runtime.test_batcher import until_taken, watched
from tests.scale.support import submitted
from tests.support.waiting import PATIENCE, until

pytest.importorskip("graphcore.scale.serving.asgi", reason="uvicorn is not installed: the extra serve")

MAX_BYTES = 1 << 16


def _twice() -> Graph:
    graph = Graph("twice", {"x": TensorType("float32", ["batch"])})
    graph.output(y=graph["x"] + graph["x"])
    return graph


def _infer_request(rows: int = 1, path: str = "twice") -> bytes:
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows], "data": [1] * rows}]}).encode()
    return b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (
        path.encode(), len(body), body,
    )  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with HttpServer(InferenceSession(intra_op_num_threads=1).load(_twice()), max_bytes=MAX_BYTES) as running:
        yield running


def _connect(server: HttpServer) -> socket.socket:
    return socket.create_connection((server.host, server.port), PATIENCE)


HIDDEN = b"GET /v2/hidden HTTP/1.1\r\nHost: a\r\n\r\n"
PROBE = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(HIDDEN)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
END = b"0\r\n\r\n"
IN_CHUNK = b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)


def _index(*headers: bytes, version: bytes = b"1.1") -> bytes:
    """Return the head of a request that takes any body."""
    return b"POST /v2/repository/index HTTP/" + version + b"\r\nHost: a\r\n" + b"".join(headers) + b"\r\n"


REFUSED = [400]
LAST = [200]
READ = [200, 200]
"""The second one answers PROBE."""

CASES: dict[str, tuple[bytes, list[int]]] = {
    "length, then chunks": (_index(b"Content-Length: 5\r\n", CHUNKED) + END + HIDDEN, REFUSED),
    "chunks, then length": (_index(CHUNKED, LENGTH) + END + HIDDEN, REFUSED),
    "chunked and another coding": (_index(CHUNKED, b"Transfer-Encoding: x\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunked twice": (_index(CHUNKED, CHUNKED) + END + HIDDEN, REFUSED),
    "almost chunked": (_index(b"Transfer-Encoding: xchunked\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunked before a colon": (_index(b"Transfer-Encoding : chunked\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunked after a tab": (_index(b"Transfer-Encoding:\tchunked\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunked after a space": (_index(b" Transfer-Encoding: chunked\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunked after a line feed": (_index(b"Foo: a\nTransfer-Encoding: chunked\r\n") + END + HIDDEN, REFUSED),
    "chunked on the next line": (_index(b"Transfer-Encoding:\r\n chunked\r\n") + END + HIDDEN, REFUSED),
    "colon on the next line": (_index(b"Transfer-Encoding\r\n : chunked\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunked, identity": (_index(b"Transfer-Encoding: chunked, identity\r\n") + END + HIDDEN, REFUSED),
    "identity": (_index(b"Transfer-Encoding: identity\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunked and a vertical tab": (_index(b"Transfer-Encoding: \x0bchunked\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunked in quotes": (_index(b'Transfer-Encoding: "chunked"\r\n', LENGTH) + HIDDEN, REFUSED),
    "no coding": (_index(b"Transfer-Encoding:\r\n", LENGTH) + HIDDEN, REFUSED),
    "chunks of HTTP/1.0": (_index(CHUNKED, version=b"1.0") + END + HIDDEN, REFUSED),
    "chunked with an underscore": (_index(b"Transfer_Encoding: chunked\r\n", LENGTH) + HIDDEN, READ),
    "chunked in capitals": (_index(b"TRANSFER-ENCODING: CHUNKED\r\n") + IN_CHUNK, LAST),
    "other length": (_index(b"Content-Length: 3\r\n", LENGTH) + HIDDEN, REFUSED),
    "same length": (_index(LENGTH, LENGTH) + HIDDEN, READ),
    "two lengths in a line": (_index(b"Content-Length: 3, %d\r\n" % len(HIDDEN)) + HIDDEN, REFUSED),
    "length with a sign": (_index(b"Content-Length: +3\r\n") + HIDDEN, REFUSED),
    "length below zero": (_index(b"Content-Length: -3\r\n") + HIDDEN, REFUSED),
    "length in hexadecimal": (_index(b"Content-Length: 0x3\r\n") + HIDDEN, REFUSED),
    "length with a space": (_index(b"Content-Length: 3 8\r\n") + HIDDEN, REFUSED),
    "length with an underscore": (_index(b"Content-Length: 3_8\r\n") + HIDDEN, REFUSED),
    "length with NUL": (_index(b"Content-Length: 0\x00\r\n") + HIDDEN, REFUSED),
    "length of other digits": (_index("Content-Length: ٣\r\n".encode()) + HIDDEN, REFUSED),
    "length of many digits": (_index(b"Content-Length: 100000000000000000000000\r\n") + HIDDEN, REFUSED),
    "no length": (_index(b"Content-Length:\r\n") + HIDDEN, REFUSED),
    "space before the colon of a length": (_index(b"Content-Length : 38\r\n") + HIDDEN, REFUSED),
    "space before a colon": (_index(b"Foo : bar\r\n", LENGTH) + HIDDEN, REFUSED),
    "NUL in a name": (_index(b"Fo\x00o: bar\r\n", LENGTH) + HIDDEN, REFUSED),
    "continued line": (_index(b"Foo: bar\r\n ", LENGTH) + HIDDEN, REFUSED),
    "line without a colon": (_index(b"Foo\r\n", LENGTH) + HIDDEN, REFUSED),
    "line feeds alone": (_index(b"Content-Length: 0\r\n").replace(b"\r", b"") + HIDDEN, REFUSED),
    "head that two line feeds end": (_index(b"Foo: bar\n\n" + HIDDEN), REFUSED),
    "carriage return alone": (_index(b"Foo: a\rContent-Length: 38\r\n") + HIDDEN, REFUSED),
    "two hosts": (_index(b"Host: b\r\n") + HIDDEN, REFUSED),
    "line feed in an extension": (_index(CHUNKED) + b"1;\na\r\n" + END + HIDDEN, REFUSED),
    "line feed after a size": (_index(CHUNKED) + b"1\na\r\n" + END + HIDDEN, REFUSED),
    "size with a prefix": (_index(CHUNKED) + b"0x1\r\na\r\n" + END + HIDDEN, REFUSED),
    "size after a space": (_index(CHUNKED) + b" 1\r\na\r\n" + END + HIDDEN, REFUSED),
    "size below zero": (_index(CHUNKED) + b"-1\r\na\r\n" + END + HIDDEN, REFUSED),
    "size of many digits": (_index(CHUNKED) + b"1" + b"0" * 20 + b"\r\na\r\n" + END + HIDDEN, REFUSED),
    "chunk beyond its size": (_index(CHUNKED) + b"1\r\nabb0\r\n\r\n" + HIDDEN, REFUSED),
    "chunk that a line feed ends": (_index(CHUNKED) + b"1\r\na\n" + END + HIDDEN, REFUSED),
    "chunks that a line feed ends": (_index(CHUNKED) + b"0\r\n\n" + HIDDEN, LAST),
    "trailers that line feeds end": (_index(CHUNKED) + b"0\r\nFoo: bar\n\n" + HIDDEN, LAST),
    "length in a trailer": (_index(CHUNKED) + b"0\r\n" + LENGTH + b"\r\n" + HIDDEN, LAST),
    "coding in a trailer": (_index(CHUNKED) + b"0\r\n" + CHUNKED + b"\r\n" + HIDDEN, LAST),
    "extension": (_index(CHUNKED) + IN_CHUNK.replace(b"\r\n", b';a="0"\r\n', 1), LAST),
    "chunks beyond the limit": (_index(CHUNKED) + b"11000\r\n%s\r\n" % bytes(0x11000) + END + HIDDEN, [413, 400]),
    "body of GET": (b"GET /v2 HTTP/1.1\r\nHost: a\r\n" + LENGTH + b"\r\n" + HIDDEN, READ),
    "body of a request that is refused": (b"POST /v2 HTTP/1.1\r\nHost: a\r\n" + LENGTH + b"\r\n" + HIDDEN, [405, 200]),
    "upgrade": (_index(b"Connection: Upgrade\r\nUpgrade: h2c\r\n", LENGTH) + HIDDEN, READ),
    "absolute form": (b"GET http://b/v2 HTTP/1.1\r\nHost: a\r\n" + LENGTH + b"\r\n" + HIDDEN, [404, 200]),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN, REFUSED),
    "HTTP/0.9": (b"GET /v2\r\n\r\n" + HIDDEN, REFUSED),
    "unknown version": (_index(LENGTH, version=b"1.2") + HIDDEN, REFUSED),
    "version in small letters": (_index(LENGTH).replace(b" HTTP", b" http") + HIDDEN, REFUSED),
    "spaces in the first line": (_index(LENGTH).replace(b" HTTP", b"  HTTP") + HIDDEN, REFUSED),
    "tab in the first line": (_index(LENGTH).replace(b" HTTP", b"\tHTTP") + HIDDEN, REFUSED),
    "NUL in a path": (_index(LENGTH).replace(b"/v2", b"/\x00v2") + HIDDEN, REFUSED),
    "empty line first": (b"\r\n" + _index(LENGTH) + HIDDEN, REFUSED),
    "request after an error": (b"GET /v2 HTTP/1.1\r\nHost : a\r\n\r\n" + HIDDEN, REFUSED),
    "request after a last one": (PROBE + HIDDEN, LAST),
}  # fmt: skip


def _answers(received: bytes) -> list[int]:
    """Return the statuses of the answers that are complete."""
    statuses = []
    while b"\r\n\r\n" in received:
        head, _, rest = received.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-len")]
        length = lengths[0] if lengths else len(rest)  # of h11's own answers: until the end of the connection
        if len(rest) < length:
            break
        statuses.append(int(head.split()[1]))
        received = rest[length:]
    return statuses


@pytest.mark.parametrize("name", CASES)
def test_request_inside_of_another_is_never_answered(server: HttpServer, name: str) -> None:
    sent, expected = CASES[name]
    received = b""
    with _connect(server) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(sent)
        is_probed = expected[-1] != 200 or len(expected) == 1
        while part := connection.recv(1 << 16):
            received += part
            if not is_probed and len(_answers(received)) == len(expected) - 1:
                is_probed = True
                connection.sendall(PROBE)
    assert b"hidden" not in received
    assert _answers(received) == expected, received


def test_slow_clients_are_disconnected() -> None:
    request = _infer_request()
    with HttpServer(_twice(), client_seconds=0.1) as slow, contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(_connect(slow)) for name in ("silent", "head", "body", "chunks", "idle")}
        clients["idle"].sendall(request)
        clients["body"].sendall(request[:-8])
        clients["chunks"].sendall(_index(CHUNKED))
        more = {"head": b"GET /v2 HTTP/1.1\r\n" + b"A: b\r\n" * 1000, "body": b"", "chunks": b"1\r\na\r\n" * 1000}
        remaining = {name: iter(text) for name, text in more.items()}

        def have_left() -> bool:
            for name, client in clients.items():
                with contextlib.suppress(ConnectionError):
                    client.sendall(bytes([each]) if (each := next(remaining.get(name, iter(b"")), None)) else b"")
            return not slow._listener._server.server_state.connections

        until(have_left)


def test_flood_of_connections_closes_idle_ones_and_leaves_room() -> None:
    model = watched(_twice())
    with HttpServer({"twice": model}, max_connections=16) as server, contextlib.ExitStack() as stack:
        for number in range(300):
            client = stack.enter_context(_connect(server))
            client.sendall(_infer_request()[: number % 40])
        connection = stack.enter_context(_connect(server))
        connection.sendall(_infer_request())
        assert connection.recv(12) == b"HTTP/1.1 200"
        until(lambda: len(server._listener._server.server_state.connections) <= 17)
        model.gate.clear()
        busy = [stack.enter_context(_connect(server)) for _ in range(16)]
        for each in busy:
            each.sendall(_infer_request())
        until(lambda: len(server._listener._server.server_state.tasks) == 16)
        late = stack.enter_context(_connect(server))
        late.sendall(PROBE)
        assert late.recv(12) == b"HTTP/1.1 503"
        model.gate.set()
        assert {each.recv(12) for each in busy} == {b"HTTP/1.1 200"}


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_bomb_takes_no_more_memory_than_the_limit(encoding: str) -> None:
    limit = 1 << 20
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    bomb = pack(bytes(64 << 20))
    types = {"x": TensorType("float32", ["batch"])}
    endpoint = Endpoint([Served("m", types, types, lambda arrays, seconds: pytest.fail("it runs"))], max_bytes=limit)
    tracemalloc.start()
    try:
        answer = endpoint.respond("POST", "/v2/models/m/infer", {"content-encoding": encoding}, bomb).result()
        assert tracemalloc.get_traced_memory()[1] < 4 * limit
    finally:
        tracemalloc.stop()
    assert answer.status == 413


def test_body_of_many_small_chunks_is_read_or_refused(server: HttpServer) -> None:
    for count, status in ((MAX_BYTES // 2, b"200"), (MAX_BYTES + 1, b"413")):
        with _connect(server) as client:
            client.sendall(_index(CHUNKED) + b"1\r\na\r\n" * count + END)
            assert client.recv(12) == b"HTTP/1.1 " + status


def test_half_closed_connection_frees_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = submitted(monkeypatch)
    model = watched(_twice())
    model.gate.clear()
    with HttpServer({"twice": model}, max_wait_ms=0, timeout=None) as server, contextlib.ExitStack() as stack:
        for count, sent in ((1, _infer_request()), (2, _infer_request(2)), (2, _infer_request()[:-1]), (2, b"")):
            client = stack.enter_context(_connect(server))
            client.sendall(sent)
            until(lambda: len(requests) == count)  # noqa: B023  called here
            until_taken(model)
            client.shutdown(socket.SHUT_WR)
        until(lambda: not server._listener._server.server_state.connections)
        until(lambda: requests[1].cancelled())  # the first one runs
        model.gate.set()
        client = stack.enter_context(_connect(server))
        client.sendall(_infer_request(3))
        assert client.recv(12) == b"HTTP/1.1 200"
    assert model.rows == [1, 3]


def _objects_after(server: HttpServer, requests: int) -> int:
    """Return the number of objects after so many requests, on several connections, some of which break off."""
    sent = [_infer_request(), _infer_request(path="none"), b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", _index() + b""]
    connections: list[socket.socket] = []
    for number in range(requests):
        if number % 50 == 0:
            for each in connections:
                each.close()
            connections = [_connect(server) for _ in range(2)]
        connection = connections[number % 2]
        connection.sendall(sent[number % len(sent)])
        received = b""
        while not _answers(received):
            received += connection.recv(1 << 16)
    for each in connections:
        each.close()
    until(lambda: not server._listener._server.server_state.connections)
    collector.collect()
    return len(collector.get_objects())


def _check_flat(requests: int) -> None:
    with HttpServer(InferenceSession(intra_op_num_threads=1).load(_twice())) as server:
        before = _objects_after(server, 200)
        after = _objects_after(server, requests)
    assert after - before < 500 + requests // 4


def test_requests_leave_no_objects() -> None:
    _check_flat(400)


@pytest.mark.full
def test_ten_thousand_requests_leave_no_objects() -> None:
    _check_flat(10_000)


def test_numbers_are_right_after_attacks(server: HttpServer) -> None:
    with _connect(server) as client:
        client.sendall(_infer_request(2))
        received = b""
        while not _answers(received):
            received += client.recv(1 << 16)
    np.testing.assert_array_equal(json.loads(received.partition(b"\r\n\r\n")[2])["outputs"][0]["data"], [2, 2])
