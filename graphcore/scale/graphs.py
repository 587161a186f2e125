"""Graphs of what is given for a model: a Graph, or a file that is read."""

from __future__ import annotations

import os

from graphcore.arrays.resource_limits import Limits
from graphcore.errors import ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import attach
from graphcore.runtime.model import Model


def graph_of(what: str, model: object, limits: Limits | None = None) -> Graph:
    """Return a Graph. what: as errors call it. Raises `ModelError` for anything but a Graph or the path of a file."""
    if isinstance(model, Graph):
        return model
    if isinstance(model, Model):
        raise ModelError(
            f"{what}: a Model is loaded for this process, and others load their own",
            help="give the Graph or the path that it was loaded from",
        )
    if not isinstance(model, (str, os.PathLike)):
        raise ModelError(
            f"{what}: a {type(model).__name__} is no model", help="give a Graph, the path of an ONNX file, or a recipe"
        )
    attach()
    return Graph.load(model, limits=limits)
