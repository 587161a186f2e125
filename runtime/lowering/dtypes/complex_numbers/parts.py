"""The pass: from a graph with complex tensors to one of real tensors.

A complex value is two Symbols, its parts, within computations, so that all real kernels and fusions apply. It is one
tensor with a last axis of two where it enters or leaves the graph, bodies and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from graphcore.arrays import casting
from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Captured, Constant, Node, Symbol, present
from graphcore.ir.transform.rewrite import Inputs, Policy, Results, Rewrite
from graphcore.promotion.complex_operators import is_complex
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import OptionalType, SequenceType, TensorType, Type, _shape, tensor_type


class ComplexPair(NamedTuple):
    """The parts of a complex value, Symbols of the new graph of one shape."""

    real: Symbol
    imag: Symbol

    def each(self, function: Callable[..., Symbol], *others: ComplexPair) -> ComplexPair:
        """Apply a function to the real parts, and to the imaginary ones."""
        return ComplexPair(*map(function, self, *others))


Result: TypeAlias = "Symbol | ComplexPair"


def stored_type(type_: Type) -> Type:
    """Return the transport type of a value: complex numbers become pairs along a last axis."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(stored_type(type_.element))
    if not isinstance(type_, TensorType) or not type_.dtype.is_complex:
        return type_
    shape = type_.shape
    return tensor_type(type_.dtype.storage, _shape([*shape, Dim(2)]) if shape.is_ranked else shape)


def holds_complex(symbol: Symbol | None) -> bool:
    """Return True if a Symbol is complex, or a list or optional of complex numbers."""
    return symbol is not None and is_complex(symbol.type)


def _is_complex(node: Node) -> bool:
    return any(map(holds_complex, node.inputs)) or any(map(holds_complex, node.outputs))


class ComplexPolicy(Policy[Rewrite]):
    """The pass over one graph. outer: the pass over the outer graph, if this one is a body."""

    def __init__(
        self,
        graph: Graph,
        computed: Callable[[ComplexPolicy, Node], Sequence[Result]],
        outer: ComplexPolicy | None = None,
        *,
        fast: bool,
        branches: bool,
    ) -> None:
        """computed: computes the results of a node on complex numbers. fast, branches: see `store`."""
        self.rewrite: Rewrite = Rewrite(graph, self, outer.rewrite if outer else None)
        self.old = graph
        self.new = self.rewrite.new
        self.fast = fast
        self.branches = branches
        self._outer = outer
        self._computed = computed
        self._pairs: dict[int, ComplexPair] = {}
        self._packed = {s.id for s in graph.input_symbols}

    def retype(self, type_: Type) -> Type:
        return stored_type(type_)

    def finish(self, rewrite: Rewrite) -> Graph:
        for symbol in (*self.old.outputs, *self.old.watched.values()):
            if holds_complex(symbol):
                self.new.site.origin = symbol.producer.origin
                self.new.site.layer = getattr(symbol.producer, "layer", "")
                self.packed(symbol)
        self.new.site.layer, self.new.site.origin = "", None
        return rewrite.finish()

    def operands(self, rewrite: Rewrite, node: Node) -> Inputs:
        return () if _is_complex(node) else super().operands(rewrite, node)

    def replace_node(self, rewrite: Rewrite, node: Node, inputs: Inputs) -> Results | None:
        if not _is_complex(node):
            return None
        results = self._computed(self, node)
        for symbol, result in zip(node.outputs, results, strict=True):
            if isinstance(result, ComplexPair):
                self._pairs[symbol.id] = result
            elif holds_complex(symbol):
                self._packed.add(symbol.id)
        return [None if isinstance(result, ComplexPair) else result for result in results]

    def body(self, rewrite: Rewrite, body: Graph) -> Graph:
        return ComplexPolicy(body, self._computed, self, fast=self.fast, branches=self.branches).rewrite.run()

    # Symbols of the new graph for those of the old graph

    def of(self, symbol: Symbol) -> Symbol:
        """Return the new Symbol of an old one: a complex one as one tensor."""
        return self.packed(symbol) if holds_complex(symbol) else self.rewrite.of(symbol)

    def pair(self, symbol: Symbol) -> ComplexPair:
        """Return the parts of a complex Symbol."""
        parts = self._pairs.get(symbol.id)
        if parts is None:
            parts = self._pairs[symbol.id] = self._parts(symbol)
        return parts

    def _parts(self, symbol: Symbol) -> ComplexPair:
        producer = symbol.producer
        if isinstance(producer, Captured):
            return ComplexPair(*map(self.rewrite.captured, present(self._outer).pair(producer.symbol)))
        part = symbol.dtype.storage
        if isinstance(producer, Constant) and not producer.is_weight:
            array = producer.array
            arrays = (np.ascontiguousarray(array.real), np.ascontiguousarray(array.imag))
            return ComplexPair(*(self.new.build.constant(a.reshape(array.shape), part) for a in arrays))
        return ComplexPair(*split(self.packed(symbol)))

    def packed(self, symbol: Symbol) -> Symbol:
        """Return a complex Symbol, or a list of such, in its transport type."""
        if symbol.id in self._packed:
            return self.rewrite.of(symbol)
        producer = symbol.producer
        if symbol.id in self._pairs:
            result = joined(*self._pairs[symbol.id])
            if symbol.given_name is not None and result.given_name is None and isinstance(result.producer, Node):
                self.new.names.rename(result, symbol.given_name)
        elif isinstance(producer, Captured):
            result = self.rewrite.captured(present(self._outer).packed(producer.symbol))
        else:
            assert isinstance(producer, Constant), "nodes come in an order they can run in"
            constant = Constant(casting.paired(producer.array), producer.is_weight, producer.origin)
            result = self.new.build.symbol(stored_type(symbol.type), constant, symbol.given_name)
        self._packed.add(symbol.id)
        self.rewrite.bind(symbol, result)
        return result


