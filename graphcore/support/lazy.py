"""Modules that are imported when they are first used, so that a process imports only what it needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """A stand-in for a module. Type checkers see an import under TYPE_CHECKING, and this in the other branch."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(import_module(self._module), name)
        return value
