"""Iterators that are asked by a thread of their own, ahead of who reads them."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

_Made = TypeVar("_Made")


def ahead(items: Iterator[_Made], most: int = 1) -> Iterator[_Made]:
    """Yield what an iterator gives, which a thread asks for beforehand: so many that wait, and one in the making.

    What the iterator raises is raised in its place. The thread ends with the iterator, or when this one is closed.
    """
    waiting: queue.Queue[tuple[_Made | None, BaseException | None]] = queue.Queue(most)
    is_closed = threading.Event()

    def put(item: _Made | None, error: BaseException | None) -> bool:
        while not is_closed.is_set():
            with contextlib.suppress(queue.Full):
                waiting.put((item, error), timeout=0.1)
                return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item, None):
                    return
            put(None, StopIteration())
        except BaseException as error:  # for the other thread to raise
            put(None, error)

    threading.Thread(target=work, name="graphcore ahead", daemon=True).start()
    try:
        while True:
            item, error = waiting.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        is_closed.set()
