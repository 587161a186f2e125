"""Custom operators of any domain, declared by `gc.custom_op`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.custom_ops.custom_op import CustomOp, lookup
else:

    def __getattr__(name: str) -> Any:
        """Import the module of declarations on first use: running a model does not need it."""
        if name not in __all__:
            raise AttributeError(f"module 'graphcore.custom_ops' has no attribute {name!r}")
        return getattr(import_module("graphcore.custom_ops.custom_op"), name)


__all__ = ["CustomOp", "lookup"]
