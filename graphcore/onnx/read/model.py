"""The state of one read of a model: its parts, what it notes of itself, and how many nodes were read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set

import onnx

from graphcore.arrays.external_data import Folder
from graphcore.arrays.resource_limits import USUAL, Limits, Watch, exceeded
from graphcore.errors import GraphcoreError
from graphcore.onnx import notes
from graphcore.onnx.proto.limits import check_text
from graphcore.onnx.proto.split_weights import Large
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.read.function_calls import Functions
from graphcore.onnx.read.opsets import versions_of
from graphcore.onnx.schemas.runtime_operators import RuntimeOperators, installed
from graphcore.promotion import PromotionSystem, system
from graphcore.support.source_lines import Imported, Loaded, user_line
from graphcore.types.dtypes import DType, is_carried
from graphcore.types.tensor_types import Type

_STEP = 64
"""Nodes after which the time is looked at."""


class Model:
    """One model while it is read.

    proto: without its large tensors.
    large: their contents.
    folder: where external data may lie.
    implicit_casts: whether operands are promoted.
    notes: what the model and its values note of themselves.
    semantic: by name, the dtypes of values that are stored as others.
    origin: of the nodes where they keep the numbers of the kernels that the model was written for.
    runtime: gives what is asked for operators of other domains.
    limits, watch: what the model may take, and the time that it has.
    custom_ops: the declared ones whose Python functions may be called; None for all.
    sees_elements: whether each tensor is checked against a limit of elements.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        large: Large,
        folder: Folder,
        implicit_casts: bool,
        runtime: Callable[[], RuntimeOperators | None] = installed,
        limits: Limits = USUAL,
        watch: Watch | None = None,
        custom_ops: Set[str] | None = None,
    ) -> None:
        self.limits = limits
        self.watch = watch or Watch(limits)
        self.custom_ops = custom_ops
        self.sees_elements = limits.elements < USUAL.elements
        self.proto = proto
        self.large = large
        self.folder = folder
        self.implicit_casts = implicit_casts
        self.runtime = runtime
        self.versions = versions_of(proto.opset_import)
        self.functions = Functions(proto.functions)
        self.notes = _notes(proto)
        self.semantic = _semantic(self.notes)
        is_foreign = notes.PROMOTION not in self.notes or self.notes.get(notes.TARGET, "onnx") != "onnx"
        line = user_line() or ("", 0)
        self.origin = Imported(*line) if is_foreign else None
        self.loaded = None if is_foreign else Loaded(*line)
        self._count = 0
        self._types: dict[bytes, Type] = {}

    def type_of(self, proto: onnx.TypeProto) -> Type:
        """Return the type that a proto says. Most values are of a type that another one has too."""
        key = proto.SerializeToString()
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = read_type(proto)
        return found

    def count(self) -> None:
        """Count a node that is read: bodies are read again until their types settle, and nested ones more often.

        Raises `ResourceLimitError` for too many.
        """
        self._count += 1
        if self._count > 2 * self.limits.nodes:
            raise exceeded("nodes", self.limits.nodes, f"more than {2 * self.limits.nodes} nodes are to be read")
        if not self._count % _STEP:
            self.watch.look()

    def dtype(self, name: str, stored: DType) -> DType:
        """Return the dtype that the model notes for a value, if that is stored as `stored`; else `stored`."""
        noted = self.semantic.get(name)
        if noted is None or is_carried(noted):  # a file holds its digits or parts, along one more axis
            return stored
        return noted if noted.storage is stored else stored

    def promotion(self) -> PromotionSystem:
        """Return the system that the model notes; "max" where the note, which is untrusted, names none."""
        name, _, options = self.notes.get(notes.PROMOTION, "max").partition(" ")
        try:
            return system(name, **json.loads(options or "{}"))
        except (ValueError, TypeError, RecursionError, GraphcoreError):
            return system("max")


def _notes(proto: onnx.ModelProto) -> dict[str, str]:
    """Return what a model and its values note of themselves. Raises `ModelError` for notes that are no text."""
    graph = proto.graph
    values = {v.name: v.metadata_props for v in (*graph.input, *graph.output, *graph.initializer) if v.metadata_props}
    check_text((text for p in proto.metadata_props for text in (p.key, p.value)), "the model's metadata")
    said = {name: {p.key: p.value for p in properties} for name, properties in values.items()}
    return notes.gathered(notes.read({p.key: p.value for p in proto.metadata_props}), said)


def _semantic(noted: Mapping[str, str]) -> dict[str, DType]:
    """Return the dtypes that notes have beyond what ONNX stores; none where the note, which is untrusted, is wrong."""
    try:
        dtypes = json.loads(noted.get(notes.DTYPES, "{}"))
        return {name: DType.of(dtype) for name, dtype in dtypes.items() if isinstance(dtype, str)}
    except (ValueError, AttributeError, RecursionError, GraphcoreError):
        return {}
