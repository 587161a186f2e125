"""The results of a call: a list that knows the names of the outputs."""

from __future__ import annotations

import functools
from typing import Any

from graphcore.errors import FeedError
from graphcore.ir.named import Named


class NamedResults(Named[Any, "list[Any]"], list[Any]):
    """The outputs of a call in order, and by name."""

    _names = ()
    _error = FeedError

    def __reduce__(self) -> Any:
        return _restored, (self.names, [*self])


@functools.lru_cache(256)
def results_of(names: tuple[str, ...]) -> type[NamedResults]:
    """Return the type of the results of a model. A type for each model has the names at no cost for its calls."""
    return type("NamedResults", (NamedResults,), {"_names": names})


def _restored(names: tuple[str, ...], values: list[Any]) -> NamedResults:
    return results_of(names)(values)
