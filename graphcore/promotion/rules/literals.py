"""The dtypes of Python numbers: their own, and those that hold them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from graphcore.errors import DTypeError
from graphcore.promotion.rules.question import NoPromotion, Scalar
from graphcore.types.dtypes import MOST_BITS, DType
from graphcore.types.long_integers import text_of


def default_dtype(literals: Iterable[Scalar]) -> DType:
    """The dtype of Python scalars that meet no Symbol: bool, int64, float32 as ONNX exporters have it, or complex64."""
    kinds = {type(value) for value in literals}
    if complex in kinds:
        return DType.complex64
    if float in kinds:
        return DType.float32
    return DType.int64 if int in kinds else DType.bool


def no_complex(system: str, dtype: DType | None = None) -> NoPromotion:
    """Return the refusal of complex numbers by a system that has none, which names those that have."""
    return NoPromotion(
        f"{system} has no {dtype or 'complex numbers'}",
        help='build the graph with promotion="array_api", "numpy", "jax" or "torch", or with '
        'promotion.system("max", complex=True), which joins complex numbers to the lattice',
    )


def check_literal(value: Scalar, dtype: DType) -> None:
    """Raise an error for a Python scalar that `dtype` cannot hold: ints exactly, floats rounded but not overflowed."""
    if holds(value, dtype):
        return
    if isinstance(value, complex):
        fix = "cast the Symbol to a complex dtype first: .cast(DType.complex64)"
        if dtype.is_complex:
            fix = "cast the Symbol to the wider complex dtype: .cast(DType.complex128)"
        raise NoPromotion(f"{text_of(value)} cannot be held in {dtype}", help=fix, error=DTypeError)
    if dtype.is_complex:
        raise NoPromotion(
            f"{text_of(value)} cannot be held in {dtype}",
            help="cast the Symbol to the wider complex dtype, .cast(DType.complex128), or write a float",
            error=DTypeError,
        )
    if isinstance(value, float) and not dtype.is_float:
        fix = (
            f"cast the Symbol first: .cast(DType.float32), or write {int(value)!r}"
            if math.isfinite(value)
            else ("cast the Symbol to a float first: .cast(DType.float32)")
        )
    elif dtype.is_float:
        if abs(value) > dtype.max:
            wider = "float32" if abs(value) <= DType.float32.max and dtype.bits < 32 else "float64"
            fix = f"cast the Symbol to a wider float: .cast(DType.{wider})"
            if dtype is DType.float64 or abs(value) > DType.float64.max:
                fix = f"float64 holds {DType.float64.min} to {DType.float64.max}, and no dtype more"
        else:
            fix = f"write {float(value)!r} if rounding is meant, or cast the Symbol to a wider float"
    elif isinstance(value, int) and value.bit_length() > MOST_BITS:
        fix = f"integers have {MOST_BITS} bits at most"
    else:
        fix = f"{dtype} holds {text_of(dtype.min)} to {text_of(dtype.max)}; cast the Symbol to a wider dtype first"
    raise NoPromotion(f"{text_of(value)} cannot be held in {dtype}", help=fix, error=DTypeError)


def holds(value: Scalar, dtype: DType) -> bool:
    """Return whether a Python scalar may become a value of `dtype`: ints exactly, floats rounded but not overflowed."""
    if dtype.is_complex:
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        return all(holds(part, dtype.storage) for part in parts)
    if isinstance(value, complex):
        return False
    if dtype.is_float:
        if isinstance(value, float):
            # What overflows is what rounds past the greatest finite value: half a step beyond it.
            return not math.isfinite(value) or abs(value) <= dtype.max or math.isfinite(_rounded(value, dtype))
        try:
            return float(value) == value and _rounded(float(value), dtype) == value
        except OverflowError:
            return False
    if dtype.kind.value == "string" or isinstance(value, float):
        return False
    return dtype.min <= value <= dtype.max


def _rounded(value: float, dtype: DType) -> float:
    import numpy as np  # takes longer to import than all systems, and dtypes meet without it

    if dtype is DType.tensor_float32:
        bits = int(np.float32(value).view(np.uint32))
        return float(np.uint32((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).view(np.float32))
    with np.errstate(over="ignore"):
        return float(np.array(value, np.float64).astype(dtype.numpy))
