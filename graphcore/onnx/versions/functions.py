"""The function bodies that ONNX gives operators, instantiated for one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from graphcore.ir.symbol import Symbol
from graphcore.onnx.opset import OPSET
from graphcore.onnx.proto.attributes import with_attributes
from graphcore.onnx.proto.model_proto import attribute
from graphcore.onnx.proto.value_protos import encoded_type
from graphcore.onnx.versions.node import Read


@dataclass(frozen=True, slots=True)
class Body:
    """The computation of an operator: nodes on named inputs that make named outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    version: int
    """The opset that the nodes are of."""


def function_body(
    op_type: str,
    domain: str,
    version: int,
    inputs: Sequence[Symbol | None],
    attributes: Mapping[str, Any],
    outputs: int,
) -> Body | None:
    """The function body of an operator of a version of its domain; None where ONNX gives none for these operands.

    inputs: the operands, None for those left out. attributes: those of the node. outputs: how many results it has.
    """
    schema: Any = onnx.defs.get_schema(op_type, version, domain)  # some of its methods have no stubs
    node = onnx.NodeProto(op_type=op_type, domain=domain)
    node.input.extend("" if symbol is None else f"x{i}" for i, symbol in enumerate(inputs))
    node.output.extend(f"y{i}" for i in range(outputs))
    for key, value in attributes.items():
        node.attribute.append(onnx.AttributeProto.FromString(attribute(key, value)))
    newest = OPSET if domain else version
    if schema.has_context_dependent_function:
        types = [b"" if symbol is None else encoded_type(symbol.type) for symbol in inputs]
        chosen = _newest(schema.context_dependent_function_opset_versions, newest)
        try:
            content = schema.get_context_dependent_function_with_opset_version(chosen, node.SerializeToString(), types)
        except Exception:  # whatever a builder of ONNX's misses in the types
            return None
    elif schema.has_function:
        content = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, newest))
    else:
        return None
    function = onnx.FunctionProto.FromString(content)
    if not function.node:
        return None
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    given = {**defaults, **{a.name: a for a in node.attribute}}
    return Body(
        tuple(function.input),
        tuple(function.output),
        tuple(with_attributes(inner, given) for inner in function.node),
        next((entry.version for entry in function.opset_import if not entry.domain), OPSET),
    )


def _newest(versions: Sequence[int], limit: int) -> int:
    """The newest of the versions that a body is given for, no newer than the limit if there is such a one."""
    return max((v for v in versions if v <= limit), default=min(versions))


def expand_function(node: Read) -> tuple[Symbol, ...]:
    """The results of a node, computed by its operator's function body. Raises `ModelError` where ONNX gives none."""
    body = function_body(node.op_type, node.domain, node.version, node.inputs, node.attributes, len(node.types))
    if body is None:
        raise node.refusal(
            "ONNX has no function body of it for these operands", "say in the model what types and shapes they have"
        )
    names: dict[str, Symbol | None] = dict.fromkeys(body.inputs)
    names.update(zip(body.inputs, node.inputs, strict=False))
    node.nested(body.nodes, names, body.version)
    made = [names.get(name) for name in body.outputs[: len(node.types)]]
    results = tuple(symbol for symbol in made if symbol is not None)
    if len(results) != len(node.types):
        raise node.refusal(f"its function body makes {len(results)} results", "write the model again")
    return results
