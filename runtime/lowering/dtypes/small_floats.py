"""Floats of 4 and 6 bits stored as float8_e4m3fn, which represents all of their values: they have no kernels.

A pass before the others. Casts to them become arithmetic that rounds. Nodes that move values move float8 instead;
others compute in float32, and their results are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.ir.transform.walk import bodies
from graphcore.onnx.notes import OPSET
from graphcore.runtime.lowering.passes import Summary
from graphcore.runtime.lowering.targets.compute_dtypes import MOVES
from graphcore.runtime.lowering.targets.legality import Legality, schema_dtypes
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, _shape, tensor_type

STORAGE = DType.float8_e4m3fn
_F32, _F64, _I32, _I64 = DType.float32, DType.float64, DType.int32, DType.int64
FORMATS: Mapping[DType, tuple[int, int]] = {
    DType.float4_e2m1: (1, 0),
    DType.float6_e2m3fn: (3, 0),
    DType.float6_e3m2fn: (2, -2),
}
"""Bits of the fraction, and the exponent of the smallest normal number. None has infinities or NaN."""
_EXACT_IN_DOUBLE = frozenset({_F64, _I32, _I64, DType.uint32, DType.uint64})


def stored(rules: Legality) -> frozenset[DType]:
    """Return the dtypes that a target does not have: files have float4, and float6 from opset 28 on."""
    return frozenset(FORMATS) - (
        frozenset() if rules.decomposes else schema_dtypes("Cast", max(rules.runtime.opset, OPSET))
    )


def needed(summary: Summary, dtypes: frozenset[DType] = frozenset(FORMATS)) -> bool:
    """Return True if the graph or one of its bodies has one of the dtypes."""
    return not dtypes.isdisjoint(summary.dtypes) or any(_small(type_) in dtypes for type_ in summary.list_types)


def store_as_float8(graph: Graph, dtypes: frozenset[DType]) -> Graph:
    """Return the graph with float8_e4m3fn in place of the dtypes.

    Raises `GraphError` for nodes that have no equivalent.
    """
    return _SmallFloatRewrite(graph, _SmallFloatPolicy(dtypes)).run()


class _SmallFloatRewrite(Rewrite):
    policy: _SmallFloatPolicy

    def _constant(self, symbol: Symbol, producer: Constant) -> Symbol:
        if self.policy.replaced(symbol.type):
            producer = Constant(producer.array.astype(STORAGE.numpy), producer.is_weight, producer.origin)
        return super()._constant(symbol, producer)

    def attributes(self, node: Node) -> Mapping[str, Any]:
        return {key: self.policy.converted(value, STORAGE) for key, value in super().attributes(node).items()}


class _SmallFloatPolicy(Policy[_SmallFloatRewrite]):
    def __init__(self, dtypes: frozenset[DType]) -> None:
        self.dtypes = dtypes

    def replaced(self, type_: Type) -> DType | None:
        """Return the dtype of a tensor, sequence or optional if it is to be replaced."""
        dtype = _small(type_)
        return dtype if dtype in self.dtypes else None

    def retype(self, type_: Type) -> Type:
        return _retyped(type_, STORAGE) if self.replaced(type_) else type_

    def converted(self, value: Any, dtype: DType) -> Any:
        """Return an attribute, with arrays of the replaced dtypes in `dtype`, and `dtype` for these dtypes."""
        if isinstance(value, DType):
            return dtype if value in self.dtypes else value
        is_small = isinstance(value, np.ndarray) and any(value.dtype == small.numpy for small in self.dtypes)
        return value.astype(dtype.numpy) if is_small else value

    def replace_node(self, rewrite: _SmallFloatRewrite, node: Node, inputs: Inputs) -> Results | None:
        result = self._special(node, inputs)
        if result is not None:
            return (result,)
        is_moved = node.op_type in MOVES and not node.domain
        if is_moved or node.domain not in ("", LIBRARY) or bodies(node):
            return None
        values = [s for s in (*node.inputs, *node.outputs) if s is not None]
        if any(isinstance(s.type, (SequenceType, OptionalType)) for s in values):
            return None
        small = [self.replaced(s.type) for s in node.outputs]
        if not any(small):
            return None
        return self._computed(rewrite, node, inputs, small)

    def _computed(
        self, rewrite: _SmallFloatRewrite, node: Node, inputs: Inputs, small: Sequence[DType | None]
    ) -> Results:
        """Build a node in float32 and round its results."""
        build = rewrite.new.build
        wide = [
            build.cast(new, _F32) if new is not None and old is not None and self.replaced(old.type) else new
            for old, new in zip(node.inputs, inputs, strict=True)
        ]
        types = [
            _retyped(s.type, _F32) if dtype else self.retype(s.type)
            for s, dtype in zip(node.outputs, small, strict=True)
        ]
        attributes = {key: self.converted(value, _F32) for key, value in node.attributes.items()}
        results = build.emit_many(node.op_type, tuple(wide), types, attributes, node.domain)
        return [rounded(s, dtype) if dtype else s for s, dtype in zip(results, small, strict=True)]

    def _special(self, node: Node, inputs: Inputs) -> Symbol | None:
        """Return the result of an operator that depends on the bits or the range of the dtype; None for others."""
        x = inputs[0] if inputs else None
        if node.domain or x is None:
            return None
        target = self.replaced(node.outputs[0].type)
        if node.op_type == "Cast" and target:
            return x.graph.build.cast(x, STORAGE) if "within" in node.attributes else rounded(x, target)
        if node.op_type == "QuantizeLinear" and target:
            return _quantized(node, inputs, target)
        if node.op_type == "BitCast":
            source = self.replaced(node.inputs[0].type) if node.inputs[0] is not None else None
            if target and target is source:
                return x.graph.build.emit("Identity", (x,), x.type)
            if target:
                return _from_code(_to_code(x, source, _I32) if source else x, target)
            if source:
                return _to_code(x, source, node.outputs[0].dtype)
        return None


def _small(type_: Type) -> DType | None:
    """Return the dtype of a tensor, or of the tensors of a sequence or an optional, if it is a small float."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return _small(type_.element)
    return type_.dtype if isinstance(type_, TensorType) and type_.dtype in FORMATS else None


