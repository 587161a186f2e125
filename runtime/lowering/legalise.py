"""Replaces every dtype by one that ONNX stores and every operator by what the target computes right.

For each operator and dtype: *legal* (kept), *promote* (in which dtype, and back) or *expand* (into which operators).
The first comes from the target's data, the second from the tables here, the third from `detours`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphcore.dims import Dim
from graphcore.dtypes import DType
from graphcore.errors import GraphError
from graphcore.graph import Graph
from graphcore.operands import broadcast_shapes
from graphcore.runtime.lowering.casts import Casts
from graphcore.runtime.lowering.legality import BY_RESULT, PRIMARY, Legality
from graphcore.runtime.lowering.rewrite import Rewrite, storage_type
from graphcore.symbol import Constant, Node, Symbol
from graphcore.types import Shape, TensorType, Type, _shape, tensor_type

# Operators that put values elsewhere and leave them as they are: any dtype that holds them does.
MOVES = frozenset(
    "Compress Concat Expand Flatten Gather GatherElements GatherND Identity Pad Reshape ReverseSequence Slice Split "
    "Squeeze Tile Transpose Trilu Unsqueeze Where ScatterElements ScatterND TensorScatter DepthToSpace SpaceToDepth "
    "If Loop Scan Max Min Clip ReduceMax ReduceMin TopK Abs Neg Relu MaxPool".split()
)

# dtype -> the dtypes to compute in instead, best first. Integers wrap when they come back.
PROMOTIONS: dict[DType, tuple[DType, ...]] = {
    DType.bool: (DType.uint8, DType.int32, DType.float32),
    DType.int4: (DType.int8, DType.int32, DType.int64, DType.float32),
    DType.uint4: (DType.uint8, DType.int32, DType.int64, DType.float32),
    DType.int8: (DType.int32, DType.int64, DType.float32),
    DType.int16: (DType.int32, DType.int64, DType.float32),
    DType.uint8: (DType.int32, DType.int64, DType.float32),
    DType.uint16: (DType.int32, DType.int64, DType.uint32, DType.float32),
    DType.int32: (DType.int64, DType.float64),
    DType.uint32: (DType.int64, DType.float64),
    DType.float8_e4m3fn: (DType.float32,),
    DType.float8_e5m2: (DType.float32,),
    DType.float16: (DType.float32,),
    DType.bfloat16: (DType.float32,),
}

# uint64 and uint32 read as signed numbers, for operators that do not mind.
VIEWS = {DType.uint64: DType.int64, DType.uint32: DType.int32}
VIEWED = frozenset(
    "Neg Where CumSum Trilu Gather Compress Einsum MatMul Mul Add Sub Tile Expand Pad Concat Reshape ScatterElements "
    "ScatterND Slice Split Squeeze Transpose Unsqueeze GatherElements GatherND Identity".split()
)


def _broadcast(operands: Sequence[Symbol]) -> Shape:
    try:
        return broadcast_shapes([s.shape for s in operands])
    except ValueError:  # of two names for one dim, which models that others wrote may have
        rank = max(s.rank for s in operands)
        return _shape([Dim.dynamic()] * rank)


def legalise(graph: Graph, rules: Legality) -> Graph:
    """A graph that holds nothing but what `rules` allow. Raises `GraphError` where there is no way."""
    return Legaliser(graph, rules).run()


class Legaliser:
    """One run over one graph. Detours build with `op`, which legalises, or `native`, which does not."""

    def __init__(self, graph: Graph, rules: Legality, outer: Legaliser | None = None) -> None:
        self.rewrite: Rewrite = Rewrite(graph, storage_type, outer.rewrite if outer else None)
        self.graph = self.rewrite.new
        self.rules = rules
        self.casts = Casts(self)
        self._old = graph

    def run(self) -> Graph:
        for symbol in self._old._inputs:
            if isinstance(symbol.type, TensorType) and symbol.type.dtype is DType.tensor_float32:
                # What is fed may have more bits than the dtype.
                self.rewrite.bind(symbol, self.casts.round_tf32(self.rewrite.of(symbol)))
        for node, inputs in self.rewrite.nodes():
            self.rewrite.replace(node, self._node(node, inputs))
        return self._with_outputs()

    def _with_outputs(self) -> Graph:
        """The outputs under their names: a value that has another name already gets a second one by Identity."""
        assert self._old._outputs is not None
        outputs: list[tuple[str | None, Symbol]] = []
        for label, symbol in self._old._outputs:
            name = label or symbol.name
            value = self.rewrite.of(symbol)
            fits = isinstance(value.producer, Node) and value._name in (None, name)
            if not fits or any(value is other for _, other in outputs):
                value = self._again(value)
                if not isinstance(value.producer, Node) or any(value is other for _, other in outputs):
                    value = self.native("Identity", value)
            if value._name is None and self.graph._outer is None:
                self.graph._names.rename(value, name)
            outputs.append((name, value))
        self.graph._outputs = outputs
        return self.graph

    def _again(self, value: Symbol) -> Symbol:
        """The value as the result of a node."""
        if isinstance(value.type, TensorType):
            return self.op("Identity", value)
        return self.graph._emit("Identity", (value,), value.type)

    def _node(self, node: Node, inputs: tuple[Symbol | None, ...]) -> tuple[Symbol, ...]:
        types = [s.type for s in node.outputs]
        if node.op_type == "Cast" and not node.domain:
            (source,) = node.inputs
            (value,) = inputs
            assert source is not None
            assert value is not None
            return (self.casts.cast(value, source.dtype, types[0].dtype),)
        stored = [storage_type(t) for t in types]
        attributes = self.rewrite.attributes(node, lambda body: Legaliser(body, self.rules, self).run())
        made = self.legal(node.op_type, inputs, stored, attributes, node.domain)
        if node.op_type in MOVES:
            return made
        return tuple(
            self.casts.round_tf32(m) if isinstance(t, TensorType) and t.dtype is DType.tensor_float32 else m
            for m, t in zip(made, types, strict=True)
        )

    # What detours build with

    def op(
        self,
        op_type: str,
        *inputs: Symbol | None,
        dtype: DType | None = None,
        shape: Shape | None = None,
        **attributes: Any,
    ) -> Symbol:
        """An operator with one output, made legal; its type is the first operand's, broadcast, where not told."""
        return self.legal(op_type, inputs, [self._type(inputs, dtype, shape)], attributes, "")[0]

    def native(
        self,
        op_type: str,
        *inputs: Symbol | None,
        dtype: DType | None = None,
        shape: Shape | None = None,
        **attributes: Any,
    ) -> Symbol:
        """An operator with one output, as it is."""
        return self.graph._emit(op_type, inputs, self._type(inputs, dtype, shape), attributes)

    def _type(self, inputs: Sequence[Symbol | None], dtype: DType | None, shape: Shape | None) -> TensorType:
        given = [s for s in inputs if s is not None]
        return tensor_type(dtype or given[0].dtype, _broadcast(given) if shape is None else shape)

    def const(self, value: bool | int | float, dtype: DType) -> Symbol:
        """A scalar constant."""
        return self.graph._scalar(value, dtype)

    def ints(self, values: Sequence[int]) -> Symbol:
        """An int64 vector constant."""
        return self.graph._vector(values)

    def known(self, symbol: Symbol | None) -> Any:
        """The array of a constant, None for anything else."""
        producer = symbol.producer if symbol is not None else None
        return producer.array if isinstance(producer, Constant) else None

    def legal(
        self,
        op_type: str,
        inputs: Sequence[Symbol | None],
        types: Sequence[Type],
        attributes: dict[str, Any],
        domain: str,
    ) -> tuple[Symbol, ...]:
        """An operator on stored dtypes, made legal."""
        from graphcore.runtime.lowering.detours import DETOURS

        dtype = self._primary(op_type, inputs, types)
        if domain or dtype is None:
            return self.graph._emit_many(op_type, tuple(inputs), types, attributes, domain)
        if self.rules.detours:
            detour: Callable[..., Any] | None = DETOURS.get((op_type, dtype))
            made = detour(self, op_type, inputs, types, attributes) if detour else None
            if made is not None:
                return made if isinstance(made, tuple) else (made,)
        if self.rules.allows(op_type, dtype) or op_type in ("Cast", "BitCast"):
            return self.graph._emit_many(op_type, tuple(inputs), types, attributes)
        view = VIEWS.get(dtype)
        if view is not None and op_type in VIEWED and self.rules.allows(op_type, view):
            return self.through(view, op_type, inputs, types, attributes, by_bits=True)
        for wider in PROMOTIONS.get(dtype, ()):
            exact = op_type in MOVES or not (wider.is_float and not dtype.is_float)
            if exact and self.rules.allows(op_type, wider):
                return self.through(wider, op_type, inputs, types, attributes)
        shown = {f"input {i}": str(s.type) for i, s in enumerate(inputs) if s is not None}
        raise GraphError(
            f"{op_type}: the {self.rules.target} target has no way to compute it in {dtype}",
            operands=shown,
            help="cast the operands to float32 first: .cast(DType.float32)",
        )

    def _primary(self, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type]) -> DType | None:
        position = PRIMARY.get(op_type, 0)
        chosen: Any = types[0]
        if op_type not in BY_RESULT and position < len(inputs) and (operand := inputs[position]) is not None:
            chosen = operand.type
        return chosen.dtype if isinstance(chosen, TensorType) else None

    def through(
        self,
        dtype: DType,
        op_type: str,
        inputs: Sequence[Symbol | None],
        types: Sequence[Type],
        attributes: dict[str, Any],
        *,
        by_bits: bool = False,
    ) -> tuple[Symbol, ...]:
        """The operator computed in another dtype: operands of the dtype it is chosen by go there, results come back."""
        own = self._primary(op_type, inputs, types)
        assert own is not None
        wide = [self._moved(s, dtype, by_bits) if s is not None and s.type.dtype is own else s for s in inputs]
        wide_types = [tensor_type(dtype, t.shape) if isinstance(t, TensorType) and t.dtype is own else t for t in types]
        if "value" in attributes and op_type == "ConstantOfShape":
            attributes = {"value": attributes["value"].astype(dtype.numpy)}
        made = self.legal(op_type, wide, wide_types, attributes, "")
        return tuple(
            self._moved(m, t.dtype, by_bits) if isinstance(t, TensorType) and m.type.dtype is not t.dtype else m
            for m, t in zip(made, types, strict=True)
        )

    def _moved(self, symbol: Symbol, dtype: DType, by_bits: bool) -> Symbol:
        return self.viewed(symbol, dtype) if by_bits else self.casts.cast(symbol, symbol.dtype, dtype)

    def viewed(self, symbol: Symbol, dtype: DType) -> Symbol:
        """The same bits as another dtype."""
        array = self.known(symbol)
        if array is not None:
            return self.graph._constant(array.view(dtype.numpy), dtype)
        return self.native("BitCast", symbol, dtype=dtype, to=dtype)
