"""A graph of ONNX operators and dtypes as the bytes of a ModelProto.

Nothing of the graph is decided here: what is legal, what outputs are called and which casts there are was settled by
lowering. Weights are written from their own memory, as chunks that are never joined unless someone asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import GraphError, ResourceLimitError
from graphcore.graph import Graph
from graphcore.naming import snake
from graphcore.onnx.wire import SMALL, Chunk, block, integer, integers, nested, single, singles, sized, text, varint
from graphcore.symbol import Constant, Node, Symbol
from graphcore.types import OptionalType, SequenceType, TensorType, Type

OPSET = 26
IR_VERSION = 13
"""The newest that onnxruntime 1.31 takes, older than the newest that onnx writes."""

DOMAINS = {"ai.onnx.ml": 5}
"""The versions of other domains, where it is not 1."""

LIMIT = (1 << 31) - 1
"""The bytes that a protobuf message can have."""

_ABSENT = b"\0"  # the name, behind its length, of an optional operand left out

# The numbers of protobuf's fields are those of onnx.proto; each is named where it is used.
_KIND = onnx.AttributeProto

External = Callable[[str, "np.ndarray[Any, Any]"], "tuple[str, int] | None"]
"""(name, array) -> (file, offset) of an initializer that lies outside of the model, or None to write it inside."""


def encode(graph: Graph, external: External | None = None) -> list[Chunk]:
    """The ModelProto in chunks, in order; large weights are memoryviews of their arrays.

    graph: lowered, so that all its dtypes are ONNX's. external: where initializers lie that are not written inside.
    """
    body = _graph(graph, external)
    domains = sorted({node.domain for node in graph._nodes} - {""})
    properties = {"graphcore.promotion": graph.promotion.name, **graph._metadata}
    head = b"".join(
        (
            integer(1, IR_VERSION),  # ir_version
            text(2, "graphcore"),  # producer_name
            block(8, integer(2, OPSET)),  # opset_import: version
            *(block(8, text(1, domain) + integer(2, DOMAINS.get(domain, 1))) for domain in domains),
            *(block(14, text(1, key) + text(2, value)) for key, value in properties.items()),  # metadata_props
        )
    )
    return [head, *nested(7, body)]


def _graph(graph: Graph, external: External | None) -> list[Chunk]:
    names = [b""] * len(graph._symbols)
    chunks: list[Chunk] = [b"".join(_nodes(graph, names)), text(2, graph.name)]
    outputs = graph.outputs
    for symbol in outputs:
        _given(symbol, names)
    for symbol in graph._symbols:
        producer = symbol.producer
        if type(producer) is Constant and names[symbol.id]:
            chunks += nested(5, tensor(producer.array, symbol.type.dtype, symbol.name, external))  # initializer
    chunks += [block(11, _value(symbol.name, symbol.type)) for symbol in graph._inputs]
    chunks += [block(12, _value(symbol.name, symbol.type)) for symbol in outputs]
    return chunks


def _nodes(graph: Graph, names: list[bytes]) -> list[bytes]:
    """The node fields. Fills in the names, by number, of all Symbols that they use: in UTF-8 behind their length.

    What is the same for every node of an operator is encoded once, and every Symbol is looked at once: most of the
    time goes into fetching them.
    """
    shared: dict[tuple[str, str, str], tuple[str, bytes]] = {}
    written = []
    taken = graph._names.taken
    for node in graph._nodes:
        operator = (node.op_type, node.domain, node.layer)
        known = shared.get(operator)
        if known is None:
            known = shared[operator] = f"{node.layer}{snake(node.op_type)}_", _tail(*operator)
        stem, tail = known
        inputs, outputs = node.inputs, node.outputs
        if len(inputs) != 2 or len(outputs) != 1 or node.attributes:
            content = _node(node, names, tail)
        else:  # what most nodes are, in a third of the time
            (lhs, rhs), (made,) = inputs, outputs
            name = made._name
            if name is None:  # the rule of Names.automatic, without its calls
                name = f"{stem}{made.id}"
                while name in taken:
                    name += "_"
            encoded = name.encode()
            size = len(encoded)
            result = names[made.id] = (SMALL[size] if size < 128 else varint(size)) + encoded
            first = _ABSENT if lhs is None else names[lhs.id] or _given(lhs, names)
            second = _ABSENT if rhs is None else names[rhs.id] or _given(rhs, names)
            content = b"".join((b"\x0a", first, b"\x0a", second, b"\x12", result, b"\x1a", result, tail))
        size = len(content)
        written.append(b"\x0a" + (SMALL[size] if size < 128 else varint(size)) + content)  # node
    return written


def _node(node: Node, names: list[bytes], tail: bytes) -> bytes:
    parts: list[bytes] = []
    for symbol in node.inputs:
        parts += b"\x0a", _ABSENT if symbol is None else names[symbol.id] or _given(symbol, names)  # input
    for symbol in node.outputs:
        parts += b"\x12", _given(symbol, names)  # output
    if node.outputs:
        parts += b"\x1a", names[node.outputs[0].id]  # name
    parts.append(tail)
    parts += [block(5, attribute(key, value)) for key, value in node.attributes.items()]
    return b"".join(parts)


def _given(symbol: Symbol, names: list[bytes]) -> bytes:
    """The name of a Symbol, entered into `names`."""
    name = names[symbol.id] = sized(symbol.name.encode())
    return name


def _tail(op_type: str, domain: str, layer: str) -> bytes:
    named = text(4, op_type) + (text(7, domain) if domain else b"")
    # metadata_props
    return named + (block(9, text(1, "graphcore.layer") + text(2, layer.rstrip("/"))) if layer else b"")


def attribute(name: str, value: Any) -> bytes:
    """An AttributeProto. Raises `GraphError` for a value that no attribute holds."""
    head = text(1, name)
    if isinstance(value, DType):
        value = value.onnx
    if isinstance(value, (bool, int, np.integer)):
        return head + integer(3, int(value)) + integer(20, _KIND.INT)
    if isinstance(value, (float, np.floating)):
        return head + single(2, float(value)) + integer(20, _KIND.FLOAT)
    if isinstance(value, str):
        return head + text(4, value) + integer(20, _KIND.STRING)
    if isinstance(value, bytes):
        return head + block(4, value) + integer(20, _KIND.STRING)
    if isinstance(value, np.ndarray):
        return head + block(5, b"".join(tensor(value, DType.of(value.dtype), ""))) + integer(20, _KIND.TENSOR)
    if isinstance(value, Graph):
        return head + block(6, b"".join(_graph(value, None))) + integer(20, _KIND.GRAPH)
    if isinstance(value, (list, tuple)):
        return head + _list(name, value)
    raise GraphError(
        f"attribute {name!r}: {value!r} is of no type that ONNX attributes have",
        help="give an int, float, str, array, Graph, or a list of them",
    )


def _list(name: str, values: list[Any] | tuple[Any, ...]) -> bytes:
    if all(isinstance(v, (bool, int, np.integer)) for v in values):
        return integers(8, map(int, values)) + integer(20, _KIND.INTS)
    if all(isinstance(v, (int, float, np.integer, np.floating)) for v in values):
        return singles(7, map(float, values)) + integer(20, _KIND.FLOATS)
    if all(isinstance(v, str) for v in values):
        return b"".join(text(9, v) for v in values) + integer(20, _KIND.STRINGS)
    raise GraphError(
        f"attribute {name!r}: {values!r:.80} is of no type that ONNX attributes have",
        help="give a list of ints, of floats or of strings",
    )


def tensor(array: np.ndarray[Any, Any], dtype: DType, name: str, external: External | None = None) -> list[Chunk]:
    """A TensorProto in chunks: the array itself is the last one, unless it lies elsewhere."""
    head = b"".join((integers(1, array.shape), integer(2, dtype.onnx), text(8, name) if name else b""))
    if dtype is DType.string:
        return [head, *(block(6, str(item).encode()) for item in array.ravel())]
    place = external(name, array) if external else None
    content = raw(array, dtype)
    if place is None:
        return [head, *nested(9, [content])]
    location, offset = place
    entries = {"location": location, "offset": str(offset), "length": str(len(content))}
    outside = b"".join(block(13, text(1, key) + text(2, value)) for key, value in entries.items())
    return [head + outside + integer(14, onnx.TensorProto.EXTERNAL)]


def raw(array: np.ndarray[Any, Any], dtype: DType) -> memoryview:
    """The little-endian bytes of an array, two elements a byte for 4-bit dtypes: its own memory where it can be."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.storage.bits == 4:
        nibbles = flat.astype(np.int8).view(np.uint8) & np.uint8(15)
        if nibbles.size % 2:
            nibbles = np.append(nibbles, np.uint8(0))
        flat = nibbles[0::2] | nibbles[1::2] << np.uint8(4)
    return memoryview(flat.view(np.uint8))  # type: ignore[arg-type]


