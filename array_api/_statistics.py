"""The standard's statistical and utility functions: many numbers to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from graphcore import ops
from graphcore.array_api._eager import Tensor, function
from graphcore.array_api._manipulation import checked_axis
from graphcore.ir.symbol import Symbol
from graphcore.types.dtypes import DType

__all__ = [
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip

Axes: TypeAlias = int | Sequence[int] | None
"""The axes to reduce: one, several, or None for all."""


def _summable(x: Symbol, dtype: DType | None) -> Symbol:
    """x in the dtype that sums and products are of: at least the default integer of its sign."""
    if dtype is not None:
        return ops.cast(x, dtype)
    if x.dtype.is_signed and x.dtype.bits < 64:
        return ops.cast(x, DType.int64)
    if x.dtype.is_unsigned and x.dtype.bits < 64:
        return ops.cast(x, DType.uint64)
    return x


@function
def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The sum over axes.

    x: numbers of any shape. axis: one, several, or None for all. dtype: of the result, by default that of floats, and
    int64 or uint64 for integers. keepdims: leave the axes in, with length 1. An empty sum is 0.
    """
    return ops.sum(_summable(x, dtype), axis, keepdims)


@function
def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The product over axes. An empty product is 1. All else is as in `sum`."""
    return ops.prod(_summable(x, dtype), axis, keepdims)


@function
def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over axes, of floats. An empty mean is NaN."""
    return ops.mean(x, axis, keepdims)


@function
def var(x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: bool = False) -> Tensor:
    """The mean squared distance from the mean over axes, of floats.

    correction: what is taken from the number of elements before dividing by it.
    """
    return ops.var(x, axis, correction, keepdims)


@function
def std(x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of the variance over axes. See `var`."""
    return ops.stdev(x, axis, correction, keepdims)


@function
def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The greatest over axes; NaN wins. Raises `ShapeError` for axes of length 0."""
    return ops.max(x, axis=axis, keepdims=keepdims)


@function
def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The least over axes; NaN wins. Raises `ShapeError` for axes of length 0."""
    return ops.min(x, axis=axis, keepdims=keepdims)


@function
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """The running sum along an axis.

    x: numbers. axis: None for the only axis of a vector. dtype: as for `sum`. include_initial: with a 0 in front.
    """
    at = checked_axis("cumulative_sum", axis, x)
    return _with_initial(ops.cumsum(_summable(x, dtype), at), at, 0, include_initial)


@function
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """The running product along an axis. include_initial: with a 1 in front. All else is as in `cumulative_sum`."""
    at = checked_axis("cumulative_prod", axis, x)
    return _with_initial(ops.cumprod(_summable(x, dtype), at), at, 1, include_initial)


def _with_initial(x: Symbol, axis: int, value: int, is_wanted: bool) -> Symbol:
    if not is_wanted:
        return x
    return ops.pad(x, [(int(i == axis), 0) for i in range(x.rank)], value=value)


# Truth and differences


@function
def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements are true, that is not 0; NaN is true. The result is bool, True for no elements."""
    return ops.all(x, axis, keepdims)


@function
def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether any element is true, that is not 0; NaN is true. The result is bool, False for no elements."""
    return ops.any(x, axis, keepdims)


@function
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours along an axis, taken n times.

    x: numbers of rank 1 or more. prepend, append: of its rank, put before and after it first. Raises `ShapeError` for
    what is no axis.
    """
    at = checked_axis("diff", axis, x)
    parts = [part for part in (prepend, x, append) if part is not None]
    made = ops.concat(parts, at) if len(parts) > 1 else x
    for _ in range(n):
        before = (slice(None),) * at
        made = made[(*before, slice(1, None))] - made[(*before, slice(None, -1))]
    return made
