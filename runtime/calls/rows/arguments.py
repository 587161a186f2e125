"""The arguments of `Model.map`, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphcore.errors import FeedError
from graphcore.runtime.calls.threads import rows_of
from graphcore.runtime.stopping.limit import Limit, seconds_of

Call: TypeAlias = Callable[..., list[Any]]


@dataclass(frozen=True, slots=True)
class Arguments:
    """rows: of a batch, None for the quickest number. padding: the part of a batch that may be filled up. window: items
    that are read ahead. seconds: of the run of a batch, None for no end."""

    model: str
    rows: int | None
    padding: float
    window: int
    seconds: float | None

    def limited(self, call: Call) -> Call:
        """Return a call that ends after its seconds; the call itself where it has no end."""
        if self.seconds is None:
            return call

        def within(*arrays: Any) -> list[Any]:
            with Limit(self.model, self.seconds):
                return call(*arrays)

        return within


def arguments(model: str, items: object, batch: object, padding: object, window: object, timeout: object) -> Arguments:
    """Return what `map` is asked for. model: its name, for errors. Raises `FeedError` for what makes no sense."""
    rows = None if batch is None else rows_of(model, batch, "batch")
    ahead = rows_of(model, window, "window")
    if not isinstance(padding, (int, float)) or isinstance(padding, bool) or not 0 <= padding < 1:
        raise FeedError(
            f"map: {model}: padding={padding!r:.80} is no part of a batch", help="give 0 or more, and below 1"
        )
    if isinstance(items, Mapping) or not isinstance(items, Iterable):
        raise FeedError(
            f"map: {model}: a {type(items).__name__} is no iterable of items",
            help="give rows: a list or a generator of arrays, of tuples of arrays, or of dicts of them",
        )
    seconds = None if timeout is None else seconds_of(f"map: {model}", timeout)
    return Arguments(model, rows, float(padding), ahead, seconds)
