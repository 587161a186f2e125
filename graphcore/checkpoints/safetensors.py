"""The safetensors format: eight bytes with the length of a JSON header, the header, the tensors' bytes.

https://github.com/huggingface/safetensors says what is in it. A checkpoint of several files has an index beside them,
`model.safetensors.index.json`, that names the file of each tensor.
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
from graphcore.ir.literals import array_dtype
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
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_UNREAD = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits of dtypes that the format has and no array here holds: tensors beside them can be read all the same."""

_METADATA = "__metadata__"
_MOST_VALUES = 1 << 21
"""Values in a JSON text: each takes some 60 bytes of memory, and as few as two of the file."""

_Entry = tuple[str, tuple[int, ...], int, int]


def read(content: memoryview, path: str) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors and the metadata of a file. Raises `ModelError` and `ResourceLimitError`."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > len(content) - 8:
        raise damaged(path, f"the header says {size} bytes, and the file has {len(content)}")
    if size > LARGEST_HEADER:
        raise _too_large(path, f"the header has {size} bytes, and {LARGEST_HEADER} are the most that are read")
    data = content[8 + size :]
    entries, metadata = _header(bytes(content[8 : 8 + size]), len(data), path)
    stored = {
        name: Stored(encoding, shape, data[begin:end], _DTYPES.get(encoding))
        for name, (encoding, shape, begin, end) in entries.items()
    }
    return stored, metadata


def read_index(
    content: memoryview, path: str, links: Links | None = None
) -> tuple[dict[str, Stored], Mapping[str, Any]]:
    """The tensors of the files beside an index, and the index' metadata. links: which links to them may be followed.

    Raises what `read` does, and `UnsafePathError` for files that are not plain ones in the index' folder.
    """
    if len(content) > LARGEST_HEADER:
        raise _too_large(path, f"the index has {len(content)} bytes, and {LARGEST_HEADER} are the most that are read")
    index = _json(bytes(content), "the index", path)
    places, metadata = index.get("weight_map"), index.get("metadata", {})
    if not isinstance(places, dict) or not isinstance(metadata, dict):
        raise damaged(path, "the index has no weight_map")
    folder = Folder(os.path.dirname(path) or ".", links)
    shards: dict[str, dict[str, Stored]] = {}
    stored = {}
    for name, location in places.items():
        if not isinstance(location, str) or not _is_text(location):
            raise damaged(path, f"tensor {name[:SHOWN]!r} lies in {str(location)[:SHOWN]!r}, which is no file name")
        if location not in shards:
            shards[location] = read(folder.content(location, f"tensor {name[:SHOWN]!r}"), location)[0]
        if name not in shards[location]:
            raise damaged(path, f"tensor {name[:SHOWN]!r} is not in {location[:SHOWN]!r}, where the index has it")
        stored[name] = shards[location][name]
    return stored, metadata


def _header(text: bytes, size: int, path: str) -> tuple[dict[str, _Entry], dict[str, str]]:
    """Return what a header says, checked: the tensors take all of the `size` bytes of data and share none."""
    header = _json(text, "the header", path)
    metadata = header.pop(_METADATA, None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) and _is_text(v) for v in metadata.values()):
        raise damaged(path, f"{_METADATA} is no object of strings")
    entries = {name: _entry(name, said, path) for name, said in header.items()}
    reached = 0
    for name, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin != reached:
            what = "which another tensor has too" if begin < reached else f"and nothing lies between {reached} and it"
            raise damaged(path, f"tensor {name[:SHOWN]!r} begins at byte {begin}, {what}")
        reached = end
    if reached != size:
        raise damaged(path, f"the tensors take {reached} bytes, and the file has {size} for them")
    return entries, metadata


