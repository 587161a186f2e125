"""A text that is being generated: its tokens, and what ends it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.models.streams.sampling import Choice


class Text:
    """A prompt and the tokens made after it.

    made: the new tokens so far. held: of how many tokens the keys and values are in the row of the text, while it is
    read; from then on those of all but the last. is_done: no token will follow. error: why it ended early, or None.
    """

    __slots__ = (
        "_drawn",
        "_ends",
        "_most",
        "_tokens",
        "choice",
        "count",
        "error",
        "held",
        "is_done",
        "last",
        "lookup",
        "made",
        "numbers",
        "reach",
    )  # fmt: skip

    def __init__(
        self,
        prompt: Array,
        most: int,
        ends: Collection[int],
        choice: Choice,
        numbers: Iterator[float],
        lookup: int = 0,
    ) -> None:
        """most: new tokens. numbers: what `choice` draws with, one for each token. lookup: tokens that are looked up at
        once, at most."""
        self.choice = choice
        self.numbers = numbers
        self.lookup = self.reach = lookup
        self.made: list[int] = []
        self.count = len(prompt)
        self.held = 0
        self.last = int(prompt[-1])
        self.is_done = not most
        self.error: BaseException | None = None
        self._tokens = np.empty(len(prompt) + most, np.int64)
        self._tokens[: len(prompt)] = prompt
        self._most = most
        self._ends = frozenset(ends)
        self._drawn: float | None = None

    @property
    def tokens(self) -> Array:
        """Return the prompt and what was made: a view."""
        return self._tokens[: self.count]

    @property
    def left(self) -> int:
        """Return how many tokens may still be made."""
        return self._most - len(self.made)

    def number(self) -> float:
        """Return the number that tells the next token, the same until that is added."""
        if self._drawn is None:
            self._drawn = next(self.numbers)
        return self._drawn

    def add(self, token: int) -> None:
        """Add a token, unless the text was ended meanwhile."""
        if self.is_done:
            return
        self._tokens[self.count] = self.last = token
        self.held = self.count
        self.count += 1
        self._drawn = None
        self.made.append(token)
        if token in self._ends or len(self.made) == self._most:  # another thread may have ended it: never back to False
            self.is_done = True

    def fail(self, error: BaseException) -> None:
        """End the text for an error, unless it has ended."""
        if not self.is_done:
            self.error = error
            self.is_done = True
