"""Beginnings of texts whose keys and values were computed before, kept for prompts that begin with the same tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

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


# Prompt look-up: what followed the last tokens where they stood before in a text is proposed to follow them again.
#
# Saxena 2023, "Prompt Lookup Decoding"; the check of several tokens in one call is that of Leviathan et al. 2023,
# arXiv:2211.17192, for proposals that are certain.

_LENGTHS = (3, 2)
"""Tokens that must be the same, the longer first. One alone would propose too much that does not come."""


def proposed(tokens: Array, most: int) -> list[int]:
    """Return up to `most` tokens that may follow: those after the latest place where the last tokens stood before.

    A place with `most` tokens after it is preferred, which in a text that repeats itself is some periods back. tokens:
    int64[count], the whole text.
    """
    if most < 1:
        return []
    for length in _LENGTHS:
        starts = len(tokens) - length
        if starts < 1:
            continue
        same = tokens[:starts] == tokens[-length]
        for place in range(1, length):
            same &= tokens[place : place + starts] == tokens[place - length]
        found = np.flatnonzero(same)
        if found.size:
            whole = found[found <= starts - most]
            begin = int(whole[-1] if whole.size else found[0]) + length
            return [int(token) for token in tokens[begin : begin + most]]
    return []
