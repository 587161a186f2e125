"""The results of a call: a list that knows the names of the outputs."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, SupportsIndex, overload

from graphcore.errors import FeedError
from graphcore.support.escaping import suggestion


class NamedResults(list[Any]):
    """The outputs of a call in order, and by name: `out["hidden"]`, `out.hidden`.

    names: of the outputs. An output whose name is an attribute of lists, such as "count", is `out["count"]`.
    """

    names: ClassVar[tuple[str, ...]] = ()

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        if not isinstance(key, str):
            return list.__getitem__(self, key)
        if key not in self.names:
            raise FeedError(
                f"no output is called {key!r:.80}",
                help=f"{suggestion(key, self.names)}the outputs are {', '.join(map(repr, self.names))}",
            )
        return list.__getitem__(self, self.names.index(key))

    def __getattr__(self, name: str) -> Any:
        if name not in self.names:
            listed = ", ".join(map(repr, self.names))
            raise AttributeError(f"no output is called {name!r:.80}; the outputs are {listed}", name=name, obj=self)
        return self[name]

    def __reduce__(self) -> Any:
        return _restored, (self.names, [*self])


@functools.lru_cache(256)
def results_of(names: tuple[str, ...]) -> type[NamedResults]:
    """Return the type of the results of a model. A type for each model has the names at no cost for its calls."""
    return type("NamedResults", (NamedResults,), {"names": names})


def _restored(names: tuple[str, ...], values: list[Any]) -> NamedResults:
    return results_of(names)(values)
