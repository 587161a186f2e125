"""The rules for Python scalars that the three packages share."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.errors import DTypeError
from graphcore.promotion.system import Key, NoPromotion, Operand, Scalar, check_literal, no_complex
from graphcore.types.dtypes import DType


def refuse_complex(package: str, operands: Sequence[Operand]) -> None:
    """Raise `NoPromotion` for complex numbers: the package has them, and its table here has not."""
    for operand in operands:
        if operand.dtype is not None and operand.dtype.is_complex:
            raise no_complex(package, operand.dtype)
        if type(operand.literal) is complex:
            raise no_complex(package)


def check_scalar(value: Scalar, dtype: DType) -> None:
    """Raise `NoPromotion` for a Python scalar that `dtype` cannot hold: ints that a float rounds are taken."""
    if type(value) is not int or not dtype.is_float:
        check_literal(value, dtype)
        return
    try:
        check_literal(float(value), dtype)
    except (NoPromotion, OverflowError):
        raise NoPromotion(
            f"{value!r} cannot be held in {dtype}",
            help=f"{dtype} holds {dtype.min} to {dtype.max}; cast the Symbol to a wider dtype first",
            error=DTypeError,
        ) from None


def check_power(key: Key, operands: Sequence[Operand], met: DType, words: str) -> None:
    """Raise `NoPromotion` for an integer to the power of a negative Python int, in the package's words."""
    power = operands[-1].literal
    if key.op == "pow" and met.is_integer and type(power) is int and power < 0:
        raise NoPromotion(words, help="cast the base to a float first: .cast(DType.float64)", error=DTypeError)


def no_meaning(key: Key, dtype: DType, package: str, help: str) -> NoPromotion:
    """Return the refusal of an op that a package has not for a dtype."""
    return NoPromotion(f"{key.op} has no meaning for {dtype} in {package}", help=help, error=DTypeError)
