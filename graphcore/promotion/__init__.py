"""Promotion systems: the common dtype of operands of different dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, Term
from graphcore.promotion.system import NAMES, LatticeSystem, PromotionSystem, TableSystem, implicit_cast_type, system
from graphcore.support.lazy import attributes

if TYPE_CHECKING:
    from graphcore.promotion.anvil import CommonDType, common_dtype
    from graphcore.promotion.explanations import Explanation, explain

    def implicit_cast(lhs: Any, rhs: Any) -> Any:
        """Return both Symbols in their common dtype. Defined in `build.operands`, and public as `gc.implicit_cast`."""

else:
    _HOMES = {"CommonDType": "anvil", "common_dtype": "anvil", "Explanation": "explanations", "explain": "explanations"}
    __getattr__ = attributes(__name__, {**_HOMES, "implicit_cast": ".build.operands"})


__all__ = [
    "NAMES",
    "CommonDType",
    "Explanation",
    "Key",
    "LatticeSystem",
    "NoPromotion",
    "Operand",
    "PromotionSystem",
    "Resolution",
    "TableSystem",
    "Term",
    "common_dtype",
    "explain",
    "implicit_cast",
    "implicit_cast_type",
    "system",
]
