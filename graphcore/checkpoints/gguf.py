"""The GGUF format, versions 2 and 3: metadata, a table of tensors, their bytes.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md says what is in it. Only little-endian files are read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcore.checkpoints.safetensors import LARGEST_HEADER, SHOWN, Stored, damaged, shape_fault
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

# The numbers of the types that metadata has.
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"), 1: np.dtype("i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<u4"),
    5: np.dtype("<i4"), 6: np.dtype("<f4"), 7: np.dtype("?"), 10: np.dtype("<u8"), 11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}  # fmt: skip
_UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9

_ALIGNMENT = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_DEEPEST = 16
_MOST_DIMS = 4
_MOST_VALUES = 1 << 21
"""Keys, strings and arrays in metadata: each takes some 60 bytes of memory or more, and as few as eight of the file."""
_MOST_TENSORS = 1 << 18
_SHORTEST_PAIR, _SHORTEST_ROW = 13, 24
"""Bytes of a key of no letters with a number of one byte, and of a tensor without a name and dims."""


def read(content: memoryview, path: str) -> tuple[dict[str, Stored], dict[str, Any]]:
    """The tensors and the metadata of a file. Raises `ModelError` and `ResourceLimitError`."""
    cursor = _Cursor(content, path)
    cursor.take(len(MAGIC))
    version = cursor.number(4)
    if version not in (2, 3):
        what = "big endian" if version & 0xFFFF == 0 else f"of version {version}"
        raise ModelError(
            f"load: {path[:SHOWN]} is a GGUF file {what}; versions 2 and 3 in little endian are read",
            help="convert it again with today's tools",
        )
    tensors, pairs = cursor.number(8), cursor.number(8)
    if tensors * _SHORTEST_ROW + pairs * _SHORTEST_PAIR > len(content) - cursor.at:
        raise damaged(path, f"{tensors} tensors and {pairs} keys are said to be in {len(content)} bytes")
    if tensors > _MOST_TENSORS or pairs > _MOST_VALUES:
        raise ResourceLimitError(
            f"load: {path[:SHOWN]}: {tensors} tensors and {pairs} keys; at most {_MOST_TENSORS} and {_MOST_VALUES} "
            "are read",
            help="split the checkpoint into several files",
        )
    metadata: dict[str, Any] = {}
    alignment = _DEFAULT_ALIGNMENT
    for _ in range(pairs):
        key, kind = cursor.string("a key"), cursor.number(4)
        if key in metadata:
            raise damaged(path, f"the key {key[:SHOWN]!r} is there twice")
        metadata[key] = cursor.value(kind, 0)
        if key == _ALIGNMENT:
            alignment = metadata[key]
            if kind != _UINT32 or alignment.bit_count() != 1:
                raise damaged(path, f"{_ALIGNMENT} is {str(alignment)[:SHOWN]}, no power of two in uint32")
    places: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    for _ in range(tensors):
        name = cursor.string("a tensor's name")
        if name in places:
            raise damaged(path, f"the tensor {name[:SHOWN]!r} is there twice")
        places[name] = _place(cursor, name, alignment)
    data = content[cursor.at + -cursor.at % alignment :]
    _check_ranges(places, len(data), path)
    stored = {
        name: Stored(encoding, shape, data[begin : begin + size], _BY_NAME.get(encoding))
        for name, (encoding, shape, begin, size) in places.items()
    }
    return stored, metadata


_BY_NAME = dict(_DTYPES.values())


def _place(cursor: _Cursor, name: str, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
    """A row of the table: encoding, shape, first byte and size in bytes."""
    what = f"tensor {name[:SHOWN]!r}"
    rank = cursor.number(4)
    if rank > _MOST_DIMS:
        raise damaged(cursor.path, f"{what} has {rank} dims, and {_MOST_DIMS} are the most that GGUF has")
    shape = tuple(cursor.number(8) for _ in range(rank))[::-1]  # the file has the dim of neighbours first
    kind, begin = cursor.number(4), cursor.number(8)
    if fault := shape_fault(shape):
        raise damaged(cursor.path, f"{what}: {fault}")
    if begin % alignment:
        raise damaged(cursor.path, f"{what} begins at byte {begin}, no multiple of {alignment}")
    if kind in _DTYPES:
        encoding, dtype = _DTYPES[kind]
        return encoding, shape, begin, math.prod(shape) * dtype.numpy.itemsize
    if kind not in _BLOCKS:
        raise ModelError(
            f"load: {cursor.path[:SHOWN]}: {what} is of type {kind}, which is not known",
            help="convert the file to another encoding",
        )
    block = BLOCKS[_BLOCKS[kind]]
    if not shape or shape[-1] % block.elements:
        raise damaged(
            cursor.path, f"{what} has the dims {list(shape)}, and {_BLOCKS[kind]} has blocks of {block.elements}"
        )
    return _BLOCKS[kind], shape, begin, math.prod(shape) // block.elements * block.size


def _check_ranges(places: dict[str, tuple[str, tuple[int, ...], int, int]], size: int, path: str) -> None:
    """Raise `ModelError` for a tensor after the end of the file, or where another one lies."""
    reached, before = 0, ""
    for name, (_, _, begin, taken) in sorted(places.items(), key=lambda item: item[1][2:]):
        what = f"tensor {name[:SHOWN]!r} lies in the bytes {begin} to {begin + taken}"
        if begin + taken > size:
            raise damaged(path, f"{what}, and the file has {size} for tensors")
        if not taken:
            continue
        if begin < reached:
            raise damaged(path, f"{what}, some of which are those of {before[:SHOWN]!r}")
        reached, before = begin + taken, name


class _Cursor:
    """Reads what stands before the tensors, from the first byte on."""

    def __init__(self, content: memoryview, path: str) -> None:
        self.path = path
        self.at = 0
        self._content = content
        self._values = 0

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self._content):
            raise damaged(
                self.path, f"the file ends at byte {len(self._content)}, and {size} are to come from {self.at}"
            )
        if end > LARGEST_HEADER:
            raise ResourceLimitError(
                f"load: {self.path[:SHOWN]}: metadata of more than {LARGEST_HEADER} bytes are not read",
                help="write the file with less metadata",
            )
        taken = self._content[self.at : end]
        self.at = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def string(self, what: str) -> str:
        raw = self.take(self.number(8))
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            raise damaged(self.path, f"{what} at byte {self.at - len(raw)} is no UTF-8 text") from None

    def value(self, kind: int, depth: int) -> Any:
        """A value of metadata: a Python number or string, an array of numbers, or a list of strings or of arrays."""
        if kind in _NUMBERS:
            return self._numbers(kind, 1)[0].item()
        self._values += 1
        if self._values > _MOST_VALUES:
            raise ResourceLimitError(
                f"load: {self.path[:SHOWN]}: more than {_MOST_VALUES} strings and arrays of metadata are not read",
                help="write the file with less metadata",
            )
        if kind == _STRING:
            return self.string("a string")
        if kind != _ARRAY:
            raise damaged(self.path, f"metadata at byte {self.at} is of type {kind}, which GGUF has not")
        if depth == _DEEPEST:
            raise ResourceLimitError(
                f"load: {self.path[:SHOWN]}: arrays of metadata are nested deeper than {_DEEPEST}",
                help="write the file with simpler metadata",
            )
        inner, count = self.number(4), self.number(8)
        if inner in _NUMBERS:
            return self._numbers(inner, count)
        if inner not in (_STRING, _ARRAY):
            raise damaged(self.path, f"an array at byte {self.at} is of type {inner}, which GGUF has not")
        return [self.value(inner, depth + 1) for _ in range(count)]

    def _numbers(self, kind: int, count: int) -> np.ndarray[Any, Any]:
        raw = np.frombuffer(self.take(count * _NUMBERS[kind].itemsize), np.uint8)
        if kind == _BOOL and count and raw.max() > 1:
            raise damaged(self.path, f"a bool before byte {self.at} is neither 0 nor 1")
        return raw.copy().view(_NUMBERS[kind])  # aligned, and not all of the file for a few numbers
