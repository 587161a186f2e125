"""Looking into a model: debug sessions, profiles, and the placement of nodes on providers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.runtime.inspection.debugging import marked, names_of, watched, with_outputs
    from graphcore.runtime.inspection.placement import RECORD, Placement, recorded
    from graphcore.runtime.inspection.profiling import Profile, profiled
    from graphcore.runtime.inspection.timing import count_of, timed

_HOMES = {
    "Placement": "placement",
    "Profile": "profiling",
    "RECORD": "placement",
    "count_of": "timing",
    "marked": "debugging",
    "names_of": "debugging",
    "profiled": "profiling",
    "recorded": "placement",
    "timed": "timing",
    "watched": "debugging",
    "with_outputs": "debugging",
}

if not TYPE_CHECKING:  # checkers know each name from the imports above

    def __getattr__(name: str) -> Any:
        """Return what looks into a model, imported when first used: most models only run."""
        if name not in _HOMES:
            raise AttributeError(f"module 'graphcore.runtime.inspection' has no attribute {name!r}")
        return getattr(import_module(f"graphcore.runtime.inspection.{_HOMES[name]}"), name)


__all__ = [
    "RECORD",
    "Placement",
    "Profile",
    "count_of",
    "marked",
    "names_of",
    "profiled",
    "recorded",
    "timed",
    "watched",
    "with_outputs",
]
