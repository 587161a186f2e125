"""Types of an operator's outputs as ONNX's own inference finds them, for `Graph.op` without `out_types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Symbol
from graphcore.onnx.notes import DOMAINS, IR_VERSION, OPSET
from graphcore.onnx.proto.model_proto import attribute
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.proto.value_protos import block, integer, text, value_info
from graphcore.onnx.schemas.other_domains import typed
from graphcore.onnx.schemas.runtime_operators import installed
from graphcore.types.tensor_types import ForeignType, TensorType, Type


def infer_types(
    op_type: str, inputs: Sequence[Symbol | None], attributes: dict[str, Any], domain: str
) -> tuple[Type, ...]:
    """One type for each output that the operator has with these inputs. Raises `GraphError` where that is not known."""
    if domain not in ("", "ai.onnx.ml"):
        return _of_runtime(op_type, inputs, attributes, domain)
    try:
        schema = onnx.defs.get_schema(op_type, DOMAINS.get(domain, OPSET), domain)
    except onnx.defs.SchemaError:
        raise GraphError(
            f"op: ONNX opset {OPSET} has no operator {op_type!r}", help="check its spelling, or give its domain"
        ) from None
    count = _outputs(schema, attributes)
    proto = _model(op_type, inputs, attributes, domain, count)
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as error:
        reason = str(error).strip().split("\n")[-1]
        shown = {f"input {i}": s for i, s in enumerate(inputs) if s is not None}
        raise GraphError(f"{op_type}: {reason}", operands=shown, help="see the operator's ONNX schema") from None
    found = {v.name: v.type for v in inferred.graph.value_info} | {v.name: v.type for v in inferred.graph.output}
    types = []
    for i in range(count):
        proto_type = found.get(f"y{i}")
        if proto_type is None or not proto_type.WhichOneof("value"):
            raise GraphError(f"{op_type}: ONNX cannot say what its output {i} is", help="give out_types")
        found_type = read_type(proto_type)
        if isinstance(found_type, TensorType) and not found_type.shape.is_ranked:
            raise GraphError("op: ONNX cannot say what rank an output has", help="give out_types")
        types.append(found_type)
    return tuple(types)


def _of_runtime(
    op_type: str, inputs: Sequence[Symbol | None], attributes: dict[str, Any], domain: str
) -> tuple[Type, ...]:
    """The types of what an operator of another domain gives, as the installed runtime knows it."""
    runtime = installed()
    operator = None if runtime is None else runtime.operator(domain, op_type, 1)
    if operator is not None:
        proto = onnx.NodeProto(op_type=op_type, domain=domain)
        proto.input.extend("" if s is None else f"x{i}" for i, s in enumerate(inputs))
        proto.output.extend(f"y{i}" for i in range(max(operator.fewest_results, 1)))
        for key, value in attributes.items():
            proto.attribute.append(onnx.AttributeProto.FromString(attribute(key, value)))
        types = typed(proto, inputs, {domain: 1}, lambda: runtime, [ForeignType()] * len(proto.output))
        if all(isinstance(t, TensorType) and t.shape.is_ranked for t in types):
            return tuple(types)
    shown = {f"input {i}": s for i, s in enumerate(inputs) if s is not None}
    raise GraphError(
        f"{op_type}: the outputs of an operator of domain {domain!r} are not known",
        operands=shown,
        help="give out_types",
    )


def _outputs(schema: Any, attributes: dict[str, Any]) -> int:
    """Return how many outputs: those that are not optional, or for a variadic one what the attributes say."""
    if schema.max_output <= len(schema.outputs) and schema.max_output:
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        return max(len([o for o in schema.outputs if o.option != optional]), 1)
    return int(attributes.get("num_outputs", 0) or max(schema.min_output, 1))


def _model(
    op_type: str, inputs: Sequence[Symbol | None], attributes: dict[str, Any], domain: str, count: int
) -> onnx.ModelProto:
    probe = Graph("probe", {f"x{i}": s.type for i, s in enumerate(inputs) if s is not None})
    model: onnx.ModelProto = onnx.ModelProto.FromString(_probe_bytes(probe))
    node = onnx.NodeProto(op_type=op_type, domain=domain)
    node.input.extend("" if s is None else f"x{i}" for i, s in enumerate(inputs))
    node.output.extend(f"y{i}" for i in range(count))
    for key, value in attributes.items():
        node.attribute.append(onnx.AttributeProto.FromString(attribute(key, value)))
    model.graph.node.append(node)
    for i in range(count):
        model.graph.output.append(onnx.ValueInfoProto(name=f"y{i}"))
    for i, symbol in enumerate(inputs):
        if symbol is not None and isinstance(symbol.producer, Constant) and symbol.producer.array.nbytes <= 1 << 16:
            constant = onnx.numpy_helper.from_array(symbol.producer.array, f"x{i}")
            model.graph.initializer.append(constant)
    if domain:
        model.opset_import.append(onnx.OperatorSetIdProto(domain=domain, version=DOMAINS[domain]))
    return model


def _probe_bytes(probe: Graph) -> bytes:
    values = b"".join(block(11, value_info(s.name, s.type)) for s in probe.inputs)
    return integer(1, IR_VERSION) + block(8, integer(2, OPSET)) + block(7, text(2, "probe") + values)
