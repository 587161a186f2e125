"""The origin of a graph's nodes: in the user's code, in the layers and in the file."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphcore.support.source_lines import Line, Origin


@dataclass(slots=True)
class Site:
    """The place that new nodes of a graph belong to."""

    layer: str = ""
    """The path of the layer being built, with a slash after it, or ""."""
    origin: Origin | Line | None = None
    """The line that new nodes belong to unless `is_user`."""
    is_user: bool = True
    """True if a user builds the graph: a new node belongs to the user's line that runs."""
    has_untyped: bool = False
    """True if there are nodes whose results' types were given and not inferred: `Graph.op` with `out_types`."""
    layers: dict[str, int] = field(default_factory=dict)
    """The number of times each layer was entered, by path."""
