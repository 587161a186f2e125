"""Sources of warm starts: what is loaded, told from others by a cache key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from graphcore.arrays.casting import Array
from graphcore.runtime.model import Model
from graphcore.runtime.warm_start.cache import Cache

HASHED = 64 << 20
"""Bytes of weights up to which they are read to see whether they are the same."""

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Of the operators whose meaning no program changes."""


class Source(Protocol):
    """A graph or a file that is loaded, before it is read and lowered.

    key: of its entry in the cache, None for one that has none. name: for error messages. is_settled: whether what is
    written from now on would have another key.
    """

    cache: Cache
    key: str | None
    name: str
    is_settled: bool

    def entry(self) -> dict[str, Any] | None:
        """Return what an earlier load of it kept; None where nothing was, or it is damaged."""

    def arrays(self, names: Sequence[str]) -> dict[str, Array]:
        """Return its weights by name, where they lie. Raises `KeyError` where it has none of that name."""

    def again(self) -> Model:
        """Load all of it, for what needs its graph. Raises an error where it has changed."""


def kept_of(cache: Cache, key: str | None) -> dict[str, Any] | None:
    """Return what was kept under a key; None where nothing was. Raises `ValueError` for what is damaged."""
    found = None if key is None else cache.find(key, "start")
    entry: dict[str, Any] | None = None if found is None else json.loads(found)
    return entry
