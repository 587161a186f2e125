"""Direct loads: start a third-party model that needs no lowering from its file, and read its graph only on demand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnxruntime

from graphcore.arrays.resource_limits import USUAL
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.onnx import notes
from graphcore.onnx.proto.limits import check_text
from graphcore.onnx.proto.messages import nested
from graphcore.onnx.proto.opened import Opened as Opened
from graphcore.onnx.proto.opened import constants_of, default_names, graph_name
from graphcore.onnx.proto.type_protos import read_type
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.model import Model
from graphcore.runtime.ort import memory as prepacking
from graphcore.runtime.ort import transport_dtypes
from graphcore.runtime.ort.memory import Prepack
from graphcore.runtime.ort.optimisers import disabled_by, idle_among
from graphcore.runtime.ort.options import SLOWER, SessionStarter, require_started
from graphcore.runtime.ort.release import runtime
from graphcore.runtime.ort.sessions import quadratic
from graphcore.support.lazy import Lazy
from graphcore.types.tensor_types import TensorType, Type

if TYPE_CHECKING:
    from graphcore.runtime.sessions.direct import scan as scanning
    from graphcore.runtime.sessions.direct.patches import Lowering, Patches, Splice
    from graphcore.runtime.sessions.direct.scan import Scan
else:  # files that graphcore wrote for a lowering do not need it
    scanning = Lazy("graphcore.runtime.sessions.direct.scan")

_MAX_PARSED_BYTES = 8 << 20
"""Up to this size, parsing a whole model takes less time than splitting off its large tensors."""


_KNOWN_NOTES = frozenset({notes.PROMOTION, notes.TARGET, notes.LEGAL})
"""The notes that a model may have which runs as it is."""

_FUSED = frozenset({"Erf", "Gelu", "LayerNormalization", "ReduceMean"})
"""Each match of the optimisers in `SLOWER` has one of these operators."""


@dataclass(frozen=True, slots=True)
class DirectPlan:
    """A model that runs without lowering. defaults: names of inputs that have one. constants: types of those that calls
    may override. entries: config entries of the session. disabled: optimisers to disable. splice: puts lowered nodes
    into the file; None if no node needs lowering."""

    name: str
    inputs: dict[str, Type]
    declared: dict[str, Type]
    defaults: frozenset[str]
    constants: dict[str, Type]
    entries: Mapping[str, str]
    disabled: tuple[str, ...]
    splice: Splice | None


def plan_direct(
    model: Opened,
    prepack: Prepack,
    *,
    keeps_halves: bool = True,
    defaults: frozenset[str] = frozenset(),
    make_scan: Callable[..., Scan] | None = None,
    lowering: Lowering | None = None,
) -> DirectPlan | str:
    """Return the plan of a model that runs on the CPU without lowering, or the reason why it needs a Graph.

    keeps_halves: whether float16 stays with the runtime's kernels. defaults: initializers that calls override.
    lowering: its options, for single nodes that need it; None to leave models with such nodes to a Graph.
    """
    is_whole = len(model.content) <= _MAX_PARSED_BYTES
    try:
        proto = model.whole() if is_whole else model.proto
    except ModelError:  # reading the model gives a better error
        return "it is not a model"
    check_text((text for p in proto.metadata_props for text in (p.key, p.value)), "the model's metadata")
    noted = notes.read({p.key: p.value for p in proto.metadata_props})
    is_own = notes.PROMOTION in noted and noted.get(notes.TARGET) != "cpu"
    is_legal = is_own and noted.get(notes.LEGAL) == notes.legal(node.op_type for node in proto.graph.node)
    if (is_own and not is_legal) or not _KNOWN_NOTES.issuperset(k for k in noted if k.startswith(notes.PREFIX)):
        return "graphcore wrote it"
    graphs = nested(proto.graph) if model.limits.nodes < USUAL.nodes else (proto.graph,)
    if model.limits.looks_at_nodes or sum(len(graph.node) for graph in graphs) > model.limits.nodes:
        return "limits that the reader checks"
    defaults = default_names(proto, defaults)
    rules = legality("cpu", runtime())

    def new_patches() -> Patches:
        from graphcore.runtime.sessions.direct.patches import Patches  # imports onnx, which most models do not need

        assert lowering is not None
        return Patches(proto, model.content, lowering, rules)

    scan = (make_scan or scanning.Scan)(
        rules,
        keeps_halves=keeps_halves and not is_legal,
        defaults=defaults,
        # A Graph passes large weights by reference, which takes less time than a copy of the file.
        new_patches=new_patches if lowering is not None and is_whole and not is_own else None,
    )
    if not scan.run(proto, model.is_aligned):
        return scan.reason or ""
    entries = _packing(scan, prepack)
    if entries is None:
        return "whether prepacking pays depends on shapes"
    graph = proto.graph
    operators = {(op_type, "") for op_type in scan.operators} | (scan.patches.present if scan.patches else set())
    slower = () if _FUSED.isdisjoint(op_type for op_type, _ in operators) else SLOWER
    disabled = (*slower, *idle_among(operators), *quadratic(scan.constants, scan.different))
    return DirectPlan(
        graph_name(graph.name),
        {v.name: read_type(v.type) for v in graph.input if v.name not in scan.dims},
        {v.name: read_type(v.type) for v in graph.output},
        defaults,
        constants_of(proto, defaults),
        entries,
        (*disabled, *disabled_by(scan.signs.__contains__), *(scan.patches.disabled if scan.patches else ())),
        scan.splice,
    )


def started(
    direct: DirectPlan, model: Opened, starter: SessionStarter, load: Callable[[], Model], read: Callable[[], Graph]
) -> Model | None:
    """Return the Model of a direct load; None if onnxruntime refuses it, or its file was changed meanwhile.

    load: loads the model through its Graph. read: only reads the Graph.
    """
    content: bytes | str = model.path or bytes(model.content)

    def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        options = starter.options({**direct.entries, **more})
        if direct.splice is not None and model.is_overwritten():
            raise ModelError(f"load: {model.name} was changed since it was loaded", help="load it again")
        patched = content if direct.splice is None else direct.splice.content(model.content)
        session = starter.create(patched, options, direct.disabled)
        require_started(session, starter.providers, starter.selection)
        return session, None

    with contextlib.suppress(Exception):  # loading through a Graph reports the error
        session = start({})
        if not model.is_unchanged():
            return None
        _, types = transport_dtypes.types_of(session[0])
        # The declared types replace those of onnxruntime that may be of scalars or of unknown rank.
        outputs = {
            name: direct.declared[name] if isinstance(type_, TensorType) and not type_.shape.is_ranked else type_
            for name, type_ in types.items()
        }
        model.forget()
        return Model(
            direct.name,
            start,
            direct.inputs,
            outputs,
            session,
            load_full=load,
            read_outputs=lambda: read().output_types,
            defaults=dict.fromkeys(direct.defaults),
        )
    return None


def _packing(scan: Scan, prepack: Prepack) -> Mapping[str, str] | None:
    """Return the config entries for prepacking; None if it depends on shapes whether prepacking pays."""
    is_packed = prepack == "on" if prepack != "auto" else scan.is_packed()
    if is_packed and scan.is_large:
        return {}  # in parallel, originals and packed copies would all be in memory at once
    return None if is_packed is None else prepacking.PARALLEL if is_packed else prepacking.OFF
