"""The differences of two graphs: `Graph.diff`."""

from graphcore.surgery.diff.compare import diff
from graphcore.surgery.diff.records import Diff

__all__ = ["Diff", "diff"]
