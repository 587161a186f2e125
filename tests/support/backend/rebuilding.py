"""Models as graphs that calls of `ops.onnx` make of their nodes' own fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

import graphcore as gc
from graphcore import ops
from graphcore.arrays.external_data import Folder
from graphcore.onnx.proto.tensors import array_of, dense
from graphcore.onnx.proto.type_protos import read_type
from graphcore.types.tensor_types import Type

_KINDS = onnx.AttributeProto


def rebuilt(model: onnx.ModelProto, types: Sequence[Type] | None = None) -> gc.Graph:
    """The model's graph, built anew: one call a node. types: its inputs', where not those that the model says."""
    proto = model.graph
    held = {t.name for t in proto.initializer}
    inputs = [i for i in proto.input if i.name not in held]
    graph = gc.Graph("rebuilt", types or [read_type(i.type) for i in inputs])
    with graph:
        values: dict[str, Any] = dict(zip([i.name for i in inputs], graph.inputs, strict=True))
        graph.output(_built(proto, values))
    return graph


def _built(proto: onnx.GraphProto, values: dict[str, Any]) -> list[Any]:
    for tensor in proto.initializer:
        values[tensor.name] = gc.Graph.current().constant(*array_of(tensor, Folder(None)))
    for node in proto.node:
        function = getattr(_MODULES[node.domain], node.op_type)
        given = [values[name] if name else None for name in node.input]
        said = {a.name: _attribute(a, values) for a in node.attribute}
        if "outputs" in inspect.signature(function).parameters:
            said["outputs"] = len(node.output)
        made = function(*given, **said)
        listed = made if isinstance(made, (list, tuple)) else [made]
        values.update(zip(node.output, listed, strict=True))
    return [values[o.name] for o in proto.output]


_MODULES = {"": ops.onnx, "ai.onnx": ops.onnx, "ai.onnx.ml": ops.onnx.ml}


def _attribute(attribute: onnx.AttributeProto, values: Mapping[str, Any]) -> Any:
    if attribute.type == _KINDS.GRAPH:
        return _body(attribute.g, values)
    if attribute.type == _KINDS.TENSOR:
        return array_of(attribute.t, Folder(None))[0]
    if attribute.type == _KINDS.SPARSE_TENSOR:
        return dense(attribute.sparse_tensor, Folder(None))[0]
    if attribute.type == _KINDS.TYPE_PROTO:
        return read_type(attribute.tp)
    return onnx.helper.get_attribute_value(attribute)


def _body(proto: onnx.GraphProto, values: Mapping[str, Any]) -> Callable[..., Any]:
    def body(*symbols: Any) -> list[Any]:
        return _built(proto, {**values, **dict(zip([i.name for i in proto.input], symbols, strict=True))})

    return body
