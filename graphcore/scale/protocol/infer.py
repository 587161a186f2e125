"""Requests for inference and their answers: JSON, and tensors as bytes after it."""

from __future__ import annotations

import dataclasses
import json
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """A request. outputs: the names that it asks for, and whether each is to be bytes; none for all of them."""

    arrays: Mapping[str, Array]
    id: str | None = None
    outputs: Mapping[str, bool] = field(default_factory=dict)
    is_binary: bool = False
    timeout: float | None = None
    """Seconds that it may take."""


def decode_request(
    body: bytes,
    header_length: int | None,
    inputs: Mapping[str, TensorType],
    outputs: Sequence[str],
) -> Requested:
    """Return the request of a body.

    header_length: bytes of JSON that it begins with, all of them where None. inputs: the types of the model; outputs:
    the names of what it gives. Raises `ProtocolError` for what is no request of this model: another dtype, a shape
    that its data does not have, an input that is missing or that it does not have.
    """
    text, binary = _parts(body, header_length)
    head = _parsed(text)
    parameters = _object(head.get("parameters", {}), "parameters")
    listed = head.get("inputs")
    if not isinstance(listed, list):
        raise ProtocolError("a request without a list of inputs", help='send {"inputs": [...]}')
    arrays: dict[str, Array] = {}
    at = 0
    for each in listed:
        name, array, size = _input(_object(each, "an input"), binary[at:], inputs)
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
    made = {name: arrays[name] for name in inputs}
    return Requested(made, _id(head), _outputs(head, is_binary, outputs), is_binary, _timeout(parameters))


def _parts(body: bytes, header_length: int | None) -> tuple[bytes, memoryview]:
    if header_length is None:
        return body, memoryview(b"")
    if not 0 <= header_length <= len(body):
        raise ProtocolError(f"a header of {header_length} bytes in a body of {len(body)}")
    return body[:header_length], memoryview(body)[header_length:]


def _parsed(text: bytes) -> Mapping[str, Any]:
    return _object(from_text(text, "send the JSON of the Open Inference Protocol"), "a request")


_MAX_VALUES = 4 << 20
_parsing = threading.BoundedSemaphore(2)


