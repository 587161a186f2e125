"""ONNX models as Graphs: whatever operators, dtypes, functions and bodies they have, brought to the opset written here.

Each node gets the types that ONNX's inference finds at the model's own version, is checked against its schema, and is
converted where its operator has changed since. Nothing of a model is trusted: names, sizes, types and nesting are
checked before they are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import onnx

from graphcore.arrays.external_data import ExternalData, Folder, Links, links_of, model_bytes
from graphcore.arrays.resource_limits import USUAL, Limits, Watch, limits_of
from graphcore.custom_ops.calling import called
from graphcore.custom_ops.custom_op import CustomOp
from graphcore.errors import GraphcoreError, ModelError, ResourceLimitError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.onnx import notes
from graphcore.onnx.opset import LIMIT
from graphcore.onnx.proto import buffer_notes
from graphcore.onnx.proto.foreign_files import not_a_model
from graphcore.onnx.proto.limits import check_text
from graphcore.onnx.proto.split_weights import Large, split
from graphcore.onnx.read.checks import check_model, survivable
from graphcore.onnx.read.model import Model
from graphcore.onnx.read.nodes import Reader, graph_name
from graphcore.onnx.read.statements import Body
from graphcore.onnx.schemas.checked_dims import inferred_whole
from graphcore.onnx.schemas.runtime_operators import RuntimeOperators, installed
from graphcore.promotion import PromotionSystem
from graphcore.support.gc_pause import uncollected
from graphcore.types.dtypes import is_carried

_IN_GRAPH = (notes.PROMOTION, notes.DTYPES, notes.TARGET)


class Opened:
    """A model that is opened: its bytes, where they lie, and its message once that was parsed.

    path: of the file; None of what is in memory. folder: where its external data may lie. name: for errors. limits:
    that it keeps to. watch: the time that has passed since it was opened.
    """

    def __init__(self, source: object, links: Links | None, limits: Limits = USUAL) -> None:
        self.limits = limits
        self.watch = Watch(limits)
        is_path = isinstance(source, (str, os.PathLike))
        self.path = os.fsdecode(os.fspath(source)) if is_path else None  # type: ignore[call-overload]
        self._written = self._stamp()
        self.content, self.folder, self.name = _content(source, links, self._admit)
        self._bytes = 0
        self._count(len(self.content))
        self._split: tuple[onnx.ModelProto, Large] | None = None

    @property
    def proto(self) -> onnx.ModelProto:
        """Return the message without the content of the graph's large tensors. Raises `ModelError`."""
        return self._parsed()[0]

    @property
    def large(self) -> Large:
        """Return the content of the graph's large tensors by the position of their initializer."""
        return self._parsed()[1]

    def _admit(self, found: os.stat_result, tensor: str) -> None:
        """Raise an error for a file of external data that is not read."""
        if (found.st_dev, found.st_ino) == self._written[:2]:
            raise ModelError(
                f"load: the data of {tensor} lies in the model's own file", help="save the model with its data inside"
            )
        if self.limits.strict is not None:
            raise ModelError(
                f"load: {tensor} lies in another file, and limit strict allows no external data",
                help="save the model with its data inside, or load it without strict",
            )
        self._count(found.st_size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self.limits.check("bytes", self._bytes, f"{self.name} has {self._bytes} bytes with its data")

    def is_unchanged(self) -> bool:
        """Return whether the file is the one that was opened, as far as its times, size and number tell."""
        return self._stamp() == self._written

    def is_overwritten(self) -> bool:
        """Return whether the bytes are others by now: those of a file that was written to, and not replaced."""
        now = self._stamp()
        return now[:2] == self._written[:2] and now != self._written

    def forget(self) -> None:
        """Forget the message: it is parsed again where it is asked for."""
        self._split = None

    def whole(self) -> onnx.ModelProto:
        """Return the message with the content of all tensors, which is not kept. Raises `ModelError`."""
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
            found = os.stat(self.path)
        except (OSError, ValueError):  # which reading it says better
            return (0,)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def load(
    source: object,
    *,
    implicit_casts: bool = False,
    promotion: str | PromotionSystem | None = None,
    external_data: ExternalData = "plain",
    external_data_root: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    custom_ops: Iterable[str | CustomOp[..., Any]] = (),
    runtime: Callable[[], RuntimeOperators | None] = installed,
) -> Graph:
    """Return the graph of a model; see `Graph.load`. runtime: gives what is asked for operators of other domains."""
    named = called(custom_ops)
    found = Opened(source, links_of(external_data, external_data_root), limits_of(limits))
    return read(found, implicit_casts=implicit_casts, promotion=promotion, runtime=runtime, custom_ops=named)


def read(
    opened: Opened,
    *,
    implicit_casts: bool = False,
    promotion: str | PromotionSystem | None = None,
    runtime: Callable[[], RuntimeOperators | None] = installed,
    custom_ops: Set[str] = frozenset(),
) -> Graph:
    """Return the graph of a model that is opened; see `load`. custom_ops: labels of those that may be called."""
    proto, large, name = opened.proto, opened.large, opened.name
    try:
        with uncollected():
            allowed = custom_ops if opened.limits.strict is None else frozenset()
            model = Model(proto, large, opened.folder, implicit_casts, runtime, opened.limits, opened.watch, allowed)
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
    """Return the bytes of a model, the folder where its external data may lie, and its name in errors."""
    if isinstance(source, onnx.ModelProto):
        if source.ByteSize() > LIMIT:
            raise ModelError("load: the model is larger than 2 GiB", help="give its path")
        return memoryview(source.SerializeToString()), Folder(None), source.graph.name or "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(bytes(source)), Folder(None), "the model"
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(os.fspath(source))
        return model_bytes(path), Folder(os.path.dirname(os.path.abspath(path)), links, admit), path
    raise ModelError(f"load: a {type(source).__name__} is no model", help="give a path, bytes or a ModelProto")


def read_nodes(graph: Graph, nodes: Sequence[onnx.NodeProto], names: dict[str, Symbol | None], version: int) -> None:
    """Read nodes of an opset into a graph, on named Symbols of it, and enter what they make into `names`."""
    model = Model(onnx.ModelProto(), Large(), Folder(None), False)
    Reader(model, graph, {"": version}, {}, names, depth=1).nodes(nodes)


def _read(model: Model, promotion: str | PromotionSystem | None) -> Graph:
    """Return the graph of a model. Raises `ModelError`, `ResourceLimitError`."""
    proto = model.proto
    if not proto.graph.output:
        raise ModelError("load: the model has no outputs", help="check that the file is whole and is an .onnx file")
    checked = check_model(proto, model.versions, model.limits)
    model.functions.check(proto.graph.node, checked.count, model.limits)
    model.functions.check_calls(proto.graph.node, model.versions)
    model.watch.look()
    found = None if model.implicit_casts else _inferred(proto, checked.op_types)
    model.watch.look()
    model.is_inferred = found is not None
    known = found if found is not None else {v.name: v.type for v in proto.graph.value_info}
    values = (*proto.graph.input, *proto.graph.output, *proto.graph.initializer)
    metadata = [p for holder in (proto, *values) for p in holder.metadata_props]
    check_text((text for p in metadata for text in (p.key, p.value)), "the model's metadata")
    graph = Graph(graph_name(proto.graph.name), promotion=promotion or model.promotion())
    graph.metadata = _metadata(model)
    graph.opsets = {d: v for d, v in model.versions.items() if d not in ("", "ai.onnx.ml")}
    Reader(model, graph, model.versions, known).graph_proto(Body(proto.graph, checked.statements), model.large)
    return graph


def _metadata(model: Model) -> dict[str, str]:
    """Return the notes that a graph keeps: the promotion system, the target and most dtypes are in the graph itself."""
    kept = {key: text for key, text in model.notes.items() if key not in _IN_GRAPH}
    if carried := {name: dtype.name for name, dtype in model.semantic.items() if is_carried(dtype)}:
        kept[notes.DTYPES] = json.dumps(carried)  # of values that the graph has as digits of uint32, or as parts
    return kept


def _inferred(model: onnx.ModelProto, op_types: Set[str]) -> dict[str, onnx.TypeProto] | None:
    """Return the types of the graph's values as ONNX infers them over the whole model; None if it fails."""
    try:
        found = inferred_whole(survivable(model, op_types), op_types)
    except Exception:  # each node is inferred by itself then, and says what is wrong with it
        return None
    values = (*found.graph.value_info, *found.graph.output, *found.graph.input)
    return {v.name: v.type for v in values if v.type.WhichOneof("value")}
