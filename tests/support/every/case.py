"""The cases of ops, and how the dtypes of results follow from operands.

A case calls an op on Symbols of one dtype, whose first dims have names, and tells the result from a formula of exact
numbers: extended floats, Python integers, and 0 or 1 for bools. `tests.support.reference` rounds or wraps what comes
out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import DType, Symbol
from graphcore.promotion.max import DTYPES
from tests.support import reference

Array = np.ndarray[Any, Any]
D = DType
ALL = (*DTYPES, D.int4, D.uint4, D.float8_e4m3fn, D.float8_e5m2)
SMALL = (D.float6_e2m3fn, D.float6_e3m2fn, D.float4_e2m1)
"""Floats that models have: the library's ops compute in them too."""
FLOATS = frozenset(d for d in (*ALL, *SMALL) if d.is_float)
INTEGERS = frozenset(d for d in ALL if d.is_integer)
BOOL = frozenset({D.bool})
NONE: frozenset[DType] = frozenset()

SIZES = {"n": 5, "m": 3, "k": 2, "b": 2, "h": 6, "w": 5}
"""The named dims of operands when a case is run."""


@dataclass(frozen=True, slots=True)
class Operand:
    """dims: sizes and names, such as "n 4". values: which numbers it holds. dtype: its own, if not the case's."""

    dims: str
    values: str | Callable[[DType], Array] = "any"
    dtype: DType | None = None

    @property
    def shape(self) -> list[int | str]:
        return [int(d) if d.isdigit() else d for d in self.dims.split()]

    def array(self, dtype: DType, seed: int) -> Array:
        """Its numbers, of the case's dtype or its own."""
        sizes = [SIZES[d] if isinstance(d, str) else d for d in self.shape]
        own = self.dtype or dtype
        if callable(self.values):
            return self.values(own)
        return VALUES[self.values](own, int(np.prod(sizes)), seed).reshape(sizes)


def _any(dtype: DType, count: int, seed: int) -> Array:
    return reference.samples(dtype, count, seed)


def _whole(dtype: DType, count: int, seed: int) -> Array:
    """Numbers whose sums and products are exact in every dtype they are summed in."""
    random = np.random.default_rng(seed)
    low = 0 if dtype.is_unsigned or dtype is D.bool else -3
    return random.integers(low, 4, count).astype(np.float32).astype(dtype.numpy)


def _ring(dtype: DType, count: int, seed: int) -> Array:
    """Numbers whose sums and products are exact, or wrap: any integers."""
    return _whole(dtype, count, seed) if dtype.is_float else _any(dtype, count, seed)