def split(packed: Symbol) -> tuple[Symbol, Symbol]:
    """Return the two parts of a tensor of pairs. Split takes a tenth of the time of Gather here."""
    shape = packed.shape
    remaining = shape[:-1] if shape.is_ranked else shape
    axis = len(remaining) if shape.is_ranked else -1
    type_ = tensor_type(packed.dtype, _shape([*remaining, Dim(1)]) if shape.is_ranked else shape)
    halves = packed.graph.build.emit_many("Split", (packed,), [type_, type_], {"axis": axis, "num_outputs": 2})
    last = e.ints(packed, [axis])
    real, imag = (e.emit("Squeeze", half, last, shape=remaining) for half in halves)
    return real, imag


def joined(real: Symbol, imag: Symbol) -> Symbol:
    """Return two parts as one tensor of pairs."""
    axis = real.rank if real.shape.is_ranked else -1
    last = e.ints(real, [axis])
    return e.emit("Concat", *(e.emit("Unsqueeze", part, last) for part in (real, imag)), axis=axis)


# Single operators on real Symbols under short names, for the formulas of complex functions.

PI = 3.141592653589793
LN_2 = 0.6931471805599453


def _graphcore_op(op_type: str, x: Symbol) -> Symbol:
    """Build an operator of graphcore with one operand, which is expanded later."""
    return x.graph.build.emit(op_type, (x,), x.type, {}, LIBRARY)


neg = partial(e.emit, "Neg")
magnitude = partial(e.emit, "Abs")
sqrt = partial(e.emit, "Sqrt")
exp = partial(e.emit, "Exp")
log = partial(e.emit, "Log")
is_nan = partial(e.emit, "IsNaN")
is_infinite = partial(e.emit, "IsInf")
shape_of = partial(e.emit, "Shape")
log1p = partial(_graphcore_op, "Log1p")
expm1 = partial(_graphcore_op, "Expm1")


def sin(x: Symbol) -> Symbol:
    """Return the kernel's sine; NaN where x is not finite."""
    return e.emit("Sin", _finite(x), accuracy="fast")


def cos(x: Symbol) -> Symbol:
    return e.emit("Cos", _finite(x), accuracy="fast")


def _finite(x: Symbol) -> Symbol:
    return e.where_number(is_finite(x), x, float("nan"))


def atan2(y: Symbol, x: Symbol) -> Symbol:
    return x.graph.build.emit("Atan2", (y, x), tensor_type(x.dtype, e._joint([y.shape, x.shape])), {}, LIBRARY)


def clip(x: Symbol, least: float, greatest: float) -> Symbol:
    return e.emit("Clip", x, e.const(x, least), e.const(x, greatest))


def is_finite(x: Symbol) -> Symbol:
    return e.below(magnitude(x), float("inf"))


def is_zero(x: Symbol) -> Symbol:
    return e.equals(x, 0.0)


def above(x: Symbol, value: float) -> Symbol:
    return e.greater(x, e.const(x, value))


def is_negative(x: Symbol) -> Symbol:
    """Return True where a number is below 0, or -0.0."""
    zero = e.const(x, 0.0)
    return e.either(e.less(x, zero), e.less(e.div(1.0, x), zero))


def signed_as(size: Symbol, sign: Symbol) -> Symbol:
    """Return a nonnegative number with the sign of another, which may be -0.0."""
    return e.where(is_negative(sign), neg(size), size)


def zeros(like: Symbol) -> Symbol:
    """Return zeros of the shape of `like`."""
    zero = e.const(like, 0.0)
    if like.shape.is_ranked and not like.rank:
        return zero
    return e.emit("Expand", zero, shape_of(like), shape=like.shape)
