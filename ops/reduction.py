"""Reductions over some or all axes, and the positions of extremes."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphcore.build import primitives as e
from graphcore.build.declare import LIBRARY, expansion, op
from graphcore.build.operands import as_index, operand, promote_one
from graphcore.build.shapes import axes_of, axis_of
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.operators.shapes.reductions import reduced_shape
from graphcore.ops.elementwise import maximum, minimum
from graphcore.ops.shared.attributes import Axes, check_not_empty, emit_reduction
from graphcore.ops.shared.dims import Axis, product
from graphcore.ops.shared.reshape import reshaped
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, known_type, tensor_type

# Sums


@op(onnx="ReduceSum", rule="sum", method=True)
def sum(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The sum over axes.

    Args:
        x: Any shape, numbers or bools; bools are counted in int64, integers wrap in their own dtype, floats narrower
            than 32 bits are summed in float32.
        axis: One, several, or None for all; () sums no axis.
        keepdims: Keep the axes, with length 1. The sum of no elements is 0.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX ReduceSum.
    """
    symbol, dtype = promote_one("sum", "sum", x)
    axes = axes_of("sum", axis, symbol.rank, {"x": symbol})
    if dtype is DType.bool:  # systems that keep bool add by *or*, as bool + bool does
        return _emit_quantifier("ReduceMax", symbol, axes, keepdims)
    return emit_reduction("ReduceSum", symbol, axes, keepdims, dtype)


