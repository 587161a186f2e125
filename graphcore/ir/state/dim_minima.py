"""Sizes that the named dims of a graph's inputs have at least: `Dim("batch", min=1)`.

Within a graph a dim is called by its name alone, so that a name is one dim wherever it is written; the bounds are a
note in the graph's metadata, which passes, pickling, files and readers hand on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from graphcore.types.dim_parser import BOUND, MOST, parse
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

NOTE = "graphcore.dims"
"""The key of the note: the bounds by name, as JSON."""


def without_minima(type_: Type, metadata: dict[str, str]) -> Type:
    """Return the type of an input with its dims called by their names alone, after noting the bounds that it states."""
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    if not any(BOUND in str(dim) for dim in type_.shape):
        return type_
    found = minima(metadata)

    def plain(text: int | str) -> Dim:
        dim = Dim(text)
        if dim.name is None:
            return dim
        found[dim.name] = max(dim.min, found.get(dim.name, 0))
        return Dim(dim.name)

    dims = [parse(str(dim), plain, {"max": Dim.maximum, "min": Dim.minimum}) for dim in type_.shape]
    metadata[NOTE] = json.dumps({name: least for name, least in sorted(found.items()) if least})
    return tensor_type(type_.dtype, _shape(dims), type_.ambiguous)


def minima(metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the bounds that a graph notes, by the names of dims; none where the note, which is untrusted, is wrong."""
    text = metadata.get(NOTE)
    if text is None:
        return {}
    try:
        found = json.loads(text)
        return {Dim(name).name or "": Dim(name, min=least).min for name, least in found.items() if 0 < least <= MOST}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def with_minima(type_: Type, known: Mapping[str, int]) -> Type:
    """Return the type of an input with the bounds of its dims."""
    if not known or not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    if not any(dim.name in known for dim in type_.shape):
        return type_
    dims = [dim if dim.name is None else Dim(dim, min=known.get(dim.name, 0)) for dim in type_.shape]
    return tensor_type(type_.dtype, _shape(dims), type_.ambiguous)


def least(dim: Dim, known: Mapping[str, int]) -> int:
    """Return a number that a dim is never below, for names that have these bounds."""
    bounded = dim.substitute({name: Dim(name, min=known[name]) for name in dim.parameters & known.keys()})
    return bounded.lower_bound or 0