def _entry(name: str, said: Any, path: str) -> _Entry:
    what = f"tensor {name[:SHOWN]!r}"
    if not isinstance(said, dict) or not {"dtype", "shape", "data_offsets"} <= said.keys():
        raise damaged(path, f"{what} has no dtype, shape and data_offsets")
    encoding, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(encoding, str) or not (encoding in _DTYPES or encoding in _UNREAD):
        raise damaged(path, f"{what} is of dtype {str(encoding)[:SHOWN]!r}, which the format has not")
    if not isinstance(shape, list):
        raise damaged(path, f"{what}: {str(shape)[:SHOWN]} is no shape")
    if fault := shape_fault(shape):
        raise damaged(path, f"{what}: {fault}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int for n in offsets):
        raise damaged(path, f"{what}: {str(offsets)[:SHOWN]} are no data_offsets")
    begin, end = offsets
    bits = math.prod(shape) * (_UNREAD.get(encoding) or 8 * _DTYPES[encoding].numpy.itemsize)
    if begin < 0 or 8 * (end - begin) != bits:
        raise damaged(path, f"{what} is {encoding}{shape}, and lies in the bytes {begin} to {end}")
    return encoding, tuple(shape), begin, end


def _json(text: bytes, what: str, path: str) -> dict[str, Any]:
    if sum(text.count(sign) for sign in (b",", b"[", b"{")) > _MOST_VALUES:
        raise _too_large(path, f"{what} has more than {_MOST_VALUES} values")
    if text[:1] != b"{":
        raise damaged(path, f"{what} is no JSON object")
    try:
        found: dict[str, Any] = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_number)
    except RecursionError:
        raise damaged(path, f"{what} is nested too deeply") from None
    except ValueError as error:
        raise damaged(path, f"{what} is not as it must be: {str(error)[:SHOWN]}") from None
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice[:SHOWN]!r} is in it twice")
    if wrong := next((key for key in found if not _is_text(key)), None):
        raise ValueError(f"{wrong[:SHOWN]!r} is no text")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _is_text(text: str) -> bool:
    """Return whether it can be written as UTF-8: JSON can say halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_large(path: str, what: str) -> ResourceLimitError:
    return ResourceLimitError(f"load: {path[:SHOWN]}: {what}", help="split the checkpoint into several files")


def save(path: str, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None) -> None:
    """See `save_tensors`."""
    said: dict[str, Any] = {}
    if metadata:
        if not all(isinstance(text, str) and _is_text(text) for item in metadata.items() for text in item):
            raise ExportError("save_tensors: metadata holds something that is no text", help="give strings by name")
        said[_METADATA] = dict(metadata)
    rows = sorted((_row(name, array) for name, array in tensors.items()), key=lambda row: (-row[1], row[0]))
    size = 0
    for name, width, dtype, shape in rows:
        end = size + width * math.prod(shape)
        said[name] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": [size, end]}
        size = end
    header = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # so that the tensors, the widest first, are aligned
    if len(header) > LARGEST_HEADER:
        raise ResourceLimitError(
            f"save_tensors: the header has {len(header)} bytes, and {LARGEST_HEADER} are the most that can be read",
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
            f"save_tensors: {path[:SHOWN]} cannot be written: {error.strerror or error}",
            help="choose a folder that exists and can be written to",
        ) from error


_Row = tuple[str, int, DType, list[int]]


def _row(name: str, array: Array) -> _Row:
    if not isinstance(name, str) or not _is_text(name) or name == _METADATA:
        raise ExportError(f"save_tensors: no tensor can be called {name!r:.80}", help="give it another name")
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"save_tensors: {name!r} is a {type(array).__name__}, no array",
            help="give a NumPy array: np.asarray(value), or tensor.dequantize() for blocks",
        )
    dtype = array_dtype(array, "save_tensors", repr(name))
    if dtype not in _NAMES:
        raise DTypeError(
            f"save_tensors: {name!r} is an array of {dtype}, which safetensors files have not",
            help="cast it to int8 or uint8, or pack two elements a byte" if dtype.bits == 4 else "cast it",
        )
    return name, array.dtype.itemsize, dtype, list(array.shape)


def _chunks(header: bytes, rows: list[_Row], tensors: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    yield len(header).to_bytes(8, "little") + header
    for name, width, dtype, shape in rows:
        array = native(tensors[name])
        if DType.of(array.dtype) is not dtype or list(array.shape) != shape:
            raise ExportError(
                f"save_tensors: {name!r} was {dtype}{shape} at first and is now another array",
                help="give a mapping that stays the same while it is saved",
            )
        if width * math.prod(shape):
            yield array.reshape(-1).view(np.uint8).data


def check_path(path: str) -> None:
    """Raise `ExportError` for a path that names another format."""
    if path.lower().endswith((".gguf", ".json", ".onnx")):
        raise ExportError(
            f"save_tensors: {path[:SHOWN]} would be a safetensors file", help="give a path that ends in .safetensors"
        )


# Tensors as they lie in a file, and the mapping that reads them when they are asked for.

Array = np.ndarray[Any, Any]
Value = TypeVar("Value", covariant=True)

SHOWN = 256
"""Characters of a name that errors show: a file may say anything of any length."""

LARGEST_HEADER = 100_000_000
"""Bytes that a file may take to say what is in it."""

_MOST_DIMS = 64
_MOST_ELEMENTS = 1 << 59
"""The limit of NumPy's shapes, with elements or without."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file. encoding: the format's word. dtype: None for blocks, and for what is not read."""

    encoding: str
    shape: tuple[int, ...]
    content: memoryview
    dtype: DType | None


class Tensors(Mapping[str, Value]):
    """The tensors of a checkpoint by name. Each is read when it is asked for, and no copy of it is kept.

    Arrays are read-only and map the file, which must not be changed or cut short while one of them lives. Blocks are
    dequantised anew each time. `metadata`: what else the file says, by key.
    """

    __slots__ = ("_raw", "_stored", "metadata", "path")

    path: str
    metadata: Mapping[str, Any]

    def __init__(self, path: str, stored: dict[str, Stored], metadata: Mapping[str, Any], raw: bool) -> None:
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
        """The shape of a tensor, which is not read for it. Raises `KeyError`."""
        return self._stored[name].shape

    def encoding(self, name: str) -> str:
        """Return what the file calls a tensor's elements or blocks: "BF16", "Q4_K". Raises `KeyError`."""
        return self._stored[name].encoding


