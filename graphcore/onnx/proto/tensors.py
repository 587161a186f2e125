"""Read TensorProtos as arrays. Declared sizes are checked against the content before anything is allocated."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.external_data import Folder
from graphcore.errors import DTypeError, ModelError
from graphcore.ir.symbol import Symbol
from graphcore.onnx.proto.limits import check_text, invalid
from graphcore.onnx.proto.model_proto import attribute as encoded
from graphcore.onnx.proto.type_protos import read_type
from graphcore.types.dtypes import DType

Array = np.ndarray[Any, Any]

# The field with the elements of a TensorProto without raw_data, and the NumPy dtype to read it as.
_FIELDS: dict[DType, tuple[str, Any]] = {
    DType.float32: ("float_data", np.float32),
    DType.float64: ("double_data", np.float64),
    DType.int64: ("int64_data", np.int64),
    DType.uint64: ("uint64_data", np.uint64),
    DType.uint32: ("uint64_data", np.uint64),
}
_NARROW = ("int32_data", np.int32)


def array_of(proto: onnx.TensorProto, folder: Folder, content: memoryview | None = None) -> tuple[Array, DType]:
    """Return the array of a tensor and its dtype; the array shares memory with a mapped file.

    content: its raw bytes, if they are not in the proto. Raises `ModelError` for a tensor that contradicts its header,
    `UnsafePathError` for one whose file is outside of the model's folder.
    """
    dims = tuple(proto.dims)
    name = _TensorName(proto)
    try:
        dtype = DType.of(proto.data_type)
    except DTypeError:
        kinds = onnx.TensorProto.DataType
        kind = kinds.Name(proto.data_type) if proto.data_type in kinds.values() else proto.data_type
        raise invalid(f"{name} has the unsupported type {kind}", help="convert it to a dtype of DType") from None
    if dims and min(dims) < 0:
        raise invalid(
            f"{name} has negative dims: {list(dims[:_MAX_DIMS])}", help="export the model again without negative dims"
        )
    if len(dims) > _MAX_DIMS:
        raise invalid(f"{name} has {len(dims)} dims, the limit of an array is {_MAX_DIMS}", help="flatten it")
    count = math.prod(dims)
    if not count and math.prod(d or 1 for d in dims) > _MAX_ELEMENTS:
        raise invalid(f"{name} is empty, but the dims {list(dims)} are too large")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        content = external_content(proto, folder)
    if dtype is DType.string:
        return _strings(proto, name, dims, count), dtype
    if content is None and proto.HasField("raw_data"):
        content = memoryview(proto.raw_data)
    if content is not None:
        return _raw(content, dtype, dims, count, name), dtype
    if dtype is DType.bool and proto.int32_data and not 0 <= min(proto.int32_data) <= max(proto.int32_data) <= 1:
        raise _bool_error(name)
    field, kind = _FIELDS.get(dtype, _NARROW)
    values = getattr(proto, field)
    expected = -(-count * dtype.bits // 8) if dtype.bits in (2, 4) else count
    if len(values) != expected:
        raise _size_error(name, dims, dtype, f"{len(values)} elements")
    array = np.array(values, kind)
    if dtype.bits == 6 and count and not 0 <= array.min() <= array.max() < 64:
        raise _size_error(name, dims, dtype, "more bits than an element has")
    if dtype.bits in (2, 4):
        return _unpack(array.astype(np.uint8), dtype, count).reshape(dims), dtype
    if kind is np.int32 and dtype.is_float:  # bit patterns
        return array.astype(f"u{dtype.numpy.itemsize}").view(dtype.numpy).reshape(dims), dtype
    return array.astype(dtype.numpy).reshape(dims), dtype


class _TensorName:
    """The name of a tensor for errors, formatted only when an error occurs."""

    __slots__ = ("_proto",)

    def __init__(self, proto: onnx.TensorProto) -> None:
        self._proto = proto

    def __str__(self) -> str:
        return f"tensor {self._proto.name[:_MAX_NAME_LENGTH]!r}"


def dense(proto: onnx.SparseTensorProto, folder: Folder) -> tuple[Array, DType]:
    """Return a sparse tensor as a dense array, and its dtype. Raises `ModelError`."""
    values, dtype = array_of(proto.values, folder)
    indices, _ = array_of(proto.indices, folder)
    dims = tuple(proto.dims)
    name = f"sparse tensor {proto.values.name!r}"
    size = math.prod(dims) if all(d >= 0 for d in dims) else -1
    if size < 0 or values.ndim != 1 or indices.dtype != np.int64 or indices.shape[:1] != values.shape:
        raise invalid(f"{name} has dims, values or indices that ONNX does not allow")
    if size > _LARGEST_DENSE:
        raise invalid(
            f"{name} would have {size} elements, the limit is {_LARGEST_DENSE}", help="store it as a dense tensor"
        )
    if indices.ndim == 2 and indices.shape[1] == len(dims):
        if ((indices < 0) | (indices >= np.array(dims, np.int64))).any():
            raise invalid(f"{name} has indices out of {list(dims)}")
        indices = np.ravel_multi_index(tuple(indices.T), dims) if len(dims) else np.zeros(len(values), np.int64)
    elif indices.ndim != 1 or ((indices < 0) | (indices >= size)).any():
        raise invalid(f"{name} has indices out of {list(dims)}")
    array = np.full(size, "", object) if dtype is DType.string else np.zeros(size, dtype.numpy)
    array[indices] = values
    return array.reshape(dims), dtype


_LINE = 64
_SMALL = 1 << 16
"""Up to this many bytes, arrays are copied one by one: large pages bring nothing."""


def align(arrays: Sequence[Array]) -> list[Array]:
    """Return the arrays at aligned addresses, which kernels need: protobuf puts tensors anywhere.

    Arrays that must move are copied to one block of memory with large pages, in a third of the time.
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
    result = list(arrays)
    for position, place in places.items():
        array = arrays[position]
        target = memory[start + place : start + place + array.nbytes].view(array.dtype).reshape(array.shape)
        target[...] = array
        result[position] = target
    return result


