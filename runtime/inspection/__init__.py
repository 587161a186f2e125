"""Looking into a model: debug sessions, profiles, and the placement of nodes on providers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.runtime.inspection.placement import RECORD, Placement, recorded
    from graphcore.runtime.inspection.profiling import (
        Profile,
        count_of,
        marked,
        names_of,
        profiled,
        timed,
        watched,
        with_outputs,
    )

_HOMES = {
    "Placement": "placement",
    "Profile": "profiling",
    "RECORD": "placement",
    "count_of": "profiling",
    "marked": "profiling",
    "names_of": "profiling",
    "profiled": "profiling",
    "recorded": "placement",
    "timed": "profiling",
    "watched": "profiling",
    "with_outputs": "profiling",
}

if not TYPE_CHECKING:  # checkers know each name from the imports above

    def __getattr__(name: str) -> Any:
        """Import a function of inspection when it is first used: most models only run."""
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
