"""Graphs called, cut and mended: each function makes a new graph, or adds one graph to another. See docs/surgery.md."""

from graphcore.surgery.call import Results, call
from graphcore.surgery.compose import compose
from graphcore.surgery.dims import with_dims
from graphcore.surgery.extract import extract
from graphcore.surgery.interface import with_constants, with_inputs, with_outputs, with_weights
from graphcore.surgery.rename import rename

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
