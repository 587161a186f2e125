"""Linear algebra that ONNX has no operators for: Loops over stacks of matrices, and their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphcore.build import primitives as e
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.definitions import body
from graphcore.ir.symbol import Symbol
from graphcore.ops.complex_numbers import complex_, imag, real
from graphcore.ops.elementwise import abs as magnitude
from graphcore.ops.shared.dims import Axis, Size, places_of, shape_vector
from graphcore.ops.shared.dims import count_of as count_of
from graphcore.ops.shared.reshape import reshaped
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import Shape, TensorType, _shape, tensor_type

_SCALAR = _shape(())


def repeat(
    count: Symbol,
    states: Sequence[Symbol],
    step: Callable[..., Sequence[Symbol]],
    constants: Sequence[Symbol] = (),
    *,
    stops: bool = False,
) -> tuple[Symbol, ...]:
    """Return the states after `count` steps: `states = step(i, *states, *constants)` for i = 0, 1, ...

    count: an int64 scalar. states: of any types, which every step keeps. constants: values that each step reads.
    stops: `step` returns a bool scalar before the states, true to continue. ONNX Loop.
    """
    outer = count.graph
    types = [tensor_type(DType.int64, _SCALAR), tensor_type(DType.bool, _SCALAR), *(s.tensor_type for s in states)]
    with body(outer, "step", types) as turn:
        i, go, *inner_states = turn.inputs
        outputs = list(step(i, *inner_states, *[turn.build.own(symbol, "repeat", "constants") for symbol in constants]))
        if not stops:
            outputs.insert(0, e.emit("Identity", go))
        # An output of a body must be computed in it: a value that is passed through gets a node.
        results = [e.emit("Identity", symbol) if symbol.is_constant else symbol for symbol in outputs]
        turn.build.outputs([(None, symbol) for symbol in results])
    return outer.build.emit_many("Loop", (count, None, *states), types[2:], {"body": turn})


# Sizes and positions


def least(m: Dim, n: Dim) -> Dim | None:
    """Return the smaller of two sizes; None if it is unknown which one that is."""
    if m is n and not m.is_dynamic:
        return m
    return Dim(min(int(m), int(n))) if m.is_static and n.is_static else None


def positions(x: Symbol, axis: int) -> Symbol:
    """Return 0, 1, ... along an axis: int64 [n]; a constant if the size is static."""
    dim = x.shape[axis]
    if dim.is_static:
        return x.graph.build.vector(range(int(dim)))
    return places_of(x, axis)


def rows_of(x: Symbol) -> Symbol:
    """Return the row numbers of a matrix as a column: int64 [m, 1]."""
    return positions(x, -2).unsqueeze(1)


def columns_of(x: Symbol) -> Symbol:
    """Return the column numbers of a matrix: int64 [n]."""
    return positions(x, -1)


def filled(x: Symbol, axes: Sequence[int | Dim], value: float = 0.0, dtype: DType | None = None) -> Symbol:
    """Return a tensor filled with one value, by default of the dtype of `x`.

    axes: for each axis an axis of `x` of the same size, or its dim.
    """
    own = dtype or x.dtype
    dims = [axis if isinstance(axis, Dim) else x.shape[axis] for axis in axes]
    sizes: list[Size] = [
        axis if isinstance(axis, Dim) else dim if dim.is_static else Axis(x, axis % x.rank)
        for axis, dim in zip(axes, dims, strict=True)
    ]
    vector = shape_vector(x.graph, sizes, (x,))
    type_ = TensorType(own, dims)
    return x.graph.build.emit("ConstantOfShape", (vector,), type_, {"value": np.full(1, value, own.numpy)})


def stack_axes(x: Symbol) -> list[int]:
    """Return the batch axes of a stack of matrices."""
    return list(range(x.rank - 2))


def identities(x: Symbol, rows: int | Dim, columns: int | Dim) -> Symbol:
    """Return an identity matrix for every matrix of a stack. rows, columns: an axis of `x` of that size, or a dim."""
    zeros = filled(x, [*stack_axes(x), rows, columns])
    return e.where(e.equal(rows_of(zeros), columns_of(zeros)), e.const(x, 1.0), zeros)


# Parts


def at(x: Symbol, k: Symbol, axis: int) -> Symbol:
    """Return the slice at a position, with its axis of size 1. k: an int64 scalar."""
    dims = list(x.shape)
    dims[axis] = Dim(1)
    place = axis % x.rank
    return e.emit("Gather", x, e.unsqueeze(k, 0), shape=_shape(dims), axis=place)


def turned(x: Symbol) -> Symbol:
    """Transpose matrices."""
    return x.mT


def adjoint(x: Symbol) -> Symbol:
    """Transpose matrices, and conjugate complex ones."""
    return turned(x).conj() if x.dtype.is_complex else turned(x)


def reduced(op_type: str, x: Symbol, axis: int) -> Symbol:
    """Emit an ONNX reduction along an axis, which stays with size 1."""
    dims = list(x.shape)
    dims[axis] = Dim(1)
    return e.emit(op_type, x, e.ints(x, [axis % x.rank]), shape=_shape(dims), keepdims=1)


# Magnitudes


def rough_size(x: Symbol) -> Symbol:
    """Return magnitudes; for complex numbers |real| + |imag|, at most 1.42 times as much."""
    if not x.dtype.is_complex:
        return magnitude(x)
    return e.emit("Add", *(magnitude(part(x)) for part in (real, imag)))


def square_sum(x: Symbol, axis: int) -> Symbol:
    """Sum the squared magnitudes along an axis, which stays with size 1."""
    if not x.dtype.is_complex:
        return reduced("ReduceSumSquare", x, axis)
    return e.emit("Add", *(reduced("ReduceSumSquare", part(x), axis) for part in (real, imag)))


def scaled(x: Symbol, factor: Symbol) -> Symbol:
    """Multiply real or complex numbers by real ones of the dtype of their parts."""
    if not x.dtype.is_complex:
        return e.emit("Mul", x, factor)
    return complex_(*(e.emit("Mul", part(x), factor) for part in (real, imag)))


def divided(x: Symbol, divisor: Symbol) -> Symbol:
    """Divide real or complex numbers by real ones of the dtype of their parts."""
    if not x.dtype.is_complex:
        return e.emit("Div", x, divisor)
    return complex_(*(e.emit("Div", part(x), divisor) for part in (real, imag)))


def binary_scale(magnitude: Symbol) -> Symbol:
    """Return the largest power of 2 up to each number, as division by it is exact; 1 for 0, infinity and NaN."""
    one = e.const(magnitude, 1.0)
    usual = e.both(e.greater(magnitude, e.const(magnitude, 0.0)), e.less(magnitude, e.const(magnitude, np.inf)))
    exponent = e.emit("Floor", e.emit("Log", e.where(usual, magnitude, one)) / float(np.log(2.0)))
    return e.where(usual, e.emit("Pow", e.const(magnitude, 2.0), exponent), one)


def common_scale(a: Symbol) -> Symbol:
    """Return divisors that scale the maximum of each matrix to about 1: [..., 1, 1]; NaN if it is not finite."""
    greatest = reduced("ReduceMax", reduced("ReduceMax", magnitude(a), -1), -2)
    return e.where(greatest < float("inf"), binary_scale(greatest), e.const(greatest, float("nan")))


# Diagonals


def diagonal_of(x: Symbol, offset: int = 0) -> Symbol:
    """Return a diagonal of matrices. x: [..., m, n]. Returns [..., k].

    It is every (n + 1)-th element of the flattened matrix. Raises `ShapeError` if its length is unknown.
    """
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise DTypeError(f"diagonal: offset={offset!r} is not an int", operands={"x": x}, help="give an int")
    m, n = x.shape[-2:]
    length: Dim | int
    if m.is_static and n.is_static:
        length = min(int(m) - max(-offset, 0), int(n) - max(offset, 0))
        start = offset if offset >= 0 else -offset * int(n)
    elif m is n and not m.is_dynamic and offset == 0:
        length, start = n, 0
    else:
        raise ShapeError(
            f"diagonal: the length of the diagonal {offset} of {m} rows and {n} columns must be known",
            operands={"x": x},
            help="give matrices of static sizes, or take the main diagonal of square matrices",
        )
    if isinstance(length, int) and length <= 0:
        return filled(x, [*stack_axes(x), Dim(0)])
    flat = reshaped("diagonal", x, [*(Axis(x, axis) for axis in stack_axes(x)), m * n], {"x": x})
    stop = start + (length - 1) * (int(n) + 1) + 1 if isinstance(length, int) else 2**62
    bounds = [e.ints(x, [value]) for value in (start, stop, flat.rank - 1)]
    return e.emit("Slice", flat, *bounds, shape_vector(x.graph, [n + 1], (x,)), shape=Shape([*x.shape[:-2], length]))


# Elimination and substitution


def pivoted(a: Symbol, k: Symbol, rows: Symbol) -> tuple[Symbol, Symbol, Symbol, Symbol]:
    """Select the pivot of column `k` among the rows from `k` on: the maximum magnitude, the first of equal ones.

    a: [..., m, n]. k: an int64 scalar. rows: int64 [m, 1]. Returns the row number of the pivot, int64 [..., 1, 1];
    its row, [..., 1, n]; the matrices with row k moved there; and the factors of the pivot row to subtract from the
    rows below k, [..., m, 1]. A column without a pivot is skipped, as in LAPACK's getrf.
    """
    zero, one = e.const(a, 0.0), e.const(a, 1.0)
    batch = a.rank - 2
    column, row = at(a, k, -1), at(a, k, -2)
    sizes = e.emit("Abs", column, dtype=real_of(a.dtype))
    candidates = e.where(e.emit("GreaterOrEqual", rows, k, dtype=DType.bool), sizes, e.const(sizes, -1.0))
    shape = column.shape[:-2] + row.shape[-2:-1] + column.shape[-1:]
    place = e.emit("ArgMax", candidates, dtype=DType.int64, shape=shape, axis=batch, keepdims=1)
    chosen = row_of_each(a, place.squeeze(-1)).unsqueeze(-2)
    pivot = at(chosen, k, -1)
    moved = e.where(e.equal(rows, place), row, a)
    share = e.emit("Div", at(moved, k, -1), e.where(e.equal(pivot, zero), one, pivot))
    factor = e.where(e.greater(rows, k), share, zero)
    return place, chosen, moved, factor


def row_of_each(a: Symbol, place: Symbol) -> Symbol:
    """Return one row of each matrix. a: [..., m, n]. place: its row number, int64 [..., 1]. Returns [..., n]."""
    return e.emit("GatherND", a, place, shape=a.shape[:-2] + a.shape[-1:], batch_dims=a.rank - 2)


def factored(a: Symbol, steps: Symbol) -> tuple[Symbol, Symbol]:
    """Return L and U packed in one matrix, and the order of rows: rows of `a` in that order are L @ U.

    a: [..., m, n]. steps: min(m, n), an int64 scalar. Returns [..., m, n], L without its ones below the
    diagonal, and int64 [..., m].
    """

    def step(k: Symbol, a: Symbol, order: Symbol, rows: Symbol, columns: Symbol) -> list[Symbol]:
        place, chosen, moved, factor = pivoted(a, k, rows)
        here = e.equal(rows, k)
        updated = e.where(e.equal(columns, k), factor, reduced_by(moved, factor, chosen))
        updated = e.where(e.less(columns, k), moved, updated)
        updated = e.where(e.greater(rows, k), updated, e.where(here, chosen, moved))
        first = row_of_each(order, place.squeeze(-1)).unsqueeze(-2)
        order = e.where(here, first, e.where(e.equal(rows, place), at(order, k, -2), order))
        return [updated, order]

    rows = rows_of(a)
    start = e.emit("Add", rows, filled(a, [*range(a.rank - 1), Dim(1)], 0, DType.int64))
    packed, order = repeat(steps, [a, start], step, [rows, columns_of(a)])
    return packed, order.squeeze(-1)


def reduced_by(rows: Symbol, factor: Symbol, row: Symbol) -> Symbol:
    """Subtract a multiple of one row from each row."""
    return e.emit("Sub", rows, e.emit("Mul", factor, row))


def substituted(t: Symbol, y: Symbol, *, lower: bool = False, unit: bool = False) -> Symbol:
    """Solve t @ x = y for triangular matrices. t: [..., n, n]. y: [..., n, k]. Returns [..., n, k].

    lower: read the lower triangle, else the upper one. unit: assume ones on the diagonal, and do not read it.
    """
    last = e.emit("Sub", count_of(t, -2), t.graph.build.scalar(1, DType.int64))

    def step(i: Symbol, x: Symbol, t: Symbol, y: Symbol, rows: Symbol, columns: Symbol, last: Symbol) -> list[Symbol]:
        k = i if lower else e.emit("Sub", last, i)
        row, right = at(t, k, -2), at(y, k, -2)
        solved_row = e.where((e.less if lower else e.greater)(columns, k), row, e.const(t, 0.0))
        rest = e.emit("Sub", right, e.emit("MatMul", solved_row, x, shape=right.shape))
        solution = rest if unit else e.emit("Div", rest, at(row, k, -1))
        return [e.where(e.equal(rows, k), solution, x)]

    start = filled(y, range(y.rank))
    (x,) = repeat(count_of(t, -2), [start], step, [t, y, rows_of(t), columns_of(t), last])
    return x
