"""Read ONNX models as Graphs, and convert their nodes to the opset of Graphs.

Each node is typed at the model's own version, by its operator's rule or by ONNX's inference, checked against its
schema, and converted if its operator has changed since. Nothing in a model is trusted: names, sizes, types and nesting
are checked before they are used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import onnx

from graphcore.arrays.external_data import ExternalData, links_of
from graphcore.arrays.resource_limits import Limits, limits_of
from graphcore.custom_ops.custom_op import CustomOp
from graphcore.custom_ops.declaration import callable_labels
from graphcore.errors import GraphcoreError, ResourceLimitError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import method
from graphcore.ir.symbol import Symbol
from graphcore.onnx import notes
from graphcore.onnx.proto import buffer_notes
from graphcore.onnx.proto.limits import invalid
from graphcore.onnx.proto.opened import Opened, graph_name, versions_of
from graphcore.onnx.proto.opened import constants_of as constants_of
from graphcore.onnx.proto.value_protos import Large
from graphcore.onnx.read.checks import check_model
from graphcore.onnx.read.model import ModelContext
from graphcore.onnx.read.nodes import NodeReader
from graphcore.onnx.read.source import Source, state_of
from graphcore.onnx.read.statements import BodyStatements
from graphcore.onnx.schemas.runtime_operators import RuntimeOperators
from graphcore.onnx.schemas.runtime_operators import installed as installed
from graphcore.promotion import PromotionSystem
from graphcore.support.gc_pause import uncollected
from graphcore.types.dtypes import has_storage_axis

_IN_GRAPH = (notes.PROMOTION, notes.DTYPES, notes.TARGET, notes.WRITER, notes.LEGAL)


@method(Graph, is_static=True)
def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    implicit_casts: bool = False,
    promotion: str | PromotionSystem | None = None,
    external_data: ExternalData = "plain",
    external_data_root: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    custom_ops: Iterable[str | CustomOp[..., Any]] = (),
    defaults: bool | Iterable[str] = False,
) -> Graph:
    """Read an ONNX model as a Graph.

    Weights stay in the memory-mapped file. Operators are converted to the opset that graphs use; operators of other
    domains are unchanged.

    Args:
        source: A path, bytes or a ModelProto of opset 7 or newer.
        implicit_casts: If True, operands of different dtypes are cast as the promotion system requires.
        promotion: The promotion system, by default the one in the model's metadata, or "max".
        external_data: "plain" reads external data only from plain files in the model's folder. "links" follows symbolic
            links, as in the cache of Hugging Face's hub (docs/security.md).
        external_data_root: The folder that links may lead to, by default the repository in that cache, else the model's
            folder.
        limits: Limits on the resources that the model may use, by default `gc.Limits()`.
        custom_ops: Custom operators whose Python functions the model may call, as objects or by name; empty by default.
        defaults: Names of initializers that become defaults of inputs; True for all that the file lists as inputs
            (docs/howto/adapters.md). They are constants otherwise, except in files that graphcore wrote.

    Raises:
        ModelError: The model is invalid.
        UnsafePathError: External data is outside of the model's folder or of the root.
        ResourceLimitError: The model exceeds a limit.
    """
    labels = callable_labels(custom_ops)
    opened = Opened(source, links_of(external_data, external_data_root), limits_of(limits))
    graph = read(
        opened,
        implicit_casts=implicit_casts,
        promotion=promotion,
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
    name = opened.name
    try:
        with uncollected():
            allowed = custom_ops if opened.limits.strict is None else frozenset()
            model = ModelContext(opened, implicit_casts, runtime, allowed, defaults, keeps_fields)
            return buffer_notes.read(_read(model, promotion))
    except GraphcoreError:
        raise
    except RecursionError:
        raise ResourceLimitError(f"load: {name} is nested too deep", help="flatten its functions and bodies") from None
    except MemoryError:
        raise ResourceLimitError(f"load: there is not enough memory to read {name}", help="make it smaller") from None


def read_nodes(graph: Graph, nodes: Sequence[onnx.NodeProto], names: dict[str, Symbol | None], version: int) -> None:
    """Read nodes of an opset into a graph, on named Symbols of it, and enter their results into `names`."""
    model = ModelContext(Opened.of_parts(onnx.ModelProto(), Large()))
    NodeReader(model, graph, {"": version}, {}, names, depth=1).nodes(nodes)


def _read(model: ModelContext, promotion: str | PromotionSystem | None) -> Graph:
    """Return the graph of a model. Raises `ModelError`, `ResourceLimitError`."""
    proto = model.proto
    if not proto.graph.output:
        raise invalid("the model has no outputs", help="check that the file is a complete .onnx file")
    checked = check_model(proto, model.versions, model.limits)
    model.functions.check(proto.graph.node, checked.count, model.limits)
    model.functions.check_calls(proto.graph.node, model.versions)
    model.watch.look()
    declared = {v.name: v.type for v in (*proto.graph.value_info, *proto.graph.output) if v.type.WhichOneof("value")}
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
