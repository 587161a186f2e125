"""The safetensors format: eight bytes with the length of a JSON header, the header, the tensors' bytes.

A checkpoint of several files has an index, `model.safetensors.index.json`, with the file of each tensor.

Source: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from graphcore.arrays.casting import native
from graphcore.arrays.external_data import Folder, Links
from graphcore.errors import DTypeError, ExportError, ModelError, ResourceLimitError
from graphcore.ir.literals import array_dtype, is_text
from graphcore.quantization.tensors import BLOCKS, QuantizedTensor, dequantize
from graphcore.support.atomic_files import replace_files
from graphcore.types.dtypes import DType

_DTYPES = {
    "BOOL": DType.bool, "I8": DType.int8, "I16": DType.int16, "I32": DType.int32, "I64": DType.int64,
    "U8": DType.uint8, "U16": DType.uint16, "U32": DType.uint32, "U64": DType.uint64,
    "F8_E4M3": DType.float8_e4m3fn, "F8_E5M2": DType.float8_e5m2, "F8_E8M0": DType.float8_e8m0,
    "F8_E4M3FNUZ": DType.float8_e4m3fnuz, "F8_E5M2FNUZ": DType.float8_e5m2fnuz,
    "F16": DType.float16, "BF16": DType.bfloat16, "F32": DType.float32, "F64": DType.float64,
    "C64": DType.complex64,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_UNREAD = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits of dtypes of the format that are not supported; other tensors of the file can be read."""

_METADATA = "__metadata__"
_MAX_VALUES = 1 << 21
"""Values in a JSON text: each takes about 60 bytes of memory, but only two of the file."""

_Entry = tuple[str, tuple[int, ...], int, int]


def read(content: memoryview, path: str) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Return the tensors and the metadata of a file. Raises `ModelError`, `ResourceLimitError`."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > len(content) - 8:
        raise damaged_file(path, f"the header claims {size} bytes, but the file has {len(content)}")
    if size > MAX_HEADER_BYTES:
        raise _too_large(path, f"the header has {size} bytes, the limit is {MAX_HEADER_BYTES}")
    data = content[8 + size :]
    entries, metadata = _header(bytes(content[8 : 8 + size]), len(data), path)
    stored = {
        name: StoredTensor(encoding, shape, data[begin:end], _DTYPES.get(encoding))
        for name, (encoding, shape, begin, end) in entries.items()
    }
    return stored, metadata


def read_index(
    content: memoryview, path: str, links: Links | None = None
) -> tuple[dict[str, StoredTensor], Mapping[str, Any]]:
    """Return the tensors of the files of an index, and the metadata of the index. links: which links can be followed.

    Raises what `read` does, and `UnsafePathError` for files that are not regular files in the folder of the index.
    """
    if len(content) > MAX_HEADER_BYTES:
        raise _too_large(path, f"the index has {len(content)} bytes, the limit is {MAX_HEADER_BYTES}")
    index = _json(bytes(content), "the index", path)
    places, metadata = index.get("weight_map"), index.get("metadata", {})
    if not isinstance(places, dict) or not isinstance(metadata, dict):
        raise damaged_file(path, "the index has no weight_map")
    folder = Folder(os.path.dirname(path) or ".", links)
    shards: dict[str, dict[str, StoredTensor]] = {}
    stored = {}
    for name, location in places.items():
        if not isinstance(location, str) or not is_text(location):
            raise damaged_file(
                path,
                f"tensor {name[:MAX_NAME_LENGTH]!r} lies in {str(location)[:MAX_NAME_LENGTH]!r}, "
                "which is not a file name",
            )
        if location not in shards:
            shards[location] = read(folder.content(location, f"tensor {name[:MAX_NAME_LENGTH]!r}"), location)[0]
        if name not in shards[location]:
            raise damaged_file(
                path, f"tensor {name[:MAX_NAME_LENGTH]!r} is not in {location[:MAX_NAME_LENGTH]!r}, as the index claims"
            )
        stored[name] = shards[location][name]
    return stored, metadata


def _header(text: bytes, size: int, path: str) -> tuple[dict[str, _Entry], dict[str, str]]:
    """Return the entries and metadata of a header. The tensors must cover the `size` bytes of data without overlaps."""
    header = _json(text, "the header", path)
    metadata = header.pop(_METADATA, None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) and is_text(v) for v in metadata.values()):
        raise damaged_file(path, f"{_METADATA} must be an object of strings")
    entries = {name: _entry(name, row, path) for name, row in header.items()}
    previous_end = 0
    for name, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin != previous_end:
            what = (
                "which overlaps another one" if begin < previous_end else f"but the previous one ends at {previous_end}"
            )
            raise damaged_file(path, f"tensor {name[:MAX_NAME_LENGTH]!r} begins at byte {begin}, {what}")
        previous_end = end
    if previous_end != size:
        raise damaged_file(path, f"the tensors take {previous_end} bytes, but the file has {size} for them")
    return entries, metadata