def _value(name: str, type_: Type) -> bytes:
    return text(1, name) + block(2, _type(type_))


def _type(type_: Type) -> bytes:
    if isinstance(type_, TensorType):
        dims = b"".join(block(1, _dim(dim)) for dim in type_.shape)
        return block(1, integer(1, type_.dtype.onnx) + block(2, dims))
    field = {SequenceType: 4, OptionalType: 9}[type(type_)]
    return block(field, block(1, _type(type_.element)))


def _dim(dim: Dim) -> bytes:
    if dim.is_static:
        return integer(1, int(dim))
    return b"" if dim.is_dynamic else text(2, str(dim))


def join(chunks: list[Chunk]) -> bytes:
    """The chunks as one. Raises `ResourceLimitError` where protobuf could not read them."""
    return b"".join(within_limit(chunks))


def within_limit(chunks: list[Chunk]) -> list[Chunk]:
    """The chunks themselves. Raises `ResourceLimitError` where protobuf could not read them."""
    size = sum(map(len, chunks))
    if size > LIMIT:
        raise ResourceLimitError(
            f"the model has {size} bytes, and one protobuf message at most {LIMIT}",
            help="use graph.export(path, external_data=True)",
        )
    return chunks


__all__ = ["IR_VERSION", "LIMIT", "OPSET", "attribute", "encode", "join", "raw", "tensor"]
