"""Inference requests and responses: JSON, followed by binary tensor data."""

from __future__ import annotations

import dataclasses
import json
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from graphcore.arrays.casting import Array
from graphcore.scale.protocol.tensors import (
    ProtocolError,
    Response,
    datatype,
    from_bytes,
    from_json,
    shape_of,
    to_bytes,
    to_json,
)
from graphcore.support.escaping import suggestion
from graphcore.types.tensor_types import TensorType


@dataclass(frozen=True, slots=True)
class Requested:
    """An inference request.

    Attributes:
        arrays: The inputs.
        id: The identifier from the client, which the response repeats.
        outputs: The requested outputs, and True for binary data; empty for all outputs.
        is_binary: The default of binary data.
        timeout: The maximum number of seconds, or None.
    """

    arrays: Mapping[str, Array]
    id: str | None = None
    outputs: Mapping[str, bool] = field(default_factory=dict)
    is_binary: bool = False
    timeout: float | None = None


def decode_request(
    body: bytes,
    header_length: int | None,
    inputs: Mapping[str, TensorType],
    outputs: Sequence[str],
    optional: Mapping[str, TensorType] = MappingProxyType({}),
) -> Requested:
    """Decode the body of a request.

    header_length: the number of bytes of JSON at the start, None for all. inputs: the input types of the model.
    outputs: the names of its outputs. optional: the types of inputs that a request may omit. Raises `ProtocolError` for
    a request that does not fit the model: wrong dtype or shape, missing or unknown input, or data that does not match
    the shape.
    """
    text, binary = _parts(body, header_length)
    head = _object(from_text(text, "send the JSON of the Open Inference Protocol"), "a request")
    parameters = _object(head.get("parameters", {}), "parameters")
    listed = head.get("inputs")
    if not isinstance(listed, list):
        raise ProtocolError("the request has no list of inputs", help='send {"inputs": [...]}')
    arrays: dict[str, Array] = {}
    at = 0
    for each in listed:
        name, array, size = _input(_object(each, "an input"), binary[at:], {**inputs, **optional})
        if name in arrays:
            raise ProtocolError(f"input {name!r} is given twice")
        arrays[name] = array
        at += size
    if at != len(binary):
        raise ProtocolError(f"{len(binary) - at} bytes follow the data of the inputs")
    missing = [name for name in inputs if name not in arrays]
    if missing:
        raise ProtocolError(f"input {missing[0]!r} is missing", help=f"the inputs are {', '.join(inputs)}")
    is_binary = parameters.get("binary_data_output") is True
    ordered = {name: arrays[name] for name in (*inputs, *optional) if name in arrays}
    return Requested(ordered, _id(head), _outputs(head, is_binary, outputs), is_binary, _timeout(parameters))


def _parts(body: bytes, header_length: int | None) -> tuple[bytes, memoryview]:
    if header_length is None:
        return body, memoryview(b"")
    if not 0 <= header_length <= len(body):
        raise ProtocolError(f"a header of {header_length} bytes does not fit in a body of {len(body)} bytes")
    return body[:header_length], memoryview(body)[header_length:]


_MAX_VALUES = 4 << 20
_parsing = threading.BoundedSemaphore(2)