def _entry(name: str, row: Any, path: str) -> _Entry:
    what = f"tensor {name[:MAX_NAME_LENGTH]!r}"
    if not isinstance(row, dict) or not {"dtype", "shape", "data_offsets"} <= row.keys():
        raise damaged_file(path, f"{what} must have dtype, shape and data_offsets")
    encoding, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(encoding, str) or not (encoding in _DTYPES or encoding in _UNREAD):
        raise damaged_file(
            path, f"{what} has dtype {str(encoding)[:MAX_NAME_LENGTH]!r}, which the format does not have"
        )
    if not isinstance(shape, list):
        raise damaged_file(path, f"{what}: {str(shape)[:MAX_NAME_LENGTH]} is not a shape")
    if fault := shape_fault(shape):
        raise damaged_file(path, f"{what}: {fault}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int for n in offsets):
        raise damaged_file(path, f"{what}: data_offsets cannot be {str(offsets)[:MAX_NAME_LENGTH]}")
    begin, end = offsets
    bits = math.prod(shape) * (_UNREAD.get(encoding) or 8 * _DTYPES[encoding].numpy.itemsize)
    if begin < 0 or 8 * (end - begin) != bits:
        raise damaged_file(path, f"{what} is {encoding}{shape}, but lies in the bytes {begin} to {end}")
    return encoding, tuple(shape), begin, end


def _json(text: bytes, what: str, path: str) -> dict[str, Any]:
    if sum(text.count(sign) for sign in (b",", b"[", b"{")) > _MAX_VALUES:
        raise _too_large(path, f"{what} has more than {_MAX_VALUES} values")
    if text[:1] != b"{":
        raise damaged_file(path, f"{what} is not a JSON object")
    try:
        result: dict[str, Any] = json.loads(
            text.decode(), object_pairs_hook=_unique_keys, parse_constant=_reject_constant
        )
    except RecursionError:
        raise damaged_file(path, f"{what} is nested too deeply") from None
    except ValueError as error:
        raise damaged_file(path, f"{what} is malformed: {str(error)[:MAX_NAME_LENGTH]}") from None
    return result


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice[:MAX_NAME_LENGTH]!r} occurs twice")
    if wrong := next((key for key in result if not is_text(key)), None):
        raise ValueError(f"{wrong[:MAX_NAME_LENGTH]!r} is not valid text")
    return result


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not allowed in JSON")


def _too_large(path: str, what: str) -> ResourceLimitError:
    return ResourceLimitError(f"load: {path[:MAX_NAME_LENGTH]}: {what}", help="split the checkpoint into several files")


def save(path: str, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None) -> None:
    """See `save_tensors`."""
    header_object: dict[str, Any] = {}
    if metadata:
        if not all(isinstance(text, str) and is_text(text) for item in metadata.items() for text in item):
            raise ExportError("save_tensors: keys and values of metadata must be text", help="give strings by name")
        header_object[_METADATA] = dict(metadata)
    rows = sorted((_row(name, array) for name, array in tensors.items()), key=lambda row: (-row[1], row[0]))
    size = 0
    for name, width, dtype, shape in rows:
        end = size + width * math.prod(shape)
        header_object[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [size, end]}
        size = end
    header = json.dumps(header_object, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # aligns the tensors, which are sorted by width
    if len(header) > MAX_HEADER_BYTES:
        raise ResourceLimitError(
            f"save_tensors: the header has {len(header)} bytes, the limit for reading is {MAX_HEADER_BYTES}",
            help="save less metadata, or fewer tensors a file",
        )
    _header(header, size, path)
    file = os.path.realpath(path)
    try:
        replace_files([(file, _chunks(header, rows, tensors))], synced=True)
    except OSError as error:
        if isinstance(error, ExportError):
            raise
        raise ExportError(
            f"save_tensors: {path[:MAX_NAME_LENGTH]} cannot be written: {error.strerror or error}",
            help="choose a folder that exists and can be written to",
        ) from error


_Row = tuple[str, int, DType, list[int]]


def _row(name: str, array: Array) -> _Row:
    if not isinstance(name, str) or not is_text(name) or name == _METADATA:
        raise ExportError(f"save_tensors: a tensor cannot be called {name!r:.80}", help="give it another name")
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"save_tensors: {name!r} must be an array, got {type(array).__name__}",
            help="give a NumPy array: np.asarray(value), or tensor.dequantize() for blocks",
        )
    dtype = array_dtype(array, "save_tensors", repr(name))
    if dtype not in NAMES:
        raise DTypeError(
            f"save_tensors: {name!r} is an array of {dtype}, which safetensors files cannot store",
            help="cast it to int8 or uint8, or pack two elements a byte" if dtype.bits == 4 else "cast it",
        )
    return name, array.dtype.itemsize, dtype, list(array.shape)


