"""The model that a Graph was read from: a Graph in which nothing changed is written as its file, every field of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.external_data import Folder
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.onnx.proto.tensors import external_content
from graphcore.onnx.proto.value_protos import Chunk, External, nested, placed, split


@dataclass(frozen=True, slots=True)
class Source:
    """A serialised model.

    name: for errors. content: shares memory with the file. folder: of its external data. versions: its opset and the
    version of the file format. state: of the graph after it was read. is_overwritten: returns True if the file was
    written to in place, so that its mapped bytes have changed.
    """

    name: str
    content: memoryview
    folder: Folder
    versions: tuple[int | None, int]
    state: tuple[object, ...]
    is_overwritten: Callable[[], bool]

    def encoded(self, external: External | None = None) -> list[Chunk]:
        """Return the ModelProto in chunks. Raises `ModelError` if the file was written to since.

        external: returns the location of initializers that are stored outside of the model.
        """
        if self.is_overwritten():
            raise ModelError(f"export: {self.name} was changed since it was loaded", help="load it again")
        if external is None and not self.folder.is_used:
            return [self.content]
        slim, large = split(self.content)
        model = onnx.ModelProto.FromString(slim)
        graph = model.graph
        for position, content in large.nodes.items():
            graph.node[position].attribute[0].t.raw_data = bytes(content)
        chunks: list[Chunk] = []
        for position, tensor in enumerate(graph.initializer):
            chunks += nested(5, self._initializer(tensor, large.initializers.get(position), external))
        del graph.initializer[:]
        for tensor in tensors_of(model):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                tensor.raw_data = bytes(self._internal(tensor))
        inner: list[Chunk] = [graph.SerializeToString(), *chunks]
        model.ClearField("graph")
        return [model.SerializeToString(), *nested(7, inner)]

    def _initializer(
        self, tensor: onnx.TensorProto, content: memoryview | None, external: External | None
    ) -> list[Chunk]:
        """Return an initializer in chunks. content: its raw bytes, if they are not in the proto."""
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            content = self._internal(tensor)
        elif content is None and tensor.HasField("raw_data"):
            content = memoryview(tensor.raw_data)
            tensor.ClearField("raw_data")
        head = tensor.SerializeToString()
        if content is None:
            return [head]
        place = None if external is None else external(tensor.name, np.frombuffer(content, np.uint8))
        return [head, *nested(9, [content])] if place is None else [head, placed(place, len(content))]

    def _internal(self, tensor: onnx.TensorProto) -> memoryview:
        """Return the external data of a tensor, which then does not refer to it."""
        content = external_content(tensor, self.folder)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        return content


def tensors_of(message: Any) -> Iterator[onnx.TensorProto]:
    """Yield the tensors in a message."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from tensors_of(inner)


def source_of(graph: Graph) -> Source | None:
    """Return the model that a graph was read from; None if the graph may differ from it."""
    source = graph.source
    return source if isinstance(source, Source) and source.state == state_of(graph) else None


def state_of(graph: Graph) -> tuple[object, ...]:
    """Return the parts of a graph that building changes: it only grows, and renaming a Symbol drops the source."""
    outputs = [(name, symbol.id) for name, symbol in graph.named_outputs]
    buffers = [buffer.value.id for buffer in graph.buffers.values()]
    sizes = len(graph.symbols), len(graph.nodes), graph.edits
    return graph.name, sizes, outputs, buffers, [*graph.watched], dict(graph.metadata)
