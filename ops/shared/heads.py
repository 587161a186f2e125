"""Conversion between [batch, heads, sequence, size] and [batch, sequence, heads*size]."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.build import primitives as e
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.dims import Axis, Size, shape_vector
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape


def size(x: Symbol, axis: int) -> Size:
    return x.shape[axis] if x.shape[axis].is_static else Axis(x, axis)


def length(x: Symbol, axis: int) -> Symbol:
    """Return the size of an axis, an int64 scalar."""
    if x.shape[axis].is_static:
        return x.graph.build.scalar(int(x.shape[axis]), DType.int64)
    return e.emit("Squeeze", shape_vector(x.graph, [Axis(x, axis)]), dtype=DType.int64, shape=_shape([]))


def divided(x: Symbol, axis: int, count: int) -> Size:
    """Return the size of an axis over a number that divides it."""
    if x.shape[axis].is_static:
        return x.shape[axis] // count
    return e.emit("Div", shape_vector(x.graph, [Axis(x, axis)]), x.graph.build.vector([count]))


def reshaped(x: Symbol, sizes: Sequence[Size], dims: Sequence[Dim]) -> Symbol:
    return e.emit("Reshape", x, shape_vector(x.graph, sizes), shape=_shape(dims), allowzero=1)


def in_heads(x: Symbol, heads: int) -> Symbol:
    """Reshape [batch, sequence, heads*size] to [batch, heads, sequence, size]."""
    batch, sequence, width = x.shape
    apart = reshaped(
        x, [size(x, 0), size(x, 1), Dim(heads), divided(x, 2, heads)], [batch, sequence, Dim(heads), width // heads]
    )
    shape = _shape([batch, Dim(heads), sequence, width // heads])
    return e.emit("Transpose", apart, shape=shape, perm=[0, 2, 1, 3])


def side_by_side(x: Symbol) -> Symbol:
    """Reshape [batch, heads, sequence, size] to [batch, sequence, heads*size]."""
    batch, heads, sequence, own = x.shape
    turned = e.emit("Transpose", x, shape=_shape([batch, sequence, heads, own]), perm=[0, 2, 1, 3])
    width: Size = heads * own
    if not (heads * own).is_static:
        width = e.emit("Mul", shape_vector(x.graph, [size(x, 1)]), shape_vector(x.graph, [size(x, 3)]))
    return reshaped(turned, [size(turned, 0), size(turned, 1), width], [batch, sequence, heads * own])