_KEYS = frozenset({"basepath", "checksum", "length", "location", "offset"})
"""The keys of external data; onnxruntime adds others that begin with "prepacked". Readers ignore `checksum` and
`basepath`."""

_LARGEST_DENSE = 1 << 28

_MAX_DIMS = 64
_MAX_ELEMENTS = 1 << 59
"""The limit of NumPy's shapes, even of empty arrays."""

_MAX_NAME_LENGTH = 256
"""Characters of a name that are shown in errors."""


def external_content(proto: onnx.TensorProto, folder: Folder) -> memoryview:
    """Return the content of a tensor with external data. Raises as `array_of`."""
    name, dtype = _TensorName(proto), DType.of(proto.data_type)
    entries = {entry.key: entry.value for entry in proto.external_data}
    check_text((*entries, *entries.values()), str(name))
    unknown = [key for key in entries if key not in _KEYS and not key.startswith("prepacked")]
    if unknown or len(entries) < len(proto.external_data):
        what = f"the unknown key {unknown[0][:_MAX_NAME_LENGTH]!r}" if unknown else "a key twice"
        raise invalid(
            f"{name}: its external data has {what}",
            help=f"export the model again: the keys are {', '.join(sorted(_KEYS))}",
        )
    location = entries.get("location", "")
    size = _size_of(dtype, math.prod(proto.dims))
    try:
        offset, length = int(entries.get("offset", "0") or 0), int(entries.get("length", str(size)) or size)
    except ValueError:
        raise invalid(f"{name}: offset and length in {location!r} must be numbers") from None
    if dtype is DType.string:
        raise invalid(f"{name} has strings as external data", help="store strings in the model")
    content = folder.content(location.replace(os.sep, "/"), str(name))
    if offset < 0 or length < 0 or offset + length > len(content):
        raise invalid(
            f"{name} lies at {offset} to {offset + length} of {location!r}, which has {len(content)} bytes",
            help="the file is truncated, or belongs to another model",
        )
    return content[offset : offset + length]


