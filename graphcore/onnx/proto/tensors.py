"""TensorProtos as arrays. What a file says of sizes is checked against what it holds, before anything is made."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.external_data import Folder
from graphcore.errors import DTypeError, ModelError
from graphcore.onnx.proto.limits import check_text
from graphcore.onnx.proto.type_protos import read_type
from graphcore.types.dtypes import DType

Array = np.ndarray[Any, Any]

# Which field holds the elements of a TensorProto without raw_data, and the NumPy dtype that it is read as.
_FIELDS: dict[DType, tuple[str, Any]] = {
    DType.float32: ("float_data", np.float32),
    DType.float64: ("double_data", np.float64),
    DType.int64: ("int64_data", np.int64),
    DType.uint64: ("uint64_data", np.uint64),
    DType.uint32: ("uint64_data", np.uint64),
}
_NARROW = ("int32_data", np.int32)


def array_of(proto: onnx.TensorProto, folder: Folder, content: memoryview | None = None) -> tuple[Array, DType]:
    """The array of a tensor, and its dtype; it shares the memory of what is mapped.

    content: its raw bytes, where they were taken out of the proto. Raises `ModelError` for a tensor that is not what it
    says, `UnsafePathError` for one that lies where it must not.
    """
    dims = tuple(proto.dims)
    name = _Named(proto)
    try:
        dtype = DType.of(proto.data_type)
    except DTypeError:
        kinds = onnx.TensorProto.DataType
        kind = kinds.Name(proto.data_type) if proto.data_type in kinds.values() else proto.data_type
        raise ModelError(f"load: {name} is of type {kind}", help="convert it to a dtype of DType") from None
    if dims and min(dims) < 0:
        raise ModelError(
            f"load: {name} has the dims {list(dims[:_MOST_DIMS])}", help="write the model again: no dim is negative"
        )
    if len(dims) > _MOST_DIMS:
        raise ModelError(
            f"load: {name} has {len(dims)} dims, and {_MOST_DIMS} are the most that an array has", help="flatten it"
        )
    count = math.prod(dims)
    if not count and math.prod(d or 1 for d in dims) > _MOST_ELEMENTS:
        raise ModelError(f"load: {name} has no elements, and the dims {list(dims)}", help="write the model again")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        content = _external(proto, folder, name, dtype, count)
    if dtype is DType.string:
        return _strings(proto, name, dims, count), dtype
    if content is None and proto.HasField("raw_data"):
        content = memoryview(proto.raw_data)
    if content is not None:
        return _raw(content, dtype, dims, count, name), dtype
    if dtype is DType.bool and proto.int32_data and not 0 <= min(proto.int32_data) <= max(proto.int32_data) <= 1:
        raise _no_bool(name)
    field, kind = _FIELDS.get(dtype, _NARROW)
    values = getattr(proto, field)
    expected = -(-count * dtype.bits // 8) if dtype.bits in (2, 4) else count
    if len(values) != expected:
        raise _size(name, dims, dtype, f"{len(values)} elements")
    array = np.array(values, kind)
    if dtype.bits in (2, 4):
        return _unpacked(array.astype(np.uint8), dtype, count).reshape(dims), dtype
    if kind is np.int32 and dtype.is_float:  # bit patterns
        return array.astype(f"u{dtype.numpy.itemsize}").view(dtype.numpy).reshape(dims), dtype
    return array.astype(dtype.numpy).reshape(dims), dtype


class _Named:
    """A tensor as errors call it."""

    __slots__ = ("_proto",)

    def __init__(self, proto: onnx.TensorProto) -> None:
        self._proto = proto

    def __str__(self) -> str:
        return f"tensor {self._proto.name[:_SHOWN]!r}"


def dense(proto: onnx.SparseTensorProto, folder: Folder) -> tuple[Array, DType]:
    """The array of a sparse tensor, with zeros where nothing is said. Raises `ModelError`."""
    values, dtype = array_of(proto.values, folder)
    indices, _ = array_of(proto.indices, folder)
    dims = tuple(proto.dims)
    name = f"sparse tensor {proto.values.name!r}"
    whole = math.prod(dims) if all(d >= 0 for d in dims) else -1
    if whole < 0 or values.ndim != 1 or indices.dtype != np.int64 or indices.shape[:1] != values.shape:
        raise ModelError(f"load: {name} is not what ONNX says of one", help="write the model again")
    if whole > _LARGEST_DENSE:
        raise ModelError(f"load: {name} would have {whole} elements", help="store it dense, if it is meant")
    if indices.ndim == 2 and indices.shape[1] == len(dims):
        if ((indices < 0) | (indices >= np.array(dims, np.int64))).any():
            raise ModelError(f"load: {name} has indices out of {list(dims)}", help="write the model again")
        indices = np.ravel_multi_index(tuple(indices.T), dims) if len(dims) else np.zeros(len(values), np.int64)
    elif indices.ndim != 1 or ((indices < 0) | (indices >= whole)).any():
        raise ModelError(f"load: {name} has indices out of {list(dims)}", help="write the model again")
    made = np.full(whole, "", object) if dtype is DType.string else np.zeros(whole, dtype.numpy)
    made[indices] = values
    return made.reshape(dims), dtype


_LINE = 64
_SMALL = 1 << 16
"""Bytes of arrays that move up to which no large pages are to be had."""


def aligned(arrays: Sequence[Array]) -> list[Array]:
    """The arrays at addresses that kernels can read them from: protobuf puts tensors anywhere.

    Those that have to move lie in one piece of memory, which the system gives in large pages: a third of the time.
    """
    places, size = {}, 0
    for position, array in enumerate(arrays):
        if not array.flags.aligned:
            places[position] = size
            size += -(-array.nbytes // _LINE) * _LINE
    if not places:
        return list(arrays)
    if size <= _SMALL:
        return [array if array.flags.aligned else array.copy() for array in arrays]
    memory = np.empty(size + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    made = list(arrays)
    for position, place in places.items():
        array = arrays[position]
        room = memory[start + place : start + place + array.nbytes].view(array.dtype).reshape(array.shape)
        room[...] = array
        made[position] = room
    return made


_KEYS = frozenset({"basepath", "checksum", "length", "location", "offset"})
"""The keys of external data; onnxruntime has more, which begin with "prepacked". `checksum` and `basepath` mean nothing
to readers."""

_LARGEST_DENSE = 1 << 28

_MOST_DIMS = 64
_MOST_ELEMENTS = 1 << 59
"""The limit of NumPy's shapes, with elements or without."""

