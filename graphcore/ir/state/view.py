"""Sequences that show a list without copying it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, overload

from graphcore.support.source_lines import Line, Origin

T = TypeVar("T", covariant=True)


class View(Sequence[T]):
    """A list that its owner alone changes. It grows with the list; `tuple(view)` is what it shows now.

    Equal to views, tuples and lists of the same elements. A slice is a tuple.
    """

    __slots__ = ("_items",)

    def __init__(self, items: list[T]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        found = self._items[index]
        return tuple(found) if isinstance(found, list) else found

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._items)

    def __contains__(self, value: object) -> bool:
        return value in self._items

    def __add__(self, other: Sequence[Any]) -> tuple[Any, ...]:
        return (*self._items, *other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, View):
            return self._items == other._items
        return isinstance(other, (tuple, list)) and self._items == [*other]

    __hash__ = None  # type: ignore[assignment]  # its elements change

    def __repr__(self) -> str:
        return repr(tuple(self._items))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a view belongs to its graph: pickle the graph, or tuple(view)")


# The origin of a graph's nodes: in the user's code, in the layers and in the file.


@dataclass(slots=True)
class Site:
    """The place that new nodes of a graph belong to."""

    layer: str = ""
    """The path of the layer being built, with a slash after it, or ""."""
    origin: Origin | Line | None = None
    """The line that new nodes belong to unless `is_user`."""
    is_user: bool = True
    """True if a user builds the graph: a new node belongs to the user's line that runs."""
    has_untyped: bool = False
    """True if there are nodes whose results' types were given and not inferred: `Graph.op` with `out_types`."""
    layers: dict[str, int] = field(default_factory=dict)
    """The number of times each layer was entered, by path."""
