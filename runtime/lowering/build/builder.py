"""The builder that decompositions and casts make nodes with, and the record of what is to be built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from graphcore.arrays.casting import Array
from graphcore.arrays.evaluate import FOLDED, folded, folded_shape
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Constant, Node, Symbol
from graphcore.ir.transform.walk import constant_array
from graphcore.operators.shapes.call import broadcast_shapes
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, _shape, tensor_type

LegalNode = Callable[[Node, tuple[Symbol | None, ...]], tuple[Symbol, ...]]
"""A function that makes a node on new operands legal."""


class Call(NamedTuple):
    """An operator on operands: what a node would be. A tuple, since each node needs one and a dataclass takes longer.

    inputs: Symbols, None for an operand left out. types: those of the results, of dtypes that ONNX stores.
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


class Selection(Protocol):
    """Chooses how a target computes a call: as it is, in another dtype, or decomposed."""

    def legal(self, b: Builder, call: Call) -> tuple[Symbol, ...]:
        """Build a call out of what the target computes right. Raises `GraphError` where there is no way."""
        ...

    def replacement(self, b: Builder, call: Call) -> tuple[Symbol, ...] | None:
        """Build what replaces a kernel, right or wrong, that may not be there; return None where it is."""
        ...


class Casting(Protocol):
    """The casts of one lowering, as `build.casts` makes them."""

    loose: dict[tuple[int, DType], Symbol]

    def cast(self, symbol: Symbol, source: DType, target: DType) -> Symbol:
        """Return a stored value of `source` as a stored value of `target`."""
        ...

    def native(self, symbol: Symbol, target: DType) -> Symbol:
        """Return what one Cast makes of a value."""
        ...

    def apart(self, symbol: Symbol) -> Symbol:
        """Return a Symbol after which onnxruntime does not merge two casts."""
        ...

    def know(self, symbol: Symbol, wide: Symbol) -> None:
        """Note that `wide` is `symbol` in a dtype that holds it."""
        ...


class Builder:
    """Makes the nodes of one graph: `op` makes an operator legal, `native` takes its kernel, `emit` asks nothing.

    It has the words of `Graph.build`: emit, emit_many, scalar, vector, constant, cast. rules: the target. selection:
    makes calls legal. casting: makes the casts of a builder. fast: consecutive operators on narrow floats do
    not round in between.
    """

    def __init__(
        self,
        graph: Graph,
        rules: Legality,
        selection: Selection,
        casting: Callable[[Builder], Casting],
        *,
        fast: bool = False,
    ) -> None:
        self.graph = graph
        self.rules = rules
        self.fast = fast
        self.is_read = False
        """Nodes are built for a node of a model that others wrote."""
        self.keeps_halves = False
        """That node keeps the runtime's kernels of float16 and bfloat16."""
        self.emit = graph.build.emit
        self.emit_many = graph.build.emit_many
        self.scalar = graph.build.scalar
        self.vector = graph.build.vector
        self.constant = graph.build.constant
        self.casts = casting(self)
        self.native_cast = self.casts.native
        self.selection = selection
        self._retyped: dict[tuple[TensorType, DType], TensorType] = {}
        self._broadcasts: dict[tuple[Any, ...], TensorType] = {}
        self._views: dict[tuple[int, DType], Symbol] = {}

    def op(
        self,
        op_type: str,
        *inputs: Symbol | None,
        dtype: DType | None = None,
        shape: Shape | None = None,
        **attributes: Any,
    ) -> Symbol:
        """Build an operator with one output, made legal; its type is the first operand's, broadcast, where not told."""
        return self.selection.legal(self, Call(op_type, inputs, (self._type(inputs, dtype, shape),), attributes))[0]

    def native(
        self,
        op_type: str,
        *inputs: Symbol | None,
        dtype: DType | None = None,
        shape: Shape | None = None,
        **attributes: Any,
    ) -> Symbol:
        """Build an operator with one output as it is, right or wrong, unless the target has no kernel of it at all."""
        types = (self._type(inputs, dtype, shape),)
        if self.rules.decomposes:
            folded = fold(self.graph, op_type, inputs, types, attributes)
            if folded is not None:
                return folded
        if self.rules.may_lack:
            built = self.selection.replacement(self, Call(op_type, inputs, types, attributes))
            if built is not None:
                return built[0]
        return self.emit(op_type, inputs, types[0], attributes)

    def legal(self, call: Call) -> tuple[Symbol, ...]:
        """Build a call, made legal."""
        return self.selection.legal(self, call)

    def on_host(self, call: Call) -> tuple[Symbol, ...]:
        """Build what is left to the CPU as the CPU computes it."""
        device = self.rules
        assert device.host is not None
        self.rules = device.host
        try:
            return self.selection.legal(self, call)
        finally:
            self.rules = device

    def cast(self, symbol: Symbol, target: DType) -> Symbol:
        """Return a stored value as one of another dtype, with the library's semantics."""
        return self.casts.cast(symbol, symbol.dtype, target)

    def saturated(self, symbol: Symbol, target: DType) -> Symbol:
        """Return floats as integers, saturated in models of others too: their own Casts alone are the kernel's."""
        is_read, self.is_read = self.is_read, False
        try:
            return self.cast(symbol, target)
        finally:
            self.is_read = is_read

    def view(self, symbol: Symbol, dtype: DType) -> Symbol:
        """Return the same bits as another dtype."""
        found = self._views.get((symbol.id, dtype))
        if found is None:
            array = self.known(symbol)
            if array is not None:
                found = self.constant(array.view(dtype.numpy), dtype)
            else:
                found = self.native("BitCast", symbol, dtype=dtype, to=dtype)
                self._views[found.id, symbol.dtype] = symbol
            self._views[symbol.id, dtype] = found
        return found

    def known(self, symbol: Symbol | None) -> Any:
        """Return the array of a constant or a weight, None for anything else."""
        return constant_array(symbol, weights=True)

    def retyped(self, type_: TensorType, dtype: DType) -> TensorType:
        """Return the type with another dtype."""
        key = (type_, dtype)
        found = self._retyped.get(key)
        if found is None:
            found = self._retyped[key] = tensor_type(dtype, type_.shape)
        return found

    def _type(self, inputs: Sequence[Symbol | None], dtype: DType | None, shape: Shape | None) -> TensorType:
        given = [s for s in inputs if s is not None]
        if shape is not None:
            return tensor_type(dtype or given[0].dtype, shape)
        key = (dtype, *[s.type for s in given])
        found = self._broadcasts.get(key)
        if found is None:
            found = self._broadcasts[key] = tensor_type(dtype or given[0].dtype, _broadcast(given))
        return found


