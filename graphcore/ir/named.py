"""Sequences with access by name: the inputs and outputs of a graph, and the results of its calls."""

from __future__ import annotations

from typing import ClassVar, Generic, SupportsIndex, TypeVar, overload

from graphcore.errors import GraphcoreError, GraphError
from graphcore.support.escaping import suggestion

T = TypeVar("T")
S = TypeVar("S")


class Named(Generic[T, S]):
    """Access to the items of a list or tuple by name: `out["hidden"]`, `out.hidden`.

    An item whose name is an attribute of the sequence, such as "count", is `out["count"]`.
    """

    _names: tuple[str, ...] | None = None
    _kind: str = "output"
    _error: ClassVar[type[GraphcoreError]] = GraphError

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple([s.name for s in self]) if self._names is None else self._names  # type: ignore[attr-defined]

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> S: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> T | S:
        """Return an item by position or name, or a slice. Raises `GraphError` or `FeedError` for an unknown name."""
        if not isinstance(key, str):
            return super().__getitem__(key)  # type: ignore[misc,no-any-return]
        names = self.names
        if key not in names:
            fix = f"{suggestion(key, names)}the {self._kind}s are {', '.join(map(repr, names))}"
            raise self._error(f"no {self._kind} is called {key!r:.80}", help=fix)
        return self[names.index(key)]

    def __getattr__(self, name: str) -> T:
        names = self.names
        if name not in names:
            listed = ", ".join(map(repr, names))
            message = f"no {self._kind} is called {name!r:.80}; the {self._kind}s are {listed}"
            raise AttributeError(message, name=name, obj=self)
        return self[name]
