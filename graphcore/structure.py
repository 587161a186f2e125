"""Nested tuples, lists and dicts taken apart into their leaves, and put together again around others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from graphcore.errors import GraphError


@dataclass(frozen=True, slots=True)
class Leaf:
    """The place of a leaf."""


@dataclass(frozen=True, slots=True)
class Static:
    """A value that is no leaf. Two are equal if nothing can tell their values apart."""

    key: Hashable
    value: Any = field(compare=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple, list or dict of structures."""

    kind: type
    keys: tuple[Hashable, ...]
    members: tuple[Structure, ...]


Structure: TypeAlias = Leaf | Static | Group

_LEAF = Leaf()


def structure_of(
    value: Any, label: str, is_leaf: Callable[[Any], bool], leaves: list[tuple[str, Any]], place: str
) -> Structure:
    """How a value is nested; its leaves are appended to `leaves` with labels such as `params.weight`.

    Raises `GraphError`, which begins with `place`, for a value that is neither a leaf nor hashable.
    """
    if is_leaf(value):
        leaves.append((label, value))
        return _LEAF
    if isinstance(value, (tuple, list, dict)):
        parts = (
            value.items() if isinstance(value, dict) else zip(getattr(value, "_fields", count()), value, strict=False)
        )
        pairs = [(k, structure_of(v, f"{label}.{k}" if label else str(k), is_leaf, leaves, place)) for k, v in parts]
        keys = tuple(k for k, _ in pairs) if isinstance(value, dict) else ()
        return Group(type(value), keys, tuple(member for _, member in pairs))
    if isinstance(value, (float, complex, np.generic)):  # by their text NaNs are equal, and zeros of two signs are not
        return Static((type(value), repr(value)), value)
    try:
        hash(value)
    except TypeError:
        raise GraphError(
            f"{place}: {label or 'a value'} is a {type(value).__name__}, neither a Symbol nor hashable",
            help="give Symbols and arrays, tuples, lists and dicts of them, or values that can be hashed",
        ) from None
    return Static((type(value), value), value)


def rebuilt(structure: Structure, leaves: Iterator[Any]) -> Any:
    """The value of a structure with these leaves, in order."""
    if isinstance(structure, Leaf):
        return next(leaves)
    if isinstance(structure, Static):
        return structure.value
    members = [rebuilt(member, leaves) for member in structure.members]
    if issubclass(structure.kind, dict):
        return dict(zip(structure.keys, members, strict=True))
    if issubclass(structure.kind, list):
        return members
    return structure.kind(*members) if hasattr(structure.kind, "_fields") else tuple(members)
