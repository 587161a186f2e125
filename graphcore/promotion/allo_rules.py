"""The rules of Allo's two styles: the common dtype of operands by operator.

Integers have any width, and bool is the unsigned integer of one bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from graphcore.errors import DTypeError
from graphcore.promotion.rules import NoPromotion
from graphcore.types.dtypes import MAX_BITS, DType


class Style(Protocol):
    """The attributes of a style that rules use."""

    revision: str
    keeps_sign: bool
    """Signed with unsigned integers promote to signed ones."""


FLOATS = (DType.float16, DType.bfloat16, DType.float32, DType.float64)

Rule = Callable[[Style, Sequence[DType]], DType | None]
"""Returns the common dtype of operands of an operator, None if there is no rule."""


def is_integer(dtype: DType) -> bool:
    """Return True for an integer of any width, including bool, excluding index."""
    return dtype is DType.bool or (dtype.is_integer and dtype is not DType.index and dtype is not DType.address)


def integer(bits: int, signed: bool) -> DType:
    """Return the integer dtype of a width; unsigned with 1 bit is bool. Raises `NoPromotion` for too many bits."""
    if bits > MAX_BITS:
        raise NoPromotion(
            f"the result would have {bits} bits; integers have {MAX_BITS} bits at most",
            help="cast the operands to the width that is needed: .cast(DType.int(64))",
            error=DTypeError,
        )
    return DType.int(bits) if signed else DType.bool if bits == 1 else DType.uint(bits)


# Two operands


def _common_integer(system: Style, dtypes: Sequence[DType]) -> DType | None:
    lhs, rhs = dtypes
    if not (is_integer(lhs) and is_integer(rhs)):
        return None
    if lhs.is_signed is rhs.is_signed:
        return integer(max(lhs.bits, rhs.bits), lhs.is_signed)
    signed, unsigned = (lhs, rhs) if lhs.is_signed else (rhs, lhs)
    if system.keeps_sign:
        return integer(max(signed.bits, unsigned.bits + 1), True)
    return integer(unsigned.bits, False) if unsigned.bits >= signed.bits else integer(signed.bits, True)


def common_numeric(system: Style, dtypes: Sequence[DType]) -> DType | None:
    lhs, rhs = dtypes
    if lhs is DType.index or rhs is DType.index:
        other = rhs if lhs is DType.index else lhs
        return DType.index if other is DType.index or is_integer(other) else None
    if lhs.is_float and rhs.is_float:
        return rhs if rhs.bits > lhs.bits else lhs  # float16 and bfloat16: the left one
    if lhs.is_float or rhs.is_float:
        return lhs if lhs.is_float else rhs
    return _common_integer(system, dtypes)


def _common_bits(system: Style, dtypes: Sequence[DType]) -> DType | None:
    lhs, rhs = dtypes
    return DType.index if lhs is DType.index and rhs is DType.index else _common_integer(system, dtypes)


def _left(system: Style, dtypes: Sequence[DType]) -> DType | None:
    lhs, rhs = dtypes
    if lhs is DType.index:
        return lhs if rhs is DType.index and system.revision == "seed" else None
    return lhs if is_integer(lhs) and (is_integer(rhs) or rhs is DType.index) else None


def _truth(system: Style, dtypes: Sequence[DType]) -> DType | None:
    indices = [d for d in dtypes if d is DType.index]
    return DType.bool if len(indices) in (0, len(dtypes)) else None


# One operand


def _negated(system: Style, dtypes: Sequence[DType]) -> DType | None:
    (own,) = dtypes
    return integer(own.bits + 1, True) if is_integer(own) else own if own.is_float else None


def _same_bits(system: Style, dtypes: Sequence[DType]) -> DType | None:
    (own,) = dtypes
    return own if is_integer(own) or (own is DType.index and system.revision == "seed") else None


def _special(system: Style, dtypes: Sequence[DType]) -> DType | None:
    (own,) = dtypes
    if is_integer(own):
        return DType.float32 if own.bits <= 32 else DType.float64
    return own if own.is_float else None


def _special_or_index(system: Style, dtypes: Sequence[DType]) -> DType | None:
    # In Allo an index is very wide, therefore it becomes the wider float.
    return DType.float64 if dtypes[0] is DType.index else _special(system, dtypes)


NUMERIC = ("add", "sub", "mul", "div", "floordiv", "mod", "max", "min")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
SHIFTS = ("lshift", "rshift")
LOGICAL = ("logical_and", "logical_or", "logical_not")
SPECIAL = (
    "sin", "cos", "tan", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "reciprocal", "square", "floor", "ceil", "erf",
    "sinh", "cosh", "tanh",
)  # fmt: skip
"""The last three are of a later revision and follow the same rule."""

HLS: dict[str, Rule] = {
    **dict.fromkeys((*NUMERIC, *COMPARISONS), common_numeric),
    "pow": lambda system, dtypes: None if DType.index in dtypes else common_numeric(system, dtypes),
    **dict.fromkeys(BITWISE, _common_bits),
    **dict.fromkeys(SHIFTS, _left),
    **dict.fromkeys(LOGICAL, _truth),
    "neg": _negated,
    "invert": _same_bits,
    "pos": lambda system, dtypes: dtypes[0],
    "abs": lambda system, dtypes: None if dtypes[0] is DType.index else dtypes[0],
    **dict.fromkeys(SPECIAL, _special),
}
"""The rules of hls by operator; sums and products of integers follow `sum_type` and `product_type` instead."""

CPP: dict[str, Rule] = {**HLS, "pow": common_numeric, "neg": HLS["pos"], **dict.fromkeys(SPECIAL, _special_or_index)}
"""The rules of cpp: those of hls with the differences."""


# Whole expressions


def sum_type(dtypes: Collection[DType], negated: Collection[bool], count: int | None = None) -> DType:
    """Return the integer dtype for every sum of integers of these dtypes, some of them subtracted.

    count: the number of terms, if `dtypes` lists each dtype once.
    """
    signed = any(negated) or any(d.is_signed for d in dtypes)
    widest = max(d.bits + 1 if signed and not d.is_signed else d.bits for d in dtypes)
    terms = len(dtypes) if count is None else count
    return integer(widest + (terms - 1).bit_length(), signed)


def product_type(dtypes: Sequence[DType]) -> DType:
    """Return the integer dtype for every product of integers of these dtypes."""
    return integer(sum([d.bits for d in dtypes]), any(d.is_signed for d in dtypes))
