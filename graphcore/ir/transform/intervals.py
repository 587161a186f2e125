"""Intervals of numbers, and the numbers of a dtype that they are rounded to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from graphcore.types.dtypes import DType


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers that the elements of a value can have; unpacks to `low, high`.

    Attributes:
        low: The lower bound; -inf if there is none.
        high: The upper bound; inf if there is none.
        may_be_nan: True unless it is proved that no element is NaN.
    """

    low: float
    high: float
    may_be_nan: bool = False

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.high))

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(-self.low, self.high)

    @property
    def has_zero(self) -> bool:
        return self.low <= 0 <= self.high

    @property
    def is_infinite(self) -> bool:
        return math.isinf(self.magnitude)

    def __or__(self, other: Interval) -> Interval:
        """Return the smallest interval with both."""
        is_nan = self.may_be_nan or other.may_be_nan
        return Interval(min(self.low, other.low), max(self.high, other.high), is_nan)

    def __add__(self, other: Interval) -> Interval:
        is_opposite = -math.inf in (self.low, other.low) and math.inf in (self.high, other.high)
        is_nan = self.may_be_nan or other.may_be_nan or is_opposite
        return Interval(self.low + other.low, self.high + other.high, is_nan)

    def __sub__(self, other: Interval) -> Interval:
        return self + combine(np.negative, other)

    def __mul__(self, other: Interval) -> Interval:
        return combine(np.multiply, self, other)

    def __truediv__(self, other: Interval) -> Interval:
        quotients = combine(np.divide, self, other)
        return Interval(*ANY, quotients.may_be_nan) if other.has_zero else quotients


ANY = (-math.inf, math.inf)
ZERO = Interval(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Format:
    """The numbers of a dtype. precision: the digits of floats, 0 for integers. tiny: the smallest normal float."""

    dtype: DType
    least: float
    largest: float
    precision: int
    tiny: float
    has_infinity: bool

    @property
    def unit(self) -> float:
        """The relative error of a rounding; 0 for integers, which wrap."""
        return 2.0**-self.precision if self.precision else 0.0

    @property
    def whole(self) -> Interval:
        """The interval of an unknown value."""
        return Interval(*(ANY if self.has_infinity else (self.least, self.largest)), self.precision > 0)

    def enclose(self, interval: Interval) -> Interval:
        """Return the interval of results after rounding to the dtype, or wrapping."""
        ends = np.array([-interval.low, interval.high])
        if self.precision:
            # A subnormal bound becomes 0 or the smallest normal number, since devices may flush to 0.
            step = np.where(np.abs(ends) < self.tiny, self.tiny, np.ldexp(1.0, np.frexp(ends)[1] - self.precision))
            up = np.where(np.isfinite(ends), np.ceil(ends / step) * step, ends)
        else:
            up = np.where(np.abs(ends) < 1 << 53, np.ceil(ends), np.nextafter(ends, math.inf))
        low, high = -float(up[0]), float(up[1])
        is_known = self.least <= low and high <= self.largest and not (interval.may_be_nan and not self.precision)
        if not (is_known or self.has_infinity):  # integers wrap, other floats saturate or become NaN
            return self.whole
        low = -math.inf if low < self.least else min(low, self.largest)
        return Interval(low, math.inf if high > self.largest else max(high, self.least), interval.may_be_nan)


@cache
def format_of(dtype: DType) -> Format | None:
    """Return the format of a dtype; None for strings and complex numbers, which have no order."""
    if dtype is DType.string or dtype.is_complex:
        return None
    if not dtype.is_float:
        ends = (dtype.min, dtype.max) if dtype.bits < 1000 else ANY
        return Format(dtype, float(ends[0]), float(ends[1]), 0, 1.0, False)
    import ml_dtypes  # slow

    info = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    precision = 11 if dtype is DType.tensor_float32 else int(info.nmant) + 1
    has_infinity = bool(np.isinf(np.array(math.inf).astype(dtype.numpy)))
    return Format(dtype, float(dtype.min), float(dtype.max), precision, float(info.smallest_normal), has_infinity)


def interval_of(array: np.ndarray[Any, Any]) -> Interval | None:
    """Return the interval of the elements of an array; None if it has none, or NaN."""
    if not array.size or array.dtype == object:
        return None
    array = array.astype(np.float32) if array.dtype.kind == "V" else array  # dtypes of ml_dtypes
    low, high = float(array.min()), float(array.max())
    return Interval(low, high) if low <= high else None


def hull(values: Any, may_be_nan: bool) -> Interval:
    """Return the interval of values, in which NaN stands for results with the limit 0."""
    values = np.asarray(values, np.float64)
    is_nan = np.isnan(values)
    values = np.where(is_nan, 0.0, values)
    return Interval(float(values.min()), float(values.max()), may_be_nan or bool(is_nan.any()))


def points(x: Interval, *turns: float) -> np.ndarray[Any, Any]:
    """Return the ends, and 0 and the turning points between them."""
    return np.array([*x, *(min(max(turn, x.low), x.high) for turn in (0.0, *turns))])


def combine(function: Callable[..., Any], *operands: Interval) -> Interval:
    """Return the interval of a function that is monotone in each operand on both sides of 0."""
    return hull(function(*np.ix_(*map(points, operands))), any(x.may_be_nan for x in operands))
