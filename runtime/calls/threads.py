"""Calls of a Model in threads: some time later, and of large batches in pieces."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError
from graphcore.runtime.calls.batching import Batching
from graphcore.runtime.stopping.limit import Limit, current

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pool_of(name: str, in_order: bool) -> ThreadPoolExecutor:
    """Return threads for the calls of one Model. in_order: a single one, which makes calls in the order of asking."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1 if in_order else max(2, processors()), f"graphcore {name}", _begin)


_local = threading.local()


def _begin() -> None:
    _local.works = True


def rows_of(name: str, rows: object, what: str = "micro_batch") -> int:
    """Return a number of rows. what: how errors call it. Raises `FeedError` for what is none."""
    if not isinstance(rows, (int, np.integer)) or isinstance(rows, bool) or rows < 1:
        raise FeedError(f"{name}: {what}={rows!r:.80} is no number of rows", help="give 1 or more")
    return int(rows)


def in_pieces(
    call: Callable[..., list[Any]],
    batches: Batching,
    rows: int,
    feed: Mapping[str, Array],
    pool: Callable[[], ThreadPoolExecutor] | None,
) -> list[Any]:
    """Return the results of a feed that was checked, run in pieces of so many rows, see `Model.execute`.

    call: runs a piece. pool: threads to run pieces in side by side; None for a session with threads of its own, which
    is busy with one piece.
    """
    if batches.size is not None:
        raise ModelError(
            f"{batches.model}: micro_batch={rows}: the model takes {batches.size} rows and no other number",
            help="make the first dim of the inputs a name",
        )
    total = batches.rows(feed)
    if total <= rows:
        return call(*feed.values())
    pieces = [(start, min(start + rows, total)) for start in range(0, total, rows)]

    limit = current() or Limit(batches.model)

    def run(piece: tuple[int, int]) -> list[Array]:
        with limit:
            results = call(*batches.part(feed, *piece).values())
        batches.check(results, piece[1] - piece[0])
        return results

    # A thread of a pool, which a callback of the user's may be in, waits for no other one: all might.
    if pool is None or processors() == 1 or getattr(_local, "works", False):
        return batches.together([*map(run, pieces)])
    try:
        return batches.together([*pool().map(run, pieces)])
    except BaseException:
        limit.cancel()  # what other threads run yet
        raise
