"""Read the GGUF format, versions 2 and 3: metadata, a table of tensors, their bytes. Only little-endian files are read.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcore.checkpoints.safetensors import MAX_HEADER_BYTES, MAX_NAME_LENGTH, StoredTensor, damaged_file, shape_fault
from graphcore.errors import ModelError, ResourceLimitError
from graphcore.quantization.tensors import BLOCKS
from graphcore.types.dtypes import DType

MAGIC = b"GGUF"

# The numbers of ggml's types.
_DTYPES = {
    0: ("F32", DType.float32), 1: ("F16", DType.float16), 28: ("F64", DType.float64), 30: ("BF16", DType.bfloat16),
    24: ("I8", DType.int8), 25: ("I16", DType.int16), 26: ("I32", DType.int32), 27: ("I64", DType.int64),
}  # fmt: skip
_BLOCKS = {
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip

# The numbers of the types of metadata.
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"), 1: np.dtype("i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<u4"),
    5: np.dtype("<i4"), 6: np.dtype("<f4"), 7: np.dtype("?"), 10: np.dtype("<u8"), 11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}  # fmt: skip
_UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9

_ALIGNMENT = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_MAX_DEPTH = 16
_MAX_DIMS = 4
_MAX_VALUES = 1 << 21
"""Keys, strings and arrays in metadata: each takes 60 bytes of memory or more, but only eight of the file."""
_MAX_TENSORS = 1 << 18
_MIN_PAIR_BYTES, _MIN_ROW_BYTES = 13, 24
"""The minimum size of an entry of metadata, with an empty key, and of a tensor in the table, without name and dims."""


def read(content: memoryview, path: str) -> tuple[dict[str, StoredTensor], dict[str, Any]]:
    """Return the tensors and the metadata of a file. Raises `ModelError`, `ResourceLimitError`."""
    cursor = _Cursor(content, path)
    cursor.take(len(MAGIC))
    version = cursor.number(4)
    if version not in (2, 3):
        what = "big endian" if version & 0xFFFF == 0 else f"of version {version}"
        raise ModelError(
            f"load: {path[:MAX_NAME_LENGTH]} is a GGUF file {what}, but only versions 2 and 3 in little endian "
            "can be read",
            help="convert it again with current tools",
        )
    tensors, pairs = cursor.number(8), cursor.number(8)
    if tensors * _MIN_ROW_BYTES + pairs * _MIN_PAIR_BYTES > len(content) - cursor.at:
        raise damaged_file(path, f"the header claims {tensors} tensors and {pairs} keys in {len(content)} bytes")
    if tensors > _MAX_TENSORS or pairs > _MAX_VALUES:
        raise ResourceLimitError(
            f"load: {path[:MAX_NAME_LENGTH]}: {tensors} tensors and {pairs} keys; at most {_MAX_TENSORS} and "
            f"{_MAX_VALUES} can be read",
            help="split the checkpoint into several files",
        )
    metadata: dict[str, Any] = {}
    alignment = _DEFAULT_ALIGNMENT
    for _ in range(pairs):
        key, kind = cursor.string("a key"), cursor.number(4)
        if key in metadata:
            raise damaged_file(path, f"the key {key[:MAX_NAME_LENGTH]!r} occurs twice")
        metadata[key] = cursor.value(kind, 0)
        if key == _ALIGNMENT:
            alignment = metadata[key]
            if kind != _UINT32 or alignment.bit_count() != 1:
                raise damaged_file(
                    path, f"{_ALIGNMENT} is {str(alignment)[:MAX_NAME_LENGTH]}, but must be a power of two in uint32"
                )
    places: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    for _ in range(tensors):
        name = cursor.string("a tensor's name")
        if name in places:
            raise damaged_file(path, f"the tensor {name[:MAX_NAME_LENGTH]!r} occurs twice")
        places[name] = _place(cursor, name, alignment)
    data = content[cursor.at + -cursor.at % alignment :]
    _check_ranges(places, len(data), path)
    stored = {
        name: StoredTensor(encoding, shape, data[begin : begin + size], _BY_NAME.get(encoding))
        for name, (encoding, shape, begin, size) in places.items()
    }
    return stored, metadata


_BY_NAME = dict(_DTYPES.values())


def _place(cursor: _Cursor, name: str, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
    """Read a row of the table: encoding, shape, first byte and size in bytes."""
    what = f"tensor {name[:MAX_NAME_LENGTH]!r}"
    rank = cursor.number(4)
    if rank > _MAX_DIMS:
        raise damaged_file(cursor.path, f"{what} has {rank} dims, the limit of GGUF is {_MAX_DIMS}")
    shape = tuple(cursor.number(8) for _ in range(rank))[::-1]  # the file has the innermost dim first
    kind, begin = cursor.number(4), cursor.number(8)
    if fault := shape_fault(shape):
        raise damaged_file(cursor.path, f"{what}: {fault}")
    if begin % alignment:
        raise damaged_file(cursor.path, f"{what} begins at byte {begin}, which is not a multiple of {alignment}")
    if kind in _DTYPES:
        encoding, dtype = _DTYPES[kind]
        return encoding, shape, begin, math.prod(shape) * dtype.numpy.itemsize
    if kind not in _BLOCKS:
        raise ModelError(
            f"load: {cursor.path[:MAX_NAME_LENGTH]}: {what} has the unknown type {kind}",
            help="convert the file to another encoding",
        )
    block = BLOCKS[_BLOCKS[kind]]
    if not shape or shape[-1] % block.elements:
        raise damaged_file(
            cursor.path, f"{what} has the dims {list(shape)}, but {_BLOCKS[kind]} has blocks of {block.elements}"
        )
    return _BLOCKS[kind], shape, begin, math.prod(shape) // block.elements * block.size


def _check_ranges(places: dict[str, tuple[str, tuple[int, ...], int, int]], size: int, path: str) -> None:
    """Raise `ModelError` for a tensor beyond the end of the file, or one that overlaps another."""
    end, before = 0, ""
    for name, (_, _, begin, size_in_bytes) in sorted(places.items(), key=lambda item: item[1][2:]):
        what = f"tensor {name[:MAX_NAME_LENGTH]!r} lies in the bytes {begin} to {begin + size_in_bytes}"
        if begin + size_in_bytes > size:
            raise damaged_file(path, f"{what}, but the file has {size} for tensors")
        if not size_in_bytes:
            continue
        if begin < end:
            raise damaged_file(path, f"{what}, which overlaps {before[:MAX_NAME_LENGTH]!r}")
        end, before = begin + size_in_bytes, name


class _Cursor:
    """Reads the header of a file, from the first byte on."""

    def __init__(self, content: memoryview, path: str) -> None:
        self.path = path
        self.at = 0
        self._content = content
        self._values = 0

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self._content):
            raise damaged_file(
                self.path, f"the file ends at byte {len(self._content)}, but {size} bytes are needed from {self.at}"
            )
        if end > MAX_HEADER_BYTES:
            raise ResourceLimitError(
                f"load: {self.path[:MAX_NAME_LENGTH]}: metadata of more than {MAX_HEADER_BYTES} bytes cannot be read",
                help="write the file with less metadata",
            )
        content = self._content[self.at : end]
        self.at = end
        return content

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def string(self, what: str) -> str:
        raw = self.take(self.number(8))
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            raise damaged_file(self.path, f"{what} at byte {self.at - len(raw)} is not valid UTF-8") from None

    def value(self, kind: int, depth: int) -> Any:
        """Read a value of metadata: a number, a string, an array of numbers, or a list of strings or arrays."""
        if kind in _NUMBERS:
            return self._numbers(kind, 1)[0].item()
        self._values += 1
        if self._values > _MAX_VALUES:
            raise ResourceLimitError(
                f"load: {self.path[:MAX_NAME_LENGTH]}: more than {_MAX_VALUES} strings and arrays of metadata "
                "cannot be read",
                help="write the file with less metadata",
            )
        if kind == _STRING:
            return self.string("a string")
        if kind != _ARRAY:
            raise damaged_file(self.path, f"metadata at byte {self.at} has type {kind}, which GGUF does not have")
        if depth == _MAX_DEPTH:
            raise ResourceLimitError(
                f"load: {self.path[:MAX_NAME_LENGTH]}: arrays of metadata are nested deeper than {_MAX_DEPTH}",
                help="write the file with simpler metadata",
            )
        inner, count = self.number(4), self.number(8)
        if inner in _NUMBERS:
            return self._numbers(inner, count)
        if inner not in (_STRING, _ARRAY):
            raise damaged_file(self.path, f"an array at byte {self.at} has type {inner}, which GGUF does not have")
        return [self.value(inner, depth + 1) for _ in range(count)]

    def _numbers(self, kind: int, count: int) -> np.ndarray[Any, Any]:
        raw = np.frombuffer(self.take(count * _NUMBERS[kind].itemsize), np.uint8)
        if kind == _BOOL and count and raw.max() > 1:
            raise damaged_file(self.path, f"a bool before byte {self.at} must be 0 or 1")
        return raw.copy().view(_NUMBERS[kind])  # aligned, and does not keep the whole file mapped
