"""Looking into a model: debug sessions, profiles, and the placement of nodes on providers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.runtime.inspection.placement import RECORD as RECORD
    from graphcore.runtime.inspection.placement import Placement as Placement
    from graphcore.runtime.inspection.placement import recorded as recorded
    from graphcore.runtime.inspection.profiling import Profile as Profile
    from graphcore.runtime.inspection.profiling import count_of as count_of
    from graphcore.runtime.inspection.profiling import marked as marked
    from graphcore.runtime.inspection.profiling import names_of as names_of
    from graphcore.runtime.inspection.profiling import profiled as profiled
    from graphcore.runtime.inspection.profiling import timed as timed
    from graphcore.runtime.inspection.profiling import watched as watched
    from graphcore.runtime.inspection.profiling import with_outputs as with_outputs

_HOMES = {
    **dict.fromkeys(("Placement", "RECORD", "recorded"), "placement"),
    **dict.fromkeys("Profile count_of marked names_of profiled timed watched with_outputs".split(), "profiling"),
}

if not TYPE_CHECKING:  # checkers know each name from the imports above

    def __getattr__(name: str) -> Any:
        """Import a function of inspection when it is first used: most models only run."""
        if name not in _HOMES:
            raise AttributeError(f"module 'graphcore.runtime.inspection' has no attribute {name!r}")
        return getattr(import_module(f"graphcore.runtime.inspection.{_HOMES[name]}"), name)
