"""The builder with which decompositions and casts create nodes, and the description of a call to build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.arrays.evaluate import FOLDED, folded, folded_shape
from graphcore.build.primitives import result_type
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol, present
from graphcore.ir.transform.walk import constant_array
from graphcore.operators import Trait, having
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, tensor_type

_ELEMENTWISE = having(Trait.ELEMENTWISE)

LegalNode = Callable[[Node, tuple[Symbol | None, ...]], tuple[Symbol, ...]]
"""A function that legalises a node on new operands."""


class OpCall(NamedTuple):
    """An operator on operands: a node that is yet to be built. A tuple: dataclasses take longer to create.

    inputs: Symbols, None for an omitted operand. types: the types of the results, with dtypes that ONNX stores.
    """

    op: str
    inputs: Sequence[Any]
    types: Sequence[Any]
    attributes: dict[str, Any]
    domain: str = ""

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        shape: Shape = self.types[0].shape
        return shape


class CallSelector(Protocol):
    """Chooses how a target computes a call: by its kernel, in another dtype, or decomposed."""

    def legal(self, b: Builder, call: OpCall) -> tuple[Symbol, ...]:
        """Build a call from operators that the target computes correctly. Raises `GraphError` if there is no way."""
        ...

    def replacement(self, b: Builder, call: OpCall) -> tuple[Symbol, ...] | None:
        """Build the replacement of a kernel, even an inexact one, that may be missing; return None if it exists."""
        ...


class Casting(Protocol):
    """The casts of one lowering; `build.casts` implements them."""

    loose: dict[tuple[int, DType], Symbol]

    def cast(self, symbol: Symbol, source: DType, target: DType) -> Symbol:
        """Return a stored value of `source` as a stored value of `target`."""
        ...

    def native(self, symbol: Symbol, target: DType) -> Symbol:
        """Cast a value by a single Cast node."""
        ...

    def apart(self, symbol: Symbol) -> Symbol:
        """Return a Symbol whose Cast onnxruntime does not merge with a following one."""
        ...

    def know(self, symbol: Symbol, wide: Symbol) -> None:
        """Record that `wide` is the value of `symbol` in a wider dtype."""
        ...


class Builder:
    """Adds nodes to one graph: `op` legalises an operator, `native` uses its kernel, `emit` adds the node unchanged.

    emit, emit_many, scalar, vector, constant and cast are as in `Graph.build`. rules: the target. selection: legalises
    calls. casting: creates the casts of a builder. fast: do not round between consecutive operators on narrow floats.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Legality,
        selection: CallSelector,
        casting: Callable[[Builder], Casting],
        *,
        fast: bool = False,
    ) -> None:
        self.graph = graph
        self.rules = rules
        self.fast = fast
        self.is_read = False
        """True while the nodes are built for a node of an imported model."""
        self.keeps_halves = False
        """True if that node keeps the runtime's kernels of float16 and bfloat16."""
        self.emit = graph.build.emit
        self.emit_many = graph.build.emit_many
        self.scalar = graph.build.scalar
        self.vector = graph.build.vector
        self.constant = graph.build.constant
        self.casts = casting(self)
        self.native_cast = self.casts.native
        self.selection = selection
        self._retyped: dict[tuple[TensorType, DType], TensorType] = {}
        self._elementwise: dict[tuple[Any, ...], TensorType] = {}
        self._views: dict[tuple[int, DType], Symbol] = {}

    def op(
        self,
        op_type: str,
        *inputs: Symbol | None,
        dtype: DType | None = None,
        shape: Shape | None = None,
        **attributes: Any,
    ) -> Symbol:
        """Build a legalised operator with one output, by default of the dtype and the shape that the operator gives."""
        return self.selection.legal(
            self, OpCall(op_type, inputs, (self._type(op_type, inputs, attributes, dtype, shape),), attributes)
        )[0]

    def native(
        self,
        op_type: str,
        *inputs: Symbol | None,
        dtype: DType | None = None,
        shape: Shape | None = None,
        **attributes: Any,
    ) -> Symbol:
        """Build an operator with one output by its kernel, exact or not, unless the target has none."""
        types = (self._type(op_type, inputs, attributes, dtype, shape),)
        if self.rules.decomposes:
            folded = fold(self.graph, op_type, inputs, types, attributes)
            if folded is not None:
                return folded
        if self.rules.may_lack:
            built = self.selection.replacement(self, OpCall(op_type, inputs, types, attributes))
            if built is not None:
                return built[0]
        return self.emit(op_type, inputs, types[0], attributes)

    def legal(self, call: OpCall) -> tuple[Symbol, ...]:
        """Build a legalised call."""
        return self.selection.legal(self, call)

    def on_host(self, call: OpCall) -> tuple[Symbol, ...]:
        """Build a call that the CPU computes beside a device."""
        device = self.rules
        self.rules = present(device.host)
        try:
            return self.selection.legal(self, call)
        finally:
            self.rules = device

    def cast(self, symbol: Symbol, target: DType) -> Symbol:
        """Cast a stored value to another dtype with the semantics of graphcore."""
        return self.casts.cast(symbol, symbol.dtype, target)

    def saturated(self, symbol: Symbol, target: DType) -> Symbol:
        """Cast floats to integers with saturation, also in imported models, where only their own Casts do not."""
        is_read, self.is_read = self.is_read, False
        try:
            return self.cast(symbol, target)
        finally:
            self.is_read = is_read

    def view(self, symbol: Symbol, dtype: DType) -> Symbol:
        """Return the same bits as another dtype."""
        result = self._views.get((symbol.id, dtype))
        if result is None:
            array = self.array_of(symbol)
            if array is not None:
                result = self.constant(array.view(dtype.numpy), dtype)
            else:
                result = self.native("BitCast", symbol, dtype=dtype, to=dtype)
                self._views[result.id, symbol.dtype] = symbol
            self._views[symbol.id, dtype] = result
        return result

    def array_of(self, symbol: Symbol | None) -> Any:
        """Return the array of a constant or a weight; None for any other value."""
        return constant_array(symbol, weights=True)

    def retyped(self, type_: TensorType, dtype: DType) -> TensorType:
        """Return the type with another dtype."""
        key = (type_, dtype)
        result = self._retyped.get(key)
        if result is None:
            result = self._retyped[key] = tensor_type(dtype, type_.shape)
        return result

    def _type(
        self,
        op_type: str,
        inputs: Sequence[Symbol | None],
        attributes: Mapping[str, Any],
        dtype: DType | None,
        shape: Shape | None,
    ) -> TensorType:
        if shape is not None or op_type not in _ELEMENTWISE:
            return result_type(op_type, inputs, attributes, dtype, shape)
        key = (op_type, dtype, *[None if s is None else s.type for s in inputs])
        result = self._elementwise.get(key)
        if result is None:
            result = self._elementwise[key] = result_type(op_type, inputs, attributes, dtype)
        return result


