"""ONNX models as Graphs: whatever operators, dtypes, functions and bodies they have, brought to the opset written here.

Each node gets the types that ONNX's inference finds at the model's own version, is checked against its schema, and is
converted where its operator has changed since. Nothing of a model is trusted: names, sizes, types and nesting are
checked before they are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

import onnx

from graphcore.arrays.mapped_files import Folder, model_bytes
from graphcore.errors import GraphcoreError, ModelError, ResourceLimitError
from graphcore.ir import buffers
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.onnx import notes
from graphcore.onnx.proto.model_proto import LIMIT
from graphcore.onnx.proto.split_weights import split
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.read.checks import check_model, check_text, survivable
from graphcore.onnx.read.function_calls import Functions
from graphcore.onnx.read.nodes import Reader, graph_name
from graphcore.onnx.read.opsets import versions_of
from graphcore.promotion import PromotionSystem
from graphcore.support.gc_pause import uncollected
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Type

_MOST_NODES = 4_000_000


def load(source: object, *, implicit_casts: bool = False, promotion: str | PromotionSystem | None = None) -> Graph:
    """See `Graph.load`."""
    content, folder, name = _content(source)
    try:
        slim, large = split(content)
        model = onnx.ModelProto.FromString(slim)
    except GraphcoreError:
        raise
    except Exception:
        raise ModelError(
            f"load: {name} is no ONNX model", help="check that the file is whole and is an .onnx file"
        ) from None
    try:
        with uncollected():
            return buffers.read(Model(model, large, folder, implicit_casts).read(promotion))
    except GraphcoreError:
        raise
    except RecursionError:
        raise ResourceLimitError(f"load: {name} is nested too deep", help="flatten its functions and bodies") from None
    except MemoryError:
        raise ResourceLimitError(f"load: there is not enough memory to read {name}", help="make it smaller") from None


def _content(source: object) -> tuple[memoryview, Folder, str]:
    """What a model consists of, where its external data may lie, and what errors call it."""
    if isinstance(source, onnx.ModelProto):
        if source.ByteSize() > LIMIT:
            raise ModelError("load: the model is larger than 2 GiB", help="give its path")
        return memoryview(source.SerializeToString()), Folder(None), source.graph.name or "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(bytes(source)), Folder(None), "the model"
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(os.fspath(source))
        return model_bytes(path), Folder(os.path.dirname(os.path.abspath(path))), path
    raise ModelError(f"load: a {type(source).__name__} is no model", help="give a path, bytes or a ModelProto")


def read_nodes(graph: Graph, nodes: Sequence[onnx.NodeProto], names: dict[str, Symbol | None], version: int) -> None:
    """Reads nodes of an opset into a graph, on named Symbols of it, entering what they make into `names`."""
    Reader(Model(onnx.ModelProto(), {}, Folder(None), False), graph, {"": version}, {}, names, depth=1).nodes(nodes)


class Model:
    """One model while it is read."""

    def __init__(
        self, proto: onnx.ModelProto, large: Mapping[int, memoryview], folder: Folder, implicit_casts: bool
    ) -> None:
        self.proto = proto
        self.large = large
        self.folder = folder
        self.implicit_casts = implicit_casts
        self.versions = versions_of(proto.opset_import)
        self.functions = Functions(proto.functions)
        self.semantic = _semantic(proto)
        self.is_inferred = False
        self.is_foreign = not _is_ours_as_built(proto)
        """Whether nodes keep the numbers of the kernels that the model was written for."""
        self._count = 0
        self._types: dict[bytes, Type] = {}

    def read(self, promotion: str | PromotionSystem | None) -> Graph:
        if not self.proto.graph.output:
            raise ModelError("load: the model has no outputs", help="check that the file is whole and is an .onnx file")
        check_model(self.proto, self.versions)
        self.functions.check(self.proto.graph.node)
        found = None if self.implicit_casts else _inferred(self.proto)
        self.is_inferred = found is not None
        known = found if found is not None else {v.name: v.type for v in self.proto.graph.value_info}
        values = (*self.proto.graph.input, *self.proto.graph.output, *self.proto.graph.initializer)
        metadata = [p for holder in (self.proto, *values) for p in holder.metadata_props]
        check_text((text for p in metadata for text in (p.key, p.value)), "the model's metadata")
        properties = _notes(self.proto)
        noted = properties.pop(notes.PROMOTION, "max")
        graph = Graph(graph_name(self.proto.graph.name), promotion=promotion or _known_system(noted))
        properties.pop(notes.DTYPES, None)
        if wide := {name: dtype.name for name, dtype in self.semantic.items() if dtype.bits > 64}:
            properties[notes.DTYPES] = json.dumps(wide)  # of values that the graph has as digits of uint32
        properties.pop(notes.TARGET, None)
        graph._metadata = properties
        graph._domains = {d: v for d, v in self.versions.items() if d not in ("", "ai.onnx.ml")}
        reader = Reader(self, graph, self.versions, known)
        reader.graph_proto(self.proto.graph, self.large)
        return graph

    def type_of(self, proto: onnx.TypeProto) -> Type:
        """The type that a proto says; those of most values are like others'."""
        key = proto.SerializeToString()
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = read_type(proto)
        return found

    def count(self) -> None:
        """Counts a node that is read: bodies are read again until their types settle, and nested ones more often."""
        self._count += 1
        if self._count > _MOST_NODES:
            raise ResourceLimitError(
                f"load: more than {_MOST_NODES} nodes are to be read", help="make the model smaller"
            )

    def dtype(self, name: str, stored: DType) -> DType:
        """The dtype that the model notes for a value, where tensors of it are stored as it is."""
        noted = self.semantic.get(name)
        if noted is None or noted.bits > 64:  # of which a file holds the digits, along one more axis
            return stored
        return noted if noted.storage is stored else stored


