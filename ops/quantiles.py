"""Quantiles along axes, with all of NumPy's methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.operands import operand, promote_one
from graphcore.build.shapes import axes_of
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ir.transform.walk import constant_array
from graphcore.operators.shapes.reductions import reduced_shape
from graphcore.ops.shared.attributes import Axes, check_not_empty
from graphcore.ops.shared.dims import Axis, product, shape_vector
from graphcore.ops.shared.reshape import reshaped
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

QuantileMethod: TypeAlias = Literal[
    "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf", "closest_observation",
    "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased",
]  # fmt: skip
"""NumPy's names of the methods to interpolate between two elements."""

_METHODS: tuple[str, ...] = get_args(QuantileMethod)
_MEDIAN = "median"

# The continuous methods of Hyndman and Fan (1996), by their two parameters.
_PARAMETERS = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}


@op(onnx="Quantile", rule="mean", method=True)
def median(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The median over axes: the middle element in order, or the mean of the two in the middle.

    Args:
        x: Any shape, numbers or bools; integers and bools give float64.
        axis: One, several, or None for all.
        keepdims: Keep the axes, with length 1. NaN if any is NaN; the median of no elements is NaN if the length is
            known only at run time.

    Raises:
        ShapeError: For an invalid axis and for axes of length 0.
        DTypeError: For strings.

    NumPy's median; ONNX TopK.
    """
    return _quantile("median", x, 0.5, axis, keepdims, _MEDIAN)


@op(onnx="Quantile", rule="mean", method=True)
def quantile(
    x: TensorLike,
    q: TensorLike | Sequence[float],
    axis: Axes = None,
    keepdims: bool = False,
    method: QuantileMethod = "linear",
) -> Symbol:
    """The quantiles over axes: the values at the fractions `q` of the sorted elements.

    Args:
        x: Any shape, numbers or bools; integers and bools give float64.
        q: Fractions from 0 to 1, of any shape; for other values in a Symbol, or NaN, the result is NaN.
        axis: One, several, or None for all.
        keepdims: Keep the axes, with length 1.
        method: The way to interpolate between two elements, by NumPy's names.

    Returns:
        The shape of `q` followed by the remaining axes of `x`. NaN if any is NaN, or of no elements if the length is
        known only at run time.

    Raises:
        ShapeError: For an invalid axis, for axes of length 0, a `q` outside 0 to 1 and another method.
        DTypeError: For strings.

    NumPy's quantile; ONNX TopK.
    """
    if method not in _METHODS:
        raise ShapeError(f"quantile: unknown method {method!r}", help=f"use one of {', '.join(_METHODS)}")
    return _quantile("quantile", x, q, axis, keepdims, method)


def _quantile(
    name: str, x: TensorLike, q: TensorLike | Sequence[float], axis: Axes, keepdims: bool, method: str
) -> Symbol:
    source, dtype = promote_one(name, "mean", x)
    axes = sorted(axes_of(name, axis, source.rank, {"x": source}))
    check_not_empty(name, source, axes)
    fractions = _fractions(name, source, q)
    symbol, graph = source, source.graph
    rest = [i for i in range(symbol.rank) if i not in axes]
    # x: [*remaining axes, elements]; the fractions: a vector.
    order = [*rest, *axes]
    symbol = e.transpose(symbol, order)
    if len(axes) != 1:
        stay = [Axis(symbol, i) for i in range(len(rest))]
        count = [Axis(symbol, i) for i in range(len(rest), len(order))]
        symbol = _merge_axes(name, symbol, stay, count)
    row = fractions if fractions.rank == 1 else reshaped(name, fractions, [None], {"q": fractions})
    shape = _shape([row.shape[0], *symbol.shape[:-1]])
    type_ = tensor_type(dtype, shape, symbol.ambiguous)
    result = graph.build.emit("Quantile", (symbol, row), type_, {"method": method}, LIBRARY)
    return _restore_shape(name, result, fractions, source, axes, keepdims)


def _merge_axes(name: str, x: Symbol, stay: Sequence[Axis], count: Sequence[Axis]) -> Symbol:
    """Return x with its last axes merged into one."""
    size = x.shape[len(stay) :].size
    if not count:
        return e.unsqueeze(x, -1)
    vector = shape_vector(x.graph, [*stay, product(x.graph, count)], (x,), op=name)
    shape = _shape([*x.shape[: len(stay)], size])
    return x.graph.build.emit("Reshape", (x, vector), tensor_type(x.dtype, shape, x.ambiguous), {"allowzero": 1})


def _restore_shape(name: str, values: Symbol, q: Symbol, x: Symbol, axes: Sequence[int], keepdims: bool) -> Symbol:
    """Reshape the quantiles [fractions, *remaining axes] to the shape that the op returns."""
    sizes = [(Axis(x, i) if i not in axes else Dim(1)) for i in range(x.rank) if keepdims or i not in axes]
    if q.rank == 1 and not keepdims:
        return values
    if not q.rank and not keepdims:
        return e.squeeze(values, 0)
    vector = shape_vector(x.graph, [*(Axis(q, i) for i in range(q.rank)), *sizes], (q, x), op=name)
    shape = _shape([*q.shape, *reduced_shape(x.shape, axes, keepdims)])
    return values.graph.build.emit(
        "Reshape", (values, vector), tensor_type(values.dtype, shape, values.ambiguous), {"allowzero": 1}
    )


def _fractions(name: str, x: Symbol, q: TensorLike | Sequence[float]) -> Symbol:
    """Return the fractions in float64."""
    value = np.asarray(q, np.float64) if isinstance(q, (bool, int, float, list, tuple)) else q
    symbol = operand(name, value, "q") if isinstance(value, Symbol) else x.graph.build.operand(value, name, "q")
    if not symbol.dtype.is_float and not symbol.dtype.is_integer:
        raise DTypeError(
            f"{name}: q must be numbers, got {symbol.type}", operands={"x": x, "q": symbol}, help="give 0 to 1"
        )
    array = constant_array(symbol)
    if array is not None and not ((array >= 0) & (array <= 1)).all():
        raise ShapeError(
            f"{name}: q must be from 0 to 1, got {q!r:.60}",
            operands={"x": x},
            help="0 is the minimum and 1 the maximum; divide percentiles by 100",
        )
    return x.graph.build.cast(symbol, DType.float64)


# The expansion


@expansion("Quantile")
def _quantile_of_last_axis(x: Symbol, q: Symbol, *, method: str | bytes) -> Symbol:
    """Compute the quantiles of the last axis. x: [..., n]. q: [count], float64. Returns [count, ...]."""
    method = method.decode() if isinstance(method, bytes) else method
    length = x.shape[-1]
    vector = shape_vector(x.graph, [length if length.is_static else Axis(x, x.rank - 1)], (x,))
    types = [tensor_type(x.dtype, x.shape), tensor_type(DType.int64, x.shape)]
    attributes = {"axis": x.rank - 1, "largest": 0, "sorted": 1}
    ordered, _ = x.graph.build.emit_many("TopK", (x, vector), types, attributes)
    size = e.squeeze(vector, 0)
    if (length.lower_bound or 0) < 1:
        ordered, vector = _with_nan(ordered)
        size = e.emit("Max", size, e.const(size, 1))
    count = e.cast(size, DType.float64)
    place = _place(q, count, method)
    last = e.emit("Sub", count, e.const(q, 1))
    is_valid = e.both(e.opposite(e.less(q, e.const(q, 0))), e.opposite(e.greater(q, e.const(q, 1))), e.equal(q, q))
    place = e.where(is_valid, place, e.const(q, 0))
    floor = e.emit("Floor", place)
    part = e.emit("Sub", place, floor)
    above = e.emit("Add", floor, e.const(q, 1))
    below, above = (e.emit("Min", e.emit("Max", s, e.const(q, 0)), last) for s in (floor, above))
    if method == "averaged_inverted_cdf":
        # The mean of two elements where n * q is an integer, the upper one elsewhere.
        part = e.where(e.equal(part, e.const(q, 0)), e.const(q, 0.5), e.const(q, 1))
    low, high = (e.cast(_elements_at(ordered, s), DType.float64) for s in (below, above))
    # The fractions as a column: [count, 1, ...]
    if x.rank > 1:
        part, is_valid = (e.unsqueeze(s, *range(1, x.rank)) for s in (part, is_valid))
    result = e.cast(_interpolate(low, high, part, method), x.dtype)
    greatest = _elements_at(ordered, e.unsqueeze(last, 0))  # NaN, where there is one
    result = e.where(e.equal(greatest, greatest), result, greatest)
    return e.where(is_valid, result, e.const(x, float("nan")))


def _with_nan(ordered: Symbol) -> tuple[Symbol, Symbol]:
    """Append a NaN to the elements, as there may be none; return them and their number."""
    rank = ordered.rank
    pads = e.ints(ordered, [*[0] * rank, *[0] * (rank - 1), 1])
    shape = _shape([*ordered.shape[:-1], ordered.shape[-1] + 1])
    extended = e.emit("Pad", ordered, pads, e.const(ordered, float("nan")), shape=shape, mode="constant")
    return extended, shape_vector(extended.graph, [Axis(extended, rank - 1)], (extended,))


def _place(q: Symbol, count: Symbol, method: str) -> Symbol:
    """Return the positions, from 0 on, of fractions among `count` sorted elements; fractional between two elements."""
    one, half = e.const(q, 1), e.const(q, 0.5)
    if method in _PARAMETERS:
        alpha, beta = _PARAMETERS[method]
        away = e.emit("Add", e.const(q, alpha), e.emit("Mul", q, e.const(q, 1 - alpha - beta)))
        return e.emit("Sub", e.emit("Add", e.emit("Mul", count, q), away), one)
    if method in ("inverted_cdf", "averaged_inverted_cdf", "closest_observation"):
        place = e.emit("Sub", e.emit("Mul", count, q), one)
        if method == "averaged_inverted_cdf":
            return place
        if method == "inverted_cdf":
            return e.emit("Ceil", place)
        # The nearest position, and of two equally near the one that is even when counted from 1.
        place = e.emit("Sub", place, half)
        whole = e.emit("Floor", place)
        odd = e.equal(e.emit("Mod", whole, e.const(q, 2), fmod=1), one)
        stays = e.both(e.equal(place, whole), odd)
        return e.where(stays, whole, e.emit("Add", whole, one))
    place = e.emit("Mul", e.emit("Sub", count, one), q)
    if method == "lower":
        return e.emit("Floor", place)
    if method == "higher":
        return e.emit("Ceil", place)
    if method == "nearest":
        return e.emit("Round", place)
    if method == "midpoint":
        return e.emit("Mul", e.emit("Add", e.emit("Floor", place), e.emit("Ceil", place)), half)
    return place


def _elements_at(ordered: Symbol, places: Symbol) -> Symbol:
    """Take elements of the last axis at places [count]; the axis becomes the first."""
    index = e.cast_within(places, DType.int64)
    rank = ordered.rank
    shape = _shape([*ordered.shape[:-1], places.shape[0]])
    elements = e.emit("Gather", ordered, index, shape=shape, axis=rank - 1)
    return e.move_axis(elements, rank - 1, 0)


def _interpolate(low: Symbol, high: Symbol, part: Symbol, method: str) -> Symbol:
    """Interpolate from `low` to `high`. part: from 0 to 1."""
    zero, half, one = (e.const(low, value) for value in (0.0, 0.5, 1.0))
    if method == _MEDIAN:
        mean = e.emit("Add", e.emit("Mul", low, half), e.emit("Mul", high, half))
        return e.where(e.equal(part, zero), low, mean)
    distance = e.emit("Sub", high, low)
    near_low = e.emit("Add", low, e.emit("Mul", distance, part))
    near_high = e.emit("Sub", high, e.emit("Mul", distance, e.emit("Sub", one, part)))
    between = e.where(e.less(part, half), near_low, near_high)
    # The difference of infinities is NaN.
    between = e.where(e.either(e.equal(part, zero), e.equal(low, high)), low, between)
    return e.where(e.equal(part, one), high, between)
