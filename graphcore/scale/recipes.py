"""Recipes: a model, with what makes its arrays of the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from graphcore.arrays.casting import Array
from graphcore.ir.graph import Graph
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