# Constant folding while lowering, and operands that have no effect.

_MAX_FOLDED_BYTES = 1 << 20
"""The size of the largest operand or result that is folded."""


def fold(
    graph: Graph, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: dict[str, Any]
) -> Symbol | None:
    """Return the result of an operator if it is a constant or one of the operands; None otherwise."""
    for symbol in inputs:
        if symbol is None or type(symbol.producer) is Constant:
            break
    else:  # most calls end here
        if op_type == "Shape" and len(inputs) == 1 and (operand := inputs[0]) is not None:
            return _shape_of(graph, operand, attributes, types[0])
        return None
    if all(s is None or type(s.producer) is Constant for s in inputs):
        return _evaluated(graph, op_type, inputs, types, attributes)
    return _neutral(op_type, inputs, types[0]) if op_type in ("And", "Or") else None


def _evaluated(
    graph: Graph, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: dict[str, Any]
) -> Symbol | None:
    """Return the result as a constant; None if it is unknown or uncertain."""
    if op_type not in FOLDED or op_type == "Cast" or len(types) != 1:  # here a Cast means the kernel's
        return None
    (type_,) = types
    if not isinstance(type_, TensorType):
        return None
    arrays: list[Array | None] = []
    dtypes: list[DType | None] = []
    for symbol in inputs:
        producer = symbol.producer if symbol is not None else None
        if producer is None:
            arrays.append(None)
        elif type(producer) is Constant and not producer.is_weight and producer.array.nbytes <= _MAX_FOLDED_BYTES:
            arrays.append(producer.array)
        else:
            return None
        dtypes.append(None if symbol is None else symbol.dtype)
    array = folded(op_type, arrays, dtypes, attributes, type_, _MAX_FOLDED_BYTES, any_nan=True)
    return None if array is None else graph.build.constant(array, type_.dtype)


def _shape_of(graph: Graph, operand: Symbol, attributes: dict[str, Any], type_: Type) -> Symbol | None:
    """Return the shape of a tensor with static dims as a constant."""
    if not isinstance(operand.type, TensorType) or not isinstance(type_, TensorType) or not operand.shape.is_static:
        return None
    return graph.build.constant(folded_shape(operand.shape, attributes), type_.dtype)


def _neutral(op_type: str, inputs: Sequence[Symbol | None], type_: Type) -> Symbol | None:
    """Return the operand that And with true, or Or with false, returns unchanged."""
    for operand, other in (tuple(inputs), tuple(inputs)[::-1]):
        producer = other.producer if other is not None else None
        array = producer.array if isinstance(producer, Constant) else None
        if array is not None and array.size == 1 and bool(array) is (op_type == "And") and operand is not None:
            return operand if operand.type is type_ else None
    return None


# The signature of a decomposition.

Replacement: TypeAlias = "Symbol | tuple[Symbol, ...] | None"
"""The results that replace those of a call; None if the kernel can stay."""

Decomposition: TypeAlias = "Callable[[Builder, OpCall], Replacement]"