_SHOWN = 256
"""Characters of a name that errors show."""


def _external(proto: onnx.TensorProto, folder: Folder, name: object, dtype: DType, count: int) -> memoryview:
    entries = {entry.key: entry.value for entry in proto.external_data}
    check_text((*entries, *entries.values()), str(name))
    unknown = [key for key in entries if key not in _KEYS and not key.startswith("prepacked")]
    if unknown or len(entries) < len(proto.external_data):
        what = f"the key {unknown[0][:_SHOWN]!r}, which ONNX has not" if unknown else "a key twice"
        raise ModelError(
            f"load: {name} says where its data lies by {what}",
            help=f"write the model again: {', '.join(sorted(_KEYS))} are known",
        )
    location = entries.get("location", "")
    size = -(-count * dtype.bits // 8) if dtype.bits < 8 and dtype is not DType.bool else count * dtype.numpy.itemsize
    try:
        offset, length = int(entries.get("offset", "0") or 0), int(entries.get("length", str(size)) or size)
    except ValueError:
        raise ModelError(
            f"load: {name} has no number as its place in {location!r}", help="write the model again"
        ) from None
    if dtype is DType.string:
        raise ModelError(f"load: {name} holds strings outside of the model", help="keep strings in the model")
    content = folder.content(location.replace(os.sep, "/"), str(name))
    if offset < 0 or length < 0 or offset + length > len(content):
        raise ModelError(
            f"load: {name} lies at {offset} to {offset + length} of {location!r}, which has {len(content)} bytes",
            help="the file is cut short, or another model's",
        )
    return content[offset : offset + length]


def _raw(content: memoryview, dtype: DType, dims: tuple[int, ...], count: int, name: object) -> Array:
    if dtype.bits in (2, 4):
        if len(content) != -(-count * dtype.bits // 8):
            raise _size(name, dims, dtype, f"{len(content)} bytes")
        return _unpacked(np.frombuffer(content, np.uint8), dtype, count).reshape(dims)
    if len(content) != count * dtype.numpy.itemsize:
        raise _size(name, dims, dtype, f"{len(content)} bytes")
    if dtype is DType.bool:
        bits = np.frombuffer(content, np.uint8)
        if bits.size and bits.max() > 1:
            raise _no_bool(name)
        return bits.view(np.bool_).reshape(dims)
    return np.frombuffer(content, dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False).reshape(dims)


def _no_bool(name: object) -> ModelError:
    return ModelError(f"load: {name} is of bool, and has bytes other than 0 and 1", help="write the model again")


def _unpacked(packed: Array, dtype: DType, count: int) -> Array:
    """Elements of 2 or 4 bits, the first in the lowest bits of a byte."""
    bits = dtype.bits
    parts = np.stack([packed >> np.uint8(i) & np.uint8((1 << bits) - 1) for i in range(0, 8, bits)], -1)
    values = parts.reshape(-1)[:count]
    if dtype.is_float:
        return values.view(dtype.numpy)
    whole = values.astype(np.int8)
    if dtype.is_signed:
        whole -= (whole >> (bits - 1)) << bits
    return whole.astype(dtype.numpy)


def _strings(proto: onnx.TensorProto, name: object, dims: tuple[int, ...], count: int) -> Array:
    if len(proto.string_data) != count:
        raise _size(name, dims, DType.string, f"{len(proto.string_data)} elements")
    made = np.empty(count, object)
    for position, item in enumerate(proto.string_data):
        try:
            made[position] = item.decode()
        except UnicodeDecodeError:
            made[position] = item  # handed on as it is
    return made.reshape(dims)


def _size(name: object, dims: tuple[int, ...], dtype: DType, held: str) -> ModelError:
    return ModelError(
        f"load: {name} is {dtype}{list(dims)} and holds {held}", help="the file is cut short, or was written wrongly"
    )


# Attributes of nodes as Python values.

_CONSTANTS = {
    "value_int": DType.int64,
    "value_ints": DType.int64,
    "value_float": DType.float32,
    "value_floats": DType.float32,
    "value_string": DType.string,
    "value_strings": DType.string,
}


def read_attributes(
    proto: onnx.NodeProto, folder: Folder, place: object
) -> tuple[dict[str, Any], dict[str, onnx.GraphProto]]:
    """The attributes of a node, and those among them that are graphs."""
    found: dict[str, Any] = {}
    inner: dict[str, onnx.GraphProto] = {}
    for attribute in proto.attribute:
        if attribute.name in found or attribute.name in inner:
            raise ModelError(f"load: {place} has the attribute {attribute.name!r} twice", help="write it again")
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner[attribute.name] = attribute.g
            continue
        value = _value(attribute, folder, place)
        # An empty list of strings or floats is what an absent one is, and has no type in Python.
        if not (isinstance(value, list) and not value and attribute.type != onnx.AttributeProto.INTS):
            found[attribute.name] = value
    return found, inner


def _value(attribute: onnx.AttributeProto, folder: Folder, place: object) -> Any:
    kinds = onnx.AttributeProto
    if attribute.ref_attr_name:
        raise ModelError(
            f"load: {place}: attribute {attribute.name!r} refers to one of a function, and is in none",
            help="write the model again",
        )
    match attribute.type:
        case kinds.FLOAT:
            return attribute.f
        case kinds.INT:
            return attribute.i
        case kinds.STRING:
            return _text(attribute.s)
        case kinds.TENSOR:
            return array_of(attribute.t, folder)[0]
        case kinds.FLOATS:
            return list(attribute.floats)
        case kinds.INTS:
            return list(attribute.ints)
        case kinds.STRINGS:
            words = list(attribute.strings)
            texts = {word: _text(word) for word in {*words}}  # trees say one of a few words for each of many nodes
            return [*map(texts.__getitem__, words)]
        case kinds.TYPE_PROTO:
            return read_type(attribute.tp)
        case kinds.SPARSE_TENSOR:
            return dense(attribute.sparse_tensor, folder)[0]
    kind = kinds.AttributeType.Name(attribute.type) if attribute.type in kinds.AttributeType.values() else "unknown"
    raise ModelError(f"load: {place}: attribute {attribute.name!r} is of kind {kind}", help="write it otherwise")


def constant_value(
    proto: onnx.NodeProto, folder: Folder, place: object, content: memoryview | None = None
) -> tuple[np.ndarray[Any, Any], DType]:
    """Return what a Constant node holds. content: its raw bytes, where they were taken out. Raises `ModelError`."""
    if len(proto.attribute) != 1:
        raise ModelError(f"load: {place} says {len(proto.attribute)} values", help="write the model again")
    (attribute,) = proto.attribute
    if attribute.name == "value":
        array, dtype = array_of(attribute.t, folder, content)
    elif attribute.name == "sparse_value":
        array, dtype = dense(attribute.sparse_tensor, folder)
    else:
        value = _value(attribute, folder, place)
        kind = _CONSTANTS.get(attribute.name)
        if kind is None:
            raise ModelError(f"load: {place} has no value", help="write the model again")
        array, dtype = np.array(value, kind.numpy), kind
    return array, dtype


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def dtype_value(number: Any, place: object) -> DType:
    """The dtype that an attribute gives the number of. Raises `ModelError`."""
    try:
        return DType.of(number)
    except DTypeError:
        raise ModelError(
            f"load: {place}: ONNX has no dtype {number!r} that graphcore knows", help="cast elsewhere"
        ) from None


def with_attributes(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A copy of a node of a function, references to the function's attributes replaced; absent ones are left out."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = given.get(attribute.ref_attr_name)
            if value is not None:
                added = made.attribute.add()
                added.CopyFrom(value)
                added.name = attribute.name
            continue
        added = made.attribute.add()
        added.CopyFrom(attribute)
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner = [with_attributes(n, given) for n in attribute.g.node]
            del added.g.node[:]
            added.g.node.extend(inner)
    return made
