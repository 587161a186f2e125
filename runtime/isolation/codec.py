"""Encode values as bytes: their kinds and shapes in a frame, their elements in a block of shared memory.

The reader trusts nothing: it checks each size and offset against the frame and the block, and returns only arrays,
text, numbers, lists, dicts and None.
"""

from __future__ import annotations

import codecs
import math
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from graphcore.arrays.big_integers import storage_axis
from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError
from graphcore.runtime.isolation.framing import Malformed
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, Shape, TensorType, Type

_DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(each)
    for each in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"),
        *("float64", "complex64", "complex128"),
        *(
            getattr(ml_dtypes, name)
            for name in (
                *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
                *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "int4", "uint4", "int2", "uint2"),
            )
        ),
    )
)
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_BOOL = np.dtype(bool)

_TENSOR, _TEXT, _LIST, _MAP, _NONE = range(5)
_HEAD = struct.Struct("<BBBQ")
"""The head of a tensor: its kind, the code of its dtype, its rank and the offset of its elements; the dims follow."""
_COUNT = struct.Struct("<BI")
_ALIGNED = 64
_MAX_DEPTH = 32
MAX_DIMS = 64
"""Maximum number of dims of an array."""
_VALUE, _STRING, _ENTRY = 256, 80, 160
"""Approximate bytes of an array, a string and an entry of a map. Their sender has used at least as many."""
_AT_ONCE = 4096
"""Strings or entries that are read between two checks of the time."""
_PIECE = 1 << 20
"""Bytes of a string that are read between two checks of the time."""