def _positive(dtype: DType, count: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(1, 4, count).astype(np.float32).astype(dtype.numpy)


def _unit(dtype: DType, count: int, seed: int) -> Array:
    """Numbers of every size that occurs in practice."""
    if not dtype.is_float:
        return _whole(dtype, count, seed)
    drawn = np.random.default_rng(seed).uniform(-3, 3, count)
    return reference.rounded(drawn.astype(np.longdouble), dtype)


def _tame(dtype: DType, count: int, seed: int) -> Array:
    """Extreme and random numbers, but none whose sine loses its digits: that is to the reduction in any library."""
    x = reference.samples(dtype, count, seed)
    if not dtype.is_float:
        return x
    wide = x.astype(np.float64)
    return np.where(np.abs(wide) > 80, np.sign(wide), wide).astype(dtype.numpy)


VALUES: dict[str, Callable[[DType, int, int], Array]] = {
    "any": _any, "whole": _whole, "ring": _ring, "positive": _positive, "unit": _unit, "tame": _tame,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """call: of Symbols. want: of the dtype and the operands' arrays. gives: the results' dtypes, by the operands'."""

    operands: tuple[Operand, ...]
    call: Callable[..., Any]
    want: Callable[..., Any]
    gives: Callable[[DType], DType]
    refused: frozenset[DType] = NONE
    near: bool = False
    """Compared by docs/numbers.md, point 6, not bit for bit: 4 units in the last place of float32, then rounded."""

    def arrays(self, dtype: DType, seed: int = 3) -> list[Array]:
        return [operand.array(dtype, seed + 10 * i) for i, operand in enumerate(self.operands)]

    def results(self, symbols: Sequence[Symbol]) -> tuple[Symbol, ...]:
        result = self.call(*symbols)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def wanted(self, dtype: DType, arrays: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            result = self.want(dtype, *arrays)
        return tuple(map(np.asarray, result)) if isinstance(result, (tuple, list)) else (np.asarray(result),)


# What the operands of an op become, and its result


def own(dtype: DType) -> DType:
    return dtype


def smallest_float(dtype: DType) -> DType:
    if dtype.is_float:
        return dtype
    return D.float16 if dtype.bits <= 8 else D.float32 if dtype.bits <= 16 else D.float64


def double_of_integers(dtype: DType) -> DType:
    return dtype if dtype.is_float else D.float64


def counted(dtype: DType) -> DType:
    return D.int64 if dtype is D.bool else dtype


def to_bool(dtype: DType) -> DType:
    return D.bool


def to_int64(dtype: DType) -> DType:
    return D.int64


def exact(x: Array) -> Array:
    """Extended floats, Python integers, and 0 or 1."""
    if x.dtype == bool or (x.dtype.itemsize == 1 and "int" in x.dtype.name):
        return x.astype(np.int16).astype(object)
    return x.astype(object) if x.dtype.kind in "iu" else reference.exact(x)


def back(numbers: Any, dtype: DType) -> Array:
    """Exact numbers in a dtype: rounded once, wrapped, or not 0."""
    array = np.asarray(numbers)
    if dtype is D.bool:
        return np.asarray(array != 0, bool)
    if dtype.is_float:
        return reference.rounded(array.astype(np.longdouble), dtype)
    return reference.wrapped(array, dtype)


# Kinds of cases, by what the operands of the formula are


def operands(*arguments: str | Operand) -> tuple[Operand, ...]:
    """Operands out of "dims" or "dims: values"."""
    results = []
    for text in arguments:
        if isinstance(text, str):
            dims, _, values = text.partition(":")
            text = Operand(dims.strip(), values.strip() or "any")
        results.append(text)
    return tuple(results)


def moved(
    value: Sequence[str | Operand],
    call: Callable[..., Any],
    formula: Callable[..., Any],
    refused: frozenset[DType] = NONE,
) -> Case:
    """An op that puts elements elsewhere: the formula is of NumPy's arrays."""
    return Case(operands(*value), call, lambda dtype, *x: formula(*x), own, refused)


def number(
    value: Sequence[str | Operand],
    call: Callable[..., Any],
    formula: Callable[..., Any],
    gives: Callable[[DType], DType] = own,
    refused: frozenset[DType] = NONE,
    near: bool = False,
) -> Case:
    """An op computed in the dtype of its operands: the formula is of exact numbers."""

    def want(dtype: DType, *x: Array) -> Any:
        result = formula(*map(exact, x))
        results = result if isinstance(result, tuple) else (result,)
        return tuple(back(r, gives(dtype)) for r in results)

    return Case(operands(*value), call, want, gives, refused, near)


def real(
    value: Sequence[str | Operand],
    call: Callable[..., Any],
    formula: Callable[..., Any],
    gives: Callable[[DType], DType] = smallest_float,
    near: bool = True,
    refused: frozenset[DType] = NONE,
) -> Case:
    """An op of floats, to which integers are cast first: the formula is of extended floats."""
    kinds = operands(*value)

    def want(dtype: DType, *x: Array) -> Any:
        target = gives(dtype)
        result = formula(*(reference.exact(reference.cast(v, dtype, target)) for v in x))
        results = result if isinstance(result, tuple) else (result,)
        return tuple(reference.rounded(np.asarray(r).astype(np.longdouble), target) for r in results)

    return Case(kinds, call, want, gives, refused, near)


def truth(value: Sequence[str | Operand], call: Callable[..., Any], formula: Callable[..., Any], **rest: Any) -> Case:
    """An op whose result is a truth about exact numbers."""
    return number(value, call, formula, to_bool, **rest)


def place(value: Sequence[str | Operand], call: Callable[..., Any], formula: Callable[..., Any], **rest: Any) -> Case:
    """An op whose result counts or says where something is."""
    return number(value, call, formula, to_int64, **rest)
