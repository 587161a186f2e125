"""The fields of a file beside its graph, names first, which are stored beside the arrays of a decompiled graph."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import Counter
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.casting import Array
from graphcore.checkpoints import Tensors
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Captured, Constant, Input, present, source_of
from graphcore.onnx.proto.value_protos import raw
from graphcore.onnx.read.source import tensors_of
from graphcore.surgery.diff.alignment import Alignment
from graphcore.surgery.diff.records import Contents, is_default
from graphcore.types.dtypes import DType

FIELDS = "graphcore.model"
"""The metadata of a file of arrays that has the model without its arrays."""


def encode_fields(graph: Graph, arrays: Mapping[str, tuple[np.ndarray[Any, Any], DType]]) -> str:
    """Return the model without the arrays of a file; empty for a graph that is another one in ONNX."""
    try:
        model = graph.to_onnx(target="onnx")
        read = graph if graph.source is not None else Graph.load(model)
    except GraphcoreError:
        return ""
    contents = Contents()
    if read is not graph and _signature(read, contents) != _signature(graph, contents):
        return ""  # some ops, or dtypes, are others in ONNX
    places = {_digest(raw(array, dtype)): name for name, (array, dtype) in arrays.items()}
    for tensor in tensors_of(model):
        name = places.get(_digest(tensor.raw_data)) if tensor.raw_data else None
        if name is not None:
            tensor.raw_data = b""
            tensor.external_data.add(key=FIELDS, value=name)
    return base64.b64encode(zlib.compress(model.SerializeToString(deterministic=True), 9)).decode()


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


@method(Graph)
def with_fields(self: Graph, tensors: Tensors[Array]) -> Graph:
    """Return a graph with the names and other fields of the model that `to_python` was called on.

    Args:
        tensors: The arrays that `to_python` wrote, from `gc.load_tensors`.

    Returns:
        The graph of that model if this one computes the same in the same way; otherwise this graph, whose values get
        the names of the values of the model that they stand for.
    """
    encoded = tensors.metadata.get(FIELDS, "")
    if not encoded:
        return self
    model = onnx.ModelProto.FromString(zlib.decompress(base64.b64decode(encoded)))
    for tensor in tensors_of(model):
        names = [entry.value for entry in tensor.external_data if entry.key == FIELDS]
        if names:
            tensor.ClearField("external_data")
            tensor.raw_data = bytes(raw(tensors[names[0]], DType.of(tensor.data_type)))
    old = Graph.load(model)
    contents = Contents()
    if _signature(old, contents) == _signature(self, contents):
        return old
    pairs = Alignment(old, self, contents)
    for symbol in old.symbols:
        new, name = pairs.values.get(symbol.id), symbol.given_name
        if new is not None and name and new.given_name is None and name not in self.names.taken:
            new.name = name
    return self


def _single(item: Any) -> Any:
    """Return an attribute in single precision, in which files have floats."""
    if isinstance(item, (list, tuple)):
        return [_single(each) for each in item]
    return float(np.float32(item)) if isinstance(item, float) else item


def _signature(graph: Graph, contents: Contents, outer: Mapping[int, Hashable] = MappingProxyType({})) -> Hashable:
    """Return a key that is equal for graphs that compute the same in the same way, whatever their names."""
    keys: dict[int, Hashable] = {}
    for symbol in graph.symbols:
        producer = symbol.producer
        if isinstance(producer, Input):
            keys[symbol.id] = ("input", symbol.name if graph.scope.outer is None else producer.position)
        elif isinstance(producer, Constant):
            keys[symbol.id] = contents.of(producer.array)
        elif isinstance(producer, Captured):
            keys[symbol.id] = outer[producer.symbol.id]
    nodes = Counter[Hashable]()
    for node in graph.nodes:
        if (
            graph.scope.outer is not None
            and node.op_type == "Identity"
            and isinstance(source_of(node.inputs[0]), Constant)
        ):
            keys[node.outputs[0].id] = keys[present(node.inputs[0]).id]  # a constant that a body returns
            continue
        own = {k: v for k, v in node.attributes.items() if not is_default(node, k, v)}
        attributes = tuple(
            (k, _signature(v, contents, keys) if isinstance(v, Graph) else contents.attribute(_single(v)))
            for k, v in sorted(own.items())
        )
        key = hash(
            (node.domain, node.op_type, attributes, tuple(None if s is None else keys[s.id] for s in node.inputs))
        )
        nodes[key] += 1
        keys |= {s.id: (key, position) for position, s in enumerate(node.outputs)}
    inputs = tuple((s.name, s.type) for s in graph.input_symbols) if graph.scope.outer is None else ()
    return inputs, tuple(keys[s.id] for s in graph.outputs), frozenset(nodes.items())
