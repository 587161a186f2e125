"""Promotion systems: which dtype operands of different dtypes meet in."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphcore.errors import PromotionError
from graphcore.promotion.allo import AlloCpp, AlloHls
from graphcore.promotion.anvil import Anvil, CommonDType, common_dtype
from graphcore.promotion.array_api import ArrayApi
from graphcore.promotion.explain import Explanation, explain
from graphcore.promotion.kernel_float import KernelFloat
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
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    from graphcore.ir.symbol import Symbol, SymbolTuple

_SYSTEMS: dict[str, Callable[..., PromotionSystem]] = {
    "max": lambda: max_system,
    "max_published": lambda: max_published,
    "kernel_float": KernelFloat,
    "anvil": Anvil,
    "array_api": ArrayApi,
    "allo_hls": AlloHls,
    "allo_cpp": AlloCpp,
}

NAMES: tuple[str, ...] = tuple(_SYSTEMS)
"""The published systems."""


def system(name: str | PromotionSystem, **options: Any) -> PromotionSystem:
    """The promotion system of that name; a `PromotionSystem` is returned as it is.

    options: `profile="2025.12" | "seed"` of "array_api", `revision="seed" | "latest"` of "allo_hls" and "allo_cpp",
    `fast_math=False | True` of "allo_hls". The same name and options give the same object. Raises `PromotionError` for
    names and options that there are not.
    """
    if isinstance(name, PromotionSystem) and not options:
        return name
    if not isinstance(name, str) or name not in _SYSTEMS:
        raise PromotionError(
            f"no promotion system is called {name!r}",
            help=f"use one of {', '.join(_SYSTEMS)}, or a PromotionSystem of your own",
        )
    try:
        return _made(name, tuple(sorted(options.items())))
    except PromotionError:
        raise
    except TypeError:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise PromotionError(f"{name} has no such option: {given}", help=_system_help(name)) from None


def restored(name: str, options: dict[str, Any]) -> PromotionSystem:
    """The system that was pickled."""
    return system(name, **options)


@functools.cache
def _made(name: str, options: tuple[tuple[str, Any], ...]) -> PromotionSystem:
    return _SYSTEMS[name](**dict(options))


def _system_help(name: str) -> str:
    known = ", ".join(inspect.signature(_SYSTEMS[name]).parameters)
    return f"its options: {known}" if known else "it has none"


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
    from graphcore.build.operands import promote
    from graphcore.ir.symbol import SymbolTuple

    symbols, _ = promote("implicit_cast", "join", {"lhs": lhs, "rhs": rhs})
    return SymbolTuple(*symbols)


_find = system

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