def _chunks(header: bytes, rows: list[_Row], tensors: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    yield len(header).to_bytes(8, "little") + header
    for name, width, dtype, shape in rows:
        array = native(tensors[name])
        if DType.of(array.dtype) is not dtype or list(array.shape) != shape:
            raise ExportError(
                f"save_tensors: {name!r} was {dtype}{shape} and is now another array",
                help="do not change the mapping while it is saved",
            )
        if width * math.prod(shape):
            yield array.reshape(-1).view(np.uint8).data


def check_path(path: str) -> None:
    """Raise `ExportError` for a path that names another format."""
    if path.lower().endswith((".gguf", ".json", ".onnx")):
        raise ExportError(
            f"save_tensors: {path[:MAX_NAME_LENGTH]} has the extension of another format",
            help="give a path that ends in .safetensors",
        )


# Tensors in a file, and the mapping that reads them on access.

Array = np.ndarray[Any, Any]
Value = TypeVar("Value", covariant=True)

MAX_NAME_LENGTH = 256
"""Characters of a name that are shown in errors."""

MAX_HEADER_BYTES = 100_000_000
"""The maximum size of a header or index, in bytes."""

_MAX_DIMS = 64
_MAX_ELEMENTS = 1 << 59
"""The limit of NumPy's shapes, even of empty arrays."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file. encoding: its name in the format. dtype: None for blocks and unsupported dtypes."""

    encoding: str
    shape: tuple[int, ...]
    content: memoryview
    dtype: DType | None


class Tensors(Mapping[str, Value]):
    """The tensors of a checkpoint by name. Each is read on access and not cached.

    Arrays are read-only and map the file, which must not be changed or truncated while they are in use. Blocks are
    dequantised on each access.

    Attributes:
        path: The file.
        metadata: The metadata of the file, by key.
    """

    __slots__ = ("_raw", "_stored", "metadata", "path")

    path: str
    metadata: Mapping[str, Any]

    def __init__(self, path: str, stored: dict[str, StoredTensor], metadata: Mapping[str, Any], raw: bool) -> None:
        self.path = path
        self.metadata = metadata
        self._stored = stored
        self._raw = raw

    def __getitem__(self, name: str) -> Value:
        return _read(self._stored[name], name, self._raw)  # type: ignore[return-value]

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __repr__(self) -> str:
        return f"Tensors({self.path!r}, {len(self)} tensors)"

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it. Raises `KeyError`."""
        return self._stored[name].shape

    def encoding(self, name: str) -> str:
        """Return the format's name of a tensor's elements or blocks: "BF16", "Q4_K". Raises `KeyError`."""
        return self._stored[name].encoding


def _read(stored: StoredTensor, name: str, raw: bool) -> Array | QuantizedTensor:
    if stored.dtype is not None:
        array = np.frombuffer(stored.content, stored.dtype.numpy).reshape(stored.shape)
        # Kernels need aligned addresses, which most writers ensure.
        return native(array if array.flags.aligned else array.copy())
    block = BLOCKS.get(stored.encoding)
    if block is None:
        raise ModelError(
            f"load: tensor {name[:MAX_NAME_LENGTH]!r} has dtype {stored.encoding}, which is not supported",
            help="convert it to another dtype",
        )
    if raw:
        *rows, last = stored.shape
        data = np.frombuffer(stored.content, np.uint8).reshape(*rows, last // block.elements * block.size)
        return QuantizedTensor(stored.encoding, stored.shape, data)
    return dequantize(np.frombuffer(stored.content, np.uint8), stored.encoding, stored.shape)


def shape_fault(shape: Sequence[Any]) -> str:
    """Return the fault of dims in a file; "" if they are valid."""
    if len(shape) > _MAX_DIMS:
        return f"it has {len(shape)} dims, the limit of an array is {_MAX_DIMS}"
    if not all(type(d) is int and d >= 0 for d in shape):
        return f"{str(list(shape))[:MAX_NAME_LENGTH]} is not a shape"
    if math.prod(d or 1 for d in shape) > _MAX_ELEMENTS:
        return f"its dims {str(list(shape))[:MAX_NAME_LENGTH]} are too large"
    return ""


def damaged_file(path: str, what: str) -> ModelError:
    return ModelError(
        f"load: {path[:MAX_NAME_LENGTH]}: {what}", help="the file is truncated or damaged: download it again"
    )
