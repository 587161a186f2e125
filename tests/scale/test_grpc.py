"""The protocol over gRPC: Triton's client against our server, messages against Triton's, errors, cancelling."""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcore import Graph, TensorType
from graphcore.errors import MissingExtraError, RunError
from graphcore.scale.protocol.tensors import NAMES
from graphcore.scale.serving.http_server import HttpServer
from tests.runtime.test_batcher import until_taken, watched
from tests.scale.support import graphs, models, submitted
from tests.support.waiting import PATIENCE, until

pytest.importorskip("rapidjson", reason="python-rapidjson is not installed, which Triton's client needs")
grpc = pytest.importorskip("grpc", reason="grpcio is not installed: the extra grpc")
pytest.importorskip("graphcore.scale.serving.asgi", reason="uvicorn is not installed: the extra serve")
triton = pytest.importorskip("tritonclient.grpc", reason="tritonclient[grpc] is not installed")

message_classes = pytest.importorskip("graphcore.scale.serving.grpc_server").message_classes


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with HttpServer(models(), max_batch=8, max_bytes=1 << 20, grpc_port=0) as running:
        yield running


@pytest.fixture
def client(server: HttpServer) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as result:
        yield result


def test_messages_have_the_fields_of_tritons() -> None:
    theirs = triton.service_pb2.DESCRIPTOR.message_types_by_name
    nested = {
        "Metadata": theirs["ModelMetadataResponse"].nested_types_by_name["TensorMetadata"],
        "ModelIndex": theirs["RepositoryIndexResponse"].nested_types_by_name["ModelIndex"],
        "Input": theirs["ModelInferRequest"].nested_types_by_name["InferInputTensor"],
        "Output": theirs["ModelInferRequest"].nested_types_by_name["InferRequestedOutputTensor"],
        "Result": theirs["ModelInferResponse"].nested_types_by_name["InferOutputTensor"],
        "Parameter": theirs["ModelInferRequest"].nested_types_by_name["ParametersEntry"],
        "Contents": theirs["InferTensorContents"],
        "Value": theirs["InferParameter"],
    }
    for name, kind in message_classes().items():
        expected = nested.get(name) or theirs[name]
        for field in kind.DESCRIPTOR.fields:
            other = expected.fields_by_name[field.name]
            assert (field.number, field.type) == (other.number, other.type), f"{name}.{field.name}"
            assert field.is_repeated == other.is_repeated, f"{name}.{field.name}"


def test_server_and_models_are_described(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("floats")
    assert client.is_model_ready("floats", "1")
    assert client.get_server_metadata().name == "graphcore"
    data = client.get_model_metadata("brains", as_json=True)
    assert data["inputs"] == [{"name": "x", "datatype": "BF16", "shape": ["-1", "3"]}]
    assert [each.name for each in client.get_model_repository_index().models] == [*models()]


CASES: dict[str, Any] = {
    "floats": np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3),
    "integers": np.array([[2**62, -1, 0], [1, 2, 3]], np.int64),
    "texts": np.array([["a", "", "ü"], ["\x00b", "c d", "日本"]], object),
}


@pytest.mark.parametrize("name", CASES)
def test_client_infers_as_the_model_does_for_each_dtype(client: Any, name: str) -> None:
    array = CASES[name]
    value = triton.InferInput("x", list(array.shape), client.get_model_metadata(name).inputs[0].datatype)
    value.set_data_from_numpy(array)
    result = client.infer(name, [value], outputs=[triton.InferRequestedOutput("y")], request_id="7")
    (wanted,) = models()[name](array)
    got = result.as_numpy("y")
    assert result.get_response().id == "7"
    if name == "texts":
        assert [each.decode() for each in got.flat] == [*wanted.flat]
    else:
        np.testing.assert_array_equal(got.astype(wanted.dtype), wanted)


CONTENTS: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool", [True, False]), "INT8": ("int", [-128, 127]), "INT64": ("int64", [-(2**63), 2**63 - 1]),
    "UINT16": ("uint", [0, 2**16 - 1]), "UINT64": ("uint64", [0, 2**64 - 1]), "FP32": ("fp32", [0.1, float("inf")]),
    "FP64": ("fp64", [0.1, float("nan")]), "BYTES": ("bytes", ["ü".encode(), b"\x00"]),
}  # fmt: skip


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_are_read(datatype: str) -> None:
    dtype = next(dtype for dtype, name in NAMES.items() if name == datatype)
    graph = Graph("same", {"x": TensorType(dtype, ["batch"])})
    graph.output(y=graph["x"].unsqueeze(1).squeeze(1))
    field, values = CONTENTS[datatype]
    with (
        HttpServer(graph, grpc_port=0) as server,
        triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
    ):
        request = triton.service_pb2.ModelInferRequest(model_name="same")
        tensor = request.inputs.add(name="x", datatype=datatype, shape=[2])
        getattr(tensor.contents, f"{field}_contents").extend(values)
        result = triton.InferResult(client._client_stub.ModelInfer(request)).as_numpy("y")
    expected = np.array(values, object if datatype == "BYTES" else dtype.numpy)
    np.testing.assert_array_equal(result, expected)


def _input(*shape: int, datatype: str = "FP32") -> Any:
    kind = {"FP32": np.float32, "INT64": np.int64}[datatype]
    return triton.InferInput("x", list(shape), datatype).set_data_from_numpy(np.zeros(shape, kind))


