"""A node between two opsets: what was read, and how conversions build on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.model_proto import attribute
from graphcore.onnx.proto.tensors import with_attributes
from graphcore.onnx.proto.value_protos import encoded_type
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

Made: TypeAlias = tuple[Symbol, ...] | None
"""The results of what a node was converted to; None where it stays a node, which may have been changed in place."""


@dataclass(slots=True)
class Read:
    """A node as it was read: of the model's version, on Symbols of the Graph being made."""

    graph: Graph
    op_type: str
    inputs: list[Symbol | None]
    attributes: dict[str, Any]
    types: tuple[Type, ...]
    """Of the results, as inferred at the model's version."""
    version: int
    """Of the operator's domain."""
    nested: Callable[[Sequence[onnx.NodeProto], dict[str, Symbol | None], int], None]
    """Reads the nodes of a function body of an opset, on named Symbols, and enters what they make."""
    domain: str = ""

    def operand(self, position: int) -> Symbol:
        """The operand at a position, which the operator cannot do without. Raises `ModelError`."""
        symbol = self.inputs[position] if position < len(self.inputs) else None
        if symbol is None:
            raise self.refusal(f"its operand {position} is missing", "write the model again")
        return symbol

    def tensor(self, position: int) -> TensorType:
        """The type of an operand that is a tensor. Raises `ModelError`."""
        type_ = self.operand(position).type
        if not isinstance(type_, TensorType):
            raise self.refusal(f"its operand {position} is {type_}", "say in the model what it is")
        return type_

    def result(self, position: int = 0) -> TensorType:
        """The type of a result that is a tensor. Raises `ModelError`."""
        type_ = self.types[position]
        if not isinstance(type_, TensorType):
            raise self.refusal(f"its result {position} is {type_}", "say in the model what it is")
        return type_

    def rank(self, position: int) -> int | None:
        """The rank of an operand, None where it is not known."""
        shape = self.tensor(position).shape
        return shape.rank if shape.is_ranked else None

    def given(self, position: int) -> Symbol | None:
        """The operand at a position, None where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def known(self, position: int) -> np.ndarray[Any, Any] | None:
        """The value of an operand that is a constant."""
        return constant_array(self.given(position), weights=True, outer=True)

    def put(self, position: int, symbol: Symbol | None) -> None:
        """Make a Symbol the operand at a position."""
        while len(self.inputs) <= position:
            self.inputs.append(None)
        self.inputs[position] = symbol

    def emit(self, op_type: str, type_: Type, *inputs: Symbol | None, **attributes: Any) -> Symbol:
        """A node of one result, of the opset that graphs have."""
        return self.graph.build.emit(op_type, inputs, type_, attributes)

    def scalar(self, value: float, dtype: DType) -> Symbol:
        return self.graph.build.scalar(value, dtype)

    def dims(self, symbol: Symbol, start: int | None = None, end: int | None = None) -> Symbol:
        """The sizes of a tensor's dims from one to another, as int64."""
        shape = symbol.type.shape if isinstance(symbol.type, TensorType) else Shape.unknown()
        bounds = {key: value for key, value in (("start", start), ("end", end)) if value is not None}
        length: Any = len(shape[start:end]) if shape.is_ranked else "?"
        if not shape.is_ranked and start is not None and end is not None:
            length = end - start
        return self.emit("Shape", TensorType(DType.int64, [length]), symbol, **bounds)

    def refusal(self, why: str, help: str) -> ModelError:
        """The error that says why there is no conversion."""
        operands = {f"input {i}": s for i, s in enumerate(self.inputs) if s is not None}
        return ModelError(
            f"load: {self.op_type} of opset {self.version}{f' of {self.domain}' if self.domain else ''}: {why}",
            operands=operands,
            help=help,
        )


def unknown(dtype: DType, rank: int | None = None) -> TensorType:
    """The type of a tensor of which only the dtype, or that and the rank, is known."""
    return tensor_type(dtype, Shape.unknown()) if rank is None else TensorType(dtype, ["?"] * rank)


# The function bodies that ONNX gives operators, instantiated for one node.


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
