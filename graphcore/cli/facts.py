"""Facts about a model as plain values: those of `graphcore inspect --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import onnx

from graphcore.analysis.casts import casts
from graphcore.analysis.flops import flops
from graphcore.analysis.sizes import sizes
from graphcore.analysis.statistics import statistics
from graphcore.arrays.external_data import model_bytes
from graphcore.cli.distances import lengths, require_dims
from graphcore.cli.output import Advance
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node
from graphcore.ir.transform.walk import parts
from graphcore.onnx.proto.messages import nested
from graphcore.onnx.proto.value_protos import split
from graphcore.runtime.lowering.report import named, report
from graphcore.runtime.lowering.targets import BY_PROVIDER
from graphcore.runtime.ort import options as providers
from graphcore.runtime.ort import release
from graphcore.types.tensor_types import TensorType, Type

Facts = dict[str, Any]


def header(path: str) -> Facts:
    """Return the metadata of a file, and its operators before any conversion, those of bodies and functions included.

    Raises `ModelError` for a file that is not a model.
    """
    content = model_bytes(path)
    head, _ = split(content)
    model = onnx.ModelProto.FromString(head)
    nodes = (node for root in (model.graph, *model.functions) for graph in nested(root) for node in graph.node)
    counts = Counter(f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in nodes)
    stored = model.graph.initializer
    return {
        "bytes": len(content),
        "external_data": any(each.data_location == onnx.TensorProto.EXTERNAL for each in stored),
        "ir_version": model.ir_version,
        "opsets": {each.domain or "ai.onnx": each.version for each in model.opset_import},
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "domain": model.domain,
        "metadata": {each.key: each.value for each in model.metadata_props},
        "operators": dict(counts.most_common()),
        "functions": [each.name for each in model.functions],
    }


def ends(graph: Graph) -> Facts:
    """Return the inputs and outputs, and the names of dims with their inputs."""
    dims: dict[str, list[str]] = {}
    for symbol in graph.inputs:
        for name in _dim_names(symbol.type):
            dims.setdefault(name, []).append(symbol.name)
    return {
        "name": graph.name,
        "inputs": [
            _end(s.name, s.type) | ({"default": list(graph.defaults[s.name].shape)} if s.name in graph.defaults else {})
            for s in graph.inputs
        ],
        "outputs": [_end(name, type_) for name, type_ in graph.output_types.items()],
        "buffers": [{"name": name, "type": str(state.buffer.type)} for name, state in graph.buffers.items()],
        "dims": dims,
        "promotion": str(graph.promotion),
    }


def _dim_names(type_: Type) -> list[str]:
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return []
    return [*dict.fromkeys(name for dim in type_.shape for name in dim.parameters)]


def _end(name: str, type_: Type) -> Facts:
    facts: Facts = {"name": name, "type": str(type_)}
    if isinstance(type_, TensorType):
        shape = [int(d) if d.is_static else str(d) for d in type_.shape] if type_.shape.is_ranked else None
        facts |= {"dtype": type_.dtype.name, "shape": shape}
    return facts


def contents(graph: Graph) -> Facts:
    """Return the numbers of nodes and of values of each dtype, and parameters and bytes in total and by layer."""
    model_sizes = sizes(graph)
    nodes = [node for part in parts(graph) for node in part.nodes]
    dtypes = Counter(
        symbol.type.dtype.name if isinstance(symbol.type, TensorType) else "other"
        for node in nodes
        for symbol in node.outputs
    )
    stored: Counter[str] = Counter()
    for weight in model_sizes.weights:
        stored[weight.dtype] += weight.bytes
    return {
        "nodes": len(nodes),
        "dtypes": {
            name: {"values": dtypes[name], "weight_bytes": stored[name]}
            for name, _ in (dtypes + Counter(dict.fromkeys(stored, 0) | dict.fromkeys(stored, 1))).most_common()
        },
        "parameters": model_sizes.parameters,
        "weight_bytes": model_sizes.bytes,
        "layers": [asdict(layer) for layer in model_sizes.layers],
    }


def work(graph: Graph, dim_sizes: Mapping[str, int]) -> Facts:
    """Return the number of operations of a run.

    dim_sizes: sizes by names of dims, and by `input.axis` for dims without a name; by default 1. Raises `FeedError` for
    an unknown dim, `ShapeError` for sizes that the graph does not accept.
    """
    inputs = {symbol.name: symbol.type for symbol in graph.inputs}
    require_dims("inspect", inputs, dim_sizes)
    names = [*dict.fromkeys(name for type_ in inputs.values() for name in _dim_names(type_))]
    chosen = {name: dim_sizes.get(name, 1) for name in names}
    counted = flops(_sized(graph, inputs, dim_sizes), chosen)
    unknown = Counter((entry.operator, entry.reason) for entry in counted.unknown)
    return {
        "sizes": chosen | {name: size for name, size in dim_sizes.items() if name not in chosen},
        "flops": int(counted.total) if counted.total.is_static else None,
        "flops_with_sizes": str(counted.total),
        "flops_expression": str(flops(graph).total),
        "uncounted": [{"operator": o, "count": count, "reason": reason} for (o, reason), count in unknown.items()],
        "flops_by_layer": {path: str(dim) for path, dim in counted.by_layer().items()},
    }


def _sized(graph: Graph, inputs: Mapping[str, Type], dim_sizes: Mapping[str, int]) -> Graph:
    """Return the graph with a size for each dim of its inputs, or unchanged if it does not accept size 1.

    Shapes that depend on values are then known too.
    """
    shapes = {
        name: lengths("inspect", name, type_, dim_sizes)
        for name, type_ in inputs.items()
        if isinstance(type_, TensorType) and type_.shape.is_ranked and not type_.shape.is_static
    }
    if not shapes:
        return graph
    try:
        return graph.with_dims(shapes)
    except GraphcoreError:
        if dim_sizes:
            raise
        return graph


def cast_list(graph: Graph) -> list[Facts]:
    """Return the casts, each with its reason."""
    return [
        {
            "name": cast.name,
            "from": cast.source,
            "to": cast.result,
            "implicit": cast.implicit,
            "op": cast.op,
            "pair": None if cast.pair is None else list(cast.pair),
            "why": cast.words,
            "system": cast.system,
        }
        for cast in casts(graph)
    ]


def lacking(graph: Graph, provider: str) -> Facts:
    """Return the nodes that onnxruntime alone would refuse or compute differently on a provider, installed or not.

    Raises `RunError` for an unknown provider.
    """
    row = BY_PROVIDER.get(provider) or next((t for t in BY_PROVIDER.values() if t.name == provider), None)
    target = providers.target_of(providers.resolve(provider)[0]) if row is None else row.name
    facts: Facts = {"provider": provider, "target": target, "changes": [], "changed": 0, "error": ""}
    try:
        lowering = report(graph, target, release.runtime())
    except GraphcoreError as error:
        return facts | {"error": error.summary}
    return facts | {"changes": [change.as_dict() for change in lowering.changes], "changed": lowering.changed}


def node_list(graph: Graph) -> list[Facts]:
    """Return the nodes in order, those of bodies and functions last."""
    return [_node(part, node) for part in parts(graph) for node in part.nodes]


def _node(graph: Graph, node: Node) -> Facts:
    return {
        "graph": graph.name,
        "operator": named(node),
        "layer": node.layer,
        "operands": [None if s is None else s.name for s in node.inputs],
        "results": [{"name": s.name, "type": str(s.type)} for s in node.outputs],
        "attributes": {key: _attribute(value) for key, value in node.attributes.items()},
    }


def _attribute(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return value
    text = f"graph {value.name}" if isinstance(value, Graph) else str(value)
    return text if len(text) <= 200 else f"{text[:200]} ..."


def weight_list(graph: Graph, advance: Advance) -> list[Facts]:
    """Return the named weights and constants, with statistics of their values."""
    by_name = {weight.name: weight for weight in sizes(graph).weights if weight.name}
    weights = [s for part in parts(graph) for s in part.symbols if isinstance(s.producer, Constant) and s.given_name]
    rows = []
    for number, symbol in enumerate(weights):
        assert isinstance(symbol.producer, Constant)
        assert symbol.given_name
        advance(number, len(weights))
        stats = statistics(symbol.producer.array, symbol.dtype)
        entry = by_name.get(symbol.given_name)
        rows.append(
            {
                "name": symbol.given_name,
                "dtype": symbol.dtype.name,
                "shape": list(symbol.producer.array.shape),
                "bytes": 0 if entry is None else entry.bytes,
                "layer": "" if entry is None else entry.layer,
                **asdict(stats),
            }
        )
    return rows
