"""Graphs called, cut and mended: each function makes a new graph, or adds one graph to another. See docs/surgery.md."""

from graphcore.surgery.calling import Results, call
from graphcore.surgery.composing import compose
from graphcore.surgery.dims import with_dims
from graphcore.surgery.extracting import extract
from graphcore.surgery.interface import with_constants, with_inputs, with_outputs, with_weights
from graphcore.surgery.renaming import rename

__all__ = [
    "Results",
    "call",
    "compose",
    "extract",
    "rename",
    "with_constants",
    "with_dims",
    "with_inputs",
    "with_outputs",
    "with_weights",
]
