"""Two models on the same arrays: their outputs in pairs, and the first value inside that differs."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import runtime
from graphcore.cli.measuring.distances import Distance, distance
from graphcore.cli.output import Advance
from graphcore.errors import FeedError
from graphcore.ir.graph import Graph
from graphcore.types.tensor_types import TensorType, Type

_FEWEST, _MOST_RUNS = 64, 16
"""Values inside that one run of both models compares at least, and runs at most: each starts a session of each."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of two models. old, new: its names."""

    old: str
    new: str
    distance: Distance


def paired(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    """Return names in pairs: equal ones, and the rest in order where there are as many of both."""
    found = {name: name for name in old if name in new}
    left, right = [name for name in old if name not in found], [name for name in new if name not in found]
    if len(left) == len(right):
        found |= dict(zip(left, right, strict=True))
    return [(name, found[name]) for name in old if name in found]


def feeds_for(names: Sequence[str], given: Mapping[str, Any], inputs: Mapping[str, Type], model: str) -> dict[str, Any]:
    """Return the arrays of one model for the inputs of another, cast to their dtypes.

    names: the first model's inputs. Raises `FeedError` where an input of the other has no counterpart.
    """
    pairs = {new: old for old, new in paired(names, [*inputs])}
    missing = [name for name in inputs if name not in pairs]
    if missing:
        raise FeedError(
            f"diff: nothing is given for {', '.join(missing)} of {model}",
            help=f"run models with the same inputs; the first has {', '.join(names) or 'none'}",
        )
    return {name: _cast(given[pairs[name]], type_) for name, type_ in inputs.items()}


def _cast(array: Any, type_: Type) -> Any:
    if not isinstance(array, np.ndarray) or not isinstance(type_, TensorType) or array.dtype == object:
        return array
    wanted = type_.dtype.numpy
    return array if array.dtype == wanted or wanted.kind == "O" else array.astype(wanted)


def first_difference(
    old: runtime.Model,
    new: runtime.Model,
    graphs: tuple[Graph, Graph],
    feeds: tuple[Mapping[str, Any], Mapping[str, Any]],
    tolerances: tuple[float, float],
    progress: Advance,
) -> Pair | None:
    """Return the first value inside whose numbers differ by more than the tolerances, in the order in which the first
    model makes them, of tensors that have the same name in both; None where there is none."""
    known = {s.name for node in graphs[1].nodes for s in node.outputs if isinstance(s.type, TensorType)}
    made = (s for node in graphs[0].nodes for s in node.outputs if isinstance(s.type, TensorType))
    names = [s.name for s in made if s.name in known]
    size = max(_FEWEST, -(-len(names) // _MOST_RUNS))
    for start in range(0, len(names), size):
        progress(start, len(names))
        chunk = names[start : start + size]
        watch = [glob.escape(name) for name in chunk]
        before, after = (model.debug(feed, watch=watch) for model, feed in zip((old, new), feeds, strict=True))
        for name in chunk:
            if name in before and name in after:
                found = distance(before[name], after[name], *tolerances)
                if found.is_far:
                    return Pair(name, name, found)
    return None
