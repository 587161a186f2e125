"""Looking into a model: debug sessions, profiles, and the placement of nodes on providers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.runtime.inspection.placement import *  # noqa: F403 - the names for type checkers
    from graphcore.runtime.inspection.profiling import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Import a function of inspection when it is first used: most models only run."""
        for home in ("profiling", "placement"):
            module = import_module(f"graphcore.runtime.inspection.{home}")
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module 'graphcore.runtime.inspection' has no attribute {name!r}")
