"""Direct loads: a model of others that needs no lowering is started as its file has it, and read when someone asks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnxruntime

from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.onnx import notes
from graphcore.onnx.proto.limits import check_text
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.read.nodes import graph_name
from graphcore.onnx.read.reader import Opened as Opened
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.model import Model
from graphcore.runtime.ort import memory as prepacking
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.ort.memory import Prepack
from graphcore.runtime.ort.optimisers import idle, left_out
from graphcore.runtime.ort.options import SLOWER, Starter
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.ort.sessions import quadratic
from graphcore.runtime.sessions.direct.scan import Scan
from graphcore.types.tensor_types import TensorType, Type

_PARSED_WHOLE = 8 << 20
"""Bytes up to which parsing large tensors takes less time than finding them."""


_FUSED = frozenset({"Erf", "Gelu", "LayerNormalization", "ReduceMean"})
"""Operators one of which each match of the optimisers in `SLOWER` has."""


@dataclass(frozen=True, slots=True)
class Direct:
    """A model that runs as it is. entries: of the session's configuration. disabled: optimisers to leave out."""

    name: str
    inputs: dict[str, Type]
    declared: dict[str, Type]
    entries: Mapping[str, str]
    disabled: tuple[str, ...]


def found(model: Opened, prepack: Prepack, *, keeps_halves: bool = True) -> Direct | str:
    """Return how a model is started as it is on the CPU, or why it is left to a Graph.

    keeps_halves: whether float16 stays with the runtime's kernels.
    """
    try:
        proto = model.whole() if len(model.content) <= _PARSED_WHOLE else model.proto
    except ModelError:  # which reading it says better
        return "it is no model"
    if not _is_of_others(proto):
        return "graphcore wrote it"
    if model.limits.looks_at_nodes or len(proto.graph.node) > model.limits.nodes:
        return "limits that reading it tells of"
    scan = Scan(legality("cpu", runtime()), keeps_halves=keeps_halves)
    if not scan.run(proto, lambda: model.proto):
        return scan.reason or ""
    entries = _packing(scan, prepack)
    if entries is None:
        return "only shapes tell whether its weights are packed"
    graph = proto.graph
    slower = SLOWER if not scan.operators.isdisjoint(_FUSED) else ()
    disabled = (*slower, *idle(frozenset(scan.operators)), *quadratic(scan.constants, scan.different))
    return Direct(
        graph_name(graph.name),
        {v.name: read_type(v.type) for v in graph.input if v.name not in scan.dims},
        {v.name: read_type(v.type) for v in graph.output},
        entries,
        (*disabled, *left_out(scan.signs.__contains__)),
    )


def started(
    direct: Direct, model: Opened, starter: Starter, load: Callable[[], Model], read: Callable[[], Graph]
) -> Model | None:
    """Return the Model of a direct load; None where onnxruntime does not take it, or its file was changed meanwhile.

    load: loads the model through its Graph, and read: reads that alone.
    """
    content: bytes | str = bytes(model.content) if model.path is None else model.path

    def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        options = starter.options({**direct.entries, **more})
        made = starter.create(content, options, direct.disabled)
        return made, None

    with contextlib.suppress(Exception):  # the Graph tells what is wrong
        session = start({})
        if not model.is_unchanged():
            return None
        given = transport_dtypes.outputs_of(session[0])
        outputs = {name: _refined(direct.declared[name], type_) for name, type_ in given.items()}
        model.forget()
        return Model(
            direct.name, start, direct.inputs, outputs, session, whole=load, read_outputs=lambda: read().output_types
        )
    return None


def _is_of_others(model: onnx.ModelProto) -> bool:
    """Return whether nothing is noted in a model but, at most, that it was lowered for the CPU."""
    check_text((text for p in model.metadata_props for text in (p.key, p.value)), "the model's metadata")
    noted = notes.read({p.key: p.value for p in model.metadata_props})
    if notes.PROMOTION in noted and noted.get(notes.TARGET) != "cpu":
        return False
    return not any(key.startswith(notes.PREFIX) and key not in (notes.PROMOTION, notes.TARGET) for key in noted)


def _packing(scan: Scan, prepack: Prepack) -> Mapping[str, str] | None:
    """Return the entries of a choice; None where only shapes tell whether packing pays."""
    is_packed = prepack == "on" if prepack != "auto" else scan.is_packed()
    return None if is_packed is None else prepacking.PARALLEL if is_packed else prepacking.OFF


def _refined(declared: Type, found: Type) -> Type:
    """Return the type of an output as onnxruntime has it, which says of a scalar and of an unknown rank the same."""
    if isinstance(found, TensorType) and not found.shape.is_ranked:
        return declared
    return found
