"""The graph that a pass of lowering makes: its nodes take the line of the node they come from."""

from __future__ import annotations

from graphcore.ir.graph import Graph


class Draft(Graph):
    """A Graph whose nodes belong to `_origin`, the line of the node being looked at, and look for none themselves."""

    _around: frozenset[int] | set[int] = frozenset()
    """The numbers of what the casts around an expansion give, which `precision="fast"` may leave out."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._is_written = False


__all__ = ["Draft"]
