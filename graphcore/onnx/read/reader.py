"""Read ONNX models as Graphs, and convert their nodes to the opset of Graphs.

Each node is typed at the model's own version, by its operator's rule or by ONNX's inference, checked against its
schema, and converted if its operator has changed since. Nothing in a model is trusted: names, sizes, types and nesting
are checked before they are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import onnx

from graphcore.arrays.external_data import ExternalData, Folder, Links, links_of, model_bytes
from graphcore.arrays.resource_limits import USUAL, Limits, Watch, limits_of
from graphcore.custom_ops.custom_op import CustomOp
from graphcore.custom_ops.declaration import callable_labels
from graphcore.errors import GraphcoreError, ModelError, ResourceLimitError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.onnx import notes
from graphcore.onnx.notes import LIMIT
from graphcore.onnx.proto import buffer_notes
from graphcore.onnx.proto.limits import check_text
from graphcore.onnx.proto.value_protos import Large, split
from graphcore.onnx.read.checks import check_model
from graphcore.onnx.read.model import ModelContext
from graphcore.onnx.read.model import constants_of as constants_of
from graphcore.onnx.read.nodes import NodeReader, graph_name
from graphcore.onnx.read.source import Source, state_of
from graphcore.onnx.read.statements import BodyStatements, versions_of
from graphcore.onnx.schemas.runtime_operators import RuntimeOperators
from graphcore.onnx.schemas.runtime_operators import installed as installed
from graphcore.promotion import PromotionSystem
from graphcore.support.gc_pause import uncollected
from graphcore.types.dtypes import has_storage_axis

_IN_GRAPH = (notes.PROMOTION, notes.DTYPES, notes.TARGET, notes.WRITER)


class Opened:
    """An opened model: its bytes, and its protobuf message once it is parsed.

    path: of the file; None for a model in memory. folder: of its external data. name: for errors. limits: of resources.
    watch: the time since it was opened.
    """

    def __init__(self, source: object, links: Links | None, limits: Limits = USUAL) -> None:
        self.limits = limits
        self.watch = Watch(limits)
        is_path = isinstance(source, (str, os.PathLike))
        self.path = os.fsdecode(os.fspath(source)) if is_path else None  # type: ignore[call-overload]
        self._stamp_at_open = self._stamp()
        self.content, self.folder, self.name = _content(source, links, self._admit)
        self._bytes = 0
        self._count(len(self.content))
        self._split: tuple[onnx.ModelProto, Large] | None = None

    @classmethod
    def of_parts(cls, proto: onnx.ModelProto, large: Large) -> Opened:
        """Return a model in memory. proto: the message without the content of some tensors. large: that content."""
        opened = cls(b"", None)
        opened._split, opened.name = (proto, large), proto.graph.name or "the model"
        return opened

    @property
    def proto(self) -> onnx.ModelProto:
        """The message without the content of the graph's large tensors. Raises `ModelError`."""
        return self._parsed()[0]

    @property
    def large(self) -> Large:
        """The content of the graph's large tensors, by position."""
        return self._parsed()[1]

    def _admit(self, stat: os.stat_result, tensor: str) -> None:
        """Raise an error for a file of external data that must not be read."""
        if (stat.st_dev, stat.st_ino) == self._stamp_at_open[:2]:
            raise ModelError(
                f"load: the external data of {tensor} is the model's own file",
                help="save the model with its data inside",
            )
        if self.limits.strict is not None:
            raise ModelError(
                f"load: {tensor} has external data, which the limit strict does not allow",
                help="save the model with its data inside, or load it without strict",
            )
        self._count(stat.st_size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self.limits.check("bytes", self._bytes, f"{self.name} has {self._bytes} bytes with its data")

    def is_unchanged(self) -> bool:
        """Return True if the file is the one that was opened, by its times, size and inode."""
        return self._stamp() == self._stamp_at_open

    def is_overwritten(self) -> bool:
        """Return True if the file was written to in place, so that its mapped bytes have changed."""
        now = self._stamp()
        return now[:2] == self._stamp_at_open[:2] and now != self._stamp_at_open

    def forget(self) -> None:
        """Drop the parsed message; the next use parses it again."""
        self._split = None

    def whole(self) -> onnx.ModelProto:
        """Return the message with the content of all tensors, not cached. Raises `ModelError`."""
        return self._message(self.content)

    def _parsed(self) -> tuple[onnx.ModelProto, Large]:
        if self._split is None:
            try:
                if not self.content:
                    raise not_a_model(self.name, self.content)
                slim, large = split(self.content)
            except ModelError:
                raise not_a_model(self.name, self.content) from None
            self._split = self._message(slim), large
        return self._split

    def _message(self, content: bytes | memoryview) -> onnx.ModelProto:
        try:
            message: onnx.ModelProto = onnx.ModelProto.FromString(content)
        except Exception:
            raise not_a_model(self.name, self.content) from None
        return message

    def _stamp(self) -> tuple[int, ...]:
        if self.path is None:
            return ()
        try:
            stat = os.stat(self.path)
        except (OSError, ValueError):  # reading the file raises a better error
            return (0,)
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def load(
    source: object,
    *,
    implicit_casts: bool = False,
    promotion: str | PromotionSystem | None = None,
    external_data: ExternalData = "plain",
    external_data_root: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    custom_ops: Iterable[str | CustomOp[..., Any]] = (),
    defaults: bool | Iterable[str] = False,
    runtime: Callable[[], RuntimeOperators | None] = installed,
) -> Graph:
    """Return the graph of a model; see `Graph.load`. runtime: returns the operators of the runtime."""
    labels = callable_labels(custom_ops)
    opened = Opened(source, links_of(external_data, external_data_root), limits_of(limits))
    graph = read(
        opened,
        implicit_casts=implicit_casts,
        promotion=promotion,
        runtime=runtime,
        custom_ops=labels,
        defaults=defaults,
        keeps_fields=True,
    )
    if promotion is None and not implicit_casts:
        versions = versions_of(opened.proto.opset_import).get(""), opened.proto.ir_version
        graph.source = Source(
            opened.name, opened.content, opened.folder, versions, state_of(graph), opened.is_overwritten
        )
    opened.forget()
    return graph


def read(
    opened: Opened,
    *,
    implicit_casts: bool = False,
    promotion: str | PromotionSystem | None = None,
    runtime: Callable[[], RuntimeOperators | None] = installed,
    custom_ops: Set[str] = frozenset(),
    defaults: bool | Iterable[str] = False,
    keeps_fields: bool = False,
) -> Graph:
    """Return the graph of an opened model; see `load`. custom_ops: labels of those that may be called.

    keeps_fields: True to read the fields that do not say what the model computes, such as names of nodes.
    """
    proto, large, name = opened.proto, opened.large, opened.name
    try:
        with uncollected():
            allowed = custom_ops if opened.limits.strict is None else frozenset()
            model = ModelContext(
                proto,
                large,
                opened.folder,
                implicit_casts,
                runtime,
                opened.limits,
                opened.watch,
                allowed,
                defaults,
                keeps_fields,
            )
            return buffer_notes.read(_read(model, promotion))
    except GraphcoreError:
        raise
    except RecursionError:
        raise ResourceLimitError(f"load: {name} is nested too deep", help="flatten its functions and bodies") from None
    except MemoryError:
        raise ResourceLimitError(f"load: there is not enough memory to read {name}", help="make it smaller") from None


def _content(
    source: object, links: Links | None = None, admit: Callable[[os.stat_result, str], None] | None = None
) -> tuple[memoryview, Folder, str]:
    """Return the bytes of a model, the folder of its external data, and its name for errors."""
    if isinstance(source, onnx.ModelProto):
        if source.ByteSize() > LIMIT:
            raise ModelError("load: the model is larger than 2 GiB", help="give its path")
        return memoryview(source.SerializeToString()), Folder(None), source.graph.name or "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(bytes(source)), Folder(None), "the model"
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(os.fspath(source))
        return model_bytes(path), Folder(os.path.dirname(os.path.abspath(path)), links, admit), path
    raise ModelError(
        f"load: the model must be a path, bytes or a ModelProto, got {type(source).__name__}",
        help="give a path, bytes or a ModelProto; sessions also load a Graph",
    )


def read_nodes(graph: Graph, nodes: Sequence[onnx.NodeProto], names: dict[str, Symbol | None], version: int) -> None:
    """Read nodes of an opset into a graph, on named Symbols of it, and enter their results into `names`."""
    model = ModelContext(onnx.ModelProto(), Large(), Folder(None), False)
    NodeReader(model, graph, {"": version}, {}, names, depth=1).nodes(nodes)


def _read(model: ModelContext, promotion: str | PromotionSystem | None) -> Graph:
    """Return the graph of a model. Raises `ModelError`, `ResourceLimitError`."""
    proto = model.proto
    if not proto.graph.output:
        raise ModelError("load: the model has no outputs", help="check that the file is a complete .onnx file")
    checked = check_model(proto, model.versions, model.limits)
    model.functions.check(proto.graph.node, checked.count, model.limits)
    model.functions.check_calls(proto.graph.node, model.versions)
    model.watch.look()
    declared = {v.name: v.type for v in (*proto.graph.value_info, *proto.graph.output) if v.type.WhichOneof("value")}
    values = (*proto.graph.input, *proto.graph.output, *proto.graph.initializer)
    metadata = [p for holder in (proto, *values) for p in holder.metadata_props]
    check_text((text for p in metadata for text in (p.key, p.value)), "the model's metadata")
    graph = Graph(graph_name(proto.graph.name), promotion=promotion or model.promotion())
    graph.metadata = _metadata(model)
    graph.opsets = {d: v for d, v in model.versions.items() if d not in ("", "ai.onnx.ml")}
    NodeReader(model, graph, model.versions, declared).graph_proto(
        BodyStatements(proto.graph, checked.statements), model.large
    )
    return graph


def _metadata(model: ModelContext) -> dict[str, str]:
    """Return the notes for the graph's metadata, without those that the graph itself has."""
    metadata = {key: text for key, text in model.notes.items() if key not in _IN_GRAPH}
    if split_dtypes := {name: dtype.name for name, dtype in model.semantic.items() if has_storage_axis(dtype)}:
        metadata[notes.DTYPES] = json.dumps(split_dtypes)  # of values that the graph has as digits or parts
    return metadata


# Files that are not ONNX models, recognised by their first bytes: what they are, and what to do with them.

_CHECK_FILE = "check that the file is a complete .onnx file"


@dataclass(frozen=True, slots=True)
class _FileKind:
    """A kind of file. matches: tests its first bytes. name: with its article."""

    matches: Callable[[bytes], bool]
    name: str
    help: str


def _begins(*heads: bytes, at: int = 0) -> Callable[[bytes], bool]:
    return lambda first: first[at:].lstrip(b"\xef\xbb\xbf \t\r\n" if at == 0 else b"").startswith(heads)


_KINDS = (
    _FileKind(lambda first: not first.strip(b"\0"), "zeros", "copy or download it again"),
    _FileKind(_begins(b"version https://git-lfs"), "a git-lfs pointer", "run git lfs pull in its repository"),
    _FileKind(
        _begins(b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML", b"<?xml", b"<head"),
        "an HTML or XML page",
        "download the file itself: the server sent a page, of an error or a login",
    ),
    _FileKind(_begins(b"{", b"["), "JSON text", "give the .onnx file; a server may have answered with an error"),
    _FileKind(_begins(b"GGUF"), "a GGUF checkpoint", "gc.load_tensors reads it, and models.llama.build takes it"),
    _FileKind(lambda first: first[8:10] == b'{"', "a safetensors checkpoint", "gc.load_tensors reads it"),
    _FileKind(
        _begins(b"ORTM", at=4),
        "a model in onnxruntime's own format",
        'if you trust its source, since nothing checks it: InferenceSession().load(path, format="ort")',
    ),
    _FileKind(_begins(b"TFL3", at=4), "a TensorFlow Lite model", "convert it with tf2onnx"),
    _FileKind(_begins(b"\x89HDF"), "an HDF5 file", "convert the Keras model with tf2onnx"),
    _FileKind(
        _begins(b"PK\3\4"), "a zip archive, such as a PyTorch checkpoint", "export the model with torch.onnx.export"
    ),
    _FileKind(
        lambda first: first[:1] == b"\x80" and first[1:2] in (b"\2", b"\3", b"\4", b"\5"),
        "a pickle",
        "export the model with the library that wrote it; pickles run code and are never read",
    ),
    _FileKind(_begins(b"\x1f\x8b"), "a gzip file", "unpack it"),
    _FileKind(_begins(b"\xfd7zXZ", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd"), "a compressed file", "unpack it"),
    _FileKind(_begins(b"ustar", at=257), "a tar archive", "unpack it"),
    _FileKind(_begins(b"\x7fELF", b"MZ"), "a program or a shared library", _CHECK_FILE),
)


def not_a_model(name: str, content: bytes | memoryview) -> ModelError:
    """Return the error for bytes that are not an ONNX model, with their size and the kind of file.

    name: of the file. content: all of it.
    """
    size = len(content)
    if not size:
        return ModelError(f"load: {name} is empty", help="copy or download it again")
    first = bytes(content[:512])
    match = next((kind for kind in _KINDS if kind.matches(first)), None)
    if match is not None:
        return ModelError(f"load: {name} is not an ONNX model: its {size:,} bytes are {match.name}", help=match.help)
    fault, is_cut = _fault(memoryview(content))
    help = "it is truncated: copy or download it again" if is_cut else _CHECK_FILE
    return ModelError(f"load: {name} of {size:,} bytes is not an ONNX model: {fault}", help=help)


def _fault(content: memoryview) -> tuple[str, bool]:
    """Return a description of the first malformed field of the message, and True if the file is truncated there."""
    position, size = 0, len(content)
    while position < size:
        start = position
        key, position = _varint(content, position)
        kind = -1 if key is None or not key >> 3 else key & 7
        if kind == 2:
            length, position = _varint(content, position)
            if length is None:
                return f"the field at byte {start:,} has no length", position >= size
            if position + length > size:
                remaining = size - position
                return f"the field at byte {start:,} claims {length:,} bytes, but only {remaining:,} follow", True
            position += length
        elif kind == 0:
            _, position = _varint(content, position)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            return f"byte {start:,} does not start a field of a message", False
    return "a part of it is not a message of ONNX", position > size


def _varint(content: memoryview, position: int) -> tuple[int | None, int]:
    number = shift = 0
    while position < len(content) and shift < 64:
        byte = content[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
    return None, position
