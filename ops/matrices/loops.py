"""ONNX Loops, and what the algorithms of linear algebra carry through them.

An algorithm is one Loop whose body works on the whole stack of matrices at once: its graph has as many nodes for a
matrix of 500 rows as for one of 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphcore.build import primitives as e
from graphcore.ir.bodies import body
from graphcore.ir.symbol import Symbol
from graphcore.ops.axes import squeeze, transpose_matrix, unsqueeze
from graphcore.ops.complex_numbers import complex_, conj, imag, real
from graphcore.ops.elementwise import abs as magnitude
from graphcore.ops.shared.dims import Axis, Size, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, _shape, tensor_type

_SCALAR = _shape(())


def repeat(
    count: Symbol,
    states: Sequence[Symbol],
    step: Callable[..., Sequence[Symbol]],
    given: Sequence[Symbol] = (),
    *,
    stops: bool = False,
) -> tuple[Symbol, ...]:
    """The states after `count` steps: `states = step(i, *states, *given)` for i = 0, 1, ...

    count: an int64 scalar. states: of any types, which every step keeps. given: what each step reads and none changes.
    stops: `step` returns a bool scalar before the states, whether to go on. ONNX Loop.
    """
    outer = count.graph
    types = [tensor_type(DType.int64, _SCALAR), tensor_type(DType.bool, _SCALAR), *(s.tensor_type for s in states)]
    with body(outer, "step", types) as turn:
        i, go, *own = turn.inputs
        made = list(step(i, *own, *[turn.build.own(symbol, "repeat", "given") for symbol in given]))
        if not stops:
            made.insert(0, e.emit("Identity", go))
        # An output of a body must be made in it: one handed on as it is gets a node.
        results = [e.emit("Identity", symbol) if symbol.is_constant else symbol for symbol in made]
        turn.build.outputs([(None, symbol) for symbol in results])
    return outer.build.emit_many("Loop", (count, None, *states), types[2:], {"body": turn})


# Sizes and positions


def least(m: Dim, n: Dim) -> Dim | None:
    """The lesser of two sizes; None where it is not known which that is."""
    if m is n and not m.is_dynamic:
        return m
    return Dim(min(int(m), int(n))) if m.is_static and n.is_static else None


def count_of(x: Symbol, axis: int) -> Symbol:
    """The size of an axis as an int64 scalar; a constant where it is static."""
    dim = x.shape[axis]
    if dim.is_static:
        return x.graph.build.scalar(int(dim), DType.int64)
    return squeeze(shape_vector(x.graph, [Axis(x, axis % x.rank)]), 0)


def positions(x: Symbol, axis: int) -> Symbol:
    """0, 1, ... along an axis: int64 [n]; a constant where the size is static."""
    dim = x.shape[axis]
    if dim.is_static:
        return x.graph.build.vector(range(int(dim)))
    zero, one = (x.graph.build.scalar(n, DType.int64) for n in (0, 1))
    return e.emit("Range", zero, count_of(x, axis), one, shape=_shape([dim]))


def rows_of(x: Symbol) -> Symbol:
    """The number of its row for every row of a matrix: int64 [m, 1]."""
    return unsqueeze(positions(x, -2), 1)


def columns_of(x: Symbol) -> Symbol:
    """The number of its column for every column of a matrix: int64 [n]."""
    return positions(x, -1)


def filled(x: Symbol, axes: Sequence[int | Dim], value: float = 0.0, dtype: DType | None = None) -> Symbol:
    """A tensor of `x`'s dtype, or another, with one value everywhere.

    axes: for each axis one of `x` that is as long, or its dim.
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
    """The axes before the matrices."""
    return list(range(x.rank - 2))


def identities(x: Symbol, rows: int | Dim, columns: int | Dim) -> Symbol:
    """An identity for every matrix of a stack, rows and columns as many as on an axis of `x`, or a dim."""
    zeros = filled(x, [*stack_axes(x), rows, columns])
    return e.where(e.equal(rows_of(zeros), columns_of(zeros)), e.const(x, 1.0), zeros)


# Parts


def at(x: Symbol, k: Symbol, axis: int) -> Symbol:
    """The slice at a position, with its axis of size 1. k: an int64 scalar."""
    dims = list(x.shape)
    dims[axis] = Dim(1)
    place = axis % x.rank
    index = e.emit("Unsqueeze", k, e.ints(k, [0]), shape=_shape([Dim(1)]))
    return e.emit("Gather", x, index, shape=_shape(dims), axis=place)


def turned(x: Symbol) -> Symbol:
    """The matrices transposed."""
    return transpose_matrix(x)


def adjoint(x: Symbol) -> Symbol:
    """The matrices transposed, and conjugated where they are complex."""
    return conj(turned(x)) if x.dtype.is_complex else turned(x)


def reduced(op_type: str, x: Symbol, axis: int) -> Symbol:
    """One of ONNX's reductions along an axis, which stays with size 1."""
    dims = list(x.shape)
    dims[axis] = Dim(1)
    return e.emit(op_type, x, e.ints(x, [axis % x.rank]), shape=_shape(dims), keepdims=1)


# Sizes of numbers


def rough_size(x: Symbol) -> Symbol:
    """The magnitudes of numbers; of complex ones the sum of those of the parts, at most 1.42 times as much."""
    if not x.dtype.is_complex:
        return magnitude(x)
    return e.emit("Add", *(magnitude(part(x)) for part in (real, imag)))


def square_sum(x: Symbol, axis: int) -> Symbol:
    """The sum of the squared magnitudes along an axis, which stays with size 1."""
    if not x.dtype.is_complex:
        return reduced("ReduceSumSquare", x, axis)
    return e.emit("Add", *(reduced("ReduceSumSquare", part(x), axis) for part in (real, imag)))


def scaled(x: Symbol, factor: Symbol) -> Symbol:
    """Numbers, which may be complex, times real ones of their parts' dtype."""
    if not x.dtype.is_complex:
        return e.emit("Mul", x, factor)
    return complex_(*(e.emit("Mul", part(x), factor) for part in (real, imag)))


def divided(x: Symbol, divisor: Symbol) -> Symbol:
    """Numbers, which may be complex, by real ones of their parts' dtype."""
    if not x.dtype.is_complex:
        return e.emit("Div", x, divisor)
    return complex_(*(e.emit("Div", part(x), divisor) for part in (real, imag)))


def binary_scale(magnitude: Symbol) -> Symbol:
    """The power of 2 at or below each number, by which dividing is exact; 1 for 0, infinity and NaN."""
    one = e.const(magnitude, 1.0)
    usual = e.both(e.greater(magnitude, e.const(magnitude, 0.0)), e.less(magnitude, e.const(magnitude, np.inf)))
    exponent = e.emit("Floor", e.emit("Log", e.where(usual, magnitude, one)) / float(np.log(2.0)))
    return e.where(usual, e.emit("Pow", e.const(magnitude, 2.0), exponent), one)


def common_scale(a: Symbol) -> Symbol:
    """The divisors that bring the greatest elements of matrices to about 1: [..., 1, 1]. NaN for what is not finite."""
    greatest = reduced("ReduceMax", reduced("ReduceMax", magnitude(a), -1), -2)
    return e.where(greatest < float("inf"), binary_scale(greatest), e.const(greatest, float("nan")))
