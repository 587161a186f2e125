"""Recipes: a model with its preprocessing, from rows of a table to arrays."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from graphcore.arrays.casting import Array
from graphcore.arrays.resource_limits import Limits
from graphcore.errors import GraphError, MissingExtraError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import attach
from graphcore.runtime.model import Model
from graphcore.types.tensor_types import TensorType


@runtime_checkable
class Recipe(Protocol):
    """A model with its preprocessing, such as a tokenizer: `models.minilm.Embedding()`. Must be picklable."""

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """The types of the columns that it reads, with the batch as the first axis."""

    @property
    def outputs(self) -> Mapping[str, TensorType]:
        """The types of the columns that it computes, with the batch as the first axis."""

    def graph(self) -> Graph:
        """Return the graph to load on each node."""

    def run(self, model: Model, rows: Sequence[Mapping[str, Array]]) -> Sequence[Sequence[Array]]:
        """Return the outputs of each row. model: the loaded graph."""


# Graphs from arguments: a Graph, or the path of a file.


def graph_of(what: str, model: object, limits: Limits | None = None) -> Graph:
    """Return a Graph. what: the caller, for errors. Raises `ModelError` unless `model` is a Graph or a path."""
    if isinstance(model, Graph):
        return model
    if isinstance(model, Model):
        raise ModelError(
            f"{what}: model must be a Graph or a path, got a Model, which belongs to this process",
            help="give the Graph or the path that it was loaded from",
        )
    if not isinstance(model, (str, os.PathLike)):
        raise ModelError(
            f"{what}: model must be a Graph or a path, got {type(model).__name__}",
            help="give a Graph, the path of an ONNX file, or a recipe",
        )
    attach()
    return Graph.load(model, limits=limits)


def require_counts(what: str, **counts: object) -> None:
    """Raise `GraphError` unless all numbers are integers of at least 1. what: the caller, for errors."""
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise GraphError(
                f"{what}: {name} must be an integer of at least 1, got {value!r:.40}", help="omit it for the default"
            )


# Packages of optional extras.


_SERVE = ("anyio", "h11", "starlette", "uvicorn")
_EXTRAS = {"ray": ("ray", "pyarrow", *_SERVE), "serve": _SERVE, "grpc": ("grpc", "google.protobuf")}


def require(extra: str, what: str) -> None:
    """Raise `MissingExtraError` if a package of an extra is not installed. what: the caller, for errors."""
    for package in _EXTRAS[extra]:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(
                f"{what}: the package {package} is not installed", help=f"pip install 'graphcore-engine[{extra}]'"
            )
