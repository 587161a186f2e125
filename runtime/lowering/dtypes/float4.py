"""float4 carried by float8_e4m3fn, which holds each of its 16 values: onnxruntime has no kernel that touches it.

A pass before the others. Casts to float4 become the rounding, what else there is of it moves float8 instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.rewrite import Rewrite, bodies
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, _shape, tensor_type

FOUR, CARRIER = DType.float4_e2m1, DType.float8_e4m3fn
_F32, _F64, _I32, _I64 = DType.float32, DType.float64, DType.int32, DType.int64
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""By code; the sign is the bit above."""
_EXACT_IN_DOUBLE = frozenset({_F64, _I32, _I64, DType.uint32, DType.uint64})


def needed(graph: Graph) -> bool:
    """Whether there is float4 in the graph or one of its bodies."""
    if any(_holds(type_) for type_ in {s.type for s in graph._symbols}):
        return True
    return any(needed(body) for node in graph._nodes if node.attributes for body in bodies(node))


def carried(graph: Graph, outer: Rewrite | None = None) -> Graph:
    """The graph with float8_e4m3fn in the place of float4. Raises `GraphError` for what has no meaning on it."""
    rewrite = Rewrite(graph, _retyped, outer)
    for symbol in graph._symbols:
        producer = symbol.producer
        if isinstance(producer, Constant) and _holds(symbol.type):
            array = producer.array.astype(CARRIER.numpy)
            again = Constant(array, producer.is_weight, producer.origin)
            rewrite.bind(symbol, rewrite.new._symbol(_retyped(symbol.type), again, symbol._name))
    for node, inputs in rewrite.nodes():
        made = _special(node, inputs)
        if made is None:
            types = [_retyped(s.type) for s in node.outputs]
            attributes = rewrite.attributes(node, lambda body: carried(body, rewrite))
            attributes = {key: _converted(value) for key, value in attributes.items()}
            rewrite.replace(node, rewrite.new._emit_many(node.op_type, inputs, types, attributes, node.domain))
        else:
            rewrite.replace(node, (made,))
    return rewrite.finish()


def _holds(type_: Type) -> bool:
    if isinstance(type_, (SequenceType, OptionalType)):
        return _holds(type_.element)
    return isinstance(type_, TensorType) and type_.dtype is FOUR


def _retyped(type_: Type) -> Type:
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(_retyped(type_.element))
    return tensor_type(CARRIER, type_.shape) if isinstance(type_, TensorType) and type_.dtype is FOUR else type_


def _converted(value: Any) -> Any:
    """An attribute: arrays of float4 are carried too."""
    return value.astype(CARRIER.numpy) if isinstance(value, np.ndarray) and value.dtype == FOUR.numpy else value


def _special(node: Node, inputs: tuple[Symbol | None, ...]) -> Symbol | None:
    """What depends on the bits or on the range of float4; None for the rest."""
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
            return x.graph._emit("Identity", (x,), x.type) if from_four else _from_code(x)
        if from_four:
            return _to_code(x, node.outputs[0].dtype)
    return None


def rounded(x: Symbol) -> Symbol:
    """To the nearest float4, ties to even, beyond its range to its limits and NaN to -0.0: as ONNX casts."""
    graph = x.graph
    x = graph._cast(x, _F64 if x.dtype in _EXACT_IN_DOUBLE else _F32)
    own = x.dtype
    const = graph._scalar
    truth = tensor_type(DType.bool, x.type.shape)
    known = graph._emit("Where", (graph._emit("IsNaN", (x,), truth), const(-0.1, own), x), x.type)  # rounds to -0.0
    near = graph._emit("Clip", (known, const(-6.0, own), const(6.0, own)), x.type)
    size = graph._emit("Abs", (near,), x.type)
    small, middle = (graph._emit("Less", (size, const(limit, own)), truth) for limit in (2.0, 4.0))
    step = graph._emit("Where", (middle, const(1.0, own), const(2.0, own)), x.type)
    step = graph._emit("Where", (small, const(0.5, own), step), x.type)
    steps = graph._emit("Round", (graph._emit("Div", (near, step), x.type),), x.type)
    return graph._cast(graph._emit("Mul", (steps, step), x.type), CARRIER)


