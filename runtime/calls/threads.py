"""Calls of a Model in threads: some time later, and of large batches in pieces."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, ModelError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from graphcore.runtime.model import Model


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pool_of(name: str, in_order: bool) -> ThreadPoolExecutor:
    """Threads for the calls of one Model. in_order: a single one, so that calls are made in the order of asking."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1 if in_order else max(2, processors()), f"graphcore {name}", _begin)


_local = threading.local()


def _begin() -> None:
    _local.works = True


def in_pieces(model: Model, rows: object, feed: Mapping[str, Array]) -> list[Any]:
    """The results of a feed that was checked, run in pieces of so many rows, see `Model.execute`."""
    if not isinstance(rows, (int, np.integer)) or isinstance(rows, bool) or rows < 1:
        raise FeedError(f"{model.name}: micro_batch={rows!r:.80} is no number of rows", help="give 1 or more")
    batches = model._batching()
    if batches.size is not None:
        raise ModelError(
            f"{model.name}: micro_batch={rows}: the model takes {batches.size} rows and no other number",
            help="make the first dim of the inputs a name",
        )
    step, total = int(rows), batches.rows(feed)
    if total <= step:
        return model(*feed.values())
    pieces = [(start, min(start + step, total)) for start in range(0, total, step)]

    def run(piece: tuple[int, int]) -> list[Array]:
        results = model(*batches.part(feed, *piece).values())
        batches.check(results, piece[1] - piece[0])
        return results

    # A session with threads of its own is busy with one piece; one without runs as many as there are processors.
    # A thread of a pool, which a callback of the user's may be in, waits for no other one: all might.
    alone = model.session.get_session_options().intra_op_num_threads == 1 and processors() > 1
    alone = alone and not getattr(_local, "works", False)
    return batches.together([*(model._pool().map(run, pieces) if alone else map(run, pieces))])


__all__ = ["in_pieces", "pool_of", "processors"]
