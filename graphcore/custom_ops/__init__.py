"""Operators of other domains, declared by their users: `gc.custom_op`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.custom_ops.custom_op import CustomOp, lookup
else:

    def __getattr__(name: str) -> Any:
        """Return what declares operators, imported when first used: a model that only runs has none to look up."""
        if name not in __all__:
            raise AttributeError(f"module 'graphcore.custom_ops' has no attribute {name!r}")
        return getattr(import_module("graphcore.custom_ops.custom_op"), name)


__all__ = ["CustomOp", "lookup"]
