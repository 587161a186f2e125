"""Python scalars beside arrays: they take the arrays' dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.array_api._eager.array import Array
from graphcore.build.operands import promote
from graphcore.ir.literals import scalar_array
from graphcore.ir.symbol import Symbol
from graphcore.promotion.array_api import ArrayApi
from graphcore.promotion.rules.question import Key, NoPromotion, Operand, Rule, Scalar
from graphcore.promotion.system import PromotionSystem
from graphcore.types.dtypes import DType

PROMOTION = ArrayApi("2025.12 with float16")
"""The promotion system that Arrays compute with."""

_SCALARS = (bool, int, float, complex)


def is_scalar(value: object) -> bool:
    return type(value) in _SCALARS


def as_arrays(op: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values, in which scalars beside Arrays are Arrays of their dtype: so one graph serves all scalars.

    Scalars of NumPy are arrays without axes, of their own dtype.
    """
    if any(isinstance(value, np.generic) for value in values):
        values = tuple(np.asarray(value) if isinstance(value, np.generic) else value for value in values)
    kinds = [type(value) for value in values]
    if Symbol in kinds or Array not in kinds or not any(is_scalar(value) for value in values):
        return values
    dtype = joined(op, values)
    return tuple(Array(scalar_array(value, dtype)) if is_scalar(value) else value for value in values)


def joined(op: str, values: tuple[Any, ...], system: PromotionSystem = PROMOTION) -> DType:
    """The dtype in which dtypes, Symbols, arrays and Python scalars meet. Raises `PromotionError`."""
    given = [_operand(value) for value in values if value is not None]
    try:
        return system.resolve(Key(op, "join"), given).result
    except NoPromotion as refusal:
        raise refusal.error(f"{op}: {refusal.reason}", help=refusal.help) from None


def _operand(value: Any) -> Operand:
    if is_scalar(value):
        return Operand(None, literal=_scalar(value))
    if isinstance(value, (Array, Symbol)):
        return Operand(value.dtype)
    return Operand(DType.of(value.dtype if isinstance(value, np.ndarray) else value))


def _scalar(value: Any) -> Scalar:
    assert isinstance(value, _SCALARS)
    return value


def met(op: str, rule: Rule, x1: Any, x2: Any) -> tuple[Symbol, Symbol]:
    """Two operands as Symbols of the dtype in which they meet. Raises `PromotionError` and `DTypeError`."""
    (left, right), _ = promote(op, rule, {"x1": x1, "x2": x2})
    return left, right