class ValueWriter:
    """Encodes values: `head` is for the frame, and `write` copies the elements to a block."""

    __slots__ = ("_pieces", "head", "size")

    def __init__(self, values: Iterable[Any]) -> None:
        """Raises `TypeError` for a value that cannot be encoded."""
        self.size = 0
        self._pieces: list[tuple[int, Array]] = []
        head: list[bytes] = []
        for value in values:
            self._add(value, head)
        self.head = b"".join(head)

    def _add(self, value: Any, head: list[bytes]) -> None:
        if isinstance(value, np.ndarray):
            if value.dtype == object:
                self._text(value, head)
            else:
                self._tensor(value, _TENSOR, head)
        elif value is None:
            head.append(_COUNT.pack(_NONE, 0))
        elif isinstance(value, (list, tuple)):
            head.append(_COUNT.pack(_LIST, len(value)))
            for each in value:
                self._add(each, head)
        elif isinstance(value, Mapping):
            head.append(_COUNT.pack(_MAP, len(value)))
            self._add(_column(value.keys()), head)
            self._add(_column(value.values()), head)
        elif isinstance(value, (str, int, float, np.generic)):
            self._add(_column([value])[0:1].reshape(()), head)
        else:
            raise TypeError(f"a value must be an array, list, dict or None, got {type(value).__name__}")

    def _tensor(self, array: Array, kind: int, head: list[bytes]) -> None:
        code = _CODES.get(array.dtype)
        if code is None:
            raise TypeError(f"an array of {array.dtype}")
        place = self._put(array)
        shape = array.shape
        head.append(_HEAD.pack(kind, code, len(shape), place) + struct.pack(f"<{len(shape)}Q", *shape))

    def _text(self, array: Array, head: list[bytes]) -> None:
        """Add strings: their lengths as a tensor of the same shape, and then their bytes as another."""
        pieces = [_encoded(item) for item in array.flat]
        lengths = np.fromiter(map(len, pieces), np.uint32, len(pieces)).reshape(array.shape)
        self._tensor(lengths, _TEXT, head)
        self._tensor(np.frombuffer(b"".join(pieces), np.uint8), _TENSOR, head)

    def _put(self, array: Array) -> int:
        place = -(-self.size // _ALIGNED) * _ALIGNED
        self.size = place + array.nbytes
        if array.nbytes:
            self._pieces.append((place, array))
        return place

    def write(self, block: Array) -> None:
        """Copy the elements into a block of at least `size` bytes."""
        for place, array in self._pieces:
            flat = array.reshape(-1).view(np.uint8)
            block[place : place + flat.size] = flat


def _encoded(item: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if not isinstance(item, str):
        raise TypeError(f"a {type(item).__name__} among strings")
    return item.encode("utf-8", "surrogatepass")


def _column(items: Iterable[Any]) -> Array:
    """Return keys or values of a map as an array of one axis."""
    listed = list(items)
    if all(isinstance(item, str) for item in listed):
        array = np.empty(len(listed), object)
        array[:] = listed
        return array
    array = np.asarray(listed)
    if array.ndim != 1 or array.dtype not in _CODES:
        raise TypeError("keys and values of a map must be numbers or text")
    return array


class ValueReader:
    """Reads values that a `ValueWriter` has put into a frame and a block.

    is_copied: whether arrays are copies, or else views of the block. memory: maximum bytes of objects and copies, which
    the sender of the values needs too. deadline: of `time.monotonic`.
    """

    __slots__ = ("_block", "_deadline", "_head", "_is_copied", "_memory", "_place")

    def __init__(
        self, head: bytes, block: Array, is_copied: bool, memory: float = math.inf, deadline: float = math.inf
    ) -> None:
        self._head = head
        self._block = block
        self._is_copied = is_copied
        self._memory = memory
        self._deadline = deadline
        self._place = 0

    def values(self, count: int) -> list[Any]:
        """Return exactly `count` values.

        Raises `Malformed` for bytes that no `ValueWriter` makes and for values that take more memory than the sender
        has, and `TimeoutError` if the time is over.
        """
        try:
            values = self._read_values(count, 0)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            raise Malformed(f"values that cannot be read: {error}") from None
        if self._place != len(self._head):
            raise Malformed("more values than requested")
        return values

    def _take(self, size: int) -> None:
        """Count bytes that are about to be allocated, and check the time."""
        self._memory -= size
        if self._memory < 0:
            raise Malformed("values that take more memory than its limit")
        if time.monotonic() >= self._deadline:
            raise TimeoutError

    def _read_values(self, count: int, depth: int) -> list[Any]:
        self._take(count * _VALUE)
        return [self._value(depth) for _ in range(count)]

    def _value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise Malformed("lists that are nested too deeply")
        self._take(0)
        kind = self._head[self._place]
        if kind == _TENSOR:
            return self._tensor(self._is_copied)
        if kind == _TEXT:
            return self._text()
        _, count = _COUNT.unpack_from(self._head, self._place)
        self._place += _COUNT.size
        if kind == _NONE:
            return None
        if kind == _LIST:
            if count * _COUNT.size > len(self._head):
                raise Malformed("a list that is longer than its frame")
            return self._read_values(count, depth + 1)
        if kind == _MAP:
            return self._map(*self._read_values(2, depth + 1))
        raise Malformed(f"a value of kind {kind}")

    def _map(self, keys: Any, values: Any) -> dict[Any, Any]:
        columns = [each for each in (keys, values) if isinstance(each, np.ndarray) and each.ndim == 1]
        if len(columns) < 2 or keys.shape != values.shape:
            raise Malformed("a map with different numbers of keys and values")
        mapping: dict[Any, Any] = {}
        for start in range(0, len(keys), _AT_ONCE):
            self._take(min(_AT_ONCE, len(keys) - start) * _ENTRY)
            part = slice(start, start + _AT_ONCE)
            mapping.update(zip(keys[part].tolist(), values[part].tolist(), strict=True))
        return mapping

    def _tensor(self, is_copied: bool) -> Array:
        _, code, rank, place = _HEAD.unpack_from(self._head, self._place)
        self._place += _HEAD.size
        if rank > MAX_DIMS or code >= len(_DTYPES):
            raise Malformed(f"an array of {rank} dims, of dtype {code}")
        shape = struct.unpack_from(f"<{rank}Q", self._head, self._place)
        self._place += 8 * rank
        dtype = _DTYPES[code]
        size = math.prod(shape, start=dtype.itemsize)
        if place % _ALIGNED or place + size > self._block.size or max(shape, default=0) >= 1 << 62:
            raise Malformed("an array that is larger than its block")
        flat = self._block[place : place + size]
        if is_copied or dtype is _BOOL:
            self._take(size)  # arrays may overlap
        if dtype is _BOOL:
            bools: Array = np.not_equal(flat, 0).reshape(shape)
            return bools  # bytes other than 0 and 1 are not valid bools
        array: Array = flat.view(dtype).reshape(shape)
        return array.copy() if is_copied else array

    def _text(self) -> Array:
        lengths = self._tensor(is_copied=False)
        if self._head[self._place] != _TENSOR:
            raise Malformed("strings without bytes")
        content = self._tensor(is_copied=False)
        if lengths.dtype != np.uint32 or content.dtype != np.uint8:
            raise Malformed("strings without lengths or bytes")
        self._take(12 * lengths.size)
        lengths = lengths.copy()  # the block may change meanwhile
        if content.ndim != 1 or lengths.sum(dtype=np.uint64) != content.size:
            raise Malformed("strings whose lengths are not those of their bytes")
        # Python shares strings of one character, and one wide character makes a whole string wide
        self._take(_STRING * int(np.count_nonzero(lengths > 1)) + 4 * content.size)
        strings = np.empty(lengths.shape, object)
        flat, counts, place = strings.reshape(-1), lengths.reshape(-1), 0
        for start in range(0, counts.size, _AT_ONCE):
            self._take(0)
            part = counts[start : start + _AT_ONCE]
            end = place + int(part.sum(dtype=np.uint64))
            data, at = content[place:end].tobytes(), 0
            for index, length in enumerate(part.tolist(), start):
                item = data[at : at + length]
                flat[index] = item.decode("utf-8", "replace") if length <= _AT_ONCE else self._long(item)
                at += length
            place = end
        return strings

    def _long(self, item: bytes) -> str:
        """Decode a long string, with checks of the time in between."""
        decoder, pieces = codecs.getincrementaldecoder("utf-8")("replace"), []
        for start in range(0, len(item), _PIECE):
            self._take(0)
            pieces.append(decoder.decode(item[start : start + _PIECE], start + _PIECE >= len(item)))
        return "".join(pieces)


# Types of inputs and outputs as JSON, and back from an untrusted worker.

_MAX_LENGTH = 1000
"""Maximum number of characters of a name or a dim."""
_MAX_BITS = 1 << 20


def types_to_json(types: Mapping[str, Type]) -> list[Any]:
    """Return types by name as a value for JSON."""
    return [[name, _type_to_json(type_)] for name, type_ in types.items()]


def _type_to_json(type_: Type) -> list[Any]:
    if isinstance(type_, TensorType):
        dims = [_dim_of(dim) for dim in type_.shape] if type_.shape.is_ranked else None
        return ["tensor", type_.dtype.name, dims, type_.ambiguous]
    if isinstance(type_, (SequenceType, OptionalType)):
        return ["sequence" if isinstance(type_, SequenceType) else "optional", _type_to_json(type_.element)]
    return ["opaque", type_.name, type_.onnx.hex()]


def _dim_of(dim: Dim) -> int | str | None:
    if dim.is_static:
        return int(dim)
    text = str(dim)
    return None if dim.is_dynamic or len(text) > _MAX_LENGTH else text


def types_from_json(types_to_json: object, deadline: float = math.inf) -> dict[str, Type]:
    """Return types by name of what `types_to_json` gave. Raises `Malformed` for anything else.

    deadline: of `time.monotonic`. Raises `TimeoutError` then: expressions of dims take time to parse.
    """
    try:
        types = {_name(name): _type(type_, 0, deadline) for name, type_ in types_to_json}  # type: ignore[attr-defined]
    except (GraphcoreError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Malformed(f"types that cannot be read: {error}") from None
    return types


def _type(description: Any, depth: int, deadline: float) -> Type:
    kind, *rest = description
    if time.monotonic() >= deadline:
        raise TimeoutError
    if depth > 16:
        raise ValueError("a type that is nested too deep")
    if kind == "tensor":
        name, dims, is_ambiguous = rest
        dtype = DType.of(_name(name))
        if dtype.bits > _MAX_BITS:
            raise ValueError("an integer with too many bits")
        if dims is not None and len(dims) > MAX_DIMS:
            raise ValueError(f"{len(dims)} dims")
        shape = Shape.unknown() if dims is None else Shape(_dim(dim, deadline) for dim in dims)
        return TensorType(dtype, shape, ambiguous=bool(is_ambiguous))
    if kind in ("sequence", "optional"):
        (element,) = rest
        return (SequenceType if kind == "sequence" else OptionalType)(_type(element, depth + 1, deadline))
    if kind == "opaque":
        name, onnx = rest
        return OpaqueType(_name(name), bytes.fromhex(onnx))
    raise ValueError(f"a type of kind {kind!r:.40}")


def _dim(value: Any, deadline: float) -> Dim:
    if value is None:
        return Dim.dynamic()
    if time.monotonic() >= deadline:
        raise TimeoutError
    if isinstance(value, str) and len(value) > _MAX_LENGTH:
        raise ValueError("a dim that is too long")
    dim = Dim(value)
    if isinstance(value, str) and str(dim) != value:
        raise ValueError("a dim that is not written as dims are")
    return dim


def _name(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_LENGTH:
        raise ValueError("an invalid name")
    return value


def expected_dtype(type_: Type) -> tuple[Any, tuple[int, ...]]:
    """Return the dtype of a tensor type's arrays, None for other types, and the additional dim of wide integers."""
    if not isinstance(type_, TensorType):
        return None, ()
    if type_.dtype is DType.string or type_.dtype.is_complex:
        return type_.dtype.numpy, ()
    return type_.dtype.storage.numpy, storage_axis(type_.dtype)