def _broadcast(operands: Sequence[Symbol]) -> Shape:
    try:
        return broadcast_shapes([s.shape for s in operands])
    except ValueError:  # of two names for one dim, which imported models may have
        rank = max(s.rank for s in operands)
        return _shape([Dim.dynamic()] * rank)


# Constants computed while lowering, and operands that change nothing.

LARGEST = 1 << 20
"""Bytes of the largest operand or result that is folded."""


def fold(
    graph: Graph, op_type: str, inputs: Sequence[Symbol | None], types: Sequence[Type], attributes: dict[str, Any]
) -> Symbol | None:
    """Return an operator's result where it is known already: a constant, or one of the operands; None otherwise."""
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
    """Return the result as a constant; None where it is not known now, or not for certain."""
    if op_type not in FOLDED or op_type == "Cast" or len(types) != 1:  # a Cast is the kernel's own here
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
        elif type(producer) is Constant and not producer.is_weight and producer.array.nbytes <= LARGEST:
            arrays.append(producer.array)
        else:
            return None
        dtypes.append(None if symbol is None else symbol.dtype)
    made = folded(op_type, arrays, dtypes, attributes, type_, LARGEST, any_nan=True)
    return None if made is None else graph.build.constant(made, type_.dtype)


def _shape_of(graph: Graph, operand: Symbol, attributes: dict[str, Any], type_: Type) -> Symbol | None:
    """Return the shape of a tensor all of whose dims are known."""
    if not isinstance(operand.type, TensorType) or not isinstance(type_, TensorType) or not operand.shape.is_static:
        return None
    return graph.build.constant(folded_shape(operand.shape, attributes), type_.dtype)


def _neutral(op_type: str, inputs: Sequence[Symbol | None], type_: Type) -> Symbol | None:
    """Return the operand that *and* with true, or *or* with false, leaves as it is."""
    for operand, other in (tuple(inputs), tuple(inputs)[::-1]):
        producer = other.producer if other is not None else None
        array = producer.array if isinstance(producer, Constant) else None
        if array is not None and array.size == 1 and bool(array) is (op_type == "And") and operand is not None:
            return operand if operand.type is type_ else None
    return None


# The signature of a decomposition.

Replacement: TypeAlias = "Symbol | tuple[Symbol, ...] | None"
"""The results that replace a call's; None where the kernel may stay after all."""

Decomposition: TypeAlias = "Callable[[Builder, Call], Replacement]"
