"""kernel_float's vectors, their magnitude, and the fused multiply-add."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import IN_DOUBLE, LIBRARY, expansion, op
from graphcore.build.operands import graph_of, operand, promote, promote_one, vector_of_one
from graphcore.build.shapes import axes_of, broadcast, check_axis_from_end, check_scalar
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, SymbolTuple, TensorLike
from graphcore.operators.shapes.reductions import reduced_shape
from graphcore.ops.creation import constant
from graphcore.ops.gathering import gather
from graphcore.ops.joining import concat
from graphcore.ops.rebinding import rebind
from graphcore.ops.shared.attributes import Axes, emit_reduction
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType, real_of
from graphcore.types.tensor_types import tensor_type


@op(onnx="Unsqueeze", rule="keep")
def into_vec(x: TensorLike | Sequence[TensorLike]) -> Symbol:
    """`x` as a vector: a scalar becomes a vector of length 1, a list a vector of its length.

    Args:
        x: A scalar or a vector of any dtype, or a list or tuple of one or more scalars, in their common dtype.

    Returns:
        `x` itself if it is a vector.

    Raises:
        ShapeError: For more axes and an empty list.
        PromotionError: If elements have no common dtype.

    kernel_float's `into_vec`; ONNX Unsqueeze and Concat.
    """
    if isinstance(x, (list, tuple)) and not isinstance(x, SymbolTuple):
        return _of_list(x)
    symbol = operand("into_vec", x)  # type: ignore[arg-type]  # no list
    if symbol.rank > 1:
        raise ShapeError(
            f"into_vec: x must be a scalar or a vector, got rank {symbol.rank}",
            operands={"x": symbol},
            help="flatten it: ops.flatten(x)",
        )
    if symbol.rank:
        return symbol
    return vector_of_one(symbol)


def _of_list(values: Sequence[TensorLike]) -> Symbol:
    if not values:
        raise ShapeError("into_vec: the list is empty", help="give one or more: ops.into_vec([x, y])")
    symbols, dtype = promote("into_vec", "join", {f"element {i}": value for i, value in enumerate(values)})
    for i, symbol in enumerate(symbols):
        check_scalar("into_vec", f"element {i}", symbol, help="use ops.vec(x, y) to concatenate vectors")
    if all(type(value) in (bool, int, float) for value in values):
        return constant(list(values), dtype, symbols[0].ambiguous)
    return concat([vector_of_one(s) for s in symbols])


@op(onnx="Concat", rule="join")
def vec(*values: TensorLike) -> Symbol:
    """A vector of the concatenated values, in their common dtype.

    Args:
        values: One or more scalars and vectors of any dtypes that promote to a common one.

    Returns:
        A vector as long as all of them.

    Raises:
        ShapeError: For no values and for more axes.
        PromotionError: If there is no common dtype.

    kernel_float's `make_vec`; ONNX Concat.
    """
    if not values:
        raise ShapeError("vec: expected one or more values", help="give one or more: ops.vec(x, y)")
    symbols, _ = promote("vec", "join", {f"value {i}": value for i, value in enumerate(values)})
    return concat([into_vec(s) for s in symbols])


@op(onnx="Magnitude", rule="float")
def mag(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The magnitude of a vector: the square root of the sum of squares over axes, without intermediate overflow.

    Args:
        x: Any shape, numbers or bools; integers become the float that holds their range, and the magnitude of complex
            numbers is real. axis: one, several, or None for all; () returns the absolute values.
        keepdims: Keep the axes, with length 1. The magnitude of no elements is 0.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    kernel_float's `mag`; ONNX ReduceL2.
    """
    symbol, dtype = promote_one("mag", "float", x)
    axes = axes_of("mag", axis, symbol.rank, {"x": symbol})
    dtype = real_of(dtype)
    type_ = tensor_type(dtype, reduced_shape(symbol.shape, axes, keepdims), symbol.ambiguous)
    # Squares of narrower floats do not overflow in float64.
    attributes = {"axes": sorted(axes), "keepdims": int(keepdims), "scaled": int(dtype is DType.float64)}
    return symbol.graph.build.emit("Magnitude", (symbol,), type_, attributes, LIBRARY)


IN_DOUBLE.add("Magnitude")


@expansion("Magnitude")
def _magnitude(x: Symbol, *, axes: Sequence[int], keepdims: int, scaled: int) -> Symbol:
    size = e.emit("Abs", x)
    if not axes:
        return size

    def squares(of: Symbol) -> Symbol:
        return emit_reduction("ReduceSum", e.emit("Mul", of, of), axes, bool(keepdims))

    if not scaled:
        return e.emit("Sqrt", squares(x))
    # Blue's algorithm: separate sums for large and for small numbers, scaled to about 1 by a power of two.
    down, up, zero = (e.const(x, value) for value in (2.0**-600, 2.0**600, 0.0))
    is_large, is_small = e.greater(size, e.const(x, 2.0**500)), e.less(size, e.const(x, 2.0**-400))
    large = squares(e.where(is_large, e.emit("Mul", size, down), zero))
    small = squares(e.where(is_small, e.emit("Mul", size, up), zero))
    middle = squares(e.where(e.either(is_large, is_small), zero, size))

    def lowered(total: Symbol) -> Symbol:
        return e.emit("Mul", e.emit("Mul", total, down), down)

    of_large = e.emit("Mul", e.emit("Sqrt", e.emit("Add", large, lowered(middle))), up)
    of_middle = e.emit("Sqrt", e.emit("Add", middle, lowered(small)))
    of_small = e.emit("Mul", e.emit("Sqrt", small), down)
    result = e.where(e.equal(middle, zero), of_small, of_middle)
    return e.where(e.equal(large, zero), result, of_large)


