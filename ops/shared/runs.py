"""Runs of equal elements: a vector in order, cut where a new value begins."""

from __future__ import annotations

from dataclasses import dataclass

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.dims import Axis, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """The elements of a vector in order, and which of them begin a run of equal ones. NaNs all differ."""

    order: Symbol
    """The position of each in the vector, int64; the first of equal ones comes first."""
    values: Symbol
    is_first: Symbol
    """True for each element, in order, that is the first of its value."""

    def starts(self, count: Dim) -> Symbol:
        """Return the positions, in order, of the first of each value: int64 [count]."""
        found = e.emit("NonZero", self.is_first, dtype=DType.int64, shape=_shape([Dim(1), count]))
        return e.emit("Squeeze", found, found.graph.build.vector([0]), shape=_shape([count]))

    @property
    def numbers(self) -> Symbol:
        """Return for each element, in order, how many values come before its own, int64."""
        marks = e.cast(self.is_first, DType.int64)
        counted = e.emit("CumSum", marks, e.const(marks, 0), shape=marks.shape)
        return e.emit("Sub", counted, e.const(counted, 1))

    def placed(self, values: Symbol) -> Symbol:
        """Return a value for each element, in order, at the element's place in the vector."""
        return e.emit("ScatterElements", values, self.order, values, shape=values.shape, axis=0)

    def lengths(self, starts: Symbol) -> Symbol:
        """Return how many elements each run has."""
        graph = starts.graph
        rest = e.emit(
            "Slice", starts, *(graph.build.vector([n]) for n in (1, (1 << 63) - 1, 0)), shape=_shape([Dim.dynamic()])
        )
        size = shape_vector(graph, [Axis(self.values, 0)])
        ends = e.emit("Concat", rest, size, shape=_shape([Dim.dynamic()]), axis=0)
        return e.emit("Sub", ends, starts, shape=starts.shape)


def _order_of(vector: Symbol, count: Symbol) -> Symbol:
    types = [tensor_type(vector.dtype, vector.shape), tensor_type(DType.int64, vector.shape)]
    attributes = {"axis": 0, "largest": 0, "sorted": 1}
    return vector.graph.build.emit_many("TopK", (vector, count), types, attributes)[1]


def _part(flat: Symbol, operator: str) -> Symbol:
    return flat.graph.build.emit(operator, (flat,), tensor_type(flat.dtype.storage, flat.shape), None, LIBRARY)


def runs_of(flat: Symbol) -> Runs:
    """Return the runs of a vector of numbers or bools; complex ones are in the order of their real parts first."""
    graph, shape = flat.graph, flat.shape
    count = shape_vector(graph, [Axis(flat, 0)])
    if flat.dtype.is_complex:
        order = _order_of(_part(flat, "ImaginaryPart"), count)
        again = _order_of(e.emit("Gather", _part(flat, "RealPart"), order, shape=shape, axis=0), count)
        order = e.emit("Gather", order, again, shape=shape, axis=0)
    else:
        order = _order_of(e.cast(flat, DType.uint8) if flat.dtype is DType.bool else flat, count)
    ordered = e.emit("Gather", flat, order, shape=shape, axis=0)
    zero, one = (graph.build.scalar(n, DType.int64) for n in (0, 1))
    size = e.emit("Squeeze", count, graph.build.vector([0]), shape=_shape(()))
    places = e.emit("Range", zero, size, one, shape=shape)
    before = e.emit("Max", e.emit("Sub", places, one), zero)
    changes = e.opposite(e.equal(ordered, e.emit("Gather", ordered, before, shape=shape, axis=0)))
    return Runs(order, ordered, e.either(e.equal(places, zero), changes))
