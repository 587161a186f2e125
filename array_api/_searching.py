"""Searching, sorting, sets and statistics of the array API standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from graphcore import ops
from graphcore.array_api._eager import Tensor, as_arrays, function, met
from graphcore.array_api._manipulation import checked_axis
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ops.sorting import runs_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "isin",
    "max",
    "mean",
    "min",
    "nonzero",
    "prod",
    "searchsorted",
    "sort",
    "std",
    "sum",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "var",
    "where",
]

# Sorting


@function
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis, always stably. x: numbers. Raises `ShapeError` for what is no axis."""
    return ops.sort(x, axis, descending)


@function
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions, in int64, at which the elements stand that `sort` gives."""
    return ops.argsort(x, axis, descending)


# Searching


@function
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position, in int64, of the greatest along an axis, or in all elements; the first of equal ones."""
    return ops.argmax(x, axis, keepdims)


@function
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The position, in int64, of the least along an axis, or in all elements; the first of equal ones."""
    return ops.argmin(x, axis, keepdims)


@function
def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the number of elements that are not 0, in int64."""
    return ops.count_nonzero(x, axis, keepdims)


@function
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The positions of the elements that are not 0: a vector of int64 for each axis, of a length known at run time.

    Raises `ShapeError` for a scalar.
    """
    rows = ops.nonzero(x)
    return tuple(rows[:, axis] for axis in range(x.ndim))


@function
def _where(condition: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    return ops.where(condition, x1, x2)


def where(condition: Tensor, x1: Tensor, x2: Tensor, /) -> Tensor:
    """The elements of x1 where `condition` is true and those of x2 elsewhere.

    condition: bool. x1, x2: of dtypes that meet; one may be a Python scalar. All three broadcast. Raises
    `PromotionError` and `ShapeError` where they do not go together.
    """
    return _where(condition, *as_arrays("where", (x1, x2)))


@function
def _searchsorted(x1: Tensor, x2: Tensor, side: str, sorter: Tensor | None) -> Tensor:
    left, right = met("searchsorted", "join", x1, x2)
    if sorter is not None:
        left = ops.gather(left, sorter)
    # Sorted together, what stands before an element is those of x1 that it comes after, and some of x2 itself.
    asked = ops.reshape(right, -1)
    if side == "left":
        together = _inverse(ops.argsort(ops.concat([asked, left])))
        place = together[: ops.gather(ops.shape_of(asked), 0)]
    else:
        together = _inverse(ops.argsort(ops.concat([left, asked])))
        place = together[ops.gather(ops.shape_of(left), 0) :]
    return ops.reshape_like(ops.sub(place, _inverse(ops.argsort(asked))), right)


def _inverse(order: Symbol) -> Symbol:
    """The permutation that undoes one."""
    return ops.argsort(order)


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """The positions, in int64, at which elements would have to stand in a sorted vector.

    x1: a vector of numbers in order, or with `sorter` one that its positions put in order. x2: numbers of any shape,
    or one. side: "left" of those that are equal, or "right". NaN is above all. Raises `ShapeError` for what is no
    vector and for another side, `PromotionError` where the dtypes do not meet.
    """
    if side not in ("left", "right"):
        raise ShapeError(f"searchsorted: there is no side {side!r}", help='use "left" or "right"')
    if x1.ndim != 1:
        raise ShapeError(f"searchsorted: an array of rank {x1.ndim} is no vector", operands={"x1": x1})
    left, right = as_arrays("searchsorted", (x1, x2))
    return _searchsorted(left, right, side, sorter)


# What is equal


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


@function
def unique_all(x: Tensor, /) -> UniqueAll:
    """The different values in order, where each is first, which of them each element is, and how often each is there.

    x: any shape; NaNs all differ, and -0.0 is 0.0. Returns vectors of a length known at run time, and
    `inverse_indices` in the shape of x; all positions and counts are int64.
    """
    return UniqueAll(*ops.unique(x))


@function
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different values in order, and how often each is there. See `unique_all`."""
    found = ops.unique(x)
    return UniqueCounts(found.values, found.counts)


@function
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different values in order, and which of them each element is. See `unique_all`."""
    found = ops.unique(x)
    return UniqueInverse(found.values, found.inverse)


@function
def unique_values(x: Tensor, /) -> Tensor:
    """The different values in order. See `unique_all`."""
    return ops.unique(x).values


@function
def _isin(x1: Tensor, x2: Tensor, invert: bool) -> Tensor:
    left, right = met("isin", "join", x1, x2)
    asked, known = ops.reshape(left, -1), ops.reshape(right, -1)
    # Sorted together, known elements first: a known one begins each run of equal elements that are among them.
    runs = runs_of(ops.concat([known, asked]))
    size = ops.gather(ops.shape_of(known), 0)
    found = ops.less(ops.gather(ops.gather(runs.order, runs.starts(Dim.dynamic())), runs.numbers), size)
    made = ops.reshape_like(runs.placed(found)[size:], left)
    return ops.logical_not(made) if invert else made


def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
    """Return whether each element of x1 is among those of x2; with `invert` whether it is not. NaN is among none.

    x1, x2: any shapes, of dtypes that meet; one may be an int. Returns bool in the shape of x1. Raises
    `PromotionError` where the dtypes do not meet.
    """
    left, right = as_arrays("isin", (x1, x2))
    return _isin(left, right, invert)


# The standard's statistical and utility functions: many numbers to one.


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
