"""The Open Inference Protocol over gRPC: calls become requests to the same endpoint as those of HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Coroutine, Mapping
from typing import Any
from urllib.parse import quote

import grpc.aio
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
)

from graphcore.errors import RunError
from graphcore.scale.protocol.endpoint import Endpoint
from graphcore.scale.protocol.tensors import ProtocolError, failure

_MESSAGES = """
ServerLiveRequest
ServerLiveResponse live:bool=1
ServerReadyRequest
ServerReadyResponse ready:bool=1
ModelReadyRequest name:string=1 version:string=2
ModelReadyResponse ready:bool=1
ServerMetadataRequest
ServerMetadataResponse name:string=1 version:string=2 extensions:*string=3
ModelMetadataRequest name:string=1 version:string=2
ModelMetadataResponse name:string=1 versions:*string=2 platform:string=3 inputs:*Metadata=4 outputs:*Metadata=5
Metadata name:string=1 datatype:string=2 shape:*int64=3
RepositoryIndexRequest repository_name:string=1 ready:bool=2
RepositoryIndexResponse models:*ModelIndex=1
ModelIndex name:string=1 version:string=2 state:string=3 reason:string=4
ModelInferRequest model_name:string=1 model_version:string=2 id:string=3 parameters:*Parameter=4 inputs:*Input=5 \
outputs:*Output=6 raw_input_contents:*bytes=7
Input name:string=1 datatype:string=2 shape:*int64=3 parameters:*Parameter=4 contents:Contents=5
Output name:string=1 parameters:*Parameter=2
Contents bool_contents:*bool=1 int_contents:*int32=2 int64_contents:*int64=3 uint_contents:*uint32=4 \
uint64_contents:*uint64=5 fp32_contents:*float=6 fp64_contents:*double=7 bytes_contents:*bytes=8
Parameter key:string=1 value:Value=2
Value bool_param:bool=1 int64_param:int64=2 string_param:string=3 double_param:double=4 uint64_param:uint64=5
ModelInferResponse model_name:string=1 model_version:string=2 id:string=3 outputs:*Result=5 raw_output_contents:*bytes=6
Result name:string=1 datatype:string=2 shape:*int64=3
"""
"""The messages with the types and numbers of their fields; * is repeated. A map is a repeated Parameter on the wire."""

_CALLS = {
    "ServerLive": ("GET", "/v2/health/live"),
    "ServerReady": ("GET", "/v2/health/ready"),
    "ServerMetadata": ("GET", "/v2"),
    "ModelReady": ("GET", "/ready"),
    "ModelMetadata": ("GET", ""),
    "RepositoryIndex": ("POST", "/v2/repository/index"),
    "ModelInfer": ("POST", "/infer"),
}
"""The methods and paths of calls; those of Model are below the path of a model."""

_CONTENTS = {
    "BOOL": "bool", **dict.fromkeys(("INT8", "INT16", "INT32"), "int"), "INT64": "int64", "UINT64": "uint64",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint"), "FP32": "fp32", "FP64": "fp64", "BYTES": "bytes",
}  # fmt: skip
_STATUSES = {
    400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 413: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_MAX_HEAD_BYTES = 1 << 16


def message_classes() -> dict[str, Any]:
    """Return the classes of the messages, in a pool of their own: clients in the process may have the same names."""
    file = descriptor_pb2.FileDescriptorProto(name="inference.proto", package="inference", syntax="proto3")
    for line in _MESSAGES.strip().splitlines():
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        for text in fields:
            label, kind, number = re.split("[:=]", text)
            repeated = kind.startswith("*")
            field = message.field.add(name=label, number=int(number), label=3 if repeated else 1)
            kind = kind.lstrip("*")
            if kind[0].isupper():
                field.type_name = f".inference.{kind}"
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
            if name == "Value":
                field.oneof_index = 0
        if name == "Value":
            message.oneof_decl.add(name="choice")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptors = [pool.FindMessageTypeByName(f"inference.{message.name}") for message in file.message_type]
    return {each.name: message_factory.GetMessageClass(each) for each in descriptors}


def _values(parameters: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, kind) if (kind := each.value.WhichOneof("choice")) else None
        for each in parameters
    }


def _body(request: Any) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of the HTTP request for a ModelInferRequest."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise ProtocolError(f"{len(raw)} raw_input_contents for {len(request.inputs)} inputs", help="send one for each")
    inputs = []
    for number, each in enumerate(request.inputs):
        tensor = {"name": each.name, "datatype": each.datatype, "shape": list(each.shape)}
        parameters = _values(each.parameters)
        if raw:
            parameters["binary_data_size"] = len(raw[number])
        else:
            parameters.pop("binary_data_size", None)
            values = list(getattr(each.contents, f"{_CONTENTS.get(each.datatype, 'bytes')}_contents"))
            tensor["data"] = [v.decode(errors="surrogateescape") if isinstance(v, bytes) else v for v in values]
        inputs.append({**tensor, "parameters": parameters})
    outputs = [{"name": o.name, "parameters": {**_values(o.parameters), "binary_data": True}} for o in request.outputs]
    parameters = {**_values(request.parameters), "binary_data_output": True}
    head = {"id": request.id, "inputs": inputs, "outputs": outputs, "parameters": parameters}
    text = json.dumps(head).encode()
    return {"inference-header-content-length": str(len(text))}, b"".join([text, *raw])


def _handler(endpoint: Endpoint, classes: Mapping[str, Any], name: str, client_seconds: float) -> Any:
    """Return the handler of a call. If the client disconnects or its deadline is over, the request is cancelled.

    client_seconds: the maximum number of seconds to receive the request.
    """
    method, path = _CALLS[name]
    is_inference, result_class = name == "ModelInfer", classes[f"{name}Response"]

    async def handle(requests: Any, context: Any) -> Any:
        try:
            request = await asyncio.wait_for(anext(requests), client_seconds)
        except StopAsyncIteration:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        except TimeoutError:
            text = f"the request was not received within {client_seconds:g} seconds"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text)
        where = path
        if name.startswith("Model"):
            model, version = (
                (request.model_name, request.model_version) if is_inference else (request.name, request.version)
            )
            versions = f"/versions/{quote(version, safe='')}" if version else ""
            where = f"/v2/models/{quote(model, safe='')}{versions}{path}"
        try:
            if is_inference:
                headers, body = await asyncio.to_thread(_body, request)
                waiting = await asyncio.to_thread(endpoint.respond, method, where, headers, body)
            else:
                waiting = endpoint.respond(method, where, {})
            response = await asyncio.wrap_future(waiting)
        except ProtocolError as error:
            response = failure(error)
        length = int(response.headers.get("Inference-Header-Content-Length", len(response.body)))
        document = json.loads(response.body[:length])
        document = document if isinstance(document, dict) else {"models": document}
        if "error" in document:
            status = getattr(grpc.StatusCode, _STATUSES.get(response.status, "INTERNAL"))
            await context.abort(status, document["error"])
        result = json_format.ParseDict(document, result_class(), ignore_unknown_fields=True)
        for each in document["outputs"] if is_inference else ():
            end = length + each["parameters"]["binary_data_size"]
            result.raw_output_contents.append(response.body[length:end])
            length = end
        return result

    types = {
        "request_deserializer": classes[f"{name}Request"].FromString,
        "response_serializer": result_class.SerializeToString,
    }
    # The bytes are those of a call with a single request, but the handler begins before the request is received.
    return grpc.stream_unary_rpc_method_handler(handle, **types)


class GrpcListener:
    """Serves an endpoint by gRPC in a thread until it is closed. Raises `RunError` if the address is in use.

    client_seconds: the maximum number of seconds to receive a request. is_shared: other processes listen on the port.
    """

    def __init__(
        self, endpoint: Endpoint, host: str, port: int, max_connections: int, client_seconds: float, is_shared: bool
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="graphcore grpc", daemon=True)
        self._thread.start()
        options = [
            ("grpc.max_receive_message_length", endpoint.max_bytes), ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", _MAX_HEAD_BYTES), ("grpc.so_reuseport", int(is_shared)),
        ]  # fmt: skip
        classes = message_classes()
        handlers = {name: _handler(endpoint, classes, name, client_seconds) for name in _CALLS}
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

        async def start() -> int:
            self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=max_connections)
            service = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)
            self._server.add_generic_rpc_handlers((service,))
            number = int(self._server.add_insecure_port(address))
            await self._server.start()
            return number

        try:
            self.port = self._await(start())
        except RuntimeError as error:
            self._end()
            raise RunError(f"serve: gRPC at {address}: {error}", help="choose another port, or 0 for any") from None

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def close(self, seconds: float) -> None:
        """Refuse new calls, and wait for the responses of open ones."""
        if not self._loop.is_closed():
            self._await(self._server.stop(seconds))
            self._end()
