"""The dtypes of results: what ops of each rule give on operands that meet in a dtype."""

from __future__ import annotations

from graphcore.errors import DTypeError
from graphcore.promotion.rules.question import Key, NoPromotion, Resolution
from graphcore.types.dtypes import DType


def smallest_float(dtype: DType) -> DType:
    """Return the dtype of a real function of `dtype`: a float stays; otherwise the width decides.

    8 bits give float16, 16 float32, and all else float64; complex numbers stay too. See docs/numbers.md.
    """
    if dtype.is_float or dtype.is_complex:
        return dtype
    return DType.float16 if dtype.bits <= 8 else DType.float32 if dtype.bits <= 16 else DType.float64


def _same(dtype: DType, count: int) -> Resolution:
    return Resolution((dtype,) * count, dtype)


def _numbers_only(key: Key, dtype: DType) -> None:
    if dtype is DType.string:
        fix = "ops.string_concat puts strings together" if key.op == "add" else "use numbers or bools"
        raise NoPromotion(f"{key.op} has no meaning for string", help=fix, error=DTypeError)


def _arithmetic(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(dtype, count)


def _subtract(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    if dtype is DType.bool:
        raise NoPromotion(
            f"{key.op} has no meaning for bool",
            help="use ^ for the difference of bools and ~ for the opposite, or cast to int8: .cast(DType.int8)",
            error=DTypeError,
        )
    return _same(dtype, count)


def _divide(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(dtype if dtype.is_float or dtype.is_complex else DType.float64, count)


def _compare(key: Key, dtype: DType, count: int) -> Resolution:
    if key.op not in ("equal", "not_equal"):
        _numbers_only(key, dtype)
    return Resolution((dtype,) * count, DType.bool)


def _bitwise(key: Key, dtype: DType, count: int) -> Resolution:
    if not dtype.is_integer and dtype is not DType.bool:
        raise NoPromotion(
            f"{key.op} works on the bits of integers and bools; the operands meet in {dtype}",
            help=to_integers(dtype, "cast to an integer of the width you mean: .cast(DType.int32)"),
            error=DTypeError,
        )
    return _same(dtype, count)


def to_integers(dtype: DType, help: str) -> str:
    """Return a way to integers: of complex numbers by a part, of others as said."""
    return "take a part, and cast it to an integer: ops.real(z).cast(DType.int32)" if dtype.is_complex else help


def _logical(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(DType.bool, count)


def _float(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(smallest_float(dtype), count)


def _test(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return Resolution((smallest_float(dtype),) * count, DType.bool)


def _number(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(dtype, count)


def _keep(key: Key, dtype: DType, count: int) -> Resolution:
    return _same(dtype, count)


def _sum(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    # As in NumPy the sum of bools counts them; bool + bool is *or*.
    return _same(DType.int64 if dtype is DType.bool else dtype, count)


def _mean(key: Key, dtype: DType, count: int) -> Resolution:
    _numbers_only(key, dtype)
    return _same(dtype if dtype.is_float or dtype.is_complex else DType.float64, count)


RULES = {
    "join": _keep,
    "arithmetic": _arithmetic,
    "subtract": _subtract,
    "divide": _divide,
    "compare": _compare,
    "bitwise": _bitwise,
    "logical": _logical,
    "float": _float,
    "test": _test,
    "number": _number,
    "keep": _keep,
    "sum": _sum,
    "mean": _mean,
}
