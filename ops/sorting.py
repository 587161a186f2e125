"""Sorting, the largest and smallest elements, unique values, and cumulative operations along an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, op
from graphcore.build.operands import as_index, operand, promote_one
from graphcore.build.shapes import axis_of, check_integers, check_scalar
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.control import scan
from graphcore.ops.shared.dims import Axis, product, shape_vector
from graphcore.ops.shared.reshape import as_size, reshaped
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, _dim, _shape, tensor_type

# Sorting


@op(onnx="TopK", rule="number")
def sort(x: TensorLike, axis: int = -1, descending: bool = False) -> Symbol:
    """The elements in order along an axis.

    Args:
        x: Any shape of rank 1 or more, numbers or bools.
        axis: The axis to sort.
        descending: The largest first. Equal values keep their order.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX TopK of all elements.
    """
    return _sorted("sort", x, axis, descending)[0]


@op(onnx="TopK", rule="number")
def argsort(x: TensorLike, axis: int = -1, descending: bool = False) -> Symbol:
    """The positions, in int64, of the elements in the order of `sort`.

    Args:
        x: Any shape of rank 1 or more, numbers or bools.
        axis: The axis to sort.
        descending: The largest first. The sort is stable both ways: of equal values the one at the lower position comes
            first.

    Raises:
        ShapeError: For what is not an axis.
        DTypeError: For strings.

    ONNX TopK of all elements.
    """
    return _sorted("argsort", x, axis, descending)[1]


def _k_extremes(name: str, first: str, *, largest: bool) -> Callable[..., tuple[Symbol, Symbol]]:
    """Declare the selection of the largest or smallest elements."""
    doc = f"""The `k` {first} elements along an axis, the {first} first, and their positions in int64.

    Args:
        x: Any shape of rank 1 or more, numbers or bools.
        k: Their number, from 0 to the length of the axis: an int, a dim, or an integer scalar Symbol.
        axis: The axis to search. Of equal values the one at the lower position comes first.

    Returns:
        Values and positions, both shaped as `x` with `k` on the axis.

    Raises:
        ShapeError: For an invalid axis or for a `k` out of range.
        DTypeError: For strings and a `k` that is not an integer.

    ONNX TopK.
    """

    @op(onnx="TopK", rule="number", name=name, doc=doc)
    def select(x: TensorLike, k: DimLike | Symbol, axis: int = -1) -> tuple[Symbol, Symbol]:
        symbol, _ = promote_one(name, "number", x)
        roles: dict[str, Any] = {"x": symbol}
        position = axis_of(name, axis, symbol.rank, roles)
        if isinstance(k, Symbol):
            check_integers(name, "k", k, {**roles, "k": k})
            check_scalar(name, "k", k, {**roles, "k": k})
            return _emit_top_k(symbol, as_size(k), Dim.dynamic(), position, largest=largest)
        if isinstance(k, bool) or not isinstance(k, (int, np.integer, str, Dim)):
            raise DTypeError(
                f"{name}: k={k!r} is not a count", operands=roles, help="give an int, a dim or an integer Symbol"
            )
        if isinstance(k, (int, np.integer)) and k < 0:
            raise ShapeError(
                f"{name}: k must be >= 0, got {k}", operands=roles, help="k is the number of elements to take"
            )
        count, length = _dim(k), symbol.shape[position]
        if ((count - length).lower_bound or 0) > 0:
            raise ShapeError(
                f"{name}: k is {count}, but axis {position} has only {length} elements",
                operands=roles,
                help=f"take at most {length}, or choose another axis",
            )
        vector = shape_vector(symbol.graph, [count], (symbol,), op=name)
        return _emit_top_k(symbol, vector, count, position, largest=largest)

    return select


top_k = _k_extremes("top_k", "largest", largest=True)
bottom_k = _k_extremes("bottom_k", "smallest", largest=False)


def _sorted(name: str, x: TensorLike, axis: int, descending: bool) -> tuple[Symbol, Symbol]:
    symbol, _ = promote_one(name, "number", x)
    position = axis_of(name, axis, symbol.rank, {"x": symbol})
    count = symbol.shape[position]
    vector = shape_vector(symbol.graph, [count if count.is_static else Axis(symbol, position)])
    return _emit_top_k(symbol, vector, count, position, largest=descending)


def _emit_top_k(x: Symbol, k: Symbol, count: Dim, axis: int, *, largest: bool) -> tuple[Symbol, Symbol]:
    graph, dtype = x.graph, x.dtype
    shape = _shape([count if i == axis else d for i, d in enumerate(x.shape)])
    source = graph.build.cast(x, DType.uint8, x.ambiguous) if dtype is DType.bool else x
    types = [tensor_type(source.dtype, shape), tensor_type(DType.int64, shape)]
    attributes = {"axis": axis, "largest": int(largest), "sorted": 1}
    values, positions = graph.build.emit_many("TopK", (source, k), types, attributes)
    return graph.build.cast(values, dtype, values.ambiguous), as_index(positions)


# Unique values


class Unique(NamedTuple):
    """The result of `unique`."""

    values: Symbol
    """The unique values, or slices, in ascending order."""
    indices: Symbol
    """The position of the first occurrence of each."""
    inverse: Symbol
    """The position in `values` of each element, or slice."""
    counts: Symbol
    """The number of occurrences of each."""


@op(onnx="TopK, NonZero, CumSum, ScatterElements, Unique", rule="keep")
def unique(x: TensorLike, axis: int | None = None, out_dim: DimLike | None = None) -> Unique:
    """The unique values in ascending order, their first positions, the position of each element in them, and counts.

    Args:
        x: Any shape and dtype; NaNs all differ, and -0.0 equals 0.0.
        axis: Compare the slices along it, element by element in row-major order; None compares the elements of the
            flattened tensor.
        out_dim: A name for the number of values, unknown otherwise.

    Returns:
        A named tuple: values [out_dim], or the shape of x with out_dim at the axis; indices and counts [out_dim], of
        int64; inverse in the shape of x, or [size of the axis], of int64.

    Raises:
        ShapeError: For what is not an axis.

    NumPy's unique, but for NaN; the array API standard's unique_all; ONNX Unique of strings and slices.
    """
    symbol = operand("unique", x)
    count = Dim.dynamic() if out_dim is None else _dim(out_dim)
    flat = reshaped("unique", symbol, [None], {"x": symbol}) if symbol.rank != 1 else symbol
    if axis is None:
        values, indices, numbers, counts = _unique_values(flat, count)
        sizes = [d if d.is_static else Axis(symbol, i) for i, d in enumerate(symbol.shape)]
        inverse = reshaped("unique", numbers, sizes, {"x": symbol}, sources=(symbol,))
    else:
        position = axis_of("unique", axis, symbol.rank, {"x": symbol})
        # Slices of value numbers are ordered as slices of values are, and have a kernel for every dtype.
        transposed = e.move_axis(symbol, position, 0)
        rows = _value_numbers(transposed)
        _, indices, inverse, counts = _emit_unique(rows, count, 0)
        shape = _shape([count if i == position else d for i, d in enumerate(symbol.shape)])
        values = e.emit("Gather", symbol, indices, shape=shape, axis=position)
    return Unique(values, as_index(indices), as_index(inverse), as_index(counts))


def _unique_values(flat: Symbol, count: Dim) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    """Return the unique values of a vector, their first positions, the value number of each element, and counts."""
    if flat.dtype is DType.string:
        return _emit_unique(flat, count, None)
    runs = runs_of(flat)
    starts = runs.starts(count)
    values, indices = (e.emit("Gather", s, starts, shape=_shape([count]), axis=0) for s in (runs.values, runs.order))
    return values, indices, runs.placed(runs.numbers), runs.lengths(starts)


def _value_numbers(x: Symbol) -> Symbol:
    """Return the number of the unique value of each element: int64 [size of axis 0, the others]."""
    flat = reshaped("unique", x, [None], {"x": x}) if x.rank != 1 else x
    numbers = _unique_values(flat, Dim.dynamic())[2]
    graph = x.graph
    size = x.shape[0] if x.shape[0].is_static else Axis(x, 0)
    others = product(graph, [d if d.is_static else Axis(x, i) for i, d in enumerate(x.shape) if i], (x,))
    vector = shape_vector(graph, [size, others], (x,))
    shape = _shape([x.shape[0], x.shape[1:].size])
    return e.emit("Reshape", numbers, vector, shape=shape, allowzero=1)


def _emit_unique(x: Symbol, count: Dim, axis: int | None) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    size = x.shape[0]
    shapes = [_shape([count, *x.shape[1:]]), _shape([count]), _shape([size]), _shape([count])]
    types = [tensor_type(x.dtype if i == 0 else DType.int64, shape) for i, shape in enumerate(shapes)]
    attributes = {"sorted": 1} if axis is None else {"sorted": 1, "axis": axis}
    values, indices, inverse, counts = x.graph.build.emit_many("Unique", (x,), types, attributes)
    return values, indices, inverse, counts


# Cumulative operations


def _cumulative(name: str, noun: str, bools: str, verb: str, neutral: int, op_type: str) -> Callable[..., Symbol]:
    """Declare a cumulative sum or product."""
    doc = f"""The cumulative {noun} along an axis.

    Args:
        x: Any shape of rank 1 or more, numbers or bools; bools are {bools} int64, integers wrap in their own dtype.
        axis: The axis to {verb} along.
        exclusive: Without the element itself, so that the first {noun} is {neutral}.
        reverse: Start at the end.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX {op_type}.
    """

    @op(onnx=op_type, rule="sum", name=name, doc=doc)
    def cumulative(x: TensorLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Symbol:
        symbol, dtype = promote_one(name, "sum", x)
        position = axis_of(name, axis, symbol.rank, {"x": symbol})
        attributes = {"exclusive": int(exclusive), "reverse": int(reverse)}
        inputs = (symbol, symbol.graph.build.scalar(position, DType.int64))
        return symbol.graph.build.emit(op_type, inputs, tensor_type(dtype, symbol.shape), attributes)

    return cumulative


cumsum = _cumulative("cumsum", "sum", "counted in", "sum", 0, "CumSum")
cumprod = _cumulative("cumprod", "product", "taken as", "multiply", 1, "CumProd")


def _cumulative_extreme(name: str, noun: str, op_type: str) -> Callable[..., Symbol]:
    """Declare a cumulative maximum or minimum."""
    doc = f"""The cumulative {noun} along an axis; from the first NaN on it is NaN.

    Args:
        x: Any shape of rank 1 or more, numbers or bools.
        axis: The axis to go along.
        reverse: Start at the end.

    Returns:
        The dtype and shape of x.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX Scan over {op_type}; JAX's {name}.
    """

    @op(onnx=f"Scan, {op_type}", rule="number", name=name, doc=doc)
    def cumulative(x: TensorLike, axis: int = -1, reverse: bool = False) -> Symbol:
        symbol, dtype = promote_one(name, "number", x)
        position = axis_of(name, axis, symbol.rank, {"x": symbol})
        if symbol.shape[position] == 0:
            return symbol
        operator = {"Max": "Or", "Min": "And"}[op_type] if dtype is DType.bool else op_type

        def step(best: Symbol, element: Symbol) -> tuple[Symbol, Symbol]:
            result = e.emit(operator, best, element, shape=best.shape)
            return result, result

        # A slice, as indexing would fail on no elements; their maximum is the end of the range.
        bounds = [e.ints(symbol, [value]) for value in ((-1, 2**62) if reverse else (0, 1))]
        shape = _shape([Dim.dynamic() if i == position else d for i, d in enumerate(symbol.shape)])
        ends = e.emit("Slice", symbol, *bounds, e.ints(symbol, [position]), shape=shape)
        first = (ends.max if op_type == "Max" else ends.min)(axis=position)
        return scan(step, first, symbol, axis=position, reverse=reverse, out_axis=position)[1]  # type: ignore[no-any-return]

    return cumulative


cummax = _cumulative_extreme("cummax", "maximum", "Max")
cummin = _cumulative_extreme("cummin", "minimum", "Min")

# Runs of equal values


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """The elements of a vector in order, and the starts of runs of equal ones. NaNs all differ."""

    order: Symbol
    """The position of each in the vector, int64; the first of equal ones comes first."""
    values: Symbol
    is_first: Symbol
    """True for each element, in order, that is the first with its value."""

    def starts(self, count: Dim) -> Symbol:
        """Return the positions, in order, of the first of each value: int64 [count]."""
        positions = e.emit("NonZero", self.is_first, dtype=DType.int64, shape=_shape([Dim(1), count]))
        return e.squeeze(positions, 0)

    @property
    def numbers(self) -> Symbol:
        """Return the number of unique values before that of each element, in order, int64."""
        marks = e.cast(self.is_first, DType.int64)
        counted = e.emit("CumSum", marks, e.const(marks, 0), shape=marks.shape)
        return e.emit("Sub", counted, e.const(counted, 1))

    def placed(self, values: Symbol) -> Symbol:
        """Scatter values of the elements, in order, to their positions in the vector."""
        return e.emit("ScatterElements", values, self.order, values, shape=values.shape, axis=0)

    def lengths(self, starts: Symbol) -> Symbol:
        """Return the number of elements in each run."""
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
    """Return the runs of a vector of numbers or bools; complex numbers are ordered by real, then imaginary part."""
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
    size = e.squeeze(count, 0)
    places = e.emit("Range", zero, size, one, shape=shape)
    before = e.emit("Max", e.emit("Sub", places, one), zero)
    changes = e.opposite(e.equal(ordered, e.emit("Gather", ordered, before, shape=shape, axis=0)))
    return Runs(order, ordered, e.either(e.equal(places, zero), changes))
