"""Modules that are imported when they are first used, so that a process imports only what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import resolve_name
from types import ModuleType
from typing import Any

from graphcore.support.gc_pause import freeze, uncollected


class Lazy:
    """A stand-in for a module. Type checkers see an import under TYPE_CHECKING, and this in the other branch."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(_imported(self._module), name)
        return value


def _imported(module: str) -> ModuleType:
    if module not in sys.modules:  # each freeze puts off the next collection
        with uncollected():
            import_module(module)
            freeze()
    return import_module(module)


def attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the function `__getattr__` of a package, which imports the module of a name when it is first used.

    homes: the modules, relative to the package.
    """

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(_imported(resolve_name(f".{homes[name]}", package)), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute
