"""Promotion systems: which dtype operands of different dtypes meet in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcore.dtypes import DType
from graphcore.errors import PromotionError
from graphcore.promotion.max import max_published, max_system
from graphcore.promotion.system import (
    Key,
    LatticeSystem,
    NoPromotion,
    Operand,
    PromotionSystem,
    Resolution,
    TableSystem,
    Term,
)

if TYPE_CHECKING:
    from graphcore.symbol import Symbol, SymbolTuple

_SYSTEMS: dict[str, PromotionSystem] = {s.name: s for s in (max_system, max_published)}


def system(name: str | PromotionSystem) -> PromotionSystem:
    """The promotion system of that name; a `PromotionSystem` is returned as it is. Raises `PromotionError`."""
    if isinstance(name, PromotionSystem):
        return name
    found = _SYSTEMS.get(name) if isinstance(name, str) else None
    if found is None:
        raise PromotionError(
            f"no promotion system is called {name!r}",
            help=f"use one of {', '.join(_SYSTEMS)}, or a PromotionSystem of your own",
        )
    return found


def implicit_cast_type(lhs: Any, rhs: Any, system: str | PromotionSystem = "max") -> DType:
    """The dtype in which values of two dtypes meet under a promotion system.

    lhs, rhs: DTypes or anything `DType.of` takes. Raises `PromotionError` naming both dtypes and the system where
    they do not meet, `DTypeError` for an unknown dtype.
    """
    rules = _find(system)
    left, right = DType.of(lhs), DType.of(rhs)
    try:
        return rules.resolve(Key("implicit_cast", "join"), [Operand(left), Operand(right)]).result
    except NoPromotion as refusal:
        raise refusal.error(f"implicit_cast_type: {refusal.reason}", help=refusal.help) from None


def implicit_cast(lhs: Symbol, rhs: Symbol) -> SymbolTuple:
    """Both Symbols, cast to the dtype in which they meet under their graph's system where they are not of it.

    Raises `PromotionError` where they do not meet, `GraphError` for Symbols of two graphs.
    """
    from graphcore.operands import promote
    from graphcore.symbol import SymbolTuple

    symbols, _ = promote("implicit_cast", "join", {"lhs": lhs, "rhs": rhs})
    return SymbolTuple(*symbols)


_find = system

__all__ = [
    "Key",
    "LatticeSystem",
    "NoPromotion",
    "Operand",
    "PromotionSystem",
    "Resolution",
    "TableSystem",
    "Term",
    "implicit_cast",
    "implicit_cast_type",
    "system",
]
