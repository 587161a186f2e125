"""Values as bytes: their kinds and shapes in a frame, their elements in a block of shared memory.

Nothing that is read is trusted: each size and place is held against the frame and the block, and nothing but arrays,
text, numbers, lists, dicts and None comes of them.
"""

from __future__ import annotations

import codecs
import json
import math
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError
from graphcore.runtime.isolation.framing import Malformed
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, Shape, TensorType, Type

_DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(each)
    for each in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"),
        *("float64", "complex64", "complex128"),
        *(
            getattr(ml_dtypes, name)
            for name in (
                *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
                *("float4_e2m1fn", "int4", "uint4", "int2", "uint2"),
            )
        ),
    )
)
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_BOOL = np.dtype(bool)

_TENSOR, _TEXT, _LIST, _MAP, _NONE = range(5)
_HEAD = struct.Struct("<BBBQ")
"""Of a tensor: its kind, the code of its dtype, its rank and the place of its elements; the dims follow."""
_COUNT = struct.Struct("<BI")
_ALIGNED = 64
_DEEPEST = 32
MOST_DIMS = 64
"""The dims that an array has at most."""
_VALUE, _STRING, _ENTRY = 256, 80, 160
"""Bytes of an array, of a string and of an entry of a map, about; whoever sends one has taken no less for it."""
_AT_ONCE = 4096
"""Strings or entries that are read between two looks at the clock."""
_PIECE = 1 << 20
"""Bytes of a string that are."""


class Layout:
    """Values put one after the other: what goes into a frame, and what into a block."""

    __slots__ = ("_pieces", "head", "size")

    def __init__(self, values: Iterable[Any]) -> None:
        """Raises `TypeError` for what is none of the kinds that there are."""
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
            raise TypeError(f"a {type(value).__name__} is no array, list, dict or None")

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
        """Copy the elements into the bytes of a block that has room for `size`."""
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
        made = np.empty(len(listed), object)
        made[:] = listed
        return made
    made = np.asarray(listed)
    if made.ndim != 1 or made.dtype not in _CODES:
        raise TypeError("a map of what are neither numbers nor text")
    return made