def _size_of(dtype: DType, count: int) -> int:
    """Return the number of bytes of elements."""
    return -(-count * dtype.bits // 8) if dtype.bits in (2, 4, 6) else count * dtype.numpy.itemsize


def _raw(content: memoryview, dtype: DType, dims: tuple[int, ...], count: int, name: object) -> Array:
    if len(content) != _size_of(dtype, count):
        raise _size_error(name, dims, dtype, f"{len(content)} bytes")
    if dtype.bits in (2, 4, 6):
        return _unpack(np.frombuffer(content, np.uint8), dtype, count).reshape(dims)
    if dtype is DType.bool:
        bits = np.frombuffer(content, np.uint8)
        if bits.size and bits.max() > 1:
            raise _bool_error(name)
        return bits.view(np.bool_).reshape(dims)
    return np.frombuffer(content, dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False).reshape(dims)


def _bool_error(name: object) -> ModelError:
    return invalid(f"{name} is bool, but has bytes other than 0 and 1")


def _unpack(packed: Array, dtype: DType, count: int) -> Array:
    """Unpack elements of 2, 4 or 6 bits, the first in the lowest bits of a byte, or of three bytes."""
    bits = dtype.bits
    if bits == 6:
        rows = np.unpackbits(packed, count=6 * count, bitorder="little").reshape(count, 6)
        return np.packbits(rows, 1, "little").reshape(count).view(dtype.numpy)
    parts = np.stack([packed >> np.uint8(i) & np.uint8((1 << bits) - 1) for i in range(0, 8, bits)], -1)
    values = parts.reshape(-1)[:count]
    if dtype.is_float:
        return values.view(dtype.numpy)
    integers = values.astype(np.int8)
    if dtype.is_signed:
        integers -= (integers >> (bits - 1)) << bits
    return integers.astype(dtype.numpy)


def _strings(proto: onnx.TensorProto, name: object, dims: tuple[int, ...], count: int) -> Array:
    if len(proto.string_data) != count:
        raise _size_error(name, dims, DType.string, f"{len(proto.string_data)} elements")
    array = np.empty(count, object)
    for position, item in enumerate(proto.string_data):
        try:
            array[position] = item.decode()
        except UnicodeDecodeError:
            array[position] = item  # stays bytes
    return array.reshape(dims)


def _size_error(name: object, dims: tuple[int, ...], dtype: DType, content: str) -> ModelError:
    return invalid(
        f"{name} is {dtype}{list(dims)}, but holds {content}", help="the file is truncated, or was written wrongly"
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
    """Return the attributes of a node, and those that are graphs."""
    values: dict[str, Any] = {}
    bodies: dict[str, onnx.GraphProto] = {}
    for attribute in proto.attribute:
        if attribute.name in values or attribute.name in bodies:
            raise invalid(f"{place} has the attribute {attribute.name!r} twice")
        if attribute.type == onnx.AttributeProto.GRAPH:
            bodies[attribute.name] = attribute.g
            continue
        value = _value(attribute, folder, place)
        # An empty list of strings or floats means an absent attribute, and has no type in Python.
        if not (isinstance(value, list) and not value and attribute.type != onnx.AttributeProto.INTS):
            values[attribute.name] = value
    return values, bodies


def _value(attribute: onnx.AttributeProto, folder: Folder, place: object) -> Any:
    kinds = onnx.AttributeProto
    if attribute.ref_attr_name:
        raise invalid(
            f"{place}: attribute {attribute.name!r} refers to a function's attribute, but is not in a function"
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
            texts = {word: _text(word) for word in {*words}}  # attributes of trees repeat a few words
            return [*map(texts.__getitem__, words)]
        case kinds.TYPE_PROTO:
            return read_type(attribute.tp)
        case kinds.SPARSE_TENSOR:
            return dense(attribute.sparse_tensor, folder)[0]
    kind = kinds.AttributeType.Name(attribute.type) if attribute.type in kinds.AttributeType.values() else "unknown"
    raise invalid(f"{place}: attribute {attribute.name!r} has the unsupported kind {kind}", help="use another kind")


def constant_value(
    proto: onnx.NodeProto, folder: Folder, place: object, content: memoryview | None = None
) -> tuple[np.ndarray[Any, Any], DType]:
    """Return the array of a Constant node. content: its raw bytes, if not in the proto. Raises `ModelError`."""
    if len(proto.attribute) != 1:
        raise invalid(f"{place} must have one value, got {len(proto.attribute)}")
    (attribute,) = proto.attribute
    if attribute.name == "value":
        array, dtype = array_of(attribute.t, folder, content)
    elif attribute.name == "sparse_value":
        array, dtype = dense(attribute.sparse_tensor, folder)
    else:
        value = _value(attribute, folder, place)
        kind = _CONSTANTS.get(attribute.name)
        if kind is None:
            raise invalid(f"{place} has no value attribute")
        array, dtype = np.array(value, kind.numpy), kind
    return array, dtype


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def dtype_value(number: Any, place: object) -> DType:
    """Return the dtype of ONNX's number for it. Raises `ModelError`."""
    try:
        return DType.of(number)
    except DTypeError:
        raise invalid(
            f"{place}: {number!r} is not a dtype that graphcore supports", help="cast to another dtype"
        ) from None


def node_proto(
    op_type: str, domain: str, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any], count: int
) -> onnx.NodeProto:
    """Return a node from operands `x0`, `x1` to results `y0`, `y1`, for ONNX. count: of the results."""
    return onnx.NodeProto(
        op_type=op_type,
        domain=domain,
        input=["" if s is None else f"x{i}" for i, s in enumerate(inputs)],
        output=[f"y{i}" for i in range(count)],
        attribute=[onnx.AttributeProto.FromString(encoded(key, value)) for key, value in attributes.items()],
    )


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, each before those of its bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g.node)


def with_attributes(node: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """Return a copy of a function's node, with references to the function's attributes replaced or left out."""
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    del copied.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = attributes.get(attribute.ref_attr_name)
            if value is not None:
                added = copied.attribute.add()
                added.CopyFrom(value)
                added.name = attribute.name
            continue
        added = copied.attribute.add()
        added.CopyFrom(attribute)
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner = [with_attributes(n, attributes) for n in attribute.g.node]
            del added.g.node[:]
            added.g.node.extend(inner)
    return copied
