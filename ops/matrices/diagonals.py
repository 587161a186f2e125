"""Diagonals of matrices of any dtype."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ops.matrices.loops import filled, stack_axes
from graphcore.ops.shared.dims import Axis, shape_vector
from graphcore.ops.shared.reshape import reshaped
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape


def diagonal_of(x: Symbol, offset: int = 0) -> Symbol:
    """A diagonal of matrices. x: [..., m, n]. Returns [..., k].

    Of the elements in a row it is every n + 1st. Raises `ShapeError` where the sizes do not say how long it is.
    """
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise DTypeError(f"diagonal: offset={offset!r} is no int", operands={"x": x}, help="give an int")
    m, n = x.shape[-2:]
    length: Dim | int
    if m.is_static and n.is_static:
        length = min(int(m) - max(-offset, 0), int(n) - max(offset, 0))
        start = offset if offset >= 0 else -offset * int(n)
    elif m is n and not m.is_dynamic and offset == 0:
        length, start = n, 0
    else:
        raise ShapeError(
            f"diagonal: how long the diagonal {offset} of {m} rows and {n} columns is must be known",
            operands={"x": x},
            help="give matrices of known sizes, or take the main diagonal of square ones",
        )
    if isinstance(length, int) and length <= 0:
        return filled(x, [*stack_axes(x), Dim(0)])
    flat = reshaped("diagonal", x, [*(Axis(x, axis) for axis in stack_axes(x)), m * n], {"x": x})
    stop = start + (length - 1) * (int(n) + 1) + 1 if isinstance(length, int) else 2**62
    bounds = [e.ints(x, [value]) for value in (start, stop, flat.rank - 1)]
    return e.emit("Slice", flat, *bounds, shape_vector(x.graph, [n + 1], (x,)), shape=Shape([*x.shape[:-2], length]))
