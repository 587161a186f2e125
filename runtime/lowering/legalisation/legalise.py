"""Replaces every dtype by one that ONNX stores and every operator by what the target computes right.

For each operator and dtype: *legal* (kept), *promote* (in which dtype, and back) or *expand* (into which operators).
The first comes from the target's data, the second from `stand_ins`, the third from `detours`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from graphcore.build.operands import broadcast_shapes
from graphcore.errors import GraphError
from graphcore.ir.draft import Draft
from graphcore.ir.graph import Graph
from graphcore.ir.rewrite import Rewrite, storage_type
from graphcore.ir.symbol import Constant, Input, Node, Symbol
from graphcore.onnx.proto.model_proto import OPSET
from graphcore.passes.liveness import prune
from graphcore.runtime.lowering.build.casts import NARROW, Casts
from graphcore.runtime.lowering.build.constants import fold, fold_shape, neutral
from graphcore.runtime.lowering.decompositions import float64_functions, keeps_kernel, ml_operators, optionals
from graphcore.runtime.lowering.legalisation import control_flow
from graphcore.runtime.lowering.targets.compute_dtypes import (
    KEEPS_FLOATS,
    KEEPS_VALUES,
    LOW_BITS,
    MOVES,
    PROMOTIONS,
    VIEWED,
    VIEWS,
)
from graphcore.runtime.lowering.targets.legality import BY_RESULT, CONTROL, PRIMARY, Legality
from graphcore.runtime.lowering.targets.releases import table_of
from graphcore.support.source_lines import line_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, _shape, tensor_type

_F64 = DType.float64
_DEEPEST = 8
"""How often a replacement may need the kernel that it stands for, on operands of other sizes, say."""


def _broadcast(operands: Sequence[Symbol]) -> Shape:
    try:
        return broadcast_shapes([s.shape for s in operands])
    except ValueError:  # of two names for one dim, which models that others wrote may have
        rank = max(s.rank for s in operands)
        return _shape([Dim.dynamic()] * rank)


def legalise(graph: Graph, rules: Legality, *, fast: bool = False) -> Graph:
    """A graph that holds nothing but what `rules` allow. Raises `GraphError` where there is no way.

    fast: consecutive operators on floats narrower than float32 do not round in between.
    """
    return Legaliser(graph, rules, fast=fast).run()


class Legaliser:
    """One run over one graph. Detours build with `op`, which legalises, or `native`, which does not."""

    def __init__(
        self,
        graph: Graph,
        rules: Legality,
        outer: Legaliser | None = None,
        *,
        fast: bool = False,
        carried: Mapping[DType, DType] = MappingProxyType({}),
    ) -> None:
        """carried: what stands in for dtypes on the way into and out of a body, as `control.carried_by` has it."""
        self.rewrite: Rewrite = Rewrite(graph, storage_type, outer.rewrite if outer else None)
        self.graph = self.rewrite.new
        self.rules = rules
        self.casts = Casts(self)
        self.fast = fast
        self._carried = carried
        self._standing: dict[tuple[str, DType], int] = {}
        """How often each kernel that is not there is being replaced, within replacements of itself."""
        self._as_read = False
        """Whether the node being looked at is one of float32 in a model that others wrote for its kernels."""
        self._old = graph
        self._retyped: dict[tuple[TensorType, DType], TensorType] = {}
        self._broadcasts: dict[tuple[Any, ...], TensorType] = {}
        self._views: dict[tuple[int, DType], Symbol] = {}
        self._around = graph._around if fast and isinstance(graph, Draft) else frozenset()

    def run(self) -> Graph:
        for symbol in self._old._inputs:
            if isinstance(symbol.type, TensorType) and symbol.type.dtype is DType.tensor_float32:
                # What is fed may have more bits than the dtype.
                self.rewrite.bind(symbol, self.casts.round_tf32(self.rewrite.of(symbol)))
        if self._carried:
            control_flow.enter(self, self._old._inputs, self._carried)
        for node, inputs in self.rewrite.nodes():
            self.rewrite.replace(node, self._node(node, inputs))
        return self._with_outputs()

    def body(self, body: Graph, carried: Mapping[DType, DType] = MappingProxyType({})) -> Graph:
        """A body of a node of this graph, made legal."""
        return Legaliser(body, self.rules, self, fast=self.fast, carried=carried).run()

    def _with_outputs(self) -> Graph:
        """The outputs under their names: a value that has another name already gets a second one by Identity."""
        assert self._old._outputs is not None
        outputs: list[tuple[str | None, Symbol]] = []
        for label, symbol in self._old._outputs:
            name = label or symbol.name
            value = control_flow.held(self, self.rewrite.of(symbol), self._carried)
            fits = isinstance(value.producer, Node) and value._name in (None, name)
            fits = fits or (isinstance(value.producer, Input) and value._name == name)
            if not fits or any(value is other for _, other in outputs):
                value = self._again(value)
                if not isinstance(value.producer, Node) or any(value is other for _, other in outputs):
                    value = self.native("Identity", value)
            if isinstance(value.type, TensorType) and isinstance(symbol.type, TensorType) and not value.shape.is_ranked:
                value.type = tensor_type(value.dtype, symbol.shape)
            if value._name is None and self.graph._outer is None:
                self.graph._names.rename(value, name)
            outputs.append((name, value))
        self.graph._outputs = outputs
        prune(self.graph)
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
            if "within" in node.attributes:
                return (self.casts.plain(value, types[0].dtype),)
            if node.outputs[0].id in self._around:
                return (self.casts.around(value, source.dtype, types[0].dtype),)
            return (self.casts.cast(value, source.dtype, types[0].dtype),)
        stored = [t if isinstance(t, TensorType) and t.dtype.storage is t.dtype else storage_type(t) for t in types]
        if node.op_type in CONTROL and not node.domain:
            return control_flow.legal(self, node, inputs, stored)
        attributes = self.rewrite.attributes(node, self.body)
        if self.fast and not node.domain:
            inputs = tuple([self.casts.unrounded(s, old) for s, old in zip(inputs, node.inputs, strict=True)])
        self._as_read = self.rewrite.is_read and self._primary(node.op_type, inputs, stored) is DType.float32
        made = self.legal(node.op_type, inputs, stored, attributes, node.domain)
        if node.op_type in MOVES and not self.fast:
            return made
        for t in types:
            if isinstance(t, TensorType) and t.dtype is DType.tensor_float32:
                return tuple(self.casts.rounded(m, t) for m, t in zip(made, types, strict=True))
        return made

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
        type_ = self._type(inputs, dtype, shape)
        folded = self._folded(op_type, inputs, (type_,), attributes)
        if folded is not None:
            return folded
        if self.rules.may_lack:
            own = self._primary(op_type, inputs, (type_,))
            if own is not None and op_type != "Cast" and self.rules.lacks(op_type, own):
                return self._without_kernel(op_type, own, inputs, (type_,), attributes)[0]
        return self.graph._emit(op_type, inputs, type_, attributes)

    def _type(self, inputs: Sequence[Symbol | None], dtype: DType | None, shape: Shape | None) -> TensorType:
        given = [s for s in inputs if s is not None]
        if shape is not None:
            return tensor_type(dtype or given[0].dtype, shape)
        key = (dtype, *[s.type for s in given])
        found = self._broadcasts.get(key)
        if found is None:
            found = self._broadcasts[key] = tensor_type(dtype or given[0].dtype, _broadcast(given))
        return found

    def retyped(self, type_: TensorType, dtype: DType) -> TensorType:
        """The type with another dtype."""
        key = (type_, dtype)
        found = self._retyped.get(key)
        if found is None:
            found = self._retyped[key] = tensor_type(dtype, type_.shape)
        return found

    def _folded(
        self, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: dict[str, Any]
    ) -> Symbol | None:
        """The result where it is known already."""
        if not self.rules.detours:
            return None
        known = [s is None or type(s.producer) is Constant for s in inputs]
        if not any(known):
            if op_type == "Shape" and len(inputs) == 1 and (operand := inputs[0]) is not None:
                return fold_shape(self, operand, attributes, types[0])
            return None
        if all(known):
            return fold(self, op_type, inputs, types, attributes)
        return neutral(self, op_type, inputs, types[0]) if op_type in ("And", "Or") else None

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
        dtype = self._primary(op_type, inputs, types)
        if self.rules.detours and (domain == ml_operators.DOMAIN or (op_type in optionals.OPERATORS and not domain)):
            if domain:
                aside = ml_operators.replaced(self, op_type, inputs, types, attributes)
            else:
                aside = optionals.replaced(self, op_type, inputs)
            if aside is not None:
                return aside
        if domain or dtype is None or not all(isinstance(t, TensorType) for t in types):
            return self.graph._emit_many(op_type, tuple(inputs), types, attributes, domain)
        if self.rules.detours:
            folded = self._folded(op_type, inputs, types, attributes)
            if folded is not None:
                return (folded,)
            detour = self.rules.replaced.rows.get((op_type, dtype))
            if self._as_read and detour is not None:
                first = inputs[0] if inputs else None
                if keeps_kernel(op_type, dtype, None if first is None else first.type):
                    detour = None
            made = detour(self, op_type, inputs, types, attributes) if detour else None
            if made is not None:
                return made if isinstance(made, tuple) else (made,)
            if self.fast and dtype in NARROW and op_type in KEEPS_VALUES and self._is_wider(inputs):
                return self.through(DType.float32, op_type, inputs, types, attributes)
        if self.rules.allows(op_type, dtype) or op_type == "Cast" or (op_type == "BitCast" and self.rules.views_bits):
            return self.graph._emit_many(op_type, tuple(inputs), types, attributes)
        return self._without_kernel(op_type, dtype, inputs, types, attributes)

    def _without_kernel(
        self,
        op_type: str,
        dtype: DType,
        inputs: Sequence[Symbol | None],
        types: Sequence[Type],
        attributes: dict[str, Any],
    ) -> tuple[Symbol, ...]:
        """An operator on stored dtypes that the target has no kernel for."""
        own = self.rules.replaced.own
        built = self._stood_for(op_type, dtype, inputs, types, attributes)
        if built is not None:
            return built
        view = VIEWS.get(dtype)
        if view is not None and op_type in VIEWED and self.rules.allows(op_type, view):
            return self.through(view, op_type, inputs, types, attributes, by_bits=True)
        promotions = PROMOTIONS.get(dtype, ())
        for wider in promotions:
            exact = op_type in MOVES or not (wider.is_float and not dtype.is_float)
            if exact and self.rules.allows(op_type, wider):
                return self.through(wider, op_type, inputs, types, attributes)
        if view is not None and op_type in VIEWED and (op_type, view) in own:
            return self.through(view, op_type, inputs, types, attributes, by_bits=True)
        for wider in promotions:
            if (op_type, wider) in own:
                return self.through(wider, op_type, inputs, types, attributes)
        made = self._by_function(dtype, op_type, inputs, types, attributes)
        if made is not None:
            return made
        if self.rules.host is not None:
            if dtype.bits == 4 and promotions:
                return self.through(promotions[0], op_type, inputs, types, attributes)
            return self.on_host(op_type, inputs, types, attributes)
        if dtype is DType.float32 and (self.rules.allows(op_type, _F64) or op_type in float64_functions.FUNCTIONS):
            return self.through(_F64, op_type, inputs, types, attributes)
        shown = {f"input {i}": str(s.type) for i, s in enumerate(inputs) if s is not None}
        help = "cast the operands to float32 first: .cast(DType.float32)"
        if self.rules.runtime.registry and any(
            self.rules.has_lost(op_type, d) for d in (dtype, *promotions, *((view,) if view else ()))
        ):
            known = table_of(self.rules.target).newest.version
            help = f"onnxruntime {self.rules.runtime.version} lists no kernel of it: pip install onnxruntime=={known}"
        if (line := line_of(self.graph._origin)) is not None:
            shown["result"] = f"{types[0]}   {line}   {line.text}".rstrip()
        raise GraphError(
            f"{op_type}: the {self.rules.target} target has no way to compute it in {dtype}", operands=shown, help=help
        )

    def _stood_for(
        self,
        op_type: str,
        dtype: DType,
        inputs: Sequence[Symbol | None],
        types: Sequence[Type],
        attributes: dict[str, Any],
    ) -> tuple[Symbol, ...] | None:
        """What the row makes that stands for a kernel; None where there is none, or it needs that very kernel."""
        key = op_type, dtype
        detour = self.rules.replaced.own.get(key)
        depth = self._standing.get(key, 0)
        if detour is None or depth == _DEEPEST:
            return None
        self._standing[key] = depth + 1
        try:
            built = detour(self, op_type, inputs, types, attributes)
        finally:
            self._standing[key] = depth
        return built if built is None or isinstance(built, tuple) else (built,)

    def _by_function(
        self,
        dtype: DType,
        op_type: str,
        inputs: Sequence[Symbol | None],
        types: Sequence[Type],
        attributes: dict[str, Any],
    ) -> tuple[Symbol, ...] | None:
        from graphcore.runtime.lowering.legalisation.onnx_functions import by_function

        if dtype is DType.string or (not self.rules.detours and self.rules.runtime.opset == OPSET):
            return None
        if dtype.is_float and dtype.bits < 32:
            return self.through(DType.float32, op_type, inputs, types, attributes)
        return by_function(self, op_type, inputs, types, attributes)

    def on_host(
        self,
        op_type: str,
        inputs: Sequence[Symbol | None],
        types: Sequence[Type],
        attributes: dict[str, Any],
    ) -> tuple[Symbol, ...]:
        """What is left to the CPU goes there as the CPU wants it."""
        device = self.rules
        assert device.host is not None
        self.rules = device.host
        try:
            return self.legal(op_type, inputs, types, attributes, "")
        finally:
            self.rules = device

    def _is_wider(self, inputs: Sequence[Symbol | None]) -> bool:
        return any(s is not None and (s.id, DType.float32) in self.casts.loose for s in inputs)

    def _primary(self, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type]) -> DType | None:
        position = PRIMARY.get(op_type, 0)
        chosen: Any = types[0] if types else None
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
        casts = self.casts
        integers = own.is_integer and own.bits <= 16 and dtype.is_integer
        narrow = self.fast and own in NARROW
        keeps = KEEPS_FLOATS if own.is_float else KEEPS_VALUES
        wide: list[Symbol | None] = []
        is_exact = True
        for position, symbol in enumerate(inputs):
            if symbol is None or symbol.type.dtype is not own:
                wide.append(symbol)
                continue
            loose = casts.loose.get((symbol.id, dtype))
            if loose is not None and (narrow or (integers and _counts_low_bits(op_type, position, attributes))):
                is_exact = False
                wide.append(loose)
            else:
                wide.append(self._moved(symbol, dtype, by_bits))
        wide_types = [self.retyped(t, dtype) if isinstance(t, TensorType) and t.dtype is own else t for t in types]
        if "value" in attributes and op_type == "ConstantOfShape":
            attributes = {"value": attributes["value"].astype(dtype.numpy)}
        elif "dtype" in attributes and op_type == "EyeLike":
            attributes = {**attributes, "dtype": dtype}
        made = self.legal(op_type, wide, wide_types, attributes, "")
        results = tuple(
            self._moved(m, t.dtype, by_bits) if isinstance(t, TensorType) and m.type.dtype is not t.dtype else m
            for m, t in zip(made, types, strict=True)
        )
        for m, result in zip(made, results, strict=True):
            if m is result or by_bits or m.type.dtype is not dtype:
                continue
            if is_exact and op_type in keeps:
                casts.know(result, m)
            elif narrow or integers:
                casts.loose[result.id, dtype] = m
        return results

    def _moved(self, symbol: Symbol, dtype: DType, by_bits: bool) -> Symbol:
        return self.viewed(symbol, dtype) if by_bits else self.casts.cast(symbol, symbol.dtype, dtype)

    def viewed(self, symbol: Symbol, dtype: DType) -> Symbol:
        """The same bits as another dtype."""
        found = self._views.get((symbol.id, dtype))
        if found is None:
            array = self.known(symbol)
            if array is not None:
                found = self.graph._constant(array.view(dtype.numpy), dtype)
            else:
                found = self.native("BitCast", symbol, dtype=dtype, to=dtype)
                self._views[found.id, symbol.dtype] = symbol
            self._views[symbol.id, dtype] = found
        return found


def _counts_low_bits(op_type: str, position: int, attributes: dict[str, Any]) -> bool:
    if op_type == "BitShift":
        return not position and attributes["direction"] == "LEFT"
    return op_type in LOW_BITS