def _read(stored: Stored, name: str, raw: bool) -> Array | QuantizedTensor:
    if stored.dtype is not None:
        array = np.frombuffer(stored.content, stored.dtype.numpy).reshape(stored.shape)
        # Kernels read at aligned addresses only, which the usual writers see to.
        return native(array if array.flags.aligned else array.copy())
    block = BLOCKS.get(stored.encoding)
    if block is None:
        raise ModelError(
            f"load: tensor {name[:SHOWN]!r} is of dtype {stored.encoding}, which no array holds",
            help="convert it to another dtype",
        )
    if raw:
        *rows, last = stored.shape
        data = np.frombuffer(stored.content, np.uint8).reshape(*rows, last // block.elements * block.size)
        return QuantizedTensor(stored.encoding, stored.shape, data)
    return dequantize(np.frombuffer(stored.content, np.uint8), stored.encoding, stored.shape)


def shape_fault(shape: Sequence[Any]) -> str:
    """Return what is wrong with dims that a file says; "" where they are those of an array."""
    if len(shape) > _MOST_DIMS:
        return f"it has {len(shape)} dims, and {_MOST_DIMS} are the most that an array has"
    if not all(type(d) is int and d >= 0 for d in shape):
        return f"{str(list(shape))[:SHOWN]} is no shape"
    if math.prod(d or 1 for d in shape) > _MOST_ELEMENTS:
        return f"its dims are {str(list(shape))[:SHOWN]}"
    return ""


def damaged(path: str, what: str) -> ModelError:
    return ModelError(f"load: {path[:SHOWN]}: {what}", help="the file is cut short or damaged: fetch it again")
