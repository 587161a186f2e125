"""Graphs computed in another dtype: `Graph.astype`."""

from graphcore.surgery.astype.convert import astype

__all__ = ["astype"]