def from_text(text: bytes, fix: str) -> Any:
    """Parse JSON, at most two bodies at a time, since a value of two bytes becomes an object of about 40.

    fix: the help of the error. Raises `ProtocolError` for text that is not JSON or has more than 2^22 values.
    """
    if sum(map(text.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        as_bytes = "send tensors as bytes: the extension binary_tensor_data"
        raise ProtocolError(f"the body has more than {_MAX_VALUES} values in JSON", status=413, help=as_bytes)
    try:
        with _parsing:
            return json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("the body is not JSON", help=fix) from None


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError(f"{what} must be a JSON object, got {value!r:.60}")
    return value


def _input(tensor: Mapping[str, Any], binary: memoryview, inputs: Mapping[str, TensorType]) -> tuple[str, Array, int]:
    """Return the name of an input, its array, and its number of bytes of binary data."""
    name = tensor.get("name")
    if not isinstance(name, str) or name not in inputs:
        close = suggestion(name, inputs) if isinstance(name, str) else ""
        raise ProtocolError(f"unknown input {name!r:.80}", help=f"{close}the inputs are {', '.join(inputs)}")
    type_ = inputs[name]
    expected = datatype(type_.dtype)
    if tensor.get("datatype") != expected:
        raise ProtocolError(f"input {name!r} must be {expected}, got {tensor.get('datatype')!r:.40}")
    shape = shape_of(name, tensor.get("shape"))
    _check_shape(name, shape, type_)
    parameters = _object(tensor.get("parameters", {}), f"parameters of input {name!r}")
    if "shared_memory_region" in parameters:
        raise ProtocolError(f"input {name!r}: shared memory is not supported", help="send the data")
    size = parameters.get("binary_data_size")
    if size is None:
        return name, from_json(name, tensor.get("data"), type_.dtype, shape), 0
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(binary):
        raise ProtocolError(f"input {name!r}: binary_data_size={size!r:.40}, but {len(binary)} bytes follow")
    return name, from_bytes(name, binary[:size], type_.dtype, shape), size


def _check_shape(name: str, shape: tuple[int, ...], type_: TensorType) -> None:
    if not type_.shape.is_ranked:
        return
    dims = tuple(type_.shape)
    if len(dims) != len(shape) or any(d.is_static and int(d) != n for d, n in zip(dims, shape, strict=True)):
        raise ProtocolError(f"input {name!r} must be {type_}, got shape {list(shape)}")


def _id(head: Mapping[str, Any]) -> str | None:
    value = head.get("id")
    if value is not None and not isinstance(value, str):
        raise ProtocolError(f"id must be a string, got {value!r:.40}")
    return value


def _outputs(head: Mapping[str, Any], is_binary: bool, names: Sequence[str]) -> dict[str, bool]:
    listed = head.get("outputs", [])
    if not isinstance(listed, list):
        raise ProtocolError("outputs must be a list")
    result: dict[str, bool] = {}
    for each in listed:
        tensor = _object(each, "an output")
        name = tensor.get("name")
        if not isinstance(name, str) or name not in names:
            raise ProtocolError(f"unknown output {name!r:.80}", help=f"the outputs are {', '.join(names)}")
        parameters = _object(tensor.get("parameters", {}), f"parameters of output {name!r}")
        for unknown in ("classification", "shared_memory_region"):
            if unknown in parameters:
                raise ProtocolError(f"output {name!r}: {unknown} is not supported")
        result[name] = parameters.get("binary_data", is_binary) is True
    return result


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    value = parameters.get("timeout")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ProtocolError(f"timeout must be an integer of at least 0 microseconds, got {value!r:.40}")
    return value / 1e6 if value else None


def encode_response(
    model: str,
    requested: Requested,
    results: Sequence[Array],
    types: Mapping[str, TensorType],
    version: str = "1",
) -> tuple[bytes, int | None]:
    """Return the body of a response, and its number of bytes of JSON, None for all.

    results: the arrays of all outputs, in the order of `types`.
    """
    arrays = dict(zip(types, results, strict=True))
    requested_outputs = requested.outputs or dict.fromkeys(types, requested.is_binary)
    outputs: list[dict[str, Any]] = []
    pieces: list[bytes] = []
    for name, is_binary in requested_outputs.items():
        array, dtype = arrays[name], types[name].dtype
        tensor: dict[str, Any] = {"name": name, "datatype": datatype(dtype), "shape": list(array.shape)}
        if is_binary:
            pieces.append(to_bytes(array, dtype))
            tensor["parameters"] = {"binary_data_size": len(pieces[-1])}
        else:
            tensor["data"] = to_json(array, dtype)
        outputs.append(tensor)
    head: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if requested.id is not None:
        head["id"] = requested.id
    text = json.dumps(head).encode()
    return (b"".join([text, *pieces]), len(text)) if pieces else (text, None)


def tensors_of(types: Mapping[str, TensorType]) -> list[dict[str, Any]]:
    """Return the metadata of tensors; a dim of any size is -1."""
    result = []
    for name, type_ in types.items():
        dims = [int(d) if d.is_static else -1 for d in type_.shape] if type_.shape.is_ranked else [-1]
        result.append({"name": name, "datatype": datatype(type_.dtype), "shape": dims})
    return result


# Compression of requests and responses: gzip and deflate.

_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_MIN_BYTES = 1024
"""Minimum size of a response to compress."""

_LEVEL = 1


def decompress(headers: Mapping[str, str], body: bytes, max_bytes: int) -> bytes:
    """Decompress a body. headers: by names in lower case.

    Raises `ProtocolError` with status 413 for a body of more than `max_bytes`, 415 for an unknown encoding, and 400 for
    corrupt data.
    """
    if len(body) > max_bytes:
        raise ProtocolError(f"the body has more than {max_bytes} bytes", status=413)
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOWS:
        raise ProtocolError(f"content-encoding {encoding!r:.40} is not supported", status=415, help="use gzip")
    decompressor = zlib.decompressobj(_WINDOWS[encoding])
    try:
        content = decompressor.decompress(body, max_bytes)
    except zlib.error:
        raise ProtocolError(f"the body is not {encoding}") from None
    if decompressor.unconsumed_tail:
        raise ProtocolError(f"the decompressed body has more than {max_bytes} bytes", status=413)
    if not decompressor.eof:
        raise ProtocolError(f"the body is not {encoding}")
    return content


def packed(headers: Mapping[str, str], response: Response) -> Response:
    """Compress a response by the `Accept-Encoding` of the request, unless it is small."""
    accept = headers.get("accept-encoding", "")
    if len(response.body) < _MIN_BYTES or not accept:
        return response
    chosen = next((name for name in _accepted_encodings(accept) if name in _WINDOWS), None)
    if chosen is None:
        return response
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOWS[chosen])
    body = compressor.compress(response.body) + compressor.flush()
    kinds = {**response.headers, "Content-Encoding": chosen, "Vary": "Accept-Encoding"}
    return dataclasses.replace(response, body=body, headers=kinds)


def _accepted_encodings(accept: str) -> list[str]:
    """Return the encodings that a client accepts, without those of weight 0."""
    names = []
    for part in accept.lower().split(","):
        name, _, more = part.partition(";")
        weight = more.strip().removeprefix("q=").strip()
        if more and weight.strip("0.") == "":
            continue
        names.append(name.strip())
    return names