class Reader:
    """Reads values that a `Layout` has put into a frame and a block.

    is_copied: whether arrays are the reader's own; they lie in the block otherwise. memory: bytes that objects and
    copies may take, which the process that sent the values needs for them as well. deadline: of `time.monotonic`.
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
        """Return so many values, which must be all.

        Raises `Malformed` for bytes that no `Layout` makes and for values that take more memory than the sender has,
        and `TimeoutError` where the time is over.
        """
        try:
            made = self._listed(count, 0)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            raise Malformed(f"values that cannot be read: {error}") from None
        if self._place != len(self._head):
            raise Malformed("more values than were asked for")
        return made

    def _take(self, size: int) -> None:
        """Count bytes that are about to be taken, and look at the clock."""
        self._memory -= size
        if self._memory < 0:
            raise Malformed("values that take more memory than it may have")
        if time.monotonic() >= self._deadline:
            raise TimeoutError

    def _listed(self, count: int, depth: int) -> list[Any]:
        self._take(count * _VALUE)
        return [self._value(depth) for _ in range(count)]

    def _value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise Malformed("lists that are nested too deep")
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
            return self._listed(count, depth + 1)
        if kind == _MAP:
            return self._map(*self._listed(2, depth + 1))
        raise Malformed(f"a value of kind {kind}")

    def _map(self, keys: Any, values: Any) -> dict[Any, Any]:
        columns = [each for each in (keys, values) if isinstance(each, np.ndarray) and each.ndim == 1]
        if len(columns) < 2 or keys.shape != values.shape:
            raise Malformed("a map of other values than keys")
        made: dict[Any, Any] = {}
        for start in range(0, len(keys), _AT_ONCE):
            self._take(min(_AT_ONCE, len(keys) - start) * _ENTRY)
            part = slice(start, start + _AT_ONCE)
            made.update(zip(keys[part].tolist(), values[part].tolist(), strict=True))
        return made

    def _tensor(self, is_copied: bool) -> Array:
        _, code, rank, place = _HEAD.unpack_from(self._head, self._place)
        self._place += _HEAD.size
        if rank > MOST_DIMS or code >= len(_DTYPES):
            raise Malformed(f"an array of {rank} dims, of dtype {code}")
        shape = struct.unpack_from(f"<{rank}Q", self._head, self._place)
        self._place += 8 * rank
        dtype = _DTYPES[code]
        size = dtype.itemsize
        for dim in shape:
            size *= dim
        if place % _ALIGNED or place + size > self._block.size or max(shape, default=0) >= 1 << 62:
            raise Malformed("an array that is larger than its block")
        flat = self._block[place : place + size]
        if is_copied or dtype is _BOOL:
            self._take(size)  # arrays may lie upon each other
        if dtype is _BOOL:
            made: Array = np.not_equal(flat, 0).reshape(shape)
            return made  # a byte that is neither 0 nor 1 is no bool
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
        # of strings with one character Python makes no objects, and one character that is wide makes all of them wide
        self._take(_STRING * int(np.count_nonzero(lengths > 1)) + 4 * content.size)
        made = np.empty(lengths.shape, object)
        flat, counts, place = made.reshape(-1), lengths.reshape(-1), 0
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
        return made

    def _long(self, item: bytes) -> str:
        """Return a string of many bytes, with looks at the clock in the midst of it."""
        decoder, pieces = codecs.getincrementaldecoder("utf-8")("replace"), []
        for start in range(0, len(item), _PIECE):
            self._take(0)
            pieces.append(decoder.decode(item[start : start + _PIECE], start + _PIECE >= len(item)))
        return "".join(pieces)


# Types of inputs and outputs as JSON, and back from a worker that is not trusted.

_LONGEST = 1000
"""The characters that a name or a dim may have."""
_MOST_BITS = 1 << 20


def described(types: Mapping[str, Type]) -> list[Any]:
    """Return types by name as what JSON holds."""
    return [[name, _described(type_)] for name, type_ in types.items()]


def _described(type_: Type) -> list[Any]:
    if isinstance(type_, TensorType):
        dims = [_dim_of(dim) for dim in type_.shape] if type_.shape.is_ranked else None
        return ["tensor", type_.dtype.name, dims, type_.ambiguous]
    if isinstance(type_, SequenceType):
        return ["sequence", _described(type_.element)]
    if isinstance(type_, OptionalType):
        return ["optional", _described(type_.element)]
    return ["foreign", type_.name, type_.onnx.hex()]


def _dim_of(dim: Dim) -> int | str | None:
    if dim.is_static:
        return int(dim)
    text = str(dim)
    return None if dim.is_dynamic or len(text) > _LONGEST else text


def types_of(described: object, deadline: float = math.inf) -> dict[str, Type]:
    """Return types by name of what `described` gave. Raises `Malformed` for anything else.

    deadline: of `time.monotonic`. Raises `TimeoutError` then: dims that are expressions take time to read.
    """
    try:
        made = {_name(name): _type(type_, 0, deadline) for name, type_ in described}  # type: ignore[attr-defined]
    except (GraphcoreError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Malformed(f"types that cannot be read: {error}") from None
    return made


def _type(given: Any, depth: int, deadline: float) -> Type:
    kind, *rest = given
    if time.monotonic() >= deadline:
        raise TimeoutError
    if depth > 16:
        raise ValueError("a type that is nested too deep")
    if kind == "tensor":
        name, dims, is_ambiguous = rest
        dtype = DType.of(_name(name))
        if dtype.bits > _MOST_BITS:
            raise ValueError("an integer of so many bits")
        if dims is not None and len(dims) > MOST_DIMS:
            raise ValueError(f"{len(dims)} dims")
        shape = Shape.unknown() if dims is None else Shape(_dim(dim, deadline) for dim in dims)
        return TensorType(dtype, shape, ambiguous=bool(is_ambiguous))
    if kind == "sequence":
        (element,) = rest
        return SequenceType(_type(element, depth + 1, deadline))
    if kind == "optional":
        (element,) = rest
        return OptionalType(_type(element, depth + 1, deadline))
    if kind == "foreign":
        name, onnx = rest
        return ForeignType(_name(name), bytes.fromhex(onnx))
    raise ValueError(f"a type of kind {kind!r:.40}")


def _dim(given: Any, deadline: float) -> Dim:
    if given is None:
        return Dim.dynamic()
    if time.monotonic() >= deadline:
        raise TimeoutError
    if isinstance(given, str) and len(given) > _LONGEST:
        raise ValueError("a dim that is too long")
    made = Dim(given)
    if isinstance(given, str) and str(made) != given:
        raise ValueError("a dim that is not written as dims are")
    return made


def _name(given: object) -> str:
    if not isinstance(given, str) or len(given) > _LONGEST:
        raise ValueError("a name that is none")
    return given


def read(content: bytes) -> Any:
    """Return what JSON of a worker holds. Raises `Malformed` for what is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"JSON that cannot be read: {error}") from None


def written(value: object) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value).encode()
