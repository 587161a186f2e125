"""Walls around a worker process: limits, files, and calls of the kernel. They stand before a model is looked at."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, fields

from graphcore.runtime.isolation.walls import kernel


@dataclass(frozen=True, slots=True)
class Protections:
    """Which protections of a worker this machine has.

    memory: a limit of its data (RLIMIT_DATA). files: Landlock. system_calls: seccomp, which also closes the network
    and the metadata of files. parent: it ends with its parent, and has no capabilities.
    """

    memory: bool
    files: bool
    system_calls: bool
    parent: bool

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the names of those that it lacks."""
        return tuple(field.name for field in fields(self) if not getattr(self, field.name))


def protections() -> Protections:
    """Return which protections this machine has. Workers say themselves what they could not set up."""
    is_linux = sys.platform.startswith("linux")
    has_limits = importlib.util.find_spec("resource") is not None and sys.platform != "darwin"
    return Protections(has_limits, kernel.version() > 0, kernel.is_supported(), is_linux)