def _retyped(type_: Type, dtype: DType) -> Type:
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(_retyped(type_.element, dtype))
    assert isinstance(type_, TensorType)
    return tensor_type(dtype, type_.shape)


def rounded(x: Symbol, target: DType) -> Symbol:
    """Round x to the nearest small float as ONNX casts: ties to even, clipped to the range, NaN to -0.0."""
    x = e.cast(x, _F64 if x.dtype in _EXACT_IN_DOUBLE else _F32)
    number = e.where_number(e.emit("IsNaN", x, dtype=DType.bool), -(2.0**-9), x)  # rounds to -0.0
    near = e.emit("Clip", number, e.const(x, float(target.min)), e.const(x, float(target.max)))
    size = e.emit("Abs", near)
    fraction, least = FORMATS[target]
    greatest = math.frexp(float(target.max))[1] - 1
    step = e.const(x, 2.0 ** (greatest - fraction))
    for exponent in range(greatest - 1, least - 1, -1):
        step = e.where_number(e.below(size, 2.0 ** (exponent + 1)), 2.0 ** (exponent - fraction), step)
    return e.cast(e.mul(e.emit("Round", e.div(near, step)), step), STORAGE)


def _quantized(node: Node, inputs: Inputs, target: DType) -> Symbol:
    """Build QuantizeLinear to a small float."""
    x, scale = present(inputs[0]), present(inputs[1])
    own = DType.of(node.attributes.get("precision") or _F32.onnx)
    factor = _broadcast_scale(e.cast(scale, own), x, node.attributes)
    result = e.emit("Div", e.cast(x, own), factor, shape=x.shape)
    zero = inputs[2] if len(inputs) > 2 else None
    if zero is not None and not (isinstance(zero.producer, Constant) and not zero.producer.array.any()):
        result = e.emit("Add", result, _broadcast_scale(e.cast(zero, own), x, node.attributes), shape=x.shape)
    return rounded(result, target)


def _broadcast_scale(scale: Symbol, x: Symbol, attributes: Mapping[str, Any]) -> Symbol:
    """Reshape a scale, for the tensor, along an axis or for blocks, so that it broadcasts with x."""
    if not scale.shape.is_ranked or not x.shape.is_ranked:
        raise GraphError(
            "QuantizeLinear: quantising to a float of 4 or 6 bits needs operands of known rank",
            operands={"x": str(x.type), "scale": str(scale.type)},
            help="declare the shapes in the model",
        )
    axis = attributes.get("axis", 1)
    axis += x.rank if axis < 0 else 0
    if not scale.rank:
        return scale
    block = attributes.get("block_size", 0)
    if block:
        shape = e.emit("Shape", x, dtype=_I64, shape=_shape([Dim(x.rank)]))
        end = e.emit("Gather", shape, e.const(shape, axis), shape=_shape([]))
        place = e.emit("Range", e.const(end, 0), end, e.const(end, 1), shape=_shape([x.shape[axis]]))
        return e.emit("Gather", scale, e.div(place, e.const(place, block)), shape=x.shape, axis=axis)
    if scale.shape[0] == 1:
        return e.emit("Squeeze", scale, e.ints(scale, [0]), shape=_shape([]))
    column = [-1] + [1] * (x.rank - 1 - axis)
    return e.emit("Reshape", scale, e.ints(scale, column), shape=_shape([scale.shape[0], *[Dim(1)] * len(column[1:])]))


def _magnitudes(dtype: DType) -> Sequence[float]:
    """Return the values by code; the next higher bit is the sign."""
    return np.arange(1 << (dtype.bits - 1), dtype=np.uint8).view(dtype.numpy).astype(np.float64).tolist()


def _to_code(x: Symbol, dtype: DType, target: DType) -> Symbol:
    """Return the bits of stored values, as integers of their width."""
    wide = e.cast(x, _F32)
    size = e.emit("Abs", wide)
    negative = e.below(e.div(1.0, wide), 0.0)  # -0.0 too, whose inverse is -inf
    code = e.where(negative, e.const(x, 1 << (dtype.bits - 1), _I32), e.const(x, 0, _I32))
    for least in _magnitudes(dtype)[1:]:
        code = e.add(code, e.cast(e.emit("GreaterOrEqual", size, e.const(size, least), dtype=DType.bool), _I32))
    return e.cast(code, target)


def _from_code(code: Symbol, dtype: DType) -> Symbol:
    """Return the stored values whose bits are the integers."""
    whole = e.cast(code, _I32)
    place = e.emit("Mod", whole, e.const(whole, 1 << dtype.bits))
    values = _magnitudes(dtype)
    table = code.graph.build.constant(np.array([*values, *(-m for m in values)], np.float32), _F32)
    return e.cast(e.emit("Gather", table, place, shape=code.type.shape), STORAGE)
