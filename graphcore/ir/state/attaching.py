"""Operators of Symbols, and methods of Graphs that need more than a graph: folders above this one attach them.

They are imported before the first graph is made, and when a name of the class is asked for that it has not: whoever
only runs a model makes none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcore.support.gc_pause import freeze, uncollected

_PARTS = ("ops", "graph_methods", "surgery_methods", "build.functions")
_done: list[bool] = []


def attach() -> None:
    """Import what attaches, once."""
    if not _done:
        with uncollected():
            for name in _PARTS:
                import_module(f"graphcore.{name}")
            freeze()
        _done.append(True)


class Attached(type):
    """The class of Graph."""

    if not TYPE_CHECKING:  # who sees it lets every name be asked for

        def __getattr__(cls, name: str) -> Any:
            """Return what is attached under a name that the class has not yet."""
            if not _done and not name.startswith("__"):
                attach()
                return getattr(cls, name)
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

    def __dir__(cls) -> list[str]:
        attach()
        return [*super().__dir__()]
