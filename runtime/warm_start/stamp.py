"""Model files that were loaded before, known without being read: by which files they are and when they were written.

A stamp counts where the file was written some time before it was read: whoever writes it again gives it another one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Links
from graphcore.errors import ModelError
from graphcore.runtime.model import Model
from graphcore.runtime.warm_start.cache import Cache
from graphcore.runtime.warm_start.prepared import SETTLED
from graphcore.runtime.warm_start.source import kept_of


def stamp_of(path: str) -> tuple[str, bool]:
    """Return what tells a file from others and from itself as it was; and whether it is settled. Raises `OSError`."""
    found = os.stat(path)
    is_settled = time.time() - max(found.st_mtime, found.st_ctime) > SETTLED
    times = found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return repr((os.path.realpath(path), found.st_dev, found.st_ino, *times)), is_settled


class StampedSource:
    """A model file and the files beside it, by their stamps: a `Source`."""

    def __init__(self, cache: Cache, path: str, load: Callable[[], Model], links: Links | None) -> None:
        """load: loads the model without a cache. links: which links to its data may be followed. Raises `OSError`."""
        self._path = path
        self._load = load
        self._stamp, self.is_settled = stamp_of(path)
        self._files: list[tuple[str, str]] = []
        self.cache = cache
        self.name = path
        self.key: str | None = cache.digest(b"stamp", f"{self._stamp} {links}".encode("utf-8", "surrogateescape"))

    def entry(self) -> dict[str, Any] | None:
        """Return what an earlier load kept; None where that was of other files."""
        entry = kept_of(self.cache, self.key)
        if entry is None:
            return None
        self.name = entry["name"]
        self._files = [(location, stamp) for location, stamp in entry["files"]]
        return entry if self._is_unchanged_beside() else None

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return its weights by name: none, since entries of files have them."""
        if names:
            raise KeyError(names[0])
        return {}

    def again(self) -> Model:
        """Load all of the file. Raises `ModelError` where it is another one by now."""
        if not self.is_unchanged():
            raise ModelError(f"load: the file of {self.name} was changed since it was loaded", help="load it again")
        return self._load()

    def is_unchanged(self) -> bool:
        """Return whether the file, and those beside it, are the ones that were stamped."""
        try:
            return stamp_of(self._path)[0] == self._stamp and self._is_unchanged_beside()
        except OSError:
            return False

    def keep(self, entry: dict[str, Any], locations: Sequence[str]) -> None:
        """Keep an entry for this file. locations: of the files beside it. Where some are not settled, none is kept."""
        if self.key is None or not self.is_settled or entry["weights"]:
            return
        try:
            stamps = [(location, *stamp_of(self._beside(location))) for location in locations]
        except OSError:
            return
        self._files = [(location, stamp) for location, stamp, _ in stamps]
        if all(is_settled for _, _, is_settled in stamps) and self.is_unchanged():
            self.cache.save(self.key, json.dumps(entry | {"files": self._files}).encode(), "start")

    def _is_unchanged_beside(self) -> bool:
        try:
            return all(stamp_of(self._beside(location))[0] == stamp for location, stamp in self._files)
        except OSError:
            return False

    def _beside(self, location: str) -> str:
        return os.path.join(os.path.dirname(os.path.abspath(self._path)), location)


def stamped_source(cache: Cache, model: object, load: Callable[[], Model], links: Links | None) -> StampedSource | None:
    """Return the source of a file by its stamp; None for what is no path of a file."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    try:
        return StampedSource(cache, os.fsdecode(model), load, links)
    except (OSError, ValueError):  # which reading it says better
        return None
