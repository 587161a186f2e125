"""Convert between types and ONNX's TypeProtos; helpers for ONNX's inference."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphcore.errors import DTypeError
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.proto.value_protos import encoded_type, tensor
from graphcore.types.dim_polynomial import BOUND
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import (
    OpaqueType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    Type,
    _shape,
    tensor_type,
)

if TYPE_CHECKING:
    import onnx

SMALL = 1 << 12
"""Constants of at most this many bytes are passed to inference."""

_UNKNOWN = Dim.dynamic()

_MAX_CACHED_LENGTH = 200
"""Dims of text with at most this many characters are cached."""


def read_type(proto: onnx.TypeProto) -> Type:
    """Return the type; a `OpaqueType` for one that graphcore does not have, or an unknown one."""
    kind = proto.WhichOneof("value")
    if kind == "sequence_type":
        return SequenceType(read_type(proto.sequence_type.elem_type))
    if kind == "optional_type":
        return OptionalType(read_type(proto.optional_type.elem_type))
    if kind != "tensor_type":
        return OpaqueType((kind or "unknown").removesuffix("_type"), proto.SerializeToString())
    tensor = proto.tensor_type
    if not tensor.elem_type:
        return OpaqueType()
    try:
        dtype = DType.of(tensor.elem_type)
    except DTypeError:
        from onnx import TensorProto  # direct loads do not need it

        kinds = TensorProto.DataType
        name = kinds.Name(tensor.elem_type).lower() if tensor.elem_type in kinds.values() else str(tensor.elem_type)
        return OpaqueType(f"tensor({name})", proto.SerializeToString())
    if not tensor.HasField("shape"):
        return tensor_type(dtype, Shape.unknown())
    return tensor_type(dtype, _shape([read_dim(d) for d in tensor.shape.dim]))


def read_dim(proto: onnx.TensorShapeProto.Dimension) -> Dim:
    """Return the dim; `?` for invalid text, and for a dim with a bound, which files store in a note."""
    size = proto.dim_value
    if size or proto.HasField("dim_value"):
        return Dim(size) if size >= 0 else _UNKNOWN
    name = proto.dim_param
    if not name or not isinstance(name, str):  # protobuf returns bytes for invalid UTF-8
        return _UNKNOWN
    return _parse_dim(name) if len(name) <= _MAX_CACHED_LENGTH else _parse_dim.__wrapped__(name)


@functools.lru_cache(4096)
def _parse_dim(name: str) -> Dim:
    if name.startswith("unk__") or BOUND in name:
        return _UNKNOWN
    try:
        return Dim(name)
    except ValueError:  # other tools write any text
        return _UNKNOWN


@functools.lru_cache(1024)
def proto_of(type_: Type) -> onnx.TypeProto:
    """Return the TypeProto, shared by all callers, which must not change it."""
    from onnx import TypeProto

    proto: onnx.TypeProto = TypeProto.FromString(encoded_type(type_))
    return proto


def small_constants(symbols: Mapping[str, Symbol]) -> dict[str, onnx.TensorProto]:
    """Return the small constants among named Symbols, for inference."""
    from onnx import TensorProto

    constants = {}
    for name, symbol in symbols.items():
        array = constant_array(symbol, weights=True, outer=True)
        if array is not None and array.nbytes <= SMALL:
            content = b"".join(tensor(array, symbol.dtype, name))
            constants[name] = TensorProto.FromString(content)
    return constants


def stack_type(type_: Type, axis: int, length: Dim) -> Type:
    """Return the type of values of a type along a new axis; another type than that of a tensor unchanged."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    dims = list(type_.shape)
    dims.insert(axis if axis >= 0 else len(dims) + 1 + axis, length)
    return tensor_type(type_.dtype, _shape(dims))


def join_types(types: Sequence[Type]) -> Type:
    """Return the common type of a value that can have any of these types: dims that differ become unknown."""
    first = types[0]
    for other in types[1:]:
        first = _join(first, other)
    return first


def _join(a: Type, b: Type) -> Type:
    if a is b or a == b:
        return a
    if isinstance(a, OptionalType) and not isinstance(b, OptionalType):
        return OptionalType(_join(a.element, b))
    if isinstance(b, OptionalType) and not isinstance(a, OptionalType):
        return OptionalType(_join(a, b.element))
    if isinstance(a, (SequenceType, OptionalType)) and type(a) is type(b):
        return type(a)(_join(a.element, b.element))
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.dtype is not b.dtype:
        return OpaqueType()
    if not a.shape.is_ranked or not b.shape.is_ranked or a.rank != b.rank:
        return tensor_type(a.dtype, Shape.unknown())
    pairs = zip(a.shape, b.shape, strict=True)
    return tensor_type(a.dtype, _shape([x if x == y else Dim.dynamic() for x, y in pairs]))
