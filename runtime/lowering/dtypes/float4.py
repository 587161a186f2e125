"""float4 stored as float8_e4m3fn, which represents all of its 16 values: onnxruntime has no kernel for float4.

A pass before the others. Casts to float4 become arithmetic that rounds; all other nodes move float8 instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.runtime.lowering.passes import Summary
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, _shape, tensor_type

FOUR, STORAGE = DType.float4_e2m1, DType.float8_e4m3fn
_F32, _F64, _I32, _I64 = DType.float32, DType.float64, DType.int32, DType.int64
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""By code; the next higher bit is the sign."""
_EXACT_IN_DOUBLE = frozenset({_F64, _I32, _I64, DType.uint32, DType.uint64})


def needed(summary: Summary) -> bool:
    """Return True if the graph or one of its bodies has float4."""
    return FOUR in summary.dtypes or any(map(_holds, summary.list_types))


def store_as_float8(graph: Graph) -> Graph:
    """Return the graph with float8_e4m3fn in place of float4. Raises `GraphError` for nodes that have no equivalent."""
    return _Float4Rewrite(graph, _Float4Policy()).run()


class _Float4Rewrite(Rewrite):
    def _constant(self, symbol: Symbol, producer: Constant) -> Symbol:
        if _holds(symbol.type):
            producer = Constant(producer.array.astype(STORAGE.numpy), producer.is_weight, producer.origin)
        return super()._constant(symbol, producer)

    def attributes(self, node: Node) -> Mapping[str, Any]:
        return {key: _converted(value) for key, value in super().attributes(node).items()}


class _Float4Policy(Policy[Rewrite]):
    def retype(self, type_: Type) -> Type:
        return _retyped(type_)

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        result = _special(node, inputs)
        return None if result is None else (result,)


def _holds(type_: Type) -> bool:
    if isinstance(type_, (SequenceType, OptionalType)):
        return _holds(type_.element)
    return isinstance(type_, TensorType) and type_.dtype is FOUR


def _retyped(type_: Type) -> Type:
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(_retyped(type_.element))
    return tensor_type(STORAGE, type_.shape) if isinstance(type_, TensorType) and type_.dtype is FOUR else type_


def _converted(value: Any) -> Any:
    """Return an attribute with arrays of float4 stored as float8."""
    return value.astype(STORAGE.numpy) if isinstance(value, np.ndarray) and value.dtype == FOUR.numpy else value


def _special(node: Node, inputs: tuple[Symbol | None, ...]) -> Symbol | None:
    """Return the result of an operator that depends on the bits or the range of float4; None for others."""
    if node.domain:
        return None
    to_four = _holds(node.outputs[0].type)
    x = inputs[0] if inputs else None
    if x is None:
        return None
    if node.op_type == "Cast" and to_four:
        return rounded(x)
    if node.op_type == "QuantizeLinear" and to_four:
        return _quantized(node, inputs)
    if node.op_type == "BitCast":
        from_four = node.inputs[0] is not None and _holds(node.inputs[0].type)
        if to_four:
            return x.graph.build.emit("Identity", (x,), x.type) if from_four else _from_code(x)
        if from_four:
            return _to_code(x, node.outputs[0].dtype)
    return None


def rounded(x: Symbol) -> Symbol:
    """Round x to the nearest float4 as ONNX casts: ties to even, clipped to the range, NaN to -0.0."""
    graph = x.graph
    x = graph.build.cast(x, _F64 if x.dtype in _EXACT_IN_DOUBLE else _F32)
    dtype = x.dtype
    const = graph.build.scalar
    truth = tensor_type(DType.bool, x.type.shape)
    number = graph.build.emit(
        "Where", (graph.build.emit("IsNaN", (x,), truth), const(-0.1, dtype), x), x.type
    )  # rounds to -0.0
    near = graph.build.emit("Clip", (number, const(-6.0, dtype), const(6.0, dtype)), x.type)
    size = graph.build.emit("Abs", (near,), x.type)
    small, middle = (graph.build.emit("Less", (size, const(limit, dtype)), truth) for limit in (2.0, 4.0))
    step = graph.build.emit("Where", (middle, const(1.0, dtype), const(2.0, dtype)), x.type)
    step = graph.build.emit("Where", (small, const(0.5, dtype), step), x.type)
    steps = graph.build.emit("Round", (graph.build.emit("Div", (near, step), x.type),), x.type)
    return graph.build.cast(graph.build.emit("Mul", (steps, step), x.type), STORAGE)


