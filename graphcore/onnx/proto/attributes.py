"""Attributes of nodes as Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from graphcore.arrays.external_data import Folder
from graphcore.errors import DTypeError, ModelError
from graphcore.onnx.proto import tensors
from graphcore.onnx.proto.type_protos import read_type
from graphcore.types.dtypes import DType

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
            return tensors.array_of(attribute.t, folder)[0]
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
            return tensors.dense(attribute.sparse_tensor, folder)[0]
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
        array, dtype = tensors.array_of(attribute.t, folder, content)
    elif attribute.name == "sparse_value":
        array, dtype = tensors.dense(attribute.sparse_tensor, folder)
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