def from_text(text: bytes, fix: str) -> Any:
    """Return what JSON says, two bodies at a time: a value of two bytes becomes an object of some 40.

    fix: what to send, for the error. Raises `ProtocolError` for text that is not JSON or has more than 2^22 values.
    """
    if sum(map(text.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        as_bytes = "send tensors as bytes: the extension binary_tensor_data"
        raise ProtocolError(f"a body of more than {_MAX_VALUES} values in JSON", status=413, help=as_bytes)
    try:
        with _parsing:
            return json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("the body is no JSON", help=fix) from None


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError(f"{what} is no JSON object: {value!r:.60}")
    return value


def _input(given: Mapping[str, Any], binary: memoryview, inputs: Mapping[str, TensorType]) -> tuple[str, Array, int]:
    """Return the name of an input, its array, and how many bytes it took."""
    name = given.get("name")
    if not isinstance(name, str) or name not in inputs:
        close = suggestion(name, inputs) if isinstance(name, str) else ""
        raise ProtocolError(f"there is no input {name!r:.80}", help=f"{close}the inputs are {', '.join(inputs)}")
    type_ = inputs[name]
    wanted = datatype(type_.dtype)
    if given.get("datatype") != wanted:
        raise ProtocolError(f"input {name!r} is {wanted}, and {given.get('datatype')!r:.40} is given")
    shape = shape_of(name, given.get("shape"))
    _check_shape(name, shape, type_)
    parameters = _object(given.get("parameters", {}), f"parameters of input {name!r}")
    if "shared_memory_region" in parameters:
        raise ProtocolError(f"input {name!r}: shared memory is not served", help="send the data")
    size = parameters.get("binary_data_size")
    if size is None:
        return name, from_json(name, given.get("data"), type_.dtype, shape), 0
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(binary):
        raise ProtocolError(f"input {name!r}: binary_data_size={size!r:.40}, and {len(binary)} bytes follow")
    return name, from_bytes(name, binary[:size], type_.dtype, shape), size


def _check_shape(name: str, shape: tuple[int, ...], type_: TensorType) -> None:
    if not type_.shape.is_ranked:
        return
    dims = tuple(type_.shape)
    if len(dims) != len(shape) or any(d.is_static and int(d) != n for d, n in zip(dims, shape, strict=True)):
        raise ProtocolError(f"input {name!r} is {type_}, and shape {list(shape)} is given")


def _id(head: Mapping[str, Any]) -> str | None:
    given = head.get("id")
    if given is not None and not isinstance(given, str):
        raise ProtocolError(f"id={given!r:.40} is no text")
    return given


def _outputs(head: Mapping[str, Any], is_binary: bool, names: Sequence[str]) -> dict[str, bool]:
    listed = head.get("outputs", [])
    if not isinstance(listed, list):
        raise ProtocolError("outputs are no list")
    made: dict[str, bool] = {}
    for each in listed:
        given = _object(each, "an output")
        name = given.get("name")
        if not isinstance(name, str) or name not in names:
            raise ProtocolError(f"there is no output {name!r:.80}", help=f"the outputs are {', '.join(names)}")
        parameters = _object(given.get("parameters", {}), f"parameters of output {name!r}")
        for unknown in ("classification", "shared_memory_region"):
            if unknown in parameters:
                raise ProtocolError(f"output {name!r}: {unknown} is not served")
        made[name] = parameters.get("binary_data", is_binary) is True
    return made


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    given = parameters.get("timeout")
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < 1 << 63:
        raise ProtocolError(f"timeout={given!r:.40} is no number of microseconds")
    return given / 1e6 if given else None


def encode_response(
    model: str,
    requested: Requested,
    results: Sequence[Array],
    types: Mapping[str, TensorType],
    version: str = "1",
) -> tuple[bytes, int | None]:
    """Return the body of an answer, and how many bytes of it are JSON; None for all of them.

    results: the arrays of all outputs, in the order of types.
    """
    arrays = dict(zip(types, results, strict=True))
    wanted = requested.outputs or dict.fromkeys(types, requested.is_binary)
    outputs: list[dict[str, Any]] = []
    pieces: list[bytes] = []
    for name, is_binary in wanted.items():
        array, dtype = arrays[name], types[name].dtype
        made: dict[str, Any] = {"name": name, "datatype": datatype(dtype), "shape": list(array.shape)}
        if is_binary:
            pieces.append(to_bytes(array, dtype))
            made["parameters"] = {"binary_data_size": len(pieces[-1])}
        else:
            made["data"] = to_json(array, dtype)
        outputs.append(made)
    head: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if requested.id is not None:
        head["id"] = requested.id
    text = json.dumps(head).encode()
    return (b"".join([text, *pieces]), len(text)) if pieces else (text, None)


def tensors_of(types: Mapping[str, TensorType]) -> list[dict[str, Any]]:
    """Return the tensors of a model as its metadata has them: -1 for a dim of any size."""
    made = []
    for name, type_ in types.items():
        dims = [int(d) if d.is_static else -1 for d in type_.shape] if type_.shape.is_ranked else [-1]
        made.append({"name": name, "datatype": datatype(type_.dtype), "shape": dims})
    return made


# Bodies that are packed on the way: gzip and deflate, in requests and in answers.

_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_SMALLEST = 1024
"""Bytes of an answer from which it is packed."""

_LEVEL = 1


def unpacked(headers: Mapping[str, str], body: bytes, most: int) -> bytes:
    """Return a body as it was before it was packed. headers: by names in lower case. most: bytes.

    Raises `ProtocolError` of status 413 for a body of more bytes, 415 for another packing, and 400 for what is not
    packed as it says.
    """
    if len(body) > most:
        raise ProtocolError(f"a body of more than {most} bytes", status=413)
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOWS:
        raise ProtocolError(f"content-encoding {encoding!r:.40} is not read", status=415, help="use gzip")
    unpacker = zlib.decompressobj(_WINDOWS[encoding])
    try:
        made = unpacker.decompress(body, most)
    except zlib.error:
        raise ProtocolError(f"the body is not {encoding}") from None
    if unpacker.unconsumed_tail:
        raise ProtocolError(f"a body that unpacks to more than {most} bytes", status=413)
    if not unpacker.eof:
        raise ProtocolError(f"the body is not {encoding}")
    return made


def packed(headers: Mapping[str, str], response: Response) -> Response:
    """Return a response packed as the request's `Accept-Encoding` asks for, where that is worth it."""
    asked = headers.get("accept-encoding", "")
    if len(response.body) < _SMALLEST or not asked:
        return response
    chosen = next((name for name in _accepted(asked) if name in _WINDOWS), None)
    if chosen is None:
        return response
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOWS[chosen])
    body = packer.compress(response.body) + packer.flush()
    kinds = {**response.headers, "Content-Encoding": chosen, "Vary": "Accept-Encoding"}
    return dataclasses.replace(response, body=body, headers=kinds)


def _accepted(asked: str) -> list[str]:
    """Return the packings that a client takes, those with a weight of 0 left out."""
    made = []
    for part in asked.lower().split(","):
        name, _, more = part.partition(";")
        weight = more.strip().removeprefix("q=").strip()
        if more and weight.strip("0.") == "":
            continue
        made.append(name.strip())
    return made