def _quantized(node: Node, inputs: tuple[Symbol | None, ...]) -> Symbol:
    """QuantizeLinear to float4, whose zero point is 0."""
    x, scale = inputs[0], inputs[1]
    assert x is not None
    assert scale is not None
    graph = x.graph
    wide, factor = graph._cast(x, _F32), _beside(graph._cast(scale, _F32), x, node.attributes)
    return rounded(graph._emit("Div", (wide, factor), wide.type))


def _beside(scale: Symbol, x: Symbol, attributes: dict[str, Any]) -> Symbol:
    """A scale of the whole, of each place along an axis, or of blocks, brought to where it broadcasts."""
    if not scale.shape.is_ranked or not x.shape.is_ranked:
        raise GraphError(
            "QuantizeLinear: to float4 it needs ranks that are known",
            operands={"x": str(x.type), "scale": str(scale.type)},
            help="say in the model what the shapes are",
        )
    graph = x.graph
    axis = attributes.get("axis", 1)
    axis += x.rank if axis < 0 else 0
    if not scale.rank:
        return scale
    block = attributes.get("block_size", 0)
    if block:
        size = graph._vector([axis])
        shape = graph._emit("Shape", (x,), tensor_type(_I64, _shape([Dim(x.rank)])))
        end = graph._emit(
            "Squeeze", (graph._emit("Gather", (shape, size), tensor_type(_I64, _shape([Dim(1)]))),), _SCALAR
        )
        line = tensor_type(_I64, _shape([x.shape[axis]]))
        place = graph._emit("Range", (graph._scalar(0, _I64), end, graph._scalar(1, _I64)), line)
        place = graph._emit("Div", (place, graph._scalar(block, _I64)), line)
        return graph._emit("Gather", (scale, place), tensor_type(_F32, x.shape), {"axis": axis})
    if scale.shape[0] == 1:
        return graph._emit("Squeeze", (scale, graph._vector([0])), tensor_type(_F32, _shape([])))
    column = [-1] + [1] * (x.rank - 1 - axis)
    shape_of = _shape([scale.shape[0], *(Dim(1) for _ in column[1:])])
    return graph._emit("Reshape", (scale, graph._vector(column)), tensor_type(_F32, shape_of))


_SCALAR = tensor_type(_I64, _shape([]))


def _to_code(x: Symbol, target: DType) -> Symbol:
    """The four bits of carried values, as int4 or uint4."""
    graph = x.graph
    wide = graph._cast(x, _F32)
    truth = tensor_type(DType.bool, wide.shape)
    whole = tensor_type(_I32, wide.shape)
    size = graph._emit("Abs", (wide,), wide.type)
    inverse = graph._emit("Div", (graph._scalar(1.0, _F32), wide), wide.type)  # -inf for -0.0
    negative = graph._emit("Less", (inverse, graph._scalar(0.0, _F32)), truth)
    code = graph._emit("Where", (negative, graph._scalar(8, _I32), graph._scalar(0, _I32)), whole)
    for least in MAGNITUDES[1:]:
        reached = graph._emit("GreaterOrEqual", (size, graph._scalar(least, _F32)), truth)
        code = graph._emit("Add", (code, graph._cast(reached, _I32)), whole)
    return graph._cast(code, target)


def _from_code(code: Symbol) -> Symbol:
    """Carried values of int4 or uint4 that are their bits."""
    graph = code.graph
    whole = graph._cast(code, _I32)
    place = graph._emit("Mod", (whole, graph._scalar(16, _I32)), whole.type)
    table = graph._constant(np.array([*MAGNITUDES, *(-m for m in MAGNITUDES)], np.float32), _F32)
    made = graph._emit("Gather", (table, place), tensor_type(_F32, code.type.shape))
    return graph._cast(made, CARRIER)