@op(onnx="Gather, Mul, Sub", rule="subtract")
def cross(lhs: TensorLike, rhs: TensorLike, axis: int = -1) -> Symbol:
    """The vector product of vectors of length 3.

    Args:
        lhs: Numbers, which broadcast except along `axis`, of size 3 in both; an unknown size is checked when the graph
            runs.
        rhs: As `lhs`.
        axis: Of the vectors, counted from the end. The two products and their difference are rounded separately.

    Returns:
        The broadcast shape, in the common dtype.

    Raises:
        ShapeError: For another axis or size.
        PromotionError: For dtypes without a common dtype.
        DTypeError: For bools and strings. kernel_float's and NumPy's cross.
    """
    graph = graph_of("cross", (lhs, rhs))
    roles = {"lhs": graph.build.operand(lhs, "cross", "lhs"), "rhs": graph.build.operand(rhs, "cross", "rhs")}
    x, y = roles.values()
    check_axis_from_end("cross", axis, roles, "scalars have no axes")
    if any(length.is_static and length != 3 for length in (x.shape[axis], y.shape[axis])):
        raise ShapeError(
            f"cross: the vectors must have 3 elements, got {x.shape[axis]} and {y.shape[axis]}",
            operands=roles,
            help="pad or slice them to 3, or give another axis",
        )
    checked = {role: _with_length(symbol, axis, 3) for role, symbol in roles.items()}
    (a, b), _ = promote("cross", "subtract", checked)
    next_, after = np.array([1, 2, 0]), np.array([2, 0, 1])
    first = gather(a, next_, axis) * gather(b, after, axis)
    return first - gather(a, after, axis) * gather(b, next_, axis)


def _with_length(x: Symbol, axis: int, length: int) -> Symbol:
    """Return a tensor whose run fails if an axis has another length."""
    if x.shape[axis].is_static:
        return x
    dims = list(x.shape)
    dims[axis] = Dim(length)
    return rebind(x, dims, f"cross: axis {axis} holds vectors of {length} elements")


@op(onnx="Fma", rule="arithmetic")
def fma(x: TensorLike, y: TensorLike, z: TensorLike) -> Symbol:
    """x * y + z in one step: floats round once, at the end; integers wrap, bools are *and*ed and *or*ed.

    Args:
        x: Numbers or bools of any shapes that broadcast, which promote to a common dtype.
        y: As `x`.
        z: Numbers or bools of any shapes that broadcast, which promote to a common dtype. float64 rounds the product
            too.

    Raises:
        PromotionError: If there is none.
        DTypeError: For strings.
        ShapeError: For shapes that do not broadcast. The fused multiply-add of IEEE 754.
    """
    (x, y, z), dtype = promote("fma", "arithmetic", {"x": x, "y": y, "z": z})
    type_ = tensor_type(dtype, broadcast("fma", {"x": x, "y": y, "z": z}), all(s.ambiguous for s in (x, y, z)))
    return x.graph.build.emit("Fma", (x, y, z), type_, None, LIBRARY)


@expansion("Fma", broadcasts=True)
def _fma(x: Symbol, y: Symbol, z: Symbol) -> Symbol:
    if x.dtype is DType.bool:
        return e.either(e.both(x, y), z)
    if x.dtype is not DType.float32:
        return e.emit("Add", e.emit("Mul", x, y), z)
    # float64 holds the product; the sum is rounded from there to the dtype of the op, which may be narrower still.
    wide = [e.cast(s, DType.float64) for s in (x, y, z)]
    return _odd_sum(e.emit("Mul", *wide[:2]), wide[2])


@expansion("Fma", fast=True)
def _fma_rounded_twice(x: Symbol, y: Symbol, z: Symbol) -> Symbol:
    return e.emit("Add", e.emit("Mul", x, y), z)


def _odd_sum(a: Symbol, b: Symbol) -> Symbol:
    """Return a + b rounded to odd: a last bit of 1 records an inexact sum, so that rounding again is exact."""
    total = e.emit("Add", a, b)
    other = e.emit("Sub", total, a)
    lost = e.emit("Add", e.emit("Sub", a, e.emit("Sub", total, other)), e.emit("Sub", b, other))
    bits = e.bitcast(total, DType.int64)
    one = e.const(bits, 1)
    is_even = e.equal(e.emit("BitwiseAnd", bits, one), e.const(bits, 0))
    zero = e.const(total, 0)
    is_lost = e.opposite(e.equal(lost, zero))  # not for NaN, which infinities cause
    is_lost = e.both(is_lost, e.equal(lost, lost), is_even)
    away = e.equal(e.less(lost, zero), e.less(total, zero))
    step = e.where(away, one, e.const(bits, -1))
    nudged = e.bitcast(e.emit("Add", bits, step), DType.float64)
    return e.where(is_lost, nudged, total)
