"""The rules for Python scalars that the three packages share."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.errors import DTypeError
from graphcore.promotion.rules import IN_PARTS, ORDERED, Key, NoPromotion, Operand, Scalar, check_literal
from graphcore.support.escaping import text_of
from graphcore.types.dtypes import DType, real_of


def check_scalar(value: Scalar, dtype: DType) -> None:
    """Raise `NoPromotion` for a Python scalar that `dtype` cannot hold: ints that a float rounds are taken."""
    part = real_of(dtype)
    if type(value) is not int or not part.is_float:
        check_literal(value, dtype)
        return
    try:
        check_literal(float(value), dtype)
    except (NoPromotion, OverflowError):
        raise NoPromotion(
            f"{text_of(value)} cannot be held in {dtype}",
            help=f"{dtype} holds {part.min} to {part.max}; cast the Symbol to a wider dtype first",
            error=DTypeError,
        ) from None


def check_power(key: Key, operands: Sequence[Operand], met: DType, words: str) -> None:
    """Raise `NoPromotion` for an integer to the power of a negative Python int, in the package's words."""
    power = operands[-1].literal
    if key.op == "pow" and met.is_integer and type(power) is int and power < 0:
        raise NoPromotion(words, help="cast the base to a float first: .cast(DType.float64)", error=DTypeError)


def check_order(key: Key, dtype: DType, package: str, sorts: frozenset[str] = frozenset()) -> None:
    """Raise `NoPromotion` for an op that asks for an order of complex numbers.

    sorts: the ops for which the package takes them in the order of their real, and then their imaginary parts.
    """
    if not dtype.is_complex or key.op not in ORDERED:
        return
    if key.op in sorts:
        raise NoPromotion(
            f"{package} compares the real parts of {dtype} first, then the imaginary ones; here complex numbers have "
            "no order",
            help=IN_PARTS,
            error=DTypeError,
        )
    raise no_meaning(key, dtype, package, IN_PARTS)


def no_meaning(key: Key, dtype: DType, package: str, help: str) -> NoPromotion:
    """Return the refusal of an op that a package has not for a dtype."""
    return NoPromotion(f"{key.op} has no meaning for {dtype} in {package}", help=help, error=DTypeError)
