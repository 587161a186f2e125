"""Promotion systems: which dtype operands of different dtypes meet in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcore.promotion.anvil import CommonDType, common_dtype
from graphcore.promotion.explain import Explanation, explain
from graphcore.promotion.registry import NAMES, implicit_cast_type, system
from graphcore.promotion.rules import Key, NoPromotion, Operand, Resolution, Term
from graphcore.promotion.system import LatticeSystem, PromotionSystem, TableSystem

if TYPE_CHECKING:

    def implicit_cast(lhs: Any, rhs: Any) -> Any:
        """Return both Symbols in the dtype in which they meet. Attached by `build.operands`, as `gc.implicit_cast`."""

else:

    def __getattr__(name: str) -> Any:
        """Return the function that builds graphs, which `build.operands` attaches when it is imported."""
        if name != "implicit_cast":
            raise AttributeError(f"module 'graphcore.promotion' has no attribute {name!r}")
        return import_module("graphcore.build.operands").implicit_cast


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
