"""Infer types of an operator's outputs by ONNX, for `Graph.op` without `out_types`; make models safe for inference."""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set
from typing import Any

import onnx

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Symbol
from graphcore.onnx.notes import DOMAINS, IR_VERSION, OPSET
from graphcore.onnx.proto.limits import named_inputs
from graphcore.onnx.proto.tensors import all_nodes, node_proto
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.proto.value_protos import block, integer, text, value_info
from graphcore.onnx.schemas.other_domains import infer_other_domain
from graphcore.onnx.schemas.runtime_operators import installed
from graphcore.types.tensor_types import OpaqueType, TensorType, Type


def infer_types(
    op_type: str, inputs: Sequence[Symbol | None], attributes: dict[str, Any], domain: str
) -> tuple[Type, ...]:
    """Return a type for each output of an operator on these inputs. Raises `GraphError` if one is unknown."""
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
        operands = named_inputs(inputs)
        raise GraphError(f"{op_type}: {reason}", operands=operands, help="see the operator's ONNX schema") from None
    types_by_name = {v.name: v.type for v in inferred.graph.value_info} | {
        v.name: v.type for v in inferred.graph.output
    }
    types = []
    for i in range(count):
        proto_type = types_by_name.get(f"y{i}")
        if proto_type is None or not proto_type.WhichOneof("value"):
            raise GraphError(f"{op_type}: ONNX cannot infer the type of output {i}", help="give out_types")
        type_ = read_type(proto_type)
        if isinstance(type_, TensorType) and not type_.shape.is_ranked:
            raise GraphError(f"{op_type}: ONNX cannot infer the rank of output {i}", help="give out_types")
        types.append(type_)
    return tuple(types)


def _of_runtime(
    op_type: str, inputs: Sequence[Symbol | None], attributes: dict[str, Any], domain: str
) -> tuple[Type, ...]:
    """Return the result types of an operator of another domain, by the installed runtime."""
    runtime = installed()
    operator = None if runtime is None else runtime.operator(domain, op_type, 1)
    if operator is not None:
        proto = node_proto(op_type, domain, inputs, attributes, max(operator.min_outputs, 1))
        types = infer_other_domain(proto, inputs, {domain: 1}, lambda: runtime, [OpaqueType()] * len(proto.output))
        if all(isinstance(t, TensorType) and t.shape.is_ranked for t in types):
            return tuple(types)
    raise GraphError(
        f"{op_type}: the output types of this operator of domain {domain!r} are unknown",
        operands=named_inputs(inputs),
        help="give out_types",
    )


def _outputs(schema: Any, attributes: dict[str, Any]) -> int:
    """Return the number of outputs: those that are not optional, or for a variadic one what the attributes say."""
    if schema.max_output <= len(schema.outputs) and schema.max_output:
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        return max(len([o for o in schema.outputs if o.option != optional]), 1)
    return int(attributes.get("num_outputs", 0) or max(schema.min_output, 1))


def _model(
    op_type: str, inputs: Sequence[Symbol | None], attributes: dict[str, Any], domain: str, count: int
) -> onnx.ModelProto:
    probe = Graph("probe", {f"x{i}": s.type for i, s in enumerate(inputs) if s is not None})
    model: onnx.ModelProto = onnx.ModelProto.FromString(_probe_bytes(probe))
    model.graph.node.append(node_proto(op_type, domain, inputs, attributes, count))
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


# Checks before each Slice, for ONNX's inference of a whole model.
#
# Inference of Slice aborts the process on a negative dim (an assertion of the C++ library, seen in onnx 1.22 to 1.23).
# The inference of other operators returns such a dim for windows larger than their image. A node inserted before each
# Slice has an inference function in Python, which raises for such operands and so ends inference, not the process.

_DOMAIN = "graphcore.checks"
_DIMS = "CheckedDims"


class NegativeDimError(Exception):
    """A negative dim."""


def with_checked_dims(model: onnx.ModelProto, op_types: Set[str]) -> onnx.ModelProto:
    """Return a copy of a model where inference raises at a Slice of a tensor with a negative dim.

    op_types: the names of all operators in it; without a Slice the model itself is returned. The exception is not an
    `onnx.shape_inference.InferenceError`.
    """
    if "Slice" not in op_types:
        return model
    _register()
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    copied.opset_import.add(domain=_DOMAIN, version=1)
    _insert_stops(copied.graph.node, "")
    for number, function in enumerate(copied.functions):
        function.opset_import.add(domain=_DOMAIN, version=1)
        _insert_stops(function.node, f"{number}.")
    return copied


def _insert_stops(nodes: Any, path: str) -> None:
    """Insert a check before each Slice of a list. path: of the list, to make names of results unique."""
    if not any(node.op_type == "Slice" for node in all_nodes(nodes)):
        return
    result = []
    for number, node in enumerate(nodes):
        if node.op_type == "Slice" and node.input and node.input[0]:
            name = f"{_DOMAIN} {path}{number}"
            result.append(onnx.NodeProto(op_type=_DIMS, domain=_DOMAIN, input=[node.input[0]], output=[name]))
        for place, part in enumerate(node.attribute):
            if part.type == onnx.AttributeProto.GRAPH:
                _insert_stops(part.g.node, f"{path}{number}.{place}.")
        result.append(node)
    copied = onnx.GraphProto(node=result)
    del nodes[:]
    nodes.extend(copied.node)


@functools.cache
def _register() -> None:
    """Register the node's schema in ONNX."""
    schema = onnx.defs.OpSchema
    registered = schema(
        _DIMS,
        _DOMAIN,
        1,
        inputs=[schema.FormalParameter("x", "T")],
        outputs=[schema.FormalParameter("y", "tensor(bool)")],
        type_constraints=[("T", ["tensor(float)"], "any: inference does not check it")],
    )
    registered.set_type_and_shape_inference_function(_stop_at_dims)
    onnx.defs.register_schema(registered)


def _stop_at_dims(context: Any) -> None:
    type_ = context.get_input_type(0)
    if type_ is not None and any(dim.dim_value < 0 for dim in type_.tensor_type.shape.dim):
        raise NegativeDimError("a tensor has a negative dim")
