"""Recipes: a model, with what makes its arrays of the rows of a table."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from graphcore.arrays.casting import Array
from graphcore.arrays.resource_limits import Limits
from graphcore.errors import MissingExtraError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import attach
from graphcore.runtime.model import Model
from graphcore.types.tensor_types import TensorType


@runtime_checkable
class Recipe(Protocol):
    """A model and the steps before it, such as tokens for text: `models.minilm.Embedding()`. Recipes are pickled."""

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Return the types of the columns that it takes, with the batch as their first axis."""

    @property
    def outputs(self) -> Mapping[str, TensorType]:
        """Return the types of the columns that it gives, with the batch as their first axis."""

    def graph(self) -> Graph:
        """Return the graph that is placed on each node."""

    def run(self, model: Model, rows: Sequence[Mapping[str, Array]]) -> Sequence[Sequence[Array]]:
        """Return the outputs of each row, an array each. model: of the graph."""


# Graphs of what is given for a model: a Graph, or a file that is read.


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


# Packages of optional extras, and the error that names the extra where one is missing.


_SERVE = ("anyio", "starlette", "uvicorn")
_EXTRAS = {"ray": ("ray", "pyarrow", *_SERVE), "serve": _SERVE}


def require(extra: str, what: str) -> None:
    """Raise `MissingExtraError` where a package of an extra is not installed. what: what needs it."""
    for package in _EXTRAS[extra]:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(
                f"{what}: the package {package} is not installed", help=f"pip install 'graphcore-engine[{extra}]'"
            )