def _is_ours_as_built(proto: onnx.ModelProto) -> bool:
    """Whether the model is a Graph of ours that no target was lowered for: its nodes mean what DESIGN says of ops."""
    noted = _notes(proto)
    return notes.PROMOTION in noted and noted.get(notes.TARGET, "onnx") == "onnx"


def _notes(proto: onnx.ModelProto) -> dict[str, str]:
    """What a model and its values note of themselves."""
    graph = proto.graph
    values = {v.name: v.metadata_props for v in (*graph.input, *graph.output, *graph.initializer) if v.metadata_props}
    said = {name: {p.key: p.value for p in properties} for name, properties in values.items()}
    return notes.gathered(notes.read({p.key: p.value for p in proto.metadata_props}), said)


def _known_system(note: str) -> PromotionSystem:
    """The system that a model notes; "max" where the note, which may be anybody's, says none that there is."""
    from graphcore.promotion import system

    name, _, options = note.partition(" ")
    try:
        return system(name, **json.loads(options or "{}"))
    except (ValueError, TypeError, RecursionError, GraphcoreError):
        return system("max")


def _semantic(proto: onnx.ModelProto) -> dict[str, DType]:
    """The dtypes that a model notes beyond what ONNX stores; none where the note, which may be anybody's, is wrong."""
    text = _notes(proto).get(notes.DTYPES, "{}")
    try:
        noted = json.loads(text)
        return {name: DType.of(dtype) for name, dtype in noted.items() if isinstance(dtype, str)}
    except (ValueError, AttributeError, RecursionError, GraphcoreError):
        return {}


def _inferred(model: onnx.ModelProto) -> dict[str, onnx.TypeProto] | None:
    """The types of the values of the graph as far as ONNX's inference over the whole of it tells."""
    try:
        found = onnx.shape_inference.infer_shapes(survivable(model), strict_mode=True, data_prop=True)
    except Exception:  # each node is inferred by itself then, and says what is wrong with it
        return None
    values = (*found.graph.value_info, *found.graph.output, *found.graph.input)
    return {v.name: v.type for v in values if v.type.WhichOneof("value")}


__all__ = ["load", "read_nodes"]
