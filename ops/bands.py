"""Bands and triangles of matrices."""

from __future__ import annotations

from typing import Any

from graphcore.build import primitives as e
from graphcore.build.declare import op
from graphcore.build.operands import promote_one
from graphcore.build.shapes import retype
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.dims import Axis, shape_vector
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type


@op(onnx="Trilu", rule="number")
def tril(x: TensorLike, k: int = 0) -> Symbol:
    """The lower triangle of matrices, with 0 above it.

    x: [..., m, n], numbers or bools. k: the last diagonal that is kept, 0 the main one, 1 that above it. Raises
    `ShapeError` below rank 2, `DTypeError` for a k that is no int. ONNX Trilu.
    """
    return _triangle("tril", x, k, upper=False)


@op(onnx="Trilu", rule="number")
def triu(x: TensorLike, k: int = 0) -> Symbol:
    """The upper triangle of matrices, with 0 below it.

    x: [..., m, n], numbers or bools. k: the first diagonal that is kept, 0 the main one, -1 that below it. Raises
    `ShapeError` below rank 2, `DTypeError` for a k that is no int. ONNX Trilu.
    """
    return _triangle("triu", x, k, upper=True)


def _triangle(name: str, x: TensorLike, k: int, *, upper: bool) -> Symbol:
    symbol = _matrices(name, x)
    if not isinstance(k, int) or isinstance(k, bool):
        raise DTypeError(f"{name}: k={k!r} is no diagonal", operands={"x": symbol}, help="k is an int")
    return _trilu(symbol, k, upper=upper)


def _trilu(x: Symbol, k: int, *, upper: bool) -> Symbol:
    return e.emit("Trilu", x, x.graph.build.scalar(k, DType.int64), shape=x.shape, upper=int(upper))


def _matrices(name: str, x: TensorLike) -> Symbol:
    symbol, _ = promote_one(name, "number", x)
    if symbol.rank < 2:
        raise ShapeError(
            f"{name}: a tensor of rank {symbol.rank} is no matrix",
            operands={"x": symbol},
            help="give it two axes: ops.unsqueeze(x, 0)",
        )
    return symbol


@op(onnx="Trilu, Where", rule="number")
def band_part(
    x: TensorLike, num_lower: int | Symbol | None, num_upper: int | Symbol | None, exclude: bool = False
) -> Symbol:
    """A band of matrices around the main diagonal, with 0 outside of it.

    x: [..., m, n], numbers or bools. num_lower, num_upper: how many diagonals below and above the main one belong to
    the band, -1 or None for all; ints or integer scalar Symbols. exclude: keep what is outside of the band instead.
    Raises `ShapeError` below rank 2 and for numbers below -1, `DTypeError` for bounds that are no integers. ONNX Trilu;
    Where on a mask of positions for Symbols and `exclude`.
    """
    symbol = _matrices("band_part", x)
    roles: dict[str, Any] = {"x": symbol}
    lower = _bound("num_lower", num_lower, roles)
    upper = _bound("num_upper", num_upper, roles)
    if isinstance(lower, int) and isinstance(upper, int):
        if not exclude:
            if upper >= 0:
                symbol = _trilu(symbol, upper, upper=False)
            return _trilu(symbol, -lower, upper=True) if lower >= 0 else symbol
        # Where a band is open on one side, everything outside of it lies on the other.
        if lower < 0 <= upper:
            return _trilu(symbol, upper + 1, upper=True)
        if upper < 0 <= lower:
            return _trilu(symbol, -lower - 1, upper=False)
    zero = e.const(symbol, False if symbol.dtype is DType.bool else 0)
    inside = _band_mask(symbol, lower, upper)
    pair = (zero, symbol) if exclude else (symbol, zero)
    return symbol.graph.build.emit("Where", (inside, *pair), retype(symbol))


def _bound(role: str, value: Any, roles: dict[str, Any]) -> int | Symbol:
    """Return a bound as an int, -1 for none, or as an int64 scalar."""
    if value is None:
        return -1
    if isinstance(value, Symbol):
        if value.rank or not value.dtype.is_integer:
            raise DTypeError(
                f"band_part: {role} is {value.type}",
                operands={**roles, role: value},
                help="give one integer, of rank 0",
            )
        return value.graph.build.cast(value, DType.int64)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DTypeError(f"band_part: {role}={value!r} is no count", operands=roles, help="give an int or a Symbol")
    if value < -1:
        raise ShapeError(f"band_part: {role} is {value}", operands=roles, help="give a count, or -1 for all diagonals")
    return value


def _band_mask(x: Symbol, lower: int | Symbol, upper: int | Symbol) -> Symbol:
    """Return a mask that is true inside the band, bool [m, n]."""
    graph = x.graph
    rows, columns = (_positions(x, x.rank - 2 + i) for i in (0, 1))
    down = e.emit("Unsqueeze", rows, e.ints(x, [1]), shape=Shape([*rows.shape, 1]))
    beyond = e.emit("Sub", columns, down)  # positive above the main diagonal
    zero = graph.build.scalar(0, DType.int64)
    low, high = (s if isinstance(s, Symbol) else graph.build.scalar(s, DType.int64) for s in (lower, upper))
    inside_low = e.emit("LessOrEqual", e.emit("Neg", beyond), low, dtype=DType.bool)
    inside_high = e.emit("LessOrEqual", beyond, high, dtype=DType.bool)
    return e.both(e.either(e.less(low, zero), inside_low), e.either(e.less(high, zero), inside_high))


def _positions(x: Symbol, axis: int) -> Symbol:
    """Return 0, 1, ... along an axis, int64 [length]."""
    graph = x.graph
    dim = x.shape[axis]
    if dim.is_static:
        length = graph.build.scalar(int(dim), DType.int64)
    else:
        size = shape_vector(graph, [Axis(x, axis)])
        length = e.emit("Squeeze", size, e.ints(x, [0]), shape=_shape(()))
    zero, one = graph.build.scalar(0, DType.int64), graph.build.scalar(1, DType.int64)
    return graph.build.emit("Range", (zero, length, one), tensor_type(DType.int64, _shape([dim])))
