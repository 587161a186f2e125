"""Promotion systems: the common dtype of operands of different dtypes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, Term
from graphcore.promotion.system import NAMES, LatticeSystem, PromotionSystem, TableSystem, implicit_cast_type, system

if TYPE_CHECKING:
    from graphcore.promotion.anvil import CommonDType, common_dtype
    from graphcore.promotion.explanations import Explanation, explain

    def implicit_cast(lhs: Any, rhs: Any) -> Any:
        """Return both Symbols in their common dtype. Defined in `build.operands`, and public as `gc.implicit_cast`."""

else:

    def __getattr__(name: str) -> Any:
        """Import the module of a lazy name on first use."""
        if name not in _HOMES:
            raise AttributeError(f"module 'graphcore.promotion' has no attribute {name!r}")
        return getattr(import_module(f"graphcore.{_HOMES[name]}"), name)

    _HOMES = {
        "CommonDType": "promotion.anvil",
        "Explanation": "promotion.explanations",
        "common_dtype": "promotion.anvil",
        "explain": "promotion.explanations",
        "implicit_cast": "build.operands",
    }


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
