"""Lists and optionals of dtypes that ONNX has none of, stored with a dtype that represents their values.

A pass before the others. Elements are cast when they enter a list and when they leave it. A tensor that the target
cannot split in its dtype is split in a wider one, and the pieces are cast back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ops.sequences import list_map
from graphcore.runtime.lowering.passes import Summary
from graphcore.runtime.lowering.targets.compute_dtypes import PROMOTIONS
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.types.dtypes import DType, has_storage_axis
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, tensor_type

LISTED = frozenset(
    map(DType.of, "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 string".split())
)
"""The dtypes that ONNX has sequences of, as they are stored."""

_WITH_ELEMENT = (SequenceType, OptionalType)

_TAKES_TENSORS = {"Optional": 0, "SequenceConstruct": 0, "SequenceInsert": 1, "SplitToSequence": 0}
"""Operators that put tensors into a list or an optional, with the position of the first one."""

_RETURNS_TENSOR = frozenset({"ConcatFromSequence", "OptionalGetElement", "SequenceAt"})
"""Operators that return a tensor from a list or an optional."""


def needed(summary: Summary, rules: Legality) -> bool:
    """Return True if the graph or a body has lists, or splits into lists, that the target does not support."""
    return has_unsupported(summary) or any(
        isinstance(operand, TensorType) and not _has_kernel(operand.dtype.storage, rules)
        for _, _, operand, _ in summary.kinds("SplitToSequence")
    )


def has_unsupported(summary: Summary) -> bool:
    """Return True if the graph or one of its bodies has lists of a dtype that ONNX has no sequences of."""
    return any(_stored_type(type_) != type_ for type_ in summary.list_types)


def store(graph: Graph, rules: Legality) -> Graph:
    """Return the graph with lists and optionals that the target supports.

    Raises `GraphError` for an optional that a file cannot take or return; sessions have their own error.
    """
    is_file = not rules.runtime.version or rules.runtime.in_file
    for symbol in (*graph.inputs, *graph.outputs) if is_file and graph.scope.outer is None else ():
        if isinstance(symbol.type, OptionalType) and _stored_type(symbol.type) != symbol.type:
            raise GraphError(
                f"export: {symbol.name} is {symbol.type}, and ONNX has no optionals of its dtype before opset 28",
                help="cast the element to float32 or int8, and cast it back where it is used",
            )
    return Rewrite(graph, _SequencePolicy(rules)).run()


@dataclass(eq=False)
class _SequencePolicy(Policy[Rewrite]):
    rules: Legality
    keeps_types = True

    def retype(self, type_: Type) -> Type:
        return _stored_type(type_)

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        if node.domain or node.op_type not in _TAKES_TENSORS.keys() | _RETURNS_TENSOR | {"SequenceEmpty"}:
            return None
        return (_node(rewrite.new, node, inputs, self.rules),)


def _node(graph: Graph, node: Node, inputs: tuple[Symbol | None, ...], rules: Legality) -> Symbol:
    type_ = _stored_type(node.outputs[0].type)
    attributes = node.attributes
    if node.op_type in _RETURNS_TENSOR:
        result_type = node.outputs[0].type
        source = inputs[0]
        if not isinstance(result_type, TensorType) or source is None or not isinstance(source.type, _WITH_ELEMENT):
            return graph.build.emit(node.op_type, inputs, type_, attributes)
        inner = source.type.element
        dtype = inner.dtype if isinstance(inner, TensorType) else result_type.dtype
        result = graph.build.emit(node.op_type, inputs, tensor_type(dtype, result_type.shape), attributes)
        return graph.build.cast(result, result_type.dtype)
    element = type_.element if isinstance(type_, _WITH_ELEMENT) else None
    if "type" in attributes:  # of an optional without an element
        attributes = {**attributes, "type": element}
    if not isinstance(element, TensorType):
        return graph.build.emit(node.op_type, inputs, type_, attributes)
    if node.op_type == "SequenceEmpty":
        return graph.build.emit(node.op_type, inputs, type_, {**attributes, "dtype": element.dtype.storage})
    first = _TAKES_TENSORS[node.op_type]
    if node.op_type == "SplitToSequence" and not _has_kernel(element.dtype.storage, rules):
        return _split(graph, inputs, element, attributes)
    cast_positions = range(first, len(inputs)) if node.op_type == "SequenceConstruct" else (first,)
    operands = [
        graph.build.cast(s, element.dtype) if s is not None and i in cast_positions and _needs_storage(s.dtype) else s
        for i, s in enumerate(inputs)
    ]
    return graph.build.emit(node.op_type, tuple(operands), type_, attributes)


def _split(
    graph: Graph, inputs: tuple[Symbol | None, ...], element: TensorType, attributes: Mapping[str, object]
) -> Symbol:
    """Split a tensor in a wider dtype and cast each piece back to its own."""
    x, *rest = inputs
    assert x is not None
    wide = DType.int32 if element.dtype.storage.bits < 32 else DType.int64
    type_ = SequenceType(tensor_type(wide, element.shape))
    pieces = graph.build.emit("SplitToSequence", (graph.build.cast(x, wide), *rest), type_, attributes)
    result: Symbol = list_map(lambda piece: piece.cast(element.dtype), pieces)
    return result


def _has_kernel(dtype: DType, rules: Legality) -> bool:
    return (rules.host or rules).allows("SplitToSequence", dtype)


def _needs_storage(dtype: DType) -> bool:
    return not has_storage_axis(dtype) and dtype.storage not in LISTED


def _stored_type(type_: Type) -> Type:
    """Return the type with lists and optionals that ONNX has; tensors are unchanged."""
    if not isinstance(type_, _WITH_ELEMENT):
        return type_
    element = type_.element
    if not isinstance(element, TensorType):
        return type(type_)(_stored_type(element))
    if not _needs_storage(element.dtype):
        return type_
    fit = [d for d in PROMOTIONS.get(element.dtype.storage, ()) if d in LISTED]
    return type(type_)(tensor_type(fit[0] if fit else DType.float32, element.shape))
