"""Beginnings of texts whose keys and values were computed before, kept for prompts that begin with the same tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphcore.arrays.casting import Array

LEAST = 16
"""Tokens that a prompt has to share: fewer are read in the time that finding and copying them takes."""


def shared(one: Array, other: Array) -> int:
    """Return how many tokens two texts begin with that are the same."""
    count = min(len(one), len(other))
    differs = one[:count] != other[:count]
    first = int(differs.argmax()) if count else 0
    return first if count and differs[first] else count


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Tokens, and by the names of the buffers their keys and values: [kv_heads, tokens, size]."""

    tokens: Array
    rows: Mapping[str, Array]


class Prefixes:
    """The store, of so many tokens at most: what was used least recently goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[Prefix] = []  # the most recently used last

    @property
    def tokens(self) -> int:
        """Return how many tokens are kept."""
        return sum(len(prefix.tokens) for prefix in self._kept)

    def longest(self, prompt: Array) -> tuple[int, Prefix | None]:
        """Return the prefix that has the most tokens of the beginning of a prompt, and how many."""
        counts = [shared(prefix.tokens, prompt) for prefix in self._kept]
        best = max(counts, default=0)
        return best, self._kept[len(counts) - 1 - counts[::-1].index(best)] if best else None

    def use(self, prefix: Prefix) -> None:
        """Note that a prefix was used."""
        self._kept.remove(prefix)
        self._kept.append(prefix)

    def keep(self, tokens: Array, rows: Mapping[str, Array]) -> None:
        """Keep a copy of the beginning of a text. rows: by the names of the buffers, [kv_heads, cache, size]."""
        tokens = tokens[: self._most]
        count = len(tokens)
        if count < LEAST:
            return
        found, prefix = self.longest(tokens)
        if prefix is not None and found == count:
            self.use(prefix)
            return
        self._kept = [kept for kept in self._kept if shared(kept.tokens, tokens) < len(kept.tokens)]
        room = self._most - count
        while self.tokens > room:
            del self._kept[0]
        self._kept.append(Prefix(tokens.copy(), {name: row[:, :count].copy() for name, row in rows.items()}))
