"""The OpenVINO provider: which graphs it computes, and its sessions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.runtime.ort.openvino.session import (
        PROVIDER,
        Compiled,
        Plan,
        options,
        planned,
        provider_options,
        refused,
        require_options,
    )

if not TYPE_CHECKING:  # checkers know each name from the imports above

    def __getattr__(name: str) -> Any:
        """Import a name of its sessions when it is first used: sessions of other providers need none."""
        if name not in __all__:
            raise AttributeError(f"module 'graphcore.runtime.ort.openvino' has no attribute {name!r}")
        return getattr(import_module("graphcore.runtime.ort.openvino.session"), name)


__all__ = ["PROVIDER", "Compiled", "Plan", "options", "planned", "provider_options", "refused", "require_options"]