def _quantized(node: Node, inputs: tuple[Symbol | None, ...]) -> Symbol:
    """Build QuantizeLinear to float4, whose zero point is 0."""
    x, scale = inputs[0], inputs[1]
    assert x is not None
    assert scale is not None
    graph = x.graph
    wide, factor = graph.build.cast(x, _F32), _broadcast_scale(graph.build.cast(scale, _F32), x, node.attributes)
    return rounded(graph.build.emit("Div", (wide, factor), wide.type))


def _broadcast_scale(scale: Symbol, x: Symbol, attributes: Mapping[str, Any]) -> Symbol:
    """Reshape a scale, for the tensor, along an axis or for blocks, so that it broadcasts with x."""
    if not scale.shape.is_ranked or not x.shape.is_ranked:
        raise GraphError(
            "QuantizeLinear: quantising to float4 needs operands of known rank",
            operands={"x": str(x.type), "scale": str(scale.type)},
            help="declare the shapes in the model",
        )
    graph = x.graph
    axis = attributes.get("axis", 1)
    axis += x.rank if axis < 0 else 0
    if not scale.rank:
        return scale
    block = attributes.get("block_size", 0)
    if block:
        size = graph.build.vector([axis])
        shape = graph.build.emit("Shape", (x,), tensor_type(_I64, _shape([Dim(x.rank)])))
        end = graph.build.emit(
            "Squeeze", (graph.build.emit("Gather", (shape, size), tensor_type(_I64, _shape([Dim(1)]))),), _SCALAR
        )
        line = tensor_type(_I64, _shape([x.shape[axis]]))
        place = graph.build.emit("Range", (graph.build.scalar(0, _I64), end, graph.build.scalar(1, _I64)), line)
        place = graph.build.emit("Div", (place, graph.build.scalar(block, _I64)), line)
        return graph.build.emit("Gather", (scale, place), tensor_type(_F32, x.shape), {"axis": axis})
    if scale.shape[0] == 1:
        return graph.build.emit("Squeeze", (scale, graph.build.vector([0])), tensor_type(_F32, _shape([])))
    column = [-1] + [1] * (x.rank - 1 - axis)
    shape_of = _shape([scale.shape[0], *(Dim(1) for _ in column[1:])])
    return graph.build.emit("Reshape", (scale, graph.build.vector(column)), tensor_type(_F32, shape_of))


_SCALAR = tensor_type(_I64, _shape([]))


def _to_code(x: Symbol, target: DType) -> Symbol:
    """Return the four bits of stored values, as int4 or uint4."""
    graph = x.graph
    wide = graph.build.cast(x, _F32)
    truth = tensor_type(DType.bool, wide.shape)
    whole = tensor_type(_I32, wide.shape)
    size = graph.build.emit("Abs", (wide,), wide.type)
    inverse = graph.build.emit("Div", (graph.build.scalar(1.0, _F32), wide), wide.type)  # -inf for -0.0
    negative = graph.build.emit("Less", (inverse, graph.build.scalar(0.0, _F32)), truth)
    code = graph.build.emit("Where", (negative, graph.build.scalar(8, _I32), graph.build.scalar(0, _I32)), whole)
    for least in MAGNITUDES[1:]:
        reached = graph.build.emit("GreaterOrEqual", (size, graph.build.scalar(least, _F32)), truth)
        code = graph.build.emit("Add", (code, graph.build.cast(reached, _I32)), whole)
    return graph.build.cast(code, target)


def _from_code(code: Symbol) -> Symbol:
    """Return the stored values whose bits are the int4 or uint4."""
    graph = code.graph
    whole = graph.build.cast(code, _I32)
    place = graph.build.emit("Mod", (whole, graph.build.scalar(16, _I32)), whole.type)
    table = graph.build.constant(np.array([*MAGNITUDES, *(-m for m in MAGNITUDES)], np.float32), _F32)
    values = graph.build.emit("Gather", (table, place), tensor_type(_F32, code.type.shape))
    return graph.build.cast(values, STORAGE)
