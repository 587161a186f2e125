"""Searching, sorting, set, statistical and utility functions of the standard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from graphcore import ops
from graphcore.array_api._eager import Tensor, as_arrays, function, promote_pair, public
from graphcore.array_api._manipulation import check_axis
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.ops.sorting import runs_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType

# Sorting


@function
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sort the elements along an axis, always stably.

    Args:
        x: Numbers.

    Raises:
        ShapeError: For an invalid axis.
    """
    return ops.sort(x, axis, descending)


@function
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the int64 indices that `sort` an array along an axis."""
    return ops.argsort(x, axis, descending)


# Searching


@function
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the int64 index of the maximum along an axis, or in the flattened array; the first of equal ones."""
    return ops.argmax(x, axis, keepdims)


@function
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the int64 index of the minimum along an axis, or in the flattened array; the first of equal ones."""
    return ops.argmin(x, axis, keepdims)


@function
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the indices of nonzero elements: an int64 vector for each axis, with a length known at run time.

    Raises:
        ShapeError: For a scalar.
    """
    rows = ops.nonzero(x)
    return tuple(rows[:, axis] for axis in range(x.ndim))


@function(scalars=slice(1, 3))
def where(condition: Tensor, x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the elements of x1 where `condition` is true, and those of x2 elsewhere.

    Args:
        condition: Bool.
        x1: Of dtypes that promote to a common one; one can be a Python scalar.
        x2: Of dtypes that promote to a common one; one can be a Python scalar. All three broadcast.

    Raises:
        PromotionError, ShapeError: Otherwise.
    """
    return ops.where(condition, x1, x2)


@function
def _searchsorted(x1: Tensor, x2: Tensor, side: str, sorter: Tensor | None) -> Tensor:
    left, right = promote_pair("searchsorted", "join", x1, x2)
    if sorter is not None:
        left = ops.gather(left, sorter)
    # In the sorted concatenation, the elements before an element are those of x1 below it, and some of x2.
    values = ops.reshape(right, -1)
    if side == "left":
        ranks = _inverse(ops.argsort(ops.concat([values, left])))
        place = ranks[: ops.gather(ops.shape_of(values), 0)]
    else:
        ranks = _inverse(ops.argsort(ops.concat([left, values])))
        place = ranks[ops.gather(ops.shape_of(left), 0) :]
    return ops.reshape_like(ops.sub(place, _inverse(ops.argsort(values))), right)


def _inverse(order: Symbol) -> Symbol:
    """Return the inverse of a permutation."""
    return ops.argsort(order)


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return the int64 indices at which to insert elements in a sorted vector.

    Args:
        x1: A sorted vector of numbers, or with `sorter` a vector that these indices sort.
        x2: Numbers of any shape, or one number.
        side: "left" or "right" of equal elements. NaN is above all numbers.

    Raises:
        ShapeError: If x1 is not a vector and for another side.
        PromotionError: If there is no common dtype.
    """
    if side not in ("left", "right"):
        raise ShapeError(f"searchsorted: unknown side {side!r}", help='use "left" or "right"')
    if x1.ndim != 1:
        raise ShapeError(
            f"searchsorted: x1 must be a vector, got rank {x1.ndim}",
            operands={"x1": x1},
            help="flatten it: reshape(x1, (-1,))",
        )
    left, right = as_arrays("searchsorted", (x1, x2))
    return _searchsorted(left, right, side, sorter)


# Sets


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
    """Return the sorted unique values, their first indices, the index of each element among them, and their counts.

    Args:
        x: Any shape. NaNs are all different, and -0.0 equals 0.0.

    Returns:
        Vectors with a length known at run time, and `inverse_indices` with the shape of x; indices and counts are
        int64.
    """
    return UniqueAll(*ops.unique(x))


@function
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the sorted unique values, and their counts. See `unique_all`."""
    result = ops.unique(x)
    return UniqueCounts(result.values, result.counts)


@function
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the sorted unique values, and the index of each element among them. See `unique_all`."""
    result = ops.unique(x)
    return UniqueInverse(result.values, result.inverse)


@function
def unique_values(x: Tensor, /) -> Tensor:
    """Return the sorted unique values. See `unique_all`."""
    return ops.unique(x).values


@function(scalars=slice(0, 2))
def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
    """Return True for each element of x1 that is in x2; False with `invert`.

    NaN is in no array.

    Args:
        x1: Any shapes, of dtypes that promote to a common one; one can be an int.
        x2: As `x1`.

    Returns:
        Bool with the shape of x1.

    Raises:
        PromotionError: If there is no common dtype.
    """
    left, right = promote_pair("isin", "join", x1, x2)
    elements, test_elements = ops.reshape(left, -1), ops.reshape(right, -1)
    # In the stably sorted concatenation, a run of equal elements starts with one of test_elements if there is any.
    runs = runs_of(ops.concat([test_elements, elements]))
    size = ops.gather(ops.shape_of(test_elements), 0)
    is_member = ops.less(ops.gather(ops.gather(runs.order, runs.starts(Dim.dynamic())), runs.numbers), size)
    result = ops.reshape_like(runs.placed(is_member)[size:], left)
    return ops.logical_not(result) if invert else result


# Statistical functions


Axes: TypeAlias = int | Sequence[int] | None
"""The axes to reduce: one, several, or None for all."""


def _reduction(name: str, body: Callable[..., Symbol], doc: str) -> Callable[..., Tensor]:
    """Return a function that reduces axes, from one of `graphcore.ops`."""

    def reduced(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        return body(x, axis=axis, keepdims=keepdims)

    reduced.__name__ = reduced.__qualname__ = name
    reduced.__doc__ = doc
    return function(reduced)


_EXTREME = """Return the {} over axes; propagates NaN.

    Raises:
        ShapeError: For axes of length 0.
    """

all = _reduction(
    "all", ops.all, "Return True if all elements are nonzero, also without elements. NaN counts as nonzero."
)
any = _reduction("any", ops.any, "Return True if any element is nonzero. NaN counts as nonzero.")
count_nonzero = _reduction("count_nonzero", ops.count_nonzero, "Return the number of nonzero elements, in int64.")
max = _reduction("max", ops.max, _EXTREME.format("maximum"))
min = _reduction("min", ops.min, _EXTREME.format("minimum"))
mean = _reduction("mean", ops.mean, "Return the arithmetic mean of floats over axes. An empty mean is NaN.")


def _summable(x: Symbol, dtype: DType | None) -> Symbol:
    """Cast x to the dtype of sums and products: `dtype`, or for integers int64 or uint64."""
    if dtype is not None:
        return ops.cast(x, dtype)
    if x.dtype.is_signed and x.dtype.bits < 64:
        return ops.cast(x, DType.int64)
    if x.dtype.is_unsigned and x.dtype.bits < 64:
        return ops.cast(x, DType.uint64)
    return x


@function
def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the sum over axes.

    Args:
        x: Numbers of any shape.
        axis: One, several, or None for all.
        dtype: Of the result; by default that of x, and int64 or uint64 for integers.
        keepdims: Keep the axes with length 1. An empty sum is 0.
    """
    return ops.sum(_summable(x, dtype), axis, keepdims)


@function
def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the product over axes. An empty product is 1. Arguments are those of `sum`."""
    return ops.prod(_summable(x, dtype), axis, keepdims)


@function
def var(x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance of floats over axes.

    Args:
        correction: The divisor is the number of elements minus the correction.
    """
    return ops.var(x, axis, correction, keepdims)


@function
def std(x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation of floats over axes. See `var`."""
    return ops.stdev(x, axis, correction, keepdims)


@function
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the cumulative sum along an axis.

    Args:
        x: Numbers.
        axis: None for the only axis of a vector.
        dtype: As for `sum`.
        include_initial: Start with a 0.
    """
    at = check_axis("cumulative_sum", axis, x)
    return _with_initial(ops.cumsum(_summable(x, dtype), at), at, 0, include_initial)


@function
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the cumulative product along an axis.

    Args:
        include_initial: Start with a 1. See `cumulative_sum`.
    """
    at = check_axis("cumulative_prod", axis, x)
    return _with_initial(ops.cumprod(_summable(x, dtype), at), at, 1, include_initial)


def _with_initial(x: Symbol, axis: int, value: int, include: bool) -> Symbol:
    if not include:
        return x
    return ops.pad(x, [(int(i == axis), 0) for i in range(x.rank)], value=value)


# Utility functions


@function
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the n-th differences of neighbours along an axis.

    Args:
        x: Numbers of rank 1 or more.
        prepend: Arrays of the same rank to concatenate before and after x first.
        append: As `prepend`.

    Raises:
        ShapeError: For an invalid axis.
    """
    at = check_axis("diff", axis, x)
    parts = [part for part in (prepend, x, append) if part is not None]
    result = ops.concat(parts, at) if len(parts) > 1 else x
    for _ in range(n):
        before = (slice(None),) * at
        result = result[(*before, slice(1, None))] - result[(*before, slice(None, -1))]
    return result


__all__ = public(globals())
