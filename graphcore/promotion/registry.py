"""The promotion systems by name: those of the publications, and those of array packages."""

from __future__ import annotations

import copyreg
import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from graphcore.errors import PromotionError
from graphcore.promotion.rules import Key, NoPromotion, Operand
from graphcore.promotion.system import PromotionSystem
from graphcore.support.escaping import suggestion
from graphcore.types.dtypes import DType

_SYSTEMS: dict[str, str] = {
    "max": "max.system",
    "max_published": "max.published",
    "kernel_float": "kernel_float.KernelFloat",
    "anvil": "anvil.Anvil",
    "array_api": "array_api.ArrayApi",
    "allo_hls": "allo.AlloHls",
    "allo_cpp": "allo.AlloCpp",
    "numpy": "packages.numpy.NumPy",
    "jax": "packages.jax.Jax",
    "torch": "packages.torch.Torch",
}
"""What makes each system, in modules of this folder, which are imported when the system is first asked for."""

NAMES: tuple[str, ...] = tuple(_SYSTEMS)
"""The published systems."""


def system(name: str | PromotionSystem, **options: Any) -> PromotionSystem:
    """Return the promotion system of that name; a `PromotionSystem` is returned as it is.

    options: `complex=False | True` of "max", which joins complex64 and complex128 to its lattice;
    `profile="2025.12" | "seed"` of "array_api"; `revision="seed" | "latest"` of "allo_hls" and "allo_cpp";
    `fast_math=False | True` of "allo_hls". The same name and options give the same object. Raises `PromotionError` for
    unknown names and options.
    """
    if isinstance(name, PromotionSystem) and not options:
        return name
    if not isinstance(name, str) or name not in _SYSTEMS:
        raise PromotionError(
            f"no promotion system is called {name!r}",
            help=f"{suggestion(name, _SYSTEMS)}use one of {', '.join(_SYSTEMS)}, or a PromotionSystem of your own",
        )
    try:
        return _made(name, tuple(sorted(options.items())))
    except PromotionError:
        raise
    except TypeError:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise PromotionError(f"{name} has no such option: {given}", help=_system_help(name)) from None


def restored(name: str, options: dict[str, Any]) -> PromotionSystem:
    """Return the system that was pickled."""
    return system(name, **options)


@functools.cache
def _made(name: str, options: tuple[tuple[str, Any], ...]) -> PromotionSystem:
    return _maker(name)(**dict(options))


def _maker(name: str) -> Callable[..., PromotionSystem]:
    module, _, label = _SYSTEMS[name].rpartition(".")
    maker: Callable[..., PromotionSystem] = getattr(import_module(f"{__package__}.{module}"), label)
    return maker


def _system_help(name: str) -> str:
    known = ", ".join(inspect.signature(_maker(name)).parameters)
    return f"its options: {known}" if known else "it has none"


def _reduced(self: PromotionSystem) -> tuple[Any, ...]:
    """Pickle a published system by its name, so that there is one of it."""
    if self.name in NAMES and system(self.name, **self.options) is self:
        return restored, (self.name, dict(self.options))
    return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]


setattr(PromotionSystem, "__reduce__", _reduced)  # noqa: B010 - here, where the names of systems are known


def implicit_cast_type(lhs: Any, rhs: Any, system: str | PromotionSystem = "max") -> DType:
    """Return the dtype in which values of two dtypes meet under a promotion system.

    lhs, rhs: DTypes, anything `DType.of` takes, or the publication's own spelling. Raises `PromotionError` naming both
    dtypes and the system where they do not meet, or where one is not of the lattice or table; `DTypeError` for an
    unknown dtype.
    """
    rules = _find(system)
    left, right = rules.dtype_of(lhs), rules.dtype_of(rhs)
    try:
        return rules.resolve(Key("implicit_cast", "join"), [Operand(left), Operand(right)]).result
    except NoPromotion as refusal:
        raise refusal.error(f"implicit_cast_type: {refusal.reason}", help=refusal.help) from None


_find = system
