"""The OpenVINO provider: what it takes, and what it is given."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.runtime.ort.openvino.session import (
        PROVIDER,
        Compiled,
        Plan,
        given,
        options,
        planned,
        refused,
        require_options,
    )

if not TYPE_CHECKING:  # checkers know each name from the imports above

    def __getattr__(name: str) -> Any:
        """Return what its sessions need, imported when first used: those of other providers do not."""
        if name not in __all__:
            raise AttributeError(f"module 'graphcore.runtime.ort.openvino' has no attribute {name!r}")
        return getattr(import_module("graphcore.runtime.ort.openvino.session"), name)


__all__ = ["PROVIDER", "Compiled", "Plan", "given", "options", "planned", "refused", "require_options"]
