"""Tensors of the protocol: names of dtypes, elements as JSON and as binary data."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import BusyError, FeedError, GraphcoreError, RunCancelledError, RunTimeoutError
from graphcore.scale.storage import from_storage, storage_dtype, to_storage
from graphcore.types.dtypes import DType

NAMES: dict[DType, str] = {
    **{DType.of(n): n.upper() for n in "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()},
    DType.float16: "FP16",
    DType.bfloat16: "BF16",
    DType.float32: "FP32",
    DType.float64: "FP64",
    DType.string: "BYTES",
}
"""The protocol's names of dtypes."""

_LENGTH = struct.Struct("<I")
_MAX_DIMS = 64


def datatype(dtype: DType) -> str:
    """Return the protocol's name of a dtype, or of its storage dtype."""
    return NAMES.get(dtype) or NAMES[storage_dtype(dtype)]


def _wire(dtype: DType) -> DType:
    """Return the dtype of elements in requests and responses."""
    return dtype if dtype in NAMES else storage_dtype(dtype)


def shape_of(name: str, shape: object) -> tuple[int, ...]:
    """Return the shape from a request. Raises `ProtocolError` if it is invalid."""
    if not isinstance(shape, list) or len(shape) > _MAX_DIMS or not all(map(_is_size, shape)):
        raise ProtocolError(f"input {name!r}: shape must be a list of sizes, got {shape!r:.80}")
    return tuple(shape)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def from_bytes(name: str, data: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Decode elements in row-major order, little endian; each string follows its length, a uint32.

    Raises `ProtocolError` if the number of bytes does not match the shape.
    """
    count = math.prod(shape)
    if dtype is DType.string:
        return _array_of(_texts(name, data, count), shape)
    wire = _wire(dtype)
    size = count * wire.numpy.itemsize
    if len(data) != size:
        raise ProtocolError(f"input {name!r}: {len(data)} bytes of data, but {datatype(dtype)}{list(shape)} has {size}")
    array = np.frombuffer(data, wire.numpy)
    if sys.byteorder == "big" and wire.numpy.itemsize > 1:
        array = array.byteswap()
    return _from_storage(name, array.reshape(shape), dtype)


def _from_storage(name: str, array: Array, dtype: DType) -> Array:
    try:
        return from_storage(array, dtype, f"input {name!r}")
    except FeedError as error:
        raise ProtocolError(error.summary, help=error.help) from None


def _texts(name: str, data: memoryview, count: int) -> list[str]:
    texts: list[str] = []
    at = 0
    while at < len(data):
        if len(texts) == count:
            raise ProtocolError(f"input {name!r}: more strings than its shape has elements")
        if at + _LENGTH.size > len(data):
            raise ProtocolError(f"input {name!r}: the length of string {len(texts)} is cut off")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            raise ProtocolError(f"input {name!r}: string {len(texts)} of {length} bytes is cut off")
        texts.append(_text(name, bytes(data[at : at + length])))
        at += length
    if len(texts) != count:
        raise ProtocolError(f"input {name!r}: {len(texts)} strings, but its shape has {count} elements")
    return texts


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"input {name!r}: a string is not UTF-8", help="send text") from None


def _array_of(texts: Sequence[str], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def to_bytes(array: Array, dtype: DType) -> bytes:
    """Encode elements in the format of `from_bytes`."""
    if dtype is DType.string:
        pieces = (text.encode() if isinstance(text, str) else bytes(text) for text in array.flat)
        return b"".join(_LENGTH.pack(len(piece)) + piece for piece in pieces)
    wire = to_storage(array, dtype) if dtype not in NAMES else array
    if sys.byteorder == "big" and wire.dtype.itemsize > 1:
        wire = wire.byteswap()
    return np.ascontiguousarray(wire).tobytes()


def from_json(name: str, data: object, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Convert numbers, bools or strings of JSON, nested or flat, to an array. Raises `ProtocolError`."""
    flat: list[Any] = []
    _flatten(name, data, flat, 0)
    if len(flat) != math.prod(shape):
        raise ProtocolError(f"input {name!r}: {len(flat)} elements of data do not match its shape {list(shape)}")
    kinds: tuple[type, ...] = (int, float)
    if dtype is DType.string:
        kinds = (str,)
    elif dtype is DType.bool:
        kinds = (bool, int)
    elif dtype.is_integer:
        kinds = (int,)
    for value in flat:
        is_other = dtype is DType.bool and value not in (0, 1)
        if not isinstance(value, kinds) or is_other or (isinstance(value, bool) and bool not in kinds):
            raise ProtocolError(f"input {name!r}: {value!r:.40} is not an element of {datatype(dtype)}")
    if dtype is DType.string:
        try:
            "".join(flat).encode()
        except UnicodeEncodeError:
            raise ProtocolError(f"input {name!r}: a string has an unpaired surrogate, which UTF-8 lacks") from None
        return _array_of(flat, shape)
    wire = _wire(dtype)
    try:
        with np.errstate(over="ignore"):
            if wire.is_float:
                wide = np.array(flat, np.float64)
                array = wide.astype(wire.numpy)
                if (np.isfinite(wide) & ~np.isfinite(array)).any():
                    raise OverflowError
            else:
                array = np.array(flat, wire.numpy)
    except OverflowError:
        raise ProtocolError(f"input {name!r}: a number is out of range for {datatype(dtype)}") from None
    return _from_storage(name, array.reshape(shape), dtype)


def _flatten(name: str, data: object, flat: list[Any], depth: int) -> None:
    if not isinstance(data, list):
        if depth == 0:
            raise ProtocolError(f"input {name!r}: data must be a list")
        flat.append(data)
        return
    if depth > _MAX_DIMS:
        raise ProtocolError(f"input {name!r}: data has more than {_MAX_DIMS} levels")
    for each in data:
        _flatten(name, each, flat, depth + 1)


def to_json(array: Array, dtype: DType) -> list[Any]:
    """Return the elements in row-major order, as values of JSON."""
    if dtype is DType.string:
        return [text if isinstance(text, str) else bytes(text).decode("utf-8", "replace") for text in array.flat]
    wide = array.astype(np.float64) if dtype.is_float else to_storage(array, dtype)
    listed: list[Any] = wide.reshape(-1).tolist()
    return listed


# Errors as responses: an HTTP status and one line of text.


class ProtocolError(GraphcoreError, ValueError):
    """An invalid request. status: the HTTP status."""

    def __init__(self, summary: str, *, status: int = 400, help: str = "") -> None:
        super().__init__(summary, help=help)
        self.status = status


_LATER = "try again later"
_STATUSES: tuple[tuple[type[BaseException], int, str], ...] = (
    (FeedError, 400, ""),
    (BusyError, 503, _LATER),
    (RunTimeoutError, 504, f"ask for less in a request, such as fewer tokens, or {_LATER}"),
    (RunCancelledError, 503, _LATER),
)
"""The status of each error, and what a client can do, in place of the advice to users of the library."""


def problem(error: BaseException) -> tuple[int, bytes]:
    """Return the status and the body, `{"error": ...}`, of the response for an error.

    The text of an error from outside the library is not included: it may contain paths and addresses.
    """
    if not isinstance(error, GraphcoreError):
        return 500, json.dumps({"error": f"the server failed: {type(error).__name__}"}).encode()
    if isinstance(error, ProtocolError):
        status, fix = error.status, ""
    else:
        status, fix = next((row[1:] for row in _STATUSES if isinstance(error, row[0])), (500, ""))
    text = "; ".join(filter(None, (error.summary, fix or error.help)))
    return status, json.dumps({"error": text}).encode()


# HTTP responses.

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response. stream: events in place of a body. cancel: cancels the stream."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": JSON})
    stream: Iterator[bytes] | None = None
    cancel: Callable[[], object] | None = None


def as_json(value: object, status: int = 200) -> Response:
    """Return a response with JSON."""
    return Response(status, json.dumps(value).encode())


def streamed(events: Iterator[bytes], cancel: Callable[[], object]) -> Response:
    """Return a response with events of `event`."""
    return Response(200, b"", {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}, events, cancel)


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def failure(error: BaseException) -> Response:
    """Return the response for an error."""
    status, body = problem(error)
    headers = {"Content-Type": JSON} | ({"Retry-After": "1"} if status == 503 else {})
    return Response(status, body, headers)
