"""Parts of a scanned model: models of some of its nodes, and the shapes that ONNX infers for a body."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import onnx

from graphcore.onnx.proto.messages import nested
from graphcore.onnx.schemas.inference import with_checked_dims
from graphcore.types.dtypes import DType

Path: TypeAlias = "tuple[int, ...]"
"""The place of a node: in the graph; or in a body, after the place of its node and that of the attribute."""

Scope: TypeAlias = "tuple[Mapping[str, DType], Mapping[str, onnx.TensorProto]]"
"""The dtypes of the values that a node can read, and the tensors of those that are constants, by name."""

Shapes: TypeAlias = "Mapping[str, onnx.TensorShapeProto]"

_MIN_WEIGHTS = 1024
"""Neither inference nor lowering looks at the values of at least this many floats: they are inputs of a part."""


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and its bodies read, and some that bodies define themselves."""
    yield from node.input
    for attribute in node.attribute:
        for body in nested(attribute.g) if attribute.HasField("g") else ():
            for inner in body.node:
                yield from inner.input
            yield from (value.name for value in body.output)


def part_of(
    names: Iterable[str], scope: Scope, shapes: Shapes, versions: Mapping[str, int], ir_version: int
) -> onnx.ModelProto:
    """Return a model without nodes whose constants and inputs are values of these names."""
    dtypes, tensors = scope
    imports = map(onnx.helper.make_opsetid, versions, versions.values())
    model = onnx.ModelProto(ir_version=ir_version, opset_import=imports)
    for name in names:
        tensor = tensors.get(name)
        if tensor is not None and not (dtypes[name] is DType.float32 and math.prod(tensor.dims) >= _MIN_WEIGHTS):
            content = tensor.SerializeToString()
            copied = onnx.TensorProto.FromString(content) if content else onnx.TensorProto(**tensor.__dict__)
            copied.name = name
            model.graph.initializer.append(copied)
        elif name in dtypes:
            dims = None if tensor is None else list(tensor.dims)
            value = onnx.helper.make_tensor_value_info(name, dtypes[name].onnx, dims)
            if name in shapes:
                value.type.tensor_type.shape.CopyFrom(shapes[name])
            model.graph.input.append(value)
    return model


def shapes_of(model: onnx.ModelProto, versions: Mapping[str, int], path: Path, scope: Scope) -> Shapes:
    """Return the shapes that ONNX infers of the values before a node, by name.

    Inference may end the process at nodes that were not checked, so that it sees none after this one.
    """
    graph, nodes = model.graph, [*model.graph.node[: path[0]]]
    for number, place, last in zip(path[::2], path[1::2], path[2::2], strict=False):
        graph = graph.node[number].attribute[place].g
        nodes += graph.node[:last]
    results = {name for node in nodes for name in node.output}
    declared = {value.name: value.type.tensor_type for value in model.graph.input}
    declared_shapes = {
        name: onnx.TensorShapeProto.FromString(tensor.shape.SerializeToString())
        for name, tensor in declared.items()
        if tensor.HasField("shape")
    }
    read = {name for node in nodes for name in names_read(node)} | declared.keys()
    names = sorted(read - results | (read & scope[1].keys()))
    part = part_of(names, scope, declared_shapes, versions, model.ir_version)
    for node in nodes:
        if node.op_type != "Constant":
            part.graph.node.append(onnx.NodeProto.FromString(node.SerializeToString()))
    try:
        safe = with_checked_dims(part, {node.op_type for inner in nested(part.graph) for node in inner.node})
        inferred = onnx.shape_inference.infer_shapes(safe).graph
    except Exception:
        return {}
    values = ((value.name, value.type.tensor_type) for value in (*inferred.input, *inferred.value_info))
    return {name: tensor.shape for name, tensor in values if tensor.HasField("shape")}
