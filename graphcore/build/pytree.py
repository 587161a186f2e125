"""Flattens nested tuples, lists, dicts and slices into leaves, and rebuilds them with other leaves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphcore.errors import GraphcoreError, GraphError


class Mismatch(Exception):
    """The structure of a value differs from the expected one."""


# Named tuples, since structures are keys of caches and each call hashes them.


class Leaf(NamedTuple):
    """The position of a leaf."""

    def __str__(self) -> str:
        return "Symbol"


class Static(NamedTuple):
    """A value that is not a leaf. key: its type, and its text if equal values of that type can differ."""

    key: Any
    value: Any

    def __str__(self) -> str:
        return repr(self.value)


class Group(NamedTuple):
    """A tuple, list, dict or slice of structures. keys: the keys of a dict."""

    kind: type
    keys: tuple[Hashable, ...]
    members: tuple[Structure, ...]

    def __str__(self) -> str:
        if issubclass(self.kind, dict):
            return f"{{{', '.join(f'{k!r}: {member}' for k, member in zip(self.keys, self.members, strict=True))}}}"
        return f"({', '.join(map(str, self.members))}{',' if len(self.members) == 1 else ''})"


Structure: TypeAlias = Leaf | Static | Group

_LEAF = Leaf()
_SLICE = ("start", "stop", "step")
_PLAIN = frozenset({int, bool, str, bytes, type(None), type, type(...)})
"""Types of hashable values that are equal only if they are the same."""
_nans: dict[Hashable, Any] = {}
"""One NaN per type, since a NaN is equal only to the same object."""


def structure_of(
    value: Any,
    is_leaf: Callable[[Any], bool],
    leaves: list[Any],
    place: str,
    stem: str = "",
    error: type[GraphcoreError] = GraphError,
) -> Structure:
    """Return the nesting of a value, and append its leaves to `leaves`.

    Raises `error` for a value that is neither a leaf nor hashable. place, stem: its location for the message.
    """
    try:
        return _structure(value, is_leaf, leaves)
    except TypeError:
        path, what = _unhashable(value, is_leaf, (stem,) if stem else ())
        raise error(
            f"{place}{'.'.join(map(str, path)) or 'a value'} must be a Symbol, an array or hashable, got {what}",
            help="pass Symbols and arrays, tuples, lists and dicts of them, or hashable values",
        ) from None


def _structure(value: Any, is_leaf: Callable[[Any], bool], leaves: list[Any]) -> Structure:
    """Raise `TypeError` for a value that is neither a leaf nor hashable."""
    if is_leaf(value):
        leaves.append(value)
        return _LEAF
    kind = type(value)
    if kind in _PLAIN:
        return Static(kind, value)
    if isinstance(value, dict):
        return Group(kind, tuple(value), tuple([_structure(v, is_leaf, leaves) for v in value.values()]))
    if kind is slice or isinstance(value, (tuple, list)):
        return Group(kind, (), tuple([_structure(v, is_leaf, leaves) for v in _members(value)]))
    if isinstance(value, (float, complex, np.generic)):  # the text distinguishes 0.0 and -0.0
        key = kind, repr(value)
        return Static(key, value if value == value else _nans.setdefault(key, value))
    hash(value)
    return Static(kind, value)


def _members(value: Any) -> Iterable[Any]:
    return (value.start, value.stop, value.step) if type(value) is slice else value


def _unhashable(value: Any, is_leaf: Callable[[Any], bool], path: tuple[object, ...]) -> tuple[tuple[object, ...], str]:
    """Return the path and type name of the first value that is neither a leaf nor hashable."""
    structured = isinstance(value, (tuple, list, dict, slice))
    pairs = value.items() if isinstance(value, dict) else enumerate(_members(value)) if structured else ()
    for key, member in pairs:
        try:
            _structure(member, is_leaf, [])
        except TypeError:
            return _unhashable(member, is_leaf, (*path, key))
    return path, type(value).__name__


def labels_of(structure: Structure, stem: str = "") -> list[str]:
    """Return the names of the leaves, such as `params.weight`, in order."""
    if isinstance(structure, Leaf):
        return [stem]
    if isinstance(structure, Static):
        return []
    return [
        label
        for key, member in zip(_keys(structure), structure.members, strict=True)
        for label in labels_of(member, f"{stem}.{key}" if stem else str(key))
    ]


def rebuilt(structure: Structure, leaves: Iterator[Any]) -> Any:
    """Return the value with a structure and these leaves, in order."""
    if isinstance(structure, Leaf):
        return next(leaves)
    if isinstance(structure, Static):
        return structure.value
    members = [rebuilt(member, leaves) for member in structure.members]
    if issubclass(structure.kind, dict):
        return dict(zip(structure.keys, members, strict=True))
    if issubclass(structure.kind, list):
        return members
    if structure.kind is slice or hasattr(structure.kind, "_fields"):
        return structure.kind(*members)
    return tuple(members)


def leaves_like(structure: Structure, value: Any) -> list[Any]:
    """Return the leaves of a value with this structure; a list may replace a tuple. Raises `Mismatch` for others."""
    if isinstance(structure, Leaf):
        if value is None or isinstance(value, (tuple, list, dict)):
            raise Mismatch
        return [value]
    if isinstance(structure, Static):
        if type(value) is not type(structure.value):
            raise Mismatch
        return []
    if issubclass(structure.kind, dict):
        if not isinstance(value, dict) or value.keys() != set(structure.keys):
            raise Mismatch
        parts: Iterable[Any] = (value[key] for key in structure.keys)
    elif isinstance(value, (tuple, list)) and len(value) == len(structure.members):
        parts = value
    else:
        raise Mismatch
    return [leaf for member, part in zip(structure.members, parts, strict=True) for leaf in leaves_like(member, part)]


def _keys(group: Group) -> Iterable[object]:
    if issubclass(group.kind, dict):
        return group.keys
    if group.kind is slice:
        return _SLICE
    return getattr(group.kind, "_fields", range(len(group.members)))