@op(onnx="ReduceProd", rule="sum", method=True)
def prod(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The product over axes.

    Args:
        x: Any shape, numbers or bools; bools are taken as int64, integers wrap in their own dtype.
        axis: One, several, or None for all; () multiplies along no axis.
        keepdims: Keep the axes, with length 1. The product of no elements is 1.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX ReduceProd.
    """
    symbol, dtype = promote_one("prod", "sum", x)
    axes = axes_of("prod", axis, symbol.rank, {"x": symbol})
    if dtype is DType.bool:
        return _emit_quantifier("ReduceMin", symbol, axes, keepdims)
    return emit_reduction("ReduceProd", symbol, axes, keepdims, dtype)


@op(onnx="ReduceSum", rule="keep")
def count_nonzero(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The number of elements that are not 0, in int64.

    Args:
        x: Any shape, numbers or bools; NaN counts.
        axis: One, several, or None for all.
        keepdims: Keep the axes, with length 1.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX Cast and ReduceSum.
    """
    symbol = _as_bools("count_nonzero", x)
    axes = axes_of("count_nonzero", axis, symbol.rank, {"x": operand("count_nonzero", x)})
    counted = emit_reduction("ReduceSum", symbol.graph.build.cast(symbol, DType.int64), axes, keepdims)
    return as_index(counted)


# Averages


@op(onnx="ReduceMean", rule="mean", method=True)
def mean(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The arithmetic mean over axes.

    Args:
        x: Any shape, numbers or bools; integers and bools give float64.
        axis: One, several, or None for all; () averages no axis.
        keepdims: Keep the axes, with length 1. The mean of no elements is NaN.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX ReduceMean.
    """
    symbol, _ = promote_one("mean", "mean", x)
    axes = axes_of("mean", axis, symbol.rank, {"x": symbol})
    return _mean(symbol, axes, keepdims)


def _mean(x: Symbol, axes: Sequence[int], keepdims: bool) -> Symbol:
    """Emit ReduceMean, and a Where for NaN if the axes may be empty, for which ONNX leaves the result undefined."""
    result = emit_reduction("ReduceMean", x, axes, keepdims)
    count = _shape([x.shape[a] for a in axes]).size
    if (count.lower_bound or 0) >= 1:
        return result
    scalar = e.squeeze(product(x.graph, [Axis(x, a) for a in axes]), 0)
    return e.where(e.equal(scalar, e.const(scalar, 0)), e.const(x, float("nan")), result)


@op(onnx="Variance", rule="mean", method=True)
def var(x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Symbol:
    """The variance over axes: the mean squared distance from the mean.

    Args:
        x: Any shape, numbers or bools; integers and bools give float64, complex numbers the real mean of their squared
            distances from the mean.
        axis: One, several, or None for all.
        correction: Subtracted from the number of elements in the divisor, 0 for a population and 1 for a sample; NaN or
            infinity where the divisor is 0.
        keepdims: Keep the axes, with length 1.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings and a correction that is not a number. The array API's `var`, NumPy's for complex
            numbers.
    """
    return _spread("var", "Variance", x, axis, correction, keepdims)


@op(onnx="StandardDeviation", rule="mean", method=True)
def stdev(x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Symbol:
    """The standard deviation over axes: the square root of the variance.

    Args:
        x: Any shape, numbers or bools; integers and bools give float64.
        axis: One, several, or None for all.
        correction: As for `var`.
        keepdims: Keep the axes, with length 1.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings and a correction that is not a number. The array API's `std`.
    """
    return _spread("stdev", "StandardDeviation", x, axis, correction, keepdims)


def _spread(name: str, op_type: str, x: TensorLike, axis: Axes, correction: float, keepdims: bool) -> Symbol:
    symbol, dtype = promote_one(name, "mean", x)
    axes = axes_of(name, axis, symbol.rank, {"x": symbol})
    if not isinstance(correction, (int, float)) or isinstance(correction, bool):
        raise DTypeError(
            f"{name}: correction={correction!r} is not a number",
            operands={"x": symbol},
            help="0 for the whole population, 1 for a sample of it",
        )
    if dtype.is_complex:
        sums = [_spread("var", "Variance", part, axes, correction, keepdims) for part in (symbol.real, symbol.imag)]
        variance = e.emit("Add", *sums)
        return variance if op_type == "Variance" else e.emit("Sqrt", variance)
    type_ = tensor_type(dtype, reduced_shape(symbol.shape, axes, keepdims))
    attributes = {"axes": sorted(axes), "correction": float(correction), "keepdims": int(keepdims)}
    return symbol.graph.build.emit(op_type, (symbol,), type_, attributes, LIBRARY)


@expansion("Variance")
def _variance(x: Symbol, *, axes: Sequence[int], correction: float, keepdims: int) -> Symbol:
    away = e.emit("Sub", x, _mean(x, axes, True))
    squared = e.emit("Mul", away, away)
    if not correction:
        return _mean(squared, axes, bool(keepdims))
    total = emit_reduction("ReduceSum", squared, axes, bool(keepdims))
    return e.emit("Div", total, _divisor(x, axes, correction))


def _divisor(x: Symbol, axes: Sequence[int], correction: float) -> Symbol:
    """Return the number of elements along the axes minus the correction, at least 0, as in NumPy."""
    count = _shape([x.shape[a] for a in axes]).size
    if count.is_static:
        return e.const(x, builtins.max(int(count) - correction, 0.0))
    scalar = e.squeeze(product(x.graph, [Axis(x, a) for a in axes]), 0)
    return e.emit("Max", e.emit("Sub", e.cast(scalar, x.dtype), e.const(x, correction)), e.const(x, 0.0))


@expansion("StandardDeviation")
def _standard_deviation(x: Symbol, *, axes: Sequence[int], correction: float, keepdims: int) -> Symbol:
    return e.emit("Sqrt", _variance(x, axes=axes, correction=correction, keepdims=keepdims))


@op(onnx="ReduceLogSumExp", rule="float")
def logsumexp(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The logarithm of the sum of exponentials over axes, without intermediate overflow.

    Args:
        x: Any shape, numbers or bools; integers become the float that holds their range.
        axis: One, several, or None for all; () returns x.
        keepdims: Keep the axes, with length 1.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX ReduceLogSumExp.
    """
    symbol, dtype = promote_one("logsumexp", "float", x)
    axes = axes_of("logsumexp", axis, symbol.rank, {"x": symbol})
    return emit_reduction("ReduceLogSumExp", symbol, axes, keepdims, dtype)


# Extremes


def _extreme(name: str, noun: str, chosen: str, of_two: Callable[..., Symbol]) -> Callable[..., Symbol]:
    """Declare the reduction to an extreme, which also compares two tensors."""
    op_type = name.capitalize()
    doc = f"""The {noun} over axes; of two tensors, the {chosen} of each pair.

    Args:
        x: Any shape, numbers or bools; NaN if any is NaN.
        y: A tensor to compare with, which broadcasts.
        axis: One, several, or None for all; () returns x.
        keepdims: Keep the axes, with length 1.

    Raises:
        ShapeError: For an invalid axis and for axes of length 0.
        DTypeError: For strings.

    ONNX Reduce{op_type}, and {op_type} for two.
    """

    @op(onnx=f"Reduce{op_type}, {op_type}", rule="number", name=name, doc=doc)
    def extreme(x: TensorLike, y: TensorLike | None = None, /, *, axis: Axes = None, keepdims: bool = False) -> Symbol:
        if y is not None:
            _check_compares(name, x, y, axis, keepdims)
            return of_two(x, y)
        symbol, dtype = promote_one(name, "number", x)
        axes = axes_of(name, axis, symbol.rank, {"x": symbol})
        check_not_empty(name, symbol, axes)
        return emit_reduction(f"Reduce{op_type}", symbol, axes, keepdims, dtype)

    return extreme


max = _extreme("max", "maximum", "greater", maximum)
min = _extreme("min", "minimum", "lesser", minimum)


def _check_compares(name: str, x: TensorLike, y: object, axis: Axes, keepdims: bool) -> None:
    if axis is not None or keepdims:
        raise ShapeError(
            f"{name}: axis and keepdims cannot be combined with a second tensor",
            operands={"x": x, "y": y},
            help=f"reduce one of them, ops.{name}(x, axis=...), or compare both, ops.{name}(x, y)",
        )
    if isinstance(y, (tuple, list)):
        raise DTypeError(
            f"{name}: the second operand must be a tensor, got {type(y).__name__}",
            operands={"x": x, "y": y},
            help=f"pass axes by keyword: ops.{name}(x, axis={y!r})",
        )


def _max_method(self: Symbol, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The maximum over axes. See `ops.max`."""
    return max(self, axis=axis, keepdims=keepdims)


def _min_method(self: Symbol, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The minimum over axes. See `ops.min`."""
    return min(self, axis=axis, keepdims=keepdims)


# Methods take the axis first: x.max(1), while ops.max(x, 1) compares with 1.
setattr(Symbol, "max", _max_method)  # noqa: B010 - an assignment would be checked as an override
setattr(Symbol, "min", _min_method)  # noqa: B010


# Positions


def _argument(name: str, noun: str, op_type: str) -> Callable[..., Symbol]:
    """Declare the position of an extreme."""
    doc = f"""The position of the {noun} along an axis, in int64; the first of equal ones.

    Args:
        x: Any shape, numbers or bools; NaN if any is NaN.
        axis: One, or None for the position in the flattened tensor.
        keepdims: Keep the axes, with length 1.

    Raises:
        ShapeError: For an invalid axis and for axes of length 0.
        DTypeError: For strings.

    ONNX {op_type}.
    """

    @op(onnx=op_type, rule="number", method=True, name=name, doc=doc)
    def argument(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Symbol:
        symbol, _ = promote_one(name, "number", x)
        roles: Mapping[str, Any] = {"x": symbol}
        rank = symbol.rank
        chosen = None if axis is None else axis_of(name, axis, rank, roles)
        check_not_empty(name, symbol, builtins.range(rank) if chosen is None else [chosen])
        graph = symbol.graph
        if symbol.dtype is DType.bool:
            symbol = graph.build.cast(symbol, DType.uint8)
        if chosen is None:
            symbol = reshaped(name, symbol, [None], roles)
        keep = keepdims and chosen is not None
        shape = reduced_shape(symbol.shape, [chosen or 0], keep)
        attributes = {"axis": chosen or 0, "keepdims": int(keep)}
        position = as_index(graph.build.emit(op_type, (symbol,), tensor_type(DType.int64, shape), attributes))
        if keepdims and chosen is None:
            return reshaped(name, position, [Dim(1)] * rank, roles)
        return position

    return argument


argmax = _argument("argmax", "maximum", "ArgMax")
argmin = _argument("argmin", "minimum", "ArgMin")


@op(onnx="ArgMax", rule="number")
def arg_max(x: TensorLike, axis: int = -1) -> Symbol:
    """`argmax` under the name of MAX's Mojo API: along the last axis by default.

    Args:
        x: Any shape of rank 1 or more, numbers or bools.

    Returns:
        Int64 without the axis. Raises as `argmax` does.

    ONNX ArgMax.
    """
    return argmax(x, axis=axis)


# Quantifiers


def _quantifier(name: str, summary: str, of_none: bool, op_type: str) -> Callable[..., Symbol]:
    """Declare the reduction of truth values."""
    doc = f"""{summary}, that is, not 0.

    Args:
        x: Any shape, bools or numbers; NaN is true.
        axis: One, several, or None for all.
        keepdims: Keep the axes, with length 1.

    Returns:
        Bool, {of_none} for no elements.

    Raises:
        ShapeError: For an invalid axis.
        DTypeError: For strings.

    ONNX {op_type}.
    """

    @op(onnx=op_type, rule="keep", name=name, doc=doc)
    def quantifier(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
        symbol = _as_bools(name, x)
        axes = axes_of(name, axis, symbol.rank, {"x": operand(name, x)})
        return _unambiguous(_emit_quantifier(op_type, symbol, axes, keepdims), symbol)

    return quantifier


any = _quantifier("any", "True if any element is true", False, "ReduceMax")
all = _quantifier("all", "True if all elements are true", True, "ReduceMin")


def _unambiguous(result: Symbol, truth: Symbol) -> Symbol:
    """Mark the result as not ambiguous: bool is its dtype even if that of the operand is only a default."""
    if result.ambiguous and result is truth:  # a scalar, returned unchanged
        return result.graph.build.emit("Cast", (result,), tensor_type(DType.bool, result.shape), {"to": DType.bool})
    return change(result, type=known_type(result.type))


def _emit_quantifier(op_type: str, truth: Symbol, axes: Sequence[int], keepdims: bool) -> Symbol:
    if builtins.all((truth.shape[a].lower_bound or 0) >= 1 for a in axes):
        return emit_reduction(op_type, truth, axes, keepdims)
    # onnxruntime fails to reduce no bools; the maximum and minimum of no uint8s are 0 and 255, the right truth values.
    number = truth.graph.build.cast(truth, DType.uint8, truth.ambiguous)
    return truth.graph.build.cast(emit_reduction(op_type, number, axes, keepdims), DType.bool, truth.ambiguous)


def _as_bools(name: str, x: TensorLike) -> Symbol:
    symbol = operand(name, x)
    if symbol.dtype is DType.string:
        raise DTypeError(
            f"{name} has no meaning for string",
            operands={"x": symbol},
            help="compare first: x == value returns bools",
        )
    return symbol.graph.build.cast(symbol, DType.bool)
