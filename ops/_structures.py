"""Symbols in tuples, lists and dicts: what the functions of control flow take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


class Mismatch(Exception):
    """A value is not structured as it should be."""


@dataclass(frozen=True, slots=True)
class Structure:
    """How values are put together. kind: tuple, list, dict or a subclass, NoneType, or None for one value."""

    kind: type | None
    keys: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()

    @property
    def size(self) -> int:
        """The number of values."""
        return 1 if self.kind is None else sum(part.size for part in self.parts)

    def labels(self, stem: str) -> list[str]:
        """What errors call each value."""
        if self.kind is None:
            return [stem]
        pairs = zip(self.keys, self.parts, strict=True)
        return [label for key, part in pairs for label in part.labels(f"{stem}[{key!r}]")]

    def leaves(self, value: Any) -> list[Any]:
        """The values in `value`, which must be put together so; a list may stand for a tuple. Raises `Mismatch`."""
        if self.kind is None:
            if _family(value) is not None:
                raise Mismatch
            return [value]
        family = _family(value)
        if family is None or not issubclass(self.kind, family) or len(value or ()) != len(self.keys):
            raise Mismatch
        if family is dict and value.keys() != set(self.keys):
            raise Mismatch
        return [leaf for key, part in zip(self.keys, self.parts, strict=True) for leaf in part.leaves(value[key])]

    def build(self, values: Iterator[Any]) -> Any:
        """The values put together."""
        if self.kind is None:
            return next(values)
        parts = [part.build(values) for part in self.parts]
        if issubclass(self.kind, dict):
            return dict(zip(self.keys, parts, strict=True))
        if issubclass(self.kind, list):
            return parts
        if hasattr(self.kind, "_fields"):
            return self.kind(*parts)
        return tuple(parts) if issubclass(self.kind, tuple) else None

    def __str__(self) -> str:
        if self.kind is None:
            return "Symbol"
        if self.kind is type(None):
            return "None"
        if issubclass(self.kind, dict):
            return f"{{{', '.join(f'{key!r}: {part}' for key, part in zip(self.keys, self.parts, strict=True))}}}"
        inside = ", ".join(map(str, self.parts))
        return f"({inside}{',' if len(self.parts) == 1 else ''})"


def structure_of(value: Any) -> Structure:
    """How a value is put together; what is no tuple, list, dict or None is one value."""
    family = _family(value)
    if family is None:
        return Structure(None)
    keys = tuple(value) if family is dict else tuple(range(len(value or ())))
    return Structure(type(value), keys, tuple([structure_of(value[key]) for key in keys]))


_ORDERED = (tuple, list)


def _family(value: Any) -> Any:
    """The type, or types, that may stand for one another; None for what is one value."""
    if isinstance(value, dict):
        return dict
    if isinstance(value, _ORDERED):
        return _ORDERED
    return type(None) if value is None else None


def called(function: Callable[..., Any], value: Any, *first: Any) -> Any:
    """function(*first, value): a tuple or list as arguments of their own, a dict by its names, None as none."""
    if isinstance(value, dict):
        return function(*first, **value)
    if isinstance(value, _ORDERED):
        return function(*first, *value)
    return function(*first) if value is None else function(*first, value)