def test_bad_calls_have_a_status_and_one_line(client: Any) -> None:
    for name, value, options, status, text in (
        ("floats", _input(1, 4), {}, "INVALID_ARGUMENT", "must be float32[batch, 3], got shape [1, 4]"),
        ("floats", _input(1, 3, datatype="INT64"), {}, "INVALID_ARGUMENT", "input 'x' must be FP32, got 'INT64'"),
        ("floats", _input(9, 3), {}, "INVALID_ARGUMENT", "a request of 9 rows"),
        ("floats", _input(1, 3), {"model_version": "2"}, "NOT_FOUND", "model 'floats' has no version '2'"),
        ("flots", _input(1, 3), {}, "NOT_FOUND", "did you mean"),
        ("a/b", _input(1, 3), {}, "NOT_FOUND", "unknown model 'a/b'"),
        ("floats", _input(1 << 17, 3), {}, "RESOURCE_EXHAUSTED", "larger than max"),
    ):
        with pytest.raises(triton.InferenceServerException) as caught:
            client.infer(name, [value], **options)
        assert status in str(caught.value)
        assert text in str(caught.value)
    request = triton.service_pb2.ModelInferRequest(model_name="floats", raw_input_contents=[b"", b""])
    request.inputs.add(name="x", datatype="FP32", shape=[0, 3])
    with pytest.raises(grpc.RpcError, match="2 raw_input_contents for 1 inputs"):
        client._client_stub.ModelInfer(request)
    assert client.infer("floats", [_input(1, 3)]).as_numpy("y").tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_bomb_is_refused(client: Any, packing: str) -> None:
    with pytest.raises(triton.InferenceServerException, match="RESOURCE_EXHAUSTED"):
        client.infer("floats", [_input(1 << 20, 3)], compression_algorithm=packing)
    assert client.infer("floats", [_input(1, 3)], compression_algorithm=packing).as_numpy("y").shape == (1, 3)


def test_call_that_its_client_ends_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = submitted(monkeypatch)
    model = watched(graphs()["floats"])
    model.gate.clear()
    server = HttpServer({"floats": model}, max_wait_ms=0, grpc_port=0)
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        results: list[Any] = []

        def done(result: Any, error: Any) -> None:
            results.append(error or result.as_numpy("y").tolist())

        client.async_infer("floats", [_input(1, 3)], done)
        until_taken(model)
        second = client.async_infer("floats", [_input(2, 3)], done)
        until(lambda: len(requests) == 2)
        second.cancel()
        until(lambda: requests[1].cancelled())
        model.gate.set()
        until(lambda: len(results) == 2)
        server.close()
        assert [[0, 0, 0]] in results
        assert ["CANCELLED" in repr(each.status()) for each in results if not isinstance(each, list)] == [True]
    assert model.rows == [1]


def test_slow_sender_is_cut_and_a_call_without_a_request_is_refused() -> None:
    with (
        HttpServer(models()["floats"], grpc_port=0, client_seconds=0.5) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        call = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")
        ended = threading.Event()
        for requests, status, text in (
            (iter(ended.wait, True), "DEADLINE_EXCEEDED", "the request was not received within 0.5 seconds"),
            (iter(()), "INVALID_ARGUMENT", "the call has no request"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call(requests, timeout=PATIENCE)
            assert (caught.value.code().name, caught.value.details()) == (status, text)
        ended.set()


def test_bytes_that_come_slowly_are_cut() -> None:
    def frame(kind: int, flags: int, stream: int, payload: bytes, size: int | None = None) -> bytes:
        length = len(payload) if size is None else size
        return length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    def header(name: bytes, value: bytes) -> bytes:
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

    head = {
        b":method": b"POST", b":scheme": b"http", b":path": b"/inference.GRPCInferenceService/ServerLive",
        b":authority": b"a", b"content-type": b"application/grpc", b"te": b"trailers",
    }  # fmt: skip
    with (
        HttpServer(models()["floats"], grpc_port=0, client_seconds=0.5) as server,
        socket.create_connection(("127.0.0.1", server.grpc_port or 0), timeout=PATIENCE) as client,
    ):
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        client.sendall(frame(1, 4, 1, b"".join(header(*each) for each in head.items())))
        client.sendall(frame(0, 0, 1, b"\0\0\0\0\x09begun"))  # 5 of 9 bytes of the message
        data = b""
        while b"grpc-status" not in data and (piece := client.recv(4096)):
            data += piece
        assert b"not received within" in data


def test_port_in_use_and_missing_package_are_errors(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match=r"gRPC at 127\.0\.0\.1:"):
        HttpServer(models()["floats"], grpc_port=server.grpc_port)
    own = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "grpc" else own(name, *a))
    with pytest.raises(MissingExtraError, match="the package grpc is not installed"):
        HttpServer(models()["floats"], grpc_port=0)


def test_bfloat16_is_bytes(client: Any) -> None:
    array = np.array([[1, 2, 3]], ml_dtypes.bfloat16)
    value = triton.InferInput("x", [1, 3], "BF16")
    value._raw_content = array.tobytes()
    result = client.infer("brains", [value]).get_response()
    assert result.raw_output_contents[0] == (array + array).tobytes()
